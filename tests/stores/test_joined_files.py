"""An index in a store knows where its rows are in files that were joined."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.stores.conftest import Place
from tidemark import query, warehouse
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates


def test_an_index_finds_its_rows_in_joined_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    how: dict[str, Any] = {"storage_options": place.options}
    rows = pa.table({"n": range(90), "k": [f"k{one % 30}" for one in range(90)]})
    warehouse.create(None, place.uri, ["n"], index=["k"], schema=rows.schema, **how)
    for load in range(3):
        warehouse.load(None, place.uri, rows.slice(30 * load, 30), f"load {load}", **how)
    assert "events" in warehouse.maintain(None, place.uri, grace="0 s", **how).compacted
    wh, statement = query.open(place.uri, place.options), "SELECT n FROM events WHERE k = 'k7' ORDER BY n"
    assert wh.sql(statement).fetchall() == [(7,), (37,), (67,)]
    (found,) = wh.explain(statement).parts
    assert (found.way, found.files, found.rows_left) == ("index", 1, 3)
