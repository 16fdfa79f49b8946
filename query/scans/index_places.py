"""Which rows of `events` an index finds for a condition, and in which files it finds all such rows.

Method. Marks bound the rows of each range of values (row_index.py). Of an AND the part with the fewest rows
is taken, of an OR all parts. If the rows are few enough, the blocks of the runs that have them are read: the
blocks give the origin of each row, and so its file and its number there (covered_files.py). A file is
*covered* if the index of every column that was used has all of its rows. Of a covered file only the rows that
were found can be selected; every other file is scanned.

If the one index that is used has the values of all columns that are asked for, too, the rows of covered files
are given as they stand in it, and these files are not read at all.

The versions of `events` and of the runs need not fit each other. Files never change, so what a run says of a
file, and what a footer says of the origins of rows, is true in every version that has the file.

Cost: O(ranges * log marks) to bound; one or two blocks a run and range, and 16 bytes a row, to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.query.scans.covered_files import CoveredFiles
from tidemark.query.scans.index_rows import IndexRows, edges_of, read_index_rows
from tidemark.query.scans.sought import Ends, Sought, ends_of, united
from tidemark.warehouse.columns.codes import Ints, places_among
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.index_marks import IndexMarks, Places
from tidemark.warehouse.projections.row_index import RowIndex
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.snapshots.system_tables import Contents

_MARKS_BYTES = 2**26  # of marks that are kept
_FEW = 2  # columns that are read, where they are not known
_MOST_ROWS = 2**20  # that an index finds for one condition
_FEWER = 16  # the most rows that an index with the values may find for one row of another index


@dataclass(frozen=True, slots=True)
class IndexRates:
    """Microseconds of a unit of work, measured as those of `query/reading/costs.py`.

    share: rows are looked up if that costs at most this share of a scan. How much is left to be read is known
        only afterwards, so the cost of the lookup may be lost.
    all: the same if the index has all values, so that nothing is left to be read.
    group: rows of a row group of `events`; if one of them is read, all are.
    """

    edge: float = 250.0  # to find a range in a run
    edge_of_column: float = 60.0  # the same for each column of which the index has the values
    place: float = 0.05  # to read the place of a row
    value: float = 0.1  # to read a value that the index has
    row: float = 0.006  # to scan a value
    share: float = 0.1
    all: float = 0.8
    group: int = DEFAULT.group_rows
    skip: float = 0.5


RATES = IndexRates()


@dataclass(frozen=True, slots=True)
class _Run:
    """The marks of a run, and the rows that it has of each file of `events`."""

    marks: IndexMarks
    places: Places

    @property
    def nbytes(self) -> int:
        """The memory, about."""
        columns = [*self.marks.sort_keys, self.marks.positions, self.places.files, self.places.rows]
        return int(sum(column.nbytes for column in columns))


# Shared by all readers of the process, by the address of the marks: files never change.
_runs: LRUCache[_Run] = LRUCache(_MARKS_BYTES)


@dataclass(frozen=True, slots=True)
class _Range:
    """Ranges of values of a column, which are disjoint.

    most: how many rows its index has there at most. edges: how many runs may have some, those of all ranges
    together.
    """

    index: Index
    ends: tuple[Ends, ...]
    most: int
    edges: int


@dataclass(frozen=True, slots=True)
class Index:
    """An index at one moment."""

    projection: RowIndex
    runs: tuple[_Run, ...]

    @classmethod
    def of(cls, contents: Contents, projection: RowIndex) -> Index:
        """The index as `contents` has it. DamagedWarehouse if its marks cannot be read."""
        known: Index | None = contents.made.get(projection)
        if known is None:
            found = dict(contents.runs).get(projection.title, {})
            runs = tuple(
                _read_run(contents.store, projection, run, found[run])
                for run in sorted(found.keys() - contents.emptied.get(projection.title, frozenset()))
            )
            known = contents.made[projection] = cls(projection, runs)
        return known

    def range_of(self, ends: Iterable[Ends]) -> _Range:
        """The ranges of values, joined where they overlap, and how many rows the marks bound them to."""
        joined = united(ends)
        edges = [edges_of(run.marks, one) for run in self.runs for one in joined]
        most = sum(stop - start for start, stop in edges)
        return _Range(self, tuple(joined), most, sum(start < stop for start, stop in edges))

    def rows(self, ends: Sequence[Ends], names: Set[str] = frozenset()) -> IndexRows:
        """The rows with values in the ranges, and the values of these columns, which the index has."""
        return read_index_rows(self.projection, [run.marks for run in self.runs], ends, names)

    @property
    def places(self) -> tuple[str, Places]:
        """The stored name of the column, and how many rows it has of each origin file."""
        (stored,) = self.projection.column.stored_names
        return stored, Places.joined([run.places for run in self.runs])


@dataclass(frozen=True, slots=True, eq=False)
class _Cover:
    """The files of `events` that indexes cover, at one moment.

    covered  the files of which all of the indexes have all rows
    given    covered files whose rows one index can give in their place (`CoveredFiles.in_history`)
    read     the other covered files
    origins  the ids of the origin files of the rows of `given`, ascending
    """

    covered: CoveredFiles
    given: CoveredFiles
    read: CoveredFiles
    origins: Ints

    @classmethod
    def of(cls, contents: Contents, chosen: Sequence[_Range]) -> _Cover:
        """Of the indexes of these ranges; `contents` are listed, and keep it."""
        used = cls, *(one.index.projection for one in chosen)
        known: _Cover | None = contents.made.get(used)
        if known is None:
            covered = CoveredFiles.of(contents, [one.index.places for one in chosen])
            given = covered.in_history(contents)  # rows of other files may not be visible yet
            origins = np.array(sorted(given.origin_ids), np.int64)
            known = contents.made[used] = cls(covered, given, covered.without(given), origins)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The rows that indexes found for a condition.

    columns  the columns whose indexes were used
    lookup_us, scan_us
             the estimated microseconds of looking the rows up, and of a scan of all files
    most     how many rows of history the condition selects at most, by the marks
    rows     by path of each covered file: the numbers of its rows that may be selected, ascending, each once.
             Other files are scanned. None if looking them up would cost more than to scan
    values   the rows of covered files that may be selected, with all columns that are asked for; None if
             they have to be read. All of them are of history
    """

    columns: tuple[str, ...]
    most: int
    lookup_us: float
    scan_us: float
    rows: Mapping[str, Ints] | None
    values: pa.Table | None = None


def find(
    contents: Contents,
    asked: Sought | None,
    allowed: Mapping[Key, Sequence[Ends]],
    needed: Set[str] | None = None,
) -> Found | None:
    """The rows that the indexes find for a condition; None if they know no column of it.

    allowed: beside it, the ranges of names that are allowed in columns.
    needed: the columns that are read of selected rows; None: any.

    DamagedWarehouse if a file of an index cannot be read.
    """
    contents = contents.listed()
    chosen = _chosen(contents, asked, allowed, needed)
    if chosen is None:
        return None
    most = sum(one.most for one in chosen)
    columns = tuple(dict.fromkeys(one.index.projection.column.name for one in chosen))
    edges = sum(one.edges for one in chosen)
    has_values = needed is not None and _has_values(chosen, needed)
    read = len(needed) if has_values and needed is not None else 0
    lookup_us = (RATES.edge + RATES.edge_of_column * read) * edges + (RATES.place + RATES.value * read) * most
    of_row = RATES.row * (_FEW if needed is None else len(needed))
    scan_us = of_row * sum(max(0, file.rows) for file in _may_hold(contents, chosen))
    scan = Found(columns, most, lookup_us, scan_us, None)
    if most > _MOST_ROWS or lookup_us > (RATES.all if has_values else RATES.share) * scan_us:
        return scan
    cover = _Cover.of(contents, chosen)
    if has_values and needed is not None:
        return _with_values(scan, chosen[0], cover, needed)
    found = [one.index.rows(one.ends) for one in chosen]
    ids, places = (np.concatenate([getattr(one, name) for one in found]) for name in ("files", "rows"))
    rows = cover.covered.rows_by_path(ids, places)
    left = sum(_rows_read(file, rows.get(file.path)) for file in _may_hold(contents, chosen))
    return scan if lookup_us + of_row * left > scan_us else replace(scan, rows=rows)


def _with_values(scan: Found, one: _Range, cover: _Cover, needed: Set[str]) -> Found:
    """The rows found if the index has the values; rows of files that are not covered are left."""
    found = one.index.rows(one.ends, needed)
    read = cover.read.rows_by_path(found.files, found.rows)
    rows = {path: np.empty(0, np.int64) for path in cover.given.paths} | read
    return replace(scan, rows=rows, values=found.table(_of_files(found, cover.origins)))


def _may_hold(contents: Contents, chosen: Sequence[_Range]) -> list[DataFile]:
    """The files that may have values in the ranges by their statistics, as scans leave files out."""
    parts = [(_values(contents, one.index.projection.column), one.ends) for one in chosen]
    return [
        file
        for place, file in enumerate(contents.list_events())
        if any(_overlaps(values[place], ends) for values, ends in parts)
    ]


def _values(contents: Contents, key: Key) -> list[Ends]:
    """The least and the greatest value of each file in a column; `contents` are listed, and keep them."""
    known: list[Ends] | None = contents.made.get((_values, key))
    if known is None:
        known = contents.made[_values, key] = [_values_of(file, key) for file in contents.list_events()]
    return known


def _values_of(file: DataFile, key: Key) -> Ends:
    (stored,) = key.stored_names
    least, greatest = (file.stats.get(f"{end}.{stored}") for end in ("min", "max"))
    if least is None or greatest is None:
        return None, None
    try:
        return key.bound_of(least), key.bound_of(greatest)
    except InputError:  # of a type that other tools write
        return None, None


def _overlaps(values: Ends, ends: Sequence[Ends]) -> bool:
    first: Any = values[0]
    last: Any = values[1]
    pairs: Sequence[tuple[Any, Any]] = ends
    return any(
        (low is None or last is None or low <= last) and (high is None or first is None or high >= first)
        for low, high in pairs
    )


def _rows_read(file: DataFile, found: Ints | None) -> float:
    """How many rows of a file are read for these: all of its row groups that have some, which are large.

    Rows that follow each other are told to DuckDB as a range: it passes the others over.
    """
    if found is None:
        return file.rows
    read = min(file.rows, RATES.group * len(np.unique(found // RATES.group)))
    are_together = len(found) > 0 and found[-1] - found[0] < len(found)
    return RATES.skip * read + (1 - RATES.skip) * len(found) if are_together else read


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """How many rows of history a condition selects.

    most    the most rows that it selects of those that indexes have, by the marks
    left    how many rows of history no index has
    values  the rows of history that indexes have and that the condition may select, with the columns that
            were asked for; None if no index has these columns
    """

    most: int
    left: int
    values: pa.Table | None


def bounded(contents: Contents, asked: Sought, names: Set[str]) -> Bounds:
    """The bounds that indexes give for the rows that a condition selects.

    names: the columns of the condition; none if its rows are not counted.
    """
    contents = contents.listed()
    rows = sum(contents.counts[batches] for batches in contents.history)
    chosen = _chosen(contents, asked, {}, names)
    if chosen is None:
        return Bounds(0, rows, None)
    cover = _Cover.of(contents, chosen)
    left = rows - cover.given.rows
    most = sum(one.most for one in chosen)
    if not names or not _has_values(chosen, names) or most > _MOST_ROWS:
        return Bounds(most, left, None)
    found = chosen[0].index.rows(chosen[0].ends, names)
    return Bounds(most, left, found.table(_of_files(found, cover.origins)))


def _chosen(
    contents: Contents,
    asked: Sought | None,
    allowed: Mapping[Key, Sequence[Ends]],
    needed: Set[str] | None,
) -> list[_Range] | None:
    """Ranges of which each selected row is in one; None if that is not known."""
    known = {one.column.name: one for one in contents.options.indexes}
    opened: dict[str, Index] = {}

    def index(name: str) -> Index | None:
        if name in known and name not in opened:
            opened[name] = Index.of(contents, known[name])
        return opened.get(name)

    search = _Search(index, needed)
    parts = [search.alternatives(asked)] if asked is not None else []
    for key, ranges in allowed.items():
        one = index(key.name)
        parts.append(None if one is None else [one.range_of(ranges)])
    return search.best(parts)


def _has_values(chosen: Sequence[_Range], needed: Set[str]) -> bool:
    """Whether the ranges are of one index that has the values of these columns."""
    return len(chosen) == 1 and chosen[0].index.projection.has_values(needed)


def _of_files(found: IndexRows, ids: Ints) -> Ints:
    """The places, among the rows that were found, of the rows with these origin files, which ascend."""
    return np.flatnonzero(places_among(ids, found.files) >= 0)


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for the ranges of a condition.

    index: opens the index of a column. needed: as in `find`.
    """

    index: Callable[[str], Index | None]
    needed: Set[str] | None

    def alternatives(self, asked: Sought) -> list[_Range] | None:
        """Ranges of which a row that is selected is in one; None if that is not known."""
        kind = asked[0]
        if kind == "and":
            return self.best([self.alternatives(part) for part in asked[1]])
        if kind == "or":
            return self.any_of(asked[1])
        one = self.index(asked[1])
        ends = None if one is None else ends_of(one.projection.column, asked)
        return None if one is None or ends is None else [one.range_of([ends])]

    def any_of(self, parts: Sequence[Sought]) -> list[_Range] | None:
        """The ranges of all parts, those of one column joined; None if one part is not known."""
        by_column: dict[str, tuple[Index, list[Ends]]] = {}
        for part in parts:
            ranges = self.alternatives(part)
            if ranges is None:
                return None
            for one in ranges:
                name = one.index.projection.column.name
                by_column.setdefault(name, (one.index, []))[1].extend(one.ends)
        return [one.range_of(ends) for one, ends in by_column.values()]

    def best(self, parts: Sequence[list[_Range] | None]) -> list[_Range] | None:
        """The part with the fewest rows, or with some more and the values; None if none is known."""
        return min((part for part in parts if part is not None), key=self._rows, default=None)

    def _rows(self, part: Sequence[_Range]) -> int:
        rows = sum(one.most for one in part)
        has_values = self.needed is not None and _has_values(part, self.needed)
        return rows if has_values else _FEWER * rows


def _read_run(store: Store, projection: RowIndex, run: Any, files: Sequence[DataFile]) -> _Run:
    address = store.uri, projection, run_tables.marks_path(projection, run, files)
    kept = _runs.at(address)
    if kept.value is not None:
        return kept.value
    marks = run_tables.read_marks(store, projection, run, files)
    found = _Run(marks, marks.places())
    return kept.keep(found, found.nbytes)
