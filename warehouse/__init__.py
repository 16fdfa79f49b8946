"""The tables of a warehouse: made, loaded, maintained and verified with Spark, read without a JVM.

    create, load, maintain      Spark's tasks write files, the driver commits them through delta-rs
    open_snapshot               what readers see; needs no Spark
    verify                      every invariant, on the real tables

DESIGN.md is the contract. Everything here raises errors of `warehouse.errors`, prints nothing, and tells the
logger `tidemark` and its children what it does: loads, merges, maintenance and creation at INFO, lost races
at WARNING.
"""

import logging

from warehouse.create import create, read_options
from warehouse.errors import (
    BatchMismatch,
    CommitFailed,
    Contended,
    DamagedWarehouse,
    EmptyWindow,
    InputError,
    NotAWarehouse,
    OptionsMismatch,
    SystemRefused,
    TidemarkError,
    TooManyRejected,
)
from warehouse.live import live_values
from warehouse.load import LoadReport, load
from warehouse.maintain import MaintenanceReport, maintain
from warehouse.snapshot import Snapshot, View, open_snapshot
from warehouse.verify import Check, Report, verify

logging.getLogger("tidemark").addHandler(logging.NullHandler())

__all__ = [
    "BatchMismatch",
    "Check",
    "CommitFailed",
    "Contended",
    "DamagedWarehouse",
    "EmptyWindow",
    "InputError",
    "LoadReport",
    "MaintenanceReport",
    "NotAWarehouse",
    "OptionsMismatch",
    "Report",
    "Snapshot",
    "SystemRefused",
    "TidemarkError",
    "TooManyRejected",
    "View",
    "create",
    "live_values",
    "load",
    "maintain",
    "open_snapshot",
    "read_options",
    "verify",
]
