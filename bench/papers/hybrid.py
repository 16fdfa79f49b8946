"""Quantiles over history and a stream after Singh (2015), section 4.5: errors at equal memory, accesses.

Arrays stand for the disk, with 100 blocks a step instead of 5,000. A merge reads and writes its blocks; a
query reads, in each run, the blocks between its two ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.bounds.rank_bounds import RankBounds, combine
from tidemark.sketches.bounds.target_rank import target_rank
from tidemark.sketches.gk.gk import GK
from tidemark.sketches.qdigest import QDigest
from tidemark.warehouse.runs.levels import Layout, Run, plan_merge

Ints = NDArray[np.int64]
TUPLE, NODE, MARK = 24, 16, 16  # bytes of a tuple of GK, of a node of Q-digest, of a mark
BITS = 30
FIGURES = {"Uniform": "4.3a", "Normal": "4.4a", "Page sizes": "4.5a"}
PHIS = np.arange(1, 20) / 20
LAWS = ("Normal", "Uniform", "Page sizes")  # the last: log-normal, as sizes of pages are


@dataclass(frozen=True, slots=True)
class Sizes:
    """steps: T. blocks: of a step. rows: of a block. memories: KB."""

    steps: int = 100
    blocks: int = 100
    rows: int = 200
    memories: tuple[int, ...] = (20, 40, 80, 160)
    memory: int = 80
    kappas: tuple[int, ...] = (2, 3, 5, 9, 10, 20, 40)


QUICK = Sizes(12, 10, 50, (10, 20), 20, (2, 10))


@dataclass(frozen=True, slots=True)
class Loads:
    """Of a rule: the runs at the end, and the blocks that each step read and wrote."""

    runs: tuple[Run, ...]
    accesses: list[int]


def loads(kappa: int, sizes: Sizes, *, oldest: bool) -> Loads:
    """All steps by a rule: whole levels in one merge, as here, or the kappa oldest runs of a level."""
    layout, accesses = Layout(()), []
    for _ in range(sizes.steps):
        layout = Layout((*layout.runs, layout.add_step()))
        cost = sizes.blocks
        for inputs, output in _oldest(layout, kappa) if oldest else _whole(layout, kappa):
            kept = [run for run in layout.runs if run not in inputs]
            layout = Layout(tuple(sorted([*kept, output])))
            cost += 2 * sizes.blocks * sum(run.last - run.first + 1 for run in inputs)
        accesses.append(cost)
    return Loads(layout.runs, accesses)


def _whole(layout: Layout, kappa: int) -> Iterator[tuple[tuple[Run, ...], Run]]:
    merge = plan_merge(layout, kappa)
    if merge is not None:
        yield merge.inputs, merge.output


def _oldest(layout: Layout, kappa: int) -> Iterator[tuple[tuple[Run, ...], Run]]:
    """The merges of a step, one a level."""
    runs, level = list(layout.runs), 0
    while len(found := [run for run in runs if run.level == level]) > kappa:
        inputs = tuple(found[:kappa])
        output = Run(inputs[0].first, inputs[-1].last, level + 1)
        yield inputs, output
        runs = sorted([*(run for run in runs if run not in inputs), output])
        level += 1


def windows(runs: Sequence[Run], steps: int) -> list[int]:
    """The windows, in steps up to now, that begin where a run does."""
    return sorted(steps - run.first for run in runs)


def _drawn(law: str, rng: np.random.Generator, size: int) -> Ints:
    if law == "Page sizes":  # in bytes, of which many are equal
        return np.minimum(rng.lognormal(8, 1.5, size), 2.0**BITS - 1).astype(np.int64)
    return (
        rng.normal(1e8, 1e7, size).astype(np.int64) if law == "Normal" else rng.integers(10**8, 10**9, size)
    )


@dataclass(frozen=True, slots=True)
class World:
    """History by step, sorted, the live rows, and all of them, sorted."""

    steps: list[Ints]
    live: Ints
    every: Ints

    @classmethod
    def of(cls, law: str, sizes: Sizes) -> World:
        """Drawn with one seed."""
        rng, size = np.random.default_rng(7), sizes.blocks * sizes.rows
        parts = [np.sort(_drawn(law, rng, size)) for _ in range(sizes.steps + 1)]
        return cls(parts[:-1], parts[-1], np.sort(np.concatenate(parts)))

    def error(self, found: Sequence[int]) -> float:
        """The mean of |phi N - r| / (phi N) over PHIS, r the rank of what was found that is nearest."""
        ranks = np.array([target_rank(phi, len(self.every)) for phi in PHIS])
        first = np.searchsorted(self.every, found) + 1
        last = np.maximum(first, np.searchsorted(self.every, found, "right"))
        return float(np.mean(np.maximum(0, np.maximum(first - ranks, ranks - last)) / ranks))


@dataclass(frozen=True, slots=True)
class Answered:
    """Errors of the quick and the accurate answers, and the blocks a query reads in the mean."""

    quick: float
    accurate: float
    accesses: float


def hybrid(world: World, runs: Sequence[Run], memory: int, sizes: Sizes) -> Answered:
    """Half of the memory, in bytes, for marks of the runs, evenly by rows, half for GK over the stream."""
    stored = [np.sort(np.concatenate(world.steps[run.first : run.last + 1])) for run in runs]
    grain = max(1, -(-sum(map(len, stored)) * MARK // (memory // 2)))
    stream = gk_within(world.live[np.random.default_rng(1).permutation(len(world.live))], memory // 2)
    marks = [RankBounds.from_sorted(one, np.int64, grain=grain) for one in stored]
    live = stream.rank_bounds()
    bounds = combine([*marks, live])
    ranks = np.array([target_rank(phi, len(world.every)) for phi in PHIS])
    quick = bounds.values[bounds.best_candidate(ranks)[0]]
    low, high = bounds.bracket(ranks)
    accurate, accesses = [], 0
    for rank, a, b in zip(ranks.tolist(), low.tolist(), high.tolist(), strict=True):
        u = bounds.values[a - 1] if a else bounds.values[0] - 1
        v = bounds.values[min(b, len(bounds.values) - 1)]
        between = []
        for one in stored:
            start, stop = np.searchsorted(one, (u, v), "right").tolist()
            accesses += (max(start, stop - 1)) // sizes.rows - start // sizes.rows + 1
            between.append(one[start:stop])
        inside = np.unique(np.concatenate([*between, bounds.values[max(0, a - 1) : b + 1]]))
        # Equal rows have the ranks after those of what is less, up to those of what is not more.
        before = sum(np.searchsorted(one, inside) for one in stored) + live.rank_le(inside - 1)[1]
        upto = sum(np.searchsorted(one, inside, "right") for one in stored) + live.rank_le(inside)[0]
        error = np.maximum(before + 1 - rank, rank - upto)
        accurate.append(int(inside[np.argmin(error)]))
    return Answered(world.error(quick.tolist()), world.error(accurate), accesses / len(PHIS))


def gk_within(values: Ints, memory: int) -> GK:
    """GK over values as they come, as exact as fits into the memory."""
    eps = 4 * TUPLE / memory
    best = _gk(values, eps)
    assert len(best) * TUPLE <= memory, "the first sketch is too large"
    while eps * len(values) > 1 and len(finer := _gk(values, eps := eps * 0.85)) * TUPLE <= memory:
        best = finer
    return best


def _gk(values: Ints, eps: float) -> GK:
    found = GK(min(eps, 0.4), np.int64)
    for part in np.array_split(values, -(-len(values) // 100_000)):
        found.update(part)
    return found


def digest_within(values: Ints, memory: int) -> QDigest:
    """Q-digest over values as they come, as exact as fits into the memory."""
    best, k = _digest(values, memory // NODE // 3), memory / NODE / 3
    while len(finer := _digest(values, int(k := k * 1.2))) * NODE <= memory and k < len(values):
        best = finer
    return best


def _digest(values: Ints, k: int) -> QDigest:
    found = QDigest(BITS, k)
    for part in np.array_split(values, -(-len(values) // 100_000)):
        found.update(part)
    return found


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiments, with a picture."""
    sizes = QUICK if quick else Sizes()
    rows = sizes.steps * sizes.blocks * sizes.rows
    section.text(
        f"### Quantiles over history and a stream\n\n{sizes.steps} steps of {sizes.blocks} blocks of "
        f"{sizes.rows} rows, {rows:,} in all, and as many live rows as a step has; 19 quantiles. Errors are "
        "|phi N - r| / (phi N), as in the thesis. Pure streaming is one sketch of all rows in all of it."
    )
    errors = [_errors(section, law, sizes) for law in LAWS]
    by_kappa = _by_kappa(section, World.of(LAWS[1], sizes), sizes)
    path = out / "hybrid.png"
    plot_panels(path, [*errors, *by_kappa], "Quantiles at equal memory, and accesses by kappa")
    section.plot(path, "history and a stream: errors by memory, accesses by kappa")
    _rules(section, sizes)


def _errors(section: Section, law: str, sizes: Sizes) -> Panel:
    """Errors by memory, at kappa = 10."""
    world, runs = World.of(law, sizes), loads(10, sizes, oldest=False).runs
    shuffled = np.concatenate([*world.steps, world.live])
    np.random.default_rng(2).shuffle(shuffled)
    lines: dict[str, list[tuple[float, float]]] = {}
    for kb in sizes.memories:
        memory = kb * 1024
        found = hybrid(world, runs, memory, sizes)
        pure: dict[str, GK | QDigest] = {
            "GK": gk_within(shuffled, memory),
            "Q-digest": digest_within(shuffled, memory),
        }
        measured = {"accurate": found.accurate, "quick": found.quick} | {
            name: world.error([int(sketch.quantile(phi)) for phi in PHIS]) for name, sketch in pure.items()
        }
        for name, error in measured.items():
            lines.setdefault(name, []).append((float(kb), max(error, 1e-9)))
        if kb == sizes.memory:
            best = min(measured["GK"], measured["Q-digest"])
            gain = best / max(measured["accurate"], 1e-9)
            section.add(
                f"hybrid, {law}: the better pure sketch's error over the accurate one's",
                gain,
                "x",
                10,
                at_least=True,
            )
        say(f"{law}, {kb} KB: " + ", ".join(f"{name} {error:.2g}" for name, error in measured.items()))
    section.text(
        table(
            [f"{law}, KB", *lines],
            [
                [kb, *(number(points[i][1]) for points in lines.values())]
                for i, kb in enumerate(sizes.memories)
            ],
        )
    )
    return Panel(
        f"{law} (figure {FIGURES[law]})", "KB", "relative error", [Series(n, p) for n, p in lines.items()]
    )


def _by_kappa(section: Section, world: World, sizes: Sizes) -> list[Panel]:
    """Errors and accesses by kappa with a fixed memory; the last row is one sorted run, the strawman."""
    rows: list[list[object]] = []
    load, query, error = [], [], []
    for kappa in sizes.kappas:
        done = loads(kappa, sizes, oldest=False)
        found = hybrid(world, done.runs, sizes.memory * 1024, sizes)
        mean = float(np.mean(done.accesses))
        rows.append([kappa, len(done.runs), number(found.accurate), number(mean), number(found.accesses)])
        load.append((float(kappa), mean))
        query.append((float(kappa), found.accesses))
        error.append(found.accurate)
    sorted_run = (Run(0, sizes.steps - 1, 1),)
    found = hybrid(world, sorted_run, sizes.memory * 1024, sizes)
    mean = float(np.mean([sizes.blocks * (1 + 2 * step) for step in range(sizes.steps)]))
    rows.append(["one sorted run", 1, number(found.accurate), number(mean), number(found.accesses)])
    section.add("hybrid: largest over least error by kappa", max(error) / max(min(error), 1e-9), "x")
    section.text(table(["kappa", "runs", "error", "blocks a load", "blocks a query"], rows))
    return [
        Panel(
            "accesses by kappa (figures 4.6 to 4.8)",
            "kappa",
            "blocks",
            [Series("load", load), Series("query", query)],
        )
    ]


def _rules(section: Section, sizes: Sizes) -> None:
    """The two merge rules: blocks a load, runs, and windows (figures 4.9 and 4.10)."""
    rows: list[list[object]] = []
    for kappa in sizes.kappas:
        both = [loads(kappa, sizes, oldest=oldest) for oldest in (False, True)]
        costs = [float(np.mean(one.accesses)) for one in both]
        rows.append(
            [
                kappa,
                *(number(cost) for cost in costs),
                *(len(one.runs) for one in both),
                *(f"{100 * np.mean(np.array(one.accesses) == sizes.blocks):.0f} %" for one in both),
            ]
        )
        if kappa in (3, 10):
            section.add(
                f"merging the oldest runs, kappa = {kappa}: blocks of those of whole levels",
                costs[1] / costs[0],
                "x",
            )
            section.text(
                f"Windows of runs, kappa = {kappa}: whole levels {windows(both[0].runs, sizes.steps)}, "
                f"oldest runs {windows(both[1].runs, sizes.steps)}."
            )
    head = ["kappa", "blocks a load", "oldest", "runs", "oldest", "loads without a merge", "oldest"]
    section.text(table(head, rows))
