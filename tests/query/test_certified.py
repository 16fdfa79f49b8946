"""What an answer says is true, on worlds of every kind, against a sorted list."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.drawn import MODES, PHIS, windows, worlds
from tests.query.worlds import Oracle, World, check_histogram, check_quantile, check_rank, is_nan, open_world
from tests.soak import draws
from tidemark.warehouse.errors import EmptyWindow

pytestmark = pytest.mark.slow

MANY = settings(
    max_examples=draws(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
Window = tuple[int, int] | None


def ask(world: World, window: Window, question: Any) -> Any:
    """The answer, or None where the window has no rows and says so."""
    with tempfile.TemporaryDirectory() as folder:
        opened = open_world(Path(folder), world)
        if Oracle.of(world.rows(window)).n:
            return question(opened)
        with pytest.raises(EmptyWindow, match=r"empty window|no rows"):
            question(opened)
        return None


@MANY
@given(worlds(), windows(), MODES, st.lists(PHIS, min_size=1, max_size=5))
def test_quantiles_keep_their_bounds_and_their_promise(
    world: World, window: Window, mode: Any, phis: list[Any]
) -> None:
    answers = ask(world, window, lambda wh: wh.quantile(phis, between=window, mode=mode))
    for phi, answer in zip(phis, answers or [], strict=False):
        check_quantile(world, answer, phi, mode, window)


@MANY
@given(worlds(), windows(), MODES, st.data())
def test_ranks_keep_their_bounds_and_their_promise(
    world: World, window: Window, mode: Any, data: st.DataObject
) -> None:
    numbers = Oracle.of(world.rows(None)).numbers or [0]
    points = data.draw(
        st.lists(st.one_of(st.sampled_from(numbers), st.integers(-5, 5)), min_size=1, max_size=4)
    )
    answers = ask(world, window, lambda wh: wh.rank(points, between=window, mode=mode))
    for point, answer in zip(points, answers or [], strict=False):
        check_rank(world, answer, point, mode, window)


@MANY
@given(worlds(), windows(), MODES, st.integers(1, 7))
def test_a_histogram_counts_every_number_once(world: World, window: Window, mode: Any, bins: int) -> None:
    numbers = Oracle.of(world.rows(window)).numbers
    if numbers and not any(v in (float("inf"), float("-inf")) for v in (numbers[0], numbers[-1])):
        histogram = ask(world, window, lambda wh: wh.histogram(bins, between=window, mode=mode))
        check_histogram(world, histogram, window)
        assert sum(histogram.counts) == len(numbers)
        assert len(histogram) <= bins


@MANY
@given(worlds(live=False), windows(), st.lists(PHIS, min_size=2, max_size=6))
def test_many_quantiles_at_once_are_those_asked_one_by_one(
    world: World, window: Window, phis: list[Any]
) -> None:
    def question(wh: Any) -> Any:
        together = wh.quantile(phis, between=window)
        return together, [wh.quantile(phi, between=window) for phi in phis]

    together, alone = ask(world, window, question) or ([], [])
    for a, b in zip(together, alone, strict=True):
        assert a.value == b.value or (is_nan(a.value) and is_nan(b.value))
