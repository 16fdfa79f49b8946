"""Which rows leave: those of a condition in the language of scans, or those before a tick.

A condition is asked in tasks, of rows of history alone. It depends on the row alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.options import CONDITIONS
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import as_numpy

Share: TypeAlias = Literal["all", "some", "none"]
_TICK = "_tick"


class RowCondition(Protocol):
    """Selects rows. It travels to tasks, so it can be pickled."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that it looks at, by their stored names."""

    @property
    def constants(self) -> tuple[str, ...]:
        """The texts and numbers in it, as text: a record that has one may be of a row that it selects."""

    def share(self, stats: Mapping[str, Any]) -> Share:
        """Which share of the rows of a file it selects, by its statistics; "some" if they do not tell."""

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Which of the rows it selects; a row for which it is NULL is not selected.

        `rows` have its columns in plain types. InputError if it cannot be evaluated on one of them.
        """


@dataclass(frozen=True, slots=True)
class BeforeTick:
    """Selects the rows of ticks before `tick`; none without a time."""

    tick: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of ticks."""
        return (_TICK,)

    @property
    def constants(self) -> tuple[str, ...]:
        """None: rows that expire are not purged by it."""
        return ()

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.mask`."""
        ticks = as_numpy(rows.column(_TICK))
        before: NDArray[np.bool_] = (ticks < self.tick) & (ticks != NO_TICK)
        return before

    def share(self, stats: Mapping[str, Any]) -> Share:
        """See `RowCondition.share`."""
        first, last = stats.get(f"min.{_TICK}"), stats.get(f"max.{_TICK}")
        if first is None or last is None:
            return "some"
        if first >= self.tick or last == NO_TICK:
            return "none"
        return "all" if first > NO_TICK and last < self.tick else "some"


def condition_of(where: str, columns: Mapping[str, str]) -> RowCondition:
    """The condition that the text is, over columns, which are Delta's types by name.

    InputError unless it is one expression, as `wh.quantile(where=...)` takes it.
    """
    return cast(RowCondition, import_module(CONDITIONS).where_condition(where, columns))
