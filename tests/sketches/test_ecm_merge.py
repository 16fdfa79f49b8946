from typing import Any

import numpy as np
import pytest

from tests.sketches.arrivals import History, assert_points, joined, zipf
from tests.sketches.test_ecm import WINDOWS, join_size
from tidemark.sketches import ECM, Counting, InvalidInput, WindowCounts, digest, merge_ecm
from tidemark.sketches.counters.counting import CounterKind

EPS, DELTA = 0.05, 0.1


def sites(count: int, kind: CounterKind = "EH", **options: Any) -> tuple[list[ECM], list[History]]:
    """Streams of the same keys that run beside each other."""
    rng, sketches, histories = np.random.default_rng(count), [], []
    for _ in range(count):
        size = max(1, 40_000 // count)
        histories.append(History(zipf(rng, 1.0, size), np.sort(rng.integers(0, 10_000, size))))
        sketches.append(ECM(EPS, DELTA, kind=kind, **options))
        sketches[-1].update(digest(histories[-1].keys), histories[-1].times)
    return sketches, histories


@pytest.mark.parametrize("kind", ["EH", "DW"])
@pytest.mark.parametrize("count", [2, 16, 256])
def test_a_merge_of_many_sites_keeps_its_bound(count: int, kind: CounterKind) -> None:
    sketches, histories = sites(count, kind)
    whole = joined(histories)
    merged = merge_ecm(sketches)
    assert merged.n == len(whole.keys)
    assert merged.point_eps == pytest.approx(2 * EPS + EPS**2)
    assert_points(merged, whole, WINDOWS)
    observed = 0.0
    for since in (3000, 9000):
        true = whole.between(since)
        found = merged.points(digest(np.arange(5000)), since)
        counts = np.array([true[key] for key in range(5000)])
        error = np.quantile(np.abs(found.estimate - counts), 1 - DELTA) / true.total()
        observed = max(observed, float(error))
    assert observed <= EPS, "in practice a merge costs next to nothing"


@pytest.mark.parametrize("count", [2, 16, 256])
def test_a_tree_of_merges_keeps_its_bound(count: int) -> None:
    level, histories = sites(count)
    height = 0
    while len(level) > 1:
        level = [merge_ecm(pair) for pair in zip(level[::2], level[1::2], strict=True)]
        height += 1
    assert level[0].counts.error == pytest.approx((1 + EPS) ** (height + 1) - 1)
    assert_points(level[0], joined(histories), WINDOWS)


@pytest.mark.parametrize("kind", ["EH", "DW"])
def test_sliding_windows_merge_to_the_newest(kind: CounterKind) -> None:
    sketches, histories = sites(4, kind, window=3000)
    sketches[0].update(digest([1]), [10_500])
    histories[0].add(np.array([1]), np.array([10_500]))
    merged = merge_ecm(sketches)
    assert merged.counts.horizon == 7500
    whole = joined(histories)
    inside = whole.times > 7500
    assert_points(merged, History(whole.keys[inside], whole.times[inside]), [(None, None), (9000, None)])


def test_self_joins_of_merges_keep_their_bounds() -> None:
    sketches, histories = sites(16)
    whole, merged = joined(histories), merge_ecm(sketches)
    for since in (None, 5000):
        true = whole.between(since)
        found = merged.self_join(since)
        assert found.lo <= join_size(true, true) <= found.hi
        assert abs(found.estimate - join_size(true, true)) <= merged.inner_product_eps * true.total() ** 2


def test_a_merge_leaves_its_inputs_alone() -> None:
    sketches, _ = sites(3)
    before = [s.to_bytes() for s in sketches]
    merged = merge_ecm(sketches)
    merged.update(digest([1, 2]), [20_000, 20_001])
    assert [s.to_bytes() for s in sketches] == before
    assert merge_ecm(sketches).to_bytes() == merge_ecm(sketches).to_bytes()


def test_a_bucket_starts_where_the_older_one_ends() -> None:
    """Section 5.1: bucket 1 is the newest, so s(EH^j) is e(EH^(j+1)). With the printed j - 1 none has any."""
    times = np.cumsum(np.random.default_rng(4).integers(1, 4, 500))
    counts = WindowCounts(Counting("EH", 0.1))
    counts.update(times)
    kept: Any = counts.kept
    ends, sizes = kept.ends[::-1], kept.sizes[::-1]
    newest_first = np.split(times[::-1], np.cumsum(sizes)[:-1])
    assert len(ends) > 10
    for j in range(1, len(ends) - 1):
        assert np.all((ends[j + 1] < newest_first[j]) & (newest_first[j] <= ends[j]))
        assert not np.any((ends[j - 1] < newest_first[j]) & (newest_first[j] <= ends[j]))


def test_the_order_of_the_inputs_changes_no_bound() -> None:
    sketches, histories = sites(5)
    for order in (sketches, sketches[::-1]):
        assert_points(merge_ecm(order), joined(histories), WINDOWS[:3])


def test_what_cannot_be_merged_is_refused() -> None:
    sketch = ECM(EPS, DELTA, seed=1)
    with pytest.raises(InvalidInput, match="at least one"):
        merge_ecm([])
    for other in (ECM(EPS, DELTA, seed=2), ECM(0.06, DELTA, seed=1), ECM(EPS, 0.01, seed=1)):
        with pytest.raises(InvalidInput, match="same rows, width and seed"):
            merge_ecm([sketch, other])
    for other in (ECM(EPS, DELTA, seed=1, window=5), ECM(EPS, DELTA, seed=1, kind="DW")):
        with pytest.raises(InvalidInput, match="one kind, window and clock"):
            merge_ecm([sketch, other])
    with pytest.raises(InvalidInput, match="interleave"):
        merge_ecm([ECM(EPS, DELTA, clock="count")] * 2)
