"""Part `sql`: how long a quantile takes in Spark's SQL, against percentile_approx over the same table."""

from __future__ import annotations

import shutil
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.data import Oracle
from bench.latency import MS, Filled, Sizes, fill, timed
from bench.report import Section, say
from tidemark import query

ASKED = "SELECT * FROM bench_quantile(0.99D)"


def run(spark: SparkSession, work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("sql", "SQL: a quantile by Spark and by DuckDB")
    folder = work / "sql"
    made = fill(spark, folder, "lognormal", sizes.rows, sizes)
    query.register_views(spark, made.uri, "bench")
    wh = query.open(made.uri)
    in_duck = partial(_rows_of_duck, wh)
    in_spark = partial(_rows, spark, ASKED)
    approx = partial(_rows, spark, "SELECT percentile_approx(value, 0.99D) AS value FROM bench_table")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW bench_table AS SELECT * FROM delta.`{made.uri}/events`")
    _assert_answers(made, in_spark()[0], in_duck()[0], spark)
    say("  answers of SQL are right")
    times: dict[str, list[float]] = {"spark": [], "duck": [], "approx": []}
    for turn in range(sizes.questions):
        times["spark"].append(timed(in_spark)[0])
        times["duck"].append(timed(in_duck)[0])
        if turn % 10 == 0:
            times["approx"].append(timed(approx)[0])
    median = {name: statistics.median(taken) * MS for name, taken in times.items()}
    section.add(f"`{ASKED}` in Spark, median", median["spark"], "ms", 300)
    section.add("the same, p90", statistics.quantiles(times["spark"], n=10)[-1] * MS, "ms")
    section.add("`wh.sql` (DuckDB) of a quantile, median", median["duck"], "ms")
    section.add("percentile_approx / the quantile, in Spark", median["approx"] / median["spark"], "x")
    section.text(
        f"{made.rows:,} rows in {sizes.runs} runs, and a live side of {sizes.live_batches} batches; warm, "
        f"collected, {sizes.questions} times in turn. percentile_approx reads the table `events`, at its "
        f"default accuracy: {median['approx']:,.0f} ms."
    )
    shutil.rmtree(folder)
    return section


def _rows(spark: SparkSession, text: str) -> Any:
    return spark.sql(text).collect()


def _rows_of_duck(wh: query.Warehouse) -> Any:
    return wh.sql("SELECT value, low, high FROM quantile(0.99)").fetchall()


def _assert_answers(made: Filled, row: Any, in_duck: tuple[float, ...], spark: SparkSession) -> None:
    truth = Oracle.of([*made.history, *made.live])
    assert row.n + row.m == made.rows
    assert row.low <= truth.quantile(0.99) <= row.high, row
    assert truth.error(0.99, row.value) <= row.error_bound <= row.eps * row.m, row
    assert in_duck == (row.value, row.low, row.high)
    assert spark.sql("SELECT count(*) FROM bench_events").collect()[0][0] == made.rows
