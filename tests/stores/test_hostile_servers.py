"""A server that lies, dawdles or leads elsewhere: a client ends with one clear error, soon, and stays."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tidemark.warehouse.delta import retries, served_client
from tidemark.warehouse.delta.retries import Patience
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.served_files import ServedFiles
from tidemark.warehouse.delta.served_ranges import ANSWER_BYTES, Part, encode
from tidemark.warehouse.errors import InputError, NotAWarehouse, StoreUnavailable, TidemarkError

Behaviour = Callable[[socket.socket], None]
WANTED = [ByteRange("runs/x", 0, 4)]
GOOD = encode([(Part.WHOLE, b"abcd")])


def said(body: bytes, status: str = "200 OK", *headers: str, length: int | str | None = None) -> Behaviour:
    """An answer with these bytes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    head = "\r\n".join([*lines, "Tidemark-Files: 1", *headers, "", ""]).encode()
    return lambda one: one.sendall(head + body)


def forever(piece: bytes, head: bytes = b"", every: float = 0.0) -> Behaviour:
    """The piece again and again, until the client goes."""

    def run(one: socket.socket) -> None:
        one.sendall(head)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            one.sendall(piece)
            time.sleep(every)

    return run


OK = b"HTTP/1.1 200 OK\r\nTidemark-Files: 1\r\n"
HOSTILE: dict[str, tuple[Behaviour, type[TidemarkError], str]] = {
    "no HTTP": (lambda one: one.sendall(b"\x16\x03\x01hello\r\n\r\n"), StoreUnavailable, "did not answer"),
    "nothing": (lambda _: None, StoreUnavailable, "did not answer"),
    "a redirect": (
        said(b"", "302 Found", "Location: http://127.0.0.1:{other}/w"),
        StoreUnavailable,
        "elsewhere",
    ),
    "a body that is cut": (said(GOOD, length=len(GOOD) + 9), StoreUnavailable, "did not answer"),
    "a length without end": (said(GOOD, length=10**15), StoreUnavailable, "length"),
    "a length beyond numbers": (said(GOOD, length="9" * 5000), StoreUnavailable, "length"),
    "no length": (lambda one: one.sendall(OK + b"\r\n" + GOOD), StoreUnavailable, "length"),
    "endless chunks": (
        forever(b"1000\r\n" + b"x" * 4096 + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
        StoreUnavailable,
        "length",
    ),
    "endless headers": (forever(b"X-More: " + b"x" * 1000 + b"\r\n", OK), StoreUnavailable, "did not answer"),
    "endless patience": (forever(b"HTTP/1.1 100 Continue\r\n\r\n"), StoreUnavailable, "did not answer"),
    "a byte a moment": (
        forever(b"x", OK + b"Content-Length: 1000\r\n\r\n", 0.05),
        StoreUnavailable,
        "time",
    ),
    "an encoding": (said(GOOD, "200 OK", "Content-Encoding: gzip"), StoreUnavailable, "encoding"),
    "a part too many": (said(GOOD + GOOD), StoreUnavailable, "not valid"),
    "a part too few": (said(b""), StoreUnavailable, "not valid"),
    "a part that is longer": (said(encode([(Part.WHOLE, b"abcdefgh")])), StoreUnavailable, "not valid"),
    "an unknown part": (said(b"\x07" + GOOD[1:]), StoreUnavailable, "not valid"),
    "a part of all bytes": (said(b"\x01" + b"\xff" * 8), StoreUnavailable, "not valid"),
    "a cut that brings nothing": (said(encode([(Part.CUT, b"")])), StoreUnavailable, "not valid"),
    "another version": (
        lambda one: one.sendall(b"HTTP/1.1 200 OK\r\nTidemark-Files: 2\r\nContent-Length: 0\r\n\r\n"),
        NotAWarehouse,
        "same version",
    ),
    "no such address": (
        lambda one: one.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
        NotAWarehouse,
        "answered 404",
    ),
    "no token": (said(b'{"error": "Unauthorized", "message": "go"}', "401 No"), StoreUnavailable, "with 401"),
    "no right": (said(b'{"error": "Refused", "message": "go"}', "403 No"), StoreUnavailable, "with 403"),
    "a full queue": (
        said(b'{"error": "Busy", "message": "full"}', "429 Busy", "Retry-After: 7"),
        StoreUnavailable,
        r"answered 429 \(full\), 4 times",
    ),
    "a failure": (said(b"oops", "500 Oops"), StoreUnavailable, "answered 500"),
    "a failure for the moment": (said(b"<html>", "503 Later"), StoreUnavailable, "answered 503, 4 times"),
    "a question that is wrong": (
        said(b'{"error": "InputError", "message": "\x1b[31mno\\u202e"}', "400 Bad"),
        StoreUnavailable,
        "answered 400",
    ),
    "a refusal": (
        said(b'{"error": "InputError", "message": "no\\u001b[31m"}', "400 Bad"),
        InputError,
        r"no \[31m",
    ),
    "a nested error": (said(b"[" * 50_000, "400 Bad"), StoreUnavailable, "answered 400"),
}


@contextmanager
def server(behaviour: Behaviour) -> Iterator[tuple[int, list[bytes]]]:
    """A server that reads a request and behaves so, for each connection: its port, and what came."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.05)
        ended = threading.Event()

        def serve(one: socket.socket) -> None:
            with one, suppress(OSError):
                one.settimeout(20)
                came.append(one.recv(65536))
                behaviour(one)

        def run() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()

        accepts = threading.Thread(target=run)
        accepts.start()
        try:
            yield door.getsockname()[1], came
        finally:
            ended.set()
            accepts.join()


def files_at(port: int, **options: str) -> ServedFiles:
    return ServedFiles(f"http://127.0.0.1:{port}/w", {"token": "the-token", "timeout": "0.2", **options})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which take no time."""
    slept: list[float] = []
    monkeypatch.setattr(served_client, "PATIENCE", Patience(pause=slept.append))
    return slept


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_server_ends_in_one_clear_error(name: str, pauses: list[float]) -> None:
    behaviour, kind, told = HOSTILE[name]
    with server(behaviour) as (port, came):
        client = files_at(port)
        with pytest.raises(kind, match=told) as error:
            client.get(WANTED)
        text = str(error.value)
        assert "the-token" not in text
        assert text.isprintable()
        assert len(text) < 800
        assert all(b"authorization: Bearer the-token" in one for one in came)
    if name == "a full queue":
        assert pauses == [served_client.LONGEST_WAIT] * 3


def test_a_redirect_is_not_followed(pauses: list[float]) -> None:
    with server(said(GOOD)) as (other, elsewhere):
        leads = said(b"", "307 Elsewhere", f"Location: http://127.0.0.1:{other}/files/ranges")
        with server(leads) as (port, _), pytest.raises(StoreUnavailable, match="elsewhere"):
            files_at(port).get(WANTED)
    assert not elsewhere
    assert not pauses


def test_a_server_that_comes_back_is_asked_again(pauses: list[float]) -> None:
    answers = iter([said(b"", "503 Later"), HOSTILE["nothing"][0], said(GOOD)])

    def changing(one: socket.socket) -> None:
        next(answers)(one)

    with server(changing) as (port, came):
        assert files_at(port).get(WANTED) == [b"abcd"]
    assert len(came) == 3
    assert len(pauses) == 2


@pytest.mark.parametrize("status", ["200 OK", "401 No"])
def test_a_connection_that_the_server_will_close_is_read_to_the_end_of_its_answer(status: str) -> None:
    body = GOOD if status == "200 OK" else b'{"error": "Unauthorized", "message": "go"}'
    ended = threading.Event()

    def closing(one: socket.socket) -> None:
        said(b"", status, "Connection: close", length=len(body))(one)
        for place in range(len(body)):  # none of it comes with the head
            time.sleep(0.002)
            one.sendall(body[place : place + 1])
        while one.recv(4096):  # of the request
            pass
        ended.set()

    with server(closing) as (port, _):
        if status == "200 OK":
            assert files_at(port, timeout="30").get(WANTED) == [b"abcd"]
        else:
            with pytest.raises(StoreUnavailable, match=r"refuses, with 401 \(go\)"):
                files_at(port, timeout="30").get(WANTED)
        assert ended.wait(20)  # the client has closed it


def test_a_file_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.delta.served_files.MOST_FILE_BYTES", 2 * ANSWER_BYTES)
    endless = said(encode([(Part.CUT, bytes(ANSWER_BYTES))]))
    with server(endless) as (port, came), pytest.raises(StoreUnavailable, match="more than"):
        files_at(port, timeout="30").get([ByteRange("runs/x")])
    assert 3 <= len(came) < 3 * served_client.TRIES  # a connection that the server closed is not used again


def test_lists_of_files_that_are_none_are_refused() -> None:
    for body in (
        b"",
        b"[]",
        b'{"files": 3}',
        b'{"files": [[1]]}',
        b'{"files": [["x", "y", 1]]}',
        b"{" * 9_999,
    ):
        with server(said(body)) as (port, _), pytest.raises(StoreUnavailable, match="no list of files"):
            files_at(port).names("events")


@pytest.mark.slow
def test_limits_are_needed(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    """Variants of the client that the table above catches."""
    with monkeypatch.context() as patch, server(HOSTILE["endless patience"][0]) as (port, _):
        patch.setattr(served_client._Bounded, "_rest", lambda _: 60.0)
        patch.setattr(served_client, "_HEAD_BYTES", 2**40)
        ended = threading.Event()

        def ask() -> None:
            with suppress(TidemarkError):
                files_at(port).get(WANTED)
            ended.set()

        threading.Thread(target=ask, daemon=True).start()
        assert not ended.wait(1.5)  # longer than all tries may take: without limits it goes on
    assert retries.PATIENCE.tries > served_client.TRIES
    assert pauses == []
