"""The cases that break quantiles elsewhere, each by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.query.answers import several, single
from tests.query.worlds import Row, World, check_quantile, is_nan, open_world

INF = math.inf


def on_tick(values: Any, tick: int = 0) -> tuple[Row, ...]:
    return tuple((v, tick) for v in values)


def all_modes(wh: Any, phi: Any, **window: Any) -> list[Any]:
    return [wh.quantile(phi, mode=mode, **window) for mode in ("quick", "accurate", "exact")]


def test_one_row_is_every_quantile(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick([4.5]),)))
    assert [a.value for phi in (0, 0.3, 1) for a in all_modes(wh, phi)] == [4.5] * 9


def test_one_live_row_without_history_is_every_quantile(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((), (on_tick([4.5]),)))
    assert [a.value for phi in (0, 0.3, 1) for a in all_modes(wh, phi)] == [4.5] * 9


def test_the_rank_is_exact_where_floats_would_round_up(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick(range(1, 101)),), type="long"))
    assert wh.quantile(0.07).value == 7


def test_integers_beyond_doubles_stay_what_they_are(tmp_path: Path) -> None:
    values = [-(2**63), -(2**63) + 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 2, 2**63 - 1]
    world = World(
        (on_tick(values[::2]), on_tick(values[1::2])), (on_tick([2**53 + 1]),), type="long", eps=0.3
    )
    wh = open_world(tmp_path, world)
    got = wh.quantile([i / 8 for i in range(1, 9)], mode="exact")
    assert [a.value for a in got] == sorted([*values, 2**53 + 1])
    ranks = several(wh.rank([2**53, 2**53 + 1, 2**63 - 1, 2**80, -(2**80)], mode="exact"))
    assert [a.rank for a in ranks] == [3, 5, 8, 8, 0]
    assert single(wh.rank(2**53 + 0.5, mode="exact")).rank == 3


def test_infinities_are_values(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick([-INF, 1.0]), on_tick([INF, 2.0]))))
    assert [a.value for a in wh.quantile([0, 0.5, 0.75, 1])] == [-INF, 1.0, 2.0, INF]
    assert [a.rank for a in several(wh.rank([-INF, 0, INF]))] == [1, 1, 4]


def test_negative_zero_equals_zero(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick([-0.0, 0.0, -0.0, 1.0] * 20),), rows_a_run=0, eps=0.3))
    assert math.copysign(1, wh.quantile(0.1).value) == 1.0
    assert single(wh.rank(-0.0)).rank == single(wh.rank(0.0)).rank == 60


def test_nan_ranks_after_every_number_and_belongs_to_n(tmp_path: Path) -> None:
    world = World((on_tick([math.nan, 1.0, INF]),), (on_tick([math.nan]),))
    wh = open_world(tmp_path, world)
    answers = wh.quantile([0.5, 0.51, 1])
    assert answers[0].value == INF
    assert is_nan(answers[1].value)
    assert is_nan(answers[2].value)
    assert (answers[2].rank_lo, answers[2].rank_hi, answers[2].error_bound, answers[2].nans) == (4, 4, 0, 2)
    assert single(wh.cdf(INF)).cdf == 0.5


def test_nothing_but_nan_is_nan(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick([math.nan] * 3),), (on_tick([math.nan]),)))
    assert all(is_nan(a.value) for a in all_modes(wh, 0.5))


def test_nulls_are_left_out_and_counted(tmp_path: Path) -> None:
    wh = open_world(tmp_path, World((on_tick([None, 1, None, 3]),), (on_tick([None, 2]),), type="long"))
    answer = wh.quantile(0.5, mode="exact")
    assert (answer.value, answer.N, answer.nulls) == (2, 3, 3)


@pytest.mark.parametrize("layout", ["sorted", "reversed", "zoomed in", "alternating"])
def test_the_order_of_arrival_does_not_matter(tmp_path: Path, layout: str) -> None:
    values = np.arange(900.0)
    orders = {
        "sorted": values,
        "reversed": values[::-1],
        "zoomed in": np.stack([values[:450], values[:449:-1]], axis=1).ravel(),
        "alternating": np.concatenate([values[::2], values[1::2]]),
    }
    parts = np.array_split(orders[layout], 9)
    world = World(
        tuple(on_tick(part.tolist()) for part in parts[:7]), tuple(on_tick(p.tolist()) for p in parts[7:])
    )
    wh = open_world(tmp_path, world)
    for phi in (0, 0.001, 0.25, 0.5, 0.9, 1):
        for answer in all_modes(wh, phi):
            check_quantile(world, answer, phi, answer.mode, None)


def test_heavy_duplicates_are_not_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    runs = tuple(on_tick(rng.integers(-5, 6, 4000).tolist()) for _ in range(3))
    world = World(runs, type="long", eps=0.01, grain=20, group_rows=40, file_rows=10**6)
    wh = open_world(tmp_path, world)
    for answers in wh.quantile([0.5, 0.52]), [wh.quantile(0.3)], [wh.quantile(0.7)]:
        assert answers[0].blocks_read <= 2 * 3 * len(answers)
    assert wh.quantile(0.5).blocks_read == 0  # all around the middle of a value is that value
    for cut in np.cumsum(np.bincount(np.concatenate([np.array(r)[:, 0] for r in runs]) + 5))[:-1] / 12_000:
        answer = wh.quantile(float(cut))
        check_quantile(world, answer, float(cut), "accurate", None)
        assert answer.blocks_read <= 2 * 3


def test_marks_coarser_than_row_groups_are_narrowed_by_footers(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    runs = tuple(on_tick(rng.random(6000).tolist()) for _ in range(4))
    world = World(runs, eps=0.4, grain=1200, group_rows=20, file_rows=2500, rows_a_run=100)
    wh = open_world(tmp_path, world)
    for phi in (0.01, 0.37, 0.5, 0.99):
        answer = wh.quantile(phi)
        check_quantile(world, answer, phi, "accurate", None)
        assert answer.blocks_read <= 3 * 4
        assert single(wh.rank(phi)).blocks_read <= 2 * 4


def test_a_wide_live_side_does_not_widen_what_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    runs = tuple(on_tick(rng.random(5000).tolist()) for _ in range(4))
    world = World(
        runs, (on_tick(rng.random(20_000).tolist()),), eps=0.2, grain=20, group_rows=80, file_rows=10**6
    )
    wh = open_world(tmp_path, world)
    for phi in (0.1, 0.5, 0.9):
        answer = wh.quantile(phi)
        check_quantile(world, answer, phi, "accurate", None)
        assert answer.blocks_read <= 2 * 4


def test_a_window_whose_values_lie_elsewhere_in_a_run_costs_no_read(tmp_path: Path) -> None:
    rows = tuple((float(i), i // 1000) for i in range(4000))
    wh = open_world(tmp_path, World((rows, rows), eps=0.01, grain=20, span=1, group_rows=40, file_rows=10**6))
    assert wh.quantile(0.5, between=(2, 3)).value == 2499.0
    assert wh.quantile(0.5, between=(2, 3)).blocks_read <= 2 * 2


def test_a_narrow_window_that_marks_cannot_tell_is_read_even_when_quick(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    rows = tuple((float(v), int(i == 7)) for v in rng.random(3000) for i in [rng.integers(0, 300)])
    world = World((rows,), eps=0.05, grain=64, span=50)
    answer = open_world(tmp_path, world).quantile(0.5, between=(1, 2), mode="quick")
    check_quantile(world, answer, 0.5, "quick", (1, 2))
    assert answer.blocks_read > 0
