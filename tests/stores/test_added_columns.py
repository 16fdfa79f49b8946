"""In a store: columns that a batch brings, that get wider types, and other names; open readers see it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.stores.conftest import Place
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import InputError

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


def test_columns_get_other_names(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["x"], key="k", groups=["k"], schema=OLD.schema, **how)
    warehouse.load(None, place.uri, OLD, "monday", **how)
    stream.append(None, place.uri, OLD, source="s", batch=0, **how)
    reader = query.open(place.uri, **how)
    assert reader.quantile(1, "x").N == 4
    for names in ({"x": "y"}, {"k": "x"}):
        for outcome in ("altered", "known"):  # a scheduler repeats a call
            assert warehouse.alter(None, place.uri, rename=names, **how).outcome == outcome
    new = pa.table({"y": pa.array([3, 4], pa.int32()), "x": ["a", "c"]})
    assert warehouse.load(None, place.uri, new, "tuesday", **how).outcome == "loaded"
    with pytest.raises(InputError, match="the measure column 'y' is missing"):
        warehouse.load(None, place.uri, OLD, "wednesday", **how)
    given = pa.table({"y": pa.array([7], pa.int32()), "x": ["c"]})
    assert warehouse.correct(None, place.uri, given, batch="fix", on=["x"], **how).rows == 1
    assert warehouse.delete(None, place.uri, "x = 'b' AND y = 2", **how).rows == 2
    for wh in (reader, query.open(place.uri, **how)):
        assert [one.value for one in wh.quantile([0, 1], "y", mode="exact")] == [1, 7]
        assert [(one.group, one.N) for one in wh.quantile(1, by="x")] == [({"x": "a"}, 3), ({"x": "c"}, 1)]
        assert wh.frequency("a").hi == 3
        assert wh.sql("SELECT y, x FROM events ORDER BY ALL").fetchall() == [
            (1, "a"),
            (1, "a"),
            (3, "a"),
            (7, "c"),
        ]
    assert warehouse.verify(place.uri, **how).ok
