"""Text files in blocks of whole lines, for who reads them without Spark.

A file may be compressed: its name then ends in .gz, .bz2 or .zst. Only one block is in memory.
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
_OTHERS = {".lz4", ".snappy", ".deflate", ".xz", ".zip", ".br"}


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file; `first` is the number of the first of them, from 1 on."""

    path: Path
    first: int
    text: bytes

    def refuse(self, line: int, reason: str) -> InputError:
        """The error for a line of the block, counted from 0 on."""
        return InputError(
            f"cannot read the input {self.path}, line {self.first + line}: {reason}. Nothing was changed. "
            "Mend the line; or leave out --engine local: Spark reads more forms of text."
        )


def blocks(path: Path) -> Iterator[Block]:
    """The file's blocks, in order."""
    if path.suffix in _OTHERS:
        raise InputError(f"{path} is packed as {path.suffix}. Without Spark .gz, .bz2 and .zst are read.")
    with (
        report_unreadable_input(path),
        pa.input_stream(str(path), compression=_COMPRESSED.get(path.suffix)) as file,
    ):
        first, rest = 1, b""
        while read := file.read(_BLOCK_BYTES):
            whole, end, after = (rest + read).rpartition(b"\n")
            if end:
                yield Block(path, first, whole + end)
                first += whole.count(b"\n") + 1
            rest = after
        if rest:
            yield Block(path, first, rest)
