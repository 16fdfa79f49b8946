"""The answer about one of the greatest or least numbers of a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.answers.one_value import OneValue
from tidemark.query.answers.rendering import text_of


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Extreme(OneValue, MeasureScope):
    """One of the greatest numbers, or of the least.

    place: from 1 on; equal numbers have places of their own.
    value: of the measure's own type; it may be infinite, and is never NaN.
    """

    ONE: ClassVar = "value"
    COLUMNS: ClassVar = ("place", "value")

    place: int
    value: Any

    def __repr__(self) -> str:
        return f"{text_of(self.value)} (exact) = number {self.place:,} of {self.scope_text}"
