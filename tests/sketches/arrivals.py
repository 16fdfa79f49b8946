"""Exact counts of arrivals, plain counters after the books, and checks that hold every bound against them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import ECM, Counting, WindowCounts, digest
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.counters.exponential_histogram import most_buckets

Ints = NDArray[np.int64]


@dataclass
class History:
    """Every arrival, in a plain array: what is true."""

    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    times: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, keys: Ints, times: Ints, counts: Ints | None = None) -> None:
        often = 1 if counts is None else counts
        self.keys = np.concatenate([self.keys, np.repeat(keys, often)])
        self.times = np.concatenate([self.times, np.repeat(times, often)])

    def between(self, since: int | None = None, until: int | None = None) -> Counter[int]:
        inside = np.ones(len(self.keys), bool)
        if since is not None:
            inside &= self.times >= since
        if until is not None:
            inside &= self.times < until
        return Counter(self.keys[inside].tolist())


def zipf(rng: np.random.Generator, skew: float, size: int, keys: int = 5000) -> Ints:
    """Keys of which the i-th is drawn in proportion to 1 / i**skew."""
    weights = 1 / np.arange(1, keys + 1) ** skew
    return rng.choice(keys, size, p=weights / weights.sum())


def history_of(times: Ints, counts: Ints | None = None) -> History:
    history = History()
    history.add(np.zeros(len(times), np.int64), times, counts)
    return history


def joined(histories: Iterable[History]) -> History:
    whole = History()
    for one in histories:
        whole.add(one.keys, one.times)
    return whole


def assert_counts(counts: WindowCounts, times: Ints, since: Iterable[int] | None = None) -> None:
    """One cell: invariants, and bounds and error of every window that begins where it can matter."""
    times = np.sort(times)
    assert counts.n == len(times), "arrivals were lost or counted twice"
    counts.check_invariants()
    horizon = counts.horizon
    asked = since if since is not None else [t + by for t in np.unique(times).tolist() for by in (-1, 0, 1)]
    for time in asked:
        if horizon is not None and time <= horizon:
            continue
        found = counts.since(time)[0]
        true = len(times) - int(np.searchsorted(times, time))
        assert found.lo <= true <= found.hi, f"since {time}: {true} is outside {found}"
        assert abs(found.estimate - true) <= counts.error * true + 1e-9, f"since {time}: {found} for {true}"
    if horizon is None:
        whole = counts.since()[0]
        assert whole.lo == whole.hi == len(times), "the whole is not exact"


def assert_points(
    sketch: ECM,
    history: History,
    windows: Sequence[tuple[int | None, int | None]],
    *,
    eps: float | None = None,
    fails: float | None = None,
) -> None:
    """Keys that arrived, and some that did not: hi always holds, lo and eps in 1 - delta of the cases."""
    keys = np.concatenate([np.unique(history.keys), np.arange(10**6, 10**6 + 200)])
    sketch.counts.check_invariants()
    promised = sketch.point_eps if eps is None else eps
    allowed = sketch.delta if fails is None else fails
    for since, until in windows:
        true = history.between(since, until)
        counts = np.array([true[key] for key in keys.tolist()])
        found = sketch.points(digest(keys), since, until)
        n = sketch.total(since, until)
        assert n.lo <= true.total() <= n.hi
        assert (counts <= found.hi).all(), "a key has more arrivals than its upper bound"
        assert (counts < found.lo).mean() <= allowed, "lower bounds fail more often than delta"
        assert (found.lo <= found.estimate).all()
        assert (found.estimate <= found.hi).all()
        if until is None:
            off = np.abs(found.estimate - counts) > promised * true.total() + 1e-9
            assert off.mean() <= allowed, "eps * n is missed more often than delta"


class PlainHistogram:
    """An exponential histogram that takes one arrival after the other, as the books tell it."""

    def __init__(self, eps: float) -> None:
        self.most = most_buckets(eps)
        self.levels: list[list[int]] = []

    def add(self, time: int, level: int = 0) -> None:
        if level == len(self.levels):
            self.levels.append([])
        self.levels[level].append(time)
        if len(self.levels[level]) > self.most[min(level, 1)]:
            _, later, *rest = self.levels[level]
            self.levels[level] = rest
            self.add(later, level + 1)

    def buckets(self) -> list[tuple[int, int]]:
        return [(t, 2**level) for level in reversed(range(len(self.levels))) for t in self.levels[level]]


class PlainWave:
    """A deterministic wave that takes one arrival after the other: for each level its last ranks."""

    def __init__(self, places: int) -> None:
        self.places, self.rank = places, 0
        self.levels: dict[int, list[tuple[int, int]]] = {}

    def add(self, time: int) -> None:
        self.rank += 1
        level = (self.rank & -self.rank).bit_length() - 1
        self.levels[level] = [*self.levels.get(level, []), (self.rank, time)][-self.places :]

    def buckets(self) -> list[tuple[int, int]]:
        kept = sorted(entry for level in self.levels.values() for entry in level)
        ranks = [0, *(rank for rank, _ in kept)]
        return [(time, rank - before) for (rank, time), before in zip(kept, ranks, strict=False)]


def single(kind: CounterKind, eps: float, window: int | None = None) -> WindowCounts:
    return WindowCounts(Counting(kind, eps, window))
