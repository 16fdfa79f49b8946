"""Streams of keys over one hour, and the exact number of distinct keys in any window of them.

They stand for the data of Singh's thesis (Iowa State University, 2015, section 2.4.1.1), with far fewer rows.
Its trace of a network link, its bigrams and its graph are not ours: `pairs` has two ends, too, both of Zipf's
law, and like these data many keys that occur once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

MINUTE = 60
HOUR = 60 * MINUTE
STEP = 3 * MINUTE  # arrivals are added in batches of this long, and questions come between batches
FIRST_QUESTION = 45 * MINUTE
ENDS = 2_000  # of `pairs`


@dataclass(frozen=True, slots=True, eq=False)
class KeyStream:
    """Arrivals in order of time. times: seconds from 0, below HOUR."""

    keys: Keys
    times: Ints

    def batches(self) -> Iterator[tuple[int, Keys, Ints]]:
        """(now, keys, times) of each STEP; `now` is its last second."""
        for begin in range(0, HOUR, STEP):
            rows = slice(*np.searchsorted(self.times, [begin, begin + STEP]).tolist())
            yield begin + STEP - 1, self.keys[rows], self.times[rows]


def _uniform(rng: np.random.Generator, rows: int) -> Keys:
    return rng.integers(0, rows // 5, rows).astype(np.uint64)


def _zipf(rng: np.random.Generator, rows: int) -> Keys:
    chances = np.cumsum(1 / np.arange(1, 5_000_001) ** 1.3)
    keys: Keys = np.searchsorted(chances, rng.random(rows) * chances[-1]).astype(np.uint64)
    return keys


def _pairs(rng: np.random.Generator, rows: int) -> Keys:
    chances = np.cumsum(1 / np.arange(1, ENDS + 1))
    source, target = np.searchsorted(chances, rng.random((2, rows)) * chances[-1])
    keys: Keys = (source * ENDS + target).astype(np.uint64)
    return keys


MAKERS: dict[str, Callable[[np.random.Generator, int], Keys]] = {
    "uniform": _uniform,
    "Zipf 1.3": _zipf,
    "pairs": _pairs,
}


@cache
def key_stream(name: str, rows: int) -> KeyStream:
    """The stream of one of MAKERS, the same in every process."""
    rng = np.random.default_rng([6, rows])
    return KeyStream(MAKERS[name](rng, rows), np.sort(rng.integers(0, HOUR, rows)))


@cache
def distinct_keys(name: str, rows: int) -> int:
    """The number of different keys of the whole stream."""
    return len(np.unique(key_stream(name, rows).keys))


@cache
def exact_numbers(name: str, rows: int, windows: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """The exact number of distinct keys at each (now, window in seconds) that is asked."""
    stream = key_stream(name, rows)
    numbers, inverse = np.unique(stream.keys, return_inverse=True)
    newest = np.full(len(numbers), -1, np.int64)
    exact, begin = {}, 0
    for now, keys, times in stream.batches():
        newest[inverse[begin : begin + len(keys)]] = times  # of several, the last is written last
        begin += len(keys)
        if now >= FIRST_QUESTION - 1:
            for window in windows:
                exact[now, window] = int((newest > now - window).sum())
    return exact
