"""Geometric monitoring: no quiet state outside of a condition, on any stream, over any channel."""

from __future__ import annotations

import doctest
import math
import os
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sketches.monitoring_world import (
    BITS,
    KEYS,
    SHAPES,
    Oracle,
    all_queries,
    assert_quiet_state,
    stream,
    watch,
)
from tests.sketches.test_sites import HOSTILE
from tidemark.sketches import SketchError
from tidemark.sketches.errors import LostState, Undelivered
from tidemark.sketches.geometric import monitoring as modules
from tidemark.sketches.geometric import site, zones
from tidemark.sketches.geometric.coordinator import Coordinator
from tidemark.sketches.geometric.layout import Layout
from tidemark.sketches.geometric.monitoring import Monitoring
from tidemark.sketches.geometric.queries import (
    Frequent,
    HeavyPrefixes,
    InnerProduct,
    Query,
    Range,
    SelfJoin,
)
from tidemark.sketches.geometric.site import Site
from tidemark.sketches.geometric.zones import Reference
from tidemark.sketches.sites import network
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

LONG = int(os.environ.get("TIDEMARK_SOAK_STREAMS", "0"))  # `make soak` sets it


def monitoring_of(
    queries: list[Query], sites: int, seed: int = 0, channel: Channel | None = None
) -> Monitoring:
    return Monitoring(queries, sites, eps=0.2, delta=0.2, bits=BITS, seed=seed, channel=channel)


@pytest.mark.parametrize("shape", SHAPES)
def test_random_streams_never_leave_a_condition(shape: str) -> None:
    """All kinds of queries at once, against the exact counts after every arrival and tick."""
    rng = np.random.default_rng(LONG)
    for seed in range(1 + LONG):
        sites, rows = (3, 120) if seed == 0 else (int(rng.integers(2, 40)), 700)
        watch(monitoring_of(all_queries(0.3), sites, seed), stream(shape, rows, sites, seed))


@pytest.mark.slow
@pytest.mark.parametrize("sites", [2, 256])
def test_random_streams_at_few_and_many_sites(sites: int) -> None:
    queries: list[Query] = [SelfJoin(theta=0.4, window=150), Frequent(threshold=30, theta=0.4, window=150)]
    watch(monitoring_of(queries, sites), stream("drift", (60 if sites == 2 else 12) + 20 * LONG, sites))


@pytest.mark.parametrize("query", [*all_queries(0.3), SelfJoin(theta=0.3, window=100, least=40)], ids=repr)
def test_each_query_alone_begins_with_nothing(query: Query) -> None:
    """Without others that make all begin anew."""
    watch(monitoring_of([query], 3), stream("emptied", 60, 3))


@pytest.mark.slow
def test_a_batch_is_what_its_arrivals_are_one_by_one() -> None:
    rows = stream("emptied", 200, 3)
    whole, single = monitoring_of(all_queries(), 3), monitoring_of(all_queries(), 3)
    whole.update(rows.keys, rows.sites, rows.times, rows.streams)
    for i in range(len(rows)):
        one = slice(i, i + 1)
        single.update(rows.keys[one], rows.sites[one], rows.times[one], rows.streams[one])
    assert whole.channel.sent == single.channel.sent
    assert whole.phases == single.phases
    assert (whole.merged == single.merged).all()


SMALL: list[Query] = [
    Frequent(threshold=20, theta=0.3, window=120),
    SelfJoin(theta=0.3, window=120),
    Range(low=3, high=17, theta=0.3, window=120, least=3),
]


def exercise() -> None:
    for shape in ("drift", "emptied"):
        watch(monitoring_of(SMALL, 3, seed=1), stream(shape, 150, 3, seed=1))


INSTALL, RECEIVE, ADD = Site._install, Site.receive, zones._light_and_heavy
BALANCE, SHIFT, UPDATE = Coordinator._balance, Site._shift, Monitoring.update


def signs_as_printed(found: Reference, layout: Layout, query: Frequent | HeavyPrefixes, level: int) -> None:
    """Section 6.3: a key violates from tau (1 - theta) on if it was below tau, else below tau (1 + theta)."""
    ADD(found, layout, query, level)
    found.cell_limits[-1] = found.cell_limits[-1][::-1]


def the_global_vector_for_the_own(self: Site, found: Reference) -> None:
    """Section 6.4 as printed: the drift is from v(t0), the same at all sites."""
    vectors, at = self._arrays.vectors, self._index
    vectors.reported[at] = vectors.total[at] / self._arrays.layout.sites
    INSTALL(self, found)


def who_complained_is_not_told(self: Coordinator, talk: object, mean: float, state: int) -> list[Message]:
    return BALANCE(self, talk, mean, state)[1:]  # type: ignore[arg-type]


def nothing_expires(self: Site, found: Reference) -> None:
    INSTALL(self, found)
    self._arrays.counters.windows[:] = 1000 * np.array(self._arrays.layout.windows)


def expiry_in_the_cells_of_arrivals_alone(self: Monitoring, *rows: NDArray[Any]) -> None:
    """No tick looks at the other cells, so they keep what has left the window."""
    self._arrays.counters.heap_sizes[:] = 0
    UPDATE(self, *rows)


MISTAKES = {
    "the signs as printed": (zones, "_light_and_heavy", signs_as_printed),
    "v(t0) for a site's own vector": (Site, "_install", the_global_vector_for_the_own),
    "no echo: who complained is not told": (Coordinator, "_balance", who_complained_is_not_told),
    "expiry is not seen": (Site, "_install", nothing_expires),
    "expiry is not seen on ticks": (Monitoring, "update", expiry_in_the_cells_of_arrivals_alone),
    "lower conditions of sums are forgotten": (
        zones,
        "limits",
        lambda query, value: (-math.inf, value / (1 - query.theta)),
    ),
    "a flipped cell keeps its offset": (
        Site,
        "_shift",
        lambda self, condition, _, state: SHIFT(self, condition, 0.0, state),
    ),
}


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    monkeypatch.setattr(network, "RESTLESS", 200)
    modules_site_cache()
    with pytest.raises((AssertionError, SketchError)):
        exercise()
    modules_site_cache()


def modules_site_cache() -> None:
    """Zones are remembered by their sum; what a broken variant made must not stay."""
    site._reference_of.cache_clear()


def test_the_signs_as_printed_never_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "_light_and_heavy", signs_as_printed)
    monkeypatch.setattr(network, "RESTLESS", 200)
    modules_site_cache()
    monitoring = monitoring_of([Frequent(threshold=20, theta=0.3, window=120)], 3)
    rows = stream("steady", 120, 3)
    with pytest.raises(Undelivered, match="envelopes and no end"):
        monitoring.update(rows.keys, rows.sites, rows.times)
    modules_site_cache()


FORM = zones._form


def v_is_the_mean(found: Reference, layout: Layout, query: SelfJoin | InnerProduct) -> float:
    """Section 6.4 as printed: norms and thresholds of the mean, beside drifts that are not divided by n."""
    value = FORM(found, layout, query)
    found.form_rows[-1][:, 2:] /= layout.sites
    found.form_bounds[-2] /= layout.sites**2
    found.form_centres[-1] /= layout.sites
    return value


@pytest.mark.slow
def test_with_the_mean_for_the_sum_everything_is_n_times_too_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, collected = stream("steady", 500, 8), []
    for is_printed in (False, True):
        if is_printed:
            monkeypatch.setattr(zones, "_form", v_is_the_mean)
        modules_site_cache()
        monitoring = monitoring_of([SelfJoin(theta=0.6, window=400, by_norms=True)], 8)
        monitoring.update(rows.keys, rows.sites, rows.times)
        collected.append(monitoring.phases["second"])
    modules_site_cache()
    assert collected[1] > 2 * collected[0]


def test_the_signs_of_the_prose_of_6_4_never_notice_growth() -> None:
    """Q_u is for the norms less n d, Q_l for the norms and n d in the prose; the formulas have it right.

    n = 4 sites grow by half, or shrink by half: f leaves (1 +- theta), and a query has to tell.
    """
    n, theta = 4, 0.15
    first = np.random.default_rng(3).integers(1, 50, (n, 2, 21)).astype(np.float64)
    norms = np.linalg.norm(first.sum(axis=0), axis=1)
    f0 = float((norms**2).min())
    upper, lower = math.sqrt(f0 / (1 - theta)), math.sqrt(f0 / (1 + theta))
    for factor in (1.5, 0.5):
        drift = first * (factor - 1)
        f = float((np.linalg.norm((first + drift).sum(axis=0), axis=1) ** 2).min())
        assert not (1 - theta) * f <= f0 <= (1 + theta) * f
        up, down = (np.linalg.norm(np.maximum(part, 0), axis=2).mean(axis=0) * n for part in (drift, -drift))
        assert (norms + up).min() > upper or (norms - down).min() < lower
        assert not (norms - up).min() > upper
        assert not (norms + down).min() < lower


def test_33_minutes_are_2_million_milliseconds() -> None:
    """Section 7 has microseconds, of which 2 million are 2 seconds."""
    assert timedelta(milliseconds=2_000_000) == timedelta(minutes=33, seconds=20)
    assert timedelta(microseconds=2_000_000) == timedelta(seconds=2)


def test_a_key_that_shares_its_cells_with_frequent_ones_is_not_overlooked() -> None:
    """It never arrives: with a zone for the cells of each key, tested when it arrives, nobody would look."""
    query = Frequent(threshold=20, theta=0.3, window=1000)
    monitoring = Monitoring([query], 2, eps=0.5, delta=0.2, bits=None, seed=1)
    cells = monitoring.layout.cells_of(np.arange(5000, dtype=np.uint64))
    other = next(
        key for key in range(1, 5000) if cells[key, 0] != cells[0, 0] and cells[key, 1] != cells[0, 1]
    )
    shares = (cells[:, 0] == cells[0, 0]) & (cells[:, 1] == cells[other, 1])
    between = int(np.flatnonzero(shares)[0])
    keys = np.tile(np.array([0, other], np.uint64), 60)
    monitoring.update(keys, np.arange(120) // 2 % 2, np.arange(120))
    assert monitoring.is_frequent(query, np.array([0, other, between], np.uint64)).all()
    assert monitoring.merged[0][cells[between]].min() >= 20 * 1.3


def test_a_hostile_channel_changes_no_answer() -> None:
    channel = Channel(HOSTILE, 3)
    watch(monitoring_of(SMALL, 3, channel=channel), stream("drift", 60, 3))


@pytest.mark.parametrize("place", [1, COORDINATOR])
def test_a_place_that_was_started_again(place: int) -> None:
    """A site's counts are lost, which is told until the window has passed; a coordinator recovers all."""
    rows, monitoring = stream("steady", 300, 3), monitoring_of(SMALL, 3)
    oracle = Oracle(monitoring.layout)
    monitoring.update(rows.keys[:100], rows.sites[:100], rows.times[:100])
    monitoring.restart(place)
    if place == COORDINATOR:
        assert_quiet_state(monitoring, oracle)
    else:
        with pytest.raises(LostState, match="miss arrivals until"):
            monitoring.answer(SMALL[1])
        monitoring.tick(monitoring.now + 119)
        with pytest.raises(LostState):
            monitoring.is_frequent(SMALL[0], np.array([1], np.uint64))
        monitoring.tick(monitoring.now + 1)
    later = rows.times[100:] + 200
    for i in range(200):
        one = slice(100 + i, 101 + i)
        monitoring.update(rows.keys[one], rows.sites[one], later[i : i + 1])
        assert_quiet_state(monitoring, oracle)


@pytest.mark.slow
def test_against_true_counts_the_share_of_failures_is_at_most_delta() -> None:
    """Over seeds of the hashes, with the error of the sketch on top of theta."""
    eps = delta = 0.2
    theta, failed, seeds = 0.3, Counter[str](), 25
    queries: list[Query] = [
        Frequent(threshold=60, theta=theta, window=300),
        SelfJoin(theta=theta, window=300),
    ]
    for seed in range(seeds):
        rows = stream("drift", 400, 3, seed)
        monitoring = monitoring_of(queries, 3, seed)
        monitoring.update(rows.keys, rows.sites, rows.times)
        true = np.bincount(rows.keys[rows.times > monitoring.now - 300].astype(np.int64), minlength=KEYS)
        whole, squares = true.sum(), float((true.astype(np.float64) ** 2).sum())
        found = monitoring.is_frequent(queries[0], np.arange(KEYS, dtype=np.uint64))
        failed["missed"] += bool((true[~found] >= 60 * (1 + theta) + eps * whole).any())
        failed["by mistake"] += bool((true[found] <= 60 * (1 - theta) - eps * whole).any())
        value = monitoring.answer(queries[1]).value
        failed["self-join"] += abs(value - squares) > theta * squares + eps * whole**2
    most = delta * seeds + 3 * math.sqrt(delta * (1 - delta) * seeds)
    assert all(count <= most for count in failed.values()), failed


def test_heavy_prefixes_are_those_whose_ranges_are_heavy() -> None:
    query = HeavyPrefixes(threshold=30, theta=0.2, window=200)
    monitoring = monitoring_of([query], 2)
    keys = np.tile(np.array([64, 65, 66, 67, 3], np.uint64), 20)
    monitoring.update(keys, np.arange(100) % 2, np.arange(100))
    found = monitoring.heavy_prefixes(query)
    assert (1, 32) in found
    assert (1, 33) in found
    assert (2, 16) in found
    assert (0, 64) not in found


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"queries": []}, "got 0 queries"),
        ({"sites": 0}, "0 sites"),
        ({"sites": 2**16}, "65536 sites of 236 cells and 2 windows"),
        ({"bits": None}, "bits for what asks about ranges"),
        ({"queries": [SelfJoin(theta=1.0, window=5)]}, "expected 0 < theta < 1"),
        ({"queries": [Range(low=5, high=4, theta=0.1, window=5)]}, "low=5"),
        ({"eps": 0.0}, "expected 1e-6 <= eps < 1"),
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, object], message: str) -> None:
    right = {"queries": all_queries(), "sites": 2, "eps": 0.2, "delta": 0.2, "bits": BITS}
    with pytest.raises(SketchError, match=message):
        Monitoring(**{**right, **wrong})  # type: ignore[arg-type]


def test_arrivals_out_of_range_are_refused_and_change_nothing() -> None:
    monitoring = monitoring_of(SMALL, 2)
    key, zero = np.array([1], np.uint64), np.array([0])
    monitoring.update(key, zero, np.array([5]))
    before = monitoring.merged
    for keys, sites, times in [
        (key, np.array([2]), np.array([6])),
        (key, zero, np.array([4])),
        (np.array([KEYS], np.uint64), zero, np.array([6])),
        (key.astype(np.int64), zero, np.array([6])),
        (key, np.array([0, 0]), np.array([6])),
    ]:
        with pytest.raises(SketchError, match="expected one of each for an arrival"):
            monitoring.update(keys, sites, times)  # type: ignore[arg-type]
    with pytest.raises(SketchError, match="got the time 4 after 5"):
        monitoring.tick(4)
    with pytest.raises(SketchError, match="expected one of the queries"):
        monitoring.answer(SelfJoin(theta=0.1, window=7))
    assert (monitoring.merged == before).all()
    monitoring.update(key[:0], zero[:0], zero[:0])


def test_the_example_runs() -> None:
    assert doctest.testmod(modules).failed == 0
