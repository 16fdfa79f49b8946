"""What is refused is refused with the package's own error, which says what to do, and changes nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.warehouse.conftest import Grown, frame
from tests.warehouse.disk import edit_properties, files_of, tables_of
from tidemark import stream, warehouse
from tidemark.warehouse import (
    BatchMismatch,
    DamagedWarehouse,
    InputError,
    NotAWarehouse,
    OptionsMismatch,
    TidemarkError,
)


@contextmanager
def refused(uri: Path, error: type[TidemarkError], *words: str) -> Iterator[None]:
    """The block raises exactly that error, its message has all the words, and no file has changed."""
    before = files_of(uri)
    with pytest.raises(TidemarkError) as found:
        yield
    assert type(found.value) is error
    message = str(found.value)
    assert all(word in message for word in words), message
    assert files_of(uri) == before


BAD_ROWS: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, ...]]] = {
    "a measure is missing": (lambda df: df.drop("x"), ("measure", "'x'", "missing", "t, k, n")),
    "the key is missing": (lambda df: df.drop("k"), ("key", "'k'", "missing")),
    "the time is missing": (lambda df: df.drop("t"), ("time", "'t'", "missing")),
    "a column is unknown": (lambda df: df.withColumn("more", F.lit(1)), ("unknown ['more']",)),
    "a measure is text": (lambda df: df.withColumn("x", F.lit("1")), ("'x'", "string", "double", "Cast")),
    "a measure would lose digits": (
        lambda df: df.withColumn("n", F.lit(1.5)),
        ("'n'", "double", "long", "Cast"),
    ),
    "a long would become a double": (
        lambda df: df.withColumn("x", F.lit(2**53 + 1)),
        ("x is of type double", "9007199254740993"),
    ),
    "the time is text": (lambda df: df.withColumn("t", F.lit("1970-01-01")), ("'t'", "string", "timestamp")),
    "a name is tidemark's own": (
        lambda df: df.withColumn("_TICK", F.lit(1)),
        ("_TICK", "tidemark", "Rename"),
    ),
    "a name is there twice": (lambda df: df.select("*", "x"), ("'x'", "twice")),
}


@pytest.mark.parametrize("reason", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused_by_loads_and_streams_alike(
    spark: SparkSession, grown: Grown, reason: str
) -> None:
    spoil, words = BAD_ROWS[reason]
    rows = spoil(frame(spark, grown.batches["night-0"]))
    with refused(grown.uri, InputError, *words):
        warehouse.load(spark, grown.uri, rows, "new")
    with refused(grown.uri, InputError, *words):
        stream.append(spark, grown.uri, rows, source="s", batch=99)


def test_no_rows_are_no_batch(spark: SparkSession, grown: Grown) -> None:
    """An empty load succeeds, says so, and leaves no trace; the name is still free."""
    before = files_of(grown.uri)
    report = warehouse.load(spark, grown.uri, frame(spark, grown.batches["night-0"]).limit(0), "none")
    assert (report.outcome, report.rows, report.step) == ("empty", 0, None)
    assert files_of(grown.uri) == before


BAD_BATCHES: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, ...]]] = {
    "fewer rows": (lambda df: df.limit(89), ("90 rows are stored", "89 came")),
    "more rows": (lambda df: df.unionAll(df.limit(1)), ("90 rows are stored", "91 came")),
    "no rows": (lambda df: df.limit(0), ("90 rows are stored", "0 came")),
    "another key": (lambda df: df.withColumn("k", F.lit("k9")), ("90 rows", "content differs")),
    "one microsecond": (
        lambda df: df.withColumn("t", F.expr("t + interval 1 microsecond")),
        ("content differs",),
    ),
    "the last digit": (
        lambda df: df.withColumn("n", F.expr("if(n = 9007199254740993, n - 1, n)")),
        ("content differs",),
    ),
    "NULL for NaN": (lambda df: df.withColumn("x", F.expr("if(isnan(x), NULL, x)")), ("content differs",)),
}


@pytest.mark.parametrize("reason", BAD_BATCHES)
def test_a_batch_that_comes_again_with_other_rows_is_refused(
    spark: SparkSession, grown: Grown, reason: str
) -> None:
    change, words = BAD_BATCHES[reason]
    with refused(grown.uri, BatchMismatch, "night-1", "new batch name", *words):
        warehouse.load(spark, grown.uri, change(frame(spark, grown.batches["night-1"])), "night-1")


def test_a_batch_with_one_row_twice_instead_of_another_is_refused(spark: SparkSession, grown: Grown) -> None:
    rows = grown.batches["night-1"]
    with refused(grown.uri, BatchMismatch, "90 rows", "content differs"):
        warehouse.load(spark, grown.uri, frame(spark, [rows[0], *rows[:-1]]), "night-1")


GOOD = {
    "measures": ["x"],
    "schema": "t timestamp, d date, k string, x double, s string, b boolean, "
    "a array<int>, w decimal(38,2), st struct<a:int>, raw binary",
}
BAD_OPTIONS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"measures": None}, ("at least one measure",)),
    ({"measures": []}, ("measures", "[]")),
    ({"measures": [""]}, ("measures", "['']")),
    ({"measures": 5}, ("measures", "5")),
    ({"measures": ["x", "x"]}, ("twice",)),
    ({"measures": ["y"]}, ("measure", "'y'", "missing")),
    ({"measures": ["s"]}, ("'s'", "string", "Expected")),
    ({"measures": ["b"]}, ("'b'", "boolean")),
    ({"measures": ["a"]}, ("'a'", "array")),
    ({"measures": ["st"]}, ("'st'", "struct")),
    ({"measures": ["raw"]}, ("'raw'", "binary")),
    ({"measures": ["x", "w"]}, ("'w'", "decimal(38,2)", "18 digits", "Cast")),
    ({"key": "nope"}, ("key", "'nope'", "missing")),
    ({"key": ""}, ("key", "''")),
    ({"key": 7}, ("key", "7")),
    ({"time": "nope"}, ("time", "'nope'", "missing")),
    ({"time": "s"}, ("'s'", "string", "timestamp or date")),
    ({"time": ["t"]}, ("time", "['t']")),
    ({"tick": "1 day"}, ("tick", "time column")),
    *[
        ({"time": "t", "tick": tick}, ("duration", repr(tick)))
        for tick in (
            "1 fortnight",
            "-1 day",
            "",
            "day",
            "1.5 hours",
            5,
            "0 s",
            timedelta(0),
            timedelta(-1),
            "20000 weeks",
        )
    ],
    *[
        ({"eps": eps}, ("eps", repr(eps), "(0, 0.5)"))
        for eps in (0, 0.5, -0.1, 1, math.nan, math.inf, "0.1", True)
    ],
    *[({"kappa": kappa}, ("kappa", repr(kappa), "at least 2")) for kappa in (1, 0, -3, 2.5, "3", True)],
    *[({"grace": grace}, (repr(grace),)) for grace in ("soon", "0soon", "-1 day", timedelta(-1), 5)],
    ({"schema": "x double, _Source string"}, ("_Source", "tidemark")),
    ({"schema": "x double, `two words` int"}, ("two words",)),
    ({"schema": "x double, X int"}, ("X",)),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:60])
def test_bad_options_make_no_warehouse(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(tmp_path, InputError, *words):
        warehouse.create(spark, tmp_path / "new", **{**GOOD, **options})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("measures", ["n", "x"]),
        ("measures", "x"),
        ("keys", [["n"]]),
        ("time", "other"),
        ("tick", "2 days"),
        ("eps", 0.2),
        ("kappa", 3),
        ("grace", "1 day"),
    ],
)
def test_options_that_disagree_are_refused_and_both_are_shown(
    spark: SparkSession, grown: Grown, name: str, value: Any
) -> None:
    given = {
        "tick": 2 * 86_400_000_000,
        "grace": 86_400_000_000,
        "measures": value if isinstance(value, list) else [value],
    }
    with refused(
        grown.uri,
        OptionsMismatch,
        name,
        repr(given.get(name, value)),
        repr(warehouse_option(grown.uri, name)),
    ):
        warehouse.create(spark, grown.uri, **{name: value})


def warehouse_option(uri: Path, name: str) -> Any:
    options = warehouse.open_snapshot(uri).options
    stored: dict[str, Any] = {"tick": options.tick_us, "grace": options.grace_us}
    stored["measures"] = list(options.measure_names)
    stored["keys"] = [list(columns) for columns in options.own_keys]
    return stored[name] if name in stored else getattr(options, name)


def test_the_same_options_find_the_warehouse_as_it_is(spark: SparkSession, grown: Grown) -> None:
    before = files_of(grown.uri)
    same = warehouse.create(
        spark, grown.uri, ["x", "n"], key="k", time="t", tick="24 hours", eps=0.1, kappa=2
    )
    assert same == warehouse.create(spark, grown.uri) == warehouse.open_snapshot(grown.uri).options
    assert files_of(grown.uri) == before


@pytest.mark.parametrize(
    ("source", "batch"), [("", 1), (None, 1), ("load:x", 1), ("s", -1), ("s", 1.0), ("s", "1"), ("s", True)]
)
def test_a_stream_batch_has_a_name_and_a_number(
    spark: SparkSession, grown: Grown, source: Any, batch: Any
) -> None:
    with refused(grown.uri, InputError, repr(batch) if source == "s" else repr(source)):
        stream.append(spark, grown.uri, frame(spark, grown.batches[0]), source=source, batch=batch)


@pytest.mark.parametrize("batch", ["", "  ", 5, None])
def test_a_bulk_batch_has_a_name(spark: SparkSession, grown: Grown, batch: Any) -> None:
    with refused(grown.uri, InputError, "batch"):
        warehouse.load(spark, grown.uri, frame(spark, grown.batches["night-0"]), batch)


def test_a_batch_name_without_rows_is_refused(spark: SparkSession, grown: Grown) -> None:
    with refused(grown.uri, InputError, "rows and batch"):
        warehouse.load(spark, grown.uri, batch="night-0")


def places(folder: Path, grown: Grown) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Where no warehouse is that this version can read, and what the error says."""
    (folder / "empty").mkdir()
    write_deltalake(folder / "delta", pa.table({"x": [1.0]}))
    write_deltalake(folder / "like" / "events", pa.table({"x": [1.0]}))
    write_deltalake(folder / "like" / "steps", pa.table({"x": [1.0]}))
    (folder / "text").write_text("no folder")
    newer = folder / "newer"
    shutil.copytree(grown.uri, newer)
    edit_properties(newer, {"tidemark.format": "2"})
    damaged = folder / "damaged"
    shutil.copytree(grown.uri, damaged)
    for commit in (damaged / "events" / "_delta_log").glob("*.json"):
        commit.write_bytes(commit.read_bytes()[:50])
    return {
        "missing": (folder / "missing", ("not a tidemark warehouse", "Create it")),
        "empty": (folder / "empty", ("not a tidemark warehouse", "Create it")),
        "delta": (folder / "delta", ("not a tidemark warehouse", "Create it")),
        "like": (folder / "like", ("not a tidemark warehouse", "tidemark properties")),
        "text": (folder / "text", ("is a file", "give another path")),
        "newer": (newer, ("format 2", "reads 1", "newer tidemark")),
        "damaged": (damaged, ("the table events", "its log cannot be read", "from a copy")),
    }


def test_whoever_is_led_to_no_warehouse_is_told_so(spark: SparkSession, grown: Grown, tmp_path: Path) -> None:
    rows = frame(spark, grown.batches["night-0"])
    for name, (uri, words) in places(tmp_path, grown).items():
        error = DamagedWarehouse if name == "damaged" else NotAWarehouse
        for call in (
            lambda: warehouse.open_snapshot(uri),  # noqa: B023
            lambda: warehouse.load(spark, uri, rows, "new"),  # noqa: B023
            lambda: warehouse.load(spark, uri),  # noqa: B023
            lambda: stream.append(spark, uri, rows, source="s", batch=9),  # noqa: B023
            lambda: warehouse.maintain(spark, uri),  # noqa: B023
            lambda: warehouse.verify(uri),  # noqa: B023
        ):
            with refused(tmp_path, error, str(uri), *words):
                call()


@pytest.mark.parametrize("name", ["like", "newer", "delta"])
def test_no_warehouse_is_made_where_something_else_lies(
    spark: SparkSession, grown: Grown, tmp_path: Path, name: str
) -> None:
    uri, _ = places(tmp_path, grown)[name]
    with refused(tmp_path, InputError if name == "delta" else NotAWarehouse, str(uri)):
        warehouse.create(spark, uri, ["x"], schema="x double")


def test_an_options_property_that_was_removed_or_spoilt_is_told(grown: Grown, tmp_path: Path) -> None:
    for name, value in (("tidemark.kappa", None), ("tidemark.eps", "much"), ("tidemark.measures", "[")):
        uri = tmp_path / name
        shutil.copytree(grown.uri, uri)
        edit_properties(uri, {name: value})
        with refused(tmp_path, NotAWarehouse, name):
            warehouse.open_snapshot(uri)


def test_a_first_batch_that_cannot_be_leaves_a_warehouse_without_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Where the first batch fixes the columns, a bad one fixes nothing, and a good one still can."""
    warehouse.create(spark, tmp_path, ["x"], key="k", eps=0.1)
    for schema, words in (
        ("k string, y double", ("measure", "'x'", "missing")),
        ("k string, x string", ("'x'", "string")),
        ("x double", ("key", "'k'", "missing")),
        ("k string, x double, _batch int", ("_batch",)),
        ("k string, x double, `two words` int", ("two words",)),
    ):
        rows = spark.createDataFrame([], schema)
        with refused(tmp_path, InputError, *words):
            warehouse.load(spark, tmp_path, rows, "first")
        with refused(tmp_path, InputError, *words):
            stream.append(spark, tmp_path, rows, source="s", batch=0)
    assert all(not files for _, files in tables_of(tmp_path).values())
    assert DeltaTable(tmp_path / "events").schema().fields[-1].name == "_tick"


@pytest.mark.parametrize("path", ["x%41", "a[b]", "a^b", "a|b", "a\\b", "a\tb", "a\nb"])
def test_a_path_that_delta_rs_cannot_open_is_refused_by_name(tmp_path: Path, path: str) -> None:
    with pytest.raises(warehouse.InputError, match="Choose another"):
        warehouse.open_snapshot(tmp_path / path)
    assert list(tmp_path.iterdir()) == []
