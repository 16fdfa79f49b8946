"""The digest of rows: the same in any order and from any types, another for any other value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark import warehouse
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.ingest.row_filter import ALL_OR_NOTHING
from tidemark.warehouse.ingest.same_rows import DigestRows, RowDigest
from tidemark.warehouse.integrity import digests
from tidemark.warehouse.integrity.digests import PRIME, Fingerprint, fingerprint, text_hashes
from tidemark.warehouse.settings.options import Options

UTC_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
LEAVES: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.nan])),
    (pa.decimal128(10, 2), st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    (pa.string(), st.text() | st.text("ä☃", min_size=50).map(lambda text: text * 100)),
    (pa.binary(), st.binary()),
    (pa.date32(), st.dates(date(1, 1, 1), date.max)),
    (pa.timestamp("us", tz="UTC"), UTC_TIMES),
]


def nullable(kind: tuple[pa.DataType, Any]) -> tuple[pa.DataType, Any]:
    return kind[0], st.none() | kind[1]


def listed(kind: tuple[pa.DataType, Any]) -> tuple[pa.DataType, Any]:
    return pa.list_(kind[0]), st.lists(nullable(kind)[1], max_size=4)


def mapped(kind: tuple[pa.DataType, Any]) -> tuple[pa.DataType, Any]:
    entries = st.dictionaries(st.text(max_size=2), nullable(kind)[1], max_size=3).map(
        lambda found: [*found.items()]
    )
    return pa.map_(pa.string(), kind[0]), entries


def grouped(kinds: list[tuple[pa.DataType, Any]]) -> tuple[pa.DataType, Any]:
    named = {f"f{i}": nullable(kind) for i, kind in enumerate(kinds)}
    values = st.fixed_dictionaries({name: kind[1] for name, kind in named.items()})
    return pa.struct([(name, kind[0]) for name, kind in named.items()]), values


leaves = st.sampled_from(LEAVES)
kinds = st.recursive(
    leaves,
    lambda inner: (
        inner.map(listed) | inner.map(mapped) | st.lists(inner, min_size=1, max_size=2).map(grouped)
    ),
    max_leaves=3,
)
columns = st.lists(kinds.map(nullable), min_size=1, max_size=3)


@st.composite
def tables(draw: Any) -> tuple[pa.Table, list[Any]]:
    """A table, and the strategies of its columns' values."""
    chosen, rows = draw(columns), draw(st.integers(0, 6))
    values = [pa.array(draw(st.lists(kind[1], min_size=rows, max_size=rows)), kind[0]) for kind in chosen]
    return pa.table(values, [f"c{i}" for i in range(len(chosen))]), [kind[1] for kind in chosen]


def digest_of(rows: pa.Table, schema: pa.Schema, cut: int = 2) -> Fingerprint:
    """As tasks make it: of several partitions of several batches, from whatever types."""
    parts = [rows.slice(at, cut) for at in range(0, len(rows), cut)]
    options = Options(("c0",), None, None, 0.1, 10, 0)
    names = tuple(schema.names)
    digest = DigestRows(schema, names, options, ALL_OR_NOTHING, RowDigest(names, None, None))
    found = [next(digest.run(part.to_batches(max_chunksize=1)))[0] for part in parts]
    return sum(found, Fingerprint())


@given(tables(), st.data())
def test_the_digest_asks_for_no_order_and_no_types(drawn: tuple[pa.Table, list[Any]], data: Any) -> None:
    rows, _ = drawn
    whole = fingerprint(cast_rows(rows, rows.schema))
    assert whole.rows == len(rows)
    order = data.draw(st.permutations(range(len(rows))))
    assert digest_of(rows.take(pa.array(order, pa.int64())), rows.schema) == whole
    # A slice has the values of others beside its own in memory.
    beside = pa.concat_tables([rows, rows, rows]).combine_chunks().slice(len(rows), len(rows))
    assert fingerprint(cast_rows(beside, rows.schema)) == whole
    assert (
        digest_of(pa.table([other_type(one) for one in rows.columns], rows.column_names), rows.schema)
        == whole
    )


def other_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in another of the types that are taken for the same."""
    kind = column.type
    if pa.types.is_string(kind):
        return column.dictionary_encode()
    if pa.types.is_binary(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", tz="America/New_York"))
    if pa.types.is_list(kind):
        return column.cast(pa.large_list(kind.value_type))
    if pa.types.is_decimal(kind):
        return column.cast(pa.decimal256(kind.precision, kind.scale))
    narrow = pa.int8() if pa.types.is_integer(kind) else pa.float32() if pa.types.is_float64(kind) else None
    if narrow is not None:
        try:
            cast = column.cast(narrow)
        except pa.ArrowInvalid:
            return column
        return cast if told(cast) == told(column) else column
    return column


def told(column: Any) -> list[str]:
    """Values as text that tells NaN from NULL; -0.0 as 0.0; a map's entries in any order."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value + 0.0
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return sorted((repr(plain(key)), repr(plain(one))) for key, one in value)
        return [plain(one) for one in value] if isinstance(value, list) else value

    return [repr(plain(value)) for value in column.to_pylist()]


@given(tables(), st.data())
def test_one_other_value_makes_another_digest(drawn: tuple[pa.Table, list[Any]], data: Any) -> None:
    rows, values = drawn
    if not len(rows):
        return
    at, column = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, len(values) - 1))
    kind, held = rows.schema.field(column).type, rows.column(column).to_pylist()
    held[at] = data.draw(values[column])
    other = rows.set_column(column, rows.schema.field(column), pa.chunked_array([pa.array(held, kind)]))
    same = told(other.column(column)) == told(rows.column(column))
    assert (digest_of(other, rows.schema) == digest_of(rows, rows.schema)) is same or multiset(
        other
    ) == multiset(rows)


def multiset(rows: pa.Table) -> list[tuple[str, ...]]:
    return sorted(zip(*[told(column) for column in rows.columns], strict=True))


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ([[1], [2]], [[2], [1]], None),  # the same rows
        ([[1, 2]], [[2, 1]], pa.list_(pa.int64())),
        ([[1], []], [[], [1]], None),
        ([[[1], []]], [[[], [1]]], pa.list_(pa.list_(pa.int64()))),
        ([[None]], [[]], pa.list_(pa.int64())),
        ([None], [[]], pa.list_(pa.int64())),
        ([{"a": None}], [None], pa.struct([("a", pa.int64())])),
        ([{"a": 1, "b": 2}], [{"a": 2, "b": 1}], pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        ([[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]], pa.map_(pa.string(), pa.int64())),
        ([5e-324], [-0.0], pa.float64()),
        ([math.nan], [None], pa.float64()),
        ([""], [None], pa.string()),
        (["a", "a", "b"], ["a", "b", "b"], pa.string()),
        ([1, 1], [1], pa.int64()),
    ],
)
def test_rows_that_look_alike_have_other_digests(one: list[Any], other: list[Any], kind: Any) -> None:
    kind = kind or pa.list_(pa.int64())
    first, second = (fingerprint(pa.record_batch([pa.array(rows, kind)], ["c"])) for rows in (one, other))
    assert (first == second) is (sorted(map(repr, one)) == sorted(map(repr, other)))


def test_entries_of_a_map_have_no_order() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    given = ([[("a", 1), ("b", 2)]], [[("b", 2), ("a", 1)]])
    first, second = (fingerprint(pa.record_batch([pa.array(rows, kind)], ["c"])) for rows in given)
    assert first == second


@pytest.mark.slow
@settings(max_examples=20)
@given(tables())
def test_stored_rows_have_the_digest_of_those_that_came(drawn: tuple[pa.Table, list[Any]]) -> None:
    """Through files of `events` and our own reader."""
    rows = drawn[0].append_column("x", pa.array([0.5] * len(drawn[0]), pa.float64()))
    with TemporaryDirectory() as folder:
        uri = Path(folder) / "w"
        warehouse.create(None, uri, "x", eps=0.1, schema=rows.schema)
        outcome = warehouse.load(None, uri, rows, "a").outcome
        assert outcome == ("loaded" if len(rows) else "empty")
        assert warehouse.load(
            None, uri, rows.take(pa.array(range(len(rows))[::-1], pa.int64())), "a"
        ).outcome in {
            "known",
            "empty",
        }


@given(
    st.lists(st.binary(max_size=40), max_size=30),
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.data(),
)
def test_the_hash_of_a_text_is_its_polynomial(texts: list[bytes], kind: pa.DataType, data: Any) -> None:
    first = data.draw(st.integers(0, len(texts)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_BYTES_PER_CHUNK", 60)  # several texts
        found = text_hashes(pa.array(texts, kind)[first:]).tolist()
    base = int(PRIME)
    assert found == [
        (len(text) * base + sum(byte * pow(base, i, 2**64) for i, byte in enumerate(text))) % 2**64
        for text in texts[first:]
    ]


def check_dictionaries() -> None:
    for values in (["a", None, "", "b", "a"], [None, None], [], ["b"]):
        for kind in (pa.string(), pa.binary()):
            plain = pa.array(values, kind)
            unused = pa.array(["x", *sorted({one for one in values if one is not None}), "y"], kind)
            places = [None if one is None else unused.to_pylist().index(one_of(one, kind)) for one in values]
            with_unused = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), unused)
            rows = [
                pa.RecordBatch.from_arrays([one], ["k"])
                for one in (plain, plain.dictionary_encode(), with_unused)
            ]
            assert len({fingerprint(one) for one in rows}) == 1, values


def one_of(text: str, kind: pa.DataType) -> Any:
    return text if kind == pa.string() else text.encode()


def test_a_dictionary_has_the_digest_of_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """And hashes that are not in the order of the indices are caught."""
    check_dictionaries()
    usual = digests._coded_hashes
    monkeypatch.setattr(digests, "_coded_hashes", lambda *given: np.sort(usual(*given)))
    with pytest.raises(AssertionError):
        check_dictionaries()


UNDER_NULL = {
    "list": pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, True])
    ),
    "struct": pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array(["a", "b"])], ["a", "b"], mask=pa.array([True, True])
    ),
}


@pytest.mark.parametrize("column", UNDER_NULL.values(), ids=UNDER_NULL)
def test_a_nested_column_of_nulls_has_the_digest_of_its_values(column: pa.Array) -> None:
    """It is computed once for each type and length, whatever lies under a NULL, and in any chunks."""
    found = digests._digest_of(column)
    assert digests.column_digest(column) == found
    assert digests.column_digest(pa.chunked_array([column.slice(0, 1), column.slice(1)])) == found
    longer = pa.concat_arrays([column, column])
    assert digests.column_digest(longer) == digests._digest_of(longer) != found
