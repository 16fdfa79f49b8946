"""Finds runs and ledger rows that differ from `events` although no file is damaged: a writer was wrong.

No digest finds that; the checks of verify that compare them with `events` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.projections.companion_cells import CompanionCells
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import Projection
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.verification import companion_checks, ledger_checks, removal_checks, run_checks
from tidemark.warehouse.verification.pinned_tables import PinnedTables, pin_tables

_TRIES = 3  # of a comparison while others commit

Check = Callable[[], object]  # raises DamagedWarehouse if it does not hold


@dataclass(slots=True)
class Differences:
    """What differs.

    runs     by projection the runs that have other rows than `events`, each with the difference
    ledger   why the ledger does not fit its rows; None if it does
    others   differences that cannot be repaired from another table
    """

    runs: dict[Projection[Any], Mapping[Run, str]] = field(default_factory=dict)
    ledger: str | None = None
    others: list[str] = field(default_factory=list)

    @property
    def is_unlike_events(self) -> bool:
        """Whether runs or the ledger have other rows than `events`."""
        return bool(self.runs) or self.ledger is not None


def compare(store: Store) -> Differences:
    """Compares runs and ledger with `events`, and removals with their records; reads all of them.

    Differences are compared again, as others may commit and maintenance may delete files meanwhile.
    DamagedWarehouse if a file cannot be read in any try.
    """
    versions, found = None, Differences()
    for tries_left in reversed(range(_TRIES)):
        pinned = pin_tables(store.uri, store.options)
        try:
            found = _differences(pinned)
        except (DamagedWarehouse, FileNotFoundError):
            if not tries_left:
                raise
            continue
        if not (found.is_unlike_events or found.others) or pinned.versions == versions:
            break
        versions = pinned.versions
    return found


def _differences(pinned: PinnedTables) -> Differences:
    found = Differences()
    for projection in pinned.snapshot.options.projections:
        if unlike := _unlike(pinned, projection):
            found.runs[projection] = unlike
    found.ledger = next((fault for check in _of_ledger(pinned) if (fault := _fault(check))), None)
    if SIGNED in pinned.snapshot.options.features:
        checks = (removal_checks.rows_accounted_for, removal_checks.horizon_told)
        found.others = [fault for check in checks if (fault := _fault(partial(check, pinned)))]
    return found


def _unlike(pinned: PinnedTables, projection: Projection[Any]) -> Mapping[Run, str]:
    if not isinstance(projection, CompanionCells):
        return run_checks.runs_unlike_events(pinned, projection)
    for companion in projection.companions.declared:
        if fault := _fault(partial(companion_checks.run_cells_hold, pinned, companion)):
            return dict.fromkeys((marks.run for marks in pinned.snapshot.marks(projection)), fault)
    return {}


def _of_ledger(pinned: PinnedTables) -> Iterator[Check]:
    options = pinned.snapshot.options
    yield partial(ledger_checks.ticks_once_and_sums_equal, pinned)
    for measure in options.measures:
        yield partial(ledger_checks.ranks_hold, pinned, measure)
    for key_counts in options.key_counts:
        yield partial(ledger_checks.counts_hold, pinned, key_counts)
    for companion in options.companion_names:
        yield partial(companion_checks.live_cells_hold, pinned, companion)
    for projection in options.projections[:1]:
        yield partial(run_checks.check_live_rows, pinned, projection, planned_batches(pinned.plans))


def _fault(check: Check) -> str | None:
    try:
        check()
    except DamagedWarehouse as error:
        return str(error)
    return None
