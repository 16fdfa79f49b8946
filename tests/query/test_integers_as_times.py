"""A number where a time is asked for does not say its unit: it is refused in every question and every SQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.query.answers import single
from tidemark import query, warehouse
from tidemark.query import Warehouse
from tidemark.warehouse import InputError, TidemarkError
from tidemark.warehouse.columns import given_values
from tidemark.warehouse.columns.scalars import plain

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
TIMES = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
SECOND = 1_704_153_600  # the second of TIMES
NUMBERS = [
    SECOND,
    SECOND * 1000,
    SECOND * 10**9,
    20240102,
    19724,
    0,
    -1,
    1.5,
    np.int64(SECOND),
    pa.scalar(SECOND),
]
SAME = [
    TIMES[1],
    "2024-01-02",
    np.datetime64(SECOND, "s"),
    np.datetime64(SECOND * 10**9, "ns"),
    pd.Timestamp(TIMES[1]),
]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    table = pa.table({"ts": pa.array(TIMES, pa.timestamp("us", "UTC")), "d": pa.array(DAYS, pa.date32())})
    uri: Path = tmp_path_factory.mktemp("integers") / "w"
    warehouse.create(None, uri, ["ts", "d"], keys=["ts", "d"], groups=["d"], time="ts", schema=table.schema)
    warehouse.load(None, uri, table, "a")
    return query.open(uri)


def asks(wh: Warehouse, value: Any) -> list[Callable[[], Any]]:
    """Questions that take the value as a time."""
    return [
        *(lambda name=name: wh.rank(value, name) for name in ("ts", "d")),
        *(lambda name=name: wh.frequency(value, key=name) for name in ("ts", "d")),
        *(lambda name=name: wh.histogram([value, "2024-01-03"], name) for name in ("ts", "d")),
        *(lambda name=name: wh.quantile(0.5, "d", where={name: value}) for name in ("ts", "d")),
        lambda: wh.quantile(0.5, "d", between=(value, None)),
        lambda: wh.top(3, key="d", between=(None, value)),
        lambda: wh.quantile(0.5, "ts", last="1d", as_of=value),
    ]


def check_refused(wh: Warehouse) -> None:
    """No number is taken; in SQL neither."""
    for value in NUMBERS:
        for ask in asks(wh, value):
            with pytest.raises(TidemarkError, match="number"):
                ask()
    for name in ("ts", "d"):
        with pytest.raises(InputError, match="a number does not say its unit"):
            wh.sql(f"SELECT rank FROM rank({SECOND}, '{name}')").fetchall()


def test_a_number_is_no_time(wh: Warehouse) -> None:
    check_refused(wh)


@pytest.mark.parametrize("value", SAME, ids=repr)
def test_a_form_that_names_its_unit_is_the_same_time(wh: Warehouse, value: Any) -> None:
    assert [single(wh.rank(value, name, mode="exact")).rank for name in ("ts", "d")] == [2, 2]
    assert [single(wh.frequency(value, key=name)).count for name in ("ts", "d")] == [1, 1]
    assert single(wh.quantile(0, "d", between=(value, None), mode="exact")).value == DAYS[1]


@pytest.mark.parametrize(
    "unit", [timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1)], ids=str
)
def test_integers_that_are_read_in_some_unit_are_caught(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, unit: timedelta
) -> None:
    def read(value: Any) -> Any:
        value = plain(value)
        return datetime(1970, 1, 1, tzinfo=UTC) + min(value, 10**4) * unit if type(value) is int else value

    monkeypatch.setattr(given_values, "plain", read)
    with pytest.raises(pytest.fail.Exception):
        check_refused(wh)
