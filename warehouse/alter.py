"""Alter: a further key or group for a warehouse that has data.

    ledger     the column of the new key is added, so that live batches can have its summaries
    options    one commit adds the key to the options, with the newest step that is planned by then
    history    every step is sorted for the new key from `events`, as a load does it, one commit per step

From the second commit on, loads and streams write the new key, too. Questions about it are refused until
history has all steps; a new group is answered by a scan until then, and all other questions go on. If the
process ends early, the same call goes on from the step that it had reached; so does the next load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError, without_secrets
from tidemark.warehouse.events.steps import newest_step
from tidemark.warehouse.execution.executors import executor_for
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.load import catch_up
from tidemark.warehouse.loads.history import LoadReport
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.settings.option_checks import check_folders
from tidemark.warehouse.settings.options import Columns, Options, columns_of_key, read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from tidemark.warehouse.execution.executors import Executor

_LOG = logging.getLogger("tidemark.alter")


@report_os_errors("alter")
def alter(
    spark: SparkSession | None,
    uri: str | os.PathLike[str],
    *,
    add_key: str | Sequence[str] | None = None,
    add_group: str | Sequence[str] | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
    tuning: Tuning | None = None,
) -> LoadReport:
    """Adds a key or a group to a warehouse, and builds its history from `events`.

    spark      a Spark session, whose tasks do the work; None: this process does it, as in `load`
    uri        the warehouse
    add_key    a column, or a list of columns whose values together are the key
    add_group  the same for a group, which is a key, too
    storage_options, progress, tuning
               as in `load`

    Returns what was done, as a load reports it: the outcome is 'loaded', or 'known' if the key was there and
    its history was whole. Calling it again after a crash continues. Live batches that were streamed before
    have no summaries of a new key: until they are loaded, each reader reads their rows once.

    Raises InputError for a column that is missing or cannot be a key, and if nothing was given; then nothing
    was changed. The cost is that of sorting all rows once per key, and once per group and measure.
    """
    store = Store.from_uri(uri, storage_options, tuning)
    keys, groups = _additions(add_key, add_group)
    store.files.check_place(writing=True)
    executor = executor_for(spark, store.tuning)
    options = _commit_options(executor, store, keys, groups)
    report = catch_up(Work(executor, store, options, progress))
    _LOG.info(
        "%s: has %s",
        without_secrets(store.uri),
        ", ".join(" and ".join(columns) for columns in options.key_names),
    )
    return report


def _commit_options(executor: Executor, store: Store, keys: list[Columns], groups: list[Columns]) -> Options:
    """Adds the keys and groups to the options, unless they have them; returns the options."""
    race = Race(store, EVENTS)
    while True:
        options = read_options(store, race.table)
        executor.check_sendable(options.companions.known_kinds())
        wanted = _with_keys(options, keys, groups)
        if wanted is None:
            return options
        ledger_table.add_columns(store, wanted.key_fields)
        new = [one.runs_table for one in wanted.projections if one not in options.projections]
        built_from = {**options.built_from, **dict.fromkeys(new, newest_step(store))}
        if race.change(NewProperties(replace(wanted, built_from=built_from).properties())):
            return read_options(store)


def check_additions(
    store: Store, add_key: str | Sequence[str] | None, add_group: str | Sequence[str] | None
) -> None:
    """InputError as `alter`, before a Spark session is started; nothing is changed."""
    keys, groups = _additions(add_key, add_group)
    store.files.check_place(writing=True)
    _with_keys(read_options(store), keys, groups)


def _additions(
    add_key: str | Sequence[str] | None, add_group: str | Sequence[str] | None
) -> tuple[list[Columns], list[Columns]]:
    """The new keys and the new groups; InputError if there are none."""
    if add_key is None and add_group is None:
        raise InputError("alter needs add_key or add_group: a column, or a list of columns.")
    keys, groups = ([] if given is None else [columns_of_key(given)] for given in (add_key, add_group))
    return keys, groups


def _with_keys(options: Options, keys: list[Columns], groups: list[Columns]) -> Options | None:
    """The options with the new keys and groups; None if they have them already. InputError as `alter`."""
    known = set(map(frozenset, options.key_names))
    known_groups = set(map(frozenset, options.group_names))
    new_keys = [columns for columns in keys if frozenset(columns) not in known]
    new_groups = [columns for columns in groups if frozenset(columns) not in known_groups]
    if not new_keys and not new_groups:
        return None
    # The keys that there are come first, so that the default of questions stays the same.
    wanted = replace(
        options,
        own_keys=(*options.key_names, *new_keys) if new_keys else options.own_keys,
        group_names=(*options.group_names, *new_groups),
    )
    check_folders(wanted.measure_names, wanted.key_names)
    if wanted.columns:
        wanted.check_columns(dict(wanted.columns))
    return wanted
