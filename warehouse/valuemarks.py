"""Marks of values, S(H): what memory keeps of a measure's run.

Model. A run is a sorted sequence of `rows` stored values. A mark is one of its rows: the exact
position (how many rows stand before it) and the value there. The first and the last row of
every file are marks, and every `grain`-th row between. Between two marks a rank is known to
within their distance; at a mark it is exact:

    with j = number of marks <= x:   position[j-1] + 1 <= rank_le(x) <= position[j]

Ticks. Some marks open a span and carry how many of the span's rows lie in each tick, so that
a rank within any window of ticks is exact at the start of every span and bounded between.
A header says the run's rows, NaN and NULL by tick. The cells (spans x ticks) are bounded, see
`CELLS`: where a run has many ticks its spans grow, and a question about a window reads a few
blocks more.

On disk a run's marks are one file of the table ``marks/<measure>`` (marks.py), one row a mark: run, file,
position, value, ticks[], counts[], nans[], nulls[]. The header, a row group of its own, has position -1.

Source: Singh's thesis (2015), section 4.4.1 (Algorithm 9). We keep marks at the grain of the
promise, and ranks by tick, which the thesis does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sketches import RankBounds
from warehouse.errors import DamagedWarehouse
from warehouse.layout import Run
from warehouse.marks import HEADER, MARKS, RunFile, below_table, flat, named_files
from warehouse.measures import Measure, numbers
from warehouse.projection import Columns, Later, WrittenFile
from warehouse.sealed import SealedFile
from warehouse.tickcounts import TickCounts
from warehouse.ticks import Window

BLOCK_ROWS = 16_384  # rows of a block
CELLS = 2**18  # a run's spans x ticks at most, unless one span alone has more ticks
MOST_MARKS = 2**16  # a run's marks at most, unless eps asks for more
NOWHERE = -1  # the position of the header

BASIC = ["file", "position", "value"]  # the columns of the marks themselves
LISTS = ["ticks", "counts", "nans", "nulls"]


def grain(rows: int, eps: float) -> int:
    """Rows between two marks of a run.

    At most eps/2 of the run, as the promise needs; a quarter of a row group, so that few blocks
    are read; and not so fine that marks outgrow memory.
    """
    promised = max(1, int(eps / 2 * rows))
    useful = max(BLOCK_ROWS // 4, -(-rows // MOST_MARKS))
    return min(promised, useful)


def span(rows: int, mark_grain: int, ticks: int) -> int:
    """Rows of a span: a multiple of the grain such that spans x ticks is at most `CELLS`."""
    spans = max(1, CELLS // max(1, ticks))
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


@dataclass(frozen=True, slots=True)
class Spans:
    """Counts by tick of each span.

    Span i starts at row `starts[i]`; its cells are ``offsets[i]:offsets[i+1]`` of `ticks` and `counts`.
    """

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]

    def prefix(self, window: Window) -> NDArray[np.int64]:
        """(spans + 1,): rows of the window before each span, then in all."""
        inside = np.where(window.holds(self.ticks), self.counts, 0)
        running = np.concatenate([[0], np.cumsum(inside)])
        return running[self.offsets]


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
class RunMarks:
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
    def places(self) -> Columns:
        """The marks' places in the order of rows."""
        return (self.values,)

    def covered_by(self, window: Window) -> bool:
        """Whether every stored row of the run lies in the window."""
        return self.totals.within(window)[0] == self.rows

    def anchors(self, window: Window) -> Anchors | None:
        """Where window counts are exact; None where the window covers the run.

        Every position is its own count then.
        """
        if self.covered_by(window):
            return None
        spans = self.spans()
        return Anchors(np.append(spans.starts, self.rows), spans.prefix(window))

    def bounds(self, window: Window) -> RankBounds:
        """Certified ranks of the window's rows of this run, at every mark."""
        after = np.concatenate([[0], self.positions + 1])
        before = np.append(self.positions, self.rows)
        anchors = self.anchors(window)
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


def to_arrow(measure: Measure, files: Sequence[WrittenFile], totals: TickCounts) -> dict[str, pa.Table]:
    """The rows of the marks table for a run's files: the header, then the marks of each file in order.

    The header comes in a row group of its own: a reader takes its lists and no others. Positions count from
    the run's first row.
    """
    lists = [pa.array([getattr(totals, name).tolist()], pa.list_(pa.int64())) for name in LISTS]
    header = pa.table(
        [
            pa.array([below_table(files[0].path)]),
            pa.array([NOWHERE]),
            pa.nulls(1, measure.arrow_type),
            *lists,
        ],
        names=BASIC + LISTS,
    )
    parts = [header.slice(0, 0)]
    first = 0
    for file in files:
        parts.append(_marks_of(measure, file, first))
        first += file.rows
    return {HEADER: header, MARKS: pa.concat_tables(parts)}


def _marks_of(measure: Measure, file: WrittenFile, first: int) -> pa.Table:
    spans: Spans = file.extra
    opens = np.searchsorted(file.positions, spans.starts)
    lengths = np.zeros(len(file.positions), dtype=np.int32)
    lengths[opens] = np.diff(spans.offsets)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    nothing = pa.nulls(len(file.positions), pa.list_(pa.int64()))
    return pa.table(
        {
            "file": pa.array([below_table(file.path)] * len(file.positions), pa.string()),
            "position": pa.array(file.positions + first),
            "value": pa.array(file.places[0], measure.arrow_type),
            "ticks": pa.ListArray.from_arrays(offsets, pa.array(spans.ticks)),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(spans.counts)),
            "nans": nothing,
            "nulls": nothing,
        }
    )


def read(run: Run, file: SealedFile, later: Later) -> RunMarks:
    """The marks of a run from their file; the spans are read later."""

    def spans() -> Spans:
        columns = ["position", "ticks", "counts"]
        found: Spans = later(lambda again: _spans(again.read(MARKS, columns=columns)))
        return found

    return _from_arrow(run, file.read(HEADER, columns=LISTS), file.read(MARKS, columns=BASIC), spans)


def _from_arrow(run: Run, header: pa.Table, marks: pa.Table, spans: Callable[[], Spans]) -> RunMarks:
    """The marks of a run: the tick lists of its header, and file, position and value of its marks."""
    if header.num_rows != 1:
        raise DamagedWarehouse(f"the marks of run {run.name} do not begin with one header.")
    totals = TickCounts(*(flat(header.column(name)) for name in LISTS))
    rows = int(totals.counts.sum())
    positions, values = numbers(marks.column("position")), numbers(marks.column("value"))
    files = named_files(marks.column("file"), positions, rows)
    result = RunMarks(run, files, rows, positions, values, totals, spans)
    result.check_invariants()
    return result


def _spans(table: pa.Table) -> Spans:
    """The spans of a run from the columns position, ticks and counts of its marks."""
    lengths = np.diff(numbers(table.column("ticks").combine_chunks().offsets)).astype(np.int64)
    opens = np.flatnonzero(lengths)
    return Spans(
        starts=numbers(table.column("position"))[opens],
        offsets=np.concatenate([[0], np.cumsum(lengths[opens])]),
        ticks=flat(table.column("ticks")),
        counts=flat(table.column("counts")),
    )
