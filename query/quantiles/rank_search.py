"""From bounds to answers: which intervals to read for a rank, and what the readings make certain.

    quick      the staircases in memory; error <= eps * N. Where the marks alone are too coarse for that (a
               narrow window whose rows stand close together), those ranks are read like accurate ones
    accurate   history is read in the brackets, so its ranks there are exact; error <= eps * m (see grid.py)
    exact      the live rows are read too, first, and then history; error 0

Live before history in exact mode, because an exact live side leaves the narrower brackets to read.

Memory. The brackets of a rank hold fewer than two grains of each run. Ranks are answered in rounds of at
most `rows_a_round` rows; only at the seam of two rounds may a row group be read twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.quantiles.combined_bounds import (
    Found,
    best,
    lay_out,
    middle_rank,
    narrowed,
    nearest,
    splice,
)
from tidemark.query.quantiles.history_ranks import (
    History,
    Need,
    plan,
    planned_rows,
    read_intervals,
    with_footers,
)
from tidemark.query.quantiles.read_plan import Interval, Reading, join
from tidemark.query.quantiles.window_bounds import Known, promise, staircase
from tidemark.query.reading.block_reader import BlockReader
from tidemark.sketches import RankBounds
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.tuning import DEFAULT

MODES = ("quick", "accurate", "exact")

Ranks = NDArray[np.int64]
LiveValues = Callable[[], Iterable[NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows are read from: history's blocks, and the live rows of the window in pieces.

    `rows_a_run`: a plan of more rows than this a run and a rank, on average, asks the footers for finer marks
    first. Four row groups: at the usual grain of a quarter of one, a plan has half of one and never asks.
    `rows_a_round`: how many rows may be held at once. 2**17 values are 1 MB; to sort and rank them takes a
    few times that.
    """

    blocks: BlockReader
    live_values: LiveValues
    _: KW_ONLY
    rows_a_run: int = 4 * DEFAULT.block_rows
    rows_a_round: int = 2**17


def find_ranks(source: Source, known: Known, ranks: Ranks, mode: str, eps: float) -> tuple[Found, int]:
    """The answers to ranks of 1..stored, and how many row groups were read."""
    if mode == "exact":
        known = _with_live_read(source, known, join(_brackets(known.grid.both, ranks)))
        return _read_in_rounds(source, known, ranks, 0)
    if mode == "accurate":
        return _read_in_rounds(source, known, ranks, promise(eps, known.m))
    found = best(known.grid.both, ranks)
    coarse = np.flatnonzero(found.errors > promise(eps, known.rows))
    if not len(coarse):
        return found, 0
    finer, blocks_read = _read_in_rounds(source, known, ranks[coarse], promise(eps, known.m))
    return found.put(coarse, finer), blocks_read


def find_ranks_of(
    source: Source, known: Known, points: NDArray[Any], mode: str, eps: float
) -> tuple[Ranks, Ranks, int]:
    """Bounds (lo, hi) of rank_le at stored values, and how many row groups were read."""
    lo, hi = known.grid.both.rank_le(points)
    asked = (hi - lo + 1) // 2 > promise(eps, known.rows) if mode == "quick" else lo != hi
    if not asked.any():
        return lo, hi, 0
    # Only the rows between a point and the next storable value can tell; above the greatest there are none.
    history_lo, history_hi = known.grid.history.rank_le(points)
    live_lo, live_hi = known.grid.live.rank_le(points)
    unsure = np.unique(points[asked])
    intervals = [Interval(point, following(point)) for point in unsure if point < following(point)]
    readings, blocks_read = _read_around(source, known.history, intervals)
    for reading in readings:
        at = points == reading.interval.u
        history_lo[at] = history_hi[at] = reading.below
    if mode == "exact" and known.live_stored:
        for reading in _read_live(source, known, intervals):
            at = points == reading.interval.u
            live_lo[at] = live_hi[at] = reading.below
    return history_lo + live_lo, history_hi + live_hi, blocks_read


def following(point: Any) -> Any:
    """The next storable value above a stored one; the greatest one itself."""
    if isinstance(point, np.floating):
        return np.nextafter(point, np.inf)
    return point if point == np.iinfo(np.int64).max else point + 1


def _brackets(bounds: RankBounds, ranks: Ranks) -> list[tuple[Any, Any]]:
    """For each rank the closed interval that holds its answer, see grid.py."""
    a, b = bounds.bracket(ranks)
    return list(zip(bounds.values[a], bounds.values[b], strict=True))


def _read_in_rounds(source: Source, known: Known, ranks: Ranks, allowed: int) -> tuple[Found, int]:
    """Answers that err by what is allowed at most, or by the least that can be certified."""
    order = np.argsort(ranks, kind="stable")
    a, b = known.grid.middle.bracket(ranks[order])
    widths = known.grid.middle.hi[b] - known.grid.middle.lo[a + 1]
    rounds = np.cumsum(np.maximum(widths, 0)) // source.rows_a_round
    found = best(known.grid.both, ranks)
    blocks_read = 0
    for one in np.unique(rounds):
        at = order[rounds == one]
        finer, count = _read_round(source, known, ranks[at], allowed)
        found, blocks_read = found.put(at, finer), blocks_read + count
    return found, blocks_read


def _read_round(source: Source, known: Known, ranks: Ranks, allowed: int) -> tuple[Found, int]:
    """Answers with history's ranks exact inside the brackets of the middle."""
    grid, history = known.grid, known.history
    brackets = _brackets(grid.middle, ranks)
    intervals = join(brackets)
    needs = plan(history, intervals)
    if _is_much(source, history, needs, len(ranks)):
        history = with_footers(source.blocks, history, intervals, _brackets(grid.both, ranks))
        grid = lay_out(staircase(history), grid.live)
        brackets = _brackets(grid.middle, ranks)
        intervals = join(brackets)
        needs = plan(history, intervals)
    readings, blocks_read = read_intervals(source.blocks, history, intervals, needs)
    a, b = grid.both.bracket(ranks)
    section = grid.section(int(a.min()), int(b.max()))
    exact = lay_out(splice(section.history, narrowed(readings, grid.live, ranks, brackets)), section.live)
    steps = (exact.history.lo + exact.history.hi) / 2
    likely = known.gaps.ranks(
        steps, partial(middle_rank, known.past, readings), section.values[0], section.values[-1]
    )
    return nearest(exact, likely, ranks, allowed), blocks_read


def _read_around(
    source: Source, history: History, intervals: Sequence[Interval]
) -> tuple[list[Reading], int]:
    """The readings of given intervals."""
    needs = plan(history, intervals)
    if _is_much(source, history, needs, len(intervals)):
        history = with_footers(source.blocks, history, intervals, [(one.u, one.v) for one in intervals])
        needs = plan(history, intervals)
    return read_intervals(source.blocks, history, intervals, needs)


def _is_much(source: Source, history: History, needs: Sequence[Need], asked: int) -> bool:
    return planned_rows(needs) > source.rows_a_run * len(history.runs) * asked


def _with_live_read(source: Source, known: Known, intervals: Sequence[Interval]) -> Known:
    """The same with the live ranks exact inside the intervals."""
    if not known.live_stored or not intervals:
        return known
    live = splice(known.grid.live, _read_live(source, known, intervals))
    return replace(known, grid=lay_out(known.grid.history, live))


def _read_live(source: Source, known: Known, intervals: Sequence[Interval]) -> list[Reading]:
    """The live rows inside each interval and their number up to its start; one pass over the live rows."""
    us = np.array([one.u for one in intervals], dtype=known.history.dtype)
    vs = np.array([one.v for one in intervals], dtype=known.history.dtype)
    below, inside, rows = np.zeros(len(us), dtype=np.int64), [[us[:0]] for _ in intervals], 0
    for chunk in source.live_values():
        values = np.sort(chunk)
        first, stop = np.searchsorted(values, us, side="right"), np.searchsorted(values, vs, side="left")
        below += first
        rows += len(values)
        for found, i, j in zip(inside, first, stop, strict=True):
            found.append(values[i:j].copy())
    if rows != known.live_stored:
        raise DamagedWarehouse(
            f"the ledger says that {known.live_stored} live values of {known.view.measure.name!r} lie in the "
            f"window, the table events has {rows}. Run `tidemark verify`."
        )
    return [
        Reading(one, int(count), found) for one, count, found in zip(intervals, below, inside, strict=True)
    ]
