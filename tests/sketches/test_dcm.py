"""DCM: the coordinator's counts against the last rows of each site, after every row."""

from functools import reduce
from typing import Any

import numpy as np
import pytest

from bench.shifting_streams import shifting
from tests.sketches.arrivals import Ints
from tidemark.sketches import ECM, CorruptSketch, Counting, InvalidInput, digest
from tidemark.sketches import dcm as dcm_module
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.dcm import DCMCoordinator, DCMSite
from tidemark.sketches.errors import LostState, Undelivered
from tidemark.sketches.hashing.row_hashes import RowHashes
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.network import Network

HASHES, SITES, WINDOW, SHARE = RowHashes(2, 8, 5), 3, 120, 0.1
KINDS: tuple[CounterKind, ...] = ("PF", "SI", "PR", "SP", "EH", "DW")


def sketch(kind: CounterKind = "PF") -> ECM:
    return ECM.of(HASHES, Counting(kind, 0.1, WINDOW, "count"), eps=0.1, delta=0.1)


class World:
    def __init__(self, kind: CounterKind = "PF", faults: Faults | None = None) -> None:
        self.kind, self.sites = kind, [DCMSite(sketch(kind), SHARE) for _ in range(SITES)]
        self.coordinator = DCMCoordinator(sketch(kind), SITES, SHARE)
        machines: dict[int, Any] = {**dict(enumerate(self.sites)), COORDINATOR: self.coordinator}
        self.network = Network("dcm", machines, channel=Channel(faults, seed=2))
        self.rows: list[Ints] = [np.empty(0, np.int64)] * SITES

    def update(self, site: int, keys: Ints) -> None:
        self.rows[site] = np.concatenate([self.rows[site], keys])
        self.network.send(site, self.sites[site].update(digest(keys)))
        self.network.settle()

    def check(self) -> None:
        last = digest(np.concatenate([rows[-WINDOW:] for rows in self.rows]))
        true = np.bincount(HASHES.cells_of(last).ravel(), minlength=HASHES.cells)
        found = self.coordinator.bounds().cells
        assert np.all((found.lo <= true) & (true <= found.hi)), "a bound is wrong"
        here = sum(site.sketch.bounds().cells.estimate for site in self.sites)
        if self.kind in ("PF", "PR", "SP"):
            assert np.abs(found.estimate - here).max() <= SITES * (SHARE * WINDOW + 0.5)
        told = self.coordinator.told().cells
        assert np.all((found.lo <= told.lo) & (told.hi <= found.hi))


def exercise(kind: CounterKind, faults: Faults | None = None) -> World:
    """Single rows and batches, at sites of unlike rates, one of them silent for long."""
    world, rng = World(kind, faults), np.random.default_rng(3)
    keys = shifting("Zipf-1", 4_000, 3, items=40, period=300)
    at = 0
    for step in range(220):
        site = int(rng.choice(SITES, p=[0.7, 0.28, 0.02]))
        count = int(rng.integers(1, 60)) if step % 10 == 0 else int(rng.integers(1, 4))
        world.update(site, keys[at : at + count])
        at += count
        world.check()
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_the_coordinator_is_within_k_eps_n_after_every_row(kind: CounterKind) -> None:
    world = exercise(kind)
    rows = sum(len(one) for one in world.rows)
    assert world.network.channel.sent.messages <= rows / (SHARE * WINDOW) + SITES


def test_simple_forgets_more_than_k_eps_n_between_two_messages() -> None:
    """Theorem 3.8 of the paper, which is said to hold for all: the bounds do, the estimate does not."""
    world = World("SI")
    for site in range(SITES):
        world.update(site, np.zeros(WINDOW, np.int64))
        world.update(site, np.zeros(1, np.int64))
    here = sum(one.sketch.bounds().cells.estimate for one in world.sites)
    assert np.abs(world.coordinator.bounds().cells.estimate - here).max() > SITES * SHARE * WINDOW
    world.check()


def test_a_hostile_channel_changes_nothing() -> None:
    harm = Faults(dropped=0.2, repeated=0.2, reordered=0.3, truncated=0.1, forged=0.2)
    assert exercise("SP", harm).network.refused["not authentic"] > 0


def test_a_restarted_site_is_refused_until_it_has_had_a_window() -> None:
    world = World("DW")
    for site in range(SITES):
        world.update(site, np.arange(200) % 7)
    world.sites[1] = DCMSite(sketch("DW"), SHARE)
    world.network.restart(1, world.sites[1])
    world.network.settle()
    for _ in range(9):
        with pytest.raises(LostState, match="1"):
            world.coordinator.bounds()
        world.update(1, np.arange(12))
    world.update(1, np.arange(12))
    world.check()
    world.coordinator = DCMCoordinator(sketch("DW"), SITES, SHARE)
    with pytest.raises(Undelivered, match="0, 1, 2"):
        world.coordinator.bounds()
    world.network.restart(COORDINATOR, world.coordinator)
    world.network.settle()
    world.check()


def test_what_is_no_sketch_of_dcm_or_no_message_is_refused() -> None:
    for wrong in (ECM(0.1, 0.1, window=9), ECM(0.1, 0.1, clock="count")):
        with pytest.raises(InvalidInput, match="clock 'count'"):
            DCMSite(wrong, 0.1)
    with pytest.raises(InvalidInput, match="share"):
        DCMCoordinator(sketch(), 2, 1.5)
    for payload in (b"", b"\0" * 9, b"\0" * 10, b"\0" * 9 + b"\xff" * 9 + b"\x01" + b"\0" * 47):
        with pytest.raises(CorruptSketch):
            DCMCoordinator(sketch(), 2, 0.1).receive(0, 1, payload)


UPDATE = DCMSite.update
MISTAKES: dict[str, tuple[object, str, Any]] = {
    "what is not sent is left out of the bounds": (DCMCoordinator, "_now", lambda _, counts: counts),
    "a site keeps a message back": (DCMSite, "update", lambda self, rows: UPDATE(self, rows)[1:]),
    "one site is left out": (dcm_module, "reduce", lambda add, parts: reduce(add, list(parts)[1:])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError):
        exercise("PF")
