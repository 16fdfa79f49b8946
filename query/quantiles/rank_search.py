"""Values at given ranks and ranks of given values: which intervals to read, and the bounds that follow.

    quick      the staircases in memory; error <= eps * N. Where the marks alone are too coarse for that (a
               narrow window whose rows lie close together in the run), those ranks are read as in mode
               accurate
    accurate   history is read in the brackets, so its ranks there are exact; error <= eps * m, see
               combined_bounds.py. Where all live rows fit into memory it answers as mode exact
    exact      the live rows are read first, then history; error 0

The live rows are read first, because exact live ranks leave narrower brackets to read in history.

Memory. The bracket of a rank holds fewer than two grains of rows per run. Ranks are answered in rounds of at
most `rows_a_round` rows (not the rounds of requests to a store). Only the last row group of a round may be
read again by the next round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.choose_candidate import Candidates, least_error_candidates, likeliest_candidates
from tidemark.query.quantiles.combined_bounds import (
    Ranks,
    combine_sides,
    midpoint_rank,
    narrow_readings,
    splice,
)
from tidemark.query.quantiles.history_ranks import (
    History,
    PlannedRead,
    plan_reads,
    read_intervals,
    with_footer_marks,
)
from tidemark.query.quantiles.likely_ranks import SketchGaps
from tidemark.query.quantiles.read_plan import Interval, Reading, merge_intervals
from tidemark.query.quantiles.window_bounds import WindowBounds, promised_error
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.live_cache import LiveCache
from tidemark.sketches import RankBounds
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import View


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of rows: history's blocks, and the live rows of a snapshot.

    rows_a_run: if a plan has more rows than this per run and rank, on average, the footers are read first for
        finer marks. The default is four row groups. With the usual grain, a quarter of a row group, a plan
        reads half a row group per run and rank, so the footers are not needed.
    rows_a_round: how many rows may be in memory at once. 2**17 values are 1 MB; sorting and ranking them
        takes a few times that.
    """

    blocks: BlockReader
    live: LiveCache
    snapshot: AnySnapshot
    _: KW_ONLY
    rows_a_run: int = 4 * DEFAULT.block_rows
    rows_a_round: int = 2**17


def values_at_ranks(
    source: Source, bounds: WindowBounds, ranks: Ranks, mode: str, eps: float
) -> tuple[Candidates, int]:
    """The answers to ranks from 1 to `bounds.stored`, and how many row groups were read.

    Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
    """
    if mode == "quick":
        candidates = least_error_candidates(bounds.combined.total, ranks)
        coarse = np.flatnonzero(candidates.errors > promised_error(eps, bounds.rows))
        if not len(coarse):
            return candidates, 0
        finer, blocks_read = values_at_ranks(source, bounds, ranks[coarse], "accurate", eps)
        return candidates.replaced(coarse, finer), blocks_read
    if _reads_live_rows(source, bounds, mode):
        return _read_in_rounds(source, _with_exact_live_ranks(source, bounds, ranks), ranks, 0)
    return _read_in_rounds(source, bounds, ranks, promised_error(eps, bounds.m))


def ranks_at_values(
    source: Source, bounds: WindowBounds, points: NDArray[Any], mode: str, eps: float
) -> tuple[Ranks, Ranks, int]:
    """Bounds (lo, hi) of rank_le at stored values, and how many row groups were read.

    Raises DamagedWarehouse if a file cannot be read, or if the live rows do not match the ledger.
    """
    combined = bounds.combined
    lo, hi = combined.total.rank_le(points)
    uncertain = (hi - lo + 1) // 2 > promised_error(eps, bounds.rows) if mode == "quick" else lo != hi
    if not uncertain.any():
        return lo, hi, 0
    # rank_le(point) is what a reading of (point, next storable value) counts as `below`. No row lies inside
    # that interval. No row lies above the greatest storable value, so it needs no reading.
    history_lo, history_hi = combined.history.rank_le(points)
    live_lo, live_hi = combined.live.rank_le(points)
    unique_points = np.unique(points[uncertain])
    intervals = [
        Interval(point, next_storable(point)) for point in unique_points if point < next_storable(point)
    ]
    readings, blocks_read = _read_history(source, bounds.history, intervals)
    for reading in readings:
        at = points == reading.interval.lower
        history_lo[at] = history_hi[at] = reading.below
    if _reads_live_rows(source, bounds, mode):
        silent_lo, silent_hi = bounds.silent_ranks(points)
        for reading in _read_live_rows(source, bounds, intervals):
            at = points == reading.interval.lower
            live_lo[at], live_hi[at] = reading.below + silent_lo[at], reading.below + silent_hi[at]
    return history_lo + live_lo, history_hi + live_hi, blocks_read


def next_storable(point: Any) -> Any:
    """The next storable value above a stored one; the greatest storable value itself."""
    if isinstance(point, np.floating):
        return np.float64(math.nextafter(point, math.inf))  # numpy would warn at the greatest double
    return point if point == np.iinfo(np.int64).max else point + 1


def _reads_live_rows(source: Source, bounds: WindowBounds, mode: str) -> bool:
    """Whether live rows are read for an answer that the staircases in memory do not give."""
    if not bounds.live_stored or bounds.live_is_exact:
        return False
    return mode == "exact" or source.live.fits(bounds.view)


def _brackets(staircase: RankBounds, ranks: Ranks) -> list[tuple[Any, Any]]:
    """For each rank the closed interval that holds its answer, see combined_bounds.py."""
    first, last = staircase.bracket(ranks)
    return list(zip(staircase.values[first], staircase.values[last], strict=True))


def _read_in_rounds(
    source: Source, bounds: WindowBounds, ranks: Ranks, allowed: int
) -> tuple[Candidates, int]:
    """Answers that err by at most `allowed` rows, or by the least error that can be certified."""
    order = np.argsort(ranks, kind="stable")
    centered = bounds.combined.centered
    first, last = centered.bracket(ranks[order])
    widths = centered.hi[last] - centered.lo[first + 1]
    rounds = np.cumsum(np.maximum(widths, 0)) // source.rows_a_round
    if rounds[0] == rounds[-1]:
        return _read_round(source, bounds, ranks, allowed)
    candidates = least_error_candidates(bounds.combined.total, ranks)
    blocks_read = 0
    for number in np.unique(rounds):
        indices = order[rounds == number]
        finer, count = _read_round(source, bounds, ranks[indices], allowed)
        candidates, blocks_read = candidates.replaced(indices, finer), blocks_read + count
    return candidates, blocks_read


def _read_round(source: Source, bounds: WindowBounds, ranks: Ranks, allowed: int) -> tuple[Candidates, int]:
    """Answers with history's ranks exact inside the brackets of the centered bounds."""
    section, history = bounds.combined.around(ranks), bounds.history
    brackets = _brackets(section.centered, ranks)
    intervals = merge_intervals(brackets)
    reads = plan_reads(history, intervals)
    if _needs_finer_marks(source, history, reads, len(ranks)):
        history = with_footer_marks(source.blocks, history, intervals, _brackets(section.total, ranks))
        section = combine_sides(history.staircase, section.live).between(*section.values[[0, -1]])
        brackets = _brackets(section.centered, ranks)
        intervals = merge_intervals(brackets)
        reads = plan_reads(history, intervals)
    readings, blocks_read = read_intervals(source.blocks, history, intervals, reads)
    narrowed = narrow_readings(readings, section.live, ranks, brackets)
    exact = combine_sides(splice(section.history, narrowed), section.live)
    gaps = bounds.sketch_gaps.between(section.values[0], section.values[-1])
    likely = gaps.likely_ranks(
        (exact.history.lo + exact.history.hi) / 2,
        midpoint_rank(bounds.history_bounds, readings, gaps.first, "right"),
        midpoint_rank(bounds.history_bounds, readings, gaps.last, "left"),
    )
    return likeliest_candidates(exact, likely, ranks, allowed), blocks_read


def _read_history(
    source: Source, history: History, intervals: Sequence[Interval]
) -> tuple[list[Reading], int]:
    reads = plan_reads(history, intervals)
    if _needs_finer_marks(source, history, reads, len(intervals)):
        closed = [(interval.lower, interval.upper) for interval in intervals]
        history = with_footer_marks(source.blocks, history, intervals, closed)
        reads = plan_reads(history, intervals)
    return read_intervals(source.blocks, history, intervals, reads)


def _needs_finer_marks(source: Source, history: History, reads: Sequence[PlannedRead], targets: int) -> bool:
    planned = sum(read.rows.stop - read.rows.start for read in reads)
    return planned > source.rows_a_run * len(history.runs) * targets


def _with_exact_live_ranks(source: Source, bounds: WindowBounds, ranks: Ranks) -> WindowBounds:
    section = bounds.combined.around(ranks)
    intervals = merge_intervals(_brackets(section.total, ranks))
    live = bounds.exact_live(section, _read_live_rows(source, bounds, intervals))
    return replace(
        bounds,
        combined=combine_sides(section.history, live),
        sketch_gaps=SketchGaps.of([], bounds.history.dtype),
    )


def _read_live_rows(source: Source, bounds: WindowBounds, intervals: Sequence[Interval]) -> list[Reading]:
    """One reading of the live rows per interval; one pass over all live rows of the window."""
    lowers = np.array([interval.lower for interval in intervals], dtype=bounds.history.dtype)
    uppers = np.array([interval.upper for interval in intervals], dtype=bounds.history.dtype)
    below, rows = np.zeros(len(lowers), dtype=np.int64), 0
    pieces = [[lowers[:0]] for _ in intervals]
    view = cast("View", bounds.view)  # the live rows of groups are rows of `History`, in memory
    for values in source.live.values(source.snapshot, view, bounds.window):
        starts = values.searchsorted(lowers, side="right")
        stops = values.searchsorted(uppers, side="left")
        below += starts
        rows += len(values)
        for interval_pieces, start, stop in zip(pieces, starts, stops, strict=True):
            interval_pieces.append(values[start:stop].copy())
    if rows != bounds.live_stored:
        raise DamagedWarehouse(
            f"the ledger has {bounds.live_stored} live values of {bounds.view.measure.name!r} in the window, "
            f"the table events has {rows}. Run `tidemark verify`."
        )
    return [
        Reading(interval, int(count), interval_pieces)
        for interval, count, interval_pieces in zip(intervals, below, pieces, strict=True)
    ]
