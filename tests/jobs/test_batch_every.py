"""--batch-every cuts in UTC: the name and the rows of a batch depend on the input alone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.jobs.said import Said, tidemark
from tests.spark_settings import in_zone
from tidemark import query
from tidemark.jobs.inputs import spark_inputs
from tidemark.jobs.inputs.local_inputs import LocalInputs
from tidemark.jobs.inputs.spark_inputs import SparkInputs
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.execution.arrow_inputs import arrow_rows

ZONES = ("Asia/Kolkata", "America/New_York")
# Days before and after 1970, the ends of all years, a leap day; times that New York's clocks skip or repeat.
DAYS = (date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(2000, 2, 29), date(9999, 12, 31), None)
WALL = (
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    datetime(2001, 4, 1, 2, 30, 0, 1),  # noqa: DTZ001
    datetime(2001, 10, 28, 1, 30),  # noqa: DTZ001
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    None,
)
SPAN = 7_000_000_001
COLUMNS = pa.table(
    {
        "day": pa.array(DAYS, pa.date32()),
        "wall": pa.array(WALL, pa.timestamp("us")),
        "at": pa.array(WALL, pa.timestamp("us", tz="UTC")),
    }
)


def micros(value: Any) -> int | None:
    """The plain value in microseconds since 1970; a day or a time without a zone is one of UTC."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001


def check_in_zones(spark: SparkSession, path: Path) -> None:
    """Both readers find the plain list's times, rows of a span, and rows without a time, in each zone."""
    here, rows_here = LocalInputs(str(path)), arrow_rows(str(path))
    for zone in ZONES:
        with in_zone(spark, zone):
            there, rows_there = SparkInputs(spark), spark.read.parquet(str(path))
            for name, plain in (("day", DAYS), ("wall", WALL), ("at", WALL)):
                known = [value for value in map(micros, plain) if value is not None]
                said = (zone, name)
                assert there.times(rows_there, name) == (min(known), max(known), 1), said
                assert here.times(rows_here, name) == (min(known), max(known), 1), said
                for start, stop in ((known[1], known[3]), (known[2], known[4] + 1)):
                    inside = sum(start <= value < stop for value in known)
                    assert there.between(rows_there, name, start, stop).count() == inside, (*said, start)
                assert there.without(rows_there, name).count() == 1, said
                spans = sorted({min(known) + (value - min(known)) // SPAN * SPAN for value in known})
                assert there.starts(rows_there, name, min(known), SPAN) == spans, said
                assert here.starts(rows_here, name, min(known), SPAN) == spans, said
            there.check_times(rows_there, COLUMNS.column_names)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("times") / "in.parquet"
    pq.write_table(COLUMNS, path)
    return path


def test_times_and_spans_are_those_of_utc_in_each_zone_and_engine(spark: SparkSession, path: Path) -> None:
    check_in_zones(spark, path)


def test_a_cast_in_the_zone_of_the_session_is_caught(
    spark: SparkSession, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_: DataFrame, name: str) -> Any:
        return F.unix_micros(F.col(name).cast("timestamp"))

    monkeypatch.setattr(spark_inputs, "_micros", wrong)
    with pytest.raises(AssertionError, match="Asia/Kolkata"):
        check_in_zones(spark, path)


def test_days_outside_all_years_are_refused_before_they_overflow(spark: SparkSession) -> None:
    for day in (2932897, -719163, 2**31 - 1, -(2**31) + 1):
        rows = spark.sql(f"SELECT date_from_unix_date({day}) AS day")
        with pytest.raises(InputError, match="outside the years 1 to 9999 in 1 rows"):
            SparkInputs(spark).check_times(rows, ["day"])


def loaded_in_spans(folder: Path, capsys: pytest.CaptureFixture[str], times: list[Any], span: str) -> Said:
    """What the command says of rows with these times, loaded in batches of a span by this process."""
    rows = {
        "m": np.arange(1.0, len(times) + 1),
        "t": pa.array(times, pa.timestamp("us")),
    }
    pq.write_table(pa.table(rows), folder / "in.parquet")
    line = ["load", "-w", folder / "w", "--input", folder / "in.parquet", "--batch", "x", "--measure", "m"]
    return tidemark(capsys, *line, "--time", "t", "--batch-every", span, "--engine", "local")


def test_spans_without_rows_cost_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows, two thousand years apart, in batches of a second."""
    said = loaded_in_spans(tmp_path, capsys, [WALL[0], WALL[2]], "1 s")
    lines = ["x/0001-01-01T00:00:00: loaded, 1 rows", "x/2001-04-01T02:30:00: loaded, 1 rows"]
    assert said.out.splitlines() == lines, said


def test_spans_of_less_than_a_second_have_names_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = loaded_in_spans(tmp_path, capsys, [10**12, 10**12 + 250_000, 10**12 + 250_001], "250 ms")
    lines = ["x/1970-01-12T13:46:40: loaded, 1 rows", "x/1970-01-12T13:46:40.250000: loaded, 2 rows"]
    assert said.out.splitlines() == lines, said


@pytest.mark.parametrize("kind", ["day", "wall"])
def test_the_same_input_under_the_same_name_is_loaded_once(
    kind: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By Spark in two zones and by this process: the batches have the same names and the same rows."""
    start = datetime(2001, 1, 1, tzinfo=UTC)
    times = [start + timedelta(hours=12 * i) for i in range(4)]
    kinds = {"day": pa.date32(), "wall": pa.timestamp("us")}
    column = (
        pa.array(times)
        .cast(pa.timestamp("us", tz="UTC"))
        .cast(pa.timestamp("us"))
        .cast(kinds[kind], safe=False)
    )
    pq.write_table(pa.table({"m": [1.0, 2.0, 3.0, 4.0], kind: column}), tmp_path / "in.parquet")

    def load(engine: str) -> Said:
        line = ["load", "-w", tmp_path / "w", "--input", tmp_path / "in.parquet", "--batch", "x"]
        options = ["--measure", "m", "--time", kind, "--batch-every", "1 day", "--engine", engine]
        return tidemark(capsys, *line, *options)

    days = [f"x/{from_epoch_us(day * 86_400_000_000):%Y-%m-%dT%H:%M:%S}" for day in (11323, 11324)]
    with in_zone(spark, ZONES[0]):
        assert load("spark").out == "".join(f"{day}: loaded, 2 rows\n" for day in days)
        again = load("spark")
    assert load("local").out == again.out
    with in_zone(spark, ZONES[1]):
        assert load("spark").out == again.out
    assert again.out.count("was loaded before, nothing changed") == 2
    assert query.open(tmp_path / "w").quantile(0.5).N == 4
