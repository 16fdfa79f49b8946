"""PERFECT, SIMPLE, PROPORTIONAL, SPLITTER: certain bounds, the paper's estimates, and who is more exact."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.shifting_streams import LAWS, shifting
from tests.sketches import plain_windows
from tests.sketches.arrivals import Ints, zipf
from tests.sketches.plain_windows import EagerSplitter, PrintedLazySplitter, PrintedProportional
from tidemark.sketches import (
    ECM,
    Counting,
    InvalidInput,
    SketchError,
    WindowCounts,
    combine_frequencies,
    digest,
    merge_ecm,
)
from tidemark.sketches.bounds.count_bounds import exact
from tidemark.sketches.counters import blocks, sub_cells
from tidemark.sketches.counters.blocks import BlockCounters
from tidemark.sketches.counters.counting import Clock, CounterKind
from tidemark.sketches.counters.even_spread import late_part
from tidemark.sketches.counters.sub_cells import SubCells
from tidemark.sketches.hashing.row_hashes import RowHashes

KINDS: tuple[CounterKind, ...] = ("PF", "SI", "PR", "SP")
CLOCKS: tuple[Clock, ...] = ("time", "count")
CELLS, ROWS = 6, 2


def new(kind: CounterKind, window: int, clock: Clock = "time", eps: float = 0.1, mu: float = 1.5) -> Counting:
    return Counting(kind, eps, window, clock, mu=mu)


def assert_every_cell(counts: WindowCounts, cells: Ints, times: Ints) -> None:
    """Bounds of each cell against the arrivals, from each time where it can matter."""
    counts.check_invariants()
    now, window = int(times[-1]), counts.counting.window or 0
    since = {int(t) + by for t in times for by in (0, 1)} | {now - window + 1}
    for time in sorted(t for t in since if now - window < t):
        found = counts.since(time)
        later = cells[:, times >= time]
        true = np.bincount(later.ravel(), minlength=CELLS)
        assert np.all((found.lo <= true) & (true <= found.hi)), (
            f"since {time}: {true}, {found.lo}, {found.hi}"
        )
        assert np.all((found.lo <= found.estimate) & (found.estimate <= found.hi))
        if counts.counting.kind == "PF":
            assert np.array_equal(found.lo, found.hi), "PERFECT is exact"


def assert_draw(
    batches: list[list[tuple[int, int, int]]], kind: CounterKind, clock: Clock, window: int, eps: float
) -> None:
    counts = WindowCounts(new(kind, window, clock, eps), CELLS)
    cells, times = np.empty((ROWS, 0), np.int64), np.empty(0, np.int64)
    for batch in batches:
        new_cells = np.array([[a, 3 + b] for _, a, b in batch], np.int64).reshape(-1, 2).T
        gaps = np.array([gap for gap, _, _ in batch], np.int64)
        start = int(times[-1]) if len(times) else 0
        new_times = start + np.cumsum(gaps) if clock == "time" else np.arange(len(batch)) + len(times)
        counts.update(new_times if clock == "time" else None, cells=new_cells)
        cells, times = np.concatenate([cells, new_cells], axis=1), np.concatenate([times, new_times])
        if len(times):
            assert_every_cell(counts, cells, times)


ARRIVALS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 2)), max_size=25),
    min_size=1,
    max_size=4,
)


@given(
    ARRIVALS,
    st.sampled_from(KINDS),
    st.sampled_from(CLOCKS),
    st.integers(1, 40),
    st.sampled_from([0.03, 0.1, 0.5]),
)
def test_every_cell_of_every_draw_holds_what_perfect_holds(
    batches: list[list[tuple[int, int, int]]], kind: CounterKind, clock: Clock, window: int, eps: float
) -> None:
    assert_draw(batches, kind, clock, window, eps)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=80),
    st.integers(1, 60),
    st.sampled_from([Fraction(1, 20), Fraction(1, 5)]),
    st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(3)]),
)
def test_splitter_that_waits_equals_splitter_that_takes_off_at_each_step(
    gaps: list[int], window: int, eps: Fraction, mu: Fraction
) -> None:
    """After each arrival, and after the silence before the last."""
    counts = WindowCounts(new("SP", window, eps=float(eps), mu=float(mu)))
    eager = EagerSplitter(window, Fraction(float(eps) * window), mu)
    for time in np.cumsum(gaps).tolist():
        counts.update([time])
        eager.arrive(time)
        assert_as_eager(counts, eager, time)


def assert_as_eager(counts: WindowCounts, eager: EagerSplitter, time: int) -> None:
    kept: Any = counts.kept
    sizes = [cell.size for cell in eager.queue]
    assert kept.sizes.tolist() == sizes, "other sub-cells"
    length = kept.ends - kept.begins + 1
    inside = np.clip(kept.ends - (time - eager.window), 0, length)
    assert float(eager.value) == pytest.approx(float((kept.sizes * inside / length).sum()), abs=1e-9)
    found = counts.since()[0]
    assert found.estimate == pytest.approx(min(max(float(eager.value), found.lo), found.hi), abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=120), st.integers(1, 40))
def test_proportional_has_the_printed_estimates(counted: list[bool], window: int) -> None:
    printed = PrintedProportional(window)
    counts = WindowCounts(new("PR", window, "count"), 2)
    for one in counted:
        printed.arrive(one)
        counts.update(cells=np.array([[int(not one)]]))
        found = counts.since()[0]
        # The bounds of the printed one are not known to it; ours keep the estimate inside them.
        assert found.estimate == pytest.approx(min(max(float(printed.count), found.lo), found.hi))


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_leaves_what_single_arrivals_leave(kind: CounterKind, clock: Clock) -> None:
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.integers(0, 5, 400) * (rng.random(400) < 0.6)) + rng.integers(0, 2) * 500
    times[200:] += 333  # more than two windows of silence
    cells = np.stack([rng.integers(0, 3, 400), rng.integers(3, 6, 400)])
    batch, single = (WindowCounts(new(kind, 100, clock, 0.05), CELLS) for _ in range(2))
    batch.update(times if clock == "time" else None, cells=cells)
    for i in range(400):
        single.update(times[i : i + 1] if clock == "time" else None, cells=cells[:, i : i + 1])
    for time in (None, (single.now or 0) - 30, single.now):
        a, b = batch.since(time), single.since(time)
        assert a.lo.tolist() == b.lo.tolist()
        assert a.hi.tolist() == b.hi.tolist()
        assert a.estimate.tolist() == b.estimate.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_an_arrival_are_bounded_like_arrivals(kind: CounterKind) -> None:
    rng = np.random.default_rng(5)
    counts, now, seen = WindowCounts(new(kind, 50, eps=0.2), CELLS), 0, []
    for _ in range(6):
        times = now + np.cumsum(rng.integers(0, 4, 30))
        often, now = rng.integers(1, 5, 30), int(times[-1])
        cells = np.stack([rng.integers(0, 3, 30), rng.integers(3, 6, 30)])
        counts.update(times, often, cells=cells)
        seen.append((np.repeat(cells, often, axis=1), np.repeat(times, often)))
        assert_every_cell(
            counts, np.concatenate([c for c, _ in seen], axis=1), np.concatenate([t for _, t in seen])
        )
    huge = WindowCounts(new(kind, 50))
    huge.update([1, 2], [2**60, 2**61])
    assert huge.since()[0].hi == 2**60 + 2**61


def test_proportional_is_exact_at_the_end_of_each_window() -> None:
    rng = np.random.default_rng(6)
    cells = rng.integers(0, 2, 1000)
    counts = WindowCounts(new("PR", 100, "count"), 2)
    for begin in range(0, 1000, 100):
        counts.update(cells=cells[None, begin : begin + 100])
        found = counts.since()
        assert found.lo.tolist() == found.hi.tolist() == np.bincount(cells[begin : begin + 100]).tolist()


def test_nothing_bounds_the_error_of_proportional() -> None:
    """N / 2 arrivals of one key at the end of a window: N / 2 later, N / 4 are left, and all are inside."""
    window = 1000
    counts = WindowCounts(new("PR", window, "count"), 2)
    counts.update(cells=np.repeat([[1, 0]], window // 2, axis=1))
    counts.update(cells=np.ones((1, window // 2), np.int64))
    found = counts.since()[0]
    assert (found.estimate, found.hi) == (window / 4, window / 2)
    assert counts.error == math.inf


def test_expiry_after_the_update_leaves_what_is_long_gone() -> None:
    """Appendix A of the paper as printed; 50 arrivals, a silence of ten windows, one arrival."""
    printed, counts = PrintedLazySplitter(1000), WindowCounts(new("SP", 1000, eps=0.9))
    for time in [*range(50), 10_049]:
        printed.arrive(time)
        counts.update([time])
    assert printed.value == pytest.approx(5.1, abs=0.1)
    assert counts.since()[0].estimate == counts.since()[0].hi == 1


@pytest.mark.parametrize("rates", [(10, 1), (1, 10)])
def test_only_the_larger_rate_over_the_smaller_tells_both_changes(
    rates: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERROR, which listing III.4 leaves open: other readings join what is slow and what is fast.

    An arrival each `rates[0]` ticks in the first half of a window, each `rates[1]` in the second; half a
    window later the first half has expired.
    """
    times = [*range(0, 500, rates[0]), *range(500, 1_000, rates[1])]
    readings = {
        "the larger over the smaller": plain_windows.error,
        "the one before over the newest": lambda before, newest: before / newest,
        "the newest over the one before": lambda before, newest: newest / before,
        "the difference": lambda before, newest: abs(before - newest),
    }
    off = {}
    for name, reading in readings.items():
        monkeypatch.setattr(plain_windows, "error", reading)
        eager = EagerSplitter(1_000, Fraction(10), Fraction(3, 2))
        for time in times:
            eager.arrive(time)
        eager.tick(1_499)
        off[name] = abs(float(eager.value) / (500 // rates[1]) - 1)
    assert off["the larger over the smaller"] < 0.05
    fell = rates[0] < rates[1]
    assert off["the newest over the one before" if fell else "the one before over the newest"] > 0.3
    assert off["the difference"] > 0.3


def test_a_question_as_printed_is_about_a_row_less() -> None:
    """GETFREQ phases out after m' has moved on, so of N arrivals in the last N rows one is missing."""
    window = 100
    printed, counts = PrintedLazySplitter(window), WindowCounts(new("SP", window, "count", eps=0.9))
    for row in range(window):
        printed.arrive(row)
        counts.update(cells=np.zeros((1, 1), np.int64))
    assert printed.value == window
    printed.phase_out(window)  # m' of the next row
    assert printed.value == window - 1
    assert counts.since()[0].estimate == window


def test_splitter_keeps_few_sub_cells() -> None:
    """At most 1 / eps + 2 * width of them in a row, as many as the paper's tau allows."""
    rng = np.random.default_rng(7)
    counts = WindowCounts(new("SP", 2000, "count", eps=0.01, mu=1.0), 28)
    for _ in range(40):
        counts.update(cells=zipf(rng, 1.0, 300, 28)[None, :])
        assert len(counts.kept) <= 1 / 0.01 + 2 * 28


def test_the_paper_s_order_of_errors_at_equal_memory() -> None:
    """SIMPLE > PROPORTIONAL > ECM > SPLITTER, where ECM has as many bytes as SPLITTER or more.

    Mean distance from PERFECT over all items, without the first window, as in figure 2.
    """
    window, items = 5_000, digest(np.arange(1_000))
    countings = {kind: new(kind, window, "count", 0.05 / 28) for kind in KINDS}
    countings["DW"] = Counting("DW", 0.5, window, "count")
    errors: dict[str, list[float]] = {kind: [] for kind in countings}
    bytes_kept = {"DW": 0, "SP": 0}
    for law in LAWS[1:]:
        keys = digest(shifting(law, 3 * window, seed=7, period=window // 5))
        hashes = RowHashes(1, 28, seed=5)
        sketches = {kind: ECM.of(hashes, c, eps=0.1, delta=0.5) for kind, c in countings.items()}
        for begin in range(0, len(keys), 250):
            for sketch in sketches.values():
                sketch.update(keys[begin : begin + 250])
            if begin < window:
                continue
            true = sketches["PF"].points(items).estimate
            for kind, sketch in sketches.items():
                errors[kind].append(float(np.abs(sketch.points(items).estimate - true).mean()))
            bytes_kept["DW"] += 16 * len(sketches["DW"].counts.kept)
            bytes_kept["SP"] += 24 * len(sketches["SP"].counts.kept)
    assert bytes_kept["SP"] <= bytes_kept["DW"]
    mean = {kind: float(np.mean(found)) for kind, found in errors.items()}
    assert mean["PF"] == 0
    assert mean["SI"] > 3 * mean["PR"] > 3 * mean["DW"] > 3 * 5 * mean["SP"], mean


def test_a_shifting_stream_stays_within_eps_in_ecm() -> None:
    """The stream that defeats PROPORTIONAL: errors where they are proved, and bounds of every kind."""
    keys, n = shifting("Zipf-2", 30_000, seed=3, period=2_000), 10_000
    kinds: tuple[CounterKind, ...] = ("EH", "DW", *KINDS)
    for kind in kinds:
        sketch = ECM(0.05, 0.01, window=n, kind=kind, clock="count")
        for part in np.array_split(keys, 20):
            sketch.update(digest(part))
        true = np.bincount(keys[-n:], minlength=1_000)
        found = sketch.points(digest(np.arange(1_000)))
        assert np.all(true <= found.hi)
        assert np.mean(true < found.lo) <= 0.01
        if math.isfinite(sketch.point_eps):
            assert np.mean(np.abs(found.estimate - true) > sketch.point_eps * n) <= 0.01


def test_what_these_kinds_cannot_do_is_refused() -> None:
    for kind in KINDS:
        with pytest.raises(InvalidInput, match="window"):
            Counting(kind, 0.1)
        sketch = ECM(0.1, 0.1, kind=kind, window=10)
        sketch.update(digest([1, 2]), [1, 2])
        with pytest.raises(InvalidInput, match="to store"):
            sketch.to_bytes()
        with pytest.raises(InvalidInput, match="combine_frequencies"):
            merge_ecm([sketch, ECM(0.1, 0.1, kind=kind, window=10)])
        both = combine_frequencies([sketch.bounds(), sketch.bounds()])
        assert both.points(digest([1]))[0].hi >= 2
    with pytest.raises(InvalidInput, match="mu"):
        Counting("SP", 0.1, 10, mu=0.5)


LATE_PART, DROP, TOTALS = late_part, SubCells.drop_expired, BlockCounters._totals


def late_part_with(lo: int = 0, hi: int = 0) -> Callable[..., object]:
    def broken(*args: Any, **options: Any) -> object:
        found = LATE_PART(*args, **options)
        return type(found)(found.estimate, found.lo + lo, found.hi + hi)

    return broken


def even_share(counts: Ints, later: Ints, length: Ints, **_: bool) -> object:
    """The estimate as if it were certain."""
    share = np.round(counts * (later / length)).astype(np.int64)
    return exact(share)


MISTAKES: dict[str, tuple[object, str, Any]] = {
    "lo of a part of a block is one too high": (blocks, "late_part", late_part_with(lo=1)),
    "hi of a part of a block is one too low": (blocks, "late_part", late_part_with(hi=-1)),
    "lo of a part of a sub-cell is one too high": (sub_cells, "late_part", late_part_with(lo=1)),
    "hi of a part of a sub-cell is one too low": (sub_cells, "late_part", late_part_with(hi=-1)),
    "PROPORTIONAL takes its estimate for certain": (blocks, "late_part", even_share),
    "SPLITTER takes its estimate for certain": (sub_cells, "late_part", even_share),
    "sub-cells expire one too early": (
        SubCells,
        "drop_expired",
        lambda self, horizon: DROP(self, horizon + 1),
    ),
    "the block before loses an arrival": (
        BlockCounters,
        "_totals",
        lambda self, cells, counts, start, end: TOTALS(self, cells, counts, start, max(start, end - 1)),
    ),
}


def exercise() -> None:
    rng = np.random.default_rng(8)
    for kind in KINDS:
        for clock in CLOCKS:
            drawn = rng.integers(0, [4, 3, 3], (8, 20, 3))
            assert_draw([[tuple(a) for a in batch.tolist()] for batch in drawn], kind, clock, 23, 0.1)


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, SketchError)):
        exercise()
