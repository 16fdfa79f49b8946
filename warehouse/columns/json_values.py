r"""Values as JSON without loss, for commands, reports and answers.

    times and dates     ISO 8601 text, times with their zone
    decimals            text with every digit
    whole numbers       beyond 2**53 text, because many readers take numbers for doubles
    NaN, infinities     the texts "NaN", "Infinity" and "-Infinity": JSON has no such numbers
    bytes               hexadecimal digits
    tokens              'token:' and hexadecimal digits
    strings             text; a byte that is not UTF-8 becomes an escape such as \udc80

In Python datetime.fromisoformat, Decimal, int, float and bytes.fromhex read the texts back; `json_type` names
the type of the value that a text stands for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from tidemark.warehouse.private.tokens import Token

EXACT = 2**53  # up to it every whole number is a double
_TYPES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "double",
    Decimal: "decimal",
    Fraction: "fraction",
    str: "string",
    bytes: "binary",
    Token: "token",
    datetime: "timestamp",
    date: "date",
}
_NUMBERS = {_TYPES[kind] for kind in (int, float, Decimal, Fraction)}


def json_text(value: Any) -> str:
    """The value as one line of JSON."""
    text = json.dumps(json_value(value), allow_nan=False, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda surrogate: f"\\u{ord(surrogate[0]):04x}", text)


def json_value(value: Any) -> Any:
    """The value made of None, bool, int, float, str, list and dict only.

    Values of any other type become their text, and so do the keys of mappings.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -EXACT <= value <= EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, date):  # also a datetime
        return value.isoformat()
    if isinstance(value, bytes):
        return str(value) if isinstance(value, Token) else value.hex()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (Decimal, Fraction)):
        return [json_value(item) for item in value]
    return str(value)


def json_type(values: Iterable[Any]) -> str | None:
    """The type of the values in words, "number" for numbers of several types; None without values.

    boolean, integer, double, decimal, fraction, string, binary, timestamp, date, list; mixed for any others
    together.
    """
    kinds = set(map(type, values)) - {type(None)}
    names = {_TYPES.get(kind, "list" if issubclass(kind, (list, tuple)) else "mixed") for kind in kinds}
    if len(names) <= 1:
        return next(iter(names), None)
    return "number" if names <= _NUMBERS else "mixed"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
