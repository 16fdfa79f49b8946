"""The ranges of values that a condition allows in columns: the condition is true for no row outside these.

The condition is DuckDB's parse tree, or a list of allowed values. The ranges may allow more rows than the
condition, so the condition is asked again of the rows that are found. The ranges follow from AND and OR of

    column = constant, <, <=, >, >=, BETWEEN, IN, LIKE 'prefix%', starts_with(column, 'prefix')

A part of an AND that is none of these is left out; an OR with such a part has no ranges. Constants are taken
as they are written. They become names of keys (`bracket`) with some room on both sides, more than DuckDB
rounds when it compares values of different types. Rows of a condition without ranges are found by a scan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from tidemark.query.scans.private_columns import digits_of, token_digits
from tidemark.warehouse.columns.column_types import Storage
from tidemark.warehouse.columns.keys import Key, Name, number_names
from tidemark.warehouse.columns.moments import exact_us
from tidemark.warehouse.columns.text_values import after_prefix
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.errors import InputError

Node: TypeAlias = dict[str, Any]
Constant: TypeAlias = tuple[str, str]  # its kind: number, text, time, date or token; and its text
Ends: TypeAlias = tuple[Name | None, Name | None]  # both inclusive; None: open
# ["and", parts], ["or", parts], ["between", column, constant or None, constant or None] with both ends
# inclusive, or ["prefix", column, text]. Plain JSON: statements carry it.
Sought: TypeAlias = list[Any]
ColumnOf: TypeAlias = Callable[[Sequence[str]], str | None]  # the stored name of a column that a text names

_FLIPPED = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
_KINDS = {"INTEGER": "number", "NUMERIC": "number", "STRING": "text"}
_PREFIXES = {"starts_with", "prefix", "^@"}
_TIMES = {"TIMESTAMP", "DATETIME", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"}
_WILD = re.compile("[%_]")
_ZONED = re.compile("[A-Za-z+-]")
_UTC = re.compile(r"\+00(:?00)?$")
_GREATEST_POWER, _LEAST_POWER = 40, -60  # of ten, of numbers that are looked for
_ROOM = 1e-6  # of a double: a FLOAT has 24 bits
_ROOM_BITS = 40  # of an integer, that is compared as a double of 53 bits


def sought(node: Any, column_of: ColumnOf, params: Mapping[str, Any]) -> Sought | None:
    """The ranges that the condition allows; None if it allows any.

    node: the condition in the parse tree. params: the values of ? and $name by their identifiers in the tree.
    """
    return _Reading(column_of, params).read(node)


@dataclass(frozen=True, slots=True)
class _Reading:
    column_of: ColumnOf
    params: Mapping[str, Any]

    def read(self, node: Any) -> Sought | None:
        kind = node.get("class") if isinstance(node, dict) else None
        by_kind: dict[Any, Callable[[Node], Sought | None]] = {
            "CONJUNCTION": self._conjunction,
            "COMPARISON": self._comparison,
            "BETWEEN": self._between,
            "OPERATOR": self._among,
            "FUNCTION": self._prefix,
        }
        return by_kind[kind](node) if kind in by_kind else None

    def _conjunction(self, node: Node) -> Sought | None:
        parts = [self.read(child) for child in node["children"]]
        found = [part for part in parts if part is not None]
        if node["type"] == "CONJUNCTION_OR":
            return ["or", found] if len(found) == len(parts) else None
        return ["and", found] if found and node["type"] == "CONJUNCTION_AND" else None

    def _comparison(self, node: Node) -> Sought | None:
        kind = node["type"]
        if kind not in _FLIPPED:
            return None
        left, right = node["left"], node["right"]
        column, constant = self._column(left), self._constant(right)
        if column is None or constant is None:
            kind, column, constant = _FLIPPED[kind], self._column(right), self._constant(left)
        if column is None or constant is None:
            return None
        low = None if "LESS" in kind else constant
        high = None if "GREATER" in kind else constant
        return ["between", column, low, high]

    def _between(self, node: Node) -> Sought | None:
        column = self._column(node["input"])
        low, high = (self._constant(node[end]) for end in ("lower", "upper"))
        if column is None or node["type"] != "COMPARE_BETWEEN" or (low is None and high is None):
            return None
        return ["between", column, low, high]

    def _among(self, node: Node) -> Sought | None:
        if node["type"] != "COMPARE_IN":
            return None
        column, *constants = node["children"]
        name, found = self._column(column), [self._constant(one) for one in constants]
        if name is None or None in found:
            return None
        return ["or", [["between", name, one, one] for one in found]]

    def _prefix(self, node: Node) -> Sought | None:
        arguments = [one["expression"] for one in node["arguments"]]
        if len(arguments) != 2:
            return None
        name, column, constant = node["function_name"], self._column(arguments[0]), None
        if column is not None:
            constant = self._constant(arguments[1])
        if column is None or constant is None or constant[0] != "text":
            return None
        text = constant[1]
        if name == "~~":
            prefix = _WILD.split(text)[0]
            if prefix == text:
                return ["between", column, constant, constant]
            return ["prefix", column, prefix] if prefix else None
        return ["prefix", column, text] if name in _PREFIXES and text else None

    def _column(self, node: Node) -> str | None:
        return self.column_of(node["column_names"]) if node.get("class") == "COLUMN_REF" else None

    def _constant(self, node: Node) -> Constant | None:
        match node.get("class"):
            case "CONSTANT":
                literal = node.get("literal") or {}
                kind = _KINDS.get(str(literal.get("kind")))
                return None if kind is None else (kind, literal.get("text") or "")
            case "PARAMETER":
                return _given(self.params.get(node.get("identifier", "")))
            case "CAST" | "FUNCTION" if (token := token_digits(node)) is not None:
                return "token", token
            case "CAST":
                return self._cast(node)
        return None

    def _cast(self, node: Node) -> Constant | None:
        constant = self._constant(node["child"])
        kind = str(node["type_expr"].get("type_name", "")).upper()
        sizes = node["type_expr"].get("children") or []
        if constant is None or constant[0] != "text" or node.get("try_cast"):
            return None
        if not sizes and (kind in _TIMES or kind == "DATE"):
            return ("date" if kind == "DATE" else "time"), constant[1]
        if kind == "DOUBLE" and not sizes:
            return "number", constant[1]
        if kind == "DECIMAL" and len(sizes) == 2:
            scale = (sizes[1].get("literal") or {}).get("text", "")
            fraction = constant[1].partition(".")[2]
            is_plain = scale.isdigit() and (fraction.isdigit() or not fraction)
            return ("number", constant[1]) if is_plain and len(fraction) <= int(scale) else None
        return None


def _given(value: Any) -> Constant | None:
    """A parameter as a constant; None for a value of another type."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        return "number", str(value)
    if isinstance(value, str):
        return "text", value
    if isinstance(value, dict) and (token := digits_of(value.get("token"))) is not None:
        return "token", token
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return "time", value.isoformat(sep=" ")
    return ("date", value.isoformat()) if isinstance(value, date) else None


def columns_of(found: Sought) -> set[str]:
    """The columns of which it allows only ranges."""
    if found[0] in {"and", "or"}:
        return set().union(*map(columns_of, found[1]))
    return {found[1]}


def ends_of(key: Key, found: Sequence[Any]) -> Ends | None:
    """The range of names of "between" and "prefix"; None if the column cannot be compared so."""
    if found[0] == "prefix":
        start = found[2].encode()
        return (start, after_prefix(start)) if key.column_type.storage is Storage.STRING else None
    low, high = (None if one is None else bracket(key, *one) for one in found[2:4])
    if (found[2] is not None and low is None) or (found[3] is not None and high is None):
        return None
    return low and low[0], high and high[1]


def bracket(key: Key, kind: str, text: str) -> tuple[Name, Name] | None:
    """Two names, both inclusive, between which a constant lies in any comparison of DuckDB with the column.

    None for a constant whose place in this column is not known, or not exactly enough.
    """
    column = key.column_type
    if column.is_token:
        return (bytes.fromhex(text),) * 2 if kind == "token" else None
    if column.is_text:
        is_known = kind == "text" and column.storage is Storage.STRING
        return (text.encode("utf-8", "surrogatepass"),) * 2 if is_known else None
    if column.unit_us is not None:
        return None if kind == "number" else _moment(column.unit_us, kind, text)
    if kind != "number" or key.type == "boolean":
        return None
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() > _GREATEST_POWER:
        return None
    value = Decimal(0) if value.adjusted() < _LEAST_POWER else value
    if column.is_double:
        number = float(value)
        room = abs(number) * _ROOM + 10.0**_LEAST_POWER
        low, high = number_names(key, np.array([number - room, number + room])).tolist()
        return low, high
    whole = Fraction(value) * 10**column.scale
    room = 1 + (abs(math.floor(whole)) >> _ROOM_BITS)
    return math.floor(whole) - room, math.ceil(whole) + room


def _moment(unit_us: int, kind: str, text: str) -> tuple[int, int] | None:
    """A time in units since 1970; text in another zone than UTC is not told."""
    plain = _UTC.sub("", text.strip())
    if _ZONED.search(plain[11:]):
        return None
    try:
        us = exact_us(plain)
    except InputError:
        return None
    if kind == "date":
        us = Fraction(us // DAY_US * DAY_US)
    return math.floor(us / unit_us) - 1, math.ceil(us / unit_us) + 1


def united(ranges: Iterable[Ends]) -> list[Ends]:
    """The ranges ascending, those that overlap joined; empty ones are left out."""
    pairs: list[tuple[Any, Any]] = [*ranges]
    given = [(low, high) for low, high in pairs if low is None or high is None or low <= high]
    found: list[tuple[Any, Any]] = []
    for low, high in sorted(given, key=lambda one: (one[0] is not None, one[0])):
        last = found[-1][1] if found else None
        if not found or (last is not None and low is not None and low > last):
            found.append((low, high))
        elif last is not None and (high is None or high > last):
            found[-1] = found[-1][0], high
    return found
