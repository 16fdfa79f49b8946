"""Windowed Count-Min after Rivetti, Busnel and Mostefaoui (2015): errors against PERFECT, splits, rates.

Their section IV, without the traces of CAIDA, which are not free to download. And the rates of updates and
queries of Papapetrou et al. (2015), table 3, for all kinds of counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from bench.shifting_streams import Ints, Law, mixed, shifting
from tidemark.sketches import ECM, Counting, digest
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.hashing.row_hashes import RowHashes

ITEMS, WIDTH = 1_000, 28
SHIFTED_LAWS: tuple[Law, ...] = ("Normal", "Zipf-1", "Zipf-2")
NAMES: dict[CounterKind, str] = {"SI": "SIMPLE", "PR": "PROPORTIONAL", "DW": "ECM (DW)", "SP": "SPLITTER"}
JAVA_UPDATES: dict[CounterKind, float] = {"EH": 5.3e6, "DW": 6.2e6, "RW": 7.0e4, "PR": 5.3e6, "SP": 5.3e6}
JAVA_QUERIES: dict[CounterKind, float] = {"EH": 2_377_502.0, "DW": 3_827_267.0, "RW": 15_108.0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. window: N, where nothing else is said. updates: of each kind, where rates are."""

    window: int = 50_000
    windows: tuple[int, ...] = (50_000, 100_000, 200_000, 400_000)
    periods: tuple[int, ...] = (1_000, 4_000, 16_000, 64_000)
    rows: tuple[int, ...] = (1, 2, 4, 8)
    mus: tuple[float, ...] = (1.0, 1.1, 1.3, 1.5, 2.0, 2.5)
    taus: tuple[float, ...] = (0.005, 0.016, 0.05, 0.16, 0.5)
    mixed_rows: int = 400_000
    updates: int = 2_000_000


QUICK = Sizes(1_000, (1_000, 2_000), (250,), (2,), (2.5,), (0.5,), 8_000, 10_000)


@dataclass(frozen=True, slots=True)
class Case:
    """One run. tau, mu: of SPLITTER. period: None is a fifth of the window."""

    window: int
    rows: int = 1
    tau: float = 0.05
    mu: float = 1.5
    period: int | None = None

    def countings(self) -> dict[CounterKind, Counting]:
        """The counters that are compared."""
        found = {kind: Counting(kind, 0.1, self.window, "count") for kind in NAMES}
        return {**found, "SP": Counting("SP", self.tau / WIDTH, self.window, "count", mu=self.mu)}


@dataclass(frozen=True, slots=True)
class Step:
    """At one moment: the mean distance from PERFECT by kind, item 0, and what SPLITTER and DW keep.

    first: the estimates of item 0 by kind. perfect: PERFECT's.
    """

    at: int
    errors: dict[CounterKind, float]
    first: dict[CounterKind, float]
    perfect: float
    sub_cells: int
    buckets: int


def steps(case: Case, keys: Ints, seed: int) -> Iterator[Step]:
    """The errors after each twentieth of a window, from the second window on."""
    hashes, items = RowHashes(case.rows, WIDTH, seed), digest(np.arange(ITEMS))
    sketches = {kind: ECM.of(hashes, c, eps=0.1, delta=0.5) for kind, c in case.countings().items()}
    digests, part = digest(keys), case.window // 20
    cells, item_cells = hashes.cells_of(digests), hashes.cells_of(items)
    for begin in range(0, len(keys), part):
        end = begin + part
        for sketch in sketches.values():
            sketch.update(digests[begin:end])
        if end <= case.window:
            continue
        inside = np.bincount(cells[:, max(0, end - case.window) : end].ravel(), minlength=hashes.cells)
        perfect = inside[item_cells].min(axis=0)
        found = {kind: sketch.points(items).estimate for kind, sketch in sketches.items()}
        for kind, sketch in sketches.items():
            kept = sketch.bounds().cells
            if np.any(kept.lo > inside) or np.any(inside > kept.hi):
                raise AssertionError(f"PERFECT is outside of the bounds of {kind} after {end} rows")
        yield Step(
            end,
            {kind: float(np.abs(estimate - perfect).mean()) for kind, estimate in found.items()},
            {kind: float(estimate[0]) for kind, estimate in found.items()},
            float(perfect[0]),
            len(sketches["SP"].counts.kept),
            len(sketches["DW"].counts.kept),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the steps of all laws and seeds. splits: sub-cells beyond two a cell."""

    errors: dict[CounterKind, float]
    splits: float
    bytes_of_splitter: float
    bytes_of_waves: float


def measure(case: Case, laws: Sequence[Law] = SHIFTED_LAWS, seeds: int = 2) -> Outcome:
    """The means of a case over streams of three windows that shift."""
    found: list[Step] = []
    for seed in range(seeds):
        for law in laws:
            keys = shifting(law, 3 * case.window, seed, period=case.period or case.window // 5)
            found += steps(case, keys, seed)
    errors = {kind: float(np.mean([step.errors[kind] for step in found])) for kind in NAMES}
    sub_cells = float(np.mean([step.sub_cells for step in found]))
    buckets = float(np.mean([step.buckets for step in found]))
    return Outcome(errors, sub_cells - 2 * WIDTH * case.rows, 24 * sub_cells, 16 * buckets)


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiments, with two pictures."""
    sizes = QUICK if quick else Sizes()
    base = Case(sizes.window)
    section.text(
        "### Windowed Count-Min\n\nMean distance from PERFECT over 1,000 items, in 28 columns, over Normal, "
        "Zipf-1 and Zipf-2 that shift by two items; the first of three windows is left out. The bounds of "
        "every cell were held against exact counts at each step."
    )
    by_window = {n: measure(Case(n)) for n in sizes.windows}
    by_period = {n: measure(replace(base, period=n)) for n in sizes.periods}
    by_rows = {n: measure(replace(base, rows=n)) for n in sizes.rows}
    over_time = list(steps(replace(base, period=None), mixed(sizes.mixed_rows, 1), 1))
    say(f"answers of {4 * len(over_time)} questions keep their bounds against exact counts")
    _compared(section, by_window)
    _over_time(section, over_time)
    errors = out / "windowed-count-min.png"
    plot_panels(
        errors,
        [
            Panel("by window (figure 2)", "N, rows", "mean error", _lines(by_window)),
            Panel("by period (figure 3)", "rows until it shifts", "mean error", _lines(by_period)),
            Panel("by rows of the sketch (figure 4)", "rows", "mean error", _lines(by_rows)),
            Panel("laws that change (figure 5)", "rows", "mean error", _time_lines(over_time)),
            Panel("item 0 (figure 6)", "rows", "rows of the window", _item_lines(over_time), is_linear=True),
        ],
        "Windowed Count-Min: mean error against PERFECT",
    )
    section.plot(errors, "mean error of SIMPLE, PROPORTIONAL, ECM and SPLITTER")
    _parameters(section, out, sizes, base, by_period, over_time)
    _rates(section, sizes)


def _lines(found: dict[int, Outcome]) -> list[Series]:
    return [
        Series(name, [(x, outcome.errors[kind]) for x, outcome in found.items()])
        for kind, name in NAMES.items()
    ]


def _time_lines(found: Sequence[Step]) -> list[Series]:
    return [
        Series(name, [(step.at, max(1.0, step.errors[kind])) for step in found])
        for kind, name in NAMES.items()
    ]


def _item_lines(found: Sequence[Step]) -> list[Series]:
    """SIMPLE is left out, as in the paper."""
    exact = Series("PERFECT", [(step.at, step.perfect) for step in found], is_peer=True)
    kinds = [kind for kind in NAMES if kind != "SI"]
    return [*(Series(NAMES[kind], [(step.at, step.first[kind]) for step in found]) for kind in kinds), exact]


def _compared(section: Section, by_window: dict[int, Outcome]) -> None:
    mean = {kind: float(np.mean([outcome.errors[kind] for outcome in by_window.values()])) for kind in NAMES}
    for kind, name in NAMES.items():
        section.add(f"{name}: mean error over the windows", mean[kind], "rows")
    outcomes = list(by_window.values())
    doublings = len(outcomes) - 1
    growth = {
        kind: (outcomes[-1].errors[kind] / outcomes[0].errors[kind]) ** (1 / doublings) for kind in NAMES
    }
    splits = (outcomes[-1].splits / max(1.0, outcomes[0].splits)) ** (1 / doublings)
    section.add("SPLITTER: splits, times as many a doubling of N", splits, "x")
    section.text(
        table(
            ["", "mean error", "times as large a doubling of N", "bytes kept"],
            [
                [name, number(mean[kind]), number(growth[kind]), _bytes_kept(kind, outcomes)]
                for kind, name in NAMES.items()
            ],
        )
    )


def _bytes_kept(kind: CounterKind, outcomes: Sequence[Outcome]) -> str:
    if kind in ("SI", "PR"):
        return number(8 * WIDTH * (2 if kind == "PR" else 1))
    kept = [one.bytes_of_splitter if kind == "SP" else one.bytes_of_waves for one in outcomes]
    return f"{number(min(kept))} to {number(max(kept))}"


def _over_time(section: Section, found: Sequence[Step]) -> None:
    rows = []
    for kind, name in NAMES.items():
        errors = [step.errors[kind] for step in found]
        of_item = [abs(step.first[kind] - step.perfect) for step in found]
        rows.append([name, number(float(np.mean(errors))), number(max(errors)), number(max(of_item))])
    section.text("Laws that change each 60,000 rows, shifted each 15,000:")
    section.text(table(["", "mean error", "largest", "largest of item 0"], rows))


def _parameters(
    section: Section,
    out: Path,
    sizes: Sizes,
    base: Case,
    by_period: dict[int, Outcome],
    over_time: Sequence[Step],
) -> None:
    """SPLITTER's mu and tau, and its splits."""
    by_mu = {mu: measure(replace(base, mu=mu)) for mu in sizes.mus}
    by_tau = {tau: measure(replace(base, tau=tau)) for tau in sizes.taus}
    path = out / "splitter.png"

    def both(found: dict[float, Outcome]) -> list[Series]:
        return [
            Series("mean error", [(x, one.errors["SP"]) for x, one in found.items()]),
            Series("splits", [(x, max(1.0, one.splits)) for x, one in found.items()]),
        ]

    periods: dict[float, Outcome] = {float(period): one for period, one in by_period.items()}
    splits = [(step.at, max(1.0, step.sub_cells - 2 * WIDTH)) for step in over_time]
    plot_panels(
        path,
        [
            Panel("by mu (figure 9)", "mu", "rows, splits", both(by_mu)),
            Panel("by tau (figure 10)", "tau", "rows, splits", both(by_tau)),
            Panel("by period (figure 3)", "rows until it shifts", "rows, splits", both(periods)),
            Panel("laws that change (figure 7)", "rows", "splits", [Series("splits", splits)]),
        ],
        "SPLITTER: mean error and splits (sub-cells beyond two a cell)",
    )
    section.plot(path, "SPLITTER by mu, tau and period")
    section.text(
        table(
            ["SPLITTER", "mean error", "splits"],
            [
                [f"{name} = {x:g}", number(one.errors["SP"]), number(one.splits)]
                for name, found in (("mu", by_mu), ("tau", by_tau), ("period", periods))
                for x, one in found.items()
            ],
        )
    )


def _rates(section: Section, sizes: Sizes) -> None:
    """Updates and point queries a second on one core, beside the paper's, in Java."""
    keys = shifting("Zipf-1", sizes.updates, 3, items=5_000)
    for kind, java in JAVA_UPDATES.items():
        runs = [_rate(kind, keys, np.arange(len(keys))) for _ in range(3)]
        updates, queries = (max(rates) for rates in zip(*runs, strict=True))
        section.add(f"{kind}: updates a second", updates, "/s", java, at_least=True)
        paper = JAVA_QUERIES.get(kind)
        section.add(f"{kind}: point queries a second", queries, "/s", paper, at_least=True)
    section.text(
        "Rates, by the time of one core, the fastest of three runs: eps = delta = 0.15, "
        "two rows of 21 columns (RW: three, with the constant 6 of the paper), a "
        "window of 100,000 arrivals, batches of 10,000 with the hashes of their keys; queries of 1,000 keys "
        "in each of 20 windows. The targets are the faster ones of table 3 of the ECM paper, in Java, an "
        "item a call. PROPORTIONAL and SPLITTER have no rates in their paper and stand beside EH's."
    )


def _rate(kind: CounterKind, keys: Ints, times: Ints) -> tuple[float, float]:
    """(updates, queries) a second."""
    window = min(100_000, len(keys) // 2)
    if kind == "RW":
        counting = Counting(kind, 0.15, window, delta=0.075, constant=6)
        sketch = ECM.of(RowHashes(3, 21, 1), counting, eps=0.15, delta=0.15)
        keys = keys[: len(keys) // 4]
    else:
        sketch = ECM(0.15, 0.15, window=window, kind=kind)
    for at in (slice(0, 500), slice(500, 1_000)):  # what is compiled is compiled now
        sketch.update(digest(keys[at]), times[at])
    sketch.points(digest(keys[:1]), 900)
    started = process_time()
    for begin in range(1_000, len(keys), 10_000):
        at = slice(begin, begin + 10_000)
        sketch.update(digest(keys[at]), times[at][: len(keys[at])])
    updates = (len(keys) - 1_000) / (process_time() - started)
    asked: NDArray[np.uint64] = digest(np.arange(1_000))
    now = len(keys) - 1
    sketch.points(asked)
    started = process_time()
    for part in range(20):
        sketch.points(asked, now - window * (part + 1) // 21)
    return updates, 20_000 / (process_time() - started)
