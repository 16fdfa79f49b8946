"""Writes files of `events` without the selected rows, in tasks. A file that loses all rows gets no successor.

A task reads and writes one file, a row group at a time. It digests the removed rows, by batch, so that a
batch that comes again can be compared with the rows it had. Rows that expire are only counted. So a file of
which all rows expire is not read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.arrow_buffers import arrow_bools
from tidemark.warehouse.columns.arrow_types import with_columns_of, with_plain_types
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import Measure, greatest_micros
from tidemark.warehouse.delta.data_files import NewFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.origins import StayingOrigins
from tidemark.warehouse.events.reader import BatchRange, batch_filter
from tidemark.warehouse.events.removed_rows import ReplacedFile
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.removals.select import BatchNumber, Selected, count_batches
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A file of `events` and its successor; of the rows that leave, by batch, fingerprints and latest times.

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
        mask, start, left = self.selected.mask, 0, 0
        removed: defaultdict[BatchNumber, Fingerprint] = defaultdict(Fingerprint)
        latest: dict[BatchNumber, int] = {}
        leaving: list[pa.Table] = []
        path = f"{EVENTS}/{self.selected.path}"
        with (
            RowFile(self.store, self.schema) as new,
            open_sealed(self.store.filesystem(), path, checksums=True) as old,
        ):
            origins = StayingOrigins.of(old, self.selected.path, mask)
            for group in range(old.metadata.num_row_groups):
                rows = with_columns_of(self.schema, with_plain_types(old.read_group(group)))
                leaves = mask[start : start + rows.num_rows]
                if not leaves.all():
                    staying = rows.filter(arrow_bools(~leaves)) if leaves.any() else rows
                    of_rows = None
                    if origins is not None:
                        of_rows = origins.of_rows(start + np.flatnonzero(~leaves), new.id, left)
                    new.write(staying, of_rows)
                    left += staying.num_rows
                start += rows.num_rows
                if leaves.any() and self.digests:
                    leaving.append(rows if leaves.all() else rows.filter(arrow_bools(leaves)))
                    self._digest(leaving[-1], removed, latest)
                if not self.keeps:
                    leaving.clear()
        written: NewFile | None = new.written() if new.rows else None
        counted = dict(removed) if self.digests else self._counted()
        kept = pa.concat_tables(leaving) if self.keeps else None
        return Rewritten(ReplacedFile(self.selected.path, written), counted, latest, kept)

    def _counted(self) -> dict[BatchNumber, Fingerprint]:
        return {batch: Fingerprint(rows) for batch, rows in self.selected.counts.items()}

    def _digest(
        self,
        rows: pa.Table,
        removed: defaultdict[BatchNumber, Fingerprint],
        latest: dict[BatchNumber, int],
    ) -> None:
        """Adds the fingerprints of the rows, as `same_rows` makes those of stored and of given rows."""
        user = pa.schema(list(self.schema)[len(SYSTEM_COLUMNS) :])
        counts = self.selected.counts
        if len(counts) > 1:
            counts = count_batches(rows)
        for source, batch in counts:
            own = rows
            if len(counts) > 1:
                own = rows.filter(batch_filter(rows, [BatchRange(source, batch, batch)]))
            for part in own.select(user.names).combine_chunks().to_batches():
                cast = cast_rows(part, user)
                removed[source, batch] += fingerprint(cast)
                if self.time is not None:
                    before = latest.get((source, batch), NO_TICK)
                    newest = greatest_micros(self.time, cast.column(self.time.name), before)
                    if newest > NO_TICK:
                        latest[source, batch] = newest
