"""Slices: the rows of one group in one run.

A run of `SortedGroups` is sorted by group, kind (number, NaN, NULL) and value. So the rows of a group are a
slice of the run, and so are its numbers. Marks say between which two rows a slice starts; the rows between
the two marks are read to find the exact row. Then

    numbers = rows a..b,   NaN = rows b..c,   NULL = rows c..d   (the end exclusive)

If no mark stands inside the slice, all its rows were read: it is kept as values and ticks. Otherwise its
numbers are `RunValues`, with the marks inside the slice and its first and last number as further marks.

A window may hold only some ticks of the run. For each of the edges a, b, c and d the number of window rows
before it is found exactly: it is known at the start of the span that contains the edge, and the ticks of the
rows from there to the edge are read. An *anchor* is a row with such an exact number. The anchors of a slice
are a, b, and the starts of the spans between them.

Reads. All slices of a question are read in one round. They are the same for every window. If the window has
only some ticks of a run, the ticks at the edges are read in a second round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.window_bounds import SpanCache
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.row_ranges import RowsWanted, read_row_ranges
from tidemark.warehouse.columns.keys import Name, Names, count_less, name_at, unify_names
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.group_rows import NAN, NULL, NUMBER, GroupRows
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.spans import Anchors, Spans
from tidemark.warehouse.projections.value_marks import RunValues

Group = tuple[Name, ...]  # the name of each column of the group
_KINDS = (NUMBER, NAN, NULL, NULL + 1)  # the kinds that begin at the edges a, b, c and d

Edges = tuple[int, int, int, int]  # a, b, c and d
Rows = tuple[int, int]  # start and stop (exclusive)
Place = tuple[int, Group]  # a run, by its number, and a group


@dataclass(frozen=True, slots=True, eq=False)
class SmallSlice:
    """A slice without marks inside: its numbers, sorted, with their ticks; and all its rows by tick."""

    values: NDArray[Any]
    ticks: NDArray[np.int64]
    totals: TickCounts

    row_bytes: ClassVar[int] = 16

    @property
    def nbytes(self) -> int:
        """The memory of the slice."""
        totals = (self.totals.ticks, self.totals.counts, self.totals.nans, self.totals.nulls)
        return int(sum(array.nbytes for array in (self.values, self.ticks, *totals)))


@dataclass(frozen=True, slots=True, eq=False)
class LargeSlice:
    """A slice with marks inside. `edges` are the rows a, b, c and d of the run."""

    edges: Edges
    numbers: RunValues

    @property
    def nbytes(self) -> int:
        """The memory of the slice."""
        return int(self.numbers.positions.nbytes + self.numbers.values.nbytes) + 256

    @property
    def rows(self) -> int:
        """The number of all its rows."""
        return self.edges[3] - self.edges[0]

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of (stored, NaN, NULL) rows."""
        a, b, c, d = self.edges
        return b - a, c - b, d - c


@dataclass(frozen=True, slots=True, eq=False)
class EdgeTicks:
    """The rows from the start of a span to each edge of a slice, by tick.

    spans: (4,) the span of each edge. counts: (4, ticks of the run's spans).
    """

    spans: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """The memory of the counts."""
        return int(self.spans.nbytes + self.counts.nbytes)


Slice = SmallSlice | LargeSlice


def cut_slice(
    large: LargeSlice, edge_ticks: EdgeTicks, spans: Spans, window: Window
) -> tuple[tuple[int, int, int], Anchors]:
    """The numbers of (stored, NaN, NULL) rows of the slice in the window, and the anchors of its numbers."""
    inside = np.flatnonzero(window.holds(spans.ticks))
    part = slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0, 0)
    first, last = int(edge_ticks.spans[0]), int(edge_ticks.spans[3])
    in_spans = spans.counts[first:last, part].sum(axis=1, dtype=np.int64)
    before_span = np.concatenate([[0], np.cumsum(in_spans)])  # window rows between the spans first and s
    before_edge = before_span[edge_ticks.spans - first] + edge_ticks.counts[:, part].sum(axis=1)
    stored, nans, nulls = (int(count) for count in np.diff(before_edge))
    a, b = large.edges[:2]
    inner = np.arange(first, int(edge_ticks.spans[1]) + 1)
    inner = inner[(spans.starts[inner] > a) & (spans.starts[inner] < b)]
    positions = np.concatenate([[0], spans.starts[inner] - a, [b - a]])
    counts = np.concatenate([[0], before_span[inner - first] - before_edge[0], [stored]])
    return (stored, nans, nulls), Anchors(positions, counts)


class GroupIndex:
    """Finds groups among the marks of a run.

    The columns of the groups are held as ascending distinct names and the code of each mark.
    """

    def __init__(self, marks: SpanMarks) -> None:
        *groups, kinds, _ = marks.sort_keys
        self.marks, self.kinds = marks, cast("NDArray[np.int64]", kinds)
        self.columns: list[tuple[Names, NDArray[np.int64]]] = []
        for column in groups:
            names, (codes,) = unify_names([column])  # type: ignore[list-item]  # columns of groups are names
            self.columns.append((names, codes))

    def marks_before(self, group: Group) -> tuple[int, int, int, int]:
        """How many marks stand before the group's numbers, its NaN and its NULL, and before the next group.

        O(log marks) for each column.
        """
        low, high = 0, len(self.marks.positions)
        for (names, codes), name in zip(self.columns, group, strict=True):
            code = count_less(names, name)
            there = code < len(names) and name_at(names, code) == name
            within = codes[low:high]
            start = low + int(within.searchsorted(code))
            low, high = start, low + int(within.searchsorted(code, "right")) if there else start
        nan, null = low + self.kinds[low:high].searchsorted([NAN, NULL])
        return low, int(nan), int(null), high

    def gaps(self, group: Group) -> list[Rows]:
        """For each edge of the group's slice, the rows start..stop that are read to find it.

        `stop` is exclusive. start <= edge <= stop.
        """
        positions, rows = self.marks.positions, self.marks.rows
        return [
            (
                int(positions[mark - 1]) + 1 if mark else 0,
                int(positions[mark]) if mark < len(positions) else rows,
            )
            for mark in self.marks_before(group)
        ]

    @property
    def nbytes(self) -> int:
        """The memory of the index without the marks."""
        return int(sum(names.nbytes + codes.nbytes for names, codes in self.columns))


class SliceReader:
    """Finds slices, and keeps them in `memory`, a cache of decoded data that counts bytes."""

    def __init__(self, blocks: BlockReader, memory: LRUCache[Any], spans: SpanCache) -> None:
        self._blocks, self._memory, self._spans = blocks, memory, spans

    @property
    def budget(self) -> int:
        """The bytes that decoded rows may take."""
        return self._memory.budget

    def slices(
        self, projection: SortedGroups, runs: Sequence[SpanMarks], groups: Iterable[Group]
    ) -> tuple[dict[Place, Slice], int]:
        """The slice of each group in each run, by (run, group), and how many row groups were read.

        A run is an index of `runs`. Raises DamagedWarehouse if a file cannot be read.
        """
        places = [(run, group) for group in groups for run in range(len(runs))]
        found, others = self._known("slice", projection, runs, places)
        indexes = {run: self._index(projection, runs[run]) for run in dict.fromkeys(run for run, _ in others)}
        missing = {(run, group): indexes[run].gaps(group) for run, group in others}
        wanted = {(run, gap): None for (run, _), gaps in missing.items() for gap in gaps if gap[0] < gap[1]}
        parts, blocks_read = self._read_rows(projection, runs, list(wanted))
        for (run, group), gaps in missing.items():
            rows_of = {gap: parts.get((run, gap), []) for gap in gaps}
            found[run, group] = _slice_of(projection, runs[run], group, gaps, rows_of)
            self._put("slice", projection, runs[run], group, found[run, group])
        return found, blocks_read

    def whole(
        self, projection: SortedGroups, runs: Sequence[SpanMarks], slices: Mapping[Place, LargeSlice]
    ) -> tuple[dict[Place, SmallSlice], int]:
        """All rows of large slices, by (run, group), and how many row groups were read."""
        found, others = self._known("whole", projection, runs, slices)
        wanted = [(run, (slices[run, group].edges[0], slices[run, group].edges[3])) for run, group in others]
        parts, blocks_read = self._read_rows(projection, runs, wanted)
        for (run, group), rows in zip(others, wanted, strict=True):
            part = _small_slice(projection, group, [read for _, read in parts[rows]])
            self._put("whole", projection, runs[run], group, part)
            found[run, group] = part
        return found, blocks_read

    def edge_ticks(
        self, projection: SortedGroups, runs: Sequence[SpanMarks], slices: Mapping[Place, LargeSlice]
    ) -> tuple[dict[Place, EdgeTicks], int]:
        """The ticks at the edges of slices, by (run, group), and how many row groups were read."""
        found, others = self._known("edges", projection, runs, slices)
        missing: dict[Place, tuple[NDArray[np.int64], list[Rows]]] = {}
        for run, group in others:
            edges, starts = slices[run, group].edges, self.spans(projection, runs[run]).starts
            at = starts.searchsorted(edges, "right") - 1
            missing[run, group] = at, list(zip(starts[at].tolist(), edges, strict=True))
        wanted = {(run, rows): None for (run, _), (_, before) in missing.items() for rows in before}
        counts, blocks_read = self._count_ticks(projection, runs, list(wanted))
        for (run, group), (at, before) in missing.items():
            found[run, group] = EdgeTicks(at, np.array([counts[run, rows] for rows in before]))
            self._put("edges", projection, runs[run], group, found[run, group])
        return found, blocks_read

    def spans(self, projection: SortedGroups, marks: SpanMarks) -> Spans:
        """The counts by span and tick of a run."""
        return self._spans.get(projection.runs_table, marks)

    def _index(self, projection: SortedGroups, marks: SpanMarks) -> GroupIndex:
        kept = self._memory.at(self._key("index", projection, marks, ()))
        index: GroupIndex = kept.value or kept.keep(new := GroupIndex(marks), new.nbytes)
        return index

    def _known(
        self, what: str, projection: SortedGroups, runs: Sequence[SpanMarks], places: Iterable[Place]
    ) -> tuple[dict[Place, Any], list[Place]]:
        """What memory has of groups in runs, and the places of which it has nothing; these have None."""
        found = {
            (run, group): self._memory.peek(self._key(what, projection, runs[run], group))
            for run, group in places
        }
        return found, [place for place, known in found.items() if known is None]

    def _put(self, what: str, projection: SortedGroups, marks: SpanMarks, group: Group, found: Any) -> None:
        self._memory.put(self._key(what, projection, marks, group), found, found.nbytes)

    def _key(self, what: str, projection: SortedGroups, marks: SpanMarks, group: Group) -> tuple[Any, ...]:
        return what, projection.runs_table, marks.files[0].path, group

    def _read_rows(
        self, projection: SortedGroups, runs: Sequence[SpanMarks], wanted: Sequence[tuple[int, Rows]]
    ) -> tuple[dict[tuple[int, Rows], list[tuple[int, GroupRows]]], int]:
        """For each (run, rows) its rows in order, each part with the position of its first row."""
        columns = tuple(name for name in projection.runs_schema.names if name != "run")
        requests = [RowsWanted(runs[run].files, start, stop, columns) for run, (start, stop) in wanted]
        parts, blocks_read = [], 0
        for block, position, ranges in read_row_ranges(
            self._blocks, projection.runs_table, requests, projection.dictionaries
        ):
            blocks_read, first = blocks_read + 1, position
            for rows in projection.from_stored(block):
                for i in ranges:
                    start, stop = wanted[i][1]
                    low, high = max(start - first, 0), min(stop - first, len(rows))
                    if low < high:
                        parts.append((i, first + low, rows.part(low, high)))
                first += len(rows)
        by_range: dict[tuple[int, Rows], list[tuple[int, GroupRows]]] = {}
        for i, first, rows in sorted(parts, key=lambda part: part[:2]):
            by_range.setdefault(wanted[i], []).append((first, rows))
        return by_range, blocks_read

    def _count_ticks(
        self, projection: SortedGroups, runs: Sequence[SpanMarks], wanted: Sequence[tuple[int, Rows]]
    ) -> tuple[dict[tuple[int, Rows], NDArray[np.int64]], int]:
        """For each (run, rows) the number of its rows of each tick of the run's spans."""
        ticks = [self.spans(projection, runs[run]).ticks for run, _ in wanted]
        requests = [RowsWanted(runs[run].files, start, stop, ("tick",)) for run, (start, stop) in wanted]
        totals = {place: np.zeros(len(names), np.int64) for place, names in zip(wanted, ticks, strict=True)}
        blocks_read = 0
        for block, first, ranges in read_row_ranges(self._blocks, projection.runs_table, requests):
            blocks_read += 1
            for i in ranges:
                start, stop = wanted[i][1]
                inside = block["tick"][max(start - first, 0) : max(stop - first, 0)]
                places = ticks[i].searchsorted(inside)
                totals[wanted[i]] += np.bincount(places, minlength=len(ticks[i]))
        return totals, blocks_read


def _slice_of(
    projection: SortedGroups,
    marks: SpanMarks,
    group: Group,
    gaps: Sequence[Rows],
    parts: Mapping[Rows, Sequence[tuple[int, GroupRows]]],
) -> Slice:
    """The slice of a group, from the rows that were read in its gaps."""
    a, b, c, d = (
        start + sum(rows.rows_before(group, kind) for _, rows in parts[start, stop])
        for (start, stop), kind in zip(gaps, _KINDS, strict=True)
    )
    distinct = list(dict.fromkeys(gaps))
    if len(distinct) == 1:
        return _small_slice(projection, group, [rows for _, rows in parts[distinct[0]]])
    # The first and the last number of the slice become marks of it. Both were read: they lie in the gaps.
    first, last = marks.positions.searchsorted([a, b])
    positions = marks.positions[first:last]
    values = cast("NDArray[Any]", marks.sort_keys[-1])[first:last]
    edges = {a, b - 1} - set(positions.tolist()) if b > a else set()
    for row in edges:
        value = next(
            rows.values[row - start]
            for gap in distinct
            for start, rows in parts[gap]
            if start <= row < start + len(rows)
        )
        at = int(positions.searchsorted(row))
        positions, values = np.insert(positions, at, row), np.insert(values, at, value)
    files = tuple(replace(file, first=file.first - a) for file in marks.files)
    return LargeSlice((a, b, c, d), RunValues(files, b - a, positions - a, values))


def _small_slice(projection: SortedGroups, group: Group, parts: Sequence[GroupRows]) -> SmallSlice:
    mine = projection.merge([rows.part(*rows.range_of(group)) for rows in parts])
    numbers = mine.kinds == NUMBER
    totals = count_by_tick(mine.ticks, mine.kinds == NULL, mine.kinds == NAN)
    return SmallSlice(mine.values[numbers], mine.ticks[numbers], totals)
