"""How many rows a window has, by kind; and rows whose numbers are all in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """The numbers of rows of a window. NaN ranks after every number.

    n, m: rows of history and live rows, with NaN and without NULL.
    nans, nulls: rows of both sides that are NaN, and that are NULL.
    """

    n: int
    m: int
    nans: int
    nulls: int

    @property
    def rows(self) -> int:
        """N, the rows that have a rank."""
        return self.n + self.m

    @property
    def stored(self) -> int:
        """The rows that are numbers: N without NaN."""
        return self.rows - self.nans


NO_ROWS = RowCounts(n=0, m=0, nans=0, nulls=0)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SortedNumbers(RowCounts):
    """The rows of a window, all of them read.

    numbers: their stored values, sorted, without NaN and NULL.
    """

    numbers: NDArray[Any]
