"""Verify: every invariant of a warehouse, checked on the real tables. Needs no JVM.

It reads all runs and all of `events` once, in bounded pieces. DESIGN.md, section 2.7, numbers the
invariants. A load that did not finish is no violation: the report says what to run again.

Others may load, stream and maintain beside it. All checks read the tables at one version each
(warehouse/verification/pinned_tables.py), and what fails is checked again before it is called broken:

    nothing was committed meanwhile     broken
    files of the moment were swept      the check is put to a fresh moment; a file that this one names
                                        and that was missing before is broken
    all files are there                 the check is put to a fresh moment, and is broken if it fails again
    a level waits for its merge         the check waits, too; broken where nobody writes to the table's folder

A check that met another moment's end each time is `busy`: neither proved nor broken.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import Patience
from tidemark.warehouse.delta.log_retention import retention_us
from tidemark.warehouse.delta.store import LEDGER, REJECTED, Store
from tidemark.warehouse.errors import DamagedWarehouse, TidemarkError
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.ledger import batch_counts, ledger_rows, ledger_table
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.verification import ledger_checks, run_checks
from tidemark.warehouse.verification.pinned_tables import PinnedTables, look

PATIENCE = Patience(tries=12, seconds=30, first=0.05)  # of a check that met what is under way

_SHOWN = {"ok": "ok  ", "busy": "busy", "broken": "FAIL"}


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant of one table, and what was seen: it holds ('ok'), or does not ('broken').

    'busy': the tables changed at each look, so it was neither proved nor refuted. Look again later.
    """

    name: str
    state: Literal["ok", "busy", "broken"]
    detail: str

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return self.state != "broken"


@dataclass(frozen=True, slots=True)
class Report:
    """All checks of a warehouse."""

    warehouse: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{_SHOWN[check.state]}  {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([self.warehouse, *lines])


@report_os_errors("verify")
def verify(
    uri: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Checks all invariants of the warehouse; raises only where there is none to check.

    Others may write meanwhile: what changed at each look is reported as busy, not as broken.
    `progress` is called with the name of each check before it.
    """
    looks = _Looks(partial(look, uri, storage_options))
    checks = []
    for name, check in _checks(looks.moment):
        if progress:
            progress(name)
        checks.append(_judge(name, check, looks))
    return Report(looks.moment.store.uri, tuple(checks))


_Question = Callable[[PinnedTables], str]  # what was seen; an error where the invariant does not hold


def _checks(moment: PinnedTables) -> Iterator[tuple[str, _Question]]:
    yield "files: every named file is there", _files_exist
    yield "batches: each in at most one step", _plans_disjoint
    yield "ledger: each tick once, wide ranges add up", _ledger_sums
    yield "events: each batch has the rows that came", _batches_whole
    yield "rejected: each record has a reason", _rejected_told
    options = moment.snapshot.options
    for one in options.projections:
        kept = "summed" if one.merges_equal else "disjoint"
        yield f"{one.name}: runs partition the steps, at most kappa a level", partial(_layout, one=one)
        exact = partial(run_checks.runs_exact, projection=one)
        yield f"{one.name}: runs are sorted and {kept}, marks are exact", exact
        yield f"{one.name}: nothing is lost or counted twice", partial(run_checks.conserved, projection=one)
    for measure in options.measures:
        ranks = partial(ledger_checks.ranks_hold, measure=measure)
        yield f"{measure.name}: live summaries hold their bounds", ranks
    if options.key_column:
        yield "keys: live counts hold their bounds", ledger_checks.counts_hold


class _MergeDue(Exception):
    """A level holds more than kappa runs, as between a load's commits of a step and of its merge.

    `folder` are the files of the runs table with their sizes: a merge that is under way adds to them.
    """

    def __init__(self, message: str, folder: frozenset[tuple[str, int]]) -> None:
        super().__init__(message)
        self.folder = folder


class _Looks:
    """The moment that checks look at, until one asks for a fresh one."""

    def __init__(self, take: Callable[[], PinnedTables]) -> None:
        self._take = take
        self.moment = take()

    def again(self) -> bool:
        """Takes a fresh moment; whether anything was committed since the last."""
        before = self.moment
        try:
            self.moment = self._take()
        except (TidemarkError, OSError):
            return False
        return self.moment.versions != before.versions


def _judge(name: str, check: _Question, looks: _Looks) -> Check:
    """Puts the check to moment after moment until it holds, is broken for certain, or patience runs out."""
    pauses = PATIENCE.pauses()
    met: set[object] = set()  # the folders of runs that wait for a merge; None: files were swept
    accused = False
    while True:
        try:
            return Check(name, "ok", check(looks.moment))
        except _MergeDue as due:
            said = str(due)
            met.add(due.folder)
        except (TidemarkError, OSError, pa.ArrowException) as error:
            said = str(error)
            missing = looks.moment.missing() if _unread(error) else {}
            moved = looks.again()
            certain = not missing or bool(missing.keys() & looks.moment.named().keys())
            if not moved or (certain and accused):
                return Check(name, "broken", said)
            if certain:
                accused = True
                continue
            met.add(None)
        pause = next(pauses, None)
        if pause is None:
            broken = len(met) == 1 and None not in met
            why = "" if broken else "; others changed the tables at every look, verify again later"
            return Check(name, "broken" if broken else "busy", said + why)
        PATIENCE.pause(pause)
        looks.again()


def _unread(error: Exception) -> bool:
    """Whether a file could not be read, and not what was read is wrong."""
    return error.__cause__ is not None or not isinstance(error, TidemarkError)


def _files_exist(moment: PinnedTables) -> str:
    for _, table in moment.tables():
        if isinstance(table, TidemarkError):
            raise table
    named = moment.named()
    for path, size in moment.missing().items():
        raise OSError(f"{path} has {size} bytes, its table says {named[path]}")
    grace_us = moment.snapshot.options.grace_us
    short = [
        name
        for name, table in dict(moment.tables()).items()
        if isinstance(table, DeltaTable) and retention_us(table.metadata().configuration) < grace_us
    ]
    told = f"; {short} keep their logs for less than the grace: maintain lengthens that" if short else ""
    return f"{len(named)} files{told}"


def _plans_disjoint(moment: PinnedTables) -> str:
    plans = moment.plans()
    if [plan.step for plan in plans] != list(range(len(plans))):
        raise DamagedWarehouse(f"the steps are not numbered without a gap: {[plan.step for plan in plans]}")
    ranges = sorted(one for plan in plans for one in plan.batches)
    for a, b in pairwise(ranges):
        if a.source == b.source and b.first <= a.last:
            raise DamagedWarehouse(f"{a} and {b} share a batch")
    return f"{len(plans)} steps"


def _ledger_sums(moment: PinnedTables) -> str:
    """Each tick of a range is there once, and a wide range counts what the widest ranges inside it count."""
    store = moment.store
    held = ledger_table.ranges_by_file(store, moment.table(LEDGER))
    wanted = [*ledger_rows.RANGE_COLUMNS, "tick", "rows"]
    rows = ledger_table.read_rows(store, held, chain.from_iterable(held.values()), wanted)
    counts: dict[BatchRange, dict[int, int]] = {}
    names = [rows.column(name).to_pylist() for name in wanted]
    for source, first, last, tick, count in zip(*names, strict=True):
        ticks = counts.setdefault(BatchRange(source, first, last), {})
        if tick in ticks:
            raise DamagedWarehouse(
                f"tick {tick} of {BatchRange(source, first, last)} is there more than once"
            )
        ticks[tick] = count
    planned = planned_batches(moment.plans())
    parts: dict[BatchRange, Counter[int]] = {}
    enclosing = ledger_table.enclosing_ranges(counts)
    for one, ticks in counts.items():
        whole = next(iter(enclosing[one]), None)
        if whole is not None and not ledger_table.partly_planned(whole, planned):
            parts.setdefault(whole, Counter()).update(ticks)
    for whole, found in parts.items():  # maintenance takes the parts of others out
        if +found != +Counter(counts[whole]):
            raise DamagedWarehouse(f"the rows of {whole} are not those of its parts")
    return f"{rows.num_rows} rows of {len(counts)} ranges"


def _batches_whole(moment: PinnedTables) -> str:
    """Every planned and every live batch has in `events` as many rows as its plan or ledger row says."""
    store = moment.store
    came = {batches: rows for plan in moment.plans() for batches, rows in plan.parts}
    held = ledger_table.ranges_by_file(store, moment.table(LEDGER))
    live = ledger_table.live_ranges(chain.from_iterable(held.values()), came)
    came |= ledger_table.row_counts(
        ledger_table.read_rows(store, held, live, [*ledger_rows.RANGE_COLUMNS, "rows"])
    )
    wrong = batch_counts.changed_ranges(store, came)
    if wrong:
        raise DamagedWarehouse(batch_counts.describe_changes(store, wrong))
    return f"{sum(came.values())} rows"


def _rejected_told(moment: PinnedTables) -> str:
    rows = tables.read(moment.store, REJECTED, moment.table(REJECTED))
    silent = rows.column("reason").null_count
    if silent:
        raise DamagedWarehouse(f"{silent} rejected records have no reason")
    counts = dict(sorted(Counter(rows.column("source").to_pylist()).items()))
    return f"{rows.num_rows} records rejected" + (f": {counts}" if counts else "")


def _layout(moment: PinnedTables, one: Projection[Any]) -> str:
    kappa = moment.snapshot.options.kappa
    layout = Layout.of(marks.run for marks in moment.snapshot.marks(one))
    planned = len(moment.plans()) - 1
    over = {level: count for level, count in layout.levels().items() if count > kappa}
    if over:
        said = f"levels with more than {kappa} runs: {over}; run the load again"
        if max(over) > 0:  # a step is added to level 0, and a merge leaves no other level so
            raise DamagedWarehouse(said)
        if _all_loaded(moment, planned):
            raise _MergeDue(said, _folder(moment.store, one.runs_table))
    behind = (
        f"; steps {layout.last_step + 1}..{planned} are planned, run their load again"
        if planned > layout.last_step
        else "; a merge is due, run the load again"
        if over
        else ""
    )
    return f"runs by level {layout.levels()}{behind}"


def _folder(store: Store, root: str) -> frozenset[tuple[str, int]]:
    found = store.filesystem().get_file_info(fs.FileSelector(root, recursive=True))
    return frozenset((info.path, info.size or 0) for info in found)


def _all_loaded(moment: PinnedTables, planned: int) -> bool:
    """Whether each projection has all planned steps: until then a load has not come to its merges."""
    for one in moment.snapshot.options.projections:
        table = moment.snapshot.table(one.runs_table)
        runs = run_tables.files_by_run(tables.list_files(table)) if table is not None else {}
        if max((run.last for run in runs), default=-1) < planned:
            return False
    return True
