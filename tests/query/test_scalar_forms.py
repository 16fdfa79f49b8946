"""Each parameter takes the scalars of numpy, pandas, Polars and pyarrow as it takes Python's values."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.query.answers import several, single
from tidemark import query, stream, warehouse
from tidemark.query import Warehouse
from tidemark.warehouse.columns import scalars
from tidemark.warehouse.columns.scalars import plain, plain_all
from tidemark.warehouse.errors import InputError, TidemarkError

DAY = timedelta(days=1)
T0 = datetime.fromisoformat("2024-01-01")
GREATEST = 1.7976931348623157e308


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    uri = str(tmp_path_factory.mktemp("scalars") / "w")
    table = pa.table(
        {
            "x": [float(i % 7) for i in range(60)] + [GREATEST],
            "k": pa.array([i % 5 for i in range(61)]),
            "ts": pa.array([T0 + i * DAY / 4 for i in range(61)], pa.timestamp("us", "UTC")),
        }
    )
    warehouse.create(None, uri, ["x", "ts"], key="k", groups=["k"], time="ts", schema=table.schema)
    warehouse.load(None, uri, table, "a")
    return query.open(uri)


def whole(number: int) -> list[Any]:
    return [np.int8(number), *boxed(number)]


def real(number: float) -> list[Any]:
    return [np.float32(number), *boxed(number)]


def boxed(value: Any) -> list[Any]:
    """The value as each library gives it back."""
    array = np.array([value])
    return [array[0], array[:1].reshape(()), pa.scalar(value), pd.Series([value])[0], pl.Series([value])[0]]


def moments(moment: datetime) -> list[Any]:
    numpy = np.datetime64(moment)
    return [numpy, np.array(numpy), *boxed(moment), pd.Timestamp(moment, tz="UTC"), numpy.astype("M8[ns]")]


def spans(span: timedelta) -> list[Any]:
    return [np.timedelta64(span), np.timedelta64(span.days, "D"), pd.Timedelta(span), *boxed(span)]


def sequences(values: list[Any]) -> list[Any]:
    array = np.array(values)
    return [array, pd.Series(values), pl.Series(values), pa.array(values), tuple(array), list(array)]


Ask = Callable[[Warehouse, Any], Any]
# By parameter: how it is asked, the value in Python, and the same in other forms.
PARAMETERS: dict[str, tuple[Ask, Any, list[Any]]] = {
    "phi": (lambda wh, v: wh.quantile(v, "x"), 0.5, real(0.5)),
    "phis": (lambda wh, v: wh.quantile(v, "x"), [0.25, 0.5], sequences([0.25, 0.5])),
    "point": (lambda wh, v: wh.rank(v, "x"), 3, whole(3)),
    "points": (lambda wh, v: wh.cdf(v, "x"), [1.5, 3.0], sequences([1.5, 3.0])),
    "time": (lambda wh, v: wh.rank(v, "ts"), T0 + DAY, moments(T0 + DAY)),
    "times": (lambda wh, v: wh.rank(v, "ts"), [T0, T0 + DAY], sequences([T0, T0 + DAY])),
    "bins": (lambda wh, v: wh.histogram(v, "ts"), 4, whole(4)),
    "edges": (lambda wh, v: wh.histogram(v, "x"), [0.0, 2.5, 6.0], sequences([0.0, 2.5, 6.0])),
    "edges of times": (lambda wh, v: wh.histogram(v, "ts"), [T0, T0 + DAY], sequences([T0, T0 + DAY])),
    "key": (lambda wh, v: wh.frequency(v), 3, whole(3)),
    "keys": (lambda wh, v: wh.frequency(v), [1, 3], sequences([1, 3])),
    "range": (lambda wh, v: wh.key_range(1, v), 3, whole(3)),
    "share": (lambda wh, v: wh.heavy_hitters(v), 0.125, real(0.125)),
    "k": (lambda wh, v: wh.top(v), 2, whole(2)),
    "alpha": (lambda wh, v: wh.persistent(v), 0.5, real(0.5)),
    "most": (lambda wh, v: wh.persistent(0.5, most=v), 12, whole(12)),
    "slot": (lambda wh, v: wh.persistence(3, slot=v), 2 * DAY, spans(2 * DAY)),
    "last": (lambda wh, v: wh.quantile(0.5, "x", last=v), 7 * DAY, spans(7 * DAY)),
    "last of keys": (lambda wh, v: wh.frequency(3, last=v), 7 * DAY, spans(7 * DAY)),
    "as of": (lambda wh, v: wh.quantile(0.5, "x", last="7d", as_of=v), T0 + 9 * DAY, moments(T0 + 9 * DAY)),
    "as of, keys": (lambda wh, v: wh.frequency(3, last="7d", as_of=v), T0 + 9 * DAY, moments(T0 + 9 * DAY)),
    "every": (lambda wh, v: wh.quantile(0.5, "x", every=v), 7 * DAY, spans(7 * DAY)),
    "since": (lambda wh, v: wh.frequency(3, between=(v, None)), T0 + DAY, moments(T0 + DAY)),
    "until": (lambda wh, v: wh.quantile(0.5, "x", between=(None, v)), T0 + DAY, moments(T0 + DAY)),
    "overlap": (lambda wh, v: wh.overlap((None, v), (v, None)), T0 + DAY, moments(T0 + DAY)),
    "span": (lambda wh, v: Texts(wh.span("x", between=(v, None))), T0 + DAY, moments(T0 + DAY)),
    "where": (lambda wh, v: wh.quantile(0.5, "x", where={"k": v}), 3, whole(3)),
    "where of a scan": (lambda wh, v: wh.quantile(0.5, "x", where={"ts": v}), T0 + DAY, moments(T0 + DAY)),
    "groups": (lambda wh, v: wh.quantile(0.5, "x", by="k", groups=v), [1, 3], sequences([1, 3])),
    "top": (lambda wh, v: wh.quantile(0.5, "x", by="k", top=v), 2, whole(2)),
    "limit": (lambda wh, v: wh.quantile(0.5, "x", by="k", limit=v), 9, whole(9)),
}  # fmt: skip


class Texts(tuple[Any, ...]):
    """Values that have the method of answers."""

    __slots__ = ()

    def to_json(self) -> str:
        return repr(self)


def same_answers(wh: Warehouse, name: str) -> None:
    ask, value, forms = PARAMETERS[name]
    wanted = told(ask(wh, value))
    for form in forms:
        assert told(ask(wh, form)) == wanted, (name, type(form), form)


def told(answer: Any) -> str:
    """What the answer says, without how the caller wrote the zone and without what was read for it."""
    return re.sub(r'"blocks_read": \d+', "", answer.to_json().replace("+00:00", ""))


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_takes_every_form_of_a_value(wh: Warehouse, name: str) -> None:
    same_answers(wh, name)


@pytest.mark.parametrize("name", ["k", "slot", "top", "last", "every"])
def test_a_parameter_that_takes_python_alone_is_caught(
    wh: Warehouse, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("asking.key_reader", "reading.windows"):
        monkeypatch.setattr(f"tidemark.query.{module}.plain", lambda value: value)
    monkeypatch.setattr("tidemark.warehouse.columns.ticks.plain", lambda value: value)
    monkeypatch.setattr(scalars, "plain", lambda value: value)
    with pytest.raises((InputError, AssertionError)):
        same_answers(wh, name)


def test_a_share_of_few_bits_is_the_decimal_that_it_prints_as(wh: Warehouse, tmp_path: Path) -> None:
    few = np.float32(0.01)
    for form in (few, np.array(few), pa.scalar(0.01, pa.float32())):
        assert wh.quantile(form, "x").phi == 0.01
    series = [pd.Series([few]), pl.Series([few], dtype=pl.Float32)]
    for forms in (np.array([few]), [few], pa.array([few]), *series):
        assert several(wh.quantile(forms, "x"))[0].phi == 0.01
    options: dict[str, Any] = {"eps": few, "key_eps": few, "key_delta": few}
    made = warehouse.create(None, tmp_path / "w", "x", key="k", **options)
    assert (made.eps, made.key_eps, made.key_delta) == (0.01, 0.01, 0.01)


def any_of(value: Any) -> Any:
    """The value, without a type for the type checker."""
    return value


def test_options_and_batch_numbers_take_scalars(tmp_path: Path) -> None:
    uri, table = tmp_path / "w", pa.table({"x": [1.0], "k": [1]})
    options: dict[str, Any] = {"eps": 0.01, "kappa": 4, "key_eps": 0.02, "key_delta": 0.03}
    numpy: dict[str, Any] = {name: np.array(value)[()] for name, value in options.items()}
    made = warehouse.create(None, uri, "x", key="k", schema=table.schema, **numpy)
    assert warehouse.create(None, uri, "x", key="k", **options) == made
    number, memory = any_of(np.int64(3)), any_of(np.int64(10**6))
    assert stream.append(None, uri, table, source="s", batch=number)
    assert not stream.append(None, uri, table, source="s", batch=3)
    wh = query.open(uri, memory=memory, max_staleness=pd.Timedelta("1s"))
    assert single(wh.frequency(1)).count == 1


HOSTILE = [
    *(np.datetime64("NaT"), pd.NaT, np.timedelta64("NaT"), np.timedelta64(1, "Y"), pd.NA, pa.scalar(None)),
    *(np.datetime64("10000-01-01"), np.datetime64(2**62, "s"), np.timedelta64(2**62, "D")),
    *(np.timedelta64(1500, "ns"), np.complex128(1j), pd.Period("2024-01")),
]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_scalar_that_means_nothing_is_refused(wh: Warehouse, value: Any) -> None:
    asks: list[Callable[[], Any]] = [
        lambda: wh.rank(value, "ts"),
        lambda: wh.frequency(value),
        lambda: wh.quantile(0.5, "x", where={"k": value}),
        lambda: wh.quantile(value),
        lambda: wh.top(value),
        lambda: wh.quantile(0.5, "x", every=[value]),
    ]
    for ask in asks:
        with pytest.raises(TidemarkError):
            ask()


def test_scalars_keep_their_value_to_the_last_digit() -> None:
    ns = "2024-01-01T00:00:00.000000500"
    assert plain(np.datetime64(ns)) == plain(pd.Timestamp(ns)) == ns
    assert plain(np.datetime64("2024-01", "M")) == plain(np.datetime64("2024-01-01")) == date(2024, 1, 1)
    assert plain(np.datetime64("2024-01-01T05", "h")) == T0 + timedelta(hours=5)
    assert plain(np.longdouble(1) / 3) == Fraction(*(np.longdouble(1) / 3).as_integer_ratio())
    assert plain(pa.scalar(Decimal("0.10"))) == Decimal("0.10")
    assert plain(pd.NA) is plain(pa.scalar(None)) is None
    kept = {"a": (1, "b", None), "c": [True, b"x"]}
    assert plain_all(kept) == kept
    assert [type(one) for one in plain_all(np.array([1, 2]))] == [int, int]


POINTS = [
    0,
    10**400,
    -(2**70),
    Fraction(1, 3),
    Decimal("1e999"),
    GREATEST,
    np.float64(GREATEST),
    float("inf"),
]


def test_points_beyond_all_doubles_are_answered_and_shown(wh: Warehouse) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = several(wh.rank(POINTS, "x"))
    assert [one.rank for one in found] == [9, 61, 0, 9, 61, 61, 61, 61]
    table = found.to_arrow()
    assert table.column("value").to_pylist()[1] == str(10**400)
    assert len(found.to_pandas()) == len(found.to_polars()) == len(POINTS)
    assert found[:1].to_arrow().column("value").to_pylist() == [0]
    mixed = several(wh.rank([T0, "2024-01-01 00:00:00.0000005"], "ts"))
    assert [one.rank for one in mixed] == [1, 1]
    assert mixed.to_arrow().num_rows == 2


def test_a_time_of_another_zone_is_shown_in_utc(wh: Warehouse) -> None:
    kathmandu = pd.Timestamp("2024-01-02 05:45", tz="Asia/Kathmandu")
    assert "2024-01-02 00:00:00" in repr(several(wh.rank([kathmandu], "ts")))
