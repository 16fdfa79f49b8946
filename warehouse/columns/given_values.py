"""The place of a value that a caller gives, in the order of the stored values of a column.

Stored values are points on a line: integers, unscaled decimals, days, microseconds, doubles, or text. A
given value may be one of them, or lie between two: 0.5 between integers, noon between days. Each comparison
follows from `stored`, the greatest stored value that is not above the given value, and from whether the two
are equal:

    rows <= value    rows <= stored
    rows <  value    rows <  stored if equal, else rows <= stored
    rows >= value    all rows but those < value
    rows =  value    rows = stored if equal, else none

`where`, ranks, edges of histograms, ranges and counts of keys all take their answer from `standing`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tidemark.warehouse.columns.column_types import ColumnType
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.errors import InputError, shortened

LEAST, MOST = -(2**63), 2**63 - 1  # of a BIGINT
_FAR = 400  # the exponent of ten beyond those of all doubles and of BIGINT


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a given value stands among the stored values of its column.

    at: the greatest stored value that is not above it; None if it is below all of them.
    equal: whether it is that stored value. If not, it lies between that and the next one.
    """

    at: Any
    equal: bool

    @property
    def below(self) -> Any:
        """The greatest stored number that is less than the value; None if there is none."""
        if not self.equal:
            return self.at
        if isinstance(self.at, float):
            return None if self.at == -math.inf else math.nextafter(self.at, -math.inf)
        return None if self.at == LEAST else self.at - 1


def standing(kind: ColumnType, exact: Fraction | float | bytes) -> Standing:
    """How an exact value stands between the stored values of a column of the type `kind`.

    NaN is a stored value of doubles, and above all values of other numbers.
    """
    if isinstance(exact, bytes):
        return Standing(exact, equal=True)
    if isinstance(exact, float):  # an infinity or NaN
        if kind.is_double:
            return Standing(exact, equal=True)
        return Standing(None if exact < 0 else MOST, equal=False)
    if kind.is_double:
        near = _floor_double(exact)
        return Standing(near, equal=not math.isinf(near) and Fraction(near) == exact)
    floor = math.floor(exact)
    if floor < LEAST:
        return Standing(None, equal=False)
    return Standing(min(floor, MOST), equal=floor <= MOST and floor == exact)


def usual_standing(kind: ColumnType, value: Any) -> Standing | None:
    """As `standing`, for what nearly all questions give: Python numbers that are stored values; else None."""
    if kind.is_double:
        return Standing(value + 0.0, equal=True) if type(value) is float and value == value else None  # noqa: PLR0124
    is_whole = type(value) is int and kind.is_number and not kind.scale
    return Standing(value, equal=True) if is_whole and LEAST <= value <= MOST else None


def exact_value(kind: ColumnType, name: str, value: Any) -> Fraction | float | bytes:
    """The value in units of the stored numbers, exactly; an infinity or NaN as a float; text as bytes.

    Given values of one column order as these do. `name` is the column's, for errors. InputError for a value
    that cannot be compared with the column: text with a number, a number with a time.
    """
    value = plain(value)
    if not kind.is_number:
        found = kind.exact_of(value)
        if found is not None:
            return found
    is_number = isinstance(value, (int, float, Decimal, Fraction)) and not isinstance(value, bool)
    if not (kind.is_number and is_number):
        raise InputError(_cannot_compare(kind, name, value))
    if isinstance(value, (float, Decimal)) and is_nan(value):
        return math.nan
    if value in (math.inf, -math.inf):
        return float(value)
    unit: int = 10**kind.scale
    return (_far(value) if isinstance(value, Decimal) else Fraction(value)) * unit


def _far(value: Decimal) -> Fraction:
    """The decimal, or a shorter one if it is beyond all stored numbers, or between 0 and all others."""
    if value and abs(value.adjusted()) > _FAR:  # 1e999999999 has a billion digits
        return Fraction(Decimal((value.is_signed(), (1,), _FAR if value.adjusted() > 0 else -_FAR)))
    return Fraction(value)


def is_nan(number: float | Decimal) -> bool:
    """Whether a number is NaN; Python refuses to compare a signaling NaN of decimals."""
    return number.is_nan() if isinstance(number, Decimal) else math.isnan(number)


def _cannot_compare(kind: ColumnType, name: str, value: Any) -> str:
    problem = f"cannot compare {shortened(value)} with {name!r}, which is of type {kind.name}"
    if kind.unit_us is not None and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return (
            f"{problem}: a number does not say its unit. Give a date, a datetime, text such as "
            "'2001-03-31 22:27', or a number with its unit: numpy.datetime64(1704153600, 's')."
        )
    return f"{problem}. Give a value of that type."


def _floor_double(exact: Fraction) -> float:
    """The greatest double that is not above the number; -infinity below all finite ones."""
    try:
        near = float(exact)
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf  # copysign would overflow too
    if math.isinf(near):
        return sys.float_info.max if near > 0 else -math.inf
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
