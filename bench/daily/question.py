"""A question, and the rows of its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

SLACK_MS = 5.0  # that a question may take beside what is compared
Rows = Callable[[Any], list[tuple[Any, ...]]]
HOUR, BY_DAY = 'time_bucket(INTERVAL 1 hour, "at")', 'time_bucket(INTERVAL 1 day, "at")'


@dataclass(frozen=True, slots=True)
class Question:
    """sql: for DuckDB over the view `s`; {week} and {day} are conditions on the time.

    rows: the answer as rows of the query's columns, in any order.
    is_heavy: whether it is one of the twelve that take DuckDB longest over 30 million rows.
    """

    name: str
    ask: Callable[[Any], Any]
    rows: Rows
    sql: str
    is_heavy: bool = False


def condition(start: datetime, end: datetime) -> str:
    """SQL that is true from the start, inclusive, to the end, exclusive."""
    return f"WHERE \"at\" >= '{start}' AND \"at\" < '{end}'"


def _each(answers: Any) -> list[Any]:
    return list(answers) if hasattr(answers, "__iter__") else [answers]


def _scope(answer: Any, columns: Sequence[str]) -> tuple[Any, ...]:
    """The values of the group, and the start of the window, as far as they are columns."""
    group = tuple(answer.group.values()) if "group" in columns else ()
    return (*group, *(answer.window[:1] if "start" in columns else ()))


def quantiles(*columns: str) -> Rows:
    """Rows of group and start of the window, if they are columns, value and number of rows."""
    return lambda answers: [(*_scope(one, columns), one.value, one.N) for one in _each(answers) if one.N]


def counts(*columns: str) -> Rows:
    """Rows of group and start of the window, if they are columns, the key and its count."""
    return lambda answers: [(*_scope(one, columns), one.value, one.count) for one in _each(answers)]


def number_of(*columns: str) -> Rows:
    """Rows of group and start of the window, if they are columns, and a number."""
    return lambda answers: [
        (*_scope(one, columns), one.count) for one in _each(answers) if one.count or not columns
    ]


class Near(float):
    """A number that is equal to those that differ from it by rounding alone: other engines round each sum."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-9)

    def __ne__(self, other: object) -> bool:
        return not self == other


def summaries(answers: Any) -> list[tuple[Any, ...]]:
    """Rows of group, count, sum, mean, least, greatest and standard deviation."""
    return [
        (
            *_scope(one, ["group"]),
            one.count,
            Near(one.sum),
            Near(one.mean),
            one.min,
            one.max,
            Near(one.stddev),
        )
        for one in _each(answers)
    ]
