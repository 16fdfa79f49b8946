"""Asks the question of a comparison, and tells for each group whether the comparison holds.

A value lies certainly from `low` to `high`. With the threshold t and the operator >, the comparison
*certainly* holds if low > t, does not hold if high <= t, and *possibly* holds otherwise. NaN is greater than
every number, as in the ranks of a measure.

A question is first asked in the mode that reads least. It is asked again in the next mode if the comparison
*possibly* holds for a group (of_warehouse.py decides); the last mode is exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal

from tidemark.query.alerts.condition import Comparison
from tidemark.query.answers.measure_answers import Answers
from tidemark.query.reader import Reader
from tidemark.query.reading.modes import KEY_MODES, MODES
from tidemark.query.sql.named_call import as_list, ask
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.moments import exact_us
from tidemark.warehouse.errors import EmptyWindow, InputError, shortened

_OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
ALL = ""  # the name of the group of a question without groups


class Verdict(IntEnum):
    """Whether a comparison holds."""

    CLEAR = 0
    POSSIBLE = 1
    CERTAIN = 2


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says about one group.

    low, value, high: the value, and its certain bounds; None if there is none. Shares and burn rates are
        fractions.
    rows: the rows that the answer is about.
    group: the values of the columns of `by` and `where`; None without.
    window: the answer's window; None for all rows, and where there are no rows.
    now: which of `low` and `high` are certain at present. While a warehouse does not answer, its rows may
        have changed: then only the lower bound of a key's rows is certain, which the others give.
    """

    low: Any = None
    value: Any = None
    high: Any = None
    rows: int = 0
    group: Mapping[str, Any] | None = None
    window: tuple[Any, Any] | None = None
    now: Literal["both", "low", "none"] = "both"


@dataclass(frozen=True, slots=True)
class Limit:
    """A comparison's operator with a number: the threshold, or the clear level (levels.py).

    given: the number as it was given, which may be the text of a time; it does not count in comparisons.
    """

    operator: str
    number: Fraction | float
    given: Any = field(default=None, compare=False)

    def verdict(self, reading: Reading) -> Verdict:
        """Whether the comparison holds for the value of the reading; CLEAR for a reading without rows."""
        if reading.low is None:
            return Verdict.CLEAR
        low, high = _comparable(reading.low), _comparable(reading.high)
        upwards = self.operator in (">", ">=")
        near, far = (low, high) if upwards else (high, low)
        is_now = reading.now == "both" or (reading.now == "low" and upwards)
        holds = _OPERATORS[self.operator]
        if is_now and holds(near, self.number):
            return Verdict.CERTAIN
        return Verdict.POSSIBLE if holds(far, self.number) else Verdict.CLEAR


def number_of(value: Any) -> Fraction:
    """A threshold as a number; a time is microseconds since 1970. InputError for what is neither."""
    if isinstance(value, str | date):
        return exact_us(value)
    is_number = isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        raise InputError(f"a threshold must be a finite number or a time, got {shortened(value)}.")
    return Fraction(value)


def _comparable(value: Any) -> Fraction | float:
    if isinstance(value, float):
        return math.inf if math.isnan(value) else value if math.isinf(value) else Fraction(value)
    if isinstance(value, Decimal) and not value.is_finite():
        return math.inf if value.is_nan() else float(value)
    return exact_us(value) if isinstance(value, date) else Fraction(value)


def readings(wh: Reader, asked: Comparison, end: datetime | None) -> Iterator[dict[str, Reading]]:
    """The readings of all groups by their names, in one mode after the other; the last ones are the sharpest.

    end: the moment from which `last` counts back, exclusive; None if `last` is a number of steps.

    InputError for a question that the warehouse does not answer.
    """
    given = dict(asked.given)
    if end is not None and "last" in given and "as_of" not in given:
        given["as_of"] = end
    for mode in modes_of(asked):
        yield _asked(wh, asked, {**given, "mode": mode})


def modes_of(asked: Comparison) -> Sequence[str]:
    """The modes in which a question is asked, the one that reads least first."""
    modes = KEY_MODES if asked.question in ("frequency", "distinct", "self_join") else MODES
    if asked.question == "summary" or "mode" in asked.given:
        return (asked.given.get("mode", modes[-1]),)
    return modes


def _asked(wh: Reader, asked: Comparison, given: dict[str, Any]) -> dict[str, Reading]:
    try:
        answers = ask(wh, asked.question, given)
    except EmptyWindow:
        return {}
    found = {}
    for answer in as_list(answers) if isinstance(answers, Answers) else [answers]:
        reading = _reading(asked, answer)
        found[ALL if reading.group is None else json_text(reading.group)] = reading
    return found


def _reading(asked: Comparison, answer: Any) -> Reading:
    group = answer.group if asked.given.get("by") else None
    is_silent = answer.sites is not None and answer.sites.has_silent
    scope = Reading(rows=answer.N, group=group, window=answer.window, now="none" if is_silent else "both")
    if asked.field in ("share", "burn"):
        return _share(asked, answer, scope)
    if asked.field is not None:
        value = getattr(answer, asked.field)
        return replace(scope, low=value, value=value, high=value)
    low, value, high = (getattr(answer, name) for name in answer.INTERVAL)
    if asked.question == "frequency":
        low = answer.lo if answer.mode == "exact" and not is_silent else answer.in_history
        scope = replace(scope, now="low" if is_silent else "both")
    elif asked.question == "distinct":
        low, high = answer.least, answer.most
    elif asked.question == "self_join" and answer.mode != "exact":
        low, high = 0, math.inf
    return replace(scope, low=low, value=value, high=high)


def _share(asked: Comparison, answer: Any, scope: Reading) -> Reading:
    """The share of the rows that are at most the value, or the burn rate, without rounding. No rows: none."""
    if not answer.N:
        return scope
    low, value, high = shares(asked, (answer.rank_lo, answer.rank, answer.rank_hi), answer.N)
    return replace(scope, low=low, value=value, high=high)


def shares(asked: Comparison, ranks: Sequence[int], rows: int) -> list[Fraction]:
    """The shares of the rows up to ranks, or the burn rates there, ascending; the ranks ascend."""
    found = [Fraction(rank, rows) for rank in ranks]
    if asked.objective is None:
        return found
    allowed = 1 - Fraction(asked.objective)
    return [(1 - share) / allowed for share in reversed(found)]
