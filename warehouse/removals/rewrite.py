"""Writes files of `events` without the selected rows, in tasks. A file that loses all rows gets no successor.

A task reads and writes one file, a row group at a time; texts that repeat stay dictionaries. It digests the
removed rows, by batch, so that a batch that comes again can be compared with the rows it had. Of a file that
loses all rows, and whose rows are not kept, it reads the columns of these digests alone. Rows that expire are
only counted, so a file whose rows all expire is not read. Columns are decoded, and many rows digested, in
threads.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import column_of, with_columns_of, with_plain_types
from tidemark.warehouse.columns.coded_texts import coded_texts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import Measure, greatest_micros, single_array
from tidemark.warehouse.delta.data_files import NewFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.origins import StayingOrigins
from tidemark.warehouse.events.reader import BatchRange, batch_filter
from tidemark.warehouse.events.removed_rows import ReplacedFile
from tidemark.warehouse.execution.executors import AT_ONCE, LocalExecutor
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.removals.select import BATCH_COLUMNS, BatchNumber, Selected, count_batches
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS

_SHARED_ROWS = 2**16  # that a thread digests at least: fewer take less than to start it


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file of `events`, its successor, and by batch fingerprints and latest times of the rows that leave.

    Times are in microseconds since 1970; a batch without one is left out. Without digests, of rows that
    expire, the fingerprints have the numbers of rows alone, and there are no times. `rows` are those that
    leave, with all columns; None unless they are kept.
    """

    file: ReplacedFile
    removed: dict[BatchNumber, Fingerprint]
    latest: dict[BatchNumber, int]
    rows: pa.Table | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RewriteTask:
    """Writes a file of `events` without its selected rows.

    schema    that of the table
    time      the column of times; None without one
    digests   whether the rows that leave are digested
    keeps     whether they are returned
    """

    store: Store
    schema: pa.Schema
    time: Measure | None
    selected: Selected
    digests: bool = True
    keeps: bool = False

    def run(self) -> Rewritten:
        """Writes the file, unless no row is left, and returns it."""
        if self.selected.is_whole and not self.digests:
            return Rewritten(ReplacedFile(self.selected.path, None), self._counted(), {})
        columns = self._digested_columns() if self.selected.is_whole and not self.keeps else None
        mask, start, left = self.selected.mask, 0, 0
        removed: defaultdict[BatchNumber, Fingerprint] = defaultdict(Fingerprint)
        latest: dict[BatchNumber, int] = {}
        leaving: list[pa.Table] = []
        path = f"{EVENTS}/{self.selected.path}"
        with (
            RowFile(self.store, self.schema) as new,
            open_sealed(self.store.filesystem(), path, repeated=True, checksums=True) as old,
        ):
            origins = StayingOrigins.of(old, self.selected.path, mask)
            new.compress_as(old.metadata)
            for group in range(old.metadata.num_row_groups):
                rows = with_plain_types(old.read_group(group, columns, in_threads=True), old.coded)
                leaves = mask[start : start + rows.num_rows]
                stays, goes = np.flatnonzero(~leaves), np.flatnonzero(leaves)
                if len(stays):
                    of_rows = None if origins is None else origins.of_rows(start + stays, new.id, left)
                    new.write(
                        with_columns_of(self.schema, _rows_at(rows, stays), coded_texts(rows.schema)), of_rows
                    )
                    left += len(stays)
                start += rows.num_rows
                if len(goes) and self.digests:
                    gone = _rows_at(rows, goes)
                    for batch in gone.to_batches():
                        self._digest(pa.Table.from_batches([batch]), removed, latest)
                    if self.keeps:
                        leaving.append(with_columns_of(self.schema, gone))
        written: NewFile | None = new.written() if new.rows else None
        counted = dict(removed) if self.digests else self._counted()
        kept = pa.concat_tables(leaving) if self.keeps else None
        return Rewritten(ReplacedFile(self.selected.path, written), counted, latest, kept)

    def _digested_columns(self) -> list[str]:
        own = BATCH_COLUMNS if len(self.selected.counts) > 1 else BATCH_COLUMNS[1:]
        return [*own, *(field.name for field in self._user_fields)]

    @property
    def _user_fields(self) -> list[pa.Field]:
        return list(self.schema)[len(SYSTEM_COLUMNS) :]

    def _counted(self) -> dict[BatchNumber, Fingerprint]:
        return {batch: Fingerprint(rows) for batch, rows in self.selected.counts.items()}

    def _digest(
        self,
        rows: pa.Table,
        removed: defaultdict[BatchNumber, Fingerprint],
        latest: dict[BatchNumber, int],
    ) -> None:
        """Adds the fingerprints of rows in one chunk, made as in `same_rows` for stored and given rows."""
        counts, batches = self.selected.counts, rows
        if len(counts) > 1:
            batches = with_plain_types(rows.select(BATCH_COLUMNS))
            counts = count_batches(batches)
        user = self._user_fields
        names = [field.name for field in user]
        for source, batch in counts:
            own = rows
            if len(counts) > 1:
                own = rows.filter(batch_filter(batches, [BatchRange(source, batch, batch)]))
            columns = [single_array(_coded_or_typed(field, own)) for field in user]
            removed[source, batch] += self._fingerprint(pa.RecordBatch.from_arrays(columns, names))
            if self.time is not None:
                before = latest.get((source, batch), NO_TICK)
                newest = greatest_micros(self.time, columns[names.index(self.time.name)], before)
                if newest > NO_TICK:
                    latest[source, batch] = newest

    def _fingerprint(self, rows: pa.RecordBatch) -> Fingerprint:
        """That of the rows; of many, each thread digests a share."""
        share = max(_SHARED_ROWS, -(-rows.num_rows // AT_ONCE))
        shares = [_Share(rows.slice(start, share)) for start in range(0, rows.num_rows, share)]
        return sum(LocalExecutor(self.store.tuning).run(shares), Fingerprint())


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """Rows that a thread digests."""

    rows: pa.RecordBatch

    def run(self) -> Fingerprint:
        return fingerprint(self.rows)


def _rows_at(rows: pa.Table, places: NDArray[np.int64]) -> pa.Table:
    """The rows at ascending places. An index takes an eighth of the time of a filter for each column.

    They are taken batch by batch: `Table.take` joins the chunks of a column, but Arrow has chunks because one
    array cannot have more than 2 GiB of text.
    """
    if len(places) == rows.num_rows:
        return rows
    batches, start = rows.to_batches(), 0
    for number, batch in enumerate(batches):
        first, end = np.searchsorted(places, (start, start + batch.num_rows))
        batches[number] = batch.take(arrow_array(places[first:end] - start))
        start += batch.num_rows
    return pa.Table.from_batches(batches, rows.schema)


def _coded_or_typed(field: pa.Field, rows: pa.Table) -> pa.ChunkedArray:
    """The column of a field, as it is if it is a dictionary: each entry is hashed once then."""
    coded = field.name in rows.column_names and pa.types.is_dictionary(rows.column(field.name).type)
    return rows.column(field.name) if coded else column_of(field, rows)
