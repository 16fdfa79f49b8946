"""Verify, the measures' part: runs are sorted and marked exactly, and hold the rows of their steps.

Each run and the loaded steps of `events` are read once, in bounded pieces. What does not hold raises
DamagedWarehouse, which `verify` tells as a check that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from warehouse import tables
from warehouse.errors import DamagedWarehouse
from warehouse.events import Batches, event_files, read_columns, share_out
from warehouse.marks import RunMarks, TickCounts, add_totals, tick_counts
from warehouse.measures import Column, Measure, numbers
from warehouse.moment import Moment
from warehouse.snapshot import View
from warehouse.steps import covered
from warehouse.storage import EVENTS, Store

_READ_ROWS = 2**20


def runs_exact(moment: Moment, measure: Measure) -> str:
    """Every run ascends and is what its marks say; the table has the files that they name."""
    view = moment.snapshot.view(measure.name)
    _files_marked(moment, view)
    for marks in view.runs:
        run_exact(moment.store, view.root, marks)
    return f"{sum(marks.rows for marks in view.runs)} values in {len(view.runs)} runs"


def _files_marked(moment: Moment, view: View) -> None:
    """The runs table holds the files that the marks name, and no others."""
    if not view.runs:
        return
    held = {file.path for file in tables.files(moment.table(view.root)) if file.rows}
    named = {file.path for marks in view.runs for file in marks.files}
    if held != named:
        raise DamagedWarehouse(f"only the table or only the marks name these files: {sorted(held ^ named)}")


def run_exact(store: Store, root: str, marks: RunMarks) -> None:
    """Reads the run once: order, marks, and counts by tick and span."""
    at, last = 0, None
    spans = marks.spans()
    edges = np.append(spans.starts, marks.rows)
    cells: list[NDArray[np.int64]] = []
    for file in marks.files:
        with pq.ParquetFile(f"{root}/{file.path}", filesystem=store.filesystem()) as parquet:
            if parquet.metadata.num_rows != file.rows or file.first != at:
                raise DamagedWarehouse(
                    f"{file.path} has {parquet.metadata.num_rows} rows from {at}, its marks say {file}"
                )
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                values, ticks = numbers(table.column("value")), numbers(table.column("tick"))
                if values.dtype.kind == "f" and np.isnan(values).any():
                    raise DamagedWarehouse(f"{file.path} holds NaN")
                if not np.all(values[:-1] <= values[1:]) or (last is not None and last > values[0]):
                    raise DamagedWarehouse(f"{file.path} is not sorted in row group {group}")
                here = (marks.positions >= at) & (marks.positions < at + len(values))
                if not np.array_equal(values[marks.positions[here] - at], marks.values[here]):
                    raise DamagedWarehouse(f"the marks of {file.path} do not stand where they say")
                inside = np.searchsorted(edges, at + np.arange(len(values)), side="right") - 1
                cells.append(_cells(inside, ticks, np.ones_like(ticks)))
                at, last = at + len(values), values[-1]
    if at != marks.rows:
        raise DamagedWarehouse(f"run {marks.run.name} has {at} rows, its marks say {marks.rows}")
    held = np.repeat(np.arange(len(spans.starts)), np.diff(spans.offsets))
    found = _cells(*np.concatenate([np.empty((3, 0), np.int64), *cells], axis=1))
    if not np.array_equal(_cells(held, spans.ticks, spans.counts), found):
        raise DamagedWarehouse(f"the counts by tick of run {marks.run.name} are wrong")


def _cells(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The counts by (span, tick), each pair once and in order: (3, k), the rows span, tick and count."""
    order = np.lexsort((ticks, spans))
    whole = np.stack([spans, ticks, counts])[:, order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (whole[:2, 1:] != whole[:2, :-1]).any(axis=0)
    starts = np.flatnonzero(first)
    whole[2, starts] = np.add.reduceat(whole[2], starts) if len(starts) else 0
    cells: NDArray[np.int64] = whole[:, first]
    return cells[:, cells[2] != 0]


def _same(a: TickCounts, b: TickCounts) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ticks", "counts", "nans", "nulls")
    )


def conserved(moment: Moment, measure: Measure) -> str:
    """The rows of the steps in `events` and those of the runs are the same multiset, tick by tick."""
    view = moment.snapshot.view(measure.name)
    last = view.runs[-1].run.last if view.runs else -1
    plans = [plan for plan in moment.plans() if plan.step <= last]
    ingested, digest = _scan_events(moment, measure, covered(plans))
    stored = add_totals([marks.totals for marks in view.runs])
    if not _same(ingested, stored):
        raise DamagedWarehouse(
            f"events holds {_rows(ingested)} rows of the loaded steps, the runs {_rows(stored)}"
        )
    if digest != _scan_runs(moment.store, view):
        raise DamagedWarehouse("the runs' values are not those of events")
    expected = sum(plan.rows for plan in plans)
    if _rows(ingested) != expected:
        raise DamagedWarehouse(f"the plans expect {expected} rows, events holds {_rows(ingested)}")
    live = sum(row.rows for row in view.live)
    ranges = sorted({Batches(row.source, row.first_batch, row.last_batch) for row in view.live})
    found = _rows(_scan_events(moment, measure, ranges)[0])
    if found != live:
        raise DamagedWarehouse(f"the ledger has {live} live rows, events {found}")
    return f"{_rows(stored)} rows in history, {live} live"


def _rows(totals: TickCounts) -> int:
    return int(totals.counts.sum() + totals.nans.sum() + totals.nulls.sum())


def _scan_events(moment: Moment, measure: Measure, batches: Sequence[Batches]) -> tuple[TickCounts, int]:
    totals, digest = [], 0
    for ticks, column in _event_columns(moment, measure, batches):
        kept = ~column.nan & ~column.null
        totals.append(tick_counts(ticks, column))
        digest = (digest + _digest(column.stored[kept], ticks[kept])) % 2**64
    return add_totals(totals), digest


def _event_columns(
    moment: Moment, measure: Measure, batches: Sequence[Batches]
) -> Iterable[tuple[NDArray[np.int64], Column]]:
    filesystem = moment.store.filesystem()
    found = event_files(moment.table(EVENTS), batches)
    for shares in share_out(filesystem, found, _READ_ROWS):
        for piece in read_columns(filesystem, shares, [measure], batches):
            yield piece.ticks, piece.columns[0]


def _scan_runs(store: Store, view: View) -> int:
    digest = 0
    for marks in view.runs:
        for file in marks.files:
            with pq.ParquetFile(f"{view.root}/{file.path}", filesystem=store.filesystem()) as parquet:
                for group in range(parquet.num_row_groups):
                    table = parquet.read_row_group(group)
                    digest += _digest(numbers(table.column("value")), numbers(table.column("tick")))
    return digest % 2**64


def _digest(values: NDArray[Any], ticks: NDArray[np.int64]) -> int:
    """A sum of mixed bits, the same in any order of the rows (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = values.view(np.uint64) + ticks.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return int((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))


def bounds_hold(moment: Moment, measure: Measure) -> str:
    """lo(x) <= true rank <= hi(x) of every live summary, at all its values and between."""
    view = moment.snapshot.view(measure.name)
    by_range: dict[Batches, list[Any]] = {}
    for row in view.live:
        by_range.setdefault(Batches(row.source, row.first_batch, row.last_batch), []).append(row)
    for batches, rows in by_range.items():
        pieces = list(_event_columns(moment, measure, [batches]))
        ticks = np.concatenate([np.empty(0, np.int64), *(t for t, _ in pieces)])
        left_out = np.concatenate([np.empty(0, bool), *(c.nan | c.null for _, c in pieces)])
        stored = np.concatenate([np.empty(0, measure.dtype), *(c.stored for _, c in pieces)])
        for row in rows:
            _row_holds(row, np.sort(stored[(ticks == row.tick) & ~left_out]), batches)
    return f"{len(view.live)} ledger rows"


def _row_holds(row: Any, values: NDArray[Any], batches: Batches) -> None:
    row.sketch.check_invariants()
    le, lt = np.searchsorted(values, values, side="right"), np.searchsorted(values, values, side="left")
    for true, ranks in ((le, row.sketch.rank_le), (lt, row.sketch.rank_lt)):
        lo, hi = ranks(values)
        if len(values) != row.sketch.n or bool(np.any((lo > true) | (true > hi))):
            raise DamagedWarehouse(
                f"the summary of tick {row.tick} in {batches.text} does not hold its bounds"
            )
