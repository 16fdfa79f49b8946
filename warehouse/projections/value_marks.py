"""Marks of values, S(H): what memory keeps of a measure's run.

Model. A run is a sorted sequence of `rows` stored values. A mark is one of its rows: the exact
position (how many rows stand before it) and the value there. The first and the last row of
every file are marks, and every `grain`-th row between. Between two marks a rank is known to
within their distance; at a mark it is exact:

    with j = number of marks <= x:   position[j-1] + 1 <= rank_le(x) <= position[j]

Ticks. Some marks open a span and carry how many of the span's rows lie in each tick, so that
a rank within any window of ticks is exact at the start of every span and bounded between.
A header says the run's rows, NaN and NULL by tick. The cells (spans x ticks) are bounded, see
`Tuning.span_cells`: where a run has many ticks its spans grow, and a question about a window reads a
few blocks more.

On disk a run's marks are one file of the table ``marks/<measure>`` (marks.py): row groups by name.

    header   one row, position -1: the run's rows, NaN and NULL by tick (ticks[], counts[], nans[], nulls[])
    marks    one row a mark: file, position, value
    spans    one row: the counts by span and tick as `Spans.to_bytes` packs them. Runs of version 0.1 have
             lists instead: ticks[] and counts[] of each mark that opens a span

Source: Singh's thesis (2015), section 4.4.1 (Algorithm 9). We keep marks at the grain of the
promise, and ranks by tick, which the thesis does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import RankBounds
from tidemark.warehouse.columns.measures import Measure, as_numpy
from tidemark.warehouse.columns.tick_counts import TickCounts, unique_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.layout import Run
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    HEADER_GROUP,
    MARKS_GROUP,
    SPANS_GROUP,
    RunFile,
    files_from_marks,
    flatten,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, ReopenMarks, SortColumns

MOST_MARKS = 2**16  # a run's marks at most, unless eps asks for more
NOWHERE = -1  # the position of the header

BASIC = ["file", "position", "value"]  # the columns of the marks themselves
LISTS = ["ticks", "counts", "nans", "nulls"]
_SIZES = struct.Struct("<qqq")  # spans, ticks, bytes of a count


def grain(rows: int, eps: float, block_rows: int) -> int:
    """Rows between two marks of a run.

    At most eps/2 of the run, as the promise needs; a quarter of a block, so that few blocks
    are read; and not so fine that marks outgrow memory.
    """
    promised = max(1, int(eps / 2 * rows))
    useful = max(1, block_rows // 4, -(-rows // MOST_MARKS))
    return min(promised, useful)


def span(rows: int, mark_grain: int, ticks: int, cells: int) -> int:
    """Rows of a span: a multiple of the grain such that spans x ticks is at most `cells`, or there is one."""
    spans = max(1, cells // max(1, ticks))
    return max(1, -(-rows // (mark_grain * spans))) * mark_grain


def schema(measure: Measure) -> pa.Schema:
    """The Arrow schema of the marks table, `run` being its partition."""
    longs = pa.list_(pa.int64())
    return pa.schema(
        [
            ("run", pa.string()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("value", measure.arrow_type),
            ("ticks", longs),
            ("counts", longs),
            ("nans", longs),
            ("nulls", longs),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Counts by tick of each span.

    Span i begins at row `starts[i]`, and `counts[i, j]` of its rows lie in tick `ticks[j]`: starts (s,) and
    ticks (t,) ascend, counts (s, t) are unsigned and as narrow as they may be.
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
        """Of cells, none twice: `counts[k]` rows of span `spans[k]` lie in tick `ticks[k]`."""
        names, codes = unique_codes(ticks)
        held = np.bincount(codes, minlength=len(names)) > 0  # the names may be more than there are
        table = np.zeros((len(starts), int(held.sum())), np.min_scalar_type(counts.max(initial=0)))
        table[spans, np.cumsum(held)[codes] - 1] = counts
        return cls(starts, names[held], table)

    @classmethod
    def concat(cls, parts: Sequence[tuple[int, Spans]]) -> Spans:
        """Those of a run of several files: of each its first row in the run, and its spans."""
        nothing = np.empty(0, np.int64)
        ticks = np.unique(np.concatenate([nothing, *(part.ticks for _, part in parts)]))
        starts = np.concatenate([nothing, *(part.starts + first for first, part in parts)])
        narrow = np.result_type(np.uint8, *(part.counts.dtype for _, part in parts))
        table, at = np.zeros((len(starts), len(ticks)), narrow), 0
        for _, part in parts:
            table[at : at + len(part.starts), np.searchsorted(ticks, part.ticks)] = part.counts
            at += len(part.starts)
        return cls(starts, ticks, table)

    def anchors(self, window: Window, rows: int) -> Anchors:
        """Where window counts are exact, the run having so many rows."""
        inside = np.flatnonzero(window.holds(self.ticks))
        part = self.counts[:, inside[0] : inside[-1] + 1] if len(inside) else self.counts[:, :0]
        counts = np.concatenate([[0], np.cumsum(part.sum(axis=1, dtype=np.int64))])
        return Anchors(np.append(self.starts, rows), counts)

    def equals(self, other: Spans) -> bool:
        """Whether all counts are equal."""
        pairs = (self.starts, other.starts), (self.ticks, other.ticks), (self.counts, other.counts)
        return all(np.array_equal(a, b) for a, b in pairs)

    def to_bytes(self) -> bytes:
        """As the marks store it: how many spans and ticks, the bytes of a count, then the three arrays."""
        words = [self.starts.astype("<i8"), self.ticks.astype("<i8")]
        counts = self.counts.astype(self.counts.dtype.newbyteorder("<"))
        sizes = _SIZES.pack(*self.counts.shape, counts.itemsize)
        return b"".join([sizes, *(word.tobytes() for word in words), counts.tobytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Spans:
        """Of stored bytes; ValueError or struct.error where they cannot be that."""
        spans, ticks, width = _SIZES.unpack_from(data)
        words = np.frombuffer(data, "<i8", spans + ticks, _SIZES.size)
        counts = np.frombuffer(data, f"<u{width}", offset=_SIZES.size + words.nbytes)
        return cls(words[:spans], words[spans:], counts.reshape(spans, ticks))


@dataclass(frozen=True, slots=True)
class Anchors:
    """Positions of a run at which the number of window rows before them is known exactly."""

    positions: NDArray[np.int64]
    counts: NDArray[np.int64]

    def before(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Bounds (lo, hi) of the window rows among the first `rows` rows."""
        i = np.searchsorted(self.positions, rows, side="right") - 1
        j = np.minimum(i + 1, len(self.positions) - 1)
        lo = np.maximum(self.counts[i], self.counts[j] - (self.positions[j] - rows))
        hi = np.minimum(self.counts[j], self.counts[i] + (rows - self.positions[i]))
        return lo, np.maximum(lo, hi)


@dataclass(frozen=True, slots=True)
class ValueMarks:
    """The marks of one run.

    `values` and `positions` (k,) ascend; `totals` are by tick; the spans are read when a window
    first asks for them.
    """

    run: Run
    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    values: NDArray[np.float64] | NDArray[np.int64]
    totals: TickCounts
    spans: Callable[[], Spans]

    @property
    def sort_keys(self) -> SortColumns:
        """The marks' places in the order of rows."""
        return (self.values,)

    def covered_by(self, window: Window) -> bool:
        """Whether every stored row of the run lies in the window."""
        return self.totals.within(window)[0] == self.rows

    def bounds(self, anchors: Anchors | None) -> RankBounds:
        """Certified ranks at every mark, of the window's rows; None where the window covers the run."""
        after = np.concatenate([[0], self.positions + 1])
        before = np.append(self.positions, self.rows)
        if anchors is None:
            return RankBounds(self.values, after, before)
        return RankBounds(self.values, anchors.before(after)[0], anchors.before(before)[1])

    def check_invariants(self) -> None:
        """Sorted, first and last rows marked, totals that add up."""
        ok = (
            int(self.totals.counts.sum()) == self.rows == sum(file.rows for file in self.files)
            and bool(np.all(np.diff(self.positions) > 0))
            and bool(np.all(self.values[:-1] <= self.values[1:]))
            and (self.rows == 0 or (self.positions[0] == 0 and self.positions[-1] == self.rows - 1))
        )
        if not ok:
            raise DamagedWarehouse(f"the marks of run {self.run.name} do not describe its {self.rows} rows.")


def to_arrow(measure: Measure, files: Sequence[MarkedFile], totals: TickCounts) -> dict[str, pa.Table]:
    """The row groups of a run's marks, its files being in order. Positions count from the run's first row."""
    lists = [pa.array([getattr(totals, name).tolist()], pa.list_(pa.int64())) for name in LISTS]
    header = pa.table(
        [
            pa.array([path_in_table(files[0].path)]),
            pa.array([NOWHERE]),
            pa.nulls(1, measure.arrow_type),
            *lists,
        ],
        names=BASIC + LISTS,
    )
    firsts = np.cumsum([0, *(file.rows for file in files)])[:-1].tolist()
    marks = [_marks_of(measure, file, first) for file, first in zip(files, firsts, strict=True)]
    spans = Spans.concat([(first, file.extra) for file, first in zip(files, firsts, strict=True)])
    return {
        HEADER_GROUP: header,
        MARKS_GROUP: pa.concat_tables(marks),
        SPANS_GROUP: pa.table({CONTENT_FIELD.name: pa.array([spans.to_bytes()], CONTENT_FIELD.type)}),
    }


def _marks_of(measure: Measure, file: MarkedFile, first: int) -> pa.Table:
    return pa.table(
        {
            "file": pa.array([path_in_table(file.path)] * len(file.positions), pa.string()),
            "position": pa.array(file.positions + first),
            "value": pa.array(file.sort_keys[0], measure.arrow_type),
        }
    )


def read(run: Run, file: SealedFile, later: ReopenMarks) -> ValueMarks:
    """The marks of a run from their file; the spans are read later."""

    def spans() -> Spans:
        found: Spans = later(_spans)
        return found

    return _from_arrow(
        run, file.read(HEADER_GROUP, columns=LISTS), file.read(MARKS_GROUP, columns=BASIC), spans
    )


def _from_arrow(run: Run, header: pa.Table, marks: pa.Table, spans: Callable[[], Spans]) -> ValueMarks:
    """The marks of a run: the tick lists of its header, and file, position and value of its marks."""
    if header.num_rows != 1:
        raise DamagedWarehouse(f"the marks of run {run.name} do not begin with one header.")
    totals = TickCounts(*(flatten(header.column(name)) for name in LISTS))
    rows = int(totals.counts.sum())
    positions, values = as_numpy(marks.column("position")), as_numpy(marks.column("value"))
    files = files_from_marks(marks.column("file"), positions, rows)
    result = ValueMarks(run, files, rows, positions, values, totals, spans)
    result.check_invariants()
    return result


def _spans(file: SealedFile) -> Spans:
    """The spans of a run from the file of its marks."""
    if SPANS_GROUP in file.names:
        return Spans.from_bytes(file.read(SPANS_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0].as_py())
    table = file.read(MARKS_GROUP, columns=["position", "ticks", "counts"])
    lengths = np.diff(as_numpy(table.column("ticks").combine_chunks().offsets)).astype(np.int64)
    opens = np.flatnonzero(lengths)
    if not len(opens) and len(lengths):
        raise ValueError("none of its marks has counts by tick")
    return Spans.of(
        as_numpy(table.column("position"))[opens],
        np.repeat(np.arange(len(opens)), lengths[opens]),
        flatten(table.column("ticks")),
        flatten(table.column("counts")),
    )
