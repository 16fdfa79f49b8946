"""A file means to a stream what it means to a load; but each record that is refused is refused alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark_settings import changed, cut_files
from tidemark import stream, warehouse
from tidemark.stream import records
from tidemark.stream.records import read_lines
from tidemark.warehouse import InputError
from tidemark.warehouse.text import file_records, files
from tidemark.warehouse.text.file_records import MARKS, FileRecords
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.records import TextColumns

COLUMNS = TextColumns(pa.schema([("x", pa.float64()), ("y", pa.float64()), ("k", pa.string())]))
PART = 2000  # bytes of a part of a file

Told = tuple[list[tuple[Any, ...]], dict[str, str]]  # the rows, and the reasons by the places


def told(*parts: bytes, form: str = "csv", names: list[str] | None = None) -> Told:
    """What a stream makes of a file that Spark cuts into these parts."""
    columns = TextColumns(pa.schema([COLUMNS.schema.field(name) for name in names])) if names else COLUMNS
    batches, start = [], 0
    for number, text in enumerate(parts, 1):
        lines = text.removesuffix(b"\n").split(b"\n")
        marks = [pa.repeat(value, len(lines)) for value in ("f", start, number == len(parts))]
        batches += pa.table([pa.array(lines), *marks], ["_raw", *MARKS]).to_batches(max_chunksize=2)
        start += len(text)
    rows, reasons = [], {}
    for batch in FileRecords(form, columns, columns.schema).parse(iter(batches)):
        for *values, _, place, reason in (row.values() for row in batch.to_pylist()):
            if reason is None:
                rows.append(tuple(values))
            else:
                reasons[place] = reason
    return rows, reasons


def test_line_breaks_in_quotes_belong_to_the_field() -> None:
    text = b'x,y,k\r\n1,2,"a\r\nb"\r\n\r\n3,4,"say ""\n"""\r\n5,z,c\r\n'
    rows, reasons = told(text)
    assert rows == [(1, 2, "a\r\nb"), (3, 4, 'say "\n"')]
    assert reasons == {"f, line 7": "y is no double: z"}


def test_a_header_gives_the_order_and_a_file_without_one_has_that_of_the_stream() -> None:
    assert told(b"\ny,x,k\n1,2,a\n") == ([(2, 1, "a")], {})
    assert told(b"1,2,a\n") == ([(1, 2, "a")], {})
    assert told(b"1,a,2\n", names=["y", "k", "x"]) == ([(1, "a", 2)], {})
    assert told(b"x,y,k\n1,2,a\n", names=["y", "k", "x"]) == ([(2, "a", 1)], {})


@pytest.mark.parametrize("header", ["y,xx,k", "Y,X,K", "y,y,k", "x,y", "x,y,k,z"])
def test_all_records_below_a_faulty_header_are_refused(header: str) -> None:
    reason = f"the header {header.replace(',', ', ')} has not each of the columns x, y, k once"
    found = told(f"{header}\n1,2,a\n3,4,b\n".encode())
    assert found == ([], {f"f, line {line}": reason for line in (1, 2, 3)})


def test_a_field_of_json_that_is_no_column_is_refused_in_a_file_and_ignored_in_a_record() -> None:
    rows, reasons = told(b'{"x": 1}\n{"x": 1, "z": 2}\n \n{"x": 2}', form="json")
    assert rows == [(1, None, None), (2, None, None)]
    (place, reason), *others = reasons.items()
    assert not others
    assert place == "f, line 2"
    assert reason.startswith("the field z is no column of the warehouse: x, y, k. A load with evolve=True")


def test_text_of_another_encoding_and_a_record_beyond_all_sizes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, reasons = told("x,y,k\n1,2,a\n".encode("utf-16"))
    assert (rows, len(reasons)) == ([], 3)
    assert "the text is UTF-16, expected UTF-8" in reasons["f, line 1"]
    monkeypatch.setattr(files, "_MAX_RECORD_BYTES", 100)
    rows, reasons = told(b'x,y,k\n1,2,a\n1,2,"' + b"b\n" * 60 + b'1,2,"c"\n1,2,d\n')
    assert "f, line 3" in reasons
    assert (1, 2, "a") in rows


def check_cuts(text: bytes) -> None:
    """A file that is cut at any line has the same rows, or the cut is told."""
    whole = told(text)[0]
    lines = text.splitlines(keepends=True)
    for cut in range(1, len(lines)):
        parts = b"".join(lines[:cut]), b"".join(lines[cut:])
        if parts[0].count(b'"') % 2:
            with pytest.raises(InputError, match="cut the file f inside a record"):
                told(*parts)
        else:
            assert told(*parts) == (whole, {})


CUT = b'x,y,k\n1,2,a\n1,2,"b\n1,2,c\n"\n1,2,"d"\n1,2,"e\n\n"\n'


def test_a_cut_inside_a_record_is_told() -> None:
    check_cuts(CUT)
    place = told(b"x,y,k\n1,2,a\n", b"1,2,a\nz,2,a\n")[1]
    assert list(place) == ["f, line 2 from byte 12 on"]


@pytest.mark.parametrize(
    ("text", "name", "broken"),
    [
        (CUT, "_is_open", lambda *_: False),
        (b"x,y,k\n1,2,a\n", "_without_header", lambda self, block: (self.columns, block, "")),
    ],
)
def test_a_broken_reader_of_files_is_caught(
    monkeypatch: pytest.MonkeyPatch, text: bytes, name: str, broken: Any
) -> None:
    monkeypatch.setattr(FileRecords, name, broken)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_cuts(text)


def test_a_reader_that_ends_records_at_lines_or_ignores_fields_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "record_ends", files.line_ends)
    with pytest.raises(AssertionError):
        test_line_breaks_in_quotes_belong_to_the_field()
    monkeypatch.setattr(file_records, "chosen_parser", lambda _, columns: JsonRecords(columns))
    with pytest.raises(AssertionError):
        test_a_field_of_json_that_is_no_column_is_refused_in_a_file_and_ignored_in_a_record()


@pytest.fixture
def parts(spark: SparkSession) -> Iterator[None]:
    """Spark cuts files into small parts."""
    with changed(spark, cut_files(PART, PART)):
        yield


def run(spark: SparkSession, uri: Path, folder: Path) -> None:
    given = read_lines(spark, str(folder), "csv")
    rows = stream.parse(given, warehouse.open_snapshot(uri).options, "csv", lines=True)
    kept: dict[str, Any] = {"source": "s", "checkpoint": uri.parent / "c", "trigger": "available now"}
    stream.start(rows, uri, **kept).awaitTermination()


@pytest.mark.usefixtures("parts")
def test_spark_cuts_no_csv_file_and_a_cut_inside_a_record_commits_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], eps=0.1, schema=COLUMNS.schema)
    (tmp_path / "in").mkdir()
    text = "y,x,k\n" + '1,2,"a\nb"\n' * 1000 + "z,2,a\n"
    (tmp_path / "in" / "a b.csv").write_text(text)
    run(spark, tmp_path / "w", tmp_path / "in")
    events = spark.read.format("delta").load(str(tmp_path / "w" / "events"))
    found = events.groupBy("x", "y", "k").count().collect()
    assert [tuple(row) for row in found] == [(2.0, 1.0, "a\nb", 1000)]
    (refused,) = spark.read.format("delta").load(str(tmp_path / "w" / "rejected")).collect()
    assert refused.position.endswith("/in/a%20b.csv, line 2002")
    assert (refused.raw, refused.reason) == ("z,2,a", "y is no double: z")
    monkeypatch.setattr(records, "_UNCUT", {})
    (tmp_path / "in" / "b.csv").write_text(text)
    with pytest.raises(PySparkException, match="inside a record, which has a line break in quotes"):
        run(spark, tmp_path / "w", tmp_path / "in")
    assert events.count() == 1000
