"""Sketches of nothing, of one element and of one value many times: every answer is the documented one."""

import numpy as np
import pytest

from tidemark.sketches import (
    ECM,
    GK,
    DyadicECM,
    EmptySketch,
    Estimate,
    RankBounds,
    combine,
    combine_frequencies,
    digest,
    digest_one,
    merge,
    merge_dyadic,
    merge_ecm,
)
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.inputs import ValueArray

DTYPES = [np.float64, np.int64]
PHIS = [0, 0.25, 0.5, 1]
COPIES = 1000


def staircases(values: ValueArray) -> list[RankBounds]:
    """Of the same elements: through a GK that is fed, built, merged, pruned and stored, and exact."""
    fed = GK(0.05, values.dtype)
    for part in np.array_split(values, 3):
        fed.update(part)
    built = GK.from_sorted(values, 0.05)
    union = merge([GK.from_sorted(part, 0.05) for part in np.array_split(values, 2)], 0.2)
    sketches = [fed, built, union, GK.from_bytes(fed.to_bytes())]
    return [*(combine([s.rank_bounds()]) for s in sketches), RankBounds.from_sorted(values)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_nothing_every_rank_is_zero_and_no_quantile_exists(dtype: type) -> None:
    nothing: ValueArray = np.empty(0, dtype)
    for bounds in [*staircases(nothing), RankBounds.empty(dtype), combine([RankBounds.empty(dtype)] * 2)]:
        bounds.check_invariants()
        for lo, hi in (bounds.rank_le([0, 5]), bounds.rank_lt([0, 5])):
            assert lo.tolist() == hi.tolist() == [0, 0]
        with pytest.raises(EmptySketch, match="n >= 1"):
            bounds.best_candidate([1])
        below, above = bounds.bracket([1])
        assert (below.tolist(), above.tolist()) == ([0], [0]), "no lower end, and no upper end"
    with pytest.raises(EmptySketch, match="at least one"):
        GK(0.1, dtype).quantile(0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("copies", [1, COPIES])
def test_of_one_value_every_quantile_is_it_and_every_rank_is_exact(dtype: type, copies: int) -> None:
    values: ValueArray = np.full(copies, 7, dtype)
    for bounds in staircases(values):
        assert bounds.values.tolist() == [7]
        for (lo, hi), expected in (
            (bounds.rank_le([6, 7, 8]), [0, copies, copies]),
            (bounds.rank_lt([6, 7, 8]), [0, 0, copies]),
        ):
            assert lo.tolist() == hi.tolist() == expected
        ranks = np.unique([1, (copies + 1) // 2, copies])
        index, error = bounds.best_candidate(ranks)
        assert not index.any()
        assert not error.any(), "equal elements cost nothing"
        below, above = bounds.bracket(ranks)
        assert not below.any()
        assert not above.any()
    sketch = GK.from_sorted(values, 0.05)
    assert sketch.quantiles(PHIS).tolist() == [sketch.quantile(phi) for phi in PHIS] == [7] * len(PHIS)
    assert (sketch.min, sketch.max, sketch.n) == (7, 7, copies)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 0.0, -0.0, 5e-324])
def test_a_single_value_of_any_kind_comes_back(value: float) -> None:
    sketch = GK(0.1)
    sketch.update([value])
    assert sketch.quantiles(PHIS).tolist() == [value] * len(PHIS)
    assert (sketch.min, sketch.max) == (value, value)
    assert not np.signbit(sketch.min) or value < 0


NOTHING = Estimate(0.0, 0, 0)


@pytest.mark.parametrize("kind", ["EH", "DW", "RW"])
@pytest.mark.parametrize("window", [None, 10])
def test_of_no_arrivals_every_count_is_zero(kind: CounterKind, window: int | None) -> None:
    empties = [ECM(0.4, 0.4, kind=kind, window=window, site=i) for i in range(2)]
    for sketch in (empties[0], merge_ecm(empties), ECM.from_bytes(empties[0].to_bytes())):
        for since, until in ((None, None), (3, None), (3, 9), (-(2**62), 2**62)):
            assert sketch.total(since, until) == sketch.point(digest_one("a"), since, until) == NOTHING
            assert combine_frequencies([sketch.bounds(since, until)]).total() == NOTHING
            if kind != "RW":
                assert sketch.self_join(since, until) == sketch.inner_product(sketch, since, until) == NOTHING
        assert len(sketch.points(np.empty(0, np.uint64))) == 0


@pytest.mark.parametrize("kind", ["EH", "DW", "RW"])
@pytest.mark.parametrize("copies", [1, 100])
def test_of_one_key_at_one_time_every_count_is_known(kind: CounterKind, copies: int) -> None:
    sketch = ECM(0.4, 0.4, kind=kind)
    sketch.update(digest(["a"] * copies), np.full(copies, 5))
    for reopened in (sketch, ECM.from_bytes(sketch.to_bytes())):
        assert (
            reopened.total() == reopened.total(5) == reopened.total(-3, 6) == Estimate(copies, copies, copies)
        )
        assert reopened.total(6) == reopened.total(0, 5) == NOTHING
        found = reopened.point(digest_one("a"))
        assert (found.estimate, found.hi) == (copies, copies)
        if kind != "RW":
            assert reopened.self_join().hi == copies**2


def test_integer_keys_of_nothing_and_of_one_value() -> None:
    empty = DyadicECM(10, 0.2, 0.2)
    for sketch in (empty, merge_dyadic([DyadicECM(10, 0.2, 0.2) for _ in range(2)])):
        assert sketch.total() == sketch.count_range(0, 1023) == NOTHING
        assert len(sketch.heavy_hitters(0.5)) == 0
        with pytest.raises(EmptySketch, match="at least one"):
            sketch.quantile(0.5)
    for copies in (1, 100):
        sketch = DyadicECM(10, 0.2, 0.2)
        sketch.update(np.full(copies, 700), np.full(copies, 5))
        for phi in PHIS:
            answer = sketch.quantile(phi)
            assert (answer.key, answer.rank_lo, answer.rank_hi) == (700, 1, copies)
        assert sketch.heavy_hitters(1.0).keys.tolist() == [700]
        assert sketch.count_range(700, 700) == Estimate(copies, copies, copies)
        assert sketch.count_range(0, 699) == sketch.count_range(701, 1023) == NOTHING
