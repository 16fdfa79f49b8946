"""`tidemark serve`: answers as of the command, rights, limits, and an end."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.asked import ASKED, W
from tests.jobs.http_served import NAMES, TOKEN, Site, certificate_of_here, fill, serving, small_world
from tests.jobs.said import environment
from tests.stores.gate import Fault
from tests.stores.server import running
from tidemark import query, warehouse
from tidemark.jobs.cli.main import main
from tidemark.jobs.serve import questions
from tidemark.jobs.serve.openapi import openapi
from tidemark.jobs.serve.parameters import parameters_of
from tidemark.jobs.serve.question_queue import QuestionQueue
from tidemark.jobs.serve.start import listening
from tidemark.jobs.serve.tokens import Grant, Tokens, digest_of, new_token, parse_rights
from tidemark.query.answers.flat_rows import flat_rows
from tidemark.query.keys import key_scan
from tidemark.query.reading import connections
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.sql.calls import SIGNATURES
from tidemark.warehouse.columns.json_values import json_text, json_type
from tidemark.warehouse.errors import InputError, TimeLimitReached


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    return query.open(small_world(tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def site(wh: query.Warehouse) -> Iterator[Site]:
    with serving({"w": wh}) as found:
        yield found


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_is_the_document_of_the_command(name: str, site: Site, wh: W) -> None:
    in_address, body, ask = ASKED[name]
    expected = json.loads(ask(wh).to_json())
    for reply in (site.get(f"/{name}?{in_address}"), site.post(f"/{name}", {**body, "warehouse": "w"})):
        assert (reply.status, _apart(reply.json)) == (200, _apart(expected))
    rows = site.get(f"/{name}?{in_address}&form=rows").json
    assert rows == json.loads(json_text(ask(wh).to_rows()))
    assert "plan" in site.post(f"/{name}", {**body, "explain": True}).json or name == "overlap"


def test_all_questions_are_asked_above() -> None:
    assert set(ASKED) == set(questions.QUESTIONS)


PLANS: list[dict[str, Any]] = [{}, {"last": "1d", "key": ["site", "name"]}]


def _plans_are_told(site: Site, wh: W) -> None:
    """What is to be read is told as in Python, by both questions and both methods, and nothing is read."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("something is read")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockReader, "read", refuse)
        patch.setattr(key_scan, "database", refuse)
        for window in PLANS:
            read = wh.scan_plan(**window).document["read"]
            for name, mode in (("self_join", None), ("distinct", "exact")):
                given = {**window, "form": "plan", **({} if mode is None else {"mode": mode})}
                for reply in (
                    site.get(f"/{name}?{urlencode(given, doseq=True)}"),
                    site.post(f"/{name}", given),
                ):
                    assert (reply.status, list(reply.json)) == (200, ["plan"])
                    assert (reply.json["plan"]["way"], reply.json["plan"]["read"]) == ("scan", read)


def test_a_plan_is_told_beforehand(site: Site, wh: W) -> None:
    _plans_are_told(site, wh)
    for path, said in (
        ("quantile?phi=0.5", "quantile has no plan beforehand; self_join and distinct have."),
        ("inner_product?other=w", "inner_product has no plan beforehand"),
        ("distinct?last=1d", "Give mode exact"),
        ("self_join?where=site=eu", "leave out where"),
        ("self_join?every=1d", "leave out every"),
        ("self_join?last=soon", "not a duration"),
    ):
        reply = site.get(f"/{path}&form=plan")
        assert (reply.status, said in reply.json["message"]) == (400, True), reply.text


def test_a_plan_that_asks_the_question_is_caught(site: Site, wh: W, monkeypatch: pytest.MonkeyPatch) -> None:
    right = query.Warehouse.scan_plan
    monkeypatch.setattr(
        query.Warehouse, "scan_plan", lambda wh, **given: wh.self_join(**given) and right(wh, **given)
    )
    with pytest.raises(AssertionError):
        _plans_are_told(site, wh)


def _apart(document: Any) -> Any:
    """The document without what depends on what was in memory."""
    text = json.dumps(document)
    return [part.partition(",")[2] for part in text.split('"blocks_read"')]


@pytest.mark.parametrize("schema", [None, pa.schema([("x", pa.float64()), ("k", pa.string())])])
def test_a_warehouse_without_rows_is_answered_or_refused(schema: pa.Schema | None, tmp_path: Path) -> None:
    warehouse.create(None, str(tmp_path / "w"), measures=["x"], key="k", schema=schema)
    with serving({"w": query.open(tmp_path / "w")}) as site:
        for name, needed in ((name, SIGNATURES[name].needed) for name in SIGNATURES):
            subject = f"{SIGNATURES[name].subjects[0]}=0.5&" if needed else ""
            assert site.get(f"/{name}?{subject}").status in {200, 400, 422}, name
            assert site.get(f"/{name}?{subject}form=rows").status in {200, 400}, name
        assert 'tidemark_up{warehouse="w"} 1.0' in site.get("/metrics").text
    assert main(["rank", "1", "-w", str(tmp_path / "w")]) == 2


def test_facts_name_no_place(site: Site, wh: W) -> None:
    info, found = site.get("/info").json, site.get("/warehouses").json["warehouses"]
    assert info["warehouse"] == "w"
    assert info["live_rows"] == 40
    assert wh.store.uri not in json.dumps([info, found])
    assert found["w"]["keys"] == [["name"], ["site", "name"], ["big"], ["site"]]
    assert found["w"]["measures"]["big"] == "long"
    start, end = wh.span(last="1d")
    assert site.get("/span?last=1d").json == {"start": start.isoformat(), "end": end.isoformat()}


@given(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.fractions()
    | st.datetimes(timezones=st.just(UTC))
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
)
def test_flat_rows_are_numbers_that_lose_nothing(value: Any) -> None:
    """A number that is not the value itself has its text beside it, and the text is the value."""
    answer = query.Bin(left=value, right=None, count=3, lo=2, hi=4)

    class Scope:
        window, N, SUBJECT, group = (datetime(2001, 9, 9, tzinfo=UTC), None), 7, "measure", {"site": "eu"}

    (row,) = flat_rows([(answer, Scope)], ["site"])
    assert (row["time"], row["time_end"], row["rows"], row["site"]) == (999993600000, None, 7, "eu")
    assert (row["value"], row["low"], row["high"]) == (3, 2, 4)
    json.dumps(row, allow_nan=False)
    read: dict[str | None, Callable[[str], Any]] = {
        "integer": int,
        "double": float,
        "decimal": Decimal,
        "fraction": Fraction,
        "timestamp": datetime.fromisoformat,
    }
    if "left_text" in row:
        found = read[json_type([value])](row["left_text"])
        assert found == value or (value != value and found != found)  # noqa: PLR0124  NaN
    elif isinstance(value, datetime):
        assert datetime.fromtimestamp(row["left"] / 1000, UTC) == value or abs(value.year) > 2200
    else:
        assert row["left"] == (value.hex() if isinstance(value, bytes) else value)


@pytest.fixture
def granted(wh: W, tmp_path: Path) -> Iterator[tuple[Site, Path, dict[str, str]]]:
    """A server of two warehouses, its file of tokens, and the tokens by name."""
    file, tokens = tmp_path / "tokens", {}
    for name, rights in (
        ("few", ["w=aggregates"]),
        ("more", ["w=aggregates,rows,sql"]),
        ("all", ["*=aggregates,rows,sql,metrics"]),
        ("none", ["nothing=aggregates"]),
    ):
        tokens[name] = new_token()
        grant = Grant(name, digest_of(tokens[name]), parse_rights(rights))
        with file.open("a") as lines:
            lines.write(f"# {name}\n{grant.name} sha256:{grant.digest} {' '.join(rights)}\n")
    with serving({"w": wh, "secret": wh}, Tokens(file=file)) as site:
        yield site, file, tokens


RIGHTS = {
    "/quantile?phi=0.5&warehouse=w": "few more all",
    "/quantile?phi=0.5&warehouse=w&where=site=eu": "few more all",
    "/quantile?phi=0.5&warehouse=w&where=ms+>+3": "more all",
    "/quantile?phi=0.5&warehouse=w&measure=ms*2": "more all",
    "/quantile?phi=0.5&warehouse=w&by=hour(time)": "more all",
    "/largest?warehouse=w": "more all",
    "/smallest?warehouse=w": "more all",
    "/info?warehouse=secret": "all",
    "/quantile?phi=0.5&warehouse=secret": "all",
    "/inner_product?warehouse=w&other=secret": "all",
    "/quantile?phi=0.5&warehouse=other": "",
}


def allowed(site: Site, tokens: dict[str, str]) -> dict[str, str]:
    """Who gets an answer at each address of RIGHTS."""
    return {
        path: " ".join(
            name for name in tokens if site.get(path.replace("+", "%20"), tokens[name]).status == 200
        )
        for path in RIGHTS
    }


def test_a_token_has_the_rights_of_its_line(
    granted: tuple[Site, Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, _, tokens = granted
    assert allowed(site, tokens) == RIGHTS
    for token in (None, "", "wrong", "x" * 5000, tokens["all"][:-1], digest_of(tokens["all"])):
        assert site.get("/info?warehouse=w", token).status == 401
    unknown, hidden = (site.get(f"/info?warehouse={name}", tokens["few"]) for name in ("nope", "secret"))
    assert unknown.text.replace("nope", "secret") == hidden.text  # names are not told
    assert list(site.get("/warehouses", tokens["few"]).json["warehouses"]) == ["w"]
    assert site.get("/info", tokens["all"]).status == 400  # of which of two?
    # Variants that the table catches: rights that are not looked at, and SQL that counts as a column.
    with monkeypatch.context() as patch:
        patch.setattr(Grant, "may", lambda *_: True)
        assert allowed(site, tokens) != RIGHTS
    monkeypatch.setattr(questions, "needs", lambda *_: {"aggregates"})
    assert allowed(site, tokens) != RIGHTS


def test_the_file_of_tokens_is_read_again(granted: tuple[Site, Path, dict[str, str]]) -> None:
    site, file, tokens = granted
    assert site.get("/info?warehouse=w", tokens["more"]).status == 200
    kept = [line for line in file.read_text().splitlines(keepends=True) if not line.startswith("more")]
    file.write_text("".join(kept))
    assert site.get("/info?warehouse=w", tokens["more"]).status == 401
    assert site.get("/info?warehouse=w", tokens["few"]).status == 200
    for broken in ("few sha256:abc w=aggregates\n", f"few sha256:{'a' * 64} w=everything\n", "\udcff"):
        file.write_bytes("".join([*kept, broken]).encode("utf-8", "surrogateescape"))
        assert site.get("/info?warehouse=w", tokens["few"]).status == 503  # nobody, until it is mended
    file.unlink()
    assert site.get("/info?warehouse=w", tokens["few"]).status == 503
    file.write_text("".join(kept))
    assert site.get("/info?warehouse=w", tokens["few"]).status == 200


def test_the_command_makes_tokens_that_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    assert (
        main(["token", "ann", "--grant", "w=aggregates", "--grant", "*=metrics", "--tokens", str(file)]) == 0
    )
    token = capsys.readouterr().out.strip()
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    grant = Tokens(file=file).find(token)
    assert grant is not None
    assert (grant.may("aggregates", "w"), grant.may("metrics", "w"), grant.may("metrics", "x")) == (
        True,
        False,
        True,
    )
    for wrong in (["w"], ["w=all"], ["w="], ["w=sql", "w=rows"], ["a b=sql"]):
        line = [word for one in wrong for word in ("--grant", one)]
        assert main(["token", "ann", *line, "--tokens", str(file)]) == 2
    assert main(["token", "two words", "--grant", "w=sql", "--tokens", str(file)]) == 2


def test_the_body_of_an_answer_does_not_wait_for_its_head() -> None:
    with listening("127.0.0.1", 0) as door, socket.create_connection(door.getsockname()):
        accepted, _ = door.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_hosts_and_origins_are_checked(wh: W) -> None:
    with serving({"w": wh}, origins=("https://desk.example",)) as site:
        own = f"127.0.0.1:{site.port}"
        for host in ("evil.example", f"evil.example:{site.port}", "", "127.0.0.1.evil.example", "127.0.0.2"):
            assert site.get("/info", Host=host).status == 403, host
        for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "localhost."):
            assert site.get("/info", Host=host).status == 200, host
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"):
            assert site.get("/info", Host=own, Origin=origin).status == 403, origin
        assert site.get("/info", Host=own, Origin=f"http://{own}").status == 200
        asked = site.get("/info", Origin="https://desk.example")
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, "https://desk.example")
    with serving({"w": wh}) as site:
        assert site.get("/info", Origin="https://desk.example").status == 403
        assert "access-control-allow-origin" not in site.get("/info").headers
        assert not any("set-cookie" in reply.headers for reply in site.replies)


def test_a_full_queue_is_told_and_clients_that_leave_make_room(
    wh: W, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end, ended = threading.Semaphore(0), threading.Event(), threading.Event()

    def slow(asked: W, *_: Any) -> str:
        began.release()
        limit = asked._session.time_limit
        assert limit is not None
        assert limit.cancelled is not None
        while not limit.cancelled() and not may_end.wait(0.01):
            pass
        if limit.cancelled():
            ended.set()
        return "{}"

    monkeypatch.setattr(questions, "answer", slow)
    with serving({"w": wh}, queue=QuestionQueue(parallel=1, waiting=1, seconds=600)) as site:
        gone = _begin(site)
        began.acquire()
        waits = threading.Thread(target=site.get, args=("/distinct",))
        waits.start()
        while site.queue.taken < 2:
            threading.Event().wait(0.01)
        full = site.get("/distinct")
        assert (full.status, full.headers["retry-after"], full.json["error"]) == (429, "1", "Busy")
        gone.close()  # its question ends, and the one that waited begins
        assert ended.wait(60)
        began.acquire()
        may_end.set()
        waits.join()
        assert site.replies[-1].status == 200
        while site.queue.taken:
            threading.Event().wait(0.01)


def _begin(site: Site) -> Any:
    one = socket.create_connection(("127.0.0.1", site.port))
    one.sendall(
        f"GET /distinct HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    return one


def test_a_question_ends_with_its_time(wh: W) -> None:
    with serving({"w": wh}, queue=QuestionQueue(parallel=1, waiting=1, seconds=0)) as site:
        late = site.get("/quantile?phi=0.5")
        assert (late.status, late.json["error"]) == (422, "TimeLimitReached")


@pytest.mark.parametrize(
    "ask",
    [
        lambda wh: wh.quantile(0.5, "ms", every="1h"),
        lambda wh: wh.quantile([i / 999 for i in range(1000)], "big", by="site", every="1h"),
        lambda wh: wh.quantile(0.5, where="ms > 3"),
        lambda wh: wh.self_join(),
        lambda wh: wh.inner_product(wh, last="30h"),
        lambda wh: wh.frequency("ATL", every="1h"),
        lambda wh: wh.top(3, where={"site": "eu"}),
    ],
)
def test_every_kind_of_question_looks_whether_it_has_to_stop(
    wh: W, ask: Callable[[W], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def cancelled() -> bool:
        looks.append(1)
        return len(looks) > 1  # not where the question begins

    monkeypatch.setattr(connections, "_REPORT_SECONDS", 0.0)
    fresh = query.open(wh.store.uri)
    with pytest.raises(TimeLimitReached, match="nobody waits"):
        ask(fresh.with_time_limit(None, cancelled))
    with pytest.raises(TimeLimitReached, match="longer than 0 seconds"):
        ask(fresh.with_time_limit("0s"))
    assert ask(fresh) is not None  # the limit is that of the other reader


def test_the_description_has_every_parameter_as_it_is_taken(site: Site) -> None:
    document = site.get("/openapi.json").json
    assert document == json.loads(openapi())
    own = {"warehouse", "form", "explain"}
    for name, signature in SIGNATURES.items():
        listed = [
            one["$ref"].rpartition("/")[2] for one in document["paths"][f"/{name}"]["get"]["parameters"]
        ]
        shown = {document["components"]["parameters"][one]["name"] for one in listed}
        body = document["paths"][f"/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert shown == set(body["properties"]) == {*signature.parameters, *own}
        assert tuple(parameters_of(name)) == signature.parameters
    assert all(one["description"] for one in document["components"]["schemas"].values())
    unknown = site.get("/quantile?phi=0.5&nonsense=1")
    assert (unknown.status, "nonsense" in unknown.json["message"]) == (400, True)


def test_it_speaks_tls_and_nothing_else(wh: W, tmp_path: Path) -> None:
    files = certificate_of_here(tmp_path)
    with serving({"w": wh}, certificate=files) as site:
        assert site.raw(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n")[:4] != b"HTTP"
        assert site.get("/info").json["live_rows"] == 40
        site.secure = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            site.get("/info")


@pytest.mark.slow
def test_a_warehouse_in_a_store_answers_and_leaves_nothing_of_its_secrets(site: Site) -> None:
    with running() as store:
        far = query.open(fill(store.address("w"), store.options), store.options, max_staleness="1s")
        with serving({"w": far}) as served:
            for path in (
                "/quantile?phi=0.5&phi=0.99&measure=price&by=site",
                "/top?k=3",
                "/info",
                "/distinct",
            ):
                here, there = site.get(path), served.get(path)
                assert (there.status, _counted(there.json)) == (200, _counted(here.json))
            assert served.get("/metrics").text.count("tidemark_up{") == 1
            store.set(Fault("403"))  # from now on the store refuses
            failed = served.get("/quantile?phi=0.5&where=ms%20%3E%204")
            assert (failed.status, failed.json["error"]) == (503, "StoreUnavailable")
            said = " ".join(reply.text for reply in served.replies)
            for secret in (store.secret, store.user, store.url):
                assert secret not in said


def _counted(document: Any) -> Any:
    """What does not depend on the place: of each answer the fields of its own."""
    return [
        {name: one[name] for name in ("value", "count", "phi", "group") if name in one}
        for one in document.get("answers", [document])
    ]


@pytest.mark.slow
def test_a_real_server_says_where_it_is_and_stops_when_told(wh: W) -> None:
    command = [sys.executable, "-m", "tidemark.jobs.cli.main", "serve", "-w", f"w={wh.store.uri}", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as one:
        assert one.stdout is not None
        said = json.loads(one.stdout.readline())
        site = Site(int(said["url"].rstrip("/").rpartition(":")[2]), QuestionQueue(1, 0, 1))
        assert (said["warehouses"], site.get("/info", said["token"]).status) == (["w"], 200)
        assert site.get("/info", "another").status == 401
        one.send_signal(signal.SIGTERM)
        out, err = one.communicate(timeout=120)
    assert (one.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", ""], "--behind-proxy"),
        (["--certificate", "x"], "belong together"),
        (["--certificate", "x", "--private-key", "y"], "cannot be used"),
        (["--tokens", "nowhere"], "nowhere"),
        (["--port", "99999999"], "65,535"),
        (["--parallel", "0"], "at least 1"),
        (["--timeout", "soon"], "duration"),
        (["-w", "x=nowhere"], "nowhere"),
        (["-w", "1x=nowhere"], "identifier"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(
    words: list[str], told: str, wh: W, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "-w", f"w={wh.store.uri}", *words]) == 2
    assert told in capsys.readouterr().err


def test_flights_are_not_answered_from_files_outside(site: Site) -> None:
    assert len(NAMES[4]) == 2**20
    found = site.post("/frequency", {"value": NAMES[4]})
    assert (found.status, found.json["answers"][0]["count"]) == (200, 16)
    with pytest.raises(InputError):
        questions.of_query("top", [("k", "1"), ("k", "2")])


@pytest.mark.slow
def test_a_server_answers_by_the_new_names_of_columns(tmp_path: Path) -> None:
    uri = small_world(tmp_path)
    with serving({"w": query.open(uri)}) as site:
        before = site.get("/quantile?phi=1&measure=price&by=site").json["answers"]
        warehouse.alter(None, uri, rename={"price": "cents", "site": "region"})
        refused = site.get("/quantile?phi=1&measure=price")
        assert (refused.status, "'price' was renamed: it is 'cents' now" in refused.text) == (400, True)
        after = site.get("/quantile?phi=1&measure=cents&by=region").json["answers"]
        assert [one["value"] for one in after] == [one["value"] for one in before]
        assert [one["group"] for one in after] == [{"region": one["group"]["site"]} for one in before]
