"""The projection of companions: no sorted rows, only the cells of a run's rows.

A run stores no row: all rows of its steps count as left out. Its marks have their numbers by tick, as those
of a measure without values have, and the row group ``companions`` with the cells (runs/companion_cells.py).
So loads, merges and verify treat companions as any other projection, and need no measure for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import DecodedColumn, as_numpy
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.companions.declared import Cells, Companions
from tidemark.warehouse.delta.table_names import COMPANION_MARKS, COMPANIONS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.digests import ColumnsByName
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.projections import span_marks
from tidemark.warehouse.projections.span_marks import (
    SpanMarkChecker,
    SpanMarkCollector,
    SpanMarks,
    span_mark_collector,
)
from tidemark.warehouse.runs import companion_cells
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.projection import (
    MarkedFile,
    Projection,
    ReopenMarks,
    RunSpec,
    SortColumns,
    SortKey,
)
from tidemark.warehouse.sizes import DEFAULT


@dataclass(frozen=True, slots=True)
class NoRows:
    """No rows, of no columns."""

    ticks: NDArray[np.int64]
    nbytes: int = 0

    def __len__(self) -> int:
        return 0

    def part(self, start: int, stop: int) -> NoRows:  # noqa: ARG002
        """No rows."""
        return self

    def sort_key(self, i: int) -> SortKey:  # noqa: ARG002
        """Of none."""
        return ()

    def sort_columns(self, rows: NDArray[Any]) -> SortColumns:  # noqa: ARG002
        """None."""
        return ()


_NO_ROWS = NoRows(np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class CellMarks(SpanMarks):
    """The marks of one run. `cells` reads the cells of each companion by name, ascending by tick."""

    cells: Callable[[], Cells] = dict

    def cells_of(self, companion: str) -> Sequence[Cell]:
        """The cells of the companion with this name, which stand for all rows; else DamagedWarehouse."""
        cells = self.cells().get(companion, ())
        if not cells and self.totals.rows:
            raise DamagedWarehouse(f"run {self.run.name} has no cells of the companion {companion!r}")
        return cells


@dataclass(frozen=True, slots=True)
class CompanionCells(Projection[NoRows]):
    """The cells of all companions of a warehouse."""

    companions: Companions

    name = "companions"
    title = "companions"
    type = "binary"
    runs_table = COMPANIONS
    marks_table = COMPANION_MARKS
    runs_schema = pa.schema([("tick", pa.int64()), ("run", pa.string())])
    marks_schema = span_marks.schema(())
    order = ()
    merges_equal = False
    min_block_cost = 0
    columns = ()
    texts = ()
    dictionaries = ()
    encoding = MappingProxyType[str, Any]({})

    def decode(self, events: pa.Table) -> tuple[NoRows, TickCounts]:
        """No rows; and all rows by tick, as left out."""
        ticks = as_numpy(events.column("_tick"))
        left_out = np.ones(len(ticks), bool)
        return _NO_ROWS, count_by_tick(ticks, DecodedColumn(ticks, ~left_out, left_out))

    def sorted_bytes(self, rows: int, ticks: int) -> int:  # noqa: ARG002
        """None."""
        return 0

    def sort(self, parts: Sequence[NoRows]) -> NoRows:  # noqa: ARG002
        """No rows."""
        return _NO_ROWS

    def merge(self, parts: Sequence[NoRows]) -> NoRows:  # noqa: ARG002
        """No rows."""
        return _NO_ROWS

    def blocks(
        self,
        pieces: Iterator[NoRows],  # noqa: ARG002
        run_spec: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[NoRows, list[int]]]:
        """No blocks."""
        return iter(())

    def to_stored(self, rows: NoRows) -> pa.Table:
        """The column `tick`, without rows."""
        return pa.table({"tick": rows.ticks})

    def from_stored(self, stored: ColumnsByName) -> list[NoRows]:  # noqa: ARG002
        """No rows."""
        return []

    def collector(self, run_spec: RunSpec | None) -> SpanMarkCollector:
        """Collects no marks."""
        return span_mark_collector(_NO_ROWS, DEFAULT, run_spec, lambda _ends, _ticks: {"nullCount": {}})

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        """The header; the engine adds the cells."""
        return span_marks.to_arrow((), files, totals)

    def read_marks(self, run: Run, file: SealedFile, reopen_marks: ReopenMarks) -> CellMarks:
        """Reads the marks; their `cells` reads the cells on demand."""

        def read_cells() -> Cells:
            cells: Cells = reopen_marks(lambda reopened: companion_cells.from_file(reopened, marks.totals))
            return cells

        marks = span_marks.read(SpanMarks, (), run, file, reopen_marks)
        none = marks.positions, marks.sort_keys
        return CellMarks(run, marks.files, marks.rows, *none, marks.totals, marks.spans, read_cells)

    def ascends(self, rows: NoRows) -> bool:  # noqa: ARG002
        """No rows ascend."""
        return True

    def checker(self, marks: SpanMarks) -> SpanMarkChecker:
        """Returns a checker of no rows."""
        return SpanMarkChecker(marks)

    def digest(self, rows: NoRows) -> int:  # noqa: ARG002
        """That of no rows."""
        return 0
