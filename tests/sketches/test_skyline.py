"""Skylines over sites: after every change equal to a brute force over the sums, on hostile channels, too."""

from typing import Any

import numpy as np
import pytest

from tests.sketches.arrivals import Ints
from tidemark.sketches import CorruptSketch, InvalidInput, skyline
from tidemark.sketches.errors import Undelivered
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.network import Network
from tidemark.sketches.skyline import SkylineCoordinator, SkylineSite

HARM = Faults(dropped=0.2, repeated=0.2, reordered=0.3, truncated=0.1, forged=0.2)


def brute(values: Ints) -> list[int]:
    """The objects that none dominates: every pair is looked at."""
    rows = [tuple(row) for row in values.tolist()]
    return [
        i
        for i, b in enumerate(rows)
        if not any(all(x >= y for x, y in zip(a, b, strict=True)) and a != b for a in rows)
    ]


class World:
    def __init__(self, parts: Ints, faults: Faults | None = None) -> None:
        self.parts = parts.copy()
        n, *shape = parts.shape
        self.sites = [SkylineSite(part, n) for part in parts]
        self.coordinator = SkylineCoordinator((shape[0], shape[1]), n)
        machines: dict[int, Any] = {COORDINATOR: self.coordinator, **dict(enumerate(self.sites))}
        self.network = Network("skyline", machines, channel=Channel(faults, seed=1))

    def update(self, site: int, objects: Ints, attributes: Ints, amounts: Ints) -> None:
        np.add.at(self.parts[site], (objects, attributes), amounts)
        self.network.send(site, self.sites[site].update(objects, attributes, amounts))
        self.network.settle()

    def check(self) -> None:
        assert self.coordinator.skyline().tolist() == brute(self.parts.sum(axis=0)), "another skyline"


def exercise(n: int, objects: int, width: int, faults: Faults | None = None, steps: int = 120) -> World:
    """Small values and jumps, so that equal objects, ties and crossings come often."""
    rng = np.random.default_rng(n + objects)
    world = World(rng.integers(0, 3, (n, objects, width)), faults)
    world.check()
    for _ in range(steps):
        site, k = int(rng.integers(n)), int(rng.integers(1, 4))
        world.update(site, rng.integers(0, objects, k), rng.integers(0, width, k), rng.integers(-2, 3, k))
        world.check()
    return world


@pytest.mark.slow
@pytest.mark.parametrize(("n", "objects", "width"), [(1, 1, 1), (1, 9, 2), (2, 5, 1), (4, 12, 3), (64, 8, 2)])
def test_the_skyline_is_that_of_the_sums_after_every_change(n: int, objects: int, width: int) -> None:
    exercise(n, objects, width)


def test_a_hostile_channel_changes_nothing() -> None:
    assert exercise(4, 8, 2, HARM, steps=60).network.refused["not authentic"] > 0


@pytest.mark.slow
def test_few_changes_are_told_where_objects_are_far_apart() -> None:
    rng = np.random.default_rng(5)
    world = World(rng.integers(0, 20_000, (8, 40, 3)))
    for step in range(500):
        objects, attributes = rng.integers(0, 40, 40), rng.integers(0, 3, 40)
        world.update(int(rng.integers(8)), objects, attributes, rng.integers(-9, 10, 40))
        if step % 20 == 0:
            world.check()
    changes = 500 * 40
    assert world.network.channel.sent.messages < changes / 10
    assert world.network.channel.sent.payload < 2 * changes  # a change itself takes three bytes or more


def test_places_that_are_started_again_are_asked_again() -> None:
    world = exercise(3, 6, 2, steps=40)
    world.sites[1] = SkylineSite(world.parts[1], 3)
    world.network.restart(1, world.sites[1])
    world.network.settle()
    world.check()
    world.coordinator = SkylineCoordinator((6, 2), 3)
    with pytest.raises(Undelivered, match="report"):
        world.coordinator.skyline()
    world.network.restart(COORDINATOR, world.coordinator)
    world.network.settle()
    world.check()
    world.update(0, np.array([0, 0]), np.array([0, 1]), np.array([99, 99]))
    world.check()


def test_what_is_no_skyline_or_no_message_is_refused() -> None:
    for values, n in ((np.zeros(3), 2), (np.zeros((0, 2), int), 2), ([[1]], 0), ([[2**43]], 1), ([[0.5]], 1)):
        with pytest.raises(InvalidInput):
            SkylineSite(values, n)
    site = SkylineSite([[1, 2], [3, 4]], 2)
    for wrong in (
        ([2], [0], [1]),
        ([0], [-1], [1]),
        ([0], [0], [1, 2]),
        ([0], [0], [2**62]),
        ([0], [0], [0.5]),
    ):
        with pytest.raises(InvalidInput):
            site.update(*wrong)
    assert site.values.tolist() == [[1, 2], [3, 4]]
    for payload in (b"", b"\0" * 7, b"\0\0\0\0\1\0\0\0", b"\0\0\0\0\1\0\0\0\7", b"\0\0\0\0\2\0\0\0\1\0"):
        with pytest.raises(CorruptSketch):
            site.receive(COORDINATOR, skyline.COLLECT, payload)
    with pytest.raises(CorruptSketch):
        site.receive(COORDINATOR, skyline.ZONES, b"\1\0\0\0\1\0\0\0\0\2")


def _without(wrong: Any) -> Any:
    """`conditions_of` with the places where `wrong` is true left out."""
    whole = skyline.conditions_of

    def partial(values: Ints) -> skyline.Conditions:
        found = whole(values)
        kept = ~wrong(values, found)
        return skyline.Conditions(
            found.above[kept], found.below[kept], found.attributes[kept], found.room[kept]
        )

    return partial


def _equal(values: Ints, found: skyline.Conditions) -> Any:
    return (values[found.above] == values[found.below]).all(axis=1)


def _in_skyline(values: Ints, found: skyline.Conditions) -> Any:
    inside = skyline.skyline_of(values)
    return np.isin(found.below, inside)


FIRST: Any = SkylineSite.__init__
MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "equal objects have no zone": (skyline, "conditions_of", _without(_equal)),
    "pairs of the skyline have no zone": (skyline, "conditions_of", _without(_in_skyline)),
    "objects outside have no zone": (
        skyline,
        "conditions_of",
        _without(lambda values, found: ~_in_skyline(values, found)),
    ),
    "a site keeps a complaint back": (SkylineSite, "_complaints", lambda _: []),
    "the zones are those of one site": (
        SkylineSite,
        "__init__",
        lambda self, values, _: FIRST(self, values, 1),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(AssertionError):
        [exercise(n, objects, width) for n, objects, width in ((2, 5, 1), (4, 12, 3))]
