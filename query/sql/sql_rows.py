"""Answers as SQL rows: the columns of each function, and the rows of a call.

A row has the answer's own columns, then its scope: n, m, nulls, eps, mode, window, widened and as_of.
`window` is (start, end), the end exclusive, NULL for all rows; `widened` says how it differs from what was
asked, NULL if it does not. `as_of` has the versions of the tables that were read; of several warehouses it is
a map, of the names of the warehouses.
Functions that take where and by also have `group`, the values of their columns as text, and `rows_scanned`;
those about measures `group_certain`, too, which is `certain` of an answer with top.

Values of keys have one type for all keys, as values of measures do; a key of several columns is text, with
its values separated by commas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime
from functools import cache
from typing import Any

from tidemark.query.answers.all_answers import Scope
from tidemark.query.answers.distinct_answers import DistinctAnswer, OverlapAnswer, OverlapPart
from tidemark.query.answers.extreme_answer import Extreme
from tidemark.query.answers.key_answers import (
    CountAnswer,
    FrequencyAnswer,
    HitterAnswer,
    KeyScope,
    PrefixAnswer,
)
from tidemark.query.answers.measure_answers import Answer, Answers, Bin, CdfAnswer, MeasureScope, RankAnswer
from tidemark.query.answers.persistence_answers import PersistenceAnswer, PersistentAnswer
from tidemark.query.answers.rendering import text_of
from tidemark.query.answers.summary_answer import Summary
from tidemark.query.reader import Reader
from tidemark.query.reading.modes import check_mode
from tidemark.query.scans.computed import computed_values
from tidemark.query.sql.calls import SIGNATURES, resolve_arguments
from tidemark.query.sql.named_call import as_list, ask
from tidemark.query.sql.shown_types import (
    EXACT_IN_DOUBLE,
    NOT_GIVEN,
    Given,
    asked_key_type,
    edge_type,
    point_type,
)
from tidemark.query.sql.sql_types import common_type, converter, mean_type, total_type
from tidemark.warehouse.columns.column_types import sql_name
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.errors import EmptyWindow, InputError, shortened
from tidemark.warehouse.settings.options import Options

SUMMARY_VIEW = "summary_view"  # the name of the rows of the view `summary`
SUMMARY_PHIS = (0.5, 0.9, 0.95, 0.99, 0.999)
_ASKED_KEYS = ("frequency", "persistence")
# Functions whose rows show what was asked: the first parameter.
SHOWS_POINTS = ("rank", "cdf", "histogram", *_ASKED_KEYS)
_TABLES = ("runs", "steps", "ledger")
_AS_OF = f"struct<{', '.join(f'{table}: bigint' for table in _TABLES)}>"
_ANSWERS: dict[str, type[Scope] | type[Bin]] = {
    "quantile": Answer,
    SUMMARY_VIEW: Answer,
    "rank": RankAnswer,
    "cdf": CdfAnswer,
    "histogram": Bin,
    "largest": Extreme,
    "smallest": Extreme,
    "summary": Summary,
    "frequency": FrequencyAnswer,
    "heavy_hitters": HitterAnswer,
    "hierarchy": PrefixAnswer,
    "top": HitterAnswer,
    "key_range": CountAnswer,
    "self_join": CountAnswer,
    "distinct": DistinctAnswer,
    "new_keys": DistinctAnswer,
    "overlap": OverlapPart,
    "persistent": PersistentAnswer,
    "persistence": PersistenceAnswer,
}
_GROUP_COLUMNS = {"group": "map<string, string>", "group_certain": "boolean", "rows_scanned": "bigint"}
_SQL_TYPES = {"int": "bigint", "float": "double", "str": "string", "bool": "boolean"}  # by Python's type


def of_measure(name: str) -> bool:
    """Whether the function, or the view `summary`, is about a measure and not about the key."""
    return name == SUMMARY_VIEW or SIGNATURES[name].of_measure


def columns(
    name: str,
    options: Options,
    measure: str | None = None,
    given: Given = NOT_GIVEN,
    *,
    beyond_double: bool = False,
    several: bool = False,
) -> list[tuple[str, str]]:
    """The (name, SQL type) of each column of a function.

    measure: types for this measure; None for types that all measures widen to.
    given, beyond_double: the points or edges of the call, see shown_types.py.
    several: whether several warehouses are asked as one.
    """
    if of_measure(name):
        kinds = [column.type for column in options.measures if measure in (None, column.name)]
        value, is_common = common_type(kinds), len(set(kinds)) > 1
        if name == "histogram":
            value = edge_type(value, given, beyond_double=beyond_double, is_common=is_common)
        elif name in SHOWS_POINTS:
            value = point_type(value, given, is_common=is_common)
    else:
        kinds_of_keys = {"string" if len(key.parts) > 1 else sql_name(key.type) for key in options.keys}
        value = kinds_of_keys.pop() if len(kinds_of_keys) == 1 else "string"
        if name in _ASKED_KEYS:
            value = asked_key_type(value, given)
    edge = "bigint" if options.tick_us is None else "timestamp"
    scope: type[Scope] = MeasureScope if of_measure(name) else KeyScope
    # Fields of any type hold values of the measure or key.
    own_types = {**_SQL_TYPES, "Any": value, "Total": total_type(value), "Mean": mean_type(value)}
    own = [(column, own_types[_python_type(_ANSWERS[name], column)]) for column in _ANSWERS[name].COLUMNS]
    facts = [(fact, _SQL_TYPES[_python_type(scope, fact)]) for fact in (*scope.fact_names(), scope.SUBJECT)]
    takes_groups = name != SUMMARY_VIEW and SIGNATURES[name].selects
    groups = [
        (column, kind)
        for column, kind in (_GROUP_COLUMNS.items() if takes_groups else ())
        if of_measure(name) or column != "group_certain"
    ]
    window = ("window", f"struct<`start`: {edge}, `end`: {edge}>")
    as_of = f"map<string, {_AS_OF}>" if several else _AS_OF
    return [*own, *facts, *groups, window, ("widened", "string"), ("as_of", as_of)]


def _python_type(kind: Any, name: str) -> str:
    """The type of a field, or of a property, of a class, as it is written there."""
    written = _fields(kind).get(name) or str(getattr(kind, name).fget.__annotations__["return"])
    return written.removesuffix(" | None")


@cache
def _fields(kind: Any) -> dict[str, str]:
    """The types of a class's fields as they are written; each function of SQL asks for all of them."""
    return {field.name: str(field.type) for field in fields(kind)}


def rows_beyond_double(wh: Reader, name: str, measure: str | None = None) -> bool:
    """Whether edges of the function's bins need more than a double: integers beyond 2**53 are rows."""
    for column in wh.measures if name == "histogram" else ():
        if column.type == "long" and measure in (None, column.name):
            with suppress(EmptyWindow):
                ends = wh.quantile([0, 1], column.name, mode="quick")
                if -ends[0].low > EXACT_IN_DOUBLE or ends[1].high > EXACT_IN_DOUBLE:
                    return True
    return False


def rows(
    wh: Reader,
    name: str,
    measure: str | None,
    args: Sequence[Any],
    named: Mapping[str, Any],
    shown: Sequence[tuple[str, str]] | None = None,
) -> Iterator[tuple[Any, ...]]:
    """The rows of a call, with the columns and types of `columns`.

    measure: the measure of a function such as NAME_delay_quantile, which accepts no other; None for the
        others.
    args, named: the arguments by position and by name, see calls.py.
    shown: the columns of the call; None for those of a call without points.
    """
    names_and_kinds = columns(name, wh.options, measure) if shown is None else shown
    converters = [converter(kind) for _, kind in names_and_kinds]
    for answer, scope in _answers(wh, name, measure, args, named):
        values = [_value(answer, scope, column) for column, _ in names_and_kinds[:-1]]
        yield (
            *(convert(value) for convert, value in zip(converters, values, strict=False)),
            _versions(scope.as_of),
        )


def _versions(as_of: Mapping[str, Any]) -> Any:
    """The versions of the tables in the order of their column; of several warehouses by their names."""
    if all(table in as_of and not isinstance(as_of[table], Mapping) for table in _TABLES):
        return tuple(as_of[table] for table in _TABLES)
    return {site: _versions(of_site) for site, of_site in as_of.items()}


def check(wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raises what `rows` would refuse. It asks in the cheapest mode, and stops where a scan begins."""

    def stop(_share: float) -> None:
        raise _ScanBegins

    with suppress(_ScanBegins):
        for _ in _answers(wh.with_progress(stop), name, measure, args, named, cheapest=True):
            pass


class _ScanBegins(Exception):
    """A question by a scan reads its first rows."""


def _value(answer: Any, scope: Any, column: str) -> Any:
    """The value of a column: of the answer, or of its scope."""
    if column == "group_certain":
        return scope.certain
    if column == "group":
        group = scope.group
        return None if group is None else {name: _text(value) for name, value in group.items()}
    return getattr(answer if hasattr(answer, column) else scope, column)


def _text(value: Any) -> str:
    """A value of a group as text, without loss."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return text_of(value) if isinstance(value, (bytes, datetime)) else str(value)


def _answers(
    wh: Reader,
    name: str,
    measure: str | None,
    args: Sequence[Any],
    named: Mapping[str, Any],
    *,
    cheapest: bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Each answer with the object that has its scope: the answer itself, or the histogram of a bin.

    cheapest: in the cheapest mode, whichever is asked for.
    """
    if name == SUMMARY_VIEW:
        yield from _summary_view(wh)
        return
    measures = [column.name for column in wh.measures]
    given = resolve_arguments(name, measures if measure is None else [], args, named)
    if given is None:
        return
    if measure is not None and given.setdefault("measure", measure) != measure:
        raise InputError(
            f"this function is about {measure!r}, got measure = {shortened(given['measure'])}. Leave the "
            "measure out."
        )
    if cheapest:
        modes = SIGNATURES[name].modes
        check_mode(given.get("mode", modes[0]), modes)
        given["mode"] = modes[0]
    _check_values(wh.options, given.get("measure"))
    found = ask(wh, name, given)
    if name == "histogram":
        histograms = found if isinstance(found, Answers) else [found]
        yield from ((bin_, histogram) for histogram in histograms for bin_ in histogram)
        return
    answers: list[Any] = found.rows() if isinstance(found, OverlapAnswer) else as_list(found)
    if of_measure(name):
        yield from ((answer, answer) for answer in answers)
        return
    if name in _ASKED_KEYS:
        key = wh.options.key_named(given.get("key")) if wh.keys else None
        asked = as_list(given[SIGNATURES[name].subjects[0]])
        is_typed = not any(isinstance(item, str) for item in asked)
        answers = [_with_stored_key(key, answer, is_typed=is_typed) for answer in answers]
    is_text = dict(columns(name, wh.options)).get("value") == "string"
    for answer in answers:
        yield (replace(answer, value=_key_text(answer.value)) if is_text else answer), answer


def _check_values(options: Options, measure: Any) -> None:
    """InputError if the column of values cannot hold those that an expression computes."""
    computed = computed_values(options, measure)
    kinds = [column.type for column in options.measures]
    if computed is not None and common_type([*kinds, str(computed.type)]) != common_type(kinds):
        raise InputError(
            f"the values of {measure!r} are of type {sql_name(str(computed.type))}, and a column of "
            f"{common_type(kinds)} cannot hold them: write CAST(... AS {common_type(kinds).upper()})."
        )


def _summary_view(wh: Reader) -> Iterator[tuple[Any, Any]]:
    for measure in wh.measures:
        try:
            answers = wh.quantile(SUMMARY_PHIS, measure.name)
        except EmptyWindow:
            continue  # a table without rows has a summary without rows
        yield from ((answer, answer) for answer in answers)


def _key_text(value: Any) -> Any:
    """A value of a key in a text column; values of several columns as the command line reads them."""
    if not isinstance(value, tuple):
        return value if value is None or isinstance(value, str) else _text(value)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(map(_text, value))
    return line.getvalue()


def _with_stored_key(
    key: Key | None, answer: FrequencyAnswer | PersistenceAnswer, *, is_typed: bool
) -> FrequencyAnswer | PersistenceAnswer:
    """The answer with the key in the type of its column.

    A key that no row can have stays as it was given, see `asked_key_type`; one that was given as text has
    no type of its own, so it becomes None.
    """
    name = key.name_of(answer.value) if key else None
    if key is None or name is None:
        return answer if is_typed else replace(answer, value=None)
    return replace(answer, value=key.value_of(name))
