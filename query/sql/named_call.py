"""A question by its name and its named arguments, as SQL and JSON give them: the method of `Reader`, called.

Text becomes values of the columns' types, and a decimal a double where the column is one: the literal 0.1 of
SQL and of JSON is a decimal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tidemark.query.answers.plan import Plan
from tidemark.query.asking.key_questions import KeyOptions
from tidemark.query.groups.where_text import typed_groups, typed_key, typed_where
from tidemark.query.reader import Reader
from tidemark.query.scans.computed import asked_measure, computed_values
from tidemark.query.sql.calls import SIGNATURES
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.columns.text_values import parse_key
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

CDF_POINTS = 100
PLANNED = ("self_join", "distinct")  # questions that can tell beforehand what they would read


def ask(wh: Reader, name: str, given: Mapping[str, Any]) -> Any:
    """The answer of the method of that name.

    name: of a row of SIGNATURES. given: its arguments, as `resolve_arguments` returns them.
    """
    named = {**given, **_typed_groups(wh.options, given)}
    subjects = [named.pop(subject, None) for subject in SIGNATURES[name].subjects]
    if name == "histogram":
        bins = [_to_measure_type(wh, named, subject) for subject in subjects if subject is not None]
        return wh.histogram(*bins, **named)
    if not SIGNATURES[name].of_measure and SIGNATURES[name].accepts_any:
        key = wh.options.key_named(named.get("key")) if wh.keys else None
        subjects = [key_values(key, subject) for subject in subjects]
    return _call(wh, name, subjects, named)


def planned(wh: Reader, name: str, given: Mapping[str, Any]) -> Plan:
    """What a question would read, without asking it: `scan_plan` for one of PLANNED.

    given: its arguments, None for those that are not given. InputError for a question that does not scan the
    keys of one whole window.
    """
    if name not in PLANNED:
        raise InputError(f"{name} has no plan beforehand; {' and '.join(PLANNED)} have.")
    window = {one: value for one, value in given.items() if value is not None}
    if other := [one for one in window if one not in KeyOptions.__annotations__]:
        raise InputError(f"a plan beforehand is of all keys of one window: leave out {other[0]}.")
    if name == "distinct" and window.get("mode") != "exact":
        raise InputError(
            "distinct reads nothing in mode approximate: a plan beforehand is of mode exact. Give mode exact."
        )
    return wh.scan_plan(**window)


def _typed_groups(options: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments `where` and `groups` with values of the columns' types, as far as they are given."""
    typed: dict[str, Any] = {}
    if isinstance(given.get("where"), Mapping):
        typed["where"] = typed_where(options, given["where"])
    if given.get("by") and given.get("groups") is not None:
        found = {name: computed_values(options, name) for name in given["by"]}
        computed = {name: str(one.type) for name, one in found.items() if one is not None}
        columns = {**dict(options.columns), **computed}
        typed["groups"] = typed_groups(columns, given["by"], given["groups"])
    return typed


def _call(wh: Reader, name: str, subjects: list[Any], given: dict[str, Any]) -> Any:
    """The answer or answers of the Reader's method of that name."""
    if name in {"rank", "cdf"}:
        points = subjects[0] if subjects[0] is not None else _spread_points(wh, given)
        return getattr(wh, name)(_to_measure_type(wh, given, points), **given)
    if name in {"top", "largest", "smallest"}:
        return getattr(wh, name)(*[_to_int(k) for k in subjects if k is not None], **given)
    if name == "overlap":
        return wh.overlap(**given)
    return getattr(wh, name)(*subjects, **given)


def key_values(key: Key | None, value: Any) -> Any:
    """A value of a key as the Python API expects it; of a key of several columns a tuple, or a list of them.

    SQL gives a struct or an array for each value, and an array of them for several values. A struct whose
    fields are the columns is taken by their names, any other one by the order of its fields.
    """
    if key is None or value is None:
        return value
    if len(key.parts) == 1:
        return [typed_key(key, item) for item in value] if is_sequence(value) else typed_key(key, value)
    if isinstance(value, str):
        return parse_key(key, value)
    if not isinstance(value, (list, tuple, Mapping)):
        return value  # the question refuses it
    if isinstance(value, Mapping):
        names = key.columns if set(value) == set(key.columns) else tuple(value)
        value = [value[name] for name in names]
    items = list(value)
    if any(isinstance(item, (list, tuple, Mapping)) for item in items):
        return [key_values(key, item) for item in items]
    return tuple(
        typed_key(part, item) for part, item in zip(key.parts, items, strict=len(items) == len(key.parts))
    )


def _spread_points(wh: Reader, given: dict[str, Any]) -> list[Any]:
    """The values of CDF_POINTS + 1 evenly spaced quantiles, ascending and unique, without NaN."""
    phis = [Decimal(i) / CDF_POINTS for i in range(CDF_POINTS + 1)]
    values = [answer.value for answer in wh.quantile(phis, **given)]
    return sorted({value for value in values if not (isinstance(value, float) and math.isnan(value))})


def _to_measure_type(wh: Reader, given: Mapping[str, Any], points: Any) -> Any:
    """Points with decimals as floats if the measure is a double: the SQL literal 0.1 is a decimal."""
    if not asked_measure(wh.options, given.get("measure")).is_double:
        return points
    if is_sequence(points):
        return [float(item) if isinstance(item, Decimal) else item for item in points]
    return float(points) if isinstance(points, Decimal) else points


def _to_int(k: Any) -> Any:
    return int(k) if isinstance(k, Decimal) and k == int(k) else k


def as_list(answers: Any) -> list[Any]:
    """The items of several values; one value in a list."""
    return list(answers) if is_sequence(answers) else [answers]
