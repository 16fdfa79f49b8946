"""Marks, the sparse index of a run: what the marks of every projection have in common.

The marks of a run are a sealed file (sealed.py) whose row groups have names. Those of the projection come
first; the engine adds the one called `digests`, a row a file of the run, with its path in the column `file`
and its `FileDigests` as bytes in the column `content`:

    8 bytes     the digest of its rows, which adds (projection.py, `digest`)
    1 byte      1 where that is known to be the digest of the rows that came, and 0 where it was summed as
                rows were read that no digest told of: those of a run of an earlier version, and what was
                merged of them
    8 bytes     for each column and each block the digest of the block's decoded column, by column, then block

The last of the columns is what the footer says of the first and the last value of each block (`ENDS`). All
numbers are little-endian. Runs of earlier versions have no such row group; they are read unchecked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from tidemark.warehouse.columns.measures import as_numpy
from tidemark.warehouse.integrity.digests import ColumnsByName, column_digest

# The row groups of a marks file. Files of earlier versions have the first three, by their order.
HEADER, MARKS, HEAVY, SPANS, DIGESTS = "header", "marks", "heavy", "spans", "digests"
BY_ORDER = (HEADER, MARKS, HEAVY)
CONTENT = pa.field("content", pa.binary())
ENDS = "first and last"

_HEAD = struct.Struct("<QB")


@dataclass(frozen=True, slots=True, eq=False)
class FileDigests:
    """The digests of a file of a run: of all rows, and of each column of each block.

    `row_digest` is the sum of the rows' digests, modulo 2**64. It is `end_to_end` where it covers the rows
    since they came in, and not only since a merge read them from a run without digests. `blocks[column][i]`
    is the digest of that column in block i.
    """

    row_digest: int
    end_to_end: bool
    blocks: Mapping[str, NDArray[np.uint64]]

    def to_bytes(self) -> bytes:
        """As the marks store it."""
        words = [one.astype("<u8").tobytes() for one in self.blocks.values()]
        return b"".join([_HEAD.pack(self.row_digest, self.end_to_end), *words])

    @classmethod
    def from_bytes(cls, data: bytes, columns: Sequence[str]) -> FileDigests:
        """Of stored bytes, the blocks having these columns; ValueError where they cannot be that."""
        row_digest, end_to_end = _HEAD.unpack_from(data)
        words = np.frombuffer(data, "<u8", offset=_HEAD.size).reshape(len(columns), -1)
        return cls(row_digest, bool(end_to_end), dict(zip(columns, words, strict=True)))

    def check_block(self, block: int, columns: ColumnsByName) -> None:
        """ValueError unless these are columns of the block by their names."""
        for name, column in columns.items():
            if column_digest(column) != self.blocks[name][block]:
                raise ValueError(f"the column {name!r} of row group {block} is not what was written")

    def check_statistics(self, block: int, group: pq.RowGroupMetaData) -> None:
        """ValueError unless the footer says of the block's first and last value what it said."""
        if statistics_digest(group) != self.blocks[ENDS][block]:
            raise ValueError(f"the statistics of row group {block} are not what was written")


NO_DIGESTS = FileDigests(0, end_to_end=False, blocks={})


@dataclass(frozen=True, slots=True)
class RunFile:
    """One data file of a run: rows first..first+rows of the run, at `path` below the table.

    `digests` is None in a run of an earlier version.
    """

    path: str
    first: int
    rows: int
    digests: FileDigests | None = field(default=None, compare=False, repr=False)


def statistics_digest(group: pq.RowGroupMetaData) -> int:
    """A digest of what the footer says of the least and the greatest value of a row group's first column."""
    found = group.column(0).statistics
    ends = (found.min_raw, found.max_raw) if found is not None and found.has_min_max else ()
    return int(xxhash.xxh3_64_intdigest(repr(ends).encode()))


def path_in_table(path: str) -> str:
    """The path of a run's file below its table, from its path below the warehouse."""
    return path[path.index("run=") :]


def flatten(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """The numbers of a column of lists, one list after the other."""
    return as_numpy(pc.list_flatten(lists))


def files_from_marks(paths: pa.ChunkedArray, positions: NDArray[np.int64], rows: int) -> tuple[RunFile, ...]:
    """The files of a run of so many rows, from the file of each mark: the first row of each is marked."""
    names = paths.combine_chunks().dictionary_encode()
    firsts = np.flatnonzero(np.diff(as_numpy(names.indices), prepend=-1))
    edges = np.append(positions[firsts], rows)
    return tuple(
        RunFile(names[int(i)].as_py(), int(edges[k]), int(edges[k + 1] - edges[k]))
        for k, i in enumerate(firsts)
    )
