"""Measures: columns with an order, how runs store them, and how answers get the column's own type back.

A measure is stored as DOUBLE (float, double) or as BIGINT (integers; dates as days and timestamps as
microseconds since 1970; decimals of up to 18 digits as unscaled integers). What is particular to a type is in
column_types.py.

A BIGINT measure never passes through a double, so 2**53 + 1 stays exact. NULL and NaN are counted, not
stored. -0.0 is stored as 0.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.column_types import (
    MEASURE_DIGITS,
    ColumnType,
    column_type,
    find_column_type,
    measure_type_names,
    type_text,
)
from tidemark.warehouse.columns.given_values import Standing, exact_value, standing, usual_standing
from tidemark.warehouse.errors import InputError


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: the column's name, and its type by Delta's name (`integer`, `decimal(10,2)` ...).

    `stored` is its stored name if that is another one (column_names.py); it names tables.

    InputError for a type that has no exact order as DOUBLE or BIGINT.
    """

    name: str
    type: str
    stored: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        kind = find_column_type(self.type)
        if kind is not None and kind.is_measure:
            return
        if kind is not None and kind.is_decimal:
            remedies = [f"decimal({MEASURE_DIGITS},{kind.scale})", *(["int64"] if not kind.scale else [])]
            raise InputError(
                f"measure {self.name!r} is {type_text(self.type)}: at most {MEASURE_DIGITS} digits can be "
                f"kept exactly. Cast it to {', to '.join(remedies)} or to double."
            )
        raise InputError(
            f"measure {self.name!r} is of type {self.type}, which has no ranks here. "
            f"Expected one of: {measure_type_names()}."
        )

    @property
    def stored_name(self) -> str:
        """Its stored name."""
        return self.stored or self.name

    @property
    def column_type(self) -> ColumnType:
        """Its entry in the table of column types."""
        return column_type(self.type)

    @property
    def is_double(self) -> bool:
        """Whether runs store it as DOUBLE; otherwise as BIGINT."""
        return self.column_type.is_double

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of stored values: float64 or int64."""
        return np.dtype(np.float64 if self.is_double else np.int64)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of stored values."""
        return self.column_type.storage.value

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest stored value that is accepted; None if every value of the type is."""
        limits = self.column_type.limits
        return None if limits is None else (limits.least, limits.greatest)

    def decode(self, stored: Any) -> Any:
        """A stored value in the column's own type: int, float, Decimal, date, datetime (UTC).

        A time or date outside the years 1 to 9999 becomes the nearest one inside.
        """
        return self.column_type.decode(stored)

    def floor(self, point: Any) -> float | int | None:
        """The greatest storable number <= `point`; None if `point` lies below all of them.

        For any data of this measure ``rank_le(point) == rank_le(floor(point))``. InputError as `standing`.
        """
        floor: float | int | None = self.standing(point).at
        return floor

    def standing(self, point: Any) -> Standing:
        """How a point stands between the stored numbers: given_values.py. InputError for NaN, too."""
        kind = self.column_type
        return usual_standing(kind, point) or standing(kind, self.exact(point))

    def exact(self, point: Any) -> Fraction | float:
        """The point in units of the stored numbers; points order as these do. InputError as `standing`."""
        found = exact_value(self.column_type, self.name, point)
        if isinstance(found, bytes) or (isinstance(found, float) and math.isnan(found)):
            raise InputError(
                f"NaN has no rank. Ask for a number, or for the NaN count (measure {self.name!r})."
            )
        return found


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A column as stored numbers: `stored` (rows,) is undefined where `nan` or `null` is set."""

    stored: NDArray[Any]
    nan: NDArray[np.bool_]
    null: NDArray[np.bool_]


def encode_values(measure: Measure, array: pa.Array) -> DecodedColumn:
    """An Arrow array of the measure's own type as stored numbers, with masks of NaN and NULL."""
    return encode_column(measure.column_type, array)


def encode_column(kind: ColumnType, array: pa.Array) -> DecodedColumn:
    """An Arrow array as stored numbers, see `stored_numbers`, with masks of NaN and NULL."""
    stored = stored_numbers(kind, array)
    nan = np.isnan(stored) if kind.is_double else np.zeros(len(array), dtype=bool)
    null = as_numpy_bools(array.is_null()) if array.null_count else np.zeros(len(array), dtype=bool)
    return DecodedColumn(stored, nan, null)


def stored_numbers(kind: ColumnType, array: pa.Array) -> NDArray[Any]:
    """The numbers as which an Arrow array is stored; undefined where it is NULL.

    It may be of a narrower type that widens to this one, or of Arrow's type null.
    """
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.float64 if kind.is_double else np.int64)
    return kind.encode(array)


def epoch_micros(time: Measure, stored: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stored numbers of a column of event times in microseconds since 1970.

    Dates outside the limits become the nearest one inside: their microseconds may not fit into 64 bits.
    """
    unit_us, bounds = time.column_type.unit_us, time.bounds
    if unit_us is None or unit_us == 1 or bounds is None:
        return stored
    return np.clip(stored, *bounds) * unit_us


def greatest_micros(time: Measure, array: pa.Array, initial: int) -> int:
    """The latest of an array of event times and `initial`, in microseconds since 1970; NULL is left out."""
    times = encode_values(time, array)
    return int(epoch_micros(time, times.stored)[~times.null].max(initial=initial))


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column without NULL as a read-only numpy array, without a copy if it has one chunk.

    to_numpy would import pandas, which takes half a second and 40 MB and is not needed here.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.from_dlpack(column)


def single_array(column: pa.ChunkedArray) -> pa.Array:
    """The chunks of the column, which may have none, as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_numpy_bools(column: pa.Array) -> NDArray[np.bool_]:
    """A column of booleans without NULL as a numpy array."""
    if not len(column):
        return np.empty(0, bool)
    first, skipped = divmod(column.offset, 8)  # bytes before the column, and bits in its first byte
    count = skipped + len(column)
    packed = np.frombuffer(column.buffers()[1], np.uint8, -(-count // 8), first)
    return np.unpackbits(packed, count=count, bitorder="little")[skipped:].view(bool)
