"""Rows (item, slot) at sites, and what SS, A and B keep, send and report of them.

Every report is first held against the exact sets of slots: A is exact, B reports no item of fewer than
(alpha - eps) * n slots, and SS and B are wrong no more often than promised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.persistence.all_items import AllItems
from tidemark.sketches.persistence.coordinator import Coordinator
from tidemark.sketches.persistence.messages import SlotLists
from tidemark.sketches.persistence.plans import Plan, fewest_items_plan, one_instance_plan, thesis_plan
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.persistence.sampled_items import SampledItems
from tidemark.sketches.persistence.site import Site

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

PLANS: dict[str, Callable[[Promise], Plan]] = {
    "SS": one_instance_plan,
    "SS as in the thesis": thesis_plan,
    "B": fewest_items_plan,
}


@dataclass(frozen=True, slots=True, eq=False)
class SlotRows:
    """Rows by ascending slot: the item digests[i] in slots[i] at sites[i]."""

    digests: Keys
    slots: Ints
    sites: Ints

    def calls(self) -> Iterator[tuple[int, Keys, int]]:
        """(site, digests, slot) of each update: all rows of a slot at a site."""
        order = np.lexsort((self.sites, self.slots))
        digests, slots, sites = self.digests[order], self.slots[order], self.sites[order]
        begins = np.flatnonzero(np.diff(slots * (sites.max() + 1) + sites, prepend=-1))
        for begin, end in pairwise([*begins.tolist(), len(slots)]):
            yield int(sites[begin]), digests[begin:end], int(slots[begin])

    def persistence(self, start: int) -> tuple[Keys, Ints]:
        """The items since the slot `start`, and the exact number of slots of each."""
        inside = self.slots >= start
        pairs = np.unique(np.stack([self.digests[inside], self.slots[inside].astype(np.uint64)]), axis=1)
        items, counts = np.unique(pairs[0], return_counts=True)
        return items, counts


@cache
def zipf_rows(length: int, per_slot: int, sites: int, width: int) -> SlotRows:
    """Items by Zipf's law with exponent 1.5, `per_slot` rows for each of `length` slots.

    Slots are then joined to slots `width` times as wide.
    """
    rng = np.random.default_rng([7, length])
    rows = length * per_slot
    slots = np.sort(rng.integers(0, length, rows)) // width
    digests = np.minimum(rng.zipf(1.5, rows), 2**40).astype(np.uint64)
    return SlotRows(digests, slots, np.random.default_rng([8, sites]).integers(0, sites, rows))


@cache
def limit_rows(items: int, n: int, persistent: int, below: int, sites: int) -> SlotRows:
    """`items` items of exactly `persistent` of the last n of 2 n slots, and as many of `below` slots."""
    rng = np.random.default_rng([9, n])
    chosen = [
        np.sort(rng.choice(n, persistent if item < items else below, replace=False))
        for item in range(2 * items)
    ]
    digests = np.repeat(np.arange(2 * items, dtype=np.uint64), [len(slots) for slots in chosen])
    slots = np.concatenate(chosen) + n
    order = np.argsort(slots, kind="stable")
    return SlotRows(digests[order], slots[order], rng.integers(0, sites, len(slots)))


@cache
def few_slots_rows(windows: int) -> SlotRows:
    """2,000 items, each in 5 slots of every 1,000."""
    rng = np.random.default_rng(7)
    chosen = np.argsort(rng.random((windows, 2000, 1000)), axis=2)[:, :, :5]
    slots = (chosen + 1000 * np.arange(windows)[:, None, None]).ravel()
    digests = np.tile(np.repeat(np.arange(2000, dtype=np.uint64), 5), windows)
    order = np.argsort(slots, kind="stable")
    return SlotRows(digests[order], slots[order], np.zeros(len(slots), np.int64))


@dataclass(frozen=True, slots=True)
class Case:
    """One algorithm over rows of Zipf's law, or over items at the limits where `items` is set.

    n: the slots of the window, of width 1; the stream of a sliding one has 1.44 times as many.
    items: see limit_rows.
    """

    algorithm: str
    n: int
    eps: float
    per_slot: int = 3
    sites: int = 10
    width: int = 1
    is_sliding: bool = True
    alpha: float = 0.1
    delta: float = math.exp(-2)
    items: int = 0

    @property
    def promise(self) -> Promise:
        """What the algorithm promises."""
        return Promise(
            sites=self.sites,
            slots=self.n // self.width,
            alpha=self.alpha,
            eps=self.eps,
            delta=self.delta,
            sliding=self.is_sliding,
        )

    def rows(self) -> SlotRows:
        """The rows of the case."""
        if self.items:
            below = math.ceil((self.alpha - self.eps) * self.n - 1e-9) - 1
            rows = limit_rows(self.items, self.n, round(self.alpha * self.n), below, self.sites)
            return rows if self.is_sliding else replace(rows, slots=rows.slots - self.n)
        length = self.n * 36 // 25 if self.is_sliding else self.n
        return zipf_rows(length, self.per_slot, self.sites, self.width)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an algorithm kept, sent and reported, with one question at the end.

    held, sent: bytes; the slots of an item are the smaller of a list and a bitmap. *_as_lists: always lists.
    tracked: items, of all instances. persistent, others: items of at least alpha * n slots, and of fewer than
    (alpha - eps) * n. missed: of the first, not reported. by_mistake: of the others, reported.
    """

    held: int
    held_as_lists: int
    sent: int
    sent_as_lists: int
    tracked: int
    persistent: int
    missed: int
    others: int
    by_mistake: int


def measure(case: Case) -> Outcome:
    """Runs one case, with its report held against the exact sets of slots."""
    promise, rows = case.promise, case.rows()
    tracker = AllItems(promise) if case.algorithm == "A" else SampledItems(PLANS[case.algorithm](promise))
    for site, digests, slot in rows.calls():
        tracker.update(site, digests, slot)
    tracker.check_invariants()
    told = tracker.bytes_sent
    report = tracker.persistent()
    sent, held = tracker.bytes_sent, tracker.nbytes
    with patch.object(SlotLists, "as_bitmap", _never):
        tracker.persistent()
        sent_as_lists, held_as_lists = told + tracker.bytes_sent - sent, tracker.nbytes
    items, counts = rows.persistence(promise.window_start(int(rows.slots[-1])))
    reported = np.isin(items, report.digests)
    is_persistent = counts >= math.ceil(promise.alpha * promise.slots - 1e-6)
    is_other = counts < (promise.alpha - promise.eps) * promise.slots - 1e-6
    outcome = Outcome(
        held,
        held_as_lists,
        sent,
        sent_as_lists,
        len(items) if isinstance(tracker, AllItems) else tracker.tracked,
        int(is_persistent.sum()),
        int((is_persistent & ~reported).sum()),
        int(is_other.sum()),
        int((is_other & reported).sum()),
    )
    _assert_promise(case, outcome)
    if case.algorithm == "A":
        assert (reported == is_persistent).all(), "A is exact"
        assert report.persistence.tolist() == counts[is_persistent].tolist(), "A is exact"
    return outcome


def _never(self: SlotLists, _: int) -> NDArray[np.bool_]:
    """SlotLists.as_bitmap where all slots are lists, as in the thesis."""
    return np.zeros(len(self.digests), bool)


def _assert_promise(case: Case, outcome: Outcome) -> None:
    """At most delta of either kind is wrong, four standard errors and one item allowed."""
    for wrong, total in ((outcome.missed, outcome.persistent), (outcome.by_mistake, outcome.others)):
        deviation = math.sqrt(case.delta * (1 - case.delta) * total)
        assert wrong <= case.delta * total + 4 * deviation + 1, (case, outcome)
    assert outcome.by_mistake == 0 or case.algorithm.startswith("SS"), "A and B count exactly"


def tracked_by_window(windows: int, *, untracks: bool) -> tuple[list[int], float]:
    """The items that SS tracks after each window of few_slots_rows, and what theorem 7 allows.

    untracks: whether an item is forgotten once no sampled slot of it is in the window; in the thesis none is.
    """
    promise = Promise(sites=1, slots=1000, alpha=0.3, eps=0.05, delta=math.exp(-2), sliding=True)
    plan = replace(thesis_plan(promise), instances=1)
    tracker, tracked = SampledItems(plan), []
    forget = Site.forget, Coordinator.forget
    with (
        patch.object(Site, "forget", forget[0] if untracks else _nothing),
        patch.object(Coordinator, "forget", forget[1] if untracks else _nothing),
    ):
        window = 0
        for site, digests, slot in few_slots_rows(windows).calls():
            if slot // 1000 > window:
                tracked.append(tracker.tracked)
                window = slot // 1000
            tracker.update(site, digests, slot)
        tracked.append(tracker.tracked)
    return tracked, plan.rate * 2000 * 5


def _nothing(*_: object) -> None:
    """Stands in for forgetting."""
