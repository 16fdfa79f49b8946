import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sketches import EmptySketch, InvalidInput, target_rank
from tidemark.sketches.bounds.target_rank import target_ranks


@pytest.mark.parametrize("phi", [0.07, np.float64(0.07), np.float32(0.07), Decimal("0.07"), Fraction(7, 100)])
def test_seven_percent_of_a_hundred_is_seven(phi: float) -> None:
    assert target_rank(phi, 100) == 7


def test_in_doubles_it_would_be_eight() -> None:
    assert math.ceil(0.07 * 100) == 8


@pytest.mark.parametrize(
    ("phi", "n", "r"),
    [
        (0, 5, 1),
        (1, 5, 5),
        (0.5, 1, 1),
        (0.5, 2, 1),
        (0.5, 3, 2),
        (1e-300, 10, 1),
        (np.int64(1), np.int64(9), 9),
    ],
)
def test_the_rank_is_the_ceiling_and_at_least_one(phi: float, n: int, r: int) -> None:
    assert target_rank(phi, n) == r


def test_ranks_beyond_2_to_53_are_exact() -> None:
    assert target_rank(1, 2**60 + 1) == 2**60 + 1
    assert target_rank(0.1, 10**18 + 10) == 10**17 + 1


@given(st.integers(0, 1000), st.integers(1, 10**19))
def test_a_decimal_of_three_digits_means_itself(thousandths: int, n: int) -> None:
    expected = max(1, -(-thousandths * n // 1000))
    assert target_rank(thousandths / 1000, n) == expected
    assert target_rank(Decimal(thousandths) / 1000, n) == expected


@given(
    st.fractions(0, 1) | st.floats(0, 1) | st.decimals(0, 1),
    st.lists(st.integers(1, 2**63 - 1) | st.integers(1, 9), max_size=5),
)
def test_ranks_of_several_sizes_are_those_of_each(phi: Fraction | float | Decimal, sizes: list[int]) -> None:
    found = target_ranks(phi, np.array(sizes, np.int64))
    assert found.tolist() == [target_rank(phi, n) for n in sizes]


def test_a_size_of_nothing_among_others_is_refused() -> None:
    with pytest.raises(EmptySketch, match="at least one element"):
        target_ranks(0.5, np.array([3, 0]))


@pytest.mark.parametrize("phi", [-0.1, 1.1, -1, 2, 99, Decimal("1.01"), Fraction(-1, 3)])
def test_a_phi_outside_0_to_1_is_refused(phi: float) -> None:
    with pytest.raises(InvalidInput, match="expected 0 <= phi <= 1"):
        target_rank(phi, 10)


@pytest.mark.parametrize(
    "phi", [math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")]
)
def test_a_phi_that_is_not_finite_is_refused(phi: float) -> None:
    with pytest.raises(InvalidInput, match="finite"):
        target_rank(phi, 10)


@pytest.mark.parametrize("phi", [True, np.True_, "0.5", None, [0.5], np.array([0.5]), 1j])
def test_a_phi_that_is_no_number_is_refused(phi: object) -> None:
    with pytest.raises(InvalidInput, match="expected a number"):
        target_rank(phi, 10)  # type: ignore[arg-type]  # no number


def test_no_elements_have_no_quantile() -> None:
    with pytest.raises(EmptySketch, match="n = 0"):
        target_rank(0.5, 0)
