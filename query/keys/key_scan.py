"""Questions about all keys of a window at once: aggregates by DuckDB over the rows of the key runs.

Each block is read as every other read reads it, so local disks and object stores are one path and a file
that cannot be read is told by its name; its rows are summed by key before they reach DuckDB, as names,
which order and equal one another as keys do. What does not fit into memory DuckDB keeps on disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import COLUMNS, KeyHistory
from tidemark.warehouse.columns.keys import Name, arrow_array
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_rows import KeyRows

GROUPS_A_READ = 32

# Histories that are counted together, each with the share of its rows that is about inside the window.
Parts = Sequence[tuple[KeyHistory, float]]
Bounds = tuple[int, float, int]  # certainly at least, about, at most: what has a share below 1 may be outside
SUMMED = """
SELECT name, sum(rows)::HUGEINT AS rows, sum(rows * share) AS about,
    coalesce(sum(rows) FILTER (share = 1), 0)::HUGEINT AS sure
FROM read GROUP BY name
"""


def names(history: KeyHistory) -> list[Name]:
    """Every name that has rows in the window, ascending."""
    return [name for (name,) in _ask({"a": [(history, 1.0)]}, "SELECT name FROM a ORDER BY name")]


def second_moment(parts: Parts) -> Bounds:
    """The sum over all keys of the square of their rows in the window."""
    return _bounds({"a": parts}, "a.{0} * a.{0}", "a")


def inner_product(a: Parts, b: Parts) -> Bounds:
    """The sum over all keys of their rows in the one window times their rows in the other."""
    return _bounds({"a": a, "b": b}, "a.{0} * b.{0}", "a JOIN b ON a.name = b.name")


def _bounds(inputs: dict[str, Parts], term: str, tables: str) -> Bounds:
    sums = ", ".join(f"sum({term.format(column)})" for column in ("sure", "about", "rows"))
    low, about, high = _ask(inputs, f"SELECT {sums} FROM {tables}")[0]
    return int(low or 0), float(about or 0), int(high or 0)


def _ask(inputs: dict[str, Parts], question: str) -> list[tuple[Any, ...]]:
    """The answer over tables (name, rows, sure, about), one an input."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder, duckdb.connect() as connection:
        connection.execute("SET temp_directory = ?", [folder])
        for table, parts in inputs.items():
            failed: list[DamagedWarehouse] = []
            kind = pa.large_binary() if parts[0][0].view.key.is_text else pa.int64()
            schema = pa.schema([("name", kind), ("rows", pa.int64()), ("share", pa.float64())])
            reader = pa.RecordBatchReader.from_batches(schema, _batches(parts, schema, failed))
            connection.register("read", reader)
            try:
                connection.execute(f"CREATE TEMP TABLE {table} AS {SUMMED}")
            except duckdb.Error:
                if failed:  # what the reader met crosses DuckDB as text
                    raise failed[0] from None
                raise
            connection.unregister("read")
        return connection.execute(question).fetchall()


def _batches(parts: Parts, schema: pa.Schema, failed: list[DamagedWarehouse]) -> Iterator[pa.RecordBatch]:
    """The rows of all parts by name, a batch a block."""
    try:
        for history, share in parts:
            for rows in _stored(history):
                yield _by_name(rows, history.window.holds(rows.ticks), share, schema)
            for rows in history.live() if history.live else ():
                yield _by_name(rows, np.ones(len(rows), dtype=bool), 1.0, schema)
    except DamagedWarehouse as error:
        failed.append(error)
        raise


def _stored(history: KeyHistory) -> Iterator[KeyRows]:
    """All rows of the runs that have some in the window."""
    root, key = history.view.root, history.view.key
    for file in (file for share in history.shares for file in share.marks.files):
        groups = range(len(history.blocks.footer(root, file).edges) - 1)
        for at in range(0, len(groups), GROUPS_A_READ):
            some = groups[at : at + GROUPS_A_READ]
            for block in history.blocks.read(root, file, some, COLUMNS, KeyCounts(key).dictionaries):
                yield from KeyCounts(key).loaded(block)


def _by_name(rows: KeyRows, inside: NDArray[np.bool_], share: float, schema: pa.Schema) -> pa.RecordBatch:
    counts = np.where(inside, rows.counts, 0)
    sums = np.add.reduceat(counts, rows.starts()) if len(rows) else counts
    seen = sums > 0
    names = arrow_array(rows.names) if isinstance(rows.names, np.ndarray) else rows.names
    columns = [names, arrow_array(sums), arrow_array(np.full(len(sums), share))]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch if seen.all() else batch.take(arrow_array(np.flatnonzero(seen)))
