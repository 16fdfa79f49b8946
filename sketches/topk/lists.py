"""What a site tells the others about its window: its first items, echoes of theirs, and a cut-off.

Every item that is not in the list has at most `cutoff` rows in the window of the site. An echo is an item
that another site has among its first, or any other item of the window; its count may be 0.

    kind       payload
    LIST       a whole list, which replaces the one before
    ECHO       echoes that the site adds to its list
    RESUMED    nothing: "you have been here before", to a site that was started again

The payload: the time of the list, 8 bytes signed, the cut-off, 8 bytes, the numbers of first items and of
echoes, 4 bytes each, and a byte: 1 if the window is complete, plus 2 if the site knows that it was started
again; then 8 bytes for each item, the first
ones first, and the counts, encoded as in varints.py. All little endian.
"""

import struct
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import corrupt
from tidemark.sketches.encoding.varints import decode_varints, encode_varints
from tidemark.sketches.hashing.row_hashes import Digests

Ints = NDArray[np.int64]
LIST, ECHO, RESUMED = 1, 2, 3
_HEADER = struct.Struct("<qQIIB")
_MOST_COUNT = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class TopkList:
    """The list of a site.

    now: the last time of its window, inclusive. cutoff: the most rows of an item that is not in the list.
    is_complete: False if the site has lost rows of its window, because it was started again.
    has_resumed: whether it knows that it was started again.
    items: uint64, the first items, then the echoes; no item twice. counts: their rows in the window.
    first: how many of them are first items.
    """

    now: int
    cutoff: int
    is_complete: bool
    has_resumed: bool
    items: Digests
    counts: Ints
    first: int

    @property
    def first_items(self) -> Digests:
        """The first items: those that other sites echo."""
        return self.items[: self.first]

    def with_echoes(self, items: Digests, counts: Ints) -> "TopkList":
        """The list with more echoes."""
        items, counts = np.concatenate([self.items, items]), np.concatenate([self.counts, counts])
        return replace(self, items=items, counts=counts)

    def to_bytes(self) -> bytes:
        """The payload; see the module docstring. O(items)."""
        echoes = len(self.items) - self.first
        flags = self.is_complete + 2 * self.has_resumed
        header = _HEADER.pack(self.now, self.cutoff, self.first, echoes, flags)
        return header + self.items.astype("<u8").tobytes() + encode_varints(self.counts.astype(np.uint64))

    @classmethod
    def of(cls, payload: bytes) -> "TopkList":
        """The inverse of `to_bytes`. CorruptSketch for bytes that it does not make."""
        if len(payload) < _HEADER.size:
            raise corrupt(len(payload), f"got {len(payload)} bytes, expected a list of items")
        now, cutoff, first, echoes, flags = _HEADER.unpack_from(payload)
        items_end = _HEADER.size + 8 * (first + echoes)
        counts = decode_varints(payload[items_end:])
        if len(counts) != first + echoes or len(payload) < items_end:
            raise corrupt(
                items_end, f"got {len(counts)} counts, expected {first + echoes} after as many items"
            )
        items = np.frombuffer(payload[_HEADER.size : items_end], "<u8").astype(np.uint64)
        if max(int(counts.max(initial=0)), cutoff) > _MOST_COUNT or len(np.unique(items)) < len(items):
            raise corrupt(_HEADER.size, "got an item twice, or a count above 2**62; expected neither")
        return cls(now, cutoff, bool(flags & 1), bool(flags & 2), items, counts.astype(np.int64), first)
