"""The answers of all sites to one question, and the first slot from which on they miss nothing.

A site that was started again has lost the slots that it kept, and a coordinator that was started again has
lost since when items are tracked. Neither can be recovered: answers about windows that begin before that
start would be too low. So answers are refused until the window has moved beyond the start.
"""

from tidemark.sketches.errors import LostState, Undelivered
from tidemark.sketches.persistence.messages import LISTS, SlotLists, question
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.sites.machine import Message


class Answers:
    """What the sites answered: the coordinator of A, and a part of that of SS and B; a `Machine`.

    promise: what is asked. now: the slot.
    """

    def __init__(self, promise: Promise, now: int) -> None:
        self._promise, self._complete_since = promise, 0
        self._lists: dict[int, SlotLists] = {}
        self.move(now)

    def move(self, now: int) -> None:
        """The current slot is `now`: the window begins with `start`."""
        self._now, self.start = now, self._promise.window_start(now)

    def ask(self) -> list[Message]:
        """The questions about the window. Raises LostState if a place was started again in it."""
        if self.start < self._complete_since:
            raise LostState(
                f"got a window from slot {self.start} on; a place was started again and lost what it knew of "
                f"slots before {self._complete_since}; ask again when the window begins with that slot"
            )
        self._lists.clear()
        return [question(site, self.start) for site in range(self._promise.sites)]

    def lists(self) -> list[SlotLists]:
        """The slots of all sites, from their answers. Raises Undelivered if one has not answered."""
        missing = sorted(set(range(self._promise.sites)) - self._lists.keys())
        if missing:
            raise Undelivered(f"got no answer of the sites {missing}; expected one of each; ask again")
        return [self._lists[site] for site in range(self._promise.sites)]

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes an answer, or what a site says to a coordinator that was started again; see `Machine`."""
        if kind == LISTS:
            self._lists[sender] = SlotLists.of(payload, self._promise.slots, self.start)
        else:
            self._lose()
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A site that was started again has lost its slots; see `Machine`."""
        del peer
        if again:
            self._lose()
        return []

    def _lose(self) -> None:
        self._complete_since = max(self._complete_since, self._now + 1)
