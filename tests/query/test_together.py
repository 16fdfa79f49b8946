"""Questions that share their reads: what is asked beside a question never weakens its answer.

Values have ties about as long as the grain, so many ranks lie inside the tie of a mark, and phis lie ranks
apart, so that their brackets meet.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.query.drawn import MODES
from tests.query.worlds import HandMade, Row, World, open_world
from tests.soak import draws
from tidemark.query.answers.measure_answers import Answer
from tidemark.query.quantiles import rank_search
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.read_plan import Interval, Reading
from tidemark.sketches import RankBounds

TICKS = 6
WINDOWS: tuple[dict[str, Any], ...] = ({}, {"between": (1, 3)}, {"between": (2, None)}, {"last": 2})


def drawn_world(random: Random, **layout: Any) -> World:
    """Integers on a few ticks, each value about as often in a run as the run's grain is long."""
    rows, grain = random.choice([150, 300, 450]), random.choice([3, 8, 16])
    values = max(2, round(rows / grain * random.choice([0.5, 1, 2, 4])))

    def part(count: int) -> tuple[Row, ...]:
        return tuple((random.randrange(values), random.randrange(TICKS)) for _ in range(count))

    layout = {
        "eps": random.choice([0.3, 0.1]),
        "span": random.choice([1, 2, 50]),
        "group_rows": random.choice([8, 64]),
        "file_rows": random.choice([50, 1000]),
        "rows_a_run": random.choice([0, 1000]),  # 0: the footers are always asked
        "rows_a_round": random.choice([60, 2**22, 2**22]),
        "live_fits": random.choice([False, True]),
        **layout,
    }
    runs = tuple(part(rows) for _ in range(random.choice([1, 2, 4])))
    live = tuple(part(random.choice([40, 200])) for _ in range(random.choice([0, 0, 1, 3])))
    return World(runs, live, type="long", grain=grain, **layout)


@dataclass(frozen=True)
class Truth:
    """The numbers of a window, sorted, and how many of them are live."""

    numbers: NDArray[np.int64]
    live: int

    @classmethod
    def of(cls, world: World, ask: dict[str, Any]) -> Truth:
        last = 1 + max(tick for part in world.runs + world.live for _, tick in part)
        start, stop = ask.get("between", (last - ask.get("last", TICKS), None))
        window = (start, last if stop is None else stop)
        numbers = np.sort(np.array(world.rows(window), dtype=np.int64))
        return cls(numbers, len(world.rows(window, live=True)))

    def check(self, answer: Answer, rank: int, world: World) -> None:
        """What the answer says is true and keeps its promise; nothing is open where nothing is live."""
        le, lt = (int(np.searchsorted(self.numbers, answer.value, side)) for side in ("right", "left"))
        assert (answer.N, answer.m) == (len(self.numbers), self.live)
        assert max(0, rank - le, lt + 1 - rank) <= answer.error_bound
        assert answer.rank_lo <= le <= answer.rank_hi
        assert answer.low <= self.numbers[rank - 1] <= answer.high
        assert answer.error_bound <= world.promised(answer.mode, answer.N, answer.m)
        assert answer.error_bound or answer.value == self.numbers[rank - 1]


def check_beside(alone: Answer, beside: Answer) -> None:
    """The answer among others says no less than the one alone, and the same where nothing is live."""
    assert alone.low <= beside.low <= beside.high <= alone.high
    if not alone.m or alone.mode == "exact":
        assert (beside.value, beside.error_bound) == (alone.value, alone.error_bound)
    if beside.value == alone.value:
        assert alone.rank_lo <= beside.rank_lo <= beside.rank_hi <= alone.rank_hi


def near(random: Random, rows: int, count: int, apart: int) -> list[int]:
    """Ranks in any order, each 1 to `apart` after another."""
    first = random.randrange(1, rows + 1)
    ranks = first + np.cumsum([0, *(random.randint(1, apart) for _ in range(count - 1))])
    return random.sample(np.minimum(ranks, rows).tolist(), count)


def ask_ranks(wh: HandMade, ranks: Sequence[int], rows: int, mode: Any, ask: dict[str, Any]) -> list[Answer]:
    return list(wh.quantile([Fraction(rank, rows) for rank in ranks], mode=mode, **ask))


@pytest.mark.slow
@settings(max_examples=draws(20), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), MODES, st.sampled_from(WINDOWS), st.sampled_from([2, 3, 20, 300]))
def test_many_quantiles_are_each_what_it_is_alone(
    seed: int, mode: Any, ask: dict[str, Any], count: int
) -> None:
    random = Random(seed)
    world = drawn_world(random)
    truth = Truth.of(world, ask)
    rows = len(truth.numbers)
    with tempfile.TemporaryDirectory() as folder:
        wh = open_world(Path(folder), world)
        for _ in range(4):
            ranks = near(random, rows, count, random.choice([1, 2, world.grain, 4 * world.grain]))
            together = ask_ranks(wh, ranks, rows, mode, ask)
            for rank, one in zip(ranks, together, strict=True):
                truth.check(one, rank, world)
            for at in random.sample(range(count), min(count, 4)):
                check_beside(ask_ranks(wh, ranks[at : at + 1], rows, mode, ask)[0], together[at])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> list[HandMade]:
    folder = tmp_path_factory.mktemp("sweep")
    plain = {"group_rows": 64, "file_rows": 1000, "rows_a_round": 2**22}
    return [open_world(folder, drawn_world(Random(seed), **plain)) for seed in range(8)]


def check_pairs(worlds: Sequence[HandMade], pairs: int) -> None:
    """Neighbouring ranks, two at a time, in every window."""
    random = Random(5)
    for wh in worlds:
        for ask in WINDOWS:
            truth = Truth.of(wh.world, ask)
            for i in range(pairs):
                ranks = near(random, len(truth.numbers), 2, 3 * wh.world.grain)
                mode = ("accurate", "exact")[i % 2]
                for rank, one in zip(ranks, ask_ranks(wh, ranks, len(truth.numbers), mode, ask), strict=True):
                    truth.check(one, rank, wh.world)


@pytest.mark.slow
def test_no_pair_of_neighbouring_quantiles_is_wrong(sweep: list[HandMade]) -> None:
    check_pairs(sweep, 25)


def narrowed_to_ranks_among_the_rows(
    readings: Sequence[Reading], live: RankBounds, ranks: Ranks, _: Any
) -> list[Reading]:
    """Rows are kept for the ranks that are among them alone, not for those inside the tie of an end."""
    found = []
    for one in readings:
        u, v = np.array([one.interval.lower, one.interval.upper], dtype=live.values.dtype)
        first = ranks - one.below - live.rank_lt(v)[1] - 1
        last = ranks - one.below - live.rank_le(u)[0] - 1
        rows = one.inside
        here = (first <= len(rows)) & (last >= -1)
        if not len(rows) or not here.any():
            found.append(one)
            continue
        low, high = rows[np.clip([first[here].min(), last[here].max()], 0, len(rows) - 1)]
        i, j = int(np.searchsorted(rows, low)), int(np.searchsorted(rows, high, "right"))
        ends = Interval(rows[i - 1] if i else u, rows[j] if j < len(rows) else v)
        found.append(Reading(ends, one.below + i, [rows[i:j]]))
    return found


def test_rows_kept_for_the_ranks_among_them_alone_are_caught(
    sweep: list[HandMade], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_search, "narrow_readings", narrowed_to_ranks_among_the_rows)
    with pytest.raises(AssertionError):
        check_pairs(sweep, 25)


def test_two_quantiles_of_uniform_integers_in_two_loads_are_exact(tmp_path: Path) -> None:
    values = np.random.default_rng(3).integers(0, 800, 20_000).tolist()
    parts = [tuple((value, 0) for value in values[i::2]) for i in range(2)]
    layout: dict[str, Any] = {"eps": 0.01, "grain": 2**14, "group_rows": 4096, "file_rows": 2**17}
    wh = open_world(tmp_path, World(tuple(parts), type="long", **layout))
    truth = Truth(np.sort(values), 0)
    for first in range(100, 20_000, 487):
        ranks = [first, first + 60]
        for rank, one in zip(ranks, ask_ranks(wh, ranks, 20_000, "exact", {}), strict=True):
            truth.check(one, rank, wh.world)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), MODES, st.sampled_from(WINDOWS))
def test_many_ranks_are_each_what_it_is_alone(seed: int, mode: Any, ask: dict[str, Any]) -> None:
    random = Random(seed)
    world = drawn_world(random)
    points = [random.randrange(-1, 160) for _ in range(random.choice([2, 5, 40]))]
    with tempfile.TemporaryDirectory() as folder:
        wh = open_world(Path(folder), world)
        for measured in (wh.rank, wh.cdf):
            together: Any = measured(points, mode=mode, **ask)
            alone: list[Any] = [measured(point, mode=mode, **ask) for point in points]
            for beside, one in zip(together, alone, strict=True):
                assert replace(beside, blocks_read=0) == replace(one, blocks_read=0)
