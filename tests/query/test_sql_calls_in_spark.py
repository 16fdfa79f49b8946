"""Calls in Spark's SQL: points as they were used, zone-less times in UTC, refusals in one line."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as kinds

from tests.query.in_duckdb import in_sql
from tests.query.test_sql_points import COLUMNS, INF, NOON, as_double, is_same, made
from tests.spark_settings import changed
from tidemark import query
from tidemark.query.sql import spark_calls, sql_rows
from tidemark.query.sql.registered import Registered
from tidemark.query.sql.sql_types import spark_field
from tidemark.warehouse.errors import InputError, NotAWarehouse

# The text in Spark's SQL, and the same value in Python.
POINTS: dict[str, dict[str, Any]] = {
    "whole": {
        "2.5": Decimal("2.5"),
        "1e300": 1e300,
        "CAST('99999999999999999999' AS DECIMAL(20,0))": 10**20 - 1,
    },
    "part": {"9007199254740993": 2**53 + 1},
    "price": {"double('infinity')": INF},
    "day": {"TIMESTAMP_NTZ '2001-01-01 12:00:00'": NOON},
}


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, query.Warehouse]:
    folder = tmp_path_factory.mktemp("spark-points")
    found = {name: made(folder / name, pa.table({name: COLUMNS[name]})) for name in POINTS}
    for name in found:
        query.register_views(spark, folder / name, f"p_{name}")
    return found


def test_points_and_edges_are_those_that_were_used(
    spark: SparkSession, worlds: dict[str, query.Warehouse]
) -> None:
    for name, points in POINTS.items():
        wh = worlds[name]
        columns = "struct(value) AS shown, rank, rank_lo, rank_hi"
        for text, given in points.items():
            ((shown, *counts),) = spark.sql(
                f"SELECT {columns} FROM p_{name}_rank({text}, mode => 'exact')"
            ).collect()
            expected = wh.rank(as_double(name, given), mode="exact")
            value = shown[0].replace(tzinfo=UTC) if isinstance(shown[0], datetime) else shown[0]
            assert is_same(name, value, expected.value), (name, text, value)
            assert counts == [expected.rank, expected.rank_lo, expected.rank_hi], (name, text)
    bins = spark.sql("SELECT left, right, count FROM p_whole_histogram(4, 'exact')").collect()
    assert [tuple(row) for row in bins] == [
        (bin_.left, bin_.right, bin_.count) for bin_ in worlds["whole"].histogram(4, mode="exact")
    ]
    rows = spark.sql("SELECT value FROM VALUES (2.5), (-1) t(x), LATERAL p_whole_rank(t.x)").collect()
    assert {row.value for row in rows} == {Decimal("2.5"), Decimal("-1.0")}


class Argument:
    """What Spark's analysis tells of an argument."""

    def __init__(self, value: Any, kind: Any, *, constant: bool = True) -> None:
        self.value, self.dataType, self.isConstantExpression = value if constant else None, kind, constant


def planned(wh: query.Warehouse, name: str, *args: Argument, **named: Argument) -> list[str]:
    """The types of the first columns, and the values in them."""
    analysis = spark_calls.plan_call(wh, name, None, args, named)
    values = [arg.value for arg in args], {key: arg.value for key, arg in named.items()}
    list(spark_calls.rows_of_plan(wh, name, None, analysis, *values))
    return [field.dataType.simpleString() for field in analysis.schema]


def test_a_plan_has_the_type_of_the_argument(
    worlds: dict[str, query.Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark plans it, without Spark."""
    wide, exact = kinds.DecimalType(2, 1), Argument("exact", kinds.StringType())
    point, edges = Argument(Decimal("2.5"), wide), Argument([0.5, 1.5], kinds.ArrayType(kinds.DoubleType()))
    wh = worlds["whole"]
    assert planned(wh, "rank", point, exact)[0] == "decimal(21,1)"
    assert planned(wh, "rank", exact, Argument(2, kinds.IntegerType()))[0] == "bigint"
    assert planned(wh, "rank", x=point)[0] == "decimal(21,1)"
    assert planned(wh, "cdf", exact)[0] == "bigint"
    assert planned(wh, "histogram", edges)[:2] == ["double", "double"]
    assert planned(wh, "histogram", Argument(3, kinds.IntegerType()))[:2] == ["double", "double"]
    assert planned(worlds["day"], "rank", Argument("2001-01-01 12:00", kinds.StringType()))[0] == "timestamp"
    monkeypatch.setattr(sql_rows, "point_type", lambda own, _given, **_: own)
    assert planned(wh, "rank", point)[0] == "bigint"  # the broken variant


def test_every_type_of_a_column_has_a_field() -> None:
    fields = [
        spark_field("a", "map<string, bigint>"),
        spark_field("w", "struct<`start`: timestamp, `end`: decimal(20,1)>"),
    ]
    found = kinds.StructType.fromJson({"type": "struct", "fields": fields})
    assert found.simpleString() == (
        "struct<a:map<string,bigint>,w:struct<start:timestamp,end:decimal(20,1)>>"
    )


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_a_time_without_a_zone_is_utc_whatever_the_zone_of_the_worker() -> None:
    midnight = datetime(2001, 1, 2)  # noqa: DTZ001  as Spark hands it over
    assert spark_calls._read(midnight, kinds.TimestampNTZType()) == datetime(2001, 1, 2, tzinfo=UTC)
    assert midnight.astimezone(UTC) == datetime(2001, 1, 2, 5, tzinfo=UTC)  # the broken variant
    twice = int(datetime(2001, 10, 28, 6, 30, tzinfo=UTC).timestamp()) * 10**6  # 1:30 for the second time
    for us in (0, 10**15, twice):
        handed = kinds.TimestampType().fromInternal(us)
        assert spark_calls._read([handed], kinds.ArrayType(kinds.TimestampType())) == [
            datetime.fromtimestamp(us / 1e6, UTC)
        ]


@pytest.fixture(scope="module")
def hours(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    start = int(datetime(2001, 1, 1, tzinfo=UTC).timestamp())
    times = pa.array([(start + 3600 * hour) * 10**6 for hour in range(48)], pa.timestamp("us", "UTC"))
    uri = tmp_path_factory.mktemp("hours") / "w"
    wh = made(uri, pa.table({"m": [float(hour) for hour in range(48)], "t": times}), time="t", tick="1 hour")
    query.register_views(spark, uri, "hours")
    return wh


def test_times_are_keys_in_every_zone(spark: SparkSession, tmp_path: Path) -> None:
    """At both ends of time, and where clocks are set."""
    wall = [
        (1, 1, 1),
        (1883, 11, 18, 17),
        (1969, 12, 31, 23, 59, 59),
        (2001, 10, 28, 6, 30),
        (9999, 12, 31, 23, 59),
    ]
    rows = [
        (datetime(*one, tzinfo=UTC), datetime(2001, 1, day, tzinfo=UTC))  # type: ignore[arg-type, misc]  # at most six numbers
        for place, one in enumerate(wall, 1)
        for day in range(1, place + 1)
    ]
    keys, times = (pa.array(column, pa.timestamp("us", "UTC")) for column in zip(*rows, strict=True))
    table = pa.table({"m": [1.0] * len(rows), "t": times, "g": keys})
    wh = made(tmp_path / "w", table, time="t", tick="1 hour", key="g", groups=["g"])
    query.register_views(spark, tmp_path / "w", "times")
    call = "times_persistent(0.01, key => 'g', slot => '1d')"
    for zone in ("UTC", "America/New_York", "Pacific/Apia"):
        with changed(spark, {"spark.sql.session.timeZone": zone}):
            found = spark.sql(f"SELECT unix_micros(value), slots FROM {call}").collect()
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        counted = {epoch + timedelta(microseconds=micros): slots for micros, slots in found}
        assert counted == Counter(key for key, _ in rows), zone
    assert counted == {one.value: one.slots for one in wh.persistent(0.01, key="g", slot="1d")}


def test_a_key_that_no_row_can_have_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    made(tmp_path / "w", pa.table({"m": [1.0], "k": [7]}), key="k")
    query.register_views(spark, tmp_path / "w", "keyed")
    for text, value, count in (("0.5", Decimal("0.5"), 0), ("7.0", 7, 1), ("1e300", 1e300, 0), ("7", 7, 1)):
        shown = spark.sql(f"SELECT struct(value) AS v, count FROM keyed_frequency({text})").collect()
        assert shown == [((value,), count)], text


@pytest.mark.usefixtures("hours")
def test_bounds_without_a_zone_are_utc(spark: SparkSession) -> None:
    calls = "SELECT n FROM hours_quantile(0.5, since => {})"
    settings = {"spark.sql.timestampType": "TIMESTAMP_NTZ", "spark.sql.session.timeZone": "America/New_York"}
    assert spark.sql(calls.format("TIMESTAMP '2001-01-02'")).first() == (24,)
    with changed(spark, settings):
        for kind in ("", "TIMESTAMP_NTZ ", "TIMESTAMP ", "DATE "):
            assert spark.sql(calls.format(f"{kind}'2001-01-02'")).first() == (24,), kind
        instant = calls.format("TIMESTAMP_LTZ '2001-01-02'")  # of the session's zone, as the type says
        assert spark.sql(instant).first() == (19,)


REFUSED = {
    "p_whole_quantile(1.5)": "not a quantile",
    "p_whole_rank('x')": "cannot compare 'x'",
    "p_whole_quantile(0.5, where => 'm ! 3')": "not valid",
}


@pytest.mark.usefixtures("worlds")
def test_a_refusal_is_told_before_the_query_runs(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capfd.readouterr()
    for call, line in REFUSED.items():
        with pytest.raises(AnalysisException) as refused:  # spark.sql alone: no task has failed
            spark.sql(f"SELECT * FROM {call}")
        said = str(refused.value)
        assert line in said
        assert "Traceback" not in said
        assert len(said.strip().splitlines()) == 1
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    logger = logging.getLogger("SQLQueryContextLogger")
    monkeypatch.setattr(logger, "filters", [])  # the broken variant: pyspark prints what it raises
    records: list[logging.LogRecord] = []
    monkeypatch.setattr(logger, "handle", records.append)
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM p_whole_quantile(1.5)")
    assert len(records) == 1


def test_what_is_checked_early_is_not_scanned(
    worlds: dict[str, query.Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = worlds["whole"]
    sql_rows.check(wh, "quantile", None, [0.5], {"mode": "exact", "where": "whole > 2"})
    for args, named in (([1.5], {}), ([0.5], {"mode": "best"}), ([0.5], {"where": "whole >"})):
        with pytest.raises(InputError):
            sql_rows.check(wh, "quantile", None, args, named)
    asked: list[Any] = []

    def quantile(*_: Any, mode: str) -> list[Any]:
        asked.append(mode)
        return []

    monkeypatch.setattr(query.Warehouse, "quantile", quantile)
    sql_rows.check(wh, "quantile", None, [0.5], {"mode": "exact"})
    assert asked == ["quick"]


def test_functions_of_a_warehouse_that_was_made_again_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "w"
    wh = made(uri, pa.table({"x": [1.0, 2.0]}))
    query.register_views(spark, uri, "again")
    own = duckdb.connect()
    query.register_duckdb(own, uri, "again")
    assert wh.sql("SELECT * FROM quantile(1)").fetchall()
    assert spark.sql("SELECT * FROM again_quantile(1)").collect()
    shutil.rmtree(uri)
    made(uri, pa.table({"x": [7.0]}))
    for text in ("quantile(1)", "batches()"):
        with pytest.raises(PySparkException, match="deleted and made again since it was"):
            spark.sql(f"SELECT * FROM again_{text}").collect()
    assert "deleted and made again" in in_sql(wh, "SELECT * FROM quantile(1)")
    for text in ("events", "live", "runs", "rank(1)"):
        with pytest.raises(duckdb.Error, match=r"^Invalid Input Error: the warehouse at .* made again since"):
            own.sql(f"FROM again_{text}").fetchall()
    with monkeypatch.context() as patch:  # the broken variant
        patch.setattr(Registered, "check", lambda _: None)
        assert "deleted" not in str(in_sql(wh, "SELECT * FROM quantile(1)"))
    query.register_views(spark, uri, "again")
    assert spark.sql("SELECT value FROM again_quantile(1)").first() == (7.0,)
    shutil.rmtree(uri)
    with pytest.raises(PySparkException, match="was deleted since"):
        spark.sql("SELECT * FROM again_quantile(1)").collect()
    with pytest.raises(NotAWarehouse):
        query.register_views(spark, uri, "again")
