"""What sites and the coordinator send each other, with the bytes that it takes.

    Tracked      item d is sampled in slot t        a site to the others and the coordinator   16 bytes
    a question   the slot `now`                     the coordinator to every site               8 bytes
    SlotLists    items and the slots kept of each   every site to the coordinator, in answer   see below

State and messages are counted alike: 8 bytes for an item, and for c slots of it the smaller of a list and a
bitmap, min(8 * c, ceil(n / 8)) bytes. So what is exact has a fair size also where slots are few: a bitmap of
4,096 slots is as small as a sample of 64.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import Digests

Ints = NDArray[np.int64]

ITEM_BYTES = 8
SLOT_BYTES = 8
TRACKED_BYTES = ITEM_BYTES + SLOT_BYTES
QUESTION_BYTES = SLOT_BYTES


@dataclass(frozen=True, slots=True)
class Tracked:
    """The thesis's "Start Tracking (d, t)": the item `digest` occurs in `slot`, and that pair is sampled."""

    digest: int
    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class SlotLists:
    """Items and the slots kept of each, in one array.

    digests: uint64, shape (k,), the items.
    starts: int64, shape (k + 1,), the index of the first slot of each item; last, the number of slots.
    slots: int64, the slots of each item, ascending.
    """

    digests: Digests
    starts: Ints
    slots: Ints

    @property
    def counts(self) -> Ints:
        """The number of slots of each item."""
        return np.diff(self.starts)

    def nbytes(self, window: int) -> int:
        """The bytes of the items and of their slots in a window of `window` slots. O(k)."""
        bitmap = -(-window // 8)
        return ITEM_BYTES * len(self.digests) + int(np.minimum(SLOT_BYTES * self.counts, bitmap).sum())


def slot_lists(items: Sequence[tuple[int, Ints]]) -> SlotLists:
    """The lists of these items, pairs of a digest and its slots; items without slots are left out."""
    present = [(digest, slots) for digest, slots in items if len(slots)]
    starts = np.cumsum([0, *(len(slots) for _, slots in present)])
    slots = np.concatenate([np.empty(0, np.int64), *(slots for _, slots in present)])
    return SlotLists(np.array([digest for digest, _ in present], np.uint64), starts, slots)


def union(lists: Sequence[SlotLists]) -> SlotLists:
    """The union of the lists of several sites, by ascending digest: a slot of an item counts once.

    lists: at least one. O(s log s) for s slots.
    """
    digests = np.concatenate([np.repeat(one.digests, one.counts) for one in lists])
    slots = np.concatenate([one.slots for one in lists])
    order = np.lexsort((slots, digests))
    digests, slots = digests[order], slots[order]
    is_new = np.ones(len(slots), bool)
    is_new[1:] = (np.diff(digests) != 0) | (np.diff(slots) != 0)
    digests, slots = digests[is_new], slots[is_new]
    items, starts = np.unique(digests, return_index=True)
    return SlotLists(items, np.append(starts, len(slots)).astype(np.int64), slots)
