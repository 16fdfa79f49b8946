"""The second stage of a purge: files and log entries with the rows are deleted, and the certificate says so.

`maintain` calls it, once the grace has passed since the first stage (purge_traces.py). `maintain` first takes
the summaries of loaded batches out of the ledger, and deletes old files that no table names. Then, here:

    waits     files that may still have the rows are looked for. If there are any, the purge stays at stage
              'left', and the next maintenance looks again
    cut       log entries before the fence of the purge are deleted; of dropped tables, all entries before
              the newest version
    listing   the files in the warehouse are counted, and the certificate is written at the stage 'gone'

Which files may have the rows? Files that no table names, if they were written before the end of the first
stage, or up to a grace after it: a load or merge that began before that end may still have read the rows.
After a crash, the same call goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from deltalake import DeltaTable
from pyarrow import fs

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.clock import TOLERANCE
from tidemark.warehouse.delta.fences import cut_log, has_fence, removed_after
from tidemark.warehouse.delta.grace import expired
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import (
    EVENTS,
    LEDGER,
    PURGES,
    REMOVALS,
    REMOVED,
    is_runs_table,
    marks_of,
)
from tidemark.warehouse.events import purges
from tidemark.warehouse.events.purges import Certificate
from tidemark.warehouse.events.removals import NOTHING, Removed, read_removals, removed_at
from tidemark.warehouse.events.removed_rows import read_batches
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.removals.upkeep import take_marks
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.run_tables import net_of
from tidemark.warehouse.settings.options import Options

_CLOCKS_US = int(TOLERANCE * 1e6)  # by which the store's clock and this machine's may differ


def due(store: Store, grace_us: int) -> list[Certificate]:
    """The purges at the stage 'left' whose first stage ended a grace ago or earlier."""
    waiting = [one for one in purges.read_certificates(store) if one.stage == "left"]
    return [one for one in waiting if expired(one.left_ms, grace_us)]


def newest_step(waiting: Iterable[Certificate]) -> int:
    """The newest step of history at the end of the first stage of these purges; -1 for no purges."""
    return max((one.step for one in waiting), default=-1)


def certify(
    store: Store, options: Options, waiting: Iterable[Certificate], grace_us: int
) -> list[Certificate]:
    """Finishes purges, the oldest first; the certificates, each with what it waits for.

    Files past the grace were deleted before.
    """
    certificates = []
    for one in waiting:
        if waits := _left_over(store, options, one, grace_us):
            certificates.append(replace(one, waits=tuple(waits)))
            continue
        _cut_logs(store, options, one)
        found = files_of_warehouse(store, one.versions)
        still = sum(written <= one.left_ms for files in found.values() for written in files.values())
        gone = replace(
            one,
            stage="gone",
            gone_at=purges.now(),
            deleted=max(0, one.before - still),
            listing={name: len(files) for name, files in sorted(found.items())},
        )
        purges.commit_certificate(store, gone)
        certificates.append(gone)
    return certificates


def files_of_warehouse(store: Store, names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Every file below the warehouse's folder: by table its path there, and when it was written.

    Times are in milliseconds since 1970. Files of none of these tables are under ''; `purges` is left out.
    Cost: one listing of the folder.
    """
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for info in store.filesystem().get_file_info(fs.FileSelector("", recursive=True)):
        if info.type != fs.FileType.File or info.path.removeprefix("/").startswith(f"{PURGES}/"):
            continue
        path = info.path.removeprefix("/")
        parts = path.split("/")
        starts = ("/".join(parts[:count]) for count in range(1, len(parts)))
        owner = next((start for start in starts if start in found), "")
        found.setdefault(owner, {})[path.removeprefix(f"{owner}/")] = int(info.mtime.timestamp() * 1000)
    return found


def _left_over(store: Store, options: Options, one: Certificate, grace_us: int) -> list[str]:
    """The files that may have the rows, in words; nothing if no file has them."""
    events, records = tables.find_tables(store, EVENTS, REMOVALS)
    removed = (NOTHING if events is None else removed_at(store, events)).up_to(one.up_to)
    for projection in options.projections:
        take_marks(store, projection, removed)  # a merge that lost its race may have added some
    happened = {removal.file for removal in read_removals(store, records)}
    waits = _summaries(store, removed)
    for name, files in files_of_warehouse(store, one.versions).items():
        (table,) = tables.find_tables(store, name) if name else (None,)
        if table is None:
            continue
        named = {file.path for file in data_files.list_files(table)}
        is_dropped = _is_dropped(options, name, one)
        if is_dropped and named:
            waits.append(f"{name} was dropped, and its files are kept for a grace")
            continue
        clean = named & happened if name == REMOVED else named
        if name not in {LEDGER, REMOVED} and not is_dropped:
            clean |= _since_the_fence(store, name, table, one)
        newest_us = one.left_ms * 1000 + grace_us + _CLOCKS_US
        old = [
            path
            for path, written in files.items()
            if not path.startswith("_delta_log/")
            and (_is_dead(path, removed) or (path not in clean and written * 1000 <= newest_us))
        ]
        if old:
            waits.append(f"{len(old)} files of {name} are kept for a grace, such as {old[0]}")
    return waits


def _since_the_fence(store: Store, name: str, table: DeltaTable, one: Certificate) -> set[str]:
    """Files that left the table after the fence. The table named them at the fence, so they lack the rows."""
    version = one.versions[name]
    if not has_fence(store, name, version, one.id):
        return set()
    return removed_after(store, name, version, table.version())


def _is_dead(path: str, removed: Removed) -> bool:
    """Whether a file of runs or marks is of an attempt that has removed rows."""
    folder, _, _ = path.partition("/")
    if not folder.startswith("run="):
        return False
    run = Run.parse(folder.removeprefix("run="))
    return bool(removed.pending(run.first, run.last, net_of(path)))


def _summaries(store: Store, removed: Removed) -> list[str]:
    """The ranges of the ledger whose summaries may have purged rows, in words."""
    batches: dict[str, set[int]] = {}
    for removal in removed.removals:
        for batch in read_batches(store, removal.file):
            batches.setdefault(batch.source, set()).add(batch.batch)
    if not batches:
        return []
    spans = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER)).values()
    return [
        f"{LEDGER} has a summary of {span.text}"
        for span in sorted(set(chain.from_iterable(spans)))
        if any(span.first <= number <= span.last for number in batches.get(span.source, ()))
    ]


def _is_dropped(options: Options, name: str, one: Certificate) -> bool:
    """Whether the table is that of a measure, key or group that was dropped before the first stage ended."""
    return any(
        name in {dropped, *([marks_of(dropped)] if is_runs_table(dropped) else [])}
        for dropped, at in options.dropped.items()
        if at <= one.left_ms * 1000
    )


def _cut_logs(store: Store, options: Options, one: Certificate) -> None:
    """Deletes the log entries before the fences. A log that was replaced since has no fence, and stays."""
    for name, version in one.versions.items():
        (table,) = tables.find_tables(store, name)
        if table is None:
            continue
        if _is_dropped(options, name, one):
            cut_log(store, name, table.version())
        elif has_fence(store, name, version, one.id):
            cut_log(store, name, version)
