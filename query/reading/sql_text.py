"""Names, texts and files as DuckDB's SQL has them."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """The name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("'", "''") + "'"


def parquet_rows(paths: Iterable[str]) -> str:
    """The rows of Parquet files, with the columns that are in the files alone."""
    return f"read_parquet([{', '.join(map(literal, paths))}], hive_partitioning = false)"
