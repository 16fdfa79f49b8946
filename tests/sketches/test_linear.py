"""Sums over sites against thresholds: never wrong when nothing is under way, and cheaper than asking."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tidemark.sketches.errors import CorruptSketch, SketchError
from tidemark.sketches.geometric import linear
from tidemark.sketches.geometric.linear import LinearCoordinator, LinearSite, vector_text


class World:
    """Sites, a coordinator, and messages between them that take their time; each link keeps its order."""

    def __init__(self, sites: int, thresholds: list[int], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: list[list[int] | str] = [[0] * len(thresholds) for _ in range(sites)]
        self.thresholds, self.messages = thresholds, 0
        self.sites = [LinearSite() for _ in range(sites)]
        self.watched = set(range(len(thresholds)))
        self.looks = [0] * sites
        self.links: dict[tuple[str, int], deque[Any]] = {}
        self.coordinator = LinearCoordinator(
            sites,
            thresholds,
            lambda site: self.send("to", site, "ask"),
            lambda site, zones: self.send("to", site, json.loads(vector_text(zones))),
        )

    def send(self, way: str, site: int, content: Any) -> None:
        self.messages += 1
        self.links.setdefault((way, site), deque()).append(content)

    def look(self, site: int) -> None:
        values = self.values[site]
        self.looks[site] += 1
        if self.sites[site].must_report(values):
            self.send("from", site, list(values) if isinstance(values, list) else values)

    def carry(self, most: int = 10**9) -> None:
        """Delivers messages in a random order of the links, until nothing is under way."""
        for _ in range(most):
            waiting = [link for link, queue in self.links.items() if queue]
            if not waiting:
                return
            way, site = link = waiting[int(self.rng.integers(len(waiting)))]
            content = self.links[link].popleft()
            if way == "from":
                self.coordinator.receive(site, content, self.looks[site])
                continue
            if content == "ask":
                self.sites[site].ask()
            else:
                self.sites[site].take(content)
            self.look(site)

    def begin(self) -> None:
        for site in range(len(self.sites)):
            self.coordinator.joined(site)
            self.look(site)
        self.carry()

    def restart(self, site: int) -> None:
        """It knows nothing; what was under way to it and from it is lost."""
        self.sites[site] = LinearSite()
        for way in ("to", "from"):
            self.links.pop((way, site), None)
        self.coordinator.joined(site)
        self.look(site)

    def watch(self) -> None:
        """Other places are watched now, as the answers to some questions do not matter."""
        self.watched = {place for place in range(len(self.thresholds)) if self.rng.random() < 0.6}
        self.coordinator.watch(self.watched)

    def assert_right(self) -> None:
        if any(isinstance(one, str) for one in self.values):
            assert self.coordinator.problems
            return
        assert self.coordinator.is_known
        assert not self.coordinator.problems
        sums = [sum(column) for column in zip(*self.values, strict=True)]
        wanted = [a >= c for a, c in zip(sums, self.thresholds, strict=True)]
        assert all(self.coordinator.reached[place] == wanted[place] for place in self.watched)
        self.assert_zones()

    def assert_zones(self) -> None:
        """The zones at the sites add up to the thresholds, and every site is inside of its own."""
        if self.coordinator._values:
            assert [site._reported for site in self.sites] == self.values
            assert {len(site._zones or []) for site in self.sites} == {0}
            return
        for place in self.watched:
            threshold = self.thresholds[place]
            zones = [site._zones[place] for site in self.sites]  # type: ignore[index]
            sign = zones[0][0]
            assert {one for one, _ in zones} == {sign}
            assert sum(least for _, least in zones) == (threshold if sign == 1 else 1 - threshold)
            for values, (_, least) in zip(self.values, zones, strict=True):
                assert sign * values[place] >= least  # type: ignore[operator]


def moves(world: World, steps: int) -> Iterator[int]:
    """Values that rise and fall, by little and by much, and sometimes are not known; the site that moved."""
    rng = world.rng
    for step in range(steps):
        site = int(rng.integers(len(world.sites)))
        values = world.values[site]
        if isinstance(values, str):
            world.values[site] = [int(one) for one in rng.integers(-50, 50, len(world.thresholds))]
        elif rng.random() < 0.02:
            world.values[site] = "no new rows"
        else:
            scale = (1, 8, 60)[step // 40 % 3]
            world.values[site] = [int(one + rng.integers(-scale, scale + 1)) for one in values]
        yield site


@pytest.mark.parametrize("sites", range(1, 9))
def test_no_quiet_state_is_wrong(sites: int) -> None:
    world = World(sites, [1, 40, -30, 2**70], seed=sites)
    world.begin()
    world.assert_right()
    for step, site in enumerate(moves(world, 300)):
        if step % 31 == 30:
            world.watch()
        world.look(site)
        world.carry()
        world.assert_right()


@pytest.mark.parametrize("seed", range(4))
def test_messages_that_take_their_time_and_sites_that_are_started_again(seed: int) -> None:
    world = World(5, [10, -10], seed)
    world.begin()
    for step, site in enumerate(moves(world, 300)):
        world.look(site)
        world.carry(int(world.rng.integers(4)))
        if step % 23 == 0:
            world.restart(int(world.rng.integers(5)))
        if step % 37 == 0:
            world.watch()
        if step % 20 == 19:
            world.carry()
            world.assert_right()


def test_far_from_the_threshold_next_to_nothing_is_said() -> None:
    world = World(6, [5_000])
    world.begin()
    looks = 0
    for _ in range(700):
        for site in range(6):
            world.values[site] = [world.values[site][0] + 1]  # type: ignore[operator]
            looks += 1
            world.look(site)
            world.carry()
        world.assert_right()
    assert world.coordinator.phases["all"] < 30
    assert world.messages < looks / 10


def test_one_busy_site_borrows_the_room_of_some_others() -> None:
    world = World(8, [1_000])
    world.begin()
    for _ in range(400):
        world.values[0] = [world.values[0][0] + 1]  # type: ignore[operator]
        world.look(0)
        world.carry()
        world.assert_right()
    assert world.coordinator.phases["balanced"] > world.coordinator.phases["all"] > 0


@pytest.mark.parametrize("sites", [2, 8])
def test_at_the_threshold_hardly_more_is_said_than_a_report_a_look(sites: int) -> None:
    """Sites follow then, for long; far from it they have zones again."""
    world, looks = World(sites, [0]), 0
    world.begin()
    for centre in (0, 40 * sites):
        said = 0
        before = world.messages
        for _ in range(600):
            for site in range(sites):
                world.values[site] = [int(world.rng.integers(-3, 4)) + centre]
                looks += 1
                world.look(site)
                world.carry()
                world.assert_right()
        said = world.messages - before
        assert said < (1.4 if centre == 0 else 0.25) * 600 * sites
    assert world.coordinator.phases["followed"] > 0
    assert not world.coordinator._values


def test_what_does_not_matter_is_not_said() -> None:
    """A sum that goes to and fro over its threshold, and is not watched; then it is."""
    world = World(3, [10, 50])
    world.begin()
    world.coordinator.watch({1})
    world.carry()
    said = []
    for is_watched in (False, True):
        if is_watched:
            world.coordinator.watch({0, 1})
            world.carry()
        before = world.messages
        for step in range(60):
            world.values[step % 3] = [int(6 * (step // 3 % 2)), 0]
            world.look(step % 3)
            world.carry()
        said.append(world.messages - before)
        assert world.coordinator.reached[1] is False
    assert said[0] < 20 < said[1]
    world.assert_right()


def test_an_interval_is_inside_if_all_of_it_is() -> None:
    site = LinearSite()
    assert site.is_inside([0], -1, 10)
    site.take([[1, 5], [-1, -7]])
    assert site.is_inside([0], 5, 9)
    assert not site.is_inside([0], 4, 9)
    assert site.is_inside([1], -3, 7)
    assert not site.is_inside([0, 1], 5, 8)


@pytest.mark.parametrize("wrong", [None, 7, [1], [[2, 3]], [[1, 2.5]], [[1, True]], [[1]], {"a": 1}])
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    with pytest.raises(CorruptSketch):
        LinearSite().take(wrong)
    with pytest.raises(CorruptSketch):
        World(1, [1, 2]).coordinator.receive(0, wrong)


TAKE, MUST, SHARE = LinearSite.take, LinearSite.must_report, LinearCoordinator._share


def old_zones_are_kept(self: LinearSite, zones: Any) -> None:
    """The drift is not reset: after an exchange a site goes on with its first zones."""
    if self._zones is None:
        TAKE(self, zones)
    self._is_outside = False


def zones_that_are_too_wide(self: LinearSite, zones: Any) -> None:
    """Each site takes the room of all of them."""
    TAKE(self, [[sign, least - 25] for sign, least in zones])


def nothing_is_subtracted(self: LinearSite, values: Any) -> bool:
    """What was counted once stays: rows that are removed, or leave the window, do not count less."""
    zones = self._zones or []
    if zones and not isinstance(values, str) and not self._is_asked:
        values = [
            max(one, least) if sign > 0 else one for one, (sign, least) in zip(values, zones, strict=True)
        ]
    return MUST(self, values)


def all_the_room_to_the_first(self: LinearCoordinator, slacks: list[int]) -> None:
    """Shares that do not add up: each gets the room of all."""
    SHARE(self, [slack * max(1, len(self._told)) for slack in slacks])


def who_follows_says_nothing(self: LinearSite, zones: Any) -> None:
    TAKE(self, zones or [[0, 0], [0, 0]])


MISTAKES = {
    "who follows says nothing": (LinearSite, "take", who_follows_says_nothing),
    "a drift that is not reset": (LinearSite, "take", old_zones_are_kept),
    "zones that are too wide": (LinearSite, "take", zones_that_are_too_wide),
    "a removal that is not subtracted": (LinearSite, "must_report", nothing_is_subtracted),
    "places that are watched again have no zones": (LinearCoordinator, "_lacks_zones", False),
    "room that is given twice": (LinearCoordinator, "_share", all_the_room_to_the_first),
}


def exercise() -> None:
    """The tests above that are about what is right, in short."""
    for seed in range(4):
        world = World(4, [10, -10], seed)
        world.begin()
        for step, site in enumerate(moves(world, 120)):
            world.look(site)
            world.carry()
            world.assert_right()
            if step % 29 == 28:
                world.restart(int(world.rng.integers(4)))
                world.carry()
            if step % 17 == 16:
                world.watch()
                world.carry()
                world.assert_right()

    world = World(2, [0])
    world.begin()
    for step in range(120):  # at the threshold: sites follow
        world.values[step % 2] = [int(world.rng.integers(-3, 4))]
        world.look(step % 2)
        world.carry()
        world.assert_right()
    assert world.coordinator.phases["followed"]


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, SketchError)):
        exercise()


def test_parts_of_a_whole_number_add_up() -> None:
    for whole in range(40):
        for parts in range(1, 9):
            shares = [linear._part(whole, parts, number) for number in range(parts)]
            assert sum(shares) == whole
            assert max(shares) - min(shares) <= 1
