"""An interval of the number of trials, from the number of successes and their probability.

Model. D trials succeed independently with probability p, and S of them did. Clopper and Pearson's interval of
D has all numbers of trials that do not make S as small, or as large, as it is with a probability of at most
(1 - confidence) / 2. So it holds with at least the confidence, for every D. Its ends are quantiles of the
negative binomial distribution, since at least S of D trials succeed exactly if the S-th success is among
them:

    low   the quantile of the number of trials up to the S-th success
    high  the quantile of the number of trials up to success S + 1, less 1

Where successes * (1 - probability) is at least MANY, the quantiles are those of Cornish and Fisher's
expansion. Its error then is less than a thousandth of the standard deviation. Elsewhere the distribution is
too skewed for it: there are few successes, or few failures. Then they are found by bisection with the
continued fraction of the incomplete beta function.

Sources: Clopper and Pearson, Biometrika 1934; Cornish and Fisher 1937, and Abramowitz and Stegun 26.2.49;
Press et al., Numerical Recipes, 6.4 (Lentz's method).
"""

import math
from functools import lru_cache
from statistics import NormalDist

from tidemark.sketches.errors import InvalidInput

MANY = 40
_STEPS = 200  # of a continued fraction; a few times the smaller of successes and failures suffice


@lru_cache(2**12)
def trials_interval(successes: int, probability: float, confidence: float) -> tuple[float, float]:
    """The least and the greatest number of trials, both inclusive, with at least the confidence.

    successes: 0 or more. probability: of a success, above 0 and at most 1. confidence: between 0 and 1.

    Raises InvalidInput for other values. O(1).
    """
    if successes < 0 or not 0 < probability <= 1 or not 0 < confidence < 1:
        raise InvalidInput(
            f"got {successes} successes of probability {probability} at confidence {confidence}; expected 0 "
            "or more successes, 0 < probability <= 1 and 0 < confidence < 1"
        )
    if probability == 1:
        return successes, successes
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _trials_until(successes, probability, tail)
    return low, max(successes, _trials_until(successes + 1, probability, 1 - tail) - 1)


def _trials_until(successes: int, probability: float, share: float) -> float:
    """The quantile `share` of the number of trials up to and including a success with this number."""
    if successes * (1 - probability) >= MANY:
        return max(successes, _cornish_fisher(successes, probability, share))
    low, high = successes - 1, 2 * successes
    while _chance(high, successes, probability) < share:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _chance(middle, successes, probability) < share else (low, middle)
    return high


def _cornish_fisher(successes: int, probability: float, share: float) -> float:
    failure, z = 1 - probability, NormalDist().inv_cdf(share)
    mean, deviation = successes / probability, math.sqrt(successes * failure) / probability
    skewness = (2 - probability) / math.sqrt(successes * failure)
    excess = 6 / successes + probability**2 / (successes * failure)
    expanded = (
        z + skewness * (z**2 - 1) / 6 + excess * (z**3 - 3 * z) / 24 - skewness**2 * (2 * z**3 - 5 * z) / 36
    )
    return mean + deviation * expanded


def _chance(trials: int, successes: int, probability: float) -> float:
    """The probability of at least so many successes, 1 or more, among the trials."""
    if trials < successes:
        return 0.0
    return _incomplete_beta(successes, trials - successes + 1, probability)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(_STEPS):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d)
        c = 1 + term / c
        fraction *= c * d
        if abs(1 - c * d) < 1e-12 and step:
            break
    return math.exp(log_front) * (fraction - 1) / a
