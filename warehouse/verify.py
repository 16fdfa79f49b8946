"""Verify: checks every invariant of a warehouse on its real tables. Needs no JVM.

DESIGN.md, section 2.7, numbers the invariants. Cost: for each projection, every run and the loaded rows of
`events` are read once and the live rows twice, and all of `events` once more; a block, a row group or a live
range is in memory at a time. A load that did not finish is not a violation: the report says what to run
again.

Other processes may load, stream and maintain at the same time. Each check reads every table at one version
(warehouse/verification/pinned_tables.py). If a check fails, the tables are pinned again at their newest
versions, and then:

    no table has a newer version    the check failed: its state is `broken`, the invariant does not hold
    files were deleted, and no newer version names them
                                    the check runs again after a pause
    any other failure               the check runs again without a pause; a second such failure is `broken`
    a level waits for its merge     the check runs again after a pause; it is `broken` if the folder of the
                                    runs table did not change during any of the pauses

A check that still fails after the last pause is `busy`: the invariant was neither confirmed nor refuted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.grace import retention_us
from tidemark.warehouse.delta.retries import Patience
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, PURGES, REJECTED, STEPS
from tidemark.warehouse.errors import DamagedWarehouse, TidemarkError
from tidemark.warehouse.events import purges
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import read_step_plans
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import batch_counts, unaccounted
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.runs.levels import Layout
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.snapshots.behind import check_marks
from tidemark.warehouse.verification import (
    companion_checks,
    file_checks,
    ledger_checks,
    removal_checks,
    run_checks,
)
from tidemark.warehouse.verification.pinned_tables import PinnedTables, pin_tables

# How often a failing check is repeated while others write.
PATIENCE = Patience(tries=12, seconds=30, first=0.05)

_WRITE_AGAIN = "Append them again, or run a load or repair: each writes them to the ledger."
_STATE_LABELS = {"ok": "ok  ", "busy": "busy", "broken": "FAIL"}


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking one invariant: `detail` says what was found.

    state   'ok': the invariant holds; 'broken': it does not; 'busy': the tables changed during each attempt,
            so it was neither confirmed nor refuted: verify again later
    """

    name: str
    state: Literal["ok", "busy", "broken"]
    detail: str

    @property
    def ok(self) -> bool:
        """Whether the check is not broken; True for 'busy'."""
        return self.state != "broken"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of a warehouse."""

    warehouse: str
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check is broken."""
        return all(check.ok for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{_STATE_LABELS[check.state]}  {check.name}: {check.detail}" for check in self.checks]
        return "\n".join([self.warehouse, *lines])


def verify(
    uri: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Checks all invariants of the warehouse.

    uri       the warehouse
    storage_options
              options of the object store, as delta-rs takes them
    progress  called with the name of each check before it runs

    Other processes may write at the same time: a check whose tables changed during each attempt is reported
    as busy, not as broken. Violations are reported, not raised. Raises NotAWarehouse if there is no
    warehouse at `uri`, and DamagedWarehouse if it cannot be opened, as where the log of a table cannot be
    read: then `repair` tells more.
    """
    with report_os_errors("verify"):
        newest = _NewestTables(partial(pin_tables, uri, storage_options))
        checks = []
        for name, check in _checks(newest.pinned):
            if progress:
                progress(name)
            checks.append(_run_check(name, check, newest))
        return Report(newest.pinned.store.uri, tuple(checks))


_CheckFunction = Callable[[PinnedTables], str]  # returns the detail; raises if the invariant does not hold


def _checks(pinned: PinnedTables) -> Iterator[tuple[str, _CheckFunction]]:
    yield "files: every named file is there", _files_exist
    yield "tables: none is behind the others", _none_behind
    yield "batches: each in at most one step", _plans_disjoint
    yield "ledger: each tick once, wide ranges add up", ledger_checks.ticks_once_and_sums_equal
    yield "events: each batch has the rows that came", _batches_complete
    yield "events: every file is as it was written", _events_readable
    if SIGNED in pinned.snapshot.options.features:
        yield "removals: every row that left is accounted for", removal_checks.rows_accounted_for
        yield "expiry: the moment before which rows expired is told", removal_checks.horizon_told
    if PURGES in pinned.opened:
        yield "purges: each certificate can be read", _certificates_readable
    yield "rejected: each record has a reason", _rejected_have_reasons
    options = pinned.snapshot.options
    for projection in options.projections:
        name, equal_rows = projection.name, "summed" if projection.merges_equal else "disjoint"
        layout = partial(_layout_valid, projection=projection)
        yield f"{name}: runs partition the steps, at most kappa a level", layout
        exact = partial(run_checks.runs_exact, projection=projection)
        yield f"{name}: runs are sorted and {equal_rows}, marks are exact", exact
        conserved = partial(run_checks.conserved, projection=projection)
        yield f"{name}: nothing is lost or counted twice", conserved
    for measure in options.measures:
        ranks = partial(ledger_checks.ranks_hold, measure=measure)
        yield f"{measure.name}: live summaries hold their bounds", ranks
    for key_counts in options.key_counts:
        counts = partial(ledger_checks.counts_hold, projection=key_counts)
        yield f"{key_counts.name}: live counts hold their bounds", counts
    for companion in options.companion_names:
        cells = partial(companion_checks.cells_hold, companion=companion)
        yield f"companion {companion.name}: cells are those of the rows", cells


class _MergePending(Exception):
    """A level has more than kappa runs, as it has after a step, or a smaller kappa, until the next merge.

    `folder` has the files of the runs table with their sizes: a merge in progress adds to them.
    """

    def __init__(self, message: str, folder: frozenset[tuple[str, int]]) -> None:
        super().__init__(message)
        self.folder = folder


class _NewestTables:
    """The pinned tables that checks read; `pin_again` replaces them with the newest versions."""

    def __init__(self, pin: Callable[[], PinnedTables]) -> None:
        self._pin = pin
        self.pinned = pin()

    def pin_again(self) -> bool:
        """Pins the newest versions; returns whether anything was committed since the last time."""
        before = self.pinned
        try:
            self.pinned = self._pin()
        except (TidemarkError, OSError):
            return False
        return self.pinned.versions != before.versions


def _run_check(name: str, check: _CheckFunction, newest: _NewestTables) -> Check:
    """Runs the check until it holds, is broken for certain, or the pauses are used up (see the module)."""
    tries = PATIENCE.begin()
    causes: set[object] = set()  # one per repetition: files of a pending merge, or None for deleted files
    failed_before = False
    while True:
        try:
            return Check(name, "ok", check(newest.pinned))
        except _MergePending as pending:
            detail = str(pending)
            causes.add(pending.folder)
        except (TidemarkError, OSError, pa.ArrowException) as error:
            detail = str(error)
            is_unread = error.__cause__ is not None or not isinstance(error, TidemarkError)
            missing = newest.pinned.missing() if is_unread else {}
            changed = newest.pin_again()
            explained = missing and not missing.keys() & newest.pinned.file_sizes().keys()
            if not changed or (failed_before and not explained):
                return Check(name, "broken", detail)
            if not explained:
                failed_before = True
                continue
            causes.add(None)
        if not tries.again():
            if len(causes) == 1 and None not in causes:  # the folder never changed: no merge is in progress
                return Check(name, "broken", detail)
            return Check(
                name, "busy", f"{detail}; other writers changed the tables each time, verify again later"
            )
        newest.pin_again()


def _files_exist(pinned: PinnedTables) -> str:
    for _, table in pinned.tables():
        if isinstance(table, TidemarkError):
            raise table
    stated = pinned.file_sizes()
    for path, size in pinned.missing().items():
        raise OSError(f"{path} has {size} bytes, the log of its table says {stated[path]}")
    grace_us = pinned.snapshot.options.grace_us
    short = [
        name
        for name, table in dict(pinned.tables()).items()
        if isinstance(table, DeltaTable) and retention_us(table.metadata().configuration) < grace_us
    ]
    note = f"; {short} keep their logs for less than the grace: run maintain to extend it" if short else ""
    return f"{len(stated)} files{note}"


def _none_behind(pinned: PinnedTables) -> str:
    snapshot = pinned.snapshot
    for projection in snapshot.options.projections:
        marks = pinned.opened[projection.marks_table]
        runs = snapshot.table(projection.runs_table)
        check_marks(projection, runs, marks if isinstance(marks, DeltaTable) else None)
    return snapshot.behind() or f"{len(pinned.plans)} steps"


def _plans_disjoint(pinned: PinnedTables) -> str:
    plans = pinned.plans
    steps = [plan.step for plan in plans]
    if steps != list(range(len(plans))):
        raise DamagedWarehouse(
            f"the steps are numbered {steps}, expected 0 to {len(plans) - 1} without a gap"
        )
    ranges = sorted(batches for plan in plans for batches in plan.batches)
    for a, b in pairwise(ranges):
        if a.source == b.source and b.first <= a.last:
            raise DamagedWarehouse(f"{a.text} and {b.text}, both planned, share a batch")
    return f"{len(plans)} steps"


def _batches_complete(pinned: PinnedTables) -> str:
    """Checks that `events` has the number of rows that the plan or ledger has of each batch."""
    store = pinned.store
    expected = batch_counts.expected_rows(store, pinned.plans, pinned.table(LEDGER), pinned.removed)
    missing = _unaccounted(pinned)
    changes = batch_counts.changed_ranges(store, expected)
    if changes:
        raise DamagedWarehouse(batch_counts.describe_changes(store, changes))
    note = f"; {unaccounted.named(missing)} may be under way, or run the same again" if missing else ""
    return f"{sum(expected.values())} rows{note}"


def _unaccounted(pinned: PinnedTables) -> list[BatchRange]:
    """The batches of `events` that neither the ledger nor a plan has, as an append or load leaves them.

    A killed append leaves at most the newest batch of its source without a row in the ledger.
    DamagedWarehouse if other batches lack their rows there: the ledger lost these. The ledger and the steps
    are opened after `events`, so they are no older than it.
    """
    store = pinned.store
    ledger = tables.open_table(store, LEDGER)
    plans = read_step_plans(store, tables.open_table(store, STEPS))
    found = unaccounted.find(store, pinned.table(EVENTS), ledger, plans)
    behind = Counter(batches.source for batches in found.waiting)
    lost = [b for b in found.streamed if b in found.lost or behind[b.source] > 1]
    if lost:
        raise DamagedWarehouse(
            f"{unaccounted.named(lost)}: events has their {sum(found.streamed[b] for b in lost)} rows, which "
            "neither the ledger nor a step has, so no answer has them. Another tool changed the ledger, or "
            f"an older version of it was put back. {_WRITE_AGAIN}"
        )
    return [*found.waiting, *found.bulk]


def _events_readable(pinned: PinnedTables) -> str:
    """Checks the columns that no projection has, too."""
    files = data_files.list_files(pinned.table(EVENTS))
    for file in files:
        if (fault := file_checks.content_fault(pinned.store, EVENTS, file)) is not None:
            raise DamagedWarehouse(fault) from OSError(file.path)  # maintenance may have deleted it
    return f"{len(files)} files"


def _certificates_readable(pinned: PinnedTables) -> str:
    return f"{len(purges.read_certificates(pinned.store, pinned.table(PURGES)))} certificates"


def _rejected_have_reasons(pinned: PinnedTables) -> str:
    rows = rejected.read(pinned.store, pinned.table(REJECTED))
    counts = dict(sorted(Counter(rows.column("source").to_pylist()).items()))
    return f"{rows.num_rows} records rejected" + (f": {counts}" if counts else "")


def _layout_valid(pinned: PinnedTables, projection: Projection[Any]) -> str:
    """Checks that the runs partition the loaded steps, and that no level holds more than kappa runs."""
    kappa = pinned.snapshot.options.kappa
    layout = Layout.of(marks.run for marks in pinned.snapshot.marks(projection))
    last_planned = len(pinned.plans) - 1
    overfull = {level: count for level, count in layout.levels().items() if count > kappa}
    note = ""
    if overfull:
        message = f"levels with more than {kappa} runs: {overfull}; run the load again"
        if _all_loaded(pinned, last_planned):
            raise _MergePending(message, _folder_files(pinned.store, projection.runs_table))
        note = "; a merge is due, run the load again"
    if last_planned > layout.last_step:
        note = f"; steps {layout.last_step + 1}..{last_planned} are planned, run their load, or alter, again"
    return f"runs by level {layout.levels()}{note}"


def _folder_files(store: Store, root: str) -> frozenset[tuple[str, int]]:
    infos = store.filesystem().get_file_info(fs.FileSelector(root, recursive=True))
    return frozenset((info.path, info.size or 0) for info in infos)


def _all_loaded(pinned: PinnedTables, last_planned: int) -> bool:
    """Whether every projection has all planned steps. A load starts its merges only then."""
    for projection in pinned.snapshot.options.projections:
        table = pinned.snapshot.table(projection.runs_table)
        runs = run_tables.runs_of(table)
        if max((run.last for run in runs), default=-1) < last_planned:
            return False
    return True
