"""What the strict reader of text costs in Spark's tasks, against Spark's own reader of the same files."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import year
from bench.report import Section, say, table
from bench.turns import turns_of
from tidemark.jobs.inputs.spark_text import open_text

_FILES = 4
SCHEMA = pa.schema(
    [("time", pa.timestamp("us", "UTC")), ("value", pa.float64()), ("key", pa.int64()), ("name", pa.string())]
)


def measure(spark: SparkSession, folder: Path, section: Section, rows: int, repeats: int) -> None:
    """Adds the figures to the section."""
    say(f"load: text of {rows:,} rows, {repeats} times in turn with Spark's own reader")
    lines = []
    for form in ("csv", "json"):
        paths = _write(folder / form, form, rows)
        readers: dict[str, Callable[[], DataFrame]] = {
            "spark": partial(_by_spark, spark, paths, form),
            "strict": partial(_strictly, spark, paths, form),
        }
        seconds: list[list[float]] = []
        for turn in turns_of(repeats):
            taken, answers = zip(*(_timed(read) for read in readers.values()), strict=True)
            assert answers[0] == answers[1], answers
            assert answers[0][0] == rows
            if turn >= 0:
                seconds.append(list(taken))
        ratio = statistics.median(strict / plain for plain, strict in seconds)
        size = f"{rows / 1e6:g} M rows"
        section.add(f"strict {form.upper()} / Spark's own reader, {size}", ratio, "x")
        megabytes = sum(Path(path).stat().st_size for path in paths) / 1e6
        medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
        lines.append([form, f"{megabytes:.0f}", *(f"{one:.2f}" for one in medians)])
        say(f"  {form}: Spark {medians[0]:.2f} s, strict {medians[1]:.2f} s")
        shutil.rmtree(folder / form)
    head = ["form", "MB", "Spark's own reader (s)", "the strict reader in Spark's tasks (s)"]
    section.text(f"Reading text of {rows / 1e6:g} M rows (time, value, key, name):\n\n" + table(head, lines))


def _timed(read: Callable[[], DataFrame]) -> tuple[float, tuple[Any, ...]]:
    """The seconds to read all columns of all rows, and their number and digest."""
    began = time.perf_counter()
    found = read().agg(F.count("*"), F.expr("bit_xor(xxhash64(time, value, key, name))")).first()
    return time.perf_counter() - began, tuple(found or ())


def _strictly(spark: SparkSession, paths: list[str], form: str) -> DataFrame:
    return open_text(spark, paths, form).rows(SCHEMA)


def _by_spark(spark: SparkSession, paths: list[str], form: str) -> DataFrame:
    reader = spark.read.schema("time timestamp, value double, key bigint, name string")
    return reader.option("header", True).csv(paths) if form == "csv" else reader.json(paths)


def _write(folder: Path, form: str, rows: int) -> list[str]:
    """The rows as files of the form, as pyarrow and Python write them."""
    part = year("lognormal", rows, 1, days=30, mixed=True)[0]
    part.write(folder / "parquet", files=_FILES)
    paths = []
    for number in range(_FILES):
        found = pq.read_table(folder / "parquet" / f"{number}.parquet")
        names = pa.array([f"name {key}" for key in found["key"].to_pylist()])
        path = folder / f"{number}.{form}"
        if form == "csv":
            pa_csv.write_csv(found.append_column("name", names), path)
        else:
            times = found["time"].cast(pa.timestamp("us")).cast(pa.string())
            plain = found.set_column(0, "time", times).append_column("name", names)
            path.write_text("".join(f"{json.dumps(row)}\n" for row in plain.to_pylist()))
        paths.append(str(path))
    shutil.rmtree(folder / "parquet")
    return paths
