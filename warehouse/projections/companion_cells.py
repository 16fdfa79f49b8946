"""The projection of companions: no sorted rows, only the cells of a run's rows.

The projection is like that of a measure whose values are all NULL: a run stores no row, and its marks have
the numbers of rows by tick. The marks also have the row group ``companions`` with the cells
(runs/companion_marks.py). So loads, merges and verify treat companions as any other projection, and need no
measure for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.companions.declared import Cells, Companion, Companions
from tidemark.warehouse.delta.table_names import COMPANION_MARKS, COMPANIONS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.runs import companion_marks
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import MarksFile
from tidemark.warehouse.runs.projection import NO_COMPANIONS


@dataclass(frozen=True, slots=True)
class CellMarks(ValueMarks):
    """The marks of one run."""

    def cells(self) -> Cells:
        """The cells of each companion by name, ascending by tick; read on every call."""
        with self.source.open() as file:
            return companion_marks.from_file(file, self.totals)

    def cells_of(self, companion: Companion) -> Sequence[Cell]:
        """The cells of a companion; DamagedWarehouse unless they stand for all rows and are of its kind."""
        with self.source.open() as file:
            cells = companion_marks.from_file(file, self.totals).get(companion.name, ())
            if not cells and self.totals.rows:
                raise DamagedWarehouse(f"it has no cells of the companion {companion.name!r}")
            if any(cell.kind != companion.kind for cell in cells):
                raise DamagedWarehouse(
                    f"cells of the companion {companion.name!r} are not of its kind {companion.kind!r}"
                )
        return cells


@dataclass(frozen=True, slots=True)
class CompanionCells(SortedValues):
    """The cells of all companions of a warehouse."""

    measure: Measure = field(default=Measure("companions", "double"))
    companions: Companions = NO_COMPANIONS

    runs_table = COMPANIONS
    marks_table = COMPANION_MARKS
    columns = ()

    def decode(self, events: pa.Table) -> tuple[ValueRows, TickCounts]:
        """No rows; and all rows by tick, as those without a value."""
        ticks = as_numpy(events.column("_tick"))
        return ValueRows(np.empty(0), ticks[:0]), count_by_tick(ticks, np.ones(len(ticks), bool))

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> CellMarks:
        """Reads the marks."""
        return CellMarks.read(self._mark_columns, run, file, source)
