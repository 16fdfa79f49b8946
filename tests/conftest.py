"""What all tests share: one Spark session and the settings of hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from pyspark.sql import SparkSession

from tests import java
from tidemark.jobs.spark.session import spark_session

java.set_options()

# The same examples in every run: a red build is red again at home, and a green one does not turn red by luck.
# `--hypothesis-profile=explore` draws new ones. A first call may start Spark or warm a cache, so a deadline
# for one example would measure that.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.register_profile("fast", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.load_profile("ci")


# Files that take minutes, longest first. They start first: no process is left alone with one at the end.
LONGEST = (
    "bench/test_bench_runs.py",
    "crash/test_kills.py",
    "crash/test_store.py",
    "stream/test_kafka.py",
    "docs/test_notebooks.py",
    "jobs/test_wheel.py",
    "test_whole.py",
    "crash/test_flips.py",
    "jobs/test_sql_attacks.py",
    "crash/test_races.py",
    "crash/test_readers.py",
    "query/test_sql_connect.py",
    "jobs/test_cluster.py",
    "compatibility/test_written_before.py",
    "jobs/test_demo.py",
)
TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts the longest files first, and marks what uses the session `spark`.

    Tests that start Spark in another way carry the mark themselves.
    """
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores and one session for all tests: to start Spark takes longer than most of them."""
    session = spark_session(
        "tidemark-tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
        },
    )
    yield session
    session.stop()
