"""Tests of the tests: mistakes, some of them the thesis's, must be caught by persistence_world.py."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.sketches.persistence_world import (
    SlotSets,
    assert_exact,
    assert_planned,
    assert_promise,
    late_absolute,
    mixed_rows,
)
from tidemark.sketches import SketchError
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.persistence import all_items, coordinator, plans, slot_sample
from tidemark.sketches.persistence.all_items import AllItems
from tidemark.sketches.persistence.coordinator import Coordinator
from tidemark.sketches.persistence.messages import SlotLists, Tracked
from tidemark.sketches.persistence.pair_hashes import pair_hashes
from tidemark.sketches.persistence.plans import Plan
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.persistence.sampled_items import SampledItems
from tidemark.sketches.persistence.site import Site
from tidemark.sketches.persistence.slot_sample import Ints, Sampling, SlotSample
from tidemark.sketches.sites.machine import Message

THESIS_PLAN, SIZE = plans.thesis_plan, slot_sample.sample_size
KEPT, ESTIMATE, TAKE = Sampling.kept, Sampling.estimate, Coordinator.take
Patch = tuple[object, str, Callable[..., object]]


def exercise() -> None:
    """All algorithms over a few windows of mixed rows, each against the rows."""
    promise = Promise(sites=3, slots=50, alpha=0.6, eps=0.4, delta=math.exp(-2), sliding=True)
    thesis, single = plans.thesis_plan(promise), plans.one_instance_plan(promise)
    assert_promise(thesis)
    assert_promise(single)
    # Fewer sampled pairs than these plans ask for: then items are forgotten, and missed slots matter.
    rare = [replace(thesis, rate=0.1), replace(thesis, rate=0.1, sample_size=6), replace(single, rate=0.05)]
    trackers, exact, truth = [SampledItems(plan) for plan in rare], AllItems(promise), SlotSets()
    # Several sites hide that a sample lost slots: the smallest hashes of all are seldom many of one site.
    alone = SampledItems(replace(rare[1], promise=replace(promise, sites=1)))
    for i, (slot, site, digests) in enumerate(mixed_rows(9, 50, 200).calls(3)):
        truth.add(digests.tolist(), slot)
        exact.update(site, digests, slot)
        for tracker in trackers:
            tracker.update(site, digests, slot)
        alone.update(0, digests, slot)
        if i % 40 == 0:
            assert_exact(exact, truth, slot)
            for tracker in (*trackers, alone):
                assert_planned(tracker, truth, slot)


def printed_thesis_plan(promise: Promise) -> Plan:
    """delta2 = min(1, 2 / ln(1 / delta)) * delta, and the instances that theorem 2 asks for with it."""
    delta2 = min(1, 2 / math.log(1 / promise.delta)) * promise.delta
    instances = math.ceil(math.log(promise.delta) / math.log(math.exp(-2) + delta2))
    return replace(THESIS_PLAN(promise), instances=instances, delta2=delta2)


def all_slots(lists: Sequence[SlotLists]) -> SlotLists:
    """A union in which the slots of several sites add up."""
    digests = np.concatenate([np.repeat(one.digests, one.counts) for one in lists])
    order = np.argsort(digests, kind="stable")
    items, starts = np.unique(digests[order], return_index=True)
    slots = np.concatenate([one.slots for one in lists])[order]
    return SlotLists(items, np.append(starts, len(slots)).astype(np.int64), slots)


def tell_nobody(self: Coordinator, sender: int, message: Tracked) -> list[Message]:
    TAKE(self, sender, message)
    return []


def take_with_a_new_sample(self: Site, message: Tracked) -> None:
    self._track(message.digest, message.slot).slots.insert(message.slot, self._start)


def observe_as_printed(self: Site, digests: Digests, slot: int) -> list[Message]:
    """Looks for (d, t) among the items, where it never is: so each row is one of an item not tracked yet."""
    outgoing = []
    sampled = pair_hashes(digests, np.array([slot]), self._salt) < self._rate
    for digest in digests[sampled].tolist():
        item = self._track(digest, slot)
        item.slots.insert(slot, self._start)
        item.sampled = slot
        outgoing.append(Tracked(digest, slot).message())
    return outgoing


def renew_nothing(self: Site, start: int) -> list[Message]:
    self._start = start
    self._undecided += [digest for digest, told in self.told().items() if told < start]
    return []


def insert_again(self: SlotSample, slot: int, _: int) -> None:
    self._slots.append(slot)
    self._limit = len(self._slots) + 1


def smallest_of_all(self: Sampling, digest: int, slots: Ints) -> Ints:
    return KEPT(replace(self, sliding=False), digest, slots)


MISTAKES: dict[str, list[Patch]] = {
    "(d, t) is looked for among the items, as algorithm 5 is printed": [
        (Site, "observe", observe_as_printed),
    ],
    "nothing is ever untracked": [
        (Site, "forget", lambda *_: None),
        (Coordinator, "forget", lambda *_: None),
    ],
    "the coordinator forgets nothing": [(Coordinator, "forget", lambda *_: None)],
    "a tracked item is forgotten with its first slot": [(Site, "renew", renew_nothing)],
    "missed slots are limited by the slot t_d itself": [(Coordinator, "_late", late_absolute)],
    "the sampled slot counts as missed, too": [
        (Plan, "missed", lambda self, late: np.minimum(1 / self.rate, late)),
    ],
    "nothing is taken for missed": [(Plan, "missed", lambda _, late: np.zeros(len(late)))],
    "each instance errs with all of delta": [(plans, "thesis_plan", printed_thesis_plan)],
    "samples are of a quarter of the size": [(plans, "sample_size", lambda *sides: SIZE(*sides) // 4)],
    "slots count once a site": [(coordinator, "union", all_slots)],
    "slots count once a site in A": [(all_items, "union", all_slots)],
    "slots count once a row": [(SlotSample, "insert", insert_again)],
    "other sites are not told": [(Coordinator, "take", tell_nobody)],
    "a message begins a new sample": [(Site, "take", take_with_a_new_sample)],
    "a window begins one slot earlier": [
        (Promise, "window_start", lambda self, now: max(0, now - self.slots)),
    ],
    "a window begins one slot later": [
        (Promise, "window_start", lambda self, now: max(0, now - self.slots + 2)),
    ],
    "a sliding sample keeps the smallest alone": [(Sampling, "kept", smallest_of_all)],
    "the estimate is s / v": [
        (Sampling, "estimate", lambda self, *item: ESTIMATE(self, *item) * self.size / (self.size - 1)),
    ],
}


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in MISTAKES[mistake]:
        monkeypatch.setattr(*patch)
    with pytest.raises((AssertionError, SketchError)):
        exercise()
