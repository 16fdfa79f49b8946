"""JSON values as values of a column, strictly: the package's docstring lists what each type accepts.

A number with a fraction or an exponent comes as `Real`, its original text. Numbers and texts go through the
conversion of text (values.py), so 0.1 in JSON and 0.1 in CSV are the same value of each type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.column_types import NOT_FINITE_PATTERN
from tidemark.warehouse.columns.ticks import FIRST_US, LAST_US
from tidemark.warehouse.text.values import Converted, halved, parse_texts, without

SECOND_US = 10**6
_NOT_FINITE = re.compile(NOT_FINITE_PATTERN)


class Real(str):
    """A JSON number with a fraction or an exponent, as it was written."""

    __slots__ = ()


class _NotOfType(Exception):
    """A JSON value that the column's type does not accept."""


def written(value: Any) -> str:
    """A JSON value as compact JSON text, with its numbers as they were written."""
    if type(value) is Real:
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(name)}:{written(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def parse_values(values: list[Any], kind: pa.DataType) -> Converted:
    """JSON values as values of the type; None is NULL."""
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _lists(values, kind)
    types = set(map(type, values)) - {type(None)}
    if pa.types.is_boolean(kind):
        return _of_python(values, types, bool, kind)
    if pa.types.is_integer(kind):
        return _of_python(values, types, int, kind)
    texts, refused = _as_texts(values, types, _text_form(kind))
    array = pa.array(texts, pa.string())
    if pa.types.is_binary(kind):
        parsed, others = halved(array, kind)
    else:
        parsed, others = parse_texts(array, kind)
    if pa.types.is_timestamp(kind) and int in types:
        seconds = [value * SECOND_US if type(value) is int and _in_range(value) else None for value in values]
        parsed = pc.coalesce(parsed, pa.array(seconds, pa.int64()).cast(kind))
    return parsed, sorted({*refused, *others})


def _of_python(values: list[Any], types: set[type], only: type, kind: pa.DataType) -> Converted:
    """Values of one class, which Arrow converts; a bool is no int."""
    refused = []
    if not types <= {only}:
        refused = [row for row, value in enumerate(values) if value is not None and type(value) is not only]
        values = [value if type(value) is only else None for value in values]
    try:
        return pa.array(values, kind), refused
    except (pa.ArrowInvalid, OverflowError):
        width = kind.bit_width - 1
        fits = [value is None or -(2**width) <= value < 2**width for value in values]
        refused += [row for row, good in enumerate(fits) if not good]
        values = [value if good else None for value, good in zip(values, fits, strict=True)]
        return pa.array(values, kind), sorted(refused)


def _as_texts(
    values: list[Any], types: set[type], form: Callable[[Any], str | None]
) -> tuple[list[str | None], list[int]]:
    """The values as texts of the type, and the rows whose values are not of it."""
    if types <= {str} and form is not _float_text:
        return values, []
    texts: list[str | None] = []
    refused = []
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None else form(value))
        except (_NotOfType, RecursionError):
            refused.append(row)
            texts.append(None)
    return texts, refused


def _text_form(kind: pa.DataType) -> Callable[[Any], str | None]:
    """The function that writes a JSON value as text of the type; it raises _NotOfType."""
    if pa.types.is_floating(kind):
        return _float_text
    if pa.types.is_decimal(kind):
        return _decimal_text
    if pa.types.is_timestamp(kind):
        return _time_text
    return _any_text if pa.types.is_string(kind) else _only_text


def _float_text(value: Any) -> str:
    if type(value) is Real or (type(value) is str and _NOT_FINITE.fullmatch(value)):
        return value
    if type(value) is int:
        return str(value)
    raise _NotOfType


def _decimal_text(value: Any) -> str:
    return _float_text(value) if type(value) is not str else value


def _time_text(value: Any) -> str | None:
    return None if type(value) is int and _in_range(value) else _only_text(value)


def _only_text(value: Any) -> str:
    if type(value) is not str:
        raise _NotOfType
    return value


def _any_text(value: Any) -> str:
    return value if type(value) is str else written(value)


def _in_range(seconds: int) -> bool:
    return FIRST_US <= seconds * SECOND_US <= LAST_US


def _structs(values: list[Any], kind: pa.StructType) -> Converted:
    values, refused = _containers(values, dict)
    children = []
    for child in kind:
        items = [None if value is None else value.get(child.name) for value in values]
        array, rows = parse_values(items, child.type)
        children.append(array)
        refused += rows
    null = pa.array([value is None for value in values])
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=null), sorted(set(refused))


def _lists(values: list[Any], kind: pa.DataType) -> Converted:
    """Lists and maps; a list with a refused item is refused."""
    is_map = pa.types.is_map(kind)
    values, refused = _containers(values, dict if is_map else list)
    counts = np.array([len(value or ()) for value in values], dtype=np.int64)
    parents = np.repeat(np.arange(len(values)), counts)
    flat = chain.from_iterable((value.values() if is_map else value) for value in values if value)
    items, bad_items = parse_values(list(flat), kind.item_type if is_map else kind.value_type)
    offsets = _offsets(values, counts)
    if is_map:
        names = pa.array([name for value in values for name in value or ()], pa.string())
        keys, bad_keys = parse_texts(names, kind.key_type)
        bad_items += bad_keys
        refused += parents[bad_items].tolist()
        if bad_keys:  # a key cannot be NULL: leave these out
            left = [None if row in set(refused) else value for row, value in enumerate(values)]
            return _lists(left, kind)[0], sorted(set(refused))
        array = pa.MapArray.from_arrays(offsets, keys, items)
    else:
        refused += parents[bad_items].tolist()
        array = pa.ListArray.from_arrays(offsets, items)
    refused = sorted(set(refused))
    return without(array.cast(kind), refused), refused


def _containers(values: list[Any], only: type) -> tuple[list[Any], list[int]]:
    """The values, with None for each value of another class, and the rows of these values."""
    refused = [row for row, value in enumerate(values) if value is not None and type(value) is not only]
    return (
        ([value if type(value) is only else None for value in values], refused) if refused else (values, [])
    )


def _offsets(values: list[Any], counts: NDArray[np.int64]) -> pa.Array:
    """The offsets of a list array, one more than there are values; NULL for a value that is None.

    [[1, 2], None, [3]] has the offsets 0, NULL, 2, 3.
    """
    mask = np.array([value is None for value in values] + [False])
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32(), mask=mask)
