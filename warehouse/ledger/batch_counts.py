"""Finds the batches whose rows in `events` another tool deleted or added.

tidemark never changes the rows of a batch. A load, an exact answer or `verify` may find another number of
rows than was planned or streamed. This module compares the row count of each batch in `events` with the
expected one, and finds the version of the table that still has the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest

import numpy as np
from deltalake import DeltaTable
from numpy.typing import NDArray

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import ID
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.delta.table_open import open_directly
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    count_rows,
    files_of_batches,
    outer_first,
    stated_rows,
)
from tidemark.warehouse.events.removals import Removed, removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS

_SHOWN_RANGES = 5  # that a message names
_FOREIGN = {"DELETE", "UPDATE", "MERGE", "TRUNCATE"}  # operations that tidemark never uses


@dataclass(frozen=True, slots=True)
class ChangedRange:
    """A range of batches of which `events` should have `expected` rows and has `actual`."""

    batches: BatchRange
    expected: int
    actual: int

    def __str__(self) -> str:
        if self.actual < self.expected:
            return f"{self.batches.text} lost {self.expected - self.actual} of its {self.expected} rows"
        extra = self.actual - self.expected
        return f"{self.batches.text} has {extra} more rows than the {self.expected} that came"


def changed_ranges(store: Store, expected: Mapping[BatchRange, int]) -> list[ChangedRange]:
    """The ranges of which `events` has another number of rows than expected, by source and first batch.

    `expected` has the rows of each range to check. The ledger has counts of narrower ranges inside these: if
    a narrower range is wrong, the wider range around it is left out. Ranges inside one that lost rows by a
    removal are not compared, because the ledger counts the rows that came.
    """
    wanted, events = list(expected), tables.open_table(store, EVENTS)
    files = files_of_batches(events, wanted)
    actual = _EventCounts(count_rows(store, map(EventRowGroups.whole_file, files), wanted))
    counts = dict(expected)
    with suppress(DamagedWarehouse, FileNotFoundError):  # a damaged ledger has none that would help
        removals = removed_at(store, events).removals
        shrunk = {part.batches for one in removals for part in one.parts if part.rows}
        counts = _ledger_counts(store, expected.keys() - shrunk) | counts
    ranges = sorted(counts, key=outer_first)
    changed = [ChangedRange(batches, counts[batches], actual.of(batches)) for batches in ranges]
    changed = [change for change in changed if change.expected != change.actual]
    return [
        change
        for change, following in zip_longest(changed, changed[1:])
        if following is None or not following.batches.within(change.batches)
    ]


def expected_rows(
    store: Store,
    plans: Iterable[StepPlan],
    ledger: DeltaTable | None,
    removed: Removed,
    without: Collection[str] = (),
) -> dict[BatchRange, int]:
    """The rows that should be there of each planned range, and of each unplanned range of the ledger.

    removed   the removals up to the version of `events` that is compared
    without   damaged files of the ledger; None if the whole ledger is lost
    """
    expected = removed.parts({batches: rows for plan in plans for batches, rows in plan.parts})
    files = {} if ledger is None else ledger_table.ranges_by_file(store, ledger, without=without)
    live = ledger_table.live_ranges(chain.from_iterable(files.values()), expected)
    rows = ledger_table.read_rows(store, files, live, [*RANGE_COLUMNS, "rows"])
    return expected | ledger_table.row_counts(rows)


def is_complete(store: Store, files: Sequence[DataFile], expected: Mapping[BatchRange, int]) -> bool:
    """Whether files of `events` have the expected rows of disjoint ranges.

    files   all files that may have rows of the ranges, by their statistics

    The log has the numbers of rows. If these do not add up, the batch columns of files of several batches are
    read: such files may have rows of other batches, or rows that another tool added.
    """
    ranges = list(expected)
    stated, others = stated_rows(files, ranges)
    adds_up = stated.total() + sum(file.rows for file in others) == sum(expected.values())
    if adds_up and all(file.rows >= 0 for file in others):
        return True
    actual = _EventCounts(stated + count_rows(store, map(EventRowGroups.whole_file, others), ranges))
    return all(actual.of(batches) == rows for batches, rows in expected.items())


def check_complete(store: Store, files: Sequence[DataFile], expected: Mapping[BatchRange, int]) -> None:
    """DamagedWarehouse unless `is_complete`."""
    if not is_complete(store, files, expected):
        reason = f"the table {EVENTS} does not have the rows that came"
        raise changed_rows_error(store, expected, reason)


def describe_changes(store: Store, changes: Iterable[ChangedRange]) -> str:
    """The changed ranges in words, and how to restore the rows."""
    texts = [str(change) for change in changes]
    more = f", and {len(texts) - _SHOWN_RANGES} more" if len(texts) > _SHOWN_RANGES else ""
    shown = "; ".join(texts[:_SHOWN_RANGES]) + more or "each batch has its number of rows, but other rows"
    tool, remedy = changed_by_tool(store)
    by_whom = "were changed by another tool" if tool else "are not those that came"
    return f"rows of the table {EVENTS} {by_whom}: {shown}. {remedy}"


def changed_rows_error(store: Store, expected: Mapping[BatchRange, int], reason: str) -> DamagedWarehouse:
    """The error for rows of `events` that were changed; `reason` says where that was noticed."""
    return DamagedWarehouse(f"{reason}: {describe_changes(store, changed_ranges(store, expected))}")


def changed_by_tool(store: Store) -> tuple[bool, str]:
    """Whether the log of `events` shows a change by another tool, and how to restore the rows.

    If the log shows which version has the rows, the text names it.
    """
    commits = open_directly(store, EVENTS).history()  # the newest first
    newer = list(takewhile(lambda commit: commit.get("operation") != "RESTORE", commits))
    foreign = [i for i, commit in enumerate(newer) if commit.get("operation") in _FOREIGN]
    if any(ID not in commit and commit.get("operation") == "WRITE" for commit in commits) and not foreign:
        return True, "Restore the version of the table from before that, or put back what it had."
    if not foreign:
        return False, (
            "Its log shows no change by another tool. It may be older than the other tables, as in a copy "
            "made while others wrote, or after an older version was put back: put back the newest one."
        )
    oldest = foreign[-1]
    before = newer[oldest]["version"] - 1
    change = f"Its version {before + 1} is a {newer[oldest]['operation']}"
    if any(commit.get("operation") == "WRITE" for commit in newer[:oldest]):
        return True, (
            f"{change}, and rows came after it: append those that version {before} has and the table lacks."
        )
    return True, f"{change}: restore version {before}, with deltalake: DeltaTable(path).restore({before})."


class _EventCounts:
    """The rows that `events` has of some ranges of batches, from those of each batch by (source, number).

    Each source has its batches, ascending, and the prefix sums of their rows: batches [2, 5] with 10 and 4
    rows are stored as ([2, 5], [0, 10, 14]).
    """

    def __init__(self, counts: Mapping[tuple[str, int], int]) -> None:
        by_source: dict[str, list[tuple[int, int]]] = {}
        for (source, batch), rows in counts.items():
            by_source.setdefault(source, []).append((batch, rows))
        self._sources: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for source, pairs in by_source.items():
            batches, rows_of = np.array(sorted(pairs), dtype=np.int64).T
            self._sources[source] = batches, np.concatenate([np.zeros(1, np.int64), np.cumsum(rows_of)])

    def of(self, batches: BatchRange) -> int:
        if batches.source not in self._sources:
            return 0
        numbers, rows_before = self._sources[batches.source]
        first, stop = numbers.searchsorted(batches.first), numbers.searchsorted(batches.last, "right")
        return int(rows_before[stop] - rows_before[first])


def _ledger_counts(store: Store, ranges: Iterable[BatchRange]) -> dict[BatchRange, int]:
    """The row counts of the ledger, for its ranges inside the given ones."""
    by_source: dict[str, list[BatchRange]] = {}
    for batches in ranges:
        by_source.setdefault(batches.source, []).append(batches)
    files = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    inside = [
        batches
        for batches in chain.from_iterable(files.values())
        if any(batches.within(whole) for whole in by_source.get(batches.source, ()))
    ]
    if not inside:
        return {}
    return ledger_table.row_counts(ledger_table.read_rows(store, files, inside, [*RANGE_COLUMNS, "rows"]))
