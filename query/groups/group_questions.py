"""Questions about groups: from the checked arguments to one `Question` per group, in one round of reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemark.query.groups.group_bounds import GroupBounds
from tidemark.query.groups.group_choice import GroupChoice, Values
from tidemark.query.groups.group_slices import Group, SliceReader
from tidemark.query.quantiles.questions import Question
from tidemark.query.quantiles.rank_search import Source
from tidemark.query.quantiles.window_bounds import SpanCache
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.live_cache import LiveCache
from tidemark.query.reading.memory_cache import LRUCache
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.snapshots.snapshot import GroupView, Snapshot
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

# The groups that have rows in the window, each with its number of rows. If a number k is given, the k groups
# with the most rows are enough.
Sizes = Callable[[int | None], Sequence[tuple[Group, int]]]

_ALL_MARKS = 2**62  # rows a run: the footers of runs by group have no finer marks


class GroupReader:
    """Finds the rows of groups; safe to share between threads.

    memory: a cache of decoded rows whose weights are bytes.
    spans: the counts by span and tick of runs.
    """

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], live: LiveCache, spans: SpanCache) -> None:
        self._blocks = blocks
        self._bounds = GroupBounds(SliceReader(blocks, memory, spans), live)

    def questions(
        self,
        snapshot: SnapshotReader | Snapshot,
        view: GroupView,
        choice: GroupChoice,
        window: Window,
        sizes: Sizes,
        template: Callable[..., Question],
    ) -> list[Question]:
        """One question per value of the `by` columns, in the order of the answers; one without `by`.

        template: makes a question from the fields of `Question` that differ between groups.

        Raises InputError if there are more groups than the limit.
        """
        groups = chosen_groups(choice, sizes) if choice.by else [()]
        selections = [choice.selection(values) for values in groups]
        bounds, blocks_read = self._bounds.get(snapshot, view, selections, window)
        source = Source(self._blocks, tuple, rows_a_run=_ALL_MARKS)
        return [
            template(
                bounds=of_group,
                source=source,
                group=choice.shown(values),
                certain=True if choice.top is not None else None,
                blocks_read=blocks_read,
            )
            for values, of_group in zip(groups, bounds, strict=True)
        ]


def chosen_groups(choice: GroupChoice, sizes: Sizes) -> list[Values]:
    """The values of the `by` columns that are asked, in the order of their answers.

    With `top` those with the most rows come first, with `groups` the caller's order is kept, otherwise they
    ascend. InputError if there are more than the limit.
    """
    if choice.groups is not None:
        return list(choice.groups)
    if choice.top is not None and not choice.where:
        return [choice.by_values(group) for group, _ in sizes(choice.top)]
    rows: dict[Group, int] = {}
    for group, count in sizes(None):
        if choice.admits(group):
            names = choice.by_names(group)
            rows[names] = rows.get(names, 0) + count
    if choice.top is not None:
        chosen = sorted(rows, key=lambda names: (-rows[names], names))[: choice.top]
    else:
        chosen = sorted(rows)
        if len(rows) > choice.limit:
            columns = ", ".join(key.name for key in choice.by)
            raise InputError(
                f"the window has {len(rows):,} groups by {columns}, more than limit={choice.limit:,}. Ask "
                "for the largest with top=20, for some with groups=[...], or raise the limit."
            )
    return [tuple(key.value_of(name) for key, name in zip(choice.by, names, strict=True)) for names in chosen]
