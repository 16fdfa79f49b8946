"""Columns of text as columns of the warehouse's types, without Spark.

What is taken here Spark's readers take as the same value; what is written in any other way is refused, also
where Spark would take it. A text means, by its column's type:

    byte ... long     digits, with a sign or not, in the range of the type
    float, double     a decimal number that is finite; NaN, Inf, -Inf, Infinity, -Infinity
    decimal           a decimal number of which no digit is lost
    boolean           true, false, in upper or lower case
    date              2001-03-19
    timestamp         2001-03-19, or 2001-03-19T12:30:00 with a T or a blank, up to six more digits of the
                      second, and Z or +01:00 at the end; without a zone it is UTC
    string, binary    itself
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_NO_NUMBER = r"(NaN|-?Inf|[+-]?Infinity)"
_WHOLE = r"[+-]?[0-9]+"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})"
_TIME = _DATE + r"([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?" + _ZONE + "?)?"


class Unfit(ValueError):
    """A text that is no value of the type; `at` is its place in the column."""

    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


def typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of text as the type; Unfit where a text is no value of it. NULL stays NULL."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.cast(kind)
    _check(column, pc.match_substring_regex(column, f"^{_form(kind)}$"))
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(column), "true")
    if pa.types.is_timestamp(kind):
        return _moments(column, kind)
    unsigned = pc.if_else(pc.starts_with(column, "+"), pc.utf8_slice_codeunits(column, 1), column)
    found = _cast(unsigned, kind)
    if pa.types.is_floating(kind):
        infinite = pc.and_(pc.is_inf(found), pc.invert(pc.match_substring(column, "Inf")))
        _check(column, pc.invert(infinite))
    return found


def is_text_type(kind: pa.DataType) -> bool:
    """Whether one text tells a value of the type: it is not nested."""
    return not pa.types.is_nested(kind)


def _form(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return _WHOLE
    if pa.types.is_floating(kind):
        return f"({_NUMBER}|{_NO_NUMBER})"
    if pa.types.is_decimal(kind):
        return _NUMBER
    if pa.types.is_boolean(kind):
        return "(?i:true|false)"
    return _DATE if pa.types.is_date(kind) else _TIME


def _moments(column: pa.Array, kind: pa.DataType) -> pa.Array:
    zoned = pc.fill_null(pc.match_substring_regex(column, f":.*{_ZONE}$"), False)
    nothing = pa.scalar(None, pa.string())
    with_zone = _cast(pc.if_else(zoned, column, nothing), kind)
    without = _cast(pc.if_else(zoned, nothing, column), pa.timestamp(kind.unit)).cast(kind)
    return pc.coalesce(with_zone, without)


def _check(column: pa.Array, good: pa.Array) -> None:
    """Unfit for the first text that is not good."""
    bad = pc.index(pc.fill_null(good, True), False).as_py()
    if bad >= 0:
        raise Unfit(bad, column[bad].as_py())


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        pass
    for at in range(len(column)):  # which one it was
        try:
            column.slice(at, 1).cast(kind)
        except pa.ArrowInvalid:
            raise Unfit(at, column[at].as_py()) from None
    raise AssertionError("a column does not cast, and each of its values does")
