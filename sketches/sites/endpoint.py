"""One place of an exchange: it numbers, seals and repeats its messages, and checks those that it gets.

Model. A place has a topic, a number, a secret and an incarnation, a number that is larger at every start:
the time of the start in nanoseconds, say. A link to another place is open once a message came that names our
incarnation: only then is it known there. On an open link messages have rounds 1, 2, 3 ...

    not authentic, or not for this topic and place    refused
    of an earlier incarnation of the sender           refused; the reply names the later one and ends it
    of a later one                                    the link begins anew; the machine is told
    for an earlier incarnation of ours                refused, and ours is told
    for a later one                                   Replaced is raised: this place must end
    of a round that was delivered                     refused; the acknowledgement is sent again
    of a round after the next one                     refused; it will come again
    of the next round                                 delivered

What is not acknowledged is sent again by `tick`.

Guarantee: from one incarnation of a place to one of another, the delivered messages are a prefix of those
that were sent, in their order, each once, whatever the carrier loses, repeats, reorders, cuts or forges. If
the carrier lets a message through again and again, all are delivered.

Proof. A delivered message is authentic and names both incarnations, which belong to these places alone, so it
was sent on this link. Only the next round is taken. A message stays until a later one of the receiver, for
this incarnation, acknowledges its round.

Cost: O(bytes) a message. Memory: the messages that are not acknowledged.

Source: the handshake is that of Tomlinson, "Selecting sequence numbers", 1975 (TCP), with incarnations in
the place of clocks; go-back-n as in any text.
"""

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field

from tidemark.sketches.errors import InvalidInput, RefusedMessage, Replaced
from tidemark.sketches.sites.envelope import (
    COORDINATOR,
    MOST_PAYLOAD,
    Envelope,
    checked_secret,
    open_envelope,
)
from tidemark.sketches.sites.machine import Message

# The kinds of envelopes without a message. A greeting asks for an answer: its sender's link is not open.
_ACKNOWLEDGEMENT, _GREETING = 0, 1

Sealed = tuple[int, bytes]
"""The number of the receiver, and the bytes for it."""


@dataclass(slots=True)
class Receipt:
    """What came of one envelope.

    delivered: (sender, kind, payload) of a message for the machine; None if there is none.
    joined: the place to which the link is open now, and whether it was before; None if nothing changed.
    replies: what to send back.
    """

    delivered: tuple[int, int, bytes] | None = None
    joined: tuple[int, bool] | None = None
    replies: list[Sealed] = field(default_factory=list)


@dataclass(slots=True)
class _Link:
    """What is known of one other place.

    incarnation: its newest; 0 if none is known. is_open: whether it knows ours. was_open: to an earlier one.
    sent: the last round sent. waiting: the messages after the last acknowledged round.
    taken: the last round delivered from it. owes: whether it has to be told that.
    """

    incarnation: int = 0
    is_open: bool = False
    was_open: bool = False
    sent: int = 0
    waiting: deque[Message] = field(default_factory=deque)
    taken: int = 0
    owes: bool = False

    def begin_anew(self, incarnation: int) -> None:
        if self.is_open:  # what waits was for the earlier incarnation, whose state is gone
            self.waiting.clear()
        self.was_open |= self.is_open
        self.incarnation, self.is_open, self.owes = incarnation, False, False
        self.sent = self.taken = 0


class Endpoint:
    """One place of an exchange; see the module docstring. Whoever calls it carries the bytes.

    topic: what the exchange is about, at most 200 bytes of UTF-8.
    place: the number of a site, or COORDINATOR.
    incarnation: from 1 to 2**63 - 1, larger than that of any earlier start of this place.
    peers: the places with which it exchanges messages.
    secret: 16 to 64 bytes, the same at all places; it is never shown.

    Raises InvalidInput for values outside these ranges.
    """

    def __init__(self, topic: str, place: int, peers: list[int], *, incarnation: int, secret: bytes) -> None:
        if not 0 < len(topic.encode()) <= 200:
            raise InvalidInput(f"got the topic {topic!r}; expected 1 to 200 bytes")
        for number in (place, *peers):
            if not 0 <= number <= COORDINATOR:
                raise InvalidInput(f"got the place {number}; expected 0 to 2**32 - 1")
        if not 1 <= incarnation < 2**63:
            raise InvalidInput(f"got the incarnation {incarnation}; expected 1 to 2**63 - 1")
        self.topic, self.place, self.incarnation = topic, place, incarnation
        self._secret = checked_secret(secret)
        self._links = {peer: _Link() for peer in peers}
        self._busy = set(peers)  # the links that are not open, wait or owe
        self.refused: Counter[str] = Counter()
        """How many envelopes were refused, by the reason."""

    @property
    def peers(self) -> list[int]:
        """The places with which it exchanges messages. O(places)."""
        return list(self._links)

    def sealed_by(self, data: bytes) -> int:
        """The incarnation of this place that sealed these bytes; 0 if none did. O(bytes)."""
        with suppress(RefusedMessage):
            envelope = open_envelope(self._secret, data)
            if (envelope.topic, envelope.sender) == (self.topic, self.place):
                return envelope.incarnation
        return 0

    @property
    def waiting(self) -> list[int]:
        """The places that have not yet taken, or answered, everything. O(places)."""
        return sorted(self._busy)

    def send(self, message: Message) -> list[Sealed]:
        """What to carry for a new message: nothing yet if the link is not open.

        Raises InvalidInput for a place that is no peer, and for a payload of more than 2**30 bytes.
        """
        link = self._links.get(message.to)
        if link is None or len(message.payload) > MOST_PAYLOAD or not 0 <= message.kind < 256:
            raise InvalidInput(
                f"got a message of kind {message.kind} and {len(message.payload)} bytes to {message.to}; "
                f"expected kind 0 to 255, at most {MOST_PAYLOAD} bytes, and one of {len(self._links)} peers"
            )
        link.waiting.append(message)
        self._busy.add(message.to)
        return [self._next(message.to, link)] if link.is_open else []

    def acknowledge(self) -> list[Sealed]:
        """What to carry so that others need not repeat: the acknowledgements owed."""
        owing = [peer for peer in sorted(self._busy) if self._links[peer].owes]
        self._busy -= {peer for peer in owing if not self._links[peer].waiting}
        return [self._seal(peer, self._links[peer]) for peer in owing]

    def tick(self) -> list[Sealed]:
        """What to carry again: what is not acknowledged, and the acknowledgements and greetings owed."""
        sealed: list[Sealed] = []
        for peer in sorted(self._busy):
            link = self._links[peer]
            if link.is_open and link.waiting:
                link.sent -= len(link.waiting)
                sealed += self._all_waiting(peer, link)
            else:
                sealed.append(self._seal(peer, link))
                if link.is_open:
                    self._busy.discard(peer)
        return sealed

    def receive(self, data: bytes) -> Receipt:
        """Takes one envelope; see the module docstring. Raises Replaced, and nothing else for any bytes."""
        try:
            envelope = open_envelope(self._secret, data)
        except RefusedMessage:
            return self._refuse("not authentic")
        link = self._links.get(envelope.sender)
        if link is None or envelope.topic != self.topic or envelope.receiver != self.place:
            return self._refuse("for another place")
        if envelope.receiver_incarnation > self.incarnation:
            raise Replaced(
                f"got a message for the incarnation {envelope.receiver_incarnation} of place {self.place}; "
                f"this is {self.incarnation}: the place was started again, so end this process"
            )
        if envelope.incarnation < link.incarnation:
            self._refuse("of an earlier incarnation")
            return Receipt(replies=[self._seal(envelope.sender, link)])  # which tells it to end
        if envelope.incarnation > link.incarnation:
            link.begin_anew(envelope.incarnation)
            self._busy.add(envelope.sender)
        if envelope.receiver_incarnation != self.incarnation:
            if envelope.receiver_incarnation:
                self._refuse("for an earlier incarnation of this place")
            return Receipt(replies=[self._seal(envelope.sender, link)])
        return self._take(link, envelope)

    def _take(self, link: _Link, envelope: Envelope) -> Receipt:
        """An envelope between the incarnations of the link."""
        receipt = Receipt()
        link.owes |= envelope.round == 0 and envelope.kind == _GREETING
        if not link.is_open:
            receipt.joined, link.is_open = (envelope.sender, link.was_open), True
            receipt.replies = self._all_waiting(envelope.sender, link) or [self._seal(envelope.sender, link)]
        taken_there = min(envelope.acknowledged, link.sent)
        for _ in range(taken_there - (link.sent - len(link.waiting))):
            link.waiting.popleft()
        if envelope.round:
            if envelope.round == link.taken + 1:
                link.taken += 1
                receipt.delivered = (envelope.sender, envelope.kind, envelope.payload)
            else:
                self._refuse("repeated" if envelope.round <= link.taken else "before its turn")
            link.owes = True
        if link.owes or link.waiting:
            self._busy.add(envelope.sender)
        else:
            self._busy.discard(envelope.sender)
        return receipt

    def _all_waiting(self, peer: int, link: _Link) -> list[Sealed]:
        return [self._next(peer, link, i) for i in range(len(link.waiting))]

    def _next(self, peer: int, link: _Link, index: int = -1) -> Sealed:
        """The waiting message of that index, which has the round after the last one sent."""
        message = link.waiting[index]
        link.sent += 1
        return self._seal(peer, link, link.sent, message.kind, message.payload)

    def _seal(
        self, peer: int, link: _Link, number: int = 0, kind: int | None = None, payload: bytes = b""
    ) -> Sealed:
        link.owes = False
        known = link.incarnation
        if kind is None:
            kind = _ACKNOWLEDGEMENT if link.is_open else _GREETING
        envelope = Envelope(
            self.topic, self.place, peer, self.incarnation, known, number, link.taken, kind, payload
        )
        return peer, envelope.seal(self._secret)

    def _refuse(self, reason: str) -> Receipt:
        self.refused[reason] += 1
        return Receipt()
