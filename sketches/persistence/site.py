"""A site of SS or B: it tracks sampled items and keeps the slots in which they occur here.

Model. A pair (d, t) is sampled if its hash is below the rate tau; plans.py tells how the rate is chosen. A
site is a pure state machine: rows and messages go in, messages come out.

    row (d, t), d not tracked and (d, t) sampled       track d, keep t, tell the coordinator
    row (d, t), d tracked                              keep t
    message (d, t), d not tracked                      track d, keep t
    message (d, t), d tracked                          d stays tracked until t has left the window
    the window moves beyond the newest told slot       if a newer slot was sampled here: tell it
    ... and no site told a newer one                   forget d
    question                                           answer with the slots of all items
    a coordinator that was started again               tell it all items

The coordinator passes on to the other sites what one site tells.

Invariant. With all messages delivered, every site tracks the same items, and at any time

    d is tracked  <=>  some pair (d, t) with t in the window is sampled

for a sampled pair either is told, or is newer than the told slot of d at the site that observed the pair.
That site tells the pair before the told slot leaves the window. So d is tracked with probability at most tau
* p(d), and the expected number of tracked items is at most tau times the sum of all p(d) of the window.

Sites tell only the first sampled slot of an item, and a site's newest sampled slot when the told slot leaves
the window. A pair is told at most once, so at most sites * tau * p(d) messages are about d in expectation.

Cost: O(1) a row, apart from the samples of slots (slot_sample.py). Memory: 24 bytes an item, and its slots.

Source: Singh, thesis, Iowa State University, 2015, algorithms 2 and 5; the errata are in sampled_items.py.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.persistence.messages import (
    ITEM_BYTES,
    LISTS,
    RESUMED,
    SLOT_BYTES,
    TRACKED,
    SlotLists,
    Tracked,
    slot_lists,
    start_of,
)
from tidemark.sketches.persistence.pair_hashes import pair_hashes
from tidemark.sketches.persistence.slot_sample import Sampling, SlotSample
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message


@dataclass(slots=True)
class _Item:
    """A tracked item: its slots here, the newest slot told to all, and the newest slot sampled here."""

    slots: SlotSample
    told: int
    sampled: int


class Site:
    """The state of one site, a `Machine`; see the module docstring."""

    def __init__(self, rate: float, salt: int, sampling: Sampling, window: int, start: int = 0) -> None:
        """A site that tracks nothing.

        rate: the probability that a pair is sampled. salt: of the hash that decides it.
        sampling: which slots of a tracked item are kept.
        window: the slots of the window. start: the first one of it now.
        """
        self._rate, self._salt, self._sampling = rate, salt, sampling
        self._window, self._start = window, start
        self._items: dict[int, _Item] = {}
        # (told, digest) of every item and some that are out of date, as a heap: the first leaves first.
        self._leaving: list[tuple[int, int]] = []
        self._undecided: list[int] = []

    def observe(self, digests: Digests, slot: int) -> list[Message]:
        """Adds rows of `slot`; returns what to send."""
        outgoing = []
        sampled = pair_hashes(digests, np.array([slot]), self._salt) < self._rate
        for digest, is_sampled in zip(digests.tolist(), sampled.tolist(), strict=True):
            item = self._items.get(digest)
            if item is None:
                if not is_sampled:
                    continue
                item = self._track(digest, slot)
                outgoing.append(Tracked(digest, slot).message())
            item.slots.insert(slot, self._start)
            if is_sampled:
                item.sampled = slot
        return outgoing

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of the coordinator; see `Machine`."""
        if kind == TRACKED:
            self.take(Tracked.of(payload))
            return []
        start = start_of(payload)
        return [Message(sender, LISTS, self.lists(start).to_bytes(self._window, start))]

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """What a coordinator that was started again must be told; see `Machine`."""
        if not again:
            return []
        tracked = (Tracked(digest, item.told).message(peer) for digest, item in self._items.items())
        return [Message(COORDINATOR, RESUMED, b""), *tracked]

    def take(self, message: Tracked) -> None:
        """Takes what another site told."""
        item = self._items.get(message.digest)
        if item is None:
            self._track(message.digest, message.slot).slots.insert(message.slot, self._start)
        elif item.told < message.slot:
            self._tell(message.digest, item, message.slot)

    def renew(self, start: int) -> list[Message]:
        """What to send before slots below `start` leave the window. O(log items) an item."""
        self._start, outgoing = start, []
        while self._leaving and self._leaving[0][0] < start:
            _, digest = heapq.heappop(self._leaving)
            item = self._items.get(digest)
            if item is None or item.told >= start:
                continue
            if item.sampled >= start:
                self._tell(digest, item, item.sampled)
                outgoing.append(Tracked(digest, item.told).message())
            else:
                self._undecided.append(digest)
        return outgoing

    def forget(self, start: int) -> None:
        """Drops the items that no site has renewed, once the messages of all `renew` are delivered."""
        for digest in self._undecided:
            item = self._items.get(digest)
            if item is not None and item.told < start:
                del self._items[digest]
        self._undecided.clear()

    def lists(self, start: int) -> SlotLists:
        """The slots that are kept of each item since `start`: the answer to a question."""
        return slot_lists([(digest, item.slots.kept(start)) for digest, item in self._items.items()])

    def nbytes(self, start: int) -> int:
        """The bytes of the items and of their slots since `start`."""
        told_and_sampled = 2 * SLOT_BYTES * len(self._items)
        lists = self.lists(start)
        without_slots = ITEM_BYTES * (len(self._items) - len(lists.digests))
        return told_and_sampled + without_slots + lists.nbytes(self._window)

    def told(self) -> dict[int, int]:
        """The newest slot told of each tracked item."""
        return {digest: item.told for digest, item in self._items.items()}

    def check_invariants(self, start: int, now: int) -> None:
        """Raises BrokenInvariant unless every item is tracked for a sampled slot from `start` to `now`."""
        digests = np.fromiter(self._items, np.uint64, len(self._items))
        told = np.fromiter((item.told for item in self._items.values()), np.int64, len(digests))
        sampled = np.fromiter((item.sampled for item in self._items.values()), np.int64, len(digests))
        wrong = (told < start) | (told > now) | (sampled > now)
        wrong |= pair_hashes(digests, told, self._salt) >= self._rate
        wrong |= (sampled >= 0) & (pair_hashes(digests, sampled, self._salt) >= self._rate)
        if np.any(wrong) or self._undecided:
            raise BrokenInvariant(
                f"got the items {digests[wrong]} without a sampled slot from {start} to {now} and "
                f"{len(self._undecided)} undecided ones; expected none"
            )
        for item in self._items.values():
            item.slots.check_invariants(start, now)

    def _track(self, digest: int, slot: int) -> _Item:
        item = self._items[digest] = _Item(SlotSample(digest, self._sampling), -1, -1)
        self._tell(digest, item, slot)
        return item

    def _tell(self, digest: int, item: _Item, slot: int) -> None:
        item.told = slot
        heapq.heappush(self._leaving, (slot, digest))
