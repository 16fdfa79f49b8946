"""Cells: the summary of a companion for the rows of one tick, or of a range of ticks.

A cell is stored in an envelope (sketches/encoding/envelope.py) of kind b"CMPN", version 1:

    offset  bytes  field (offsets inside the payload; add 20 for the stored bytes)
    0       8      the first tick, signed
    8       8      the last tick, inclusive, signed
    16      8      rows: the number of rows of `events` that the cell stands for
    24      8      nulls: how many of them have NULL in the column
    32      1      the length of the kind's name
    33      ...    the kind's name, ASCII
    ...            the summary, as the kind's `to_bytes` made it; empty if all rows are NULL

All numbers are little endian. A cell keeps the summary as bytes, so reading, moving and counting cells needs
no kind; only making, joining and opening summaries does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, corrupt, unwrap, wrap
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.companions.kinds import CompanionKind, kind_named
from tidemark.warehouse.errors import DamagedWarehouse, InputError

CELL_KIND, CELL_VERSION = b"CMPN", 1
_HEAD = struct.Struct("<qqQQB")
_MOST_SHIFT = 63  # then there are two blocks: before and after tick 0


@dataclass(frozen=True, slots=True)
class Cell:
    """The summary, as bytes, of the rows of the ticks first..last (inclusive).

    `rows` rows of `events`, `nulls` of them with NULL, which the summary leaves out. `data` is empty if all
    rows are NULL.
    """

    kind: str
    first: int
    last: int
    rows: int
    nulls: int
    data: bytes

    @property
    def nbytes(self) -> int:
        """The memory of the cell."""
        return 100 + len(self.data)

    def to_bytes(self) -> bytes:
        """The stored form, see the module."""
        name = self.kind.encode()
        head = _HEAD.pack(self.first, self.last, self.rows, self.nulls, len(name))
        return wrap(CELL_KIND, CELL_VERSION, head + name + self.data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Cell:
        """The cell of stored bytes; CorruptSketch for damaged ones."""
        _, payload = unwrap(CELL_KIND, data, newest=CELL_VERSION)
        if len(payload) < _HEAD.size:
            raise corrupt(
                PAYLOAD_OFFSET, f"got a payload of {len(payload)} bytes, expected {_HEAD.size} or more"
            )
        first, last, rows, nulls, length = _HEAD.unpack_from(payload)
        name, summary = payload[_HEAD.size : _HEAD.size + length], payload[_HEAD.size + length :]
        if len(name) < length or not name.isascii() or first > last or nulls > rows:
            raise corrupt(
                PAYLOAD_OFFSET, f"got ticks {first} to {last} with {rows} rows, {nulls} NULL, kind {name!r}"
            )
        if (rows == nulls) != (not summary):
            raise corrupt(
                PAYLOAD_OFFSET,
                f"got a summary of {len(summary)} bytes of {rows} rows, {nulls} of them NULL",
            )
        return cls(name.decode(), first, last, rows, nulls, summary)


def summarise(kind_name: str, tick: int, column: pa.Array, times: NDArray[np.int64]) -> Cell:
    """The cell of the rows of one tick; `times` are microseconds, NO_TICK for a row without a time.

    InputError if the kind is not registered or fails.
    """
    rows, nulls = len(column), column.null_count
    if nulls:
        present = pc.is_valid(column)
        column, times = column.filter(present), times[np.asarray(present)]
    if not len(column):
        return Cell(kind_name, tick, tick, rows, nulls, b"")
    kind = kind_named(kind_name)
    try:
        summary = kind.summarise(column, times.view("datetime64[us]"))
    except Exception as error:
        raise InputError(
            f"the kind of companions {kind_name!r} failed to summarise {len(column)} rows of tick {tick}: "
            f"{error!r}. Nothing was written."
        ) from error
    return Cell(kind_name, tick, tick, rows, nulls, _checked_bytes(kind, summary))


def join_cells(cells: Sequence[Cell]) -> Cell:
    """The cell of all rows of several cells of one kind, at least one; its ticks are from first to last."""
    first, last = min(cell.first for cell in cells), max(cell.last for cell in cells)
    filled = [cell for cell in cells if cell.data]
    whole = replace(
        cells[0],
        first=first,
        last=last,
        rows=sum(cell.rows for cell in cells),
        nulls=sum(cell.nulls for cell in cells),
        data=filled[0].data if filled else b"",
    )
    if len(filled) < 2:
        return whole
    kind = kind_named(whole.kind)
    return replace(whole, data=_checked_bytes(kind, joined_summary(filled)))


def joined_summary(cells: Iterable[Cell]) -> Any:
    """The summary of all rows of cells of one kind, at least one with rows that are not NULL.

    InputError if the kind is not registered. DamagedWarehouse if it cannot open or join the summaries.
    """
    filled = [cell for cell in cells if cell.data]
    kind = kind_named(filled[0].kind)
    try:
        summaries = [kind.from_bytes(cell.data) for cell in filled]
        return summaries[0] if len(summaries) == 1 else kind.join(summaries)
    except Exception as error:
        raise DamagedWarehouse(
            f"the kind of companions {kind.name!r} cannot open or join stored summaries: {error!r}. Their "
            "checksums are right, so register the kind that wrote them."
        ) from error


def _checked_bytes(kind: CompanionKind[Any], summary: Any) -> bytes:
    try:
        data = kind.to_bytes(summary)
    except Exception as error:
        raise InputError(
            f"to_bytes of the kind of companions {kind.name!r} failed for a summary of type "
            f"{type(summary).__name__}: {error!r}. Nothing was written."
        ) from error
    if not isinstance(data, bytes) or not data:
        raise InputError(
            f"to_bytes of the kind of companions {kind.name!r} returned {type(data).__name__}, expected "
            "bytes that are not empty."
        )
    return data


def join_by_tick(cells: Iterable[Cell]) -> list[Cell]:
    """The cells with those whose ticks overlap joined; disjoint and ascending. O(n log n) for n cells."""
    groups: list[list[Cell]] = []
    last = NO_TICK
    for cell in sorted(cells, key=lambda cell: (cell.first, cell.last)):
        if groups and cell.first <= last:
            groups[-1].append(cell)
            last = max(last, cell.last)
        else:
            groups.append([cell])
            last = cell.last
    return [join_cells(group) for group in groups]


def fit_cells(cells: Sequence[Cell], budget: int) -> list[Cell]:
    """Disjoint, ascending cells of at most `budget` bytes: 2, 4, ... ticks share a cell until they fit.

    The ticks that share a cell are those of an aligned block: tick >> k is equal. So cells of different runs
    that overlap are nested, and joining them by tick never chains cells into one long cell. Rows without a
    time, whose tick is NO_TICK, keep a cell of their own. A single cell may exceed the budget.
    """
    fitted, shift = list(cells), 0
    while sum(cell.nbytes for cell in fitted) > budget and shift < _MOST_SHIFT:
        shift += 1
        blocks: dict[int, list[Cell]] = {}
        for cell in fitted:
            blocks.setdefault(NO_TICK if cell.first == NO_TICK else cell.first >> shift, []).append(cell)
        fitted = [join_cells(block) for block in blocks.values()]
    return fitted
