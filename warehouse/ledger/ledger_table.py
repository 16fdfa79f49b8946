"""The ledger, S(R): summaries of every batch that streamed in, by batch range and tick.

What a row holds is told in ledgerrows.py. A batch exists for readers and loads from the moment
its rows exist; they are appended in one commit, which a second append of the same batch finds and
leaves alone.

The cascade. With every 32nd batch of a source go rows for all of those 32, with every 32nd of
these rows for 1,024, and so on: they repeat what their parts say with fewer rows. Readers take
the fewest ranges that hold what is not in history, at most 31 a level, and read no other files.
A range's rows are in a file of their own, and its statistics name the range.

A batch without rows has one ledger row of zero rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from tidemark.warehouse.columns.keys import arrow_array
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import LEDGER, STEPS, Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import planned_batches, read_step_plans
from tidemark.warehouse.ledger.batch_summaries import TickSummary, join
from tidemark.warehouse.ledger.cascade import FAN, LEVELS
from tidemark.warehouse.ledger.ledger_rows import RANGE, SCHEMA, from_arrow, to_arrow

_LEAST, _MOST = ([f"{end}.{name}" for name in RANGE] for end in ("min", "max"))  # statistics of a file

RangeCache = dict[str, list[BatchRange]]  # the ranges of files that hold several, by path


def level_eps(eps: float, level: int) -> float:
    """What the summaries of a level promise: eps/8 those of a batch, below eps/4 however wide the range."""
    return eps * (0.25 - 0.125 * 0.5**level)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ledger rows of a batch, written and not yet committed.

    They come after the source's batch `newest`, and were made where `planned` were planned to be loaded.
    """

    newest: int
    planned: tuple[BatchRange, ...]
    action: AddAction
    wider: tuple[AddAction, ...]

    def fits(self, store: Store, table: DeltaTable, source: str) -> bool:
        """Whether they would be made alike for this snapshot of the ledger."""
        if self.newest != tables.newest_transaction(table, source):
            return False
        return not self.wider or self.planned == _planned(store)


def prepare(
    store: Store,
    table: DeltaTable,
    eps: float,
    source: str,
    batch: int,
    summaries: Sequence[TickSummary],
) -> Prepared:
    """Writes the batch's rows, and those of every range that it completes, and commits nothing.

    `table` is the ledger; `eps` is the warehouse's; the summaries promise `level_eps(eps, 0)`.
    """
    one, newest = BatchRange(source, batch, batch), tables.newest_transaction(table, source)
    action = write_rows(store, one, to_arrow(one, summaries))
    due = _due(newest, one)
    planned = _planned(store) if due else ()
    wider = _wider(store, table, eps, one, summaries, due, planned) if due else []
    return Prepared(newest, planned, action, tuple(wider))


def append_batch(
    store: Store,
    eps: float,
    source: str,
    batch: int,
    summaries: Sequence[TickSummary],
    prepared: Prepared | None = None,
) -> bool:
    """Adds the batch's rows in one commit, with those of every range that it completes.

    False where the ledger or a plan has the batch already. `prepared` is what `prepare` made of the same.
    """
    one = BatchRange(source, batch, batch)

    def actions(table: DeltaTable) -> list[AddAction]:
        ready = prepared
        if ready is None or not ready.fits(store, table, source):
            ready = prepare(store, table, eps, source, batch, summaries)
        return [ready.action, *ready.wider]

    return tables.commit_once(
        store, LEDGER, source, batch, actions, known=lambda table: bool(holding(store, table, one))
    )


def holding(store: Store, table: DeltaTable, one: BatchRange) -> list[BatchRange]:
    """The ranges of the ledger, and of the plans, that the batch lies in."""
    held = chain.from_iterable(ranges_by_file(store, table).values())
    return [other for other in (*held, *_planned(store)) if one.within(other)]


def _planned(store: Store) -> tuple[BatchRange, ...]:
    return tuple(planned_batches(read_step_plans(store, tables.open_table(store, STEPS))))


def _wider(
    store: Store,
    table: DeltaTable,
    eps: float,
    one: BatchRange,
    summaries: Sequence[TickSummary],
    due: Sequence[tuple[int, BatchRange]],
    planned: Sequence[BatchRange],
) -> list[AddAction]:
    """Rows of the ranges that end with the batch or were passed over by its number: those that are `due`.

    Ranges of which a part is planned to be loaded are left out: nobody would take them.
    """
    found = ranges_by_file(store, table)
    made: dict[BatchRange, Sequence[TickSummary]] = {one: summaries}
    actions = []
    for level, whole in due:
        inside = [r for ranges in [*found.values(), list(made)] for r in ranges if r.within(whole)]
        parts = live_ranges(inside, [])
        if len(parts) < 2 or not live_ranges([whole], planned):
            continue
        missing = [part for part in parts if part not in made]
        rows = [one for part in parts if part in made for one in made[part]]
        rows += from_arrow(read_rows(store, found, missing))
        by_tick: dict[int, list[TickSummary]] = {}
        for row in rows:
            by_tick.setdefault(row.tick, []).append(row)
        made[whole] = [join(same, level_eps(eps, level)) for same in by_tick.values()]
        actions.append(write_rows(store, whole, to_arrow(whole, made[whole])))
    return actions


def _due(newest: int, one: BatchRange) -> list[tuple[int, BatchRange]]:
    """The ranges, with their levels, that end after the newest batch so far and no later than this one."""
    found = []
    for level in range(1, LEVELS + 1):
        width = FAN**level
        for batch in sorted({newest, one.last} - {-1}):
            first = batch // width * width
            if newest < first + width - 1 <= one.last:
                found.append((level, BatchRange(one.source, first, first + width - 1)))
    return found


def wider(one: BatchRange) -> list[BatchRange]:
    """The ranges of the cascade that a range lies in, itself left out."""
    firsts = [(width, one.first // width * width) for width in (FAN**level for level in range(1, LEVELS + 1))]
    found = [BatchRange(one.source, first, first + width - 1) for width, first in firsts]
    return [other for other in found if one.within(other) and other != one]


def in_part(whole: BatchRange, planned: Iterable[BatchRange]) -> bool:
    """Whether plans take some of the range's batches: readers then take its parts, and never the range."""
    same = [one for one in planned if one.source == whole.source]
    near = [one for one in same if one.first <= whole.last and whole.first <= one.last]
    return bool(near) and not any(whole.within(one) for one in near)


def write_rows(store: Store, batches: BatchRange, rows: pa.Table) -> AddAction:
    """A file of the ledger for one range; its statistics name it, so a reader knows without a look."""
    bound = {"source": batches.source, "first_batch": batches.first, "last_batch": batches.last}
    stats = {"minValues": bound, "maxValues": bound, "nullCount": dict.fromkeys(bound, 0)}
    return tables.write_file(store, LEDGER, rows, f"{tables.unique_name()}.parquet", stats=stats)


def ranges_by_file(
    store: Store, table: DeltaTable, cache: RangeCache | None = None
) -> dict[str, list[BatchRange]]:
    """The ranges of each file: from its statistics, or its own columns where it holds several.

    `cache` keeps the ranges of the latter from one call to the next.
    """
    known = cache if cache is not None else {}
    found = {}
    for file in tables.list_files(table):
        least, most = tuple(map(file.stats.get, _LEAST)), tuple(map(file.stats.get, _MOST))
        source, first, last = least
        if source is not None and first is not None and last is not None and least == most:
            found[file.path] = [BatchRange(source, first, last)]
        else:
            if file.path not in known:
                known[file.path] = sorted(
                    set(_range_of_each(tables.read_file(store, LEDGER, file.path, RANGE)))
                )
            found[file.path] = known[file.path]
    for path in set(known) - set(found):
        del known[path]
    return found


def read_rows(
    store: Store,
    found: Mapping[str, list[BatchRange]],
    wanted: Iterable[BatchRange],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The ledger rows of these ranges, of files whose ranges are known; all columns where none are named.

    The columns of the range have to be among them.
    """
    ranges = set(wanted)
    parts = [] if columns else [tables.table_without_rows(SCHEMA)]
    for path, held in found.items():
        here = ranges.intersection(held)
        if here:
            rows = tables.read_file(store, LEDGER, path, columns)
            if len(here) < len(held):
                rows = only(rows, *here)
            parts.append(rows)
    return pa.concat_tables(parts) if parts else tables.table_without_rows(SCHEMA)


def row_counts(rows: pa.Table) -> dict[BatchRange, int]:
    """How many rows of `events` each range of ledger rows stands for."""
    counts: dict[BatchRange, int] = {}
    for one, count in zip(_range_of_each(rows), rows.column("rows").to_pylist(), strict=True):
        counts[one] = counts.get(one, 0) + count
    return counts


def only(rows: pa.Table, *ranges: BatchRange) -> pa.Table:
    """The ledger rows of these ranges."""
    wanted = set(ranges)
    mine = [i for i, one in enumerate(_range_of_each(rows)) if one in wanted]
    return rows.take(arrow_array(np.array(mine, dtype=np.int64)))


def without(rows: pa.Table, ranges: Set[BatchRange]) -> pa.Table:
    """The ledger rows of other ranges."""
    kept = [i for i, one in enumerate(_range_of_each(rows)) if one not in ranges]
    return rows.take(pa.array(kept, pa.int64()))


def _range_of_each(rows: pa.Table) -> list[BatchRange]:
    names = [rows.column(name).to_pylist() for name in RANGE]
    return [BatchRange(*one) for one in zip(*names, strict=True)]


def live_ranges(known: Iterable[BatchRange], covered: Iterable[BatchRange]) -> list[BatchRange]:
    """The fewest ranges that hold every batch which no covered range holds.

    Ranges nest (a wide one repeats narrow ones), so the widest at each place, from left to
    right, is the fewest. A range that is partly covered is left to its parts.
    """
    gone = _merged(covered)
    chosen: list[BatchRange] = []
    for one in sorted(set(known), key=lambda r: (r.source, r.first, -r.last)):
        repeated = chosen and chosen[-1].source == one.source and one.first <= chosen[-1].last
        firsts, lasts = gone.get(one.source, ((), ()))
        before = bisect_right(firsts, one.last) - 1  # the last covered stretch that begins up to its end
        if not repeated and (before < 0 or lasts[before] < one.first):
            chosen.append(one)
    return chosen


def _merged(ranges: Iterable[BatchRange]) -> dict[str, tuple[list[int], list[int]]]:
    """Of each source the disjoint stretches that the ranges make, in order: their first and last batches."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for one in sorted(ranges):
        firsts, lasts = found.setdefault(one.source, ([], []))
        if lasts and one.first <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], one.last)
        else:
            firsts.append(one.first)
            lasts.append(one.last)
    return found
