"""Marks, the sparse index of a run: the parts of their format that all projections share.

The marks of a run are a sealed file (integrity/sealed_files.py) with named row groups. The row groups of the
projection come first. The engine adds the row group `digests` with one row for each file of the run: its path
in the column `file`, and its `FileDigests` as bytes in the column `content`:

    8 bytes     the digest of the file's rows; digests of files add up (`Projection.digest`)
    8 bytes     for each column and each block (by column, then block): the digest of the decoded values

The last column is `STATISTICS_COLUMN`: digests of each block's minimum and maximum in the Parquet footer.
The engine also adds the row group `footers`: `content` is the Parquet footer of the file, as a file without
data. So a reader of an object store knows where a block lies before it has read anything of the file.
All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.digests import ColumnsByName, column_digest
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.runs.levels import REMEDY

# Names of the row groups of a marks file.
HEADER_GROUP, MARKS_GROUP, SPANS_GROUP, COMPANIONS_GROUP = "header", "marks", "spans", "companions"
HEAVY_GROUP, DISTINCT_GROUP, PERSISTENT_GROUP = "heavy", "distinct", "persistent"
SUMS_GROUP, PLACES_GROUP = "sums", "places"
DAYS_GROUP, WEEKS_GROUP = "days", "weeks"
DIGESTS_GROUP, FOOTERS_GROUP = "digests", "footers"
CONTENT_FIELD = pa.field("content", pa.binary())
STATISTICS_COLUMN = "first and last"

_HEAD = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class FileDigests:
    """The digests of a run's file: one of all rows, and one of each column of each block.

    `row_digest` is the sum of the rows' digests, modulo 2**64. `blocks[column][i]` is the digest of that
    column in block i.
    """

    row_digest: int
    blocks: Mapping[str, NDArray[np.uint64]]

    def to_bytes(self) -> bytes:
        """The bytes in the marks file, without the names of the columns."""
        columns = [digests.astype("<u8").tobytes() for digests in self.blocks.values()]
        return b"".join([_HEAD.pack(self.row_digest), *columns])

    @classmethod
    def from_bytes(cls, data: bytes, columns: Sequence[str]) -> FileDigests:
        """Decodes `to_bytes`; `columns` are the names in order. ValueError or struct.error if malformed."""
        (row_digest,) = _HEAD.unpack_from(data)
        digests = np.frombuffer(data, "<u8", offset=_HEAD.size).reshape(len(columns), -1)
        return cls(row_digest, dict(zip(columns, digests, strict=True)))

    def check_block(self, block: int, columns: ColumnsByName) -> None:
        """Compares the digests of decoded columns with the block's; ValueError if one differs."""
        for name, column in columns.items():
            if column_digest(column) != self.blocks[name][block]:
                raise ValueError(f"the column {name!r} of row group {block} is not what was written")

    def check_statistics(self, block: int, group: pq.RowGroupMetaData) -> None:
        """Compares the footer's statistics with the block's digest; ValueError if they differ."""
        if statistics_digest(group) != self.blocks[STATISTICS_COLUMN][block]:
            raise ValueError(f"the statistics of row group {block} are not what was written")


NO_DIGESTS = FileDigests(0, blocks={})


@dataclass(frozen=True, slots=True)
class RunFile:
    """One data file of a run: the run's rows `first` to `first + rows` (exclusive).

    `path` is relative to the table, `size` is in bytes. `footer` is the file's Parquet footer, if the run
    lies in an object store. `store` is where its warehouse lies and `root` the path of its table there, for
    files that are read by block: runs of several warehouses may be read together.
    """

    path: str
    first: int
    rows: int
    digests: FileDigests = field(default=NO_DIGESTS, compare=False, repr=False)
    size: int = field(default=0, compare=False, repr=False)
    footer: bytes | None = field(default=None, compare=False, repr=False)
    store: Store | None = field(default=None, compare=False, repr=False)
    root: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MarksFile:
    """The file with the marks of a run; its large row groups are read when they are needed."""

    filesystem: fs.FileSystem
    path: str

    @contextmanager
    def open(self) -> Iterator[SealedFile]:
        """The file, opened to be read; DamagedWarehouse if it is missing or damaged, or has no seal.

        DamagedWarehouse that is raised inside, because the marks contradict each other, gets the name of the
        file and the remedy.
        """
        with open_sealed(self.filesystem, self.path) as file:
            if not file.is_sealed:
                raise ValueError("it has no seal")
            try:
                yield file
            except DamagedWarehouse as error:
                reason = str(error).rstrip(".")
                raise DamagedWarehouse(f"the file {self.path} is damaged: {reason}. {REMEDY}") from error


def statistics_digest(group: pq.RowGroupMetaData) -> int:
    """A digest of the footer's minimum and maximum of a row group's first column."""
    statistics = group.column(0).statistics
    bounds: tuple[bytes, ...] = ()
    if statistics is not None and statistics.has_min_max:
        bounds = (statistics.min_raw, statistics.max_raw)
    return int(xxhash.xxh3_64_intdigest(repr(bounds).encode()))


def path_in_table(path: str) -> str:
    """The path of a run's file relative to its table, from its path relative to the warehouse."""
    return path[path.index("run=") :]


def flatten(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """The numbers of a column of lists, concatenated."""
    return as_numpy(pc.list_flatten(lists))


def files_from_marks(paths: pa.ChunkedArray, positions: NDArray[np.int64], rows: int) -> tuple[RunFile, ...]:
    """The files of a run, from the file and the position of each mark; each file's first row has a mark.

    `rows` is the number of rows of the run.
    """
    names = paths.combine_chunks().dictionary_encode()
    firsts = np.flatnonzero(np.diff(as_numpy(names.indices), prepend=-1))
    edges = np.append(positions[firsts], rows)
    return tuple(
        RunFile(names[int(i)].as_py(), int(edges[k]), int(edges[k + 1] - edges[k]))
        for k, i in enumerate(firsts)
    )
