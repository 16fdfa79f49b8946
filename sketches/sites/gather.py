"""Collects one payload of each site at a coordinator: the simplest algorithm over sites.

Guarantee: a coordinator that has all of them has the newest payload of each site, as it was told, whatever
the carrier does. A site that is started again tells its payload again; so does one whose coordinator is.
"""

from tidemark.sketches.errors import Undelivered
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

PAYLOAD = 1


class Teller:
    """A site, a `Machine`, with what it has to tell."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Nothing is said to a site; see `Machine`."""
        del sender, kind, payload
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """The payload, for a coordinator that has come; see `Machine`."""
        del peer, again
        return [Message(COORDINATOR, PAYLOAD, self.payload)]


class Gatherer:
    """The coordinator, a `Machine`, of `sites` sites."""

    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._payloads: dict[int, bytes] = {}

    @property
    def missing(self) -> list[int]:
        """The sites of which nothing has come."""
        return sorted(set(range(self._sites)) - self._payloads.keys())

    def payloads(self) -> list[bytes]:
        """Those of all sites, in their order. Raises Undelivered while one is missing."""
        if self.missing:
            raise Undelivered(
                f"got nothing of the sites {self.missing}; expected a message of each; ask again"
            )
        return [self._payloads[site] for site in range(self._sites)]

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes the payload of a site; see `Machine`."""
        del kind
        self._payloads[sender] = payload
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A site that was started again tells anew; see `Machine`."""
        if again:
            self._payloads.pop(peer, None)
        return []
