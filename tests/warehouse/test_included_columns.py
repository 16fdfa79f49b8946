"""Columns that an index includes come back as `events` has them: of every type, with NULL, NaN and -0.0."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.projections import included_columns
from tidemark.warehouse.projections.included_columns import decode_included, encode_included

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


def round_trip(kinds: list[str]) -> dict[str, tuple[list[Any], list[Any]]]:
    """The first column is indexed and includes the others: by name, what was given and what comes back."""
    rows = max(len(VALUES[kind][1]) for kind in kinds)
    columns = {
        f"c{i}": pa.array(
            [VALUES[kind][1][row % len(VALUES[kind][1])] for row in range(rows)], VALUES[kind][0]
        )
        for i, kind in enumerate(kinds)
    }
    events, keys = pa.table(columns), [Key(f"c{i}", kind) for i, kind in enumerate(kinds)]
    *names, traits = encode_included(keys, events, np.arange(rows))
    assert isinstance(traits, np.ndarray)
    return {
        key.name: (columns[key.name].to_pylist(), decode_included(i, key, one, traits).to_pylist())
        for i, (key, one) in enumerate(zip(keys[1:], names, strict=True), 1)
    }


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_comes_back_as_it_was(kind: str) -> None:
    for given, found in round_trip(["long", "double", kind, "string"]).values():
        assert repr(found) == repr(given)


def test_the_most_columns_that_an_index_includes_have_traits_of_their_own() -> None:
    kinds = ["double", *[[*VALUES][i % len(VALUES)] for i in range(31)]]
    for given, found in round_trip(kinds).values():
        assert repr(found) == repr(given)


def test_a_column_that_a_file_lacks_is_null() -> None:
    events = pa.table({"a": pa.array([1, 2]), "b": pa.nulls(2), "c": pa.nulls(2)})
    keys = [Key("a", "long"), Key("b", "string"), Key("c", "decimal(10,2)")]
    *names, traits = encode_included(keys, events, np.arange(2))
    assert isinstance(traits, np.ndarray)
    for number in (1, 2):
        assert decode_included(number, keys[number], names[number - 1], traits).to_pylist() == [None, None]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_lost_sign_of_zero_is_caught(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(included_columns, "_negative_zero", lambda *given: np.zeros(len(given[2]), np.int64))
    ((given, found),) = round_trip(["long", kind]).values()
    assert repr(found) != repr(given)
