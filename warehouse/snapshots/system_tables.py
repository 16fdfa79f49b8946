"""What a warehouse holds, as tables: batches, steps, runs, and the rows of the batches that are visible.

A batch is visible where it is in history or has its row in the ledger. A crash between `events` and
the ledger leaves rows there that belong to no such batch, so rows are always read by batches:

    history = batches of the steps in history        live = ranges of the ledger that these do not cover
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, files_of_batches, read_event_rows
from tidemark.warehouse.runs.layout import Run
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.settings.options import Options

PARTS = ("history", "live")
_PIECE_ROWS = 2**16


@dataclass(frozen=True, slots=True)
class Contents:
    """A warehouse at one moment; `Snapshot.contents` makes it.

    `history` and `live` are disjoint ranges of batches; `last_step` is -1 where nothing is loaded;
    `steps` are the rows of the table of plans, also of those that are not loaded yet; `runs` has the
    files of each run, for every measure and then the key.
    """

    store: Store
    options: Options
    last_step: int
    history: tuple[BatchRange, ...]
    live: tuple[BatchRange, ...]
    steps: pa.Table
    runs: tuple[tuple[str, Mapping[Run, Sequence[DataFile]]], ...]

    @property
    def columns(self) -> dict[str, str]:
        """The columns of `events` with their types, tidemark's own first."""
        return {**SYSTEM_COLUMNS, **dict(self.options.columns)}

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """The visible ranges: source, first_batch, last_batch (inclusive), and the part they are in."""
        for part, ranges in zip(PARTS, (self.history, self.live), strict=True):
            yield from ((one.source, one.first, one.last, part) for one in ranges)

    def step_rows(self) -> Iterator[tuple[Any, ...]]:
        """What each step planned, and whether it is in history."""
        ordered = self.steps.sort_by([("step", "ascending"), ("source", "ascending")])
        names = ("step", "source", "first_batch", "last_batch", "rows", "planned_at")
        for row in ordered.select(names).to_pylist():
            yield (*row.values(), row["step"] <= self.last_step)

    def run_rows(self) -> Iterator[tuple[Any, ...]]:
        """The runs of each measure and of the key: level, steps (inclusive), stored rows, files, bytes."""
        for title, runs in self.runs:
            for run, found in sorted(runs.items()):
                rows, size = (sum(getattr(file, name) for file in found) for name in ("rows", "size"))
                yield title, run.level, run.first, run.last, rows, len(found), size

    def event_paths(self, part: str) -> list[str]:
        """The files of `events`, below the warehouse, that may hold rows of a part, or of "events": both."""
        ranges = {"history": self.history, "live": self.live, "events": self.history + self.live}[part]
        found = files_of_batches(tables.open_table(self.store, EVENTS), ranges)
        paths = [f"{EVENTS}/{file.path}" for file in found]
        for path in paths:
            self.store.check_links(path)
        return paths

    def live_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the live batches, with all columns, in bounded pieces; other files are not opened."""
        filesystem = self.store.filesystem()
        found = files_of_batches(tables.open_table(self.store, EVENTS), self.live)
        for rows in read_event_rows(
            filesystem, map(EventRowGroups.whole_file, found), self.columns, self.live
        ):
            yield from rows.select(list(self.columns)).to_batches(max_chunksize=_PIECE_ROWS)


# The columns of the tuples above, with their types.
BATCHES = (("source", "string"), ("first_batch", "bigint"), ("last_batch", "bigint"), ("part", "string"))
STEPS = (
    ("step", "bigint"),
    *BATCHES[:3],
    ("rows", "bigint"),
    ("planned_at", "timestamp"),
    ("loaded", "boolean"),
)
RUNS = (
    ("projection", "string"),
    ("level", "int"),
    ("first_step", "bigint"),
    ("last_step", "bigint"),
    ("rows", "bigint"),
    ("files", "bigint"),
    ("bytes", "bigint"),
)
