"""Text as values of a column, strictly: the package's docstring lists the text that each type accepts.

A column is converted at once, by Arrow. Texts that Arrow refuses are found by halving the column, so one of
them among n costs O(n), and no value is converted by other means than its neighbours.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from decimal import Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.warehouse.columns.column_types import ZONE_PATTERN, arrow_column_type
from tidemark.warehouse.columns.value_encoding import as_numpy_bools

Converted = tuple[pa.Array, list[int]]  # the values, and the refused rows, which are NULL among the values

_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
_IS_WHOLE = re.compile(_WHOLE).search
_INEXACT = " (a whole number that it cannot hold exactly)"
_MORE_THAN_MICROS = r"\.[0-9]{7}"
_IS_DAY = re.compile(r"[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}").match
_IS_DAY_OF_YEARS = re.compile(r"(?!0000)[0-9]{4}-").match
_DECIMAL_CONTEXT = Context(prec=100)  # more than the 38 digits of a decimal


def parse_texts(texts: pa.Array, kind: pa.DataType) -> Converted:
    """Texts as values of the type; NULL stays NULL."""
    found = arrow_column_type(kind)
    if found is None or found.text_pattern is None:
        return texts.cast(kind), []
    fits = pc.match_substring_regex(texts, f"^(?:{found.text_pattern})$")
    if pc.all(fits).as_py() is not False:
        return _convert(texts, kind)
    values, refused = _convert(pc.if_else(fits, texts, pa.scalar(None, texts.type)), kind)
    return values, sorted({*refused, *_rows(pc.invert(fits))})


def why_refused(field: pa.Field, type_name: str, text: str) -> str:
    """The reason to refuse a text, as it is shown, in a column; `type_name` is the type in the reason."""
    if pa.types.is_temporal(field.type) and _IS_DAY(text) and not _IS_DAY_OF_YEARS(text):
        return f"{field.name} lies outside the years 1 to 9999"
    inexact = pa.types.is_floating(field.type) and _IS_WHOLE(text)
    return f"{field.name} is no {type_name}: {text}{_INEXACT if inexact else ''}"


def halved(items: pa.Array, kind: pa.DataType) -> Converted:
    """The items as values of the type, converted by Arrow; bytes from base64."""
    try:
        return _all_converted(items, kind), []
    except (pa.ArrowInvalid, OverflowError):
        if len(items) == 1:
            return pa.nulls(1, kind), [0]
    half = len(items) // 2
    left, refused = halved(items[:half], kind)
    right, others = halved(items[half:], kind)
    return pa.concat_arrays([left, right]), refused + [half + row for row in others]


def _all_converted(items: pa.Array, kind: pa.DataType) -> pa.Array:
    """The items as values of the type; an error of Arrow if one of them is no such value."""
    if pa.types.is_timestamp(kind):
        return _timestamps(kind, items)
    return _from_base64(items) if pa.types.is_binary(kind) else items.cast(kind)


def _from_base64(texts: pa.Array) -> pa.Array:
    try:
        decoded = [
            None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()
        ]
    except (binascii.Error, ValueError) as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array(decoded, pa.binary())


def _convert(texts: pa.Array, kind: pa.DataType) -> Converted:
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(texts), "true"), []
    if pa.types.is_floating(kind):
        return _floats(texts, kind)
    if pa.types.is_decimal(kind):
        return _decimals(texts, kind)
    if pa.types.is_integer(kind):
        signed = pc.starts_with(texts, "+")
        texts = pc.if_else(signed, pc.utf8_slice_codeunits(texts, 1), texts)
    return halved(texts, kind)


def _floats(texts: pa.Array, kind: pa.DataType) -> Converted:
    values = texts.cast(kind)
    exact = 2.0**53 if pa.types.is_float64(kind) else 2.0**24  # whole numbers up to it are held exactly
    large = pc.greater_equal(pc.abs(values), pa.scalar(exact, kind))
    if not pc.any(large).as_py():
        return values, []
    endless = pc.is_inf(values)
    rows = _rows(pc.and_(endless, pc.invert(pc.match_substring(texts, "inf", ignore_case=True))))
    whole = pc.and_(pc.and_(large, pc.invert(endless)), pc.match_substring_regex(texts, _WHOLE))
    for row in _rows(whole):
        if Decimal(texts[row].as_py()) != Decimal(values[row].as_py()):  # of any number of digits
            rows.append(row)
    return without(values, rows), sorted(rows)


def _timestamps(kind: pa.DataType, texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _MORE_THAN_MICROS)).as_py():
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})0+", r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(texts, f":.*{ZONE_PATTERN}$"), False)
    null = pa.scalar(None, texts.type)
    with_zone = pc.if_else(zoned, texts, null).cast(kind)
    without_zone = pc.if_else(zoned, null, texts).cast(pa.timestamp(kind.unit)).cast(kind)
    return pc.coalesce(with_zone, without_zone)


def _decimals(texts: pa.Array, kind: pa.DataType) -> Converted:
    if not pc.any(pc.match_substring_regex(texts, "[eE]")).as_py():  # Arrow writes exponents out in full
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind), []
    values = [
        None if text is None else _exact(text, kind.precision, kind.scale) for text in texts.to_pylist()
    ]
    array = pa.array(values, kind)
    return array, _rows(pc.and_(array.is_null(), texts.is_valid()))


def _exact(text: str, precision: int, scale: int) -> Decimal | None:
    """The number of a decimal type; None if it has a digit beyond those of the type."""
    with suppress(InvalidOperation):  # an exponent beyond all of Python's
        value = Decimal(text)
        if not value:
            return Decimal(0)
        if -scale <= value.adjusted() < precision - scale:
            rounded = value.quantize(Decimal(1).scaleb(-scale), context=_DECIMAL_CONTEXT)
            return rounded if rounded == value else None
    return None


def without(values: pa.Array, rows: list[int]) -> pa.Array:
    """The values, with NULL in these rows."""
    if not rows:
        return values
    mask = np.zeros(len(values), dtype=bool)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)


def _rows(mask: pa.Array) -> list[int]:
    """The rows in which the mask is true; NULL is not."""
    rows: list[int] = np.flatnonzero(as_numpy_bools(pc.fill_null(mask, False))).tolist()
    return rows
