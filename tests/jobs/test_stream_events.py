"""The streaming job: its sources, its lines, and its exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.warehouse.disk import files_of
from tidemark import query, warehouse
from tidemark.jobs import stream_events

AT = "2001-03-01T00:00:00+00:00"


@pytest.fixture
def uri(spark: SparkSession, tmp_path: Path) -> Path:
    schema = "at timestamp, value double"
    warehouse.create(spark, tmp_path / "w", ["value"], time="at", eps=0.1, schema=schema)
    return tmp_path / "w"


def run(uri: Path, *options: str) -> int:
    return stream_events.main(["--warehouse", str(uri), *options])


def test_json_files_go_in_once_with_a_line_for_each_batch(
    uri: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "clicks"
    incoming.mkdir()
    for number in range(3):
        records = [json.dumps({"at": AT, "value": number * 10 + i}) for i in range(5)]
        (incoming / f"{number}.txt").write_text("\n".join([*records, "oops"]))
    options = ["--source", "files", "--path", str(incoming), "--max-per-batch", "2", "--once"]
    assert run(uri, *options) == 0
    said = capsys.readouterr().out
    assert "clicks: streaming into" in said
    assert "batch 0: 10 rows, 2 rejected" in said
    assert "batch 1: 5 rows, 1 rejected" in said
    assert "live m 15" in said
    assert "NULL" not in said
    assert run(uri, *options) == 0
    wh = query.open(uri)
    assert wh.quantile(1, mode="exact").N == 15
    assert wh.info()["rejected"] == {"clicks": 3}
    assert (uri / "checkpoints" / "clicks" / "offsets").is_dir()
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("in_json", [False, True])
def test_a_batch_tells_which_columns_its_records_lacked(
    uri: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], in_json: bool
) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    records = [{"at": AT, "value": 1}, {"at": AT}, {"at": None, "value": None}, {"value": 2}, {"VALUE": 3}]
    (incoming / "a.txt").write_text("\n".join(map(json.dumps, records)))
    options = ["--source", "files", "--path", str(incoming), "--once"]
    assert run(uri, *options, *["--json"] * in_json) == 0
    said = capsys.readouterr().out
    if in_json:
        told = json.loads(said)
        assert (told["rows"], told["rejected"], told["nulls"]) == (4, 1, {"at": 2, "value": 2})
    else:
        assert "batch 0: 4 rows, 1 rejected" in said
        assert ", live m 4, NULL: at 2, value 2\n" in said


def test_csv_with_a_header_and_an_order_of_its_own(uri: Path, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    (incoming / "a.csv").write_text(f"value,at\n1.5,{AT}\n2.5,{AT}\nx,{AT}\n")
    options = [
        "--source",
        "files",
        "--path",
        str(incoming),
        "--format",
        "csv",
        "--columns",
        "value,at",
        "--once",
    ]
    assert run(uri, *options) == 0
    answer = query.open(uri).quantile(0)
    assert (answer.value, answer.N) == (1.5, 2)


def test_a_delta_table_streams_in(spark: SparkSession, uri: Path, tmp_path: Path) -> None:
    rows = spark.sql(f"SELECT TIMESTAMP'{AT}' AS at, CAST(id AS DOUBLE) AS value FROM range(100)")
    rows.write.format("delta").save(str(tmp_path / "table"))
    assert run(uri, "--source", "delta", "--path", str(tmp_path / "table"), "--once") == 0
    assert query.open(uri).quantile(0.5, mode="exact").value == 49


def test_a_lost_checkpoint_too_many_rejected_and_bad_usage_have_their_exit_codes(
    uri: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    (incoming / "a.txt").write_text("no\n" + json.dumps({"at": AT, "value": 1}))
    options = ["--source", "files", "--path", str(incoming), "--once"]
    before = files_of(uri / "events")
    assert run(uri, *options, "--max-rejected-fraction", "0.1") == 1
    assert "1 of 2 records cannot be taken" in capsys.readouterr().err
    assert {name for name in files_of(uri / "events") if "_delta_log" in name} == {
        name for name in before if "_delta_log" in name
    }
    assert run(uri, *options) == 0
    shutil.rmtree(uri / "checkpoints")
    assert run(uri, *options) == 2
    assert "under another source name" in capsys.readouterr().err
    assert run(tmp_path / "nowhere", *options) == 2
    assert "not a tidemark warehouse" in capsys.readouterr().err
    assert run(uri, *options, "--format", "csv", "--columns", "value,when") == 2
    assert run(uri, "--source", "files", "--path", str(tmp_path / "none"), "--name", "n", "--once") == 2
    with pytest.raises(SystemExit) as stopped:
        run(uri, "--source", "kafka", "--topic", "t")
    assert stopped.value.code == 2
    assert run(uri, "--source", "kafka", "--bootstrap", "127.0.0.1:1", "--topic", "t", "--once") == 2
    assert "--packages org.apache.spark:spark-sql-kafka" in capsys.readouterr().err
