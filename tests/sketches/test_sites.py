"""Places that send each other messages: nothing is taken twice, out of order or from others; or it raises."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tests.sketches.persistence_world import as_dict, mixed_rows
from tidemark.sketches import SketchError
from tidemark.sketches.errors import LostState, RefusedMessage, Replaced, Undelivered
from tidemark.sketches.persistence.all_items import AllItems
from tidemark.sketches.persistence.messages import SlotLists, slot_lists
from tidemark.sketches.persistence.plans import thesis_plan
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.persistence.sampled_items import SampledItems
from tidemark.sketches.sites import endpoint as endpoints
from tidemark.sketches.sites.channel import Channel, Faults
from tidemark.sketches.sites.endpoint import Endpoint, Sealed
from tidemark.sketches.sites.envelope import COORDINATOR, Envelope, envelopes_of, open_envelope, payload_size
from tidemark.sketches.sites.machine import Message
from tidemark.sketches.sites.network import Network

SECRET = b"sixteen bytes or more"
HOSTILE = Faults(dropped=0.2, repeated=0.3, reordered=0.4, truncated=0.1, forged=0.3)


class Diary:
    """A machine that notes what it takes; what was sent to it is known to the test."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.joins: list[tuple[int, bool]] = []

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        assert kind == 7
        self.taken.append((sender, payload))
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        self.joins.append((peer, again))
        return []


def notes(to: int, first: int, count: int) -> list[Message]:
    return [Message(to, 7, str(number).encode()) for number in range(first, first + count)]


def exchange_through(channel: Channel) -> dict[int, Diary]:
    """Three sites and a coordinator send each other numbered notes, in three rounds."""
    diaries = {COORDINATOR: Diary(), 0: Diary(), 1: Diary(), 2: Diary()}
    network = Network("notes", diaries, channel=channel)
    for first in (0, 4, 8):
        for site in range(3):
            network.send(site, notes(COORDINATOR, first, 4))
            network.send(COORDINATOR, notes(site, first, 4))
        network.settle()
    return diaries


def assert_each_once_in_order(diaries: dict[int, Diary]) -> None:
    expected = [str(number).encode() for number in range(12)]
    for site in range(3):
        assert [payload for _, payload in diaries[site].taken] == expected
        assert [text for sender, text in diaries[COORDINATOR].taken if sender == site] == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_hostile_channel_delivers_each_message_once_and_in_order(seed: int) -> None:
    assert_each_once_in_order(exchange_through(Channel(HOSTILE, seed)))


def delivered_as_it_comes(self: Endpoint, link: object, envelope: Envelope) -> endpoints.Receipt:
    """Takes every round, as often and in the order in which it comes."""
    receipt = TAKE(self, link, envelope)  # type: ignore[arg-type]
    if envelope.round:
        receipt.delivered = (envelope.sender, envelope.kind, envelope.payload)
    return receipt


TAKE = Endpoint._take


def opened_without_the_hash(_: bytes, data: bytes) -> Envelope:
    body = data + Envelope("", 0, 0, 0, 0, 0, 0, 0, b"").seal(SECRET)[52:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hmac.compare_digest", lambda *_: True)
        return open_envelope(SECRET, body[: len(data)])


@pytest.mark.parametrize(
    ("name", "broken"), [("_take", delivered_as_it_comes), ("open_envelope", opened_without_the_hash)]
)
def test_without_rounds_or_hashes_that_shows(
    name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endpoint if name == "_take" else endpoints, name, broken)
    with pytest.raises((AssertionError, SketchError, ValueError)):
        assert_each_once_in_order(exchange_through(Channel(HOSTILE)))


def test_a_channel_that_lets_nothing_through_is_an_error() -> None:
    with pytest.raises(Undelivered, match="no acknowledgement from all places after 100 repeats"):
        Network("notes", {COORDINATOR: Diary(), 0: Diary()}, channel=Channel(Faults(dropped=1.0)))


def test_messages_and_bytes_are_counted_payload_and_envelope_apart() -> None:
    channel = Channel()
    exchange_through(channel)
    assert channel.sent.messages == 2 * 3 * 12
    assert channel.sent.payload == 2 * 3 * (10 + 2 * 2)
    assert channel.sent.envelope == (channel.sent.messages + channel.sent.others) * (52 + len("notes") + 16)


def greeted(*, second_incarnation: int = 1) -> tuple[Endpoint, Endpoint, list[bytes]]:
    """A site and a coordinator whose link is open, and all bytes that they sent."""
    site = Endpoint("notes", 0, [COORDINATOR], incarnation=second_incarnation, secret=SECRET)
    coordinator = Endpoint("notes", COORDINATOR, [0], incarnation=1, secret=SECRET)
    seen: list[bytes] = []
    carry(site, coordinator, site.tick(), seen)
    assert not site.waiting
    assert not coordinator.waiting
    return site, coordinator, seen


def carry(site: Endpoint, coordinator: Endpoint, sealed: list[Sealed], seen: list[bytes]) -> list[bytes]:
    """Carries bytes to and fro until nothing is under way; returns the payloads that were delivered."""
    delivered = []
    while sealed:
        to, data = sealed.pop(0)
        seen.append(data)
        receipt = (site if to == 0 else coordinator).receive(data)
        sealed += receipt.replies
        delivered += [receipt.delivered[2]] if receipt.delivered else []
    return delivered


def test_what_is_replayed_is_refused() -> None:
    site, coordinator, seen = greeted()
    assert carry(site, coordinator, site.send(*notes(COORDINATOR, 0, 1)), seen) == [b"0"]
    for data in seen * 2:
        assert coordinator.receive(data).delivered is None
        assert site.receive(data).delivered is None
    assert coordinator.refused["repeated"] == 2


def test_what_is_replayed_to_places_that_began_anew_is_refused() -> None:
    """A coordinator that knows nothing any more takes nothing of what an earlier one was sent."""
    site, coordinator, seen = greeted()
    carry(site, coordinator, site.send(*notes(COORDINATOR, 0, 3)[0:1]), seen)
    fresh = Endpoint("notes", COORDINATOR, [0], incarnation=2, secret=SECRET)
    for data in seen:
        assert fresh.receive(data).delivered is None
    fresh_site = Endpoint("notes", 0, [COORDINATOR], incarnation=2, secret=SECRET)
    for data in seen:
        assert fresh_site.receive(data).delivered is None
    assert carry(fresh_site, fresh, fresh_site.tick(), seen) == []
    assert carry(fresh_site, fresh, fresh_site.send(*notes(COORDINATOR, 9, 1)), seen) == [b"9"]


def test_an_old_incarnation_that_comes_late_is_refused_and_told() -> None:
    old, coordinator, seen = greeted(second_incarnation=4)
    new = Endpoint("notes", 0, [COORDINATOR], incarnation=5, secret=SECRET)
    carry(new, coordinator, new.tick(), seen)
    late = coordinator.receive(old.send(*notes(COORDINATOR, 0, 1))[0][1])
    assert late.delivered is None
    assert coordinator.refused["of an earlier incarnation"] == 1
    with pytest.raises(Replaced, match="incarnation 5 of place 0; this is 4"):
        old.receive(late.replies[0][1])
    assert carry(new, coordinator, new.send(*notes(COORDINATOR, 1, 1)), seen) == [b"1"]


def test_what_is_forged_cut_or_of_another_exchange_is_refused() -> None:
    site, coordinator, _ = greeted()
    ((_, data),) = site.send(*notes(COORDINATOR, 0, 1))
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        for hostile in (bytes(changed), data[:at], data[:at] + b"x" + data[at:]):
            assert coordinator.receive(hostile).delivered is None
    assert coordinator.refused == {"not authentic": 3 * len(data)}
    for topic, place, secret in (
        ("other", 0, SECRET),
        ("notes", 1, SECRET),
        ("notes", 0, b"another secret!!!"),
    ):
        foreign = Endpoint(topic, place, [COORDINATOR], incarnation=9, secret=secret)
        assert coordinator.receive(foreign.tick()[0][1]).delivered is None
    assert coordinator.refused["for another place"] == 2
    assert coordinator.receive(data).delivered == (0, 7, b"0")


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    coordinator = Endpoint("notes", COORDINATOR, [0], incarnation=1, secret=SECRET)
    assert coordinator.receive(data) == endpoints.Receipt()
    assert b"".join(envelopes_of(data)) == data
    with pytest.raises(RefusedMessage, match="without the exchange's keyed hash"):
        open_envelope(SECRET, data)


def test_the_bytes_of_an_envelope_stay_as_they_are() -> None:
    data = Envelope("topic", 3, COORDINATOR, 5, 6, 7, 8, 9, b"payload").seal(SECRET)
    assert data.hex() == (
        "544d5358010905000300000"
        "0ffffffff05000000000000000600000000000000070000000000000008000000000000000"
        "7000000746f7069637061796c6f6164" + data[-16:].hex()
    )
    assert open_envelope(SECRET, data) == Envelope("topic", 3, COORDINATOR, 5, 6, 7, 8, 9, b"payload")
    assert payload_size(data) == 7
    assert envelopes_of(data + data + data[:60]) == [data, data, data[:60]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"topic": ""}, "got the topic ''; expected 1 to 200 bytes"),
        ({"place": -1}, "got the place -1"),
        ({"incarnation": 0}, "got the incarnation 0"),
        ({"secret": b"short"}, "expected 16 to 64 random bytes"),
    ],
)
def test_places_out_of_range_are_refused(wrong: dict[str, object], message: str) -> None:
    right = {"topic": "t", "place": 0, "peers": [1], "incarnation": 1, "secret": SECRET}
    with pytest.raises(SketchError, match=message):
        Endpoint(**{**right, **wrong})  # type: ignore[arg-type]
    with pytest.raises(
        SketchError, match=r"got a message of kind 7 and 1 bytes to 2; expected .* one of 1 peers"
    ):
        Endpoint(**right).send(Message(2, 7, b"1"))  # type: ignore[arg-type]


@given(st.dictionaries(st.integers(0, 2**64 - 1), st.sets(st.integers(100, 199), min_size=1)), st.booleans())
def test_lists_and_bitmaps_of_slots_come_back(items: dict[int, set[int]], whole: bool) -> None:
    lists = slot_lists([(digest, np.array(sorted(slots), np.int64)) for digest, slots in items.items()])
    data = lists.to_bytes(100, 100)
    assert len(data) == 8 + lists.nbytes(100)
    again = SlotLists.of(data, 100, 100)
    found = np.split(again.slots, again.starts[1:-1])
    assert dict(zip(again.digests.tolist(), map(set, map(np.ndarray.tolist, found)), strict=False)) == items
    if not whole and items:
        with pytest.raises(SketchError):
            SlotLists.of(data[:-1], 100, 100)


PROMISE = Promise(sites=3, slots=20, alpha=0.5, eps=0.3, delta=0.2, sliding=True)


@pytest.mark.parametrize("kind", ["SS", "A"])
@pytest.mark.parametrize("seed", range(3))
def test_persistent_items_are_the_same_through_a_hostile_channel(kind: str, seed: int) -> None:
    plan, channel = thesis_plan(PROMISE), Channel(HOSTILE, seed)
    hostile: SampledItems | AllItems
    quiet: SampledItems | AllItems
    if kind == "SS":
        hostile, quiet = SampledItems(plan, channel), SampledItems(plan)
    else:
        hostile, quiet = AllItems(PROMISE, channel), AllItems(PROMISE)
    for i, (slot, site, digests) in enumerate(mixed_rows(seed, 20, 60).calls(3)):
        hostile.update(site, digests, slot)
        quiet.update(site, digests, slot)
        if i % 20 == 0:
            assert as_dict(hostile.persistent()) == as_dict(quiet.persistent())
            hostile.check_invariants()


@pytest.mark.parametrize("kind", ["SS", "A"])
@pytest.mark.parametrize("place", [1, COORDINATOR])
def test_a_place_that_lost_its_state_is_told_until_the_window_has_passed(kind: str, place: int) -> None:
    tracker = SampledItems(thesis_plan(PROMISE)) if kind == "SS" else AllItems(PROMISE)
    quiet = SampledItems(thesis_plan(PROMISE)) if kind == "SS" else AllItems(PROMISE)
    refused = answered = 0
    for slot, site, digests in mixed_rows(1, 20, 90).calls(3):
        if slot == 30 and refused == 0:  # the last one before was 29
            tracker.restart(place)
        tracker.update(site, digests, slot)
        quiet.update(site, digests, slot)
        if 30 <= slot < 30 + 19:
            refused += 1
            with pytest.raises(LostState, match="lost what it knew of slots before 30"):
                tracker.persistent()
        elif (slot > 30 and kind == "A") or slot > 70:
            answered += 1
            assert as_dict(tracker.persistent()) == as_dict(quiet.persistent())
    assert refused > 10
    assert answered > 10
    tracker.check_invariants()
