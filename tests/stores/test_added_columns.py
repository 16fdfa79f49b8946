"""In a store: a batch brings columns, readers that are open see them, and columns get wider types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.stores.conftest import Place
from tidemark import query, stream, warehouse

OLD = pa.table({"x": pa.array([1, 2], pa.int32()), "k": ["a", "b"]})
NEW = pa.table({"x": pa.array([3, 4], pa.int32()), "k": ["a", "c"], "tip": [0.5, None]})


def test_columns_come_and_get_wider(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["x"], key="k", schema=OLD.schema, **how)
    warehouse.load(None, place.uri, OLD, "monday", **how)
    reader = query.open(place.uri, **how)
    assert reader.quantile(1).value == 2
    assert warehouse.load(None, place.uri, NEW, "tuesday", evolve=True, **how).added_columns == ["tip"]
    assert stream.append(None, place.uri, OLD, source="s", batch=0, **how)
    assert reader.quantile(1, where="tip IS NULL").N == 5
    rows = [(1, None), (1, None), (2, None), (2, None), (3, 0.5), (4, None)]
    assert reader.sql("SELECT x, tip FROM events ORDER BY x").fetchall() == rows
    warehouse.alter(None, place.uri, widen={"x": "bigint"}, add_measure="tip", **how)
    assert reader.quantile(1, "tip", mode="exact").nulls == 5
    great = pa.table({"x": [2**40], "k": ["a"]})
    assert warehouse.load(None, place.uri, great, "wednesday", **how).outcome == "loaded"
    assert reader.quantile(1, mode="exact").value == 2**40
    for name, batch in (("monday", OLD), ("tuesday", NEW), ("wednesday", great)):
        assert warehouse.load(None, place.uri, batch, name, **how).outcome == "known"
    assert warehouse.verify(place.uri, **how).ok
