"""verify() finds each planted damage, says where, and finds nothing on a sound warehouse."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from tests.warehouse.conftest import Grown
from tests.warehouse.disk import recounted, replace_rows, rewrite_file, rows_of
from tidemark import warehouse
from tidemark.warehouse import read_options
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.runs.marks import SPANS_GROUP
from tidemark.warehouse.snapshots import table_state


def failures(uri: Path) -> dict[str, str]:
    """The checks that fail, with what they saw."""
    return {check.name: check.detail for check in warehouse.verify(uri).checks if not check.ok}


def files_of_run(uri: Path, table: str, run: str) -> list[data_files.DataFile]:
    found = data_files.list_files(tables.open_table(Store.from_uri(uri), table))
    return sorted((file for file in found if run in file.path), key=lambda file: file.path)


def rewrite(
    uri: Path,
    table: str,
    run: str,
    change: Callable[[pa.Table], pa.Table],
    number: int = 0,
    packed: str | None = None,
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


def test_a_sound_warehouse_passes_every_check(grown: Grown) -> None:
    report = warehouse.verify(grown.uri)
    assert report.ok, str(report)
    assert len(report.checks) == 7 + 4 * 2 + 4
    assert "360 rows in history, 180 live" in str(report)


@pytest.mark.parametrize("table", ["events", "runs/x", "marks/n", "ledger", "steps"])
def test_a_missing_file_is_found_whatever_its_table(copied: Grown, table: str) -> None:
    file = data_files.list_files(tables.open_table(Store.from_uri(copied.uri), table))[0]
    (copied.uri / table / file.path).unlink()
    found = failures(copied.uri)
    assert file.path in found["files: every named file is there"]


def test_a_file_of_another_size_is_found(copied: Grown) -> None:
    file = files_of_run(copied.uri, "runs/x", "L00")[0]
    with (copied.uri / "runs/x" / file.path).open("ab") as end:
        end.write(b"x")
    assert file.path in failures(copied.uri)["files: every named file is there"]


def test_a_file_that_left_a_runs_table_is_found(copied: Grown) -> None:
    """A run of several files lacks one in the table's log; its bytes still lie on the disk."""
    store = Store.from_uri(copied.uri)
    file = files_of_run(copied.uri, "runs/x", "L01")[1]
    tables.commit(tables.open_table(store, "runs/x"), [data_files.remove_action(file)])
    assert file.path in "".join(failures(copied.uri).values())


def test_a_file_that_the_marks_do_not_know_is_found(copied: Grown) -> None:
    """Any other reader of the table would count its rows twice."""
    store = Store.from_uri(copied.uri)
    file = files_of_run(copied.uri, "runs/x", "L01")[1]
    twin = file.path.rsplit("-", 1)[0] + "-99999.parquet"
    shutil.copy(copied.uri / "runs/x" / file.path, copied.uri / "runs/x" / twin)
    added = data_files.add_action(twin, file.size, file.rows)
    tables.commit(tables.open_table(store, "runs/x"), [added])
    assert twin in "".join(failures(copied.uri).values())


def test_two_rows_out_of_order_are_found(copied: Grown) -> None:
    def swap(rows: pa.Table) -> pa.Table:
        order = np.arange(rows.num_rows)
        order[[3, 20]] = order[[20, 3]]
        return rows.take(pa.array(order))

    path = rewrite(copied.uri, "runs/x", "L01", swap, number=1)
    assert path.name in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_files_of_a_run_that_overlap_are_found(copied: Grown) -> None:
    """The greatest value of one file rises above the next file's least."""

    def raise_last(rows: pa.Table) -> pa.Table:
        values = rows.column("value").to_numpy().copy()
        values[-1] = 9e9
        return rows.set_column(0, "value", pa.array(values))

    rewrite(copied.uri, "runs/x", "L01", raise_last, number=2)
    assert "x: runs are sorted and disjoint, marks are exact" in failures(copied.uri)


def test_a_value_changed_in_place_is_found_by_the_digest(copied: Grown) -> None:
    """Sorted still, and at no mark: only the comparison with events can tell."""

    def nudge(rows: pa.Table) -> pa.Table:
        values = rows.column("value").to_numpy().copy()
        at = next(i for i in range(1, 4) if values[i] < values[i + 1])
        values[at] = (values[at] + values[at + 1]) / 2
        return rows.set_column(0, "value", pa.array(values))

    rewrite(copied.uri, "runs/x", "L00", nudge, number=1)
    assert "values are not those of events" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_tick_changed_in_place_is_found(copied: Grown) -> None:
    def shift(rows: pa.Table) -> pa.Table:
        ticks = rows.column("tick").to_numpy().copy()
        ticks[5] += 1
        return rows.set_column(1, "tick", pa.array(ticks))

    rewrite(copied.uri, "runs/x", "L00", shift, number=1)
    assert "counts by tick" in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_a_mark_moved_by_one_row_is_found(copied: Grown) -> None:
    def move(rows: pa.Table) -> pa.Table:
        positions = rows.column("position").to_pylist()
        values = rows.column("value").to_pylist()
        at = next(i for i in range(3, len(values) - 1) if values[i - 1] < values[i] < values[i + 1])
        positions[at] += 1
        return rows.set_column(
            rows.schema.get_field_index("position"), "position", pa.array(positions, pa.int64())
        )

    rewrite(copied.uri, "marks/x", "L01", move)
    assert "x: runs are sorted and disjoint, marks are exact" in failures(copied.uri)


@pytest.mark.parametrize("column", ["counts", "nans", "nulls"])
def test_a_header_that_counts_one_row_too_many_is_found(copied: Grown, column: str) -> None:
    def miscount(rows: pa.Table) -> pa.Table:
        lists = rows.column(column).to_pylist()
        lists[0][0] += 1
        at = rows.schema.get_field_index(column)
        return rows.set_column(at, rows.schema.field(at), pa.array(lists, rows.schema.field(at).type))

    rewrite(copied.uri, "marks/x", "L00-0000000003", miscount)
    assert failures(copied.uri)


def test_a_span_that_counts_under_the_wrong_tick_is_found(copied: Grown) -> None:
    """The totals are right and the span's sum is right: one row stands under its neighbour's tick."""

    def shift(counts: NDArray[np.int64]) -> None:
        at = int(np.flatnonzero((counts > 0).sum(axis=1) > 1)[0])
        one, other = np.flatnonzero(counts[at])[:2]
        counts[at, [one, other]] += 1, -1

    rewrite(copied.uri, "marks/x", "L01", lambda rows: recounted(rows, shift), packed=SPANS_GROUP)
    assert "counts by tick" in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_a_run_that_left_its_table_is_a_gap_in_the_steps(copied: Grown) -> None:
    store = Store.from_uri(copied.uri)
    gone = files_of_run(copied.uri, "runs/n", "L01")
    tables.commit(tables.open_table(store, "runs/n"), map(data_files.remove_action, gone))
    found = failures(copied.uri)
    assert "expected step 0" in found["n: runs partition the steps, at most kappa a level"]
    assert not any(name.startswith("x") for name in found)


def test_a_run_that_is_there_twice_is_an_overlap_of_steps(copied: Grown) -> None:
    """A merged run's input comes back."""
    store = Store.from_uri(copied.uri)
    path = next((copied.uri / "runs/x/run=L00-0000000001-0000000001").glob("*.parquet"))
    with pq.ParquetFile(path) as file:
        rows = file.metadata.num_rows
    added = data_files.add_action(f"{path.parent.name}/{path.name}", path.stat().st_size, rows)
    tables.commit(tables.open_table(store, "runs/x"), [added])
    assert "do not partition" in failures(copied.uri)["x: runs partition the steps, at most kappa a level"]


def test_more_than_kappa_runs_at_a_level_are_found(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tables under a smaller kappa."""
    monkeypatch.setattr(table_state, "read_options", lambda *of: replace(read_options(*of), kappa=0))
    assert "more than 0 runs" in failures(grown.uri)["x: runs partition the steps, at most kappa a level"]


@pytest.mark.parametrize("change", ["more", "less"])
def test_a_plan_that_expects_other_rows_is_found(copied: Grown, change: str) -> None:
    rows = rows_of(copied.uri, "steps")
    counts = rows.column("rows").to_pylist()
    counts[0] += 1 if change == "more" else -1
    replace_rows(copied.uri, "steps", rows.set_column(4, "rows", pa.array(counts)))
    assert "plans expect" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_batch_in_two_steps_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "steps")
    again = rows.slice(0, 1).set_column(0, "step", pa.array([4], pa.int64()))
    replace_rows(copied.uri, "steps", pa.concat_tables([rows, again]))
    assert "share a batch" in failures(copied.uri)["batches: each in at most one step"]


def test_a_missing_plan_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "steps")
    replace_rows(copied.uri, "steps", rows.filter(pc.not_equal(rows.column("step"), 1)))
    assert "without a gap" in failures(copied.uri)["batches: each in at most one step"]


def test_a_plan_whose_load_did_not_finish_is_no_damage(copied: Grown) -> None:
    """The report says what to run again."""
    rows = rows_of(copied.uri, "steps")
    planned = pa.Table.from_pylist(
        [
            {
                **rows.slice(0, 1).to_pylist()[0],
                "step": 4,
                "source": "s",
                "first_batch": 0,
                "last_batch": 1,
                "rows": 180,
            }
        ],
        schema=rows.schema,
    )
    replace_rows(copied.uri, "steps", pa.concat_tables([rows, planned]))
    report = warehouse.verify(copied.uri)
    assert report.ok, str(report)
    assert "steps 4..4 are planned" in str(report)


def test_a_ledger_row_that_is_there_twice_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "ledger")
    replace_rows(copied.uri, "ledger", pa.concat_tables([rows, rows.slice(0, 1)]))
    assert "more than once" in failures(copied.uri)["ledger: each tick once, wide ranges add up"]


def test_a_wide_range_without_the_rows_of_a_part_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "ledger")
    of_first = [row for row in rows.to_pylist() if row["last_batch"] == 0]
    wide = pa.Table.from_pylist([{**row, "last_batch": 1} for row in of_first], schema=rows.schema)
    replace_rows(copied.uri, "ledger", pa.concat_tables([rows, wide]))
    assert "not those of its parts" in failures(copied.uri)["ledger: each tick once, wide ranges add up"]


def test_a_ledger_row_that_is_lost_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "ledger")
    replace_rows(copied.uri, "ledger", rows.slice(1))
    assert "live rows" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_ledger_row_with_another_ticks_summary_is_found(copied: Grown) -> None:
    """The counts still add up; the bounds do not hold."""
    rows = rows_of(copied.uri, "ledger")
    listed = rows.to_pylist()
    shifted = [
        {**row, "tick": other["tick"]}
        for row, other in zip(listed, [*listed[1:5], listed[0], *listed[5:]], strict=True)
    ]
    replace_rows(copied.uri, "ledger", pa.Table.from_pylist(shifted, schema=rows.schema))
    assert failures(copied.uri)


def test_a_summary_with_a_flipped_byte_is_found(copied: Grown) -> None:
    rows = rows_of(copied.uri, "ledger")
    listed = rows.to_pylist()
    sketch = bytearray(listed[3]["measures"][0]["sketch"])
    sketch[len(sketch) // 2] ^= 1
    listed[3]["measures"][0]["sketch"] = bytes(sketch)
    replace_rows(copied.uri, "ledger", pa.Table.from_pylist(listed, schema=rows.schema))
    found = failures(copied.uri)
    assert all("'x'" in detail for detail in found.values())
    assert "x: live summaries hold their bounds" in found


@pytest.mark.parametrize(
    ("source", "said"), [("load:night-1", "rows of the loaded steps"), ("s", "live rows")]
)
def test_rows_deleted_from_events_are_found(
    spark: SparkSession, copied: Grown, source: str, said: str
) -> None:
    spark.sql(f"DELETE FROM delta.`{copied.uri}/events` WHERE _source = '{source}' AND n = 0")
    found = failures(copied.uri)
    assert said in found["x: nothing is lost or counted twice"]
    assert said in found["n: nothing is lost or counted twice"]
