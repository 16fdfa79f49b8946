"""The SQL type in which a function shows points and edges: a type that holds the used values exactly.

The type of a column is fixed before a call is answered. So it follows from the type of the measure and the
type of the argument, by one rule for DuckDB and Spark. A point is compared with the measure as it was given
(a fraction with integers, a time of day with dates). It is shown in the measure's type where that holds every
value of the argument's type, else in a type that both widen to, else in the argument's own type.

Edges that histogram chooses itself may be fractions of integers. They are doubles, unless rows lie beyond
2**53; then they are decimals.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.query.sql.sql_types import common_type
from tidemark.warehouse.columns.column_types import MEASURE_DIGITS, ColumnType, sql_column_type

EXACT_IN_DOUBLE = 2**53  # up to it, each integer is a double
_DOUBLE_DIGITS = 15  # every decimal number of so many digits comes back from a double
BEYOND_DOUBLE = "decimal(38,19)"  # integers of 64 bits, and the first digits of a fraction


@dataclass(frozen=True, slots=True)
class Given:
    """The type of the points or edges of a call, as it is known before the call is answered.

    kind: the SQL type of one of them; None if none are given.
    several: whether they are an array.
    """

    kind: str | None = None
    several: bool = False


NOT_GIVEN = Given()


def point_type(own: str, given: Given, *, is_common: bool = False) -> str:
    """The SQL type of points, for a measure of the SQL type `own`; without points it is `own`.

    is_common: whether `own` is the type that measures of several types widen to. Then it is not known which
        of them the call is about. If that is not a double, a decimal point is shown as a decimal.
    """
    measure = sql_column_type(own)
    if given.kind is None or measure is None or measure.is_text:
        return own
    asked = sql_column_type(given.kind)
    if measure.unit_us is not None:
        if asked is None and given.kind.startswith("timestamp"):  # of nanoseconds
            return given.kind
        is_finer = asked is not None and (asked.is_text or asked.unit_us not in {None, measure.unit_us})
        return "timestamp" if is_finer else own
    if asked is None:  # a number of a type of the engine alone, such as hugeint
        return given.kind
    if not asked.is_number or _holds(measure, asked, is_common=is_common):
        return own
    both = sql_column_type(common_type([measure.name, asked.name]))
    return both.sql if both is not None and _holds(both, asked, is_common=is_common) else asked.sql


def asked_key_type(own: str, given: Given) -> str:
    """The SQL type of keys that were asked for. A key may be of a type that no row has: 0.5 among integers.

    Numbers and times are shown as points are. Text has been read as a value of the key's type.
    """
    asked = None if given.kind is None else sql_column_type(given.kind)
    return own if asked is not None and asked.is_text else point_type(own, given)


def edge_type(own: str, given: Given, *, beyond_double: bool, is_common: bool = False) -> str:
    """The SQL type of the edges of bins. Edges that are given have the type of points.

    beyond_double: whether rows of an integer measure lie beyond 2**53.
    """
    if given.several:
        return point_type(own, given, is_common=is_common)
    measure = sql_column_type(own)
    if measure is None or not (measure.is_integer or measure.is_double):
        return own
    return BEYOND_DOUBLE if measure.is_integer and beyond_double else "double"


def _holds(kind: ColumnType, asked: ColumnType, *, is_common: bool) -> bool:
    """Whether a column of the type can show every number of the type `asked`.

    A column of doubles shows decimals as doubles: SQL's literal 0.1 is a decimal.
    """
    if kind.is_double:
        as_double = (asked.is_decimal and not is_common) or 0 < asked.digits <= _DOUBLE_DIGITS
        return kind.name == asked.name or (kind.name == "double" and (asked.is_double or as_double))
    if asked.is_double:
        return False
    if kind.is_integer and asked.is_decimal:  # one digit less than the type has: all such numbers fit
        return asked.scale == 0 and asked.digits <= min(kind.digits - 1, MEASURE_DIGITS)
    return kind.digits - kind.scale >= asked.digits - asked.scale and kind.scale >= asked.scale
