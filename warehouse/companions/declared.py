"""The companions of a warehouse: which column each summarises, with which kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import (
    Measure,
    as_numpy,
    encode_values,
    epoch_micros,
    single_array,
)
from tidemark.warehouse.companions.cells import Cell, fit_cells, join_by_tick, join_cells, summarise
from tidemark.warehouse.companions.kinds import (
    CompanionKind,
    is_registered,
    kind_named,
    register_companion,
)
from tidemark.warehouse.errors import InputError, shortened

BUDGET = 2**20  # bytes of the cells of one companion in the marks of one run
_PARTS = 32  # cells of a tick that wait to be joined

Cells = Mapping[str, Sequence[Cell]]  # by the companion's name


@dataclass(frozen=True, slots=True)
class Companion:
    """The summary called `name`: of `column`, of the kind with the name `kind`."""

    name: str
    kind: str
    column: str


@dataclass(frozen=True, slots=True)
class Companions:
    """All companions of a warehouse, and its time column (None without one).

    `kinds` are the registered kinds. They travel with the object to Spark's tasks, which call `register`.
    """

    declared: tuple[Companion, ...] = ()
    time: Measure | None = None
    kinds: tuple[CompanionKind[Any], ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, declared: Sequence[Companion], time: Measure | None) -> Companions:
        """The companions with the kinds that this process has registered."""
        names = dict.fromkeys(companion.kind for companion in declared)
        return cls(tuple(declared), time, tuple(kind_named(name) for name in names if is_registered(name)))

    def __bool__(self) -> bool:
        return bool(self.declared)

    def register(self) -> None:
        """Registers the kinds that came with this object, in a task; they replace those of earlier tasks."""
        for kind in self.kinds:
            register_companion(kind)

    def known_kinds(self) -> dict[str, CompanionKind[Any]]:
        """The kinds, by what an error calls them; InputError if one is not registered in this process."""
        found = (kind_named(companion.kind) for companion in self.declared)
        return {f"the kind of companions {kind.name!r}": kind for kind in found}

    def named(self, name: str) -> Companion:
        """The companion with this name; InputError if there is none."""
        for companion in self.declared:
            if companion.name == name:
                return companion
        names = ", ".join(companion.name for companion in self.declared)
        expected = f"Declared: {names}" if names else "None was declared at creation"
        raise InputError(f"no companion {shortened(name)} here. {expected}.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `events` that `summarise` reads, without the tick."""
        if not self.declared:
            return ()
        time = [self.time.name] if self.time else []
        return tuple(dict.fromkeys([*(companion.column for companion in self.declared), *time]))

    def rows_of(self, events: pa.Table) -> tuple[pa.Array, ...]:
        """The column of each companion, of rows of `events`, in plain types."""
        columns = [events.column(companion.column) for companion in self.declared]
        names = [str(place) for place in range(len(columns))]
        plain = with_plain_types(pa.Table.from_arrays(columns, names=names)) if columns else events
        return tuple(single_array(plain.column(name)) for name in names)

    def times_of(self, events: pa.Table) -> NDArray[np.int64]:
        """The time of each row of `events` in microseconds, NO_TICK for one without."""
        if self.time is None:
            return np.full(events.num_rows, NO_TICK)
        column = encode_values(self.time, single_array(events.column(self.time.name)))
        return np.where(column.null, NO_TICK, epoch_micros(self.time, column.stored))

    def summarise(self, tick: int, columns: Sequence[pa.Array], times: NDArray[np.int64]) -> dict[str, Cell]:
        """The cell of each companion of rows of one tick; `columns` are those of `rows_of`."""
        return {
            companion.name: summarise(companion.kind, tick, column, times)
            for companion, column in zip(self.declared, columns, strict=True)
        }

    def cells_of(self, events: pa.Table) -> dict[str, list[Cell]]:
        """The cells of rows of `events`, with `columns` and `_tick`: one a companion and tick, ascending."""
        ticks, columns, times = as_numpy(events.column("_tick")), self.rows_of(events), self.times_of(events)
        order = np.argsort(ticks, kind="stable")
        unique, starts = np.unique(ticks[order], return_index=True)
        cells: dict[str, list[Cell]] = {companion.name: [] for companion in self.declared}
        for tick, rows in zip(unique.tolist(), np.split(order, starts[1:]), strict=True):
            taken = [column.take(pa.array(rows)) for column in columns]
            for name, cell in self.summarise(tick, taken, times[rows]).items():
                cells[name].append(cell)
        return cells


class CellCollector:
    """Collects the cells of rows that are added in pieces. It holds fewer than `_PARTS` cells a tick."""

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        self._parts: dict[tuple[str, int], list[Cell]] = {}

    def add(self, events: pa.Table) -> None:
        """Adds rows of `events`, with `Companions.columns` and `_tick`."""
        for name, cells in self._companions.cells_of(events).items():
            for cell in cells:
                parts = self._parts.setdefault((name, cell.first), [])
                parts.append(cell)
                if len(parts) == _PARTS:
                    parts[:] = [join_cells(parts)]

    def finish(self) -> dict[str, list[Cell]]:
        """The cells of all rows added: one a companion and tick."""
        found: dict[str, list[Cell]] = {companion.name: [] for companion in self._companions.declared}
        for (name, _), parts in sorted(self._parts.items()):
            found[name].append(join_cells(parts))
        return found


def cells_of_run(companions: Companions, parts: Sequence[Cells]) -> dict[str, list[Cell]]:
    """The cells of a run from those of its parts: cells that share ticks are joined, and BUDGET is kept."""
    return {
        companion.name: fit_cells(
            join_by_tick(cell for part in parts for cell in part.get(companion.name, ())), BUDGET
        )
        for companion in companions.declared
    }
