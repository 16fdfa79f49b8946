"""Whether a text record is strictly what it says it is, told before Spark makes columns of it.

Spark's readers take more than JSON (text after the record, single quotes, a field twice, other bytes than
UTF-8), and change some values without a word: a number too great for a double becomes infinite, digits that a
decimal has no room for are rounded away, a time of day gets today's date, the seconds of a time may run over.
A record that passes here means one thing, and Spark's readers take it as that or refuse it.

    JSON    RFC 8259: one object in UTF-8, each name of an object once, no half of a surrogate pair
    CSV     RFC 4180: one line, or a quoted line break; a quote inside quotes is doubled
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

from tidemark.warehouse.columns.ticks import FIRST_US, LAST_US

Takes = Callable[[Any], bool]  # whether a value of a record means the same in the column

_SHOWN = 200  # characters of a value in a reason
_SECOND_US = 10**6
_DATED = re.compile(r"\s*[+-]?\d{4}")  # a time begins with its year
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_UNCHECKED: tuple[Takes, str] = (lambda _: True, "")
_WIDE = Context(prec=100)  # more than the 38 digits of a decimal
_FIELD_BYTES = 2**31 - 1  # of a CSV field: as much as Arrow's text can hold


class Refused(Exception):
    """Why a record is none."""


class NoRecord(Refused):
    """The record is not of the form at all."""


class Real(str):
    """A JSON number with a fraction or an exponent, as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Strict:
    """Tells of each record why it is refused; NULL where it is not.

    `columns` are the names, types as `events` has them in Arrow, and types as reasons name them, in the order
    of CSV's fields. `form` is 'json' or 'csv'.
    """

    form: str
    columns: tuple[tuple[str, pa.DataType, str], ...]

    @property
    def no_record(self) -> str:
        """The reason for what is not of the form at all."""
        return f"no {self.form} record of the columns " + ", ".join(f"{n} {t}" for n, _, t in self.columns)

    def __call__(self, records: pa.Array) -> pa.Array:
        """The reasons of binary records."""
        look: Callable[[str], Any] = self._json() if self.form == "json" else self._csv()
        before = csv.field_size_limit(_FIELD_BYTES)
        try:
            found = [_reason(look, self.no_record, one) for one in records.to_pylist()]
            return pa.array(found, pa.string())
        finally:
            csv.field_size_limit(before)

    def parser(self) -> Callable[[bytes], dict[str, Any]]:
        """A function that makes an object of a JSON record; Refused with the reason where it is none.

        Numbers with a fraction or an exponent are `Real`.
        """
        look, no_record = self._json(_decoder(Real)), self.no_record
        return lambda record: _parsed(look, no_record, record)

    def _json(self, first: Callable[[str], Any] | None = None) -> Callable[[str], dict[str, Any]]:
        names = [name for name, _, _ in self.columns]
        known = {name.lower(): name for name in names}
        checks = _checks(self.columns, json_takes)
        quick, exact = first or _decoder(float), _decoder(Real)

        def look(text: str) -> dict[str, Any]:
            found = quick(text)
            if type(found) is not dict:
                raise NoRecord("no object")
            if "\\" in text and "\\u" in text:
                _check_surrogates(found)
            for name in names:
                if name not in found:
                    _check_names(found, names, known)
                    break
            for name, takes, kind in checks:
                value = found.get(name)
                if value is not None and not takes(value):
                    value = exact(text)[name]  # its digits may tell what a float does not
                    if not takes(value):
                        raise Refused(f"{name} is no {kind}: {_shown(value)}")
            return cast("dict[str, Any]", found)

        return look

    def _csv(self) -> Callable[[str], None]:
        checks = {name: (takes, kind) for name, takes, kind in _checks(self.columns, csv_takes)}
        names = [name for name, _, _ in self.columns]

        def look(text: str) -> None:
            fields = next(csv.reader([text], strict=True), [])
            if len(fields) != len(names):
                raise NoRecord(f"{len(fields)} fields, expected {len(names)}: {', '.join(names)}")
            for name, field in zip(names, fields, strict=True):
                takes, kind = checks.get(name, _UNCHECKED)
                if field and not takes(field):
                    raise Refused(f"{name} is no {kind}: {field[:_SHOWN]}")

        return look


def _reason(look: Callable[[str], Any], no_record: str, record: bytes | None) -> str | None:
    try:
        _parsed(look, no_record, record)
    except Refused as error:
        return str(error)
    return None


def _parsed(look: Callable[[str], Any], no_record: str, record: bytes | None) -> Any:
    """What the record says; Refused with the whole reason where it is none."""
    if not record:
        raise Refused("an empty record")
    try:
        return look(record.decode())
    except NoRecord as error:
        reason = str(error)
    except UnicodeDecodeError as error:
        reason = f"no UTF-8 from byte {error.start} on"
    except RecursionError:
        reason = "nested too deep"
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.pos}"
    except (csv.Error, ValueError) as error:  # ValueError: an integer of thousands of digits
        reason = str(error)
    raise Refused(f"{no_record}: {reason}")


def _decoder(number: Callable[[str], Any]) -> Callable[[str], Any]:
    """A strict parser; `number` makes something of numbers with a fraction or an exponent."""
    return json.JSONDecoder(object_pairs_hook=_object, parse_float=number, parse_constant=_no_constant).decode


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refused(f"the field {_shown(twice)} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise NoRecord(f"{name} is no number of JSON")


def _check_surrogates(found: dict[str, Any]) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NoRecord("half of a surrogate pair, which is no character") from None


def _check_names(found: dict[str, Any], names: Iterable[str], known: dict[str, str]) -> None:
    """Some column is missing: that is no misspelling of it, and not all of them are."""
    for name in found.keys() - set(names):
        meant = known.get(name.lower())
        if meant is not None and meant not in found:
            raise Refused(f"the field {_shown(name)} is not the column {meant}: upper and lower case count")
    if found.keys().isdisjoint(names):
        raise NoRecord("it has none of them")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_SHOWN]


def _checks(
    columns: Iterable[tuple[str, pa.DataType, str]], takes: Callable[[pa.DataType], Takes | None]
) -> list[tuple[str, Takes, str]]:
    """The columns with something to check."""
    found = ((name, takes(kind), said) for name, kind, said in columns)
    return [(name, check, said) for name, check, said in found if check is not None]


def json_takes(kind: pa.DataType) -> Takes | None:
    """Whether Spark's reader takes a value as what it says, or refuses it; None where it always does.

    A number with a fraction or an exponent comes as a float, and as `Real` where that was not enough.
    """
    if pa.types.is_float64(kind):
        return _is_double
    if pa.types.is_float32(kind):
        return _is_single
    if pa.types.is_decimal(kind):
        return partial(_is_decimal, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _is_moment
    if pa.types.is_string(kind):
        return _is_text
    if pa.types.is_struct(kind):
        fields = [(one.name, check) for one in kind if (check := json_takes(one.type)) is not None]
        return partial(_has_fields, fields) if fields else None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        inside = json_takes(kind.item_type if pa.types.is_map(kind) else kind.value_type)
        return partial(_has_items, inside) if inside else None
    return None


def csv_takes(kind: pa.DataType) -> Takes | None:
    """The same for the text of a CSV field, which is not empty."""
    if pa.types.is_floating(kind):
        return partial(_is_number_text, _is_double if pa.types.is_float64(kind) else _is_single)
    if pa.types.is_decimal(kind):
        return partial(_is_number_text, partial(_is_decimal, kind.precision, kind.scale))
    if pa.types.is_integer(kind):
        return lambda text: _WHOLE.fullmatch(text) is not None
    return _is_moment if pa.types.is_timestamp(kind) else None


def _is_number_text(takes: Takes, text: str) -> bool:
    plain = text.strip()
    if not _NUMBER.fullmatch(plain):
        return _NO_NUMBER.fullmatch(plain) is not None
    return takes(int(plain) if _WHOLE.fullmatch(plain) else Real(plain))


def _is_double(value: Any) -> bool:
    """Finite as a double. The nearest one is taken, as every reader of JSON takes it."""
    if type(value) not in {int, float, Real}:
        return True
    with suppress(OverflowError):
        return math.isfinite(float(value))
    return False


def _is_single(value: Any) -> bool:
    """The same for four bytes."""
    if type(value) not in {int, float, Real}:
        return True
    with suppress(OverflowError):
        return math.isfinite(struct.unpack("f", struct.pack("f", float(value)))[0])
    return False


def _is_decimal(precision: int, scale: int, value: Any) -> bool:
    """No digit would be rounded away. Nor does Spark see 1e999999999, of which it would write every digit."""
    if not isinstance(value, str):
        return not isinstance(value, float)
    with suppress(InvalidOperation):
        exact = Decimal(value)
        fits = exact.is_finite() and exact.adjusted() < precision - scale
        return fits and exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE) == exact
    return False


def _is_moment(value: Any) -> bool:
    """A text with its date, or seconds since 1970 that do not run over."""
    if type(value) is int:
        return FIRST_US <= value * _SECOND_US <= LAST_US
    return not isinstance(value, str) or value[:4].isdigit() or _DATED.match(value) is not None


def _is_text(value: Any) -> bool:
    """A text, or what Spark writes as one without loss."""
    if type(value) is str:
        return True
    if isinstance(value, Real):
        with suppress(InvalidOperation):
            return math.isfinite(float(value)) and Decimal(value) == Decimal(repr(float(value)))
        return False
    if isinstance(value, dict):
        return all(map(_is_text, value.values()))
    return all(map(_is_text, value)) if isinstance(value, list) else not isinstance(value, float)


def _has_fields(fields: list[tuple[str, Takes]], value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(value.get(name) is None or takes(value[name]) for name, takes in fields)


def _has_items(takes: Takes, value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(item is None or takes(item) for item in items)
