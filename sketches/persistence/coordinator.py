"""The coordinator of SS or B: it knows which items are tracked since when, and counts their slots when asked.

Model. A pure state machine, like the sites: it receives what they tell, passes it on to the other sites, and
answers a question from the slots that they kept. For a tracked item d let t_d be the slot from which on it
is tracked without a break. All sites keep the slots of d since t_d, and no pair (d, t) with t in the window
and t < t_d is sampled. So of the slots of d in the window exactly those before t_d are missed. The count is
one of the union of the sites' slots: counts of single sites do not add up, because sites share slots.

Cost: O(s log s) a question, for s slots kept at all sites. Memory: 24 bytes an item.

Source: Singh, thesis, Iowa State University, 2015, algorithms 3 and 6; the errata are in plans.py.
"""

import heapq

import numpy as np

from tidemark.sketches.persistence.answers import Answers
from tidemark.sketches.persistence.messages import (
    ITEM_BYTES,
    SLOT_BYTES,
    TRACKED,
    SlotLists,
    Tracked,
    union,
)
from tidemark.sketches.persistence.plans import Plan
from tidemark.sketches.persistence.promise import PersistentItems
from tidemark.sketches.persistence.slot_sample import Ints, Sampling
from tidemark.sketches.sites.machine import Message


class Coordinator:
    """The state of the coordinator of one instance, a `Machine`; see the module docstring."""

    def __init__(self, plan: Plan, sampling: Sampling, now: int = 0) -> None:
        """A coordinator that knows of no item. sampling: which slots the sites keep. now: the slot."""
        self._plan, self._sampling = plan, sampling
        self.answers = Answers(plan.promise, now)
        self._since: dict[int, int] = {}
        self._told: dict[int, int] = {}
        self._leaving: list[tuple[int, int]] = []  # (told, digest) of every message, as a heap

    def __len__(self) -> int:
        return len(self._since)

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of a site; see `Machine`."""
        if kind == TRACKED:
            return self.take(sender, Tracked.of(payload))
        return self.answers.receive(sender, kind, payload)

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """What a site that was started again must be told: all items; see `Machine`."""
        self.answers.joined(peer, again=again)
        if not again:
            return []
        return [Tracked(digest, told).message(peer) for digest, told in self._told.items()]

    def take(self, sender: int, message: Tracked) -> list[Message]:
        """Takes what a site told; returns what to tell the others, if it is news."""
        if message.slot <= self._told.get(message.digest, -1):
            return []
        self._since.setdefault(message.digest, message.slot)
        self._told[message.digest] = message.slot
        heapq.heappush(self._leaving, (message.slot, message.digest))
        return [message.message(site) for site in range(self._plan.promise.sites) if site != sender]

    def forget(self, start: int) -> None:
        """Drops the items of which no site has told a slot since `start`. O(log items) a message."""
        while self._leaving and self._leaving[0][0] < start:
            _, digest = heapq.heappop(self._leaving)
            if self._told.get(digest, start) < start:
                del self._told[digest], self._since[digest]

    def report(self) -> PersistentItems:
        """The persistent items of the window, from the answers. Raises Undelivered if one is missing."""
        kept = union(self.answers.lists())
        counted = kept.counts.astype(np.float64)
        for i in np.flatnonzero(kept.counts >= self._sampling.size).tolist():
            slots = kept.slots[kept.starts[i] : kept.starts[i + 1]]
            counted[i] = self._sampling.estimate(int(kept.digests[i]), slots)
        late = self._late(kept, self.answers.start)
        reported = counted >= self._plan.needed(late)
        return PersistentItems(kept.digests[reported], (counted + self._plan.missed(late))[reported])

    def told(self) -> dict[int, int]:
        """The newest slot told of each tracked item."""
        return dict(self._told)

    @property
    def nbytes(self) -> int:
        """The bytes of the items, with the slots since which they are tracked and which were told last."""
        return (ITEM_BYTES + 2 * SLOT_BYTES) * len(self._since)

    def _late(self, kept: SlotLists, start: int) -> Ints:
        """How many slots of the window are before the first sampled one, for each item."""
        since = np.array([self._since[digest] for digest in kept.digests.tolist()], np.int64)
        return np.maximum(0, since - start)
