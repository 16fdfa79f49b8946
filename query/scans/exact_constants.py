"""Writes constants of an expression in a form that DuckDB compares without rounding them first.

DuckDB casts text to the type of what it is compared with. Beside a date it makes '2024-01-01 12:00' a day,
beside an integer it makes '0.5' a whole number, and beside a timestamp it cuts text to microseconds. It
compares an integer and 9.1e15 as doubles. Here such a constant becomes a cast to a type that holds it: a
TIMESTAMP beside a DATE, a DECIMAL beside integers and decimals. What DuckDB has no type for is refused: a
time between two microseconds, a number of more than 38 digits, a whole number beside a DOUBLE that cannot
hold it. So is text that a cast in the expression would cut: DATE '2024-01-01 12:00'.

A fraction beside a FLOAT or DOUBLE becomes the nearest one, as in loads of text. Text beside text stays. Text
of the rows beside anything else is refused: DuckDB would read '00501' as 501.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemark.warehouse.columns.column_types import DECIMAL_DIGITS
from tidemark.warehouse.columns.moments import EPOCH, exact_us
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.errors import InputError, shortened

Node = dict[str, Any]

_WHOLE = {f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "", "BIG", "HUGE")}
_NUMBERS = re.compile(rf"{'|'.join(sorted(_WHOLE))}|[U]?INTEGER|DECIMAL\(.*\)")
_ZONED = "TIMESTAMP WITH TIME ZONE"
_TIMES = {"DATE", "TIMESTAMP", _ZONED}
_TEXTS = {"VARCHAR", "BLOB", '"NULL"'}
_MIXED = (
    "it compares text with a value of another type, as which DuckDB would read the text: '00501' and '501' "
    "would both be 501. Quote the value, as '501', or cast the text: CAST(zip AS BIGINT) = 501."
)
_FLOATS = {"FLOAT", "DOUBLE"}
_IS_WHOLE = re.compile(r"\s*[+-]?[0-9]+(\.0*)?\s*").fullmatch
_SHORT = 7  # characters of a number that each type holds, if it has no exponent
_CAST_TIMES = _TIMES | {"DATETIME", "TIMESTAMPTZ"}


def with_exact_constants(
    node: Any, type_of: Callable[[Node], str], refusal: Callable[[str], InputError]
) -> Any:
    """The tree of a checked expression with such constants replaced.

    type_of: tells DuckDB's type of a node. refusal: makes the error for a constant that no type holds.
    """
    if isinstance(node, list):
        return [with_exact_constants(item, type_of, refusal) for item in node]
    if not isinstance(node, dict):
        return node
    copy = {field: with_exact_constants(value, type_of, refusal) for field, value in node.items()}
    problem = _cast_problem(node)
    if problem is not None:
        raise refusal(problem)
    fields = _compared(copy)
    constants, others = list(filter(_is_constant, fields)), [one for one in fields if not _is_constant(one)]
    kinds = [type_of(value) for value in others] if len(others) > 1 or any(map(_has_type, constants)) else []
    if "VARCHAR" in kinds and not (_TEXTS.issuperset(kinds) and all(map(_is_text, constants))):
        raise refusal(_MIXED)
    if not kinds or not any(map(_may_be_rounded, fields)):
        return copy
    kind = kinds[0]
    try:
        replaced = {json.dumps(value): _exact(value, kind) for value in fields if _may_be_rounded(value)}
    except InputError as error:  # of a text that is no time, or a number that no type holds
        raise refusal(str(error)) from None
    return _replaced(copy, replaced)


def _compared(node: Node) -> list[Node]:
    """The operands of a comparison; none for another node."""
    if node.get("class") == "COMPARISON":
        return [node["left"], node["right"]]
    if node.get("class") == "BETWEEN":
        return [node["input"], node["lower"], node["upper"]]
    return node["children"] if node.get("type") in {"COMPARE_IN", "COMPARE_NOT_IN"} else []


def _replaced(node: Node, by: dict[str, Node]) -> Node:
    """The comparison with some operands replaced, by their text."""

    def of(value: Any) -> Any:
        return [of(item) for item in value] if isinstance(value, list) else by.get(json.dumps(value), value)

    return {field: of(value) for field, value in node.items()}


def _is_constant(node: Node) -> bool:
    return node.get("class") == "CONSTANT"


def _has_type(constant: Node) -> bool:
    return bool(constant["literal"]["kind"] != "NULL_LITERAL")


def _is_text(constant: Node) -> bool:
    return constant["literal"]["kind"] in {"STRING", "NULL_LITERAL"}


def _may_be_rounded(node: Node) -> bool:
    """Whether it is text, or a number (long, or with an exponent) that DuckDB may read as a double."""
    literal = node.get("literal", {}) if _is_constant(node) else {}
    kind, text = literal.get("kind"), literal.get("text", "")
    is_number = kind in {"INTEGER", "NUMERIC"}
    return kind == "STRING" or (is_number and (len(text) > _SHORT or "e" in text.lower()))


def _exact(constant: Node, kind: str) -> Node:
    """The constant beside a value of DuckDB's type `kind`."""
    text = constant["literal"]["text"]
    if kind in _TIMES and constant["literal"]["kind"] == "STRING":
        return _time(text, kind)
    if kind in _FLOATS and _IS_WHOLE(text):
        return _whole_double(text)
    return _number(constant, text) if _NUMBERS.fullmatch(kind) else constant


def _time(text: str, kind: str) -> Node:
    us = _whole_us(text)
    moment = (EPOCH + timedelta(microseconds=us)).astimezone(UTC).replace(tzinfo=None)
    if kind == "DATE" and us % DAY_US == 0:
        return cast_node(moment.date().isoformat(), "DATE")
    written = moment.isoformat(sep=" ")
    return cast_node(f"{written}+00", "TIMESTAMPTZ") if kind == _ZONED else cast_node(written, "TIMESTAMP")


def _whole_us(text: str) -> int:
    us = exact_us(text)
    if us.denominator != 1:
        raise InputError(
            f"{shortened(text)} lies between two microseconds, which DuckDB cannot compare. Give at most six "
            "digits after the second."
        )
    return int(us)


def _whole_double(text: str) -> Node:
    """The whole number as a double, also beside a FLOAT, whose values are doubles."""
    whole = Decimal(text.strip())
    held = min(max(float(whole), -sys.float_info.max), sys.float_info.max)
    if Decimal(held) != whole:
        raise InputError(
            f"{shortened(text.strip())} is a whole number that a DOUBLE cannot hold; {held:.0f} is one."
        )
    return cast_node(text, "DOUBLE")


def _number(constant: Node, text: str) -> Node:
    """The number as a decimal; the constant itself if it is beyond all decimals, or no number."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return constant
    if not number.is_finite() or number.adjusted() >= DECIMAL_DIGITS:
        return constant
    is_tiny = number != 0 and number.adjusted() < -DECIMAL_DIGITS  # written out it may be a billion digits
    plain = "0" if is_tiny or not number else f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    whole, _, fraction = plain.lstrip("-").partition(".")
    digits = len(whole) + len(fraction)
    if is_tiny or digits > DECIMAL_DIGITS:
        raise InputError(
            f"{shortened(text.strip())} has more digits than DuckDB can compare, which are {DECIMAL_DIGITS}. "
            "Give fewer."
        )
    return cast_node(plain, "DECIMAL", digits, len(fraction))


def _cast_problem(node: Node) -> str | None:
    """What is wrong with a cast of constant text to a time that cannot be equal to it."""
    if node.get("class") != "CAST":
        return None
    kind, child = node["type_expr"]["type_name"].upper(), node["child"]
    if kind not in _CAST_TIMES or not _is_constant(child) or child["literal"]["kind"] != "STRING":
        return None
    text = child["literal"]["text"]
    try:
        cut = exact_us(text) % (DAY_US if kind == "DATE" else 1)
    except InputError:
        return None  # DuckDB knows it, or refuses it
    return (
        f"a {kind} cannot be {shortened(text)}: DuckDB would cut it. Write it without the rest."
        if cut
        else None
    )


def cast_node(text: str, kind: str, *sizes: int) -> Node:
    """The node of CAST(text AS kind), as expressions.py copies it."""
    type_expr = type_node(kind, [_constant("INTEGER", f"{size}") for size in sizes])
    child = _constant("STRING", text)
    return {
        "class": "CAST", "type": "OPERATOR_CAST", "child": child, "type_expr": type_expr, "try_cast": False
    }  # fmt: skip


def type_node(name: str, sizes: Sequence[Node]) -> Node:
    """The node of a type."""
    path = {"path": [name]}
    return {"class": "TYPE", "type": "TYPE", "type_name": name, "qualified_name": path, "children": [*sizes]}


def _constant(kind: str, text: str) -> Node:
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "literal": {"kind": kind, "text": text}}
