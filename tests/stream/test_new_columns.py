"""With Spark: batches, files of text and streams bring columns, or lack those that came later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.stream.test_start import NOW, Stage, event
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch
from tidemark.stream.records import read_lines
from tidemark.warehouse import InputError
from tidemark.warehouse.text.file_records import MARKS, FileRecords
from tidemark.warehouse.text.records import TextColumns

KNOWN = pa.schema([("x", pa.int64()), ("k", pa.string()), ("tip", pa.float64())])


def told(text: bytes, form: str = "csv") -> tuple[list[tuple[Any, ...]], list[str]]:
    """The rows and the reasons that a stream makes of a file, where `tip` came later."""
    lines = text.removesuffix(b"\n").split(b"\n")
    marks = [pa.repeat(value, len(lines)) for value in ("f", 0, True)]
    given = pa.table([pa.array(lines), *marks], ["_raw", *MARKS]).to_batches()
    columns = TextColumns(pa.schema([KNOWN.field("x"), KNOWN.field("k")]))
    rows = [
        row
        for batch in FileRecords(form, columns, KNOWN, frozenset({"tip"})).parse(iter(given))
        for row in batch.to_pylist()
    ]
    return [(row["c0"], row["c1"], row["c2"]) for row in rows], [
        row["_reason"] for row in rows if row["_reason"]
    ]


def test_a_file_of_text_may_lack_what_came_later() -> None:
    assert told(b"k,x\na,1\n") == ([(1, "a", None)], [])
    assert told(b"tip,k,x\n0.5,a,1\n") == ([(1, "a", 0.5)], [])
    assert told(b"1,a\n") == ([(1, "a", None)], [])
    assert told(b'{"x": 1}\n{"x": 2, "tip": 3}\n', "json") == ([(1, None, None), (2, None, 3.0)], [])
    for text in (b"k,tip\na,1\n", b"x,k,k\n1,a,b\n", b"x,k,other\n1,a,b\n"):
        rows, reasons = told(text)
        assert rows == [(None, None, None)] * 2
        assert all("has not each of the columns x, k, tip once" in reason for reason in reasons)
    assert len(told(b"1,a,0.5\n")[1]) == 1  # without a header it has the columns of the first batch


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)


def test_streams_and_loads_of_spark_bring_columns(stage: Stage, tmp_path: Path) -> None:
    spark, uri = stage.spark, stage.uri
    stage.bring(event(1), event(2))
    assert [one.rows for one in stage.run()] == [2]
    rows = spark.createDataFrame([(NOW, 3.0, "b", 7)], "at timestamp, value double, name string, qty int")
    with pytest.raises(InputError, match=r"unknown \['qty'\]. To add"):
        warehouse.load(spark, uri, rows, "one")
    report = warehouse.load(spark, uri, rows, "one", evolve=True)
    assert report.added_columns == ["qty"]
    assert warehouse.load(spark, uri, rows, "one").outcome == "known"
    assert warehouse.load(spark, uri, rows.drop("qty"), "two").outcome == "loaded"
    stage.bring(event(4))
    assert stage.run()[-1].nulls == {"qty": 1}  # the same stream goes on; JSON lacks the column

    query.register_views(spark, uri, "older")
    older = spark.sql("SELECT * FROM older_live").columns[6:]

    (tmp_path / "files").mkdir()
    pq.write_table(
        pa.table(
            {"at": pa.array([NOW], pa.timestamp("us", "UTC")), "value": [5.0], "name": ["c"], "z": [b"\x00"]}
        ),
        tmp_path / "files" / "1.parquet",
    )
    frame = spark.readStream.schema("at timestamp, value double, name string, z binary").parquet(
        str(tmp_path / "files")
    )
    how: dict[str, Any] = {"source": "files", "checkpoint": tmp_path / "other"}
    with pytest.raises(InputError, match=r"unknown \['z'\]"):
        stage.run(frame, **how)
    assert [one.rows for one in stage.run(frame, evolve=True, **how)] == [1]

    text = tmp_path / "late.csv"
    text.write_text(f"name,value,at,more\nd,6,{NOW:%Y-%m-%d %H:%M:%S}Z,1.5\n")
    given = ["--warehouse", str(uri), "--input", str(text), "--batch", "text", "--engine", "spark"]
    assert load_batch.main(given) == 2
    assert load_batch.main([*given, "--evolve"]) == 0
    assert dict(warehouse.open_snapshot(uri).options.columns)["more"] == "double"

    expected: list[tuple[Any, ...]] = [
        (1.0, None, None, None),
        (2.0, None, None, None),
        (3.0, 7, None, None),
        (3.0, None, None, None),
    ]
    expected += [(4.0, None, None, None), (5.0, None, b"\x00", None), (6.0, None, None, 1.5)]
    query.register_views(spark, uri, "added")
    for view in ("added_events", "(SELECT * FROM added_history UNION ALL SELECT * FROM added_live)"):
        found = spark.sql(
            f"SELECT value, qty, hex(z), more FROM {view} ORDER BY value, qty NULLS LAST"
        ).collect()
        assert [(value, qty, z and bytes.fromhex(z), more) for value, qty, z, more in found] == expected
    for view in ("older_events", "older_live"):  # registered before the columns came
        assert spark.sql(f"SELECT * FROM {view}").columns[3:] == ["at", "value", "name", *older]
    assert spark.sql("SELECT sum(value) FROM older_live").collect()[0][0] == 12
    wh = query.open(uri)
    assert sorted(wh.sql("SELECT value, qty, z, more FROM events").fetchall(), key=repr) == sorted(
        expected, key=repr
    )
    assert wh.quantile(1, where="qty = 7 OR more > 1").N == 2
    warehouse.alter(spark, uri, widen={"qty": "bigint"}, add_key="qty")
    assert query.open(uri).frequency(7, key="qty", mode="exact").count == 1
    found = spark.read.format("delta").load(str(uri / "events")).agg({"qty": "sum", "more": "sum"}).collect()
    assert sorted(found[0]) == [1.5, 7]
    assert warehouse.load(spark, uri, rows, "one").outcome == "known"
    assert warehouse.verify(uri).ok


def test_a_csv_stream_goes_on_after_a_column_came(stage: Stage, tmp_path: Path) -> None:
    spark, uri, folder = stage.spark, stage.uri, tmp_path / "csv"
    folder.mkdir()

    def run(name: str, text: str) -> None:
        (folder / name).write_text(text)
        rows = stream.parse(read_lines(spark, str(folder), "csv"), options(), "csv", lines=True)
        stage.run(rows, source="csv", checkpoint=tmp_path / "kept")

    def options() -> Any:
        return warehouse.open_snapshot(uri).options

    run("1.csv", f"{NOW.isoformat()},1,a\n")
    more = spark.createDataFrame([(NOW, 3.0, "b", 7)], "at timestamp, value double, name string, qty int")
    warehouse.load(spark, uri, more, "one", evolve=True)
    run("2.csv", f"{NOW.isoformat()},2,a\n")
    run("3.csv", f"qty,at,value,name\n8,{NOW.isoformat()},4,a\n")
    found = query.open(uri).sql("SELECT value, qty FROM events ORDER BY 1").fetchall()
    assert found == [(1, None), (2, None), (3, 7), (4, 8)]
    with pytest.raises(InputError, match=r"\['at'\] do not match"):
        stream.parse(read_lines(spark, str(folder), "csv"), options(), "csv", ["value", "name"])
    named = stream.parse(read_lines(spark, str(folder), "csv"), options(), "csv", ["at", "value", "name"])
    assert "qty" not in named.columns
    assert warehouse.verify(uri).ok
