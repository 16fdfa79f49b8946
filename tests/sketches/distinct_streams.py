"""Streams of keys, their exact numbers of distinct keys, and sketches that take one arrival at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.sketches.arrivals import zipf
from tidemark.sketches import digest
from tidemark.sketches.distinct import (
    BJKST,
    DistinctCounter,
    LinearCounting,
    ListedCounting,
    MedianOf,
    RandomizedWave,
    SplitSum,
    StochasticAverage,
)
from tidemark.sketches.distinct.mixing import Hashes, mix, salt_of
from tidemark.sketches.errors import Saturated

Ints = NDArray[np.int64]
Factory = Callable[[int], DistinctCounter]

# By name, a sketch of a seed. These have errors of about a tenth, and fill up in streams of some thousands.
COUNTERS: dict[str, Factory] = {
    "PCSA": lambda seed: StochasticAverage(kind="PCSA", groups=64, seed=seed),
    "LogLog": lambda seed: StochasticAverage(kind="LogLog", groups=128, seed=seed),
    "LC": lambda seed: LinearCounting(cells=1000, seed=seed),
    "LC2": lambda seed: ListedCounting(cells=1000, seed=seed),
    "BJKST": lambda seed: BJKST(theta=64, seed=seed),
    "RW": lambda seed: RandomizedWave(capacity=96, seed=seed),
    "RW disjoint": lambda seed: RandomizedWave(capacity=64, lists="disjoint", seed=seed),
    "median of RW": lambda seed: MedianOf([RandomizedWave(capacity=48, seed=3 * seed + i) for i in range(3)]),
    "split LC2": lambda seed: SplitSum([ListedCounting(cells=250, seed=seed) for _ in range(4)]),
}
# So small that a few keys overflow every part of them.
TINY: dict[str, Factory] = {
    "PCSA": lambda seed: StochasticAverage(kind="PCSA", groups=3, seed=seed),
    "LogLog": lambda seed: StochasticAverage(kind="LogLog", groups=3, seed=seed),
    "LC": lambda seed: LinearCounting(cells=9, seed=seed),
    "LC2": lambda seed: ListedCounting(cells=9, seed=seed),
    "BJKST": lambda seed: BJKST(theta=3, seed=seed),
    "RW": lambda seed: RandomizedWave(capacity=2, seed=seed),
    "RW disjoint": lambda seed: RandomizedWave(capacity=2, lists="disjoint", seed=seed),
    "median of RW": lambda seed: MedianOf([RandomizedWave(capacity=1, seed=2 * seed + i) for i in range(2)]),
    "split LC2": lambda seed: SplitSum([ListedCounting(cells=4, seed=seed) for _ in range(2)]),
}


@dataclass(frozen=True)
class Stream:
    """Keys and their times, which never decrease."""

    keys: Ints
    times: Ints

    def since(self, time: int) -> "Stream":
        """The arrivals of a window."""
        inside = self.times >= time
        return Stream(self.keys[inside], self.times[inside])

    @property
    def distinct(self) -> int:
        return len(set(self.keys.tolist()))

    def batches(self, sizes: list[int]) -> list["Stream"]:
        """The stream cut into batches of these sizes, over and over."""
        ends = np.cumsum(np.resize(sizes, len(self.keys)))
        ends = ends[ends < len(self.keys)]
        parts = zip(np.split(self.keys, ends), np.split(self.times, ends), strict=True)
        return [Stream(keys, times) for keys, times in parts]


def counter_of(factory: Factory, stream: Stream, seed: int = 0) -> DistinctCounter:
    """A sketch of the whole stream as one batch."""
    counter = factory(seed)
    counter.update(digest(stream.keys), stream.times)
    return counter


def answer(counter: DistinctCounter, since: int) -> float | None:
    """The estimate; None where there is none."""
    try:
        return counter.distinct(since)
    except Saturated:
        return None


def hashes_of(keys: int, seed: int) -> Hashes:
    """The hashes of the keys 0 to keys - 1 in a sketch of this seed."""
    return mix(np.arange(keys, dtype=np.uint64), salt_of(seed))


def streams(rng: np.random.Generator, size: int = 3000) -> dict[str, Stream]:
    """Named streams, in orders that windows of distinct keys find hard."""
    ticks, seldom = np.arange(size), np.sort(rng.integers(0, size // 50, size))
    return {
        "all new": Stream(ticks, ticks),
        "all new, many at a time": Stream(ticks, seldom),
        "drawn": Stream(rng.integers(0, size, size), seldom),
        "few keys": Stream(rng.integers(0, 40, size), ticks),
        "skewed": Stream(zipf(rng, 1.1, size), ticks),
        "round and round": Stream(ticks % (size // 3), ticks),
        "there and back": Stream(np.abs(ticks - size // 2), ticks),
        "old keys return at the end": Stream(np.where(ticks < size - 100, ticks, ticks - size), ticks),
        "new keys, then one": Stream(np.minimum(ticks, size // 2), ticks),
        "at and before 0": Stream(ticks, ticks // 100 - size // 200),
    }


class PlainBJKST:
    """Applies the rule to every entry at every arrival: drop it once theta newer entries are smaller."""

    def __init__(self, theta: int) -> None:
        self.theta = theta
        self.entries: list[tuple[int, int]] = []  # hash and time, oldest first

    def add(self, key: int, time: int) -> None:
        entries = [*(entry for entry in self.entries if entry[0] != key), (key, time)]
        self.entries = [
            entry
            for place, entry in enumerate(entries)
            if sum(newer[0] < entry[0] for newer in entries[place:]) < self.theta
        ]


class PlainWave:
    """A randomised wave that moves keys to the front of plain lists, one arrival after the other."""

    def __init__(self, capacity: int, *, nested: bool) -> None:
        self.capacity, self.nested = capacity, nested
        self.lists: list[list[tuple[int, int]]] = [[] for _ in range(65)]
        self.horizons: list[int | None] = [None] * 65

    def add(self, key: int, time: int) -> None:
        level = (key & -key).bit_length() - 1 if key else 64
        for i in range(level + 1) if self.nested else [level]:
            kept = [*(entry for entry in self.lists[i] if entry[0] != key), (key, time)]
            if len(kept) > self.capacity:
                self.horizons[i] = kept.pop(0)[1]
            self.lists[i] = kept

    def distinct(self, since: int) -> float:
        complete = [horizon is None or horizon < since for horizon in self.horizons]
        level = next(i for i in range(65) if (complete[i] if self.nested else all(complete[i:])))
        counted = self.lists[level : level + 1] if self.nested else self.lists[level:]
        return 2.0**level * sum(time >= since for entries in counted for _, time in entries)
