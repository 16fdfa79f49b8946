"""Rows of many sites, the plain sets of slots that are true of them, and checks against these sets."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.persistence.all_items import AllItems
from tidemark.sketches.persistence.coordinator import Coordinator
from tidemark.sketches.persistence.messages import SlotLists
from tidemark.sketches.persistence.pair_hashes import hash_salt, pair_hashes
from tidemark.sketches.persistence.plans import Plan
from tidemark.sketches.persistence.promise import PersistenceTracker, PersistentItems, Promise
from tidemark.sketches.persistence.sampled_items import SampledItems

Ints = NDArray[np.int64]


def window_start(promise: Promise, now: int) -> int:
    return max(0, now - promise.slots + 1) if promise.sliding else 0


@dataclass
class SlotSets:
    """The slots of every item: what is true."""

    slots: dict[int, set[int]] = field(default_factory=dict)

    def add(self, digests: Iterable[int], slot: int) -> None:
        for digest in digests:
            self.slots.setdefault(digest, set()).add(slot)

    def window(self, promise: Promise, now: int) -> dict[int, list[int]]:
        """The slots of each item in the window that ends with `now`, ascending."""
        start = window_start(promise, now)
        return {d: sorted(t for t in slots if t >= start) for d, slots in self.slots.items()}


@dataclass(frozen=True)
class Rows:
    """Rows in order of time: the item digests[i] in slots[i]."""

    digests: NDArray[np.uint64]
    slots: Ints

    def feed(self, trackers: Iterable[PersistenceTracker], sites: int, seed: int = 0) -> None:
        for slot, site, digests in self.calls(sites, seed):
            for tracker in trackers:
                tracker.update(site, digests, slot)

    def calls(self, sites: int, seed: int = 0) -> Iterator[tuple[int, int, NDArray[np.uint64]]]:
        """(slot, site, digests) of each update; a site is drawn for every row, and its order in the slot."""
        rng = np.random.default_rng(seed)
        at = rng.integers(0, sites, len(self.slots))
        order = np.lexsort((rng.random(len(at)), at, self.slots))
        group = self.slots[order] * sites + at[order]
        begins = np.flatnonzero(np.diff(group, prepend=-1))
        for rows in np.split(order, begins[1:]) if len(order) else []:
            yield int(self.slots[rows[0]]), int(at[rows[0]]), self.digests[rows]


def regular(items: int, slots: Iterable[int], first_digest: int = 0) -> Rows:
    """Rows of `items` items, each in all of `slots`."""
    at = np.array(sorted(slots), np.int64)
    digests = np.arange(first_digest, first_digest + items, dtype=np.uint64)
    return Rows(np.tile(digests, len(at)), np.repeat(at, items))


def mixed_rows(seed: int, slots: int, length: int) -> Rows:
    """Items in every slot, in most, in few, in bursts, gone for longer than a window; with repeats."""
    rng = np.random.default_rng(seed)
    pairs: list[tuple[int, int]] = []
    for digest in range(18):
        share = [1.0, 0.9, 0.6, 0.4, 0.1, 0.02][digest % 6]
        present = rng.random(length) < share
        if digest % 4 == 1:
            present[slots : 3 * slots] = False
        if digest % 4 == 2:
            present &= np.arange(length) // (slots // 2 + 1) % 2 == 0
        times = np.repeat(np.flatnonzero(present), rng.integers(1, 4))
        pairs += [(digest * 2**59, int(t)) for t in times]
    digests = np.array([digest for digest, _ in pairs], np.uint64)
    return Rows(digests, np.array([slot for _, slot in pairs], np.int64))


def as_dict(found: PersistentItems) -> dict[int, float]:
    assert found.digests.dtype == np.uint64
    assert found.persistence.dtype == np.float64
    assert found.digests.tolist() == sorted(set(found.digests.tolist()))
    return dict(zip(found.digests.tolist(), found.persistence.tolist(), strict=True))


def assert_exact(tracker: AllItems, truth: SlotSets, now: int) -> None:
    """A reports exactly the persistent items, with their persistence."""
    tracker.check_invariants()
    promise = tracker.promise
    persistence = {d: len(slots) for d, slots in truth.window(promise, now).items()}
    expected = {d: float(p) for d, p in persistence.items() if p >= round(promise.alpha * promise.slots, 9)}
    assert as_dict(tracker.persistent(now)) == expected


def assert_planned(tracker: SampledItems, truth: SlotSets, now: int) -> None:
    """SS and B track and report what the rows, the hashes and the formulas say, whatever the sites."""
    plan, promise = tracker.plan, tracker.plan.promise
    found = as_dict(tracker.persistent(now))
    tracker.check_invariants()
    estimates: dict[int, list[float]] = {}
    tracked = 0
    for instance in range(plan.instances):
        for digest in truth.slots:
            since = tracked_since(plan, instance, digest, sorted(truth.slots[digest]), now)
            if since is None:
                continue
            tracked += 1
            window = truth.window(promise, now)[digest]
            after = [t for t in window if t >= since]
            count = counted(plan, instance, digest, after)
            start = window_start(promise, now)
            late = max(0, since - start)
            # No estimate allows for more missed slots than the window has before the first sampled one.
            missed = min(1 / plan.rate - 1, late)
            if count >= threshold(plan, late):
                estimates.setdefault(digest, []).append(count + missed)
                assert len(after) + missed <= now - start + 1
    assert tracker.tracked == tracked
    expected = {digest: sum(some) / len(some) for digest, some in sorted(estimates.items())}
    assert list(found) == list(expected)
    assert np.allclose(list(found.values()), list(expected.values()), rtol=1e-12)


def tracked_since(plan: Plan, instance: int, digest: int, slots: list[int], now: int) -> int | None:
    """The slot since which the item is tracked at `now`, by the definition: None if it is not."""
    salt = hash_salt(plan.promise.seed, instance, "tracking")
    hashes = pair_hashes(np.array([digest], np.uint64), np.array(slots, np.int64), salt)
    sampled = [t for t, h in zip(slots, hashes.tolist(), strict=True) if h < plan.rate]
    if not sampled or sampled[-1] < window_start(plan.promise, now):
        return None
    # Back from the newest sampled slot while the window of one still has the one before it.
    since = sampled[-1]
    for slot in reversed(sampled):
        if slot < window_start(plan.promise, since):
            break
        since = slot
    return since


def counted(plan: Plan, instance: int, digest: int, slots: list[int]) -> float:
    """The estimate of their number from the hashes of all slots, sorted."""
    salt = hash_salt(plan.promise.seed, instance, "counting")
    hashes = pair_hashes(np.array([digest], np.uint64), np.array(slots, np.int64), salt)
    size = plan.sample_size
    return float(len(slots)) if len(slots) < size else (size - 1) / sorted(hashes.tolist())[size - 1]


def threshold(plan: Plan, late: int) -> float:
    """The least count that is reported, written as the thesis writes it: n' + min(1 / tau, late) >= T."""
    alpha_n, n, tau = plan.promise.alpha * plan.promise.slots, plan.promise.slots, plan.rate
    if plan.form == "one instance":
        return (1 - plan.eps2) * (plan.promise.alpha - plan.eps1) * n
    if late == 0 or tau == 1:
        return (1 - plan.eps2) * alpha_n
    # One lower where late counts fully, because `missed` leaves the sampled slot itself out.
    allowed = 1 / tau if late > 1 / tau - 1 else late + 1
    return (1 - plan.eps2) * (alpha_n + 1 - 1 / tau) - allowed


def assert_promise(plan: Plan) -> None:
    """The arithmetic of the guarantees: what the proofs need of the numbers of a plan."""
    promise, n = plan.promise, plan.promise.slots
    assert 0 < plan.rate <= 1
    assert plan.instances >= 1
    if plan.sample_size <= n:
        chernoff = math.log1p(plan.eps2) - plan.eps2 / (1 + plan.eps2)
        assert math.exp(-(plan.sample_size - 1) * chernoff) <= plan.delta2 * (1 + 1e-12)
    may_miss = 2 / plan.rate if plan.form == "thesis" else plan.eps1 * n
    # The first slot is missed in one of so many cases; with a rate of 1 never.
    not_tracked = (1 - plan.rate) ** (math.floor(may_miss) + (plan.form != "thesis"))
    assert (not_tracked + plan.delta2) ** plan.instances <= promise.delta * (1 + 1e-12)
    assert plan.instances * plan.delta2 <= promise.delta * (1 + 1e-12)
    # An item of just less than (alpha - eps) * n slots that is counted as high as may be.
    highest = (1 + plan.eps2) * (promise.alpha - promise.eps) * n
    least = min(threshold(plan, late) for late in range(n))
    assert highest <= least * (1 + 1e-12)


def late_absolute(self: Coordinator, kept: SlotLists, _: int) -> Ints:
    """The thesis's algorithm 6: t_d itself, whatever the start of the window."""
    return np.array([self._since[digest] for digest in kept.digests.tolist()], np.int64)
