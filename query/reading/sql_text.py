"""Names, texts and files as DuckDB's SQL has them."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """The name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("'", "''") + "'"


def parquet_rows(paths: Iterable[str], *options: str) -> str:
    """The rows of Parquet files, with the columns that are in the files alone, and those that options add."""
    files = ", ".join(map(literal, paths))
    return f"read_parquet([{files}], {', '.join(['hive_partitioning = false', *options])})"
