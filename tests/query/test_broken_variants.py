"""Tests of the tests: each mistake below, made on purpose, is caught by the checks of the properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.query.answers import several
from tests.query.worlds import HandMade, Oracle, World, check_quantile, check_rank, open_world
from tidemark.query.quantiles import history_ranks, rank_search, read_plan, window_bounds
from tidemark.sketches import GK, RankBounds

Patch = pytest.MonkeyPatch


def sample(seed: int, spread: float, **layout: Any) -> World:
    """Three runs and two live batches of numbers on three ticks, some of them NaN and some NULL."""
    random = Random(seed)

    def rows(count: int) -> tuple[tuple[Any, int], ...]:
        drawn = (round(random.gauss(0, 1) * spread) / spread for _ in range(count))
        return tuple((random.choice([math.nan, None, *[v] * 30]), random.choice([0, 1, 1, 2])) for v in drawn)

    return World(tuple(rows(count) for count in (700, 300, 40)), (rows(400), rows(90)), **layout)


WORLDS = [
    sample(1, 1e9, eps=0.1, grain=16, span=2, group_rows=8),
    sample(2, 2, eps=0.1, grain=16, span=2, group_rows=8),
    sample(3, 1e9, eps=0.3, grain=64, span=1, group_rows=4, rows_a_run=0),
    sample(4, 3, eps=0.3, grain=64, span=1, group_rows=4, rows_a_run=0),
    sample(5, 1e9, eps=0.02, grain=64, span=50, group_rows=16, file_rows=1000),
]


def check_everything(opened: HandMade) -> None:
    world = opened.world
    for window in (None, (1, 2), (0, 2)):
        truth = Oracle.of(world.rows(window))
        phis = [0, 0.01, 0.25, 0.5, 0.77, 0.9, Fraction(len(truth.numbers), truth.n), 1]
        points = truth.numbers[:: len(truth.numbers) // 5]
        for mode in ("quick", "accurate", "exact"):
            for phi, answer in zip(phis, opened.quantile(phis, between=window, mode=mode), strict=True):
                check_quantile(world, answer, phi, mode, window)
            for point, rank in zip(
                points, several(opened.rank(points, between=window, mode=mode)), strict=True
            ):
                check_rank(world, rank, point, mode, window)


def check_all(every: list[HandMade]) -> None:
    for one in every:
        check_everything(one)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> list[HandMade]:
    folder: Path = tmp_path_factory.mktemp("worlds")
    return [open_world(folder, world) for world in WORLDS]


def test_nothing_is_caught_where_nothing_is_broken(opened: list[HandMade]) -> None:
    check_all(opened)


def a_row_range_starts_one_row_late(patch: Patch) -> None:
    right = read_plan.plan_row_range

    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, start=found.start + 1) if found.start < found.stop else found

    patch.setattr(history_ranks, "plan_row_range", wrong)


def a_row_range_ends_one_row_early(patch: Patch) -> None:
    right = read_plan.plan_row_range

    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, stop=found.stop - 1) if found.start < found.stop else found

    patch.setattr(history_ranks, "plan_row_range", wrong)


def ticks_are_ignored_in_blocks(patch: Patch) -> None:
    right = read_plan.select_rows
    patch.setattr(history_ranks, "select_rows", lambda a, b, _, *rest: right(a, b, None, *rest))


def a_run_is_left_out(patch: Patch) -> None:
    right = history_ranks.plan_reads
    patch.setattr(
        rank_search,
        "plan_reads",
        lambda *args: [need for need in right(*args) if need.run],
    )


def a_bound_between_anchors_is_taken_for_exact(patch: Patch) -> None:
    def wrong(start: int, stop: int, anchors: Any) -> Any:
        return read_plan.RowRange(start, stop, start, int(anchors.before(np.array([start]))[0][0]))

    patch.setattr(read_plan, "_extend_to_anchor", wrong)


def live_bounds_are_halved(patch: Patch) -> None:
    right = GK.rank_bounds

    def wrong(sketch: GK) -> RankBounds:
        bounds = right(sketch)
        quarter = (bounds.hi - bounds.lo) // 4
        return RankBounds(
            bounds.values, bounds.lo + quarter, np.maximum(bounds.lo + quarter, bounds.hi - quarter)
        )

    patch.setattr(GK, "rank_bounds", wrong)


def nan_is_taken_for_a_number(patch: Patch) -> None:
    patch.setattr(window_bounds.WindowBounds, "stored", property(lambda known: known.rows))


def coarse_quick_answers_are_kept(patch: Patch) -> None:
    patch.setattr(rank_search, "promised_error", lambda _eps, rows: rows)


def footers_keep_the_marks_of_the_first_rank_alone(patch: Patch) -> None:
    right = read_plan.with_finer_marks
    patch.setattr(
        history_ranks,
        "with_finer_marks",
        lambda run, needed, p, v: right(run, needed[:1], p, v),
    )


def equal_rows_at_the_lower_end_count_as_inside(patch: Patch) -> None:
    right = read_plan.select_rows

    def wrong(first: int, values: Any, ticks: Any, rows: Any, interval: Any, window: Any) -> Any:
        return right(
            first, values, ticks, rows, replace(interval, lower=np.nextafter(interval.lower, -np.inf)), window
        )

    patch.setattr(history_ranks, "select_rows", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        a_row_range_starts_one_row_late,
        a_row_range_ends_one_row_early,
        ticks_are_ignored_in_blocks,
        a_run_is_left_out,
        a_bound_between_anchors_is_taken_for_exact,
        live_bounds_are_halved,
        nan_is_taken_for_a_number,
        coarse_quick_answers_are_kept,
        footers_keep_the_marks_of_the_first_rank_alone,
        equal_rows_at_the_lower_end_count_as_inside,
    ],
)
def test_a_broken_variant_is_caught(
    broken: Callable[[Patch], None], opened: list[HandMade], monkeypatch: Patch
) -> None:
    broken(monkeypatch)
    # Opened anew, because what is known of a window was laid out before the break.
    anew = [HandMade(one.snapshot, one.world) for one in opened]
    with pytest.raises((AssertionError, IndexError)):
        check_all(anew)
