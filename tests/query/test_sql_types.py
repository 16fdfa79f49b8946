"""Values cross into SQL as they are: every type of column, measure and key, and what has no equal."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import dumps
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.query.sqlworld import ROOT
from tests.spark_settings import in_zone
from tidemark import query, stream, warehouse
from tidemark.query.sql import spark_sql as registering
from tidemark.query.sql.sql_types import common_type

SCHEMA = (
    "whole bigint, part double, wild float, price decimal(9,2), day date, at timestamp, here timestamp_ntz, "
    "flag boolean, raw binary, `odd-name` string, "
    "nested struct<a: int, b: array<string>, c: map<string, double>>"
)
MEASURES = ["whole", "part", "wild", "price", "day", "at"]
START = datetime(2001, 3, 25, 0, 30, tzinfo=UTC)  # the night in which Europe's clocks change
WILD = [float("nan"), float("inf"), float("-inf"), None, -0.0]
ROWS = [
    (
        2**53 + 1 + i,
        i / 10,
        WILD[i] if i < len(WILD) else float(i),
        Decimal(i) / 100,
        date(1969, 12, 30) + timedelta(days=i),
        START + timedelta(minutes=i, microseconds=i),
        (START + timedelta(minutes=i)).replace(tzinfo=None),
        None if i % 3 == 0 else i % 2 == 0,
        bytes([0, 255, i % 4]),
        f"é '{i}'",
        (i, ["x", None], {"k": i / 2}) if i % 5 else None,
    )
    for i in range(60)
]


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half is history, half is live; there is no time column, the key is binary."""
    uri = tmp_path_factory.mktemp("kinds") / "w"
    warehouse.create(spark, uri, MEASURES, key="raw", eps=0.1, schema=SCHEMA)
    warehouse.load(spark, uri, spark.createDataFrame(ROWS[:30], SCHEMA), batch="half")
    stream.append(spark, uri, spark.createDataFrame(ROWS[30:], SCHEMA), source="s", batch=0)
    query.register_views(spark, uri, "kinds")
    return uri


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.usefixtures("uri")
def test_rows_come_through_as_they_were(spark: SparkSession, zone: str) -> None:
    """History is read by Spark and live rows by Python: both are the rows that came."""
    columns = "whole, part, wild, price, day, unix_micros(at), flag, raw, `odd-name`, nested"
    with in_zone(spark, zone):
        spark.createDataFrame(ROWS, SCHEMA).createOrReplaceTempView("came")
        expected = spark.sql(f"SELECT {columns} FROM came ORDER BY whole").collect()
        for view, part in (("events", expected), ("history", expected[:30]), ("live", expected[30:])):
            found = spark.sql(f"SELECT {columns} FROM kinds_{view} ORDER BY whole")
            assert [repr(row) for row in found.collect()] == [repr(row) for row in part], view
            both = spark.table("kinds_live").schema, spark.table("kinds_history").schema
            assert both[0].simpleString() == both[1].simpleString()
        spark.catalog.dropTempView("came")


def median(name: str) -> Any:
    values = [row[MEASURES.index(name)] for row in ROWS]
    numbers = sorted(value for value in values if value is not None and value == value)  # noqa: PLR0124  NaN
    nans = sum(isinstance(value, float) and math.isnan(value) for value in values)
    return numbers[math.ceil((len(numbers) + nans) / 2) - 1]


@pytest.mark.usefixtures("uri")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("whole", "bigint"),
        ("part", "double"),
        ("wild", "float"),
        ("price", "decimal(9,2)"),
        ("day", "date"),
        ("at", "timestamp"),
    ],
)
def test_a_function_of_one_measure_keeps_its_type(spark: SparkSession, name: str, kind: str) -> None:
    found = spark.sql(f"SELECT value, low, high FROM kinds_{name}_quantile(0.5, mode => 'exact')")
    assert [field.dataType.simpleString() for field in found.schema] == [kind] * 3
    said = spark.sql(f"SELECT CAST(value AS STRING) v FROM kinds_{name}_quantile(0.5, mode => 'exact')")
    expected = median(name)
    if isinstance(expected, datetime):
        expected = expected.replace(tzinfo=None)
    assert said.collect()[0].v == str(expected)
    # What they have in common is text.
    common = spark.sql(f"SELECT value FROM kinds_quantile(0.5, '{name}', 'exact')")
    assert common.schema[0].dataType.simpleString() == "string"
    assert common.collect()[0].value == str(expected)


@pytest.mark.usefixtures("uri")
def test_infinities_and_nan_are_values(spark: SparkSession) -> None:
    found = spark.sql("SELECT * FROM kinds_wild_quantile(ARRAY(0, 0.98, 1), 'exact')").collect()
    assert [row.value for row in found[:2]] == [float("-inf"), float("inf")]
    assert math.isnan(found[2].value)
    assert {(row.nans, row.nulls, row.n + row.m) for row in found} == {(1, 1, 59)}
    (row,) = spark.sql("SELECT * FROM kinds_wild_rank(DOUBLE('infinity'), mode => 'exact')").collect()
    assert row.rank == 58


@pytest.mark.usefixtures("uri")
def test_points_and_keys_are_taken_in_their_own_types(spark: SparkSession) -> None:
    def one(text: str) -> Any:
        return spark.sql(f"SELECT * FROM {text}").collect()[0]

    assert one("kinds_rank(0.7, 'part', mode => 'exact')").rank == 8  # a decimal 0.7 is the double's literal
    assert one("kinds_day_rank(DATE'1970-01-01', 'exact')").rank == 3
    assert one("kinds_at_rank(TIMESTAMP'2001-03-25 00:31:00.000001Z', 'exact')").rank == 2
    assert one("kinds_price_cdf(0.29, 'exact')").cdf == 0.5
    assert one("kinds_whole_quantile(0.5, 1)").window.asDict() == {"start": 1, "end": 2}  # steps, not times
    key = one("kinds_frequency(X'00FF01', 'exact')")
    assert (bytes(key.value), key["count"]) == (b"\x00\xff\x01", 15)


def test_a_binary_key_may_be_given_as_any_bytes(uri: Path) -> None:
    """Spark 4.0 hands it over as a bytearray."""
    wh = query.open(uri)
    for kind in (bytes, bytearray, memoryview):
        assert wh.frequency(kind(b"\x00\xff\x01"), mode="exact").count == 15


KINDS = [
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(18,10)",
    "date",
    "timestamp",
]


def test_types_widen_as_those_of_spark(spark: SparkSession) -> None:
    """Spark's own COALESCE is the oracle. It brings a float and a whole number to double under ANSI."""
    names = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
    for a, b in itertools.combinations_with_replacement(KINDS, 2):
        casts = ", ".join(f"CAST(NULL AS {names.get(kind, kind)})" for kind in (a, b))
        try:
            expected = spark.sql(f"SELECT COALESCE({casts}) AS c").schema[0].dataType.simpleString()
        except AnalysisException:
            expected = "string"
        assert common_type([a, b]) == common_type([b, a]) == expected, (a, b)


def test_a_worker_without_tidemark_says_what_to_do(uri: Path, tmp_path: Path) -> None:
    """The function crosses without a reference to tidemark, so it can still tell."""
    function = registering.table_function((str(uri), ()), "rows", ("quantile", None), "x int")
    pickle: Callable[[object], bytes] = dumps  # published without types
    (tmp_path / "pickled").write_bytes(pickle(function.func))
    script = (
        "import pickle, sys\n"
        "sys.modules['tidemark'] = None\n"
        f"kind = pickle.load(open({str(tmp_path / 'pickled')!r}, 'rb'))\n"
        "try:\n    list(kind().eval(0.5))\n"
        "except ImportError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "tidemark cannot be imported by Spark's Python workers. Install it" in run.stdout
