"""Selects rows of `events` in tasks: a mask for each file, and the number of selected rows by batch.

The condition is evaluated only here: later steps use the masks. A task reads the columns of the condition in
one file. In memory it has one row group of these columns, and at most two bytes for each row of the file. A
file is not read if all of its rows are of one batch, and its statistics show that all are selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_bools
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.value_encoding import as_numpy_bools, single_array
from tidemark.warehouse.delta.data_files import DataFile, list_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import (
    BatchRange,
    batch_filter,
    batch_of_group,
    group_overlap,
    may_contain,
    read_named,
    stated_rows,
)
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.removals.conditions import RowCondition, Share
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from deltalake import DeltaTable

BatchNumber = tuple[str, int]  # source and number
BATCH_COLUMNS = ("_source", "_batch")


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """The selected rows of a file of `events`, at least one.

    path      relative to the table
    packed    a bit for each row of the file in its order, 1 for the selected ones
    rows      how many rows the file has
    counts    how many are selected, by source and batch
    """

    path: str
    packed: bytes
    rows: int
    counts: Counter[BatchNumber]

    @classmethod
    def whole(cls, file: DataFile, counts: Counter[BatchNumber]) -> Selected:
        """All rows of a file."""
        return cls(file.path, np.packbits(np.ones(file.rows, np.bool_)).tobytes(), file.rows, counts)

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the file are selected."""
        return self.counts.total() == self.rows

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Which rows are selected, shape (rows,)."""
        bits = np.unpackbits(np.frombuffer(self.packed, np.uint8), count=self.rows)
        return bits.astype(np.bool_)


@dataclass(frozen=True, slots=True)
class SelectTask:
    """Selects the rows of some batches in one file; None for a condition selects them all."""

    store: Store
    condition: RowCondition | None
    batches: tuple[BatchRange, ...]
    path: str

    def run(self) -> Selected | None:
        """Reads one row group at a time; None if no row is selected."""
        counts = Counter[BatchNumber]()
        with open_sealed(self.store.filesystem(), f"{EVENTS}/{self.path}", checksums=True) as file:
            groups = range(file.metadata.num_row_groups)
            masks = [self._mask(file, group, counts) for group in groups]
        if not counts:
            return None
        mask = np.concatenate(masks)
        return Selected(self.path, np.packbits(mask).tobytes(), len(mask), counts)

    def _mask(self, file: SealedFile, group: int, counts: Counter[BatchNumber]) -> NDArray[np.bool_]:
        footer = file.metadata.row_group(group)
        mask = np.zeros(footer.num_rows, np.bool_)
        overlap = group_overlap(footer, self.batches)
        if overlap == "none" or not footer.num_rows:
            return mask
        only = batch_of_group(footer) if overlap == "all" else None
        if only is not None and self.condition is None:
            counts[only] += footer.num_rows
            return ~mask
        asked = () if self.condition is None else self.condition.columns
        names = list(dict.fromkeys([*(BATCH_COLUMNS if only is None else BATCH_COLUMNS[1:]), *asked]))
        rows = with_plain_types(read_named(self.store, file, group, names))
        if overlap == "all":
            mask[:] = True
        else:
            mask[:] = as_numpy_bools(single_array(batch_filter(rows, self.batches)))
        if self.condition is not None and mask.any():
            places = np.flatnonzero(mask)
            some = rows if len(places) == len(mask) else rows.filter(arrow_bools(mask))
            mask[places] = self.condition.mask(some)
        if only is not None:
            counts.update({only: chosen} if (chosen := int(mask.sum())) else {})
        else:
            counts.update(count_batches(rows.select(BATCH_COLUMNS).filter(arrow_bools(mask))))
        return mask


def count_batches(rows: pa.Table) -> Counter[BatchNumber]:
    """How many of the rows are of each batch."""
    found = Counter[BatchNumber]()
    if rows.num_rows:
        for one in rows.group_by(list(BATCH_COLUMNS)).aggregate([([], "count_all")]).to_pylist():
            found[one["_source"], one["_batch"]] += one["count_all"]
    return found


def select(
    work: Work, condition: RowCondition | None, batches: Sequence[BatchRange], events: DeltaTable
) -> list[Selected]:
    """The selected rows of the batches in this version of `events`: a `Selected` for each file with some."""
    tasks, whole, of_names = [], [], work.options.names.of_statistics
    for file in list_files(events):
        held = tuple(one for one in batches if may_contain(file, one))
        share: Share = "some" if condition is None else condition.share(of_names(file.stats))
        if not held or share == "none":
            continue
        counts, others = stated_rows([file], held) if share == "all" else (Counter[BatchNumber](), [file])
        if counts:
            whole.append(Selected.whole(file, counts))
        if others:
            asked = None if share == "all" else condition
            tasks.append(SelectTask(work.store, asked, held, file.path))
    found: list[Selected | None] = work.executor.run(tasks) if tasks else []
    return [*whole, *(one for one in found if one is not None)]


def count_by_batch(selected: Iterable[Selected]) -> Counter[BatchNumber]:
    """How many rows are selected of each batch."""
    return sum((one.counts for one in selected), Counter[BatchNumber]())
