"""Places that exchange messages as files: names that are taken, places that begin anew, late ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tidemark.sketches.errors import Replaced, Undelivered
from tidemark.sketches.sites.endpoint import Endpoint
from tidemark.sketches.sites.envelope import COORDINATOR, envelopes_of
from tidemark.sketches.sites.gather import Gatherer, Teller
from tidemark.sketches.sites.machine import Message
from tidemark.warehouse import exchange
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.errors import SystemRefused
from tidemark.warehouse.exchange import FileExchange, run_place

SECRET = b"sixteen bytes or more"


class Place:
    """An endpoint and its carrier."""

    def __init__(self, folder: Path, place: int, incarnation: int = 1, *, from_now: bool = False) -> None:
        peers = [0, 1] if place == COORDINATOR else [COORDINATOR]
        self.endpoint = Endpoint("a/topic", place, peers, incarnation=incarnation, secret=SECRET)
        self.files = FileExchange(folder, self.endpoint, from_now=from_now)
        self.taken: list[tuple[int, bytes]] = []

    def tell(self, to: int, text: bytes) -> None:
        self.files.send(self.endpoint.send(Message(to, 7, text)))

    def turn(self) -> None:
        """Takes what came, and repeats what is not acknowledged."""
        replies = []
        for data in self.files.fetch():
            receipt = self.endpoint.receive(data)
            replies += receipt.replies
            if receipt.delivered is not None:
                self.taken.append((receipt.delivered[0], receipt.delivered[2]))
        self.files.send([*replies, *self.endpoint.tick()])


def turns(*places: Place) -> None:
    for _ in range(60):
        for place in places:
            place.turn()
        if not any(place.endpoint.waiting for place in places):
            return
    raise AssertionError("no end")


def three(folder: Path) -> tuple[Place, Place, Place]:
    places = Place(folder, COORDINATOR), Place(folder, 0), Place(folder, 1)
    turns(*places)
    return places


def test_messages_travel_as_files_each_once_and_in_order(tmp_path: Path) -> None:
    coordinator, first, second = three(tmp_path / "new folder")
    for number in range(3):
        first.tell(COORDINATOR, b"%d" % number)
        second.tell(COORDINATOR, b"%d" % number)
        coordinator.tell(1, b"%d" % number)
    turns(coordinator, first, second)
    assert [text for sender, text in coordinator.taken if sender == 0] == [b"0", b"1", b"2"]
    assert second.taken == [(COORDINATOR, b"0"), (COORDINATOR, b"1"), (COORDINATOR, b"2")]
    assert first.taken == []
    names = [path.name for path in sorted((tmp_path / "new folder" / "a~2ftopic" / "site-0").iterdir())]
    assert names == [f"{number:019d}" for number in range(1, len(names) + 1)]


def test_a_place_that_begins_anew_goes_on_in_its_folder(tmp_path: Path) -> None:
    coordinator, first, second = three(tmp_path)
    first.tell(COORDINATOR, b"before")
    turns(coordinator, first, second)
    again = Place(tmp_path, 0, 2)
    turns(coordinator, again, second)
    again.tell(COORDINATOR, b"after")
    turns(coordinator, again, second)
    assert coordinator.taken == [(0, b"before"), (0, b"after")]
    with pytest.raises(Replaced, match="from the incarnation 2 of this place, which is 1"):
        first.tell(COORDINATOR, b"late")
    turns(coordinator, again, second)
    assert coordinator.taken == [(0, b"before"), (0, b"after")]


def test_a_late_incarnation_that_comes_first_to_a_name_is_passed_over(tmp_path: Path) -> None:
    coordinator, first, second = three(tmp_path)
    again = Place(tmp_path, 0, 2)
    turns(coordinator, first, second)
    first.tell(COORDINATOR, b"the last of the old one")
    turns(coordinator, second)
    with pytest.raises(Replaced):
        turns(again, coordinator, first, second)
    turns(coordinator, again, second)
    again.tell(COORDINATOR, b"new")
    turns(coordinator, again, second)
    assert coordinator.taken == [(0, b"the last of the old one"), (0, b"new")]


@pytest.mark.parametrize("content", [b"", b"squatted", b"\xff" * 300])
def test_a_name_that_is_squatted_delays_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    coordinator, first, _ = three(tmp_path)
    folder = tmp_path / "a~2ftopic" / "site-0"
    newest = max(int(path.name) for path in folder.iterdir())
    for number in (newest + 1, newest + 2, newest + 9, 10**18):
        (folder / f"{number:019d}").write_bytes(content)
    for number in range(12):
        first.tell(COORDINATOR, b"%d" % number)
    again = Place(tmp_path, 1, 2)
    turns(coordinator, first, again)
    assert coordinator.taken == [(0, b"%d" % number) for number in range(12)]
    once_more = Place(tmp_path, 0, 2)
    turns(coordinator, once_more, again)
    once_more.tell(COORDINATOR, b"x")
    turns(coordinator, once_more, again)
    assert coordinator.taken[-1] == (0, b"x")


def test_what_is_copied_from_round_to_round_or_place_to_place_is_refused(tmp_path: Path) -> None:
    coordinator, first, second = three(tmp_path)
    first.tell(COORDINATOR, b"once")
    turns(coordinator, first, second)
    folder = tmp_path / "a~2ftopic"
    files = [path.read_bytes() for path in sorted((folder / "site-0").iterdir())]
    for name in ("site-0", "site-1"):
        newest = max(int(path.name) for path in (folder / name).iterdir())
        for number, content in enumerate(files, newest + 1):
            (folder / name / f"{number:019d}").write_bytes(content)
    second.tell(COORDINATOR, b"own")
    turns(coordinator, first, second)
    assert coordinator.taken == [(0, b"once"), (1, b"own")]


@pytest.mark.parametrize("seed", range(3))
def test_files_that_come_cut_forged_doubled_or_in_another_order_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever a reader gets of half of the files, every message is taken once and in order."""
    rng, get, harmed = np.random.default_rng(seed), ObjectClient.get, set[int]()

    def hostile(self: ObjectClient, path: str) -> bytes | None:
        content = get(self, path)
        if content is None or rng.random() < 0.5:
            return content
        whole, harm = envelopes_of(content), int(rng.integers(5))
        harmed.add(harm)
        changed = bytearray(content)
        changed[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        cut = content[: int(rng.integers(len(content)))]
        return [b"", cut, bytes(changed), content * 2, b"".join(reversed(whole))][harm]

    monkeypatch.setattr(ObjectClient, "get", hostile)
    places = three(tmp_path)
    for number in range(40):
        places[1].tell(COORDINATOR, b"%d" % number)
        places[0].tell(1, b"%d" % number)
        if number % 4 == 0:
            for place in places:
                place.turn()
    for _ in range(10):
        turns(*places)
    assert places[0].taken == [(0, b"%d" % number) for number in range(40)]
    assert places[2].taken == [(COORDINATOR, b"%d" % number) for number in range(40)]
    assert harmed == set(range(5))


def test_a_file_that_was_taken_away_is_an_error_after_a_while(tmp_path: Path) -> None:
    """Files behind it are not read, so that nothing is taken out of order."""
    coordinator, first, _ = three(tmp_path)
    first.tell(COORDINATOR, b"gone")
    newest = max((tmp_path / "a~2ftopic" / "site-0").iterdir())
    newest.unlink()
    first.tell(COORDINATOR, b"behind")
    with pytest.raises(AssertionError, match="no end"):
        turns(coordinator, first)
    for place, machine in ((first, Teller(b"")), (coordinator, Gatherer(2))):
        with pytest.raises(Undelivered, match="start them, or wait longer"):
            run_place(machine, place.endpoint, place.files, lambda: False, every=0.01, most_seconds=0)
    assert coordinator.taken == []


def test_a_put_whose_answer_is_lost_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, first, second = three(tmp_path)
    put_new = ObjectClient.put_new

    def lost(self: ObjectClient, path: str, content: bytes) -> None:
        put_new(self, path, content)
        raise OSError("no answer")

    monkeypatch.setattr(ObjectClient, "put_new", lost)
    before = len(list((tmp_path / "a~2ftopic" / "site-0").iterdir()))
    first.tell(COORDINATOR, b"once")
    assert len(list((tmp_path / "a~2ftopic" / "site-0").iterdir())) == before + 1
    turns(coordinator, first, second)
    assert coordinator.taken == [(0, b"once")]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ObjectClient, "put_new", full)
    with pytest.raises(SystemRefused, match="No space left"):
        first.tell(COORDINATOR, b"never")


def trimmed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places that go on and on, of which one is away for long, and then is started anew."""
    seconds = [0.0]
    monkeypatch.setattr(exchange, "KEPT_FILES", 8)
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    coordinator, first = (Place(folder, number, from_now=True) for number in (COORDINATOR, 0))
    others = folder / "a~2ftopic"

    def go_on(*places: Place) -> None:
        for _ in range(6):
            for place in places:
                place.turn()
            seconds[0] += exchange.CATCH_UP_SECONDS / 2

    def newest(number: int) -> bytes:
        (found,) = [text for _, text in coordinator.taken[-1:]] or [b""]
        assert found == b"%d" % number
        return found

    go_on(coordinator, first)
    for number in range(60):
        first.tell(COORDINATOR, b"%d" % number)
        if number % 3 == 0:
            coordinator.turn()
            first.turn()
        assert len(list((others / "site-0").iterdir())) <= 16
    go_on(coordinator, first)
    newest(59)
    for number in range(60, 100):  # the coordinator is away meanwhile
        first.tell(COORDINATOR, b"%d" % number)
    go_on(coordinator, first)
    newest(99)
    again = Place(folder, COORDINATOR, 2, from_now=True)
    go_on(again, first)
    first.tell(COORDINATOR, b"last")
    go_on(again, first)
    assert [text for _, text in again.taken] == [b"last"]
    assert [text for _, text in coordinator.taken] == [b"%d" % number for number in range(100)]
    assert all(len(list(one.iterdir())) <= 16 for one in others.iterdir())


def test_files_of_places_that_go_on_are_deleted_and_no_message_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["_trim", "_catch_up"])
def test_a_carrier_that_keeps_files_or_waits_for_deleted_ones_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(FileExchange, name, lambda *_: None)
    with pytest.raises(AssertionError):
        trimmed(tmp_path, monkeypatch)


def replaced_by_one_that_deletes(folder: Path) -> None:
    """A place that was away while a later incarnation of it ran for long is told before it writes a file."""
    coordinator, first = (Place(folder, number, from_now=True) for number in (COORDINATOR, 0))
    for place in (coordinator, first) * 3:
        place.turn()
    again = Place(folder, 0, 2, from_now=True)
    for number in range(30):
        again.tell(COORDINATOR, b"%d" % number)
        coordinator.turn()
        again.turn()
    folders = folder / "a~2ftopic"
    before = {path.name for path in (folders / "site-0").iterdir()}
    assert f"{first.files._written + 1:019d}" not in before
    with pytest.raises(Replaced, match="the place was started again"):
        first.tell(COORDINATOR, b"late")
    assert {path.name for path in (folders / "site-0").iterdir()} == before


def test_a_replaced_place_is_told_at_once_although_its_successor_has_deleted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "KEPT_FILES", 4)
    replaced_by_one_that_deletes(tmp_path / "right")
    monkeypatch.setattr(FileExchange, "_check_own", lambda _: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        replaced_by_one_that_deletes(tmp_path / "wrong")


def test_what_cannot_be_deleted_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exchange, "KEPT_FILES", 2)
    first, delete = Place(tmp_path, 0, from_now=True), ObjectClient.delete

    def refused(*_: object) -> None:
        raise OSError("AccessDenied")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectClient, "delete", refused)
        for _ in range(5):
            first.turn()
    assert "are not deleted: AccessDenied" in caplog.text
    assert ObjectClient.delete is delete
    for _ in range(3):
        first.turn()
    assert len(list((tmp_path / "a~2ftopic" / "site-0").iterdir())) == 2


def test_places_that_begin_after_a_part_was_deleted_go_on_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "KEPT_FILES", 4)
    monkeypatch.setattr(exchange, "CATCH_UP_SECONDS", 0.0)
    early, delete = Place(tmp_path, COORDINATOR, from_now=True), ObjectClient.delete

    def partly(client: ObjectClient, paths: Sequence[str]) -> None:
        delete(client, [path for path in paths if not path.endswith(f"/{1:019d}")])
        raise OSError("AccessDenied")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectClient, "delete", partly)
        first = Place(tmp_path, 0, from_now=True)
        while first.files._first == 1:
            first.turn()
    late, again = Place(tmp_path, COORDINATOR, 2, from_now=True), Place(tmp_path, 0, 2, from_now=True)
    newest = first.files._written
    assert again.files._written == late.files._read[0] == newest > 4
    for _ in range(3):
        early.turn()
    assert early.files._read[0] == newest


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        (set(), range(1, 1)),
        ({1, 2, 3, 9, 10, 11, 12}, range(1, 4)),
        ({3, 7, 8, 9, 10**18}, range(7, 10)),
        ({5}, range(5, 6)),
    ],
)
def test_rounds_are_those_that_follow_each_other(numbers: set[int], found: range) -> None:
    assert exchange._stretch(numbers) == found


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ({1, 2, 9, 10, 11, 12}, range(9, 13)),  # some of the older files could not be deleted
        ({1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 10**18}, range(9, 13)),
        ({1, 2, 9, 10, 11}, range(1, 3)),
        ({1, 2, 3, 4}, range(1, 5)),
    ],
)
def test_the_files_that_a_place_keeps_count_before_older_ones(numbers: set[int], found: range) -> None:
    assert exchange._stretch(numbers, 4) == found
    assert exchange._stretch(numbers).start == 1
