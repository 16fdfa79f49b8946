"""The arguments of a question about its window: `last`, with or without `as_of`, or `between`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import (
    TickGrid,
    end_from_epoch_us,
    from_epoch_us,
    parse_duration,
    window_last,
)
from tidemark.warehouse.errors import InputError, shortened


@dataclass(frozen=True, slots=True)
class AskedWindow:
    """The arguments as the caller gave them, with scalars as Python values. Without arguments: all rows.

    last: a duration such as "7d", back from the newest tick that has rows and is not later than now.
    between: (start, end), the end exclusive, None for an open side.
    as_of: `last` counts back from this moment (exclusive).

    If the warehouse has no time column, `last` is a number of steps, and `as_of` the number of a step.
    """

    last: Any = None
    between: Any = None
    as_of: Any = None

    def __post_init__(self) -> None:
        take_scalars(self)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AskedWindow:
        """The window of a call with these keyword arguments."""
        return cls(options.get("last"), options.get("between"), options.get("as_of"))

    @property
    def text(self) -> str:
        """The arguments as answers name them."""
        if self.last is None:
            return "between"
        as_of = "" if self.as_of is None else f", as_of={shortened(str(self.as_of))}"
        return f"last={shortened(str(self.last))}{as_of}"

    def resolved(self, grid: TickGrid | None) -> AskedWindow:
        """The same window without `as_of`: last=L, as_of=T is between=(T - L, T).

        grid: how time is cut into ticks; None without a time column.

        InputError for arguments that exclude each other, or an `as_of` that is not a moment.
        """
        if self.last is not None and self.between is not None:
            raise InputError(
                f"last={shortened(self.last)} and between={shortened(self.between)} exclude each other. Give "
                "one of them."
            )
        if self.as_of is None:
            return self
        if self.last is None:
            raise InputError(
                f"as_of={shortened(self.as_of)} is the moment that last counts back from. Give last, too, "
                f"such as last={'7d' if grid else 7!r}."
            )
        if grid is None:
            if isinstance(self.as_of, bool) or not isinstance(self.as_of, int):
                raise InputError(
                    "this warehouse has no time column: as_of= is the number of a step, got "
                    f"{shortened(self.as_of)}."
                )
            steps = window_last(self.last, self.as_of - 1, grid)
            return AskedWindow(between=(steps.start, steps.stop))
        end = first_us(self.as_of)
        return AskedWindow(between=(from_epoch_us(end - parse_duration(self.last)), end_from_epoch_us(end)))


def checked_width(width: Any, every: Any) -> Any:
    """The width of the parts of `every`, if one is given; InputError for one without `every`."""
    if width is not None and every is None:
        raise InputError(
            f"width={shortened(width)} was given without every. With both, a window of that width begins at "
            "each multiple of every: every='1h', width='24h'."
        )
    return width
