"""The part of an algorithm over sites at one place: a pure state machine, messages in and messages out.

The machine of a site observes rows and the machine of the coordinator answers questions; how, is up to the
algorithm. Both take messages and tell what to send. An `Endpoint` delivers each message of a place once, and
in the order in which it was sent, to one incarnation of the receiver.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """What an algorithm sends.

    to: the number of a site, or COORDINATOR.
    kind: from 0 to 255, what the payload is.
    payload: its bytes, possibly none.
    """

    to: int
    kind: int
    payload: bytes


class Machine(Protocol):
    """The part of an algorithm that runs at one place."""

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message; returns what to send now."""

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """The link to another place is open; returns what that place must be told.

        again: whether the place was there before and was started again, with nothing of what it knew.
        Messages to it that were under way are lost.
        """
