"""The tables of a warehouse: creating, loading, maintaining and verifying them, and reading them without a JVM.

    create, load, maintain      Spark writes row data; what the driver holds is committed by delta-rs
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
)
from warehouse.live import live_values
from warehouse.load import LoadReport, load
from warehouse.snapshot import Snapshot, View, open_snapshot

__all__ = [
    "BatchMismatch",
    "DamagedWarehouse",
    "EmptyWindow",
    "InputError",
    "LoadReport",
    "NotAWarehouse",
    "OptionsMismatch",
    "Snapshot",
    "TidemarkError",
    "View",
    "create",
    "live_values",
    "load",
    "open_snapshot",
    "read_options",
]
