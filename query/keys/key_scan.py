"""Aggregates over all keys of a window, computed by DuckDB from the rows of the key runs.

Blocks are read through BlockReader, so local disks and object stores share one path and an error names the
file. The rows of a block are summed by key before they reach DuckDB. DuckDB gets keys as names, which compare
as the keys do. DuckDB spills to disk what does not fit into memory. Cost: a scan of all blocks of the runs
that have rows in the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.keys.key_blocks import COLUMNS, KeyHistory
from tidemark.query.keys.slots import Slots
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.duckdb_errors import Raised, connect, report_duckdb_errors
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.keys import Key, Name, Names, as_names, no_names, take_names
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows, sorted_rows
from tidemark.warehouse.snapshots.views import KeysView
from tidemark.warehouse.temporary_folders import process_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Ints = NDArray[np.int64]

GROUPS_PER_READ = 32
_OPERATION = "a count of all keys"

# (lower bound, estimate, upper bound). Rows with a share below 1 may lie outside the window: they count fully
# in the upper bound and not at all in the lower one.
BoundedEstimate = tuple[int, float, int]
SUM_BY_NAME = """
SELECT name, sum(rows)::HUGEINT AS rows, sum(rows * share) AS estimate,
    coalesce(sum(rows) FILTER (share = 1), 0)::HUGEINT AS certain
FROM read GROUP BY name
"""


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """The rows of a window that have a key, to be scanned once.

    histories: each with the estimated share of its rows that lies in the window; at least one.
    live: the live rows, in pieces.
    """

    histories: Sequence[tuple[KeyHistory, float]]
    live: Iterator[KeyRows]

    @property
    def key(self) -> Key:
        """The key."""
        return self.histories[0][0].view.key


def all_names(rows: WindowRows) -> list[Name]:
    """Every name that has rows in the window, ascending."""
    return [name for (name,) in _query({"a": rows}, "SELECT name FROM a ORDER BY name")]


def name_counts(rows: WindowRows) -> list[tuple[Name, int]]:
    """Every name that has rows in the window, ascending, with its number of rows."""
    counts = _query({"a": rows}, "SELECT name, certain FROM a ORDER BY name")
    return [(name, int(count)) for name, count in counts]


def distinct(a: WindowRows) -> BoundedEstimate:
    """The number of keys that have rows in the window."""
    sums = ", ".join(f"sum({term})" for term in _presence("a"))
    return _rounded(_query({"a": a}, f"SELECT {sums} FROM a")[0])


def overlap(a: WindowRows, b: WindowRows) -> list[BoundedEstimate]:
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


def second_moment(rows: WindowRows) -> BoundedEstimate:
    """The sum over all keys of the square of their rows in the window (F2, the self-join size)."""
    return _bounds({"a": rows}, "a.{0} * a.{0}", "a")


def inner_product(a: WindowRows, b: WindowRows) -> BoundedEstimate:
    """The sum over all keys of their rows in one window times their rows in the other (the join size)."""
    return _bounds({"a": a, "b": b}, "a.{0} * b.{0}", "a JOIN b ON a.name = b.name")


def _bounds(inputs: Mapping[str, WindowRows], term: str, tables: str) -> BoundedEstimate:
    sums = ", ".join(f"sum({term.format(column)})" for column in ("certain", "estimate", "rows"))
    return _rounded(_query(inputs, f"SELECT {sums} FROM {tables}")[0])


def rows_of_frequent_slots(history: KeyHistory, live: KeyRows, slots: Slots, least: int) -> KeyRows:
    """All rows of history in the window of the keys that have rows, also live ones, in `least` slots.

    live: the live rows of the window.
    """
    schema = pa.schema(
        [("name", name_type(history.view.key)), *((name, pa.int64()) for name in _PAIR_COLUMNS)]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in chain.from_iterable(stored_rows(history)):
            yield _pairs(rows.where(history.window.holds(rows.ticks)), slots, schema)
        yield _pairs(live, slots, schema, is_live=True)

    with database() as connection:
        create_table(connection, "pairs", "SELECT * FROM read", schema, batches())
        found = connection.sql(_FREQUENT_SLOTS, params=[least]).to_arrow_table().combine_chunks()
    names = stored_names(history.view.key, found)
    return sorted_rows(names, as_numpy(found.column("tick")), as_numpy(found.column("rows")))


_PAIR_COLUMNS = ("tick", "slot", "rows", "live")
_FREQUENT_SLOTS = """
SELECT name, tick, sum(rows)::BIGINT AS rows FROM pairs
WHERE live = 0 AND name IN (
    SELECT name FROM (SELECT DISTINCT name, slot FROM pairs) GROUP BY name HAVING count(*) >= ?
)
GROUP BY name, tick ORDER BY name, tick
"""


def _pairs(rows: KeyRows, slots: Slots, schema: pa.Schema, *, is_live: bool = False) -> pa.RecordBatch:
    """The rows with their slots, as `_PAIR_COLUMNS`."""
    names = take_names(rows.names, rows.codes)
    columns = [rows.ticks, slots.of(rows.ticks), rows.counts, np.full(len(rows), int(is_live))]
    arrays = [arrow_array(names) if isinstance(names, np.ndarray) else names, *map(arrow_array, columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _query(inputs: Mapping[str, WindowRows], statement: str) -> list[tuple[Any, ...]]:
    """The rows of a SQL statement over tables (name, rows, certain, estimate), one table per input."""
    with database() as connection:
        for table, rows in inputs.items():
            kind = name_type(rows.key)
            schema = pa.schema([("name", kind), ("rows", pa.int64()), ("share", pa.float64())])
            create_table(connection, table, SUM_BY_NAME, schema, _batches(rows, schema))
        return connection.execute(statement).fetchall()


def name_type(key: Key) -> pa.DataType:
    """The type of names in DuckDB."""
    return pa.large_binary() if key.is_text else pa.int64()


def stored_names(key: Key, found: pa.Table) -> Names:
    """The column `name` of rows that DuckDB has found."""
    if not len(found):
        return no_names(key)
    stored = single_array(found.column("name"))
    return as_names(stored) if key.is_text else as_numpy(stored)


@contextmanager
def database() -> Iterator[DuckDBPyConnection]:
    """A database in memory that spills to a folder of its own; its errors are told as the package's."""
    with (
        report_duckdb_errors(_OPERATION, Raised()),
        TemporaryDirectory(prefix="keys-", dir=process_folder()) as folder,
        connect() as connection,
    ):
        connection.execute("SET temp_directory = ?", [folder])
        yield connection


def create_table(
    connection: DuckDBPyConnection,
    table: str,
    select: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> None:
    """Creates a table by a statement that selects from `read`, which has the batches."""
    raised = Raised()
    connection.register("read", pa.RecordBatchReader.from_batches(schema, raised.kept(batches)))
    with report_duckdb_errors(_OPERATION, raised):
        connection.execute(f"CREATE TEMP TABLE {table} AS {select}")
    connection.unregister("read")


def _batches(window: WindowRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a window summed by name, one batch per block."""
    for history, share in window.histories:
        for rows in chain.from_iterable(stored_rows(history)):
            yield _sum_by_name(rows, history.window.holds(rows.ticks), share, schema)
    for rows in window.live:
        yield _sum_by_name(rows, np.ones(len(rows), dtype=bool), 1.0, schema)


def stored_rows(history: KeyHistory) -> Iterator[Iterator[KeyRows]]:
    """The rows of each run that has rows in the window."""
    return (run_rows(history.blocks, history.view, share.marks) for share in history.shares)


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
