"""Decides from the number of a stream's batch whether the batch is new, a replay or unfinished.

The numbers of a source rise. A batch, with rows or without, is committed to `events` only under a number
above all numbers that are there. Its ledger row follows, after those of the batches before it. A crash can
leave a batch without its ledger row; the next append to the source then writes it. So a number that is not
new is in one of these states:

    the ledger has a row of the batch                        known: a replay
    `events` has its rows, or had them and they were removed, and a ledger range or a plan contains it
                                                             known: a replay
    `events` has its rows, the ledger and the plans lack it  unfinished: a crash came between the two commits,
                                                             or another tool changed the ledger
    `events` has no rows; a ledger range or a plan contains it, or `rejected` has records of it
                                                             unproved: it had no rows, or was skipped;
                                                             only a batch without rows is a replay
    no table has it                                          its number was left out: InputError

A replay must have the stored rows: `same_rows.py` compares them, and `other_rows_error` is raised for other
rows.
"""

from __future__ import annotations

from typing import Literal

from deltalake import DeltaTable

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REJECTED
from tidemark.warehouse.errors import BatchMismatch, DamagedWarehouse, InputError
from tidemark.warehouse.events.reader import BatchRange, rows_by_batch
from tidemark.warehouse.events.removed_rows import left_rows
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS

GREATEST_BATCH = 2**63 - 2  # a range of batches is counted to the one after its last

BatchState = Literal["new", "known", "unfinished", "unproved"]


def state_of(store: Store, events: DeltaTable, ledger: DeltaTable, batch: BatchRange) -> BatchState:
    """The state of the batch, from `events` and the ledger.

    InputError if its number was left out: no table has it, and the source has later batches.
    """
    newest_event, newest_ledger = (
        tables.newest_transaction(table, batch.source) for table in (events, ledger)
    )
    if batch.last > max(newest_event, newest_ledger):
        return "new"
    if batch.last == newest_event > newest_ledger:
        return "unfinished"
    ranges = ledger_table.ranges_containing(store, ledger, batch)
    if batch in ranges:
        return "known"
    if rows_by_batch(store, events, batch) or left_rows(store, events, batch).rows:
        if ranges:
            _check_counts(store, events, ledger, ranges)
        return "known" if ranges else "unfinished"
    if ranges or rejected.has_rejected(tables.open_table(store, REJECTED), batch):
        return "unproved"
    raise skipped_number_error(batch, max(newest_event, newest_ledger))


def newest(store: Store, source: str) -> int:
    """The newest number of the source in `events` and the ledger; -1 if there is none."""
    return max(tables.newest_transaction(tables.open_table(store, name), source) for name in (EVENTS, LEDGER))


def other_rows_error(store: Store, batch: BatchRange, state: BatchState, different: str) -> InputError:
    """The error for rows of a batch in this state that differ from the stored rows; the words say how."""
    newest_number = newest(store, batch.source)
    if state == "unproved":
        return skipped_number_error(batch, newest_number)
    return BatchMismatch(
        f"{batch.text} was appended before with other rows: {different}. Nothing was changed. "
        f"Append new rows under a number above {newest_number}."
    )


def skipped_number_error(batch: BatchRange, newest_number: int) -> InputError:
    """The error for rows whose number is below the newest one and was left out before."""
    return InputError(
        f"batch {batch.last} of {batch.source!r} was never appended, or had no rows, and its newest batch is "
        f"{newest_number}: the numbers of a source have to rise. Nothing was changed. Append these rows "
        f"under a number above {newest_number}, or under another source name."
    )


def _check_counts(store: Store, events: DeltaTable, ledger: DeltaTable, ranges: list[BatchRange]) -> None:
    """DamagedWarehouse unless the ledger rows of these ranges count all their rows in `events`."""
    files = ledger_table.ranges_by_file(store, ledger)
    counts = ledger_table.row_counts(ledger_table.read_rows(store, files, ranges, [*RANGE_COLUMNS, "rows"]))
    for batches, rows in counts.items():
        in_events = rows_by_batch(store, events, batches).total()
        in_events += left_rows(store, events, batches).rows
        if in_events != rows:
            raise DamagedWarehouse(
                f"the ledger counts {rows} rows of {batches.text}, events holds {in_events}: the append of a "
                "batch crashed, and its ledger row is missing. Load a new warehouse from the rows of events."
            )
