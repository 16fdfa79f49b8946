"""Which rows leave: rows that fulfil a condition, rows in a range of times, or rows before a tick.

A condition is asked in tasks, and depends on the row alone. Rows that are found by the values of keys or
other columns are in row_values.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.option_table import CONDITIONS
from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import as_numpy, encode_values, epoch_micros, single_array
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.removals.value_ranges import EventTime
from tidemark.warehouse.settings.options import Options

Share: TypeAlias = Literal["all", "some", "none"]


class RowCondition(Protocol):
    """Selects rows. It travels to tasks, so it can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that it looks at, by their stored names."""

    @property
    def constants(self) -> tuple[str, ...]:
        """The texts and numbers in it, as text: a rejected record with one of them may be such a row."""
        return ()

    def share(self, stats: Mapping[str, Any]) -> Share:
        """Which share of a file's rows it selects, by the file's statistics; "some" if they do not tell."""

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Which of the rows it selects; a row for which it is NULL is not selected.

        `rows` have the columns of the condition in plain types. InputError if it fails on a row.
        """


@dataclass(frozen=True, slots=True)
class BeforeTick(RowCondition):
    """Selects the rows of ticks before `tick`; none without a time."""

    tick: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of ticks."""
        return ("_tick",)

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.mask`."""
        ticks = as_numpy(rows.column("_tick"))
        before: NDArray[np.bool_] = (ticks < self.tick) & (ticks != NO_TICK)
        return before

    def share(self, stats: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`."""
        first, last = stats.get("min._tick"), stats.get("max._tick")
        if first is None or last is None:
            return "some"
        if first >= self.tick or last == NO_TICK:
            return "none"
        return "all" if first > NO_TICK and last < self.tick else "some"


@dataclass(frozen=True, slots=True)
class TimeRange(RowCondition):
    """Selects the rows with a time from `start` on and before `stop`, in microseconds since 1970.

    None leaves a side open; a row without a time is not selected.
    """

    time: EventTime
    start: int | None
    stop: int | None

    @classmethod
    def of(cls, between: Any, time: EventTime | None) -> TimeRange:
        """By (start, end), the end exclusive. InputError if it is no such pair, or without a time column."""
        if time is None:
            raise InputError(
                "between was given, and there is no time column, so rows have no time. Leave it out."
            )
        edges = [plain(one) for one in between] if isinstance(between, (list, tuple)) else []
        if len(edges) != 2 or edges == [None, None]:
            raise InputError(
                f"between must be (start, end), the end exclusive, got {shortened(between)}. One of them "
                "may be None: that side is open."
            )
        start, stop = (None if one is None else first_us(one) for one in edges)
        if start is not None and stop is not None and start >= stop:
            raise InputError(f"between must be (start, end) with start before end, got {shortened(between)}.")
        return cls(time, start, stop)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of times."""
        return (self.time.column.name,)

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.mask`."""
        times = encode_values(self.time.column, single_array(rows.column(self.time.column.name)))
        us, inside = epoch_micros(self.time.column, times.stored), ~times.null
        if self.start is not None:
            inside &= us >= self.start
        if self.stop is not None:
            inside &= us < self.stop
        return inside

    def share(self, stats: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`: by ticks, so never "all"."""
        first, last = stats.get("min._tick"), stats.get("max._tick")
        grid = self.time.grid
        too_early = self.start is not None and last is not None and last < grid.tick_of(self.start)
        too_late = self.stop is not None and first is not None and first >= grid.next_start(self.stop)
        return "none" if too_early or too_late or last == NO_TICK else "some"


def given_conditions(
    options: Options, where: str | None, between: Any
) -> tuple[TimeRange | None, RowCondition | None]:
    """The conditions that a caller gives for the rows that may leave: a range of times, and text.

    InputError unless the text is one expression, as `wh.quantile(where=...)` takes it.
    """
    within = None if between is None else TimeRange.of(between, EventTime.of(options))
    if where is None:
        return within, None
    return within, cast(RowCondition, import_module(CONDITIONS).where_condition(where, dict(options.columns)))
