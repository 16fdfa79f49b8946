"""Indexes of a warehouse in a store: merged runs give the rows and the values that a scan gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.indexworld import SCHEMA, TINY, values
from tests.stores.conftest import Place
from tidemark import query, warehouse
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates

ASKED = {  # by whether one index has all columns
    "SELECT x, f, n, m, k FROM events WHERE k >= 'a' AND k < 'v'": True,
    "SELECT x, d FROM events WHERE d BETWEEN '2024-01-10' AND '2024-01-20'": False,
    "SELECT n, s FROM events WHERE k IN ('a', 'é') AND d > '2024-01-05'": False,
}


def test_indexes_give_the_rows_of_a_scan(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    draw = random.Random(1)
    how: dict[str, Any] = {"storage_options": place.options}
    index: list[Any] = [{"on": "k", "include": ["x", "f", "n", "m"]}, "d"]
    warehouse.create(None, place.uri, ["x"], index=index, schema=SCHEMA, time="t", kappa=2, **how)
    tables = []
    for number in range(3):
        tables.append(pa.Table.from_pylist([values(draw) for _ in range(60)], SCHEMA))
        warehouse.load(None, place.uri, tables[-1], f"b{number}", tuning=TINY, **how)
    warehouse.delete(None, place.uri, "k = 'ab'", tuning=TINY, **how)
    kept, oracle = pa.concat_tables(tables), duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'")
    oracle.register("events", kept)
    wh = query.open(place.uri, place.options, cache=tmp_path / "cache")
    for asked, is_covered in ASKED.items():
        expected = oracle.sql(f"{asked} AND k IS DISTINCT FROM 'ab'").fetchall()
        assert sorted(map(repr, wh.sql(asked).fetchall())) == sorted(map(repr, expected)) != []
        (plan,) = wh.explain(asked).parts
        assert (plan.way, plan.is_covered) == ("index", is_covered), asked
    report = warehouse.verify(place.uri, **how)
    assert report.ok, str(report)

    def read_again(last: str) -> set[str]:
        """The tables whose files a statement reads whose row groups are kept, while nothing else is."""
        wh.store.far_files.forget()
        place.server.set()
        assert wh.sql(f"SELECT x, f, n, m, k FROM events WHERE k > 'a' AND k < '{last}'").fetchall()
        paths = [one.path.split("/flights/")[1] for one in place.server.requests()]
        return {path.partition("/")[0] for path in paths if "_delta_log" not in path}

    assert "index_runs" not in read_again("u")
    monkeypatch.setattr(BlockReader, "_not_kept", lambda *given: given[-1])  # the broken variant
    assert "index_runs" in read_again("t")
