"""What is monitored over sites, and what is promised about it.

V is the sum over all sites of their windowed Count-Min vectors, cell by cell, R(x) the smallest cell of V
that key x has, and N the sum of a row. For every query, after every arrival and tick, with its theta:

    Frequent        R(x) >= threshold * (1 - theta) for x in F, R(x) < threshold * (1 + theta) for others
    HeavyPrefixes   the same for every dyadic range of keys, at each level
    SelfJoin        value / (1 + theta) <= f <= value / (1 - theta), f the least squared norm of a row
    InnerProduct    the same, f the least inner product of the rows of the two streams
    Range           the same, f the sum of R over the dyadic ranges that cover the keys low to high, inclusive
    Maximum         the same, f the largest frequency of a key, the least R of the ranges that hold it
    Quantile        rank(keys below it) <= (phi + theta) N and rank(it and below) >= (phi - theta) N

where `value` is what the coordinator answers; `least` allows f to differ by that much in any case. window is
in the unit of the times: a row is in it from its time on for `window` units.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What all queries have: theta, 0 < theta < 1, and the window, at least 1."""

    theta: float
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequent(Query):
    """The keys with at least `threshold` arrivals at all sites together; threshold > 0."""

    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyPrefixes(Query):
    """The dyadic ranges of keys with at least `threshold` arrivals: hierarchical heavy hitters."""

    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfJoin(Query):
    """The sum of the squared frequencies. by_norms: zones as in the paper, which are smaller than ours."""

    least: float = 0.0
    by_norms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerProduct(Query):
    """The sum over keys of the product of their frequencies in the streams 0 and 1."""

    least: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Query):
    """The arrivals with keys from `low` to `high`, both inclusive."""

    low: int
    high: int
    least: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maximum(Query):
    """The largest frequency of a key."""

    least: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile(Query):
    """The phi-quantile of the keys, 0 < phi < 1; theta is a share of all arrivals."""

    phi: float
