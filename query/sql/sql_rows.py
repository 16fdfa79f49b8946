"""Answers as rows of SQL: the columns of each function, and the rows of a call.

A row has the answer's own columns, then its scope: n, m, NULLs, the promise, mode, window and as_of. `window`
is (start, end), the end exclusive, NULL for all rows; `as_of` has the versions of the tables read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tidemark.query.answers.answer import Answer, Bin, CdfAnswer, RankAnswer
from tidemark.query.answers.key_answer import CountAnswer, FrequencyAnswer, HitterAnswer
from tidemark.query.quantiles.questions import is_sequence
from tidemark.query.reader import Reader
from tidemark.query.sql.calls import SIGNATURES, understood
from tidemark.query.sql.sql_types import common_type, converter, sql_type
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.measures import Measure
from tidemark.warehouse.errors import EmptyWindow, InputError
from tidemark.warehouse.settings.options import Options

SUMMARY = (0.5, 0.9, 0.95, 0.99, 0.999)
CDF_POINTS = 100
_AS_OF = "struct<runs: bigint, steps: bigint, ledger: bigint>"
_OWN = {
    "quantile": Answer.COLUMNS,
    "summary": Answer.COLUMNS,
    "rank": RankAnswer.COLUMNS,
    "cdf": CdfAnswer.COLUMNS,
    "histogram": Bin.COLUMNS,
    "frequency": FrequencyAnswer.COLUMNS,
    "heavy_hitters": HitterAnswer.COLUMNS,
    "top": HitterAnswer.COLUMNS,
    "key_range": CountAnswer.COLUMNS,
    "self_join": CountAnswer.COLUMNS,
}
_OF_VALUES = {"value", "low", "high", "left", "right"}
_TYPES = {
    **dict.fromkeys(("phi", "cdf", "cdf_lo", "cdf_hi", "share", "eps", "confidence"), "double"),
    **dict.fromkeys(("mode", "measure", "key"), "string"),
    "certain": "boolean",
    "as_of": _AS_OF,
}
_MEASURE_SCOPE = ("n", "m", "nans", "nulls", "eps", "mode", "measure", "window", "as_of")
_KEY_SCOPE = ("n", "m", "nulls", "eps", "confidence", "mode", "key", "window", "as_of")


def of_measure(name: str) -> bool:
    """Whether the function, or the summary, is about a measure and not about the key."""
    return name == "summary" or SIGNATURES[name].of_measure


def columns(name: str, options: Options, measure: str | None = None) -> list[tuple[str, str]]:
    """The columns of a function with their types, of one measure, or of whichever is asked for."""
    if of_measure(name):
        kinds = [one.type for one in options.measures if measure in (None, one.name)]
        value, scope = common_type(kinds), _MEASURE_SCOPE
    else:
        key = options.key_column
        value, scope = sql_type(key.type) if key else "string", _KEY_SCOPE
    edge = "bigint" if options.tick_us is None else "timestamp"
    kinds_by_name = {
        **_TYPES,
        **dict.fromkeys(_OF_VALUES, value),
        "window": f"struct<`start`: {edge}, `end`: {edge}>",
    }
    return [(one, kinds_by_name.get(one, "bigint")) for one in (*_OWN[name], *scope)]


def rows(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a call, in the types of `columns`. A function of one measure takes no other."""
    options = wh.options
    found = columns(name, options, measure)
    convert = [converter(kind) for _, kind in found]
    for answer, scope in _answers(wh, name, measure, args, named):
        values = [getattr(answer if hasattr(answer, one) else scope, one) for one, _ in found[:-1]]
        yield (
            *(make(value) for make, value in zip(convert, values, strict=False)),
            tuple(scope.as_of[role] for role in ("runs", "steps", "ledger")),
        )


def _answers(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Each answer, with what has its scope."""
    if name == "summary":
        yield from _summary(wh)
        return
    measures = [one.name for one in wh.measures]
    given = understood(name, measures if measure is None else [], args, named)
    if given is None:
        return
    if measure is not None and given.setdefault("measure", measure) != measure:
        raise InputError(f"this function is about {measure!r}, got measure = {given['measure']!r}.")
    subjects = [given.pop(one, None) for one in SIGNATURES[name].subjects]
    if name == "histogram":
        asked = wh.histogram(*[_points(wh, given, one) for one in subjects if one is not None], **given)
        yield from ((one, asked) for one in asked)
        return
    if name in {"frequency", "key_range"}:
        subjects = [_like(wh.options.key_column, one) for one in subjects]
    found = _asked(wh, name, subjects, given)
    yield from ((one, one) for one in _listed(found))


def _summary(wh: Reader) -> Iterator[tuple[Any, Any]]:
    for one in wh.measures:
        try:
            answers = wh.quantile(SUMMARY, one.name)
        except EmptyWindow:
            continue  # a table without rows has a summary without rows
        yield from ((answer, answer) for answer in answers)


def _asked(wh: Reader, name: str, subjects: list[Any], given: dict[str, Any]) -> Any:
    if name in {"rank", "cdf"}:
        points = subjects[0] if subjects[0] is not None else _all_over(wh, given)
        return getattr(wh, name)(_points(wh, given, points), **given)
    if name == "top":
        return wh.top(*[_count(one) for one in subjects if one is not None], **given)
    if name == "frequency":
        return [_as_stored(wh, one) for one in _listed(wh.frequency(*subjects, **given))]
    return getattr(wh, name)(*subjects, **given)


def _listed(found: Any) -> list[Any]:
    return list(found) if is_sequence(found) else [found]


def _as_stored(wh: Reader, answer: FrequencyAnswer) -> FrequencyAnswer:
    """The answer with the key in the column's own type; NULL stands for one that no row can have."""
    key = wh.options.key_column
    name = key.name_of(answer.value) if key else None
    return replace(answer, value=None if key is None or name is None else key.value_of(name))


def _all_over(wh: Reader, given: dict[str, Any]) -> list[Any]:
    """Points at which the whole distribution can be seen, ascending."""
    phis = [Decimal(i) / CDF_POINTS for i in range(CDF_POINTS + 1)]
    values = [one.value for one in wh.quantile(phis, **given)]
    return sorted({one for one in values if not (isinstance(one, float) and math.isnan(one))})


def _points(wh: Reader, given: Mapping[str, Any], points: Any) -> Any:
    """Points as the measure has them."""
    return _like(wh.options.measure(given.get("measure")), points)


def _like(column: Measure | Key | None, value: Any) -> Any:
    """A value as the column has it: a literal such as 0.1 is a decimal in SQL, where a double is stored."""
    if is_sequence(value):
        return [_like(column, one) for one in value]
    return float(value) if column is not None and column.is_double and isinstance(value, Decimal) else value


def _count(k: Any) -> Any:
    return int(k) if isinstance(k, Decimal) and k == int(k) else k
