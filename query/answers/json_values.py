r"""Answers for programs: the values of JSON, and nothing lost on the way.

    times and dates     ISO 8601 text, times with their zone
    decimals            text, digit by digit
    NaN, infinities     the texts "NaN", "Infinity" and "-Infinity", which JSON has no numbers for
    bytes               hexadecimal digits; a byte of a text that is no UTF-8 is an escape such as \udc80

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
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


def window_facts(window: tuple[Any, Any] | None) -> dict[str, Any] | None:
    """A window by name; None for all rows, and for an open side."""
    return None if window is None else {"start": window[0], "end": window[1]}


def plain(value: Any) -> Any:
    """The value made of what JSON knows; what is no number, time or collection becomes its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (Decimal, Fraction)):
        return [plain(one) for one in value]
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
