"""Columns that an index includes come back as `events` has them: of every type, with NULL, NaN and -0.0."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.warehouse.columns.keys import Key, stored_keys
from tidemark.warehouse.integrity.digests import columns_by_name
from tidemark.warehouse.projections.included_columns import decoded_column, read_column, stored_column

NAN, DAY = float("nan"), dt.date
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-128, 127, None, 0]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "integer": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1, None, 0]),
    "float": (pa.float32(), [0.1, -0.0, 0.0, NAN, None, float("-inf"), 1e-45]),
    "double": (pa.float64(), [0.1, -0.0, 0.0, NAN, None, float("inf"), 5e-324, -1e308]),
    "string": (pa.string(), ["", "é", None, "a" * 70, "\0"]),
    "binary": (pa.binary(), [b"", b"\xff\0", None]),
    "date": (pa.date32(), [DAY(1, 1, 1), DAY(9999, 12, 31), None, DAY(1970, 1, 1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), None],
    ),
    "decimal(10,2)": (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("99999999.99"), None]),
    "decimal(18,0)": (pa.decimal128(18, 0), [Decimal(-(10**18) + 1), Decimal(10**18 - 1), None]),
}


def column_of(kind: str) -> pa.Array:
    arrow_type, values = VALUES[kind]
    return pa.array(values, arrow_type)


def round_trip(kind: str, array: pa.Array) -> pa.Array:
    """What comes back of a column, through a Parquet file as runs have it."""
    key = Key("c", kind)
    stored = stored_column(key, array)
    in_file = stored_keys(key, stored) if key.is_text else stored
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": in_file.cast(key.stored_type)}), buffer, store_schema=False)
    (read,) = columns_by_name(pq.read_table(pa.BufferReader(buffer.getvalue()))).values()
    return decoded_column(key, read_column(key, read))


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_comes_back_as_it_was(kind: str) -> None:
    array = column_of(kind)
    coded = [array.dictionary_encode()] if Key("c", kind).is_text else []
    for given in (array, array.drop_null(), array.slice(1), array[:0], *coded):
        assert repr(round_trip(kind, given).to_pylist()) == repr(given.to_pylist())


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_that_a_file_lacks_is_null(kind: str) -> None:
    assert round_trip(kind, pa.nulls(2)).to_pylist() == [None, None]


@pytest.mark.parametrize("kind", ["integer", "float", "decimal(10,2)"])
def test_a_column_comes_back_in_the_type_that_it_has_now(kind: str) -> None:
    wider = {"integer": "long", "float": "double", "decimal(10,2)": "decimal(12,2)"}[kind]
    stored = stored_column(Key("c", kind), column_of(kind))
    found = decoded_column(Key("c", wider), stored)
    assert found.to_pylist() == pytest.approx(column_of(kind).to_pylist(), nan_ok=True)
    assert found.type == VALUES.get(wider, (pa.decimal128(12, 2),))[0]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_lost_sign_of_zero_is_caught(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def encoded(key: Key, array: pa.Array) -> pa.Array:
        return pa.array(key.column_type.encode(array), mask=array.is_null().to_numpy(zero_copy_only=False))

    monkeypatch.setitem(globals(), "stored_column", encoded)
    with pytest.raises(AssertionError):
        test_a_column_comes_back_as_it_was(kind)
