"""Questions by group, by window and by one of several keys on the command line: as Python answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.jobs.said import tidemark
from tests.query.sqlworld import FLIGHTS
from tidemark import query, stream, warehouse
from tidemark.jobs.ask.quantiles import parse_points
from tidemark.query.groups.where_text import parse_where
from tidemark.warehouse.columns.json_values import json_value


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real flights, the last ones live; the command creates the warehouse."""
    uri = tmp_path_factory.mktemp("grouped") / "w"
    rows = pq.read_table(FLIGHTS)
    warehouse.create(
        None,
        uri,
        ["delay"],
        time="time",
        keys=[["origin", "destination"]],
        groups=["origin", "distance"],
        eps=0.01,
        schema=rows.schema,
    )
    warehouse.load(None, uri, rows.slice(0, 15_000), "first")
    stream.append(None, uri, rows.slice(15_000), source="s", batch=0)
    return uri


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "a value": ("--where origin=ATL", {"where": {"origin": "ATL"}}),
    "a number": ("--where distance=590", {"where": {"distance": 590}}),
    "values": ("--where origin=ATL --where origin=ORD", {"where": {"origin": ["ATL", "ORD"]}}),
    "the largest": ("--by origin --top 3", {"by": ["origin"], "top": 3}),
    "all": ("--by origin --limit 400 --last 7d", {"by": ["origin"], "limit": 400, "last": "7d"}),
    "weeks": ("--every 7d", {"every": "7d"}),
    "both": ("--by origin --top 2 --every 30d", {"by": ["origin"], "top": 2, "every": "30d"}),
    "expressions": (
        "--by distance//500 --limit 20 --measure delay+distance",
        {"by": ["distance//500"], "limit": 20, "measure": "delay+distance"},
    ),
    "a scan": ("--by destination --top 2", {"by": ["destination"], "top": 2}),
}


@pytest.mark.parametrize("asked", ASKED)
def test_groups_and_windows_are_as_python_answers(
    asked: str, grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, how = ASKED[asked]
    expected: dict[str, Any] = {  # each by a reader that has read nothing yet, as the command's
        "quantile 0.5 0.99": query.open(grouped).quantile([0.5, 0.99], **how),
        "rank 60": query.open(grouped).rank([60], **how),
        "histogram --bins 3": query.open(grouped).histogram(3, **how),
    }
    for line, answers in expected.items():
        said = tidemark(capsys, *line.split(), "-w", grouped, *options.split())
        assert (said.code, said.err, said.out) == (0, "", f"{answers}\n")
        said = tidemark(capsys, *line.split(), "-w", grouped, "--json", *options.split())
        assert said.json == json_value({**answers._document(), **answers.json_types()})


def test_a_condition_is_answered_by_a_scan(grouped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    condition = "destination LIKE 'S%' AND distance > 500"
    said = tidemark(capsys, "quantile", "0.5", "-w", grouped, "--where", condition)
    assert said.out == f"{query.open(grouped).quantile([0.5], where=condition)}\n"
    assert "a scan of 20,000 rows" in said.out


def test_keys_of_several_columns_are_written_with_commas(
    grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh = query.open(grouped)
    routes = [("ATL", "ORD"), ("a,b", "c")]
    said = tidemark(
        capsys, "freq", "ATL,ORD", '"a,b",c', "--key", "origin,destination", "--mode", "exact", "-w", grouped
    )
    assert said.out == f"{wh.frequency(routes, key=['origin', 'destination'], mode='exact')}\n"
    said = tidemark(capsys, "top", "3", "--key", "origin", "--every", "30d", "-w", grouped)
    assert said.out == f"{wh.top(3, key='origin', every='30d')}\n"
    said = tidemark(capsys, "hitters", "0.05", "--key", "distance", "-w", grouped)
    assert said.out == f"{wh.heavy_hitters(0.05, key='distance')}\n"


def test_keys_of_selected_rows_are_counted_as_in_python(
    grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wh, where = query.open(grouped), "delay > 60"
    said = tidemark(
        capsys, "top", "2", "--key", "origin", "--where", where, "--by", "hour(time)", "-w", grouped
    )
    assert said.out == f"{wh.top(2, key='origin', where=where, by='hour(time)')}\n"
    said = tidemark(capsys, "top", "1", "--key", "origin", "--every", "30d", "--width", "60d", "-w", grouped)
    assert said.out == f"{wh.top(1, key='origin', every='30d', width='60d')}\n"
    said = tidemark(capsys, "distinct", "--by", "origin", "--order=-value", "--top", "3", "-w", grouped)
    assert said.out == f"{wh.distinct(by='origin', order='-value', top=3)}\n"
    said = tidemark(capsys, "freq", "ATL", "--key", "origin", "--where", "distance=590", "-w", grouped)
    assert said.out == f"{wh.frequency(['ATL'], key='origin', where={'distance': 590})}\n"
    assert "a scan of 20,000 rows" in said.out


def test_a_plot_shows_groups_over_time(
    grouped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--by origin --top 3 --phi 0.9 --every 7d"
    picture = tmp_path / "p.svg"
    said = tidemark(capsys, "plot", "quantiles", "-w", grouped, "-o", picture, *options.split())
    assert (said.code, said.err) == (0, "")
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("quantile 0.5 --where distance=far", "not a number: 'far'"),
        ("quantile 0.5 --where nothing=1", "nothing"),
        ("quantile 0.5 --where origin=ATL --where distance>5", "beside other conditions"),
        ("quantile 0.5 --top 3", "without by"),
        ("quantile 0.5 --by nothing", "no column 'nothing'"),
        ("quantile 0.5 --every 90m", "not a multiple of the tick"),
        ("freq ATL --key origin,destination", "Expected 2 values"),
        ("freq ATL --key nothing", "nothing"),
    ],
)
def test_what_cannot_be_is_refused(
    line: str, words: str, grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = tidemark(capsys, *line.split(), "-w", grouped)
    assert said.code == 2
    assert words in said.err


def test_spaces_around_the_sign_are_no_part_of_a_value(grouped: Path) -> None:
    options = query.open(grouped).options
    meant = {"origin=ATL": "ATL", "origin = ATL": "ATL", "origin= ATL": " ATL", "origin =  ATL": " ATL"}
    for text, value in meant.items():
        assert parse_where(options, [text]) == {"origin": [value]}, text


@pytest.mark.parametrize(
    ("command", "option"), [("quantile 0.5", "--by"), ("top 3", "--by"), ("top 3", "--key")]
)
def test_columns_that_are_given_twice_do_not_replace_the_first_ones(
    command: str, option: str, grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (*command.split(), "-w", grouped, option, "origin", option)
    said = tidemark(capsys, *line, "distance")
    assert (said.code, said.out) == (2, "")
    assert f"{option} was given twice, with origin and with distance" in said.err
    assert f"{option} origin,distance." in said.err
    assert tidemark(capsys, *line, "origin").code == 0


@pytest.mark.parametrize("number", ["-1e1", "-inf", "-Infinity", "-.5E+1", "-60"])
def test_numbers_that_begin_with_a_dash_are_values(
    number: str, grouped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that Python's parser of options takes for options."""
    wh = query.open(grouped)
    points = parse_points(wh, None, [number, "5"])
    assert points == [float(number), 5]
    said = tidemark(capsys, "rank", number, "5", "-w", grouped)
    assert said.out == f"{wh.rank(points)}\n"
    said = tidemark(capsys, "histogram", "-w", grouped, "--edges", number, "5")
    assert said.out == f"{wh.histogram(points)}\n"


def test_keys_that_begin_with_a_dash_are_values(grouped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wh, key = query.open(grouped), ["origin", "destination"]
    said = tidemark(capsys, "freq", "-5,ATL", "--key", "origin,destination", "-w", grouped)
    assert said.out == f"{wh.frequency([('-5', 'ATL')], key=key)}\n"
    said = tidemark(capsys, "freq", "--key", "origin", "-w", grouped, "--", "-ATL", "ATL")
    assert said.out == f"{wh.frequency(['-ATL', 'ATL'], key='origin')}\n"
