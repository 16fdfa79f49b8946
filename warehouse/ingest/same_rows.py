"""Whether a batch that comes again has the rows that `events` has of it, in any order.

Both are digested in tasks (digests.py), the rows of `events` once they have the warehouse's types
(`fitting.fitted`): so it does not matter in what types they came, and either executor says the same. The
digest is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, Store
from tidemark.warehouse.errors import BatchMismatch
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    files_of_batches,
    read_event_rows,
    split_row_groups,
)
from tidemark.warehouse.execution.executors import Executor, Input
from tidemark.warehouse.ingest.column_casts import fitted
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.settings.options import Options

SHARE_ROWS = 2**21  # of `events` that a task digests


@dataclass(frozen=True, slots=True)
class DigestRows:
    """The fingerprint of one partition of given rows, whose columns are those of `schema` by their order."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Fingerprint]:
        """One fingerprint."""
        yield sum((fingerprint(fitted(batch, self.schema)) for batch in batches), Fingerprint())


@dataclass(frozen=True, slots=True)
class DigestTask:
    """The fingerprint of a batch's rows in some shares of `events`; `schema` has the user's columns."""

    store: Store
    schema: pa.Schema
    batch: BatchRange
    shares: tuple[EventRowGroups, ...]

    def __call__(self) -> Fingerprint:
        """The rows are read a row group at a time."""
        names = self.schema.names
        found = read_event_rows(self.store.filesystem(), self.shares, names, [self.batch])
        rows = (fitted(table.select(names), self.schema) for table in found)
        return sum(map(fingerprint, rows), Fingerprint())


def check_same_rows(
    executor: Executor, store: Store, options: Options, rows: Input, batch: BatchRange
) -> None:
    """BatchMismatch unless the batch in `events` has these very rows. Both are read once."""
    events = tables.open_table(store, EVENTS)
    names = [name for name, _ in options.columns]
    schema = pa.schema([pa.schema(events.schema()).field(name) for name in names])
    shares = split_row_groups(store.filesystem(), files_of_batches(events, [batch]), SHARE_ROWS)
    stored = [DigestTask(store, schema, batch, tuple(share)) for share in shares]
    now = sum(rows.each(names, DigestRows(schema)), Fingerprint())
    was = sum(executor.run(stored), Fingerprint())
    if was != now:
        detail = f"{was.rows} rows are stored, {now.rows} came"
        if was.rows == now.rows:
            detail += ", and their content differs"
        raise BatchMismatch(
            f"batch {batch.source!r} was loaded before with other rows: {detail}. "
            "Nothing was changed. Load new rows under a new batch name."
        )
