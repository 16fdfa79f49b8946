"""Warehouses that released versions wrote open, answer exactly, stream, load, merge and verify.

The archives are never written again. Whatever formats change, what users have on disk is what lies in them.
Each version whose formats are new adds one (keep.py).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility import rows
from tests.compatibility.kept import FOLDER, unpack
from tests.query.answers import several
from tests.query.tally import Tally
from tests.query.worlds import Oracle, is_nan
from tidemark import query, stream, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.runs import levels
from tidemark.warehouse.snapshots.system_tables import rejected_counts

ARCHIVES = {"0.2.0": "809902b7844f7c85f93245958428d28790868604328f3bea8a4ea764aae57f33"}
PHIS = (0, 0.01, 0.25, 0.5, 0.75, 0.99, 1)
MEASURES = {"x": 2, "n": 3, "d": 4}  # of `timed`, with the places of their columns
ALL: dict[str, Any] = {}
WINDOWS: tuple[dict[str, Any], ...] = (
    ALL,
    {"last": "1 day"},
    {"between": (rows.EPOCH - timedelta(days=2), rows.EPOCH + timedelta(days=1))},
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


@pytest.fixture(params=ARCHIVES)
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(FOLDER / f"written-{request.param}.tar.xz", tmp_path / "unpacked")


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


def check_summary(wh: query.Warehouse, kept: Kept, measure: str, at: int, window: dict[str, Any]) -> None:
    """Exact, also where runs of then have no sums."""
    values = [row[at] for row in kept.within(window) if row[at] is not None]
    finite = [Fraction(value) for value in values if not isinstance(value, float) or math.isfinite(value)]
    summary = wh.summary(measure, **window)
    assert (summary.N, summary.count) == (len(values), len(finite))
    assert summary.sum == (float(sum(finite)) if isinstance(summary.sum, float) else sum(finite))


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


def check_wide(kept: Kept) -> None:
    wh = query.open(kept.uri)
    pairs = Counter((n, k) for n, k in kept.rows if n is not None)
    for answer in several(wh.frequency([*pairs], key=["n", "k"], mode="exact")):
        assert answer.count == pairs[answer.value]
    for k in {k for _, k in kept.rows}:
        (answer,) = wh.quantile([0.5], where={"k": k})
        numbers = sorted(n for n, other in kept.rows if other == k and n is not None)
        assert (answer.N, answer.error_bound) == (len(numbers), 0)
        assert answer.value == numbers[(len(numbers) + 1) // 2 - 1]
    numbers_seen = wh.companion("numbers")
    assert numbers_seen.summary.values == Counter(repr(n) for n, _ in kept.rows if n is not None)
    assert numbers_seen.rows_scanned == 0


def check_timed(kept: Kept) -> None:
    wh = query.open(kept.uri)
    for window in WINDOWS:
        for measure, at in MEASURES.items():
            for mode in ("quick", "accurate"):
                check_quantiles(wh, kept, measure, at, window, mode)
            check_summary(wh, kept, measure, at, window)
        check_keys(wh, kept, 1, window)


def check_plain(kept: Kept) -> None:
    wh = query.open(kept.uri)
    check_quantiles(wh, kept, "n", 0, ALL, "exact")
    check_keys(wh, kept, 1, ALL)


def verified(kept: Kept) -> bool:
    report = warehouse.verify(kept.uri)
    assert report.ok, str(report)
    return True


def test_every_archive_is_small_and_stays_as_it_was_written() -> None:
    found = {path.name[8:-7]: path for path in FOLDER.glob("written-*.tar.xz")}
    assert found.keys() == ARCHIVES.keys()
    for version, path in found.items():
        assert path.stat().st_size <= 2**18
        assert hashlib.sha256(path.read_bytes()).hexdigest() == ARCHIVES[version]


def test_a_kept_warehouse_answers_exactly_and_goes_on(timed: Kept) -> None:
    check_timed(timed)
    assert verified(timed)
    info = query.open(timed.uri).info()
    assert info["measures"]["x"]["runs_by_level"] == {1: 1, 0: 2}
    assert rejected_counts(Store.from_uri(timed.uri)) == {"partner": 3}
    for number in (rows.LIVE[-1] + 1, rows.LIVE[-1] + 2):
        timed.batches["web", number] = rows.timed_rows(f"web-{number}", 10)
        batch = rows.table(timed.batches["web", number], rows.TIMED)
        assert stream.append(None, timed.uri, batch, source="web", batch=number)
        assert not stream.append(None, timed.uri, batch, source="web", batch=number)
    check_timed(timed)
    assert warehouse.load(None, timed.uri).outcome == "loaded"  # and merges runs of then and of now
    first = rows.table(timed.batches["bulk", "night-1"], rows.TIMED)
    assert warehouse.load(None, timed.uri, first, "night-1").outcome == "known"
    assert query.open(timed.uri).info()["measures"]["x"]["runs_by_level"] == {1: 2}
    warehouse.maintain(None, timed.uri, grace="0")
    check_timed(timed)
    assert verified(timed)


def test_one_without_time_goes_on_too(plain: Kept) -> None:
    check_plain(plain)
    number = rows.PLAIN_LIVE[-1] + 1
    plain.batches["s", number] = rows.plain_rows(f"s-{number}", 25)
    batch = rows.table(plain.batches["s", number], rows.PLAIN)
    assert stream.append(None, plain.uri, batch, source="s", batch=number)
    warehouse.load(None, plain.uri)
    check_plain(plain)
    assert verified(plain)


def test_one_with_a_group_and_a_companion_goes_on_too(unpacked: Path) -> None:
    warehouse.register_companion(Tally())
    wide = Kept(unpacked / "wide", rows.wide_batches())
    check_wide(wide)
    wide.batches["bulk", "c"] = rows.plain_rows("wide-c", 30)
    warehouse.load(None, wide.uri, rows.table(wide.batches["bulk", "c"], rows.PLAIN), "c")
    warehouse.load(None, wide.uri)
    check_wide(wide)
    assert verified(wide)


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
