"""Projections: sorted copies of some columns of `events`, which history keeps as leveled runs.

A projection says what its rows are: how they are made of rows of `events`, how they order, what two equal
rows become, how they are stored, where a block ends, and what its marks (the sparse index of a run) hold.
All else is written once, for every projection:

    cuts.py        a merge is shared out among tasks without a shuffle
    runfiles.py    files of sorted rows are written, read and merged
    tasks.py       tasks sort and merge
    build.py       the tasks of a load and of a merge
    history.py     tables, marks and commits
    verifyruns.py  runs are sorted, marks are exact, rows are conserved
    load.py, maintain.py, snapshot.py

A new projection is one file that implements `Projection`, and its place in `Options.projections`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import SortColumn, SortValue
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import NO_DIGESTS, FileDigests, RunFile

SortKey = tuple[
    SortValue, ...
]  # where a row stands in the order: its sort columns, compared from left to right
SortColumns = tuple[SortColumn, ...]  # the sort columns of many rows
T = TypeVar("T")


class Rows(Protocol):
    """Rows of a projection in memory, ascending in its order."""

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """The memory that they take."""

    def part(self, start: int, stop: int) -> Any:
        """Rows start..stop (exclusive)."""

    def sort_key(self, i: int) -> SortKey:
        """Where row i stands in the order."""


R = TypeVar("R", bound=Rows)
Taken_contra = TypeVar("Taken_contra", bound=Rows, contravariant=True)


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What is known of a run before it is written: its rows at most, rows by tick, the promise `eps`."""

    rows: int
    totals: TickCounts
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class MarkedFile:
    """A data file of a run, or a sorted chunk that a merge will read, with its marks.

    It stores `rows` rows, which stand for `count` rows of `events`. Mark i is at row `positions[i]` of the
    file, and at the i-th of `sort_keys`. `stats` are Delta's statistics, `extra` what else the projection
    marks.
    `digests` are those of its rows and blocks, which `write_rows` adds.
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


class Marks(Protocol):
    """The marks of one run: `rows` rows in `files`, a mark at each of `positions`, rows by tick."""

    @property
    def run(self) -> Run:
        """The run."""

    @property
    def files(self) -> tuple[RunFile, ...]:
        """Its files in order."""

    @property
    def rows(self) -> int:
        """The rows that it stores."""

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where the marks stand."""

    @property
    def sort_keys(self) -> SortColumns:
        """The marks' places in the order."""

    @property
    def totals(self) -> TickCounts:
        """The rows of `events` that it stands for, by tick."""


class Collector(Protocol[Taken_contra]):
    """Collects the marks of a file while it is written."""

    def add(self, rows: Taken_contra, blocks: NDArray[np.int64]) -> None:
        """Takes the next rows, one at least, whose blocks start at `blocks`."""

    def finish(self, path: str, size: int) -> MarkedFile:
        """The file, all of whose rows have come."""


class Checker(Protocol[Taken_contra]):
    """Compares a run's rows with its marks; DamagedWarehouse where they differ."""

    def begin(self, file: RunFile) -> None:
        """The rows of a file come."""

    def add(self, rows: Taken_contra) -> None:
        """Takes the rows of a block."""

    def finish(self) -> None:
        """All rows have come."""


# Opens the marks' file again and reads what was left out.
ReopenMarks = Callable[[Callable[[SealedFile], Any]], Any]


class Projection(Protocol[R]):
    """What the engine asks of a projection. It is a small value: tasks get it by pickle."""

    @property
    def name(self) -> str:
        """What checks call it: one word."""

    @property
    def title(self) -> str:
        """What reports call it."""

    @property
    def type(self) -> str:
        """The column's type, by Delta's name."""

    @property
    def runs_table(self) -> str:
        """The table of its runs, below the warehouse."""

    @property
    def marks_table(self) -> str:
        """The table of its marks, below the warehouse."""

    @property
    def runs_schema(self) -> pa.Schema:
        """The columns of the runs table; `run` is its partition."""

    @property
    def marks_schema(self) -> pa.Schema:
        """The columns of the marks table, but `content`; `run` is its partition."""

    @property
    def order(self) -> tuple[str, ...]:
        """The stored columns that rows are sorted by."""

    @property
    def merges_equal(self) -> bool:
        """Whether rows with equal places become one row; a merge brings them together in one slice then."""

    @property
    def min_block_cost(self) -> int:
        """What a block counts at least where the work of a merge is shared out, in rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that its rows are made of, beside the tick."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Those of them that are read as dictionaries."""

    def decode(self, events: pa.Table) -> tuple[R, TickCounts]:
        """Rows of `events` (`columns` and `_tick`) as rows of the projection, for `sort`; and all by tick."""

    def sort(self, parts: Sequence[R]) -> R:
        """What `decode` returned, any number of times, sorted."""

    def merge(self, parts: Sequence[R]) -> R:
        """Sorted rows, merged; of nothing, no rows."""

    def blocks(self, pieces: Iterator[R], shape: RunSpec | None) -> Iterator[tuple[R, list[int]]]:
        """Sorted pieces as they are stored: rows, one at least, and where their blocks begin and the end.

        `shape` is None for a chunk.
        """

    def to_stored(self, rows: R) -> pa.Table:
        """Rows as the files store them."""

    def from_stored(self, stored: ColumnsByName) -> list[R]:
        """Stored rows in memory, in parts; `stored` is what `columns_by_name` makes of a table of them."""

    @property
    def dictionaries(self) -> tuple[str, ...]:
        """The stored columns that are read and written as dictionaries, one a block."""

    @property
    def encoding(self) -> Mapping[str, Any]:
        """Options of the Parquet writer, beside those that all projections have."""

    def collector(self, shape: RunSpec | None) -> Collector[R]:
        """Collects the marks of a file; `shape` is None for a chunk, whose marks serve its merge alone."""

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The rows of the marks table for a run of these files: row groups by name, all of one schema."""

    def read_marks(self, run: Run, file: SealedFile, later: ReopenMarks) -> Marks:
        """The marks of a run from their file, whose row groups have those names.

        What is seldom asked for is read `later`. They are a dataclass: the engine adds to its `files`.
        """

    def ascends(self, rows: R) -> bool:
        """Whether the rows of a block are in order, and such as are stored."""

    def checker(self, marks: Any) -> Checker[R]:
        """Compares the rows of the run with these marks."""

    def digest(self, rows: R) -> int:
        """The sum over the rows of `events` of 64 mixed bits each, modulo 2**64: the same in any order."""
