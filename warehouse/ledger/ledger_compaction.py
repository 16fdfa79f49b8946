"""Compaction of the ledger: rows past the grace leave it, and files that few readers need become one.

A file of one live range stays as it is, because readers find it by its statistics. All other files are
rewritten together: rows past the grace are left out, each live range gets a file of its own, and the rest
becomes one file of several ranges. Nothing is rewritten while there are few such files and no row is past the
grace.

A range is dropped in two cases: history has had all its batches for the grace, or a wider live range has
repeated its rows for the grace. Readers whose snapshot is younger than the grace need neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.grace import expired
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import LEDGER
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger import ledger_table

_LEDGER_FILES = 8  # files that are not of one live range; if there are more, they are joined


def write_compaction(
    store: Store,
    table: DeltaTable,
    loaded: Sequence[BatchRange],
    planned: Sequence[BatchRange],
    grace_us: int,
) -> tuple[list[Any], int] | None:
    """Writes the files of a compaction and commits nothing; None if there is nothing to compact.

    Returns the actions of its commit, and how many rows it removes.

    `table` is the ledger. `loaded` are the ranges that history has had for the grace, `planned` those of all
    plans.
    """
    files = {file.path: file for file in data_files.list_files(table)}
    ranges = ledger_table.ranges_by_file(store, table)
    live = set(ledger_table.live_ranges(chain.from_iterable(ranges.values()), loaded))
    old_files = {path for path, file in files.items() if expired(file.modified, grace_us)}
    dropped = _dropped(ranges, live, old_files, loaded, planned)
    rewritten = [path for path, in_file in ranges.items() if not (len(in_file) == 1 and in_file[0] in live)]
    if len(rewritten) <= _LEDGER_FILES and not dropped:
        return None
    actions: list[Any] = []
    rows_removed, rest = 0, []
    for path in rewritten:
        rows = data_files.read_file(store, LEDGER, path)
        kept = ledger_table.rows_of_ranges(rows, dropped, others=True)
        rows_removed += len(rows) - len(kept)
        actions.append(data_files.remove_action(files[path]))
        live_here = live.intersection(ranges[path])
        actions += [
            ledger_table.write_rows(store, batches, ledger_table.rows_of_ranges(kept, {batches}))
            for batches in sorted(live_here)
        ]
        rest.append(ledger_table.rows_of_ranges(kept, live_here, others=True))
    joined = pa.concat_tables(rest, promote_options="default")
    if len(joined):
        actions.append(data_files.write_file(store, LEDGER, joined, f"{data_files.unique_name()}.parquet"))
    return actions, rows_removed


def _dropped(
    ranges: Mapping[str, list[BatchRange]],
    live: set[BatchRange],
    old_files: set[str],
    loaded: Sequence[BatchRange],
    planned: Sequence[BatchRange],
) -> set[BatchRange]:
    old_live = {
        batches
        for path, in_file in ranges.items()
        for batches in in_file
        # A plan that was committed while a wide range was written may cover a part of it. Readers then need
        # the other parts, so the wide range does not replace them.
        if batches in live and not ledger_table.partly_planned(batches, planned) and path in old_files
    }
    in_history = ledger_table.disjoint(loaded)
    enclosing = ledger_table.enclosing_ranges(chain.from_iterable(ranges.values()))
    return {
        batches
        for batches, around in enclosing.items()
        if ledger_table.covers(in_history, batches) or old_live.intersection(around)
    }
