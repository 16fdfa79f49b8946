"""The checks of `verify` on removals: each removed row is in a record, and each record belongs to a plan.

If rows have expired, the options have the moment before which they did.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.table_names import EVENTS, REMOVED
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, batch_filter
from tidemark.warehouse.events.removals import Removal, decided
from tidemark.warehouse.events.removed_rows import (
    OF_STEP,
    RemovedBatch,
    has_rows,
    read_batches,
    read_replaced,
    read_rows,
)
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ingest.column_casts import cast_rows
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.removals.conditions import BeforeTick
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
from tidemark.warehouse.snapshots.behind import check_removed
from tidemark.warehouse.verification.pinned_tables import PinnedTables


def rows_accounted_for(pinned: PinnedTables) -> str:
    """Checks the records of removals against the plans and their files; reads each of these files.

    Each number up to that of `events` has a record or is void, at most one number above it has one, and no
    part of a plan lost more rows than it had. Which rows `events` has is checked by its batches.
    """
    records, removed = pinned.removals, pinned.removed
    newest = decided(pinned.table(EVENTS))
    undecided = [one.number for one in records if one.number > newest]
    if len(undecided) > 1:
        raise DamagedWarehouse(
            f"the removals {undecided} are planned, expected at most one that is undecided"
        )
    _check_parts(records, pinned.plans)
    named = {file.path for file in data_files.list_files(pinned.table(REMOVED))} if records else set()
    for one in records:
        if one.file not in named:
            raise DamagedWarehouse(
                f"the table {REMOVED} does not name {one.file}, which removal {one.number} has"
            )
        _check_file(pinned, one)
    waiting = [f"removal {number} is not decided" for number in undecided]
    waiting += [
        f"{projection.name} shows the rows of removal {removed.number}"
        for projection in pinned.snapshot.options.projections
        if check_removed(pinned.snapshot.state, projection) < removed.number
    ]
    note = f"; {', '.join(waiting)}: run a load, or maintain" if waiting else ""
    return f"{sum(one.rows for one in removed.removals)} rows in {len(removed.removals)} removals{note}"


def horizon_told(pinned: PinnedTables) -> str:
    """Checks that the options have the horizon, if rows have expired; counts the files that have older rows.

    Such rows came late, or a call was ended before it removed them.
    """
    options, records = pinned.snapshot.options, pinned.removals
    if options.horizon is None:
        expired = [one.number for one in records if one.kind == "expire"]
        if expired:
            raise DamagedWarehouse(
                f"rows expired by removal {expired[-1]}, and the options of events have no horizon: another "
                "tool took the property tidemark.horizon away. Expire again with the same moment."
            )
        return "no row has expired"
    older = BeforeTick(options.horizon)
    late = [one for one in data_files.list_files(pinned.table(EVENTS)) if older.share(one.stats) != "none"]
    note = f"; {len(late)} files may have older ones, which leave at the next expiry" if late else ""
    return f"rows before {options.expired_before} have expired{note}"


def _check_parts(records: list[Removal], plans: list[StepPlan]) -> None:
    """DamagedWarehouse unless each part is a part of a plan, and no more rows left it than it had."""
    planned = {(plan.step, batches): rows for plan in plans for batches, rows in plan.parts}
    gone = Counter[tuple[int, BatchRange]]()
    for one in records:
        for part in one.parts:
            gone[part.step, part.batches] += part.rows
            if part.rows < 0 and one.kind != "correct":
                raise DamagedWarehouse(f"removal {one.number} has {part.rows} rows of step {part.step}")
    for (step, batches), rows in gone.items():
        if (had := planned.get((step, batches))) is None:
            raise DamagedWarehouse(f"a removal took rows of {batches.text}, which step {step} does not have")
        if rows > had:
            raise DamagedWarehouse(f"removals took {rows} rows of {batches.text}, which had {had}")


def _check_file(pinned: PinnedTables, removal: Removal) -> None:
    """DamagedWarehouse unless the file of the removal can be read, and has the rows of its record.

    Kept rows are compared with the fingerprints of their batches. A purge removes them from the file.
    """
    read_replaced(pinned.store, removal.file)
    batches = read_batches(pinned.store, removal.file)
    if removal.kept and has_rows(pinned.store, removal.file):
        _check_kept(pinned, removal, batches)
    rows = sum(batch.rows for batch in batches)
    if rows != removal.rows:
        raise DamagedWarehouse(
            f"{REMOVED}/{removal.file} has {rows} rows that left, removal {removal.number} has {removal.rows}"
        )


def _check_kept(pinned: PinnedTables, removal: Removal, batches: list[RemovedBatch]) -> None:
    """DamagedWarehouse unless the rows that the file keeps are those of its batches."""
    rows = read_rows(pinned.store, removal.file)
    user = pa.schema([field for field in rows.schema if field.name not in {*SYSTEM_COLUMNS, OF_STEP}])
    for batch in batches:
        own = rows.filter(batch_filter(rows, [BatchRange(batch.source, batch.batch, batch.batch)]))
        found = Fingerprint()
        for part in own.select(user.names).combine_chunks().to_batches():
            found += fingerprint(cast_rows(part, user))
        if found != Fingerprint(batch.rows, batch.digest or 0):
            raise DamagedWarehouse(
                f"{REMOVED}/{removal.file} keeps other rows of batch {batch.batch} of {batch.source!r} than "
                "left"
            )
