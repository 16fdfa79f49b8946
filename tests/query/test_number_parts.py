"""Values of ranks, and ranks of points, of numbers in parts, against sorted lists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import draws
from tidemark.query.reading import number_parts, shares
from tidemark.query.reading.number_parts import NumberParts

DOUBLES = st.sampled_from([-np.inf, -1.5, 0.0, 0.5, 1e308, np.inf]) | st.floats(-3, 3)
INTEGERS = st.sampled_from([-(2**63), -1, 0, 7, 2**53 + 1, 2**63 - 1]) | st.integers(-3, 3)
PARTS = st.sampled_from([(DOUBLES, np.float64), (INTEGERS, np.int64)]).flatmap(
    lambda kind: st.tuples(st.lists(st.lists(kind[0], max_size=40), max_size=8), st.just(kind[1]))
)
SMALL = st.sampled_from([0, 1, 3, 16, 2**8])


def parts_of(lists: list[list[Any]], dtype: Any) -> NumberParts:
    numbers = np.array([number for own in lists for number in own], dtype)
    numbers.flags.writeable = False  # as Arrow's are
    return NumberParts(numbers, np.cumsum([0, *map(len, lists)]))


def wrong_answers(lists: list[list[Any]], dtype: Any) -> list[Any]:
    """What is not as in sorted lists: for few ranks, for all of them, and afterwards."""
    parts, wrong = parts_of(lists, dtype), []
    for each in (1, 3, 0, 50, 2):
        ranks = np.array([[1 + i * 7 % (len(own) + 3) for i in range(each)] for own in lists], np.int64)
        ranks = ranks.reshape(len(lists), each)
        found = parts.same_values_at(ranks)
        for part, own in enumerate(map(sorted, lists)):
            for place, rank in enumerate(ranks[part].tolist()):
                if rank <= len(own):
                    value = own[rank - 1]
                    told = found.values[part, place].item(), found.ranks_le[part, place].item()
                    if told != (value, bisect_right(own, value)):
                        wrong.append((part, rank, told))
    return wrong


@settings(max_examples=draws(150), deadline=None)
@given(PARTS, SMALL, st.sampled_from([0, 60, 2**20]), st.sampled_from([1, 30]), st.sampled_from([-9.0, 0, 3]))
def test_ranks_are_those_of_sorted_lists(
    given_parts: Any, small: int, shared: int, large: int, spread: float
) -> None:
    """Also with samples, and with two of them between which the rank seldom lies."""
    lists, dtype = given_parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_parts, "SMALL", small)
        patch.setattr(shares, "SHARED", shared)
        patch.setattr(shares, "CORES", 3)
        patch.setattr(number_parts, "LARGE", large)
        patch.setattr(number_parts, "STEP", 2)
        patch.setattr(number_parts, "SPREAD", spread)
        assert wrong_answers(lists, dtype) == []
        parts = parts_of(lists, dtype)
        points = np.array([0, 1, -1], dtype)
        counts = [[sum(number <= point for number in own) for point in points] for own in lists]
        for _ in range(2):
            assert parts.same_ranks_at(points).tolist() == counts
            assert [one.tolist() for one in parts.ranks_at([points] * len(lists))] == counts
            ranks = [np.arange(1, len(own) + 1) for own in lists]
            assert [one.values.tolist() for one in parts.values_at(ranks)] == list(map(sorted, lists))


MANY = [[float(i * k % 13) for i in range(k)] for k in range(30)] + [[np.inf] * 5, [1.0] * 9, []]


def the_filling_counts(patch: pytest.MonkeyPatch) -> None:
    """As if the numbers that fill a row were numbers of the part."""
    right = np.minimum
    patch.setattr(np, "minimum", lambda a, b: a if np.ndim(a) == np.ndim(b) == 1 else right(a, b))


def the_last_number_is_lost(patch: pytest.MonkeyPatch) -> None:
    right = number_parts._small_parts

    def wrong(*given: Any) -> Any:
        for parts, rows, places in right(*given):
            rows[:, -1] = np.inf
            yield parts, rows, places

    patch.setattr(number_parts, "_small_parts", wrong)


def large_parts_are_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(number_parts, "SMALL", 4)
    patch.setattr(number_parts, "_large_parts", lambda *_: [])


def a_share_is_left_out(patch: pytest.MonkeyPatch) -> None:
    right = shares.shares_of
    patch.setattr(number_parts, "SMALL", 4)
    patch.setattr(shares, "SHARED", 60)
    patch.setattr(shares, "CORES", 3)
    patch.setattr(number_parts, "shares_of", lambda sizes: right(sizes)[1:])


def a_share_of_a_part_is_left_out(patch: pytest.MonkeyPatch) -> None:
    right = shares.equal_shares
    for name, value in {"SMALL": 4, "LARGE": 4, "STEP": 2}.items():
        patch.setattr(number_parts, name, value)
    patch.setattr(shares, "SHARED", 0)
    patch.setattr(shares, "CORES", 3)
    patch.setattr(number_parts, "equal_shares", lambda items: right(items)[1:])


def a_sample_is_taken_for_the_value(patch: pytest.MonkeyPatch) -> None:
    for name, value in {"SMALL": 4, "LARGE": 4, "STEP": 2}.items():
        patch.setattr(number_parts, name, value)
    patch.setattr(
        number_parts, "_between", lambda _, samples, rank, low, __: (samples[max(low, 1) - 1], int(rank))
    )


@pytest.mark.parametrize(
    "broken",
    [
        the_filling_counts,
        the_last_number_is_lost,
        large_parts_are_left_out,
        a_share_is_left_out,
        a_share_of_a_part_is_left_out,
        a_sample_is_taken_for_the_value,
    ],
)
def test_a_broken_variant_is_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    assert wrong_answers(MANY, np.float64) == []
    broken(monkeypatch)
    assert wrong_answers(MANY, np.float64)
