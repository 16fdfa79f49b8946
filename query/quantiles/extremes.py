"""The greatest and the least numbers: those of the last and of the first ranks, found like quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tidemark.query.answers.extreme_answer import Extreme
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.questions import Found, Wanted
from tidemark.query.reading.row_counts import RowCounts
from tidemark.warehouse.errors import whole_number


@dataclass(frozen=True, slots=True)
class Extremes(Wanted[Extreme]):
    """The `k` greatest numbers, greatest first, or the least ones, least first; `of` checks k."""

    is_exact: ClassVar = True

    k: int
    largest: bool

    @classmethod
    def of(cls, k: Any, *, largest: bool) -> Extremes:
        """Raises InputError unless k is a whole number of at least 1."""
        return cls(whole_number("k", k, 1), largest)

    @property
    def targets(self) -> int:
        """See `Wanted.targets`."""
        return self.k

    def ranks(self, counts: RowCounts) -> Ranks:
        """The last ranks of numbers, or the first; fewer than k if there are fewer numbers."""
        stored = counts.stored
        first = max(0, stored - self.k) if self.largest else 0
        return np.arange(first + 1, min(stored, first + self.k) + 1)

    def answers(self, found: Found) -> list[Extreme]:
        """An answer for each number; none without numbers."""
        if found.values is None:
            return []
        numbers, decode = found.values.values.tolist(), found.measure.decode
        if self.largest:
            numbers.reverse()
        return [
            Extreme(place=place, value=decode(number), **found.scope)
            for place, number in enumerate(numbers, 1)
        ]
