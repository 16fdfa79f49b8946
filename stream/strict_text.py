"""Strict parsing of JSON and CSV records, which runs before Spark's readers convert them to columns.

Spark's readers accept more than JSON (text after the record, single quotes, duplicate fields, bytes that are
not UTF-8) and change some values silently: a number beyond the range of a double becomes infinite, digits
that do not fit a decimal are rounded, a time of day gets the current date, seconds since 1970 may overflow.
A record that passes here is unambiguous: Spark's readers read it as the same values, or refuse it.

    JSON    RFC 8259: one object in UTF-8, no duplicate names in an object, no unpaired surrogate
    CSV     RFC 4180: one line, line breaks only inside quotes; a quote inside quotes is doubled
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, NoReturn, cast

import pyarrow as pa

from tidemark.warehouse.columns.column_types import INTEGER_PATTERN, NUMBER_PATTERN
from tidemark.warehouse.columns.ticks import FIRST_US, LAST_US

ValueCheck = Callable[[Any], bool]  # whether Spark's reader keeps a value unchanged in the column

SECOND_US = 10**6

_REASON_CHARS = 200  # characters of a value in a reason
_YEAR = re.compile(r"\s*[+-]?\d{4}")  # a time with a date begins with its year
_INTEGER_TEXT = re.compile(INTEGER_PATTERN)
_NUMBER_TEXT = re.compile(NUMBER_PATTERN)
_NOT_FINITE = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_UNCHECKED: tuple[ValueCheck, str] = (lambda _: True, "")
_DECIMAL_CONTEXT = Context(prec=100)  # more than the 38 digits of a decimal
_MAX_FIELD = 2**31 - 1  # characters of a CSV field: the limit of Arrow's strings


class Refused(Exception):
    """The record is refused; the text is the reason."""


class MalformedRecord(Refused):
    """The record is not JSON or CSV of the expected columns; the text is the detail of the reason."""


class Real(str):
    """A JSON number with a fraction or an exponent, with its original digits."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StrictParser:
    """Finds the records to refuse. Calling it with records returns a reason for each, NULL if it is accepted.

    `form` is 'json' or 'csv'. `columns` are (name, Arrow type in `events`, type name in reasons), in the
    order of the fields of CSV.
    """

    form: str
    columns: tuple[tuple[str, pa.DataType, str], ...]

    @property
    def malformed(self) -> str:
        """The reason for a malformed record, without the detail."""
        columns = ", ".join(f"{name} {type_name}" for name, _, type_name in self.columns)
        return f"no {self.form} record of the columns {columns}"

    def __call__(self, records: pa.Array) -> pa.Array:
        """The reasons for binary records, as an array of strings of the same length."""
        parse: Callable[[str], Any] = self._json() if self.form == "json" else self._csv()
        previous = csv.field_size_limit(_MAX_FIELD)
        try:
            reasons = [_reason(parse, self.malformed, record) for record in records.to_pylist()]
            return pa.array(reasons, pa.string())
        finally:
            csv.field_size_limit(previous)

    def parser(self) -> Callable[[bytes], dict[str, Any]]:
        """A function that parses a JSON record into a dict; it raises Refused with the reason.

        Numbers with a fraction or an exponent become `Real`.
        """
        parse, malformed = self._json(_decoder(Real)), self.malformed
        return lambda record: _parse(parse, malformed, record)

    def _json(self, decode: Callable[[str], Any] | None = None) -> Callable[[str], dict[str, Any]]:
        names = [name for name, _, _ in self.columns]
        by_lower_name = {name.lower(): name for name in names}
        checks = _checks(self.columns, json_check)
        decode, decode_exactly = decode or _decoder(float), _decoder(Real)

        def parse(text: str) -> dict[str, Any]:
            record = decode(text)
            if type(record) is not dict:
                raise MalformedRecord("no object")
            if "\\" in text and "\\u" in text:
                _check_surrogates(record)
            for name in names:
                if name not in record:
                    _check_names(record, names, by_lower_name)
                    break
            for name, check, kind in checks:
                value = record.get(name)
                if value is not None and not check(value):
                    value = decode_exactly(text)[name]  # the float may have lost digits: check the text
                    if not check(value):
                        raise Refused(f"{name} is no {kind}: {_shown(value)}")
            return cast("dict[str, Any]", record)

        return parse

    def _csv(self) -> Callable[[str], None]:
        checks = {name: (check, kind) for name, check, kind in _checks(self.columns, csv_check)}
        names = [name for name, _, _ in self.columns]

        def parse(text: str) -> None:
            fields = next(csv.reader([text], strict=True), [])
            if len(fields) != len(names):
                raise MalformedRecord(f"{len(fields)} fields, expected {len(names)}: {', '.join(names)}")
            for name, field in zip(names, fields, strict=True):
                check, kind = checks.get(name, _UNCHECKED)
                if field and not check(field):
                    raise Refused(f"{name} is no {kind}: {field[:_REASON_CHARS]}")

        return parse


def _reason(parse: Callable[[str], Any], malformed: str, record: bytes | None) -> str | None:
    try:
        _parse(parse, malformed, record)
    except Refused as error:
        return str(error)
    return None


def _parse(parse: Callable[[str], Any], malformed: str, record: bytes | None) -> Any:
    """The parsed record; Refused with the complete reason if it does not parse."""
    if not record:
        raise Refused("an empty record")
    try:
        return parse(record.decode())
    except MalformedRecord as error:
        reason = str(error)
    except UnicodeDecodeError as error:
        reason = f"no UTF-8 from byte {error.start} on"
    except RecursionError:
        reason = "nested too deep"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except (csv.Error, ValueError) as error:  # ValueError: an integer of thousands of digits
        reason = str(error)
    raise Refused(f"{malformed}: {reason}")


def _decoder(number: Callable[[str], Any]) -> Callable[[str], Any]:
    """A strict JSON decoder; `number` converts the text of numbers with a fraction or an exponent."""
    return json.JSONDecoder(object_pairs_hook=_object, parse_float=number, parse_constant=_no_constant).decode


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise Refused(f"the field {_shown(duplicate)} is there twice")
    return record


def _no_constant(name: str) -> NoReturn:
    raise MalformedRecord(f"{name} is no number of JSON")


def _check_surrogates(record: dict[str, Any]) -> None:
    """Refuses half of a surrogate pair, which JSON can write as an escape."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedRecord("half of a surrogate pair, which is no character") from None


def _check_names(record: dict[str, Any], names: Iterable[str], by_lower_name: dict[str, str]) -> None:
    """Refuses a record without any of the columns, or with a field that differs from one only in case."""
    for name in record.keys() - set(names):
        column = by_lower_name.get(name.lower())
        if column is not None and column not in record:
            raise Refused(f"the field {_shown(name)} is not the column {column}: upper and lower case count")
    if record.keys().isdisjoint(names):
        raise MalformedRecord("it has none of them")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_REASON_CHARS]


def _checks(
    columns: Iterable[tuple[str, pa.DataType, str]], check_of: Callable[[pa.DataType], ValueCheck | None]
) -> list[tuple[str, ValueCheck, str]]:
    """(name, check, type name) of the columns whose values need a check."""
    checks = ((name, check_of(kind), type_name) for name, kind, type_name in columns)
    return [(name, check, type_name) for name, check, type_name in checks if check is not None]


def json_check(kind: pa.DataType) -> ValueCheck | None:
    """Whether Spark's reader keeps a JSON value unchanged or refuses it; None if it always does.

    A number with a fraction or an exponent comes as a float. If that fails, the check runs again with `Real`.
    """
    if pa.types.is_float64(kind):
        return _is_double
    if pa.types.is_float32(kind):
        return _is_single
    if pa.types.is_decimal(kind):
        return partial(_is_decimal, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _is_timestamp
    if pa.types.is_string(kind):
        return _is_text
    if pa.types.is_struct(kind):
        fields = [(field.name, check) for field in kind if (check := json_check(field.type)) is not None]
        return partial(_has_fields, fields) if fields else None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        item_check = json_check(kind.item_type if pa.types.is_map(kind) else kind.value_type)
        return partial(_has_items, item_check) if item_check else None
    return None


def csv_check(kind: pa.DataType) -> ValueCheck | None:
    """The same for the text of a CSV field that is not empty."""
    if pa.types.is_floating(kind):
        return partial(_is_number_text, _is_double if pa.types.is_float64(kind) else _is_single)
    if pa.types.is_decimal(kind):
        return partial(_is_number_text, partial(_is_decimal, kind.precision, kind.scale))
    if pa.types.is_integer(kind):
        return lambda text: _INTEGER_TEXT.fullmatch(text) is not None
    return _is_timestamp if pa.types.is_timestamp(kind) else None


def _is_number_text(check: ValueCheck, text: str) -> bool:
    stripped = text.strip()
    if not _NUMBER_TEXT.fullmatch(stripped):
        return _NOT_FINITE.fullmatch(stripped) is not None
    return check(int(stripped) if _INTEGER_TEXT.fullmatch(stripped) else Real(stripped))


def _is_double(value: Any) -> bool:
    """Whether a number is finite as the nearest double; other values are left to Spark's reader."""
    if type(value) not in {int, float, Real}:
        return True
    with suppress(OverflowError):
        return math.isfinite(float(value))
    return False


def _is_single(value: Any) -> bool:
    """Whether a number is finite as the nearest 32-bit float; other values are left to Spark's reader."""
    if type(value) not in {int, float, Real}:
        return True
    with suppress(OverflowError):
        return math.isfinite(struct.unpack("f", struct.pack("f", float(value)))[0])
    return False


def _is_decimal(precision: int, scale: int, value: Any) -> bool:
    """Whether a number fits without rounding. Refuses 1e999999999, which Spark would write out in full."""
    if not isinstance(value, str):
        return not isinstance(value, float)
    with suppress(InvalidOperation):
        exact = Decimal(value)
        fits = exact.is_finite() and exact.adjusted() < precision - scale
        return fits and exact.quantize(Decimal(1).scaleb(-scale), context=_DECIMAL_CONTEXT) == exact
    return False


def _is_timestamp(value: Any) -> bool:
    """Whether a value is a text that begins with a year, or seconds since 1970 in the years 1 to 9999."""
    if type(value) is int:
        return FIRST_US <= value * SECOND_US <= LAST_US
    return not isinstance(value, str) or value[:4].isdigit() or _YEAR.match(value) is not None


def _is_text(value: Any) -> bool:
    """Whether a value is text, or a value that Spark writes as text without loss."""
    if type(value) is str:
        return True
    if isinstance(value, Real):
        with suppress(InvalidOperation):
            return math.isfinite(float(value)) and Decimal(value) == Decimal(repr(float(value)))
        return False
    if isinstance(value, dict):
        return all(map(_is_text, value.values()))
    return all(map(_is_text, value)) if isinstance(value, list) else not isinstance(value, float)


def _has_fields(fields: list[tuple[str, ValueCheck]], value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(value.get(name) is None or check(value[name]) for name, check in fields)


def _has_items(check: ValueCheck, value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(item is None or check(item) for item in items)
