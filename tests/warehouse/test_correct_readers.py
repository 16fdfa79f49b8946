"""Readers beside a correction: each way to ask shows the old rows or the new ones, never both or neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.query.groupworld import HOUR, KEEPS, ONE, START, TINY, GroupWorld, Row
from tests.warehouse.corrections import correct
from tests.warehouse.test_correct import ALL_POINTS
from tidemark import query, warehouse
from tidemark.warehouse.events.removals import Removal
from tidemark.warehouse.snapshots.table_state import TableState

Told = dict[str, Any]
SCANS = ("scan", "sql")  # which read the table `events`


def rows(batch: int) -> list[Row]:
    return [(START + (i % 20) * HOUR, "ab"[i % 2], batch * 100 + i, float(i), None) for i in range(40)]


def told(wh: Any, connection: duckdb.DuckDBPyConnection | None = None) -> Told:
    """What each way to ask finds of the rows that leave ("a", below 100) and come ("b", from 1000 on)."""
    found = {
        "value": [one.value for one in wh.quantile([0.01, 1], "value", mode="exact")],
        "key": [wh.frequency(one, mode="exact").count for one in "ab"],
        "group": [wh.quantile(0.5, "value", where={"origin": one}).N for one in "ab"],
        "scan": [one.N for one in wh.quantile(0.5, "value", where="number % 1000 < 100", by="origin")],
        "sum": wh.summary("value").sum,
    }
    if connection is not None:
        text = "SELECT origin, count(*), sum(number) FROM w_events GROUP BY ALL ORDER BY ALL"
        found["sql"] = connection.sql(text).fetchall()
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps, of which three are one run."""
    made = GroupWorld.create(tmp_path_factory.mktemp("made"), ONE, groups=["origin"])
    for batch in range(4):
        made.add(rows(batch), load=batch < 3)
    made.load_live()
    return made


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def check_correction(world: GroupWorld, tuning: warehouse.Tuning) -> None:
    """Every door shows the old rows or the new ones at each commit of a correction."""
    old = [row for row in rows(0) if row[2] % 4 == 0]
    new = [(row[0], "b", row[2] + 1000, row[3] + 500, None) for row in old]
    connection = duckdb.connect()
    query.register_duckdb(connection, world.path, "w")
    fresh, pinned = query.open(world.path), query.open(world.path).pinned()
    before = told(fresh, connection)
    seen: dict[str, Told] = {}

    def look(point: str) -> None:
        if point in ALL_POINTS:
            now = told(fresh, connection)
            seen.setdefault(point, now)
            assert told(query.open(world.path), connection) == now, point

    report = correct(world, "fix", new, before=old, progress=look, tuning=tuning)
    built = {
        "value": 2,
        "key origin": 2,
        "value by origin": 2,
    }  # that with the old rows, and the new ones' own
    assert report.runs_rewritten == (dict.fromkeys(built, 1) if tuning is KEEPS else built)
    after = told(fresh, connection)
    assert all(before[name] != after[name] for name in before)
    for point, found in seen.items():
        for name, value in found.items():
            assert value in (before[name], after[name]), (point, name)
    assert seen["removal planned"] == before
    assert seen["decided"] == {name: (after if name in SCANS else before)[name] for name in before}
    assert told(pinned) == {name: value for name, value in before.items() if name != "sql"}
    assert warehouse.verify(world.path).ok


@pytest.mark.parametrize("tuning", [TINY, KEEPS], ids=["rewritten", "kept"])
def test_a_reader_sees_all_of_a_correction_or_nothing(world: GroupWorld, tuning: warehouse.Tuning) -> None:
    check_correction(world, tuning)


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (
            TableState,
            "shown",
            lambda state, _: state.removed,
        ),  # old rows are subtracted before the new ones are there
        (Removal, "keeps", lambda removal, *_: removal.kept),  # no run gets the new rows
    ],
)
def test_without_a_rule_about_kept_rows_a_reader_sees_neither(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        check_correction(world, KEEPS)
