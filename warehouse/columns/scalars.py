"""One door for scalars of numpy, pandas, Polars and pyarrow: what a caller gives becomes a Python value.

A scalar is replaced by the equal int, float, bool, str, bytes, Decimal, Fraction, date, datetime, timedelta.
A time between two microseconds, which no datetime can be, becomes ISO text with all its digits. Polars gives
Python values itself. Lists, tuples and mappings keep their kind, arrays and series become lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.moments import exact_us
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.private.tokens import Token

_PYTHON = {str, int, float, bool, bytes, Token, Decimal, Fraction, date, datetime, timedelta, type(None)}
_COARSE = {"Y", "M", "W", "D"}  # units of numpy's times that are whole days


def plain(value: Any) -> Any:
    """The scalar as a Python value; any other value as it is.

    InputError for a missing time (NaT), a time outside the years 1 to 9999, and a duration that is not a
    whole number of microseconds.
    """
    if type(value) in _PYTHON:
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, pa.Scalar):
        value = _of_arrow(value)
    if isinstance(value, np.datetime64):
        return _moment(value)
    if isinstance(value, np.timedelta64):
        return _duration(value)
    if isinstance(value, np.longdouble):  # item() would leave it as it is
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (datetime, timedelta)) and hasattr(value, "asm8"):
        return _of_pandas(value)
    return None if type(value).__name__ == "NAType" else value  # pandas' NULL, which is no bool


def plain_share(value: Any) -> Any:
    """As `plain_all`, for shares: a float of 32 bits or fewer is the decimal that it prints as."""
    if str(getattr(value, "dtype", "")).lower() in {"float16", "float32"}:  # a series gives Python's floats
        value = np.asarray(value)[()]
    if isinstance(value, pa.Scalar) and value.is_valid and pa.types.is_float32(value.type):
        value = np.float32(value.as_py())
    if isinstance(value, np.floating) and value.dtype.itemsize < 8:
        return float(str(value))
    return [plain_share(item) for item in value] if is_sequence(value) else plain(value)


def plain_all(value: Any) -> Any:
    """The value with every scalar in it replaced: in lists, tuples, mappings, arrays and series."""
    if type(value) in _PYTHON:
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return value.tolist()
    if isinstance(value, Mapping):
        return {plain(name): plain_all(item) for name, item in value.items()}
    if isinstance(value, (tuple, set, frozenset)):
        return type(value)(map(plain_all, value))
    return [plain_all(item) for item in value] if is_sequence(value) else plain(value)


def take_scalars(arguments: Any) -> None:
    """Replaces the scalars in the fields of a frozen dataclass; for its `__post_init__`.

    A field that is a dataclass of arguments itself has done so already.
    """
    for name in arguments.__dataclass_fields__:
        given = getattr(arguments, name)
        if type(given) not in _PYTHON and not hasattr(given, "__dataclass_fields__"):
            object.__setattr__(arguments, name, plain_all(given))


def is_sequence(argument: Any) -> bool:
    """Whether the argument holds several values: it is iterable, and no text, bytes, scalar or mapping."""
    return (
        isinstance(argument, Iterable)
        and not isinstance(argument, (str, bytes, bytearray, memoryview, Mapping, pa.Scalar))
        and getattr(argument, "ndim", 1) > 0
    )


def _of_arrow(scalar: pa.Scalar) -> Any:
    """The value of an Arrow scalar; of a time or a duration numpy's, because Python's cuts nanoseconds."""
    if scalar.is_valid and pa.types.is_timestamp(scalar.type):
        return np.datetime64(scalar.value, scalar.type.unit)
    if scalar.is_valid and pa.types.is_duration(scalar.type):
        return np.timedelta64(scalar.value, scalar.type.unit)
    return scalar.as_py()


def _of_pandas(value: Any) -> Any:
    """A Timestamp keeps its time zone where a datetime can hold it; NaT is refused."""
    numpy: Any = value.asm8
    if isinstance(numpy, np.timedelta64):
        return _duration(numpy)
    if np.isnat(numpy):
        return _moment(numpy)
    return value.isoformat() if getattr(value, "nanosecond", 0) else value.to_pydatetime(warn=False)


def _moment(value: np.datetime64) -> Any:
    """A date for units of days and longer, a datetime without a zone where one is equal, else ISO text."""
    if np.isnat(value):
        raise InputError("not a time: NaT. Leave rows without a time out, or give a time.")
    if np.datetime_data(value.dtype)[0] in _COARSE:
        value = value.astype("datetime64[D]")
    text = str(value)
    us = exact_us(text)  # InputError outside the years 1 to 9999
    if "T" not in text:
        return datetime.fromisoformat(text).date()
    return value.astype("datetime64[us]").item() if us.denominator == 1 else text


def _duration(value: np.timedelta64) -> timedelta:
    unit, step = np.datetime_data(value.dtype)
    if np.isnat(value) or unit not in _UNIT_US:
        raise InputError(
            f"not a duration: {shortened(value)}. Expected one with a unit from microseconds to weeks."
        )
    us = int(value.astype(np.int64)) * step * _UNIT_US[unit]
    if us.denominator != 1:
        raise InputError(f"not a duration: {shortened(value)}. Expected a whole number of microseconds.")
    try:
        return timedelta(microseconds=math.floor(us))
    except OverflowError:
        raise InputError(f"not a duration: {shortened(value)}. Expected at most 285 years.") from None


_UNIT_US = {
    "W": Fraction(604_800_000_000),
    "D": Fraction(86_400_000_000),
    "h": Fraction(3_600_000_000),
    "m": Fraction(60_000_000),
    "s": Fraction(1_000_000),
    "ms": Fraction(1_000),
    "us": Fraction(1),
    "ns": Fraction(1, 1_000),
    "ps": Fraction(1, 1_000_000),
    "fs": Fraction(1, 1_000_000_000),
    "as": Fraction(1, 1_000_000_000_000),
}
