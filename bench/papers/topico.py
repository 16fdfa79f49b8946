"""TOPiCo after Schiavoni et al. (DEBS 2015): figures 6 to 10, and what its errors cost.

The trace of the World Cup of 1998 is not here. Rows of Zipf's law at 29 sites of four regions stand for it:
3,000 rows a minute and 4,500 at the peak, as there; the frequent items drift, and regions differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.papers.printed_topico import PrintedSite, ordered
from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.network import Network
from tidemark.sketches.topk.site import TopkSite

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
REGIONS = ("Europe", "East coast", "Central", "West coast")
K, WINDOW, PERIOD, ITEMS, EACH = 20, 15, 5, 2_000, 30  # EACH: seconds of a point in the pictures


@dataclass(frozen=True, slots=True)
class Sizes:
    """seconds: of the run, the last third of which is the peak. sites: their number, at least four.

    rate: rows a second, half as many more at the peak. skew: of Zipf's law.
    """

    sites: int = 29
    seconds: int = 450
    rounds: int = 60
    rate: int = 50
    skew: float = 0.8


QUICK = Sizes(5, 90, 12)
SKEWED_RATE, SKEW = 1_000, 1.5
QUARTILES = (("median", 50), ("most", 100))
DRAWN = ((0, REGIONS[0]), (3, REGIONS[3]))  # the other lines lie on these


class CountingChannel(Channel):
    """A channel that counts the bytes that each site sends and gets."""

    def __init__(self, sites: int) -> None:
        super().__init__()
        self.up, self.down = np.zeros(sites, np.int64), np.zeros(sites, np.int64)

    def put(self, sealed: tuple[int, bytes]) -> None:
        """Counts by the sender, bytes 8 to 12 of an envelope, and by the receiver."""
        receiver, data = sealed
        self.up[int.from_bytes(data[8:12], "little")] += len(data)
        self.down[receiver] += len(data)
        super().put(sealed)


@dataclass(slots=True)
class Run:
    """What was measured, second by second or list by list.

    distances: of each region's site from the true top k. delays: how many seconds old its answer is.
    up, down: bytes of each site. shares: of the site's items that a list has. extra: first items beyond k.
    certain: the share of certain members.
    """

    distances: list[list[float]] = field(default_factory=list)
    delays: list[list[int]] = field(default_factory=list)
    up: list[Ints] = field(default_factory=list)
    down: list[Ints] = field(default_factory=list)
    shares: list[list[float]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    certain: list[float] = field(default_factory=list)


def rows_of(second: int, sizes: Sizes, rng: np.random.Generator) -> list[Keys]:
    """The rows of a second at each site."""
    sites, is_peak = sizes.sites, second >= sizes.seconds * 2 // 3
    weights = 1 / np.arange(1, sites + 1) ** 0.5
    at = rng.choice(sites, sizes.rate * 3 // 2 if is_peak else sizes.rate, p=weights / weights.sum())
    ranks = 1 / np.arange(1, ITEMS + 1) ** sizes.skew
    drawn = rng.choice(ITEMS, len(at), p=ranks / ranks.sum())
    # Every ten seconds what is frequent moves by one item; a third of a region's rows are of its own items.
    own = rng.random(len(at)) < 1 / 3
    items = (drawn + second // 10 + np.where(own, (at % len(REGIONS)) * 7, 0)) % ITEMS
    return [items[at == site].astype(np.uint64) for site in range(sites)]


def top(items: Keys) -> list[int]:
    """The true top k, the smaller item first where counts are equal."""
    found, counts = np.unique(items, return_counts=True)
    result: list[int] = found[np.lexsort((found, -counts))[:K]].tolist()
    return result


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """Kendall's distance: of the pairs that both lists order, the share that they order differently.

    A list puts its members before all other items, and does not order those.
    """
    union = list(dict.fromkeys([*one, *other]))
    signs = []
    for ranked in (one, other):
        place = {item: i for i, item in enumerate(ranked)}
        ranks = np.array([place.get(item, len(union)) for item in union])
        signs.append(np.sign(ranks[:, None] - ranks[None, :]))
    ordered_by_both = signs[0] * signs[1]
    pairs = int(np.sum(ordered_by_both != 0))
    return float(np.sum(ordered_by_both < 0)) / pairs if pairs else 0.0


def simulate(sizes: Sizes) -> Run:
    """Sites tell each `PERIOD` seconds, not all in the same second; every list is delivered at once."""
    rng, run, channel = np.random.default_rng(5), Run(), CountingChannel(sizes.sites)
    sites = [TopkSite(i, sizes.sites, k=K, window=WINDOW) for i in range(sizes.sites)]
    network = Network("top", dict(enumerate(sites)), channel=channel)
    recent: list[list[Keys]] = []
    tops: list[list[int]] = []
    for second in range(sizes.seconds):
        recent = [*recent, rows_of(second, sizes, rng)][-WINDOW:]
        tops.append(top(np.concatenate([rows for each in recent for rows in each])))
        before = channel.up.copy(), channel.down.copy()
        shares = []
        for i, site in enumerate(sites):
            site.observe(recent[-1][i], np.full(len(recent[-1][i]), second))
            if second % PERIOD == i % PERIOD:
                network.send(i, site.round(second))
                held, told, first = site.told
                run.extra.append(max(0, first - K))
                shares += [told / held] if held else []
        network.settle()
        run.shares.append(shares)
        run.up.append(channel.up - before[0])
        run.down.append(channel.down - before[1])
        if second >= WINDOW + PERIOD:
            _compare(run, sites[: len(REGIONS)], tops)
    return run


def _compare(run: Run, sites: Sequence[TopkSite], tops: Sequence[list[int]]) -> None:
    """A site of each region against the true top k, of now and of each of the last 30 seconds."""
    answers = [site.answer() for site in sites]
    found = [answer.items.tolist() for answer in answers]
    by_delay = [[distance(one, true) for true in tops[::-1][: 2 * WINDOW]] for one in found]
    run.distances.append([each[0] for each in by_delay])
    run.delays.append([int(np.argmin(each)) for each in by_delay])
    run.certain.append(float(np.mean([answer.certain.mean() for answer in answers if len(answer)])))


def printed(rounds: int, *, corrected: bool) -> tuple[float, float]:
    """(share of wrong members, share of all entries told) in synchronous rounds at 8 sites, k = 10."""
    rng = np.random.default_rng(6)
    sites = [PrintedSite(8, 10, echoes_all=not corrected, computes_all=corrected) for _ in range(8)]
    weights = 1 / np.arange(1, 301) ** 0.8
    wrong = told_entries = entries = 0
    for step in range(rounds):
        drawn = rng.choice(300, (8, 200), p=weights / weights.sum()) + step // 10 * 20
        local = [Counter((row % 300).tolist()) for row in drawn]
        for _ in range(3):  # the rows stand still meanwhile
            told = [site.told(mine) for site, mine in zip(sites, local, strict=True)]
            told_entries += sum(len(items) for items, _ in told)
            entries += sum(len(mine) for mine in local)
            for site in sites:
                for sender, (items, first) in enumerate(told):
                    site.take(sender, items, first)
        true = {item for item, _ in ordered(sum(local, Counter()))[:10]}
        wrong += sum(item not in true for site in sites for item, _ in site.best)
    return wrong / (80 * rounds), told_entries / entries


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiments, with a picture."""
    sizes = QUICK if quick else Sizes()
    run = simulate(sizes)
    errors = {corrected: printed(sizes.rounds, corrected=corrected) for corrected in (False, True)}
    if errors[True][0]:
        raise AssertionError("the corrected TOPiCo has wrong members in a still state")
    say(f"answers of {len(run.distances) * len(REGIONS)} moments were compared with the true top {K}")
    section.text(
        f"### TOPiCo\n\n{sizes.sites} sites, k = {K}, a window of {WINDOW} seconds, lists each {PERIOD} "
        "seconds; 50 rows a second of Zipf's law (0.8), and 75 in the last third. Skewed: 1,000 rows a "
        "second of Zipf's law (1.5). Bytes are those of all envelopes and acknowledgements, each list once "
        "to each site."
    )
    up, down = np.array(run.up) / 1e3, np.array(run.down) / 1e3
    shares = [share for each in run.shares for share in each]
    distances, delays = np.array(run.distances), np.array(run.delays)
    peak = len(distances) * 2 // 3
    section.add("TOPiCo: share of a site's items that its list has, mean", float(np.mean(shares)) * 100, "%")
    section.add("TOPiCo: first items beyond k, at most", max(run.extra), "items")
    section.add("TOPiCo: upload of a site, mean", float(up.mean()), "KB/s", 10)
    section.add("TOPiCo: download of a site, mean", float(down.mean()), "KB/s", 10)
    section.add("TOPiCo: Kendall's distance from the true top k, mean", float(distances.mean()), "", 0.24)
    section.add("TOPiCo: the same at the peak", float(distances[peak:].mean()), "", 0.24)
    section.add(
        "TOPiCo: answers at most a period late",
        float(np.mean(delays <= PERIOD)) * 100,
        "%",
        50,
        at_least=True,
    )
    section.add("TOPiCo: members that are certain", float(np.mean(run.certain)) * 100, "%")
    skewed = simulate(replace(sizes, rate=SKEWED_RATE, skew=SKEW))
    skewed_shares = [share for each in skewed.shares for share in each]
    section.add("TOPiCo, skewed: share of a site's items that its list has", _mean(skewed_shares) * 100, "%")
    section.add("TOPiCo, skewed: first items beyond k, at most", max(skewed.extra), "items")
    section.add("TOPiCo, skewed: upload of a site, mean", _mean(np.array(skewed.up) / 1e3), "KB/s", 10)
    section.add("TOPiCo, skewed: distance, mean", _mean(skewed.distances), "", 0.24)
    rows = [
        ["as printed" if not corrected else "corrected", f"{100 * wrong:.3g} %", f"{100 * told:.3g} %"]
        for corrected, (wrong, told) in errors.items()
    ]
    section.text(
        "Still states at 8 sites, k = 10, after three synchronous rounds, while the rows drift between:"
    )
    section.text(table(["", "wrong members", "entries told, of all"], rows))
    means = np.stack([distances[:peak].mean(axis=0), distances[peak:].mean(axis=0), delays.mean(axis=0)])
    by_region = [[region, *(number(float(mean)) for mean in means[:, i])] for i, region in enumerate(REGIONS)]
    section.text(table(["region", "distance", "distance at the peak", "delay, s, mean"], by_region))
    path = out / "topico.png"
    plot_panels(path, _panels(run, skewed), "TOPiCo over time, and its delay")
    section.plot(path, "TOPiCo: lists, throughput, distance from the true top k, and delay")


def _mean(values: Sequence[float] | Sequence[list[float]] | NDArray[np.float64]) -> float:
    return float(np.mean(values))


def _percentile(values: Sequence[float] | NDArray[np.float64], percent: int) -> float:
    return float(np.percentile(values, percent))


def _panels(run: Run, skewed: Run) -> list[Panel]:
    up, down = np.array(run.up) / 1e3, np.array(run.down) / 1e3
    distances, delays = np.array(run.distances), np.array(run.delays)
    times = range(0, len(run.shares) - EACH + 1, EACH)
    told = [[share for each in skewed.shares[at : at + EACH] for share in each] for at in times]
    shares = [
        Series(name, list(zip(times, [100 * _percentile(each, q) for each in told], strict=True)))
        for name, q in QUARTILES
    ]
    rates = [
        Series(name, [(at, _percentile(kb[at : at + EACH].mean(axis=0), q)) for at in times])
        for name, kb, q in (("median", up, 50), ("most", up, 100), ("down, median", down, 50))
    ]
    moments = range(0, len(distances) - EACH + 1, EACH)
    by_region = [
        Series(region, [(at, float(distances[at : at + EACH, i].mean())) for at in moments])
        for i, region in DRAWN
    ]
    late = [
        Series(region, [(s, 100 * float(np.mean(delays[:, i] <= s))) for s in range(2 * WINDOW)])
        for i, region in DRAWN
    ]
    return [
        Panel("items in a list, of the site's, skewed (figure 6)", "seconds", "%", shares, is_linear=True),
        Panel("throughput of a site (figure 7)", "seconds", "KB/s", rates, is_linear=True),
        Panel(
            "Kendall's distance, peak in the last third (8, 9)",
            "seconds",
            "distance",
            by_region,
            is_linear=True,
        ),
        Panel("answers at most so late (figure 10)", "seconds", "%", late, is_linear=True),
    ]
