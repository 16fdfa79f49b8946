"""Names of keys of several columns: they order as the tuples of the columns' values do."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse import InputError
from tidemark.warehouse.columns import composite_keys
from tidemark.warehouse.columns.composite_keys import CompositeKey
from tidemark.warehouse.columns.keys import Key, name_at

VALUES: dict[str, list[Any]] = {  # ascending
    "string": ["", "\x00", "\x00\x00", "\x00a", "a", "a\x00", "a\x00b", "ab", "b", "é", "\U0010ffff"],
    "binary": [b"", b"\x00", b"\x00\xff", b"\x01", b"a", b"\xff", b"\xff\xff"],
    "long": [-(2**63), -1, 0, 1, 255, 256, 2**63 - 1],
    "double": [-math.inf, -1.5, 0.0, 5e-324, 1.0, math.inf, math.nan],
    "boolean": [False, True],
    "decimal(9,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("12.30")],
    "date": [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)],
    "timestamp": [datetime(1950, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
}
ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
KINDS = st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=3)


def key_of(kinds: list[str]) -> CompositeKey:
    return CompositeKey.of([Key(f"c{i}", kind) for i, kind in enumerate(kinds)])


def places(kinds: list[str], values: tuple[Any, ...]) -> list[int]:
    """The order of a tuple: the place of each value in its list."""
    return [
        next(i for i, one in enumerate(VALUES[kind]) if one == value or (one != one and value != value))  # noqa: PLR0124
        for kind, value in zip(kinds, values, strict=True)
    ]


@st.composite
def tuples(draw: st.DrawFn, least: int = 1) -> tuple[list[str], list[tuple[Any, ...]]]:
    kinds = draw(KINDS)
    one = st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds))
    return kinds, draw(st.lists(one, min_size=least, max_size=8))


def check_order(kinds: list[str], values: list[tuple[Any, ...]]) -> None:
    key = key_of(kinds)
    names = [key.name_of(value) for value in values]
    for (a, value), (b, other) in pairwise(zip([*names, names[0]], [*values, values[0]], strict=True)):
        assert isinstance(a, bytes)
        assert isinstance(b, bytes)
        order, other_order = places(kinds, value), places(kinds, other)
        assert (a < b, a == b) == (order < other_order, order == other_order)


@given(tuples(2))
def test_names_order_as_the_tuples_do(drawn: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    check_order(*drawn)


@given(tuples())
def test_a_name_gives_its_values_back(drawn: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    kinds, values = drawn
    key = key_of(kinds)
    for value in values:
        name = key.name_of(value)
        assert name is not None
        assert places(kinds, key.value_of(name)) == places(kinds, value)
        assert key.names_in(name) == tuple(
            part.name_of(own) for part, own in zip(key.parts, value, strict=True)
        )


@given(tuples(), st.data())
def test_rows_are_encoded_as_single_values_are(
    drawn: tuple[list[str], list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    kinds, values = drawn
    key = key_of(kinds)
    rows = [tuple(None if data.draw(st.integers(0, 4)) == 0 else v for v in value) for value in values]
    columns = {f"c{i}": pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(kinds)}
    encoded = key.encode(pa.table(columns))
    assert encoded.codes is not None
    for row, code, null in zip(rows, encoded.codes.tolist(), encoded.null.tolist(), strict=True):
        assert null == (None in row)
        if not null:
            assert name_at(encoded.names, code) == key.name_of(row)


@given(tuples(2), st.integers(1, 2))
def test_a_bound_may_have_the_first_columns_alone(
    drawn: tuple[list[str], list[tuple[Any, ...]]], columns: int
) -> None:
    kinds, values = drawn
    key, bound, least = key_of(kinds), values[0][:columns], key_of(kinds).bound_of(values[0][:columns])
    for value in values:
        name = key.name_of(value)
        assert isinstance(name, bytes)
        assert isinstance(least, bytes)
        assert (name >= least) == (places(kinds, value)[:columns] >= places(kinds[:columns], bound))


def test_a_bound_between_two_values_is_a_bound() -> None:
    key = key_of(["long", "string"])
    names = [key.name_of((number, text)) for number in (-5, 1, 2, 7) for text in ("", "z")]
    for bound, before in (((1.5,), 4), ((1.5, "q"), 4), ((-(2**70),), 0), ((2**70,), 8), ((2, "a"), 5)):
        least = key.bound_of(bound)
        assert isinstance(least, bytes)
        assert sum(isinstance(name, bytes) and name < least for name in names) == before


def test_zeros_are_one_value_and_so_is_every_nan() -> None:
    key = key_of(["double", "double"])
    assert key.name_of((0.0, math.nan)) == key.name_of((-0.0, -math.nan))


@pytest.mark.parametrize("value", [("a",), ("a", 1, 2), "a", 5, None, {"a": 1}])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="a key of c0, c1 is a tuple of 2 values"):
        key_of(["string", "long"]).name_of(value)


def test_a_value_that_no_row_can_have_has_no_name() -> None:
    assert key_of(["string", "long"]).name_of(("a", 2.5)) is None
    with pytest.raises(InputError, match="5 cannot be a key"):
        key_of(["string", "long"]).name_of((5, 1))


def test_text_that_is_joined_as_it_is_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: NUL is not escaped, so the pairs (a NUL NUL, b) and (a, NUL NUL b) are alike."""
    monkeypatch.setitem(VALUES, "string", ["a", "a\x00\x00", "b", "\x00\x00b"])
    monkeypatch.setattr(composite_keys, "_ESCAPED_NUL", b"\x00")
    with pytest.raises(AssertionError):
        check_order(["string", "string"], [("a\x00\x00", "b"), ("a", "\x00\x00b")])


def test_numbers_whose_sign_is_as_it_was_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: -1 comes after 1, as its bytes do."""
    encoded = composite_keys._encoded
    monkeypatch.setattr(
        composite_keys,
        "_encoded",
        lambda name: encoded(name) if isinstance(name, bytes) else (name % 2**64).to_bytes(8, "big"),
    )
    with pytest.raises(AssertionError):
        check_order(["long", "long"], [(-1, 0), (1, 0)])
