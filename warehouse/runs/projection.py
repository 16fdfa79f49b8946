"""Projections: sorted copies of some columns of `events`, which history stores as leveled runs.

A projection defines its rows: how they are computed from rows of `events`, their order, whether a merge sums
equal rows, how they are stored, where a block ends, and the content of the marks (the sparse index of a run).
The other code is the same for all projections:

    runs/cuts.py                    divides a merge into slices without a shuffle
    runs/run_files.py               writes, reads and merges files of sorted rows
    runs/run_tables.py              creates, reads and commits the runs table and the marks table
    loads/tasks.py                  the tasks that sort and merge
    loads/run_builder.py            plans the tasks of a load and of a merge
    verification/run_checks.py      checks that runs are sorted, marks are exact and rows are conserved
    snapshots/snapshot_reader.py    reads the marks of a snapshot
    load.py, maintain.py, verify.py the operations

To add a projection, implement `Projection` and add it to `Options.projections`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import SortColumn, SortValue
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.companions.declared import Companions
from tidemark.warehouse.delta.table_names import marks_of
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import NO_DIGESTS, FileDigests, MarksFile, RunFile

SortKey = tuple[SortValue, ...]  # the sort columns of a row, compared from left to right
SortColumns = tuple[SortColumn, ...]  # the sort columns of many rows


class Rows(Protocol):
    """Rows of a projection in memory, sorted in its order."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""

    def part(self, start: int, stop: int) -> Any:
        """Rows start..stop (exclusive)."""

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i."""


R = TypeVar("R", bound=Rows)
R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The properties of a run that are known before it is written.

    `rows` is an upper bound of the stored rows. `totals` are the numbers of rows of `events` in the run, by
    tick. `eps` is the guaranteed rank error.
    """

    rows: int
    totals: TickCounts
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class MarkedFile:
    """A data file of a run, or a sorted chunk that a merge will read, with its marks.

    The file stores `rows` rows, which represent `count` rows of `events`; `size` is in bytes. Mark i is at
    row `positions[i]` of the file; `sort_keys` are the columns of the marks' sort keys. `stats` are the
    statistics for Delta. `extra` is other data that the projection needs for the run's marks.
    `write_rows` fills in `digests`, the digests of the rows and blocks, and `footer`, the file's Parquet
    footer.
    """

    path: str
    rows: int
    size: int
    count: int
    positions: NDArray[np.int64]
    sort_keys: SortColumns
    stats: dict[str, Any]
    extra: Any
    digests: FileDigests = NO_DIGESTS
    footer: bytes = field(default=b"", repr=False)


class Marks(Protocol):
    """The marks of one run."""

    @property
    def run(self) -> Run:
        """The run."""

    @property
    def files(self) -> tuple[RunFile, ...]:
        """The files of the run, in order."""

    @property
    def rows(self) -> int:
        """The number of rows that the run stores."""

    @property
    def positions(self) -> NDArray[np.int64]:
        """The row of each mark, counted from the start of the run; ascending."""

    @property
    def sort_keys(self) -> SortColumns:
        """The columns of the marks' sort keys."""

    @property
    def totals(self) -> TickCounts:
        """The numbers of rows of `events` by tick, including rows without a value or key."""


class Collector(Protocol[R_contra]):
    """Collects the marks of a file while it is written."""

    def add(self, rows: R_contra, blocks: NDArray[np.int64]) -> None:
        """Adds the next rows, at least one; `blocks` are the rows at which blocks start."""

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file with its marks, after the last row was added."""


class Checker(Protocol[R_contra]):
    """Compares a run's rows with its marks; its methods raise DamagedWarehouse if they differ."""

    def begin(self, file: RunFile) -> None:
        """Starts a file: `add` is called with its rows next."""

    def add(self, rows: R_contra) -> None:
        """Checks the rows of the next block."""

    def finish(self) -> None:
        """Ends the run after its last row."""


NO_COMPANIONS = Companions()


class Projection(Protocol[R]):
    """The interface of a projection to the engine. It is pickled for every task, so it must be small."""

    @property
    def name(self) -> str:
        """A measure's name, or words. The names of verify's checks begin with it."""

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.name

    @property
    def type(self) -> str:
        """The Delta type of the measure or key."""

    @property
    def runs_table(self) -> str:
        """The path of the runs table relative to the warehouse."""

    @property
    def marks_table(self) -> str:
        """The path of the marks table relative to the warehouse."""
        return marks_of(self.runs_table)

    @property
    def runs_schema(self) -> pa.Schema:
        """The columns of the runs table, which is partitioned by `run`."""

    @property
    def marks_schema(self) -> pa.Schema:
        """The columns of the marks table, except the binary `content` (marks.py); `run` is the partition."""

    @property
    def order(self) -> tuple[str, ...]:
        """The stored columns that rows are sorted by."""

    @property
    def merges_equal(self) -> bool:
        """Whether a merge sums rows with equal sort keys into one row; then they all lie in one slice."""
        return False

    @property
    def sorts_alone(self) -> bool:
        """Whether tasks of its own sort its rows. Other projections are sorted together, from one read."""
        return self.merges_equal

    @property
    def min_block_cost(self) -> int:
        """The minimum cost of a block, in rows, when a merge is divided into slices."""
        return 0

    def sorted_bytes(self, rows: int, ticks: int) -> int:  # noqa: ARG002
        """The memory in bytes of sorted rows of so many ticks: an estimate before they are read."""
        return 40 * rows  # five arrays of 8 bytes

    @property
    def companions(self) -> Companions:
        """The companions whose cells the marks of this projection have; most projections have none."""
        return NO_COMPANIONS

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that `decode` reads, without the tick."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The subset of `columns` that is read with dictionary encoding."""

    def decode(self, events: pa.Table) -> tuple[R, TickCounts]:
        """Converts rows of `events` (`columns` and `_tick`) to input of `sort`, and counts them by tick."""

    def sort(self, parts: Sequence[R]) -> R:
        """Sorts the rows of any number of calls of `decode`."""

    def merge(self, parts: Sequence[R]) -> R:
        """Merges sorted parts; without parts it returns no rows."""

    def blocks(self, pieces: Iterator[R], run_spec: RunSpec | None) -> Iterator[tuple[R, list[int]]]:
        """Divides sorted rows into blocks. Yields (rows, edges); rows are never empty.

        `pieces` are consecutive. `edges` are the indices in `rows` at which blocks start, then `len(rows)`.
        `run_spec` is None for a chunk.
        """

    def to_stored(self, rows: R) -> pa.Table:
        """The table that a file stores for these rows, without `run`."""

    def from_stored(self, stored: ColumnsByName) -> list[R]:
        """Decodes stored columns, as returned by `columns_by_name`, into consecutive parts."""

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The stored columns that are read and written as dictionaries, one dictionary for each block."""

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Options of the Parquet writer that override the common ones."""

    def collector(self, run_spec: RunSpec | None) -> Collector[R]:
        """Returns a collector of a file's marks; `run_spec` is None for a chunk."""

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The row groups of a run's marks file by name, all with the same schema; `files` are in order."""

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> Marks:
        """Reads the marks of a run from their opened file, which has the row groups of `marks_tables`.

        The result may keep `source` to read large row groups on demand. It must be a dataclass: the
        engine replaces its `files` by files with digests.
        """

    def ascends(self, rows: R) -> bool:
        """Whether the rows of a block are valid and in order."""

    def checker(self, marks: Any) -> Checker[R]:
        """Returns a checker that compares the rows of a run with its marks."""

    def digest(self, rows: R) -> int:
        """The digest of the rows: the sum of a 64-bit hash of each, modulo 2**64, in any order.

        A row that stands for several rows of `events` counts as often.
        """

    def content_digest(self, rows: R) -> int:
        """As `digest`, but without places in files: it depends on the rows of `events` alone."""
        return self.digest(rows)
