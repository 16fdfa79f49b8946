"""Warehouses that the tests of the command share: real flights, and a column of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.jobs.installed import Installed, install
from tidemark import stream, warehouse

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "docs" / "data" / "flights-20k.parquet"
MANY = 500


@pytest.fixture(scope="session")
def flights(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """January and February are loaded, March is live. Who changes it takes a copy."""
    uri = tmp_path_factory.mktemp("flights") / "w"
    rows = spark.read.parquet(str(FLIGHTS))
    how: dict[str, Any] = {"key": "origin", "time": "time", "eps": 0.01, "kappa": 3}
    warehouse.create(spark, uri, ["delay", "distance"], schema=rows, **how)
    for month in (1, 2):
        warehouse.load(spark, uri, rows.where(F.month("time") == month), batch=f"2001-{month:02}")
    stream.append(spark, uri, rows.where(F.month("time") == 3), source="web", batch=0)
    return uri


@pytest.fixture(scope="session")
def kinds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measure of each type, without a time column; `wild` has NaN and both infinities."""
    uri = tmp_path_factory.mktemp("kinds") / "w"
    schema = "whole bigint, part double, wild double, price decimal(9,2), day date, at timestamp"
    names = [column.split()[0] for column in schema.split(", ")]
    warehouse.create(spark, uri, names, eps=0.1, schema=schema)
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
    half = MANY // 2
    warehouse.load(spark, uri, spark.createDataFrame(rows[:half], schema), batch="half")
    stream.append(spark, uri, spark.createDataFrame(rows[half:], schema), source="s", batch=0)
    return uri


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a clean environment."""
    return install(tmp_path_factory.mktemp("installed"))
