from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from tests.sketches.oracle import assert_certified, batches, rank_error
from tidemark.sketches import GK, InvalidInput, merge
from tidemark.sketches.gk.gk_summary import GKSummary, merge_summaries
from tidemark.sketches.inputs import ValueArray

DTYPES = [np.float64, np.int64]
# Few different values: ties between the inputs are where a merge goes wrong.
TIED = st.lists(st.integers(-4, 4), max_size=40)


def joined(parts: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(parts))


def column(values: list[int], dtype: type) -> ValueArray:
    return np.array(values, dtype)


@pytest.mark.parametrize("k", [2, 16, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_merge_of_k_keeps_every_promise(dtype: type, k: int) -> None:
    rng = np.random.default_rng(k)
    for values in (rng.integers(0, 50, 20_000), rng.normal(scale=1e6, size=20_000).astype(np.int64)):
        parts: list[ValueArray] = [part.astype(dtype) for part in np.array_split(values, k)]
        sketches = [GK.from_sorted(np.sort(part), 0.01) for part in parts]
        whole = np.concatenate(parts)
        assert_certified(merge(sketches), whole)
        assert merge(sketches).eps == 0.01
        assert_certified(merge(sketches, 0.01), whole)
        assert_certified(merge(sketches, 0.03), whole)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_merge_of_every_order_keeps_every_promise(dtype: type) -> None:
    for parts in batches(dtype, np.random.default_rng(9), size=800).values():
        sketches = []
        for part in parts:
            sketches.append(GK(0.02, dtype))
            sketches[-1].update(part)
        assert_certified(merge(sketches), np.concatenate(parts).astype(dtype))
        assert_certified(merge(sketches[::-1], 0.05), np.concatenate(parts).astype(dtype))


@given(st.lists(st.tuples(TIED, st.floats(0.01, 0.49)), min_size=1, max_size=6), st.sampled_from(DTYPES))
def test_a_merge_keeps_the_weighted_mean_of_the_promises(
    parts: list[tuple[list[int], float]], dtype: type
) -> None:
    sketches = [GK.from_sorted(np.sort(column(values, dtype)), eps) for values, eps in parts]
    whole = column(joined(values for values, _ in parts), dtype)
    union = merge(sketches)
    assert_certified(union, whole)
    budget = sum(Fraction(s.eps) * s.n for s in sketches)
    if len(whole):
        assert budget <= Fraction(union.eps) * union.n <= budget * (1 + Fraction(2) ** -50)


@given(st.lists(TIED, min_size=2, max_size=10), st.randoms(use_true_random=False), st.sampled_from(DTYPES))
def test_a_random_tree_of_merges_keeps_every_promise(
    parts: list[list[int]], random: Random, dtype: type
) -> None:
    """Each merge may prune a little looser than before, as the ledger's cascade does."""
    pool = [(GK.from_sorted(np.sort(column(values, dtype)), 0.05), values) for values in parts]
    while len(pool) > 1:
        random.shuffle(pool)
        taken, pool = pool[:3], pool[3:]
        eps = max(s.eps for s, _ in taken) + 0.03
        union = merge([s for s, _ in taken], eps if eps < 0.45 else None)
        pool.append((union, joined(values for _, values in taken)))
        assert_certified(union, column(pool[-1][1], dtype))


def test_the_cascade_of_the_ledger_keeps_its_budget() -> None:
    """Leaves, then levels of 32: each level spends its share, and the whole stays within eps."""
    rng = np.random.default_rng(10)
    parts = [rng.lognormal(size=rng.integers(1, 400)) for _ in range(1024)]
    leaves = [GK(0.001) for _ in parts]
    for leaf, part in zip(leaves, parts, strict=True):
        leaf.update(part)
    middle = [merge(leaves[i : i + 32], 0.002) for i in range(0, 1024, 32)]
    assert_certified(merge(middle, 0.003), np.concatenate(parts))


def test_a_merge_leaves_its_inputs_alone() -> None:
    sketches = [GK.from_sorted(np.arange(100.0), 0.05), GK.from_sorted(np.arange(50.0), 0.05)]
    before = [s.to_bytes() for s in sketches]
    union = merge(sketches, 0.1)
    union.update([1.0, 2.0])
    assert [s.to_bytes() for s in sketches] == before


def test_the_worked_example_of_the_comment() -> None:
    a = GKSummary(np.array([1, 3, 9]), np.array([1, 2, 5]), np.array([1, 3, 5]))
    b = GKSummary(np.array([3, 9]), np.array([1, 3]), np.array([1, 3]))
    union = merge_summaries([a, b])
    assert union.values.tolist() == [1, 3, 3, 9, 9]
    assert union.rmin.tolist() == [1, 2, 3, 6, 8]
    assert union.rmax.tolist() == [1, 3, 5, 7, 8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_inputs_add_nothing(dtype: type) -> None:
    empty, full = GK(0.3, dtype), GK.from_sorted(np.arange(9).astype(dtype), 0.1)
    for sketches in ([empty, full], [full, empty], [empty, full, empty]):
        assert merge(sketches).to_bytes() == full.to_bytes()
    assert merge([empty, GK(0.1, dtype)]).n == 0
    assert merge([empty, GK(0.1, dtype)]).eps == 0.3


def test_a_merge_beyond_2_to_31_elements_counts_every_one() -> None:
    """Doubling 33 times: true ranks are those of the first 1,000 elements times 2**33."""
    data = np.repeat(np.arange(500.0), 2)
    sketch = GK.from_sorted(data, 0.01)
    for _ in range(33):
        sketch = merge([sketch, GK.from_bytes(sketch.to_bytes())], 0.01)
        sketch.check_invariants()
    n = 1000 * 2**33
    assert sketch.n == n
    lo, hi = sketch.rank_le(np.arange(500.0))
    exact = (np.arange(500) + 1) * 2 * 2**33
    assert (lo <= exact).all()
    assert (exact <= hi).all()
    assert (hi - lo).max() <= 2 * 0.01 * n
    assert rank_error(data, sketch.quantile(0.5), 500) <= 10
    assert GK.from_bytes(sketch.to_bytes()).n == n


def test_what_cannot_be_merged_is_refused() -> None:
    exact, loose = GK.from_sorted([1.0, 2.0], 0.01), GK.from_sorted([1.0, 2.0], 0.1)
    with pytest.raises(InvalidInput, match="at least one"):
        merge([])
    with pytest.raises(InvalidInput, match=r"float64.*int64"):
        merge([exact, GK(0.1, np.int64)])
    with pytest.raises(InvalidInput, match=r"together promise 0.055"):
        merge([exact, loose], 0.05)
    with pytest.raises(InvalidInput, match=r"0 < eps < 0.5"):
        merge([exact, loose], 0.5)


class AnyOrderOfOperations(RuleBasedStateMachine):
    """Updates, merges, prunes and reopenings in any order, beside a plain list of the elements."""

    sketches = Bundle("sketches")

    @rule(target=sketches, eps=st.sampled_from([1e-6, 0.01, 0.1]))
    def create(self, eps: float) -> tuple[GK, list[int]]:
        return GK(eps, np.int64), []

    @rule(target=sketches, values=TIED, eps=st.sampled_from([1e-6, 0.01, 0.1]))
    def create_from_sorted(self, values: list[int], eps: float) -> tuple[GK, list[int]]:
        return GK.from_sorted(np.sort(column(values, np.int64)), eps), values

    @rule(pair=sketches, values=TIED)
    def update(self, pair: tuple[GK, list[int]], values: list[int]) -> None:
        sketch, elements = pair
        sketch.update(column(values, np.int64))
        elements += values
        assert_certified(sketch, column(elements, np.int64))

    @rule(pair=sketches, more=st.floats(0, 0.1))
    def prune(self, pair: tuple[GK, list[int]], more: float) -> None:
        sketch, elements = pair
        sketch.prune(min(0.49, sketch.eps + more))
        assert_certified(sketch, column(elements, np.int64))

    @rule(target=sketches, pairs=st.lists(consumes(sketches), min_size=1, max_size=4), pruned=st.booleans())
    def merge(self, pairs: list[tuple[GK, list[int]]], pruned: bool) -> tuple[GK, list[int]]:
        eps = max(s.eps for s, _ in pairs) if pruned else None
        union, elements = merge([s for s, _ in pairs], eps), joined(e for _, e in pairs)
        assert_certified(union, column(elements, np.int64))
        return union, elements

    @rule(target=sketches, pair=consumes(sketches))
    def reopen(self, pair: tuple[GK, list[int]]) -> object:
        sketch, elements = pair
        reopened = GK.from_bytes(sketch.to_bytes())
        assert reopened.to_bytes() == sketch.to_bytes()
        return multiple((reopened, elements))


TestAnyOrderOfOperations = AnyOrderOfOperations.TestCase
TestAnyOrderOfOperations.settings = settings(max_examples=40, stateful_step_count=25)
