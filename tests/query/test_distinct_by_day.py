"""Distinct keys by day and week against sets of the rows' keys, whatever was merged and came late."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.answers.distinct_answers import KeyNumber
from tidemark.query.keys import distinct_keys, key_samples, run_keys
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.keys.run_keys import RunKeys
from tidemark.sketches.sampling import SampleSize
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.projections import distinct_marks, key_days
from tidemark.warehouse.projections.distinct_marks import DistinctCollector
from tidemark.warehouse.projections.key_days import DayCollector, join_days
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows

Patch = pytest.MonkeyPatch
Ints = np.ndarray[Any, np.dtype[np.int64]]
START = datetime(2024, 1, 3, tzinfo=UTC)  # a Wednesday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC"), "user": pa.int64(), "x": pa.float64()})
Rows = list[tuple[datetime, int]]


def run_of(keys: Ints, ticks: Ints) -> RunKeys:
    """A run with one row of each of these pairs; ticks are hours."""
    keys, ticks = np.unique(np.stack([keys, ticks]), axis=1)
    names, codes = np.unique(keys, return_inverse=True)
    own, counts = np.unique(ticks, return_counts=True)
    totals = TickCounts(own, counts, np.zeros_like(counts), np.zeros_like(counts))
    rows, cells = KeyRows(names, codes, ticks, np.ones(len(ticks), np.int64)), own.searchsorted(ticks)
    distinct, days = DistinctCollector(own), DayCollector(totals, 24)
    distinct.add(rows, cells, name_words(names))
    days.add(rows, cells, name_words(names))
    found = distinct.finish()
    parts = [days.finish(len(rows))]
    run = RunKeys.of(own, found, join_days(parts, own, 24, found.sample.detail))
    assert found.sample.detail < 2**64
    return run


def each_day(runs: Sequence[RunKeys], keys: Ints, ticks: Ints, days: int) -> list[float]:
    """The errors of the number of keys of each day, as shares of it. Certain bounds must hold."""
    errors = []
    for day in range(days):
        window = KeyWindow(Window(24 * day, 24 * day + 24), (), None)
        number = distinct_keys.estimate_distinct(key_samples.combine(runs, [], window), 0.01)
        truth = len(np.unique(keys[ticks // 24 == day]))
        assert number.least <= truth <= number.most
        errors.append(number.count / truth - 1)
    return errors


def divided(kind: str, random: np.random.Generator, days: int, keys_a_day: int) -> list[float]:
    """Errors of days whose rows are divided over runs: by an hour of the day, with late rows, or both."""
    rows = days * keys_a_day
    ticks, keys = random.integers(0, 24 * days, rows), random.integers(0, 2 * keys_a_day, rows)
    if kind == "new keys":
        keys = np.arange(rows)
    late = random.random(rows) < 0.05
    hour = ticks % 24
    owner = {
        "late": late,
        "halves": hour >= 12,
        "new keys": hour >= 8,
        "thirds": hour // 8,
        "late thirds": np.where(late, 3, hour // 8),
    }[kind].astype(int)
    runs = [run_of(keys[owner == i], ticks[owner == i]) for i in range(owner.max() + 1)]
    return each_day(runs, keys, ticks, days)


KINDS = ["late", "halves", "new keys", "thirds", "late thirds"]


def check_errors(kinds: Sequence[str] = KINDS) -> None:
    """Days of 2,400 to 6,000 keys, with samples of a sixteenth of their size, so four times the error."""
    errors: dict[str, list[float]] = defaultdict(list)
    for kind in kinds:
        for seed in range(3):
            errors[kind] += divided(kind, np.random.default_rng(seed), 12, 6_000)
    for kind, found in errors.items():
        assert np.quantile(np.abs(found), 0.99) <= 4 * 0.01, kind


@pytest.fixture
def _thin_samples(monkeypatch: Patch) -> None:
    """A run's own sample is as thin as that of millions of keys in hundreds of days."""
    monkeypatch.setattr(distinct_marks, "RUN_SAMPLE", SampleSize(200, 500))
    monkeypatch.setattr(key_days, "DAY_KEYS", key_days.DAY_KEYS // 16)


@pytest.mark.slow
@pytest.mark.usefixtures("_thin_samples")
def test_errors_of_days_are_those_of_their_samples_however_they_are_divided() -> None:
    check_errors()


def _ticks_alone_are_known(patch: Patch) -> None:
    patch.setattr(RunKeys, "within", RunKeys._by_ticks)


def _numbers_of_runs_are_added(patch: Patch) -> None:
    def added(keys: Any, _: float) -> KeyNumber:
        return KeyNumber(keys.most, keys.least, keys.most, keys.least, keys.most)

    patch.setattr(distinct_keys, "estimate_distinct", added)


def _late_rows_are_left_out(patch: Patch) -> None:
    def base(keys: Any, _: float) -> KeyNumber:
        return KeyNumber(keys.base.keys, keys.least, keys.most, keys.least, keys.most)

    patch.setattr(distinct_keys, "estimate_distinct", base)


def _samples_by_tick_tell_the_keys_of_days(patch: Patch) -> None:
    patch.setattr(run_keys, "MOST_DAYS", 0)


@pytest.mark.usefixtures("_thin_samples")
@pytest.mark.parametrize(
    "broken",
    [
        _ticks_alone_are_known,
        _numbers_of_runs_are_added,
        _late_rows_are_left_out,
        _samples_by_tick_tell_the_keys_of_days,
    ],
)
def test_wrong_numbers_of_days_are_noticed(monkeypatch: Patch, broken: Callable[[Patch], None]) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_errors(["late", "halves"])


class World:
    """A warehouse of ticks of an hour, and its rows."""

    def __init__(self, folder: Path, kappa: int = 2) -> None:
        self.uri, self.rows, self._number = folder / "w", Rows(), 0
        warehouse.create(
            None, self.uri, ["x"], key="user", time="at", tick="1h", kappa=kappa, eps=0.1, schema=SCHEMA
        )

    def add(self, rows: Rows, *, live: bool = False) -> None:
        table = pa.table([*zip(*rows, strict=True), [1.0] * len(rows)], schema=SCHEMA)
        if live:
            stream.append(None, self.uri, table, source="s", batch=self._number)
        else:
            warehouse.load(None, self.uri, table, str(self._number))
        self.rows += rows
        self._number += 1

    def keys(self, period: Callable[[date], Any]) -> dict[Any, set[int]]:
        found: dict[Any, set[int]] = defaultdict(set)
        for at, user in self.rows:
            found[period(at.date())].add(user)
        return found


def day_of(number: int, random: np.random.Generator, users: int = 60, rows: int = 80) -> Rows:
    """The rows of a day."""
    return [
        (START + number * DAY + int(random.integers(24)) * HOUR, int(random.integers(users)))
        for _ in range(rows)
    ]


PERIODS: list[tuple[str, Callable[[date], Any]]] = [
    ("1d", lambda day: day),
    ("1w", lambda day: day - timedelta(days=day.weekday())),
]


def check_world(world: World) -> None:
    wh = query.open(world.uri)
    for every, period in PERIODS:
        answers = wh.distinct(every=every)
        truth = world.keys(period)
        for answer in answers:
            assert answer.window is not None
            assert answer.window[0] is not None
            own = len(truth[period(answer.window[0].date())])
            assert answer.least <= answer.lo <= answer.count <= answer.hi <= answer.most
            assert answer.least <= own <= answer.most
        assert sum(answer.N for answer in answers) == len(world.rows)


@pytest.mark.slow
def test_the_numbers_of_days_of_one_run_are_exact_whatever_was_merged(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Nightly loads without late rows: each day is in one run, and never changes."""
    monkeypatch.setattr(distinct_marks, "RUN_SAMPLE", SampleSize(3, 3))
    monkeypatch.setattr(key_days, "DAY_KEYS", 4)
    random, world = np.random.default_rng(1), World(tmp_path)
    for day in range(8):
        world.add(day_of(day, random))
        found = query.open(world.uri).distinct(every="1d")
        truth = world.keys(lambda day: day)
        assert [answer.count for answer in found] == [len(keys) for _, keys in sorted(truth.items())]
        assert all(answer.least == answer.most and answer.confidence == 1.0 for answer in found)
        check_world(world)
    assert len(runs_of(world)) < 8


def runs_of(world: World) -> Sequence[KeyMarks]:
    wh = query.open(world.uri)
    return wh._session.newest_keys_view(None).runs


@pytest.mark.slow
@pytest.mark.parametrize("samples", [(3, 3, 4), (30, 40, 50), (2**14, 2**16, 2**13)])
def test_bounds_hold_beside_late_rows_and_live_rows(
    tmp_path: Path, monkeypatch: Patch, samples: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(distinct_marks, "RUN_SAMPLE", SampleSize(*samples[:2]))
    monkeypatch.setattr(key_days, "DAY_KEYS", samples[2])
    random, world = np.random.default_rng(2), World(tmp_path)
    for day in range(6):
        late = [row for old in range(day) for row in day_of(old, random, rows=2)]
        world.add([*day_of(day, random), *late], live=day > 4)
        check_world(world)
    if samples[2] > 1000:
        found = query.open(world.uri).distinct(every="1d")
        truth = sorted(world.keys(lambda day: day).items())
        assert [one.count for one in found] == [len(keys) for _, keys in truth]


@pytest.mark.parametrize("tick", ["5h", "2d", "7d"])
def test_ticks_that_do_not_divide_a_day_have_no_days(tmp_path: Path, tick: str) -> None:
    uri = tmp_path / "w"
    warehouse.create(None, uri, ["x"], key="user", time="at", tick=tick, eps=0.1, schema=SCHEMA)
    warehouse.load(None, uri, pa.table([[START, START + 9 * DAY], [1, 2], [1.0, 1.0]], schema=SCHEMA), "a")
    wh = query.open(uri)
    (marks,) = wh._session.newest_keys_view(None).runs
    assert not marks.has_days
    assert wh.distinct().count == 2
    assert warehouse.verify(uri).ok
