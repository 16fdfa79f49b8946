"""Answers about the sums of a measure: count, sum, mean, extremes and variance, without error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.query.answers.all_answers import field_values
from tidemark.query.answers.measure_answers import MeasureScope, first_line
from tidemark.query.answers.one_value import Several
from tidemark.query.answers.rendering import text_table

# Any, by names that tell the types of SQL: see query/sql/sql_rows.py.
Total = Any
Mean = Any


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Summary(Several, MeasureScope):
    """A summary of rows from their sums. Fields are exact; doubles are rounded once, from the exact value.

    count: the finite numbers. NaN and infinities are counted apart: N is `count` and these together.
    sum, mean: of the finite numbers. The sum of integers and decimals has their own type, and the mean is a
        double. Times have a mean, rounded to their type, and no sum.
    min, max: the least and the greatest number, which may be infinite, in the measure's own type.
    variance, stddev: of the finite numbers as a sample, so with the divisor count - 1; None for fewer than
        two, and for times.
    negative_infinities, positive_infinities: the rows that are minus infinity, and infinity.

    Without finite numbers `sum` and `mean` are None, without numbers `min` and `max` are.
    """

    COLUMNS: ClassVar = (
        "count",
        "sum",
        "mean",
        "min",
        "max",
        "variance",
        "stddev",
        "negative_infinities",
        "positive_infinities",
    )
    TAKE: ClassVar = "summary.mean"

    count: int
    sum: Total
    mean: Mean
    min: Any
    max: Any
    variance: float | None
    stddev: float | None
    negative_infinities: int
    positive_infinities: int

    def __repr__(self) -> str:
        table = text_table(self._shown, [field_values(self, self._shown)])
        return f"{first_line(self.scope_facts)}{table}\n{self.scope_text}"

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`; infinities are shown where there are some."""
        return self._shown, [field_values(self, self._shown)], [self], self.scope_text

    @property
    def _shown(self) -> Sequence[str]:
        has_infinities = self.negative_infinities or self.positive_infinities
        return self.COLUMNS if has_infinities else self.COLUMNS[:-2]
