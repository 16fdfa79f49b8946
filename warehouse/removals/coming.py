"""Corrections: the rows that come, and how the rows that they replace are found.

Rows are found by values (`RowValues`), in one of two ways. Before-images are whole rows, and each of them
replaces one equal row. Or some columns identify a row, and each new row replaces the one with the same values
there. A row that is not found, or found twice, is an error before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.codes import occurrences
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import BatchMismatch, InputError
from tidemark.warehouse.events.reader import BULK, BatchRange, read_named
from tidemark.warehouse.events.removals import Removal
from tidemark.warehouse.events.removed_rows import read_batches
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.ingest.append_rows import GivenBatch
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.removals.row_values import Places, RowValues
from tidemark.warehouse.removals.select import BATCH_COLUMNS, BatchNumber, Selected
from tidemark.warehouse.removals.value_ranges import EventTime
from tidemark.warehouse.work import Work

_SHOWN_CHARACTERS = 200  # of a row, in an error text


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """The rows that a correction brings, and those that leave.

    given        the new rows, as a bulk batch
    values       the rows to find
    counts       how often each of them is to be found, shape (k,)
    identifies   whether the columns of `values` identify a row: a second match is an error. Otherwise these
                 are whole rows, and any of several equal rows is taken
    inserts      whether it is no error if a row is not found
    types        Delta's types of the warehouse's columns, by which errors show values
    """

    given: GivenBatch
    values: RowValues
    counts: NDArray[np.int64]
    identifies: bool
    inserts: bool
    types: Mapping[str, str]

    @classmethod
    def of(
        cls,
        given: GivenBatch,
        old: pa.RecordBatch,
        types: Mapping[str, str],
        *,
        identifies: bool,
        inserts: bool,
        time: EventTime | None = None,
    ) -> Coming:
        """By the rows to find, which may repeat if they are whole rows; `time` as in `RowValues.of`.

        InputError if a row to find has NULL, or is there twice, where columns identify a row.
        """
        values = RowValues.of(old, nulls_match=not identifies, time=time)
        found = values.places(pa.Table.from_batches([old]))
        counts = np.bincount(found[found >= 0], minlength=values.rows.num_rows)
        if identifies and (found < 0).any():
            raise InputError(
                f"{_told(types, old, found < 0)} have NULL in columns that identify a row. Nothing was "
                "changed."
            )
        if identifies and (counts > 1).any():
            raise InputError(
                f"{_told(types, values.rows, counts > 1)} are given more than once. Nothing was changed. "
                "Give the newest row of each."
            )
        return cls(given, values, counts.astype(np.int64), identifies, inserts, types)

    @property
    def batch(self) -> BatchRange:
        """The batch of the new rows."""
        return self.given.batch

    def check_free(self, plans: Iterable[StepPlan]) -> None:
        """BatchMismatch if the name of the batch is that of a load."""
        if any(rows for plan in plans for part, rows in plan.parts if part == self.batch):
            raise BatchMismatch(
                f"batch {self.batch.source.removeprefix(BULK)!r} was brought by a load. Nothing was changed. "
                "Give the correction a name of its own."
            )

    def is_of(self, removal: Removal) -> bool:
        """Whether the removal is that of this batch."""
        return removal.kind == "correct" and any(
            part.batches == self.batch and part.rows <= 0 for part in removal.parts
        )

    def check_same(self, work: Work, removal: Removal) -> None:
        """BatchMismatch unless the correction with this name had the same rows, old and new."""
        different = same_rows.difference(work, self.given)
        if different is None and not self.identifies and not self.inserts:
            lost = read_batches(work.store, removal.file)
            gone = (Fingerprint(one.rows, one.digest or 0) for one in lost)
            every = np.repeat(np.arange(len(self.counts)), self.counts)
            left, wanted = sum(gone, Fingerprint()), self.values.rows.take(arrow_array(every))
            is_purged = any(one.digest is None for one in lost)  # then only the number of rows is known
            if left.rows != wanted.num_rows or not (is_purged or left == fingerprint(wanted)):
                different = f"{left.rows} rows left, and {wanted.num_rows} others are to leave"
        if different:
            raise BatchMismatch(
                f"the correction {self.batch.source.removeprefix(BULK)!r} was done before with other rows: "
                f"{different}. Nothing was changed. Give a new correction a new name."
            )

    def count(self, work: Work) -> int:
        """The number of new rows."""
        return sum(self.given.rows.each(self.given.names(work.options), _CountRows()))

    def chosen(self, work: Work, selected: Sequence[Selected]) -> list[Selected]:
        """Those of the selected rows that are to leave; each selected row equals a row to find.

        InputError for a row that is not found, unless it is inserted; and for one that is found twice where
        columns identify it.
        """
        tasks = [_MatchTask(work.store, self.values, one) for one in selected]
        matched: list[_Matched] = work.executor.run(tasks) if tasks else []
        seen = np.zeros_like(self.counts)
        for one in matched:
            seen += np.bincount(one.places, minlength=len(seen))
        self._check(seen)
        if not (seen > self.counts).any():
            return list(selected)
        left, kept = self.counts.copy(), list[Selected]()
        for whole, match in zip(selected, matched, strict=True):
            taken = np.flatnonzero(occurrences(match.places) < left[match.places])
            left -= np.bincount(match.places[taken], minlength=len(left))
            if len(taken):
                kept.append(match.narrowed(whole, taken))
        return kept

    def _check(self, seen: NDArray[np.int64]) -> None:
        twice, lacking = seen > self.counts, seen < self.counts
        if self.identifies and twice.any():
            raise InputError(
                f"{_told(self.types, self.values.rows, twice)} are in the warehouse more than once. Nothing "
                "was changed. Name columns that identify a row, or give the rows that leave: before=."
            )
        if lacking.any() and not self.inserts:
            raise InputError(
                f"{_told(self.types, self.values.rows, lacking)} are not in the warehouse. Nothing was "
                "changed. Load what is missing first, or let it be inserted: missing='insert'."
            )


@dataclass(frozen=True, slots=True)
class _CountRows:
    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
        yield sum(batch.num_rows for batch in batches)


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """The places and the batches of the rows to find, among the selected rows of a file, in their order."""

    places: Places
    codes: NDArray[np.int64]
    batches: tuple[BatchNumber, ...]

    def narrowed(self, selected: Selected, taken: NDArray[np.int64]) -> Selected:
        """The selection of the rows with these numbers alone, at least one."""
        mask = np.zeros(selected.rows, np.bool_)
        mask[np.flatnonzero(selected.mask)[taken]] = True
        codes, rows = np.unique(self.codes[taken], return_counts=True)
        counts = Counter({self.batches[code]: int(n) for code, n in zip(codes, rows, strict=True)})
        return Selected(selected.path, np.packbits(mask).tobytes(), selected.rows, counts)


@dataclass(frozen=True, slots=True, eq=False)
class _MatchTask:
    """Looks up the selected rows of one file of `events`; reads the row groups that have some."""

    store: Store
    values: RowValues
    selected: Selected

    def run(self) -> _Matched:
        mask, start = self.selected.mask, 0
        places, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        numbers: dict[BatchNumber, int] = {}
        names = list(dict.fromkeys([*BATCH_COLUMNS, *self.values.columns]))
        with open_sealed(self.store.filesystem(), f"{EVENTS}/{self.selected.path}", checksums=True) as file:
            for group in range(file.metadata.num_row_groups):
                stop = start + file.metadata.row_group(group).num_rows
                wanted = np.flatnonzero(mask[start:stop])
                start = stop
                if len(wanted):
                    rows = with_plain_types(read_named(self.store, file, group, names)).take(
                        arrow_array(wanted)
                    )
                    places.append(self.values.places(rows))
                    pairs = zip(*(rows.column(name).to_pylist() for name in BATCH_COLUMNS), strict=True)
                    codes.append(np.array([numbers.setdefault(one, len(numbers)) for one in pairs], np.int64))
        return _Matched(np.concatenate(places), np.concatenate(codes), tuple(numbers))


def _told(types: Mapping[str, str], rows: pa.RecordBatch, which: NDArray[np.bool_]) -> str:
    """How many rows these are, and the first of them, for an error text."""
    row: dict[str, Any] = rows.slice(int(np.argmax(which)), 1).to_pylist()[0]
    values = ((name, _decoded(types[name], value)) for name, value in row.items())
    shown = ", ".join(f"{name} = {value!r}" for name, value in values)[:_SHOWN_CHARACTERS]
    return f"{int(which.sum()):,} of the rows to correct (such as {shown})"


def _decoded(kind: str, value: Any) -> Any:
    """The value as a token if the column has tokens, else as Arrow gives it."""
    found = find_column_type(kind)
    return value if value is None or found is None or not found.is_token else found.decode(value)
