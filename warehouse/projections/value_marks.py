"""Value marks, S(H): the sparse index of a measure's run, which readers keep in memory.

Model. A run is a sorted sequence of `rows` stored values. A mark is one row of the run: its exact position
(the number of rows before it) and its value. The first row of every file, every `grain`-th row after it, and
the last row of the file are marks. The rank of x is bounded by its neighbouring marks:

    with j = number of marks <= x:   position[j-1] + 1 <= rank_le(x) <= position[j]

Ticks. A span is a range of rows; it starts at a mark. For each span and each tick the number of rows is
stored (a cell). So for any window of ticks, a rank is exact at the start of every span and bounded inside
the span. `Tuning.span_cells` limits the number of cells (spans x ticks): a run with many ticks has longer
spans, and a query with a window reads a few more blocks.

A run's marks are one file of the table ``marks/<measure>`` (runs/marks.py), with these row groups:

    header   one row, position -1: the run's rows, NaN and NULL by tick (ticks[], counts[], nans[], nulls[])
    marks    one row for each mark: file, position, value
    spans    one row: the counts by span and tick, as `Spans.to_bytes` packs them. Runs of version 0.1 do not
             have it; there each mark that starts a span has lists ticks[] and counts[]

Source: Singh's thesis (2015), section 4.4.1 (Algorithm 9). We deviate in two points: the distance of marks
follows from eps, and ranks are stored by tick.
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
from tidemark.warehouse.columns.tick_counts import TickCounts, unique_codes
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.levels import Run
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

MAX_MARKS = 2**16  # the number of marks of a run, unless eps requires more
HEADER_POSITION = -1

MARK_COLUMNS = ["file", "position", "value"]
TICK_LISTS = ["ticks", "counts", "nans", "nulls"]
_SIZES = struct.Struct("<qqq")  # spans, ticks, bytes of a count


def choose_grain(rows: int, eps: float, block_rows: int) -> int:
    """The number of rows between two marks of a run.

    It is a quarter of a block, so that queries read few blocks, or rows / MAX_MARKS if that is larger. But it
    is never more than eps/2 of the run's rows, which the guarantee requires.
    """
    required = max(1, int(eps / 2 * rows))
    preferred = max(1, block_rows // 4, -(-rows // MAX_MARKS))
    return min(required, preferred)


def choose_span_rows(rows: int, grain: int, ticks: int, max_cells: int) -> int:
    """The rows of a span: the least multiple of `grain` with spans x ticks <= `max_cells`, or one span."""
    max_spans = max(1, max_cells // max(1, ticks))
    return max(1, -(-rows // (grain * max_spans))) * grain


def schema(measure: Measure) -> pa.Schema:
    """The Arrow schema of the marks table, which is partitioned by `run`."""
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
    """The number of rows of each span and tick.

    Span i starts at row `starts[i]` of the run; `counts[i, j]` of its rows have tick `ticks[j]`. starts (s,)
    and ticks (t,) ascend; counts (s, t) have the narrowest unsigned type that fits. For example, a run
    whose rows have the ticks 7, 7, 9, 7 and spans of two rows:

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


@dataclass(frozen=True, slots=True)
class ValueMarks:
    """The marks of one run.

    Mark i is row `positions[i]` of the run, with the value `values[i]`; (k,) each, ascending. `totals` are
    the rows by tick. `spans` reads the marks file on every call.
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
        """The columns of the marks' sort keys."""
        return (self.values,)

    def covered_by(self, window: Window) -> bool:
        """Whether every stored row of the run lies in the window."""
        return self.totals.within(window)[0] == self.rows

    def bounds(self, anchors: Anchors | None) -> RankBounds:
        """Rank bounds at every mark. `anchors` count the rows of a window; None means all rows of the run."""
        after = np.concatenate([[0], self.positions + 1])
        before = np.append(self.positions, self.rows)
        if anchors is None:
            return RankBounds(self.values, after, before)
        return RankBounds(self.values, anchors.before(after)[0], anchors.before(before)[1])

    def check_invariants(self) -> None:
        """Marks ascend, include the first and the last row, and the totals add up; else DamagedWarehouse."""
        ok = (
            int(self.totals.counts.sum()) == self.rows == sum(file.rows for file in self.files)
            and bool(np.all(np.diff(self.positions) > 0))
            and bool(np.all(self.values[:-1] <= self.values[1:]))
            and (self.rows == 0 or (self.positions[0] == 0 and self.positions[-1] == self.rows - 1))
        )
        if not ok:
            raise DamagedWarehouse(f"the marks of run {self.run.name} do not match its {self.rows} rows.")


def to_arrow(measure: Measure, files: Sequence[MarkedFile], totals: TickCounts) -> dict[str, pa.Table]:
    """The row groups of a run's marks file; `files` are in order. Positions are rows of the run."""
    lists = [pa.array([getattr(totals, name).tolist()], pa.list_(pa.int64())) for name in TICK_LISTS]
    header = pa.table(
        [
            pa.array([path_in_table(files[0].path)]),
            pa.array([HEADER_POSITION]),
            pa.nulls(1, measure.arrow_type),
            *lists,
        ],
        names=MARK_COLUMNS + TICK_LISTS,
    )
    firsts = np.cumsum([0, *(file.rows for file in files)])[:-1].tolist()
    marks = [_mark_rows(measure, file, first) for file, first in zip(files, firsts, strict=True)]
    spans = Spans.concat([(first, file.extra) for file, first in zip(files, firsts, strict=True)])
    return {
        HEADER_GROUP: header,
        MARKS_GROUP: pa.concat_tables(marks),
        SPANS_GROUP: pa.table({CONTENT_FIELD.name: pa.array([spans.to_bytes()], CONTENT_FIELD.type)}),
    }


def _mark_rows(measure: Measure, file: MarkedFile, first: int) -> pa.Table:
    return pa.table(
        {
            "file": pa.array([path_in_table(file.path)] * len(file.positions), pa.string()),
            "position": pa.array(file.positions + first),
            "value": pa.array(file.sort_keys[0], measure.arrow_type),
        }
    )


def read(run: Run, file: SealedFile, reopen_marks: ReopenMarks) -> ValueMarks:
    """Reads the marks of a run from their file; `spans` reads the spans on demand."""

    def read_spans() -> Spans:
        spans: Spans = reopen_marks(_spans_from_file)
        return spans

    header = file.read(HEADER_GROUP, columns=TICK_LISTS)
    return _from_arrow(run, header, file.read(MARKS_GROUP, columns=MARK_COLUMNS), read_spans)


def _from_arrow(run: Run, header: pa.Table, marks: pa.Table, spans: Callable[[], Spans]) -> ValueMarks:
    """The marks of a run from the lists of its header and the columns of its marks."""
    if header.num_rows != 1:
        raise DamagedWarehouse(f"the marks of run {run.name} have {header.num_rows} headers; expected one.")
    totals = TickCounts(*(flatten(header.column(name)) for name in TICK_LISTS))
    rows = int(totals.counts.sum())
    positions, values = as_numpy(marks.column("position")), as_numpy(marks.column("value"))
    files = files_from_marks(marks.column("file"), positions, rows)
    result = ValueMarks(run, files, rows, positions, values, totals, spans)
    result.check_invariants()
    return result


def _spans_from_file(file: SealedFile) -> Spans:
    """Reads the spans of a run from its marks file."""
    if SPANS_GROUP in file.names:
        return Spans.from_bytes(file.read(SPANS_GROUP, columns=[CONTENT_FIELD.name]).column(0)[0].as_py())
    table = file.read(MARKS_GROUP, columns=["position", "ticks", "counts"])
    lengths = np.diff(as_numpy(table.column("ticks").combine_chunks().offsets)).astype(np.int64)
    span_marks = np.flatnonzero(lengths)  # the marks that start a span
    if not len(span_marks) and len(lengths):
        raise ValueError("none of its marks has counts by tick")
    return Spans.of(
        as_numpy(table.column("position"))[span_marks],
        np.repeat(np.arange(len(span_marks)), lengths[span_marks]),
        flatten(table.column("ticks")),
        flatten(table.column("counts")),
    )
