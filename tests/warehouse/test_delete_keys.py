"""Rows that are deleted by values of columns, of every kind of table, against a list of all rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.query.groupworld import SCHEMA, TINY, GroupWorld
from tests.warehouse.test_remove import check, keep, made, rows, world
from tidemark import warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import InputError, RemovalReport

__all__ = ["made", "world"]  # fixtures

KEYS = [("a", 2), ("b", 3), ("é", None), (None, 1), ("zz", 9)]


def named(keys: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(
        {
            "number": pa.array([one[1] for one in keys], pa.int64()),
            "origin": pa.array([one[0] for one in keys], pa.string()),
        }
    )


def delete(world: GroupWorld, keys: Any, **options: Any) -> RemovalReport:
    return warehouse.delete(None, world.path, keys=keys, tuning=TINY, **options)


def test_rows_leave_that_equal_a_key_in_all_its_columns(world: GroupWorld) -> None:
    before = len(world.rows)
    report = delete(world, named(KEYS), request="r")
    keep(world, lambda row: (row[1], row[2]) not in KEYS[:2])
    assert (report.outcome, report.rows) == ("removed", before - len(world.rows))
    check(world)
    assert delete(world, named(KEYS), request="r").outcome == "known"
    assert delete(world, named(KEYS)).outcome == "empty"
    assert delete(world, named([(None, 1)])).outcome == "empty"  # NULL equals nothing
    warehouse.load(None, world.path, tuning=TINY)
    check(world)


def test_whole_rows_with_floats_times_and_decimals_are_keys(world: GroupWorld) -> None:
    wanted = [*[row for row in rows(1) if None not in row][:4], rows(2)[13]]
    given = pa.table(
        {name: pa.array([row[i] for row in wanted], SCHEMA.types[i]) for i, name in enumerate(SCHEMA.names)}
    )
    assert math.isnan(wanted[-1][3])
    delete(world, given.select(["value", "time", "origin", "number"]))
    places = [3, 0, 1, 2]
    gone = {repr([row[i] for i in places]) for row in wanted if None not in [row[i] for i in places]}
    keep(world, lambda row: repr([row[i] for i in places]) not in gone)
    check(world)


def test_keys_are_a_table_a_frame_or_a_file_and_may_have_a_condition(
    world: GroupWorld, tmp_path: Path
) -> None:
    pq.write_table(named(KEYS), tmp_path / "keys.parquet")
    (tmp_path / "keys.csv").write_text("origin,number\na,2\nb,3\n,1\n")
    (tmp_path / "keys.jsonl").write_text('{"number": 2, "origin": "a"}\n{"number": 3, "origin": "b"}\n')
    frame = pd.DataFrame({"number": [2, 3], "origin": ["a", "b"]})
    kinds = [
        named(KEYS),
        named(KEYS).to_reader(),
        frame,
        duckdb.sql("SELECT 'a' AS origin, 2 AS number UNION ALL SELECT 'b', 3"),
        *(tmp_path / name for name in ("keys.parquet", "keys.csv", "keys.jsonl")),
    ]
    found = [delete(world, kind, dry_run=True) for kind in kinds]
    assert {one.rows for one in found} == {sum((row[1], row[2]) in KEYS[:2] for row in world.rows[:240])}
    report = delete(world, kinds[0], where="value > 3")
    keep(world, lambda row: not ((row[1], row[2]) in KEYS[:2] and row[3] is not None and not row[3] <= 3))
    assert report.rows == 360 - len(world.rows)
    check(world)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (pa.table({"nobody": ["a"]}), "keys must have columns of the warehouse, time, origin.*got 'nobody'"),
        (pa.table({"origin": ["a"], "nobody": ["a"]}), "got 'nobody'"),
        (pa.table({}), "got no column"),
        (pa.table({"origin": [1]}), "column 'origin' is long, the warehouse has string"),
        (pa.table({"number": [1.5]}), "column 'number' is double"),
        (pa.table({"number": pa.array([2**63], pa.uint64())}), "is decimal.20,0., the warehouse has long"),
        (7, "must be a pyarrow Table"),
        ("no such file.parquet", "no such input"),
    ],
)
def test_keys_that_do_not_fit_change_nothing(made: GroupWorld, keys: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        warehouse.delete(None, made.path, keys=keys)
    with pytest.raises(InputError, match="a condition, keys, or both"):
        warehouse.delete(None, made.path)
    assert warehouse.verify(made.path).ok


def test_a_file_of_json_with_another_column_is_refused(made: GroupWorld, tmp_path: Path) -> None:
    (tmp_path / "keys.jsonl").write_text('{"number": 2, "Origin": "a"}\n')
    with pytest.raises(InputError):
        warehouse.delete(None, made.path, keys=tmp_path / "keys.jsonl")


def test_the_command_takes_the_keys_of_files(
    world: GroupWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys.txt").write_text("origin\tnumber\na\t2\n")
    given = [
        "delete",
        "-w",
        str(world.path),
        "--keys",
        str(tmp_path / "keys.txt"),
        "--format",
        "tsv",
        "--engine",
        "local",
    ]
    assert main([*given, "--where", "value >= 0"]) == 0
    keep(world, lambda row: (row[1], row[2]) != ("a", 2) or not (row[3] is not None and not row[3] < 0))
    assert "removed" in capsys.readouterr().out
    check(world, verified=False)
    with pytest.raises(SystemExit):
        main(["delete", "-w", str(world.path)])
