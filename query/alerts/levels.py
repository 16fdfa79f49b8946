"""The thresholds of an alert's conditions, and the levels at which the conditions are clear again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from tidemark.query.alerts.condition import Comparison, parse_condition
from tidemark.query.alerts.reading import Limit, number_of
from tidemark.warehouse.errors import InputError, shortened

Limits = tuple[Limit, Limit]
"""The threshold of a comparison, and its clear level."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparisons that hold together, with the limits of each."""

    text: str
    parts: tuple[Comparison, ...]
    limits: tuple[Limits, ...]

    @property
    def has_groups(self) -> bool:
        """Whether its states are those of groups."""
        return any(one.given.get("by") for one in self.parts)

    @property
    def lasting(self) -> int:
        """The microseconds for which it has to hold."""
        return max(one.lasting for one in self.parts)

    @property
    def window(self) -> int | None:
        """The microseconds of the longest `last`; None without one."""
        return max((one.window for one in self.parts if one.window is not None), default=None)


def conditions_of(
    when: Iterable[str], theta: float, clear: Any, measures: Sequence[str] = ()
) -> dict[str, Condition]:
    """The conditions by their texts; parameters as of `tidemark.query.alert` and `parse_condition`."""
    texts = list(when)
    if not texts or len(set(texts)) < len(texts):
        raise InputError(f"an alert needs conditions, each once, got {shortened(texts)}.")
    parsed = {text: parse_condition(text, measures) for text in texts}
    return {text: Condition(text, parts, _limits(parts, theta, clear)) for text, parts in parsed.items()}


def _limits(parts: Sequence[Comparison], theta: float, clear: Any) -> tuple[Limits, ...]:
    if not 0 <= theta < 1:
        raise InputError(f"theta must be a share from 0 to below 1, got {shortened(theta)}.")
    if clear is not None and len(parts) > 1:
        raise InputError("clear is the level of a condition with one comparison. Use theta here.")
    found = []
    for one in parts:
        number, level = number_of(one.threshold), clear
        upwards = one.operator in (">", ">=")
        if clear is not None:
            if number_of(level) > number if upwards else number_of(level) < number:
                raise InputError(
                    f"clear must be a level on the other side of the threshold, got {shortened(clear)} for "
                    f"{one.text}."
                )
        elif theta and (not number or isinstance(one.threshold, str | date)):
            raise InputError(
                f"theta is a share of the threshold, and there is no such share for {one.text}. Give clear "
                "instead: the level at which the alert ends."
            )
        else:
            step = Fraction(str(theta)) * abs(number)  # 0.1 is a tenth
            level = one.threshold if not theta else number - step if upwards else number + step
        limits = Limit(one.operator, number, one.threshold), Limit(one.operator, number_of(level), level)
        found.append(limits)
    return tuple(found)
