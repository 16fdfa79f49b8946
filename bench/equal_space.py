"""Sketches of distinct keys at equal space, and how far they err: what part `distinct-sketches` measures.

An error is |estimate / D - 1|. A sketch is asked every STEP from the 45th minute on. Each answer is first
held against the exact number: it may be 5 standard errors off at most, and is exact where the sketch says so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from unittest.mock import patch

import datasketches
import numpy as np
from numpy.typing import NDArray

from bench.key_streams import HOUR, MINUTE, Keys, KeyStream, distinct_keys, exact_numbers, key_stream
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
from tidemark.sketches.distinct.bjkst import ENTRY_BYTES
from tidemark.sketches.distinct.mixing import mix
from tidemark.sketches.distinct.stochastic_average import PLACES
from tidemark.sketches.errors import Saturated
from tidemark.sketches.hashing.row_hashes import splitmix

NAMES = ("PCSA", "DF", "LC", "LC2", "BJKST", "RW", "RW disjoint")
WINDOW = 45 * MINUTE
TIME_BYTES = 8
PRIME = 2**64 - 59
MIX = "tidemark.sketches.distinct.arrivals.mix"  # the hash function of all sketches


@dataclass(frozen=True, slots=True)
class Case:
    """One sketch over one stream.

    space: in bytes, of all parts together. boost: how `parts` sketches are made one; "" for one sketch.
    hashing: one of HASHES; "" for that of the sketches.
    windows: in seconds.
    """

    stream: str
    rows: int
    name: str
    space: int
    seed: int
    windows: tuple[int, ...] = (WINDOW,)
    parts: int = 1
    boost: str = ""
    hashing: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The mean and greatest error of each window; NaN where a question had no answer. held: mean bytes."""

    mean: tuple[float, ...]
    greatest: tuple[float, ...]
    held: float


def sketch_of(name: str, space: int, distinct: float, seed: int) -> DistinctCounter:
    """The sketch that takes about `space` bytes for a stream with `distinct` keys; none takes fewer."""
    match name:
        case "PCSA":
            return StochasticAverage(kind="PCSA", groups=space // (TIME_BYTES * PLACES), seed=seed)
        case "DF":
            return StochasticAverage(kind="LogLog", groups=space // (TIME_BYTES * PLACES), seed=seed)
        case "LC":
            return LinearCounting(cells=space // TIME_BYTES, seed=seed)
        case "LC2":
            return ListedCounting(cells=space // (2 * TIME_BYTES), seed=seed)
        case "BJKST":
            return BJKST(theta=_greatest(partial(_bjkst_entries, distinct), space // ENTRY_BYTES), seed=seed)
        case "RW":
            capacity = _greatest(partial(_wave_entries, distinct), space // ENTRY_BYTES)
            return RandomizedWave(capacity=capacity, seed=seed)
        case _:
            capacity = _greatest(partial(_wave_entries, distinct / 2), space // ENTRY_BYTES)
            return RandomizedWave(capacity=capacity, lists="disjoint", seed=seed)


def _bjkst_entries(distinct: float, theta: int) -> float:
    """Between two applications of the rule there are up to a quarter more; we take half of that."""
    return 1.125 * theta * (1 + math.log(max(1, distinct / theta)))


def _wave_entries(keys: float, capacity: int) -> float:
    """keys: of the first list; each has half as many as the one before."""
    return math.fsum(min(capacity, keys / 2.0**level) for level in range(64))


def _greatest(entries: Callable[[int], float], most: int) -> int:
    """The greatest size of which the entries are at most `most`; entries grow with the size."""
    low, high = 3, max(4, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if entries(middle) <= most else (low, middle)
    return low


def boosted(case: Case, distinct: float) -> DistinctCounter:
    """The sketch of a case: one, the median of `parts`, or their sum, in the same space."""
    space = case.space // case.parts
    if case.boost == "median":
        seeds = range(case.parts * case.seed, case.parts * (case.seed + 1))
        return MedianOf([sketch_of(case.name, space, distinct, seed) for seed in seeds])
    if case.boost == "split":
        share = distinct / case.parts
        return SplitSum([sketch_of(case.name, space, share, case.seed) for _ in range(case.parts)])
    return sketch_of(case.name, space, distinct, case.seed)


def measure(case: Case) -> Outcome:
    """The errors of one case."""
    stream = key_stream(case.stream, case.rows)
    exact = exact_numbers(case.stream, case.rows, case.windows)
    sketch = boosted(case, distinct_keys(case.stream, case.rows))
    errors: dict[int, list[float]] = {window: [] for window in case.windows}
    digests = HASHES[case.hashing](stream.keys, case.seed) if case.hashing else stream.keys
    held = []
    # What is hashed already is not mixed again.
    with patch(MIX, (lambda hashes, _: hashes) if case.hashing else mix):
        begin = 0
        for now, keys, times in stream.batches():
            sketch.update(digests[begin : begin + len(keys)], times)
            begin += len(keys)
            for window in case.windows:
                if (distinct := exact.get((now, window))) is not None:
                    errors[window].append(_error(sketch, now - window + 1, distinct, not case.hashing))
                    held.append(sketch.nbytes)
    sketch.check_invariants()
    return Outcome(
        tuple(float(np.mean(found)) for found in errors.values()),
        tuple(float(np.max(found)) for found in errors.values()),
        float(np.mean(held)),
    )


def _error(sketch: DistinctCounter, since: int, distinct: int, is_checked: bool) -> float:
    try:
        error = abs(sketch.distinct(since) / distinct - 1)
    except Saturated:
        return math.nan
    if is_checked and _is_normal(sketch, distinct):
        assert error <= 5 * sketch.relative_error(distinct), (sketch, since, distinct, error)
    return error


def _is_normal(sketch: DistinctCounter, distinct: int) -> bool:
    """Whether the formula of the standard error holds: the modules of the sketches say where."""
    if isinstance(sketch, MedianOf | SplitSum):
        shares = len(sketch.parts) if isinstance(sketch, SplitSum) else 1
        return all(_is_normal(part, distinct // shares) for part in sketch.parts)
    if isinstance(sketch, StochasticAverage):
        return distinct >= 10 * sketch.groups >= 640
    if isinstance(sketch, LinearCounting | ListedCounting):
        return sketch.cells * math.exp(-distinct / sketch.cells) >= 20  # cells that are left
    return True


def _bytes(keys: Keys) -> NDArray[np.uint8]:
    return keys.astype("<u8").view(np.uint8).reshape(-1, 8)


def _fnv(keys: Keys, seed: int) -> Keys:
    """FNV-1a of eight bytes of the seed, then of the eight of the key."""
    state = np.full(len(keys), 0xCBF29CE484222325, np.uint64)
    for column in [*np.uint64(seed).reshape(1).view(np.uint8), *_bytes(keys).T]:
        state = (state ^ column) * np.uint64(0x100000001B3)
    return state


def _each(function: Callable[[int], int], keys: Keys) -> Keys:
    numbers, inverse = np.unique(keys, return_inverse=True)
    hashes: Keys = np.array([function(key) for key in numbers.tolist()], np.uint64)[inverse]
    return hashes


def _sha1(keys: Keys, seed: int) -> Keys:
    """The first eight bytes of SHA-1."""

    def digest(key: int) -> int:
        text = (seed << 64 | key).to_bytes(16, "little")
        return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:8], "little")

    return _each(digest, keys)


def _modulo(keys: Keys, seed: int) -> Keys:
    """(a * x + b) modulo a prime next to 2**64."""
    rng = np.random.default_rng([8, seed])
    a, b = (int(number) for number in rng.integers(1, PRIME, 2, np.uint64))
    return _each(lambda key: (a * key + b) % PRIME, keys)


HASHES: dict[str, Callable[[Keys, int], Keys]] = {
    "MurmurHash3's last step": lambda keys, seed: splitmix(keys + splitmix(np.array([seed], np.uint64))),
    "FNV-1a": _fnv,
    "SHA-1": _sha1,
    "modulo congruential": _modulo,
    "none": lambda keys, _: keys,
}


def whole_stream_peers(
    stream: KeyStream, sizes: Sequence[int], seeds: int
) -> dict[str, list[tuple[float, float]]]:
    """(bytes, mean error over the seeds) of DataSketches' HLL and theta, which know no window."""
    keys = np.unique(stream.keys)
    series: dict[str, list[tuple[float, float]]] = {"DataSketches HLL": [], "DataSketches theta": []}
    for lg_k in sizes:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in series}
        for seed in range(seeds):
            hll = datasketches.hll_sketch(lg_k, datasketches.HLL_8)
            theta = datasketches.update_theta_sketch(lg_k, seed=9001 + seed)
            # HLL takes no seed: another salt is another set of keys.
            for key in (keys + np.uint64(seed << 40)).tolist():
                hll.update(key)
                theta.update(key)
            for name, estimate, held in (
                ("DataSketches HLL", hll.get_estimate(), len(hll.serialize_updatable())),
                ("DataSketches theta", theta.get_estimate(), len(theta.compact().serialize())),
            ):
                error = abs(estimate / len(keys) - 1)
                assert error <= 5 * 1.04 / math.sqrt(2**lg_k), (name, lg_k, error)
                found[name].append((held, error))
        for name, points in found.items():
            series[name].append(
                (float(np.mean([p[0] for p in points])), float(np.mean([p[1] for p in points])))
            )
    return series


def hll_by_minute(stream: KeyStream, lg_k: int, seeds: int) -> tuple[float, float]:
    """(bytes, mean error) of an HLL for each minute, joined for the last WINDOW: no time is stored."""
    errors, held = [], 0
    exact = len(np.unique(stream.keys[stream.times >= HOUR - WINDOW]))
    for seed in range(seeds):
        minutes, held = [], 0
        for begin in range(0, HOUR, MINUTE):
            rows = slice(*np.searchsorted(stream.times, [begin, begin + MINUTE]).tolist())
            sketch = datasketches.hll_sketch(lg_k, datasketches.HLL_8)
            for key in np.unique(stream.keys[rows] + np.uint64(seed << 40)).tolist():
                sketch.update(key)
            held += len(sketch.serialize_updatable())
            minutes.append(sketch)
        union = datasketches.hll_union(lg_k)
        for sketch in minutes[-WINDOW // MINUTE :]:
            union.update(sketch)
        errors.append(abs(union.get_estimate() / exact - 1))
        assert errors[-1] <= 5 * 1.04 / math.sqrt(2**lg_k), errors
    return float(held), float(np.mean(errors))
