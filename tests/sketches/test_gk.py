import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.sketches.oracle import PHIS, assert_certified, batches
from tidemark.sketches import GK, BrokenInvariant, EmptySketch, InvalidInput, merge
from tidemark.sketches.gk.gk_summary import GKSummary, allowance, check_summary
from tidemark.sketches.inputs import ValueArray

DTYPES = [np.float64, np.int64]
EPS = [0.2, 0.01, 1e-9]
FLOATS = hnp.arrays(np.float64, st.integers(0, 80), elements=st.floats(allow_nan=False) | st.integers(-3, 3))
INTEGERS = hnp.arrays(
    np.int64, st.integers(0, 80), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
)
STREAMS = st.lists(FLOATS, min_size=1, max_size=6) | st.lists(INTEGERS, min_size=1, max_size=6)


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_promise_holds_after_every_batch_of_every_order(dtype: type, eps: float) -> None:
    for parts in batches(dtype, np.random.default_rng(2), size=1200).values():
        sketch = GK(eps, dtype)
        for i, part in enumerate(parts):
            sketch.update(part)
            assert_certified(sketch, np.concatenate(parts[: i + 1]).astype(dtype))


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_fast_path_of_a_sorted_array_keeps_every_promise(dtype: type, eps: float) -> None:
    for parts in batches(dtype, np.random.default_rng(3)).values():
        data: ValueArray = np.sort(np.concatenate(parts)).astype(dtype)
        sketch = GK.from_sorted(data, eps)
        assert_certified(sketch, data)
        assert len(sketch) <= (len(data) - 1) / allowance(eps, len(data)) + 2


@given(STREAMS, st.floats(1e-4, 0.49))
def test_every_promise_holds_for_any_batches(parts: list[ValueArray], eps: float) -> None:
    sketch = GK(eps, parts[0].dtype)
    for part in parts:
        sketch.update(part)
    assert_certified(sketch, np.concatenate(parts))
    data = np.sort(np.concatenate(parts))
    assert_certified(GK.from_sorted(data, eps), data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_sketch_has_ranks_and_no_quantile(dtype: type) -> None:
    sketch = GK(0.1, dtype)
    sketch.update([])
    assert_certified(sketch, np.empty(0, dtype))
    assert (sketch.n, len(sketch)) == (0, 0)
    assert sketch.rank_le([5])[1].tolist() == [0]
    sketch.prune(0.2)
    with pytest.raises(EmptySketch, match="at least one element"):
        sketch.quantile(0.5)


def test_one_value_answers_every_quantile() -> None:
    sketch = GK(0.1)
    sketch.update([4.5])
    assert [sketch.quantile(phi) for phi in (0, 0.3, 1)] == [4.5] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantiles_of_an_array_are_those_of_each_phi(dtype: type) -> None:
    for parts in batches(dtype, np.random.default_rng(21), size=400).values():
        sketch = GK(0.02, dtype)
        for part in parts:
            sketch.update(part)
        if not sketch.n:
            continue
        expected = [sketch.quantile(phi) for phi in PHIS]
        found = sketch.quantiles(PHIS)
        assert (found.dtype, found.shape) == (np.dtype(dtype), (len(PHIS),))
        assert found.tolist() == expected
        assert sketch.quantiles(np.array(PHIS, object)[::-1]).tolist() == expected[::-1]
        assert sketch.quantiles(np.array([[0.5, 0.07], [1, 0]])).tolist() == [
            [sketch.quantile(0.5), sketch.quantile(0.07)],
            [sketch.quantile(1), sketch.quantile(0)],
        ]


def test_quantiles_take_every_shape_and_kind_of_number() -> None:
    sketch = GK.from_sorted(np.arange(1, 101), 0.001)
    phis: list[Any] = [0.07, Fraction(7, 100), Decimal("0.07"), np.float32(0.07), 1]
    assert sketch.quantiles(phis).tolist() == [7, 7, 7, 7, 100]
    assert sketch.quantiles(np.array([0.07, 0.5], np.float32)).tolist() == [7, 50]
    assert sketch.quantiles([]).shape == (0,)
    assert sketch.quantiles(np.empty((0, 3))).shape == (0, 3)
    assert sketch.quantiles(0.5).tolist() == 50


@pytest.mark.parametrize(
    "phis",
    [[0.5, 1.5], [-0.1], [np.nan], ["0.5"], [None], [True], [[0.5], [0.5, 1]], np.ma.array([0.5]), "a"],
)
def test_phis_outside_their_range_are_refused(phis: object) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        GK.from_sorted([1.0, 2.0], 0.1).quantiles(phis)  # type: ignore[arg-type]  # bad phis


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_minimum_and_the_maximum_are_exact(dtype: type) -> None:
    """Through updates, prunes, merges and stored bytes: they are the first tuple and the last."""
    for parts in batches(dtype, np.random.default_rng(22), size=300).values():
        sketches = []
        for part in parts:
            sketches.append(GK(0.3, dtype))
            sketches[-1].update(part)
        whole: ValueArray = np.concatenate(parts).astype(dtype)
        union = merge(sketches)
        for sketch in (union, merge(sketches, 0.45), GK.from_bytes(union.to_bytes())):
            assert (sketch.min, sketch.max) == (whole.min(), whole.max())
            assert isinstance(sketch.min, float if dtype == np.float64 else int)
        union.prune(0.49)
        union.update(whole[:1])
        assert (union.min, union.max) == (whole.min(), whole.max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_sketch_has_no_ends_and_no_quantiles(dtype: type) -> None:
    asks: tuple[Callable[[GK], object], ...] = (
        lambda s: s.min,
        lambda s: s.max,
        lambda s: s.quantiles([0.5]),
        lambda s: s.quantiles([]),
    )
    for sketch in (GK(0.1, dtype), merge([GK(0.1, dtype), GK(0.2, dtype)]), GK.from_sorted([], 0.1, dtype)):
        for ask in asks:
            with pytest.raises(EmptySketch, match="at least one"):
                ask(sketch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_column_is_two_tuples(dtype: type) -> None:
    sketch = GK(0.001, dtype)
    for _ in range(10):
        sketch.update(np.full(10_000, 7, dtype))
    assert len(sketch) == len(GK.from_sorted(np.full(10_000, 7, dtype), 0.001)) == 2
    assert_certified(sketch, np.full(100_000, 7, dtype))


def test_integers_above_2_to_53_come_back_as_they_were() -> None:
    sketch = GK(0.01, np.int64)
    sketch.update([2**53 + 1, 2**53, 2**53 + 2, 2**63 - 1, -(2**63)])
    assert [sketch.quantile(r / 5) for r in (1, 2, 3, 4, 5)] == [
        -(2**63),
        2**53,
        2**53 + 1,
        2**53 + 2,
        2**63 - 1,
    ]
    assert sketch.rank_le([2**53 + 1])[0].tolist() == [3]


def test_infinities_are_values() -> None:
    sketch = GK(0.01)
    sketch.update([np.inf, -np.inf, 0.0, np.inf])
    assert [sketch.quantile(phi) for phi in (0, 0.5, 0.75, 1)] == [-np.inf, 0.0, np.inf, np.inf]
    assert sketch.rank_lt([np.inf])[0].tolist() == [2]


def test_negative_zero_is_stored_as_zero() -> None:
    sketch = GK(0.01)
    sketch.update([-0.0])
    assert not np.signbit(sketch.summary.values).any()
    assert not np.signbit(GK.from_sorted([-0.0, 0.0], 0.1).summary.values).any()


def test_a_tiny_eps_is_exact() -> None:
    data = np.random.default_rng(4).permutation(5000).astype(float)
    sketch = GK(1e-12)
    for part in np.array_split(data, 9):
        sketch.update(part)
    lo, hi = sketch.rank_le(data)
    assert lo.tolist() == hi.tolist() == (data + 1).tolist()


def test_a_tiny_batch_at_a_time_is_as_good_as_a_large_one() -> None:
    data = np.random.default_rng(5).normal(size=2000)
    sketch = GK(0.05)
    for x in data:
        sketch.update([x])
    assert_certified(sketch, data)
    assert len(sketch) <= 2 / (2 * 0.05) + 3


@pytest.mark.parametrize("order", ["random", "sorted", "reversed", "alternating", "few values", "zoomed-in"])
def test_large_batches_take_two_tuples_for_each_gap(order: str) -> None:
    """2 / (2 eps) tuples and 3 / (2 eps) where they zoom in twenty times; test_gk_size.py has every size."""
    rng, eps = np.random.default_rng(6), 0.001
    orders: dict[str, Callable[[int], ValueArray]] = {
        "random": lambda _: rng.random(100_000),
        "sorted": lambda i: i + rng.random(100_000),
        "reversed": lambda i: -i + rng.random(100_000),
        "alternating": lambda i: (i + rng.random(100_000)) * (-1) ** i,
        "few values": lambda _: np.floor(rng.lognormal(3, 1, 100_000)),
        "zoomed-in": lambda i: rng.random(100_000) * 0.9**i,
    }
    parts = orders[order]
    sketch = GK(eps)
    for i in range(20):
        sketch.update(parts(i))
    assert len(sketch) <= (3 if order == "zoomed-in" else 2) / (2 * eps)


def test_the_same_batches_give_the_same_bytes() -> None:
    rng = np.random.default_rng(7)
    parts = [rng.normal(size=5000) for _ in range(4)]
    sketches = []
    for shuffled in (parts, [rng.permutation(part) for part in parts]):
        sketch = GK(0.01)
        for part in shuffled:
            sketch.update(part)
        sketches.append(sketch.to_bytes())
    assert sketches[0] == sketches[1]


@pytest.mark.parametrize(
    "bad", [[1.0, np.nan], [[1.0]], ["a"], [True], np.ma.masked_array([1.0], [True]), 3.0]
)
def test_a_refused_batch_changes_nothing(bad: object) -> None:
    sketch = GK(0.1)
    sketch.update([1.0, 2.0])
    before = sketch.to_bytes()
    with pytest.raises(InvalidInput):
        sketch.update(bad)  # type: ignore[arg-type]  # a bad batch
    assert sketch.to_bytes() == before


def test_a_batch_is_read_and_not_kept() -> None:
    batch = np.array([3.0, 1.0, 2.0])
    sketch = GK(0.1)
    sketch.update(batch)
    batch[:] = 99
    assert_certified(sketch, np.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("eps", [0, 0.5, 1, -0.1, np.nan, np.inf, "0.1", None, True])
def test_an_eps_outside_its_range_is_refused(eps: float) -> None:
    with pytest.raises(InvalidInput, match=r"0 < eps < 0.5"):
        GK(eps)
    with pytest.raises(InvalidInput, match=r"0 < eps < 0.5"):
        GK.from_sorted([1.0], eps)


@pytest.mark.parametrize("phi", [-0.1, 1.1, np.nan, "0.5", True, None])
def test_a_phi_outside_its_range_is_refused(phi: float) -> None:
    with pytest.raises(InvalidInput, match="got phi"):
        GK.from_sorted([1.0], 0.1).quantile(phi)


def test_pruning_loosens_the_promise_and_never_tightens_it() -> None:
    data = np.random.default_rng(8).normal(size=20_000)
    sketch = GK.from_sorted(np.sort(data), 0.001)
    before = len(sketch)
    sketch.prune(0.01)
    assert_certified(sketch, data)
    assert len(sketch) < before / 5
    with pytest.raises(InvalidInput, match=r"an error bound of 0.01; pass that or more"):
        sketch.prune(0.001)
    assert sketch.eps == 0.01


def test_pruning_to_the_same_eps_twice_changes_nothing_more() -> None:
    sketch = merge([GK.from_sorted(np.arange(1000.0) + i / 2, 0.01) for i in range(3)], 0.01)
    once = sketch.to_bytes()
    sketch.prune(0.01)
    assert sketch.to_bytes() == once


def test_a_sketch_travels_between_processes() -> None:
    sketch = GK.from_sorted(np.arange(100.0), 0.01)
    assert pickle.loads(pickle.dumps(sketch)).to_bytes() == sketch.to_bytes()


def test_a_sketch_says_what_it_is() -> None:
    assert repr(GK.from_sorted([1, 2, 3], 0.25)) == "GK(eps=0.25, dtype=int64, n=3, tuples=3)"


@given(st.floats(1e-12, 0.49), st.integers(0, 2**62))
def test_the_allowance_is_exact_for_every_n(eps: float, n: int) -> None:
    assert allowance(eps, n) == max(1, math.floor(2 * Fraction(eps) * n))


@pytest.mark.parametrize(
    ("values", "rmin", "rmax", "rule"),
    [
        ([1.0, 2.0], [1, 1], [1, 2], "rmin rises strictly"),
        ([1.0, 2.0, 3.0], [1, 2, 4], [1, 4, 4], "rmax rises strictly"),
        ([1.0, 2.0], [2, 4], [2, 4], "minimum is at 1"),
        ([1.0, 2.0], [1, 3], [1, 4], "maximum is at n"),
        ([1.0, 2.0], [1, 100], [1, 100], "within the allowance"),
        ([-0.0, 2.0], [1, 2], [1, 2], "-0.0"),
        ([2.0, 1.0], [1, 2], [1, 2], "non-decreasing"),
        ([1.0, np.nan], [1, 2], [1, 2], "NaN"),
        ([1.0, 2.0], [1, 2, 3], [1, 2], "one longer"),
    ],
)
def test_a_broken_summary_is_named(values: list[float], rmin: list[int], rmax: list[int], rule: str) -> None:
    with pytest.raises(BrokenInvariant, match=rule):
        check_summary(GKSummary(np.array(values), np.array(rmin), np.array(rmax)), 0.1)
