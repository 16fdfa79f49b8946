"""Answers for notebooks and programs: drawings lie in their intervals, JSON and frames lose nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.answers import several
from tests.query.worlds import HandMade, World, open_world
from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer
from tidemark.query.answers.measure_answers import Answers
from tidemark.query.answers.rendering import interval_bar
from tidemark.warehouse.columns.json_values import json_text

ROWS = tuple((float(i * i), i // 10) for i in range(400))


@pytest.fixture
def wh(tmp_path: Path) -> HandMade:
    return open_world(tmp_path, World((ROWS[:100],), (ROWS[100:],), eps=0.2))


def drawings(html: str) -> list[ET.Element]:
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", html)]  # noqa: S314  ours


def at(drawing: ET.Element) -> tuple[float, float, float]:
    """Where the line begins, the dot is and the line ends."""
    dot, line = drawing.find("circle"), drawing.find("path")
    assert dot is not None
    x = float(dot.get("cx", ""))
    if line is None:
        return x, x, x
    found = re.fullmatch(r"M(\d+)v8M\1 7h(\d+)M(\d+) 3v8|M(\d+) 3v8M\4 7h(\d+)M(\d+) 3v8", line.get("d", ""))
    assert found
    left, length, right = (float(one) for one in found.groups() if one)
    assert left + length == right
    return left, x, right


def test_each_answer_is_drawn_inside_its_interval(wh: HandMade) -> None:
    answers = wh.quantile([0.1, 0.5, 0.9], mode="quick")
    ranks = several(wh.rank([5000, 90000], mode="quick"))
    histogram = wh.histogram(5, mode="quick")
    cases: tuple[tuple[str, Sequence[Any]], ...] = (
        (answers._repr_html_(), list(answers)),
        (answers[0]._repr_html_(), [answers[0]]),
        (ranks._repr_html_(), ranks),
        (histogram._repr_html_(), histogram),
    )
    for html, shown in cases:
        found = drawings(html)
        assert len(found) == len(list(shown))
        for one, drawing in zip(shown, found, strict=True):
            low, value, high = (getattr(one, name) for name in one.INTERVAL)
            left, dot, right = at(drawing)
            assert 0 < left <= dot <= right < float(drawing.get("width", 0))
            if high > low:
                assert (dot - left) / (right - left) == pytest.approx((value - low) / (high - low), abs=0.01)
    assert any(one.low < one.high for one in answers)


def test_a_drawing_has_the_colour_of_the_text_and_no_script(wh: HandMade) -> None:
    """So that it is seen on a dark page and on a light one."""
    html = wh.quantile([0.5], mode="quick")._repr_html_()
    assert 'fill="currentColor" stroke="currentColor"' in html
    assert not re.search(r"#[0-9a-f]{3}|rgb|black|white|<script|<style", html)


@pytest.mark.parametrize(
    ("low", "value", "high", "x"),
    [
        (1, 2, 3, 48.0),
        (2**60, 2**60 + 1, 2**60 + 4, 28.0),
        (Decimal("0.1"), Decimal("0.2"), Decimal("0.3"), 48.0),
        (date(2001, 1, 1), date(2001, 1, 2), date(2001, 1, 5), 28.0),
        (
            datetime(2001, 1, 1, tzinfo=UTC),
            datetime(2001, 1, 3, tzinfo=UTC),
            datetime(2001, 1, 5, tzinfo=UTC),
            48.0,
        ),
        (7, 7, 7, 48.0),
    ],
)
def test_every_type_is_drawn(low: Any, value: Any, high: Any, x: float) -> None:
    (drawing,) = drawings(interval_bar(low, value, high))
    assert at(drawing)[1] == x


@pytest.mark.parametrize(
    "ends", [(-math.inf, 1.0, 2.0), (0.0, 1.0, math.inf), (-1e308, 0.0, 1e308), (math.nan,) * 3]
)
def test_what_has_no_finite_ends_is_not_drawn(ends: tuple[float, float, float]) -> None:
    assert interval_bar(*ends) == ""


def test_frames_and_json_hold_the_same(wh: HandMade) -> None:
    answers = wh.quantile([0.1, 0.9])
    expected = [{name: getattr(one, name) for name in one.COLUMNS} for one in answers]
    assert answers.to_arrow().to_pylist() == answers.to_pandas().to_dict("records") == expected
    document = json.loads(answers.to_json())
    assert document["answers"] == expected
    assert (document["N"], document["n"], document["m"], document["window"]) == (400, 100, 300, None)
    one = json.loads(answers[0].to_json())
    assert one == {**expected[0], **{name: document[name] for name in document if name != "answers"}}
    histogram = wh.histogram(4)
    assert json.loads(histogram.to_json())["bins"] == histogram.to_arrow().to_pylist()
    assert json.loads(wh.quantile([]).to_json()) == {"answers": []}
    assert json.loads(wh.info().to_json())["steps"] == 1


def test_polars_gets_the_same_columns(wh: HandMade) -> None:
    pl = pytest.importorskip("polars")
    for shown in (wh.quantile([0.1, 0.9]), several(wh.rank([5.0])), wh.histogram(4)):
        assert isinstance(shown.to_polars(), pl.DataFrame)
        assert shown.to_polars().to_dicts() == shown.to_arrow().to_pylist()


def test_counts_of_keys_are_drawn_and_told_too() -> None:
    scope: dict[str, Any] = {"n": 90, "m": 10, "nulls": 0, "eps": 0.01, "confidence": 0.99, "key": "origin"}
    scope |= {"mode": "approximate", "window": (None, datetime(2001, 3, 1, tzinfo=UTC)), "as_of": {"keys": 3}}
    counts: dict[str, Any] = {"count": 20, "lo": 18, "hi": 22}
    kept = FrequencyAnswer(value="ATL", in_history=15, **counts, **scope)
    hitter = HitterAnswer(value="ATL", in_history=15, certain=True, **counts, **scope)
    for one in (kept, hitter, CountAnswer(**counts, **scope)):
        assert at(drawings(one._repr_html_())[0]) == (8, 48, 88)
        document = json.loads(one.to_json())
        assert document["window"] == {"start": None, "end": "2001-03-01T00:00:00+00:00"}
        assert [document[name] for name in ("count", "lo", "hi", "N", "key")] == [20, 18, 22, 100, "origin"]
    document = json.loads(Answers((hitter,), HitterAnswer, "", hitter.scope_facts).to_json())
    assert document["confidence"] == 0.99
    assert document["answers"][0]["share"] == 0.2
    assert len(drawings(Answers((hitter, hitter), HitterAnswer, "")._repr_html_())) == 2


@given(
    st.floats()
    | st.integers()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0))
    | st.dates()
)
def test_any_value_is_read_back_from_json_as_it_was(value: Any) -> None:
    read = json.loads(json_text({"value": value}))["value"]
    back: dict[type, Callable[[Any], Any]] = {
        float: float,
        int: int,
        Decimal: Decimal,
        datetime: datetime.fromisoformat,
        date: date.fromisoformat,
    }
    assert repr(back[type(value)](read)) == repr(value)


def test_json_knows_numpys_numbers_and_any_collection() -> None:
    found = json_text(
        {1: np.int64(2**60), "b": (np.float64("nan"), None, True), "c": {"x": iter([Decimal("1.10")])}}
    )
    assert found == '{"1": "1152921504606846976", "b": ["NaN", null, true], "c": {"x": ["1.10"]}}'
