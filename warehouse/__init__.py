"""The tables of a warehouse: created, loaded, maintained, verified and read, with Spark or without.

    create, load, maintain      Spark's tasks write files, the driver commits them through delta-rs
    open_snapshot               a SnapshotReader, whose snapshots are immutable values; needs no Spark
    verify                      checks every invariant on the tables
    repair                      makes again from `events` what is damaged

The rooms, from the lowest floor to the highest:

    cascade, errors, per_process
                      how deep ranges of the ledger nest; what is raised; what a forked child makes anew
    columns, memory_cache, os_errors, sizes, temporary_folders
                      types, ticks, keys and values, without a file; an LRU cache; refusals of the system;
                      sizes of tasks, files and blocks; the temporary files of a process
    companions, execution, integrity
                      summaries of the users' kinds; tasks in Spark or in this process; digests
    delta, text       tables that are opened, committed and vacuumed, on a disk and in an object store; the
                      strict reader of CSV and JSON. delta is hard: an error of a commit does not say
                      whether it was done, and each request to a store counts
    events, runs      reads of `events`, and the plans of loads; layout, merges, files and marks of runs
    projections       what is stored sorted: values, values by group, keys
    settings          the options of a warehouse, and the features of its format
    ledger            summaries of batches that are not loaded, in ranges (the cascade)
    ingest, loads, snapshots
                      rows of a batch into `events`; tasks that build runs; what a reader sees at one moment.
                      snapshots is hard: tables are looked at one after the other while others commit, and
                      no row may be missed or counted twice
    create, load, maintain, verification
                      a new warehouse; a load from end to end; old files; the checks of verify. load.py is
                      the hardest file: it must go on from any crash, and beside other loaders
    repairs           how damaged tables are made again
    alter, repair, verify
                      further keys and groups; what is damaged, made again; every invariant, checked

DESIGN.md is the contract. All functions raise errors of `tidemark.warehouse.errors` and print nothing.
The logger `tidemark` and its children record loads, merges, maintenance and creation at INFO, and lost commit
races at WARNING.
"""

import logging

from tidemark.warehouse.alter import alter
from tidemark.warehouse.companions.kinds import CompanionKind, register_companion
from tidemark.warehouse.create import create
from tidemark.warehouse.delta.addresses import use_catalog
from tidemark.warehouse.errors import (
    BatchMismatch,
    CommitFailed,
    Contended,
    DamagedWarehouse,
    EmptyWindow,
    InputError,
    NotAWarehouse,
    OptionsMismatch,
    StoreUnavailable,
    SystemRefused,
    TidemarkError,
    TooManyRejected,
)
from tidemark.warehouse.load import LoadReport, load
from tidemark.warehouse.maintain import MaintenanceReport, maintain
from tidemark.warehouse.repair import RepairReport, repair
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.snapshots.live_rows import live_values
from tidemark.warehouse.snapshots.snapshot import Snapshot, View
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader, open_snapshot
from tidemark.warehouse.verify import Check, Report, verify

logging.getLogger("tidemark").addHandler(logging.NullHandler())

__all__ = [
    "BatchMismatch",
    "Check",
    "CommitFailed",
    "CompanionKind",
    "Contended",
    "DamagedWarehouse",
    "EmptyWindow",
    "InputError",
    "LoadReport",
    "MaintenanceReport",
    "NotAWarehouse",
    "OptionsMismatch",
    "RepairReport",
    "Report",
    "Snapshot",
    "SnapshotReader",
    "StoreUnavailable",
    "SystemRefused",
    "TidemarkError",
    "TooManyRejected",
    "Tuning",
    "View",
    "alter",
    "create",
    "live_values",
    "load",
    "maintain",
    "open_snapshot",
    "read_options",
    "register_companion",
    "repair",
    "use_catalog",
    "verify",
]
