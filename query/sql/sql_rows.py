"""Answers as SQL rows: the columns of each function, and the rows of a call.

A row has the answer's own columns, then its scope: n, m, nulls, eps, mode, window and as_of. `window` is
(start, end), the end exclusive, NULL for all rows. `as_of` has the versions of the tables that were read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from tidemark.query.answers.common import Scope
from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer, KeyScope
from tidemark.query.answers.measure_answers import Answer, Bin, CdfAnswer, MeasureScope, RankAnswer
from tidemark.query.quantiles.questions import is_sequence
from tidemark.query.reader import Reader
from tidemark.query.sql.calls import SIGNATURES, resolve_arguments
from tidemark.query.sql.sql_types import common_type, converter
from tidemark.warehouse.columns.column_types import sql_name
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import EmptyWindow, InputError
from tidemark.warehouse.settings.options import Options

SUMMARY = (0.5, 0.9, 0.95, 0.99, 0.999)
CDF_POINTS = 100
_AS_OF = "struct<runs: bigint, steps: bigint, ledger: bigint>"
_ANSWERS: dict[str, type[Scope] | type[Bin]] = {
    "quantile": Answer,
    "summary": Answer,
    "rank": RankAnswer,
    "cdf": CdfAnswer,
    "histogram": Bin,
    "frequency": FrequencyAnswer,
    "heavy_hitters": HitterAnswer,
    "top": HitterAnswer,
    "key_range": CountAnswer,
    "self_join": CountAnswer,
}
_SQL_TYPES = {"int": "bigint", "float": "double", "str": "string", "bool": "boolean"}  # by Python's type


def of_measure(name: str) -> bool:
    """Whether the function, or the view `summary`, is about a measure and not about the key."""
    return name == "summary" or SIGNATURES[name].of_measure


def columns(name: str, options: Options, measure: str | None = None) -> list[tuple[str, str]]:
    """The (name, SQL type) of each column of a function.

    measure: types for this measure; None for types that all measures widen to.
    """
    if of_measure(name):
        kinds = [column.type for column in options.measures if measure in (None, column.name)]
        value = common_type(kinds)
    else:
        key = options.key_column
        value = sql_name(key.type) if key else "string"
    edge = "bigint" if options.tick_us is None else "timestamp"
    scope: type[Scope] = MeasureScope if of_measure(name) else KeyScope
    own_types = {**_SQL_TYPES, "Any": value}  # fields of any type hold values of the measure or key
    own = [(column, own_types[_python_type(_ANSWERS[name], column)]) for column in _ANSWERS[name].COLUMNS]
    facts = [(fact, _SQL_TYPES[_python_type(scope, fact)]) for fact in (*scope.fact_names(), scope.SUBJECT)]
    return [*own, *facts, ("window", f"struct<`start`: {edge}, `end`: {edge}>"), ("as_of", _AS_OF)]


def _python_type(kind: type[Any], name: str) -> str:
    """The type of a field, or of a property, as it is written in the class."""
    found: dict[str, str] = {field.name: str(field.type) for field in fields(kind)}
    return found.get(name) or str(getattr(kind, name).fget.__annotations__["return"])


def rows(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a call, with the columns and types of `columns`.

    measure: the measure of a function such as NAME_delay_quantile, which accepts no other; None for the
        others.
    args, named: the arguments by position and by name, see calls.py.
    """
    options = wh.options
    names_and_kinds = columns(name, options, measure)
    converters = [converter(kind) for _, kind in names_and_kinds]
    for answer, scope in _answers(wh, name, measure, args, named):
        values = [
            getattr(answer if hasattr(answer, column) else scope, column)
            for column, _ in names_and_kinds[:-1]
        ]
        yield (
            *(convert(value) for convert, value in zip(converters, values, strict=False)),
            tuple(scope.as_of[table] for table in ("runs", "steps", "ledger")),
        )


def _answers(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Each answer with the object that has its scope: the answer itself, or the histogram of a bin."""
    if name == "summary":
        yield from _summary(wh)
        return
    measures = [column.name for column in wh.measures]
    given = resolve_arguments(name, measures if measure is None else [], args, named)
    if given is None:
        return
    if measure is not None and given.setdefault("measure", measure) != measure:
        raise InputError(
            f"this function is about {measure!r}, got measure = {given['measure']!r}. Leave the measure out."
        )
    subjects = [given.pop(subject, None) for subject in SIGNATURES[name].subjects]
    if name == "histogram":
        bins = [_to_measure_type(wh, given, subject) for subject in subjects if subject is not None]
        histogram = wh.histogram(*bins, **given)
        yield from ((bin_, histogram) for bin_ in histogram)
        return
    if name in {"frequency", "key_range"}:
        subjects = [_to_column_type(wh.options.key_column, subject) for subject in subjects]
    answers = _call(wh, name, subjects, given)
    yield from ((answer, answer) for answer in _as_list(answers))


def _summary(wh: Reader) -> Iterator[tuple[Any, Any]]:
    for measure in wh.measures:
        try:
            answers = wh.quantile(SUMMARY, measure.name)
        except EmptyWindow:
            continue  # a table without rows has a summary without rows
        yield from ((answer, answer) for answer in answers)


def _call(wh: Reader, name: str, subjects: list[Any], given: dict[str, Any]) -> Any:
    """The answer or answers of the Reader's method of that name."""
    if name in {"rank", "cdf"}:
        points = subjects[0] if subjects[0] is not None else _spread_points(wh, given)
        return getattr(wh, name)(_to_measure_type(wh, given, points), **given)
    if name == "top":
        return wh.top(*[_to_int(k) for k in subjects if k is not None], **given)
    if name == "frequency":
        return [_with_stored_key(wh, answer) for answer in _as_list(wh.frequency(*subjects, **given))]
    return getattr(wh, name)(*subjects, **given)


def _as_list(answers: Any) -> list[Any]:
    return list(answers) if is_sequence(answers) else [answers]


def _with_stored_key(wh: Reader, answer: FrequencyAnswer) -> FrequencyAnswer:
    """The answer with the key converted to the column's type; None for a key that no row can have."""
    key = wh.options.key_column
    name = key.name_of(answer.value) if key else None
    return replace(answer, value=None if key is None or name is None else key.value_of(name))


def _spread_points(wh: Reader, given: dict[str, Any]) -> list[Any]:
    """The values of CDF_POINTS + 1 evenly spaced quantiles, ascending and unique, without NaN."""
    phis = [Decimal(i) / CDF_POINTS for i in range(CDF_POINTS + 1)]
    values = [answer.value for answer in wh.quantile(phis, **given)]
    return sorted({value for value in values if not (isinstance(value, float) and math.isnan(value))})


def _to_measure_type(wh: Reader, given: Mapping[str, Any], points: Any) -> Any:
    """Points converted to the type of the measure."""
    return _to_column_type(wh.options.measure(given.get("measure")), points)


def _to_column_type(column: Measure | Key | None, value: Any) -> Any:
    """A decimal as a float if the column is a double: the SQL literal 0.1 is a decimal. Else unchanged."""
    if is_sequence(value):
        return [_to_column_type(column, item) for item in value]
    return float(value) if column is not None and column.is_double and isinstance(value, Decimal) else value


def _to_int(k: Any) -> Any:
    return int(k) if isinstance(k, Decimal) and k == int(k) else k
