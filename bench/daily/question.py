"""A question, and the rows of its answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

SLACK_MS = 5.0  # that a question may take beside what is compared
HOUR, BY_DAY = 'time_bucket(INTERVAL 1 hour, "at")', 'time_bucket(INTERVAL 1 day, "at")'


@dataclass(frozen=True, slots=True)
class Question:
    """sql: for DuckDB over the view `s`; {week} and {day} are conditions on the time.

    rows: the answer as rows of the query's columns, in any order.
    is_heavy: whether it is one of the twelve that take DuckDB longest over 30 million rows.
    """

    name: str
    ask: Callable[[Any], Any]
    rows: Callable[[Any], list[tuple[Any, ...]]]
    sql: str
    is_heavy: bool = False


def condition(start: datetime, end: datetime) -> str:
    """SQL that is true from the start, inclusive, to the end, exclusive."""
    return f"WHERE \"at\" >= '{start}' AND \"at\" < '{end}'"


def _each(answers: Any) -> list[Any]:
    return list(answers) if hasattr(answers, "__iter__") else [answers]


def quantiles(*columns: str) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of group, start of the window if it is a column, value and number of rows."""

    def scope(answer: Any) -> tuple[Any, ...]:
        group = tuple(answer.group.values()) if "group" in columns else ()
        return (*group, *(answer.window[:1] if "start" in columns else ()))

    return lambda answers: [(*scope(one), one.value, one.N) for one in _each(answers) if one.N]


def counts(*, start: bool = False) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of the start of the window, if it is a column, the key and its count."""
    return lambda answers: [
        (*(one.window[:1] if start else ()), one.value, one.count) for one in _each(answers)
    ]


def number_of(*, start: bool = False) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of the start of the window, if it is a column, and a number."""
    return lambda answers: [
        (*(one.window[:1] if start else ()), one.count) for one in _each(answers) if one.count or not start
    ]
