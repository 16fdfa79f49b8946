"""Live rows in memory: where they fit, accurate answers are exact, while batches come and go."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.query.groupworld import (
    BATCHES,
    EPS,
    HOUR,
    MEASURES,
    PHIS,
    START,
    WINDOWS,
    GroupWorld,
    check_quantile,
)
from tests.soak import draws
from tidemark import query
from tidemark.query.reading import live_cache
from tidemark.query.reading.live_cache import LiveCache
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.snapshots import live_rows
from tidemark.warehouse.snapshots.views import View

ROWS = [(START + i % 7 * HOUR, "a", 1, float(i % 23), None) for i in range(90)]
CUT = (START + 2 * HOUR, START + 5 * HOUR)


@pytest.fixture
def world(tmp_path: Path) -> GroupWorld:
    """One loaded batch and three live ones."""
    return GroupWorld.of(tmp_path, [(True, ROWS), (False, ROWS[:40]), (False, ROWS[40:]), (False, ROWS)])


def check_all(wh: query.Warehouse, world: GroupWorld, measure: str, window: Any) -> None:
    """Accurate answers are the true ones, as exact answers are."""
    truth = world.truth(measure, {}, window)
    if not truth.n:
        return
    for mode in ("accurate", "exact", "quick"):
        for answer in wh.quantile(PHIS, measure, between=window, mode=mode):
            check_quantile(answer, truth, mode)
    for rank in wh.rank([-1, 0, 1, 3], measure, between=window):
        assert rank.rank_lo == rank.rank_hi == truth.rank(rank.value)


@pytest.mark.slow
@settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
@given(BATCHES, BATCHES, WINDOWS, MEASURES)
def test_one_reader_is_exact_while_batches_come_and_are_loaded(
    first: Any, then: Any, window: Any, measure: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = GroupWorld.of(Path(folder), first)
        wh = world.open()
        for is_loaded, rows in then:
            check_all(wh, world, measure, window)
            world.add(rows, load=is_loaded)
            check_all(wh, world, measure, None)
        world.load_live()
        check_all(wh, world, measure, window)


@pytest.mark.parametrize("window", [None, CUT])
def test_past_the_budget_the_error_is_bounded_by_the_live_rows(world: GroupWorld, window: Any) -> None:
    wh, truth = world.open(memory=0), world.truth("value", {}, window)
    for phi in PHIS:
        answer = wh.quantile(phi, "value", between=window)
        assert answer.low <= truth.quantile(phi) <= answer.high
        assert answer.error_bound <= Fraction(str(EPS)) * answer.m
    for answer in wh.quantile(PHIS, "value", between=window, mode="exact"):
        check_quantile(answer, truth, "exact")


def test_rows_of_one_tick_take_eight_bytes(tmp_path: Path) -> None:
    live = [(START + HOUR, "a", 1, float(i * 37 % 1009), None) for i in range(600)]
    world = GroupWorld.of(tmp_path, [(True, ROWS), (False, live)])
    needed, true = 8 * (len(live) + 1), world.truth("value", {}, None)
    wh = world.open(memory=needed)
    for answer in wh.quantile(PHIS, "value"):
        check_quantile(answer, true, "accurate")
    assert wh.info()["memory"]["used"] == needed
    assert any(answer.error_bound for answer in world.open(memory=needed - 1).quantile(PHIS, "value"))


def test_a_batch_is_decoded_once(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Any] = []
    right = live_rows.read_projection_rows

    def read(snapshot: Any, projection: Any, batches: Any) -> Any:
        decoded.extend(batches)
        return right(snapshot, projection, batches)

    monkeypatch.setattr(live_cache, "read_projection_rows", read)
    wh = world.open()
    for window in (None, CUT, None):
        wh.quantile(PHIS, "value", between=window)
        wh.quantile(PHIS, "value", between=window, mode="exact")
    world.add(ROWS, load=False)
    wh.quantile(PHIS, "value")
    numbers = [number for batch in decoded for number in range(batch.first, batch.last + 1)]
    assert len(numbers) == len(set(numbers))
    assert {1, 2, 3, 4} <= set(numbers)
    assert 0 < wh.info()["memory"]["used"] <= wh.info()["memory"]["budget"]


def test_rows_outside_of_the_window_are_noticed(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken variant: what a window cuts out of a range has other rows than the ledger."""
    monkeypatch.setattr(live_cache, "_values_in", lambda rows, _window: rows.values)
    with pytest.raises(DamagedWarehouse, match="the ledger has"):
        world.open().quantile(0.5, "value", between=CUT)


def test_rows_that_history_has_taken_are_noticed(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken variant: a cache that goes on serving every range that it has seen."""
    right, seen = LiveCache.values, dict[Any, np.ndarray]()

    def greedy(self: LiveCache, snapshot: Any, view: View, window: Any) -> Any:
        for batch_range, values in zip(view.batches, right(self, snapshot, view, window), strict=True):
            seen[batch_range] = values
        return iter(seen.values())

    monkeypatch.setattr(LiveCache, "values", greedy)
    wh = world.open()
    assert wh.quantile(0.5, "value").error_bound == 0
    world.load_live()
    world.add(ROWS, load=False)
    with pytest.raises(DamagedWarehouse, match="the ledger has"):
        wh.quantile(0.5, "value")
