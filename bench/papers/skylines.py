"""Fragmented skylines: bytes of safe zones beside those of sending every change.

LEADS names the algorithm of Papapetrou and Garofalakis (ICDE 2014) and has no figure of it, so there is none
to reproduce. Objects are counters of events at n sites, as visits, clicks and sales of pages are. `growth`:
events only come, and each object has them at its own rate. `noise`: parts go up and down around what they
were.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.plots import Panel, Series, plot_panels
from bench.report import Section, number, say, table
from tidemark.sketches.encoding.varints import encode_varints
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Machine
from tidemark.sketches.sites.network import Network
from tidemark.sketches.skyline import SkylineCoordinator, SkylineSite

Ints = NDArray[np.int64]
WIDTH = 3
CHECKS = 25  # how often the skyline is held against a brute force


@dataclass(frozen=True, slots=True)
class Sizes:
    """objects, with about `mean` in an attribute at first. changes: of all sites, `batch` at once."""

    objects: int = 100
    mean: int = 100_000
    changes: int = 200_000
    batch: int = 100
    sites: tuple[int, ...] = (2, 8, 16, 32)
    all_objects: tuple[int, ...] = (25, 50, 100, 200)
    at: int = 8


QUICK = Sizes(20, 20_000, 4_000, 40, (2, 4), (10, 20), 2)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Payload and envelopes sent for the changes, those of sending each, reports, and the mean skyline."""

    payload: int
    envelope: int
    every: int
    reports: int
    inside: float

    @property
    def ratio(self) -> float:
        """The bytes of payload for one byte of sending every change."""
        return self.payload / self.every


def brute(values: Ints) -> list[int]:
    """The objects that none dominates: every pair is looked at."""
    ahead = values[:, None] - values[None, :]
    dominates = (ahead >= 0).all(axis=2) & (ahead > 0).any(axis=2)
    return [int(i) for i in np.flatnonzero(~dominates.any(axis=0))]


def measure(sites: int, objects: int, sizes: Sizes, *, grows: bool) -> Outcome:
    """Runs one case. Raises AssertionError if a skyline is not that of a brute force."""
    rng = np.random.default_rng(3)
    rates = rng.random((objects, WIDTH)) + 0.05
    parts = rng.multinomial(sizes.mean * objects * WIDTH, (rates / rates.sum()).ravel(), size=1)
    split = rng.multinomial(parts[0], np.full(sites, 1 / sites)).T.reshape(sites, objects, WIDTH)
    machines = [SkylineSite(part, sites) for part in split]
    coordinator = SkylineCoordinator((objects, WIDTH), sites)
    places: dict[int, Machine] = {COORDINATOR: coordinator, **dict(enumerate(machines))}
    network, sums = Network("skyline", places), split.sum(axis=0)
    sent = network.channel.sent
    before, every, inside = (sent.payload, sent.envelope), 0, []
    batches = sizes.changes // sizes.batch
    for step in range(batches):
        at = rng.choice(objects * WIDTH, sizes.batch, p=(rates / rates.sum()).ravel())
        amounts = np.ones(sizes.batch, np.int64) if grows else rng.integers(-9, 10, sizes.batch)
        site = step % sites
        network.send(site, machines[site].update(at // WIDTH, at % WIDTH, amounts))
        network.settle()
        np.add.at(sums, (at // WIDTH, at % WIDTH), amounts)
        every += len(encode_varints(np.concatenate([at, amounts << 1 ^ amounts >> 63]).astype(np.uint64)))
        if step % max(1, batches // CHECKS) == 0:
            found = coordinator.skyline().tolist()
            if found != brute(sums):
                raise AssertionError(f"the skyline is not that of a brute force after {step} batches")
            inside.append(len(found))
    payload, envelope = sent.payload - before[0], sent.envelope - before[1]
    return Outcome(payload, envelope, every, coordinator.collections - 1, float(np.mean(inside)))


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiments, with a picture."""
    sizes = QUICK if quick else Sizes()
    cases = {
        (grows, sites, objects): measure(sites, objects, sizes, grows=grows)
        for grows in (True, False)
        for sites, objects in dict.fromkeys(
            [*((n, sizes.objects) for n in sizes.sites), *((sizes.at, m) for m in sizes.all_objects)]
        )
    }
    say(f"answers of {CHECKS * len(cases)} moments are the skylines of a brute force")
    for n in (sizes.sites[0], sizes.sites[-1]):
        for grows in (True, False):
            section.add(
                f"skyline, {_stream(grows)}, {n} sites: bytes of those of sending all",
                cases[grows, n, sizes.objects].ratio,
                "",
                1,
            )
    section.text(
        f"### Skylines\n\n{sizes.changes:,} changes of objects with {WIDTH} attributes, {sizes.mean:,} in "
        f"the mean at first, {sizes.batch} changes at once at one site. `growth`: events come, of each "
        "object at its own rate. `noise`: parts change by up to 9 up or down. Bytes are payloads, beside "
        "varints of the place and amount of each change."
    )
    rows = [
        [
            _stream(grows),
            sites,
            objects,
            number(one.inside),
            one.reports,
            f"{one.payload:,}",
            f"{one.envelope:,}",
            number(one.ratio),
        ]
        for (grows, sites, objects), one in cases.items()
    ]
    head = [
        "changes",
        "sites",
        "objects",
        "in the skyline",
        "reports",
        "payload",
        "envelopes",
        "of all bytes",
    ]
    section.text(table(head, rows))
    path = out / "skylines.png"
    least = 1e-5  # nothing was sent

    def lines(found: list[tuple[int, int]], x: int) -> list[Series]:
        return [
            Series(_stream(grows), [(float(one[x]), max(least, cases[grows, *one].ratio)) for one in found])
            for grows in (True, False)
        ]

    plot_panels(
        path,
        [
            Panel(
                f"by sites, {sizes.objects} objects",
                "sites",
                "of all bytes",
                lines([(n, sizes.objects) for n in sizes.sites], 0),
            ),
            Panel(
                f"by objects, {sizes.at} sites",
                "objects",
                "of all bytes",
                lines([(sizes.at, m) for m in sizes.all_objects], 1),
            ),
        ],
        "Skylines over sites: bytes of those of sending every change",
    )
    section.plot(path, "bytes of skylines over sites, by sites and by objects")


def _stream(grows: bool) -> str:
    return "growth" if grows else "noise"
