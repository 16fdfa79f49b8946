"""The second newest version of Spark passes tests of views, functions, types and streams.

`make test` runs all tests with the newest one, and `make matrix` those of Spark with every version.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import versions
from tidemark import query, stream, warehouse
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution import spark_versions

pytestmark = pytest.mark.spark

CHOSEN = ("query/test_sql_types.py", "jobs/test_stream_events.py")


def test_views_functions_streams_and_jobs_with_the_second_newest_spark() -> None:
    version = next(iter(versions.PINS))
    done = versions.tests(version, *[f"tests/{name}" for name in CHOSEN])
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["3.5.8", "3.5.5-amzn-1", "3.4"])
def test_an_older_spark_is_refused_with_the_versions_that_work(version: str) -> None:
    with pytest.raises(InputError, match=f"Spark 4.0, 4.1 or 4.2; this is Spark {version}."):
        spark_versions.check_version(version)


def test_the_sql_server_refuses_a_spark_that_has_not_what_its_rules_need() -> None:
    for version in ("4.0.5", "4.1.4"):
        with pytest.raises(InputError, match=rf"Spark 4\.2; this is Spark {version}\. .*register_views"):
            spark_versions.check_version_of_server(version)
    spark_versions.check_version_of_server("4.2.0")


@pytest.mark.parametrize("version", ["4.0.0", "4.0.1-amzn-0", "4.2.1", "4.3.0", "5.0.0", "unknown"])
def test_these_and_newer_ones_are_taken(version: str) -> None:
    spark_versions.check_version(version)


def test_every_call_that_uses_spark_refuses_an_older_one_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "w"
    rows = spark.createDataFrame([(1.0,)], "x double")
    warehouse.create(spark, uri, ["x"], schema=rows)
    before = query.open(uri).info()
    monkeypatch.setattr(spark, "version", "3.5.8")
    calls: list[Callable[[], object]] = [
        lambda: warehouse.load(spark, uri, rows, "1"),
        lambda: warehouse.maintain(spark, uri),
        lambda: warehouse.alter(spark, uri, add_key="x"),
        lambda: stream.append(spark, uri, rows, source="s", batch=0),
        lambda: query.register_views(spark, uri),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"this is Spark 3\.5\.8\. Nothing was changed"):
            call()
    assert query.open(uri).info() == before
