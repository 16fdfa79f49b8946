"""Corrections: some rows leave and other rows come in their place, in one step.

    find      the rows that leave, by their before-images, or by columns that identify a row
    write     the files of `events` without them, and those of the new rows
    name      the batch of the new rows: a step without rows, loaded into every projection
    record    the removal is planned: what leaves of each part, and what comes to the new step
    finish    decided by one commit to `events`, applied to each projection by one commit

It is a removal (remove.py) that brings rows, too. docs/signed_steps.md has the protocol and its crash table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa

from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, name_text, shortened
from tidemark.warehouse.execution.arrow_inputs import arrow_rows
from tidemark.warehouse.execution.executors import Input, LocalInput
from tidemark.warehouse.ingest.append_rows import GivenBatch
from tidemark.warehouse.ingest.row_filter import ALL_OR_NOTHING, DEFAULT_AHEAD, latest_time
from tidemark.warehouse.load import bulk_batch, unloads
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.removals.change_feed import net_changes
from tidemark.warehouse.removals.coming import Coming
from tidemark.warehouse.removals.conditions import given_conditions
from tidemark.warehouse.removals.given_rows import given_input, rows_of
from tidemark.warehouse.removals.reports import RemovalReport
from tidemark.warehouse.removals.row_values import all_of
from tidemark.warehouse.removals.rows_to_remove import Wanted
from tidemark.warehouse.removals.value_ranges import EventTime
from tidemark.warehouse.remove import remove, work_on
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows

Missing: TypeAlias = Literal["error", "insert"]


def correct(  # noqa: PLR0913  what comes, what leaves, and how it is found
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    rows: DataFrame | LocalRows | None = None,
    *,
    batch: str,
    before: DataFrame | LocalRows | None = None,
    on: str | Sequence[str] | None = None,
    changes: DataFrame | LocalRows | None = None,
    where: str | None = None,
    between: tuple[Any, Any] | None = None,
    missing: Missing = "error",
    ahead: str | timedelta | None = DEFAULT_AHEAD,
    dry_run: bool = False,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RemovalReport:
    """Puts rows in the place of others, in one step: a reader sees the old rows or the new ones, never both.

    spark     a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri       the warehouse
    rows      the new rows, with all columns of the warehouse, as `load` takes them
    batch     the name of the correction, which must stay the same when it is run again. The new rows are a
              batch of this name, so no load may have it
    before    the rows that leave, as they are, with all columns. Each removes one row that equals it in all
              of them (NULL equals NULL); a row that is given twice removes two. Without new rows, rows only
              leave
    on        instead of `before`: columns that identify a row. The row that has the values of a new row in
              these columns leaves
    changes   instead of all three: a change feed, whose changes of one row are netted. Either rows with all
              columns and `_change_type`, as Delta's change data feed has them (insert, delete,
              update_preimage, update_postimage); or the path of JSON lines with `op` (c, r, u, d), `before`
              and `after`, alone or in `payload`, as Debezium writes them, with whole rows in `before`
    where     a condition in the language of questions: only rows for which it is true may leave
    between   (start, end), the end exclusive, None for an open side: only rows of this time may leave. Files
              without such rows are not read
    missing   'error' refuses the correction if a row to find is not there; 'insert' takes the new rows anyway
    ahead     new rows whose time is further ahead of the clock are refused; None takes any time
    dry_run   only finds the rows, and tells what would be done
    storage_options, progress, tuning
              as in `load`

    Live rows that match are loaded first. Each measure, key and group shows the correction by one commit, and
    a scan shows it at one moment. The same correction again changes nothing and returns the first report;
    after a crash, the same call or the next writer goes on with it. `unload` of its name takes out the new
    rows; the old ones do not come back.

    Raises InputError for a row to find that is not there, or that is there twice where columns identify it,
    and for rows that do not fit; BatchMismatch if the name is that of a load, or of a correction with other
    rows; then nothing was changed.

    The cost is that of `delete` for the rows that leave, and of a load of the new ones. The rows to find are
    held in memory, in this process and in each task. A file of `events` is looked at only if a row to find
    can be in it, by the time and by the least and the greatest values of the file.
    """
    with report_os_errors("correct"):
        began = time.perf_counter()
        name_text("batch", batch)
        columns = _columns(on)
        _check_given(rows, before, columns, changes)
        if missing not in get_args(Missing):
            raise InputError(f"missing must be 'error' or 'insert', got {shortened(missing)}.")
        work = work_on(spark, uri, None, storage_options, progress, tuning)
        if not work.options.columns:
            raise InputError("the warehouse has no columns before its first batch. Load rows first.")
        within, asked = given_conditions(work.options, where, between)
        new, old = _given(work, rows, before, columns, changes)
        times = unloads(work.store, tables.open_table(work.store, EVENTS), batch)
        row_filter = replace(ALL_OR_NOTHING, latest=latest_time(plain(ahead)))
        coming = Coming.of(
            GivenBatch(new, bulk_batch(batch, times), row_filter),
            old,
            dict(work.options.columns),
            identifies=columns is not None,
            inserts=missing == "insert",
            time=EventTime.of(work.options),
        )
        coming.given.check_columns(work.options)
        batches = None if old.num_rows else ()  # nothing is read if nothing leaves
        condition = all_of(within, coming.values, asked)
        wanted = Wanted("correct", batches, condition, None, coming, may_keep=True)
        return remove(work, wanted, began, dry_run=dry_run)


def _columns(on: str | Sequence[str] | None) -> list[str] | None:
    if on is None:
        return None
    columns = [on] if isinstance(on, str) else list(on)
    if not columns or not all(isinstance(one, str) for one in columns) or len(set(columns)) < len(columns):
        raise InputError(f"on must be the names of columns, each once, got {shortened(on)}.")
    return columns


def _check_given(rows: Any, before: Any, on: Sequence[str] | None, changes: Any) -> None:
    if changes is not None:
        is_clear = rows is None and before is None and on is None
    else:
        is_clear = (before is None) != (on is None) and (on is None or rows is not None)
    if not is_clear:
        raise InputError(
            "correct takes rows with before, rows with on, before alone, or changes. Example: correct(None, "
            "uri, rows, batch='fix-1', on=['order_id'])."
        )


def _given(
    work: Work, rows: Any, before: Any, on: Sequence[str] | None, changes: Any
) -> tuple[Input, pa.RecordBatch]:
    """The new rows, and the rows to find."""
    if changes is not None:
        came, gone = net_changes(work, changes)
        return LocalInput(arrow_rows(came, work.store.tuning), work.options.fingerprint), gone
    if isinstance(rows, pa.RecordBatchReader):
        rows = rows.read_all()  # they are read more than once
    names = [name for name, _ in work.options.columns]
    if on is not None:
        return given_input(work, rows), rows_of(work, rows, "rows", on)
    old = rows_of(work, before, "before", names)
    return given_input(work, pa.Table.from_batches([old.slice(0, 0)]) if rows is None else rows), old
