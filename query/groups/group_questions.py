"""Questions about groups: from the checked arguments to one `Question` per group and window.

The rows of all these questions are found in one round of reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tidemark.query.groups.group_bounds import GroupBounds, Selection
from tidemark.query.groups.group_choice import GroupChoice, Values
from tidemark.query.groups.group_slices import Group, SliceReader
from tidemark.query.quantiles.questions import ReadQuestion, SortedQuestion, WindowQuestion
from tidemark.query.quantiles.rank_search import Source
from tidemark.query.quantiles.window_bounds import SpanCache
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.row_counts import SortedNumbers
from tidemark.query.reading.windows import ShownWindow
from tidemark.warehouse.columns.keys import Name
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import GroupView

Sizes = Sequence[tuple[Group, int]]  # groups that have rows in the window, each with their number

MANY_COMBINATIONS = 1000  # of values of `where`: if there are more, only those that have rows are looked up
_ALL_MARKS = 2**62  # rows a run, never reached: footers of runs by group are no finer than the marks


class GroupReader:
    """Finds the rows of groups; safe to share between threads.

    memory: a cache of decoded rows whose weights are bytes.
    spans: the counts by span and tick of runs.
    eps: of the warehouse.
    """

    def __init__(
        self, blocks: BlockReader, memory: LRUCache[Any], live: LiveCache, spans: SpanCache, eps: float
    ) -> None:
        self._blocks, self._live = blocks, live
        self._bounds = GroupBounds(SliceReader(blocks, memory, spans), live, eps)

    def questions(
        self,
        snapshot: AnySnapshot,
        view: GroupView,
        choice: GroupChoice,
        groups: Sequence[Values],
        selections: Sequence[Selection],
        windows: Sequence[ShownWindow],
        fields: Mapping[str, Any],
    ) -> list[ReadQuestion]:
        """One question per value of the `by` columns and window, the windows of a value one after the other.

        Without `by` there is one per window.

        groups, selections: the asked ones, see `chosen_groups` and `chosen_selections`.
        windows: one window, or windows that ascend and do not overlap.
        fields: those of `Question` that are the same for all.
        """
        bounds, blocks_read = self._bounds.get(
            snapshot, view, selections, [window.ticks for window in windows]
        )
        source = Source(self._blocks, self._live, snapshot, rows_a_run=_ALL_MARKS)
        common = {**fields, "blocks_read": blocks_read}
        questions: list[ReadQuestion] = []
        for values, selection in zip(groups, selections, strict=True):
            group = choice.shown(values)
            for window in windows:
                of_group = bounds[selection, window.ticks]
                own = {**common, "group": group, "window": window.shown}
                if isinstance(of_group, SortedNumbers):
                    questions.append(SortedQuestion(counts=of_group, numbers=of_group.numbers, **own))
                else:
                    questions.append(
                        WindowQuestion(counts=of_group, bounds=of_group, source=source, has_ways=True, **own)
                    )
        return questions


def chosen_groups(choice: GroupChoice, sizes: Sizes) -> list[Values]:
    """The values of the `by` columns that are asked, in the order of their answers.

    Without `by` there is one group of no values. With `top` those with the most rows come first, with
    `groups` the caller's order is kept, otherwise they ascend. InputError if there are more than the limit.
    """
    if not choice.by:
        return [()]
    if choice.groups is not None:
        return list(choice.groups)
    if choice.largest is not None and not choice.where:
        return [choice.by_values(group) for group, _ in sizes]
    rows: dict[Group, int] = {}
    for group, count in sizes:
        if choice.admits(group):
            names = choice.by_names(group)
            rows[names] = rows.get(names, 0) + count
    if choice.largest is not None:
        chosen = sorted(rows, key=lambda names: (-rows[names], names))[: choice.largest]
    else:
        chosen = sorted(names for names, count in rows.items() if count >= choice.least_rows)
        choice.check_limit(len(chosen), [key.name for key in choice.by])
    return [tuple(key.value_of(name) for key, name in zip(choice.by, names, strict=True)) for names in chosen]


def needs_sizes(choice: GroupChoice) -> bool:
    """Whether sizes of groups are needed: to choose groups, or to skip combinations without rows."""
    return (bool(choice.by) and choice.groups is None) or _are_many(choice, len(choice.groups or [()]))


def largest_needed(choice: GroupChoice) -> int | None:
    """How many of the largest groups are enough to choose from; None for all."""
    return None if choice.where else choice.largest


def _are_many(choice: GroupChoice, groups: int) -> bool:
    """Whether `groups` groups have too many combinations with the values of `where`."""
    of_where = prod(len(choice.where[key.name]) for key in choice.keys if key not in choice.by)
    return of_where > 1 and of_where * groups > MANY_COMBINATIONS


def chosen_selections(choice: GroupChoice, groups: Sequence[Values], sizes: Sizes) -> list[Selection]:
    """The groups whose rows each answer is about.

    Long lists of values have many combinations, most of which have no rows. Then only those that have some
    are kept, which costs one look at the counts of all groups.
    """
    if not _are_many(choice, len(groups)):
        return [choice.selection(values) for values in groups]
    found: dict[tuple[Name | None, ...], list[Group]] = {}
    for group, _ in sizes:
        if choice.admits(group):
            found.setdefault(choice.by_names(group), []).append(group)
    names = (tuple(key.name_of(v) for key, v in zip(choice.by, values, strict=True)) for values in groups)
    return [tuple(sorted(found.get(of_group, ()))) for of_group in names]
