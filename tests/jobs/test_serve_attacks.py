"""What a stranger may send to `tidemark serve`: all of it is refused clearly, and the server stays."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.jobs.http_served import NAMES, TOKEN, Reply, Site, certificate_of_here, serving, small_world
from tests.soak import draws
from tidemark import query
from tidemark.jobs.serve import app, connections, questions
from tidemark.jobs.serve.hosts import HEADERS
from tidemark.jobs.serve.question_queue import QuestionQueue
from tidemark.query.sql.calls import SIGNATURES
from tidemark.warehouse.errors import TidemarkError


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    return query.open(small_world(tmp_path_factory.mktemp("attacked")))


@pytest.fixture(scope="module")
def site(wh: query.Warehouse) -> Iterator[Site]:
    with serving({"w": wh, "other": wh}, queue=QuestionQueue(parallel=2, waiting=64, seconds=30)) as found:
        yield found


def _q(**parameters: object) -> dict[str, object]:
    return {"warehouse": "w", **parameters}


DEEP = b'{"phi": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

# What is asked, and the statuses that it may have.
GETS: dict[str, set[int]] = {
    # paths
    "/../../etc/passwd": {404},
    "/%2e%2e/%2e%2e/etc/passwd": {404},
    "/quantile/../info?warehouse=w": {404},
    "//quantile?phi=0.5&warehouse=w": {404},
    "/quantile%00?phi=0.5&warehouse=w": {404},
    "/QUANTILE?phi=0.5&warehouse=w": {404},
    "/__class__": {404},
    "/sql": {404},
    "/_session": {404},
    "/with_time_limit?limit=1": {404},
    "/refresh": {404},
    # warehouses
    "/info?warehouse=/etc": {403},
    "/info?warehouse=..%2F..": {403},
    "/info?warehouse=s3://bucket/x": {403},
    "/info?warehouse=%00": {403},
    "/info?warehouse=w&warehouse=other": {400},
    "/info": {400},
    # sizes
    "/quantile?warehouse=w&phi=" + "9" * 5_000: {400},
    "/quantile?warehouse=w&" + "&".join("phi=0.5" for _ in range(2_000)): {400},
    "/top?warehouse=w&k=99999999999999999999999": {400},
    "/top?warehouse=w&k=10001": {400},
    "/quantile?warehouse=w&phi=0.5&every=1us": {400, 422},
    "/quantile?warehouse=w&phi=0.5&by=name&limit=1000000000": {400},
    "/histogram?warehouse=w&bins=1000000000": {400},
    "/quantile?warehouse=w&phi=0.5&last=" + "9" * 400 + "d": {400},
    **{
        f"/quantile?warehouse=w&phi=0.5&{name}={'9' * 5_000}{unit}": {400}
        for name in ("last", "as_of", "since", "every", "width", "top", "least_rows")
        for unit in ("", "d", "M")
    },
    "/persistent?warehouse=w&alpha=1&slot=" + "9" * 5_000 + "d": {400},
    "/rank?warehouse=w&measure=big&x=1e999999999": {200, 400},
    "/rank?warehouse=w&measure=big&x=1e9999999999999999999": {200, 400},
    "/rank?warehouse=w&measure=price&x=" + "9" * 5_000: {200, 400},
    "/rank?warehouse=w&measure=price&x=-1e-999999999": {200, 400},
    # text that is code elsewhere
    "/quantile?warehouse=w&phi=0.5&where=1=1;DROP TABLE events": {400},
    "/quantile?warehouse=w&phi=0.5&where=ms > (SELECT max(x) FROM read_csv('/etc/passwd') t(x))": {400},
    "/quantile?warehouse=w&phi=0.5&where=getenv('HOME') = 'x'": {400},
    "/quantile?warehouse=w&phi=0.5&where=ms > 1 OR sleep(10)": {400},
    "/quantile?warehouse=w&phi=0.5&where=name IN (FROM glob('/*'))": {400},
    "/quantile?warehouse=w&phi=0.5&where=" + "(" * 2_000 + "ms>1" + ")" * 2_000: {200, 400},
    "/quantile?warehouse=w&phi=0.5&measure=current_setting('home_directory')": {400},
    "/quantile?warehouse=w&phi=0.5&measure=ms) FROM events; ATTACH '/tmp/x' --": {400},
    '/quantile?warehouse=w&phi=0.5&by=site"; SELECT 1 --': {400},
    "/distinct?warehouse=w&key=name'--": {400},
    "/frequency?warehouse=w&value=' OR 1=1 --": {200},
    "/frequency?warehouse=w&value=<script>alert(1)</script>": {200},
    "/frequency?warehouse=w&value=%ff%fe%00": {200},
    "/frequency?warehouse=w&key=site,name&value=a,b,c": {400},
    "/quantile?warehouse=w&phi=${jndi:ldap://x}": {400},
    "/quantile?warehouse=w&phi=nan": {400},
    "/quantile?warehouse=w&phi=0.5&mode=__import__('os')": {400},
    "/quantile?warehouse=w&phi=0.5&since=99999-01-01": {400},
    "/quantile?warehouse=w&phi=0.5&self=1": {400},
    "/quantile?warehouse=w&phi=0.5&kwargs=1": {400},
    "/quantile?warehouse=w&phi=0.5&between=1": {400},
    "/quantile?warehouse=w&phi=0.5&form=../../x": {400},
    "/hierarchy?warehouse=w&phi=0.000000001&separator=": {200, 400},
}
BODIES: dict[str, tuple[str, object, set[int]]] = {
    "no JSON": ("/quantile", b"{", {400}),
    "no UTF-8": ("/quantile", b'{"phi": "\xff"}', {400}),
    "nested 100,000 deep": ("/quantile", DEEP, {400}),
    "a list": ("/quantile", [1, 2], {400}),
    "a number": ("/quantile", b"1", {400}),
    "nothing": ("/quantile", b"", {400}),
    "3 MB": ("/frequency", b'{"warehouse": "w", "value": "' + b"x" * 3_000_000 + b'"}', {413}),
    "a number of a million digits": ("/rank", b'{"warehouse": "w", "x": ' + b"9" * 1_000_000 + b"}", {400}),
    "a huge exponent": ("/rank", b'{"warehouse": "w", "x": 1e999999999, "measure": "big"}', {400}),
    "an exponent that no decimal has": ("/rank", b'{"warehouse": "w", "x": 1e9999999999999999999}', {400}),
    "text of 5,000 digits": ("/quantile", _q(phi=0.5, last="9" * 5_000), {400}),
    "NaN": ("/rank", b'{"warehouse": "w", "x": NaN}', {400}),
    "half of a character": ("/frequency", b'{"warehouse": "w", "value": "\\ud800"}', {200, 400}),
    "half of a character as a column": ("/quantile", b'{"warehouse": "w", "phi": 1, "by": "\\ud800"}', {400}),
    "NUL as a measure": ("/quantile", _q(phi=0.5, measure="\x00"), {400}),
    "a name that is a list": ("/quantile", {"warehouse": ["w"], "phi": 0.5}, {400}),
    "a mapping as phi": ("/quantile", _q(phi={"a": 1}), {400}),
    "a list of lists as phi": ("/quantile", _q(phi=[[0.5]]), {400}),
    "a boolean as k": ("/top", _q(k=True), {400}),
    "a mapping as a window": ("/quantile", _q(phi=0.5, last={"a": []}), {400}),
    "a list as every": ("/quantile", _q(phi=0.5, every=["1d"]), {400}),
    "a mapping as key": ("/top", _q(key={"a": 1}), {400}),
    "numbers as columns": ("/quantile", _q(phi=0.5, by=[1, 2]), {400}),
    "a nested where": ("/quantile", _q(phi=0.5, where={"site": {"a": [1]}}), {200, 400}),
    "where of mixed lists": ("/quantile", _q(phi=0.5, where=["site=eu", 3]), {400}),
    "groups of anything": (
        "/quantile",
        _q(phi=0.5, by="site", groups=[{"x": 1}, [], None, "eu"]),
        {200, 400},
    ),
    "a key of too few": ("/frequency", _q(value=[["eu"]], key=["site", "name"]), {400}),
    "keys of no type": ("/frequency", _q(value=[{"a": [1]}]), {400}),
    "other is not text": ("/inner_product", _q(other=7), {400}),
    "other without rights": ("/inner_product", _q(other="/etc"), {403}),
    "form of a list": ("/quantile", _q(phi=0.5, form=["rows"]), {400}),
    "a key of HTML": ("/frequency", _q(value=[NAMES[2]]), {200}),
    "a key of 1 MB": ("/frequency", _q(value=[NAMES[4]]), {200}),
    "parameters at both places": ("/quantile?phi=0.1", _q(phi=0.5), {400}),
}
HOST, CLOSE = "Host: localhost\r\n", "Connection: close\r\n\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"
HEAD = HOST + BEARER
POST = f"POST /quantile HTTP/1.1\r\n{HEAD}"
OF_JSON = "Content-Type: application/json\r\n"
# Text that is no request, or one that two readers may read differently, and the statuses that it may have.
RAW: dict[str, tuple[str, set[str]]] = {
    "garbage": ("\x16\x03\x01\x02\x00\x01\xff\r\n\r\n", {"400"}),
    "nothing": ("", {""}),
    "a head of a megabyte": ("GET /info HTTP/1.1\r\nX: " + "a" * 2**20, {"400"}),
    "100,000 headers": ("GET /info HTTP/1.1\r\n" + "A: b\r\n" * 100_000 + "\r\n", {"400"}),
    "two lengths": (f"{POST}Content-Length: 1\r\nContent-Length: 2\r\n{CLOSE}ab", {"400"}),
    "a length and chunks": (
        f"{POST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n{CLOSE}0\r\n\r\n",
        {"400", "415"},
    ),
    "a negative length": (f"{POST}Content-Length: -1\r\n{CLOSE}", {"400"}),
    "two Hosts": (f"GET /info HTTP/1.1\r\n{HEAD}Host: evil\r\n{CLOSE}", {"400"}),
    "no Host": (f"GET /info HTTP/1.1\r\n{BEARER}{CLOSE}", {"400"}),
    "no Host in HTTP/1.0": (f"GET /info HTTP/1.0\r\n{BEARER}{CLOSE}", {"403"}),
    "two tokens": (f"GET /warehouses HTTP/1.1\r\n{HEAD}Authorization: Bearer x\r\n{CLOSE}", {"401"}),
    "another scheme": (f"GET /info HTTP/1.1\r\n{HOST}Authorization: Basic {TOKEN}\r\n{CLOSE}", {"401"}),
    "an Origin that is no address": (f"GET /info HTTP/1.1\r\n{HEAD}Origin: http://[\r\n{CLOSE}", {"403"}),
    "an Origin of a bracket": (f"GET / HTTP/1.1\r\n{HOST}Origin: http://a]b\r\n{CLOSE}", {"403"}),
    "an address in the request": (f"GET http://evil/info HTTP/1.1\r\n{HEAD}{CLOSE}", {"400", "404"}),
    "CONNECT": (f"CONNECT evil:80 HTTP/1.1\r\n{HEAD}{CLOSE}", {"400", "404"}),
    "TRACE": (f"TRACE /info HTTP/1.1\r\n{HEAD}{CLOSE}", {"405"}),
    "a web socket": (
        f"GET /info HTTP/1.1\r\n{HEAD}Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n{CLOSE}",
        {"400"},
    ),
    "a request inside another": (
        f"GET /warehouses HTTP/1.1\r\n{HEAD}X: y\r\n\tGET /info HTTP/1.1\r\n{CLOSE}",
        {"200", "400"},
    ),
    "compressed": (f"{POST}{OF_JSON}Content-Encoding: gzip\r\nContent-Length: 2\r\n{CLOSE}{{}}", {"415"}),
    "a form": (f"{POST}Content-Type: text/plain\r\nContent-Length: 2\r\n{CLOSE}{{}}", {"415"}),
    "a body that breaks off": (f"{POST}{OF_JSON}Content-Length: 99\r\n{CLOSE}{{", {"400", ""}),
}


def _check(reply: Reply, wh: query.Warehouse) -> None:
    """No fault of the server, nothing of its inside, and the headers that browsers obey."""
    assert reply.status < 500, reply.text[:500]
    assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
    for secret in ("Traceback", wh.store.uri.removeprefix("file://"), "root:", "site-packages", TOKEN):
        assert secret not in reply.text
    if reply.status >= 400:
        assert set(reply.json) == {"error", "message"}
        assert "NoneType" not in reply.text
        assert "object has no attribute" not in reply.text


def _stays(site: Site) -> None:
    """The server answers as before, and no question is left at work."""
    found = site.get("/quantile?warehouse=w&phi=1&measure=price")
    assert (found.status, found.json["answers"][0]["value"]) == (200, "99.99")
    while site.queue.taken:
        threading.Event().wait(0.01)


def test_there_are_enough_attacks() -> None:
    assert len(GETS) + len(BODIES) + len(RAW) >= 90


@pytest.mark.parametrize("path", GETS, ids=lambda path: str(path)[:60])
def test_a_hostile_address_is_refused(path: str, site: Site, wh: query.Warehouse) -> None:
    reply = site.get(path.replace(" ", "%20"))
    assert reply.status in GETS[path], reply.text[:500]
    _check(reply, wh)
    # Without a token nothing is looked at.
    assert site.get(path.replace(" ", "%20"), None).status in {401, 404}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused(name: str, site: Site, wh: query.Warehouse) -> None:
    path, body, statuses = BODIES[name]
    reply = site.post(path, body)
    assert reply.status in statuses, reply.text[:500]
    _check(reply, wh)
    _stays(site)


@pytest.mark.parametrize("name", RAW)
def test_hostile_bytes_are_refused(name: str, site: Site) -> None:
    text, statuses = RAW[name]
    said = site.raw(text.encode("latin-1"), finish=not text.endswith(("\n", "}", "ab")))
    assert said[9:12].decode() in statuses, said[:300]
    _stays(site)
    assert b"Traceback" not in said


def test_slow_clients_and_many_connections_keep_nobody_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.GuardedProtocol, "head_seconds", 0.2)
    with socket.create_connection(("127.0.0.1", site.port)) as slow:
        slow.sendall(b"GET /info HTTP/1.1\r\nHost: loc")
        assert _is_closed(slow, 30)
    monkeypatch.setattr(connections.GuardedProtocol, "head_seconds", 600)
    monkeypatch.setattr(connections.Door, "most_waiting", 5)
    assert _closed_of_held(site) >= 44


def _closed_of_held(site: Site, number: int = 50) -> int:
    """How many of the connections that send nothing are closed while another client is answered."""
    held = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(number)]
    assert site.get("/info?warehouse=w").status == 200
    try:
        return sum(_is_closed(one, 0.01) for one in held)
    finally:
        for one in held:
            one.close()


def test_handshakes_that_do_not_end_keep_nobody_out(
    wh: query.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_of_here(tmp_path)
    monkeypatch.setattr(connections.Door, "most_waiting", 5)
    with serving({"w": wh}, certificate=certificate) as site:
        assert _closed_of_held(site) >= 44
        # The broken variant: connections that count from the end of their handshake on.
        monkeypatch.setattr(connections.Door, "accept", socket.socket.accept)
        assert _closed_of_held(site) == 0


@pytest.mark.parametrize(
    ("path", "token", "is_kept"),
    [
        ("/", "", False),
        ("/page/page.js", "", False),
        ("/nowhere", "", False),
        ("/info?warehouse=w", "wrong", False),
        ("/info?warehouse=w", TOKEN, True),
        ("/info?warehouse=nowhere", TOKEN, True),
    ],
)
def test_a_connection_without_a_token_is_not_kept(path: str, token: str, is_kept: bool, site: Site) -> None:
    """Such connections, each kept by a request now and then, would take all places."""
    authorized = f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection(("127.0.0.1", site.port)) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\n{HOST}{authorized}\r\n".encode())
        reply = http.client.HTTPResponse(one)
        reply.begin()
        assert reply.read()
        assert _is_closed(one, 0.05 if is_kept else 10) is not is_kept


def _is_closed(one: socket.socket, seconds: float) -> bool:
    """Whether the other side closes the connection within so many seconds."""
    one.settimeout(seconds)
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@contextmanager
def _asked(site: Site, size: int) -> Iterator[socket.socket]:
    """A client that has asked for an answer of this many bytes and some more, and took nothing of it."""
    body = json.dumps(_q(value="x" * size)).encode()
    head = f"POST /frequency HTTP/1.1\r\n{HEAD}{OF_JSON}Content-Length: {len(body)}\r\n\r\n".encode()
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", site.port))
        with (
            one
            if site.secure is None
            else site.secure.wrap_socket(one, server_hostname="127.0.0.1") as client
        ):
            client.sendall(head + body)
            yield client


def _is_ended(site: Site, size: int, seconds: float) -> bool:
    """Whether the connection of a client that takes nothing of an answer ends within so many seconds."""
    with _asked(site, size) as client:
        ended = select.poll()
        ended.register(client, 0)  # no event is waited for but the end of the connection
        return bool(ended.poll(1_000 * seconds))


LARGE = 2**20
Made = Callable[[connections.GuardedProtocol, asyncio.Transport], None]


def _with_usual_limits(made: Made) -> Made:
    def usual(self: connections.GuardedProtocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        transport.set_write_buffer_limits()

    return usual


@pytest.mark.parametrize("is_secure", [False, True])
def test_who_takes_nothing_of_an_answer_holds_no_connection(
    is_secure: bool, wh: query.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_of_here(tmp_path) if is_secure else None
    small = 400_000 if is_secure else 60_000  # less than asyncio takes without a word
    guarded = connections.GuardedProtocol
    monkeypatch.setattr(guarded, "send_seconds", 0.1)
    with serving({"w": wh}, certificate=certificate, send_bytes=4096) as site:
        assert _is_ended(site, LARGE, 300)
        assert _is_ended(site, small, 300)
        with monkeypatch.context() as broken:
            broken.setattr(guarded, "connection_made", _with_usual_limits(guarded.connection_made))
            assert not _is_ended(site, small, 1)
        with monkeypatch.context() as broken:
            if is_secure:  # all is given to the connection, which seems to take it
                broken.setattr(app, "PIECE_BYTES", 2**30)
            else:  # nobody looks
                broken.setattr(guarded, "pause_writing", H11Protocol.pause_writing)
            assert not _is_ended(site, LARGE, 1)


def _until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes so within so many seconds."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        threading.Event().wait(0.005)
    return is_so()


def _is_seen(one: connections.GuardedProtocol, take: Callable[[], bytes], seconds: float) -> bool:
    """Whether the server, which waits for a client, sees within so many seconds that it takes something."""

    def state() -> tuple[object, int]:
        return one._sending, one._taken()

    def is_still() -> bool:
        before = state()
        return before[0] is not None and not _until(lambda: state() != before, 0.3)

    assert _until(is_still, 300)
    before = state()
    assert take()
    return _until(lambda: state()[0] is not before[0] or state()[1] > before[1], seconds)


@pytest.mark.parametrize("is_secure", [False, True])
def test_what_a_slow_client_takes_is_seen(
    is_secure: bool, wh: query.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = certificate_of_here(tmp_path) if is_secure else None
    opened: list[connections.GuardedProtocol] = []
    made = connections.GuardedProtocol.connection_made

    def noted(self: connections.GuardedProtocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        opened.append(self)

    monkeypatch.setattr(connections.GuardedProtocol, "connection_made", noted)
    with serving({"w": wh}, certificate=certificate, send_bytes=4096) as site:

        def seen(size: int, times: int, seconds: float) -> list[bool]:
            with _asked(site, LARGE) as client:
                reply = http.client.HTTPResponse(client)
                reply.begin()
                taken: list[bytes] = []

                def take() -> bytes:
                    taken.append(reply.read(size))
                    return taken[-1]

                found = [_is_seen(opened[-1], take, seconds) for _ in range(times)]
                text = (b"".join(taken) + reply.read()).decode()
                assert json.loads(text)["answers"][0]["value"] == "x" * LARGE
                return found

        assert seen(30_000, 3, 300) == [True] * 3
        # Where the kernel does not count, more is taken until it is seen over TLS.
        monkeypatch.setattr(connections, "_acknowledged", lambda _: 0)
        assert seen(130_000, 2, 300) == [True] * 2
        if is_secure:
            assert seen(30_000, 1, 0.3) == [False]
            monkeypatch.setattr(app, "PIECE_BYTES", 2**18)
            assert seen(130_000, 1, 0.3) == [False]


def test_the_end_of_a_connection_leaves_the_next_one_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over TLS the end is told after the socket was closed; its number may be another one's by then."""
    waiting: OrderedDict[int, socket.socket] = OrderedDict()
    monkeypatch.setattr(connections, "_waiting", waiting)
    first, second = (SimpleNamespace(fileno=lambda: 7) for _ in range(2))
    accepted = iter([first, second])
    monkeypatch.setattr(socket.socket, "accept", lambda _: (next(accepted), None))
    protocol = connections.GuardedProtocol.__new__(connections.GuardedProtocol)
    protocol._socket = first
    with connections.Door() as door:
        door.accept()
        assert list(waiting.values()) == [first]
        first.fileno = lambda: -1
        door.accept()
        protocol._stop()
        assert list(waiting.values()) == [second]
        protocol._socket = second
        protocol._stop()
        assert not waiting


@pytest.mark.parametrize("looks", [[(0, 9), (0, 8), (0, 3), (0, 3)], [(0, 9), (4, 9), (5, 9), (5, 9)]])
def test_only_a_look_that_finds_nothing_taken_ends_a_connection(
    looks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look finds more acknowledged or less to send; the last finds the same as the one before."""
    left, aborted, later = [*looks], [], []
    protocol = connections.GuardedProtocol.__new__(connections.GuardedProtocol)
    monkeypatch.setattr(H11Protocol, "pause_writing", lambda _: None)
    monkeypatch.setattr(connections, "_acknowledged", lambda _: left[0][0])
    transport = SimpleNamespace(get_write_buffer_size=lambda: left.pop(0)[1], abort=lambda: aborted.append(1))
    loop = SimpleNamespace(call_later=lambda seconds, look, before: later.append((seconds, look, before)))
    door = SimpleNamespace(setsockopt=lambda *_: None)
    vars(protocol).update(transport=transport, loop=loop, _socket=door)
    protocol.pause_writing()
    for _ in range(2):
        seconds, look, before = later.pop()
        look(before)
        assert (seconds, aborted) == (connections.SEND_SECONDS, [])
    _, look, before = later.pop()
    look(before)
    assert (aborted, later) == ([1], [])


def test_a_slow_body_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.1)
    head = f"{POST}{OF_JSON}Content-Length: 99\r\n{CLOSE}{{"
    assert site.raw(head.encode(), finish=False)[9:12] == b"408"


WEIRD = st.sampled_from(
    [
        *(True, 0, -1, 2**70, 0.5, 1e300),
        *("", "x", "7d", "\x00", "\ud800", "site", "ms", "ATL", "2001-09-09", "-1"),
        *("9" * 5_000, "9" * 5_000 + "d"),
    ]
)
JSON_VALUES = (
    WEIRD | st.lists(WEIRD, max_size=2) | st.dictionaries(st.sampled_from(["site", "ms", "", "x"]), WEIRD)
)


@settings(max_examples=draws(100))
@given(name=st.sampled_from(sorted(SIGNATURES)), data=st.data())
def test_any_json_is_answered_or_refused(name: str, data: st.DataObject, wh: query.Warehouse) -> None:
    """Only errors of the package come out: they are told with a status of their own."""
    subjects = SIGNATURES[name].subjects
    names = st.sampled_from([*SIGNATURES[name].parameters, "form", "explain"])
    given_ = data.draw(st.dictionaries(names, JSON_VALUES | st.lists(JSON_VALUES, max_size=2), max_size=3))
    sound = dict.fromkeys(subjects, 0.5 if "value" not in subjects else "ATL")
    body = json.dumps({**sound, **given_}).encode()
    with suppress(TidemarkError):
        request = questions.of_body(name, body)
        questions.needs(wh, request)
        json.loads(questions.answer(wh, request))


def test_keys_of_any_characters_come_as_they_are(site: Site) -> None:
    found = {one["value"] for one in site.get("/top?warehouse=w&k=10&key=name").json["answers"]}
    assert found == set(NAMES)
    found = {row["key"] for row in site.get("/top?warehouse=w&k=10&key=name&form=rows").json}
    assert found == set(NAMES)
    text = site.get("/top?warehouse=w&k=10&key=name").text
    assert json.loads(text)
    assert "\x1b" not in text
    assert "\x00" not in text
