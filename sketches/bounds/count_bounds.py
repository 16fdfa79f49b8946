"""Counts with certified bounds: one (`Estimate`), an array of them (`Counts`), their sum and difference.

    lo <= the true count <= hi

estimate is a float between lo and hi: where only an interval is known, its middle is the best estimate, and
the middle of 1 and 2 is not an integer.

The three similar names: `Counts` are results (arrays of counts with bounds), `Counting` (counting.py) is the
configuration of a counter, `WindowCounts` (window_counts.py) is the sketch that counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """One count: the estimate and its bounds, both inclusive. float(answer) is the estimate."""

    estimate: float
    lo: int
    hi: int

    def __float__(self) -> float:
        return self.estimate


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """An array of counts with bounds, both inclusive.

    estimate: float64. lo, hi: int64, the shape of estimate.

    len() and indexing go along the first axis; an index returns an `Estimate`.
    """

    estimate: NDArray[np.float64]
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, index: int) -> Estimate:
        return Estimate(float(self.estimate[index]), int(self.lo[index]), int(self.hi[index]))


def exact(counts: NDArray[np.int64]) -> Counts:
    """Counts that are known exactly: lo == estimate == hi."""
    return Counts(counts.astype(np.float64), counts, counts)


def add_counts(a: Counts, b: Counts) -> Counts:
    """The counts of the union of two disjoint streams; the widths of the bounds add."""
    return Counts(a.estimate + b.estimate, a.lo + b.lo, a.hi + b.hi)


def subtract_counts(whole: Counts, part: Counts) -> Counts:
    """The counts of `whole` without `part`, a subset of it; the widths of the bounds add, and lo >= 0."""
    lo, hi = np.maximum(whole.lo - part.hi, 0), np.maximum(whole.hi - part.lo, 0)
    return Counts(np.clip(whole.estimate - part.estimate, lo, hi), lo, hi)
