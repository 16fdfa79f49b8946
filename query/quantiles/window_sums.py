"""The exact sums of a window: from the sums by tick in the marks of runs, and from the live rows.

The sums of a run, and of a range of live batches, are kept in memory, so a window costs two differences for
each. Live rows that do not fit into memory are read once for all windows of a question. If a warehouse does
not answer, all its sums must be in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.live_cache import LiveCache, LiveRows
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.tick_sums import TickSummer, TickSums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.sorted_values import ValueRows
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import View

SUM_CACHE_BYTES = 2**25  # of runs: about 50,000 ticks


class WindowSums:
    """Finds the sums of windows; safe to share between threads.

    live: the live rows. memory: a cache of decoded rows whose weights are bytes.
    """

    def __init__(self, live: LiveCache, memory: LRUCache[Any]) -> None:
        self._live, self._memory = live, memory
        self._runs: LRUCache[TickSums] = LRUCache(SUM_CACHE_BYTES)

    def get(self, snapshot: AnySnapshot, view: View, windows: Sequence[Window]) -> list[Sums]:
        """The sums of each window, of a view whose runs have sums (`have_sums`).

        DamagedWarehouse if a file is missing or damaged, or if the live rows do not match the ledger.
        StoreUnavailable if a warehouse does not answer and its sums were not read before.
        """
        found = _of_history(view, [self._of_run(view.root, run) for run in _runs(view, windows)], windows)
        for part in self._live.rows(snapshot, view.projection, view):
            _add(found, self._of_live(part), windows)
        sites = dict(zip(view.versions, snapshot.sites, strict=True)) if view.silent else {}
        for name, silent in view.silent.items():
            own = self._of_silent(name, sites[name].store.uri, silent.view, windows)
            found = [sums + more for sums, more in zip(found, own, strict=True)]
        return found

    def _of_silent(self, name: str, uri: str, view: View, windows: Sequence[Window]) -> list[Sums]:
        """The sums of a warehouse that does not answer, as far as they are in memory."""
        runs = [self._runs.peek(run.files[0].path, topic=view.root) for run in _runs(view, windows)]
        live = [self._memory.peek(((uri, view.root, batches), "sums")) for batches in view.batches]
        known = [sums for sums in (*runs, *live) if sums is not None]
        if len(known) < len(runs) + len(live):
            raise StoreUnavailable(
                f"the warehouse {name!r} does not answer, and the sums of its rows were not read before."
            )
        return _of_history(view, known, windows)

    def _of_run(self, root: str, run: ValueMarks) -> TickSums:
        kept = self._runs.at(run.files[0].path, topic=root)
        return kept.value or kept.keep(sums := run.sums(), sums.nbytes)

    def _of_live(self, part: LiveRows[ValueRows]) -> TickSums:
        if part.place is None:
            return _summed(part.rows, part.totals.ticks)
        kept = self._memory.at((part.place, "sums"))
        found: TickSums = kept.value or kept.keep(sums := _summed(part.rows, part.totals.ticks), sums.nbytes)
        return found


def _runs(view: View, windows: Sequence[Window]) -> list[ValueMarks]:
    return [run for run in view.runs if any(run.totals.within(window)[0] for window in windows)]


def _of_history(view: View, parts: Sequence[TickSums], windows: Sequence[Window]) -> list[Sums]:
    """The sums of each window in all parts, without removed rows that runs still have."""
    found = [Sums()] * len(windows)
    for part in parts:
        _add(found, part, windows)
    if view.kept is not None:
        kept = _summed(view.kept.rows, view.kept.totals.ticks)
        found = [sums - kept.within(window) for sums, window in zip(found, windows, strict=True)]
    return found


def _summed(rows: ValueRows, ticks: NDArray[np.int64]) -> TickSums:
    """The sums of rows, which have some of the ticks."""
    summer = TickSummer(ticks)
    summer.add(rows.values, rows.ticks)
    return summer.finish()


def have_sums(view: View) -> bool:
    """Whether the marks of all runs of a view have sums, also of warehouses that do not answer."""
    return all(run.has_sums for one in view.with_silent for run in one.runs if run.rows)


def _add(found: list[Sums], sums: TickSums, windows: Sequence[Window]) -> None:
    for place, window in enumerate(windows):
        found[place] += sums.within(window)
