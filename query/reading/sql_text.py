"""Names, texts and files as DuckDB's SQL has them."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.warehouse.columns.column_names import ColumnNames

# DuckDB keeps at most so many greatest numbers of a part, and of all parts together, while it reads rows.
FEW, FEW_OF_ALL = 1000, 2**20


def quoted(name: str) -> str:
    """The name of a column or a table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text."""
    return "'" + text.replace("'", "''") + "'"


def named_rows(rows: str, names: ColumnNames, columns: Iterable[str]) -> str:
    """SQL of rows of `events` in which these columns have their names in the place of the stored ones."""
    asked = [(name, names.stored(name)) for name in dict.fromkeys(columns)]
    if all(name == stored for name, stored in asked):
        return rows
    return (
        f"(SELECT {', '.join(f'{quoted(stored)} AS {quoted(name)}' for name, stored in asked)} FROM {rows})"
    )


def parquet_rows(paths: Iterable[str], *options: str) -> str:
    """The rows of Parquet files, with the columns that are in the files alone, and those that options add."""
    files = ", ".join(map(literal, paths))
    return f"read_parquet([{files}], {', '.join(['hive_partitioning = false', *options])})"


def with_most(table: str, k: int, part: str, number: str, parts: int) -> str:
    """SQL of the rows of a table that can be among the k of their part with the greatest number.

    The rows have at least the k-th number of their part, so few are left to be sorted. part: the columns
    that tell parts apart. number: SQL of a number of a row. parts: how many there are; with many of them all
    rows are sorted.
    """
    if k > FEW or k * parts > FEW_OF_ALL:  # DuckDB takes the memory of k numbers for each part at once
        return f"(FROM {table})"
    least = f'SELECT {part}, list_min(max({number}, {k})) AS "the least" FROM {table} GROUP BY {part}'
    rows = f'SELECT * EXCLUDE ("the least") FROM {table} JOIN ({least}) USING ({part})'
    return f'({rows} WHERE {number} >= "the least")'
