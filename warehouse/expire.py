"""Expire: removes rows whose time is before a moment, everywhere. Rows without a time never expire.

    horizon   one commit to `events` raises the tick before which rows expire; it never falls
    remove    the rows of ticks before the horizon are removed, as those of a delete are (remove.py)

Ticks leave whole: the one that holds the given time stays. After a crash between the two commits, rows before
the horizon may still be there, and answers say that they expired; the next expiry takes them, with all that
came late. Files of `events` that have only older rows, of one batch, are removed without being read; runs
with no row left count as empty (finish.py).

With a retention, the horizon follows the clock, never the newest tick: one time far in the future would
remove all other rows. It moves by a sixteenth of the retention at least: each move sorts the run with the
oldest rows again, which may be the largest one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, TypeAlias

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.scalars import plain
from tidemark.warehouse.columns.ticks import TickGrid, from_epoch_us, now_us
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.removals.conditions import BeforeTick
from tidemark.warehouse.removals.reports import RemovalReport
from tidemark.warehouse.removals.rows_to_remove import Wanted
from tidemark.warehouse.remove import remove, work_on
from tidemark.warehouse.settings.alterations import change_options
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

Before: TypeAlias = str | datetime | date
_SLICES = 16  # of the retention, in which the horizon follows the clock


def expire(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    before: Before | None = None,
    *,
    dry_run: bool = False,
    request: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> RemovalReport:
    """Removes the rows whose time is before a moment from the table `events`, and so from every answer.

    spark     a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri       the warehouse
    before    a datetime, a date (its midnight) or ISO text, without a zone in UTC; not in the future. Whole
              ticks expire: rows of the tick that holds the moment stay. None: by the warehouse's retention
              and the clock; then rows stay for a sixteenth of the retention longer at most
    dry_run   only says how many rows would be removed, by step, and what would be written
    request   a name of this call: the same call again, after a crash, finishes it and returns its report. A
              call that found no row leaves no record
    storage_options, progress, tuning
              as in `load`

    The moment never goes back: if an earlier call had a later one, that one is used. Rows without a time
    stay. Rows before the moment that come later are visible until the next expiry. Answers about windows that
    begin before it say so, in `widened`. The outcome is 'known' if nothing changed, and 'empty' if only the
    moment changed. If a batch of which rows expired comes again, it is 'known'.

    Raises InputError if there is no time column, if neither `before` nor a retention is given, and if
    `before` is no moment or is in the future; then nothing was changed. A stream of Spark that reads the
    table `events` fails.

    The cost: files of `events` with expired rows alone are not read; files with some are written again;
    each run with rows on both sides is sorted again from `events`, for each projection.
    """
    with report_os_errors("expire"):
        began = time.perf_counter()
        work = work_on(spark, uri, request, storage_options, progress, tuning)
        grid, store = work.options.grid, work.store
        if grid is None:
            raise InputError("this warehouse has no time column, so its rows have no age and cannot expire.")
        horizon = _horizon(work.options, grid, before)

        def raised(options: Options) -> Options:
            return replace(options, horizon=_at_least(options, horizon))

        is_raised = not dry_run and not _is_done(store, request) and change_options(store, raised)
        work.reached("horizon raised")
        if work.options.columns:
            wanted = Wanted("expire", None, BeforeTick(horizon), request)
            report = remove(work, wanted, began, dry_run=dry_run)
        else:
            report = RemovalReport("empty", "expire", seconds=time.perf_counter() - began)
        if report.outcome == "empty" and not is_raised:
            report.outcome = "known"
        report.before = from_epoch_us(grid.start_of(horizon))
        return report


def _horizon(options: Options, grid: TickGrid, before: Before | None) -> int:
    """The tick before which rows expire; never an earlier one than the present. InputError as `expire`."""
    now = now_us()
    if before is None:
        return due_horizon(options, grid, now)
    moment = first_us(plain(before))
    if moment > now:
        raise InputError(
            f"before={shortened(before)} is in the future: it is "
            f"{from_epoch_us(now).isoformat(' ', 'seconds')}. Rows that expire do not come back, and the "
            "moment never falls. Nothing was changed."
        )
    return _at_least(options, grid.tick_of(moment))


def due_horizon(options: Options, grid: TickGrid, now: int) -> int:
    """The tick before which rows expire by the retention, `now` being the clock in microseconds.

    It is that of the options until a sixteenth of the retention has passed. InputError without a retention.
    """
    if options.retention_us is None:
        raise InputError(
            "the warehouse has no retention. Give the moment, expire(before='2025-01-01'), or set one: "
            "alter(retention='400 days')."
        )
    by_clock = grid.tick_of(now - options.retention_us)
    if options.horizon is None:
        return by_clock
    is_due = (by_clock - options.horizon) * grid.width_us * _SLICES >= options.retention_us
    return _at_least(options, by_clock) if is_due else options.horizon


def _at_least(options: Options, horizon: int) -> int:
    return horizon if options.horizon is None else max(horizon, options.horizon)


def _is_done(store: Store, request: str | None) -> bool:
    """Whether a removal by a call of this name happened: then nothing more is done."""
    if request is None:
        return False
    return removed_at(store, tables.open_table(store, EVENTS)).of_request(request) is not None
