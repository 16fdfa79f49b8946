"""An answer that means one value counts and compares as that value; several answers are refused."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.query import EmptyWindow, InputError
from tidemark.query.answers import one_value

NOON, HOUR = datetime(2024, 5, 1, 12, tzinfo=UTC), timedelta(hours=1)
BINARY: list[Callable[[Any, Any], Any]] = [
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod),
]
UNARY: list[Callable[[Any], Any]] = [
    *(bool, float, int, abs, round, operator.neg, operator.pos),
    "{:.3f}".format,
]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    path = tmp_path_factory.mktemp("numbers") / "w"
    rows = pa.table(
        {
            "x": [1.5, 2.5, 4.5, 8.5],
            "k": ["a", "a", "a", "b"],
            "at": pa.array(
                [NOON + hour * timedelta(hours=1) for hour in range(4)], pa.timestamp("us", "UTC")
            ),
            "price": pa.array([Decimal(cents) / 100 for cents in (150, 250, 450, 850)], pa.decimal128(9, 2)),
        }
    )
    warehouse.create(None, path, ["x", "at", "price"], key="k", groups=["k"], schema=rows.schema)
    warehouse.load(None, path, rows, "a")
    return query.open(path)


def single(wh: query.Warehouse) -> list[tuple[Any, Any]]:
    """Answers of each kind that mean one value, and the value."""
    return [
        (wh.quantile(0.5), 2.5),
        (wh.rank(4.5), 3),
        (wh.cdf(4.5), 0.75),
        (wh.frequency("a"), 3),
        (wh.top(1)[0], 3),
        (wh.key_range("a", "b"), 3),
        (wh.self_join(), 10),
        (wh.distinct(), 2),
        (wh.overlap(None, None).both, 2),
        (wh.persistence("a"), 1),
        (wh.persistent(1)[0], 1),
        (wh.quantile(0.9, by="k")[0], 4.5),
    ]


def wrong(wh: query.Warehouse) -> int:
    found = 0
    for answer, value in single(wh):
        for other in (2, 2.5, 0.5, Fraction(1, 3), np.float64(3), np.int64(3), True):
            for operation in BINARY:
                found += operation(answer, other) != operation(value, other)
                found += operation(other, answer) != operation(other, value)
        found += sum(operation(answer) != operation(value) for operation in UNARY)
        found += not math.isclose(answer, value) or f"{answer}" != str(answer)
        found += answer - answer != 0 or max(answer, -1, 99) != 99
    return found


def test_one_answer_is_its_value(wh: query.Warehouse) -> None:
    assert wrong(wh) == 0
    median, price = wh.quantile(0.5), wh.quantile(0.5, "price")
    assert sorted([wh.quantile(1), median, wh.quantile(0)]) == [1.5, 2.5, 8.5]
    assert sum(wh.quantile([0, 1])) == 10
    assert (price > Decimal("2.4"), price * 2) == (True, Decimal("5.00"))
    latest = wh.quantile(1, "at")
    assert (latest > NOON, latest - NOON, NOON - latest) == (True, timedelta(hours=3), -timedelta(hours=3))
    assert latest - wh.quantile(0, "at") == timedelta(hours=3)
    assert median == wh.quantile(0.5)
    assert median != wh.quantile(0.6)  # of another phi
    assert median != wh.rank(2.5)
    assert median != {"a": 1}


def test_an_answer_is_false_where_its_value_is_zero(wh: query.Warehouse) -> None:
    none: list[Any] = [
        wh.frequency("nobody"),
        wh.rank(0),
        wh.cdf(0),
        wh.distinct(where="x > 9"),
        wh.overlap(None, None).only_a,
        wh.persistence("nobody"),
        wh.quantile(0.5, by="k", groups=["nobody"])[0],
    ]
    assert [bool(answer) for answer in none] == [False] * len(none)
    assert all(answer for answer, _ in single(wh))
    assert wh.quantile(0.5, "at")


def test_an_operation_that_forgets_the_sides_is_caught(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant reflects an operator without turning its sides."""
    monkeypatch.setattr(one_value.OneValue, "__rsub__", one_value.OneValue.__sub__)
    assert wrong(wh)


def test_several_answers_are_refused(wh: query.Warehouse) -> None:
    several: list[Any] = [
        wh.quantile([0.5]),
        wh.quantile(0.5, by="k"),
        wh.top(2),
        wh.frequency(["a", "b"]),
        wh.histogram(2),
        wh.overlap(None, None),
    ]
    found: list[Any] = []
    for answers in several[:-1]:
        found += answers
    assert len(found) == sum(map(len, several[:-1]))
    for answers in several:
        for operation in [one for one in BINARY if one not in (operator.eq, operator.ne)]:
            for left, right in ((answers, 3), (3, answers), (wh.quantile(0.5), answers), (answers, answers)):
                with pytest.raises(InputError, match="has several values, so it is not one number"):
                    operation(left, right)
        for single in (float, int, abs, round, operator.neg):
            with pytest.raises(InputError, match="not one number"):
                single(answers)


def test_what_has_no_value_and_what_is_no_number_is_told(wh: query.Warehouse) -> None:
    nothing = wh.quantile(0.5, by="k", groups=["never"])[0]
    for ask in (lambda: nothing > 3, lambda: float(nothing), lambda: 3 - nothing):
        with pytest.raises(EmptyWindow, match="the answer has no value to count with"):
            ask()
    assert nothing != 3
    with pytest.raises(TypeError):
        wh.quantile(0.5) < "text"  # noqa: B015
