"""Connections to DuckDB that read nothing but the files they are opened with, and load no extensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,  # names of tables never mean variables of Python
}


def open_connection(files: Sequence[str] = (), **settings: Any) -> DuckDBPyConnection:
    """A connection to a new in-memory database that can read these files and no others.

    Times are in UTC. `settings` are settings of DuckDB; none can be changed later.
    """
    import duckdb

    connection = duckdb.connect(config=_CONFIGURATION)
    for name, value in {"TimeZone": "UTC", **settings, "allowed_paths": list(files)}.items():
        connection.execute(f"SET {name} = ?", [value])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
