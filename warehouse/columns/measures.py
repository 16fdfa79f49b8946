"""Measures: numeric columns, how they are stored in runs, and how answers get their own type back.

A measure is stored as DOUBLE (float, double) or as BIGINT (integers; dates as days, timestamps
as microseconds, decimals of up to 18 digits as scaled integers). A BIGINT measure never passes
through a double, so 2**53 + 1 stays what it is. NULL and NaN are counted, never stored; -0.0 is
stored as 0.0.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.ticks import DAY_US, FIRST_US, LAST_US, epoch_us, from_epoch_us
from tidemark.warehouse.errors import InputError

_INTEGERS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_TIMES = {"date": (FIRST_US // DAY_US, LAST_US // DAY_US), "timestamp": (FIRST_US, LAST_US)}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
KNOWN_TYPES = "byte, short, integer, long, float, double, decimal (up to 18 digits), date, timestamp"


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: the column's name and its type by Delta's name (`integer`, `decimal(10,2)` ...)."""

    name: str
    type: str

    def __post_init__(self) -> None:
        found = _DECIMAL.fullmatch(self.type)
        if found and int(found[1]) > 18:
            raise InputError(
                f"measure {self.name!r} is {self.type}: at most 18 digits can be kept exactly. "
                f"Cast it to decimal(18,{found[2]}) or to double."
            )
        if not found and self.type not in {*_INTEGERS, "float", "double", "date", "timestamp"}:
            raise InputError(
                f"measure {self.name!r} is of type {self.type}, which has no ranks here. "
                f"Expected one of: {KNOWN_TYPES}."
            )

    @property
    def is_double(self) -> bool:
        """Whether runs store it as DOUBLE; otherwise as BIGINT."""
        return self.type in {"float", "double"}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of stored values: float64 or int64."""
        return np.dtype(np.float64 if self.is_double else np.int64)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of stored values."""
        return pa.float64() if self.is_double else pa.int64()

    @property
    def _scale(self) -> int:
        found = _DECIMAL.fullmatch(self.type)
        return int(found[2]) if found else 0

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest stored value that is taken, where not every one of the type is."""
        return _TIMES.get(self.type)

    def decode(self, stored: Any) -> Any:
        """A stored value in the column's own type: int, float, Decimal, date, datetime (UTC).

        A time or date outside the years 1 to 9999 is the nearest inside.
        """
        if self.is_double:
            return float(stored)
        number = int(stored)
        if self.type == "date":
            return from_epoch_us(number * DAY_US).date()
        if self.type == "timestamp":
            return from_epoch_us(number)
        if self.type.startswith("decimal"):
            return Decimal(number).scaleb(-self._scale)
        return number

    def floor(self, point: Any) -> float | int | None:
        """The greatest storable number <= `point`; None where `point` lies below all of them.

        For any data of this measure ``rank_le(point) == rank_le(floor(point))``. `point` is a
        number, or a date, datetime or ISO text where the measure is a date or a timestamp.
        """
        exact = self._exact(point)
        if isinstance(exact, float):  # an infinity
            if self.is_double:
                return exact
            return 2**63 - 1 if exact > 0 else None
        if self.is_double:
            return _floor_double(exact)
        scaled = math.floor(exact * Fraction(10) ** self._scale)
        return None if scaled < -(2**63) else min(scaled, 2**63 - 1)

    def _exact(self, point: Any) -> Fraction | float:
        if isinstance(point, (np.integer, np.floating)):
            point = point.item()
        if self.type == "timestamp" and isinstance(point, (str, date, datetime)):
            return Fraction(epoch_us(point))
        if self.type == "date" and isinstance(point, (str, date, datetime)):
            return Fraction(epoch_us(point) // DAY_US)
        if isinstance(point, bool) or not isinstance(point, (int, float, Decimal, Fraction)):
            raise InputError(f"cannot compare {point!r} with {self.name!r}, which is of type {self.type}.")
        if isinstance(point, (float, Decimal)) and math.isnan(point):
            raise InputError(
                f"NaN has no rank. Ask for a number, or for the NaN count (measure {self.name!r})."
            )
        return float(point) if point in (math.inf, -math.inf) else Fraction(point)


def _floor_double(exact: Fraction) -> float:
    try:
        near = float(exact)
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf  # copysign would overflow too
    if math.isinf(near):
        return sys.float_info.max if near > 0 else -math.inf
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A decoded column: `stored` (rows,) with undefined content where `nan` or `null` is set."""

    stored: NDArray[Any]
    nan: NDArray[np.bool_]
    null: NDArray[np.bool_]


def encode_values(measure: Measure, array: pa.Array) -> DecodedColumn:
    """An Arrow array of the measure's own type as stored numbers, with NaN and NULL apart."""
    null = as_numpy_bools(array.is_null())
    if measure.is_double:
        floats = as_numpy(pc.fill_null(array.cast(pa.float64()), 0.0))
        return DecodedColumn(floats + 0.0, np.isnan(floats), null)
    no_nan = np.zeros(len(array), dtype=bool)
    if pa.types.is_decimal(array.type):
        return DecodedColumn(_unscaled(array), no_nan, null)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64())
    elif pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    integers = as_numpy(pc.fill_null(array.cast(pa.int64()), 0))
    return DecodedColumn(integers, no_nan, null)


def epoch_micros(time: Measure, stored: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stored numbers of a timestamp or date column in microseconds since 1970.

    Dates that are not taken are the nearest that is: their microseconds need not fit into 64 bits.
    """
    return np.clip(stored, *_TIMES["date"]) * DAY_US if time.type == "date" else stored


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column without NULL as it lies in memory, read-only.

    Not by to_numpy: it imports pandas, half a second and 40 MB of a reader that needs none.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.from_dlpack(column)


def single_array(column: pa.ChunkedArray) -> pa.Array:
    """The column's chunks as one."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def as_numpy_bools(column: pa.Array) -> NDArray[np.bool_]:
    """A column of booleans without NULL."""
    return np.from_dlpack(column.cast(pa.uint8())).astype(bool)


def _unscaled(array: pa.Array) -> NDArray[np.int64]:
    """The unscaled integers of decimals with at most 18 digits: the low word of each 128-bit value."""
    wide = array.cast(pa.decimal128(38, array.type.scale))
    words = np.frombuffer(wide.buffers()[1], dtype=np.int64)
    low = words[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2].copy()
    low[as_numpy_bools(wide.is_null())] = 0
    return low
