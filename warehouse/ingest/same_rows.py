"""Compares a batch that comes again with its rows in `events`, and in `rejected`, in any order.

Tasks compute order-independent fingerprints of both (integrity/digests.py). Rows of the input are cast to
the warehouse's types first (`column_casts.cast_rows`), so their input types and the executor do not matter.
The fingerprints are stored nowhere, but for those of rows that were removed: these count as stored.

What came is the same as what is stored if all its rows are in `events`; or if those that a filter takes are
there, and those that it refuses are in `rejected`. The clock of the first time, by which rows in the future
were refused, is not known: the filter takes rows up to the latest time in `events`, which is equivalent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake import Schema

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import Measure, encode_values, epoch_micros
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    files_of_batches,
    read_event_rows,
    split_row_groups,
)
from tidemark.warehouse.events.removed_rows import removed_fingerprint
from tidemark.warehouse.ingest.append_rows import GivenBatch
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.ingest.rejected import rejected_texts
from tidemark.warehouse.ingest.row_filter import RowFilter, filter_rows
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.work import Work

Digests = tuple[Fingerprint, Fingerprint, Fingerprint]  # of all rows, of those taken, of the records refused


@dataclass(frozen=True, slots=True)
class DigestRows:
    """Digests one partition of the input; its first columns match `schema` by position."""

    schema: pa.Schema
    options: Options
    row_filter: RowFilter

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Digests]:
        """Yields the digests of the partition; only that of all rows for an all-or-nothing filter."""
        whole = taken = refused = Fingerprint()
        columns = list(range(len(self.schema)))
        for batch in batches:
            rows = cast_rows(batch, self.schema)
            whole += fingerprint(rows.select(columns))
            if not self.row_filter.all_or_nothing:
                kept, _, records = filter_rows(self.row_filter, self.options, self.schema.names, rows)
                taken += fingerprint(kept.select(columns))
                refused += _fingerprint_of_texts([record["raw"] for record in records])
        yield whole, taken, refused


def _fingerprint_of_texts(texts: list[Any]) -> Fingerprint:
    return fingerprint(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["raw"]))


@dataclass(frozen=True, slots=True)
class DigestTask:
    """Digests a batch's rows in shares of `events`; `schema` has the user's columns."""

    store: Store
    schema: pa.Schema
    time: Measure | None
    batch: BatchRange
    shares: tuple[EventRowGroups, ...]

    def run(self) -> tuple[Fingerprint, int]:
        """Reads one row group at a time; returns the fingerprint and the latest time, NO_TICK without one."""
        total, latest = Fingerprint(), NO_TICK
        for table in read_event_rows(self.store.filesystem(), self.shares, self.schema.names, [self.batch]):
            rows = cast_rows(table.select(self.schema.names), self.schema)
            total += fingerprint(rows)
            if self.time is not None:
                times = encode_values(self.time, rows.column(self.time.name))
                latest = int(epoch_micros(self.time, times.stored)[~times.null].max(initial=latest))
        return total, latest


def difference(work: Work, given: GivenBatch) -> str | None:
    """How the rows that came differ from those of the batch, in words; None if they are the same.

    Both are read once. The filter is the one that the rows would pass now.
    """
    store, options, row_filter, batch = work.store, work.options, given.row_filter, given.batch
    events = tables.open_table(store, EVENTS)
    fields = events.schema().fields
    if not options.columns:  # no row was ever taken
        fields = given.fields
        options = replace(options, columns=tuple(column_types(fields).items()))
    stored_schema = pa.schema(Schema(fields))
    schema = pa.schema([stored_schema.field(name) for name, _ in options.columns])
    shares = split_row_groups(store.filesystem(), files_of_batches(events, [batch]), store.tuning.digest_rows)
    time = options.time_column
    digested = work.executor.run([DigestTask(store, schema, time, batch, tuple(share)) for share in shares])
    stored = sum((found for found, _ in digested), removed_fingerprint(store, events, batch))
    records = [] if row_filter.all_or_nothing else rejected_texts(store, batch)
    latest = max((last for _, last in digested), default=NO_TICK) if records else None
    digest = DigestRows(schema, options, replace(row_filter, latest=latest))
    came: list[Digests] = given.rows.each([*schema.names, *given.record_columns], digest)
    nothing = (Fingerprint(),) * 3  # Spark may have no partition
    whole, taken, refused = (sum(parts, Fingerprint()) for parts in zip(nothing, *came, strict=True))
    if whole == stored or (records and taken == stored and refused == _fingerprint_of_texts(records)):
        return None
    detail = f"{stored.rows + len(records)} rows are stored, {whole.rows} came"
    return detail if stored.rows + len(records) != whole.rows else f"{detail}, and their content differs"
