"""The dialect `tidemark` of SQLAlchemy: warehouses as a database that can be read.

    create_engine("tidemark://?flights=/data/flights&clicks=s3://lake/clicks")

The tables are the views of `query.connect`, and its functions can be called. The names of the address are the
prefixes of both. SQL is that of DuckDB, which executes it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sqlalchemy import exc, sql, types
from sqlalchemy.engine import URL
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql import compiler

from tidemark import query
from tidemark.query.integrations import cursors
from tidemark.query.reader import Reader
from tidemark.warehouse.errors import InputError, shortened

SCHEMA = "main"
_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "BIGINT": types.BigInteger,
    "BLOB": types.LargeBinary,
    "BOOLEAN": types.Boolean,
    "DATE": types.Date,
    "DOUBLE": types.Float,
    "FLOAT": types.Float,
    "INTEGER": types.Integer,
    "SMALLINT": types.SmallInteger,
    "TIME": types.Time,
    "TIMESTAMP": types.DateTime,
    "TIMESTAMP_MS": types.DateTime,
    "TIMESTAMP_NS": types.DateTime,
    "TIMESTAMP_S": types.DateTime,
    "TINYINT": types.SmallInteger,
    "UBIGINT": types.Numeric,
    "UINTEGER": types.BigInteger,
    "USMALLINT": types.Integer,
    "UTINYINT": types.SmallInteger,
    "VARCHAR": types.String,
}


def type_of(text: str) -> types.TypeEngine[Any]:
    """The type of SQLAlchemy for one of DuckDB; NullType for lists, structs and the like."""
    if match := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", text):
        return types.Numeric(int(match[1]), int(match[2]))
    if text == "TIMESTAMP WITH TIME ZONE":
        return types.DateTime(timezone=True)
    return _TYPES.get(text, types.NullType)()


class Compiler(compiler.SQLCompiler):
    """Statements in DuckDB's SQL, where it differs."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT and OFFSET, each alone or both."""
        parts = (("LIMIT", select._limit_clause), ("OFFSET", select._offset_clause))  # noqa: SLF001  as in all dialects
        return "".join(
            f"\n {word} {self.process(clause, **kw)}" for word, clause in parts if clause is not None
        )

    def visit_empty_set_expr(self, element_types: Any, **_: Any) -> str:
        """A query without rows, for `IN ()`."""
        return f"SELECT {', '.join(['NULL'] * len(element_types or [0]))} WHERE false"


class TypeCompiler(compiler.GenericTypeCompiler):
    """Types in DuckDB's words: its FLOAT has 32 bits."""

    def visit_FLOAT(self, type_: Any, **_: Any) -> str:  # noqa: N802, ARG002
        """A double."""
        return "DOUBLE"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """A time, with a zone or without."""
        return self.visit_TIMESTAMP(type_, **kw)

    def visit_TIMESTAMP(self, type_: Any, **_: Any) -> str:  # noqa: N802
        """A time, with a zone or without."""
        return "TIMESTAMPTZ" if type_.timezone else "TIMESTAMP"

    def visit_text(self, type_: Any, **_: Any) -> str:  # noqa: ARG002
        """Text of any length."""
        return "VARCHAR"


class TidemarkDialect(DefaultDialect):
    """The dialect, with the methods that SQLAlchemy calls.

    Arguments of `connect_args`, beside those of the address: `warehouses`, a mapping of names to addresses or
    open warehouses, and all others of `query.connect`, such as `storage_options` and `memory`.
    """

    name = "tidemark"
    driver = "duckdb"
    default_paramstyle = "qmark"
    default_schema_name = SCHEMA
    statement_compiler = Compiler
    type_compiler_cls = TypeCompiler
    type_compiler = TypeCompiler  # its name before SQLAlchemy 2
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_views = True
    div_is_floordiv = False
    dbapi_exception_translation_map: Mapping[str, str] = {
        "InputError": "ProgrammingError",
        "TidemarkError": "OperationalError",
    }

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._opened: dict[str, Reader] | None = None
        self._opening = threading.Lock()

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """The module that connects."""
        return cursors

    @classmethod
    def dbapi(cls) -> ModuleType:  # type: ignore[override]
        """Its name before SQLAlchemy 2."""
        return cursors

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """The warehouses of an address. InputError for an address of another form."""
        if url.host or url.database or url.username:
            raise InputError(
                f"warehouses are named behind the question mark: {self.name}://?NAME=PATH&OTHER=PATH."
            )
        return [], {"warehouses": _addresses(url.query)} if url.query else {}

    def connect(self, *_: Any, **given: Any) -> Any:
        """A connection. All connections of an engine read through the same open warehouses."""
        _check_settings(given.pop("config", None) or {})
        with self._opening:
            if self._opened is None:
                self._opened = dict(query.connect(given.pop("warehouses", {}), **given).warehouses)
            return cursors.Connection(self._opened)

    def initialize(self, connection: Any) -> None:
        """Nothing is asked: the version is that of the package `duckdb`."""

    def do_begin(self, dbapi_connection: Any) -> None:
        """Nothing: there are no transactions."""

    def is_disconnect(self, *_: Any) -> bool:
        """Never: the database is in this process."""
        return False

    def get_schema_names(self, *_: Any, **__: Any) -> list[str]:
        """The one schema."""
        return [SCHEMA]

    def get_table_names(self, *_: Any, **__: Any) -> list[str]:
        """None: all are views."""
        return []

    def get_view_names(self, connection: Any, schema: str | None = None, **_: Any) -> list[str]:
        """The views, in the order of their names."""
        if schema not in {None, SCHEMA}:
            return []
        rows = connection.execute(
            sql.text("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY view_name")
        )
        return [name for (name,) in rows]

    def get_view_definition(
        self, connection: Any, view_name: str, schema: str | None = None, **_: Any
    ) -> str:
        """The statement that made a view."""
        statement = sql.text("SELECT sql FROM duckdb_views() WHERE NOT internal AND view_name = :name")
        rows = connection.execute(statement, {"name": view_name}).all() if schema in {None, SCHEMA} else []
        if not rows:
            raise exc.NoSuchTableError(view_name)
        return str(rows[0][0])

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> bool:
        """Whether there is a view of this name."""
        return table_name in self.get_view_names(connection, schema)

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **_: Any) -> list[Any]:
        """The columns of a view."""
        statement = sql.text(
            "SELECT column_name, data_type FROM duckdb_columns() "
            "WHERE NOT internal AND table_name = :name ORDER BY column_index"
        )
        rows = connection.execute(statement, {"name": table_name}).all() if schema in {None, SCHEMA} else []
        if not rows:
            raise exc.NoSuchTableError(table_name)
        return [
            {"name": name, "type": type_of(kind), "nullable": True, "default": None} for name, kind in rows
        ]

    def get_pk_constraint(self, *_: Any, **__: Any) -> Any:
        """None."""
        return {"constrained_columns": [], "name": None}

    def none_of_a_view(self, *_: Any, **__: Any) -> list[Any]:
        """None: views have neither keys nor constraints."""
        return []

    get_foreign_keys = get_indexes = get_unique_constraints = get_check_constraints = none_of_a_view

    def get_table_comment(self, *_: Any, **__: Any) -> Any:
        """None."""
        return {"text": None}


def _check_settings(config: Any) -> None:
    """InputError for settings of DuckDB. Superset gives its own name with them, which changes nothing."""
    if not isinstance(config, Mapping):
        raise InputError(f"config is a mapping, got {shortened(config)}. Leave it out.")
    if set(config) - {"custom_user_agent"}:
        raise InputError(
            f"config has settings of DuckDB, which are locked here, got {sorted(config)}. Leave it out; "
            "memory and storage_options are given beside it."
        )


def _addresses(given: Mapping[str, Any]) -> dict[str, Any]:
    """The warehouses of NAME=PATH, and of NAME.SITE=PATH those that are asked as one."""
    found: dict[str, Any] = {}
    for key, path in given.items():
        if not isinstance(path, str):
            raise InputError(f"{key} is given {len(path)} times. Give it once.")
        name, dot, site = key.partition(".")
        known = found.setdefault(name, {} if dot else path)
        if isinstance(known, dict) != bool(dot):
            raise InputError(f"{name} is both a warehouse and several sites. Give one or the other.")
        if dot:
            known[site] = path
    return found
