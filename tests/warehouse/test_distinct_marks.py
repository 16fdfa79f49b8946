"""Key marks and ledger rows have exact numbers of distinct keys and the sample of their rows.

tests/warehouse/test_key_types.py asks it of keys of every type, through loads and merges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.warehouse.keyworld import DAY_US, TINY, KeyWorld
from tidemark import warehouse
from tidemark.sketches.sampling import KeySample, SampleSize
from tidemark.warehouse.columns.keys import KeyColumn
from tidemark.warehouse.integrity.digests import name_words
from tidemark.warehouse.ledger import key_summaries, live_summaries
from tidemark.warehouse.projections import distinct_marks, key_marks, key_marks_writer
from tidemark.warehouse.projections.distinct_marks import DistinctCollector, DistinctKeys
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import count_pairs

pytestmark = pytest.mark.usefixtures("small_samples")


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distinct_marks, "RUN_SAMPLE", SampleSize(12, 30))
    monkeypatch.setattr(key_summaries, "LEDGER_SAMPLE", SampleSize(10, 10))


def sample_of(world: KeyWorld, steps: range) -> KeySample:
    """The sample of the rows of some steps, made at once."""
    pairs = world.pairs(steps)
    key = world.key
    rows = [row for step in steps for row in world.loaded[step] if row[0] is not None]
    table = world._table(rows, 0)
    pieces = count_pairs(key.encode(table), table.column("_tick").to_numpy())
    assert int(pieces.counts.sum()) == pairs.total()
    words = name_words(pieces.names)[pieces.codes]
    return KeySample.of(distinct_marks.RUN_SAMPLE, words, pieces.ticks, pieces.counts)


def check(world: KeyWorld, marks: KeyMarks) -> None:
    steps = range(marks.run.first, marks.run.last + 1)
    distinct, pairs = marks.distinct(), world.pairs(steps)
    assert distinct is not None
    assert distinct.keys == len({key for key, _ in pairs})
    by_tick = [len({key for key, tick in pairs if tick == own}) for own in marks.totals.ticks.tolist()]
    assert distinct.by_tick.tolist() == by_tick
    distinct.sample.check_invariants()
    assert distinct.sample.to_bytes() == sample_of(world, steps).to_bytes()


def test_a_batch_has_the_sample_of_its_rows_however_it_is_shared(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    events = [(f"key-{int(random.integers(60))}", int(random.integers(2 * DAY_US))) for _ in range(500)]
    samples = []
    for shares in (1, 3):
        world = KeyWorld(tmp_path / f"w{shares}", tuning=TINY)
        world.stream(events, shares=shares)
        view = world.view()
        found = live_summaries.read_samples(view.live)
        samples.append([sample.to_bytes() for sample in found if sample is not None])
        for row, sample in zip(view.live, found, strict=True):
            assert sample is not None
            assert sample.times is not None
            mine = [(key, at) for key, at in events if at // DAY_US == row.tick]
            assert sample.keys == 10
            assert set(sample.ticks.tolist()) == {row.tick}
            assert int(sample.times.min()) >= min(at for _, at in mine)
            assert int(sample.counts.sum()) < len(mine)
    assert samples[0] == samples[1]
    assert len(samples[0]) == 2


@pytest.mark.parametrize("wide", [1, 2**40], ids=["close together", "far apart"])
def test_numbers_without_rows_take_no_place_in_the_sample(wide: int) -> None:
    """Numbers that lie close together are coded by their range, which has numbers without rows."""
    random = np.random.default_rng(5)
    names = random.integers(0, 100, 500) ** 2 // 100 * wide
    times = random.integers(0, DAY_US, 500)
    rows = KeyColumn(names, None, np.zeros(500, bool))
    summary = key_summaries.summarise(rows, times, key_summaries.KeyPromise(0.1, 0.1), 3)
    ones, both = np.ones(500, np.int64), np.stack([times, times], axis=1)
    expected = KeySample.of(SampleSize(10, 10), name_words(names), 3 * ones, ones, both)
    assert len(np.unique(names)) < 90
    assert summary.sample is not None
    assert summary.sample.to_bytes() == expected.to_bytes()


@pytest.mark.slow
def test_a_wide_range_has_the_sample_of_its_batches(tmp_path: Path) -> None:
    """The commit of the 32nd batch adds a row for all of them."""
    random, batches = np.random.default_rng(4), []
    world = KeyWorld(tmp_path / "w")
    for _ in range(32):
        batches.append([(int(random.integers(200)), int(random.integers(DAY_US))) for _ in range(20)])
        world.stream([(f"key-{key}", at) for key, at in batches[-1]])
    (row,) = world.view().live
    (sample,) = live_summaries.read_samples([row])
    alone = KeyWorld(tmp_path / "alone")
    alone.stream([(f"key-{key}", at) for batch in batches for key, at in batch])
    (one,) = live_summaries.read_samples(alone.view().live)
    assert sample is not None
    assert one is not None
    assert sample.to_bytes() == one.to_bytes()


def forgets_shared_keys(parts: Any, _: int, ticks: int) -> DistinctKeys:
    return distinct_marks.join_distinct(parts, 0, ticks)


class CountsPieces(DistinctCollector):
    """Counts a key again in each piece of rows."""

    def add(self, *args: Any) -> None:
        self._last = None
        super().add(*args)


@pytest.mark.parametrize(
    "broken",
    [
        (key_marks, "join_distinct", forgets_shared_keys),
        (key_marks_writer, "DistinctCollector", CountsPieces),
    ],
    ids=["keys at the edges of files", "keys at the edges of pieces"],
)
def test_keys_that_are_counted_twice_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[Any, str, Any]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(*broken)
        world = KeyWorld(tmp_path / "w", tuning=TINY)
        world.load([(name, tick) for name in "ab" for tick in range(60)], files=6)
    (marks,) = world.view().runs
    with pytest.raises(AssertionError):
        check(world, marks)
    report = warehouse.verify(world.uri)
    assert not report.ok
    assert "distinct keys" in str(report)
