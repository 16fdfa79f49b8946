"""Which files of `events` may have a row that equals a given one, by their statistics alone.

Model. Of each column with exact statistics the distinct given values are sorted, and each given row has the
place of its value among them. The least and the greatest value of a file are two places, so the given rows
whose value lies between them, both inclusive, are found by comparing integers. A file may have an equal row
if some given row lies within the range of every column; otherwise it is not read.

Columns of integers, doubles and text have such statistics. Those of the event times have milliseconds alone,
so the statistics of `_tick` are used instead. NULL and NaN are in no statistics: they count as within every
range.

Cost: O(k) for each file and column, with k given rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.ticks import TickGrid
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.ingest.event_files import event_ticks
from tidemark.warehouse.settings.options import Options

_TICK = "_tick"
_ANY = -1  # the place of a value that lies within every range


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column of event times, and its ticks."""

    column: Measure
    grid: TickGrid

    @classmethod
    def of(cls, options: Options) -> EventTime | None:
        """The event time of the warehouse; None without one."""
        time, grid = options.time_column, options.grid
        return None if time is None or grid is None else cls(time, grid)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRanges:
    """The values of the given rows in one column.

    name     the column's name in the statistics
    values   its distinct values, ascending; text as its bytes
    places   for each given row the place of its value; _ANY if it lies within every range
    """

    name: str
    values: Sequence[Any]
    places: NDArray[np.int64]

    def within(self, stats: Mapping[str, Any]) -> NDArray[np.bool_] | None:
        """Which of the given rows lie between the bounds of a file; None if it has no bounds."""
        low, high = (stats.get(f"{end}.{self.name}") for end in ("min", "max"))
        if low is None and high is None:
            return None
        first = 0 if low is None else bisect_left(self.values, _plain(low))
        stop = len(self.values) if high is None else bisect_right(self.values, _plain(high))
        inside: NDArray[np.bool_] = (self.places >= first) & (self.places < stop)
        inside |= self.places == _ANY
        return inside


def ranges_of(rows: pa.RecordBatch, time: EventTime | None) -> tuple[ColumnRanges, ...]:
    """The ranges of the columns of given rows that have exact statistics."""
    found = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if time is not None and field.name == time.column.name:
            found.append(_places(_TICK, event_ticks(time.column, time.grid, column).tolist()))
        elif "." in field.name:  # statistics of a field in a struct have such a name
            continue
        elif pa.types.is_string(field.type):
            found.append(_places(field.name, column.cast(pa.binary()).to_pylist()))
        elif pa.types.is_integer(field.type) or pa.types.is_float64(field.type):
            found.append(_places(field.name, column.to_pylist()))
    return tuple(found)


def may_hold(columns: Sequence[ColumnRanges], rows: int, stats: Mapping[str, Any]) -> bool:
    """Whether a file with these statistics may have a row that equals one of the `rows` given ones."""
    left = np.ones(rows, np.bool_)
    for column in columns:
        inside = column.within(stats)
        if inside is not None:
            left &= inside
    return bool(left.any())


def _places(name: str, given: Sequence[Any]) -> ColumnRanges:
    known = sorted({one for one in given if one is not None and one == one})  # noqa: PLR0124  NaN
    place = {value: i for i, value in enumerate(known)}
    places = np.fromiter((place.get(one, _ANY) for one in given), np.int64, len(given))
    return ColumnRanges(name, known, places)


def _plain(bound: Any) -> Any:
    return bound.encode("utf-8", "surrogatepass") if isinstance(bound, str) else bound
