"""What verify tells, repair makes again, and verify then says sound; or it tells what only a copy has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.warehouse import damages
from tests.warehouse.damages import miscounted, more_planned, of_table, rewrite, with_column
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import Tuning
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.repairs import contents, ledger, plans
from tidemark.warehouse.runs.marks import SPANS_GROUP
from tidemark.warehouse.verification import run_checks

Harm = Callable[[Path], Any]
SMALL = Tuning(sort_rows=60, slice_rows=16, file_rows=(16, 16), key_block_rows=4)
ROWS = [rows_of(seed, 40) for seed in range(5)]
MERGED, NEWEST = "L01", "L00-0000000003"


def in_run(table: str, run: str, change: damages.Change, number: int = 0, packed: str | None = None) -> Harm:
    return lambda uri: rewrite(uri, table, run, change, number, packed)


def loaded_wrong(uri: Path) -> None:
    """A fault of memory before digests are made: the run is as it was written."""
    right = SortedValues.decode

    def wrong(projection: SortedValues, events: pa.Table) -> tuple[ValueRows, TickCounts]:
        rows, counts = right(projection, events)
        return ValueRows(rows.values + 1, rows.ticks), counts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SortedValues, "decode", wrong)
        warehouse.load(None, uri, rows_of(8, 20), "wrong", tuning=SMALL)


# The kinds of one line damage different runs and tables.
MADE_AGAIN: dict[str, dict[str, Harm]] = {
    "rows": {
        "two rows out of order": in_run("runs/x", MERGED, damages.swapped, 1),
        "a header that counts one more": in_run("marks/x", NEWEST, miscounted("counts")),
        "a span under the wrong tick": in_run("marks/n", MERGED, damages.wrong_span, packed=SPANS_GROUP),
        "another key": in_run("keys/k", MERGED, damages.other_key),
        "a load that read other values": loaded_wrong,
        "summaries of other ticks": of_table("ledger", damages.other_ticks),
    },
    "files that overlap": {
        "a value above the next file's": in_run("runs/x", MERGED, damages.last_raised, 1),
        "a header with a NaN too many": in_run("marks/x", NEWEST, miscounted("nans")),
        "a batch in two steps": of_table("steps", damages.planned_twice),
        "a tick of the ledger twice": of_table("ledger", damages.row_twice),
    },
    "values": {
        "another value": in_run("runs/x", MERGED, damages.nudged, 1),
        "a moved mark": in_run("marks/x", NEWEST, damages.moved_mark),
        "a header with a NULL too many": in_run("marks/n", NEWEST, miscounted("nulls")),
        "a row of the ledger lost": of_table("ledger", damages.without_first),
    },
    "runs": {
        "another tick": in_run("runs/x", MERGED, damages.shifted_tick, 1),
        "a run gone": damages.run_left,
        "a run twice": damages.run_twice,
        "a wide range without a part": of_table("ledger", damages.half_wide),
    },
    "files": {
        "a file that left its table": damages.left_table,
        "a file that marks do not know": partial(damages.twin, table="runs/n"),
        "a longer file": damages.longer,
        "a plan lost": of_table("steps", damages.plan_lost),
        "a summary with a flipped byte": of_table("ledger", damages.flipped_summary),
    },
    "missing files": {
        f"a file of {table}": partial(damages.missing, table=table)
        for table in ("runs/x", "marks/n", "keys/k", "ledger", "steps")
    },
}


def without_reason(rows: pa.Table) -> pa.Table:
    return with_column(rows, "reason", [None] * rows.num_rows)


def updated(uri: Path) -> None:
    """Another tool changes values: the runs have those that came."""
    DeltaTable(uri / "events").update({"n": "n + 1"}, predicate="k = 'k1'")


TOLD: dict[str, tuple[Harm, str]] = {
    "a plan of more rows": (of_table("steps", more_planned(1)), "lost 1 of its 41 rows"),
    "a plan of fewer rows": (of_table("steps", more_planned(-1)), "has 1 more rows than the 39 that came"),
    "a file of events": (partial(damages.missing, table="events"), "Only a copy has its rows"),
    "other values in events": (updated, "each batch has its number of rows, but other rows"),
    "a record without a reason": (of_table("rejected", without_reason), "1 rejected records have no reason"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """Runs of two levels, each of several files, live batches, and a rejected record."""
    loader = Loader.create(tmp_path_factory.mktemp("sound") / "w", tuning=SMALL)
    for rows in ROWS[:4]:
        loader.load(rows)
    loader.stream(ROWS[4])
    far = rows_of(9, 1).set_column(0, "t", pa.array([2**52], pa.timestamp("us", tz="UTC")))
    stream.append(None, loader.uri, pa.concat_tables([rows_of(7, 20), far]), source="web", batch=1)
    return loader


@pytest.fixture
def uri(sound: Loader, tmp_path: Path) -> Path:
    return Path(sound.copied(tmp_path / "w").uri)


def broken(uri: Path) -> dict[str, str]:
    return {check.name: check.detail for check in warehouse.verify(uri).checks if not check.ok}


@pytest.mark.parametrize("kind", MADE_AGAIN)
def test_what_verify_tells_is_made_again_and_verify_then_says_sound(uri: Path, kind: str) -> None:
    """That verify tells each kind is tested in test_verify.py."""
    for harm in MADE_AGAIN[kind].values():
        harm(uri)
    report = warehouse.repair(None, uri, tuning=SMALL)
    assert (report.outcome, report.only_a_copy) == ("repaired", [])
    assert broken(uri) == {}
    numbers = sorted(DeltaTable(uri / "events").to_pyarrow_table(columns=["n"]).column("n").to_pylist())
    median = query.open(uri).quantile(0.5, "n", mode="exact")
    assert (median.N, median.value) == (len(numbers), numbers[-(-len(numbers) // 2) - 1])


@pytest.mark.parametrize("kind", TOLD)
def test_what_only_a_copy_has_is_told_where_verify_tells_it(uri: Path, kind: str) -> None:
    harm, words = TOLD[kind]
    harm(uri)
    assert broken(uri)
    report = warehouse.repair(None, uri, tuning=SMALL)
    assert report.outcome == "damaged"
    assert any(words in line for line in report.only_a_copy), report


def alone(kind: str) -> Harm:
    return next(kinds[kind] for kinds in MADE_AGAIN.values() if kind in kinds)


BROKEN: dict[str, tuple[str, Any, str, Any]] = {
    "runs are not compared": (
        "a load that read other values",
        run_checks,
        "runs_unlike_events",
        lambda *_: {},
    ),
    "the ledger is not compared": ("summaries of other ticks", contents, "_of_ledger", lambda _: ()),
    "a batch in two steps is loaded again": ("a batch in two steps", plans, "_shared_batch", lambda _: None),
    "a tick may be there twice": ("a tick of the ledger twice", ledger, "_check_once", lambda _: None),
}


@pytest.mark.parametrize("variant", BROKEN)
def test_a_repair_that_overlooks_a_kind_is_caught(
    uri: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    kind, *mistake = BROKEN[variant]
    alone(kind)(uri)
    monkeypatch.setattr(*mistake)
    warehouse.repair(None, uri, tuning=SMALL)
    assert broken(uri)


def test_an_alter_that_was_killed_before_its_merges_is_told_and_finished(tmp_path: Path) -> None:
    """A smaller kappa makes levels too full; a dry run says what is due."""

    def killed(phase: str) -> None:
        if phase == "merge":
            raise KeyboardInterrupt

    loader = Loader.create(tmp_path / "w", kappa=4, key=None)
    uri = Path(loader.uri)
    for seed in range(4):
        loader.load(rows_of(seed, 10))
    with pytest.raises(KeyboardInterrupt):
        warehouse.alter(None, uri, kappa=2, progress=killed)
    told = warehouse.repair(None, uri, dry_run=True).actions
    assert told == ["history: levels of x, n with more than 2 runs are merged"]
    assert warehouse.repair(None, uri).actions == told
    assert broken(uri) == {}
