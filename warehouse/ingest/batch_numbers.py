"""The numbers of a stream's batches: each brings its rows once, and none that was not seen is taken for seen.

The numbers of a source rise, and `events` decides: a batch, with rows or without, is committed there only
under a number above all that are there. Its ledger row follows, after those of the batches before it: where a
crash left one without, whoever comes next writes it. So of a number that is not new

    the ledger has a row, or `events` has its rows          it was seen, and is a replay
    `events` has its rows and the ledger does not know it   it was not finished
    neither, but it lies in a range or a plan, or `rejected` has records of it
                                                            it had no rows, or was passed over: only a batch
                                                            without rows is a replay
    nothing has it                                          it was passed over, and cannot come any more
"""

from __future__ import annotations

from typing import Literal

from deltalake import DeltaTable

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, LEDGER, REJECTED, Store
from tidemark.warehouse.errors import DamagedWarehouse, InputError
from tidemark.warehouse.events.reader import BatchRange, rows_by_batch
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE

Place = Literal["new", "known", "unfinished", "unproved"]


def place_of(store: Store, events: DeltaTable, held: DeltaTable, batch: BatchRange) -> Place:
    """What is known of the batch, from `events` and the ledger.

    InputError where its number was passed over: nothing has it, and later ones are there.
    """
    written, settled = (tables.newest_transaction(table, batch.source) for table in (events, held))
    if batch.last > max(written, settled):
        return "new"
    if batch.last == settled:
        return "known"
    if batch.last == written > settled:
        return "unfinished"
    ranges = ledger_table.holding(store, held, batch)
    if batch in ranges:
        return "known"
    if rows_by_batch(store.filesystem(), events, batch):
        if ranges:
            _check_counted(store, events, held, ranges)
        return "known" if ranges else "unfinished"
    if ranges or rejected.has_rejected(tables.open_table(store, REJECTED), batch):
        return "unproved"
    raise passed_over(batch, max(written, settled))


def newest(store: Store, source: str) -> int:
    """The newest number of the source, -1 where there is none."""
    return max(tables.newest_transaction(tables.open_table(store, one), source) for one in (EVENTS, LEDGER))


def passed_over(batch: BatchRange, newest: int) -> InputError:
    """The error for rows under a number below the newest that nothing has."""
    return InputError(
        f"batch {batch.last} of {batch.source!r} was never appended, and its newest batch is {newest}: "
        "the numbers of a source have to rise. Nothing was changed. Append these rows under a number above "
        f"{newest}, or under another source name."
    )


def _check_counted(store: Store, events: DeltaTable, held: DeltaTable, ranges: list[BatchRange]) -> None:
    """The ranges of the ledger among these count every row of theirs in `events`."""
    found = ledger_table.ranges_by_file(store, held)
    counts = ledger_table.row_counts(ledger_table.read_rows(store, found, ranges, [*RANGE, "rows"]))
    for one, rows in counts.items():
        there = rows_by_batch(store.filesystem(), events, one).total()
        if there != rows:
            raise DamagedWarehouse(
                f"the ledger counts {rows} rows of {one}, events holds {there}: a batch among them crashed "
                "and was passed over. Load a new warehouse from the rows of events."
            )
