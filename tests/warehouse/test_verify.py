"""verify() finds each planted damage, says where, and finds nothing on a sound warehouse."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.warehouse import damages
from tests.warehouse.committing import instant
from tests.warehouse.conftest import Grown
from tests.warehouse.damages import of_table, rewrite
from tests.warehouse.disk import replace_rows, rows_of
from tidemark import warehouse
from tidemark.warehouse import read_options
from tidemark.warehouse.runs.marks import SPANS_GROUP
from tidemark.warehouse.snapshots import table_state


def failures(uri: Path) -> dict[str, str]:
    """The checks that fail, with what they saw."""
    return {check.name: check.detail for check in warehouse.verify(uri).checks if not check.ok}


def test_a_sound_warehouse_passes_every_check(grown: Grown) -> None:
    report = warehouse.verify(grown.uri)
    assert report.ok, str(report)
    assert len(report.checks) == 7 + 4 * 2 + 4
    assert "360 rows in history, 180 live" in str(report)


@pytest.mark.parametrize("table", ["events", "runs/x", "marks/n", "ledger", "steps"])
def test_a_missing_file_is_found_whatever_its_table(copied: Grown, table: str) -> None:
    path = damages.missing(copied.uri, table)
    assert path in failures(copied.uri)["files: every named file is there"]


def test_a_file_of_another_size_is_found(copied: Grown) -> None:
    path = damages.longer(copied.uri)
    assert path in failures(copied.uri)["files: every named file is there"]


def test_a_file_that_left_a_runs_table_is_found(copied: Grown) -> None:
    """A run of several files lacks one in the table's log; its bytes still lie on the disk."""
    path = damages.left_table(copied.uri)
    assert path in "".join(failures(copied.uri).values())


def test_a_file_that_the_marks_do_not_know_is_found(copied: Grown) -> None:
    """Any other reader of the table would count its rows twice."""
    twin = damages.twin(copied.uri)
    assert twin in "".join(failures(copied.uri).values())


def test_two_rows_out_of_order_are_found(copied: Grown) -> None:
    path = rewrite(copied.uri, "runs/x", "L01", damages.swapped, number=1)
    assert path.name in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_files_of_a_run_that_overlap_are_found(copied: Grown) -> None:
    """The greatest value of one file rises above the next file's least."""
    rewrite(copied.uri, "runs/x", "L01", damages.last_raised, number=2)
    assert "x: runs are sorted and disjoint, marks are exact" in failures(copied.uri)


def test_a_value_changed_in_place_is_found_by_the_digest(copied: Grown) -> None:
    """Sorted still, and at no mark: only the comparison with events can tell."""
    rewrite(copied.uri, "runs/x", "L00", damages.nudged, number=1)
    assert "values are not those of events" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_tick_changed_in_place_is_found(copied: Grown) -> None:
    rewrite(copied.uri, "runs/x", "L00", damages.shifted_tick, number=1)
    assert "counts by tick" in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_a_mark_moved_by_one_row_is_found(copied: Grown) -> None:
    rewrite(copied.uri, "marks/x", "L01", damages.moved_mark)
    assert "x: runs are sorted and disjoint, marks are exact" in failures(copied.uri)


@pytest.mark.parametrize("column", ["counts", "nans", "nulls"])
def test_a_header_that_counts_one_row_too_many_is_found(copied: Grown, column: str) -> None:
    rewrite(copied.uri, "marks/x", "L00-0000000003", damages.miscounted(column))
    assert failures(copied.uri)


def test_a_span_that_counts_under_the_wrong_tick_is_found(copied: Grown) -> None:
    """The totals are right and the span's sum is right: one row stands under its neighbour's tick."""
    rewrite(copied.uri, "marks/x", "L01", damages.wrong_span, packed=SPANS_GROUP)
    assert "counts by tick" in failures(copied.uri)["x: runs are sorted and disjoint, marks are exact"]


def test_a_run_that_left_its_table_is_a_gap_in_the_steps(copied: Grown) -> None:
    damages.run_left(copied.uri)
    found = failures(copied.uri)
    assert "expected step 0" in found["n: runs partition the steps, at most kappa a level"]
    assert not any(name.startswith("x") for name in found)


def test_a_run_that_is_there_twice_is_an_overlap_of_steps(copied: Grown) -> None:
    """A merged run's input comes back."""
    damages.run_twice(copied.uri)
    assert "do not partition" in failures(copied.uri)["x: runs partition the steps, at most kappa a level"]


def test_more_than_kappa_runs_at_a_level_are_found(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tables under a smaller kappa; nobody merges them."""
    instant(monkeypatch, importlib.import_module("tidemark.warehouse.verify"))
    monkeypatch.setattr(table_state, "read_options", lambda *of: replace(read_options(*of), kappa=0))
    assert "more than 0 runs" in failures(grown.uri)["x: runs partition the steps, at most kappa a level"]


@pytest.mark.parametrize("change", ["more", "less"])
def test_a_plan_that_expects_other_rows_is_found(copied: Grown, change: str) -> None:
    of_table("steps", damages.more_planned(1 if change == "more" else -1))(copied.uri)
    assert "plans expect" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_batch_in_two_steps_is_found(copied: Grown) -> None:
    of_table("steps", damages.planned_twice)(copied.uri)
    assert "share a batch" in failures(copied.uri)["batches: each in at most one step"]


def test_a_missing_plan_is_found(copied: Grown) -> None:
    of_table("steps", damages.plan_lost)(copied.uri)
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
    of_table("ledger", damages.row_twice)(copied.uri)
    assert "more than once" in failures(copied.uri)["ledger: each tick once, wide ranges add up"]


def test_a_wide_range_without_the_rows_of_a_part_is_found(copied: Grown) -> None:
    of_table("ledger", damages.half_wide)(copied.uri)
    assert "not those of its parts" in failures(copied.uri)["ledger: each tick once, wide ranges add up"]


def test_a_ledger_row_that_is_lost_is_found(copied: Grown) -> None:
    of_table("ledger", damages.without_first)(copied.uri)
    assert "live rows" in failures(copied.uri)["x: nothing is lost or counted twice"]


def test_a_ledger_row_with_another_ticks_summary_is_found(copied: Grown) -> None:
    """The counts still add up; the bounds do not hold."""
    of_table("ledger", damages.other_ticks)(copied.uri)
    assert failures(copied.uri)


def test_a_summary_with_a_flipped_byte_is_found(copied: Grown) -> None:
    of_table("ledger", damages.flipped_summary)(copied.uri)
    found = failures(copied.uri)
    assert all("'x'" in detail for detail in found.values())
    assert "x: live summaries hold their bounds" in found


@pytest.mark.parametrize(
    ("source", "said"), [("load:night-1", "rows of the loaded steps"), ("s", "live rows")]
)
def test_rows_deleted_from_events_are_found(copied: Grown, source: str, said: str) -> None:
    DeltaTable(copied.uri / "events").delete(f"_source = '{source}' AND n = 0")
    found = failures(copied.uri)
    assert said in found["x: nothing is lost or counted twice"]
    assert said in found["n: nothing is lost or counted twice"]
