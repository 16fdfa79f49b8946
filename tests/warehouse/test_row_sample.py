"""Samples of rows: the same and nearly the same rows are told, and normal days are not."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.integrity import row_sample
from tidemark.warehouse.integrity.digests import PRIME, row_hashes
from tidemark.warehouse.integrity.row_sample import NO_ROWS, SIZE, RowSample, RowSampler

DAY_US = 86_400_000_000
TIME, MEASURE = Measure("t", "timestamp"), Measure("x", "double")
NAMES = ["t", "k", "x"]


def batch(times: Any, keys: Any, values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(times, pa.timestamp("us", "UTC")),
            pa.array(keys, pa.string()),
            pa.array(values, pa.float64()),
        ],
        NAMES,
    )


def sample(*batches: pa.RecordBatch, time: Measure | None = TIME) -> RowSample:
    sampler = RowSampler(NAMES, time, MEASURE)
    for one in batches:
        sampler.add(one)
    return sampler.sample


def a_day(r: Generator, day: int, rows: int) -> pa.RecordBatch:
    times = day * DAY_US + r.integers(0, DAY_US // 1_000_000, rows) * 1_000_000
    return batch(times, [f"k{one}" for one in r.integers(0, 9, rows)], np.round(r.normal(20, 5, rows), 1))


ROW = st.tuples(
    st.none() | st.integers(0, 3).map(lambda one: one * DAY_US),
    st.none() | st.sampled_from("ab"),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
)


@given(st.lists(ROW, max_size=60), st.randoms(use_true_random=False), st.booleans())
def test_a_sample_does_not_depend_on_order_or_division(rows: list[Any], r: Any, has_time: bool) -> None:
    time = TIME if has_time else None
    whole = sample(batch(*zip(*rows, strict=True)) if rows else batch([], [], []), time=time)
    shuffled = r.sample(rows, len(rows))
    cut = r.randint(0, len(rows))
    parts = [batch(*zip(*part, strict=True)) for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert sum((sample(part, time=time) for part in parts), NO_ROWS) == sample(*parts, time=time) == whole
    assert RowSample.from_json(whole.to_json()) == whole
    assert whole.rows == len(rows)


def test_the_pairs_are_the_least_of_all_rows() -> None:
    """Against an oracle that hashes every row."""
    day = a_day(np.random.default_rng(1), 3, 20_000)
    sampler = RowSampler(NAMES, TIME, MEASURE)
    limit = row_sample.HASHED
    every = set[tuple[int, int]]()
    for start in range(0, day.num_rows, limit // 2):
        part = day.slice(start, limit // 2)
        times = part.column(0).cast(pa.int64()).to_numpy()
        words = sampler._words(part) + times.view(np.uint64)
        places: NDArray[np.uint64] = (words * PRIME) >> np.uint64(32)
        hashes = row_hashes(part) >> np.uint64(32)
        every |= set(zip(places.tolist(), hashes.tolist(), strict=True))
    assert sample(day).pairs == tuple(sorted(every)[:SIZE])


@pytest.mark.slow
def test_a_thousand_normal_days_are_told_apart() -> None:
    """Three sources a day, of one schedule; none has nearly the rows of another, on any day."""
    r = np.random.default_rng(20261127)
    samples = [sample(a_day(r, day, int(r.integers(50, 400)))) for day in range(1000) for _ in range(3)]
    holders: dict[Any, list[int]] = defaultdict(list)
    for number, one in enumerate(samples):
        for pair in one.pairs:
            holders[pair].append(number)
    compared = {(a, b) for held in holders.values() for a in held for b in held if a < b}
    assert not [pair for pair in compared if samples[pair[0]].likeness(samples[pair[1]])]
    assert samples[0].likeness(samples[1]) is samples[0].likeness(samples[500]) is None


def test_mistakes_are_told() -> None:
    r = np.random.default_rng(5)
    day = a_day(r, 7, 5000)
    known = sample(day)
    assert sample(day.take(pa.array(r.permutation(5000)))).likeness(known) == "the same"
    one_more = sample(day, batch([None], ["k"], [None]))
    assert one_more.likeness(known) == known.likeness(one_more) == "nearly the same"
    columns = day.to_pydict()
    for changed in range(0, 5000, 100):  # a hundredth is corrected
        columns["x"][changed] += 1
    corrected = sample(batch(columns["t"], columns["k"], columns["x"]))
    assert corrected.likeness(known) == "nearly the same"
    assert sample(day.slice(0, 2000)).likeness(known) is None  # a part of it
    assert sample(a_day(r, 7, 5000)).likeness(known) is None


def test_rows_that_repeat_by_right_are_not_told() -> None:
    beats = [batch([None] * 60, ["up"] * 60, [1.0] * 60) for _ in range(2)]
    assert sample(beats[0]).likeness(sample(beats[1])) is None
    few = [batch([DAY_US, 2 * DAY_US], ["a", "b"], [1.0, 2.0]) for _ in range(2)]
    assert sample(few[0]).likeness(sample(few[1])) is None
    minutes = [day * 60_000_000 for day in range(1440)]
    devices = [sample(batch(minutes, [name] * 1440, [1.0] * 1440)) for name in "ab"]
    assert devices[0].likeness(devices[1]) is None
    names = [f"user {number}" for number in range(500)]
    values = [float(number % 90) for number in range(500)]
    table = sample(batch([None] * 500, names, values), time=None)
    grown = sample(batch([None] * 501, [*names, "new"], [*values, 3.0]), time=None)
    assert grown.likeness(table) is None
    assert table.likeness(table) == "the same"


@pytest.mark.parametrize("rows", [row_sample.HASHED * 2, 3])
def test_many_rows_of_one_place_take_bounded_work(rows: int) -> None:
    found = sample(batch([0] * rows, [f"k{number}" for number in range(rows)], [1.0] * rows))
    assert len(found.pairs) == min(rows, SIZE)
    assert len({place for place, _ in found.pairs}) == 1


def test_a_sample_of_times_and_measures_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: it takes the heartbeats of two devices for the same rows."""
    monkeypatch.setattr(row_sample, "row_hashes", lambda rows: np.zeros(rows.num_rows, np.uint64))
    minutes = [day * 60_000_000 for day in range(1440)]
    devices = [sample(batch(minutes, [name] * 1440, [1.0] * 1440)) for name in "ab"]
    assert devices[0].likeness(devices[1]) is not None
