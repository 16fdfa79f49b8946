"""A stream, batch after batch: counted once, rejected with a reason, never numbered anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tidemark import query, stream, warehouse
from tidemark.warehouse import InputError, StoreUnavailable
from tidemark.warehouse.execution.hadoop import report_checkpoint

SCHEMA = "at timestamp, value double, name string"
NOW = datetime.now(UTC).replace(microsecond=0)


def event(value: Any, at: datetime = NOW, name: str = "a") -> str:
    return json.dumps({"at": at.isoformat(), "value": value, "name": name})


class Stage:
    """A warehouse, and a folder that files of records come into."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.uri, self.folder = spark, folder / "w", folder
        self.incoming, self.checkpoint = folder / "incoming", folder / "checkpoint"
        self.incoming.mkdir()
        warehouse.create(spark, self.uri, ["value"], time="at", key="name", eps=0.1, schema=SCHEMA)
        self.files = 0

    def bring(self, *records: str) -> None:
        self.files += 1
        hidden = self.incoming / f".{self.files}"
        hidden.write_text("\n".join(records) + "\n")
        hidden.rename(self.incoming / f"{self.files}.txt")

    def frame(self, form: Literal["json", "csv"] = "json") -> DataFrame:
        text = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.incoming))
        records = text.selectExpr("value", "_metadata.file_name AS position")
        return stream.parse(records, warehouse.open_snapshot(self.uri).options, form)

    def run(self, frame: DataFrame | None = None, **options: Any) -> list[stream.BatchReport]:
        """Takes what is there, and ends."""
        reports: list[stream.BatchReport] = []
        given = {"source": "s", "checkpoint": self.checkpoint, **options}
        running = stream.start(
            frame if frame is not None else self.frame(),
            self.uri,
            trigger="available now",
            progress=reports.append,
            **given,
        )
        running.awaitTermination()
        return reports

    def rejected(self) -> list[tuple[str, str, str]]:
        rows = self.spark.read.format("delta").load(str(self.uri / "rejected")).orderBy("position", "raw")
        return [(row.position, row.raw, row.reason) for row in rows.collect()]


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


def test_events_of_any_time_are_counted_where_they_belong_and_the_rest_is_rejected(stage: Stage) -> None:
    long_ago, tomorrow = datetime(1971, 1, 1, tzinfo=UTC), NOW + timedelta(hours=12)
    stage.bring(event(1), event(2, long_ago), event(3, tomorrow), event(None))
    stage.bring(
        event(4),
        event(5, NOW + timedelta(days=400)),
        event("many"),
        "{",
        '{"at": "never", "value": 1}',
        "[1]",
    )
    first, second = stage.run()
    assert (first.batch, first.rows, first.rejected) == (0, 4, 0)
    assert (second.batch, second.rows, second.rejected) == (1, 1, 5)
    wh = query.open(stage.uri)
    answer = wh.quantile(1)
    assert (answer.value, answer.N, answer.nulls, answer.m) == (4, 4, 1, 4)
    assert wh.quantile(1, between=("1971-01-01", "1971-01-02")).value == 2
    assert wh.info()["rejected"] == {"s": 5}
    reasons = {raw: reason for _, raw, reason in stage.rejected()}
    assert reasons[event("many")] == "value is no double: many"
    assert reasons['{"at": "never", "value": 1}'] == "at is no timestamp: never"
    assert reasons["{"].startswith("no json record of the columns at timestamp, value double")
    assert reasons["[1]"].startswith("no json record")
    assert reasons[event(5, NOW + timedelta(days=400))].startswith("at lies too far in the future, after ")
    assert {position for position, _, _ in stage.rejected()} == {"2.txt"}
    assert warehouse.verify(stage.uri).ok


def test_csv_records_and_their_mistakes(stage: Stage) -> None:
    stage.bring(f"{NOW.isoformat()},1.5,a", f"{NOW.isoformat()},x,a", f"{NOW.isoformat()},,b", "1,2,3,4")
    (only,) = stage.run(stage.frame("csv"))
    assert (only.rows, only.rejected) == (2, 2)
    assert [raw for _, raw, _ in stage.rejected()] == ["1,2,3,4", f"{NOW.isoformat()},x,a"]


def test_nested_columns_come_as_json_and_other_fields_in_them_are_refused(
    stage: Stage, tmp_path: Path
) -> None:
    stage.uri = tmp_path / "nested"
    schema = "value double, who struct<id: bigint, `the tags`: array<string>>, seen map<string, int>"
    warehouse.create(stage.spark, stage.uri, ["value"], eps=0.1, schema=schema)
    who = {"id": 7, "the tags": ["x", "y"]}
    stage.bring(json.dumps({"value": 1.5, "who": who, "seen": {"a": 1}}), '{"value": 2, "who": 3}')
    (only,) = stage.run()
    assert (only.rows, only.rejected) == (1, 1)
    (row,) = stage.spark.read.format("delta").load(str(stage.uri / "events")).collect()
    assert (row.who.asDict(), row.seen) == (who, {"a": 1})
    wrong = stage.spark.sql("SELECT 1D AS value, named_struct('id', 'x') AS who, map('a', 1) AS seen")
    with pytest.raises(
        InputError, match=r"'who' is struct<`id`: string>, the warehouse has struct<`id`: big"
    ):
        stream.append(stage.spark, stage.uri, wrong, source="other", batch=0)


def test_a_stream_goes_on_from_its_checkpoint_and_loads_run_beside_it(stage: Stage) -> None:
    rows = []
    for number in range(6):
        rows += [number * 10 + i for i in range(5)]
        stage.bring(*(event(number * 10 + i) for i in range(5)))
        assert sum(report.rows for report in stage.run()) == 5
        if number == 3:
            assert warehouse.load(stage.spark, stage.uri).rows == 20
    answer = query.open(stage.uri).quantile(0.5, mode="exact")
    assert (answer.value, answer.n, answer.m) == (sorted(rows)[14], 20, 10)
    assert stage.run() == []
    running = stream.start(
        stage.frame(), stage.uri, source="s", checkpoint=stage.checkpoint, trigger={"availableNow": True}
    )
    assert running.awaitTermination(60)


def test_a_batch_that_crashed_between_its_commits_is_finished_by_its_replay(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are in `events`, the ledger knows nothing of them, and Spark brings the batch again."""
    stage.bring(event(1), event(2), "{")

    def crash(*_: Any) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr("tidemark.warehouse.ledger.ledger_table.append_batch", crash)
        with pytest.raises(StreamingQueryException, match="crash"):
            stage.run()
    assert query.open(stage.uri).info()["live_rows"] == 0
    stage.bring(event(3))
    reports = stage.run()
    assert [(report.batch, report.rows) for report in reports] == [(0, 2), (1, 1)]
    assert query.open(stage.uri).quantile(0, mode="exact").N == 3
    assert len(stage.rejected()) == 1
    assert warehouse.verify(stage.uri).ok


@pytest.mark.parametrize("lost", ["all", "the last"])
def test_a_checkpoint_that_was_lost_is_refused_and_a_new_name_goes_on(stage: Stage, lost: str) -> None:
    for number in range(3):
        stage.bring(event(number))
        stage.run()
        if number == 1:
            shutil.copytree(stage.checkpoint, stage.folder / "old")
    shutil.rmtree(stage.checkpoint)
    if lost == "the last":
        shutil.copytree(stage.folder / "old", stage.checkpoint)
    with pytest.raises(InputError, match=r"of 's' up to 2, the checkpoint .* another source name"):
        stage.run()
    assert query.open(stage.uri).info()["live_rows"] == 3
    stage.bring(event(7))
    (stage.incoming / "1.txt").unlink()
    (stage.incoming / "2.txt").unlink()
    (stage.incoming / "3.txt").unlink()
    assert sum(one.rows for one in stage.run(source="s-2", checkpoint=stage.folder / "new")) == 1
    assert query.open(stage.uri).quantile(1).N == 4


def test_a_lost_batch_number_is_known_though_none_of_its_rows_was_taken(stage: Stage) -> None:
    """The ledger has it: under that number new rows would be taken for a replay."""
    stage.bring("{")
    assert [report.rows for report in stage.run()] == [0]
    shutil.rmtree(stage.checkpoint)
    stage.bring(event(1))
    with pytest.raises(InputError, match="of 's' up to 0, the checkpoint"):
        stage.run()


def test_too_many_rejected_stop_the_stream_and_nothing_of_the_batch_stays(stage: Stage) -> None:
    stage.bring(event(1), event(2), event(3))
    stage.bring(event(4), "{", "}")
    with pytest.raises(StreamingQueryException, match=r"2 of 3 records .* more than the fraction 0\.5"):
        stage.run(max_rejected_fraction=0.5)
    assert query.open(stage.uri).quantile(1).N == 3
    assert stage.rejected() == []
    assert [report.rejected for report in stage.run(max_rejected_fraction=0.7)] == [2]
    assert query.open(stage.uri).quantile(1).N == 4


def test_two_streams_of_one_warehouse_at_once(stage: Stage) -> None:
    other = Stage.__new__(Stage)
    other.__dict__.update(
        stage.__dict__, incoming=stage.folder / "more", checkpoint=stage.folder / "c2", files=0
    )
    other.incoming.mkdir()
    for number in range(4):
        stage.bring(event(number))
        other.bring(event(100 + number))
    started = [
        stream.start(one.frame(), one.uri, source=name, checkpoint=one.checkpoint, trigger="available now")
        for one, name in ((stage, "a"), (other, "b"))
    ]
    for one in started:
        one.awaitTermination()
    answers = query.open(stage.uri).quantile([0, 1], mode="exact")
    assert [answers[0].value, answers[1].value, answers[0].N] == [0, 103, 8]
    assert warehouse.load(stage.spark, stage.uri).rows == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": "load:x"}, "source must be"),
        ({"trigger": "soon"}, "soon"),
        ({"ahead": "-1 day"}, "duration"),
        ({"max_rejected_fraction": 2}, "max_rejected_fraction must lie"),
        ({"checkpoint": None}, "checkpoint must be a name"),
        ({"checkpoint": " "}, "checkpoint must be a name"),
        ({"checkpoint": b"x"}, "checkpoint must be a name"),
        ({"checkpoint": "\ud800"}, "checkpoint cannot be stored"),
        ({"checkpoint": "nowhere://x"}, "no file system for"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(
    stage: Stage, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        stream.start(stage.frame(), stage.uri, **{"source": "s", "checkpoint": stage.checkpoint, **change})
    assert not stage.checkpoint.exists()


def test_a_store_that_refuses_a_checkpoint_is_no_bad_input() -> None:
    error = Py4JJavaError.__new__(Py4JJavaError)
    kind = SimpleNamespace(getName=lambda: "org.apache.hadoop.fs.s3a.AWSClientIOException")
    error.java_exception = SimpleNamespace(getClass=lambda: kind, toString=lambda: "no answer")
    with (
        pytest.raises(StoreUnavailable, match=r"no answer.* run the same again"),
        report_checkpoint("s3a://b/c"),
    ):
        raise error
    with pytest.raises(InputError, match=r"no answer.* Name a folder"), report_checkpoint("/c"):
        raise error


@pytest.mark.parametrize("below", ["", "/x"])
def test_a_checkpoint_that_spark_cannot_write_is_refused(stage: Stage, below: str) -> None:
    file = stage.folder / "file"
    file.write_text("no folder")
    with pytest.raises(InputError, match=r"cannot use the checkpoint .*file.* Name a folder"):
        stage.run(checkpoint=f"{file}{below}")


def test_rows_that_do_not_stream_or_lack_a_column_are_refused(stage: Stage) -> None:
    still = stage.spark.createDataFrame([(NOW, 1.0, "a")], SCHEMA)
    start: Callable[..., Any] = stream.start
    with pytest.raises(InputError, match="streaming DataFrame"):
        start(still, stage.uri, source="s", checkpoint=stage.checkpoint)
    with pytest.raises(InputError, match="got only _raw"):
        start(stage.frame().drop("_position", "_reason"), stage.uri, source="s", checkpoint=stage.checkpoint)
    with pytest.raises(InputError, match="missing"):
        start(stage.frame().drop("value"), stage.uri, source="s", checkpoint=stage.checkpoint)
