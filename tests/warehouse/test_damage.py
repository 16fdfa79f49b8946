"""Damaged, cut or missing files end in DamagedWarehouse, which names them; nothing is answered from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.warehouse.conftest import Grown, arrow, frame
from tests.warehouse.disk import replace_rows, rows_of, tables_of
from tidemark import query, warehouse
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    """Zeroes the second half; the footer's length and the magic bytes stay."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2 - 8) + data[-8:])


HARM: dict[str, Callable[[Path], None]] = {"missing": Path.unlink, "cut": cut, "garbled": garble}


def file_of(uri: Path, table: str, part: str = "", number: int = 0) -> Path:
    found = sorted(
        f.path for f in data_files.list_files(tables.open_table(Store.from_uri(uri), table)) if part in f.path
    )
    return uri / table / found[number]


def all_answers(uri: Path) -> Any:
    """Every rank of every measure, so that every block is read."""
    wh = query.open(uri)
    return [wh.quantile([i / 400 for i in range(401)], name, mode="exact") for name in ("x", "n")]


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize(
    ("table", "part", "number"),
    [
        ("runs/x", "L01", 1),
        ("runs/n", "L00", 2),
        ("marks/x", "L01", 0),
        ("ledger", "", 0),
        ("steps", "", 0),
        ("events", "", 10),
    ],
)
def test_an_answer_from_a_damaged_file_is_an_error_that_names_it(
    copied: Grown, table: str, part: str, number: int, harm: str
) -> None:
    if table == "events":  # the live batches' rows: the newest files
        spoilt = [
            copied.uri / table / f.path
            for f in data_files.list_files(tables.open_table(Store.from_uri(copied.uri), table))
            if f.stats["min._source"] == "s"
        ]
    else:
        spoilt = [file_of(copied.uri, table, part, number)]
    for path in spoilt:
        HARM[harm](path)
    with pytest.raises(DamagedWarehouse) as found:
        all_answers(copied.uri)
    assert any(path.name in str(found.value) for path in spoilt), str(found.value)


def test_a_summary_with_a_flipped_byte_is_refused_wherever_the_byte_lies(copied: Grown) -> None:
    rows = rows_of(copied.uri, "ledger")
    listed = rows.to_pylist()
    whole = listed[2]["measures"][0]["sketch"]
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        listed[2]["measures"][0]["sketch"] = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        replace_rows(copied.uri, "ledger", pa.Table.from_pylist(listed, schema=rows.schema))
        with pytest.raises(DamagedWarehouse, match=r"summary of 'x'.*damaged"):
            query.open(copied.uri).quantile(0.5, "x")
    assert query.open(copied.uri).quantile(0.5, "n").N > 0
    listed[2]["measures"][0]["sketch"] = whole
    replace_rows(copied.uri, "ledger", pa.Table.from_pylist(listed, schema=rows.schema))
    assert warehouse.verify(copied.uri).ok


@pytest.mark.parametrize("change", ["other n", "no summary", "two summaries"])
def test_a_ledger_row_that_contradicts_itself_is_refused(copied: Grown, change: str) -> None:
    rows = rows_of(copied.uri, "ledger")
    listed = rows.to_pylist()
    if change == "other n":
        listed[2]["measures"][0]["nulls"] += 1
    elif change == "no summary":
        del listed[2]["measures"][0]
    else:
        listed[2]["measures"].append(listed[2]["measures"][0])
    replace_rows(copied.uri, "ledger", pa.Table.from_pylist(listed, schema=rows.schema))
    with pytest.raises(DamagedWarehouse, match="'x'"):
        query.open(copied.uri).quantile(0.5, "x")


@pytest.mark.parametrize("name", ["runs/x", "marks/n", "events"])
def test_a_load_that_meets_a_damaged_file_names_it_and_leaves_history_as_it_was(
    spark: SparkSession, copied: Grown, name: str
) -> None:
    """Two more steps overflow the level: the merge reads runs and marks; the first reads the live events.

    A task of Spark meets the file of a run, this process the others.
    """
    session, rows = spark if name == "runs/x" else None, copied.batches["night-0"]
    if name == "events":
        spoilt = next(
            copied.uri / name / f.path
            for f in data_files.list_files(tables.open_table(Store.from_uri(copied.uri), name))
            if f.stats["min._source"] == "s"
        )
    else:
        spoilt = file_of(copied.uri, name, "L00-0000000003", -1)
    whole = spoilt.read_bytes()
    cut(spoilt)
    with pytest.raises(DamagedWarehouse, match=spoilt.name):  # noqa: PT012  which of the two it is depends
        warehouse.load(session, copied.uri)
        warehouse.load(session, copied.uri, frame(spark, rows) if session else arrow(rows), "more")
    held = tables_of(copied.uri)["runs/n"]
    assert any("L00-0000000003" in path for path in held[1])
    spoilt.write_bytes(whole)
    warehouse.load(None, copied.uri)
    warehouse.load(None, copied.uri, arrow(rows), "more")
    report = warehouse.verify(copied.uri)
    assert report.ok, str(report)
    assert "630 rows in history, 0 live" in str(report)
