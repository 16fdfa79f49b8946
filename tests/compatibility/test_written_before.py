"""Warehouses that earlier versions wrote open, answer exactly, stream, load, merge and verify.

The archives are never written again. Whatever formats change, what users have on disk is what lies in them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.compatibility import rows
from tests.compatibility.kept import FOLDER, unpack
from tests.query.answers import several
from tests.query.worlds import Oracle, is_nan
from tidemark import query, stream, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.runs import levels
from tidemark.warehouse.snapshots.system_tables import rejected_counts

ARCHIVES = {"0.1.0": "8d49bcc55b071533a3e4dffecfb333892c662f29a4f7a9406fa08bb08042fc05"}
PHIS = (0, 0.01, 0.25, 0.5, 0.75, 0.99, 1)
MEASURES = {"x": 2, "n": 3, "d": 4}  # of `timed`, with the places of their columns
ALL: dict[str, Any] = {}
MOST: dict[str, Any] = {"last": "4 days"}
WINDOWS: tuple[dict[str, Any], ...] = (
    ALL,
    MOST,
    {"last": "1 day"},
    {"between": (rows.EPOCH - timedelta(days=2), rows.EPOCH + timedelta(days=1))},
)
SCHEMA = pa.schema(
    [
        ("t", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("d", pa.decimal128(9, 2)),
        ("note", pa.string()),
    ]
)
Row = tuple[Any, ...]


@dataclass
class Kept:
    """An unpacked warehouse, and every row that it holds by batch."""

    uri: Path
    batches: dict[tuple[str, Any], list[Row]]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches.values() for row in batch]

    def within(self, window: dict[str, Any]) -> list[Row]:
        """The rows of a window of whole days."""
        if not window:
            return self.rows
        if "between" in window:
            start, end = window["between"]
        else:
            newest = max(row[0] for row in self.rows if row[0] is not None)
            end = datetime(newest.year, newest.month, newest.day, tzinfo=UTC) + timedelta(days=1)
            start = end - timedelta(days=int(window["last"].split()[0]))
        return [row for row in self.rows if row[0] is not None and start <= row[0] < end]


@pytest.fixture(params=sorted(path.name for path in FOLDER.glob("written-*.tar.xz")))
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(FOLDER / request.param, tmp_path / "unpacked")


@pytest.fixture
def timed(unpacked: Path) -> Kept:
    return Kept(unpacked / "timed", rows.timed_batches())


@pytest.fixture
def plain(unpacked: Path) -> Kept:
    return Kept(unpacked / "plain", rows.plain_batches())


def check_quantiles(
    wh: query.Warehouse, kept: Kept, measure: str, at: int, window: dict[str, Any], mode: Mode
) -> None:
    """Every answer is certified for the rows of the window, and exact where nothing is left open."""
    truth = Oracle.of([row[at] for row in kept.within(window)])
    answers = wh.quantile(PHIS, measure, mode=mode, **window)
    for phi, answer in zip(PHIS, answers, strict=True):
        assert (answer.N, answer.nans, answer.nulls) == (truth.n, truth.nans, truth.nulls)
        exact = truth.quantile(phi)
        if is_nan(exact):
            assert math.isnan(answer.value)
            continue
        r, le, lt = truth.rank(phi), truth.le(answer.value), truth.lt(answer.value)
        assert max(0, r - le, lt + 1 - r) <= answer.error_bound <= 0.02 * truth.n
        assert answer.rank_lo <= le <= answer.rank_hi
        assert answer.low <= exact <= answer.high
        if mode == "exact" or (mode == "accurate" and answer.m == 0):
            assert (answer.value, answer.error_bound) == (exact, 0)


def check_keys(wh: query.Warehouse, kept: Kept, at: int, window: dict[str, Any]) -> None:
    """Exact counts equal a Counter's, and approximate ones lie within what they state."""
    found = kept.within(window)
    truth = Counter(row[at] for row in found if row[at] is not None)
    asked = [*truth, *([] if isinstance(next(iter(truth)), int) else ["nobody"])]
    for answer in several(wh.frequency(asked, mode="exact", **window)):
        assert answer.count == answer.lo == answer.hi == truth[answer.value]
        assert (answer.N, answer.nulls) == (truth.total(), len(found) - truth.total())
    for answer in several(wh.frequency(asked, **window)):
        assert answer.lo <= truth[answer.value] <= answer.hi
    counts = [answer.count for answer in wh.top(5, mode="exact", **window)]
    assert counts == [count for _, count in truth.most_common(5)]
    for mode in ("approximate", "exact"):
        distinct = wh.distinct(mode=mode, **window)
        assert distinct.least == distinct.count == distinct.most == len(truth)
        hitters = wh.heavy_hitters(0.05, mode=mode, **window)
        assert {hitter.value for hitter in hitters} >= {
            key for key, count in truth.items() if count >= 0.05 * truth.total()
        }


def check_timed(kept: Kept) -> None:
    wh = query.open(kept.uri)
    for window in WINDOWS:
        for mode in ("quick", "accurate", "exact"):
            for measure, at in MEASURES.items():
                check_quantiles(wh, kept, measure, at, window, mode)
        check_keys(wh, kept, 1, window)


def check_plain(kept: Kept) -> None:
    wh = query.open(kept.uri)
    for mode in ("quick", "accurate", "exact"):
        check_quantiles(wh, kept, "n", 0, ALL, mode)
    check_keys(wh, kept, 1, ALL)


def timed_table(batch: list[Row]) -> pa.Table:
    columns = zip(*batch, strict=True)
    return pa.table([pa.array(one, kind) for one, kind in zip(columns, SCHEMA.types, strict=True)], SCHEMA)


def verified(kept: Kept) -> bool:
    report = warehouse.verify(kept.uri)
    assert report.ok, str(report)
    return True


def test_what_is_kept_is_small_and_stays_as_it_was_written() -> None:
    for path in FOLDER.glob("written-*.tar.xz"):
        assert path.stat().st_size <= 2**20
        assert hashlib.sha256(path.read_bytes()).hexdigest() == ARCHIVES[path.name[8:-7]]


@pytest.mark.slow
def test_a_warehouse_of_before_opens_answers_exactly_and_verifies(timed: Kept, plain: Kept) -> None:
    check_timed(timed)
    check_plain(plain)
    assert verified(timed)
    assert verified(plain)
    info = query.open(timed.uri).info()
    assert info["measures"]["x"]["runs_by_level"] == {1: 1, 0: 2}
    assert rejected_counts(Store.from_uri(timed.uri)) == {"partner": 3}


def test_a_version_that_names_its_runs_otherwise_does_not_pass(
    timed: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "_NAME", re.compile(r"L(\d{3})-(\d{10})-(\d{10})"))
    with pytest.raises(DamagedWarehouse, match="not a run"):
        check_timed(timed)


def test_a_version_that_starts_its_sketches_otherwise_does_not_pass(
    timed: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.sketches.gk.gk_bytes.GK_KIND", b"GKS2")
    with pytest.raises(DamagedWarehouse):
        check_timed(timed)


def test_a_warehouse_of_before_streams_loads_merges_and_is_maintained(
    spark: SparkSession, timed: Kept
) -> None:
    # The batches complete 64 to 95: that range of the cascade repeats rows of before and of now.
    for number in range(rows.LIVE[-1] + 1, 96):
        batch = rows.timed_rows(f"web-{number}", 10)
        if number % 9 == 0:  # so a few by Spark
            frame = spark.createDataFrame(batch, rows.TIMED).coalesce(1)
            assert stream.append(spark, timed.uri, frame, source="web", batch=number)
        else:
            assert stream.append(None, timed.uri, timed_table(batch), source="web", batch=number)
        timed.batches["web", number] = batch
    check_timed(timed)
    assert verified(timed)
    again = spark.createDataFrame(timed.batches["web", 60], rows.TIMED)
    assert not stream.append(spark, timed.uri, again, source="web", batch=60)
    assert warehouse.load(spark, timed.uri).outcome == "loaded"
    check_timed(timed)
    first = spark.createDataFrame(timed.batches["bulk", "night-1"], rows.TIMED)
    assert warehouse.load(spark, timed.uri, first, "night-1").outcome == "known"
    assert query.open(timed.uri).info()["measures"]["x"]["runs_by_level"] == {1: 2}
    for name in ("night-4", "night-5", "night-6"):
        timed.batches["bulk", name] = rows.timed_rows(name, 150)
        more = spark.createDataFrame(timed.batches["bulk", name], rows.TIMED)
        assert warehouse.load(spark, timed.uri, more, name).outcome == "loaded"
    assert query.open(timed.uri).info()["measures"]["x"]["runs_by_level"] == {2: 1}
    warehouse.maintain(spark, timed.uri, grace="0")
    check_timed(timed)
    assert verified(timed)


def test_a_warehouse_of_before_without_time_goes_on_too(spark: SparkSession, plain: Kept) -> None:
    for number in range(rows.PLAIN_LIVE[-1] + 1, 6):
        plain.batches["s", number] = rows.plain_rows(f"s-{number}", 25)
        frame = spark.createDataFrame(plain.batches["s", number], rows.PLAIN)
        assert stream.append(spark, plain.uri, frame, source="s", batch=number)
    check_plain(plain)
    warehouse.load(spark, plain.uri)
    warehouse.maintain(spark, plain.uri)
    check_plain(plain)
    assert verified(plain)
