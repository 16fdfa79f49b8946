"""The distinct keys of days and weeks in a run's marks, against sets of the rows' keys by date."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.warehouse.keyworld import TINY, KeyWorld
from tidemark import warehouse
from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.projections import key_days
from tidemark.warehouse.projections.key_days import DayCollector, KeyDays, from_arrow, join_days, to_arrow
from tidemark.warehouse.projections.key_rows import KeyRows

Patch = pytest.MonkeyPatch
Pairs = list[tuple[int, int]]  # a key and a tick, ascending
DAY_ONE = date(1970, 1, 1)


def drawn(random: np.random.Generator, ticks_a_day: int) -> Pairs:
    """Keys that come back on many days, keys of one day, and rows without a time."""
    days = int(random.choice([1, 9, 40]))
    first = int(random.integers(-20, 20)) * ticks_a_day
    pairs = {(int(random.integers(40)), first + int(random.integers(days * ticks_a_day))) for _ in range(300)}
    pairs |= {(1000 + i, first + i % (days * ticks_a_day)) for i in range(int(random.integers(200)))}
    if random.random() < 0.5:
        pairs |= {(int(random.integers(1010)), NO_TICK) for _ in range(5)}
    return sorted(pairs)


def rows_of(pairs: Pairs) -> KeyRows:
    names, codes = np.unique(np.array([key for key, _ in pairs]), return_inverse=True)
    ticks = np.array([tick for _, tick in pairs])
    return KeyRows(names, codes, ticks, np.ones(len(pairs), np.int64))


def built(
    pairs: Pairs, ticks_a_day: int, files: Sequence[int], pieces: Sequence[int], detail: int = 0
) -> tuple[KeyDays, np.ndarray[Any, Any]]:
    """The days of rows that are written in files and pieces which begin at these rows, and the ticks."""
    rows = rows_of(pairs)
    ticks, counts = np.unique(rows.ticks, return_counts=True)
    nothing = np.zeros_like(counts)
    totals, parts = TickCounts(ticks, counts, nothing, nothing), []
    for start, stop in pairwise([0, *files, len(rows)]):
        collector = DayCollector(totals, ticks_a_day)
        edges = [start, *(edge for edge in pieces if start < edge < stop), stop]
        for piece in (rows.part(a, b) for a, b in pairwise(edges) if a < b):
            collector.add(piece, ticks.searchsorted(piece.ticks), name_words(piece.names))
        parts.append(collector.finish(stop - start))
    return join_days(parts, ticks, ticks_a_day, detail), ticks


def check_draws(seeds: int = 25) -> None:
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        ticks_a_day = int(random.choice([1, 4, 24]))
        pairs = drawn(random, ticks_a_day)
        files, pieces = (
            sorted(random.integers(0, len(pairs), int(random.integers(9))).tolist()) for _ in range(2)
        )
        days, ticks = built(pairs, ticks_a_day, files, pieces)
        check(days, ticks, pairs, ticks_a_day)
        tables = to_arrow(days, ticks)
        again = from_arrow(tables["days"], tables["weeks"], ticks)
        assert again.has_only(days)
        assert again.thresholds == days.thresholds


def check(days: KeyDays, ticks: np.ndarray[Any, Any], pairs: Pairs, ticks_a_day: int) -> None:
    dates = {tick: DAY_ONE + timedelta(days=tick // ticks_a_day) for _, tick in pairs if tick != NO_TICK}
    names: list[tuple[Any, Callable[[date], Any]]] = [
        (days.days, lambda day: day),
        (days.weeks, lambda day: day.isocalendar()[:2]),
    ]
    for periods, name in names:
        first_ticks: dict[Any, int] = {}
        keys: dict[Any, set[int]] = {}
        for key, tick in pairs:
            if tick != NO_TICK:
                period = name(dates[tick])
                keys.setdefault(period, set()).add(key)
                first_ticks[period] = min(tick, first_ticks.get(period, tick))
        found = dict(zip(ticks[periods.firsts].tolist(), periods.keys.tolist(), strict=True))
        assert found == {first_ticks[period]: len(mine) for period, mine in keys.items()}
    most = key_days._Calendar(ticks, ticks_a_day).sample
    for place, threshold, sample in zip(days.days.firsts, days.thresholds, days.samples, strict=True):
        mine = np.array(sorted({key for key, tick in pairs if dates.get(tick) == dates[int(ticks[place])]}))
        hashes = np.sort(splitmix(name_words(mine)))
        assert sample.tolist() == [one for one in hashes.tolist() if one < threshold]
        assert len(sample) == min(len(hashes), most)


@pytest.fixture(autouse=True)
def _small(monkeypatch: Patch) -> None:
    monkeypatch.setattr(key_days, "DAY_KEYS", 20)
    monkeypatch.setattr(key_days, "RUN_DAY_KEYS", 500)


def test_days_and_weeks_have_the_keys_of_their_dates() -> None:
    check_draws()


def _weeks_begin_on_thursday(patch: Patch) -> None:
    patch.setattr(key_days, "MONDAY", 0)


def _keys_at_edges_of_files_count_twice(patch: Patch) -> None:
    patch.setattr(key_days, "pairwise", lambda _: [])


def _keys_at_edges_of_pieces_count_twice(patch: Patch) -> None:
    right = DayCollector.add

    def add(self: Any, *args: Any) -> None:
        self._last = None
        right(self, *args)

    patch.setattr(DayCollector, "add", add)


def _ticks_are_counted(patch: Patch) -> None:
    right = DayCollector.add

    def add(self: Any, rows: Any, cells: Any, words: Any) -> None:
        for i in range(len(rows)):
            self._last = None
            right(self, rows.part(i, i + 1), cells[i : i + 1], words[rows.codes[i] : rows.codes[i] + 1])

    patch.setattr(DayCollector, "add", add)


def _a_sample_has_one_hash_too_few(patch: Patch) -> None:
    right = key_days._least

    def least(parts: Any, limits: Any, most: int) -> Any:
        owners, hashes, limits = right(parts, limits, most)
        return owners[1:], hashes[1:], limits

    patch.setattr(key_days, "_least", least)


@pytest.mark.parametrize(
    "broken",
    [
        _weeks_begin_on_thursday,
        _keys_at_edges_of_files_count_twice,
        _keys_at_edges_of_pieces_count_twice,
        _ticks_are_counted,
        _a_sample_has_one_hash_too_few,
    ],
)
def test_mistakes_are_caught(monkeypatch: Patch, broken: Callable[[Patch], None]) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_draws()


def test_days_that_the_runs_own_sample_knows_as_well_have_no_sample(monkeypatch: Patch) -> None:
    monkeypatch.setattr(key_days, "DAY_KEYS", 3)
    pairs = drawn(np.random.default_rng(3), 24)
    whole, _ = built(pairs, 24, [], [])
    detail = sorted(whole.thresholds)[len(whole.thresholds) // 2]
    some, ticks = built(pairs, 24, [], [], detail)
    assert some.thresholds == tuple(one if one > detail else 0 for one in whole.thresholds)
    assert 0 < sum(map(len, some.samples)) < sum(map(len, whole.samples))
    tables = to_arrow(some, ticks)
    assert tables["days"].column("content").null_count == some.thresholds.count(0) > 0


def test_a_part_lists_no_more_than_its_share_and_the_sample_is_still_one(monkeypatch: Patch) -> None:
    """A file whose rows would all be sampled keeps the least hashes of each day; verify takes that."""
    monkeypatch.setattr(key_days, "PART_KEYS", 5)
    monkeypatch.setattr(key_days, "DAY_KEYS", 500)
    monkeypatch.setattr(key_days, "RUN_DAY_KEYS", 100)
    pairs = [(key, key % 10 if key < 100 else 0) for key in range(5000)]
    days, _ = built(pairs, 1, [100], [])
    whole, _ = built(pairs, 1, [], [])
    assert days.has_only(whole)
    assert not whole.has_only(days)
    assert 0 < sum(map(len, days.samples)) < sum(map(len, whole.samples)) == 100


def test_verify_counts_the_keys_of_days_again(tmp_path: Path, monkeypatch: Patch) -> None:
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    rows: list[Any] = [(name, tick) for name in "abcdefgh" for tick in range(30)]
    world.load(rows, files=3)
    (marks,) = world.view().runs
    found = marks.days()
    assert found is not None
    assert found.days.keys.tolist() == [8] * 30
    assert set(found.weeks.keys.tolist()) == {8}
    assert warehouse.verify(world.uri).ok
    with monkeypatch.context() as patch:
        _keys_at_edges_of_files_count_twice(patch)
        world.load(rows, files=3)
    report = warehouse.verify(world.uri)
    assert "distinct keys by day" in str(report)


def test_marks_without_days_are_read(tmp_path: Path, monkeypatch: Patch) -> None:
    """As written by versions that had none."""
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    with monkeypatch.context() as patch:
        patch.setattr(key_days, "to_arrow", lambda *_: {})
        world.load([(name, tick) for name in "abc" for tick in range(5)])
    (marks,) = world.view().runs
    assert marks.days() is None
    assert warehouse.verify(world.uri).ok


def test_row_groups_of_other_ticks_are_refused() -> None:
    days, ticks = built([(1, 5), (1, 6), (2, 8)], 1, [], [])
    tables = to_arrow(days, ticks)
    with pytest.raises(DamagedWarehouse, match="other ticks"):
        from_arrow(tables["days"], tables["weeks"], np.array([5, 6, 9]))
    short = pa.array([struct.pack("<I", 1)] * 3, pa.binary())
    with pytest.raises(DamagedWarehouse, match="bytes"):
        from_arrow(tables["days"].set_column(2, "content", short), tables["weeks"], ticks)
