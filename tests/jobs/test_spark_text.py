"""Text means the same rows, or the same refusal, in this process and in Spark's tasks."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark_settings import changed, cut_files
from tidemark import warehouse
from tidemark.jobs.inputs import spark_text
from tidemark.jobs.inputs.local_inputs import LocalInputs
from tidemark.jobs.inputs.spark_inputs import SparkInputs
from tidemark.warehouse import InputError
from tidemark.warehouse.text.parts import Part, by_part
from tidemark.warehouse.text.records import TextColumns

TYPES = pa.schema(
    [("x", pa.float64()), ("k", pa.string()), ("t", pa.timestamp("us", "UTC")), ("d", pa.decimal128(10, 2))]
)
ONE = '{"x": 1.0, "k": "a", "t": "2024-01-01T00:00:00Z", "d": 1}'
HEADER = "x,k,t,d\n"
PART = 2000  # bytes of a part of a file


@pytest.fixture
def parts(spark: SparkSession) -> Iterator[None]:
    """Spark cuts files into small parts."""
    with changed(spark, cut_files(PART, PART)):
        yield


def files(folder: Path) -> dict[str, Path]:
    """Inputs of every kind, by what is in them."""
    found = {}

    def add(name: str, content: str | bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        found[name] = path if path.parent == folder else path.parent

    with (folder / "quoted é%20.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(TYPES.names)
        for i in range(300):
            out.writerow([i / 8, 'say "hi"\nto\r\nall' if i % 7 == 0 else f"k{i}", "2024-01-01T00:00:00Z", 1])
    found["quoted"] = folder / "quoted é%20.csv"
    row = "1.5,a,2024-01-01 00:00,2\n"
    add("bom.csv", b"\xef\xbb\xbf" + (HEADER + (row + "\n") * 200).replace("\n", "\r\n").encode())
    add("late.csv", HEADER + row * 250 + "oops,a,,\n" + row * 10 + "1e999,,,\n")
    add("latin1.csv", (HEADER + row * 10 + "1,é,,\n").encode("latin-1"))
    add("open.csv", HEADER + row * 100 + '1,"a,,\n' + row * 100)
    add("stray.csv", HEADER + row * 100 + '1,a"b,,\n' + row * 100)
    add("nanoseconds.csv", HEADER + "1,a,2024-01-01T00:00:00.123456789Z,1\n")
    add("rounded.csv", HEADER + "1,a,,1.005\n")
    add("clock.csv", HEADER + "1,a,12:30,1\n")
    add("whole.csv", HEADER + "9007199254740993,a,,1\n")
    add("empty.csv", "")
    add("semicolons.csv", "x;k;t;d\n1;a;;1\n")
    add("utf16.csv", (HEADER + row).encode("utf-16"))
    add("folder/a.csv", HEADER + row * 100)
    add("folder/b.csv", HEADER + row * 50 + ",,,x\n")
    add("headers/a.csv", HEADER + row)
    add("headers/b.csv", "k,x,t,d\na,1,,\n")
    add("good.json", "\ufeff" + (ONE + "\n") * 100 + '{"x": 2}\n\n  \n{"x": "-inf", "k": 1.50}')
    add("two.json", (ONE + "\n") * 100 + ONE + ONE + "\n")
    add("rubbish.json", ONE + " rubbish\n")
    add("twice.json", ONE[:-1] + ', "x": 2.0}\n')
    add("whole.json", '{"x": 9007199254740993}\n')
    add("unknown.json", ONE + '\n{"x": 1, "y": 2}\n')
    add("missing.json", '{"x": 1}\n')
    return found


def outcome(reader: Any, path: Path, uri: Path) -> Any:
    """The rows, or the text of the refusal."""
    options = warehouse.open_snapshot(uri).options
    try:
        rows = reader.read(str(path), None, options)
        if isinstance(reader, LocalInputs):
            return sorted(map(repr, pa.Table.from_batches(rows.read(), rows.schema).to_pylist()))
        return sorted(map(repr, rows.toArrow().to_pylist()))
    except (InputError, PySparkException) as error:
        try:
            reader.check()
        except InputError as first:
            return str(first)
        return str(error)


@pytest.mark.usefixtures("parts")
def test_spark_reads_text_as_this_process_does(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "w"
    warehouse.create(None, uri, ["x"], key="k", time="t", eps=0.1, schema=TYPES)
    (tmp_path / "in").mkdir()
    found = files(tmp_path / "in")
    here = {name: outcome(LocalInputs(str(uri)), path, uri) for name, path in found.items()}
    there = {name: outcome(SparkInputs(spark), path, uri) for name, path in found.items()}
    differing = {name: (here[name], there[name]) for name in here if here[name] != there[name]}
    assert not differing, str(differing)[:6000]
    assert len(here["quoted"]) == 300
    assert (
        sum(r"say \"hi\"\nto\r\nall" in row or 'say "hi"\\nto\\r\\nall' in row for row in here["quoted"])
        == 43
    )
    assert "late.csv, line 252: x is no double: oops. " in here["late.csv"]
    assert "b.csv, line 52: d is no decimal(10,2): x. " in here["folder/b.csv"]
    assert "two.json, line 101: no json record" in here["two.json"]
    assert len(here["good.json"]) == 102


def in_parts(path: Path, size: int) -> list[tuple[bytes, str, int]]:
    """The lines of a file as Spark brings them: each with the file, and the byte where its part begins."""
    found, place = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        found.append((line.removesuffix(b"\n"), str(path), place // size * size))
        place += len(line)
    return found


def first_lines(lines: list[tuple[bytes, str, int]]) -> dict[Part, int]:
    firsts: dict[Part, int] = {}
    for number, (_, path, start) in enumerate(lines, 1):
        firsts.setdefault((path, start), number)
    return firsts


def check_parts(path: Path, firsts: dict[Part, int]) -> None:
    """The record that is refused has the line that it has in the file, whatever part it is in."""
    lines = in_parts(path, 500)
    columns = [pa.array([line[i] for line in lines]) for i in range(3)]
    batches = pa.Table.from_arrays(columns, ["value", "url", "start"]).to_batches(max_chunksize=7)
    parts = spark_text.Parts("csv", {str(path): str(path)}, firsts)
    given = by_part(iter(batches))
    rows = (row for part, chunks in given for row in parts.rows(part, chunks, TextColumns(TYPES)))
    with pytest.raises(InputError, match="line 252: x is no double: oops"):
        list(rows)


def test_a_line_of_a_later_part_has_its_number_in_the_file(tmp_path: Path) -> None:
    path = files(tmp_path)["late.csv"]
    check_parts(path, first_lines(in_parts(path, 500)))


def test_parts_whose_lines_are_not_counted_are_caught(tmp_path: Path) -> None:
    path = files(tmp_path)["late.csv"]
    with pytest.raises((AssertionError, InputError)):
        check_parts(path, {})
