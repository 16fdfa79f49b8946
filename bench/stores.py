"""Part `stores`: a warehouse in an object store, against plain Delta tables in the same store.

The store is the S3 server of the tests (`tests/stores/server.py`), moto's behind a gate that adds latency and
counts requests. It runs on this machine and in one process, so it takes processor time from whoever is
measured; ratios of the same run count.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench import store_load, store_questions
from bench.report import Section
from tests.stores.server import running


def run(
    spark: SparkSession, work: Path, loads: store_load.Sizes, questions: store_questions.Sizes
) -> Section:
    """Measures and returns the section."""
    section = Section("stores", "Object stores: questions, loads and streams")
    with running() as server:
        store_questions.measure(server, section, questions)
        store_load.measure(spark, server, work / "stores", section, loads)
    return section
