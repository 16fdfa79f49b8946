"""Questions about keys on the command line: as Python answers, keys typed in every type, and refusals."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.said import tidemark
from tests.query.answers import several
from tests.warehouse.disk import files_of
from tests.warehouse.keyworld import TYPES, KeyWorld
from tests.warehouse.test_keys import VALUES
from tidemark import query
from tidemark.jobs.cli.options import asking_keys
from tidemark.query.answers.rendering import text_of
from tidemark.query.reading.modes import KEY_MODES
from tidemark.warehouse.columns.json_values import json_text, json_value

ASKED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "all rows": ([], {}),
    "exact, 90 minutes": (["--mode", "exact", "--last", "90m"], {"mode": "exact", "last": "90m"}),
    "between": (
        ["--between", "2001-01-15 06:00", "2001-03-05"],
        {"between": ("2001-01-15 06:00", "2001-03-05")},
    ),
    "an open side": (["--between", "-", "2001-02-10"], {"between": (None, "2001-02-10")}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_json_and_text_are_what_python_answers(
    asked: str, flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, how = ASKED[asked]
    wh = query.open(flights)
    expected: dict[str, query.Answers[Any]] = {
        "freq ATL ORD nowhere": several(wh.frequency(["ATL", "ORD", "nowhere"], **how)),
        "top": wh.top(10, **how),
        "top 3": wh.top(3, **how),
        "hitters 0.03": wh.heavy_hitters(0.03, **how),
        "hitters 1": wh.heavy_hitters(1, **how),
        "persistent 0.9": wh.persistent(0.9, **how),
        "persistent 0.5 --slot 7d --most 300": wh.persistent(0.5, slot="7d", most=300, **how),
        "persistence ATL nowhere": wh.persistence(["ATL", "nowhere"], **how),
    }
    for line, answers in expected.items():
        said = tidemark(capsys, *line.split(), "-w", flights, *options)
        assert (said.code, said.err, said.out) == (0, "", f"{answers}\n")
        said = tidemark(capsys, *line.split(), "-w", flights, "--json", *options)
        assert (said.code, said.out.count("\n")) == (0, 1)
        found = said.json
        assert found.pop("answers") == [
            {name: json_value(getattr(one, name)) for name in one.COLUMNS} for one in answers
        ]
        assert found.pop("types", {}) == answers.json_types().get("types", {})
        assert {"key", "window", "N", "n", "m", "nulls", "eps", "confidence", "mode", "as_of"} == set(found)
        assert found == json_value(answers.facts)
    assert answers.facts["N"] > 0  # also where no key is found


@pytest.mark.parametrize("asked", ASKED)
def test_prefixes_are_what_python_answers(
    asked: str, flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, how = ASKED[asked]
    line = ["hierarchy", "0.1", "--separator", "T", "-w", flights, *options]
    assert tidemark(capsys, *line).out == f"{query.open(flights).hierarchy(0.1, 'T', **how)}\n"
    said = tidemark(capsys, "hierarchy", "0.1", "-w", flights)
    assert (said.code, "separator must be text" in said.err) == (2, True)


@pytest.mark.parametrize("asked", ASKED)
def test_numbers_of_distinct_keys_are_what_python_answers(
    asked: str, flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, how = ASKED[asked]
    wh = query.open(flights)
    expected: dict[str, Any] = {"distinct": wh.distinct(**how)}
    if how.get("last") or (how.get("between") and how["between"][0]):
        expected["new-keys"] = wh.new_keys(**how)
    for line, answer in expected.items():
        said = tidemark(capsys, line, "-w", flights, *options)
        assert (said.code, said.err, said.out) == (0, "", f"{answer}\n")
        said = tidemark(capsys, line, "-w", flights, "--json", *options)
        assert (said.code, said.json) == (0, json_value({**answer.document, **answer.json_types()}))
        said = tidemark(capsys, line, "-w", flights, "--key", "nothing", *options)
        assert said.code == 2
        assert "nothing" in said.err


def test_an_overlap_is_what_python_answers(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, wh = ["--between", "2001-02-01", "2001-02-08", "--and", "2001-02-08", "-"], query.open(flights)
    modes: list[Any] = list(KEY_MODES)
    for mode in modes:
        answer = wh.overlap(("2001-02-01", "2001-02-08"), ("2001-02-08", None), mode=mode)
        said = tidemark(capsys, "overlap", "-w", flights, "--mode", mode, *edges)
        assert (said.code, said.err, said.out) == (0, "", f"{answer}\n")
        said = tidemark(capsys, "overlap", "-w", flights, "--mode", mode, "--json", *edges)
        assert (said.code, said.json) == (0, json.loads(answer.to_json()))
    said = tidemark(capsys, "overlap", "-w", flights, *edges[:3])
    assert (said.code, "--and" in said.err) == (2, True)


def test_modes_are_those_of_the_reader() -> None:
    assert asking_keys.KEY_MODES == KEY_MODES


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyWorld]:
    """A warehouse of each type of key: the first value is there once, the second twice ..."""
    worlds = {}
    for kind in TYPES:
        values = [value for value in VALUES[kind] if not isinstance(value, str) or len(value) < 1000]
        world = worlds[kind] = KeyWorld(tmp_path_factory.mktemp("typed") / "w", kind)
        world.load([(value, 0) for i, value in enumerate(values) for _ in range(i + 1)] + [(None, 0)])
    return worlds


@pytest.mark.parametrize("kind", TYPES)
def test_a_key_that_was_told_is_found_when_it_is_typed(
    kind: str, typed: dict[str, KeyWorld], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every type, NaN and the infinities too, whatever their letters."""
    world = typed[kind]
    told = tidemark(capsys, "top", 100, "-w", world.uri, "--json", "--mode", "exact").json
    assert told["nulls"] == 1
    counts = {one["value"]: one["count"] for one in told["answers"]}
    assert sorted(counts.values()) == sorted(world.truth().values())
    said = tidemark(capsys, "freq", "-w", world.uri, "--json", "--", *counts)
    assert {one["value"]: one["count"] for one in said.json["answers"]} == counts


TYPED: list[tuple[str, str, Any]] = [
    ("long", "9007199254740993", 2**53 + 1),
    ("long", "1e3", 1000),
    ("integer", " 7 ", 7),
    ("integer", "1.5", Decimal("1.5")),
    ("decimal(18,4)", "1.50", Decimal("1.50")),
    ("double", "0.1", 0.1),
    ("double", "-inf", float("-inf")),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1e300", 1e300),
    ("boolean", "TRUE", True),
    ("boolean", "n", False),
    ("binary", "00ff", b"\x00\xff"),
    ("binary", "0xFFFE", b"\xff\xfe"),
    ("binary", "", b""),
    ("date", "2001-03-19", date(2001, 3, 19)),
    ("timestamp", "2001-03-19T05:00+02:00", datetime(2001, 3, 19, 3, tzinfo=UTC)),
    ("string", " 7 ", " 7 "),
    ("string", "", ""),
]


@pytest.mark.parametrize(("kind", "text", "value"), TYPED)
def test_text_is_cast_to_the_columns_type(
    kind: str, text: str, value: Any, typed: dict[str, KeyWorld], capsys: pytest.CaptureFixture[str]
) -> None:
    said = tidemark(capsys, "freq", "-w", typed[kind].uri, "--json", "--", text)
    (one,) = said.json["answers"]
    answer = query.open(typed[kind].uri).frequency(value)
    assert (one["value"], one["count"]) == (json_value(value), answer.count)


REFUSED = {
    ("long", "ATL"): "not a number: 'ATL'. 'k' is of type long",
    ("double", "1,5"): "not a number",
    ("decimal(18,4)", "12:00"): "not a number",
    ("boolean", "maybe"): "not a boolean: 'maybe'. 'k' is of type boolean: give true or false",
    ("binary", "xyz"): "not hexadecimal: 'xyz'",
    ("binary", "0"): "two digits per byte",
    ("date", "yesterday"): "not a time: 'yesterday'",
    ("timestamp", "noon"): "not a time: 'noon'",
}


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_text_that_is_no_such_key_is_refused(
    kind: str, text: str, typed: dict[str, KeyWorld], capsys: pytest.CaptureFixture[str]
) -> None:
    said = tidemark(capsys, "freq", text, "-w", typed[kind].uri)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ")
    assert REFUSED[kind, text] in said.err


UNASKABLE = {
    "no key": (["freq", "1", "-w", "{keyless}"], "created without a key"),
    "no key, top": (["top", "-w", "{keyless}"], "created without a key"),
    "a picture without a key": (
        ["plot", "top", "-w", "{keyless}", "-o", "{f}/a.png"],
        "created without a key",
    ),
    "nothing to draw": (
        ["plot", "top", "-w", "{w}", "-o", "{f}/a.png", "--between", "-", "1960-01-01"],
        "nothing to draw",
    ),
    "too many to draw": (["plot", "top", "201", "-w", "{w}", "-o", "{f}/a.png"], "200 keys at most"),
    "no keys asked for": (["top", "0", "-w", "{w}"], "at least 1, got 0"),
    "a number of keys that is none": (["top", "many", "-w", "{w}"], "invalid int value"),
    "a share of slots above all": (["persistent", "2", "-w", "{w}"], "alpha must lie in (0, 1], got 2"),
    "slots that cut ticks": (
        ["persistence", "1", "-w", "{w}", "--slot", "90m"],
        "slot='90m' is not a multiple of the tick",
    ),
    "new keys of all time": (["new-keys", "-w", "{w}"], "give last, or between with a start"),
    "a share above all": (["hitters", "5", "-w", "{w}"], "phi must lie in (0, 1], got 5"),
    "a share of none": (["hitters", "some", "-w", "{w}"], "phi must lie in (0, 1], got 'some'"),
    "a mode of quantiles": (["freq", "1", "-w", "{w}", "--mode", "quick"], "choose from"),
    "a measure": (["freq", "1", "-w", "{w}", "--measure", "x"], "unrecognized arguments"),
    "no window": (["top", "-w", "{w}", "--last", "soon"], "not a duration: 'soon'"),
    "an empty window": (
        ["top", "-w", "{w}", "--between", "2001-02-01 01:00", "2001-02-01 01:00"],
        "the window is empty by itself",
    ),
    "keys to watch": (["watch", "-w", "{w}", "--top", "-1"], "--top must be a number of keys"),
}


@pytest.mark.parametrize("case", UNASKABLE)
def test_what_cannot_be_asked_is_refused_and_changes_nothing(
    case: str, typed: dict[str, KeyWorld], kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = typed["long"].uri
    argv, words = UNASKABLE[case]
    before = files_of(uri)
    said = tidemark(capsys, *(one.format(w=uri, keyless=kinds, f=tmp_path) for one in argv))
    assert (said.code, said.out, words in said.err) == (2, "", True), said
    assert (files_of(uri), files_of(tmp_path)) == (before, {})


def test_watching_shows_the_top_keys_beside_the_quantiles(
    flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh, watch = query.open(flights), ["watch", 0.9, "-w", flights, "--times", 1, "--last", "7d"]
    quantiles, keys = wh.quantile([0.9], last="7d"), wh.top(5, last="7d")
    assert tidemark(capsys, *watch).out == f"{quantiles}\n\n{keys}\n\n"
    found = tidemark(capsys, *watch, "--json").json
    assert found.pop("top") == json.loads(keys.to_json())
    assert found == json.loads(quantiles.to_json())
    found = tidemark(capsys, *watch, "--json", "--top", 2, "--mode", "exact").json
    assert found["top"] == json.loads(wh.top(2, last="7d", mode="exact").to_json())
    assert "top" not in tidemark(capsys, *watch, "--json", "--top", 0).json


def test_keys_of_any_letters_leave_the_table_whole() -> None:
    """Line ends, control characters and broken UTF-8 are shown as escapes; JSON keeps them."""
    broken = b"a\xff".decode("utf-8", "surrogateescape")
    assert text_of(f"é 漢\n\x1b[1m{broken}") == "é 漢\\n\\x1b[1ma\\udcff"
    assert text_of(b"\x00\xff") == "00ff"
    document = json_text({"value": [broken, b"\x00\xff", "漢"]})
    assert document.encode() == '{"value": ["a\\udcff", "00ff", "漢"]}'.encode()
    assert json.loads(document)["value"][0].encode("utf-8", "surrogateescape") == b"a\xff"


def test_what_distinct_is_to_read_is_told_beforehand(
    flights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = query.open(flights).scan_plan(last="14d").document["read"]
    line = ["distinct", "-w", flights, "--last", "14d", "--plan", "--mode", "exact"]
    said = tidemark(capsys, *line, "--json")
    assert (said.code, said.json["plan"]["read"]) == (0, expected)
    said = tidemark(capsys, *line)
    assert (said.code, said.out.splitlines()[0]) == (0, "way: scan")
    assert f"{expected['bytes']:,} bytes" in said.out
    for more, remedy in ((["--mode", "approximate"], "Give mode exact"), (["--by", "dest"], "leave out by")):
        said = tidemark(capsys, *line, *more)
        assert (said.code, said.out, remedy in said.err) == (2, "", True)
