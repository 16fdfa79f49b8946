from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sketches.arrivals import History, joined, zipf
from tidemark.sketches import (
    CorruptSketch,
    Counts,
    DyadicECM,
    EmptySketch,
    HeavyHitters,
    InvalidInput,
    merge_dyadic,
)
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.encoding.envelope import unwrap, wrap

BITS, EPS, DELTA = 16, 0.02, 0.02
WINDOWS = [(None, None), (3000, None), (9000, None), (2000, 7000)]


def streams(
    kind: CounterKind = "EH", window: int | None = None, sites: int = 1
) -> tuple[list[DyadicECM], History]:
    rng, sketches, histories = np.random.default_rng(1), [], []
    for _ in range(sites):
        keys = zipf(rng, 1.2, 20_000 // sites) * 13 % 2**BITS
        histories.append(History(keys, np.sort(rng.integers(0, 10_000, len(keys)))))
        sketches.append(DyadicECM(BITS, EPS, DELTA, kind=kind, window=window))
        for part in np.array_split(np.arange(len(keys)), 3):
            sketches[-1].update(histories[-1].keys[part], histories[-1].times[part])
    return sketches, joined(histories)


def assert_answers(sketch: DyadicECM, history: History) -> None:
    """Ranges, heavy hitters and quantiles of each window, against all keys."""
    for since, until in WINDOWS:
        true = history.between(since, until)
        keys = np.sort(np.repeat(list(true), list(true.values())))
        n = len(keys)
        levels = len(sketch.levels)
        slack = (sketch.levels[0].point_eps + 0.01) * n
        rng = np.random.default_rng(2)
        for low, high in [(0, 2**BITS - 1), (0, 0), (13, 13), *np.sort(rng.integers(0, 2**BITS, (20, 2)))]:
            found = sketch.count_range(int(low), int(high), since, until)
            inside = int(((keys >= low) & (keys <= high)).sum())
            assert found.lo <= inside <= found.hi
            if until is None:
                assert abs(found.estimate - inside) <= 2 * levels * slack
        for phi in (0.05, 0.1, 0.3):
            if phi <= sketch.levels[0].point_eps:
                continue
            heavy = sketch.heavy_hitters(phi, since, until)
            counts = np.array([true[key] for key in heavy.keys.tolist()])
            must = {key for key, count in true.items() if count >= phi * n}
            assert must <= set(heavy.keys.tolist()), "a heavy hitter was missed"
            assert (counts <= heavy.counts.hi).all()
            assert (counts[heavy.certain] >= phi * n).all()
            assert (np.diff(heavy.counts.estimate) <= 0).all()
            if until is None:
                assert (counts >= (phi - 3 * sketch.levels[0].point_eps) * n - 1).all()
        for quantile in (0, 0.25, 0.5, 0.9, 1):
            answer = sketch.quantile(quantile, since, until)
            lt, le = (int(np.searchsorted(keys, answer.key, side)) for side in ("left", "right"))
            assert answer.rank_lo <= lt + 1
            assert le <= answer.rank_hi
            if until is None:
                r = max(1, -(-quantile * n // 1))
                assert max(0, r - le, lt + 1 - r) <= min(levels * slack, answer.error + slack)


@pytest.mark.parametrize("kind", ["EH", "DW"])
def test_ranges_heavy_hitters_and_quantiles_of_any_window(kind: CounterKind) -> None:
    (sketch,), history = streams(kind)
    assert_answers(sketch, history)


@pytest.mark.parametrize("sites", [2, 16])
def test_merged_sites_answer_as_one(sites: int) -> None:
    sketches, history = streams(sites=sites)
    merged = merge_dyadic(sketches)
    assert merged.n == len(history.keys)
    assert_answers(merged, history)


def assert_ranges(sketch: DyadicECM, history: History) -> None:
    """Hierarchical heavy hitters of windows, by level: none is missed, and bounds hold."""
    times = history.times
    for since, until in ((None, None), (int(times[len(times) // 2]), None), (None, int(times[-9]))):
        true = history.between(since, until)
        n = true.total()
        for phi in (0.2, 0.06):
            found = sketch.heavy_ranges(phi, since, until)
            assert len(found) == len(sketch.levels)
            assert found[0].keys.tolist() == sketch.heavy_hitters(phi, since, until).keys.tolist()
            for level, ranges in enumerate(found):
                counted: Counter[int] = Counter()
                for key, count in true.items():
                    counted[key >> level] += count
                listed = set(ranges.keys.tolist())
                assert {number for number, count in counted.items() if count >= phi * n} <= listed
                for i, number in enumerate(ranges.keys.tolist()):
                    assert ranges.counts[i].lo <= counted[number] <= ranges.counts[i].hi
                    assert not ranges.certain[i] or counted[number] >= phi * n
                    assert level + 1 == len(found) or number >> 1 in set(found[level + 1].keys.tolist())


@pytest.mark.parametrize("sites", [1, 3])
def test_no_heavy_range_of_any_level_is_missed(sites: int) -> None:
    sketches, history = streams(sites=sites)
    assert_ranges(merge_dyadic(sketches), history)


def test_a_descent_into_left_halves_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DyadicECM.heavy_ranges

    def left(self: DyadicECM, *given: Any) -> list[HeavyHitters]:
        *lower, top = whole(self, *given)
        kept = [np.flatnonzero(one.keys % 2 == 0) for one in lower]
        return [
            HeavyHitters(
                one.keys[k],
                Counts(one.counts.estimate[k], one.counts.lo[k], one.counts.hi[k]),
                one.certain[k],
            )
            for one, k in zip(lower, kept, strict=True)
        ] + [top]

    monkeypatch.setattr(DyadicECM, "heavy_ranges", left)
    (sketch,), history = streams()
    with pytest.raises(AssertionError):
        assert_ranges(sketch, history)


def test_a_sliding_window_answers_for_what_it_keeps() -> None:
    (sketch,), history = streams(window=2000)
    horizon = int(history.times[-1]) - 2000
    true = history.between(horizon + 1)
    assert sketch.total().lo <= true.total() <= sketch.total().hi
    for low, high in ((0, 100), (13, 13), (50, 40_000)):
        inside = sum(count for key, count in true.items() if low <= key <= high)
        assert sketch.count_range(low, high).lo <= inside <= sketch.count_range(low, high).hi


@settings(max_examples=60)
@given(
    st.integers(1, 9),
    st.lists(st.tuples(st.integers(0, 511), st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=40),
    st.integers(0, 511),
    st.integers(0, 511),
    st.integers(0, 100),
)
def test_bounds_of_ranges_are_certain(
    bits: int, arrivals: list[tuple[int, int, int]], a: int, b: int, since: int
) -> None:
    """Even where every key collides: no probability is in the bounds."""
    keys = np.array([key for key, _, _ in arrivals]) % 2**bits
    times = np.cumsum([step for _, step, _ in arrivals])
    counts = np.array([count for _, _, count in arrivals])
    sketch = DyadicECM(bits, 0.9, 0.9)
    sketch.update(keys, times, counts)
    low, high = sorted((a % 2**bits, b % 2**bits))
    found = sketch.count_range(low, high, since)
    true = int(counts[(keys >= low) & (keys <= high) & (times >= since)].sum())
    assert found.lo <= true <= found.hi
    assert DyadicECM.from_bytes(sketch.to_bytes()).count_range(low, high, since) == found


def test_small_domains_are_counted_exactly() -> None:
    sketch = DyadicECM(4, 0.1, 0.1)
    assert len(sketch.levels) == 1
    sketch.update([3, 3, 15, 0], [1, 2, 3, 4])
    assert (sketch.count_range(3, 15).lo, sketch.count_range(3, 15).hi) == (3, 3)
    assert sketch.heavy_hitters(0.5).keys.tolist() == [3]
    assert [sketch.quantile(phi).key for phi in (0, 0.25, 0.5, 0.75, 1)] == [0, 0, 3, 3, 15]
    assert sketch.quantile(0.5).error == 0


def test_an_empty_window_has_no_quantile_and_no_hitters() -> None:
    sketch = DyadicECM(8, 0.1, 0.1)
    with pytest.raises(EmptySketch, match="at least one"):
        sketch.quantile(0.5)
    assert len(sketch.heavy_hitters(0.5)) == 0
    sketch.update([1], [5])
    assert len(sketch.heavy_hitters(0.5, since=6)) == 0


def test_what_cannot_be_asked_is_refused() -> None:
    sketch = DyadicECM(8, 0.05, 0.1)
    for keys in ([256], [-1], [1.5], [[1]]):
        with pytest.raises(InvalidInput):
            sketch.update(keys, [1])
    for low, high in ((-1, 3), (4, 3), (0, 256)):
        with pytest.raises(InvalidInput, match="low <= high"):
            sketch.count_range(low, high)
    for phi in (0.05, 0.0, 1.5):
        with pytest.raises(InvalidInput, match="eps < phi"):
            sketch.heavy_hitters(phi)
    for bits in (0, 63):
        with pytest.raises(InvalidInput, match="bits"):
            DyadicECM(bits, 0.1, 0.1)
    with pytest.raises(InvalidInput, match="bits"):
        merge_dyadic([sketch, DyadicECM(9, 0.05, 0.1)])


def test_levels_that_do_not_belong_together_are_damage() -> None:
    one, other = DyadicECM(8, 0.1, 0.1), DyadicECM(8, 0.1, 0.1)
    other.update([1], [1])
    a, b = (unwrap(b"DYAD", s.to_bytes())[1] for s in (one, other))
    with pytest.raises(CorruptSketch):
        DyadicECM.from_bytes(wrap(b"DYAD", 1, a + b[1:]))
    for payload in (b"", b"\x08", a[:-1], b"\x09" + a[1:], bytes([8]) + a[9:]):
        with pytest.raises(CorruptSketch):
            DyadicECM.from_bytes(wrap(b"DYAD", 1, payload))
