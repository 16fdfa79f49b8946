"""Batches whose rows are in `events`, while neither a plan nor the ledger accounts for them.

No reader and no load sees such rows. They have three causes:

    an append between its commits    it crashed, or still runs: the newest batch of a stream, with a number
                                     above all numbers that the ledger had
    a bulk load before its plan      the rows wait until the same load is run again and plans them
    a change of the ledger           another tool (RESTORE, DELETE) removed rows of it, or it was replaced
                                     by an older copy

Cost: statistics of files where each file has the batches of one covered range. Other files are read only if
the numbers of rows do not add up: events has those of the plans and of the live ranges, and no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BULK, BatchRange, EventRowGroups, count_rows, only_batch
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS

_WHOLE_TEXT = 32  # characters: Delta's statistics cut longer text
_SHOWN = 5  # batches that a message names


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """The batches with rows in `events` that nothing accounts for, with their rows; ascending.

    lost     batches of streams whose numbers the ledger has taken, and lost
    waiting  batches of streams above all numbers that the ledger has taken, as after a crash
    bulk     batches of bulk loads that no step has
    """

    lost: dict[BatchRange, int]
    waiting: dict[BatchRange, int]
    bulk: dict[BatchRange, int]

    @property
    def streamed(self) -> dict[BatchRange, int]:
        """The batches of streams."""
        return self.lost | self.waiting


def find(
    store: Store,
    events: DeltaTable,
    ledger: DeltaTable | None,
    plans: Sequence[StepPlan],
    without: Collection[str] = (),
) -> Unaccounted:
    """The batches of `events` that neither the ledger nor the plans account for.

    `without` are damaged files of the ledger, which account for nothing. `ledger` is None if it is lost.

    The ledger and the plans are of the same time or later, the plans read last: a batch leaves the ledger
    after it is planned.
    """
    files = {} if ledger is None else ledger_table.ranges_by_file(store, ledger, without=without)
    planned = [batches for plan in plans for batches in plan.batches]
    live = ledger_table.live_ranges(chain.from_iterable(files.values()), planned)
    covered = ledger_table.disjoint([*planned, *live])
    suspects = [file for file in data_files.list_files(events) if not _is_covered(file, covered)]
    found: Counter[tuple[str, int]] = Counter()
    unclear: list[DataFile] = []
    for file in suspects:
        batch = only_batch(file)
        if batch is None or len(batch[0]) >= _WHOLE_TEXT:
            unclear.append(file)
        else:
            found[batch] += file.rows
    if unclear:
        rows = ledger_table.read_rows(store, files, live, [*RANGE_COLUMNS, "rows"])
        known = removed_at(store, events).rows(plans) + sum(ledger_table.row_counts(rows).values())
        every = data_files.list_files(events)
        counted = all(file.rows >= 0 for file in every)
        if not counted or sum(file.rows for file in every) != known + found.total():
            shares = map(EventRowGroups.whole_file, unclear)
            found += count_rows(store, shares)
    missing = {
        BatchRange(source, batch, batch): rows
        for (source, batch), rows in sorted(found.items())
        if not ledger_table.covers(covered, BatchRange(source, batch, batch))
    }
    streamed = {batches: rows for batches, rows in missing.items() if not batches.source.startswith(BULK)}
    newest = {
        source: -1 if ledger is None else tables.newest_transaction(ledger, source)
        for source in {batches.source for batches in streamed}
    }
    lost = {batches: rows for batches, rows in streamed.items() if batches.last <= newest[batches.source]}
    return Unaccounted(
        lost,
        {batches: rows for batches, rows in streamed.items() if batches not in lost},
        {batches: rows for batches, rows in missing.items() if batches not in streamed},
    )


def named(batches: Iterable[BatchRange]) -> str:
    """The first of the batches in words, and how many more there are."""
    texts = [one.text for one in batches]
    more = f", and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _is_covered(file: DataFile, covered: ledger_table.Intervals) -> bool:
    """Whether the file's statistics prove that its batches are covered."""
    source, first, last = (file.stats.get(name) for name in ("min._source", "min._batch", "max._batch"))
    if source is None or first is None or last is None or file.stats.get("max._source") is None:
        return False
    if source == file.stats["max._source"] and len(source) < _WHOLE_TEXT:
        return ledger_table.covers(covered, BatchRange(source, first, last))
    # The number of a bulk batch is a hash of its whole name.
    same = [name for name in covered if name.startswith(source)] if source.startswith(BULK) else []
    return first == last and any(ledger_table.covers(covered, BatchRange(name, first, last)) for name in same)
