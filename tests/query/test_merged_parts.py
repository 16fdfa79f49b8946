"""Values of ranks in parts whose numbers lie in ascending stretches of arrays, against sorted lists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import draws
from tidemark.query.reading import merged_parts, number_parts, shares
from tidemark.query.reading.merged_parts import MergedParts, Stretches
from tidemark.query.reading.number_parts import NumberParts

DOUBLES = st.sampled_from([-np.inf, -1.5, 0.0, 0.5, 1e308, np.inf]) | st.floats(-3, 3)
INTEGERS = st.sampled_from([-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1]) | st.integers(-3, 3)


def arrays_of(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Arrays of stretches: each has the number of its part, or -1 for one that is not asked, and numbers."""
    stretch = st.tuples(st.integers(-1, 4), st.lists(numbers, max_size=40))
    return st.lists(st.lists(stretch, max_size=6), max_size=5)


ARRAYS = st.tuples(arrays_of(DOUBLES), st.just(np.float64)) | st.tuples(
    arrays_of(INTEGERS), st.just(np.int64)
)
PARTS = 5


def merged(arrays: list[Any], dtype: Any, *, as_rows: bool = False) -> tuple[MergedParts, list[list[Any]]]:
    """The parts, and their numbers, sorted. Between stretches the arrays have a number that nobody asks."""
    lists: list[list[Any]] = [[] for _ in range(PARTS)]
    stretches = []
    for array in arrays:
        numbers: list[Any] = []
        starts, stops, owners = [], [], []
        for part, own in array:
            starts.append(len(numbers))
            numbers += sorted(own)
            stops.append(len(numbers))
            owners.append(part)
            numbers.append(0)
            if part >= 0:
                lists[part] += own
        places = np.array(starts, np.int64), np.array(stops, np.int64), np.array(owners, np.int64)
        if as_rows:
            rows = [(part, number) for part, own in array if part >= 0 for number in own]
            stretches.append(
                Stretches.of_rows(
                    np.array([number for _, number in rows], dtype), np.array([p for p, _ in rows], np.int32)
                )
            )
        else:
            stretches.append(Stretches.of(np.array(numbers, dtype), *places))
    sizes = np.array(list(map(len, lists)), np.int64)
    return MergedParts(stretches, sizes, np.dtype(dtype)), [sorted(own) for own in lists]


def wrong_values(parts: MergedParts, lists: list[list[Any]]) -> list[Any]:
    wrong = []
    for each in (1, 3, 0, 50):
        ranks = [
            [1 + (i * (len(own) // 3 + 1) + len(own) - 1 - part) % (len(own) + 2) for i in range(each)]
            for part, own in enumerate(lists)
        ]
        found = parts.same_values_at(np.array(ranks, np.int64).reshape(len(lists), each))
        for part, own in enumerate(lists):
            for place, rank in enumerate(ranks[part]):
                if rank <= len(own):
                    told = found.values[part, place].item(), found.ranks_le[part, place].item()
                    if told != (own[rank - 1], bisect_right(own, own[rank - 1])):
                        wrong.append((part, rank, told))
    return wrong


def sample(patch: pytest.MonkeyPatch, *, step: int = 3, spread: float = 0.5) -> None:
    """Few numbers are enough for samples, and for three threads."""
    for name, value in {"MANY": 0, "LONG": 0, "STEP": step}.items():
        patch.setattr(merged_parts, name, value)
    patch.setattr(number_parts, "SPREAD", spread)
    patch.setattr(shares, "SHARED", 0)
    patch.setattr(shares, "CORES", 3)


@pytest.mark.slow
@settings(max_examples=draws(150), deadline=None)
@given(ARRAYS, st.sampled_from([1, 2, 5, 100]), st.sampled_from([-50.0, -1.0, 0.0, 3.0]), st.booleans())
def test_ranks_are_those_of_sorted_lists(drawn: Any, step: int, spread: float, as_rows: bool) -> None:
    """With samples of each density, and with two values between which the rank seldom lies."""
    with pytest.MonkeyPatch.context() as patch:
        sample(patch, step=step, spread=spread)
        parts, lists = merged(*drawn, as_rows=as_rows)
        assert wrong_values(parts, lists) == []
        taken = np.array([3, 1, 1, 4, 0])
        again = parts.take(taken)
        assert again.sizes.tolist() == [len(lists[part]) for part in taken.tolist()]
        assert wrong_values(again, [lists[part] for part in taken.tolist()]) == []
        points = np.array([0, 1, -1], drawn[1])
        counts = [[bisect_right(own, point) for point in points] for own in lists]
        assert parts.same_ranks_at(points).tolist() == counts
        assert [one.tolist() for one in parts.ranks_at([points] * PARTS)] == counts
        ranks = [np.arange(1, len(own) + 1) for own in lists]
        assert [one.values.tolist() for one in parts.values_at(ranks)] == lists


RNG = np.random.default_rng(5)
SOME = [
    [(part, RNG.normal(size=150 * part).round(1).tolist()) for part in (*range(PARTS), *range(PARTS))]
    for _ in range(2)
]


def test_only_samples_and_few_numbers_are_brought_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_parts, "MANY", 0)
    parts, lists = merged([[(part, RNG.normal(size=4_000).tolist()) for part in range(PARTS)]] * 3, float)
    brought: list[int] = []
    right = NumberParts

    def counted(numbers: Any, edges: Any, **more: Any) -> Any:
        brought.append(len(numbers))
        return right(numbers, edges, **more)

    monkeypatch.setattr(merged_parts, "NumberParts", counted)
    assert wrong_values(parts, lists) == []
    samples, *rest = brought
    assert samples <= sum(map(len, lists)) // merged_parts.STEP + PARTS
    assert max(rest[:4]) < sum(map(len, lists)) // 4
    assert rest[4:] == [sum(map(len, lists))], "50 ranks need all numbers, once"


# Deliberately broken variants: each must be caught by the comparison with sorted lists.


def a_rank_outside_of_its_values_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(number_parts, "SPREAD", -50.0)
    right = MergedParts._between_samples

    def wrong(self: MergedParts, ranks: Any) -> Any:
        values, ranks_le, _ = right(self, ranks)
        return values, ranks_le, np.ones(len(ranks), bool)

    patch.setattr(MergedParts, "_between_samples", wrong)


def numbers_are_those_of_the_next_part(patch: pytest.MonkeyPatch) -> None:
    right = Stretches.between

    def wrong(self: Stretches, starts: Any, stops: Any) -> Any:
        numbers, parts = right(self, starts, stops)
        return numbers, np.minimum(parts + 1, PARTS - 1)

    patch.setattr(Stretches, "between", wrong)


def a_share_has_the_ranks_of_the_first_one(patch: pytest.MonkeyPatch) -> None:
    right = MergedParts.by_samples
    first: list[Any] = []

    def wrong(self: MergedParts, ranks: Any) -> Any:
        first.append(ranks)
        return right(self, np.resize(first[0], ranks.shape))

    patch.setattr(MergedParts, "by_samples", wrong)


def stretches_of_a_part_are_not_cut_where_they_descend(patch: pytest.MonkeyPatch) -> None:
    right = Stretches.of_rows

    def wrong(numbers: Any, parts: Any) -> Any:
        found = right(numbers, parts)
        firsts = np.searchsorted(found.parts, np.unique(found.parts))
        ends = np.append(firsts[1:], len(found.parts)) - 1
        return Stretches(found.numbers, found.starts[firsts], found.stops[ends], found.parts[firsts])

    patch.setattr(Stretches, "of_rows", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        a_rank_outside_of_its_values_is_not_noticed,
        numbers_are_those_of_the_next_part,
        a_share_has_the_ranks_of_the_first_one,
        stretches_of_a_part_are_not_cut_where_they_descend,
    ],
)
def test_a_broken_variant_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    sample(monkeypatch)
    as_rows = broken is stretches_of_a_part_are_not_cut_where_they_descend
    broken(monkeypatch)
    try:
        wrong = wrong_values(*merged(SOME, float, as_rows=as_rows))
    except (IndexError, ValueError):
        return
    assert wrong
