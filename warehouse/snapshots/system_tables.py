"""The contents of a warehouse as tables: batches, steps, runs, and the rows of the visible batches.

A batch is visible if it is in history or has a row in the ledger. A crash between the commits to `events` and
to the ledger leaves rows in `events` whose batch is not visible yet. So rows are always selected by batch:

    history = batches of the steps in history        live = ranges of the ledger that history does not cover
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from tidemark.warehouse.columns.arrow_types import with_columns_of
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.schema import arrow_fields
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.containment import check_paths
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REJECTED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    files_with,
    may_contain,
    read_event_rows,
)
from tidemark.warehouse.events.removals import NONE
from tidemark.warehouse.events.visible_files import VisibleFile, visible_files
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.memory_cache import is_same
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.newest_tables import EventFiles
from tidemark.warehouse.snapshots.table_state import TableFiles

PARTS = ("history", "live")
_PIECE_ROWS = 2**16


@dataclass(frozen=True, slots=True)
class Contents:
    """The batches, steps and runs of a warehouse at one moment; `Snapshot.contents` returns it.

    `history` and `live` are disjoint ranges of batches, `counts` has the rows of each. `last_step` is -1 if
    nothing is loaded. `steps` are the rows of the table `steps`, including the plans that are not loaded yet.
    `runs` has the files of each run, by title of the projection: every measure, then the key. `emptied` has
    those of them that count as runs without rows, since all of their rows have left.
    `removed` is the newest removal by this moment. `events` lists the files of that table at its newest
    version with no removal after a number; `files` are those that were listed, if they shall stay.
    """

    store: Store
    options: Options
    last_step: int
    history: tuple[BatchRange, ...]
    live: tuple[BatchRange, ...]
    counts: Mapping[BatchRange, int]
    steps: pa.Table
    runs: tuple[tuple[str, Mapping[Run, Sequence[DataFile]]], ...]
    emptied: Mapping[str, Set[Run]]
    events: EventFiles = field(compare=False, repr=False)
    removed: int = NONE
    files: Sequence[DataFile] | None = field(default=None, compare=False, repr=False)
    # What readers made of these contents, by its name: it is kept as long as they are.
    made: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    # By part: the files that were listed last, those of them with visible rows, and whether these are all.
    _visible: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of `events` with their types, the system columns first."""
        return {**SYSTEM_COLUMNS, **dict(self.options.columns)}

    @property
    def sites(self) -> tuple[Contents, ...]:
        """The contents of each warehouse: these contents alone."""
        return (self,)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Where the warehouse lies."""
        return (self.store,)

    def list_events(self) -> Sequence[DataFile]:
        """The files of `events` at its newest version with no removal after this moment."""
        return self.events.list_events(self.removed) if self.files is None else self.files

    def listed(self) -> Contents:
        """These contents with the files that `list_events` has now: the same object until it has others.

        Who asks several times for the files of `events` asks this: another list may have the same rows in
        other files, as after a compaction.
        """
        if self.files is not None:
            return self
        files, known = self.list_events(), self.made.get("listed")
        if known is None or not is_same(known.files, files):
            known = self.made["listed"] = replace(self, files=files)
        found: Contents = known
        return found

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """The visible ranges: source, first_batch, last_batch (inclusive), and 'history' or 'live'."""
        for part, ranges in zip(PARTS, (self.history, self.live), strict=True):
            yield from ((batches.source, batches.first, batches.last, part) for batches in ranges)

    def step_rows(self) -> Iterator[tuple[Any, ...]]:
        """The plan of each step, and whether the step is in history; the columns are `STEP_COLUMNS`."""
        for row in self.plans("step", "source", "first_batch", "last_batch", "rows", "planned_at"):
            yield (*row.values(), row["step"] <= self.last_step)

    def plans(self, *names: str) -> list[dict[str, Any]]:
        """The plans of all steps, in order, with these columns. For `planned_at` Arrow imports pandas."""
        ordered = self.steps.sort_by([("step", "ascending"), ("source", "ascending")])
        rows: list[dict[str, Any]] = ordered.select(names).to_pylist()
        return rows

    def run_rows(self) -> Iterator[tuple[Any, ...]]:
        """The runs of each measure and of the key: level, steps (inclusive), stored rows, files, bytes.

        Rows that left are among the stored ones until the run is written again.
        """
        for title, runs in self.runs:
            for run, files in sorted(runs.items()):
                rows, size = (sum(getattr(file, name) for file in files) for name in ("rows", "size"))
                yield title, run.level, run.first, run.last, rows, len(files), size

    def event_paths(self, part: str) -> list[str]:
        """The paths, relative to the warehouse, of the files of `events` that may hold rows of a part.

        `part` is "history", "live", or "events" for both.
        """
        paths = [f"{EVENTS}/{file.path}" for file in self.event_files(self._ranges(part))]
        for path in paths:
            self.store.files.check_links(path)
        return paths

    def file_shares(self, part: str) -> Iterator[tuple[str, str]]:
        """Each file of `event_paths`, with the ranges of the part's batches that it may hold, as JSON.

        `rows_of_files` reads them, in any process and at any later time, as they are now.
        """
        ranges = self._ranges(part)
        for file in self.event_files(ranges):
            held = [astuple(batches) for batches in ranges if may_contain(file, batches)]
            yield f"{EVENTS}/{file.path}", json.dumps(held)

    def live_rows(self, columns: Mapping[str, str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the live batches, in record batches of at most 65,536 rows.

        columns: with their types; None: all columns. Files without live rows are not opened.
        """
        return rows_of_files(self.store, columns or self.columns, self.file_shares("live"))

    def event_files(self, ranges: Sequence[BatchRange]) -> list[DataFile]:
        """The files of `events` that may hold rows of these ranges; DamagedWarehouse if it lacks some."""
        return self._complete(self.list_events(), ranges)

    def visible_files(self, part: str = EVENTS) -> tuple[VisibleFile, ...]:
        """The files of `events` with visible rows of a part; found once for a version of the table.

        part: "history", "live", or "events" for both.

        DamagedWarehouse unless `events` has all rows of the visible ranges of the part.
        """
        files = self.list_events()
        known = self._visible.get(part)
        if known is None or known[0] is not files:
            known = self._visible[part] = (files, *self._visible_of(files, part))
        visible: tuple[VisibleFile, ...] = known[1]
        return visible

    def shows_all_rows(self) -> bool:
        """Whether all rows of all files of `events` are visible; errors as of `visible_files`."""
        self.visible_files()
        return bool(self._visible[EVENTS][2])

    def _visible_of(self, files: Sequence[DataFile], part: str) -> tuple[tuple[VisibleFile, ...], bool]:
        """The files with visible rows of a part, and whether all rows of all files are visible."""
        if part != EVENTS:
            try:
                found = self.visible_files()
            except DamagedWarehouse:  # it may be of the other part
                self._complete(files, self._ranges(part))
                found = visible_files(files, self.history, self.live)
            return tuple(one for one in found if one.is_live == (part == PARTS[1])), False
        for ranges in (self.history, self.live):
            self._complete(files, ranges)
        # Each range has its rows or more of them, so equal sums leave no row that is not visible.
        expected = sum(self.counts[batches] for batches in (*self.history, *self.live))
        is_all = all(file.rows >= 0 for file in files) and sum(file.rows for file in files) == expected
        return visible_files(files, self.history, self.live, all_visible=is_all), is_all

    def located_files(self) -> Sequence[tuple[Store, VisibleFile]]:
        """The files of `visible_files`, each with the store of its warehouse; errors as there."""
        return [(self.store, one) for one in self.visible_files()]

    def _complete(self, listed: Sequence[DataFile], ranges: Sequence[BatchRange]) -> list[DataFile]:
        """The files that may hold rows of the ranges; DamagedWarehouse if they lack some."""
        files = files_with(listed, ranges)
        batch_counts.check_complete(self.store, files, {batches: self.counts[batches] for batches in ranges})
        return files

    def _ranges(self, part: str) -> tuple[BatchRange, ...]:
        return {"history": self.history, "live": self.live, "events": self.history + self.live}[part]


@dataclass(frozen=True, slots=True)
class SitesContents:
    """What scans ask of `Contents`, of several warehouses, which have these options together."""

    options: Options
    sites: tuple[Contents, ...]

    @property
    def columns(self) -> dict[str, str]:
        """See `Contents.columns`: the columns that all warehouses have with one type."""
        return {**SYSTEM_COLUMNS, **dict(self.options.columns)}

    @property
    def stores(self) -> tuple[Store, ...]:
        """See `Contents.stores`."""
        return tuple(site.store for site in self.sites)

    def located_files(self) -> Sequence[tuple[Store, VisibleFile]]:
        """See `Contents.located_files`."""
        return [one for site in self.sites for one in site.located_files()]


AnyContents: TypeAlias = Contents | SitesContents


def rows_of_files(
    store: Store, columns: Mapping[str, str], shares: Iterable[tuple[str, str]]
) -> Iterator[pa.RecordBatch]:
    """The rows of `Contents.file_shares` with these columns, in record batches of at most 65,536 rows.

    columns: by name, as `Contents.columns` has them; what a file lacks is NULL.

    DamagedWarehouse if a path is not a plain path below `events`.
    """
    names, typed = list(columns), _Typed(store, columns)
    for path, ranges in shares:
        check_paths(store.table(EVENTS), pa.chunked_array([[path.removeprefix(f"{EVENTS}/")]]))
        batches = [BatchRange(*batch_range) for batch_range in json.loads(ranges)]
        share = EventRowGroups(path, None, -1)
        for rows in read_event_rows(store, [share], names, batches):
            yield from typed.rows(rows.select(names)).to_batches(max_chunksize=_PIECE_ROWS)


@dataclass(frozen=True)
class _Typed:
    """Gives rows the types of the columns that their file lacks, or has as a narrower type."""

    store: Store
    columns: Mapping[str, str]

    @cached_property
    def _plain(self) -> dict[str, pa.Field]:
        plain = {name: kind for name, kind in self.columns.items() if find_column_type(kind) is not None}
        return {one.name: one for one in arrow_fields(plain)}

    @cached_property
    def _all(self) -> dict[str, pa.Field]:
        events = pa.schema(tables.open_table(self.store, EVENTS).schema())
        stored = self.store.column_names.of_schema(events)
        return {name: stored.field(name) for name in self.columns} | self._plain

    def rows(self, rows: pa.Table) -> pa.Table:
        """The rows; the types of nested columns are looked up only where a file lacks one."""
        wanted = self._plain
        if any(pa.types.is_null(one.type) and one.name not in wanted for one in rows.schema):
            wanted = self._all
        fields = [wanted.get(one.name, one) for one in rows.schema]
        return with_columns_of(pa.schema(fields), rows)


def rejected_counts(store: Store, found: TableFiles | None = None) -> dict[str, int]:
    """The number of rejected records of each source, from the statistics of the table `rejected`.

    `found` are its files at a moment; by default they are listed.
    """
    counts: dict[str, int] = {}
    for file in data_files.list_files(tables.open_table(store, REJECTED)) if found is None else found.files:
        source = file.stats["min.source"]
        counts[source] = counts.get(source, 0) + file.rows
    return counts


# The columns of the tuples that the methods of `Contents` yield, with their SQL types.
BATCH_COLUMNS = (
    ("source", "string"),
    ("first_batch", "bigint"),
    ("last_batch", "bigint"),
    ("part", "string"),
)
SHARE_COLUMNS = (("path", "string"), ("batches", "string"))
STEP_COLUMNS = (
    ("step", "bigint"),
    *BATCH_COLUMNS[:3],
    ("rows", "bigint"),
    ("planned_at", "timestamp"),
    ("loaded", "boolean"),
)
RUN_COLUMNS = (
    ("projection", "string"),
    ("level", "int"),
    ("first_step", "bigint"),
    ("last_step", "bigint"),
    ("rows", "bigint"),
    ("files", "bigint"),
    ("bytes", "bigint"),
)
