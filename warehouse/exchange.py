"""An exchange over files: messages of sites, in a folder or an object store that all sites can reach.

    <exchange>/<topic>/<place>/<round>    envelopes, one after the other; the place is site-0, site-1 ... or
                                          coordinator, the round has 19 digits and begins with 1

Each place writes its own folder, and reads those of its peers round by round. A file is put only if there is
none of its name, so no two processes write one round, and none is ever changed.

A name may be taken already. If the bytes are ours, only the answer of the store was lost. If a later
incarnation of this place wrote it, this one must end: Replaced. If an earlier incarnation or a stranger
did, the next round is ours; readers refuse what is in that file, and go on. A stranger who can write into the
folder but lacks the secret can delay messages, but never change what is delivered
(sketches/sites/endpoint.py).

A `Place` takes turns; `run_place` has it take turns until it is done.

Files stay until their owner deletes the topic, when no place runs. Only places that begin with what comes
(`from_now`) delete their own files: all but the last KEPT_FILES, once there are twice as many. A peer that
was away for longer skips files that are gone. Messages that it did not take were not acknowledged, so they
are sent again. A place whose own last file is gone was replaced, by an incarnation that has deleted its old
files since.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable

from tidemark.sketches.errors import Replaced, Undelivered
from tidemark.sketches.sites.endpoint import Endpoint, Sealed
from tidemark.sketches.sites.envelope import COORDINATOR, envelopes_of, receiver_of
from tidemark.sketches.sites.machine import Machine, Message
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import folder_name
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.os_errors import report_os_errors

KEPT_FILES = 256
CATCH_UP_SECONDS = 60.0  # without a file of a peer, until its folder is listed
_log = logging.getLogger("tidemark.exchange")


class FileExchange:
    """The carrier of one place: give `send` the envelopes of its endpoint, and the endpoint those of `fetch`.

    uri: an absolute path, or an address of an object store; made if it is not there.
    endpoint: of the place. storage_options: of the object store, as delta-rs defines them.
    from_now: pass over what is there: nothing of it is for this incarnation, if the peers go on running and
        repeat what was not acknowledged. Own files that they passed over are deleted.

    Raises InputError for a store that has no conditional put, SystemRefused and StoreUnavailable for
    refusals of the system and of the store.
    """

    __slots__ = ("_came", "_endpoint", "_first", "_folder", "_from_now", "_objects", "_read", "_written")

    def __init__(
        self,
        uri: str | os.PathLike[str],
        endpoint: Endpoint,
        *,
        storage_options: dict[str, str] | None = None,
        from_now: bool = False,
    ) -> None:
        self._endpoint, self._folder, self._from_now = endpoint, folder_name(endpoint.topic), from_now
        with report_os_errors("open the exchange"):
            self._objects = _objects(Store.from_uri(uri, storage_options))
            own = self._stretch(endpoint.place)
            self._first, self._written = own.start, own.stop - 1
            peers = endpoint.peers
            self._read = {one: self._stretch(one).stop - 1 if from_now else 0 for one in peers}
            self._came = dict.fromkeys(peers, time.monotonic())

    def send(self, sealed: Iterable[Sealed]) -> None:
        """Puts the envelopes as one file; no envelopes, no file. One request, two with `from_now`."""
        content = b"".join(data for _, data in sealed)
        if content and self._from_now:
            self._check_own()
        while content and not self._put(content):
            self._written += 1
        self._written += bool(content)
        if self._from_now and self._written - self._first >= 2 * KEPT_FILES:
            self._trim()

    def fetch(self) -> list[bytes]:
        """The envelopes for this place that came since the last call. One request a peer and a file more."""
        found: list[bytes] = []
        for peer, before in list(self._read.items()):
            while (content := self._get(self._path(peer, self._read[peer] + 1))) is not None:
                found += [one for one in envelopes_of(content) if receiver_of(one) == self._endpoint.place]
                self._read[peer] += 1
            now = time.monotonic()
            if self._read[peer] > before:
                self._came[peer] = now
            elif self._from_now and now - self._came[peer] >= CATCH_UP_SECONDS:
                self._catch_up(peer)
                self._came[peer] = now
        return found

    def _numbers(self, place: int) -> set[int]:
        """The rounds of a place that are there. A request for 1,000."""
        return {int(name) for name in self._objects.names(self._path(place)) if name.isdecimal()}

    def _stretch(self, place: int) -> range:
        """The rounds of a place that count: those without a gap between them."""
        return _stretch(self._numbers(place), KEPT_FILES if self._from_now else None)

    def _check_own(self) -> None:
        """Raises Replaced if the last file of this place is gone: this place itself keeps it."""
        path = self._path(self._endpoint.place, self._written)
        if self._written and self._get(path) is None:
            raise Replaced(
                f"got no {path}, the last file of this place, whose incarnation is "
                f"{self._endpoint.incarnation}: the place was started again, and has deleted its old files "
                "since, or somebody else has; end this process"
            )

    def _trim(self) -> None:
        """Deletes all own files but the last ones. What cannot be deleted is tried again with others."""
        place, first = self._endpoint.place, self._written - KEPT_FILES + 1
        try:
            old = [self._path(place, number) for number in self._numbers(place) if number < first]
            self._objects.delete(old)
        except OSError as error:
            _log.warning("old files in %s are not deleted: %s", self._path(place), error)
        self._first = first

    def _catch_up(self, peer: int) -> None:
        """Passes over rounds that the peer has deleted."""
        with report_os_errors("list the exchange"):
            numbers, read = self._numbers(peer), self._read[peer]
        kept = _stretch({number for number in numbers if number > read}, KEPT_FILES)
        if read + 1 not in numbers and len(kept) >= KEPT_FILES:
            self._read[peer] = kept.start - 1

    def _put(self, content: bytes) -> bool:
        """Whether the content is in the file of the next round."""
        path = self._path(self._endpoint.place, self._written + 1)
        try:
            self._objects.put_new(path, content)
        except OSError as error:  # also any other than "it is there": an answer can be lost
            found = self._get(path)
            if found is None:
                with report_os_errors(f"write {path}"):
                    raise error from None
            incarnation = self._endpoint.sealed_by(next(iter(envelopes_of(found)), b""))
            if incarnation > self._endpoint.incarnation:
                raise Replaced(
                    f"got {path} from the incarnation {incarnation} of this place, which is "
                    f"{self._endpoint.incarnation}: the place was started again, so end this process"
                ) from None
            return found == content
        return True

    def _get(self, path: str) -> bytes | None:
        with report_os_errors(f"read {path}"):
            return self._objects.get(path)

    def _path(self, place: int, number: int | None = None) -> str:
        name = "coordinator" if place == COORDINATOR else f"site-{place}"
        return f"{self._folder}/{name}" + ("" if number is None else f"/{number:019d}")


class Place:
    """A machine with its endpoint and its files: `turn` by `turn` it takes what comes and sends what it says.

    traffic: the envelopes and bytes that it sent and took, of which each has one message at most.
    """

    __slots__ = ("_endpoint", "_files", "_machine", "_next_repeat", "_wait", "traffic")

    def __init__(self, machine: Machine, endpoint: Endpoint, files: FileExchange) -> None:
        self._machine, self._endpoint, self._files = machine, endpoint, files
        self._wait = self._next_repeat = 0.0
        self.traffic = {"messages": 0, "bytes": 0}

    @property
    def waiting(self) -> list[int]:
        """The places that have not yet taken, or answered, everything."""
        return self._endpoint.waiting

    def turn(self) -> bool:
        """Takes the messages that came, and sends the machine's replies; returns whether any came.

        Raises Replaced if a later incarnation of this place runs, and the errors of the files: replies that
        were not sent then are sent by `repeat`.
        """
        sealed: list[Sealed] = []
        came = self._files.fetch()
        for data in came:
            receipt = self._endpoint.receive(data)
            sealed += receipt.replies
            messages = []
            if receipt.joined is not None:
                peer, again = receipt.joined
                messages += self._machine.joined(peer, again=again)
            if receipt.delivered is not None:
                messages += self._machine.receive(*receipt.delivered)
            for message in messages:
                sealed += self._endpoint.send(message)
        self._count(came)
        self._send([*sealed, *self._endpoint.acknowledge()])
        return bool(came)

    def say(self, messages: Iterable[Message]) -> None:
        """Sends messages. Raises as `turn`."""
        self._send([one for message in messages for one in self._endpoint.send(message)])

    def repeat(self) -> None:
        """Sends messages that are not acknowledged again."""
        self._send(self._endpoint.tick())

    def repeat_at_times(self, first: float, most: float = 60.0) -> None:
        """As `repeat`, at the first call and then after `first`, twice that ... at most `most` seconds."""
        now = time.monotonic()
        if not self.waiting:
            self._wait, self._next_repeat = first, now + first
        elif now >= self._next_repeat:
            self.repeat()
            self._next_repeat = now + (self._wait or first)
            self._wait = min(most, 2 * (self._wait or first))

    def _send(self, sealed: list[Sealed]) -> None:
        self._count([data for _, data in sealed])
        self._files.send(sealed)

    def _count(self, envelopes: list[bytes]) -> None:
        self.traffic["messages"] += len(envelopes)
        self.traffic["bytes"] += sum(map(len, envelopes))


def run_place(
    machine: Machine,
    endpoint: Endpoint,
    files: FileExchange,
    is_done: Callable[[], bool],
    *,
    every: float,
    most_seconds: float,
) -> None:
    """Takes messages and sends the machine's, until the machine is done and the others have taken all.

    every: seconds between two looks at the files of the peers. most_seconds: after which it is given up.

    Raises Undelivered then, and Replaced if a later incarnation of this place runs.
    """
    end = time.monotonic() + most_seconds
    place = Place(machine, endpoint, files)
    while True:
        place.turn()
        if is_done() and not place.waiting:
            return
        if time.monotonic() > end:
            raise Undelivered(
                f"got no answer of the places {place.waiting} within {most_seconds:g} seconds; expected "
                "that they run on the same exchange and topic with one secret; start them, or wait longer"
            )
        place.repeat()
        time.sleep(every)


def _stretch(numbers: set[int], kept: int | None = None) -> range:
    """The rounds from 1 to before the first missing one; without a round 1, the longest stretch.

    kept: how many files a place keeps that deletes its old ones. Then the last stretch of so many rounds
        comes first, because it may be that only some of the older files could be deleted.
    """
    found = range(1, 1)
    for start in sorted(number for number in numbers if number - 1 not in numbers):
        stop = next(number for number in range(start, start + len(numbers) + 1) if number not in numbers)
        is_trimmed = kept is not None and stop - start >= kept
        if is_trimmed or ((found.start != 1 or not found) and stop - start > len(found)):
            found = range(start, stop)
    return found


def _objects(store: Store) -> ObjectClient:
    found = store.files.open_objects()
    if found is None:
        raise InputError(
            f"got the exchange {store.uri}; expected a folder, or an S3 store with a conditional put and "
            "with its region or endpoint and keys in the storage options (docs/guides/object_stores.md)"
        )
    return found
