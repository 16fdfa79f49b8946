"""The live rows of projections, decoded and sorted, within a memory budget.

Rows are kept by warehouse and range of batches, in the order of the projection that history sorts them by. A
batch never changes, and a view says which ranges are live, so rows of a loaded batch are not used again. A
range of the cascade replaces the ranges inside it: their rows are merged, and only batches that were not
decoded before are read.

Each range is compared with the ledger: the numbers of rows by tick must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from tidemark.query.reading import spending
from tidemark.warehouse.columns.tick_counts import TickCounts, sum_tick_counts
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.events.reader import BatchRange, outer_first
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_values import ValueRows
from tidemark.warehouse.runs.projection import Projection, Rows
from tidemark.warehouse.snapshots.live_rows import check_live_rows, read_projection_rows
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.snapshot import Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.views import AnyView, LiveCounts, View

R = TypeVar("R", bound=Rows)


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows(Generic[R]):
    """The sorted rows of a projection in a range of batches, and all rows of the range by tick.

    place: the name of the range among the cached ones; None for a piece of a range, which is not cached.
    """

    rows: R
    totals: TickCounts
    place: tuple[str, str, BatchRange] | None = None

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        return self.rows.nbytes


class LiveCache:
    """Reads live rows, and keeps them in a cache of decoded data whose weights are bytes.

    most: the bytes that the live rows of a view may take in it.
    """

    def __init__(self, memory: LRUCache[Any], most: int) -> None:
        self._memory, self._most = memory, most
        # By warehouse and runs table, the ranges that may be cached.
        self._ranges: dict[tuple[str, str], set[BatchRange]] = {}
        self._fitting: dict[str, tuple[LiveCounts, bool]] = {}  # by runs table, the newest answer of `fits`

    def fits(self, view: AnyView) -> bool:
        """Whether the budget suffices for the decoded rows of all ranges. O(1) if asked again."""
        projection, counts = view.projection, view.live_counts
        known = self._fitting.get(projection.runs_table)
        if known is None or known[0] is not counts:
            by_range: dict[BatchRange, list[int]] = {}
            for (batch_range, _), rows in counts.items():
                by_range.setdefault(batch_range, []).append(rows)
            needed = sum(projection.sorted_bytes(sum(rows), len(rows)) for rows in by_range.values())
            known = self._fitting[projection.runs_table] = counts, needed <= self._most
        return known[1]

    def rows(self, snapshot: AnySnapshot, projection: Projection[R], view: AnyView) -> Iterator[LiveRows[R]]:
        """The sorted rows of each range; of smaller pieces, which are not cached, if they do not fit.

        projection: the projection of the view.

        DamagedWarehouse if `events` has other numbers of rows than the ledger.
        """
        fit = self.fits(view)
        for place, site in zip(snapshot.sites, view.sites, strict=True):
            if fit:
                for batch_range in site.batches:
                    yield self._cached(place, site.projection, batch_range, site.live_counts)
            else:
                yield from self._pieces(place, projection, site)

    def _pieces(
        self, snapshot: SnapshotReader | Snapshot, projection: Projection[R], view: AnyView
    ) -> Iterator[LiveRows[R]]:
        totals = []
        for rows, rows_by_tick in read_projection_rows(snapshot, projection, view.batches):
            spending.read(None, rows=rows_by_tick.rows)
            totals.append(rows_by_tick)
            yield LiveRows(projection.sort([rows]), rows_by_tick)
        check_live_rows(snapshot, view.live_counts, sum_tick_counts(totals).by_tick)

    def values(self, snapshot: AnySnapshot, view: View, window: Window) -> Iterator[NDArray[Any]]:
        """The sorted live values of a measure in a window, an array for each part of `rows`; errors as there.

        The part of a cached range inside a window is cached, too.
        """
        for part in self.rows(snapshot, view.projection, view):
            ticks = part.totals.ticks
            if not len(ticks) or window.misses(int(ticks[0]), int(ticks[-1])):
                continue
            if window.covers(int(ticks[0]), int(ticks[-1])):
                yield part.rows.values
            elif part.place is None:
                yield _values_in(part.rows, window)
            else:
                kept = self._memory.at((part.place, window))
                if kept.value is None:
                    yield kept.keep(values := _values_in(part.rows, window), values.nbytes)
                else:
                    yield kept.value

    def _cached(
        self,
        snapshot: SnapshotReader | Snapshot,
        projection: Projection[R],
        wanted: BatchRange,
        counts: LiveCounts,
    ) -> LiveRows[R]:
        table = snapshot.store.uri, projection.runs_table
        kept = self._memory.at((*table, wanted))
        cached: LiveRows[R] | None = kept.value
        if cached is not None:
            return cached
        known = self._ranges.setdefault(table, set())
        parts: dict[BatchRange, LiveRows[R]] = {}
        for batch_range in sorted(known, key=outer_first):
            inside = batch_range.within(wanted) and not any(map(batch_range.within, parts))
            part = self._memory.peek((*table, batch_range)) if inside else None
            if part is not None:
                parts[batch_range] = part
        pieces = list(read_projection_rows(snapshot, projection, gaps(wanted, list(parts))))
        merged = projection.merge(
            [*(part.rows for part in parts.values()), projection.sort([rows for rows, _ in pieces])]
        )
        spending.read(None, rows=sum(by_tick.rows for _, by_tick in pieces))
        totals = [part.totals for part in parts.values()] + [by_tick for _, by_tick in pieces]
        live = LiveRows(merged, sum_tick_counts(totals), (*table, wanted))
        check_live_rows(snapshot, counts, live.totals.by_tick, wanted)
        for batch_range in parts:
            self._memory.drop((*table, batch_range))
        self._ranges[table] = (known - set(parts)) | {wanted}
        kept.keep(live, live.nbytes)
        return live


def _values_in(rows: ValueRows, window: Window) -> NDArray[Any]:
    values: NDArray[Any] = rows.values[window.holds(rows.ticks)]
    return values


def gaps(whole: BatchRange, parts: Sequence[BatchRange]) -> list[BatchRange]:
    """The batches of `whole` outside of `parts`, which are disjoint, inside it and in order.

    Batches 0..9 without 2..3 and 7 are 0..1, 4..6 and 8..9.
    """
    found, first = [], whole.first
    for part in parts:
        if first < part.first:
            found.append(BatchRange(whole.source, first, part.first - 1))
        first = part.last + 1
    return [*found, BatchRange(whole.source, first, whole.last)] if first <= whole.last else found
