"""Every type is stored as the number it is, comes back as itself, and is compared exactly."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.columns.value_encoding import Measure, encode_values
from tidemark.warehouse.errors import InputError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = timedelta(microseconds=1)


def integers(bits: int) -> st.SearchStrategy[int]:
    edges = [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1]
    near = [2**53 + 1, -(2**53) - 1] if bits == 64 else []
    return st.one_of(st.sampled_from(edges + near), st.integers(edges[0], edges[-1]))


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return st.one_of(st.sampled_from([-most, -1, 0, 1, most]), st.integers(-most, most)).map(
        lambda n: Decimal(n).scaleb(-scale)
    )


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), integers(8)),
    "short": (pa.int16(), integers(16)),
    "integer": (pa.int32(), integers(32)),
    "long": (pa.int64(), integers(64)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "decimal(18,4)": (pa.decimal128(18, 4), decimals(18, 4)),
    "decimal(10,0)": (pa.decimal128(10, 0), decimals(10, 0)),
    "decimal(3,3)": (pa.decimal128(3, 3), decimals(3, 3)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
}  # fmt: skip


def as_fraction(value: Any) -> Fraction:
    """The stored number that a value must become."""
    if isinstance(value, datetime):
        return Fraction((value - EPOCH) // MICROS)
    if isinstance(value, date):
        return Fraction((value - EPOCH.date()).days)
    return Fraction(value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_values_are_stored_as_the_numbers_they_are_and_come_back_as_themselves(
    kind: str, data: st.DataObject
) -> None:
    arrow, strategy = TYPES[kind]
    measure = Measure("m", kind)
    values = data.draw(st.lists(st.one_of(st.none(), strategy), max_size=20))
    skip = data.draw(st.integers(0, len(values)))
    array = pa.array(values, arrow)[skip:]  # a slice: the buffers start before it
    column = encode_values(measure, array)
    assert len(column.stored) == len(column.nan) == len(column.null) == len(values) - skip
    assert column.stored.dtype == measure.dtype
    scale = 10 ** (int(kind.rstrip(")").split(",")[1]) if kind.startswith("decimal") else 0)
    for value, stored, nan, null in zip(values[skip:], column.stored, column.nan, column.null, strict=True):
        assert null == (value is None)
        if value is None:
            continue
        assert nan == (isinstance(value, float) and math.isnan(value))
        if nan:
            continue
        if not (isinstance(value, float) and math.isinf(value)):
            assert Fraction(stored.item()) == as_fraction(value) * scale
        back = measure.decode(stored)
        assert type(back) is type(value)
        assert back == value
        if isinstance(value, Decimal):
            assert str(back) == str(value.quantize(Decimal(1) / scale))
        assert math.copysign(1, back) == 1 or value != 0 if isinstance(value, float) else True


POINTS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.fractions(),
    st.decimals(allow_nan=False, min_value=-(10**20), max_value=10**20),
    st.sampled_from(
        [
            2**53 + 1,
            2**63 - 1,
            2**63,
            -(2**63),
            -(2**63) - 1,
            math.inf,
            -math.inf,
            -0.0,
            Fraction(1, 3),
            10**400,
            -(10**400),
        ]
    ),
)


@pytest.mark.parametrize("kind", ["byte", "long", "float", "double", "decimal(18,4)", "decimal(10,0)"])
@given(point=POINTS)
def test_the_floor_is_the_greatest_storable_number_that_is_not_above(kind: str, point: Any) -> None:
    measure = Measure("m", kind)
    scale = 10**4 if kind == "decimal(18,4)" else 1
    found = measure.floor(point)
    infinite = isinstance(point, (float, Decimal)) and math.isinf(point)
    if measure.is_double:
        assert isinstance(found, float)
        if infinite:
            assert found == point
            return
        assert Fraction(found) <= Fraction(point) if math.isfinite(found) else found == -math.inf
        above = math.nextafter(found, math.inf)
        assert math.isinf(above) or Fraction(above) > Fraction(point)
        return
    exact = point if infinite else Fraction(point) * scale
    if found is None:
        assert exact < -(2**63)
    else:
        assert isinstance(found, int)
        assert -(2**63) <= found < 2**63
        assert found <= exact
        assert found == 2**63 - 1 or found + 1 > exact


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
def test_whole_numbers_beside_2_to_the_53_are_told_apart(base: int, off: int) -> None:
    for n in (base, 2**53 + off, -(2**53) + off):
        assert Measure("m", "long").floor(n) == n
        assert Measure("m", "long").decode(np.int64(n)) == n


def test_times_and_texts_are_points_of_dates_and_timestamps() -> None:
    day, moment = Measure("d", "date"), Measure("t", "timestamp")
    assert (
        day.floor(date(1969, 12, 31))
        == day.floor("1969-12-31")
        == day.floor(datetime(1969, 12, 31, 23, tzinfo=UTC))
        == -1
    )
    assert moment.floor("1969-12-31 23:59:59.999999") == moment.floor(EPOCH - MICROS) == -1
    assert moment.floor(date(1970, 1, 2)) == 86_400_000_000
    assert moment.floor("1970-01-01T01:00:00+01:00") == 0


@pytest.mark.parametrize("kind", ["long", "double", "date", "decimal(4,2)"])
@pytest.mark.parametrize("point", [None, True, [], b"1", object()])
def test_what_cannot_be_compared_is_refused(kind: str, point: Any) -> None:
    with pytest.raises(InputError, match="'m'"):
        Measure("m", kind).floor(point)


@pytest.mark.parametrize(
    "point",
    [
        "5",
        date(2000, 1, 1),
        datetime(2000, 1, 1, tzinfo=UTC),
        math.nan,
        np.float64("nan"),
        Decimal("nan"),
        1j,
    ],
)
def test_numbers_are_not_compared_with_times_texts_or_nan(point: Any) -> None:
    for kind in ("long", "double"):
        with pytest.raises(InputError):
            Measure("m", kind).floor(point)


def test_numpy_scalars_are_points() -> None:
    assert Measure("m", "long").floor(np.int64(2**53 + 1)) == 2**53 + 1
    assert Measure("m", "double").floor(np.float32(0.5)) == 0.5


@pytest.mark.parametrize(
    "kind",
    [
        "string",
        "boolean",
        "binary",
        "array",
        "struct",
        "map",
        "timestamp_ntz",
        "variant",
        "",
        "decimal(19,0)",
        "decimal(38,2)",
        "DOUBLE",
    ],
)
def test_other_types_have_no_ranks_here(kind: str) -> None:
    with pytest.raises(InputError, match="'m'"):
        Measure("m", kind)


def test_a_decimal_of_18_digits_is_kept_and_one_of_19_is_told_how() -> None:
    assert Measure("m", "decimal(18,18)").decode(1) == Decimal("0.000000000000000001")
    with pytest.raises(InputError, match=r"decimal\(18,3\) or to double"):
        Measure("m", "decimal(19,3)")
