"""Part `persistence-sketches`: the experiments of Singh's thesis (2015), chapter 3, in shape.

SS, corrected, against A and B over sites: megabytes, bytes sent and wrong answers, by eps, sites, the width
of a slot, the window and delta; and what is tracked with and without forgetting. docs/papers.md sets the
figures of the thesis beside these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.cases import outcomes
from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from bench.slot_rows import Case, Outcome, measure, tracked_by_window

MB = 1e6
EPS = 0.05  # where the thesis fixes it at 0.025
COUNTED = ("SS", "B", "A")
Found = dict[Case, Outcome]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. n: the slots of the window. windows: smaller ones.

    items, limit_n: the items at each limit, and the slots of their window. at_once: processes.
    """

    n: int = 50_000
    windows: tuple[int, ...] = (6_250, 12_500, 25_000)
    eps: tuple[float, ...] = (0.02, 0.04, 0.07)
    sites: tuple[int, ...] = (2, 5, 20)
    widths: tuple[int, ...] = (2, 5, 20)
    items: int = 200
    limit_n: int = 4_000
    deltas: tuple[float, ...] = (0.1, 0.01, 0.001)
    forgetting: int = 15
    at_once: int = 2


QUICK = Sizes(2_500, (1_250,), (0.05, 0.07), (2,), (5,), 20, 1_000, (0.1,), 3, at_once=1)


def run(out: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("persistence-sketches", "Persistent items over sites")
    out.mkdir(parents=True, exist_ok=True)
    base = Case("SS", sizes.n, EPS)
    cases = list(dict.fromkeys(_cases(sizes, base)))
    found = outcomes(measure, cases, at_once=sizes.at_once)
    say(f"answers of {len(cases)} trackers keep their promise against the exact sets of slots")
    _tell(section, sizes, found, base)
    _spaces(section, out, sizes, found, base)
    _by_eps(section, sizes, found, base)
    _mistakes(section, sizes, found)
    _forgetting(section, out, sizes)
    return section


def _cases(sizes: Sizes, base: Case) -> list[Case]:
    some = [replace(base, algorithm="A"), replace(base, algorithm="A", is_sliding=False)]
    for eps in sizes.eps:
        some += [replace(base, algorithm=name, eps=eps) for name in ("SS", "SS as in the thesis", "B")]
        some += [replace(base, algorithm=name, eps=eps, is_sliding=False) for name in ("SS", "B")]
    for name in COUNTED:
        named = replace(base, algorithm=name)
        some += [named, *(replace(named, sites=sites) for sites in sizes.sites)]
        some += [replace(named, width=width) for width in sizes.widths]
        some += [replace(named, n=n) for n in sizes.windows]
    return some + _limit_cases(sizes)


def _limit_cases(sizes: Sizes) -> list[Case]:
    """Items of exactly alpha * n slots, and of the most below (alpha - eps) * n: the hardest there are."""
    return [
        Case(name, sizes.limit_n, 0.25, alpha=0.3, delta=delta, items=sizes.items, is_sliding=is_sliding)
        for delta in sizes.deltas
        for name in ("SS", "SS as in the thesis", "B")
        for is_sliding in (True, False)
    ]


def _tell(section: Section, sizes: Sizes, found: Found, base: Case) -> None:
    exact = found[replace(base, algorithm="A")]
    rows = base.rows()
    section.text(
        f"{len(rows.slots):,} rows of Zipf's law (1.5) at 10 sites, {base.per_slot} for each of "
        f"{sizes.n * 36 // 25:,} slots, {len(np.unique(rows.digests)):,} items. A sliding window of n = "
        f"{sizes.n:,} slots holds {exact.tracked:,} items, of which {exact.persistent} are persistent: alpha "
        f"is {base.alpha}. delta = e**-2; eps = {EPS} where nothing else is said. SS is the form with one "
        "instance. "
        "Bytes are those of all sites and the coordinator; bytes sent are those of all messages and of one "
        "question at the end. `lists` count the slots of an item as a list, as the thesis does; the other "
        "columns as the smaller of a list and a bitmap."
    )


def _spaces(section: Section, out: Path, sizes: Sizes, found: Found, base: Case) -> None:
    """Two pictures: slots counted as lists, as in the thesis, and as the smaller of a list and a bitmap."""
    for name, held, sent, title in (
        (
            "persistence-lists",
            lambda outcome: outcome.held_as_lists,
            lambda outcome: outcome.sent_as_lists,
            "Persistent items, slots as lists (as in the thesis)",
        ),
        (
            "persistence-bitmaps",
            lambda outcome: outcome.held,
            lambda outcome: outcome.sent,
            "Persistent items, slots as the smaller of a list and a bitmap",
        ),
    ):
        path = out / f"{name}.png"
        plot_panels(path, _panels(sizes, found, base, held, sent), title)
        section.plot(path, title)


def _panels(
    sizes: Sizes,
    found: Found,
    base: Case,
    held: Callable[[Outcome], int],
    sent: Callable[[Outcome], int],
) -> list[Panel]:
    def lines(
        names: Sequence[str], cases: Sequence[tuple[float, Case]], size: Callable[[Outcome], int]
    ) -> list[Series]:
        return [
            Series(name, [(x, size(_of(found, replace(case, algorithm=name))) / MB) for x, case in cases])
            for name in names
        ]

    by_eps = [(eps, replace(base, eps=eps)) for eps in sizes.eps]
    by_sites = [(sites, replace(base, sites=sites)) for sites in sorted((base.sites, *sizes.sites))]
    by_width = [(width, replace(base, width=width)) for width in (1, *sizes.widths)]
    by_window = [(n, replace(base, n=n)) for n in (*sizes.windows, sizes.n)]
    fixed = [(eps, replace(base, eps=eps, is_sliding=False)) for eps in sizes.eps]
    all_names = ("SS", "SS as in the thesis", "B", "A")
    return [
        Panel("space, sliding window", "eps", "MB", lines(all_names, by_eps, held)),
        Panel("bytes sent, sliding window", "eps", "MB", lines(all_names, by_eps, sent)),
        Panel("bytes sent, fixed window", "eps", "MB", lines(COUNTED, fixed, sent)),
        Panel("bytes sent by sites", "sites", "MB", lines(COUNTED, by_sites, sent)),
        Panel("bytes sent by width of a slot", "width", "MB", lines(COUNTED, by_width, sent)),
        Panel("space by window", "n, slots", "MB", lines(COUNTED, by_window, held)),
    ]


def _of(found: Found, case: Case) -> Outcome:
    """The outcome of a case; that of A does not depend on eps."""
    return found[replace(case, eps=EPS) if case.algorithm == "A" else case]


def _by_eps(section: Section, sizes: Sizes, found: Found, base: Case) -> None:
    rows: list[list[object]] = []
    for eps in sizes.eps:
        for name in ("SS", "SS as in the thesis", "B", "A"):
            one = _of(found, replace(base, algorithm=name, eps=eps))
            rows.append(
                [
                    eps,
                    name,
                    f"{one.tracked:,}",
                    number(one.held_as_lists / MB),
                    number(one.held / MB),
                    number(one.sent_as_lists / MB),
                    number(one.sent / MB),
                    f"{one.missed} of {one.persistent}",
                    f"{one.by_mistake} of {one.others:,}",
                ]
            )
    section.text("The sliding window, in megabytes:")
    section.text(
        table(
            [
                "eps",
                "algorithm",
                "tracked",
                "held, lists",
                "held",
                "sent, lists",
                "sent",
                "not reported",
                "reported by mistake",
            ],
            rows,
        )
    )
    first, last = (found[replace(base, eps=eps)] for eps in (sizes.eps[0], sizes.eps[-1]))
    slope = math.log(first.held_as_lists / last.held_as_lists) / math.log(sizes.eps[-1] / sizes.eps[0])
    section.add("SS: the space falls as eps to the power of", -slope, "")
    for width in (1, *sizes.widths):
        tracked = [found[replace(base, algorithm=name, width=width)].tracked for name in ("SS", "B")]
        section.add(f"items tracked by SS, slots {width} wide", tracked[0], "items")
        section.add(f"items tracked by B, slots {width} wide", tracked[1], "items")


def _mistakes(section: Section, sizes: Sizes, found: Found) -> None:
    rows: list[list[object]] = []
    for case in _limit_cases(sizes):
        one = found[case]
        rows.append(
            [
                case.delta,
                "sliding" if case.is_sliding else "fixed",
                case.algorithm,
                number(one.missed / one.persistent),
                number(one.by_mistake / one.others),
            ]
        )
    case = _limit_cases(sizes)[0]
    section.text(
        f"Rates of wrong answers about the hardest items there are: {case.items} of exactly alpha * n slots, "
        f"and {case.items} of the most slots below (alpha - eps) * n; n = {case.n:,}, alpha = {case.alpha}, "
        f"eps = {case.eps}, {case.sites} sites."
    )
    section.text(table(["delta", "window", "algorithm", "false negatives", "false positives"], rows))


def _forgetting(section: Section, out: Path, sizes: Sizes) -> None:
    lines = []
    for untracks, name in ((True, "forgotten"), (False, "never forgotten, as printed")):
        tracked, most = tracked_by_window(sizes.forgetting, untracks=untracks)
        lines.append(Series(name, [(i + 1.0, float(count)) for i, count in enumerate(tracked)]))
        section.add(f"tracked after {sizes.forgetting} windows, {name}", tracked[-1], "items")
        assert not untracks or max(tracked) <= most, "more items than the bound"
    section.add("tracked at most by theorem 7", most, "items")
    bound = [(1.0, most), (float(sizes.forgetting), most)]
    panel = Panel(
        "items tracked",
        "windows that have passed",
        "items",
        [*lines, Series("theorem 7", bound, is_peer=True)],
        is_linear=True,
    )
    path = out / "persistence-forgetting.png"
    plot_panels(path, [panel], "2,000 items, each in 5 slots of every 1,000")
    section.plot(path, "Items tracked after each window, with and without forgetting")
