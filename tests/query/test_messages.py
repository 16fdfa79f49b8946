"""Errors about arguments say what came, what was expected and what to do, and are never Python's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.query import Warehouse
from tidemark.query.asking import calls
from tidemark.warehouse.errors import InputError

ROWS = pa.table({"x": [1.0, 2.0], "k": ["a", "b"]})
Ask = Callable[[Any], Any]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    uri = str(tmp_path_factory.mktemp("messages") / "w")
    warehouse.create(None, uri, ["x"], keys=["k", ["x", "k"]], schema=ROWS.schema)
    warehouse.load(None, uri, ROWS, "a")
    return query.open(uri)


# Arguments that a question does not have: Python would raise TypeError.
MISFITS: dict[str, Ask] = {
    "new_keys: got an unexpected keyword argument 'where'. It takes key, last, ": lambda wh: wh.new_keys(
        where={}
    ),
    "persistence: got an unexpected keyword argument 'by'": lambda wh: wh.persistence("a", by="k"),
    "where and by are for questions about measures": lambda wh: wh.persistent(1, where={"k": "a"}),
    "quantile: got an unexpected keyword argument 'key'": lambda wh: wh.quantile(0.5, key="k"),
    "quantile: missing a required argument: 'phi'": lambda wh: wh.quantile(),
    "histogram: got an unexpected keyword argument 'wher'": lambda wh: wh.histogram(5, "x", wher={}),
    "self_join: too many positional arguments": lambda wh: wh.self_join(3),
    "top: got an unexpected keyword argument 'by'": lambda wh: wh.plot.top(by="k"),
}
OTHERS: dict[str, Ask] = {
    r"got phi = '0\.5'; expected a number in \[0, 1\]": lambda wh: wh.quantile("0.5"),
    "got phi = None": lambda wh: wh.quantile(None),
    "got phi = {}": lambda wh: wh.quantile({}),
    r"bins must be a whole number .* got \{1: 2, 3: 4\}": lambda wh: wh.histogram({1: 2, 3: 4}),
    "cannot compare {'a': 1} with 'k', which is of type string": lambda wh: wh.quantile(
        1, where={"k": {"a": 1}}
    ),
    "a key is named by its column or a list of its columns, got {'k': 'a'}": lambda wh: wh.distinct(
        key={"k": "a"}
    ),
    "separator must be text that ends a prefix, such as '.' or '/', got '": lambda wh: wh.hierarchy(
        0.5, separator="\ud800"
    ),
    "sql cannot read the statement: half of a surrogate pair": lambda wh: wh.sql("SELECT '\ud800'"),
    r"no measure \[0.5\] here": lambda wh: wh.span(np.array([0.5])),
    r"keys must be a list of column names, .* got \[{'k': 'a'}\]": lambda wh: warehouse.create(
        None,
        wh.store.uri + "2",
        ["x"],
        keys=[{"k": "a"}],  # type: ignore[list-item]
    ),
    r"measures must be one or more column names, got \[array\(5\)\]": lambda wh: warehouse.create(
        None,
        wh.store.uri + "2",
        np.array(5),  # type: ignore[arg-type]
    ),
    "the first argument must be a Spark session, or None .* got str": lambda wh: warehouse.load(
        "spark",  # type: ignore[arg-type]
        wh.store.uri,
        ROWS,
        "b",
    ),
    "other must be a reader of a warehouse, as query.open returns it, got 3": lambda wh: wh.inner_product(3),
}


@pytest.mark.parametrize("message", [*MISFITS, *OTHERS])
def test_an_argument_that_is_wrong_is_named(wh: Warehouse, message: str) -> None:
    with pytest.raises(InputError, match=message):
        (MISFITS | OTHERS)[message](wh)


@pytest.mark.parametrize("message", MISFITS)
def test_a_call_that_is_not_checked_is_caught(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(calls, "_refuse", lambda *_: None)
    told = ""
    try:
        MISFITS[message](wh)
    except (TypeError, InputError) as error:
        told = str(error)
    assert not re.search(message, told)


def test_a_type_error_inside_a_question_is_not_taken_for_one_of_its_arguments() -> None:
    @calls.checks_calls()
    class Asker:
        def ask(self, number: int) -> int:
            return number + len(number)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        Asker().ask(1)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": pa.uint64()}, {}, "decimal.20,0., as which uint64 is stored: .* to int64 or to double"),
        (
            {"x": pa.float64(), "k": pa.uint64()},
            {"key": "k"},
            "as which uint64 is stored, .* to int64 or string",
        ),
        (
            {"x": pa.float64(), "k": pa.uint64()},
            {"time": "k"},
            "as which uint64 is stored. Expected timestamp",
        ),
        ({"x": pa.decimal128(20, 2)}, {}, r"is decimal\(20,2\): at most .* to decimal\(18,2\) or to double"),
        ({"a b": pa.float64()}, {}, r"one of the characters ,;\{\}\(\)=\. Rename"),
        ({}, {}, "'x' is missing. There are: none."),
    ],
)
def test_a_column_that_cannot_be_is_told_by_its_own_type(
    tmp_path: Path, columns: dict[str, pa.DataType], options: dict[str, Any], message: str
) -> None:
    schema = pa.schema(list(columns.items()))
    with pytest.raises(InputError, match=message):
        warehouse.create(None, tmp_path / "w", [next(iter(columns), "x")], schema=schema, **options)


def test_a_schema_of_another_kind_is_refused(tmp_path: Path) -> None:
    schema: Any = 3
    with pytest.raises(InputError, match=r"schema must be a StructType, DDL text, .* got 3"):
        warehouse.create(None, tmp_path / "w", ["x"], schema=schema)
