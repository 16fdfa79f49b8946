"""Text files read in blocks of whole lines, for the readers without Spark.

A file whose name ends in .gz, .bz2 or .zst is decompressed. Only one block is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.arrow_inputs import report_unreadable_input

_BLOCK_BYTES = 2**23
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNSUPPORTED = {".lz4", ".snappy", ".deflate", ".xz", ".zip", ".br"}


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file; `first` is the number of the first line, counted from 1."""

    path: Path
    first: int
    text: bytes

    def refuse(self, line: int, reason: str) -> InputError:
        """The InputError for a line of the block, counted from 0."""
        return InputError(
            f"cannot read the input {self.path}, line {self.first + line}: {reason}. Nothing was changed. "
            "Correct the line; or omit --engine local: Spark accepts more text formats."
        )


def read_blocks(path: Path) -> Iterator[Block]:
    """The blocks of the file in order."""
    if path.suffix in _UNSUPPORTED:
        raise InputError(
            f"{path} is compressed as {path.suffix}. Without Spark only .gz, .bz2 and .zst can be read."
        )
    with (
        report_unreadable_input(path),
        pa.input_stream(str(path), compression=_COMPRESSED.get(path.suffix)) as file,
    ):
        first, unfinished = 1, b""
        while read := file.read(_BLOCK_BYTES):
            lines, end, remainder = (unfinished + read).rpartition(b"\n")
            if end:
                yield Block(path, first, lines + end)
                first += lines.count(b"\n") + 1
            unfinished = remainder
        if unfinished:
            yield Block(path, first, unfinished)
