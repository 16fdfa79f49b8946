"""A, the exact algorithm: every site keeps all slots of all items, and sends them when it is asked.

Guarantee: d is reported  <=>  p(d) >= alpha * n, and the estimate is p(d). alpha is read as a decimal number,
see target_rank.py.

Cost: O(1) a row. Memory of a site: 8 bytes an item of the window and its slots, see messages.py. A question
sends the whole state of all sites; nothing is sent before.

Source: Singh, thesis, Iowa State University, 2015, sections 3.4 and 3.7.
"""

import heapq

import numpy as np

from tidemark.sketches.bounds.target_rank import target_rank
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.persistence.answers import Answers
from tidemark.sketches.persistence.messages import LISTS, RESUMED, SlotLists, slot_lists, start_of, union
from tidemark.sketches.persistence.promise import (
    PersistenceTracker,
    PersistentItems,
    Promise,
    checked_rows,
    checked_slot,
)
from tidemark.sketches.persistence.slot_sample import Sampling, SlotSample
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Machine, Message
from tidemark.sketches.sites.network import Network


class AllItems(PersistenceTracker):
    """A, which is exact.

    >>> promise = Promise(sites=2, slots=4, alpha=0.75, eps=0.1, delta=0.1, sliding=True)
    >>> tracker = AllItems(promise)
    >>> for slot, site in enumerate([0, 1, 0]):
    ...     tracker.update(site, np.array([5, 5, slot], np.uint64), slot)
    >>> tracker.persistent().persistence
    array([3.])

    promise: what is asked; its eps, delta and seed do not matter.
    channel: carries the messages; None means one that does no harm.
    """

    def __init__(self, promise: Promise, channel: Channel | None = None) -> None:
        self.promise, self._now = promise, 0
        self._channel = Channel() if channel is None else channel
        self._exact = Sampling(promise.slots + 1, promise.sliding, 0)
        self._sites = [_SiteSlots(self._exact, promise.slots) for _ in range(promise.sites)]
        self._answers = Answers(promise, 0)
        places: dict[int, Machine] = {COORDINATOR: self._answers, **dict(enumerate(self._sites))}
        self._network = Network("all persistent items", places, channel=self._channel)

    @property
    def nbytes(self) -> int:
        """The bytes of the state of all sites; the coordinator has none."""
        return sum(one.nbytes(self.promise.slots) for one in self._lists())

    def update(self, site: int, digests: Digests, slot: int) -> None:
        """Adds the rows (d, slot) for every d of `digests`, observed at `site`; see PersistenceTracker.

        O(rows). Raises InvalidInput for arguments out of range.
        """
        site, digests = checked_rows(self.promise, site, digests)
        self._now = checked_slot(self.promise, slot, self._now, "slot")
        self._sites[site].observe(digests, self._now, self.promise.window_start(self._now))

    def persistent(self, now: int | None = None) -> PersistentItems:
        """The items that are persistent in the window that ends with the slot `now`; see PersistenceTracker.

        O(s log s), for s slots that are kept. Raises InvalidInput for a `now` out of range, LostState for a
        window in which a site was started again, Undelivered where the channel lets too little through.
        """
        self._now = self._now if now is None else checked_slot(self.promise, now, self._now, "now")
        self._answers.move(self._now)
        self._network.send(COORDINATOR, self._answers.ask())
        self._network.settle()
        kept = union(self._answers.lists())
        reported = kept.counts >= target_rank(self.promise.alpha, self.promise.slots)
        return PersistentItems(kept.digests[reported], kept.counts[reported].astype(np.float64))

    def restart(self, place: int) -> None:
        """A site, or COORDINATOR, ends and is started again, and knows nothing of what was before."""
        if place == COORDINATOR:
            self._answers = Answers(self.promise, self._now)
            self._network.restart(place, self._answers)
        else:
            self._answers.move(self._now)
            self._sites[place] = _SiteSlots(self._exact, self.promise.slots)
            self._network.restart(place, self._sites[place])
        self._network.settle()

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless every site has the slots of its items in order, up to now."""
        for site in self._sites:
            site.check_invariants(self.promise.window_start(self._now), self._now)

    def _lists(self) -> list[SlotLists]:
        start = self.promise.window_start(self._now)
        return [site.lists(start) for site in self._sites]


class _SiteSlots:
    """The slots of all items of the window at one site, a `Machine`."""

    def __init__(self, exact: Sampling, window: int) -> None:
        """A site without items. exact: the sampling that keeps every slot. window: how many there are."""
        self._exact, self._window = exact, window
        self._items: dict[int, SlotSample] = {}
        self._leaving: list[tuple[int, int]] = []  # (a slot not after the newest, digest), as a heap

    def observe(self, digests: Digests, slot: int, start: int) -> None:
        self._forget(start)
        for digest in digests.tolist():
            slots = self._items.get(digest)
            if slots is None:
                slots = self._items[digest] = SlotSample(digest, self._exact)
                heapq.heappush(self._leaving, (slot, digest))
            slots.insert(slot, start)

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        del kind  # there are no others than questions
        start = start_of(payload)
        return [Message(sender, LISTS, self.lists(start).to_bytes(self._window, start))]

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        return [Message(peer, RESUMED, b"")] if again else []

    def lists(self, start: int) -> SlotLists:
        self._forget(start)
        return slot_lists([(digest, slots.kept(start)) for digest, slots in self._items.items()])

    def check_invariants(self, start: int, now: int) -> None:
        self._forget(start)
        for slots in self._items.values():
            slots.check_invariants(start, now)
            if slots.newest < start:
                raise BrokenInvariant(f"got an item last seen in {slots.newest}; expected {start} or later")

    def _forget(self, start: int) -> None:
        """Drops the items without a slot since `start`."""
        while self._leaving and self._leaving[0][0] < start:
            _, digest = heapq.heappop(self._leaving)
            newest = self._items[digest].newest
            if newest < start:
                del self._items[digest]
            else:
                heapq.heappush(self._leaving, (newest, digest))
