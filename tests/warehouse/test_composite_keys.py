"""Names of keys of several columns order as the tuples of their values, and stand for nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.warehouse import InputError
from tidemark.warehouse.columns import composite_keys
from tidemark.warehouse.columns.composite_keys import CompositeKey
from tidemark.warehouse.columns.keys import Key, Name, name_at

ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "decimal(18,4)": pa.decimal128(18, 4),
}
LEAST, MOST = -(2**63), 2**63 - 1
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "a", "a\x00", "a\x00b", "a\x01", "\x00", "\x00\x00", "\U0010ffff"])
    | st.text("\x00\x01aé\U0010ffff", max_size=5),
    "binary": st.lists(st.sampled_from([0, 1, 97, 254, 255]), max_size=5).map(bytes),
    "boolean": st.booleans(),
    "byte": st.sampled_from([-128, -1, 0, 1, 127]),
    "long": st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2**56, MOST - 1, MOST]) | st.integers(LEAST, MOST),
    "float": st.floats(width=32),
    "double": st.sampled_from([-0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 0.1]) | st.floats(),
    "date": st.sampled_from([date.min, date(1969, 12, 31), date(1970, 1, 1), date.max]) | st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "decimal(18,4)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda i: Decimal(i).scaleb(-4)),
}
BETWEEN: dict[str, st.SearchStrategy[Any]] = {  # values that no row can have
    "byte": st.sampled_from([-1000, -0.5, 2.5, 1000, math.nan, math.inf]),
    "long": st.sampled_from([-(2**70), -1.5, Decimal("0.1"), 2**63, 2**70, math.nan, math.inf, -math.inf]),
    "float": st.sampled_from([0.1, -0.1, 1e300, -1e300, 5e-324]),
    "double": st.sampled_from([2**53 + 1, -(2**53) - 1, Decimal("0.1")]),
    "decimal(18,4)": st.sampled_from([Decimal("0.00005"), -1e-9, 10**20, -(10**20), math.nan]),
}
Row = tuple[Any, ...]


def key_of(*kinds: str) -> CompositeKey:
    return CompositeKey.of([Key(f"c{i}", kind) for i, kind in enumerate(kinds)])


def kinds_of(key: CompositeKey) -> list[str]:
    return [part.type for part in key.parts]


def table(key: CompositeKey, rows: Sequence[Row]) -> pa.Table:
    arrays = [pa.array([row[i] for row in rows], ARROW[kind]) for i, kind in enumerate(kinds_of(key))]
    return pa.table(arrays, names=list(key.columns))


def place(value: Any) -> Any:
    """What a value is ordered by: text by its bytes, NaN after every number."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (int, float, Decimal)):
        return (1, 0) if value != value else (0, value)  # noqa: PLR0124  NaN
    return value


def places(row: Row) -> Row:
    return tuple(map(place, row))


def check_order(key: CompositeKey, rows: Sequence[Row]) -> None:
    """Two names are equal or less as their tuples are."""
    names = [key.name_of(row) for row in rows]
    for row, name in zip(rows, names, strict=True):
        assert isinstance(name, bytes), row
        for other, other_name in zip(rows, names, strict=True):
            assert isinstance(other_name, bytes)
            assert (name == other_name) == (places(row) == places(other)), (row, other)
            assert (name < other_name) == (places(row) < places(other)), (row, other)


def check_round_trip(key: CompositeKey, rows: Sequence[Row]) -> None:
    """A name says its values and the names of its columns, and nothing else is asked for them."""
    for row in rows:
        name = key.name_of(row)
        assert name is not None
        value = key.value_of(name)
        assert places(value) == places(row)
        assert not any(math.copysign(1, one) < 0 for one in value if isinstance(one, float) and one == 0)
        assert key.name_of(value) == name
        assert key.names_in(name) == tuple(
            part.name_of(one) for part, one in zip(key.parts, row, strict=True)
        )


def check_encode(key: CompositeKey, events: pa.Table, rows: Sequence[Row]) -> None:
    """Each row of the events has the name of its tuple; a row with NULL in a column has none."""
    column = key.encode(events)
    assert column.codes is not None
    assert column.null.tolist() == [None in row for row in rows]
    for row, code in zip(rows, column.codes.tolist(), strict=True):
        if None not in row:
            assert name_at(column.names, code) == key.name_of(row), row


def check_bound(key: CompositeKey, rows: Sequence[Row], bound: Row) -> None:
    """The rows below the bound are those whose first columns are less than it."""
    edge: Name = key.bound_of(bound)
    assert isinstance(edge, bytes)
    for row in rows:
        name = key.name_of(row)
        assert isinstance(name, bytes)
        assert (name < edge) == (places(row[: len(bound)]) < places(bound)), (row, bound)


KEYS = st.lists(st.sampled_from(sorted(ARROW)), min_size=2, max_size=3).map(lambda kinds: key_of(*kinds))


@st.composite
def keys_with_rows(draw: st.DrawFn, *, nulls: bool = False) -> tuple[CompositeKey, list[Row]]:
    """A key and rows of it, many of which share their first columns."""
    key = draw(KEYS)
    columns = []
    for kind in kinds_of(key):
        some = draw(st.lists(VALUES[kind], min_size=1, max_size=5))
        columns.append(st.sampled_from([*some, None] if nulls else some))
    return key, draw(st.lists(st.tuples(*columns), min_size=0 if nulls else 1, max_size=12))


@st.composite
def keys_with_bounds(draw: st.DrawFn) -> tuple[CompositeKey, list[Row], Row]:
    """A key, rows of it, and a bound of its first columns, which may lie between all values of a column."""
    key, rows = draw(keys_with_rows())
    row = draw(st.sampled_from(rows))
    bound = []
    for kind, value in zip(kinds_of(key), row, strict=True):
        near = st.just(value) | VALUES[kind]
        bound.append(draw(near | BETWEEN[kind] if kind in BETWEEN else near))
    return key, rows, tuple(bound[: draw(st.integers(1, len(bound)))])


@given(keys_with_rows())
@example(
    (key_of("string", "string"), [("a", "\x01"), ("a\x00", ""), ("a\x00\x00", ""), ("a", "\x00"), ("", "")])
)
@example((key_of("long", "double"), [(LEAST, -0.0), (LEAST, 0.0), (-1, math.nan), (MOST, -math.inf)]))
def test_names_order_as_tuples_of_values(drawn: tuple[CompositeKey, list[Row]]) -> None:
    check_order(*drawn)


@given(keys_with_rows())
@example((key_of("binary", "binary"), [(b"\x00\xff", b"\xff\x00"), (b"\x00\x00", b""), (b"", b"\x00\x00")]))
@example((key_of("decimal(18,4)", "boolean"), [(Decimal("-0.0001"), True), (Decimal(0), False)]))
def test_a_name_gives_back_its_values(drawn: tuple[CompositeKey, list[Row]]) -> None:
    check_round_trip(*drawn)


@given(keys_with_rows(nulls=True), st.booleans())
@example((key_of("string", "long"), [(None, 1), ("a\x00", None), (None, None), ("a", LEAST), ("", 0)]), False)
@example((key_of("double", "binary"), [(None, None), (None, b"")]), True)
@example((key_of("date", "timestamp"), []), False)
def test_rows_have_the_names_of_their_tuples(drawn: tuple[CompositeKey, list[Row]], coded: bool) -> None:
    key, rows = drawn
    events = table(key, rows)
    if coded:  # text may come in a dictionary
        for i, part in enumerate(key.parts):
            if part.is_text:
                column = events.column(i).combine_chunks()
                events = events.set_column(i, part.name, column.dictionary_encode())
    check_encode(key, events, rows)


@given(keys_with_rows(nulls=True), st.integers(0, 12))
def test_rows_in_several_chunks_have_the_same_names(drawn: tuple[CompositeKey, list[Row]], cut: int) -> None:
    key, rows = drawn
    parts = [table(key, rows[:cut]), table(key, rows[cut:])]
    check_encode(key, pa.concat_tables(parts), rows)


def test_many_columns_with_many_values_do_not_overflow_their_codes() -> None:
    key = key_of(*["long"] * 6)
    rows = [tuple((i * (7919 + 2 * c)) % 4001 * 2**50 for c in range(6)) for i in range(4000)]
    check_encode(key, table(key, rows), rows)


@given(keys_with_bounds())
@example((key_of("long", "long"), [(MOST, MOST), (MOST, LEAST), (LEAST, LEAST)], (2**63,)))
@example((key_of("long", "binary"), [(MOST, b"\xff"), (MOST, b"")], (math.inf,)))
@example((key_of("string", "long", "long"), [("a", MOST, MOST), ("a\x00", LEAST, 0)], ("a", 2**70, 0)))
@example((key_of("long", "long"), [(LEAST, LEAST), (MOST, MOST)], (-(2**70), 5)))
@example((key_of("long", "long", "long"), [(MOST, 0, 0), (MOST, MOST, MOST), (0, MOST, 0)], (MOST, 2**63)))
@example((key_of("long", "long", "long"), [(5, MOST, MOST), (6, LEAST, 0), (5, 0, MOST)], (5, 2**63)))
@example((key_of("string", "long"), [("a", LEAST), ("a\x00", 0), ("b", 0)], ("a",)))
def test_a_bound_parts_the_names_as_its_tuple_parts_the_rows(
    drawn: tuple[CompositeKey, list[Row], Row],
) -> None:
    check_bound(*drawn)


@given(keys_with_bounds())
def test_a_value_that_no_row_can_have_has_no_name(drawn: tuple[CompositeKey, list[Row], Row]) -> None:
    key, rows, bound = drawn
    if len(bound) == len(key.parts):
        name = key.name_of(bound)
        alone = [part.name_of(one) for part, one in zip(key.parts, bound, strict=True)]
        assert (name is None) == (None in alone)
        assert name is None or name == key.bound_of(bound)
    assert key.bound_of(rows[0]) == key.name_of(rows[0])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (("a",), "tuple of 2 values"),
        (("a", 1, 2), "tuple of 2 values"),
        ((), "tuple of 2 values"),
        ("ab", "tuple of 2 values"),
        (None, "tuple of 2 values"),
        ({"c0": "a", "c1": 1}, "tuple of 2 values"),
        ((1, 1), "cannot compare 1 with 'c0', which is of type string"),
        (("a", "1"), "c1"),
        (("a", None), "c1"),
        ((None, 1), "c0"),
    ],
)
def test_what_is_no_value_of_the_key_is_told(value: Any, words: str) -> None:
    with pytest.raises(InputError) as found:
        key_of("string", "long").name_of(value)
    assert words in str(found.value)


@pytest.mark.parametrize("bound", [(), ("a", 1, 2), "a", None, (1,)])
def test_what_is_no_bound_of_the_key_is_told(bound: Any) -> None:
    with pytest.raises(InputError):
        key_of("string", "long").bound_of(bound)


def test_a_name_is_bytes() -> None:
    with pytest.raises(TypeError, match="bytes"):
        key_of("string", "long").names_in(5)


def test_the_example_of_the_module() -> None:
    name = key_of("string", "long").name_of(("ab", 1))
    assert name == bytes.fromhex("61 62 00 00 80 00 00 00 00 00 00 01")


# Deliberately broken variants: each must be caught by the checks above.

TEXTS = (key_of("string", "string"), [("a", "\x01"), ("a\x00", ""), ("a\x00", "b"), ("a", "\x00b")])
NUMBERS = (key_of("long", "long"), [(-1, 5), (0, -5), (1, -1), (LEAST, MOST), (MOST, LEAST)])


def fails(check: Callable[..., None], *given: Any) -> bool:
    """Whether the check finds something wrong."""
    try:
        check(*given)
    except (AssertionError, ValueError):
        return True
    return False


def test_the_right_variant_is_right() -> None:
    for key, rows in (TEXTS, NUMBERS):
        assert not fails(check_order, key, rows)
        assert not fails(check_round_trip, key, rows)
        assert not fails(check_encode, key, table(key, rows), rows)


@pytest.mark.parametrize("check", [check_order, check_round_trip])
def test_text_whose_nul_is_not_escaped_is_caught(
    check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composite_keys, "_ESCAPED_NUL", b"\x00")
    assert fails(check, *TEXTS)


@pytest.mark.parametrize("check", [check_order, check_round_trip])
def test_text_without_its_end_is_caught(check: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composite_keys, "_END", b"")
    assert fails(check, *TEXTS)


def test_numbers_whose_sign_is_not_flipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = composite_keys._encoded

    def unflipped(name: Name) -> bytes:
        return right(name) if isinstance(name, bytes) else name.to_bytes(8, "big", signed=True)

    monkeypatch.setattr(composite_keys, "_encoded", unflipped)
    assert fails(check_order, *NUMBERS)
    assert fails(check_round_trip, *NUMBERS)
    assert fails(check_encode, NUMBERS[0], table(*NUMBERS), NUMBERS[1])


def test_rows_that_take_the_code_of_another_tuple_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of the columns in the order of their rows, where they should be those of the codes."""
    right = composite_keys._encode_tuples
    monkeypatch.setattr(
        composite_keys, "_encode_tuples", lambda columns: right([one[::-1] for one in columns])
    )
    assert fails(check_encode, NUMBERS[0], table(*NUMBERS), NUMBERS[1])


def test_a_bound_that_ends_at_the_greatest_number_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def clipped(before: bytes, bound: Name) -> bytes:
        assert isinstance(bound, int)
        return before + composite_keys._encoded(min(bound, MOST))

    assert not fails(check_bound, *NUMBERS, (2**63,))
    monkeypatch.setattr(composite_keys, "_encoded_bound", clipped)
    assert fails(check_bound, *NUMBERS, (2**63,))
