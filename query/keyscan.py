"""Questions about all keys of a window at once: aggregates by DuckDB over the rows of the key runs.

Each block is read as every other read reads it, so local disks and object stores are one path and a file
that cannot be read is told by its name; its rows are summed by key before they reach DuckDB, as names,
which order and equal one another as keys do. What does not fit into memory DuckDB keeps on disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from query.keyblocks import COLUMNS, KeyHistory, texts_of
from warehouse.errors import DamagedWarehouse
from warehouse.keyfiles import key_rows
from warehouse.keyrows import KeyRows
from warehouse.keys import Name

GROUPS_A_READ = 32


def reaching(history: KeyHistory, least: int) -> list[tuple[Name, int]]:
    """Every name with at least so many rows in the window, and its rows: most first, then by name."""
    question = f"SELECT name, rows FROM a WHERE rows >= {int(least)} ORDER BY rows DESC, name"
    return _ask({"a": history}, question)


def most(history: KeyHistory, k: int) -> list[tuple[Name, int]]:
    """The k names with most rows in the window; of equally many the least names."""
    return _ask({"a": history}, f"SELECT name, rows FROM a ORDER BY rows DESC, name LIMIT {int(k)}")


def names(history: KeyHistory) -> list[Name]:
    """Every name that has rows in the window, ascending."""
    return [name for (name,) in _ask({"a": history}, "SELECT name FROM a ORDER BY name")]


def second_moment(history: KeyHistory) -> int:
    """The sum over all keys of the square of their rows in the window."""
    return int(_ask({"a": history}, "SELECT sum(rows * rows) FROM a")[0][0] or 0)


def inner_product(a: KeyHistory, b: KeyHistory) -> int:
    """The sum over all keys of their rows in the one window times their rows in the other."""
    question = "SELECT sum(a.rows * b.rows) FROM a JOIN b ON a.name = b.name"
    return int(_ask({"a": a, "b": b}, question)[0][0] or 0)


def _ask(inputs: dict[str, KeyHistory], question: str) -> list[tuple[Any, ...]]:
    """The answer over tables (name, rows), one an input."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder, duckdb.connect() as connection:
        connection.execute("SET temp_directory = ?", [folder])
        for table, history in inputs.items():
            failed: list[DamagedWarehouse] = []
            kind = pa.large_binary() if history.view.key.is_text else pa.int64()
            schema = pa.schema([("name", kind), ("rows", pa.int64())])
            reader = pa.RecordBatchReader.from_batches(schema, _batches(history, schema, failed))
            connection.register("read", reader)
            summed = "SELECT name, sum(rows)::HUGEINT AS rows FROM read GROUP BY name"
            try:
                connection.execute(f"CREATE TEMP TABLE {table} AS {summed}")
            except duckdb.Error:
                if failed:  # what the reader met crosses DuckDB as text
                    raise failed[0] from None
                raise
            connection.unregister("read")
        return connection.execute(question).fetchall()


def _batches(
    history: KeyHistory, schema: pa.Schema, failed: list[DamagedWarehouse]
) -> Iterator[pa.RecordBatch]:
    """The rows in the window by name, a batch a block."""
    root, key = history.view.root, history.view.key
    try:
        for file in (file for share in history.shares for file in share.marks.files):
            groups = range(len(history.blocks.footer(root, file).edges) - 1)
            for at in range(0, len(groups), GROUPS_A_READ):
                some = groups[at : at + GROUPS_A_READ]
                for table in history.blocks.tables(root, file, some, COLUMNS, texts_of(key)):
                    for rows in key_rows(key, table):
                        yield _by_name(history, rows, schema)
        for rows in history.live() if history.live else ():
            yield _by_name(history, rows, schema)
    except DamagedWarehouse as error:
        failed.append(error)
        raise


def _by_name(history: KeyHistory, rows: KeyRows, schema: pa.Schema) -> pa.RecordBatch:
    inside = np.where(history.window.holds(rows.ticks), rows.counts, 0)
    sums = np.add.reduceat(inside, rows.starts()) if len(rows) else inside
    seen = sums > 0
    names = pa.array(rows.names) if isinstance(rows.names, np.ndarray) else rows.names
    batch = pa.RecordBatch.from_arrays([names, pa.array(sums)], schema=schema)
    return batch if seen.all() else batch.filter(pa.array(seen))
