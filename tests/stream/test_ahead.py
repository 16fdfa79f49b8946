"""Rows with a time too far ahead of the clock: a load is refused, a stream rejects them, in all engines."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.warehouse.disk import rows_of, tables_of
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import InputError
from tidemark.warehouse.ingest import row_filter

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())])
NEAR = [NOW - 100 * YEAR, NOW, NOW + 24 * HOUR, None]  # a day ahead, inclusive
FAR = [NOW + 24 * HOUR + timedelta(microseconds=1), datetime(2099, 1, 1, tzinfo=UTC)]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The clock stands still at the first item."""
    now = [NOW]
    monkeypatch.setattr(row_filter, "now_us", lambda: (now[0] - EPOCH) // timedelta(microseconds=1))
    return now


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    warehouse.create(None, tmp_path / "w", ["x"], time="at", schema=SCHEMA)
    return tmp_path / "w"


def table(times: list[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table({"at": times, "x": [float(i) for i in range(len(times))]}, schema=schema)


def count(uri: Path) -> int:
    return query.open(uri).quantile(0.5).N


def refuse(load: Any, uri: Path, words: str) -> None:
    before = tables_of(uri)
    with pytest.raises(InputError, match=words):
        load()
    assert tables_of(uri) == before


def test_a_load_is_refused_with_the_count_and_an_example(uri: Path) -> None:
    expected = (
        r"2 of 6 rows of the batch cannot be taken, for example at lies too far in the future, after "
        r"2026-03-02T12:00:00.000000Z: \{.at.: .2026-03-02T12:00:00.000001., .x.: 4.0\}\. "
        r"Nothing was changed\. .* ahead"
    )
    refuse(lambda: warehouse.load(None, uri, table([*NEAR, *FAR]), "a"), uri, expected)
    one = r"^1 of 1 rows of the batch cannot be taken, at lies too far"
    refuse(lambda: warehouse.load(None, uri, table(FAR[1:]), "a"), uri, one)
    assert warehouse.load(None, uri, table(NEAR), "a").rows == len(NEAR)
    refuse(lambda: warehouse.load(None, uri, table(FAR), "b", ahead="100 days"), uri, "1 of 2 rows")
    assert warehouse.load(None, uri, table(FAR), "b", ahead=timedelta(days=74 * 366)).rows == 2
    assert warehouse.load(None, uri, table(FAR), "c", ahead=None).rows == 2
    assert count(uri) == len(NEAR) + 4


def test_the_same_batch_may_come_again_under_another_guard(uri: Path) -> None:
    assert warehouse.load(None, uri, table(FAR), "a", ahead=None).rows == 2
    assert warehouse.load(None, uri, table(FAR), "a").outcome == "known"
    assert stream.append(None, uri, table(FAR), source="s", batch=0, ahead=None)
    assert not stream.append(None, uri, table(FAR), source="s", batch=0)


def test_a_stream_rejects_them_and_its_batch_may_come_again_at_any_later_time(
    uri: Path, clock: list[datetime]
) -> None:
    rows = table([*NEAR, *FAR])
    assert stream.append(None, uri, rows, source="s", batch=0)
    assert count(uri) == len(NEAR)
    assert rows_of(uri, "rejected").column("reason").to_pylist() == [
        "at lies too far in the future, after 2026-03-02T12:00:00.000000Z"
    ] * len(FAR)
    for later in (HOUR, 80 * YEAR):
        clock[0] = NOW + later
        before = tables_of(uri)
        assert not stream.append(None, uri, rows, source="s", batch=0)
        for other in ([*NEAR, FAR[0], FAR[0]], [*NEAR, NOW, *FAR], [*NEAR[1:], *FAR]):
            refuse(
                lambda other=other: stream.append(None, uri, table(other), source="s", batch=0),
                uri,
                "other rows",
            )
        assert tables_of(uri) == before
    assert stream.append(None, uri, rows, source="s", batch=1, ahead=None)
    assert count(uri) == 2 * len(NEAR) + len(FAR)


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("s", tz="Asia/Tokyo")])
def test_every_type_of_time_is_guarded(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("at", kind), ("x", pa.float64())])
    dates = pa.types.is_date(kind)
    near: Any = date(2026, 3, 2) if dates else datetime(2026, 3, 2, 12, tzinfo=UTC if kind.tz else None)
    warehouse.create(None, tmp_path, ["x"], time="at", schema=schema)
    far = near + timedelta(days=1)
    assert warehouse.load(None, tmp_path, table([near], schema), "a").rows == 1
    refuse(lambda: warehouse.load(None, tmp_path, table([near, far], schema), "b"), tmp_path, "^1 of 2 rows")
    assert stream.append(None, tmp_path, table([near, far], schema), source="s", batch=0)
    assert count(tmp_path) == 2


def test_spark_guards_as_this_process_does(spark: SparkSession, uri: Path) -> None:
    """Each partition counts its own rows."""
    rows = spark.createDataFrame([(time, 1.0) for time in [*NEAR[1:], *FAR] * 2], "at timestamp, x double")
    words = "4 of 10 rows of the batch cannot be taken, for example at lies too far in the future"
    refuse(lambda: warehouse.load(spark, uri, rows.repartition(3), "a"), uri, words)
    assert stream.append(spark, uri, rows.repartition(3), source="s", batch=0)
    assert count(uri) == 6
    assert warehouse.load(spark, uri, rows, "a", ahead=None).rows == 10


def test_what_is_no_duration_is_refused_at_the_door(uri: Path) -> None:
    for ahead in ("soon", 5, "-1 day", True, ""):
        words = "duration"
        refuse(lambda a=ahead: warehouse.load(None, uri, table(NEAR), "a", ahead=a), uri, words)
        refuse(
            lambda a=ahead: stream.append(None, uri, table(NEAR), source="s", batch=0, ahead=a), uri, words
        )


@pytest.mark.parametrize("every", [[], ["--batch-every", "1 day"]])
def test_the_command_refuses_and_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], every: list[str]
) -> None:
    pq.write_table(table([NOW, *FAR[1:]]), tmp_path / "in.parquet")
    place = tmp_path / "w"
    warehouse.create(None, place, ["x"], time="at", schema=SCHEMA)
    load = [
        "load",
        "-w",
        str(place),
        "--input",
        str(tmp_path / "in.parquet"),
        "--batch",
        "b",
        "--engine",
        "local",
        *every,
    ]
    before = tables_of(place)
    assert main([*load, "--ahead", "2 days"]) == 2
    assert "too far in the future" in capsys.readouterr().err
    assert tables_of(place) == before
    if not every:
        assert main([*load, "--ahead", "any"]) == 0
        assert count(place) == 2


def test_a_load_without_the_guard_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: any time is taken."""
    monkeypatch.setattr(
        row_filter, "_too_far_ahead", lambda _, __, array: (pa.array([False] * len(array)), "")
    )
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refuse(lambda: warehouse.load(None, uri, table(FAR), "a"), uri, "rows of the batch cannot be taken")
