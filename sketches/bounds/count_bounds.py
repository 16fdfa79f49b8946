"""Answers with bounds: one count, or an array of them, and how they add and differ.

    lo <= the true count <= hi

estimate is a float between the two: where a count is known to an interval only, its middle is the best
guess, and the middle of 1 and 2 is no integer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Estimate:
    """One answer: the estimate and its bounds. float(answer) is the estimate."""

    estimate: float
    lo: int
    hi: int

    def __float__(self) -> float:
        return self.estimate


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Answers of one shape: estimate as float64, lo and hi as int64."""

    estimate: NDArray[np.float64]
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lo)

    def __getitem__(self, index: int) -> Estimate:
        return Estimate(float(self.estimate[index]), int(self.lo[index]), int(self.hi[index]))


def exact(counts: NDArray[np.int64]) -> Counts:
    """Counts that are known."""
    return Counts(counts.astype(np.float64), counts, counts)


def plus(a: Counts, b: Counts) -> Counts:
    """The counts of two disjoint streams together."""
    return Counts(a.estimate + b.estimate, a.lo + b.lo, a.hi + b.hi)


def minus(whole: Counts, part: Counts) -> Counts:
    """What is in `whole` and not in `part`, which lies inside it."""
    lo, hi = np.maximum(whole.lo - part.hi, 0), np.maximum(whole.hi - part.lo, 0)
    return Counts(np.clip(whole.estimate - part.estimate, lo, hi), lo, hi)
