"""The tables of a warehouse: created, loaded, maintained, verified and read, with Spark or without.

    create, load, maintain      Spark's tasks write files, the driver commits them through delta-rs
    open_snapshot               a SnapshotReader, whose snapshots are immutable values; needs no Spark
    verify                      checks every invariant on the tables
    repair                      makes again from `events` what is damaged

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
