"""Warehouses that the tests of the command share: real flights, and a column of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.jobs.installed import Installed, install
from tests.once import once
from tidemark import stream, warehouse

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"
MANY = 500


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """January and February are loaded, March is live. Who changes it takes a copy."""
    uri = tmp_path_factory.mktemp("flights") / "w"
    rows = pq.read_table(FLIGHTS)
    month = pc.month(rows["time"])
    how: dict[str, Any] = {"key": "origin", "time": "time", "eps": 0.01, "kappa": 3}
    warehouse.create(None, uri, ["delay", "distance"], schema=rows.schema, **how)
    for number in (1, 2):
        warehouse.load(None, uri, rows.filter(pc.equal(month, number)), batch=f"2001-{number:02}")
    stream.append(None, uri, rows.filter(pc.equal(month, 3)), source="web", batch=0)
    return uri


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measure of each type, without a time column; `wild` has NaN and both infinities."""
    uri = tmp_path_factory.mktemp("kinds") / "w"
    schema = pa.schema(
        [
            ("whole", pa.int64()),
            ("part", pa.float64()),
            ("wild", pa.float64()),
            ("price", pa.decimal128(9, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    warehouse.create(None, uri, schema.names, eps=0.1, schema=schema)
    ends = [float("-inf"), float("inf"), float("nan")]
    start = datetime(2001, 3, 1, tzinfo=UTC)
    rows = [
        (
            2**53 + 1 + i,
            i / 10,
            ends[i] if i < len(ends) else float(i),
            Decimal(i) / 100,
            date(2001, 1, 1) + timedelta(days=i),
            start + timedelta(minutes=i),
        )
        for i in range(MANY)
    ]
    columns = [pa.array(one, kind) for one, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    table = pa.table(columns, schema=schema)
    half = MANY // 2
    warehouse.load(None, uri, table.slice(0, half), batch="half")
    stream.append(None, uri, table.slice(half), source="s", batch=0)
    return uri


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a clean environment; nobody changes it."""
    return once(tmp_path_factory, "installed", install)
