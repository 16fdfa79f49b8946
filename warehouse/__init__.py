"""The tables of a warehouse: made, loaded, maintained and verified with Spark, read without a JVM.

    create, load, maintain      Spark's tasks write files, the driver commits them through delta-rs
    open_snapshot               what readers see; needs no Spark
    verify                      every invariant, on the real tables

DESIGN.md is the contract. Everything here raises errors of `warehouse.errors`.
"""

from warehouse.create import create, read_options
from warehouse.errors import (
    BatchMismatch,
    DamagedWarehouse,
    EmptyWindow,
    InputError,
    NotAWarehouse,
    OptionsMismatch,
    TidemarkError,
    TooManyRejected,
)
from warehouse.live import live_values
from warehouse.load import LoadReport, load
from warehouse.maintain import MaintenanceReport, maintain
from warehouse.snapshot import Snapshot, View, open_snapshot
from warehouse.verify import Check, Report, verify

__all__ = [
    "BatchMismatch",
    "Check",
    "DamagedWarehouse",
    "EmptyWindow",
    "InputError",
    "LoadReport",
    "MaintenanceReport",
    "NotAWarehouse",
    "OptionsMismatch",
    "Report",
    "Snapshot",
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
