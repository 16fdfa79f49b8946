"""The command answers as Python does, refuses with a reason and the right exit code, and starts no Java."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.said import tidemark
from tests.query.answers import several
from tests.warehouse.disk import files_of
from tidemark import query
from tidemark.jobs.cli.options import asking, shared
from tidemark.query.reading.modes import MODES
from tidemark.warehouse.columns.json_values import json_value

ASKED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "all rows": ([], {}),
    "quick": (["--mode", "quick"], {"mode": "quick"}),
    "exact, last": (["--mode", "exact", "--last", "14d"], {"mode": "exact", "last": "14d"}),
    "between": (
        ["--measure", "distance", "--between", "2001-01-15", "2001-03-05"],
        {"measure": "distance", "between": ("2001-01-15", "2001-03-05")},
    ),
    "an open side": (["--between", "-", "2001-02-10"], {"between": (None, "2001-02-10")}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_json_has_what_python_answers(asked: str, flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, how = ASKED[asked]
    wh = query.open(flights)
    expected: dict[str, query.Answers[Any]] = {
        "quantile 0.01 0.5 0.999": wh.quantile([0.01, 0.5, 0.999], **how),
        "rank -5 60": several(wh.rank([-5, 60], **how)),
        "cdf -5 60.5": several(wh.cdf([-5, Decimal("60.5")], **how)),
        "largest 3": wh.largest(3, **how),
        "smallest": wh.smallest(**how),
    }
    for line, answers in expected.items():
        said = tidemark(capsys, *line.split(), "-w", flights, "--json", *options)
        assert (said.code, said.err, said.out.count("\n")) == (0, "", 1)
        found = said.json
        assert found.pop("answers") == [
            {name: json_value(getattr(one, name)) for name in one.COLUMNS} for one in answers
        ]
        first = answers[0]
        assert found.pop("types") == answers.json_types()["types"]
        window = found.pop("window")
        assert (window and tuple(map(_moment, window.values()))) == first.window
        assert found == {name: getattr(first, name) for name in found}
        assert {"N", "n", "m", "nans", "nulls", "eps", "mode", "measure", "as_of", "blocks_read"} == set(
            found
        )
    bins = tidemark(capsys, "histogram", "-w", flights, "--json", "--bins", 7, *options).json["bins"]
    histogram = wh.histogram(7, **how)
    assert [one["count"] for one in bins] == histogram.counts
    assert [one["left"] for one in bins] == histogram.edges[:-1]
    assert bins == [{name: getattr(one, name) for name in one.COLUMNS} for one in histogram]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def test_text_is_what_python_prints(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wh = query.open(flights)
    for line, answers in {
        "quantile 0.5 0.99": wh.quantile([0.5, 0.99]),
        "rank 60": wh.rank([60]),
        "cdf 60 --last 7d": wh.cdf([60], last="7d"),
        "histogram --edges -60 0 15 60": wh.histogram([-60, 0, 15, 60]),
        "summary --last 14d": wh.summary(last="14d"),
        "summary --by origin --top 3": wh.summary(by="origin", top=3),
        "info": query.open(flights).info(),  # its memory is empty, as that of a command
    }.items():
        assert tidemark(capsys, *line.split(), "-w", flights).out == f"{answers}\n"
    assert tidemark(capsys, "info", "-w", flights, "--json").json == json_value(query.open(flights).info())


READ_BACK: dict[str, Callable[[Any], Any]] = {
    "whole": int,
    "part": float,
    "wild": float,
    "price": Decimal,
    "day": date.fromisoformat,
    "at": datetime.fromisoformat,
}


@pytest.mark.parametrize("measure", READ_BACK)
def test_values_of_every_type_are_read_back_as_they_were(
    measure: str, kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NaN and infinities too, and a point that is typed reaches exactly the rows that Python's reaches."""
    phis = [0, 0.29, 0.9, 1]
    said = tidemark(capsys, "quantile", *phis, "-w", kinds, "--measure", measure, "--json", "--mode", "exact")
    answers = query.open(kinds).quantile(phis, measure, mode="exact")
    for one, answer in zip(said.json["answers"], answers, strict=True):
        assert repr(READ_BACK[measure](one["value"])) == repr(answer.value)  # by repr NaN equals NaN
    point = json_value(answers[1].value)
    said = tidemark(capsys, "rank", point, "-w", kinds, "--measure", measure, "--json", "--mode", "exact")
    assert said.json["answers"][0]["rank"] == 145  # the values are all different, and 0.29 * 500 is 145


def test_steps_are_windows_where_there_is_no_time(kinds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = tidemark(capsys, "quantile", 0.5, "-w", kinds, "--last", 1, "--json").json
    assert said["window"] == {"start": 1, "end": 2}
    said = tidemark(capsys, "quantile", 0.5, "-w", kinds, "--between", 0, 1, "--json").json
    assert (said["window"], said["n"], said["m"]) == ({"start": 0, "end": 1}, 250, 0)


LONG = "x" * 100_000

REFUSED = {
    "no warehouse": (
        ["info"],
        "no warehouse was named. Give -w PATH, or set the variable TIDEMARK_WAREHOUSE",
    ),
    "not a warehouse": (["info", "-w", "{folder}"], "is not a tidemark warehouse"),
    "an unknown measure": (["quantile", "0.5", "-w", "{w}", "--measure", "speed"], "Expected one of: delay"),
    "phi out of range": (
        ["quantile", "99", "-w", "{w}"],
        "expected 0 <= phi <= 1; divide a percentile by 100",
    ),
    "phi is no number": (["quantile", "half", "-w", "{w}"], "expected a number in [0, 1]"),
    "no phi": (["quantile", "-w", "{w}"], "the following arguments are required: PHI"),
    "an empty window": (
        ["cdf", "0", "-w", "{w}", "--between", "1999-01-01", "1999-02-01"],
        "empty window: no rows of 'delay' from 1999-01-01",
    ),
    "two windows": (
        ["rank", "0", "-w", "{w}", "--last", "1d", "--between", "2001-01-01", "2001-02-01"],
        "exclude each other",
    ),
    "no window": (["rank", "0", "-w", "{w}", "--last", "soon"], "not a duration: 'soon'"),
    "an edge that is no time": (["rank", "0", "-w", "{w}", "--between", "noon", "-"], "not a time: 'noon'"),
    "a point that is no number": (["cdf", "late", "-w", "{w}"], "not a number: 'late'"),
    "a point that has no rank": (["rank", "nan", "-w", "{w}"], "NaN has no rank"),
    "an unknown mode": (["rank", "0", "-w", "{w}", "--mode", "fast"], "choose from"),
    "no bins": (["histogram", "-w", "{w}", "--bins", "0"], "bins must be a whole number from 1"),
    "edges that descend": (["histogram", "-w", "{w}", "--edges", "9", "3"], "edges must ascend"),
    "bins and edges": (["histogram", "-w", "{w}", "--bins", "3", "--edges", "1", "2"], "not allowed with"),
    "a picture of no kind": (["plot", "cdf", "-w", "{w}", "-o", "a.gif"], "ends in .png, .svg, .pdf"),
    "a picture in no folder": (["plot", "cdf", "-w", "{w}", "-o", "{folder}/no/a.png"], "there is no folder"),
    "spans too many": (
        ["plot", "quantiles", "-w", "{w}", "-o", "{folder}/a.png", "--every", "often"],
        "not a duration: 'often'",
    ),
    "no pause": (["watch", "-w", "{w}", "--every", "0"], "--every must be a positive number of seconds"),
    "no looks": (["watch", "-w", "{w}", "--times", "0"], "--times must be at least 1"),
    "an unknown shell": (["completion", "csh"], "choose from"),
    "an unknown command": (["median", "-w", "{w}"], "choose from"),
    "no command": ([], "the following arguments are required: COMMAND"),
    "a plot of nothing": (["plot"], "the following arguments are required: COMMAND"),
    "an input without a name": (["load", "-w", "{w}", "--input", "x"], "--batch is needed with --input"),
    "an input that is not there": (
        ["load", "-w", "{w}", "--input", "{folder}/none.csv", "--batch", "b"],
        "no such input",
    ),
    "an input that cannot be read": (
        ["load", "-w", "{w}", "--input", "{bad}", "--batch", "b"],
        "cannot read the input",
    ),
    "other options": (["create", "-w", "{w}", "--measure", "delay"], "measures was given as ['delay']"),
    "no measure": (["create", "-w", "{folder}/new"], "needs at least one measure"),
    "a source without a path": (["stream", "-w", "{w}", "--source", "files"], "--path is needed"),
    "a function of no module": (
        [
            "sites",
            "map",
            "-w",
            "{w}",
            "--site",
            "0",
            "--map",
            ".",
            "--combine",
            ".",
            "--topic",
            "t",
            "--exchange",
            "{folder}",
            "--secret",
            "s",
        ],
        "the function . cannot be imported: TypeError",
    ),
    "a long path": (["plot", "cdf", "-w", "{w}", "-o", LONG], "xxx: expected a name"),
    "a long file": (["info", "-w", "{w}", "--storage-options", LONG], "xxx cannot be read"),
    "a long number": (["largest", LONG, "-w", "{w}"], "invalid int value"),
    "a long name": (["rank", "0", "-w", "{w}", "--measure", LONG], "no measure 'xxx"),
    "a grace that is none": (["maintain", "-w", "{w}", "--grace", "soon"], "not a duration"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_2_and_changes_nothing(
    case: str,
    flights: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(shared.VARIABLE, raising=False)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 no more")
    argv, words = REFUSED[case]
    before = files_of(flights), files_of(tmp_path)
    said = tidemark(capsys, *(one.format(w=flights, folder=tmp_path, bad=bad) for one in argv))
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err
    assert len(said.err) < 6_000
    assert (files_of(flights), files_of(tmp_path)) == before


@pytest.mark.parametrize("damaged", ["runs/delay", "marks/delay"])
def test_a_file_that_cannot_be_read_ends_with_1_and_is_named(
    damaged: str, flights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = tmp_path / "w"
    shutil.copytree(flights, uri)
    for file in (uri / damaged).rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    said = tidemark(capsys, "rank", -15, 60, "-w", uri)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: ")
    assert ".parquet" in said.err
    said = tidemark(capsys, "verify", "-w", uri, "--json")
    assert said.code == 1
    assert not said.json["ok"]


def test_the_warehouse_is_named_before_or_behind_the_command_or_by_the_variable(
    flights: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shared.VARIABLE, str(flights))
    by_variable = tidemark(capsys, "quantile", 0.5, "--json")
    monkeypatch.setenv(shared.VARIABLE, "/nowhere")
    assert tidemark(capsys, "-w", flights, "quantile", 0.5, "--json") == by_variable
    assert tidemark(capsys, "quantile", 0.5, "--warehouse", flights, "--json") == by_variable
    assert by_variable.code == 0
    assert tidemark(capsys, "quantile", 0.5).code == 2
    assert query.VARIABLE == shared.VARIABLE
    assert query.open(flights).quantile(0.5).value == by_variable.json["answers"][0]["value"]


def test_modes_are_those_of_the_reader() -> None:
    assert asking.MODES == MODES


@pytest.mark.usefixtures("spark")
def test_a_warehouse_lives_by_the_command_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Created, loaded, streamed into, loaded from the stream, maintained and verified; each in JSON."""
    uri, incoming = tmp_path / "w", tmp_path / "in"
    made = ["create", "-w", uri, "--measure", "x", "--eps", 0.1, "--json"]
    assert tidemark(capsys, *made, "--schema", "x double").json["outcome"] == "created"
    again = tidemark(capsys, *made).json
    assert (again["outcome"], again["columns"]) == ("known", {"x": "double"})
    (tmp_path / "a.csv").write_text("x\n1.5\n2.5\n")
    load = ["load", "-w", uri, "--input", tmp_path / "a.csv", "--batch", "a", "--json"]
    (one,) = tidemark(capsys, *load).json["batches"]
    assert (one["batch"], one["outcome"], one["rows"], one["runs_by_level"]) == (
        "a",
        "loaded",
        2,
        {"x": {"0": 1}},
    )
    assert tidemark(capsys, *load).json["batches"][0]["outcome"] == "known"
    incoming.mkdir()
    (incoming / "b.json").write_text('{"x": 3.5}\n{"x": "no"}\n')
    stream = ["stream", "-w", uri, "--source", "files", "--path", incoming, "--once", "--json"]
    batch = tidemark(capsys, *stream).json
    assert [batch[name] for name in ("source", "batch", "rows", "rejected", "live_rows")] == [
        "in",
        0,
        1,
        1,
        1,
    ]
    assert tidemark(capsys, "load", "-w", uri, "--from-stream", "--json").json["batches"][0]["rows"] == 1
    swept = tidemark(capsys, "maintain", "-w", uri, "--json").json
    told = {
        "swept",
        "compacted",
        "ledger_rows_expired",
        "marks_expired",
        "lengthened",
        "held",
        "links",
        "purged",
    }
    assert set(swept) == told
    report = tidemark(capsys, "verify", "-w", uri, "--json").json
    assert report["ok"]
    assert all(check["ok"] for check in report["checks"])
    assert tidemark(capsys, "quantile", 1, "-w", uri, "--json").json["answers"][0]["value"] == 3.5


def test_watch_shows_a_document_a_look_and_waits_for_rows(
    flights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = tidemark(capsys, "watch", 0.9, "-w", flights, "--times", 3, "--every", 0.01, "--json", "--top", 0)
    assert said.out == f"{query.open(flights).quantile([0.9]).to_json()}\n" * 3
    assert tidemark(capsys, "create", "-w", tmp_path / "new", "--measure", "x").code == 0
    said = tidemark(capsys, "watch", "-w", tmp_path / "new", "--times", 1)
    assert (said.code, said.err) == (0, "")
    assert "no rows yet" in said.out
    assert (
        "no rows yet"
        in tidemark(capsys, "watch", "-w", tmp_path / "new", "--times", 1, "--json").json["empty"]
    )
