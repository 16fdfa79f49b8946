"""The interval of a number of trials is Clopper and Pearson's, and holds as often as it says."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import comb, sqrt
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sketches import InvalidInput
from tidemark.sketches.sampling import trials, trials_interval
from tidemark.sketches.sampling.trials import MANY

P = TypeVar("P", Fraction, Decimal)


def at_most(successes: int, count: int, probability: P) -> P:
    """The probability of at most so many successes in `count` trials, in exact sums (or 28 digits)."""
    failure = 1 - probability
    terms = [
        comb(count, i) * probability**i * failure ** (count - i) for i in range(min(successes, count) + 1)
    ]
    return sum(terms, probability * 0)


def exact_interval(successes: int, probability: Fraction, confidence: Fraction) -> tuple[int, int]:
    """The least and the greatest number of trials that the definition leaves in, by exact sums."""
    tail = (1 - confidence) / 2
    low = successes
    while successes and 1 - at_most(successes - 1, low, probability) < tail:  # as many are too rare
        low += 1
    high = successes
    while at_most(successes, high + 1, probability) > tail:  # so few are not too rare yet
        high += 1
    return low, high


CONFIDENCES = [Fraction(1, 2), Fraction(9, 10), Fraction(99, 100), Fraction(999, 1000)]


@given(st.integers(0, 12), st.integers(1, 15), st.sampled_from(CONFIDENCES))
def test_few_successes_give_the_interval_of_exact_sums(
    successes: int, sixteenths: int, confidence: Fraction
) -> None:
    check_few_successes(successes, sixteenths, confidence)


def check_few_successes(successes: int, sixteenths: int, confidence: Fraction) -> None:
    probability = Fraction(sixteenths, 16)
    low, high = trials_interval(successes, float(probability), float(confidence))
    assert (low, high) == exact_interval(successes, probability, confidence)


@pytest.mark.slow
@pytest.mark.parametrize("successes", [MANY - 1, MANY, MANY + 1, 90])
@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(1, 8), Fraction(7, 8)])
def test_many_successes_come_close_to_exact_sums(successes: int, probability: Fraction) -> None:
    confidence = Fraction(99, 100)
    low, high = trials_interval(successes, float(probability), float(confidence))
    exact_low, exact_high = exact_interval(successes, probability, confidence)
    deviation = sqrt(successes * (1 - probability)) / probability
    assert abs(low - exact_low) <= 1 + 0.01 * deviation
    assert abs(high - exact_high) <= 1 + 0.01 * deviation


@pytest.mark.parametrize("successes", [40, 200, 5000])
@pytest.mark.parametrize("failures", [1, 5, 30])
def test_few_failures_give_the_interval_of_exact_sums(successes: int, failures: int) -> None:
    """A sample that has nearly all keys: the number of trials is as skewed as with few successes.

    At least S of D trials succeed exactly if at most D - S fail, which has few terms here.
    """
    exact = successes / (successes + failures)
    low, high = trials_interval(successes, exact, 0.99)

    def enough(trials: float) -> Decimal:
        return at_most(int(trials) - successes, int(trials), 1 - Decimal(exact))

    def more(trials: float) -> Decimal:
        return at_most(int(trials) - successes - 1, int(trials), 1 - Decimal(exact))

    tail = Decimal(1) / 200
    assert low == successes or enough(low - 1) < tail
    assert enough(low) >= tail
    assert 1 - more(high) > tail >= 1 - more(high + 1)


@pytest.mark.parametrize("successes", [0, 1, 5, 39, 40, 1000, 10**6])
def test_the_interval_has_the_successes_and_grows_with_the_confidence(successes: int) -> None:
    for probability in (1e-9, 0.001, 0.3, 0.999):
        narrow, wide = (trials_interval(successes, probability, at) for at in (0.5, 0.999))
        assert successes <= wide[1]
        assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
        assert successes == 0 or wide[0] >= successes
    assert trials_interval(successes, 1.0, 0.9) == (successes, successes)


def misses_of(count: int, probability: float, confidence: float, seeds: int = 1000) -> int:
    draws = np.random.default_rng(5).binomial(count, probability, seeds)
    intervals = [trials_interval(int(draw), probability, confidence) for draw in draws]
    return sum(not low <= count <= high for low, high in intervals)


CASES = [(30, 0.5, 0.9), (1000, 0.01, 0.9), (10**4, 0.05, 0.95), (10**6, 0.001, 0.99), (50, 0.9, 0.95)]


def assert_coverage() -> None:
    for count, probability, confidence in CASES:
        share = 1 - confidence
        most = 1000 * share + 4 * sqrt(1000 * share * confidence)
        assert misses_of(count, probability, confidence) <= most, (count, probability, confidence)


def test_intervals_hold_as_often_as_they_say() -> None:
    assert_coverage()


def test_intervals_of_many_successes_are_no_wider_than_needed() -> None:
    assert misses_of(10**5, 0.1, 0.9) >= 100 - 4 * sqrt(1000 * 0.09)


@pytest.mark.parametrize(
    "name", ["half of the tail", "an expansion for few successes", "an expansion for few failures"]
)
def test_broken_variants_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = trials._trials_until
    trials_interval.cache_clear()
    with monkeypatch.context() as patch:
        if name == "half of the tail":
            patch.setattr(trials, "_trials_until", lambda s, p, share: exact(s, p, 0.5 + (share - 0.5) * 0.8))
            with pytest.raises(AssertionError):
                assert_coverage()
        else:
            patch.setattr(trials, "MANY", 0)
            check = (
                partial(check_few_successes, 2, 8, CONFIDENCES[1])
                if name == "an expansion for few successes"
                else partial(test_few_failures_give_the_interval_of_exact_sums, 5, 5000)
            )
            with pytest.raises(AssertionError):
                check()
    trials_interval.cache_clear()


@pytest.mark.parametrize(
    ("successes", "probability", "confidence"),
    [(-1, 0.5, 0.9), (1, 0, 0.9), (1, 1.1, 0.9), (1, 0.5, 1), (1, 0.5, 0)],
)
def test_what_is_no_trial_is_refused(successes: int, probability: float, confidence: float) -> None:
    with pytest.raises(InvalidInput, match="expected 0 or more successes"):
        trials_interval(successes, probability, confidence)
