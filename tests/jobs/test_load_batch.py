"""The nightly job: it reads what it says it reads, exit codes tell, and what it refuses changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.warehouse.disk import files_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch

START = datetime(2001, 3, 1, tzinfo=UTC)
ROWS = 60
TABLE = pa.table(
    {
        "time": pa.array([START + timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us", tz="UTC")),
        "origin": [f"A{i % 4}" for i in range(ROWS)],
        "delay": pa.array(range(-10, ROWS - 10), pa.int64()),
        "fare": [i / 4 for i in range(ROWS)],
    }
)
OPTIONS = [
    "--measure",
    "delay",
    "--measure",
    "fare",
    "--key",
    "origin",
    "--time",
    "time",
    "--eps",
    "0.1",
    "--kappa",
    "2",
]
pytestmark = pytest.mark.usefixtures("spark")


def write_csv(rows: pa.Table, path: Path, separator: str = ",", names: list[str] | None = None) -> None:
    chosen = names or rows.column_names
    lines = [separator.join(chosen)]
    lines += [separator.join(_text(row[name]) for name in chosen) for row in rows.to_pylist()]
    path.write_text("\n".join(lines) + "\n")


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def write_json(rows: pa.Table, path: Path) -> None:
    lines = [
        json.dumps({k: _text(v) if isinstance(v, datetime) else v for k, v in row.items()})
        for row in rows.to_pylist()
    ]
    path.write_text("\n".join(lines) + "\n")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet": pq.write_table,
    "csv": write_csv,
    "tsv": lambda rows, path: write_csv(rows, path, "\t"),
    "json": write_json,
    "jsonl": write_json,
}


def run(uri: Path, path: Path, batch: str, *options: str) -> int:
    return load_batch.main(["--warehouse", str(uri), "--input", str(path), "--batch", batch, *options])


def answers(uri: Path) -> list[Any]:
    wh = query.open(uri)
    return [a.value for name in ("delay", "fare") for a in wh.quantile([0, 0.25, 0.5, 0.75, 1], name)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """The quantiles 0, 1/4, 1/2, 3/4 and 1 of both measures."""
    columns = (sorted(TABLE.column(name).to_pylist()) for name in ("delay", "fare"))
    return [values[r - 1] for values in columns for r in (1, 15, 30, 45, 60)]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_then_a_folder_of_that_format_are_loaded_whole(
    tmp_path: Path, kind: str, expected: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The first input makes the warehouse, the second is read with the types that it has."""
    uri, folder = tmp_path / "w", tmp_path / "in"
    folder.mkdir()
    WRITERS[kind](TABLE.slice(0, 20), tmp_path / f"first.{kind}")
    WRITERS[kind](TABLE.slice(20, 20), folder / f"a.{kind}")
    WRITERS[kind](TABLE.slice(40), folder / f"b.{kind}")
    assert run(uri, tmp_path / f"first.{kind}", "one", *OPTIONS) == 0
    assert run(uri, folder, "two") == 0
    said = capsys.readouterr().out
    assert "one: loaded" in said
    assert "two: loaded" in said
    assert answers(uri) == expected
    before = tables_of(uri)
    assert run(uri, folder, "two") == 0
    assert "was loaded before, nothing changed" in capsys.readouterr().out
    assert tables_of(uri) == before
    assert warehouse.verify(uri).ok


def test_a_delta_table_is_an_input(tmp_path: Path, expected: list[Any]) -> None:
    write_deltalake(tmp_path / "delta", TABLE)
    assert run(tmp_path / "w", tmp_path / "delta", "one", *OPTIONS) == 0
    assert answers(tmp_path / "w") == expected


def bad_inputs(folder: Path) -> dict[str, tuple[Path, list[str], tuple[str, ...]]]:
    """Inputs that cannot be read or do not fit."""
    found: dict[str, tuple[Path, list[str], tuple[str, ...]]] = {}

    def add(
        reason: str, name: str, data: bytes | str | None, *words: str, options: tuple[str, ...] = ()
    ) -> None:
        path = folder / "bad" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        found[reason] = (path, list(options), words or (path.name,))

    pq.write_table(TABLE, folder / "good.parquet")
    whole = (folder / "good.parquet").read_bytes()
    add("a cut Parquet file", "cut.parquet", whole[: len(whole) // 2])
    add("a Parquet file of zeroes inside", "zeroed.parquet", whole[:4] + bytes(1200) + whole[1204:])
    add("text that calls itself Parquet", "text.parquet", "time,origin\n")
    write_csv(TABLE, folder / "good.csv")
    text = (folder / "good.csv").read_text()
    add("a CSV value that is no number", "word.csv", text.replace(",5,", ",five,"), "word.csv", "five")
    add("a CSV row that is too short", "short.csv", text + "2001-03-01T00:00:00+00:00,A1\n")
    add("a CSV value that is no time", "when.csv", text.replace("2001-03-02T03:00:00", "noon"))
    add(
        "a CSV file without a measure",
        "less.csv",
        "time,origin,fare\n2001-03-01T00:00:00Z,A1,1.0\n",
        "'delay'",
        "missing",
    )
    add("an empty CSV file", "empty.csv", "")
    write_json(TABLE, folder / "good.json")
    lines = (folder / "good.json").read_text()
    add("JSON that breaks off", "broken.json", lines + '{"time": "2001-03-01T00:00:0')
    add("a JSON value that is no number", "word.json", lines.replace('"delay": 5,', '"delay": "five",'))
    add("no such file", "missing.parquet", None)
    add("no such file, its format said", "missing", None, options=("--format", "csv"))
    add("an unknown ending", "good.xml", "<a/>", "--format")
    add("another format than said", "good2.parquet", whole, options=("--format", "delta"))
    empty = folder / "bad" / "folder"
    empty.mkdir()
    found["an empty folder"] = (empty, [], ("folder",))
    found["an empty folder, its format said"] = (empty, ["--format", "parquet"], ("folder",))
    mixed = folder / "bad" / "mixed"
    mixed.mkdir()
    (mixed / "a.parquet").write_bytes(whole)
    (mixed / "b.csv").write_text(text)
    found["a folder of two formats"] = (mixed, [], ("csv", "parquet", "--format"))
    half = folder / "bad" / "half"
    half.mkdir()
    (half / "a.parquet").write_bytes(whole)
    (half / "b.parquet").write_bytes(whole[: len(whole) // 2])
    found["a folder with one cut file"] = (half, [], ("b.parquet",))
    found["a spoilt row beyond the first span"] = (
        folder / "bad" / "late.csv",
        ["--batch-every", "1 day"],
        ("late.csv",),
    )
    (folder / "bad" / "late.csv").write_text(text.replace(",45,", ",much,"))
    shuffled = folder / "bad" / "shuffled"
    shuffled.mkdir()
    write_csv(TABLE.slice(0, 30), shuffled / "a.csv")
    write_csv(TABLE.slice(30), shuffled / "b.csv", names=["time", "origin", "fare", "delay"])
    found["a folder of CSV files whose columns are in another order"] = (
        shuffled,
        [],
        ("shuffled", "the same columns in the same order"),
    )
    return found


def test_a_bad_first_input_makes_no_warehouse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = tmp_path / "w"
    for reason, (path, options, _) in bad_inputs(tmp_path).items():
        if "no number" in reason or "no time" in reason:
            continue  # the first input says what the types are: such a column is text
        assert run(uri, path, "one", *OPTIONS, *options) == 2, reason
        assert "error:" in capsys.readouterr().err
        assert not uri.exists(), reason
    for options in (
        ["--measure", "none"],
        ["--measure", "origin"],
        [*OPTIONS, "--eps", "0.7"],
        [*OPTIONS, "--kappa", "1"],
        ["--measure", "delay", "--tick", "1 day"],
        [],
    ):
        assert run(uri, tmp_path / "good.parquet", "one", *options) == 2, options
        assert "error:" in capsys.readouterr().err
        assert not uri.exists(), options


def test_an_input_is_cut_by_event_time_and_loaded_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """60 hours from midnight: three days; rows without a time are a batch of their own."""
    uri = tmp_path / "w"
    untimed = TABLE.slice(0, 2).set_column(0, "time", pa.nulls(2, TABLE.schema.field("time").type))
    pq.write_table(pa.concat_tables([TABLE, untimed]), tmp_path / "in.parquet")
    assert run(uri, tmp_path / "in.parquet", "b", *OPTIONS, "--batch-every", "1 day") == 0
    said = capsys.readouterr().out
    for name in ("b/2001-03-01T00:00:00", "b/2001-03-02T00:00:00", "b/2001-03-03T00:00:00", "b/no-time"):
        assert f"{name}: loaded" in said
    wh = query.open(uri)
    assert wh.info()["steps"] == 4
    assert wh.quantile(0.5, "delay").N == 62
    assert wh.quantile(1, "delay", between=(None, "2001-03-02")).value == 13
    before = tables_of(uri)
    assert run(uri, tmp_path / "in.parquet", "b", "--batch-every", "1 day") == 0
    assert capsys.readouterr().out.count("nothing changed") == 4
    assert tables_of(uri) == before


def test_usage_errors_and_a_missing_warehouse_exit_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    before = files_of(tmp_path)
    for argv in (
        [],
        ["--warehouse", "w"],
        ["--warehouse", "w", "--input", "x"],
        ["--warehouse", "w", "--input", "x", "--from-stream"],
        ["--warehouse", "w", "--input", "x", "--batch", "b", "--eps", "much"],
        ["--warehouse", "w", "--input", "x", "--batch", "b", "--format", "xml"],
    ):
        with pytest.raises(SystemExit) as stopped:
            load_batch.main(argv)
        assert stopped.value.code == 2
    assert run(tmp_path / "none", tmp_path / "in.parquet", "b") == 2
    assert load_batch.main(["--warehouse", str(tmp_path / "none"), "--from-stream"]) == 2
    assert "not a tidemark warehouse" in capsys.readouterr().err
    assert files_of(tmp_path) == before


def test_what_the_streams_brought_is_loaded(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse.create(spark, tmp_path, ["x"], eps=0.1, schema="x int")
    assert load_batch.main(["--warehouse", str(tmp_path), "--from-stream"]) == 0
    assert "no rows, nothing changed" in capsys.readouterr().out
    stream.append(spark, tmp_path, spark.createDataFrame([(3,), (4,)], "x int"), source="s", batch=0)
    assert load_batch.main(["--warehouse", str(tmp_path), "--from-stream"]) == 0
    assert "from stream: loaded" in capsys.readouterr().out
    answer = query.open(tmp_path).quantile(1)
    assert (answer.value, answer.n, answer.m) == (4, 2, 0)
