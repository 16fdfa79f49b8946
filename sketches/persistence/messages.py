"""What sites and the coordinator send each other about persistent items, and the bytes of it.

    kind      payload                                 from, to                                     bytes
    TRACKED   item d is sampled in slot t             a site, and on to the other sites            16
    QUESTION  the first slot of the window            the coordinator to every site                8
    LISTS     items and the slots kept of each        every site, in answer                        see below
    RESUMED   nothing: "you have been here before"    a site to a coordinator that began anew      0

The bytes of state are counted as those of messages: 8 bytes for an item, and for c slots of it the smaller of
a list and a bitmap, min(8 * c, ceil(n / 8)) bytes. So exact sets are not counted too large if slots are few:
a bitmap of 4,096 slots is as small as a sample of 64.

The payload of LISTS: the number of items with a list, their digests, their slots, with the top bit set in
the last slot of each item; then the digests of the other items, and a bitmap of the window for each, slot by
slot, the lowest bit first. All numbers are 8 bytes, unsigned, little endian.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import corrupt, unpacked
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

Ints = NDArray[np.int64]

TRACKED, QUESTION, LISTS, RESUMED = 1, 2, 3, 4

ITEM_BYTES = 8
SLOT_BYTES = 8
_PAIR, _NUMBER = struct.Struct("<QQ"), struct.Struct("<Q")
_LAST = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The thesis's "Start Tracking (d, t)": the item `digest` occurs in `slot`, and that pair is sampled."""

    digest: int
    slot: int

    def message(self, to: int = COORDINATOR) -> Message:
        """What tells it to a place."""
        return Message(to, TRACKED, _PAIR.pack(self.digest, self.slot))

    @classmethod
    def of(cls, payload: bytes) -> "Tracked":
        """What a message of kind TRACKED says."""
        return cls(*unpacked(_PAIR, payload))


def question(to: int, start: int) -> Message:
    """What asks a site for its slots from `start` on."""
    return Message(to, QUESTION, _NUMBER.pack(start))


def start_of(payload: bytes) -> int:
    """The first slot of the window that a message of kind QUESTION asks about."""
    return int(unpacked(_NUMBER, payload)[0])


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
        as_bitmap, bitmap = self.as_bitmap(window), -(-window // 8)
        slots = SLOT_BYTES * int(self.counts[~as_bitmap].sum()) + bitmap * int(as_bitmap.sum())
        return ITEM_BYTES * len(self.digests) + slots

    def as_bitmap(self, window: int) -> NDArray[np.bool_]:
        """Whether a bitmap of `window` slots is smaller than the list, for each item."""
        is_smaller: NDArray[np.bool_] = -(-window // 8) < SLOT_BYTES * self.counts
        return is_smaller

    def to_bytes(self, window: int, start: int) -> bytes:
        """The payload of LISTS; 8 bytes more than `nbytes`. O(slots + window for each bitmap).

        window: the slots of the window. start: its first one. Raises BrokenInvariant for slots outside of it.
        """
        if len(self.slots) and not start <= self.slots.min() <= self.slots.max() < start + window:
            raise BrokenInvariant(
                f"got slots from {self.slots.min()} to {self.slots.max()}; expected {window} from {start} on"
            )
        as_bitmap = self.as_bitmap(window)
        is_listed = np.repeat(~as_bitmap, self.counts)
        listed = self.slots[is_listed].astype("<u8")
        listed[np.cumsum(self.counts[~as_bitmap]) - 1] |= _LAST
        bits = np.zeros((int(as_bitmap.sum()), window), bool)
        bits[np.repeat(np.arange(len(bits)), self.counts[as_bitmap]), self.slots[~is_listed] - start] = True
        parts = (
            self.digests[~as_bitmap].astype("<u8"),
            listed,
            self.digests[as_bitmap].astype("<u8"),
            np.packbits(bits, axis=1, bitorder="little"),
        )
        return _NUMBER.pack(len(parts[0])) + b"".join(part.tobytes() for part in parts)

    @classmethod
    def of(cls, payload: bytes, window: int, start: int) -> "SlotLists":
        """The inverse of `to_bytes`. CorruptSketch for bytes that it does not make."""
        size = _NUMBER.size
        if len(payload) < size or len(payload) < size * (1 + start_of(payload[:size])):
            raise corrupt(0, f"got {len(payload)} bytes, expected the items that they count")
        items = start_of(payload[:size])
        digests = np.frombuffer(payload, "<u8", items, size)
        rest = payload[size * (1 + items) :]
        numbers = np.frombuffer(rest[: len(rest) // size * size], "<u8")
        ends = np.flatnonzero(numbers & _LAST)[:items] + 1
        listed = int(ends[-1]) if items and len(ends) else 0
        rest, bitmap = rest[size * listed :], -(-window // 8)
        others = len(rest) // (size + bitmap)
        if len(ends) != items or len(rest) != others * (size + bitmap):
            raise corrupt(len(payload), f"got {len(payload)} bytes, expected the slots of {items} items")
        packed = np.frombuffer(rest, np.uint8, others * bitmap, size * others).reshape(others, bitmap)
        rows, at = np.nonzero(np.unpackbits(packed, axis=1, bitorder="little"))
        return cls(
            np.concatenate([digests, np.frombuffer(rest, "<u8", others)]).astype(np.uint64),
            np.cumsum([0, *np.diff(ends, prepend=0), *np.bincount(rows, minlength=others)]).astype(np.int64),
            np.concatenate([(numbers[:listed] & ~_LAST).astype(np.int64), at + start]),
        )


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
