"""Renamed columns in Spark: its views, and batches that it brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.query.tally import Tally
from tests.warehouse.renamed_world import OLD, before, pair_in, rename, rows_of
from tidemark import query, warehouse
from tidemark.warehouse.companions import kinds


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    warehouse.register_companion(Tally())
    yield
    kinds._REGISTERED.pop("tally", None)


def test_sparks_views_and_batches_have_the_new_names(spark: SparkSession, tmp_path: Path) -> None:
    """Views that Spark scans itself, and those that its tasks read; old views keep the old names."""
    pair, kept = pair_in(tmp_path), tmp_path / "kept"
    before(kept, OLD)
    query.register_views(spark, kept, "kept")
    query.register_views(spark, kept, "at", at=0)
    old = "SELECT v, k, g, x, o FROM {}_events ORDER BY o"
    before_it = {name: spark.sql(old.format(name)).collect() for name in ("kept", "at")}
    rename(kept)
    for one in pair:
        frame = spark.createDataFrame(rows_of(7))
        assert warehouse.load(spark, one, frame, "frame").outcome == "loaded"
        query.register_views(spark, one, one.name)
        query.register_views(spark, one, f"{one.name}_at", at=1)
    for name, told in before_it.items():
        assert spark.sql(old.format(name)).collect() == told
    for view in ("events", "live", "at_events"):
        asked = f"SELECT value, x, v, `when`, k, `order`, _batch FROM {{}}_{view} ORDER BY ALL"
        found, expected = (spark.sql(asked.format(one.name)).collect() for one in pair)
        assert found == expected != []
    asked = "SELECT * EXCEPT (as_of) FROM {}_value_quantile(0.5)"
    assert spark.sql(asked.format("renamed")).collect() == spark.sql(asked.format("twin")).collect()
