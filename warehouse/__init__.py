"""The tables of a warehouse: created, loaded, maintained, verified and read, with Spark or without.

Tasks write files, and the driver commits them through delta-rs. Reading needs no Spark. With None for spark,
this process does the work. The package and its calls:

    warehouse.create(spark, uri, measures=["delay"], key="origin", time="time", eps=0.001, kappa=10)
    warehouse.create(spark, uri, measures=["delay"], keys=["origin", ["origin", "dest"]], groups=["origin"])
    warehouse.register_companion(kind)                      # a kind of yours, here with the name hll
    warehouse.create(spark, uri, ["delay"], companions={"users": ("hll", "user_id")})
    warehouse.alter(spark, uri, add_group="dest")           # built from events, step by step; resumable
    warehouse.alter(spark, uri, drop_measure="delay", kappa=4)
    warehouse.load(spark, uri, df, batch="2026-11-20")      # the same batch again changes nothing
    warehouse.load(spark, uri)                              # moves what the streams brought into history
    warehouse.load(None, uri, table_or_path, batch="2026-11-20")    # a pyarrow Table or reader, Parquet files
    warehouse.unload(spark, uri, batch="2026-11-20")        # removes a batch that was loaded by mistake
    warehouse.delete(spark, uri, where="user = 'x'")        # removes rows from events and every answer
    warehouse.expire(spark, uri, before="2025-01-01")       # removes old rows; or create(retention="400d")
    warehouse.restore(uri, removal=5)                       # restores what an unload or a delete removed
    warehouse.correct(spark, uri, df, batch="fix", on="id") # replaces rows by others in one step
    warehouse.delete(spark, uri, where="user = 'x'", purge=True)   # and no file has them a grace later
    warehouse.certificates(uri)                             # what is certified of each purge
    warehouse.maintain(spark, uri); warehouse.verify(uri)   # deletes old files, dropped tables; checks all
    warehouse.repair(spark, uri, dry_run=True)              # what is damaged is made again from events
    warehouse.copy(uri, "s3://backup/flights")              # while others write; verified
    warehouse.new_secret(); warehouse.use_secret(file="secret")     # of warehouses created with private=True
    warehouse.use_catalog(resolve)                          # names of a catalog as addresses
    snapshot = warehouse.open_snapshot(uri).current()       # an immutable value
    warehouse.read_options(snapshot.store); warehouse.live_values(snapshot, snapshot.view(), window)

The rooms, from the lowest floor to the highest:

    cascade, errors, per_process
                      how deep ranges of the ledger nest; what is raised; what a forked child makes anew
    private           secrets, and the tokens of values
    columns, memory_cache, os_errors, sizes, temporary_folders
                      types, ticks, keys and values, without a file; an LRU cache; refusals of the system;
                      sizes of tasks, files and blocks; the temporary files of a process
    companions, execution, integrity
                      summaries of the users' kinds; tasks in Spark or in this process; digests
    delta, text       tables that are opened, committed and vacuumed, on a disk and in an object store; the
                      strict reader of CSV and JSON. delta is hard: an error of a commit does not say
                      whether it was done, and each request to a store counts
    events, exchange, runs
                      reads of `events`, and the plans of loads; messages between sites as files; layout,
                      merges, files and marks of runs
    projections       what is stored sorted: values, values by group, keys, indexes; companions' cells
    settings          the options of a warehouse, and the features of its format
    ledger, work      summaries of batches that are not loaded, in ranges (the cascade); what a call that
                      writes works with
    ingest, loads, snapshots
                      rows of a batch into `events`; runs, built in tasks and committed step by step; what a
                      reader sees at one moment.
                      snapshots is hard: tables are looked at one after the other while others commit, and
                      no row may be missed or counted twice
    removals          how rows are removed: selection, files without them, the commit, the runs
    create, load, maintain, rotate, verification
                      a new warehouse; a load from end to end; old files; a newer secret of private columns;
                      the checks of verify. load.py is the hardest file, with loads/history.py: it must go on
                      from any crash, and beside other loaders
    repairs           how damaged tables are made again
    alter, remove, repair, verify
                      measures, keys, groups, indexes, added and dropped (a dropped table stays for a grace:
                      snapshots look at it, maintain empties it); unload and delete; what is damaged, made
                      again; every invariant, checked
    copy, correct, expire, restore
                      a copy of a warehouse, of one moment; rows replaced by others; rows that are too old
                      removed; removed rows restored

DESIGN.md is the contract. All functions raise errors of `tidemark.warehouse.errors` and print nothing.
The logger `tidemark` and its children record loads, merges, maintenance and creation at INFO, and lost commit
races at WARNING.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidemark.first_use import import_at_first_use
from tidemark.warehouse.errors import (
    BatchMismatch,
    CommitFailed,
    Contended,
    DamagedWarehouse,
    EmptyWindow,
    InputError,
    NotAWarehouse,
    OptionsMismatch,
    OverlappingBatch,
    StoreUnavailable,
    SystemRefused,
    TidemarkError,
    TooManyRejected,
)

if TYPE_CHECKING:
    from tidemark.warehouse.alter import alter
    from tidemark.warehouse.companions.kinds import CompanionKind, register_companion
    from tidemark.warehouse.copy import CopyReport, copy
    from tidemark.warehouse.correct import correct
    from tidemark.warehouse.create import create
    from tidemark.warehouse.delta.addresses import use_catalog
    from tidemark.warehouse.events.purges import Certificate
    from tidemark.warehouse.expire import expire
    from tidemark.warehouse.load import load
    from tidemark.warehouse.loads.history import LoadReport
    from tidemark.warehouse.maintain import MaintenanceReport, maintain
    from tidemark.warehouse.private.secrets import new_secret, use_secret
    from tidemark.warehouse.removals.reports import RemovalReport
    from tidemark.warehouse.remove import certificates, delete, unload
    from tidemark.warehouse.repair import RepairReport, repair
    from tidemark.warehouse.restore import RestoreReport, restore
    from tidemark.warehouse.settings.options import read_options
    from tidemark.warehouse.sizes import Tuning
    from tidemark.warehouse.snapshots.live_rows import live_values
    from tidemark.warehouse.snapshots.snapshot import Snapshot
    from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader, open_snapshot
    from tidemark.warehouse.snapshots.step_history import StepRecord, history
    from tidemark.warehouse.snapshots.views import View
    from tidemark.warehouse.verify import Check, Report, verify

logging.getLogger("tidemark").addHandler(logging.NullHandler())
import_at_first_use(
    __name__,
    {
        "alter": "alter",
        "companions.kinds": "CompanionKind register_companion",
        "copy": "CopyReport copy",
        "correct": "correct",
        "create": "create",
        "delta.addresses": "use_catalog",
        "events.purges": "Certificate",
        "expire": "expire",
        "load": "load",
        "loads.history": "LoadReport",
        "maintain": "MaintenanceReport maintain",
        "private.secrets": "new_secret use_secret",
        "removals.reports": "RemovalReport",
        "remove": "certificates delete unload",
        "repair": "RepairReport repair",
        "restore": "RestoreReport restore",
        "settings.options": "read_options",
        "sizes": "Tuning",
        "snapshots.live_rows": "live_values",
        "snapshots.snapshot": "Snapshot",
        "snapshots.snapshot_reader": "SnapshotReader open_snapshot",
        "snapshots.step_history": "StepRecord history",
        "snapshots.views": "View",
        "verify": "Check Report verify",
    },
)

__all__ = [
    "BatchMismatch",
    "Certificate",
    "Check",
    "CommitFailed",
    "CompanionKind",
    "Contended",
    "CopyReport",
    "DamagedWarehouse",
    "EmptyWindow",
    "InputError",
    "LoadReport",
    "MaintenanceReport",
    "NotAWarehouse",
    "OptionsMismatch",
    "OverlappingBatch",
    "RemovalReport",
    "RepairReport",
    "Report",
    "RestoreReport",
    "Snapshot",
    "SnapshotReader",
    "StepRecord",
    "StoreUnavailable",
    "SystemRefused",
    "TidemarkError",
    "TooManyRejected",
    "Tuning",
    "View",
    "alter",
    "certificates",
    "copy",
    "correct",
    "create",
    "delete",
    "expire",
    "history",
    "live_values",
    "load",
    "maintain",
    "new_secret",
    "open_snapshot",
    "read_options",
    "register_companion",
    "repair",
    "restore",
    "unload",
    "use_catalog",
    "use_secret",
    "verify",
]
