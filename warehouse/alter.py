"""Alter: measures, keys, groups and indexes come and go; columns and options change; secrets are rotated.

    types      one commit gives columns wider types (ingest/wider_types.py)
    ledger     the column of a new key is added, so that live batches can have its summaries
    options    one commit adds what is new, with the newest step that is planned by then, and sets options
    history    every step that a projection lacks is sorted from `events`, as in a load, one commit a step
    options    one commit drops what is dropped, once all that stays has all steps

A rename is one commit of the options alone (columns/column_names.py). A rotation of the secret of private
columns rewrites `events` (rotate.py); then history is built as for new projections.

From the second commit on, loads and streams write what is new. Questions about a new measure or key are
refused until history has all steps; questions about a new group are answered by a scan until then, and all
other questions go on. If the process ends early, the same call goes on from the step that it had reached; so
does the next load.

From the last commit on, questions about what was dropped are refused, also by readers that were open. The
tables of what was dropped stay for the grace; after it maintenance deletes their files. A bulk batch that a
load had committed to the dropped measure alone stays visible: readers look at the dropped table for the steps
that have begun (`StepsTold`). A measure, key or group that is added again within the grace keeps the runs
that it had.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.delta import table_open, tables
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REJECTED, STEPS
from tidemark.warehouse.delta.vacuum import extend_log_retention
from tidemark.warehouse.errors import without_secrets
from tidemark.warehouse.events.steps import newest_step
from tidemark.warehouse.ingest.wider_types import widen as widen_columns
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.load import catch_up, load_live
from tidemark.warehouse.loads.history import LoadReport
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.rotate import check_rotation, rotate
from tidemark.warehouse.settings.alterations import (
    Asked,
    changed_properties,
    declared,
    widened,
    without,
)
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

_LOG = logging.getLogger("tidemark.alter")


def alter(  # noqa: PLR0913  one keyword for each thing that can be changed
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    *,
    add_measure: str | None = None,
    add_key: str | Sequence[str] | None = None,
    add_group: str | Sequence[str] | None = None,
    add_index: str | Mapping[str, Any] | None = None,
    drop_measure: str | None = None,
    drop_key: str | Sequence[str] | None = None,
    drop_group: str | Sequence[str] | None = None,
    drop_index: str | None = None,
    widen: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    rotate_secret: bool = False,
    kappa: int | None = None,
    grace: str | None = None,
    eps: float | None = None,
    key_eps: float | None = None,
    retention: str | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> LoadReport:
    """Adds and drops measures, keys, groups and indexes of a living warehouse, widens columns, sets options.

    spark      a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri        the warehouse
    add_measure
               a column of `events`; it becomes the last measure. Its history is built from `events`, also by
               each group
    add_key    a column, or a list of columns whose values together are the key
    add_group  the same for a group, which is a key, too
    add_index  a column by whose values rows are found without a scan, or {"on": column, "include": columns}:
               an index with columns beside it, which answers statements about these without reading `events`
    drop_measure
               a measure, but not the only one. If it was the first, the next one answers questions that name
               no measure
    drop_key   a key that is no group
    drop_group
               a group; its key stays, unless `drop_key` names it, too
    drop_index
               a column with an index; from then on its rows are found by scans
    widen      wider types by the names of columns, as {"qty": "long"}: integers of more bits, double for
               float, decimals of more digits with the same scale (at most 18 for measures and keys). `events`
               is written anew in one commit; runs stay as they are, and so do all answers. Not for a column
               that a companion summarises
    rename     new names by the names of columns, as {"qty": "quantity"}, in a call of its own. No file is
               written again. From then on questions, answers and batches have the new names; rows that come
               under the old one are refused. `events` keeps the stored names for other engines. A later call
               can give a name that came free to another column
    rotate_secret
               private columns get tokens of the newest secret that this process has (`use_secret`), in a call
               of its own. The newest secret wraps the warehouse's: the file of secrets has a further line.
               `events` is written anew, what has tokens is sorted again, and live batches are loaded. Rows
               that were removed before are not restored any more, and batches that lost rows are compared by
               their number of rows when they come again. Not where a companion summarises a private column
    kappa      the most runs of a level from now on; runs are merged until no level has more
    grace      how long old files are kept from now on; what a shorter grace has deleted does not come back
    eps, key_eps
               the errors of what comes from now on. Live batches keep their summaries, so until they are
               loaded, answers that use them state the larger eps
    retention  how long rows are kept by their time from now on, 'forever' without an end; what has expired
               does not come back
    storage_options, progress, tuning
               as in `load`

    Returns what was done, as a load reports it. The outcome is 'loaded' if steps were sorted, 'altered' if
    only options changed, and 'known' if nothing had to be changed. Calling it again after a crash continues.
    Live batches that were streamed before have no summaries of what is new: until they are loaded, each
    reader reads their rows once. Files of what is dropped are deleted by `maintain`, a grace later.

    Raises InputError for a column that is missing or cannot be a measure or key, if what is to be dropped is
    not there, and if nothing was given; then nothing was changed. A key or an index costs a sort of all rows,
    a group one for each measure, a measure one, and one more for each group. To widen costs a write of
    `events`; to drop or set, a few commits.
    """
    with report_os_errors("alter"):
        store = Store.from_uri(uri, storage_options, tuning)
        asked = Asked.of(
            add_measure=add_measure,
            add_key=add_key,
            add_group=add_group,
            add_index=add_index,
            drop_measure=drop_measure,
            drop_key=drop_key,
            drop_group=drop_group,
            drop_index=drop_index,
            widen=widen,
            rename=rename,
            rotate_secret=rotate_secret,
            kappa=kappa,
            grace=grace,
            eps=eps,
            key_eps=key_eps,
            retention=retention,
        )
        work = Work.on(spark, store, progress)
        before = work.options
        _check(before, asked)
        if asked.widen:
            widen_columns(work, asked.widen)
            _check(read_options(store), asked)  # another call may have given a column another type
        options = rotate(work) if asked.rotate_secret else _declare(store, asked)
        if asked.rename:
            return LoadReport(outcome="known" if options == before else "altered")
        work = replace(work, options=options)
        report = catch_up(work)
        if asked.rotate_secret:
            load_live(work)  # the ledger has older tokens of live batches
        if asked.drops:
            work.reached("built")
            options = _drop(replace(work, options=options), asked)
            work.reached("dropped")
            more = catch_up(replace(work, options=options))  # what another load had begun in what was dropped
            report = report if more.outcome == "known" else more
        if report.outcome == "known" and options != before:
            report.outcome = "altered"
        _LOG.info("%s: has the measures %s and the keys %s", *_names(store, options))
        return report


def check_changes(store: Store, **given: Any) -> None:
    """InputError as `alter`, before a Spark session is started; nothing is changed."""
    asked = Asked.of(**given)
    store.files.check_place(writing=True)
    _check(read_options(store), asked)


def _check(options: Options, asked: Asked) -> None:
    if asked.rotate_secret:
        check_rotation(options)
    wanted = without(declared(widened(options, asked.widen), asked, lambda: -1), asked, 0)
    KeyPromise.of(wanted).check()


def _declare(store: Store, asked: Asked) -> Options:
    """Commits additions, renames and new values, unless the options have them; returns the options."""
    race = Race(store, EVENTS)
    while True:
        options = read_options(store, race.table)
        wanted = declared(options, asked, partial(newest_step, store))
        if wanted == options:
            return options
        if wanted.grace_us > options.grace_us:
            _keep_logs(store, options, wanted.grace_us)
        ledger_table.add_columns(store, wanted.key_fields)
        if race.change(NewProperties(changed_properties(options, wanted))):
            return read_options(store)


def _drop(work: Work, asked: Asked) -> Options:
    """Commits the options without the dropped parts, once all projections have all steps; returns these.

    `work` has the options whose projections have all steps.
    """
    race = Race(work.store, EVENTS)
    while True:
        options = read_options(work.store, race.table)
        if options.projections != work.options.projections:  # another alter added some
            catch_up(replace(work, options=options))
            work = replace(work, options=options)
        wanted = without(options, asked, round(time.time() * 1e6))
        if wanted == options:
            return options
        if race.change(NewProperties(changed_properties(options, wanted))):
            return read_options(work.store)


def _keep_logs(store: Store, options: Options, grace_us: int) -> None:
    """Lets all logs be kept for longer than the grace, before the options have it."""
    of_runs = [name for one in options.projections for name in (one.runs_table, one.marks_table)]
    there = [name for name, table in zip(of_runs, tables.find_tables(store, *of_runs), strict=True) if table]
    for name in (
        *there,
        *(one for one in (LEDGER, STEPS, REJECTED, EVENTS) if table_open.exists(store, one)),
    ):
        extend_log_retention(store, name, grace_us)


def _names(store: Store, options: Options) -> tuple[str, str, str]:
    keys = ", ".join(" and ".join(columns) for columns in options.key_names)
    return without_secrets(store.uri), ", ".join(options.measure_names), keys or "none"
