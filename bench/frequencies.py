"""Part `sketches`: the frequency sketches by themselves.

First the experiments of the ECM paper (VLDB Journal 2015, section 7) in shape: exponential histograms,
deterministic and randomised waves in one sketch each, over ranges [t - 10**i, t], one point query for each
key of the range; and the same from 16 sites that merge in a binary tree. An error is that of the estimate
over the arrivals of the range. Size is that of the stored form.

Then throughput on one core beside probstructs' ECM, and beside datasketches' Count-Min and Python's Counter,
which know no time: they do less. All are called key by key, as they are made to be.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasketches
import numpy as np
from numpy.typing import NDArray

from bench.plots import plot_sketches
from bench.report import Section, number, say, table
from tidemark.sketches import ECM, Counting, merge_ecm
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.ecm.ecm_sizes import sizes_for_inner_products, sizes_for_points
from tidemark.sketches.hashing.row_hashes import RowHashes

DELTA = 0.1
SITES = 16
CONSTANT = 6  # of randomised waves: what the paper measures with
BATCH = 2**17
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    accuracy: int = 200_000
    eps: tuple[float, ...] = (0.05, 0.1, 0.15, 0.2, 0.25)
    updates: int = 10_000_000
    by_key: int = 500_000
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Stream:
    """Arrivals in order: keys by Zipf's law, several a unit of time."""

    keys: NDArray[np.uint64]
    times: Ints

    @classmethod
    def of(cls, size: int) -> Stream:
        """The same in every run."""
        rng = np.random.default_rng([4, size])
        keys = np.minimum(rng.zipf(1.2, size), 100_000).astype(np.uint64)
        return cls(keys, np.sort(rng.integers(0, 10 * size, size)))

    def ranges(self) -> list[int]:
        """Where the ranges of length 100, 1,000 ... begin."""
        now = int(self.times[-1])
        return [now - 10**i for i in range(2, int(math.log10(now)) + 1)]


def run(out: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("sketches", "Frequency sketches")
    _accuracy(section, out, sizes)
    for eps, delta, target in ((0.1, 0.15, 10.0), (0.01, 0.01, 5.0)):
        _throughput(section, sizes, eps, delta, target)
    return section


def _accuracy(section: Section, out: Path, sizes: Sizes) -> None:
    stream = Stream.of(sizes.accuracy)
    rows: list[list[object]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    kinds: tuple[CounterKind, ...] = ("EH", "DW", "RW")
    for kind in kinds:
        for eps in sizes.eps:
            one, merged = central(stream, kind, eps), merged_tree(stream, kind, eps)[0]
            errors = [point_errors(sketch, stream) for sketch in (one, merged)]
            held = [len(sketch.to_bytes()) / 1024 for sketch in (one, merged)]
            for name, size, error in zip(("one site", f"{SITES} sites"), held, errors, strict=True):
                series.setdefault(f"{kind}, {name}", []).append((size, float(error.mean())))
            rows.append(
                [
                    kind,
                    eps,
                    *(f"{number(size)} KB" for size in held),
                    *(number(float(pick(error))) for pick in (np.mean, np.max) for error in errors),
                    number(merged.point_eps),
                    *_join_errors(stream, kind, eps),
                ]
            )
            say(f"answers of {kind} at eps = {eps}: upper bounds hold, errors within eps")
    head = [
        "counter",
        "eps",
        "size",
        "merged",
        "mean error",
        "merged",
        "greatest",
        "merged",
        "merged promise",
        "self-join error",
        "merged",
    ]
    section.text(
        f"{sizes.accuracy:,} arrivals, delta = {DELTA}; merged: {SITES} sites in a binary tree, four merges "
        f"above each other. Randomised waves with c = {CONSTANT}."
    )
    section.text(table(head, rows))
    path = out / "sketches.png"
    out.mkdir(parents=True, exist_ok=True)
    plot_sketches(path, series)
    section.plot(path, "Mean error of point queries by size")


def _sketch(kind: CounterKind, eps: float, site: int = 0, *, joins: bool = False) -> ECM:
    if joins:
        sizes = sizes_for_inner_products(eps, DELTA)
    else:
        sizes = sizes_for_points(eps, DELTA, randomised=kind == "RW")
    counting = Counting(kind, sizes.eps_sw, delta=sizes.delta_sw, constant=CONSTANT, site=site)
    return ECM.of(RowHashes(sizes.rows, sizes.width, 1), counting, eps=eps, delta=DELTA)


def central(stream: Stream, kind: CounterKind, eps: float, *, joins: bool = False) -> ECM:
    """One sketch of the whole stream."""
    sketch = _sketch(kind, eps, joins=joins)
    sketch.update(stream.keys, stream.times)
    return sketch


def merged_tree(
    stream: Stream, kind: CounterKind, eps: float, *, sites: int = SITES, joins: bool = False
) -> tuple[ECM, int]:
    """The sketches of sites, a power of two, merged in a binary tree; and the bytes that travel for it."""
    site = np.random.default_rng(5).integers(0, sites, len(stream.keys))
    level, sent = [], 0
    for number_ in range(sites):
        level.append(_sketch(kind, eps, number_, joins=joins))
        level[-1].update(stream.keys[site == number_], stream.times[site == number_])
    while len(level) > 1:
        sent += sum(len(one.to_bytes()) for one in level)
        level = [merge_ecm(pair) for pair in zip(level[::2], level[1::2], strict=True)]
    return level[0], sent


def point_errors(sketch: ECM, stream: Stream) -> NDArray[np.float64]:
    """The errors of all point queries of all ranges, over the arrivals of the range."""
    certain = sketch.counts.counting.kind != "RW"
    errors = []
    for since in stream.ranges():
        keys, counts = np.unique(stream.keys[stream.times >= since], return_counts=True)
        found = sketch.points(keys, since)
        assert not certain or (counts <= found.hi).all(), "an upper bound does not hold"
        error = np.abs(found.estimate - counts) / counts.sum()
        assert (error > sketch.point_eps).mean() <= DELTA, "eps is missed more often than delta"
        errors.append(error)
    return np.concatenate(errors)


def _join_errors(stream: Stream, kind: CounterKind, eps: float) -> list[str]:
    """The mean error of self-joins over all ranges, over the square of the arrivals: one site, and merged."""
    if kind == "RW":  # nothing is proved for them
        return ["", ""]
    one, merged = central(stream, kind, eps, joins=True), merged_tree(stream, kind, eps, joins=True)[0]
    return [number(join_error(sketch, stream)) for sketch in (one, merged)]


def join_error(sketch: ECM, stream: Stream) -> float:
    """The mean error of self-joins over all ranges, over the square of the arrivals."""
    errors = []
    for since in stream.ranges():
        counts = np.unique(stream.keys[stream.times >= since], return_counts=True)[1]
        true, found = int((counts**2).sum()), sketch.self_join(since)
        assert true <= found.hi, "an upper bound does not hold"
        errors.append(abs(found.estimate - true) / int(counts.sum()) ** 2)
    return float(np.mean(errors))


def _throughput(section: Section, sizes: Sizes, eps: float, delta: float, target: float) -> None:
    stream = Stream.of(sizes.updates)
    since = int(stream.times[len(stream.times) // 2])
    named = f"eps = {eps}, delta = {delta}"
    keys, counts = np.unique(stream.keys[stream.times >= since], return_counts=True)
    kinds: tuple[CounterKind, ...] = ("EH", "DW")
    for kind in kinds:
        sketch = _filled(stream, kind, eps, delta)
        found = sketch.points(keys, since)
        assert (counts <= found.hi).all(), "an upper bound does not hold"
        off = np.abs(found.estimate - counts) > eps * counts.sum()
        assert off.mean() <= delta, "eps is missed more often than delta"
        say(f"answers of {kind} at {named}: {len(keys)} keys in half of the stream")

        fill = partial(_filled, stream, kind, eps, delta)
        rate = sizes.updates / _seconds(fill, sizes.repeats) / 1e6
        goal = target if kind == "EH" else None
        section.add(f"updates a second, {kind}, {named}", rate, "million", goal, at_least=True)
        asked = stream.keys[: min(10**6, sizes.updates)]
        rate = len(asked) / _seconds(partial(sketch.points, asked, since), sizes.repeats) / 1e6
        section.add(f"point queries a second, {kind}, {named}", rate, "million", 1.0, at_least=True)
        section.add(f"stored form, {kind}, {named}", len(sketch.to_bytes()) / 1024, "KB")
    _peers(section, sizes, stream, eps, delta, named)


def _peers(section: Section, sizes: Sizes, stream: Stream, eps: float, delta: float, named: str) -> None:
    """Others' sketches and a Counter over the same keys, one by one."""
    listed = stream.keys[: sizes.by_key].tolist()
    rows, width = math.ceil(math.log(1 / delta)), math.ceil(math.e / eps)

    def count_min() -> Any:
        sketch = datasketches.count_min_sketch(rows, width)
        for key in listed:
            sketch.update(key)
        return sketch

    exact, sketch = Counter(listed), count_min()
    assert all(sketch.get_estimate(key) >= count for key, count in exact.items())
    rate = len(listed) / _seconds(count_min, sizes.repeats) / 1e6
    section.add(f"updates a second, datasketches Count-Min, {named}", rate, "million")
    rate = len(listed) / _seconds(lambda: [sketch.get_estimate(key) for key in listed], sizes.repeats) / 1e6
    section.add(f"point queries a second, datasketches Count-Min, {named}", rate, "million")
    rate = len(listed) / _seconds(lambda: Counter(listed), sizes.repeats) / 1e6
    section.add(f"updates a second, Counter, {named}", rate, "million")
    _probstructs(section, sizes, listed, eps, delta, named)


def _probstructs(
    section: Section, sizes: Sizes, listed: list[int], eps: float, delta: float, named: str
) -> None:
    """Its ECM with as many cells; windows are of the last arrivals, keys are text."""
    try:
        import probstructs  # noqa: PLC0415  there is no package of it for some Pythons
    except ImportError:
        section.text("probstructs has no package for this Python; its ECM was not measured.")
        return
    shape = sizes_for_points(eps, delta)
    texts = [str(key) for key in listed]

    def filled() -> Any:
        sketch = probstructs.ExponentialCountMinSketch(shape.width, shape.rows, len(texts))
        for position, key in enumerate(texts, start=1):
            sketch.inc(key, position, 1)
        return sketch

    sketch, window = filled(), len(texts) // 2
    exact = Counter(texts[-window:])
    off = [abs(sketch.get(key, window, len(texts)) - count) > eps * window for key, count in exact.items()]
    assert np.mean(off) <= delta, "eps is missed more often than delta"
    rate = len(texts) / _seconds(filled, sizes.repeats) / 1e6
    section.add(f"updates a second, probstructs ECM, {named}", rate, "million")
    asked = _seconds(lambda: [sketch.get(key, window, len(texts)) for key in exact], sizes.repeats)
    section.add(f"point queries a second, probstructs ECM, {named}", len(exact) / asked / 1e6, "million")


def _filled(stream: Stream, kind: CounterKind, eps: float, delta: float) -> ECM:
    sketch = ECM(eps, delta, kind=kind)
    for start in range(0, len(stream.keys), BATCH):
        batch = slice(start, start + BATCH)
        sketch.update(stream.keys[batch], stream.times[batch])
    return sketch


def _seconds(call: Callable[[], object], repeats: int) -> float:
    """The least of a few runs: others on the machine can only add to it."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)
