"""Merges find their buckets without counters: held equal to counters that are fed, and to what they cost."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.sketches import ECM, Counting, DyadicECM, merge_dyadic, merge_ecm
from tidemark.sketches.counters import deterministic_wave, exponential_histogram
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.counting import CounterKind, CounterState
from tidemark.sketches.counters.window_counts import WindowCounts

CELLS = 50
KINDS: list[CounterKind] = ["EH", "DW"]
ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, CELLS - 1), st.integers(-5, 60), st.integers(1, 9) | st.sampled_from([10**6, 2**50])
    ),
    max_size=60,
)


def fed(counting: Counting, cells: Ints, times: Ints, counts: Ints) -> Buckets:
    """By updates, as merges once did."""
    order = np.argsort(times, kind="stable")
    counters = counting.counters(
        counting.none(), CELLS if not len(cells) else max(CELLS, int(cells.max()) + 1)
    )
    counters.add(cells[order][None, :], times[order], counts[order])
    kept = counters.state()
    assert isinstance(kept, Buckets)
    return kept


def assert_as_fed(counting: Counting, cells: Ints, times: Ints, counts: Ints) -> None:
    assert_same(counting.buckets_of(cells, times, counts), fed(counting, cells, times, counts))


def assert_same(found: CounterState, expected: CounterState) -> None:
    for name in ("cells", "starts", "ends", "sizes", "expired"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


@settings(max_examples=60)
@pytest.mark.parametrize("kind", KINDS)
@given(arrivals=ARRIVALS, eps=st.sampled_from([0.9, 0.5, 0.3, 0.1, 0.01]))
def test_the_buckets_of_a_whole_stream_are_those_that_updates_leave(
    kind: CounterKind, arrivals: list[tuple[int, int, int]], eps: float
) -> None:
    cells, times, counts = np.array(arrivals, np.int64).reshape(-1, 3).T
    assert_as_fed(Counting(kind, eps), cells, times, counts)


@pytest.mark.parametrize("kind", KINDS)
def test_the_buckets_of_many_arrivals_are_those_that_updates_leave(kind: CounterKind) -> None:
    rng = np.random.default_rng(3)
    cells = np.minimum(rng.zipf(1.5, 20_000) - 1, CELLS - 1)
    for eps in (0.5, 0.02):
        assert_as_fed(
            Counting(kind, eps), cells, rng.integers(0, 5000, len(cells)), rng.integers(1, 5, len(cells))
        )


@pytest.mark.slow
@settings(max_examples=60)
@pytest.mark.parametrize("kind", KINDS)
@given(
    arrivals=ARRIVALS.filter(bool),
    eps=st.sampled_from([0.9, 0.5, 0.1, 0.01]),
    counted=st.booleans(),
    window=st.none() | st.integers(1, 70),
)
def test_the_first_arrivals_leave_the_buckets_that_empty_counters_would_have(
    kind: CounterKind, arrivals: list[tuple[int, int, int]], eps: float, counted: bool, window: int | None
) -> None:
    cells, times, counts = np.array(sorted(arrivals, key=lambda row: row[1]), np.int64).T
    rows = np.stack([cells, CELLS + cells[::-1]])
    counting = Counting(kind, eps, window)
    found, counters = WindowCounts(counting, 2 * CELLS), counting.counters(counting.none(), 2 * CELLS)
    found.update(times, counts if counted else None, cells=rows)
    counters.add(rows, times, counts if counted else counts[:0])
    expected = counters.state()
    assert_same(found.kept, expected if found.horizon is None else expected.drop_expired(found.horizon))


def one_rank_on(
    exact: Callable[[Ints, float], tuple[Ints, Ints]],
) -> Callable[[Ints, float], tuple[Ints, Ints]]:
    def broken(totals: Ints, eps: float) -> tuple[Ints, Ints]:
        bucket_counts, sizes = exact(totals, eps)
        return bucket_counts, sizes + (np.arange(len(sizes)) == 0) - (np.arange(len(sizes)) == 1)

    return broken


@pytest.mark.parametrize(
    ("kind", "module"), [("EH", exponential_histogram), ("DW", deterministic_wave)], ids=KINDS
)
def test_a_bucket_that_ends_one_arrival_later_is_caught(
    kind: CounterKind, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "kept_sizes", one_rank_on(module.kept_sizes))
    with pytest.raises(AssertionError):
        test_the_buckets_of_many_arrivals_are_those_that_updates_leave(kind)


def nearly_empty(kind: CounterKind, seed: int) -> ECM:
    """65,328 cells, of which at most 240 hold an arrival."""
    sketch = ECM(0.001, 1e-10, kind=kind)
    sketch.update(np.random.default_rng(seed).integers(0, 2**60, 10).astype(np.uint64), np.arange(10))
    return ECM.from_bytes(sketch.to_bytes())


def merge_peak(kind: CounterKind) -> int:
    parts = [nearly_empty(kind, seed) for seed in (1, 2)]
    tracemalloc.start()
    try:
        assert merge_ecm(parts).n == 20
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_merge_costs_what_its_inputs_hold_and_not_their_cells(kind: CounterKind) -> None:
    merge_ecm([nearly_empty(kind, 3)])  # compiles
    assert merge_peak(kind) < 500_000, "65,328 cells, and a byte of each is too much already"


def test_a_merge_of_dyadic_sketches_costs_what_they_hold() -> None:
    parts = [DyadicECM(62, 0.01, 1e-6) for _ in range(2)]
    for at, part in enumerate(parts):
        part.update([at, 2**61], [1, 2])
    stored = [DyadicECM.from_bytes(part.to_bytes()) for part in parts]
    merge_dyadic(stored)
    tracemalloc.start()
    try:
        assert merge_dyadic(stored).n == 4
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_merge_through_counters_of_all_cells_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def through_counters(self: Counting, cells: Ints, times: Ints, counts: Ints) -> Buckets:
        order = np.argsort(times, kind="stable")
        counters = self.counters(self.none(), 65_328)
        counters.add(cells[order][None, :], times[order], counts[order])
        kept = counters.state()
        assert isinstance(kept, Buckets)
        return kept

    monkeypatch.setattr(Counting, "buckets_of", through_counters)
    assert merge_peak("EH") > 100_000_000
