"""Tests of the tests: each mistake below, made on purpose, is caught by the same checks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import query.history
import query.known
import query.plan
import query.refine
from sketches import GK, RankBounds
from tests.query.drawn import MODES, PHIS, windows, worlds
from tests.query.worlds import Oracle, World, check_quantile, check_rank, open_world

Patch = pytest.MonkeyPatch
Window = tuple[int, int] | None
FAST = settings(
    max_examples=800,
    phases=[Phase.generate],
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@FAST
@given(worlds(), windows(), MODES, st.lists(PHIS, min_size=1, max_size=3))
def everything_holds(world: World, window: Window, mode: Any, phis: list[Any]) -> None:
    truth = Oracle.of(world.rows(window))
    if truth.n == 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        opened = open_world(Path(folder), world)
        for phi, answer in zip(phis, opened.quantile(phis, between=window, mode=mode), strict=True):
            check_quantile(world, answer, phi, mode, window)
        point = truth.numbers[len(truth.numbers) // 2] if truth.numbers else 0
        check_rank(world, opened.rank(point, between=window, mode=mode), point, mode, window)


def a_stretch_starts_one_row_late(patch: Patch) -> None:
    right = query.plan.plan_stretch

    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, start=found.start + 1) if found.start < found.stop else found

    patch.setattr(query.history, "plan_stretch", wrong)


def a_stretch_ends_one_row_early(patch: Patch) -> None:
    right = query.plan.plan_stretch

    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, stop=found.stop - 1) if found.start < found.stop else found

    patch.setattr(query.history, "plan_stretch", wrong)


def ticks_are_ignored_in_blocks(patch: Patch) -> None:
    right = query.plan.cut
    patch.setattr(query.history, "cut", lambda a, b, ticks, *rest: right(a, b, None, *rest))


def a_run_is_left_out(patch: Patch) -> None:
    right = query.history._needs
    patch.setattr(query.history, "_needs", lambda *args: [need for need in right(*args) if need.run])


def a_bound_between_anchors_is_taken_for_exact(patch: Patch) -> None:
    def wrong(start: int, stop: int, anchors: Any) -> Any:
        return query.plan.Stretch(start, stop, start, int(anchors.before(np.array([start]))[0][0]))

    patch.setattr(query.plan, "_anchored", wrong)


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
    patch.setattr(query.known.Known, "stored", property(lambda known: known.rows))


def coarse_quick_answers_are_kept(patch: Patch) -> None:
    patch.setattr(query.refine, "promise", lambda _eps, rows: rows)


def footers_replace_the_marks_that_bound_the_ends(patch: Patch) -> None:
    right = query.plan.with_finer_marks
    patch.setattr(
        query.history,
        "with_finer_marks",
        lambda run, needed, p, v: right(run, [(a, a) for a, _ in needed], p, v),
    )


def equal_rows_at_the_lower_end_count_as_inside(patch: Patch) -> None:
    right = query.plan.cut

    def wrong(first: int, values: Any, ticks: Any, stretch: Any, around: Any, window: Any) -> Any:
        return right(
            first, values, ticks, stretch, replace(around, u=np.nextafter(around.u, -np.inf)), window
        )

    patch.setattr(query.history, "cut", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        a_stretch_starts_one_row_late,
        a_stretch_ends_one_row_early,
        ticks_are_ignored_in_blocks,
        a_run_is_left_out,
        a_bound_between_anchors_is_taken_for_exact,
        live_bounds_are_halved,
        nan_is_taken_for_a_number,
        coarse_quick_answers_are_kept,
        footers_replace_the_marks_that_bound_the_ends,
        equal_rows_at_the_lower_end_count_as_inside,
    ],
)
def test_a_broken_variant_is_caught(broken: Callable[[Patch], None], monkeypatch: Patch) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        everything_holds()
