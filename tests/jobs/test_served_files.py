"""Warehouses that are opened by the address of a server: every answer is that of the warehouse itself."""

from __future__ import annotations

import http.client
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.asked import ASKED, W
from tests.jobs.http_served import TOKEN, Site, certificate_of_here, serving, small_world
from tests.jobs.said import environment
from tests.query.siteworld import made
from tests.soak import draws
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.jobs.serve import files
from tidemark.jobs.serve.question_queue import QuestionQueue
from tidemark.jobs.serve.tokens import Grant, Tokens, digest_of
from tidemark.warehouse.delta import addresses, log_replica, served_client, served_files, served_ranges
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import (
    DamagedWarehouse,
    InputError,
    NotAWarehouse,
    StoreUnavailable,
    TidemarkError,
)

OPTIONS = {"token": TOKEN}


@dataclass(frozen=True)
class Started:
    """A server in a process of its own, of a warehouse `w` and of two as one, `pair`."""

    url: str
    options: dict[str, str]
    site: Site
    token: str
    uri: str
    pair: dict[str, str]

    def address(self, name: str = "w") -> str:
        return f"{self.url}{name}"

    def document(self, name: str, body: dict[str, Any]) -> Any:
        """What the server answers, which reads the warehouse itself."""
        reply = self.site.post(f"/{name}", {"warehouse": "w", **body}, self.token)
        assert reply.status == 200, reply.text
        return reply.json


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("given")
    uri, pair = small_world(folder), made(folder, 5, 2).uris
    named = {"w": uri, "pair.east": pair["site 0"], "pair.west": pair["site 1"]}
    words = [word for name, place in named.items() for word in ("-w", f"{name}={place}")]
    command = [
        sys.executable,
        "-m",
        "tidemark.jobs.cli.main",
        "serve",
        *words,
        "--json",
        "--max-staleness",
        "0s",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as one:
        assert one.stdout is not None
        said = json.loads(one.stdout.readline())
        try:
            site = Site(int(said["url"].rstrip("/").rpartition(":")[2]), QuestionQueue(1, 0, 1))
            yield Started(said["url"], {"token": said["token"]}, site, said["token"], uri, pair)
        finally:
            one.terminate()
            one.wait(60)


@pytest.fixture(scope="module")
def wh(started: Started) -> query.Warehouse:
    return query.open(started.address(), started.options)


@pytest.fixture(scope="module")
def here(started: Started) -> query.Warehouse:
    return query.open(started.uri)


READ = {"blocks_read", "rows_scanned"}


def _apart(document: Any) -> str:
    """The document without what was read, which depends on what was in memory and on the place."""
    if isinstance(document, dict):
        return str({name: _apart(one) for name, one in document.items() if name not in READ})
    return str(list(map(_apart, document))) if isinstance(document, list) else repr(document)


@pytest.mark.parametrize("name", [one for one in ASKED if one != "inner_product"])
def test_an_answer_is_that_of_the_server(name: str, started: Started, wh: W) -> None:
    _, body, ask = ASKED[name]
    assert _apart(json.loads(ask(wh).to_json())) == _apart(started.document(name, body))


OF_ALL: dict[str, Callable[[W], Any]] = {
    "inner product": lambda wh: wh.inner_product(wh).to_json(),
    "scan": lambda wh: wh.quantile(0.5, where="ms > 3 AND site <> 'eu'").to_json(),
    "groups by a scan": lambda wh: wh.top(10, where="ms > 1").to_json(),
    "rows": lambda wh: wh.sql("SELECT name, big, price FROM events ORDER BY big").fetchall(),
    "function": lambda wh: wh.sql("SELECT value, low, high FROM quantile(0.9)").fetchall(),
    "steps": lambda wh: wh.sql("SELECT * FROM steps").fetchall(),
    "span": lambda wh: wh.span(last="1d"),
    "facts": lambda wh: {name: one for name, one in wh.info().items() if name not in {"warehouse", "memory"}},
}


@pytest.mark.parametrize("name", OF_ALL)
def test_whatever_else_is_asked_is_answered_as_by_the_warehouse(name: str, wh: W, here: W) -> None:
    assert _apart(OF_ALL[name](wh)) == _apart(OF_ALL[name](here))


@settings(max_examples=draws(10), deadline=None)
@given(
    phis=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    measure=st.sampled_from(["ms", "big", "price", "at"]),
    options=st.fixed_dictionaries(
        {"mode": st.sampled_from(["quick", "accurate", "exact"])},
        optional={
            "last": st.sampled_from(["1d", "7h", "2d"]),
            "where": st.sampled_from([{"site": "eu"}, {"site": ["us", "ap"]}, "ms > 2", "name LIKE 'S%'"]),
            "by": st.sampled_from(["site", "hour(time)"]),
            "every": st.sampled_from(["1d", "12h"]),
        },
    ),
)
def test_any_question_is_answered_as_by_the_warehouse(
    phis: list[float], measure: str, options: dict[str, Any], wh: W, here: W
) -> None:
    found, expected = (_answer(one, phis, measure, options) for one in (wh, here))
    assert _apart(found) == _apart(expected)


def _answer(wh: W, phis: list[float], measure: str, options: dict[str, Any]) -> Any:
    try:
        return json.loads(wh.quantile(phis, measure, **options).to_json())
    except TidemarkError as error:
        return type(error).__name__


@pytest.mark.slow
def test_one_site_of_several_may_be_behind_a_server(started: Started) -> None:
    east = started.address("pair.east")
    mixed = query.open(
        {"site 0": east, "site 1": started.pair["site 1"]}, {"site 0": started.options, "site 1": None}
    )
    both = query.open(started.pair)
    questions: list[Callable[[W], Any]] = [
        lambda wh: wh.quantile([0.1, 0.9], every="3d"),
        lambda wh: wh.quantile(0.5, by="g"),
        lambda wh: wh.top(5),
        lambda wh: wh.distinct(),
        lambda wh: wh.summary(),
    ]
    for ask in questions:
        assert _apart(json.loads(ask(mixed).to_json())) == _apart(json.loads(ask(both).to_json()))
    count = "SELECT _site, count(*) FROM events GROUP BY _site ORDER BY _site"
    assert mixed.sql(count).fetchall() == both.sql(count).fetchall()
    at = mixed.quantile(0.5).moment
    assert query.open(started.pair, at=at).quantile(0.5).value == mixed.quantile(0.5).value
    with pytest.raises(InputError, match=r"several: pair\.east, pair\.west"):
        query.open(started.address("pair"), started.options)
    with pytest.raises(InputError, match="'here' and 'there' are the same warehouse"):
        query.open({"here": started.pair["site 0"], "there": east}, {"here": None, "there": started.options})
    with pytest.raises(InputError, match="by name"):
        query.open({"a": east, "b": started.pair["site 1"]}, started.options)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are made from here on."""
    made_ones: list[str] = []
    post = served_client.ServedClient.post

    def counted(self: Any, path: str, *rest: Any) -> bytes:
        made_ones.append(path)
        return post(self, path, *rest)

    monkeypatch.setattr(served_client.ServedClient, "post", counted)
    return made_ones


def test_a_question_takes_one_request_to_look_and_one_for_rows(started: Started, requests: list[str]) -> None:
    wh = query.open(started.address(), started.options)
    wh.quantile(0.5)
    wh.frequency("ATL")
    for ask, most in (
        (lambda: wh.quantile(0.5, mode="quick"), 1),
        (lambda: wh.quantile([0.2, 0.3], "big"), 3),  # the first question about a measure reads its marks
        (lambda: wh.quantile(0.77), 2),
        (lambda: wh.rank(3.3), 2),
        (lambda: wh.frequency("SEA"), 2),
        (lambda: wh.top(3), 2),
    ):
        requests.clear()
        ask()
        assert len(requests) <= most, requests


def tiny(folder: Path) -> str:
    """A warehouse of one measure and one key, with four rows."""
    uri, rows = str(folder / "w"), pa.table({"x": [1.0, 2.0, 3.0, 4.0], "k": ["a", "b", "a", "c"]})
    warehouse.create(None, uri, ["x"], key="k", schema=rows.schema)
    warehouse.load(None, uri, rows, "first")
    return uri


@pytest.mark.slow
def test_rows_that_come_and_leave_are_seen(tmp_path: Path) -> None:
    uri = tiny(tmp_path)
    with serving({"w": query.open(uri)}) as site:
        wh = query.open(f"http://127.0.0.1:{site.port}/w", OPTIONS)
        assert wh.quantile(0.5).value == 2
        stream.append(None, uri, pa.table({"x": [5.0, 5.0], "k": ["new", "a"]}), source="s", batch=0)
        assert (wh.quantile(0.5).N, wh.frequency("new").count) == (6, 1)
        warehouse.load(None, uri)
        warehouse.delete(None, uri, "k = 'a'")
        assert [(one.value, one.count) for one in wh.top(9)] == [("b", 1), ("c", 1), ("new", 1)]
        assert wh.summary().sum == 2 + 4 + 5
        assert wh.sql("SELECT count(*) FROM events").fetchall() == [(3,)]


def test_a_log_that_may_lack_entries_is_listed(
    started: Started, here: W, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    """As where the newest commit is older than entries of the log are kept."""
    monkeypatch.setattr(log_replica, "_is_trusted", lambda *_: False)
    files_of_w = Store.from_uri(started.address(), started.options).far_files
    files_of_w.forget()
    wh = query.open(started.address(), started.options)
    assert "files/names" in requests
    assert wh.quantile(0.5).to_json() == here.quantile(0.5).to_json()
    assert wh.quantile(0.5, mode="exact").value == here.quantile(0.5, mode="exact").value


@pytest.mark.slow
def test_an_earlier_moment_is_opened_and_copies_are_made_and_verified(tmp_path: Path) -> None:
    uri = tiny(tmp_path)
    warehouse.load(None, uri, pa.table({"x": [9.0], "k": ["z"]}), "second")
    with serving({"w": query.open(uri)}) as site:
        place = f"http://127.0.0.1:{site.port}/w"
        assert [query.open(place, OPTIONS, at=step).quantile(1).value for step in (0, 1)] == [4, 9]
        copied = warehouse.copy(place, tmp_path / "copy", storage_options=OPTIONS, check=False)
        assert copied.files
        assert query.open(tmp_path / "copy").quantile(1).value == 9
        assert warehouse.verify(place, storage_options=OPTIONS).ok


ROWS = pa.table(
    {
        "ms": [1.0],
        "big": [1],
        "price": pa.array(["1.00"]).cast(pa.decimal128(12, 2)),
        "at": pa.array([1], pa.timestamp("us", "UTC")),
        "time": pa.array([1], pa.timestamp("s", "UTC")),
        "name": ["a"],
        "site": ["eu"],
    }
)
WRITES: dict[str, Callable[[str, dict[str, str]], Any]] = {
    "load": lambda uri, o: warehouse.load(None, uri, ROWS, "b", storage_options=o),
    "load what is live": lambda uri, o: warehouse.load(None, uri, storage_options=o),
    "append": lambda uri, o: stream.append(None, uri, ROWS, source="s", batch=9, storage_options=o),
    "delete": lambda uri, o: warehouse.delete(None, uri, "ms > 1", storage_options=o),
    "alter": lambda uri, o: warehouse.alter(None, uri, eps=0.1, storage_options=o),
    "maintain": lambda uri, o: warehouse.maintain(None, uri, storage_options=o),
    "repair": lambda uri, o: warehouse.repair(None, uri, storage_options=o),
    "expire": lambda uri, o: warehouse.expire(None, uri, before="2001-09-10", storage_options=o),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written_through_a_server(name: str, started: Started, here: W) -> None:
    with pytest.raises(InputError, match="through a server"):
        WRITES[name](started.address(), started.options)
    assert here.refresh() is False


@pytest.mark.slow
def test_several_answers_make_a_file_that_one_does_not_hold(here: W, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (served_ranges, served_files, files):
        monkeypatch.setattr(module, "ANSWER_BYTES", 1_500)
    with serving({"w": here}) as site:

        def first() -> Any:
            wh = query.open(f"http://localhost:{site.port}/w", OPTIONS)
            wh.store.far_files.forget()
            found = wh.quantile([0.2, 0.7], "big", mode="exact").to_json(), wh.frequency("ATL").to_json()
            return found, wh.sql("SELECT sum(big), count(*) FROM events").fetchall()

        expected = here.quantile([0.2, 0.7], "big", mode="exact").to_json(), here.frequency("ATL").to_json()
        assert _apart(list(first()[0])) == _apart(list(expected))
        assert first()[1] == here.sql("SELECT sum(big), count(*) FROM events").fetchall()
        # A client that takes what was cut for the whole file.
        decoded = served_ranges.decode
        monkeypatch.setattr(
            served_files,
            "decode",
            lambda *given: [(kind or served_ranges.Part.WHOLE, one) for kind, one in _whole(decoded(*given))],
        )
        with pytest.raises((TidemarkError, AssertionError)):
            query.open(f"http://127.0.0.1:{site.port}/w", OPTIONS).quantile(0.5)


def _whole(parts: list[Any]) -> list[Any]:
    part = served_ranges.Part
    return [(part.WHOLE if kind is part.CUT else kind, content) for kind, content in parts]


@pytest.mark.parametrize(
    ("table", "ask"),
    [
        ("marks/", lambda wh: wh.quantile(0.5)),
        ("events/", lambda wh: wh.sql("SELECT sum(x) FROM events").fetchall()),
    ],
)
def test_bytes_that_changed_on_the_way_are_damage(
    table: str, ask: Callable[[W], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = served_files.ServedFiles._request

    def flipped(self: Any, ranges: Any) -> Any:
        return [
            (kind, _flip(content) if one.path.startswith(table) and "_log" not in one.path else content)
            for one, (kind, content) in zip(ranges, asked(self, ranges), strict=True)
        ]

    with serving({"w": query.open(tiny(tmp_path))}) as site:
        wh = query.open(f"http://127.0.0.1:{site.port}/w", OPTIONS)
        monkeypatch.setattr(served_files.ServedFiles, "_request", flipped)
        with pytest.raises(DamagedWarehouse):
            ask(wh)


def _flip(content: bytes) -> bytes:
    return bytes([*content[: len(content) // 2], *(byte ^ 1 for byte in content[len(content) // 2 :])])


def test_a_site_that_stops_to_answer_widens_the_bounds(tmp_path: Path) -> None:
    near, far = tiny(tmp_path / "near"), tiny(tmp_path / "far")
    with serving({"far": query.open(far)}) as site:
        wh = query.open(
            {"near": near, "far": f"http://127.0.0.1:{site.port}/far"},
            {"near": None, "far": {**OPTIONS, "timeout": "5"}},
            missing="bounds",
        )
        before = wh.quantile(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_client, "TRIES", 1)
        after = wh.quantile(0.5)
    assert after.low <= before.value <= after.high
    assert (after.complete, before.widened) == (False, None)
    assert "far" in str(after.widened)


# --- rights and tokens


def test_the_right_files_is_needed_and_the_token_is_shown_nowhere(
    here: W, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    grants = [
        Grant("all", digest_of("token-of-all"), {"*": frozenset({"files"})}),
        Grant("others", digest_of("token-of-others"), {"w": frozenset({"aggregates", "rows", "sql"})}),
        Grant("elsewhere", digest_of("token-elsewhere"), {"x": frozenset({"files"})}),
    ]

    def refused(site: Site) -> list[str]:
        said = []
        for token, status in (("token-of-others", 403), ("token-elsewhere", 403), ("token-of-nobody", 401)):
            with pytest.raises(StoreUnavailable, match=f"with {status}") as error:
                query.open(f"http://127.0.0.1:{site.port}/w", {"token": token})
            said += [str(error.value), repr(error.value)]
        return said

    with serving({"w": here}, Tokens(grants)) as site:
        said = refused(site)
        monkeypatch.setenv(addresses.TOKENS, f"http://127.0.0.1:{site.port}=token-of-all https://x=secret")
        wh = query.open(f"http://127.0.0.1:{site.port}/w")
        assert wh.quantile(0.5).value == here.quantile(0.5).value
        said += [repr(wh), repr(wh.store), str(wh.info()), repr(wh.store.far_files._server), caplog.text]  # type: ignore[attr-defined]
        assert not [one for one in said if "token-of" in one]
        with pytest.raises(StoreUnavailable, match="401"):  # the token is that of another origin
            query.open(f"http://localhost:{site.port}/w")
        # A server that takes the right `rows` for the right to all files.
        monkeypatch.setattr(Grant, "may", lambda *_: True)
        with pytest.raises(pytest.fail.Exception):
            refused(site)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("http://tidemark.example/w", "in the clear"),
        ("http://10.0.0.1:80/w", "in the clear"),
        ("https://user:secret@tidemark.example/w", "an address of a server"),
        ("https://tidemark.example", "an address of a server"),
        ("https://tidemark.example/", "an address of a server"),
        ("https://tidemark.example/w?token=secret", "an address of a server"),
        ("https://tidemark.example/w#x", "an address of a server"),
        ("https://tidemark.example:99999/w", "an address of a server"),
        ("https://tidemark.example:/w", "an address of a server"),
        ("https:///w", "an address of a server"),
        ("https://tidemark.example/../..", "an address of a server"),
    ],
)
def test_an_address_that_no_server_has_is_refused(place: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as error:
        Store.from_uri(place)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"AWS_REGION": "x"}, "AWS_REGION"),
        ({"token": "a\r\nHost: b"}, "no token"),
        ({"token": ""}, "no token"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": "0"}, "timeout"),
        ({"certificate": "nowhere"}, "certificate"),
    ],
)
def test_options_that_no_server_has_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        _ = Store.from_uri("https://tidemark.example/w", options).files


def test_an_address_has_one_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(addresses.TOKENS, "https://tidemark.example:443=t https://other.example=u")
    for text in ("https://TIDEMARK.example/w/", "HTTPS://tidemark.example:443/w"):
        store = Store.from_uri(text)
        assert (store.uri, store.options) == ("https://tidemark.example/w", {"token": "t"})
    assert Store.from_uri("https://tidemark.example:8443/a/b/pair.east").options is None
    assert Store.from_uri("http://[::1]:80/w").uri == "http://[::1]/w"
    monkeypatch.setenv(addresses.TOKENS, "t")
    with pytest.raises(InputError, match="ORIGIN=TOKEN"):
        Store.from_uri("https://tidemark.example/w")


# --- what clients send


def body(**given: Any) -> dict[str, Any]:
    return {"warehouse": "w", **given}


BAD: list[tuple[str, Any, set[int]]] = [
    ("ranges", body(), {400}),
    ("ranges", body(ranges=[]), {400}),
    ("ranges", body(ranges=[["events", 0, None]] * 1_001), {400}),
    ("ranges", body(ranges=[["events/x", 0]]), {400}),
    ("ranges", body(ranges=[["events/x", -1, 3]]), {400}),
    ("ranges", body(ranges=[["events/x", 5, 3]]), {400}),
    ("ranges", body(ranges=[["events/x", 0, 2**70]]), {400}),
    ("ranges", body(ranges=[["events/x", True, 3]]), {400}),
    ("ranges", body(ranges=[["events/x", 0.5, 3]]), {400}),
    ("ranges", body(ranges=[[7, 0, 3]]), {400}),
    ("ranges", body(ranges=[["events/" + "x" * 5_000, 0, 3]]), {400}),
    ("ranges", body(ranges=[["/etc/passwd", 0, None]]), {400}),
    ("ranges", body(ranges=[["../secret", 0, None]]), {400}),
    ("ranges", body(ranges=[["events/../../secret", 0, None]]), {400}),
    ("ranges", body(ranges=[["events/./x", 0, None]]), {400}),
    ("ranges", body(ranges=[["events//etc/passwd", 0, None]]), {400}),
    ("ranges", body(ranges=[["events\\..\\secret", 0, None]]), {400}),
    ("ranges", body(ranges=[["events/\x00", 0, None]]), {400}),
    ("ranges", body(ranges=[["secret", 0, None]]), {400}),
    ("ranges", body(ranges=[["events/link", 0, None]]), {503}),
    ("ranges", body(ranges=[["events/link", 0, 9]]), {503}),
    ("ranges", body(ranges=[["events", 0, None]]), {200}),
    ("ranges", body(ranges=[["events/nothing", 0, 9]]), {200}),
    ("names", body(), {400}),
    ("names", body(folder="../"), {400}),
    ("names", body(folder="/etc"), {400}),
    ("names", body(folder="secret"), {400}),
    ("names", body(folder=["events"]), {400}),
    ("names", {"folder": "events"}, {400}),
    ("names", {"warehouse": "x", "folder": "events"}, {403}),
    ("names", {"warehouse": "w.x", "folder": "events"}, {400}),
    ("names", {"warehouse": "../w", "folder": "events"}, {403}),
    ("names", {"warehouse": ["w"], "folder": "events"}, {400}),
    ("names", [], {400}),
    ("names", b"{" * 100_000, {400}),
    ("names", b"\xff", {400}),
]


def attack(uri: str) -> None:
    """AssertionError where a request has another status than it must, or tells of files outside."""
    with serving({"w": query.open(uri)}) as site:
        for kind, sent, statuses in BAD:
            reply = site.post(f"/files/{kind}", sent)
            assert reply.status in statuses, (kind, sent, reply)
            assert "do not tell" not in reply.text
        listed = site.post("/files/names", body(folder="")).json["files"]
        assert {path.partition("/")[0] for path, _, _ in listed} <= files._SERVED
        assert site.get("/files/names").status == 405
        assert site.post("/files/names", body(folder="events"), None).status == 401


@pytest.mark.slow
def test_files_outside_the_tables_are_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = tiny(tmp_path)
    for place in (tmp_path / "secret", Path(uri) / "secret"):
        place.write_text("do not tell")
    (Path(uri) / "events" / "link").symlink_to(tmp_path / "secret")
    attack(uri)
    for name, mistake in (
        ("_checked", lambda path, **_: str(path)),  # paths that are not looked at
        ("_SERVED", files._SERVED | {"secret"}),  # a folder whose other files are given, too
        ("MOST_RANGES", 10_000),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(files, name, mistake)
            with pytest.raises(AssertionError):
                attack(uri)


def test_the_table_of_parts_is_read_as_it_is_written() -> None:
    part, one = served_ranges.Part, ByteRange("runs/x", 0, 3)
    wanted, parts = [one, one, one], [(part.WHOLE, b"abc"), (part.ABSENT, b""), (part.WHOLE, b"")]
    answer = served_ranges.encode(parts)
    assert served_ranges.decode(answer, wanted) == parts
    assert len(answer) <= served_ranges.most_bytes(3)
    for wrong in (answer[:-1], answer + b"x", b"\x09" + answer[1:], answer[:1] + b"\xff" * 8 + answer[9:]):
        with pytest.raises(ValueError, match=r"it (ends|has)|not a valid Part"):
            served_ranges.decode(wrong, wanted)
    with pytest.raises(ValueError, match="before its limit"):
        served_ranges.decode(served_ranges.encode([(part.CUT, b"ab")]), [one])


def test_connections_are_used_again(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    made_ones = []
    connect = http.client.HTTPConnection.connect

    def counted(self: Any) -> None:
        made_ones.append(self)
        connect(self)

    wh = query.open(started.address(), started.options)
    wh.quantile(0.5)
    monkeypatch.setattr(http.client.HTTPConnection, "connect", counted)
    for _ in range(5):
        wh.quantile(0.5)
    assert not made_ones
    for idle in wh.store.far_files._server._idle:  # type: ignore[attr-defined]  # as if the server had closed them
        idle._http.sock._sock.shutdown(2)
    assert wh.quantile(0.5).N
    assert len(made_ones) == 1


def test_commands_that_ask_take_the_address_of_a_server(
    started: Started, here: W, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(addresses.TOKENS, f"{started.url.rstrip('/')}={started.token}")
    assert main(["quantile", "0.5", "-w", started.address(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["value"] == here.quantile(0.5).value
    assert main(["maintain", "-w", started.address()]) == 2
    said = capsys.readouterr().err
    assert "through a server" in said
    assert started.token not in said


def test_the_certificate_of_a_server_is_verified(tmp_path: Path) -> None:
    files = certificate_of_here(tmp_path)
    with serving({"w": query.open(tiny(tmp_path))}, certificate=files) as site:
        place = f"https://127.0.0.1:{site.port}/w"
        trusted = {**OPTIONS, "certificate": str(files[0])}
        wh = query.open(place, trusted)
        assert wh.quantile(0.5).value == 2
        for idle in wh.store.far_files._server._idle:  # type: ignore[attr-defined]  # else the server waits for it
            idle.close()
        with pytest.raises(StoreUnavailable, match="certificate is not valid"):
            query.open(place, OPTIONS)
        with pytest.raises(StoreUnavailable, match="certificate is not valid"):  # it is of 127.0.0.1
            query.open(place.replace("127.0.0.1", "localhost"), trusted)


def test_no_warehouse_is_at_an_address(started: Started) -> None:
    with pytest.raises(StoreUnavailable, match="403"):
        query.open(started.address("unknown"), started.options)
    with pytest.raises(NotAWarehouse, match="same version"):
        query.open(f"{started.url}prefix/w", started.options)
