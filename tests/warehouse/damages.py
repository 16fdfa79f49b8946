"""Damage of each kind that `verify` tells: changes of a warehouse as a wrong writer or tool makes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tests.warehouse.disk import recounted, replace_rows, rewrite_file, rows_of
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store

Change = Callable[[pa.Table], pa.Table]


def files_of_run(uri: Path, table: str, run: str) -> list[data_files.DataFile]:
    found = data_files.list_files(tables.open_table(Store.from_uri(uri), table))
    return sorted((file for file in found if run in file.path), key=lambda file: file.path)


def rewrite(
    uri: Path, table: str, run: str, change: Change, number: int = 0, packed: str | None = None
) -> Path:
    """Changes a file's rows in place and has the table say its new size."""
    store = Store.from_uri(uri)
    file = files_of_run(uri, table, run)[number]
    path = uri / table / file.path
    added = rewrite_file(uri, table, file.path, change, packed)
    opened = tables.open_table(store, table)
    tables.commit(opened, [data_files.remove_action(file)])
    tables.commit(tables.open_table(store, table), [added])
    return path


def with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


# Files.


def missing(uri: Path, table: str) -> str:
    """A file that a table names is gone."""
    file = data_files.list_files(tables.open_table(Store.from_uri(uri), table))[0]
    (uri / table / file.path).unlink()
    return file.path


def longer(uri: Path) -> str:
    file = files_of_run(uri, "runs/x", "L00")[0]
    with (uri / "runs/x" / file.path).open("ab") as end:
        end.write(b"x")
    return file.path


def left_table(uri: Path) -> str:
    """A run of several files lacks one in the table's log; its bytes still lie on the disk."""
    store = Store.from_uri(uri)
    file = files_of_run(uri, "runs/x", "L01")[1]
    tables.commit(tables.open_table(store, "runs/x"), [data_files.remove_action(file)])
    return file.path


def twin(uri: Path, table: str = "runs/x") -> str:
    """A file that the marks do not know: any other reader of the table would count its rows twice."""
    store = Store.from_uri(uri)
    file = files_of_run(uri, table, "L01")[1]
    name = file.path.rsplit("-", 1)[0] + "-99999.parquet"
    shutil.copy(uri / table / file.path, uri / table / name)
    tables.commit(tables.open_table(store, "runs/x"), [data_files.add_action(name, file.size, file.rows)])
    return name


# Rows and marks of runs.


def swapped(rows: pa.Table) -> pa.Table:
    order = np.arange(rows.num_rows)
    order[[3, -2]] = order[[-2, 3]]
    return rows.take(pa.array(order))


def last_raised(rows: pa.Table) -> pa.Table:
    """The greatest value of one file rises above the next file's least."""
    values = rows.column("value").to_numpy().copy()
    values[-1] = 9e9
    return rows.set_column(0, "value", pa.array(values))


def nudged(rows: pa.Table) -> pa.Table:
    """Sorted still, and at no mark: only the comparison with events can tell."""
    values = rows.column("value").to_numpy().copy()
    at = next(i for i in range(1, 4) if values[i] < values[i + 1])
    values[at] = (values[at] + values[at + 1]) / 2
    return rows.set_column(0, "value", pa.array(values))


def shifted_tick(rows: pa.Table) -> pa.Table:
    ticks = rows.column("tick").to_numpy().copy()
    ticks[5] += 1
    return rows.set_column(1, "tick", pa.array(ticks))


def moved_mark(rows: pa.Table) -> pa.Table:
    positions = rows.column("position").to_pylist()
    values = rows.column("value").to_pylist()
    at = next(i for i in range(3, len(values) - 1) if values[i - 1] < values[i] < values[i + 1])
    positions[at] += 1
    return with_column(rows, "position", positions)


def miscounted(column: str) -> Change:
    """The header counts one row too many."""

    def change(rows: pa.Table) -> pa.Table:
        lists = rows.column(column).to_pylist()
        lists[0][0] += 1
        return with_column(rows, column, lists)

    return change


def wrong_span(rows: pa.Table) -> pa.Table:
    """The totals are right and the span's sum is right: one row stands under its neighbour's tick."""

    def shift(counts: NDArray[np.int64]) -> None:
        at = int(np.flatnonzero((counts > 0).sum(axis=1) > 1)[0])
        one, other = np.flatnonzero(counts[at])[:2]
        counts[at, [one, other]] += 1, -1

    return recounted(rows, shift)


def run_left(uri: Path) -> None:
    store = Store.from_uri(uri)
    gone = files_of_run(uri, "runs/n", "L01")
    tables.commit(tables.open_table(store, "runs/n"), map(data_files.remove_action, gone))


def run_twice(uri: Path) -> None:
    """A merged run's input comes back."""
    store = Store.from_uri(uri)
    path = next((uri / "runs/x/run=L00-0000000001-0000000001").glob("*.parquet"))
    with pq.ParquetFile(path) as file:
        rows = file.metadata.num_rows
    added = data_files.add_action(f"{path.parent.name}/{path.name}", path.stat().st_size, rows)
    tables.commit(tables.open_table(store, "runs/x"), [added])


def other_key(rows: pa.Table) -> pa.Table:
    """A key that was not there takes the place of the last one."""
    last = rows.column("key")[-1].as_py()
    return with_column(
        rows, "key", [f"{key}!" if key == last else key for key in rows.column("key").to_pylist()]
    )


# Plans, ledger, rejected records.


def of_table(table: str, change: Change) -> Callable[[Path], None]:
    """Another tool writes the rows of a small table anew."""
    return lambda uri: replace_rows(uri, table, change(rows_of(uri, table)))


def more_planned(by: int) -> Change:
    """The plan of the first step expects more rows, or fewer."""

    def change(rows: pa.Table) -> pa.Table:
        counts = rows.column("rows").to_pylist()
        return with_column(rows, "rows", [counts[0] + by, *counts[1:]])

    return change


def planned_twice(rows: pa.Table) -> pa.Table:
    newest = max(rows.column("step").to_pylist())
    again = with_column(rows.slice(0, 1), "step", [newest + 1])
    return pa.concat_tables([rows, again])


def plan_lost(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.not_equal(rows.column("step"), 1))


def row_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def without_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def half_wide(rows: pa.Table) -> pa.Table:
    """A wide range without the rows of a part."""
    first = min(rows.column("last_batch").to_pylist())
    of_first = [row for row in rows.to_pylist() if row["last_batch"] == first]
    wide = [{**row, "last_batch": first + 1} for row in of_first]
    return pa.concat_tables([rows, pa.Table.from_pylist(wide, schema=rows.schema)])


def other_ticks(rows: pa.Table) -> pa.Table:
    """The rows have the summaries of others: the counts still add up, the bounds do not hold."""
    listed = rows.to_pylist()
    ticks = [row["tick"] for row in listed]
    return with_column(rows, "tick", [*ticks[1:], ticks[0]])


def flipped_summary(rows: pa.Table) -> pa.Table:
    listed = rows.to_pylist()
    sketch = bytearray(listed[-1]["measures"][0]["sketch"])
    sketch[len(sketch) // 2] ^= 1
    listed[-1]["measures"][0]["sketch"] = bytes(sketch)
    return pa.Table.from_pylist(listed, schema=rows.schema)
