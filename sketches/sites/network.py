"""All places of an exchange in one process: machines, their endpoints, and the channel between them.

For simulations and tests. `settle` carries and repeats until every place has taken every message; where the
channel lets too little through, it raises.
"""

from collections.abc import Iterable, Mapping

from tidemark.sketches.errors import Undelivered
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.endpoint import Endpoint, Sealed
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Machine, Message

PATIENCE = 100  # how often everything that is not acknowledged is sent again
RESTLESS = 2_000  # envelopes a place: machines that exchange more are taken never to stop


class Network:
    """The places of a simulation; they have greeted each other when it is made.

    machines: by the number of the place; sites are 0, 1, 2 ... Where COORDINATOR is among them, sites
        exchange messages with it alone; else all with all.
    topic, secret: see `Endpoint`. channel: None means one that does no harm.

    Raises Undelivered if the channel lets too little through.
    """

    def __init__(
        self,
        topic: str,
        machines: Mapping[int, Machine],
        *,
        secret: bytes = b"of a simulation only",
        channel: Channel | None = None,
    ) -> None:
        self.channel = Channel() if channel is None else channel
        self._topic, self._secret = topic, secret
        self._machines = dict(machines)
        self._endpoints: dict[int, Endpoint] = {}
        for place in self._machines:
            self._start(place, 1)
        self.settle()

    @property
    def refused(self) -> dict[str, int]:
        """How many envelopes the places refused so far, by reason."""
        found: dict[str, int] = {}
        for endpoint in self._endpoints.values():
            for reason, count in endpoint.refused.items():
                found[reason] = found.get(reason, 0) + count
        return found

    def restart(self, place: int, machine: Machine) -> None:
        """The place is started again, with a machine that knows nothing. Its old endpoint is forgotten."""
        self._machines[place] = machine
        self._start(place, self._endpoints[place].incarnation + 1)

    def send(self, place: int, messages: Iterable[Message]) -> None:
        """Sends what the machine of a place told to send; it travels with the next `settle`."""
        for message in messages:
            self._put(self._endpoints[place].send(message))

    def settle(self) -> None:
        """Delivers everything, and what follows from it.

        Raises Undelivered if that takes more than PATIENCE repeats, or more than RESTLESS envelopes a place:
        what was delivered so far stays.
        """
        self._left = RESTLESS * len(self._machines)
        for _ in range(PATIENCE):
            self._carry()
            for endpoint in self._endpoints.values():
                self._put(endpoint.acknowledge())
            self._carry()
            busy = [endpoint for endpoint in self._endpoints.values() if endpoint.waiting]
            if not busy:
                return
            for endpoint in busy:
                self._put(endpoint.tick())
        raise Undelivered(
            f"got no acknowledgement from all places after {PATIENCE} repeats: "
            f"{ {one.place: one.waiting for one in busy} } wait; expected a channel that lets some through"
        )

    def _carry(self) -> None:
        """Delivers what is under way, until nothing is."""
        while (sealed := self.channel.take()) is not None:
            self._left -= 1
            if self._left < 0:
                raise Undelivered(
                    f"got {RESTLESS * len(self._machines):,} envelopes and no end; expected machines that "
                    "stop sending"
                )
            place, data = sealed
            machine, receipt = self._machines[place], self._endpoints[place].receive(data)
            self._put(receipt.replies)
            if receipt.joined is not None:
                peer, again = receipt.joined
                self.send(place, machine.joined(peer, again=again))
            if receipt.delivered is not None:
                self.send(place, machine.receive(*receipt.delivered))

    def _start(self, place: int, incarnation: int) -> None:
        is_star = COORDINATOR in self._machines
        others = [one for one in self._machines if one != place]
        peers = [COORDINATOR] if is_star and place != COORDINATOR else others
        endpoint = Endpoint(self._topic, place, peers, incarnation=incarnation, secret=self._secret)
        self._endpoints[place] = endpoint

    def _put(self, sealed: Iterable[Sealed]) -> None:
        for one in sealed:
            self.channel.put(one)
