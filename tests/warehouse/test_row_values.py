"""Rows that are named by values: selected if they are equal, and only then."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.removals import row_values
from tidemark.warehouse.removals.row_values import RowValues

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int32()),
        ("value", pa.float64()),
        ("price", pa.decimal128(30, 2)),
        ("items", pa.list_(pa.int64())),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b", "\x00", None]),
        st.sampled_from([0, 1, -(2**31), None]),
        st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None]),
        st.sampled_from([Decimal("1.00"), Decimal("-999999999999999999999999.99"), None]),
        st.sampled_from([[], [1], [1, 2], [None], None]),
    ),
    max_size=12,
)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(SCHEMA.types)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def plain(row: tuple[Any, ...]) -> tuple[str, ...]:
    """What is equal has one form: NaN is NaN, -0.0 is 0.0."""
    return tuple(repr(one + 0.0 if isinstance(one, float) else one) for one in row)


@given(ROWS, ROWS, st.booleans())
def test_a_row_is_selected_if_it_equals_a_given_one(wanted: Any, rows: Any, nulls_match: bool) -> None:
    values = RowValues.of(batch(wanted), nulls_match=nulls_match)
    known = {plain(row) for row in wanted if nulls_match or None not in row}
    places = values.places(pa.Table.from_batches([batch(rows)]))
    assert list(places >= 0) == [plain(row) in known for row in rows]
    assert values.rows.num_rows == len(known)
    found = values.rows.to_pylist()
    for row, place in zip(rows, places.tolist(), strict=True):
        assert place < 0 or plain(tuple(found[place].values())) == plain(row)


def test_rows_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_values, "row_hashes", lambda rows: np.zeros(rows.num_rows, np.uint64))
    wanted: list[tuple[Any, ...]] = [
        ("a", 1, 1.5, None, []),
        ("b", 1, 1.5, None, []),
        ("a", 1, 1.5, None, []),
    ]
    values = RowValues.of(batch(wanted), nulls_match=True)
    places = values.places(pa.Table.from_batches([batch([*wanted, ("c", 1, 1.5, None, [])])]))
    assert places.tolist() == [0, 1, 0, -1]
    by_hash_alone = values.hashes.searchsorted(np.zeros(4, np.uint64))  # the broken variant
    assert by_hash_alone.tolist() != places.tolist()


def test_null_is_no_key_and_columns_come_in_any_order() -> None:
    keys = pa.RecordBatch.from_pylist([{"number": 1}, {"number": None}], pa.schema([("number", pa.int32())]))
    values = RowValues.of(keys, nulls_match=False)
    rows = batch([("a", 1, None, None, None), ("a", None, None, None, None), ("a", 2, 1.0, None, None)])
    assert values.mask(pa.Table.from_batches([rows])).tolist() == [True, False, False]
    assert values.columns == ("number",)
