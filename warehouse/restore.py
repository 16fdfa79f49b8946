"""Restore: brings back rows that an unload or a delete took out, while their old files are there.

A removal replaces files of `events` by files without some rows, in the same order. So its rows are those by
which the old files differ from the new ones. They are loaded as a bulk batch with a name of its own for each
removal: exactly once, despite crashes and beside others, by the code of a load. They do not get their old
batches back: a source's batches come in order, and the record of the removal stays true.

Rows that expired are not restored: they would expire again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import with_columns_of, with_plain_types
from tidemark.warehouse.columns.codes import occurrences
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REMOVALS, REMOVED
from tidemark.warehouse.errors import DamagedWarehouse, InputError, whole_number
from tidemark.warehouse.events.purges import purged_up_to
from tidemark.warehouse.events.removals import Removal, removed_at
from tidemark.warehouse.events.removed_rows import ReplacedFile, read_replaced
from tidemark.warehouse.events.steps import read_planned_times
from tidemark.warehouse.execution.arrow_inputs import ArrowRows
from tidemark.warehouse.integrity.digests import row_hashes
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.load import account, bulk_batch, catch_up, load
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

_UNDONE = ("unload", "delete")  # kinds of removals


@dataclass(slots=True)
class RestoreReport:
    """What a restore did.

    outcome   'restored'; 'empty': there was nothing to restore; 'known': all of it was done before;
              'planned': a dry run, which changed nothing
    removals  the removals that were undone, or would be; those that were undone before are left out
    rows      the rows that came back
    steps     the steps that brought them, in the order of the removals
    seconds   time spent
    """

    outcome: Literal["restored", "empty", "known", "planned"]
    removals: list[int] = field(default_factory=list)
    rows: int = 0
    steps: list[int] = field(default_factory=list)
    seconds: float = 0.0


def restore(
    uri: str | os.PathLike[str],
    *,
    removal: int | None = None,
    step: int | None = None,
    dry_run: bool = False,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RestoreReport:
    """Brings back the rows of an unload or a delete, or of all of them after a step.

    uri       the warehouse
    removal   the number of the removal, as its report has it
    step      instead: all unloads and deletes that were planned after this step, the oldest first
    dry_run   only tells what would be done
    storage_options, progress, tuning
              as in `load`

    The rows of removal 5 come back as the bulk batch 'restored removal 5', a step of its own, and
    `unload(batch='restored removal 5')` takes them out again. A removal is undone once: after that the same
    call changes nothing. If rows were restored and removed again, restore the later removal to get them
    back. Without a time column the rows get the tick of their new step.

    Raises InputError if there is no such removal or step, for rows that expired or were purged, and if the
    old files were deleted, which `maintain` does after the grace; then nothing was changed. The cost is
    two reads of the files that the removal replaced, and a load of the rows, in this process.
    """
    with report_os_errors("restore"):
        began = time.perf_counter()
        if (removal is None) == (step is None):
            raise InputError("restore takes a removal or a step. Example: restore(uri, removal=5).")
        store = Store.from_uri(uri, storage_options, tuning)
        work = Work.on(None, store, progress)
        wanted = _wanted(store, removal, step)
        if not dry_run:
            account(work)  # what an interrupted restore had begun
            catch_up(work)
        events = tables.open_table(store, EVENTS)
        new = []
        for one in wanted:
            batch = bulk_batch(_name(one))
            if one.rows and not tables.has_transaction(events, batch.source, batch.first):
                new.append(one)
        _check_not_purged(store, new)
        report = RestoreReport("known" if wanted else "empty", [one.number for one in new])
        report.rows = sum(one.rows for one in new)
        sources = [
            _RemovedRows(store, work.options, one, tuple(read_replaced(store, one.file))) for one in new
        ]
        for source in sources:
            source.check()
        if new and not dry_run:
            for source in sources:
                work.reached("restore")
                loaded = load(
                    None,
                    uri,
                    source,
                    _name(source.removal),
                    ahead=None,
                    storage_options=storage_options,
                    progress=progress,
                    tuning=tuning,
                )
                report.steps += [] if loaded.step is None else [loaded.step]
        if new:
            report.outcome = "planned" if dry_run else "restored"
        report.seconds = time.perf_counter() - began
        return report


def _check_not_purged(store: Store, wanted: Sequence[Removal]) -> None:
    purged = purged_up_to(store)
    gone = next((one.number for one in wanted if one.number <= purged), None)
    if gone is not None:
        raise InputError(f"removal {gone} cannot be undone: its rows were purged. Nothing was changed.")


def _name(removal: Removal) -> str:
    """The name of the bulk batch that brings the rows back."""
    return f"restored removal {removal.number}"


def _wanted(store: Store, removal: int | None, step: int | None) -> list[Removal]:
    """The removals to undo. InputError for one that is not there, or that cannot be undone."""
    events = tables.open_table(store, EVENTS)
    happened = {one.number: one for one in removed_at(store, events).removals}
    if step is None:
        number = whole_number("removal", removal, 0)
        if number not in happened:
            there = f"there are: {', '.join(map(str, happened))}" if happened else "no row was ever removed"
            raise InputError(f"there is no removal {number}: {there}. Nothing was changed.")
        if (kind := happened[number].kind) not in _UNDONE:
            why = "expired, and would again" if kind == "expire" else f"left by {kind!r}"
            raise InputError(
                f"the rows of removal {number} {why}: unloads and deletes are undone. Nothing was changed. "
                "To see the rows, open the warehouse as it was: query.open(uri, at=...)."
            )
        return [happened[number]]
    planned = read_planned_times(store)
    after = whole_number("step", step, 0)
    if after not in planned:
        raise InputError(f"there is no step {after}: its steps are 0 to {max(planned, default=-1)}.")
    (table,) = tables.find_tables(store, REMOVALS)
    if table is None:
        return []
    rows = data_files.read(store, REMOVALS, table)
    at = dict(zip(rows["removal"].to_pylist(), rows["planned_at"].cast(pa.int64()).to_pylist(), strict=True))
    return [one for one in happened.values() if one.kind in _UNDONE and at[one.number] > planned[after]]


@dataclass(eq=False)
class _RemovedRows(ArrowRows):
    """The rows of a removal, read from the files that it replaced."""

    store: Store
    options: Options
    removal: Removal
    files: Sequence[ReplacedFile]

    def __post_init__(self) -> None:
        types = self.options.names.of_schema(pa.schema(tables.open_table(self.store, EVENTS).schema()))
        self.schema = pa.schema([types.field(name) for name, _ in self.options.columns])

    @property
    def tokens_of(self) -> str:
        return self.options.fingerprint

    def check(self) -> None:
        """InputError if one of the files is deleted, or has tokens of a secret that was rotated since."""
        paths = [one.old for one in self.files] + [one.new.path for one in self.files if one.new is not None]
        gone = self.store.files.absent([f"{EVENTS}/{path}" for path in paths])
        if gone:
            raise InputError(
                f"removal {self.removal.number} cannot be undone: {gone[0]} is deleted. Old files are kept "
                "for the grace, and until maintenance. Load the rows again from where they came, or from a "
                "copy."
            )
        for path in filter(None, (one.old for one in self.files)):
            with open_sealed(self.store.filesystem(), f"{EVENTS}/{path}") as opened:
                names = opened.metadata.schema.to_arrow_schema().names
            if not self.options.names.private <= {*names}:
                raise InputError(
                    f"removal {self.removal.number} cannot be undone: its rows have tokens of a secret that "
                    "was rotated since. Nothing was changed. Load the rows again from where they came."
                )

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, a row group at a time. DamagedWarehouse unless there are as many as the record says."""
        rows = 0
        for one in self.files:
            for batch in self._of_file(one):
                rows += batch.num_rows
                yield batch
        if rows != self.removal.rows:
            raise DamagedWarehouse(
                f"{REMOVED}/{self.removal.file} names files that differ by {rows} rows, but removal "
                f"{self.removal.number} took {self.removal.rows}"
            )

    def _of_file(self, file: ReplacedFile) -> Iterator[pa.RecordBatch]:
        if file.old is None:
            return  # rows that came by a correction: none left
        old, names = _hashes(self.store, file.old)
        new = None if file.new is None else _hashes(self.store, file.new.path, names or ())[0]
        gone, start = gone_rows(old, new), 0
        with open_sealed(self.store.filesystem(), f"{EVENTS}/{file.old}", checksums=True) as opened:
            for group in range(opened.metadata.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                mask = gone[start : start + rows]
                start += rows
                if mask.any():
                    table = with_plain_types(opened.read_group(group)).take(arrow_array(np.flatnonzero(mask)))
                    # The user's columns; those that came later than the file are NULL.
                    own = self.options.names.of_table(table)
                    yield from with_columns_of(self.schema, own).combine_chunks().to_batches()


def _hashes(
    store: Store, path: str, names: Sequence[str] | None = None
) -> tuple[NDArray[np.uint64], Sequence[str] | None]:
    """The hash of each row of a file of `events` over these columns, by default all; and the columns."""
    found = []
    with open_sealed(store.filesystem(), f"{EVENTS}/{path}", checksums=True) as file:
        for group in range(file.metadata.num_row_groups):
            rows = with_plain_types(file.read_group(group, names)).combine_chunks()
            names = rows.column_names
            found += [row_hashes(batch) for batch in rows.to_batches()]
    return np.concatenate(found) if found else np.empty(0, np.uint64), names


def gone_rows(old: NDArray[np.uint64], new: NDArray[np.uint64] | None) -> NDArray[np.bool_]:
    """Which of the old rows the new ones lack, by hashes of whole rows, each as often as it lacks it.

    Equal rows cannot be told apart: the last of them count as gone. `new` is None without a file.
    """
    if new is None:
        return np.ones(len(old), np.bool_)
    values, places = np.unique(old, return_inverse=True)
    kept, times = np.unique(new, return_counts=True)
    stays = np.zeros(len(values), np.int64)
    if not np.isin(kept, values, assume_unique=True).all():
        raise DamagedWarehouse(
            "a file of events that was written for a removal has rows that the old one lacks"
        )
    stays[values.searchsorted(kept)] = times
    gone: NDArray[np.bool_] = occurrences(places) >= stays[places]
    return gone
