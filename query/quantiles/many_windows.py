"""Questions about all rows of many windows, or many ranks of one window, answered from whole runs in memory.

Alone, each window has staircases and reads of its own (window_bounds.py, rank_search.py). Here one pass over
the runs with rows in the windows answers all of them (cells.py), if that is less work (costs.py). All answers
are exact, as in mode accurate with live rows that fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.cells import KINDS, MOST_CELLS, Part, numbers_by_cell, pack
from tidemark.query.quantiles.whole_runs import WholeRuns
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import FEWEST_CELLS, Costs, Reading
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.windows import ShownWindow
from tidemark.warehouse.columns.tick_counts import rows_by_window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import View


class ManyWindows:
    """Finds the rows of many windows; safe to share between threads. The caches are those of the session."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], live: LiveCache, costs: Costs) -> None:
        self._runs, self._live = WholeRuns(blocks, memory, costs), live

    def cost(self, view: View, windows: Sequence[ShownWindow], targets: int) -> float | None:
        """The cost of one pass over the runs of the windows; None for few windows, and if memory is small.

        targets: how many ranks or points are looked for in each.
        """
        count = len(windows)
        if count * targets < FEWEST_CELLS or count > MOST_CELLS or not self._live.fits(view):
            return None
        return self._runs.cost(view, [window.ticks for window in windows], 1, targets)

    def reading(self, view: View, windows: Sequence[ShownWindow]) -> Reading:
        """The part of this cost that is spent once: to read runs into memory."""
        return self._runs.reading(view, [window.ticks for window in windows])

    def questions(
        self,
        snapshot: AnySnapshot,
        view: View,
        windows: Sequence[ShownWindow],
        fields: dict[str, Any],
    ) -> CellQuestions:
        """One question for each window. `fields` of `Question` are the same for all.

        Raises the errors of `WholeRuns.rows`, and DamagedWarehouse if the live rows do not match the ledger.
        """
        ticks = [window.ticks for window in windows]
        history, blocks_read = self._runs.rows(view, ticks)
        live = self._live.rows(snapshot, view.projection, view)
        here = np.zeros(1, np.int64)
        parts = [
            *(Part(rows, here, is_live=False) for rows in history),
            *(Part(pack(part.rows), here, is_live=True) for part in live if len(part.rows)),
        ]
        # NaN and NULL are in no run of a measure: the marks and the ledger count them.
        others = np.zeros((2, len(ticks), KINDS), np.int64)
        for totals in view.history_totals:
            others[0, :, 1:] += totals.by_window(ticks)[:, 1:]
        missing = np.array([(row.nans, row.nulls) for row in view.live], np.int64).reshape(-1, 2)
        for window, rows in enumerate(rows_by_window(np.array(view.live_ticks, np.int64), ticks)):
            others[1, window, 1:] += missing[rows].sum(axis=0)
        places = np.arange(len(windows))
        return CellQuestions(
            cells=numbers_by_cell(parts, ticks, 1, view.measure.dtype, others),
            windows=[window.shown for window in windows],
            window_of=places,
            groups=[None],
            group_of=np.zeros_like(places),
            fields={**fields, "blocks_read": blocks_read},
        )
