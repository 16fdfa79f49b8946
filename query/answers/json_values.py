r"""JSON values of answers, without loss of information.

    times and dates     ISO 8601 text, times with their zone
    decimals            text with all digits
    NaN, infinities     the texts "NaN", "Infinity" and "-Infinity", because JSON has no such numbers
    bytes               hexadecimal digits; a byte of a text that is not UTF-8 is an escape such as \udc80

Python reads each back with datetime.fromisoformat, Decimal, float and bytes.fromhex.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np


def json_text(value: Any) -> str:
    """The value as one line of JSON."""
    text = json.dumps(plain(value), allow_nan=False, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", text)


def window_facts(window: tuple[Any, Any] | None) -> dict[str, Any] | None:
    """A window as {"start", "end"}, an open side being None; None for all rows."""
    return None if window is None else {"start": window[0], "end": window[1]}


def plain(value: Any) -> Any:
    """The value as JSON types: numbers, text, lists and dicts. Values of other types become their text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, date):  # datetime is a subclass
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (Decimal, Fraction)):
        return [plain(item) for item in value]
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
