"""Unload and delete: rows of history are removed, in every table. expire.py and correct.py use it, too.

    settle    unfinished removals and loads are finished; batches without a ledger row or a plan get one; live
              batches that have selected rows are loaded. So each selected row is in history
    select    a mask is made for each file of `events`, once
    write     the files without the selected rows are written, then the file of the removal. The first removal
              makes the tables of removals meanwhile
    record    the removal is planned, by the very next version of `removals`
    finish    it is decided by one commit to `events`, and applied to each projection (removals/finish.py)
    purge     if wanted: no table keeps values or hashes of the removed rows (removals/purge_traces.py)

docs/signed_steps.md has the protocol. A crash before the record leaves nothing to finish; after it any writer
finishes the removal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.ticks import parse_grace
from tidemark.warehouse.delta import own_files, table_open, tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REMOVALS, REMOVED, STEPS
from tidemark.warehouse.errors import (
    Contended,
    InputError,
    name_text,
    shortened,
    whole_number,
    without_secrets,
)
from tidemark.warehouse.events import removals, removed_rows
from tidemark.warehouse.events.purges import Certificate, read_certificates
from tidemark.warehouse.events.reader import BULK, BatchRange
from tidemark.warehouse.events.removals import Removal, RemovedPart
from tidemark.warehouse.events.removed_rows import RemovedFile, ReplacedFile
from tidemark.warehouse.events.steps import StepPlan, planned_batches
from tidemark.warehouse.ingest import append_rows
from tidemark.warehouse.ingest.append_rows import Written
from tidemark.warehouse.ingest.batch_numbers import GREATEST_BATCH
from tidemark.warehouse.load import (
    account,
    bulk_batch,
    catch_up,
    ensure_caught_up,
    load_live,
    reserve,
    step_tick,
    unloads,
)
from tidemark.warehouse.maintain import maintain_store
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.removals.conditions import RowCondition, given_conditions
from tidemark.warehouse.removals.finish import Finished, finish_open
from tidemark.warehouse.removals.given_rows import rows_of
from tidemark.warehouse.removals.purge_traces import certificate_of, forget
from tidemark.warehouse.removals.reports import RemovalReport, known_report, planned, report_of
from tidemark.warehouse.removals.rewrite import RewriteTask, Rewritten
from tidemark.warehouse.removals.room_to_keep import Room, room_for
from tidemark.warehouse.removals.row_values import RowValues, all_of
from tidemark.warehouse.removals.rows_to_remove import (
    Wanted,
    open_complete,
    parts_of,
    removed_batches,
    rows_with_steps,
    select_live,
)
from tidemark.warehouse.removals.select import Selected, select
from tidemark.warehouse.removals.value_ranges import EventTime
from tidemark.warehouse.settings.alterations import change_options
from tidemark.warehouse.settings.features import SIGNED
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os

    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from tidemark.warehouse.execution.arrow_inputs import LocalRows

_LOG = logging.getLogger("tidemark.remove")

_TRIES = 5  # selections that others make void


def unload(  # noqa: PLR0913  a batch is named in two ways
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    batch: str | None = None,
    *,
    source: str | None = None,
    batches: tuple[int, int] | None = None,
    dry_run: bool = False,
    request: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RemovalReport:
    """Takes a batch out of the warehouse: its rows leave the table `events` and every answer.

    spark     a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri       the warehouse
    batch     the name of a batch that `load` brought. It may be loaded again with other rows, and with the
              same ones by `load(..., again=True)`
    source, batches
              instead: a range of the batches of a stream, (first, last), both inclusive. Their numbers stay
              used: the same rows that come again are a replay
    dry_run   only tells what would be done
    request   a name of this call: the same call again, after a crash, finishes it and returns its report
    storage_options, progress, tuning
              as in `load`

    Live batches are loaded first. Unloading a batch again changes nothing. Raises InputError for a batch that
    was never loaded, or never came; then nothing was changed. A stream of Spark that reads the table `events`
    fails at the first removal, because files are replaced.

    The cost is that of writing the files of `events` with rows of the batch. Runs that have only such rows
    count as empty from then on, and maintenance replaces them. Other runs with rows of the batch keep these,
    and readers subtract them, until the runs are written again. But if a column has an index, or if all rows
    kept in this way would be more than `Tuning.kept_rows` or a quarter of the rows that stay, these runs are
    sorted again, for each projection.
    """
    with report_os_errors("unload"):
        began = time.perf_counter()
        if (batch is None) == (source is None) or (source is None) != (batches is None):
            raise InputError(
                "unload takes a batch, or a source with its batches. Example: unload(None, uri, "
                "batch='2026-11-20'), or unload(None, uri, source='web', batches=(7, 9))."
            )
        work = work_on(spark, uri, request, storage_options, progress, tuning)
        events = tables.open_table(work.store, EVENTS)
        if batch is not None:
            name_text("batch", batch)
            times = unloads(work.store, events, batch)
            own = bulk_batch(batch, times)
            if not tables.has_transaction(events, own.source, own.first):
                if times:
                    return RemovalReport("known", "unload", seconds=time.perf_counter() - began)
                raise InputError(f"the batch {shortened(batch)} was never loaded. Nothing was changed.")
        else:
            own = _range_of_stream(work, events, source, batches)
        del events  # a table that nobody uses is opened again sooner
        wanted = Wanted("unload", (own,), None, request, may_keep=True)
        return remove(work, wanted, began, dry_run=dry_run)


def delete(  # noqa: PLR0913  rows are named in two ways, and may be purged
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    where: str | None = None,
    *,
    keys: DataFrame | LocalRows | None = None,
    between: tuple[Any, Any] | None = None,
    purge: bool = False,
    grace: str | None = None,
    dry_run: bool = False,
    request: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RemovalReport:
    """Deletes rows by a condition, or by values of columns: from the table `events` and every answer.

    spark     a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri       the warehouse
    where     a condition in the language of questions: DuckDB's, over the columns of the warehouse, such as
              "user = 'x' AND at < TIMESTAMP '2001-03-01'". A row for which it is NULL stays
    keys      rows with some columns of the warehouse: rows that equal one of them in all these columns are
              deleted. A pyarrow Table, a DataFrame of pandas, Polars or the session, or the path of a file,
              as `load` takes rows. NULL equals nothing, NaN equals NaN. With `where`, both have to hold
    between   (start, end), the end exclusive, None for an open side: only rows of this time are deleted, if
              they match. Files without rows of this time are not read
    purge     the rows are forgotten, and so are all that left before: no table has their values or hashes
              once the call returns, and no file a grace later, see `Certificate`
    grace     of a purge: maintenance runs at once, with this grace. "0s" deletes the old files now, which is
              safe only while nothing reads or loads. None: a later `maintain` deletes them
    dry_run   only tells how many rows it would delete, by step, and what it would write
    request   a name of this call: the same call again, after a crash, finishes it and returns its report. A
              call that found no row leaves no record
    storage_options, progress, tuning
              as in `load`

    Rows that arrive while it works may stay; live rows that match are loaded first. A batch that lost rows is
    known when it comes again as it was. Files that no table names any more are deleted by `maintain`, a grace
    later. Raises InputError for a condition that is not one expression over the columns, and for one that
    fails on a row; for keys with a column that the warehouse does not have, or a value that its type cannot
    hold; then nothing was changed. A stream of Spark that reads the table `events` fails at the
    first removal.

    A purge also takes a condition that no row matches. Records of the table `rejected` leave if their text
    has a constant of the condition, or a text of the keys (a number, if the keys have no texts); if there is
    no constant, all records leave. A batch that lost rows and comes again is then compared by its number of
    rows alone. The report has the certificate.

    The cost: one read of the columns of the condition and of the keys; with keys or a time, only in files of
    `events` whose least and greatest values allow such rows. The keys are held in memory. The files with
    deleted rows are written again. Runs keep these rows until maintenance, and readers subtract them. But in
    a purge, if a column has an index, or if all rows kept in this way would be more than `Tuning.kept_rows`
    or a quarter of the rows that stay, each run with deleted rows is sorted again from `events`, for each
    projection.
    """
    with report_os_errors("delete"):
        began = time.perf_counter()
        if where is None and keys is None:
            raise InputError(
                "delete takes a condition, keys, or both. Example: delete(None, uri, where=\"user = 'x'\"), "
                "or delete(None, uri, keys=pa.table({'user': ['x', 'y']}))."
            )
        if grace is not None:
            parse_grace(grace)
            if not purge or dry_run:
                raise InputError(
                    f"grace={shortened(grace)} is for a purge that is done: delete(..., purge=True, "
                    "grace=...)."
                )
        work = work_on(spark, uri, request, storage_options, progress, tuning)
        report, condition = RemovalReport("empty", "delete"), None
        if work.options.columns:
            condition = _condition(work, where, keys, between)
            if condition is not None:
                wanted = Wanted("delete", None, condition, request, may_keep=not purge)
                report = remove(work, wanted, began, dry_run=dry_run)
        if purge and not dry_run:
            constants = None if condition is None else condition.constants
            report.certificate = _certified(work, constants, request, report.removal, grace)
        report.seconds = time.perf_counter() - began
        return report


def _certified(
    work: Work, constants: Sequence[str] | None, request: str | None, removal: int | None, grace: str | None
) -> Certificate:
    """The certificate of the purge, at its second stage if a grace is given and nothing is in the way."""
    store = work.store
    certificate = certificate_of(store, request) or forget(work, constants, request, removal)
    if grace is None or certificate.stage == "gone":
        return certificate
    purged = maintain_store(work, grace).purged
    return next((one for one in purged if one.id == certificate.id), certificate)


def certificates(
    uri: str | os.PathLike[str], *, storage_options: dict[str, str] | None = None
) -> list[Certificate]:
    """The certificates of all purges, each at its newest stage, by the time when the rows left.

    uri       the warehouse
    storage_options
              options of the object store, as delta-rs takes them

    Raises NotAWarehouse if there is none at `uri`. Cost: one small table is read.
    """
    with report_os_errors("certificates"):
        store = Store.from_uri(uri, storage_options)
        read_options(store)
        return read_certificates(store)


def _condition(work: Work, where: str | None, keys: Any, between: Any) -> RowCondition | None:
    """The condition that selects the rows; None if no row can equal a key."""
    within, asked = given_conditions(work.options, where, between)
    equal = None
    if keys is not None:
        time_of = EventTime.of(work.options)
        equal = RowValues.of(rows_of(work, keys, "keys"), nulls_match=False, time=time_of)
        if not equal.rows.num_rows:
            return None
    return all_of(within, equal, asked)


def work_on(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    request: str | None,
    storage_options: dict[str, str] | None,
    progress: Callable[[str], None] | None,
    tuning: Tuning | None,
) -> Work:
    """The context of a removal; InputError if `request` is no name."""
    if request is not None:
        name_text("request", request)
    return Work.on(spark, Store.from_uri(uri, storage_options, tuning), progress)


def _range_of_stream(
    work: Work, events: DeltaTable, source: str | None, batches: tuple[int, int] | None
) -> BatchRange:
    """The range of a stream's batches; InputError unless the source has them."""
    name = name_text("source", source)
    if name.startswith(BULK):
        raise InputError(f"{shortened(name)} is a bulk load: unload it by batch={name.removeprefix(BULK)!r}.")
    if not isinstance(batches, (tuple, list)) or len(batches) != 2:
        raise InputError(f"batches must be (first, last), both inclusive, got {shortened(batches)}.")
    first, last = (whole_number("a number of batches", one, 0, GREATEST_BATCH) for one in batches)
    ledger = tables.open_table(work.store, LEDGER)
    newest = max(tables.newest_transaction(table, name) for table in (events, ledger))
    if first > last or last > newest:
        has = f"its newest batch is {newest}" if newest >= 0 else "no batch of it ever came"
        raise InputError(
            f"batches must be (first, last) of {shortened(name)} with first <= last, got ({first}, {last}), "
            f"and {has}. Nothing was changed."
        )
    return BatchRange(name, first, last)


def remove(work: Work, wanted: Wanted, began: float, *, dry_run: bool) -> RemovalReport:
    """Removes the wanted rows, or only reports; `began` is when the call began, by time.perf_counter()."""
    report = planned(work, wanted) if dry_run else _removed(work, wanted)
    report.seconds = time.perf_counter() - began
    _LOG.info("%s: %s %s, %d rows", without_secrets(work.store.uri), wanted.kind, report.outcome, report.rows)
    return report


def _removed(work: Work, wanted: Wanted) -> RemovalReport:
    """Removes the wanted rows; selects again as often as others make the selection void."""
    asked = work.options.names
    tables.open_ahead(work.store, LEDGER, STEPS, *(one.runs_table for one in work.options.projections))
    for _ in range(_TRIES):
        account(work)
        ensure_caught_up(work)
        work = replace(work, options=read_options(work.store))
        if work.options.names != asked:
            raise Contended(
                "columns were renamed, or a secret was rotated, since the call began. Nothing was removed: "
                "run it again with the names, and the secret, that are valid now."
            )
        finished = finish_open(work)
        if (known := _done_before(work, finished, wanted)) is not None:
            return known_report(work, known)
        report = _attempt(work, wanted, finished)
        if report is not None:
            return report
    raise Contended(
        f"others changed the table events {_TRIES} times while rows were selected. Nothing was removed: run "
        "it again when they are done."
    )


def _done_before(work: Work, finished: Finished, wanted: Wanted) -> Removal | None:
    """The removal that an earlier call with the same request, or the same correction, has done."""
    coming = wanted.coming
    if coming is None:
        return finished.removed.of_request(wanted.request)
    same = next((one for one in finished.removed.removals if coming.is_of(one)), None)
    if same is not None:
        coming.check_same(work, same)
    return same


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows that leave at a version of `events`; for a correction also the rows that come.

    schema: that of `events`. new: the files of rows that come, written and not committed. room: how many of
    the rows may be kept.
    """

    schema: pa.Schema
    plans: Sequence[StepPlan]
    selected: Sequence[Selected]
    parts: tuple[RemovedPart, ...]
    new: Written | None
    room: Room

    @property
    def new_files(self) -> list[ReplacedFile]:
        return [ReplacedFile(None, one) for one in self.new.files] if self.new is not None else []


def _find(work: Work, wanted: Wanted) -> _Found | None:
    """Selects the rows. None if it has to begin again: columns were renamed, or live rows were loaded."""
    events, plans = open_complete(work)
    if read_options(work.store, events).names != work.options.names:
        return None
    coming, new = wanted.coming, None
    with work.phase("select"):
        selected = select(work, wanted.condition, wanted.of(planned_batches(plans)), events)
        live = select_live(work, wanted, events, plans)
        if coming is not None:
            coming.check_free(plans)
            selected = coming.chosen(work, [*selected, *live])
        if live:
            load_live(work)
            return None
        if coming is not None:
            new = append_rows.write(work.store, coming.given, step_tick(work), events)
    parts = parts_of(wanted, plans, selected)
    room = room_for(work, events, plans, parts, may_keep=wanted.may_keep)
    return _Found(pa.schema(events.schema()), plans, selected, parts, new, room)


def _attempt(work: Work, wanted: Wanted, finished: Finished) -> RemovalReport | None:
    """Selects, writes, plans and finishes; None if the call has to begin again."""
    store, found = work.store, _find(work, wanted)
    if found is None:
        return None
    if not (found.parts or found.new_files):
        return RemovalReport("empty", wanted.kind)
    work.reached("selected")
    if finished.table is None and _has_records(store):
        return None  # another process made the table and planned its removal
    with work.phase("rewrite"):
        written, table = _write(work, found, finished.table, digests=wanted.kind != "expire")
    records = removals.read_removals(store, table)
    if finished.table is None and records:
        return None  # likewise, while the files were written
    work.reached("rewritten")
    number = removals.next_number(records, finished.removed.number)  # any newer one has a record
    files = [*(one.file for one in written), *found.new_files]
    keeps = found.room.fits
    kept = rows_with_steps(found.plans, written) if keeps else None
    content = RemovedFile(files, removed_batches(wanted, found.parts, written), kept)
    file = removed_rows.write_removed(store, number, content)
    work.reached("removal written")
    parts = found.parts if found.new is None else (*found.parts, _place_of(work, found.new))
    removal = Removal(number, wanted.kind, parts, kept=keeps, file=file, request=wanted.request)
    if not removals.commit_removal(store, Race(store, REMOVALS, table), removal):
        return None
    del table, finished  # a table that nobody uses is opened again sooner
    work.reached("removal planned")
    work = replace(work, options=read_options(store))
    done = replace(finish_open(work, with_kept=found.room.is_full), table=None)
    if all(one.number != number for one in done.removed.removals):
        return None  # it was void
    looks = own_files.Looks(store)
    while looks.lost([f"{REMOVED}/{file}"]):
        removed_rows.write_removed(store, number, content, file)
    ensure_caught_up(work)
    report = report_of(removal, content)
    size = sum(one.new.size for one in files if one.new is not None)
    report.runs_rewritten, report.bytes_written = dict(done.runs), done.bytes_written + size
    return report


def _place_of(work: Work, new: Written) -> RemovedPart:
    """A step without rows, in every projection, whose rows come by the removal."""
    batch, sample = new.given.batch, new.result.sample
    step = reserve(work, batch, sample.times)
    catch_up(work)
    return RemovedPart(step, batch, -new.result.rows)


def _has_records(store: Store) -> bool:
    is_there = table_open.exists(store, REMOVALS)
    return is_there and bool(removals.read_removals(store, tables.open_table(store, REMOVALS)))


def _write(
    work: Work, found: _Found, table: DeltaTable | None, *, digests: bool
) -> tuple[list[Rewritten], DeltaTable]:
    """Writes the files, and at the same time makes the table of removals unless it is given; both."""
    time = work.options.time_column
    keeps = found.room.fits
    time = time and replace(time, name=time.stored_name)  # rewritten rows have stored names
    tasks = [RewriteTask(work.store, found.schema, time, one, digests, keeps) for one in found.selected]
    if table is not None:
        return list(work.executor.run(tasks)), table
    with ThreadPoolExecutor(1, thread_name_prefix="tidemark-tables") as beside:
        made = beside.submit(_made_signed, work)
        written = list(work.executor.run(tasks))
    return written, made.result()


def _made_signed(work: Work) -> DeltaTable:
    """Makes the tables of removals, then the feature that tells readers to look at them; `removals`."""
    store, grace = work.store, work.options.grace_us
    tables.create(store, REMOVALS, removals.SCHEMA, grace_us=grace)
    tables.create(store, REMOVED, removed_rows.SCHEMA, grace_us=grace)
    change_options(store, lambda options: options.with_feature(SIGNED))
    return tables.open_table(store, REMOVALS)
