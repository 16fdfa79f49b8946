"""`tidemark alert`: real commands and a real server that get the changes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.jobs.ask import alert as alert_command
from tidemark.jobs.ask.delivery import Command, NotDelivered, Post
from tidemark.jobs.cli.main import main
from tidemark.query.alerts.alert import Alert, Look, Seen
from tidemark.query.alerts.levels import Condition, conditions_of
from tidemark.query.alerts.reading import Reading, Verdict
from tidemark.warehouse.errors import InputError, TidemarkError

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("ms", pa.float64()), ("o", pa.string())])
WHEN = "quantile(1, last='15m') > 100"
NOTICE = {
    "id": "7",
    "when": WHEN,
    "group": {"a b": "x"},
    "state": "certain",
    "previous": "possible",
    "value": 500.0,
    "low": 500.0,
    "high": 500.0,
    "since": "2024-03-01T12:00:00+00:00",
    "window": None,
    "reason": "500",
}


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """Rows of two minutes ago, one of them slow: a window that ends at the clock has their whole tick."""
    uri = tmp_path / "service"
    warehouse.create(None, uri, ["ms"], schema=SCHEMA, key="o", time="at", tick="1 minute")
    at = datetime.now(UTC) - timedelta(minutes=2)
    rows = [{"at": at, "ms": value, "o": "a"} for value in (1.0, 500.0)]
    warehouse.load(None, uri, pa.Table.from_pylist(rows, schema=SCHEMA), "first")
    return uri


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    return tmp_path / "states" / "tidemark"


@contextmanager
def receiving(*codes: int, location: str = "") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers with these codes, and 200 after them; its address, and what came."""
    came: list[dict[str, Any]] = []
    left = list(codes)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append({"path": self.path, "body": json.loads(body)})
            self.send_response(left.pop(0) if left else 200)
            if location:
                self.send_header("Location", location)
            self.end_headers()

        do_GET = do_POST  # noqa: N815  what follows a redirect would come here

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_states_are_printed_as_text_and_as_json(service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        "alert",
        "-w",
        str(service),
        "--when",
        WHEN,
        "--when",
        "frequency('a', last='1h') > 5",
        "--times",
        "1",
    ]
    assert main(line) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert f"certain: {WHEN}: 500 (exact) of 2 rows" in first
    assert "clear: frequency" in second
    assert main([*line, "--json"]) == 0
    documents = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert [(one["state"], one["value"]) for one in documents] == [("certain", 500), ("clear", 2)]


def test_a_command_gets_each_change_once_on_its_input(
    service: Path, tmp_path: Path, state_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a script.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write(sys.stdin.read())\n")
    took = tmp_path / "took; rm -rf x"
    run = f"{sys.executable} '{script}' '{took}'"
    for _ in range(2):
        line = ["alert", "-w", str(service), "--when", WHEN, "--theta", "0.1", "--times", "1", "--run", run]
        assert main(line) == 0
    (notice,) = map(json.loads, took.read_text().splitlines())
    assert (notice["state"], notice["previous"], notice["when"]) == ("certain", "clear", WHEN)
    assert len([*state_folder.glob("alert-*.json")]) == 1
    capsys.readouterr()


@pytest.mark.slow
def test_an_address_that_fails_is_tried_again(service: Path, tmp_path: Path) -> None:
    with receiving(503, 302, 200) as (address, came):
        (tmp_path / "hook").write_text(f"{address}/secret-path\n")
        line = ["alert", "-w", str(service), "--when", WHEN, "--times", "1"]
        assert main([*line, "--post-from", str(tmp_path / "hook"), "--state", str(tmp_path / "s")]) == 0
    assert [one["path"] for one in came] == ["/secret-path"] * 3
    assert len({one["body"]["id"] for one in came}) == 1
    assert json.loads((tmp_path / "s").read_text())["undelivered"] == []


@pytest.mark.slow
def test_what_nobody_takes_stays_and_no_message_shows_the_address(
    service: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidemark.jobs.ask.alert._TRIES", 0)
    with receiving(500, 500, 500) as (address, _):
        line = ["alert", "-w", str(service), "--when", WHEN, "--times", "1", "--state", str(tmp_path / "s")]
        assert main([*line, "--post", f"{address}/topsecret"]) == 1
        said = capsys.readouterr()
        assert "500" in said.err
        assert "topsecret" not in said.err + said.out + (tmp_path / "s").read_text()
        assert len(json.loads((tmp_path / "s").read_text())["undelivered"]) == 1


@pytest.mark.slow
def test_redirects_are_not_followed() -> None:
    with receiving() as (other, came), receiving(302, 307, location=f"{other}/x") as (address, _):
        post = Post.of(address, "json", 5)
        for code in (302, 307):
            with pytest.raises(NotDelivered, match=str(code)):
                post(NOTICE)
        post(NOTICE)
        assert came == []


def test_alertmanager_gets_the_end_of_one_severity_and_the_start_of_the_next() -> None:
    with receiving() as (address, came):
        Post.of(address, "alertmanager", 5)(NOTICE)
        Post.of(address, "alertmanager", 5)({**NOTICE, "previous": "certain", "state": "clear"})
    first, second = (one["body"] for one in came)
    ended, began = first
    assert (ended["labels"]["severity"], ended["endsAt"]) == ("possible", NOTICE["since"])
    assert (began["labels"]["severity"], began["startsAt"]) == ("certain", NOTICE["since"])
    assert began["endsAt"] > began["startsAt"]
    assert began["labels"]["group_a_b"] == "x"
    (over,) = second
    assert over["labels"] == began["labels"]
    assert over["endsAt"] == NOTICE["since"]


@pytest.mark.slow
def test_commands_that_fail_are_said(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    for body, words in (
        ("import sys; sys.exit(3)", "ended with 3"),
        ("import time; time.sleep(60)", "longer than"),
    ):
        script.write_text(body)
        with pytest.raises(NotDelivered, match=words):
            Command.of(f"{sys.executable} {script}", 1.0)(NOTICE)
    with pytest.raises(NotDelivered, match="cannot be started"):
        Command.of("/nowhere/at/all", 1.0)(NOTICE)
    for text in ("", "'"):
        with pytest.raises(InputError, match="--run"):
            Command.of(text, 1.0)


@pytest.mark.parametrize(
    "address", ["", "ftp://x/y", "file:///etc/passwd", "http:///path", "http://a b/", "http://x:99999/"]
)
def test_what_is_no_address_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(InputError) as refused:
        Post.of(address, "json", 1.0)
    assert not address or address not in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        ["--times", "0"],
        ["--every", "0"],
        ["--poll", "nan"],
        ["--when", "nonsense"],
        ["--when", "quantile(0.5, 'none') > 1"],
        ["--run", ""],
        ["--post", "x"],
        ["--post-from", "/nowhere"],
        ["--timeout", "soon"],
        ["--theta", "2"],
        ["--clear", "900"],
    ],
)
def test_bad_usage_ends_with_2(service: Path, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alert", "-w", str(service), "--when", WHEN, *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def meeting(tmp_path: Path) -> list[str]:
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    where = ["--exchange", str(tmp_path / "x"), "--topic", "slow", "--secret", str(tmp_path / "secret")]
    return [*where, "--poll", "0.05"]


@pytest.mark.slow
def test_a_site_and_the_command_that_tells_meet_in_a_folder(
    service: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process at the site. What it said is a state, a notice, and some bytes."""
    at_site = [sys.executable, "-m", "tidemark.jobs.cli.main", "alert", "--site", "0", "-w", str(service)]
    when = ["--when", "quantile(1, measure='ms', last='15m') > 100", "--times", "1"]
    with subprocess.Popen([*at_site, *meeting(tmp_path)], stderr=subprocess.PIPE, text=True) as site:
        try:
            with receiving() as (address, came):
                assert main(["alert", "--sites", "1", *when, *meeting(tmp_path), "--post", address]) == 0
        finally:
            site.terminate()
        assert site.wait(30) == 0, site.stderr and site.stderr.read()
    first, traffic = capsys.readouterr().out.splitlines()
    assert "certain: quantile(1, measure='ms', last='15m') > 100: 1 of 2 rows were above 100" in first
    assert "bytes; asking each site whenever it looked takes 2 of" in traffic
    (notice,) = (one["body"] for one in came)
    assert (notice["state"], notice["value"]) == ("certain", None)
    assert notice["traffic"]["messages_of_asking"] == 2


COMING, LATE = "count(by='o') >= 6", "count() >= 6"


class GroupsThatCome:
    """A source of two conditions.

    COMING has a new group at each look: sites have still to tell of it. It is certain at the next look, and
    then it is gone. Nothing is known of LATE before the fourth look.
    """

    identity, seen = "x", ()

    def __init__(self) -> None:
        self.looks = 0

    def begin(self) -> None:
        self.looks += 1
        if self.looks > 8:
            raise TidemarkError("nothing is said of 8 looks")

    def end(self) -> None:
        pass

    refresh = end

    def look(self, condition: Condition, *_: Any) -> Look | None:
        if condition.text == LATE:
            return Look({}, None) if self.looks >= 4 else None
        groups = {f"g{self.looks - 1}"} if self.looks > 1 else set()
        certain = Verdict.CERTAIN, Verdict.CERTAIN, Reading()
        return Look({one: Seen(*certain, {"o": one}, "6 rows") for one in groups}, None, {f"g{self.looks}"})

    def traffic(self) -> dict[str, int]:
        return {}


def told_of_groups_that_come(patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    source: Any = GroupsThatCome()
    alert = Alert(source, conditions_of([COMING, LATE], 0.0, None), None, None)
    patch.setattr(query, "alert", lambda *_, **__: alert)
    patch.setattr(alert_command, "_asked", lambda _: {})
    line = ["--exchange", "x", "--topic", "t", "--secret", "s", "--poll", "0.001", "--every", "0.001"]
    asked = ["--when", COMING, "--when", LATE, "--times", "2", "--json"]
    assert main(["alert", "--sites", "1", *asked, *line]) == 0
    said = map(json.loads, capsys.readouterr().out.splitlines())
    found = [f"{'late' if one['group'] is None else one['group']['o']} {one['state']}" for one in said]
    assert found == [
        *("g1 certain", "g2 certain", "g1 clear", "g2 clear"),  # while it waits for LATE
        *("g3 certain", "late clear"),  # the states
        *("g4 certain", "g3 clear"),
    ]


def test_all_is_told_though_groups_keep_coming(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told_of_groups_that_come(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("place", "name", "mistake"),
    [
        (Look, "is_unknown", property(lambda look: bool(look.waiting))),
        (alert_command, "_passed", lambda *_: []),
    ],
    ids=["it waits for all groups", "changes are dropped"],
)
def test_an_alert_that_does_not_tell_all_is_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Any, name: str, mistake: Any
) -> None:
    monkeypatch.setattr(place, name, mistake)
    with pytest.raises(AssertionError):
        told_of_groups_that_come(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--sites", "2"], "no condition was given"),
        (["--site", "0", "--when", WHEN], "--site has no --when"),
        (["--sites", "2", "--when", "count() > 1"], "--exchange is needed"),
        (["--when", WHEN, "--topic", "x"], "--topic is for --sites and --site"),
        (["--sites", "2", "--when", "distinct() > 1", "MEET"], "no sum over sites"),
        (["--sites", "2", "--when", "count() > 1", "MEET", "-w", "x"], "--sites has no -w"),
        (["--sites", "2", "--when", "count() > 1", "MEET", "--silent", "soon"], "not a duration"),
    ],
)
def test_options_that_do_not_belong_together_end_with_2(
    service: Path, tmp_path: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [one for word in given for one in (meeting(tmp_path) if word == "MEET" else [word])]
    asked = [] if "--sites" in line else ["-w", str(service)]
    assert main(["alert", *asked, *line]) == 2
    assert words in capsys.readouterr().err
