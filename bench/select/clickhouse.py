"""ClickHouse in this process, with its own tables in the orders that suit the questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

_ORDERS = {"rankings": "pageRank", "visits": "visitDate"}


class SortedTables:
    """ClickHouse with a MergeTree table of the rows of Parquet files for each name."""

    def __init__(self, files: Mapping[str, Sequence[str]]) -> None:
        self._session: Any = import_module("chdb.session").Session()
        for statement in ("CREATE DATABASE select_bench", "USE select_bench"):
            self._session.query(statement)
        for name, paths in files.items():
            own = [path.removeprefix("file://") for path in paths]
            made = f"CREATE TABLE {name} ENGINE = MergeTree ORDER BY {_ORDERS[name]} AS SELECT * FROM"
            setting = "SETTINGS schema_inference_make_columns_nullable = 0"
            self._session.query(f"{made} file('{own[0]}', Parquet) {setting}")
            for path in own[1:]:
                self._session.query(f"INSERT INTO {name} SELECT * FROM file('{path}', Parquet) {setting}")
            self._session.query(f"OPTIMIZE TABLE {name} FINAL")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        found = self._session.query(statement, "ArrowTable")
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
