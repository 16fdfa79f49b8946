"""Streams over sites, the exact counts of their windows, and what has to hold after every arrival."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.sketches.arrivals import zipf
from tidemark.sketches.geometric.layout import Layout
from tidemark.sketches.geometric.monitoring import Monitoring
from tidemark.sketches.geometric.queries import (
    Frequent,
    HeavyPrefixes,
    InnerProduct,
    Maximum,
    Quantile,
    Query,
    Range,
    SelfJoin,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
BITS = 7
KEYS = 2**BITS


@dataclass(frozen=True)
class Stream:
    """Arrivals in order of time."""

    keys: NDArray[np.uint64]
    sites: Ints
    times: Ints
    streams: Ints

    def __len__(self) -> int:
        return len(self.keys)


SHAPES = ("steady", "drift", "burst", "silent", "one site", "emptied")


def stream(shape: str, rows: int, sites: int, seed: int = 0) -> Stream:
    """Zipf's keys: steady, moving, in bursts of one key, with silent sites, at one site, with long pauses."""
    rng = np.random.default_rng(seed)
    keys, at = zipf(rng, 1.1, rows, KEYS), rng.integers(0, sites, rows)
    steps = rng.integers(0, 3, rows)
    if shape == "drift":
        keys = (keys + np.arange(rows) * KEYS // rows) % KEYS
    elif shape == "burst":
        keys = np.where(np.arange(rows) // 60 % 4 == 1, 99, keys)
        steps = np.where(np.arange(rows) // 60 % 4 == 1, 0, steps)
    elif shape == "silent":
        at = np.where(np.arange(rows) // 200 % 2 == 0, at, 0)
    elif shape == "one site":
        at[:] = sites - 1
    elif shape == "emptied":
        steps[rng.integers(0, rows, 6)] = 400
    return Stream(keys.astype(np.uint64), at, np.cumsum(steps), rng.integers(0, 2, rows))


@dataclass
class Window:
    """The arrivals of a window, exactly: what is true."""

    width: int
    arrivals: deque[tuple[int, int, int]] = field(default_factory=deque)
    counts: tuple[Counter[int], Counter[int]] = field(default_factory=lambda: (Counter(), Counter()))

    def move(self, now: int) -> None:
        while self.arrivals and self.arrivals[0][0] <= now - self.width:
            _, key, which = self.arrivals.popleft()
            self.counts[which][key] -= 1

    def add(self, now: int, key: int, which: int) -> None:
        self.arrivals.append((now, key, which))
        self.counts[which][key] += 1


class Oracle:
    """f of every query from a vector, written down plainly, for all keys at once."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        keys = np.arange(KEYS, dtype=np.uint64)
        self.of_key = layout.cells_of(keys)
        widths = [one.rows for one in layout.hashes]
        self.at = np.cumsum([0, *widths])

    def least(self, vector: Floats, level: int) -> Floats:
        """R of the range of that level that holds each key."""
        least: Floats = vector[self.of_key[:, self.at[level] : self.at[level + 1]]].min(axis=1)
        return least

    def row(self, vector: Floats, which: int) -> Floats:
        one, base = self.layout.hashes[0], which * self.layout.bases[-1]
        return vector[base : base + one.cells].reshape(one.rows, one.width)

    def covered(self, vector: Floats, low: int, stop: int) -> float:
        return float(sum(self.least(vector, lvl)[node << lvl] for lvl, node in self.layout.cover(low, stop)))

    def total(self, vector: Floats) -> float:
        return float(vector[self.layout.bases[-2] : self.layout.bases[-1]].sum())

    def value(self, query: Query, vector: Floats) -> float:
        if isinstance(query, SelfJoin):
            return float((self.row(vector, 0) ** 2).sum(axis=1).min())
        if isinstance(query, InnerProduct):
            return float((self.row(vector, 0) * self.row(vector, 1)).sum(axis=1).min())
        if isinstance(query, Range):
            return self.covered(vector, query.low, query.high + 1)
        assert isinstance(query, Maximum)
        return float(
            np.min([self.least(vector, level) for level in range(len(self.layout.hashes))], axis=0).max()
        )


def all_queries(theta: float = 0.2) -> list[Query]:
    return [
        Frequent(threshold=40, theta=theta, window=300),
        HeavyPrefixes(threshold=60, theta=theta, window=200),
        SelfJoin(theta=theta, window=300),
        SelfJoin(theta=theta, window=200, by_norms=True),
        InnerProduct(theta=theta, window=300, least=50),
        Range(low=3, high=17, theta=theta, window=300, least=5),
        Maximum(theta=theta, window=200, least=3),
        Quantile(phi=0.5, theta=theta, window=300),
    ]


def assert_quiet_state(monitoring: Monitoring, oracle: Oracle, where: str = "") -> None:
    """Every query's condition holds for the sum of all vectors, now that no message is under way."""
    merged, layout = monitoring.merged, monitoring.layout
    for query in layout.queries:
        vector, theta = merged[layout.window_of(query)], query.theta
        if isinstance(query, Frequent | HeavyPrefixes):
            levels = 1 if isinstance(query, Frequent) else len(layout.hashes)
            for level in range(levels):
                nodes = np.arange(KEYS >> level, dtype=np.uint64)
                least = oracle.least(vector, level)[:: 1 << level]
                found = monitoring.is_frequent(query, nodes, level)
                wrong = found & (least < query.threshold * (1 - theta))
                wrong |= ~found & (least >= query.threshold * (1 + theta))
                assert not wrong.any(), (where, query, level, np.flatnonzero(wrong), least[wrong])
            continue
        known = monitoring.answer(query)
        if isinstance(query, Quantile):
            key, whole = int(known.value), oracle.total(vector)
            slack = known.hi if known.lo < 0 else 0.0
            below, upto = oracle.covered(vector, 0, key), oracle.covered(vector, 0, key + 1)
            assert below <= (query.phi + theta) * whole + slack + 1e-6, (where, query, below, whole)
            assert upto >= (query.phi - theta) * whole - slack - 1e-6, (where, query, upto, whole)
            continue
        value = oracle.value(query, vector)
        assert known.lo * (1 - 1e-9) <= value <= known.hi * (1 + 1e-9), (where, query, known, value)


def assert_counts(monitoring: Monitoring, oracle: Oracle, windows: list[Window]) -> None:
    """The sum of all vectors is within the error of a counter of the exact counts, in each cell."""
    layout, merged = monitoring.layout, monitoring.merged
    for w, window in enumerate(windows):
        exact = np.zeros(layout.cells)
        for which, counts in enumerate(window.counts[: layout.streams]):
            cells = oracle.of_key[np.fromiter(counts, np.int64, len(counts))] + which * layout.bases[-1]
            np.add.at(exact, cells, np.fromiter(counts.values(), np.float64, len(counts))[:, None])
        wrong = np.abs(merged[w] - exact) > layout.eps_sw * exact + 1e-9
        assert not wrong.any(), (w, np.flatnonzero(wrong), merged[w][wrong], exact[wrong])


def watch(monitoring: Monitoring, rows: Stream) -> None:
    """Adds arrivals one by one, with a tick before each, and checks the quiet state after both."""
    oracle, two = Oracle(monitoring.layout), monitoring.layout.streams == 2
    windows = [Window(width) for width in monitoring.layout.windows]
    for i in range(len(rows)):
        one, now = slice(i, i + 1), int(rows.times[i])
        for window in windows:
            window.move(now)
            window.add(now, int(rows.keys[i]), int(rows.streams[i]) if two else 0)
        if i % 5 == 0 and now > monitoring.now:
            monitoring.tick(now)
            assert_quiet_state(monitoring, oracle, f"the tick before arrival {i}")
        monitoring.update(
            rows.keys[one], rows.sites[one], rows.times[one], rows.streams[one] if two else None
        )
        assert_quiet_state(monitoring, oracle, f"arrival {i}")
        assert_counts(monitoring, oracle, windows)
