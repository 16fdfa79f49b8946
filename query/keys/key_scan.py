"""Aggregates over all keys of a window, computed by DuckDB from the rows of the key runs.

Blocks are read through BlockReader, so local disks and object stores share one path and an error names the
file. The rows of a block are summed by key before they reach DuckDB. DuckDB gets keys as names, which compare
as the keys do. DuckDB spills to disk what does not fit into memory. Cost: a scan of all blocks of the runs
that have rows in the window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import COLUMNS, KeyHistory
from tidemark.query.reading.block_reader import BlockReader
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.keys import Name
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.snapshots.snapshot import KeysView

GROUPS_PER_READ = 32

# Histories to count together, each with the estimated share of its rows that lies in the window.
WeightedHistories = Sequence[tuple[KeyHistory, float]]
# (lower bound, estimate, upper bound). Rows with a share below 1 may lie outside the window: they count fully
# in the upper bound and not at all in the lower one.
BoundedEstimate = tuple[int, float, int]
SUM_BY_NAME = """
SELECT name, sum(rows)::HUGEINT AS rows, sum(rows * share) AS estimate,
    coalesce(sum(rows) FILTER (share = 1), 0)::HUGEINT AS certain
FROM read GROUP BY name
"""


def all_names(history: KeyHistory) -> list[Name]:
    """Every name that has rows in the window, ascending."""
    return [name for (name,) in _query({"a": [(history, 1.0)]}, "SELECT name FROM a ORDER BY name")]


def name_counts(history: KeyHistory) -> list[tuple[Name, int]]:
    """Every name that has rows in the window, ascending, with its number of rows."""
    rows = _query({"a": [(history, 1.0)]}, "SELECT name, certain FROM a ORDER BY name")
    return [(name, int(count)) for name, count in rows]


def distinct(a: WeightedHistories) -> BoundedEstimate:
    """The number of keys that have rows in the window."""
    sums = ", ".join(f"sum({term})" for term in _presence("a"))
    return _rounded(_query({"a": a}, f"SELECT {sums} FROM a")[0])


def overlap(a: WeightedHistories, b: WeightedHistories) -> list[BoundedEstimate]:
    """The numbers of keys that have rows in both windows, only in the first, and only in the second."""
    in_a, in_b = _presence("a"), _presence("b")
    absent_a, absent_b = ([f"(1 - {term})" for term in reversed(terms)] for terms in (in_a, in_b))
    parts = [(in_a, in_b), (in_a, absent_b), (in_b, absent_a)]
    sums = [f"sum({x} * {y})" for left, right in parts for x, y in zip(left, right, strict=True)]
    statement = f"SELECT {', '.join(sums)} FROM a FULL JOIN b ON a.name = b.name"
    found = _query({"a": a, "b": b}, statement)[0]
    return [_rounded(found[i : i + 3]) for i in (0, 3, 6)]


def _presence(table: str) -> tuple[str, str, str]:
    """Whether a name certainly has rows in the window, the chance that it has, and whether it may have."""
    share = f"least({table}.estimate / {table}.rows, 1)"
    chance = f"CASE WHEN {table}.certain > 0 THEN 1 ELSE 1 - pow(1 - {share}, {table}.rows) END"
    terms = f"({table}.certain > 0)::INT", chance, f"({table}.rows > 0)::INT"
    known, likely, may = (f"coalesce({term}, 0)" for term in terms)
    return known, likely, may


def _rounded(bounds: Sequence[Any]) -> BoundedEstimate:
    low, estimate, high = (0 if bound is None else bound for bound in bounds)
    return int(low), float(estimate), int(high)


def second_moment(histories: WeightedHistories) -> BoundedEstimate:
    """The sum over all keys of the square of their rows in the window (F2, the self-join size)."""
    return _bounds({"a": histories}, "a.{0} * a.{0}", "a")


def inner_product(a: WeightedHistories, b: WeightedHistories) -> BoundedEstimate:
    """The sum over all keys of their rows in one window times their rows in the other (the join size)."""
    return _bounds({"a": a, "b": b}, "a.{0} * b.{0}", "a JOIN b ON a.name = b.name")


def _bounds(inputs: dict[str, WeightedHistories], term: str, tables: str) -> BoundedEstimate:
    sums = ", ".join(f"sum({term.format(column)})" for column in ("certain", "estimate", "rows"))
    return _rounded(_query(inputs, f"SELECT {sums} FROM {tables}")[0])


def _query(inputs: dict[str, WeightedHistories], statement: str) -> list[tuple[Any, ...]]:
    """The rows of a SQL statement over tables (name, rows, certain, estimate), one table per input."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder, duckdb.connect() as connection:
        connection.execute("SET temp_directory = ?", [folder])
        for table, histories in inputs.items():
            errors: list[DamagedWarehouse] = []
            kind = pa.large_binary() if histories[0][0].view.key.is_text else pa.int64()
            schema = pa.schema([("name", kind), ("rows", pa.int64()), ("share", pa.float64())])
            reader = pa.RecordBatchReader.from_batches(schema, _batches(histories, schema, errors))
            connection.register("read", reader)
            try:
                connection.execute(f"CREATE TEMP TABLE {table} AS {SUM_BY_NAME}")
            except duckdb.Error:
                if errors:  # DuckDB passes on only the text of an error in the reader
                    raise errors[0] from None
                raise
            connection.unregister("read")
        return connection.execute(statement).fetchall()


def _batches(
    histories: WeightedHistories, schema: pa.Schema, errors: list[DamagedWarehouse]
) -> Iterator[pa.RecordBatch]:
    """The rows of all histories summed by name, one batch per block; errors are appended to `errors`."""
    try:
        for history, share in histories:
            stored = (run_rows(history.blocks, history.view, share.marks) for share in history.shares)
            for rows in chain.from_iterable(stored):
                yield _sum_by_name(rows, history.window.holds(rows.ticks), share, schema)
            for rows in history.live() if history.live else ():
                yield _sum_by_name(rows, np.ones(len(rows), dtype=bool), 1.0, schema)
    except DamagedWarehouse as error:
        errors.append(error)
        raise


def run_rows(blocks: BlockReader, view: KeysView, marks: KeyMarks) -> Iterator[KeyRows]:
    """All rows of a run, in pieces."""
    for file in marks.files:
        groups = range(len(blocks.footer(view.root, file).edges) - 1)
        for first in range(0, len(groups), GROUPS_PER_READ):
            batch = groups[first : first + GROUPS_PER_READ]
            for block in blocks.read(view.root, file, batch, COLUMNS, view.projection.dictionaries):
                yield from view.projection.from_stored(block)


def _sum_by_name(rows: KeyRows, inside: NDArray[np.bool_], share: float, schema: pa.Schema) -> pa.RecordBatch:
    """The rows that are inside, summed by name; names without such rows are left out."""
    counts = np.where(inside, rows.counts, 0)
    sums = np.add.reduceat(counts, rows.starts()) if len(rows) else counts
    present = sums > 0
    names = arrow_array(rows.names) if isinstance(rows.names, np.ndarray) else rows.names
    columns = [names, arrow_array(sums), arrow_array(np.full(len(sums), share))]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch if present.all() else batch.take(arrow_array(np.flatnonzero(present)))
