"""The ledger, S(R): summaries of every batch of a stream, by range of batches and tick.

ledger_rows.py describes a row. Readers and loads see a batch once its ledger rows are committed. The rows of
a batch are appended in one commit; appending the same batch again finds that commit and changes nothing. A
batch without rows has one ledger row, of zero rows.

The commit of the batch that completes a range of the cascade (cascade.py) also adds rows for the whole range.
Readers take the fewest ranges that cover the batches outside history: fewer than 2 * fan ranges per source
and level; at the widest level there is no limit.

Files. An append writes one file per range, and the file's statistics name the range, so a reader opens only
the files that it needs. Maintenance combines ranges that few readers need into one file. The statistics of
that file do not tell its ranges, so readers get them from its columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from tidemark.warehouse.cascade import LEVELS
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.changes import WiderSchema
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, STEPS
from tidemark.warehouse.delta.table_open import remedy
from tidemark.warehouse.delta.write_behind import uploading
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, outer_first, rows_by_batch
from tidemark.warehouse.events.steps import planned_batches, read_step_plans
from tidemark.warehouse.ledger.batch_summaries import TickSummary, can_join, join
from tidemark.warehouse.ledger.ledger_rows import (
    RANGE_COLUMNS,
    SCHEMA,
    from_arrow,
    key_fields_of,
    schema,
    to_arrow,
)

# The names of a file's statistics.
_LEAST, _MOST = ([f"{bound}.{name}" for name in RANGE_COLUMNS] for bound in ("min", "max"))

RangeCache = dict[str, list[BatchRange]]  # by path, the ranges of each file that has several
Intervals = dict[str, tuple[list[int], list[int]]]  # of batches, by source, see `disjoint`


def level_eps(eps: float, level: int) -> float:
    """The rank error of summaries at a level of the cascade, as a fraction of the rows that they summarise.

    `level` is 0 for a batch. The error is eps/8 there, and stays below eps/4 at every level.
    """
    return eps * (0.25 - 0.125 * 0.5**level)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ledger rows of a batch that are written but not committed.

    newest    the source's newest batch in the ledger when they were written; -1 if there was none
    planned   the ranges that plans covered then; empty if the batch completes no range (see `fits`)
    action    adds the file of the batch
    wide      the add actions of the files of the ranges that the batch completes
    uploads   one for each of these files; it ends when the file is in the store
    """

    newest: int
    planned: tuple[BatchRange, ...]
    action: AddAction
    wide: tuple[AddAction, ...]
    uploads: tuple[Future[None], ...]

    def fits(self, store: Store, table: DeltaTable, source: str) -> bool:
        """Whether the same rows would be written for this version of the ledger.

        The plans matter only if there are wide ranges: a range that overlaps a plan is not written.
        """
        if self.newest != tables.newest_transaction(table, source):
            return False
        return not self.wide or self.planned == _planned(store)


def prepare(
    store: Store,
    table: DeltaTable,
    eps: float,
    source: str,
    batch: int,
    summaries: Sequence[TickSummary],
) -> Prepared:
    """Writes the files of the batch's rows and of every range that it completes; commits nothing.

    `table` is the ledger. `eps` is the warehouse's. The summaries have the rank error `level_eps(eps, 0)`.
    In an object store the files go up while the caller goes on: `append_batch` waits for them.
    """
    batches, newest = BatchRange(source, batch, batch), tables.newest_transaction(table, source)
    with uploading() as uploads:
        action = write_rows(store, batches, to_arrow(batches, summaries, key_fields_of(table)))
        completed = _completed_ranges(newest, batches, store.tuning.fan)
        planned = _planned(store) if completed else ()
        wide = _write_wide(store, table, eps, batches, summaries, completed, planned) if completed else []
    return Prepared(newest, planned, action, tuple(wide), tuple(uploads))


def add_columns(store: Store, key_fields: Sequence[str]) -> None:
    """Adds the fields of keys that the ledger does not have yet."""
    race = Race(store, LEDGER)
    while True:
        known = key_fields_of(race.table)
        fields = [*known, *(name for name in key_fields if name not in known)]
        if fields == known or race.change(WiderSchema(schema(fields))):
            return


def append_batch(
    store: Store,
    eps: float,
    source: str,
    batch: int,
    summaries: Sequence[TickSummary],
    prepared: Prepared | None = None,
    *,
    first: DeltaTable | None = None,
) -> bool:
    """Adds the rows of the batch and of every range that it completes, in one commit.

    `prepared` are the rows from `prepare` for the same batch; they are written again if they do not fit the
    ledger any more. `first` is the ledger, opened before, for the first try.
    Returns False if the ledger or a plan has the batch already.
    """
    batches = BatchRange(source, batch, batch)
    race = Race(store, LEDGER, first)
    while not tables.has_transaction(race.table, source, batch) or not ranges_containing(
        store, race.table, batches
    ):
        if prepared is None or not prepared.fits(store, race.table, source):
            prepared = prepare(store, race.table, eps, source, batch, summaries)
        for upload in prepared.uploads:
            upload.result()
        if race.commit_numbered(source, batch, [prepared.action, *prepared.wide]):
            return True
    return False


def ranges_containing(store: Store, table: DeltaTable, batches: BatchRange) -> list[BatchRange]:
    """The ranges of the ledger, and those of the plans, that contain all of these batches."""
    in_ledger = chain.from_iterable(ranges_by_file(store, table).values())
    return [ranges for ranges in (*in_ledger, *_planned(store)) if batches.within(ranges)]


def _planned(store: Store) -> tuple[BatchRange, ...]:
    return tuple(planned_batches(read_step_plans(store, tables.open_table(store, STEPS))))


def _write_wide(
    store: Store,
    table: DeltaTable,
    eps: float,
    batches: BatchRange,
    summaries: Sequence[TickSummary],
    completed: Sequence[tuple[int, BatchRange]],
    planned: Sequence[BatchRange],
) -> list[AddAction]:
    """Writes a file of rows for each `completed` range, narrow ones first; wide ones reuse narrow ones.

    Five kinds of ranges are left out: those that overlap a plan, which readers would never use; those with
    fewer than two parts, which would only duplicate one part; those that partly overlap a range that was
    written with another fan; those with a batch in `events` that the ledger has lost; and those whose
    summaries do not join, because eps or key_eps was changed between them.
    """
    files = ranges_by_file(store, table)
    written: dict[BatchRange, Sequence[TickSummary]] = {batches: summaries}
    actions = []
    for level, whole in completed:
        known = list(chain(chain.from_iterable(files.values()), written))
        parts = live_ranges([part for part in known if part.within(whole)], [])
        narrower = {store.tuning.fan**lower for lower in range(level)}
        if len(parts) < 2 or not live_ranges([whole], planned) or not _fits_cascade(whole, known, narrower):
            continue
        if _lacks_rows(store, whole, parts):
            continue
        to_read = [part for part in parts if part not in written]
        tick_summaries = [summary for part in parts if part in written for summary in written[part]]
        tick_summaries += from_arrow(read_rows(store, files, to_read))
        by_tick: dict[int, list[TickSummary]] = {}
        for summary in tick_summaries:
            by_tick.setdefault(summary.tick, []).append(summary)
        if not all(can_join(group, level_eps(eps, level)) for group in by_tick.values()):
            continue
        written[whole] = [join(group, level_eps(eps, level)) for group in by_tick.values()]
        actions.append(write_rows(store, whole, to_arrow(whole, written[whole], key_fields_of(table))))
    return actions


def _lacks_rows(store: Store, whole: BatchRange, parts: Sequence[BatchRange]) -> bool:
    """Whether `events` has rows of the range that are in none of its parts, which are disjoint.

    This is looked up only if the parts leave numbers out.
    """
    if sum(part.last - part.first + 1 for part in parts) == whole.last - whole.first + 1:
        return False
    counts = rows_by_batch(store, tables.open_table(store, EVENTS), whole)
    return any(not any(part.holds(whole.source, number) for part in parts) for number in counts)


def _fits_cascade(whole: BatchRange, known: Iterable[BatchRange], narrower: Set[int]) -> bool:
    """Whether every known range that overlaps `whole` lies inside it and has a width in `narrower`.

    Then ranges nest, and no summary is merged more than `MERGES` times. This holds even if earlier writers
    used another fan: no fan is a square or a cube, so two fans never make ranges of the same width
    (cascade.py).
    """
    return all(
        batches.within(whole) and batches.last - batches.first + 1 in narrower
        for batches in filter(whole.overlaps, known)
    )


def _completed_ranges(newest: int, batches: BatchRange, fan: int) -> list[tuple[int, BatchRange]]:
    """The ranges of the cascade that a new batch completes, as (level, range), by level.

    `newest` is the number of the source's newest batch before the new one; -1 if there was none. A source
    may skip numbers. So the new batch completes the ranges whose last number lies after `newest` and is at
    most the number of the new batch. Such a range contains `newest` or the new batch, or it has no batches.

    Example with fan = 4: batch 9 after batch 6 completes (1, 4..7), and no range of level 2.
    """
    completed = []
    for level in range(1, LEVELS + 1):
        width = fan**level
        for batch in sorted({newest, batches.last} - {-1}):
            first = batch // width * width
            if newest < first + width - 1 <= batches.last:
                completed.append((level, BatchRange(batches.source, first, first + width - 1)))
    return completed


def enclosing_ranges(known: Iterable[BatchRange]) -> dict[BatchRange, list[BatchRange]]:
    """For each range the known ranges that contain it, the narrowest first, without the range itself.

    Ranges nest, whatever the fan of their writers: see `_fits_cascade`. O(n log n) for n ranges.
    """
    enclosing: dict[BatchRange, list[BatchRange]] = {}
    around: list[BatchRange] = []  # the ranges that contain the previous one, the narrowest last
    for batches in sorted(set(known), key=outer_first):
        while around and not batches.within(around[-1]):
            around.pop()
        enclosing[batches] = around[::-1]
        around.append(batches)
    return enclosing


def partly_planned(whole: BatchRange, planned: Iterable[BatchRange]) -> bool:
    """Whether plans cover some but not all batches of the range. Readers then use its parts instead."""
    overlapping = list(filter(whole.overlaps, planned))
    return bool(overlapping) and not any(whole.within(batches) for batches in overlapping)


def write_rows(store: Store, batches: BatchRange, rows: pa.Table) -> AddAction:
    """Writes a file of one range, with statistics that name the range; returns its add action."""
    bound = {"source": batches.source, "first_batch": batches.first, "last_batch": batches.last}
    stats = {"minValues": bound, "maxValues": bound, "nullCount": dict.fromkeys(bound, 0)}
    return data_files.write_file(store, LEDGER, rows, f"{data_files.unique_name()}.parquet", stats=stats)


def ranges_by_file(
    store: Store, table: DeltaTable, without: Collection[str] = ()
) -> dict[str, list[BatchRange]]:
    """The ranges of each file of the ledger, by path, but for the files `without`; see `ranges_of_files`."""
    files = [file for file in data_files.list_files(table) if file.path not in without]
    return ranges_of_files(store, files, {})


def ranges_of_files(
    store: Store, files: Iterable[data_files.DataFile], cached: RangeCache
) -> dict[str, list[BatchRange]]:
    """The ranges of each of these files of the ledger, by path.

    They come from the file's statistics, or from its columns if it has several ranges. `cached` keeps the
    ranges that were read from columns; entries of files that left the table are removed. DamagedWarehouse if
    two files have the same range, whose rows would count twice: only another tool writes that.
    """
    ranges = {}
    for file in files:
        stated = _stated_range(file)
        if stated is not None:
            ranges[file.path] = [stated]
        else:
            if file.path not in cached:
                rows = data_files.read_file(store, LEDGER, file.path, RANGE_COLUMNS)
                cached[file.path] = sorted(set(range_of_each(rows)))
            ranges[file.path] = cached[file.path]
    for path in set(cached) - set(ranges):
        del cached[path]
    for twice, count in Counter(chain.from_iterable(ranges.values())).items():
        if count > 1:
            raise DamagedWarehouse(
                f"the table {LEDGER} has {twice.text} in {count} files, so its rows would count {count} "
                f"times. {remedy(LEDGER)}"
            )
    return ranges


def files_without_stated_range(files: Iterable[data_files.DataFile], cache: RangeCache) -> list[str]:
    """The files that `ranges_of_files` has to read."""
    return [file.path for file in files if _stated_range(file) is None and file.path not in cache]


def _stated_range(file: data_files.DataFile) -> BatchRange | None:
    """The range of a file by its statistics; None if it has several."""
    least, most = tuple(map(file.stats.get, _LEAST)), tuple(map(file.stats.get, _MOST))
    source, first, last = least
    if source is None or first is None or last is None or least != most:
        return None
    return BatchRange(source, first, last)


def read_rows(
    store: Store,
    files: Mapping[str, Sequence[BatchRange]],
    wanted: Iterable[BatchRange],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Reads the ledger rows of the wanted ranges.

    `files` are the ranges of each file, by path (`ranges_by_file`); files without wanted ranges are not read.
    `columns` must include RANGE_COLUMNS; None reads all columns.
    """
    ranges = set(wanted)
    parts = [] if columns else [data_files.table_without_rows(SCHEMA)]
    for path, in_file in files.items():
        wanted_here = ranges.intersection(in_file)
        if wanted_here:
            rows = data_files.read_file(store, LEDGER, path, columns)
            if len(wanted_here) < len(in_file):
                rows = rows_of_ranges(rows, wanted_here)
            parts.append(rows)
    if not parts:
        return data_files.table_without_rows(SCHEMA)
    return pa.concat_tables(parts, promote_options="default")


def row_counts(rows: pa.Table) -> dict[BatchRange, int]:
    """How many rows of `events` the ledger rows of each range stand for."""
    counts: dict[BatchRange, int] = {}
    for batches, count in zip(range_of_each(rows), rows.column("rows").to_pylist(), strict=True):
        counts[batches] = counts.get(batches, 0) + count
    return counts


def rows_of_ranges(rows: pa.Table, ranges: Set[BatchRange], *, others: bool = False) -> pa.Table:
    """The ledger rows whose range is among the given ones; with `others` those whose range is not."""
    kept = [i for i, batches in enumerate(range_of_each(rows)) if (batches in ranges) != others]
    return rows.take(arrow_array(np.array(kept, dtype=np.int64)))


def range_of_each(rows: pa.Table) -> list[BatchRange]:
    """The range of each row."""
    columns = [rows.column(name).to_pylist() for name in RANGE_COLUMNS]
    return [BatchRange(*row) for row in zip(*columns, strict=True)]


def live_ranges(known: Iterable[BatchRange], covered: Iterable[BatchRange]) -> list[BatchRange]:
    """The smallest set of disjoint known ranges, sorted, that has every known batch outside `covered`.

    Known ranges nest: a wide range contains the batches of narrow ones. So taking the widest range at each
    place, from left to right, needs the fewest ranges. A range that is partly covered is replaced by its
    parts.

    Example: known 0..3, 0, 1, 2, 3, 4 and covered nothing give 0..3, 4; covered 0 gives 1, 2, 3, 4.
    Complexity: O(k log k) for k ranges.
    """
    covered_intervals = disjoint(covered)
    chosen: list[BatchRange] = []
    for batches in sorted(set(known), key=outer_first):
        repeated = chosen and chosen[-1].source == batches.source and batches.first <= chosen[-1].last
        firsts, lasts = covered_intervals.get(batches.source, ((), ()))
        nearest = bisect_right(firsts, batches.last) - 1  # the last one that starts before the range ends
        if not repeated and (nearest < 0 or lasts[nearest] < batches.first):
            chosen.append(batches)
    return chosen


def disjoint(ranges: Iterable[BatchRange]) -> Intervals:
    """The union of the ranges as disjoint intervals, by source: their first and last batches, ascending.

    Example: 0..1, 2..3 and 7 of source "s" give {"s": ([0, 7], [3, 7])}.
    """
    intervals: dict[str, tuple[list[int], list[int]]] = {}
    for batches in sorted(ranges):
        firsts, lasts = intervals.setdefault(batches.source, ([], []))
        if lasts and batches.first <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], batches.last)
        else:
            firsts.append(batches.first)
            lasts.append(batches.last)
    return intervals


def covers(intervals: Intervals, batches: BatchRange) -> bool:
    """Whether one of the intervals, see `disjoint`, has all of these batches."""
    firsts, lasts = intervals.get(batches.source, ([], []))
    nearest = bisect_right(firsts, batches.first) - 1
    return nearest >= 0 and batches.last <= lasts[nearest]
