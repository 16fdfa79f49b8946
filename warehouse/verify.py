"""Verify: every invariant of a warehouse, checked on the real tables. Needs no JVM.

It reads all runs and all of `events` once, in bounded pieces. DESIGN.md, section 3, numbers the
invariants. A load that did not finish is no violation: the report says what to run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from warehouse import ledger, ledgerrows, tables, verifykeys
from warehouse.errors import TidemarkError
from warehouse.events import Batches, event_files, read_columns, share_out
from warehouse.layout import Layout
from warehouse.marks import RunMarks, TickCounts, add_totals, tick_counts
from warehouse.measures import Column, Measure, numbers
from warehouse.snapshot import KeysView, Snapshot, View, open_snapshot, rejected_counts
from warehouse.steps import Plan, covered, read_plans
from warehouse.storage import EVENTS, LEDGER, REJECTED, STEPS, Store

_READ_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant of one table: whether it holds, and what was seen."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """All checks of a warehouse."""

    warehouse: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([self.warehouse, *lines])


def verify(
    uri: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Checks all invariants of the warehouse; raises only where there is none to check."""
    snapshot = open_snapshot(uri, storage_options)
    checks = [_guard("files: every named file is there", lambda: _files_exist(snapshot))]
    checks.append(_guard("batches: each in at most one step", lambda: _plans_disjoint(snapshot)))
    checks.append(_guard("ledger: each tick once, wide ranges add up", lambda: _ledger_sums(snapshot)))
    checks.append(_guard("rejected: each record has a reason", lambda: _rejected_told(snapshot)))
    for measure in snapshot.options.measures:
        for name, check in (
            ("runs partition the steps, at most kappa a level", _layout),
            ("runs are sorted and disjoint, marks are exact", _runs_exact),
            ("nothing is lost or counted twice", _conserved),
            ("live summaries hold their bounds", _bounds_hold),
        ):
            if progress:
                progress(f"{measure.name}: {name}")
            checks.append(_guard(f"{measure.name}: {name}", lambda c=check, m=measure: c(snapshot, m)))  # type: ignore[misc]
    if snapshot.options.key and snapshot.options.columns:
        for name, check_key in (
            ("runs partition the steps, at most kappa a level", _keys_layout),
            ("runs are sorted and summed, marks are exact", verifykeys.runs_exact),
            ("nothing is lost or counted twice", verifykeys.conserved),
            ("live counts hold their bounds", verifykeys.live_hold),
        ):
            if progress:
                progress(f"keys: {name}")
            checks.append(_guard(f"keys: {name}", lambda c=check_key: c(snapshot)))  # type: ignore[misc]
    return Report(snapshot.store.uri, tuple(checks))


class _Broken(Exception):
    """An invariant that does not hold; the message says what was seen."""


def _guard(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except (_Broken, TidemarkError, OSError, pa.ArrowException) as error:
        return Check(name, False, str(error))


def _files_exist(snapshot: Snapshot) -> str:
    store = snapshot.store
    names = [EVENTS, STEPS, LEDGER]
    for one in snapshot.options.projections:
        names += [one.runs_table, one.marks_table]
    filesystem, count = store.filesystem(), 0
    for name in names:
        if not tables.exists(store, name):
            continue
        for file in tables.files(tables.open_table(store, name)):
            size = filesystem.get_file_info(f"{name}/{file.path}").size
            count += 1
            if size != file.size:
                raise _Broken(f"{name}/{file.path} has {size} bytes, its table says {file.size}")
    return f"{count} files"


def _plans_disjoint(snapshot: Snapshot) -> str:
    plans = _plans(snapshot.store)
    if [plan.step for plan in plans] != list(range(len(plans))):
        raise _Broken(f"the steps are not numbered without a gap: {[plan.step for plan in plans]}")
    ranges = sorted(one for plan in plans for one in plan.batches)
    for a, b in pairwise(ranges):
        if a.source == b.source and b.first <= a.last:
            raise _Broken(f"{a} and {b} share a batch")
    return f"{len(plans)} steps"


def _ledger_sums(snapshot: Snapshot) -> str:
    """Each tick of a range is there once, and a wide range counts what the widest ranges inside it count."""
    store = snapshot.store
    held = ledger.ranges_by_file(store, tables.open_table(store, LEDGER))
    wanted = [*ledgerrows.RANGE, "tick", "rows"]
    rows = ledger.read_rows(store, held, chain.from_iterable(held.values()), wanted)
    counts: dict[Batches, dict[int, int]] = {}
    names = [rows.column(name).to_pylist() for name in wanted]
    for source, first, last, tick, count in zip(*names, strict=True):
        ticks = counts.setdefault(Batches(source, first, last), {})
        if tick in ticks:
            raise _Broken(f"tick {tick} of {Batches(source, first, last)} is there more than once")
        ticks[tick] = count
    parts: dict[Batches, dict[int, int]] = {}
    for one, ticks in counts.items():
        whole = next((other for other in ledger.wider(one) if other in counts), None)
        if whole is not None:
            found = parts.setdefault(whole, {})
            for tick, count in ticks.items():
                found[tick] = found.get(tick, 0) + count
    for whole, found in parts.items():  # maintenance takes the parts of others out
        if {t: c for t, c in found.items() if c} != {t: c for t, c in counts[whole].items() if c}:
            raise _Broken(f"the rows of {whole} are not those of its parts")
    return f"{rows.num_rows} rows of {len(counts)} ranges"


def _rejected_told(snapshot: Snapshot) -> str:
    store = snapshot.store
    rows = tables.read(store, REJECTED, tables.open_table(store, REJECTED))
    silent = rows.column("reason").null_count
    if silent:
        raise _Broken(f"{silent} rejected records have no reason")
    counts = rejected_counts(store)
    return f"{rows.num_rows} records rejected" + (f": {counts}" if counts else "")


def _plans(store: Store) -> list[Plan]:
    return read_plans(store, tables.open_table(store, STEPS))


def _layout(snapshot: Snapshot, measure: Measure) -> str:
    return _layout_of(snapshot, snapshot.view(measure.name))


def _keys_layout(snapshot: Snapshot) -> str:
    return _layout_of(snapshot, snapshot.keys_view())


def _layout_of(snapshot: Snapshot, view: View | KeysView) -> str:
    layout = Layout.of(one.run for one in view.runs)
    over = {level: count for level, count in layout.levels().items() if count > snapshot.options.kappa}
    if over:
        raise _Broken(f"levels with more than {snapshot.options.kappa} runs: {over}; run the load again")
    planned = len(_plans(snapshot.store)) - 1
    behind = (
        f"; steps {layout.last_step + 1}..{planned} are planned, run their load again"
        if planned > layout.last_step
        else ""
    )
    return f"runs by level {layout.levels()}{behind}"


def _runs_exact(snapshot: Snapshot, measure: Measure) -> str:
    view = snapshot.view(measure.name)
    _files_marked(snapshot.store, view)
    for marks in view.runs:
        _run_exact(snapshot.store, view.root, marks)
    return f"{sum(marks.rows for marks in view.runs)} values in {len(view.runs)} runs"


def _files_marked(store: Store, view: View) -> None:
    """The runs table holds the files that the marks name, and no others."""
    if not view.runs:
        return
    table = tables.open_table(store, view.root)
    table.load_as_version(view.versions["runs"])
    held = {file.path for file in tables.files(table) if file.rows}
    named = {file.path for marks in view.runs for file in marks.files}
    if held != named:
        raise _Broken(f"only the table or only the marks name these files: {sorted(held ^ named)}")


def _run_exact(store: Store, root: str, marks: RunMarks) -> None:
    """Reads the run once: order, marks, and counts by tick and span."""
    at, last = 0, None
    spans = marks.spans()
    edges = np.append(spans.starts, marks.rows)
    totals: list[TickCounts] = []
    for file in marks.files:
        with pq.ParquetFile(f"{root}/{file.path}", filesystem=store.filesystem()) as parquet:
            if parquet.metadata.num_rows != file.rows or file.first != at:
                raise _Broken(
                    f"{file.path} has {parquet.metadata.num_rows} rows from {at}, its marks say {file}"
                )
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                values, ticks = numbers(table.column("value")), numbers(table.column("tick"))
                if values.dtype.kind == "f" and np.isnan(values).any():
                    raise _Broken(f"{file.path} holds NaN")
                if not np.all(values[:-1] <= values[1:]) or (last is not None and last > values[0]):
                    raise _Broken(f"{file.path} is not sorted in row group {group}")
                here = (marks.positions >= at) & (marks.positions < at + len(values))
                if not np.array_equal(values[marks.positions[here] - at], marks.values[here]):
                    raise _Broken(f"the marks of {file.path} do not stand where they say")
                totals.append(
                    _span_counts(np.searchsorted(edges, at + np.arange(len(values)), side="right") - 1, ticks)
                )
                at, last = at + len(values), values[-1]
    if at != marks.rows:
        raise _Broken(f"run {marks.run.name} has {at} rows, its marks say {marks.rows}")
    said = _span_counts(
        np.repeat(np.arange(len(spans.starts)), np.diff(spans.offsets)), spans.ticks, spans.counts
    )
    if not _same(add_totals([said]), add_totals(totals)):
        raise _Broken(f"the counts by tick of run {marks.run.name} are wrong")


def _span_counts(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> TickCounts:
    """Counts by (span, tick) in the form of counts by tick: the pair is folded into one number."""
    folded = ticks ^ (spans << 40)
    names, code = np.unique(folded, return_inverse=True)
    sums = np.bincount(code, counts, len(names)).astype(np.int64)
    return TickCounts(names, sums, np.zeros_like(sums), np.zeros_like(sums))


def _same(a: TickCounts, b: TickCounts) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("ticks", "counts", "nans", "nulls")
    )


def _conserved(snapshot: Snapshot, measure: Measure) -> str:
    """The rows of the steps in `events` and those of the runs are the same multiset, tick by tick."""
    view = snapshot.view(measure.name)
    plans = [plan for plan in _plans(snapshot.store) if not view.runs or plan.step <= view.runs[-1].run.last]
    plans = plans if view.runs else []
    batches = covered(plans, len(plans))
    ingested, digest = _scan_events(snapshot.store, measure, batches)
    stored = add_totals([marks.totals for marks in view.runs])
    if not _same(ingested, stored):
        raise _Broken(f"events holds {_rows(ingested)} rows of the loaded steps, the runs {_rows(stored)}")
    if digest != _scan_runs(snapshot, measure):
        raise _Broken("the runs' values are not those of events")
    expected = sum(plan.rows for plan in plans)
    if _rows(ingested) != expected:
        raise _Broken(f"the plans expect {expected} rows, events holds {_rows(ingested)}")
    live = sum(row.rows for row in view.live)
    ranges = sorted({Batches(row.source, row.first_batch, row.last_batch) for row in view.live})
    found = _rows(_scan_events(snapshot.store, measure, ranges)[0])
    if found != live:
        raise _Broken(f"the ledger has {live} live rows, events {found}")
    return f"{_rows(stored)} rows in history, {live} live"


def _rows(totals: TickCounts) -> int:
    return int(totals.counts.sum() + totals.nans.sum() + totals.nulls.sum())


def _scan_events(store: Store, measure: Measure, batches: Sequence[Batches]) -> tuple[TickCounts, int]:
    totals, digest = [], 0
    for ticks, column in _event_columns(store, measure, batches):
        kept = ~column.nan & ~column.null
        totals.append(tick_counts(ticks, column))
        digest = (digest + _digest(column.stored[kept], ticks[kept])) % 2**64
    return add_totals(totals), digest


def _event_columns(
    store: Store, measure: Measure, batches: Sequence[Batches]
) -> Iterable[tuple[NDArray[np.int64], Column]]:
    filesystem = store.filesystem()
    found = event_files(tables.open_table(store, EVENTS), batches)
    for shares in share_out(filesystem, found, _READ_ROWS):
        for piece in read_columns(filesystem, shares, [measure], batches):
            yield piece.ticks, piece.columns[0]


def _scan_runs(snapshot: Snapshot, measure: Measure) -> int:
    view, digest = snapshot.view(measure.name), 0
    for marks in view.runs:
        for file in marks.files:
            with pq.ParquetFile(
                f"{view.root}/{file.path}", filesystem=snapshot.store.filesystem()
            ) as parquet:
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


def _bounds_hold(snapshot: Snapshot, measure: Measure) -> str:
    """lo(x) <= true rank <= hi(x) of every live summary, at all its values and between."""
    view = snapshot.view(measure.name)
    by_range: dict[Batches, list[Any]] = {}
    for row in view.live:
        by_range.setdefault(Batches(row.source, row.first_batch, row.last_batch), []).append(row)
    for batches, rows in by_range.items():
        pieces = list(_event_columns(snapshot.store, measure, [batches]))
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
            raise _Broken(f"the summary of tick {row.tick} in {batches} does not hold its bounds")
