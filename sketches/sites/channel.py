"""A carrier for simulations: it counts messages and bytes, and does harm on request.

Model. Bytes are put in with the number of their receiver, and taken out in the order in which they came. To
each envelope these faults happen, independently of each other, with the probabilities of `Faults`:

    dropped      it is lost
    repeated     it comes twice
    reordered    it comes before some of those that are under way
    truncated    its end is cut off, at a random place
    forged       a copy with one changed byte comes first

The envelopes that places send are counted: those that an endpoint repeats, too, but not those that the
channel adds.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from tidemark.sketches.sites.endpoint import Sealed
from tidemark.sketches.sites.envelope import has_message, payload_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The probabilities with which a channel does harm; see the module docstring."""

    dropped: float = 0.0
    repeated: float = 0.0
    reordered: float = 0.0
    truncated: float = 0.0
    forged: float = 0.0


@dataclass(slots=True)
class Traffic:
    """What was sent.

    messages: envelopes with a message of a machine. payload: the bytes of their payloads.
    others: envelopes without one: greetings and acknowledgements.
    envelope: all other bytes: headers, topics and hashes of all envelopes.
    """

    messages: int = 0
    payload: int = 0
    others: int = 0
    envelope: int = 0


class Channel:
    """A carrier in memory; see the module docstring.

    faults: None does no harm. seed: of the faults.
    """

    def __init__(self, faults: Faults | None = None, seed: int = 0) -> None:
        self._faults, self._random = faults, np.random.default_rng(seed)
        self._under_way: deque[Sealed] = deque()
        self.sent = Traffic()

    def put(self, sealed: Sealed) -> None:
        """Takes an envelope and the number of its receiver. O(bytes)."""
        receiver, data = sealed
        payload, is_message = payload_size(data), has_message(data)
        self.sent.payload += payload
        self.sent.envelope += len(data) - payload
        if is_message:
            self.sent.messages += 1
        else:
            self.sent.others += 1
        if self._faults is None:
            self._under_way.append(sealed)
            return
        for copy in self._harmed(self._faults, data):
            place = len(self._under_way)
            if self._random.random() < self._faults.reordered:
                place = int(self._random.integers(place + 1))
            self._under_way.insert(place, (receiver, copy))

    def take(self) -> Sealed | None:
        """The next envelope and its receiver; None if nothing is under way."""
        return self._under_way.popleft() if self._under_way else None

    def _harmed(self, faults: Faults, data: bytes) -> list[bytes]:
        """What comes of an envelope, in order."""
        drawn = self._random.random(4)
        if drawn[0] < faults.dropped:
            return []
        if drawn[1] < faults.truncated:
            data = data[: int(self._random.integers(len(data)))]
        copies = [data, data] if drawn[2] < faults.repeated else [data]
        if drawn[3] < faults.forged and data:
            forged = bytearray(data)
            forged[int(self._random.integers(len(data)))] ^= 1 << int(self._random.integers(8))
            copies.insert(0, bytes(forged))
        return copies
