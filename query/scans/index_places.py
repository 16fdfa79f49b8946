"""Which rows of `events` an index finds for what a condition says, and in which files it finds all of them.

Method. Marks bound the rows of each range of values (row_index.py). Of an AND the part with the fewest rows
is taken, of an OR all parts. If these are few enough, the blocks of the runs that have them are read: they
give the file and the number of each row. A file is *covered* if the index of every column that was used has
all of its rows. Of a covered file only the rows that were found can be selected; every other file is scanned.

This needs no order among the versions of `events` and of the runs: files never change, so what a run says of
a file is true of every version that has the file.

Cost: O(ranges * log marks) to bound; one or two blocks a run and range, and 16 bytes a row, to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.query.scans.sought import Ends, Sought, ends_of, united
from tidemark.warehouse.columns.keys import Key, count_less
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import file_id
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.group_rows import GroupRows
from tidemark.warehouse.projections.row_index import IndexMarks, Places, RowIndex
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.snapshots.system_tables import Contents

_MARKS_BYTES = 2**26  # of marks that are kept
_MOST_ROWS = 2**20  # that an index finds for one condition

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexRates:
    """Microseconds of a unit of work, measured as those of `query/reading/costs.py`.

    share: of the cost of a scan, what looking rows up may take: it is spent before it is known what is left.
    """

    edge: float = 150.0  # to find a range in a run
    place: float = 0.05  # to read the place of a row
    row: float = 0.006  # of a scan
    share: float = 0.1


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
_runs: LRUCache[_Run] = LRUCache(_MARKS_BYTES, lambda run: run.nbytes)
_blocks = BlockReader()


@dataclass(frozen=True, slots=True)
class _Range:
    """Ranges of values of a column, and how many rows its index has there at most."""

    index: Index
    ends: tuple[Ends, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Index:
    """An index at one moment."""

    projection: RowIndex
    runs: tuple[_Run, ...]

    @classmethod
    def of(cls, contents: Contents, projection: RowIndex) -> Index:
        """The index as `contents` has it. DamagedWarehouse if its marks cannot be read."""
        found = dict(contents.runs).get(projection.title, {})
        runs = (_read_run(contents.store, projection, run, files) for run, files in sorted(found.items()))
        return cls(projection, tuple(runs))

    def most(self, ends: Sequence[Ends]) -> int:
        """How many rows have values in the ranges at most, which are disjoint, by the marks."""
        edges = (_edges(run.marks, one) for run in self.runs for one in ends)
        return sum(stop - start for start, stop in edges)

    def rows(self, ends: Sequence[Ends]) -> tuple[Ints, Ints]:
        """The file and the number of each row with a value in the ranges, in no order."""
        projection = self.projection
        columns = tuple(name for name in projection.runs_schema.names if name != "run")
        wanted = []
        for run in self.runs:
            for one in ends:
                start, stop = _edges(run.marks, one)
                wanted.append(RowsWanted(run.marks.files, start, stop, columns))
        files, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        root = projection.runs_table
        for block, _, _ in read_row_ranges(_blocks, root, wanted, projection.dictionaries):
            for part in projection.from_stored(block):
                for start, stop in _within(part, ends):
                    found: Any = part.groups[1]
                    files.append(found[part.codes[start:stop]])
                    rows.append(part.values[start:stop])
        return np.concatenate(files), np.concatenate(rows)

    def covered(self, files: Iterable[DataFile]) -> set[int]:
        """The ids of those of the files of which the index has all rows that are not NULL."""
        places = Places.joined([run.places for run in self.runs])
        known = dict(zip(places.files.tolist(), places.rows.tolist(), strict=True))
        (stored,) = self.projection.column.stored_names
        nulls = f"null_count.{stored}"
        return {
            one
            for file in files
            if file.stats.get(nulls) is not None
            and known.get(one := file_id(file.path), 0) + file.stats[nulls] == file.rows
        }


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What indexes found of a condition.

    columns  those whose indexes were used
    lookup_us, scan_us
             what it takes to look the rows up, and to scan all files, in estimated microseconds
    most     how many rows of history the condition selects at most, by the marks
    rows     by path of each covered file: the numbers of its rows that may be selected, ascending, each once.
             Other files are scanned. None if looking them up would cost more than to scan
    """

    columns: tuple[str, ...]
    most: int
    lookup_us: float
    scan_us: float
    rows: Mapping[str, Ints] | None

    def rows_left(self, file: DataFile) -> int:
        """How many rows of the file may be selected."""
        return file.rows if self.rows is None or file.path not in self.rows else len(self.rows[file.path])


def find(contents: Contents, asked: Sought | None, allowed: Mapping[Key, Sequence[Ends]]) -> Found | None:
    """What the indexes find of a condition; None if they do not know any column of it.

    allowed: beside it, the ranges of names that are allowed in columns.

    DamagedWarehouse if a file of an index cannot be read.
    """
    known = {one.column.name: one for one in contents.options.indexes}
    opened: dict[str, Index] = {}

    def index(name: str) -> Index | None:
        if name in known and name not in opened:
            opened[name] = Index.of(contents, known[name])
        return opened.get(name)

    parts = [_alternatives(asked, index)] if asked is not None else []
    for key, ranges in allowed.items():
        one = index(key.name)
        parts.append(None if one is None else [_range(one, ranges)])
    chosen = _fewest(parts)
    if chosen is None:
        return None
    most = sum(one.most for one in chosen)
    columns = tuple(dict.fromkeys(one.index.projection.column.name for one in chosen))
    files = contents.list_events()
    edges = sum(len(one.ends) * len(one.index.runs) for one in chosen)
    lookup_us = RATES.edge * edges + RATES.place * most
    scan_us = RATES.row * sum(max(0, file.rows) for file in files)
    pays = most <= _MOST_ROWS and lookup_us <= RATES.share * scan_us
    return Found(columns, most, lookup_us, scan_us, _rows_by_file(chosen, files) if pays else None)


def _rows_by_file(chosen: Sequence[_Range], files: Sequence[DataFile]) -> dict[str, Ints]:
    covered = set.intersection(*(one.index.covered(files) for one in chosen))
    pairs = [one.index.rows(one.ends) for one in chosen]
    ids, rows = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((rows, ids))
    ids, rows = ids[order], rows[order]
    found = {}
    for file in files:
        if (one := file_id(file.path)) in covered:
            start, stop = np.searchsorted(ids, one), np.searchsorted(ids, one, "right")
            found[file.path] = np.unique(rows[start:stop])
    return found


def _alternatives(asked: Sought, index: Any) -> list[_Range] | None:
    """Ranges of which a row that is selected is in one; None if that is not known."""
    kind = asked[0]
    if kind == "and":
        return _fewest([_alternatives(part, index) for part in asked[1]])
    if kind == "or":
        return _any_of(asked[1], index)
    one = index(asked[1])
    ends = None if one is None else ends_of(one.projection.column, asked)
    return None if one is None or ends is None else [_range(one, [ends])]


def _any_of(parts: Sequence[Sought], index: Any) -> list[_Range] | None:
    """The ranges of all parts, those of one column joined; None if one part is not known."""
    by_column: dict[str, tuple[Index, list[Ends]]] = {}
    for part in parts:
        ranges = _alternatives(part, index)
        if ranges is None:
            return None
        for one in ranges:
            name = one.index.projection.column.name
            by_column.setdefault(name, (one.index, []))[1].extend(one.ends)
    return [_range(one, ends) for one, ends in by_column.values()]


def _fewest(parts: Sequence[list[_Range] | None]) -> list[_Range] | None:
    """The part with the fewest rows; None if no part is known."""
    found = [part for part in parts if part is not None]
    return min(found, key=lambda part: sum(one.most for one in part), default=None)


def _range(index: Index, ends: Iterable[Ends]) -> _Range:
    joined = united(ends)
    return _Range(index, tuple(joined), index.most(joined))


def _read_run(store: Store, projection: RowIndex, run: Any, files: Sequence[DataFile]) -> _Run:
    address = store.uri, projection, run_tables.marks_path(projection, run, files)
    kept = _runs.at(address)
    if kept.value is not None:
        return kept.value
    marks = run_tables.read_marks(store, projection, run, files)
    return kept.keep(_Run(marks, marks.places()))


def _edges(marks: IndexMarks, ends: Ends) -> tuple[int, int]:
    """The rows of the run that may have values in the range, the end exclusive."""
    names: Any = marks.sort_keys[0]
    low, high = ends
    first = 0 if low is None else count_less(names, low)  # marks before the range
    after = len(names) if high is None else count_less(names, high, equal=True)
    positions, rows = marks.positions, marks.rows
    start = 0 if low is None or first == 0 else int(positions[first - 1]) + 1
    stop = rows if high is None or after == len(positions) else int(positions[after])
    return start, max(start, stop)


def _within(part: GroupRows, ends: Iterable[Ends]) -> Iterable[tuple[int, int]]:
    """The rows of the part with values in each range, the end exclusive."""
    names = part.groups[0]
    for low, high in ends:
        first = 0 if low is None else count_less(names, low)
        after = len(names) if high is None else count_less(names, high, equal=True)
        if first < after:
            start, stop = np.searchsorted(part.codes, [first, after])
            yield int(start), int(stop)
