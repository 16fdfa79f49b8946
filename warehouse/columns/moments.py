"""Moments: texts and objects that are times, as exact numbers of microseconds since 1970 in UTC.

A moment may lie between two microseconds: text and the times of numpy and pandas have finer digits. So it is
a fraction, and the caller says how it stands between the stored ones (given_values.py). Nothing is rounded.
A number is no moment: whether 1704153600 are seconds, milliseconds or days nobody can tell.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

from tidemark.warehouse.errors import InputError, shortened

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# Python also reads 17010112310 as the year 1701: any character may separate its date and time.
_ISO = re.compile(r"(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-W\d{2}(-\d)?|\d{4}W\d{2}\d?)([ T]\d.*)?")
_FINE_DIGITS = re.compile(r"([.,]\d{6})(\d+)")  # Python drops the digits after the sixth
_FINE_ZONE = re.compile(r"[ T].*[+-][\d:]+[.,]")
_EXPECTED = "ISO 8601, such as '2001-03-31 22:27'"


def exact_us(moment: Any) -> Fraction:
    """Microseconds since 1970 in UTC of a datetime, a date (its midnight) or ISO text; naive times are UTC.

    Text may have any number of digits after the second. InputError for any other value, numbers too.
    """
    fine = None
    if isinstance(moment, str):
        moment, fine = _parsed(moment)
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if not isinstance(moment, datetime) or moment != moment:  # noqa: PLR0124  pandas' NaT is a datetime
        raise InputError(f"not a time: {shortened(moment)}. {_remedy(moment)}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole: int = (moment - EPOCH) // MICROSECOND
    return Fraction(whole) if fine is None else whole + fine


def first_us(moment: Any) -> int:
    """The first whole microsecond that is not before the moment; InputError as above.

    The rows of [start, end) are those from first_us(start) to first_us(end), the end exclusive.
    """
    return math.ceil(exact_us(moment))


def _parsed(text: str) -> tuple[datetime, Fraction | None]:
    """The time of ISO text to the microsecond, and what it has of the next one."""
    stripped = text.strip()
    digits = _FINE_DIGITS.search(stripped)
    try:
        if _ISO.fullmatch(stripped) is None or _FINE_ZONE.match(stripped, 8):
            raise ValueError  # noqa: TRY301
        found = datetime.fromisoformat(stripped)
    except ValueError:
        raise InputError(f"not a time: {shortened(text)}. Expected {_EXPECTED}.") from None
    return found, Fraction(int(digits[2]), 10 ** len(digits[2])) if digits else None


def _remedy(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            f"A number does not say its unit. Give a datetime, {_EXPECTED}, or one that names the unit: "
            "numpy.datetime64(1704153600, 's')."
        )
    return f"Expected a datetime, a date or {_EXPECTED}."
