"""A driver of Spark that loads into private columns, streams, meets errors, and is killed in the end.

What Spark writes is not compressed, so that a search finds what it has.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.warehouse.private_world import CARDS, NAMES, SCHEMA
from tidemark import query, stream, warehouse
from tidemark.warehouse import Tuning
from tidemark.warehouse.errors import TidemarkError

TINY = Tuning(group_rows=64, block_rows=32, file_rows=(64, 256), slice_rows=256, sort_rows=128)
PLAIN = ("spark.eventLog", "spark.shuffle", "spark.shuffle.spill", "spark.broadcast", "spark.rdd")


def session(folder: Path) -> SparkSession:
    """A session that writes all that it writes below the folder."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder / "events of Spark"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder / 'java'}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "tables"),
        "spark.sql.session.timeZone": "UTC",
        **{f"{name}.compress": "false" for name in PLAIN},
    }
    for name in ("events of Spark", "local", "java"):
        (folder / name).mkdir()
    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def failed(call: Any) -> None:
    """Prints the error of a call, with its causes."""
    try:
        call()
    except TidemarkError:
        traceback.print_exc()
    else:
        raise AssertionError("it was not refused")


def main(uri: Path, given: Path, folder: Path) -> None:
    """Works with the warehouse; reads from the folder `given`, and writes below `folder` alone."""
    spark = session(folder)
    rows = spark.read.parquet(str(given / "rows.parquet"))
    warehouse.load(spark, uri, rows, "a", tuning=TINY)
    warehouse.load(spark, uri, rows, "b", tuning=TINY)
    warehouse.delete(spark, uri, keys=rows.where("id < 2").select("user", "id"))
    failed(lambda: warehouse.load(spark, uri, rows.selectExpr("user", "card", "delay", "id"), "c"))
    failed(lambda: warehouse.load(spark, uri, rows.selectExpr(*SHIFTED), "d"))
    failed(lambda: warehouse.load(spark, uri, rows.where("id < 5"), "a"))
    failed(lambda: query.register_views(spark, uri, "w"))
    of_plain(spark, rows, given)
    text = spark.readStream.format("text").load(str(given / "text")).selectExpr("value", "'p' AS position")
    records = stream.parse(text, warehouse.open_snapshot(uri).options, "json")
    how: dict[str, Any] = {"source": "s", "checkpoint": folder / "checkpoint", "trigger": "available now"}
    stream.start(records, uri, **how).awaitTermination()

    def killed(point: str) -> None:
        if point == "sorted":
            os.killpg(0, signal.SIGKILL)

    warehouse.load(spark, uri, progress=killed)


def of_plain(spark: SparkSession, rows: Any, given: Path) -> None:
    """The error of a warehouse without private columns, which shows a row, in the file `plain.txt`."""
    warehouse.create(None, given / "plain", ["delay"], key="user", time="time", schema=SCHEMA)
    try:
        warehouse.load(spark, given / "plain", rows.selectExpr(*SHIFTED), "d")
    except TidemarkError:
        (given / "plain.txt").write_text(traceback.format_exc())


SHIFTED = ["user", "card", "delay", "id", "time + INTERVAL 20000 DAY AS time"]


def texts(rows: Any) -> str:
    """Records of a stream; three of them cannot be taken."""
    bad = [
        {"user": NAMES[0], "card": f"x{CARDS[0]}", "delay": "much"},
        {"user": NAMES[1], "delay": 1, "time": "never"},
    ]
    good = rows.to_pylist()
    every = [json.dumps(one, default=str, ensure_ascii=False) for one in [*good, *bad]]
    return "\n".join([*every, f"{NAMES[3]}, 1"]) + "\n"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
