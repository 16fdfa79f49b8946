"""Alerts over sites: what is said about a sum and its threshold, beside asking each site at each look.

The condition is quantile(0.99) > x over a window of 75 looks. The share of rows above x is `far` from 0.01 at
0.005, `near` at 0.0095, `at` 0.01; `incidents` is far, and 0.03 for a tenth of the time. After every look of
every site the state is compared with the sum.

A message is a header, its content, and another header that acknowledges it; a question and its answer are two
headers and the content.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.report import Section, number, say, table
from tidemark.sketches.geometric.linear import LinearCoordinator, LinearSite, Zone, vector_text

SITES = (2, 3, 8)
WINDOW, ROWS, HEADER = 75, 200, 76
SHARES: dict[str, Callable[[float], float]] = {
    "far": lambda _: 0.005,
    "near": lambda _: 0.0095,
    "at": lambda _: 0.01,
    "incidents": lambda part: 0.03 if 4.5 <= 10 * part % 10 < 5.5 else 0.005,
}


@dataclass(slots=True)
class Said:
    """Messages and bytes, those of asking, and how often the state changed."""

    messages: int = 0
    bytes: int = 0
    asking: int = 0
    bytes_of_asking: int = 0
    changes: int = 0


class Places:
    """Sites and their coordinator; each message is taken before the next look."""

    def __init__(self, sites: int) -> None:
        self.said, self._under_way = Said(), deque[tuple[int, list[Zone] | None]]()
        self.values = [[0, 0]] * sites
        self._looks = [0] * sites
        self._sites = [LinearSite() for _ in range(sites)]
        self.coordinator = LinearCoordinator(sites, [1, 1], lambda site: self._tell(site, None), self._tell)
        for site in range(sites):
            self.look(site)
        self.said = Said()

    def look(self, site: int) -> None:
        """A site looks; all that follows is said and taken."""
        self._looks[site] += 1
        self._report(site)
        while self._under_way:
            to, zones = self._under_way.popleft()
            if zones is None:
                self._sites[to].ask()
            else:
                self._sites[to].take([list(zone) for zone in zones])
            self._report(to)

    def _report(self, site: int) -> None:
        if self._sites[site].must_report(self.values[site]):
            self._count(vector_text(self.values[site]))
            self.coordinator.receive(site, self.values[site], self._looks[site])

    def _tell(self, site: int, zones: list[Zone] | None) -> None:
        self._count(vector_text(zones))
        self._under_way.append((site, zones))

    def _count(self, content: bytes) -> None:
        self.said.messages += 2
        self.said.bytes += 2 * HEADER + len(content)


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the figures and a table; no picture."""
    del out
    looks, rows = 200 if quick else 4_000, list[list[object]]()
    for shape in SHARES:
        for sites in SITES:
            said = measured(sites, shape, looks)
            ratio = said.bytes / said.bytes_of_asking
            section.add(f"alerts over sites, {shape}, {sites} sites: bytes of those of asking", ratio, "x")
            rows.append([shape, sites, f"{said.messages:,}", f"{said.asking:,}", number(ratio), said.changes])
    section.text(f"Alerts over sites, {looks:,} looks of each site:")
    section.text(table(["share", "sites", "messages", "of asking", "of its bytes", "changes"], rows))
    say("answers of alerts over sites: those of asking")


def measured(sites: int, shape: str, looks: int) -> Said:
    """What is said in so many looks of each site; AssertionError for a state that is wrong."""
    rng, places = np.random.default_rng(sites), Places(sites)
    windows = [deque[tuple[int, int]](maxlen=WINDOW) for _ in range(sites)]
    for look in range(looks):
        share = SHARES[shape](look / looks)
        for site, window in enumerate(windows):
            count = int(rng.poisson(ROWS))
            window.append((count, int(rng.binomial(count, share))))
            rows, above = (sum(one) for one in zip(*window, strict=True))
            places.values[site] = [100 * above - rows, rows]
            before = places.coordinator.reached
            places.look(site)
            assert places.coordinator.reached[0] == (sum(one for one, _ in places.values) >= 1)
            places.said.changes += before[0] != places.coordinator.reached[0]
            places.said.asking += 2
            places.said.bytes_of_asking += 2 * HEADER + len(vector_text(places.values[site]))
    return places.said
