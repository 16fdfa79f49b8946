"""Compares a batch that comes again with its rows in `events`, and in `rejected`, in any order.

Tasks compute order-independent fingerprints of both (integrity/digests.py), in which NULL counts nothing: so
they do not depend on columns that were added after the batch came. Rows of the input are cast to the
warehouse's types first (`column_casts.cast_rows`), so their input types and the executor do not matter.
Fingerprints are stored only of rows that were removed: these rows count as stored. Of rows and records that
were purged only the number is known.

The batch is the same as the stored one if all its rows are in `events`; or if the rows that a filter takes
are there, and the rows that it refuses are in `rejected`. The clock at the batch's first attempt, by which
rows in the future were refused, is not known: the filter takes rows up to the latest time in `events`, which
is equivalent.

Of rows that expired only the number is known. So a batch with expired rows is compared by the number of all
rows, and by the content of the rows that cannot have expired. If rows of it were also unloaded or deleted,
only the numbers are compared, because it is not known which of these would have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import Schema

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.ticks import NO_TICK, TickGrid
from tidemark.warehouse.columns.value_encoding import Measure, greatest_micros
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.purges import purged_records
from tidemark.warehouse.events.reader import (
    BatchRange,
    EventRowGroups,
    files_of_batches,
    read_event_rows,
    split_row_groups,
)
from tidemark.warehouse.events.removed_rows import left_rows
from tidemark.warehouse.ingest.append_rows import GivenBatch
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.ingest.event_files import event_ticks
from tidemark.warehouse.ingest.rejected import rejected_texts
from tidemark.warehouse.ingest.row_filter import RowFilter, filter_rows
from tidemark.warehouse.ingest.wider_types import with_types
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.work import Work

Digests = tuple[Fingerprint, Fingerprint, Fingerprint]  # of all rows, of those taken, of the records refused


@dataclass(frozen=True, slots=True)
class RowDigest:
    """Counts rows, and digests those that cannot have expired.

    names     the user's columns, in the order of those of the rows; further columns are left out
    time      the column of times; None without one
    grid      its ticks, with the horizon; None if no row of the batch has expired: all are digested
    """

    names: Sequence[str]
    time: Measure | None
    grid: TickGrid | None

    def of(self, rows: pa.RecordBatch) -> Fingerprint:
        """The number of all rows, and the digest of those that have no time or none before the horizon."""
        rows = rows.select(list(range(len(self.names))))
        if self.time is None or self.grid is None or self.grid.horizon is None:
            return fingerprint(rows)
        ticks = event_ticks(self.time, self.grid, rows.column(self.names.index(self.time.name)))
        stays = arrow_array(np.flatnonzero((ticks >= self.grid.horizon) | (ticks == NO_TICK)))
        return Fingerprint(rows.num_rows, fingerprint(rows.take(stays)).digest)


@dataclass(frozen=True, slots=True)
class DigestRows:
    """Digests one partition of the input; its first columns are `names` of `schema`, by position."""

    schema: pa.Schema
    names: tuple[str, ...]
    options: Options
    row_filter: RowFilter
    digest: RowDigest

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Digests]:
        """Yields the digests of all rows, of those taken, and of the refused records of the partition.

        If the filter is all-or-nothing, only the first one is computed.
        """
        whole = taken = refused = Fingerprint()
        for batch in batches:
            rows = cast_rows(batch, self.schema, self.names)
            whole += self.digest.of(rows)
            if not self.row_filter.all_or_nothing:
                kept, _, records = filter_rows(self.row_filter, self.options, self.schema.names, rows)
                taken += self.digest.of(kept)
                refused += _fingerprint_of_texts([record["raw"] for record in records])
        yield whole, taken, refused


def _fingerprint_of_texts(texts: list[Any]) -> Fingerprint:
    return fingerprint(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["raw"]))


@dataclass(frozen=True, slots=True)
class DigestTask:
    """Digests a batch's rows in shares of `events`; `schema` has the user's columns."""

    store: Store
    schema: pa.Schema
    digest: RowDigest
    batch: BatchRange
    shares: tuple[EventRowGroups, ...]

    def run(self) -> tuple[Fingerprint, int]:
        """Reads one row group at a time; returns the fingerprint and the latest time, NO_TICK without one."""
        total, latest, time = Fingerprint(), NO_TICK, self.digest.time
        for table in read_event_rows(self.store, self.shares, self.schema.names, [self.batch]):
            rows = cast_rows(table.select(self.schema.names), self.schema)
            total += self.digest.of(rows)
            if time is not None:
                latest = greatest_micros(time, rows.column(time.name), latest)
        return total, latest


def difference(work: Work, given: GivenBatch) -> str | None:
    """How the new rows differ from the stored rows of the batch, in words; None if they are the same.

    Both are read once. The filter is the one that the rows would pass now.
    """
    store, options, row_filter, batch = work.store, work.options, given.row_filter, given.batch
    events = tables.open_table(store, EVENTS)
    # The columns of both. Where no row was ever taken, `events` has none. Digests leave out NULL, and do not
    # depend on the width of a type, so columns and types that the batch brings make no difference.
    own = options.names
    wider = {own.stored(name): kind for name, kind in given.wider(options).items()}
    there = own.of_schema(pa.schema(with_types(events.schema(), wider)))
    stored_schema = pa.schema([*there, *pa.schema(Schema(given.new_fields(options)))])
    options = given.with_columns(options)
    schema = pa.schema([stored_schema.field(name) for name, _ in options.columns])
    shares = split_row_groups(store.filesystem(), files_of_batches(events, [batch]), store.tuning.digest_rows)
    left = left_rows(store, events, batch)
    # Of this version of `events`: no row from its horizon on has expired there.
    grid = read_options(store, events).grid if left.expired else None
    row_digest = RowDigest(schema.names, options.time_column, grid)
    named = replace(store, names=options.names)  # also of columns that are to come
    digested = work.executor.run(
        [DigestTask(named, schema, row_digest, batch, tuple(share)) for share in shares]
    )
    stored = sum((found for found, _ in digested), left.removed) + Fingerprint(left.expired + left.purged)
    records = [] if row_filter.all_or_nothing else rejected_texts(store, batch)
    latest = _latest([left.latest, *(last for _, last in digested)], grid) if records else None
    names = given.names(options)
    digest = DigestRows(schema, names, options, replace(row_filter, latest=latest), row_digest)
    came: list[Digests] = given.rows.each([*names, *given.record_columns], digest)
    nothing = (Fingerprint(),) * 3  # Spark may have no partition
    whole, taken, refused = (sum(parts, Fingerprint()) for parts in zip(nothing, *came, strict=True))
    if left.purged or (left.expired and left.removed.rows):  # see the module
        whole, taken, stored = (Fingerprint(one.rows) for one in (whole, taken, stored))
    if whole == stored or (records and taken == stored and refused == _fingerprint_of_texts(records)):
        return None
    purged = 0 if row_filter.all_or_nothing else purged_records(store, batch)
    count = stored.rows + len(records) + purged
    if purged and whole.rows == count:
        return None  # nothing else is known of records that were purged
    detail = f"{count} rows are stored, {whole.rows} came"
    return detail if count != whole.rows else f"{detail}, and their content differs"


def _latest(times: Sequence[int], grid: TickGrid | None) -> int:
    """A time up to which rows were certainly taken when the batch came; NO_TICK if no row was taken.

    times     the latest ones of its rows in `events`, and of those that left
    grid      that of `RowDigest`: rows that expired have times before its horizon
    """
    latest = max(times, default=NO_TICK)
    if grid is None or grid.horizon is None:
        return latest
    return max(latest, grid.start_of(grid.horizon) - 1)
