"""Parses text columns into columns of the warehouse's types, without Spark.

Spark's readers parse every accepted text to the same value. All other text raises BadValue, even if Spark
would accept it. The accepted text by type:

    byte ... long     digits with an optional sign, in the range of the type
    float, double     a decimal number in the range of the type; NaN, Inf, -Inf, Infinity, -Infinity
    decimal           a decimal number that fits without losing a digit
    boolean           true or false in upper or lower case
    date              2001-03-19
    timestamp         2001-03-19, or 2001-03-19T12:30:00 with a T or a space, up to six digits of a fraction
                      of the second, and an optional zone, Z or +01:00; without a zone it is UTC
    string, binary    any text
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.warehouse.columns.column_types import ZONE_PATTERN, arrow_column_type


class BadValue(ValueError):
    """A value that does not parse as the type of its column; `row` is its index in the column."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)
        self.row = row


def parse_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A text column as a column of type `kind`; BadValue for text that does not parse. NULL stays NULL."""
    found = arrow_column_type(kind)
    if found is None or found.text_pattern is None:
        return column.cast(kind)
    _check(column, pc.match_substring_regex(column, f"^{found.text_pattern}$"))
    if pa.types.is_boolean(kind):
        return pc.equal(pc.utf8_lower(column), "true")
    if pa.types.is_timestamp(kind):
        return _timestamps(column, kind)
    unsigned = pc.if_else(pc.starts_with(column, "+"), pc.utf8_slice_codeunits(column, 1), column)
    values = _cast(unsigned, kind)
    if pa.types.is_floating(kind):
        overflow = pc.and_(pc.is_inf(values), pc.invert(pc.match_substring(column, "Inf")))
        _check(column, pc.invert(overflow))
    return values


def is_text_type(kind: pa.DataType) -> bool:
    """Whether a text can hold a value of the type, which is so unless it is nested."""
    return not pa.types.is_nested(kind)


def _timestamps(column: pa.Array, kind: pa.DataType) -> pa.Array:
    zoned = pc.fill_null(pc.match_substring_regex(column, f":.*{ZONE_PATTERN}$"), False)
    null = pa.scalar(None, pa.string())
    with_zone = _cast(pc.if_else(zoned, column, null), kind)
    without = _cast(pc.if_else(zoned, null, column), pa.timestamp(kind.unit)).cast(kind)
    return pc.coalesce(with_zone, without)


def _check(column: pa.Array, valid: pa.Array) -> None:
    """BadValue for the first text where the mask `valid` is False."""
    row = pc.index(pc.fill_null(valid, True), False).as_py()
    if row >= 0:
        raise BadValue(row, column[row].as_py())


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        pass
    for row in range(len(column)):  # find the value that failed
        try:
            column.slice(row, 1).cast(kind)
        except pa.ArrowInvalid:
            raise BadValue(row, column[row].as_py()) from None
    raise AssertionError("the cast of the column failed, but the cast of each of its values did not")
