"""Every type of measure goes in through Spark and comes back exact and in its own type."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark_settings import changed, in_zone
from tidemark import query, stream, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.warehouse.delta.table_names import folder_name

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LONGEST = 2**63 - 1

# A column of each type under a name that Delta allows, and values at the edges of the type.
MICROS = timedelta(microseconds=1)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, -1, 0, 1, 127]),
    "short.with.dots": (pa.int16(), [-(2**15), 0, 2**15 - 1]),
    "int-with-dashes": (pa.int32(), [-(2**31), 0, 2**31 - 1]),
    "long/with\\slashes": (pa.int64(), [-LONGEST - 1, -(2**53) - 1, 2**53, 2**53 + 1, LONGEST - 1, LONGEST]),
    "float`with`backquotes": (pa.float32(), [-math.inf, -0.0, 0.0, 0.1, 1e-45, 3.4e38, math.inf, math.nan]),
    "doublé→☃": (pa.float64(), [-math.inf, -1.7e308, -0.0, 0.0, 5e-324, 0.1, math.inf, math.nan, math.nan]),
    "it's_\"quoted\"": (pa.decimal128(18, 4), [Decimal("-99999999999999.9999"), Decimal("-0.0001"),
                                               Decimal("0.0000"), Decimal("99999999999999.9999")]),
    "100%~41": (pa.decimal128(10, 0), [Decimal(-9999999999), Decimal(0), Decimal(9999999999)]),
    "Day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]),
    "at+UTC": (pa.timestamp("us", tz="UTC"), [EPOCH - MICROS, EPOCH, datetime(1, 1, 1, tzinfo=UTC),
                                              datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]),
    "at#wall": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 3, 10, 2, 30),  # noqa: DTZ001
                                     datetime(2024, 11, 3, 1, 30), datetime(1883, 11, 18, 12, 1)]),  # noqa: DTZ001
}  # fmt: skip
RANDOM: dict[str, Callable[[random.Random], Any]] = {
    "byte": lambda r: r.randint(-128, 127),
    "short.with.dots": lambda r: r.randint(-9, 9),
    "int-with-dashes": lambda r: r.randint(-(2**31), 2**31 - 1),
    "long/with\\slashes": lambda r: 2**60 + r.randint(-5, 5),
    "float`with`backquotes": lambda r: r.gauss(0, 1),
    "doublé→☃": lambda r: r.gauss(0, 1e3),
    'it\'s_"quoted"': lambda r: Decimal(r.randint(-(10**6), 10**6)).scaleb(-4),
    "100%~41": lambda r: Decimal(r.randint(-100, 100)),
    "Day": lambda r: date(1969, 1, 1) + r.randint(0, 700) * DAY,
    "at+UTC": lambda r: EPOCH + r.randint(-(10**12), 10**12) * MICROS,
    "at#wall": lambda r: datetime(2024, 3, 10) + r.randint(0, 10**10) * MICROS,  # noqa: DTZ001
}


@pytest.fixture(scope="module", autouse=True)
def _compiled(spark: SparkSession) -> Iterator[None]:
    """Queries are compiled, as users have it, and unlike those of other tests."""
    with changed(
        spark, {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    ):
        yield


ROWS = 64
TICK = timedelta(hours=6)
ODD_PATH = "wäre house 41%+#1=2~c3?"


def batch_of(number: int) -> pa.Table:
    """Edges, random values and NULLs of every type; times round 1970, some NULL; columns of no measure."""
    r = random.Random(number)
    columns: dict[str, pa.Array] = {}
    for name, (kind, edges) in COLUMNS.items():
        values = [*edges, *(RANDOM[name](r) for _ in range(ROWS - len(edges) - 4)), None, None, None, None]
        r.shuffle(values)
        columns[name] = pa.array(values, kind)
    when = [None if i % 13 == 5 else EPOCH + r.randint(-8, 8) * TICK / 2 for i in range(ROWS)]
    columns["when"] = pa.array(when, pa.timestamp("us", tz="UTC"))
    columns["key"] = pa.array([f"k{i % 3}" for i in range(ROWS)])
    columns["nested"] = pa.array([{"a": i, "b": [i]} for i in range(ROWS)])
    columns["flag"] = pa.array([i % 2 == 0 for i in range(ROWS)])
    return pa.table(columns)


def frame_of(spark: SparkSession, folder: Path, rows: pa.Table) -> DataFrame:
    """The rows by way of a Parquet file: createDataFrame would read wall times in the session's zone."""
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, path)
    return spark.read.parquet(str(path))


def oracle(values: list[Any]) -> list[Any]:
    """What has a rank, sorted as answers come back: -0.0 as 0.0, zoneless times as UTC, NaN at the end."""
    kept = [v for v in values if v is not None]
    kept = [v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in kept]
    numbers = sorted(v for v in kept if v == v)  # noqa: PLR0124  NaN is not itself
    return [0.0 if v == 0 and isinstance(v, float) else v for v in numbers] + [v for v in kept if v != v]  # noqa: PLR0124


def assert_all_ranks(wh: query.Warehouse, measure: str, values: list[Any], mode: Mode, **window: Any) -> None:
    """Each quantile k/N, and the minimum, is the k-th of the sorted array: same value, same type."""
    truth = oracle(values)
    answers = wh.quantile(
        [0, *(Fraction(k, len(truth)) for k in range(1, len(truth) + 1))], measure, mode=mode, **window
    )
    for answer, expected in zip(answers, [truth[0], *truth], strict=True):
        assert type(answer.value) is type(expected)
        assert repr(answer.value) == repr(expected)
        assert len(truth) == answer.N
        assert answer.nulls == len(values) - len(truth)
        assert answer.error_bound == 0


@pytest.fixture(scope="module")
def history() -> list[pa.Table]:
    return [batch_of(number) for number in range(4)]


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, history: list[pa.Table]) -> Path:
    """Four batches of every type in history, one merge among them, loaded in another zone's session."""
    inputs = tmp_path_factory.mktemp("types")
    path = inputs / ODD_PATH
    with in_zone(spark, "America/New_York"):
        frames = [frame_of(spark, inputs, rows) for rows in history]
        assert dict(frames[0].dtypes)["at#wall"] == "timestamp_ntz"
        warehouse.create(
            spark,
            path,
            list(COLUMNS),
            key="key",
            time="when",
            tick="6 hours",
            eps=0.1,
            kappa=2,
            schema=frames[0],
        )
        for number, frame in enumerate(frames):
            warehouse.load(spark, path, frame, f"batch-{number}")
    return path


def test_the_same_table_is_made_whether_the_schema_says_zone_or_not(uri: Path) -> None:
    """A zoneless column is stored as a UTC instant, so `events` needs no table feature."""
    options = warehouse.open_snapshot(uri).options
    assert options.measure("at#wall").type == "timestamp"
    assert [m.name for m in options.measures] == list(COLUMNS)


@pytest.mark.parametrize("measure", COLUMNS)
def test_every_quantile_of_history_is_the_one_of_the_sorted_array(
    uri: Path, history: list[pa.Table], measure: str
) -> None:
    values = [v for rows in history for v in rows.column(measure).to_pylist()]
    assert_all_ranks(query.open(uri), measure, values, "accurate")


@pytest.mark.parametrize("measure", COLUMNS)
def test_every_window_holds_the_rows_of_its_ticks(uri: Path, history: list[pa.Table], measure: str) -> None:
    """Rows without a time are in no window that names a time, and in the whole."""
    rows = [
        (v, t)
        for part in history
        for v, t in zip(part.column(measure).to_pylist(), part.column("when").to_pylist(), strict=True)
    ]
    wh = query.open(uri)
    for start, end in [(-4, 5), (-4, -3), (-1, 0), (0, 1), (-2, 2), (3, 5)]:
        t0, t1 = EPOCH + start * TICK, EPOCH + end * TICK
        inside = [v for v, t in rows if t is not None and t0 <= t < t1]
        assert_all_ranks(wh, measure, inside, "accurate", between=(t0, t1))
    assert_all_ranks(
        wh, measure, [v for v, t in rows if t is not None], "accurate", between=(None, EPOCH + DAY * 9)
    )


def test_run_folders_have_plain_names(uri: Path) -> None:
    names = sorted(path.name for path in (uri / "runs").iterdir())
    assert names == sorted(folder_name(name) for name in COLUMNS)
    assert all(
        set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-~")
        for name in names
    )


def test_the_warehouse_of_all_types_verifies(uri: Path) -> None:
    report = warehouse.verify(uri)
    assert report.ok, str(report)


def test_live_rows_of_every_type_answer_exactly_then_move_into_history(
    spark: SparkSession, uri: Path, history: list[pa.Table], tmp_path: Path
) -> None:
    """Runs last in this module: it adds to the shared warehouse."""
    live = [batch_of(10), batch_of(11)]
    with in_zone(spark, "Asia/Kathmandu"):
        for number, rows in enumerate(live):
            assert stream.append(spark, uri, frame_of(spark, tmp_path, rows), source="s", batch=number)
    wh = query.open(uri)
    columns = {
        name: [v for rows in [*history, *live] for v in rows.column(name).to_pylist()] for name in COLUMNS
    }
    for name, values in columns.items():
        assert_all_ranks(wh, name, values, "exact")
        assert wh.quantile(0.5, name).m == len(
            oracle([v for rows in live for v in rows.column(name).to_pylist()])
        )
    assert warehouse.verify(uri).ok
    warehouse.load(spark, uri)
    for name, values in columns.items():
        assert_all_ranks(wh, name, values, "accurate")
        assert wh.quantile(0.5, name).m == 0
    report = warehouse.verify(uri)
    assert report.ok, str(report)


def test_without_a_time_column_the_step_is_the_tick(spark: SparkSession, tmp_path: Path) -> None:
    """The first batch brings the columns; a stream's batch has the number of the step that will take it."""
    warehouse.create(spark, tmp_path, ["x"], eps=0.1, kappa=2)
    with pytest.raises(warehouse.TidemarkError, match="no rows"):
        query.open(tmp_path).quantile(0.5)
    parts: list[list[Any]] = [[5, 1, None], [2, 2], [7], [9, 8], [0]]
    for number, part in enumerate(parts[:4]):
        warehouse.load(spark, tmp_path, spark.createDataFrame([(v,) for v in part], "x int"), f"b{number}")
    stream.append(
        spark, tmp_path, spark.createDataFrame([(v,) for v in parts[4]], "x int"), source="s", batch=0
    )
    wh = query.open(tmp_path)
    for first in range(5):
        for last in range(first, 5):
            inside = [v for part in parts[first : last + 1] for v in part]
            assert_all_ranks(wh, "x", inside, "exact", between=(first, last + 1))
    assert_all_ranks(wh, "x", parts[3] + parts[4], "exact", last=2)
    warehouse.load(spark, tmp_path)
    assert_all_ranks(wh, "x", parts[4], "accurate", between=(4, 5))
    assert warehouse.verify(tmp_path).ok


def test_dates_and_zoneless_times_serve_as_event_time_and_as_measures_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    days = [date(1969, 12, 30) + i * DAY for i in range(6)]
    wall = [datetime(1969, 12, 31, 22) + i * timedelta(hours=1) for i in range(6)]  # noqa: DTZ001
    frame = frame_of(spark, tmp_path, pa.table({"day": days, "wall": pa.array(wall, pa.timestamp("us"))}))
    with in_zone(spark, "America/New_York"):
        for time in ("day", "wall"):
            path = tmp_path / time
            warehouse.create(spark, path, ["day", "wall"], time=time, tick="1 day", eps=0.1, schema=frame)
            warehouse.load(spark, path, frame.limit(3), "first")
            stream.append(spark, path, frame.subtract(frame.limit(3)), source="s", batch=0)
    by_day, by_wall = query.open(tmp_path / "day"), query.open(tmp_path / "wall")
    for i, day in enumerate(days):
        assert_all_ranks(by_day, "wall", [wall[i]], "exact", between=(day, day + DAY))
    assert_all_ranks(by_wall, "day", days[:2], "exact", between=(date(1969, 12, 31), date(1970, 1, 1)))
    assert_all_ranks(by_wall, "day", days[2:], "exact", between=(date(1970, 1, 1), date(1970, 1, 2)))


def test_narrower_columns_are_widened_without_loss(spark: SparkSession, tmp_path: Path) -> None:
    warehouse.create(spark, tmp_path, ["n", "x"], eps=0.1, schema="n bigint, x double")
    for kind, real in (("tinyint", "float"), ("smallint", "double"), ("int", "float")):
        rows = spark.createDataFrame([(7, 0.5)], f"n {kind}, x {real}")
        warehouse.load(spark, tmp_path, rows, kind)
        assert warehouse.load(spark, tmp_path, rows, kind).outcome == "known"
    assert query.open(tmp_path).quantile(1, "n").N == 3
