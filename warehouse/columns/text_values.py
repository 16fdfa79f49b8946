"""Text as values of columns, for callers that have only text: the command line, and maps of SQL.

Text is parsed as SQL engines cast it to the column's type: numbers, ISO dates and times, true and false,
hexadecimal digits for binary columns. Text that does not parse raises InputError. A number that no row can
have, such as 1.5 for an integer column, is no error: it equals no row.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.errors import InputError, shortened

_BOUND_LENGTH = 32  # characters of a bound, as Delta cuts them
_LAST = "\U0010ffff"  # the greatest character
_WHOLE_DIGITS = 19  # of a number of steps or rows: of the greatest that tables hold
_DIGITS = 40  # digits of a whole number that some type holds; 1e999999999 has a billion

BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}


def parse_key(key: Key, text: str) -> Any:
    """The text as a value of the key's type; InputError if it does not parse.

    The values of a key of several columns are separated by commas; one with a comma is quoted: ``"a,b",1``.
    """
    if len(key.parts) > 1:
        parts = next(csv.reader([text]), [])
        if len(parts) != len(key.parts):
            raise InputError(
                f"not a value of the key {key.name}: {shortened(text)}. Expected {len(key.parts)} values, "
                "separated by commas."
            )
        return tuple(parse_key(part, own) for part, own in zip(key.parts, parts, strict=True))
    if key.type == "string" or key.column_type.is_token:
        return text
    if key.type == "binary":
        return _binary(key, text)
    if key.type == "boolean":
        return _boolean(key, text)
    if not key.column_type.is_number:
        name = key.name_of(text)
        return text if name is None else key.value_of(name)
    number = parse_number(key, text)
    return _as_float32(number) if key.type == "float" else number


def parse_number(column: Measure | Key, text: str) -> Any:
    """The text as a number of the column's type: float, int or Decimal; InputError if it does not parse.

    For a double column the text becomes a double: the decimal 0.1 is less than the double that is stored.
    """
    try:
        if column.is_double:
            return float(text)
        exact = Decimal(text)
        whole = exact.is_finite() and exact.adjusted() < _DIGITS and exact == int(exact)
        return int(exact) if whole else exact
    except (ValueError, InvalidOperation):
        raise InputError(
            f"not a number: {shortened(text)}. {column.name!r} is of type {column.type}: give numbers such "
            "as 60."
        ) from None


def is_whole(text: str) -> bool:
    """Whether the text is a number of steps or rows; a number of more digits than any of these stays text."""
    return text.isdecimal() and len(text) <= _WHOLE_DIGITS


def parse_columns(text: str | Sequence[str]) -> list[str]:
    """The names of columns in text such as "origin" or "origin,dest"; a list of names stays as it is.

    Commas inside parentheses separate the arguments of a function, not names.
    """
    if not isinstance(text, str):
        return list(text)
    depth, names = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            names.append("")
        else:
            names[-1] += character
    return [name.strip() for name in names]


def _binary(key: Key, text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InputError(
            f"not hexadecimal: {shortened(text)}. {key.name!r} is of type binary: give two digits per byte."
        ) from None


def _boolean(key: Key, text: str) -> bool:
    value = BOOLEANS.get(text.strip().lower())
    if value is None:
        raise InputError(
            f"not a boolean: {shortened(text)}. {key.name!r} is of type boolean: give true or false."
        )
    return value


def _as_float32(number: float) -> float:
    """The number rounded to 32 bits, as it is stored: the double 0.1 differs from the float 0.1.

    A number beyond the range of 32 bits stays as it is.
    """
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    return number if math.isinf(rounded) else rounded


def text_bounds(low: str, high: str) -> tuple[str, str | None]:
    """A short text that is <= `low`, and a short text that is >= `high`, or None if none was found.

    The upper bound of "abc...z" (more than 32 characters) is its first 32 characters and the greatest
    character after them. No bound is found if the first 128 characters are all the greatest one. Spark and
    DuckDB read a file without a bound for every query; a filter of delta-rs loses its rows.
    """
    cut = _BOUND_LENGTH
    while high[cut : cut + 1] == _LAST and cut < 4 * _BOUND_LENGTH:  # a cut here might be below `high`
        cut += 1
    bound = high if len(high) <= cut else high[:cut] + _LAST
    return low[:_BOUND_LENGTH], bound if bound >= high else None


def after_prefix(prefix: bytes) -> bytes | None:
    """The least text that is greater than all with the prefix; None if there is none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
