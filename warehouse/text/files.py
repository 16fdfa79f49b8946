"""Text files as blocks of whole records.

A file whose name ends in .gz, .bz2 or .zst is decompressed. One block is in memory at a time: 8 MB, or as
much as its longest record needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import report_unreadable_input
from tidemark.warehouse.text.csv_records import record_ends

_BLOCK_BYTES = 2**23
_MAX_RECORD_BYTES = 2**28  # a longer one is a quote that was never closed, or no text
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNSUPPORTED = {".lz4", ".snappy", ".deflate", ".xz", ".zip", ".br"}
_UTF8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00\xfe\xff": "UTF-32"}


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records of a file (binary, with their line ends).

    first    the number of the line of the first record, counted from 1
    unusable the reason for which none of the records can be read, if there is one
    """

    path: str
    first: int
    records: pa.Array
    unusable: str = ""

    def line(self, row: int) -> int:
        """The number of the line in which a record begins, counted from 1."""
        return int(self.lines()[row])

    def lines(self) -> NDArray[np.int64]:
        """The line in which each record begins, and then that after the last record."""
        counts = as_numpy(pc.count_substring(self.records, b"\n"))
        lines: NDArray[np.int64] = self.first + np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return lines

    def after(self, row: int) -> Block:
        """The records after this one."""
        return Block(self.path, self.line(row + 1), self.records[row + 1 :], self.unusable)

    def refuse(self, row: int, reason: str) -> InputError:
        """The InputError for a record."""
        return InputError(
            f"cannot read the input {self.path}, line {self.line(row)}: {reason}. Nothing was changed. "
            "Correct the line, or leave it out."
        )


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of the file in order, decompressed and without a byte order mark."""
    if path.suffix in _UNSUPPORTED:
        raise InputError(f"{path} is compressed as {path.suffix}. Expected .gz, .bz2 or .zst: pack it anew.")
    with (
        report_unreadable_input(path),
        pa.input_stream(str(path), compression=_COMPRESSED.get(path.suffix)) as file,
    ):
        if begin := file.read(_BLOCK_BYTES).removeprefix(_UTF8_MARK):
            yield begin
        while read := file.read(_BLOCK_BYTES):
            yield read


def blocks(path: str, chunks: Iterable[bytes], form: str, first: int = 1) -> Iterator[Block]:
    """The whole records of the text that the chunks make together; its first line has the number `first`.

    form   csv, tsv or json

    InputError for text that begins as UTF-16 or UTF-32, and for a record beyond all sizes.
    """
    for block in all_blocks(path, chunks, form, first, is_begin=first == 1):
        if block.unusable:
            raise block.refuse(0, block.unusable)
        yield block


def all_blocks(
    path: str, chunks: Iterable[bytes], form: str, first: int = 1, *, is_begin: bool
) -> Iterator[Block]:
    """As `blocks`, but what cannot be read is in unusable blocks; `is_begin`: the text begins the file."""
    unfinished: list[bytes] = []
    size, wanted = 0, 0
    unusable = None
    for chunk in chain(chunks, [b""]):
        if unusable is None:
            unusable = _other_encoding(chunk) if is_begin else ""
        unfinished.append(chunk)
        size += len(chunk)
        if size < wanted and chunk:
            continue
        text = b"".join(unfinished)
        if not chunk and text and not text.endswith(b"\n"):
            text += b"\n"
        ends = line_ends(text) if form == "json" else record_ends(text)
        if not chunk and len(text) and (not len(ends) or ends[-1] < len(text)):
            ends = np.append(ends, len(text))  # the last record has an open quote
        if len(ends):
            yield Block(path, first, _array(text, ends), unusable)
            first += text.count(b"\n", 0, int(ends[-1]))
            text = text[ends[-1] :]
        if len(text) > _MAX_RECORD_BYTES:
            reason = f"a record of more than {_MAX_RECORD_BYTES:,} bytes; is a quote open?"
            yield Block(path, first, _array(text, np.array([len(text)])), reason)
            first, text = first + text.count(b"\n"), b""
        unfinished, size, wanted = [text], len(text), 2 * len(text)


def line_ends(text: bytes) -> NDArray[np.int64]:
    """Where each line ends, after its line end."""
    return np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1


def _array(text: bytes, ends: NDArray[np.int64]) -> pa.Array:
    """The text up to the last end, cut at the ends."""
    offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, offsets, pa.py_buffer(text)])


def _other_encoding(begin: bytes) -> str:
    """Why text with this beginning cannot be read; empty unless its mark says another encoding."""
    for mark, encoding in _OTHER_MARKS.items():
        if begin.startswith(mark):
            return f"the text is {encoding}, expected UTF-8. Write the file as UTF-8"
    return ""
