"""A stream into private columns: neither tables nor checkpoints have a name, also not of refused records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.private_world import CARDS, NAMES, SCHEMA, rows, secret_in, traces
from tidemark import query, stream, warehouse
from tidemark.warehouse.private import secrets


def made(
    spark: SparkSession | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, Path]:
    """A warehouse with private columns, a folder for records that come, and the place of a checkpoint."""
    monkeypatch.setattr(secrets, "_known", {})
    monkeypatch.setattr(secrets, "_read", {})
    uri, incoming = folder / "w", folder / "incoming"
    warehouse.create(
        spark, uri, ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        secret_file=secret_in(folder / "secret"),
    )  # fmt: skip
    incoming.mkdir()
    return uri, incoming, folder / "checkpoint"


def test_no_file_of_a_stream_has_a_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, incoming, checkpoint = made(spark, tmp_path, monkeypatch)
    good = rows(0, 40).to_pylist()
    bad = [
        {"user": NAMES[0], "card": f"x{CARDS[0]}", "delay": "much"},
        {"user": NAMES[1], "delay": 1, "time": "never"},
    ]
    texts = [json.dumps(one, default=str, ensure_ascii=False) for one in [*good, *bad]] + [f"{NAMES[3]}, 1"]
    (incoming / "1.txt").write_text("\n".join(texts) + "\n")
    text = spark.readStream.format("text").load(str(incoming)).selectExpr("value", "'p' AS position")
    reports: list[stream.BatchReport] = []
    records = stream.parse(text, warehouse.open_snapshot(uri).options, "json")
    how: dict[str, Any] = {
        "source": "s",
        "checkpoint": checkpoint,
        "trigger": "available now",
        "progress": reports.append,
    }
    stream.start(records, uri, **how).awaitTermination()
    assert [(one.rows, one.rejected) for one in reports] == [(40, 3)]
    assert traces(uri, []) == traces(checkpoint, []) == []
    kept = spark.read.format("delta").load(str(uri / "rejected")).collect()
    assert [row.raw for row in kept] == [None] * 3
    assert all(row.reason and row.position == "p" for row in kept)
    users = [one["user"] for one in good]
    assert query.open(uri).frequency(NAMES[1], mode="exact").count == users.count(NAMES[1])


def test_a_stream_of_changes_has_no_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, incoming, checkpoint = made(None, tmp_path, monkeypatch)
    warehouse.load(None, uri, rows(0, 10), "a")
    one, new = rows(1, 1).to_pylist()[0], rows(50, 1).to_pylist()[0]
    changes = [{"op": "d", "before": one, "after": None}, {"op": "c", "before": None, "after": new}]
    texts = [json.dumps(change, default=str, ensure_ascii=False) for change in changes]
    (incoming / "1.txt").write_text("\n".join(texts))
    text = spark.readStream.format("text").load(str(incoming)).selectExpr("value", "'p' AS position")
    frame = stream.parse_changes(text, warehouse.open_snapshot(uri).options)
    how: dict[str, Any] = {"source": "s", "checkpoint": checkpoint, "trigger": "available now"}
    stream.start(frame, uri, changes=True, **how).awaitTermination()
    left = [*rows(0, 1)["user"].to_pylist(), *rows(2, 8)["user"].to_pylist(), new["user"]]
    wh = query.open(uri)
    assert [wh.frequency(name, mode="exact").count for name in NAMES] == [left.count(name) for name in NAMES]
    assert traces(uri, []) == traces(checkpoint, []) == []
