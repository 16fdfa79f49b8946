"""Spans: the numbers of rows of a run by tick, between some of its marks.

A span is a range of rows; it starts at a mark. For each span and each tick the number of rows is stored (a
cell). So for any window of ticks, a rank is exact at the start of every span and bounded inside the span.
`Tuning.span_cells` limits the number of cells (spans x ticks): a run with many ticks has longer spans, and a
query with a window reads a few more blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.codes import unique_codes
from tidemark.warehouse.columns.ticks import Window

SINGLE_SPAN_ROWS = 2**62  # longer than any file, so that the whole file is one span

# Row counts by span and tick: arrays (k,) of spans, ticks and counts.
SpanTickCounts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]

_SIZES = struct.Struct("<qqq")  # spans, ticks, bytes of a count


def choose_span_rows(rows: int, grain: int, ticks: int, max_cells: int) -> int:
    """The rows of a span: the least multiple of `grain` with spans x ticks <= `max_cells`.

    If a single span has more ticks than that, the span is the whole run.
    """
    max_spans = max(1, max_cells // max(1, ticks))
    return max(1, -(-rows // (grain * max_spans))) * grain


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The number of rows of each span and tick.

    Span i starts at row `starts[i]` of the run; `counts[i, j]` of its rows have tick `ticks[j]`. starts (s,)
    and ticks (t,) ascend; counts (s, t) have the narrowest unsigned type that fits. For example, a run
    of four rows with the ticks 7, 7, 9, 7, in spans of two rows, has:

        starts [0, 2]    ticks [7, 9]    counts [[2, 0], [1, 1]]
    """

    starts: NDArray[np.int64]
    ticks: NDArray[np.int64]
    counts: NDArray[Any]

    @classmethod
    def of(
        cls,
        starts: NDArray[np.int64],
        spans: NDArray[np.int64],
        ticks: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> Spans:
        """From distinct cells: `counts[k]` rows of span `spans[k]` have tick `ticks[k]`."""
        names, codes = unique_codes(ticks)
        present = np.bincount(codes, minlength=len(names)) > 0  # names may include unused ticks
        table = np.zeros((len(starts), int(present.sum())), np.min_scalar_type(counts.max(initial=0)))
        table[spans, np.cumsum(present)[codes] - 1] = counts
        return cls(starts, names[present], table)

    @classmethod
    def concat(cls, parts: Sequence[tuple[int, Spans]]) -> Spans:
        """Joins the spans of a run's files; a part is (the file's first row in the run, its spans)."""
        empty = np.empty(0, np.int64)
        ticks = np.unique(np.concatenate([empty, *(part.ticks for _, part in parts)]))
        starts = np.concatenate([empty, *(part.starts + first for first, part in parts)])
        dtype = np.result_type(np.uint8, *(part.counts.dtype for _, part in parts))
        table, span = np.zeros((len(starts), len(ticks)), dtype), 0
        for _, part in parts:
            table[span : span + len(part.starts), np.searchsorted(ticks, part.ticks)] = part.counts
            span += len(part.starts)
        return cls(starts, ticks, table)

    def anchors(self, window: Window, rows: int) -> Anchors:
        """Where the number of window rows before a position is known exactly; the run has `rows` rows."""
        inside = np.flatnonzero(window.holds(self.ticks))
        part = self.counts[:, inside[0] : inside[-1] + 1] if len(inside) else self.counts[:, :0]
        counts = np.concatenate([[0], np.cumsum(part.sum(axis=1, dtype=np.int64))])
        return Anchors(np.append(self.starts, rows), counts)

    def equals(self, other: Spans) -> bool:
        """Whether starts, ticks and counts are equal."""
        pairs = (self.starts, other.starts), (self.ticks, other.ticks), (self.counts, other.counts)
        return all(np.array_equal(mine, others) for mine, others in pairs)

    def to_bytes(self) -> bytes:
        """The stored form: the numbers of spans and ticks, the bytes of a count, then the three arrays."""
        starts, ticks = self.starts.astype("<i8"), self.ticks.astype("<i8")
        counts = self.counts.astype(self.counts.dtype.newbyteorder("<"))
        sizes = _SIZES.pack(*self.counts.shape, counts.itemsize)
        return b"".join([sizes, *(array.tobytes() for array in (starts, ticks, counts))])

    @classmethod
    def from_bytes(cls, data: bytes) -> Spans:
        """Decodes `to_bytes`; ValueError, TypeError or struct.error if malformed."""
        spans, ticks, width = _SIZES.unpack_from(data)
        starts_and_ticks = np.frombuffer(data, "<i8", spans + ticks, _SIZES.size)
        counts = np.frombuffer(data, f"<u{width}", offset=_SIZES.size + starts_and_ticks.nbytes)
        return cls(starts_and_ticks[:spans], starts_and_ticks[spans:], counts.reshape(spans, ticks))


@dataclass(frozen=True, slots=True)
class Anchors:
    """Exactly `counts[i]` rows of a window lie before row `positions[i]` of the run. Both arrays ascend."""

    positions: NDArray[np.int64]
    counts: NDArray[np.int64]

    def before(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bounds (lo, hi) of the number of window rows among the first `rows` rows; O(log anchors) each."""
        i = np.searchsorted(self.positions, rows, side="right") - 1
        j = np.minimum(i + 1, len(self.positions) - 1)
        lo = np.maximum(self.counts[i], self.counts[j] - (self.positions[j] - rows))
        hi = np.minimum(self.counts[j], self.counts[i] + (rows - self.positions[i]))
        return lo, np.maximum(lo, hi)


def count_cells(
    spans: NDArray[np.int64], ticks: NDArray[np.int64], weights: NDArray[np.int64] | None = None
) -> SpanTickCounts:
    """Counts rows, or sums their weights, by (span, tick); the result ascends in this order.

    `spans` ascend. Uses a dense table if it has few cells compared to the rows, O(n + cells); else sorts,
    O(n log n). Spans [0, 0, 1] and ticks [7, 7, 9] give ([0, 1], [7, 9], [2, 1]).
    """
    names, code = unique_codes(ticks)
    first = int(spans[0])
    cell = (spans - first) * len(names) + code
    if (int(spans[-1]) - first + 1) * len(names) <= 8 * len(ticks) + 4096:
        table = np.bincount(cell, weights)  # sums of weights are integers below 2**53, so they are exact
        occupied = np.flatnonzero(table)
        counts = table[occupied].astype(np.int64)
    else:
        occupied, inverse = np.unique(cell, return_inverse=True)
        counts = np.bincount(inverse, weights).astype(np.int64)
    return occupied // len(names) + first, names[occupied % len(names)], counts


def sum_cells(cells: Sequence[SpanTickCounts]) -> SpanTickCounts:
    """The cells of all parts; cells of a span that several parts share are summed."""
    if not cells:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    spans, ticks, counts = (np.concatenate(part) for part in zip(*cells, strict=True))
    return count_cells(spans, ticks, counts)
