"""`tidemark load --engine local`: no Java, the same rows as with Spark, or an error that says what to do."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.jobs.said import ROOT, environment, tidemark
from tests.jobs.test_load_batch import OPTIONS, TABLE, WRITERS, answers, bad_inputs
from tests.warehouse.disk import files_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.jobs.inputs.local_inputs import LocalInputs
from tidemark.jobs.inputs.spark_inputs import SparkInputs
from tidemark.warehouse import InputError

LOCAL = ("--engine", "local")
NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
# Runs the command for each line of arguments and says what of Spark was loaded.
COMMAND = """
import json, sys
from tidemark.jobs.cli import main
codes = [main.main(line) for line in json.loads(sys.argv[1])]
print(json.dumps([codes, sorted({"pyspark", "py4j", "delta"} & set(sys.modules))]), file=sys.stderr)
"""


def load(uri: Path, path: Path | str, batch: str, *options: str) -> list[str]:
    return ["load", "-w", str(uri), "--input", str(path), "--batch", batch, *LOCAL, *options]


def test_no_java_is_started_and_pyspark_is_not_loaded(tmp_path: Path) -> None:
    """Each format once, a cut input, and the load of a stream, in a process that finds no Java."""
    uri = tmp_path / "w"
    for kind, write in WRITERS.items():
        write(TABLE, tmp_path / f"in.{kind}")
    lines = [load(uri, tmp_path / f"in.{kind}", kind, *OPTIONS) for kind in WRITERS]
    lines.append(load(uri, tmp_path / "in.csv", "cut", "--batch-every", "1 day"))
    lines.append(load(uri, tmp_path / "in.json", "parquet"))
    lines.append(["load", "-w", str(uri), "--from-stream", *LOCAL])
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, json.dumps(lines)],
        cwd=ROOT,
        env=environment(**NO_JAVA),
        capture_output=True,
        text=True,
        check=False,
    )
    codes, loaded = json.loads(done.stderr.splitlines()[-1])
    assert (codes, loaded) == ([0] * len(lines), []), done.stderr
    assert done.stdout.count(": loaded") == len(WRITERS) + 3
    assert "parquet: was loaded before, nothing changed" in done.stdout
    wh = query.open(uri)
    assert wh.info()["steps"] == len(WRITERS) + 3
    answer = wh.quantile(0.5, "delay")
    assert TABLE.num_rows * (len(WRITERS) + 1) == answer.N
    assert warehouse.verify(uri).ok


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_a_format_means_the_same_rows_as_parquet(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file, a folder of two and a packed one are the batch of the Parquet file; less a row they are not."""
    uri, folder = tmp_path / "w", tmp_path / "in"
    folder.mkdir()
    pq.write_table(TABLE, tmp_path / "first.parquet")
    WRITERS[kind](TABLE.slice(0, 20), folder / f"b.{kind}")
    WRITERS[kind](TABLE.slice(20), folder / f"a.{kind}")
    WRITERS[kind](TABLE.slice(1), tmp_path / f"less.{kind}")
    assert tidemark(capsys, *load(uri, tmp_path / "first.parquet", "one", *OPTIONS)).code == 0
    before = tables_of(uri)
    again = [folder]
    if kind != "parquet":
        WRITERS[kind](TABLE, tmp_path / f"whole.{kind}")
        (tmp_path / f"packed.{kind}.gz").write_bytes(gzip.compress((tmp_path / f"whole.{kind}").read_bytes()))
        again += [tmp_path / f"whole.{kind}", tmp_path / f"packed.{kind}.gz"]
    for path in again:
        said = tidemark(capsys, *load(uri, path, "one", "--json"))
        assert (said.code, said.json["batches"][0]["outcome"]) == (0, "known"), said
    less = tidemark(capsys, *load(uri, tmp_path / f"less.{kind}", "one"))
    assert (less.code, "60 rows are stored, 59 came" in less.err) == (2, True)
    assert tables_of(uri) == before


def test_an_input_is_cut_as_spark_cuts_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = tmp_path / "w"
    untimed = TABLE.slice(0, 2).set_column(0, "time", pa.nulls(2, TABLE.schema.field("time").type))
    pq.write_table(pa.concat_tables([TABLE, untimed]), tmp_path / "in.parquet")
    said = tidemark(capsys, *load(uri, tmp_path / "in.parquet", "b", *OPTIONS, "--batch-every", "1 day"))
    for name in ("b/2001-03-01T00:00:00", "b/2001-03-02T00:00:00", "b/2001-03-03T00:00:00", "b/no-time"):
        assert f"{name}: loaded" in said.out
    assert query.open(uri).quantile(1, "delay", between=(None, "2001-03-02")).value == 13
    before = tables_of(uri)
    said = tidemark(capsys, *load(uri, tmp_path / "in.parquet", "b", "--batch-every", "1 day"))
    assert (said.code, said.out.count("nothing changed")) == (0, 4)
    assert tables_of(uri) == before


def test_what_a_stream_brought_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warehouse.create(None, tmp_path, ["x"], eps=0.1, schema=pa.schema([("x", pa.int32())]))
    assert "no rows" in tidemark(capsys, "load", "-w", tmp_path, "--from-stream", *LOCAL).out
    stream.append(None, tmp_path, pa.table({"x": pa.array([3, 4], pa.int32())}), source="s", batch=0)
    assert "from stream: loaded" in tidemark(capsys, "load", "-w", tmp_path, "--from-stream", *LOCAL).out
    answer = query.open(tmp_path).quantile(1)
    assert (answer.value, answer.n, answer.m) == (4, 2, 0)


def test_a_bad_input_is_one_line_and_changes_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inputs that Spark's path refuses, and those that are read with Spark alone."""
    uri = tmp_path / "w"
    given = {reason: (path, options) for reason, (path, options, _) in bad_inputs(tmp_path).items()}
    write_deltalake(tmp_path / "delta", TABLE)
    given["a Delta table"] = (tmp_path / "delta", [])
    given["another machine"] = (Path("hdfs://machine/in.parquet"), [])
    for reason, (path, options) in given.items():
        said = tidemark(capsys, *load(uri, path, "one", *OPTIONS, *options))
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), (reason, said)
        assert not uri.exists(), reason
    assert tidemark(capsys, *load(uri, tmp_path / "good.parquet", "one", *OPTIONS)).code == 0
    before, held = files_of(uri), tables_of(uri)
    for reason, (path, options) in given.items():
        said = tidemark(capsys, *load(uri, path, "two", *options))
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), (reason, said)
        assert said.err.startswith("error: "), reason
    assert tables_of(uri) == held
    assert all(path.startswith("events/") for path in files_of(uri).keys() - before.keys())
    said = tidemark(capsys, *load(uri, tmp_path / "bad" / "word.csv", "two"))
    assert "word.csv, line 17: delay is no long: five. Nothing was changed. Correct" in said.err
    assert answers(uri) == answers(uri)


# What both readers take, and as the same values.
TYPES = pa.schema(
    [
        ("t", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
    ]
)
CSV_TAKEN = [
    "2001-03-19T12:30:00Z,2001-03-19,plain,1,1.5,1.1,1.25,true",
    "2001-03-19 12:30:00.123456,1969-12-31,two words,+7,1e-3,16777216,-0.5,FALSE",
    '2001-03-19T12:30:00.1+01:00,0001-01-01,"a, quoted",-2147483648,NaN,Inf,12345678.9,True',
    "2001-03-19,9999-12-31, blanks ,2147483647,-Infinity,-Inf,1e2,",
    "0001-01-01T00:00:00Z,,ä→☃,-0,-0.0,0.1,.5,false",
    "9999-12-31T23:59:59.999999-00:30,,'single',007,.5,1.,+3,",
    ",,back\\slash,,,,,",
    ',,"",,,,,',
    ",,,,5e-324,1e-45,,",
    ",,#1,,1.7976931348623157e308,3.4028235e38,,",
]
JSON_TAKEN: list[dict[str, Any]] = [
    {
        "t": "2001-03-19T12:30:00Z",
        "day": "2001-03-19",
        "s": "ä→☃\u0000\n",
        "n": 1,
        "x": 1.5,
        "f": 1.1,
        "d": 1.25,
    },
    {"t": "2001-03-19 12:30:00.123456", "s": "", "n": -2147483648, "x": 5e-324, "ok": True, "d": 12345678},
    {"t": 984969000, "x": "NaN", "f": "-INF", "other": None, "ok": False},
    {"t": "2001-03-19", "x": -0.0, "n": None, "xs": [1, None], "st": {"a": 1}, "m": {"k": 1, "l": None}},
    {"x": 9007199254740992, "xs": [], "st": {"a": None, "more": 1}, "m": {}, "raw": "/wA="},
    {"x": 1e308, "xs": None, "st": None, "m": None, "s": "last"},
]
NESTED = [
    ("raw", pa.binary()),
    ("xs", pa.list_(pa.int64())),
    ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ("m", pa.map_(pa.string(), pa.int64())),
    ("other", pa.string()),
]


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    warehouse.create(None, tmp_path / "w", ["x", "n"], eps=0.1, schema=TYPES)
    return tmp_path / "w"


def test_what_is_taken_here_is_what_spark_makes_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Value by value, by the load of the one and the replay of the other."""
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    warehouse.create(None, flat, ["x", "n"], eps=0.1, schema=TYPES)
    warehouse.create(None, nested, ["x", "n"], eps=0.1, schema=pa.schema([*TYPES, *NESTED]))
    (tmp_path / "in.csv").write_text("\n".join([",".join(TYPES.names), *CSV_TAKEN]) + "\n")
    (tmp_path / "in.json").write_text("\n\n".join(map(json.dumps, JSON_TAKEN)))
    for uri, name in ((flat, "in.csv"), (nested, "in.json")):
        options = warehouse.open_snapshot(uri).options
        here = LocalInputs(str(uri)).read(str(tmp_path / name), None, options)
        there = SparkInputs(spark).read(str(tmp_path / name), None, options)
        assert warehouse.load(None, uri, here, "one").rows in {len(CSV_TAKEN), len(JSON_TAKEN)}
        assert warehouse.load(spark, uri, there, "one").outcome == "known"


CSV_REFUSED = {
    "an escaped quote": ',,"a\\"b",1,,,,',
    "a quote inside": ',,a"b,1,,,,',
    "text after a quote": ',,"a"b,1,,,,',
    "an open quote": ',,"a,1,,,,',
    "a field too few": ",,a,1,,,",
    "a field too many": ",,a,1,,,,,",
    "a line of blanks": "   ",
    "a fraction": ",,a,1.0,,,,",
    "beyond the type": ",,a,2147483648,,,,",
    "a blank before a number": ",,a, 1,,,,",
    "no double": ",,a,1,1.5.2,,,",
    "beyond all doubles": ",,a,1,1e999,,,",
    "beyond a float": ",,a,1,,1e39,,",
    "a number of Java": ",,a,1,1d,,,",
    "digits to round": ",,a,1,,,1.005,",
    "too many digits": ",,a,1,,,123456789.5,",
    "thousands": ',,a,1,,,"1,000",',
    "no boolean": ",,a,1,,,,yes",
    "no day": ",2001-02-30,a,1,,,,",
    "a short day": ",2001-2-3,a,1,,,,",
    "no time": "noon,,a,1,,,,",
    "nanoseconds": "2001-03-19T12:30:00.123456789Z,,a,1,,,,",
    "a zone by name": "2001-03-19T12:30:00 Europe/Paris,,a,1,,,,",
    "no UTF-8": ",,\udcff,1,,,,",
}
JSON_REFUSED = {
    "no JSON": '{"n": 1',
    "text after it": '{"n": 1} x',
    "an array": '[{"n": 1}]',
    "a field twice": '{"n": 1, "n": 2}',
    "a fraction": '{"n": 1.0}',
    "beyond the type": '{"n": 2147483648}',
    "a number that is text": '{"n": "1"}',
    "true for a number": '{"n": true}',
    "true for a double": '{"x": true}',
    "a double that is text": '{"x": "1.5"}',
    "beyond all doubles": '{"x": 1e999}',
    "a number for true": '{"ok": 1}',
    "digits to round": '{"d": 1.005}',
    "no time": '{"t": "noon"}',
    "a time with a fraction": '{"t": 1.5}',
    "no day": '{"day": "2001-02-30"}',
    "a day that is a number": '{"day": 1}',
    "a column that is unknown": '{"n": 1, "m": 2}',
    "another case": '{"N": 1}',
    "nothing of it": "{}",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"), [*(("csv", r) for r in CSV_REFUSED), *(("json", r) for r in JSON_REFUSED)]
)
def test_other_forms_are_refused_and_change_no_table(
    typed: Path, tmp_path: Path, kind: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"in.{kind}"
    good = json.dumps(dict.fromkeys(TYPES.names) | {"n": 1})
    lines = (
        [",".join(TYPES.names), CSV_TAKEN[0], CSV_REFUSED[reason]]
        if kind == "csv"
        else [good, JSON_REFUSED[reason]]
    )
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    held = tables_of(typed)
    said = tidemark(capsys, *load(typed, path, "one"))
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert tables_of(typed) == held
    path.write_text("\n".join(lines[:-1]))
    assert tidemark(capsys, *load(typed, path, "one")).code == 0


def test_files_whose_headers_differ_are_refused(
    typed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(",".join(TYPES.names) + "\n")
    (folder / "b.csv").write_text(",".join(reversed(TYPES.names)) + "\n")
    said = tidemark(capsys, *load(typed, folder, "one"))
    assert (said.code, "the same columns in the same order" in said.err) == (2, True)
    (folder / "b.csv").unlink()
    (folder / "a.csv").write_text("n,n\n")
    assert "is there twice" in tidemark(capsys, *load(typed, folder, "one")).err
    (folder / "a.csv").write_text(",".join(TYPES.names) + "\n")
    assert "no rows, nothing changed" in tidemark(capsys, *load(typed, folder, "one")).out


@pytest.mark.parametrize("size", [1, 30, 1000])
def test_the_size_of_blocks_changes_nothing(
    typed: Path, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.warehouse.text.files._BLOCK_BYTES", size)
    path, start = tmp_path / "in.csv", datetime(2001, 3, 1)  # noqa: DTZ001
    lines = [f'{start + timedelta(hours=i)},,"text, {i}",{i},{i / 8},,,' for i in range(200)]
    path.write_text("\ufeff" + "\r\n".join([",".join(TYPES.names), *lines]))
    inputs, options = LocalInputs(str(typed)), warehouse.open_snapshot(typed).options
    rows = inputs.read(str(path), "csv", options)
    found = pa.Table.from_batches(rows.read(), rows.schema).to_pylist()
    assert [(row["s"], row["n"], row["x"]) for row in found] == [(f"text, {i}", i, i / 8) for i in range(200)]
    path.write_text("\n".join([",".join(TYPES.names), *lines[:150], "x", *lines[150:]]))
    with pytest.raises(InputError, match=r"in\.csv, line 152: no csv record"):
        list(inputs.read(str(path), "csv", options).read())


def test_a_type_that_csv_has_not_is_refused(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", "x", eps=0.1, schema=pa.schema([("x", pa.float64()), NESTED[1]]))
    (tmp_path / "in.csv").write_text("x,xs\n1,[1]\n")
    read: Callable[..., Any] = LocalInputs(str(tmp_path / "w")).read
    with pytest.raises(InputError, match="which a CSV field cannot hold"):
        read(str(tmp_path / "in.csv"), None, warehouse.open_snapshot(tmp_path / "w").options)


def test_the_nightly_load_lets_rows_expire_by_the_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command expires by a moment, tells it first, and restores nothing of it."""
    uri, now = tmp_path / "w", datetime.now(UTC)
    ages = [0, 1, 99, 130, 500]
    for name, shift in (("one", 0), ("two", 60)):
        at = [now - timedelta(days=age + shift) for age in ages]
        pq.write_table(pa.table({"t": at, "x": [float(age) for age in ages]}), tmp_path / f"{name}.parquet")
    given = ["--measure", "x", "--time", "t", "--retention", "100 days"]
    said = tidemark(capsys, *load(uri, tmp_path / "one.parquet", "one", *given))
    assert (said.code, said.out.count("expired: 2 rows before ")) == (0, 1), said
    said = tidemark(capsys, *load(uri, tmp_path / "two.parquet", "two", "--json"))
    assert json.loads(said.out)["expired"]["rows"] == 3
    assert query.open(uri).quantile(0.5).N == 5
    before = (now - timedelta(days=50)).date().isoformat()
    expire = ["expire", "-w", str(uri), "--before", before, *LOCAL]
    assert "would remove 3 rows of 2 batches, those before " in tidemark(capsys, *expire, "--dry-run").out
    assert "removed 3 rows of 2 batches, those before " in tidemark(capsys, *expire).out
    said = tidemark(capsys, *expire)
    assert f"was done before, nothing changed; rows before {before} 00:00:00+00:00 have expired" in said.out
    assert tidemark(capsys, *expire[:-3], "9999-01-01", *LOCAL).code == 2
    assert before in next(
        line for line in tidemark(capsys, "info", "-w", str(uri)).out.splitlines() if "expired_before" in line
    )
    assert tidemark(capsys, "alter", "-w", str(uri), "--retention", "forever").code == 0
    said = tidemark(capsys, *load(uri, tmp_path / "two.parquet", "two", "--json"))
    assert "expired" not in json.loads(said.out)
