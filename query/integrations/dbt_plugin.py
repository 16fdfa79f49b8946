"""A plugin of dbt-duckdb: warehouses as a database beside that of the project.

    plugins:
      - module: tidemark.query.integrations.dbt_plugin
        config: {warehouses: {flights: /data/flights}}

The database is named `tidemark` and is in memory: the project's own keeps nothing of it. Its schema `main`
has the views and functions of `query.connect`. The plugin has the methods that dbt-duckdb calls, and imports
none of its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.query.reading.duckdb_errors import Raised
from tidemark.query.reading.sql_text import quoted
from tidemark.query.sql.duckdb_sql import check_registered, register
from tidemark.warehouse.errors import InputError, shortened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DATABASE = "tidemark"
_OPTIONS = ("storage_options", "memory", "max_staleness", "cache", "cache_size")


class Plugin:
    """A plugin of dbt-duckdb, with the methods that it calls.

    plugin_config: `warehouses`, the address of each by its name, and options of `query.connect`. Other
        entries are settings of the profile.
    """

    def __init__(self, name: str, plugin_config: Mapping[str, Any], credentials: Any = None) -> None:
        """InputError for warehouses that cannot be opened."""
        self.name, self.creds = name, credentials
        warehouses = plugin_config.get("warehouses")
        if not isinstance(warehouses, Mapping):
            raise InputError(
                f"the plugin {name} needs `config: {{warehouses: {{NAME: PATH}}}}`, got "
                f"{shortened(warehouses)}."
            )
        options = {one: plugin_config[one] for one in _OPTIONS if one in plugin_config}
        self._warehouses = query.connect(dict(warehouses), **options).warehouses

    def configure_connection(self, conn: DuckDBPyConnection) -> None:
        """Attaches the database."""
        for wh in self._warehouses.values():
            check_registered(wh)
        (where,) = conn.execute("SELECT current_catalog(), current_schema()").fetchall()
        conn.execute(f"ATTACH ':memory:' AS {DATABASE}")
        conn.execute(f"USE {DATABASE}")
        raised = Raised()
        for name, wh in self._warehouses.items():
            register(conn, wh, f"{name}_", temporary=False, rows_view=name, raised=raised)
        conn.execute(f"USE {'.'.join(map(quoted, where))}")

    def configure_cursor(self, cursor: Any) -> None:
        """Nothing: cursors have the attached databases of their connection."""

    def update_connection_config(self, creds: Any, config: dict[str, Any]) -> None:
        """Nothing: no option of DuckDB is needed."""

    def default_materialization(self) -> str:
        """The materialization of sources that a plugin loads: this one loads none."""
        return "table"

    def load(self, source_config: Any) -> Any:
        """InputError: the views are there, and nothing is loaded."""
        raise InputError(
            f"{source_config} needs no plugin. Name the source's `database: {DATABASE}` and `schema: main`."
        )

    def store(self, target_config: Any) -> None:
        """InputError: warehouses are only read."""
        raise InputError(
            f"{target_config} cannot be stored: dbt only reads warehouses. Load rows by `tidemark load`."
        )
