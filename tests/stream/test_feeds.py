"""Change feeds as streams: each batch is a correction, once, whatever is repeated, killed or lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.killing import Killed, killer
from tests.warehouse.disk import files_of
from tidemark import query, stream, warehouse
from tidemark.jobs import stream_events
from tidemark.jobs.cli.main import main
from tidemark.stream.feeds import FeedCorrections, newest_correction
from tidemark.warehouse import InputError
from tidemark.warehouse.correct import correct
from tidemark.warehouse.delta.store import Store

SCHEMA = "id bigint, name string, amount double"
FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
Row = tuple[int, str, float]


def create(uri: Path) -> Path:
    warehouse.create(None, uri, ["amount"], key="name", eps=0.1, schema=FIELDS)
    return uri


def image(row: Row) -> dict[str, Any]:
    return dict(zip(FIELDS.names, row, strict=True))


def change(before: Row | None, after: Row | None) -> str:
    """As Debezium writes it."""
    op = "c" if before is None else "d" if after is None else "u"
    one = {"op": op, "before": before and image(before), "after": after and image(after), "ts_ms": 1}
    return json.dumps({"schema": {}, "payload": one} if op == "u" else one)


def stored(uri: Path) -> list[Row]:
    return sorted(query.open(uri).sql("SELECT id, name, amount FROM events").fetchall())


def check(uri: Path, rows: list[Row]) -> None:
    """Scans, ranks and counts are those of the rows, and verify holds."""
    wh = query.open(uri)
    assert stored(uri) == sorted(rows)
    amounts = sorted(row[2] for row in rows)
    assert [one.value for one in wh.quantile([0, 0.5, 1], mode="exact")] == [
        amounts[0],
        amounts[(len(amounts) - 1) // 2],
        amounts[-1],
    ]
    for name in {row[1] for row in rows}:
        assert wh.frequency(name, mode="exact").count == sum(row[1] == name for row in rows)
    assert warehouse.verify(uri).ok


class Feed:
    """A folder that files of changes come into, and a stream that takes them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.uri, self.incoming = spark, create(folder / "w"), folder / "incoming"
        self.checkpoint = folder / "checkpoint"
        self.incoming.mkdir()
        self.files = 0

    def bring(self, *records: str) -> None:
        self.files += 1
        hidden = self.incoming / f".{self.files}"
        hidden.write_text("\n".join(records) + "\n")
        hidden.rename(self.incoming / f"{self.files}.json")

    def run(self, **options: Any) -> list[stream.BatchReport]:
        """Takes what is there, a file a batch, and ends."""
        text = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.incoming))
        records = text.selectExpr("value", "_metadata.file_name AS position")
        frame = stream.parse_changes(records, warehouse.open_snapshot(self.uri).options)
        reports: list[stream.BatchReport] = []
        given = {"source": "orders", "checkpoint": self.checkpoint, "progress": reports.append, **options}
        running = stream.start(frame, self.uri, trigger="available now", changes=True, **given)
        running.awaitTermination()
        return reports


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


ANN, BOB, EVE, ZOE = (1, "ann", 10.0), (2, "bob", 20.0), (3, "eve", 30.0), (4, "zoe", 40.0)


def test_each_batch_of_changes_is_a_correction_once(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.bring(*(change(None, row) for row in (ANN, BOB, EVE)))
    feed.bring(change(BOB, (2, "bob", 25.0)), "", change(EVE, None), change(None, ZOE), change(ZOE, None))
    found = [(one.batch, one.rows, one.removed, one.rejected) for one in feed.run()]
    assert found == [(0, 3, 0, 0), (1, 1, 2, 0)]
    check(feed.uri, [ANN, (2, "bob", 25.0)])
    assert newest_correction(Store.from_uri(feed.uri), "orders") == 1
    (step,) = (one for one in warehouse.history(feed.uri) if one.batches[0][0] == "load:orders/1")
    assert step.rows_in == 1
    feed.bring(change((2, "bob", 25.0), (2, "bo", 25.0)))

    def stopped(self: FeedCorrections, rows: Any, number: int) -> Any:
        """The process ends after the removal is planned; Spark repeats the batch."""
        with pytest.raises(Killed):
            correct(
                self.spark,
                self.uri,
                batch=f"orders/{number}",
                changes=rows,
                progress=killer("removal planned"),
            )
        raise InputError("it ended here")

    with monkeypatch.context() as broken:
        broken.setattr(FeedCorrections, "correct", stopped)
        with pytest.raises(StreamingQueryException, match="it ended here"):
            feed.run()
    assert [(one.batch, one.rows, one.removed) for one in feed.run()] == [(2, 1, 1)]
    check(feed.uri, [ANN, (2, "bo", 25.0)])

    shutil.rmtree(feed.checkpoint / "commits")  # Spark does not know that the last batch was done
    assert feed.run()[-1].removed == 1
    check(feed.uri, [ANN, (2, "bo", 25.0)])
    shutil.rmtree(feed.checkpoint)
    with pytest.raises(InputError, match=r"up to 2, the checkpoint .* is new"):
        feed.run()


def test_a_name_that_does_not_tell_batches_apart_is_caught(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: all batches have one name."""
    monkeypatch.setattr(
        FeedCorrections,
        "correct",
        lambda self, rows, _: correct(self.spark, self.uri, batch="orders/0", changes=rows),
    )
    feed.bring(change(None, ANN))
    feed.bring(change(None, BOB))
    with pytest.raises(StreamingQueryException, match="BatchMismatch"):
        feed.run()


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (change(ZOE, None), "are not in the warehouse"),
        ('{"op": "x"}', "the record at 2.json must be a JSON object with op"),
        (
            '{"op": "d", "before": {"id": 1}, "after": null}',
            "'before' in the record at 2.json must have the col",
        ),
    ],
)
def test_a_change_that_cannot_be_made_stops_the_stream(feed: Feed, record: str, error: str) -> None:
    feed.bring(change(None, ANN))
    feed.bring(change(None, BOB), record)
    with pytest.raises(StreamingQueryException, match=error):
        feed.run()
    check(feed.uri, [ANN])
    if "not in" in error:
        assert [one.rows for one in feed.run(missing="insert")] == [1]
        check(feed.uri, [ANN, BOB])


def test_what_does_not_go_with_changes_is_refused(feed: Feed) -> None:
    feed.bring(change(None, ANN))
    before = files_of(feed.uri)
    for options, error in (
        ({"evolve": True}, "changes are all made"),
        ({"max_rejected_fraction": 0.5}, "changes are all made"),
        ({"missing": "ignore"}, "missing must be 'error'"),
    ):
        with pytest.raises(InputError, match=error):
            feed.run(**options)
    rows = feed.spark.readStream.schema(SCHEMA).json(str(feed.incoming))
    with pytest.raises(InputError, match="a change feed has the columns id, name, amount and _change_type"):
        stream.start(rows, feed.uri, source="s", checkpoint=feed.checkpoint, changes=True)
    with pytest.raises(InputError, match="or 'insert' with changes=True"):
        stream.start(rows, feed.uri, source="s", checkpoint=feed.checkpoint, missing="insert")
    assert files_of(feed.uri) == before


def test_the_change_feed_of_a_delta_table_streams_in(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rows first, then every update, delete and merge, whatever is restarted between."""
    uri, table = create(tmp_path / "w"), f"delta.`{tmp_path / 'orders'}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, name STRING, amount DOUBLE) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )

    def run() -> str:
        given = ["--warehouse", str(uri), "--source", "delta", "--path", str(tmp_path / "orders"), "--once"]
        assert stream_events.main([*given, "--changes"]) == 0
        return capsys.readouterr().out

    def truth() -> list[Row]:
        return sorted(tuple(row) for row in spark.sql(f"SELECT * FROM {table}").collect())

    spark.sql(f"INSERT INTO {table} VALUES (1, 'ann', 10), (2, 'bob', 20), (3, 'eve', 30), (3, 'eve', 30)")
    assert "batch 0: 4 rows added, 0 removed" in run()
    check(uri, truth())
    spark.sql(f"UPDATE {table} SET amount = amount + 1 WHERE id < 3")
    spark.sql(f"UPDATE {table} SET name = 'bo' WHERE id = 2")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    run()
    check(uri, truth())
    spark.sql(
        f"MERGE INTO {table} t USING "
        "(SELECT 1 AS id, 'ann' AS name, 7D AS amount UNION ALL SELECT 9, 'new', 9D) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    run()
    check(uri, truth())


def test_a_load_takes_a_change_feed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri, lines = create(tmp_path / "w"), tmp_path / "feed.jsonl"
    warehouse.load(None, uri, pa.Table.from_pylist([image(ANN), image(BOB)], schema=FIELDS), "monday")
    lines.write_text("\n".join([change(BOB, (2, "bob", 21.0)), change(None, EVE)]))
    given = ["load", "-w", str(uri), "--changes", str(lines)]
    assert main([*given, "--batch", "feed-1"]) == 0
    assert "removed 1 row of 1 batch, 2 rows came in their place" in capsys.readouterr().out
    check(uri, [ANN, (2, "bob", 21.0), EVE])
    assert main([*given, "--batch", "feed-1"]) == 0
    assert "was done before" in capsys.readouterr().out
    assert main([*given, "--batch", "feed-2"]) == 2
    assert "are not in the warehouse" in capsys.readouterr().err
    assert main([*given, "--batch", "feed-2", "--missing", "insert"]) == 0
    for wrong in (
        given,
        [*given, "--batch", "x", "--evolve"],
        [*given, "--batch", "x", "--measure", "amount"],
    ):
        with pytest.raises(SystemExit):
            main(wrong)
    with pytest.raises(SystemExit):
        main(["load", "-w", str(uri), "--input", str(lines), "--batch", "x", "--missing", "insert"])
    assert warehouse.verify(uri).ok
