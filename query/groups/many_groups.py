"""Questions about many groups, answered together from whole runs in memory.

group_questions.py finds each group in each run by marks; here one pass over the runs with rows in the window
finds all groups (cells.py), if that is less work (costs.py). All answers are exact, in every mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidemark.query.answers.answer_columns import Computed
from tidemark.query.groups.group_bounds import Selection
from tidemark.query.groups.group_choice import GroupChoice, Values
from tidemark.query.groups.group_table import GroupTable
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.cells import MOST_CELLS, Cells, PackedRows, Part, numbers_by_cell, pack
from tidemark.query.quantiles.questions import Wanted
from tidemark.query.quantiles.whole_runs import WholeRuns
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Costs, Reading
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.windows import ShownWindow, runs_within
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import no_names
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import GroupView


class ManyGroups:
    """Finds the rows of many groups; safe to share between threads. The caches are those of the session."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], live: LiveCache, costs: Costs) -> None:
        self._runs, self._memory, self._live = WholeRuns(blocks, memory, costs), memory, live

    def cost(
        self, view: GroupView, windows: Sequence[ShownWindow], groups: int, wanted: Wanted[Any]
    ) -> float | None:
        """The cost of one pass over the runs; None above MOST_CELLS, or if live rows do not fit in memory."""
        if groups * len(windows) > MOST_CELLS or not self._live.fits(view):
            return None
        ticks = [window.ticks for window in windows]
        return self._runs.cost(view, ticks, groups, wanted.targets, adds=wanted.needs_sums)

    def reading(self, view: GroupView, windows: Sequence[ShownWindow]) -> Reading:
        """The part of this cost that is spent once: to read runs into memory."""
        return self._runs.reading(view, [window.ticks for window in windows])

    def all_groups(
        self,
        snapshot: AnySnapshot,
        view: GroupView,
        choice: GroupChoice,
        windows: Sequence[ShownWindow],
        fields: dict[str, Any],
    ) -> CellQuestions | None:
        """One question for each window and each group that has rows in the windows; the groups ascend.

        None above MOST_CELLS. fields: those of `Question` that are the same for all.

        Raises InputError if there are more groups than the limit, and the errors of `WholeRuns.rows`.
        """
        parts, live, blocks_read = self._parts(snapshot, view, windows)
        table = self._table(view, parts, live)
        numbers, shown = table.by_values(choice)
        if len(shown) * len(windows) > MOST_CELLS:
            return None
        cells = _numbers(view, parts, table, numbers, len(shown), windows)
        rows = cells.rows + cells.counts[:, 3]
        totals = rows.reshape(len(shown), len(windows)).sum(axis=1)
        kept = np.flatnonzero(totals >= max(1, choice.least_rows))
        choice.check_limit(len(kept), [key.name for key in choice.by])
        found = _questions(cells, shown, windows, {**fields, "blocks_read": blocks_read})
        places = (kept[:, np.newaxis] * len(windows) + np.arange(len(windows))).ravel()
        return found.take(places)

    def listed(
        self,
        snapshot: AnySnapshot,
        view: GroupView,
        choice: GroupChoice,
        groups: Sequence[Values],
        selections: Sequence[Selection],
        windows: Sequence[ShownWindow],
        fields: dict[str, Any],
    ) -> CellQuestions:
        """One question for each group and window; `selections` has which rows each group has."""
        parts, live, blocks_read = self._parts(snapshot, view, windows)
        table = self._table(view, parts, live)
        distinct = {selection: number for number, selection in enumerate(dict.fromkeys(selections))}
        numbers = table.find(choice, list(distinct))
        cells = _numbers(view, parts, table, numbers, len(distinct), windows)
        asked = np.array([distinct[selection] for selection in selections], np.int64)
        places = (asked[:, np.newaxis] * len(windows) + np.arange(len(windows))).ravel()
        shown = Computed(groups, choice.shown)
        return _questions(cells.take(places), shown, windows, {**fields, "blocks_read": blocks_read})

    def _parts(
        self, snapshot: AnySnapshot, view: GroupView, windows: Sequence[ShownWindow]
    ) -> tuple[list[tuple[PackedRows, bool]], list[Any], int]:
        """The rows of runs and live ranges; the names of these; and how many row groups were read."""
        ticks = [window.ticks for window in windows]
        history, blocks_read = self._runs.rows(view, ticks)
        live = list(self._live.rows(snapshot, view.projection, view))
        packed = [(pack(part.rows), True) for part in live]
        names = [marks.files[0].path for marks in runs_within(view.runs, ticks)]
        return (
            [*((rows, False) for rows in history), *packed],
            [*names, *(one.place for one in live)],
            blocks_read,
        )

    def _table(
        self, view: GroupView, parts: Sequence[tuple[PackedRows, bool]], sources: Sequence[Any]
    ) -> GroupTable:
        """The groups of the parts, from the cache if they were asked before."""
        kept = self._memory.at(("groups", view.root, tuple(sources)))
        table: GroupTable | None = kept.value
        if table is None:
            nothing = tuple(no_names(key) for key in view.projection.keys)
            table = GroupTable.of([nothing, *(rows.groups for rows, _ in parts)])
            kept.keep(table, table.nbytes)
        return table


def _numbers(
    view: GroupView,
    parts: Sequence[tuple[PackedRows, bool]],
    table: GroupTable,
    numbers: Ints,
    groups: int,
    windows: Sequence[ShownWindow],
) -> Cells:
    """The rows of groups with these numbers in each window."""
    of_parts = [
        Part(rows, numbers[places], is_live)
        for (rows, is_live), places in zip(parts, table.places[1:], strict=True)
    ]
    return numbers_by_cell(of_parts, [window.ticks for window in windows], groups, view.measure.dtype)


def _questions(
    cells: Cells, groups: Sequence[Any], windows: Sequence[ShownWindow], fields: dict[str, Any]
) -> CellQuestions:
    group_of, window_of = np.divmod(np.arange(len(cells)), len(windows))
    return CellQuestions(cells, [window.shown for window in windows], window_of, groups, group_of, fields)
