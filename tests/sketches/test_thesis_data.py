"""The thesis's tables of data against the laws that it says the data follow."""

import math

import numpy as np
import pytest

from bench.papers.hybrid import Sizes, loads, windows

ROWS = 500_000_000


def expected_distinct(rows: float, exponent: float, ids: int) -> float:
    """The expected number of different ids among `rows` draws by Zipf's law."""
    chances = np.arange(1, ids + 1, dtype=np.float64) ** -exponent
    return float(-np.expm1(-rows * chances / chances.sum()).sum())


def test_zipf_1_3_and_uniform_data_of_chapter_2_are_as_stated() -> None:
    """2.8 million distinct and 2.3 million in 45 of 60 minutes; 100 million and 97 million. All to 4 %."""
    assert expected_distinct(ROWS, 1.3, 5_000_000) == pytest.approx(2.8e6, rel=0.04)
    assert expected_distinct(0.75 * ROWS, 1.3, 5_000_000) == pytest.approx(2.3e6, rel=0.04)
    assert -1e8 * math.expm1(-5) == pytest.approx(1e8, rel=0.01)
    assert -1e8 * math.expm1(-3.75) == pytest.approx(9.7e7, rel=0.01)


def test_a_window_has_no_more_bigrams_than_the_stream() -> None:
    """4.31 and 35 million cannot be; of 43.1 million, 35 in 45 of 60 minutes are what any law may give."""
    for exponent in (0.5, 1.0, 1.5):
        stream, window = (expected_distinct(181e6 * share, exponent, 5_000_000) for share in (1, 0.75))
        assert 0.75 <= window / stream <= 1
    assert 0.75 <= 35 / 43.1 <= 1 < 35 / 4.31


def test_over_the_rows_no_answer_at_all_errs_by_less_than_a_percent() -> None:
    """|d - d'| / n, with n the rows: the answer 0 would be among the best sketches of figure 2.4."""
    true = expected_distinct(0.75 * ROWS, 1.3, 5_000_000)
    assert abs(true - 0) / ROWS < 0.01
    assert abs(true - 0) / true == 1


def test_zipf_1_5_data_of_chapter_3_cannot_have_40_million_items() -> None:
    """Of 500 million rows, at most 1.4 million different items are expected, whatever the number of ids is.

    For any i, at most i of the first ids are drawn, and of the others as many as there are rows of them at
    most: i + rows * (sum of j**-1.5 for j > i) / (sum of j**-1.5), where the first sum is below 2 / sqrt(i).
    The second sum is at least that of a thousand ids, because 40 million items need more.
    """
    least_sum = float((np.arange(1, 1001) ** -1.5).sum())
    bound = min(i + ROWS * 2 / math.sqrt(i) / least_sum for i in range(100_000, 2_000_000, 10_000))
    assert bound < 1.4e6
    assert expected_distinct(ROWS, 1.5, 5_000_000) == pytest.approx(0.72e6, rel=0.01)


def test_the_numbers_of_chapter_4_are_those_of_merging_the_oldest_runs() -> None:
    """And not of whole levels, as printed: 100 steps of 100 blocks, where the thesis has 5,000."""
    sizes, found = Sizes(), {}
    for kappa in (3, 9, 10):
        for oldest in (True, False):
            rule = loads(kappa, sizes, oldest=oldest)
            plain = sum(cost == sizes.blocks for cost in rule.accesses)
            found[kappa, oldest] = (50 * sum(rule.accesses) / 100, plain, windows(rule.runs, sizes.steps))
    assert found[9, True][:2] == (23_000, 89)
    assert found[10, True][:2] == (14_000, 91)
    assert found[9, False][:2] != (23_000, 89)
    assert found[10, False][0] != 14_000
    assert found[3, True][2] == [1, 4, 7, 10, 19, 46, 73, 100]  # 45 and 72 are printed
    assert found[10, True][2] == [*range(1, 11), *range(20, 101, 10)]  # kappa = 5 is printed
    assert windows(loads(5, sizes, oldest=True).runs, sizes.steps) != found[10, True][2]
