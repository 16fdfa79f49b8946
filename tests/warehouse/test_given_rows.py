"""Without Spark, a load takes what gives an Arrow stream, paths of text, and integers that fit exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.execution import arrow_inputs, input_files
from tidemark.warehouse.ingest import column_casts
from tidemark.warehouse.text import given as given_files
from tidemark.warehouse.text import guessed_types

SCHEMA = pa.schema([("x", pa.float64()), ("n", pa.int32()), ("k", pa.string())])
COLUMNS: dict[str, list[Any]] = {"x": [1.5, None, 2.5], "n": [1, 2, -3], "k": ["a", None, "é"]}
ROWS = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]


def given(folder: Path) -> dict[str, Any]:
    """The rows in each form, by its name."""
    table = pa.table(COLUMNS)  # integers are of 64 bits
    lines = ["x,n,k\n1.5,1,a\n", "x,n,k\n,2,\n", "x,n,k\n2.5,-3,é\n"]
    for number, text in enumerate(lines):
        (folder / f"{number}.csv").write_text(text)
    (folder / "all.json").write_text(
        '{"x": 1.5, "n": 1, "k": "a"}\n{"n": 2}\n{"x": 2.5, "n": -3, "k": "é"}\n'
    )
    return {
        "a pandas frame": pd.DataFrame(COLUMNS),
        "a Polars frame": pl.DataFrame(COLUMNS),
        "a relation of DuckDB": duckdb.from_arrow(table),
        "a table": table,
        "a JSON path": folder / "all.json",
        "a list of CSV paths": [str(folder / f"{i}.csv") for i in range(3)],
        "a pattern": str(folder / "*.csv"),
    }


def stored(uri: Path) -> list[dict[str, Any]]:
    rows = query.open(uri).sql("SELECT x, n, k FROM events ORDER BY abs(n)").to_arrow_table()
    return list(rows.to_pylist())


whole_stream = arrow_inputs._opened


def check_forms(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], key="k", eps=0.1, schema=SCHEMA)
    (tmp_path / "in").mkdir()
    outcomes = {
        name: warehouse.load(None, tmp_path / "w", rows, batch="b").outcome
        for name, rows in given(tmp_path / "in").items()
    }
    assert outcomes == dict.fromkeys(outcomes, "known") | {"a pandas frame": "loaded"}
    assert stored(tmp_path / "w") == ROWS


def test_each_form_of_the_rows_is_the_same_batch(tmp_path: Path) -> None:
    check_forms(tmp_path)


@pytest.mark.parametrize(
    ("module", "name", "broken"),
    [
        (given_files, "find_inputs", lambda given, places: input_files.find_inputs(given[:1], places)),
        (arrow_inputs, "_opened", lambda rows: whole_stream(pa.table(rows).slice(1))),
        (given_files, "are_paths", lambda _: False),
    ],
)
def test_a_form_of_which_rows_are_lost_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(module, name, broken)
    with pytest.raises((AssertionError, InputError, BatchMismatch)):
        check_forms(tmp_path)


def check_first_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,zip,sku,day\n1,00501,1e5,2024-01-01\n2,501,100000,2024-01-02\n")
    warehouse.create(None, tmp_path / "w", ["x"], keys=["zip", "sku"], eps=0.1)
    warehouse.load(None, tmp_path / "w", tmp_path / "a.csv", batch="a")
    wh = query.open(tmp_path / "w")
    assert [wh.frequency(one, key="zip").count for one in ("00501", "501")] == [1, 1]
    assert wh.distinct(key="sku", mode="exact").count == 2
    columns = warehouse.open_snapshot(tmp_path / "w").options.columns
    assert dict(columns) == {"x": "long", "zip": "string", "sku": "string", "day": "date"}


def test_the_first_batch_of_text_chooses_the_types_and_keys_are_text(tmp_path: Path) -> None:
    check_first_types(tmp_path)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("Wanted", lambda **_: guessed_types.ANY_TYPES),
        (
            "guess_types",
            lambda *_: guessed_types.arrow_schema(dict.fromkeys(("x", "zip", "sku"), "long")),
        ),
    ],
)
def test_keys_that_are_guessed_as_numbers_are_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: Any
) -> None:
    monkeypatch.setattr(given_files, name, broken)
    with pytest.raises((AssertionError, InputError)):
        check_first_types(tmp_path)


REFUSED = {
    "a number beyond the type": {"n": pa.array([2**31])},
    "a whole number that no double is": {"x": pa.array([2**53 + 1])},
    "the greatest number": {"x": pa.array([2**63 - 1])},
}


def check_refused(uri: Path, table: pa.Table) -> None:
    with pytest.raises(InputError, match=r"2147483648|9007199254740993|9223372036854775807"):
        warehouse.load(None, uri, table, batch="bad")


@pytest.mark.parametrize("reason", REFUSED)
def test_integers_that_do_not_fit_exactly_are_refused(tmp_path: Path, reason: str) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], key="k", eps=0.1, schema=SCHEMA)
    columns = {"x": pa.array([2**60]), "n": pa.array([7], pa.int64()), "k": pa.array(["a"])}
    assert warehouse.load(None, tmp_path / "w", pa.table(columns), batch="good").rows == 1
    assert stored(tmp_path / "w") == [{"x": float(2**60), "n": 7, "k": "a"}]
    check_refused(tmp_path / "w", pa.table(columns | REFUSED[reason]))


def test_a_cast_that_rounds_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        return column.cast(field.type, safe=False)

    monkeypatch.setattr(column_casts, "_cast", rounded)
    warehouse.create(None, tmp_path / "w", ["x"], eps=0.1, schema=SCHEMA)
    table = pa.table({"x": pa.array([2**53 + 1]), "n": pa.array([1]), "k": pa.array(["a"])})
    with pytest.raises(pytest.fail.Exception):
        check_refused(tmp_path / "w", table)


class Failing:
    """Rows whose library fails to make a stream of them."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise RuntimeError("a library's own error")


def failing_rows() -> dict[str, tuple[Any, str]]:
    """Rows that cannot be read, each with what the error says."""
    mixed, other = pd.DataFrame(COLUMNS).assign(k=["a", 1, "b"]), pa.record_batch({"x": [1], "z": [1]})
    cast = duckdb.sql("SELECT CAST(t AS DOUBLE) x, 1 n, 'a' k FROM (VALUES ('1'), ('z')) r(t)")
    return {
        "a column of mixed types": (mixed, r"rows of the pandas.*Expected bytes, got a 'int' object"),
        "a relation that fails": (cast, "rows of the .*DuckDBPyRelation: Conversion Error"),
        "an object that fails": (Failing(), "rows of the .*Failing: a library's own error"),
        "batches of other columns": (
            pa.RecordBatchReader.from_batches(SCHEMA, [other]),
            "a batch has the columns x int64, z int64, its reader x double, n int32, k string",
        ),
        "one file twice": ([path := "{folder}/0.csv", path], "is in the input twice"),
        "an empty path": ("", "an input is an empty text"),
    }


@pytest.mark.parametrize("name", failing_rows())
def test_rows_that_cannot_be_read_whole_and_once_are_refused(tmp_path: Path, name: str) -> None:
    given(tmp_path)
    rows, message = failing_rows()[name]
    if isinstance(rows, list):
        rows = [rows[0].format(folder=tmp_path)] * 2  # the very same text twice
    warehouse.create(None, tmp_path / "w", ["x"], key="k", eps=0.1, schema=SCHEMA)
    with pytest.raises(InputError, match=message):
        warehouse.load(None, tmp_path / "w", rows, batch="b")
    assert query.open(tmp_path / "w").info()["steps"] == 0


def test_a_file_that_is_named_twice_unseen_is_the_broken_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "_check_distinct", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        test_rows_that_cannot_be_read_whole_and_once_are_refused(tmp_path, "one file twice")
