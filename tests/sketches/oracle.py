"""Exact answers from a sorted array, and checks that hold every bound against them in both directions."""

from fractions import Fraction

import numpy as np

from tidemark.sketches import GK, RankBounds, target_rank
from tidemark.sketches.gk.gk_summary import allowance
from tidemark.sketches.inputs import ValueArray

PHIS = (0, 0.001, 0.01, 0.07, 0.25, 1 / 3, 0.5, 0.75, 0.9, 0.99, 0.999, 1)


def batches(dtype: type, rng: np.random.Generator, size: int = 3000) -> dict[str, list[ValueArray]]:
    """Named streams of batches, in the orders that sketches find hard."""
    noise = rng.normal(size=size)
    streams = {
        "one": [np.array([7.0])],
        "two": [np.array([7.0]), np.array([-7.0])],
        "all equal": [np.full(size, 3.0)] * 3,
        "duplicated extremes": [np.repeat([-1e9, 0.0, 1e9], size), np.repeat([-1e9, 1.0, 1e9], size)],
        "few values": [np.floor(noise * 2) for _ in range(4)],
        "sorted": np.array_split(np.sort(noise) * 1e6, 7),
        "reversed": np.array_split(np.sort(noise)[::-1] * 1e6, 7),
        "random": np.array_split(noise * 1e6, 5),
        "zoomed-in": [rng.random(size // 10) * 1e9 * 0.5**i for i in range(20)],
        "alternating": [(rng.random(size // 10) + i) * 1e6 * (-1) ** i for i in range(20)],
        "singles": [np.array([x]) for x in np.floor(noise[:60] * 5)],
        "uneven": [noise[:1] * 9, noise * 9, np.empty(0), noise[:17] * 9],
    }
    if dtype is np.float64:
        streams["infinities"] = [np.r_[noise, np.repeat([np.inf, -np.inf], 200)], np.r_[noise, np.inf]]
        streams["zeros of both signs"] = [np.repeat([-0.0, 0.0, -1.0], 50), np.repeat([0.0, -0.0, 1.0], 50)]
        return streams
    result = {name: [np.rint(part).astype(np.int64) for part in parts] for name, parts in streams.items()}
    result["above 2**53"] = [2**53 + rng.integers(-50, 50, size) for _ in range(3)]
    result["ends of int64"] = [np.repeat(np.array([-(2**63), 0, 2**63 - 1], np.int64), 30)] * 2
    return result


def probes(data: ValueArray) -> ValueArray:
    """Every element, its neighbours on both sides, and the ends of the dtype."""
    unique = np.unique(data)
    if data.dtype == np.float64:
        ends = np.array([-np.inf, np.inf])
        with np.errstate(over="ignore"):
            return np.concatenate([unique, np.nextafter(unique, -np.inf), np.nextafter(unique, np.inf), ends])
    limits = np.iinfo(np.int64)
    below = np.where(unique > limits.min, unique - 1, unique)
    above = np.where(unique < limits.max, unique + 1, unique)
    return np.concatenate([unique, below, above, np.array([limits.min, limits.max])])


def rank_error(data: ValueArray, answer: object, r: int) -> int:
    """max(0, r - rank_le, rank_lt + 1 - r) in sorted data; the answer must be an element."""
    column = np.array([answer], data.dtype)
    lt, le = (int(np.searchsorted(data, column, side)[0]) for side in ("left", "right"))
    assert lt < le, f"{answer!r} is no element"
    return max(0, r - le, lt + 1 - r)


def assert_staircase(bounds: RankBounds, elements: ValueArray) -> None:
    """The staircase is one, it ends at n, and its bounds hold for every x."""
    bounds.check_invariants()
    data = np.sort(elements)
    assert bounds.lo[-1] == bounds.hi[-1] == len(data)
    assert np.isin(bounds.values, data).all()
    xs = probes(data)
    le, lt = np.searchsorted(data, xs, "right"), np.searchsorted(data, xs, "left")
    for exact, (lo, hi) in ((le, bounds.rank_le(xs)), (lt, bounds.rank_lt(xs))):
        assert (lo <= exact).all(), "a lower bound is above the rank"
        assert (exact <= hi).all(), "an upper bound is below the rank"


def assert_certified(sketch: GK, elements: ValueArray) -> None:
    """Everything that a GK promises, against the elements that really went in."""
    sketch.check_invariants()
    data = np.sort(elements)
    n = len(data)
    assert sketch.n == n, "elements were lost or counted twice"
    assert sketch.dtype == data.dtype
    bounds = sketch.rank_bounds()
    assert_staircase(bounds, data)
    xs = probes(data)
    for lo, hi in (bounds.rank_le(xs), bounds.rank_lt(xs)):
        assert (hi - lo).max() <= (allowance(sketch.eps, n) - 1 if n else 0), (
            "the bounds are wider than promised"
        )
    if n == 0:
        return
    assert sketch.quantile(0) == data[0]
    assert sketch.quantile(1) == data[-1]
    for phi in PHIS:
        error = rank_error(data, sketch.quantile(phi), target_rank(phi, n))
        assert error <= Fraction(sketch.eps) * n, f"phi = {phi}: error {error}"
