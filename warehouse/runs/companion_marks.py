"""The row group `companions` of a run's marks: one row for each cell of each companion.

The column `file` has the companion's name, `content` the cell (companions/cells.py). The cells of a companion
ascend and share no tick, and together they stand for all rows of the run. There is one a tick, until these
have more than `declared.BUDGET` bytes; then one for several ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidemark.sketches import SketchError
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.companions.declared import Cells, Companions, cells_of_run
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.marks import COMPANIONS_GROUP, CONTENT_FIELD


def to_arrow(companions: Companions, parts: Sequence[Cells], totals: TickCounts) -> pa.Table:
    """The row group of a run with these rows; `parts` are the cells of its tasks, or of its inputs.

    DamagedWarehouse unless the cells stand for all rows.
    """
    cells = cells_of_run(companions, parts)
    for name, of_companion in cells.items():
        check_cells(name, of_companion, totals)
    rows = [(name, cell.to_bytes()) for name, of_companion in cells.items() for cell in of_companion]
    return pa.table(
        {
            "file": pa.array([name for name, _ in rows], pa.string()),
            CONTENT_FIELD.name: pa.array([content for _, content in rows], CONTENT_FIELD.type),
        }
    )


def from_file(file: SealedFile, totals: TickCounts) -> dict[str, list[Cell]]:
    """The cells of each companion in a marks file; `totals` are the run's rows by tick.

    DamagedWarehouse for damaged cells, and unless they stand for all rows.
    """
    stored = file.read(COMPANIONS_GROUP, columns=["file", CONTENT_FIELD.name])
    cells: dict[str, list[Cell]] = {}
    for name, content in zip(*(stored.column(i).to_pylist() for i in range(2)), strict=True):
        try:
            cells.setdefault(name, []).append(Cell.from_bytes(content))
        except SketchError as error:
            raise DamagedWarehouse(f"a cell of the companion {name!r} is damaged: {error}") from error
    for name, of_companion in cells.items():
        check_cells(name, of_companion, totals)
    return cells


def check_cells(name: str, cells: Sequence[Cell], totals: TickCounts) -> None:
    """DamagedWarehouse unless the cells ascend, share no tick, and stand for the rows of their ticks."""
    rows = totals.counts + totals.nans + totals.nulls
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])
    starts = totals.ticks.searchsorted([cell.first for cell in cells], "left")
    stops = totals.ticks.searchsorted([cell.last for cell in cells], "right")
    ascend = all(before.last < after.first for before, after in pairwise(cells))
    counted = (running[stops] - running[starts]).tolist()
    if not ascend or counted != [cell.rows for cell in cells] or sum(counted) != int(running[-1]):
        raise DamagedWarehouse(
            f"the cells of the companion {name!r} have {sum(cell.rows for cell in cells)} rows, the ticks of "
            f"the run {int(running[-1])}, or they are not of the same ticks."
        )
