"""One payload of each site: all of them come, the newest ones, whatever the channel does."""

from typing import Any

import pytest

from tidemark.sketches.errors import Undelivered
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.gather import Gatherer, Teller
from tidemark.sketches.sites.network import Network

HARM = Faults(dropped=0.3, repeated=0.3, reordered=0.4, truncated=0.1, forged=0.3)


def exercise() -> None:
    gatherer = Gatherer(5)
    machines: dict[int, Any] = {COORDINATOR: gatherer, **{i: Teller(b"%d" % i) for i in range(5)}}
    network = Network("gather", machines, channel=Channel(HARM, seed=4))
    assert gatherer.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    network.restart(3, Teller(b"again"))
    network.settle()
    assert gatherer.payloads() == [b"0", b"1", b"2", b"again", b"4"]
    gatherer = Gatherer(5)
    network.restart(COORDINATOR, gatherer)
    with pytest.raises(Undelivered, match="0, 1, 2, 3, 4"):
        gatherer.payloads()
    network.settle()
    assert gatherer.payloads() == [b"0", b"1", b"2", b"again", b"4"]


def test_the_newest_payload_of_each_site_comes_on_a_hostile_channel() -> None:
    exercise()


def test_a_site_that_tells_only_at_its_first_start_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = Teller.joined
    monkeypatch.setattr(
        Teller, "joined", lambda self, peer, again: [] if again else joined(self, peer, again=again)
    )
    with pytest.raises((AssertionError, Undelivered)):
        exercise()
