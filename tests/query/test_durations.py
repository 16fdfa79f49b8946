"""A duration means one thing, and an answer about a wider window than was asked says so in its first line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.query.answers import several
from tidemark import query, warehouse
from tidemark.query import Warehouse
from tidemark.query.asking import measure_arguments
from tidemark.warehouse.columns.ticks import parse_duration, parse_grace, width_us
from tidemark.warehouse.errors import InputError

HOUR = timedelta(hours=1)
START = "2024-01-01 10:00"


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    uri = str(tmp_path_factory.mktemp("durations") / "w")
    times = pa.array(pd.date_range(START, periods=12, freq="10min", tz="UTC"), pa.timestamp("us", "UTC"))
    rows = pa.table({"x": [float(i) for i in range(12)], "k": [i % 2 for i in range(12)], "t": times})
    chosen: dict[str, Any] = {"key": "k", "groups": ["k"], "time": "t", "tick": "1h"}
    warehouse.create(None, uri, ["x"], schema=rows.schema, **chosen)
    warehouse.load(None, uri, rows, "a")
    return query.open(uri)


WIDENED: list[dict[str, Any]] = [
    {"last": "30m"},
    {"last": timedelta(minutes=90)},
    {"last": np.timedelta64(1, "m")},
    {"between": ("2024-01-01 10:30", None)},
    {"between": ("2024-01-01 10:00", "2024-01-01 11:00:00.0000001")},
    {"between": (None, pd.Timestamp("2024-01-01 10:59"))},
]
AS_ASKED: list[dict[str, Any]] = [
    {},
    {"last": "1h"},
    {"last": 2 * HOUR},
    {"last": "60 minutes"},
    {"between": (None, None)},
    {"between": (START, "2024-01-01 11:00")},
    {"between": (None, "2024-01-01 15:45+04:45")},
]


def first_lines(wh: Warehouse, asked: dict[str, Any]) -> list[str]:
    """The first line of each kind of answer about a window."""
    answers = [
        wh.quantile(0.5, **asked),
        wh.quantile([0.5, 0.9], **asked),
        wh.rank(3, **asked),
        several(wh.cdf([1, 3], **asked)),
        wh.histogram(3, **asked),
        wh.quantile(0.5, **asked, where={"k": 1}),
        wh.quantile(0.5, **asked, where="k = 1"),
        wh.quantile(0.5, **asked, by="k"),
        wh.quantile(0.5, **asked, every="1h"),
        wh.histogram(2, **asked, by="k"),
        wh.frequency(1, **asked, every="1h"),
        wh.distinct(**asked, every="1h"),
    ]
    documents = {"widened" in answer.to_json() for answer in answers}
    assert len(documents) == 1
    return [repr(answer).splitlines()[0] for answer in answers]


@pytest.mark.parametrize("asked", WIDENED, ids=range(len(WIDENED)))
def test_a_window_that_was_widened_says_so_first(wh: Warehouse, asked: dict[str, Any]) -> None:
    for line in first_lines(wh, asked):
        assert "widened from " in line
        assert "to whole ticks of 1:00:00" in line


@pytest.mark.parametrize("asked", AS_ASKED, ids=range(len(AS_ASKED)))
def test_a_window_that_is_what_was_asked_says_nothing(wh: Warehouse, asked: dict[str, Any]) -> None:
    assert not any("widened" in line for line in first_lines(wh, asked))


def test_a_window_widened_in_silence_is_caught(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_arguments, "widened_text", lambda *_: None)
    with pytest.raises(AssertionError):
        test_a_window_that_was_widened_says_so_first(wh, WIDENED[0])


@pytest.mark.parametrize("text", ["1M", "30 M", " 2M ", "007M"])
def test_a_bare_m_is_refused_with_both_spellings(wh: Warehouse, text: str) -> None:
    number = int(text.strip(" M"))
    for ask in (parse_duration, parse_grace, width_us, lambda text: wh.quantile(0.5, last=text)):
        with pytest.raises(InputError, match=rf"'0*{number}m' for minutes, or '{30 * number}d' for months"):
            ask(text)


def test_other_capitals_are_as_before() -> None:
    assert [parse_duration(text) for text in ("1m", "1 Min", "1 MINUTES", "1MS", "1D", "1W")] == [
        *(60_000_000, 60_000_000, 60_000_000, 1000, 86_400_000_000, 7 * 86_400_000_000)
    ]
