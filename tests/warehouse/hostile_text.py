"""Random CSV and JSON files of hostile content, and what they mean by the plainest means.

A file is read by Python's csv and json modules, and a value by its own function of Python. The truth is the
rows, or the number of the first line that is refused.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("n", pa.int32()),
        ("d", pa.decimal128(10, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("b", pa.bool_()),
    ]
)
NUMBERS = [
    *(
        "0",
        "-0",
        "-0.0",
        "007",
        "+7",
        "1.5",
        ".5",
        "1.",
        "1e3",
        "1E-3",
        "0.1",
        "1.005",
        "12345678.99",
        "123456789",
    ),
    *("2147483647", "2147483648", "-2147483648", "16777216", "16777217", "16777217.0", "9007199254740992"),
    *("9007199254740993", "-9007199254740993", "9007199254740993.0", "9007199254740993e0", "1e23", "1e38"),
    *("3.4028235e38", "3.4028236e38", "1e39", "1.7976931348623157e308", "1e309", "1e999", "5e-324", "1e-400"),
    *(
        "nan",
        "NaN",
        "inf",
        "-Inf",
        "+Infinity",
        "1e999999999",
        "0e999999999",
        "100e-1",
        "1_000",
        "1,000",
        "0x1p3",
    ),
    *("1d", " 1", "1 ", "\u0663", "--1", "1e", "e1", "true", "", "1152921504606846976", "1" + "0" * 400),
]
TIMES = [
    *(
        "2024-01-01",
        "2024-01-01T12:30:00Z",
        "2024-01-01 12:30:00",
        "2024-01-01T12:30",
        "2024-01-01T12:30:00.5Z",
    ),
    *("2024-01-01T12:30:00.123456Z", "2024-01-01T12:30:00.123456000Z", "2024-01-01T12:30:00.123456789Z"),
    *(
        "2024-01-01T12:30:00+01:00",
        "2024-01-01T12:30:00-0130",
        "2024-01-01 12:30:00+00",
        "2024-01-01T12:30:00 Z",
    ),
    *(
        "12:30",
        "12:30:00",
        "2024-1-1",
        "2024-02-30",
        "2023-02-29",
        "2024-01-01T24:00:00Z",
        "2024-01-01T12:60Z",
    ),
    *(
        "2024-01-01T12:30:60Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "2024",
        "2024-01",
        "now",
    ),
    *("2024-01-01T12:30:00Europe/Paris", "2024-01-01t12:30:00z", "1704067200", "+12000-01-01", "01/02/2024"),
]
TEXTS = [
    *(
        "a",
        "A",
        "",
        " a ",
        'say "hi"',
        '"',
        '""',
        "a,b",
        "a\nb",
        "a\r\nb",
        "\\",
        "\\n",
        "'",
        "é",
        "e\u0301",
        "😀",
    ),
    *("\u2028", "\0", "NULL", "null", "00501", "501", "1e5", "#1", "x" * 5000, "\ufeff", "\t"),
]
BOOLEANS = ["true", "false", "TRUE", "False", "1", "yes", "t", ""]
NESTED = [
    *('{"a": [1.50, {"b": null}], "é": "say \\"x\\""}', "[]", "{}", "[[true, 1e3], -0]", '{"a": 1, "a": 2}'),
    *('"\\ud83d\\ude00"', '"\\ud800"', "[1,", '{"a": 9007199254740993}', "NaN", "01", "1.", "'a'"),
]
TEXT_OF = {"x": NUMBERS, "f": NUMBERS, "n": NUMBERS, "d": NUMBERS, "t": TIMES, "k": TEXTS, "b": BOOLEANS}
GOOD = {"x": "1.5", "f": "2.5", "n": "3", "d": "1.25", "t": "2024-01-01T00:00:00Z", "k": "a", "b": "true"}

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)


class Bad(Exception):
    """The value or record means nothing, or would be changed."""


def _single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.inf


def _float(text: str, size: Callable[[float], float] = float) -> float:
    if text.lower().lstrip("+-") in {"inf", "infinity"} or text.lower() == "nan":
        return float(text)
    if not _NUMBER.fullmatch(text):
        raise Bad(text)
    value = size(float(text))
    if math.isinf(value) or ("e" not in text.lower() and _is_rounded(Fraction(text.rstrip(".")), value)):
        raise Bad(text)
    return value


def _is_rounded(exact: Fraction, value: float) -> bool:
    return exact.denominator == 1 and exact != Fraction(value)


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -(2**31) <= int(text) < 2**31:
        raise Bad(text)
    return int(text)


def _decimal(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise Bad(text)
    value = Decimal(text)
    if value and (value.adjusted() > 7 or value % Decimal("0.01")):
        raise Bad(text)
    return value.quantize(Decimal("0.01")) if value else Decimal("0.00")


def _time(text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if match is None or (match[4] or "")[6:].strip("0"):
        raise Bad(text)
    zone = (match[5] or "Z").replace(":", "").replace("Z", "+0000").ljust(5, "0")
    try:
        clock = f"{match[1]} {match[2] or '00:00'}:{match[3] or '00'}.{(match[4] or '')[:6].ljust(6, '0')}"
        there = datetime.strptime(clock, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        raise Bad(text) from None
    if int(clock[17:19]) > 59 or int(zone[1:3]) > 23:
        raise Bad(text)
    return there - int(zone[0] + "1") * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Bad(text)
    return text.lower() == "true"


VALUE_OF: dict[str, Callable[[str], Any]] = {
    "x": _float,
    "f": lambda text: _float(text, _single),
    "n": _integer,
    "d": _decimal,
    "t": _time,
    "k": str,
    "b": _boolean,
}


def of_json(name: str, value: Any) -> Any:
    """The value of a column; numbers with a fraction or an exponent are ('real', text)."""
    is_number = type(value) is int or isinstance(value, tuple)
    if value is None:
        return None
    if name == "b" or type(value) is bool:
        return _json_boolean(name, value)
    if name == "t" and type(value) is int and abs(value) < 10**10:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)
    if name == "k" and isinstance(value, dict | list):
        return _compact(value)
    text = value[1] if isinstance(value, tuple) else str(value)
    if is_number and (name == "t" or (name == "n" and isinstance(value, tuple))):
        raise Bad(value)
    if not is_number and (name == "n" or (name in "xf" and _NUMBER.fullmatch(text))):
        raise Bad(value)
    return VALUE_OF[name](text)


def _compact(value: Any) -> str:
    """A nested value as text, its numbers as they were written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_compact(name)}:{_compact(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return str(value[1]) if isinstance(value, tuple) else json.dumps(value, ensure_ascii=False)


def _json_boolean(name: str, value: Any) -> Any:
    if name not in "bk" or (name == "b" and type(value) is not bool):
        raise Bad(value)
    return value if name == "b" else str(value).lower()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Bad(pairs)
    return dict(pairs)


def _constant(name: str) -> Any:
    raise Bad(name)


def json_row(line: str) -> dict[str, Any]:
    """The row of a line; Bad, or ValueError, if it is refused."""
    record = json.loads(
        line, object_pairs_hook=_once, parse_float=lambda text: ("real", text), parse_constant=_constant
    )
    json.dumps(record, ensure_ascii=False).encode()  # UnicodeEncodeError for half of a surrogate pair
    if not isinstance(record, dict) or not record or not record.keys() <= set(SCHEMA.names):
        raise Bad(line)
    return {name: of_json(name, record.get(name)) for name in SCHEMA.names}
