"""Opens tables with delta-rs."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import NotAWarehouse
from tidemark.warehouse.os_errors import as_system_refused


def exists(store: Store, name: str) -> bool:
    """Whether there is a Delta table."""
    store.check_log(name)
    return DeltaTable.is_deltatable(store.table(name), store.options)


def open_directly(store: Store, name: str, version: int | None = None) -> DeltaTable:
    """The table at a version, None for the newest; of an object store not its copy (log_copy.py).

    NotAWarehouse if there is none, StoreUnavailable and SystemRefused if it cannot be read.
    """
    store.check_log(name)
    try:
        return DeltaTable(store.table(name), version=version, storage_options=store.options)
    except (TableNotFoundError, DeltaError) as error:
        store.check_place()
        if (refusal := as_system_refused(f"opening the table {name}", error)) is not None:
            raise refusal from error
        raise NotAWarehouse(
            f"{store.uri} is not a tidemark warehouse, or a damaged one: no table {name!r} "
            f"({str(error).splitlines()[0]}). Create it with warehouse.create or `tidemark create`."
        ) from error
