"""Part `distinct-sketches`: the experiments of Singh's thesis (2015), chapter 2, in shape.

Sketches of distinct keys in sliding windows, corrected as their modules say, at equal space: error and cost
against space, window, hash function, boosting and the rate of questions; and DataSketches' sketches where no
window is asked. docs/papers.md sets the figures of the thesis beside these.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.cases import outcomes
from bench.equal_space import (
    HASHES,
    NAMES,
    WINDOW,
    Case,
    Outcome,
    hll_by_minute,
    measure,
    sketch_of,
    whole_stream_peers,
)
from bench.key_streams import HOUR, MAKERS, MINUTE, distinct_keys, exact_numbers, key_stream
from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.distinct import DistinctCounter
from tidemark.sketches.errors import Saturated

PERCENT = 100.0
BOOSTS = ("median", "split")
TRACE = "pairs"  # what stands for the thesis's network trace
COST_STREAM = "Zipf 1.3"  # linear counting has answers here, too


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: rows of a stream, runs with other seeds, bytes of a sketch.

    middle: the space where the thesis has 1000 KB. most: where it has 3000 KB. at_once: processes.
    peers: the lg_k of DataSketches' sketches.
    """

    rows: int = 400_000
    runs: int = 20
    spaces: tuple[int, ...] = (25_000, 50_000, 100_000, 200_000)
    middle: int = 100_000
    most: int = 400_000
    peers: tuple[int, ...] = (10, 12, 14)
    ratios: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    timed: int = 100_000
    repeats: int = 3
    at_once: int = 2


QUICK = Sizes(60_000, 1, (20_000, 60_000), 20_000, 60_000, (8, 10), (1, 1_000), 10_000, 1, at_once=1)
Found = dict[Case, Outcome]


def run(out: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("distinct-sketches", "Sketches of distinct keys in windows")
    out.mkdir(parents=True, exist_ok=True)
    cases = [*_space_cases(sizes), *_window_cases(sizes), *_boost_cases(sizes), *_hash_cases(sizes)]
    found = outcomes(measure, cases, at_once=sizes.at_once, together=8)
    say(f"answers of {len(cases)} sketches are within 5 standard errors of the exact numbers")
    _tell_streams(section, sizes)
    _errors_by_space(section, out, sizes, found)
    _errors_by_choice(section, out, sizes, found)
    _costs(section, out, sizes)
    return section


def _space_cases(sizes: Sizes) -> list[Case]:
    return [
        Case(stream, sizes.rows, name, space, seed, windows)
        for stream, windows in [*((stream, (WINDOW,)) for stream in MAKERS), ("uniform", (HOUR,))]
        for name in NAMES
        for space in sizes.spaces
        for seed in range(sizes.runs)
    ]


def _window_cases(sizes: Sizes) -> list[Case]:
    windows = tuple(minutes * MINUTE for minutes in (5, 15, 25, 35, 45))
    return [
        Case(TRACE, sizes.rows, name, sizes.middle, seed, windows)
        for name in NAMES
        for seed in range(sizes.runs)
    ]


def _boost_cases(sizes: Sizes) -> list[Case]:
    return [
        Case(TRACE, sizes.rows, name, sizes.middle, seed, parts=parts, boost=boost)
        for name in ("PCSA", "DF", "BJKST", "RW")
        for boost in BOOSTS
        for parts in (2, 4, 8)
        for seed in range(sizes.runs)
    ]


def _hash_cases(sizes: Sizes) -> list[Case]:
    return [
        Case(TRACE, sizes.rows, name, sizes.middle, seed, hashing=hashing)
        for hashing in HASHES
        for name in ("PCSA", "DF", "BJKST", "RW")
        for seed in range(1 if hashing == "none" else sizes.runs)
    ]


def _runs(found: Found, case: Case, window: int = 0, *, greatest: bool = False) -> list[float]:
    """The errors of the runs of a case in percent; the case's own seed does not matter."""
    alike = [outcome for other, outcome in found.items() if replace(other, seed=case.seed) == case]
    assert alike, case
    return [(one.greatest if greatest else one.mean)[window] * PERCENT for one in alike]


def _median(found: Found, case: Case, window: int = 0, *, greatest: bool = False) -> float:
    """The median of the runs, NaN if one of them had no answer."""
    errors = _runs(found, case, window, greatest=greatest)
    return float(np.nan) if np.isnan(errors).any() else statistics.median(errors)


def _tell_streams(section: Section, sizes: Sizes) -> None:
    rows: list[list[object]] = []
    for name in MAKERS:
        distinct = distinct_keys(name, sizes.rows)
        exact = exact_numbers(name, sizes.rows, (WINDOW,)).values()
        rows.append([name, f"{sizes.rows:,}", f"{distinct:,}", f"{statistics.mean(exact):,.0f}"])
    section.text(table(["stream of an hour", "rows", "distinct keys", "in 45 minutes"], rows))
    section.text(
        "An error is |estimate / exact - 1|: the mean of six questions, from the 45th minute on, and of that "
        f"the median of {sizes.runs} runs with other seeds. Space is the mean of what is held: 8 bytes for a "
        "time and for a hash; hash tables and links are not counted. DF is LogLog. RW has nested lists, RW "
        "disjoint one list for each level."
    )


def _errors_by_space(section: Section, out: Path, sizes: Sizes, found: Found) -> None:
    panels = []
    rows: list[list[object]] = []
    for stream, window in [*((stream, WINDOW) for stream in MAKERS), ("uniform", HOUR)]:
        series = []
        for name in NAMES:
            points, cells = [], []
            for space in sizes.spaces:
                case = Case(stream, sizes.rows, name, space, 0, (window,))
                error, worst = _median(found, case), _median(found, case, greatest=True)
                points.append((found[case].held / 1000, error))
                cells.append("none" if np.isnan(error) else f"{number(error)} ({number(worst)})")
            series.append(Series(name, points))
            rows.append([stream if window == WINDOW else f"{stream}, no window", name, *cells])
        if window == HOUR:
            peers = whole_stream_peers(key_stream(stream, sizes.rows), sizes.peers, sizes.runs)
            series += [
                Series(name, [(held / 1000, error * PERCENT) for held, error in points], is_peer=True)
                for name, points in peers.items()
            ]
        title = f"{stream}, 45 minutes" if window == WINDOW else f"{stream}, since the start"
        panels.append(Panel(title, "space (KB)", "relative error (%)", series))
    path = out / "distinct-space.png"
    plot_panels(path, panels, "Distinct keys: error by space")
    section.plot(path, "Error of distinct counts by space, for three streams, and without a window")
    head = ["stream", "sketch", *(f"{space // 1000} KB" for space in sizes.spaces)]
    section.text("Relative error in percent: the mean of the questions (and the greatest).")
    section.text(table(head, rows))
    held, error = hll_by_minute(key_stream("uniform", sizes.rows), 10, sizes.runs)
    section.add("an HLL (k = 1,024) for each of 60 minutes, error for 45 minutes", error * PERCENT, "%")
    section.add("an HLL for each of 60 minutes, space", held / 1000, "KB")
    of_middle = {name: _median(found, Case("uniform", sizes.rows, name, sizes.middle, 0)) for name in NAMES}
    for name, error in of_middle.items():
        if not np.isnan(error):
            section.add(f"{name}, uniform, {sizes.middle // 1000} KB: error for 45 minutes", error, "%")


def _errors_by_choice(section: Section, out: Path, sizes: Sizes, found: Found) -> None:
    """By window, by boosting, by hash function, and how runs differ."""
    by_window = []
    for name in NAMES:
        case = next(case for case in found if case.name == name and len(case.windows) > 1)
        points = [(window / MINUTE, _median(found, case, i)) for i, window in enumerate(case.windows)]
        by_window.append(Series(name, points))
    panels = [
        Panel(f"{TRACE}, {sizes.middle // 1000} KB", "window (minutes)", "relative error (%)", by_window)
    ]
    for boost in BOOSTS:
        series = []
        for name in ("PCSA", "DF", "BJKST", "RW"):
            plain = Case(TRACE, sizes.rows, name, sizes.middle, 0)
            parts = [plain, *(replace(plain, parts=parts, boost=boost) for parts in (2, 4, 8))]
            series.append(Series(name, [(case.parts, _median(found, case)) for case in parts]))
        title = {"median": "median of k sketches", "split": "sum of k shares of the keys"}[boost]
        panels.append(Panel(title, "k, in the same space", "relative error (%)", series))
    path = out / "distinct-choices.png"
    plot_panels(path, panels, "Distinct keys: window and boosting")
    section.plot(path, "Error of distinct counts by window, and by how many sketches share the space")
    rows: list[list[object]] = []
    for hashing in ("", *HASHES):
        cells = []
        for name in ("PCSA", "DF", "BJKST", "RW"):
            runs = _runs(found, Case(TRACE, sizes.rows, name, sizes.middle, 0, hashing=hashing))
            worst = number(max(runs)) if max(runs) < 1000 else "above 1,000"
            cells.append(f"{number(statistics.median(runs))} ({worst})" if len(runs) > 1 else worst)
        rows.append([hashing or "SplitMix64, the sketches' own", *cells])
    section.text(
        f"By hash function, {TRACE}, {sizes.middle // 1000} KB: the median of the runs in percent (and the "
        "greatest)."
    )
    section.text(table(["hash function", "PCSA", "DF", "BJKST", "RW"], rows))
    rows = []
    for name in ("RW", "PCSA", "DF"):
        for space in sizes.spaces:
            runs = _runs(found, Case("Zipf 1.3", sizes.rows, name, space, 0))
            quartiles = np.quantile(runs, [0, 0.25, 0.5, 0.75, 1]).tolist()
            rows.append([name, f"{space // 1000} KB", *(number(one) for one in quartiles)])
    section.text("How runs differ, Zipf 1.3: the mean relative error of a run in percent.")
    section.text(
        table(["sketch", "space", "least", "1st quartile", "median", "3rd quartile", "greatest"], rows)
    )


def _costs(section: Section, out: Path, sizes: Sizes) -> None:
    by_space, by_ratio = [], []
    for name in NAMES:
        points = [(space / 1000, _microseconds(name, space, 1_000, sizes)) for space in sizes.spaces]
        by_space.append(Series(name, points))
        asked = [(ratio, _microseconds(name, sizes.most, ratio, sizes)) for ratio in sizes.ratios]
        by_ratio.append(Series(name, [(float(ratio), cost) for ratio, cost in asked]))
        for ratio, cost in asked:
            section.add(f"{name}: an update, a question every {ratio:,}", cost, "us")
    path = out / "distinct-cost.png"
    at_most = f"{sizes.most // 1000} KB"
    panels = [
        Panel("a question every 1,000 updates", "space (KB)", "microseconds an update", by_space),
        Panel(at_most, "updates a question", "microseconds an update", by_ratio),
    ]
    plot_panels(path, panels, "Distinct keys: what an update costs, questions included")
    section.plot(path, "Cost of an update by space and by the rate of questions")
    section.text(
        f"Costs are time of one core, {COST_STREAM}, the least of {sizes.repeats} runs, questions included. "
        "Updates come in one array between questions: an update of PCSA, DF and LC is a step of a loop in "
        "numpy, and one of the others a step of Python's."
    )


def _microseconds(name: str, space: int, ratio: int, sizes: Sizes) -> float:
    """The time of an update when a question follows every `ratio` of them; the sketch is full before."""
    stream, distinct = key_stream(COST_STREAM, sizes.rows), distinct_keys(COST_STREAM, sizes.rows)
    updates = min(sizes.timed, 300 * ratio)
    begin = len(stream.keys) - updates
    best = float("inf")
    for _ in range(sizes.repeats):
        sketch = sketch_of(name, space, distinct, 0)
        sketch.update(stream.keys[:begin], stream.times[:begin])
        _ask(sketch, int(stream.times[begin - 1]))
        began = time.process_time()
        for i in range(begin, len(stream.keys), ratio):
            sketch.update(stream.keys[i : i + ratio], stream.times[i : i + ratio])
            _ask(sketch, int(stream.times[min(i + ratio, len(stream.times)) - 1]))
        best = min(best, time.process_time() - began)
    return best / updates * 1e6


def _ask(sketch: DistinctCounter, now: int) -> Sequence[float]:
    """The answer for the window that ends now; none of linear counting without an unset cell."""
    try:
        return [sketch.distinct(now - WINDOW + 1)]
    except Saturated:
        return []
