"""Rows that left history and that runs still have: readers subtract them (docs/signed_steps.md).

Runs say by their names which removals their rows are net of. The rows of later removals with rows of the
run's steps, which are kept in their files, are the rows to subtract: each is in exactly one run.

Cost: the file of each such removal is read once for a projection, and its rows are sorted. They stay in
memory, sorted and as they are stored, as long as the runs have the same rows to subtract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import REMOVED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.removals import Removed
from tidemark.warehouse.events.removed_rows import OF_STEP, read_rows
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection, Rows

R = TypeVar("R", bound=Rows)

Waiting = frozenset[tuple[str, int]]  # files of the table `removed`, and steps whose rows runs still have


@dataclass(frozen=True, slots=True, eq=False)
class KeptRows(Generic[R]):
    """The rows that left and that the runs of a projection still have.

    rows      as the projection sorts them
    totals    all of them by tick, as those of runs are counted
    waiting   the files of removed rows, each with a step whose rows it has; empty for several warehouses
    stored    the columns that the projection reads, with OF_STEP: a table for each file
    """

    projection: Projection[R]
    rows: R
    totals: TickCounts
    waiting: Waiting = frozenset()
    stored: tuple[pa.Table, ...] = ()

    @classmethod
    def of(cls, projection: Projection[R], waiting: Waiting, stored: Sequence[pa.Table]) -> KeptRows[R]:
        """The kept rows of one warehouse, from at least one table."""
        decoded = [projection.decode(_without_step(one)) for one in stored]
        rows = projection.sort([rows for rows, _ in decoded])
        totals = sum_tick_counts([totals for _, totals in decoded])
        return cls(projection, rows, totals, waiting, tuple(stored))

    def waiting_in(self, run: Run) -> Waiting:
        """The part of `waiting` that is of a run: while it is the same, the rows to subtract are the same."""
        return frozenset(one for one in self.waiting if run.first <= one[1] <= run.last)

    def rows_of(self, run: Run) -> R:
        """The rows of a run, sorted."""
        parts = [one.take(arrow_array(np.flatnonzero(_is_of(run, one)))) for one in self.stored]
        return self.projection.sort([self.projection.decode(_without_step(one))[0] for one in parts])

    def ticks_of(self, run: Run) -> NDArray[np.int64]:
        """The ticks of the rows of a run, with repetitions, in any order."""
        return np.concatenate([as_numpy(one.column("_tick"))[_is_of(run, one)] for one in self.stored])


def _is_of(run: Run, stored: pa.Table) -> NDArray[np.bool_]:
    steps = as_numpy(stored.column(OF_STEP))
    is_of: NDArray[np.bool_] = (steps >= run.first) & (steps <= run.last)
    return is_of


def _without_step(stored: pa.Table) -> pa.Table:
    return stored.drop_columns([OF_STEP]).combine_chunks()


def waiting_of(removed: Removed, runs: Mapping[Run, Sequence[DataFile]], last_step: int) -> Waiting:
    """What the runs up to a step still have of kept removals. O(log n) for each run that has none."""
    return frozenset(
        (one.file, step)
        for run, files in runs.items()
        if run.last <= last_step
        for one in removed.pending(run.first, run.last, run_tables.net_of(files[0].path))
        if one.kept
        for step in one.steps
        if run.first <= step <= run.last
    )


def read_kept(store: Store, projection: Projection[R], waiting: Waiting) -> KeptRows[R]:
    """The rows that wait, as a projection has them; DamagedWarehouse if their file is missing or damaged."""
    steps: dict[str, list[int]] = {}
    for file, step in waiting:
        steps.setdefault(file, []).append(step)
    found = [_rows_of(store, file, own) for file, own in sorted(steps.items())]
    return KeptRows.of(projection, waiting, [_with_columns(rows, projection) for rows in found])


def joined_kept(projection: Projection[R], parts: Sequence[KeptRows[R]]) -> KeptRows[R] | None:
    """The kept rows of several warehouses together; None if none has any."""
    if len(parts) < 2:
        return parts[0] if parts else None
    rows = projection.merge([one.rows for one in parts])
    return KeptRows(projection, rows, sum_tick_counts([one.totals for one in parts]))


def _rows_of(store: Store, file: str, steps: Sequence[int]) -> pa.Table:
    """The rows of some steps in a file of removed rows."""
    try:
        rows = store.column_names.of_table(read_rows(store, file))
    except (DamagedWarehouse, FileNotFoundError) as error:
        raise DamagedWarehouse(
            f"{REMOVED}/{file} has rows that left and that runs still have, and it is missing or damaged. "
            "Run `tidemark maintain`: it makes these runs again from events. Only a copy has the file, which "
            "a restore of its rows needs."
        ) from error
    inside = np.flatnonzero(np.isin(as_numpy(rows.column(OF_STEP)), steps))
    return rows if len(inside) == rows.num_rows else rows.take(arrow_array(inside))


def _with_columns(rows: pa.Table, projection: Projection[Any]) -> pa.Table:
    """The columns that the projection reads, as in files of `events`; NULL for one that came later."""
    for name in projection.columns:
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
    named = rows.select(list(dict.fromkeys(["_tick", *projection.columns, OF_STEP])))
    return with_plain_types(named, projection.texts).unify_dictionaries().combine_chunks()
