"""Checks that a batch that is loaded again has the same rows as in `events`, in any order.

Tasks compute an order-independent fingerprint of both (integrity/digests.py). Rows of the input are cast to
the warehouse's types first (`column_casts.cast_rows`), so their input types and the executor do not matter.
The fingerprint is stored nowhere.
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
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.settings.options import Options


@dataclass(frozen=True, slots=True)
class DigestRows:
    """Computes the fingerprint of one partition of the input; its columns match `schema` by position."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Fingerprint]:
        """Yields one fingerprint."""
        yield sum((fingerprint(cast_rows(batch, self.schema)) for batch in batches), Fingerprint())


@dataclass(frozen=True, slots=True)
class DigestTask:
    """Computes the fingerprint of a batch's rows in shares of `events`; `schema` has the user's columns."""

    store: Store
    schema: pa.Schema
    batch: BatchRange
    shares: tuple[EventRowGroups, ...]

    def __call__(self) -> Fingerprint:
        """Reads the rows one row group at a time; returns their fingerprint."""
        names = self.schema.names
        groups = read_event_rows(self.store.filesystem(), self.shares, names, [self.batch])
        rows = (cast_rows(table.select(names), self.schema) for table in groups)
        return sum(map(fingerprint, rows), Fingerprint())


def check_same_rows(
    executor: Executor, store: Store, options: Options, rows: Input, batch: BatchRange
) -> None:
    """BatchMismatch unless the batch in `events` has the same rows. Both are read once."""
    events = tables.open_table(store, EVENTS)
    names = [name for name, _ in options.columns]
    schema = pa.schema([pa.schema(events.schema()).field(name) for name in names])
    shares = split_row_groups(store.filesystem(), files_of_batches(events, [batch]), store.tuning.digest_rows)
    digest_tasks = [DigestTask(store, schema, batch, tuple(share)) for share in shares]
    given = sum(rows.each(names, DigestRows(schema)), Fingerprint())
    stored = sum(executor.run(digest_tasks), Fingerprint())
    if stored != given:
        detail = f"{stored.rows} rows are stored, {given.rows} came"
        if stored.rows == given.rows:
            detail += ", and their content differs"
        raise BatchMismatch(
            f"batch {batch.source!r} was loaded before with other rows: {detail}. "
            "Nothing was changed. Load new rows under a new batch name."
        )
