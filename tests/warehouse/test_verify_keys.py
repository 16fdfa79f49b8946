"""verify() finds each planted damage of the keys, and says where."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.warehouse.damages import other_key, rewrite
from tests.warehouse.keyworld import KeyWorld
from tests.warehouse.test_verify import failures

EXACT = "keys of k: runs are sorted and summed, marks are exact"
SAME = "keys of k: nothing is lost or counted twice"
RUN = "L00-0000000000"


@pytest.fixture
def world(tmp_path: Path) -> KeyWorld:
    world = KeyWorld(tmp_path / "w", kappa=4)
    r = random.Random(5)
    world.load([(f"key-{r.randrange(40)}", r.randrange(4)) for _ in range(300)])
    world.load([(f"key-{r.randrange(40)}", r.randrange(4)) for _ in range(300)])
    assert failures(world.uri) == {}
    return world


def at(column: str, row: int, change: Callable[[int], int]) -> Callable[[pa.Table], pa.Table]:
    """Changes one number of a column."""

    def changed(rows: pa.Table) -> pa.Table:
        values = rows.column(column).to_pylist()
        values[row] = change(values[row])
        return rows.set_column(rows.column_names.index(column), column, pa.array(values, pa.int64()))

    return changed


def swapped(rows: pa.Table) -> pa.Table:
    order = np.arange(rows.num_rows)
    order[[3, 50]] = order[[50, 3]]
    return rows.take(pa.array(order))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (swapped, EXACT),
        (lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, rows.num_rows - 1)]), EXACT),
        (at("count", 7, lambda count: count + 1), EXACT),
        (lambda rows: at("count", 7, lambda c: c + 1)(at("count", 8, lambda c: c - 1)(rows)), EXACT),
        (other_key, SAME),
    ],
    ids=["swapped", "twice", "one more", "moved", "another key"],
)
def test_a_changed_row_is_found(world: KeyWorld, change: Callable[[pa.Table], pa.Table], check: str) -> None:
    rewrite(world.uri, "keys/k", RUN, change)
    assert check in failures(world.uri)


@pytest.mark.parametrize("part", ["mark", "heavy", "floor"])
def test_marks_that_say_something_else_are_found(world: KeyWorld, part: str) -> None:
    """A mark one row on; a heavy key with another count; a floor that was never kept."""

    def change(rows: pa.Table) -> pa.Table:
        sample = rows.column("content").is_valid().index(True).as_py()  # the first row after the heavy keys
        place = {"floor": 0, "mark": 1, "heavy": sample - 1}[part]
        if part == "mark":
            ticks = pc.add(rows.column("tick"), 1).combine_chunks()
            keep = pa.array(np.arange(rows.num_rows) == place)
            return rows.set_column(3, "tick", pc.if_else(keep, ticks, rows.column("tick").combine_chunks()))
        return at("count", place, lambda count: count + (1 if part == "heavy" else -1))(rows)

    if part == "floor":  # of a run where a key fell below it
        world.load([*[("most", 0)] * 5000, *[("five", 0)] * 5])
        rewrite(world.uri, "key_marks/k", "L00-0000000002", change)
    else:
        rewrite(world.uri, "key_marks/k", RUN, change)
    assert failures(world.uri)
