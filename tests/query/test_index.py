"""An index gives the rows that a scan gives: against DuckDB over all rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.query.indexworld import (
    BIG,
    SCHEMA,
    TINY,
    IndexWorld,
    check,
    differences,
    predicate,
)
from tests.soak import DRAWS
from tidemark import query, warehouse
from tidemark.query.scans import index_places, picked_rows, sought
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import InputError
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.index_marks import Places

pytestmark = pytest.mark.usefixtures("index_pays")


@pytest.fixture(scope="module")
def world(index_world: IndexWorld) -> IndexWorld:
    return index_world


def test_an_index_gives_the_rows_of_a_scan(world: IndexWorld) -> None:
    """Runs of several levels, and live batches, which no index has."""
    check(world, 60 * DRAWS)


def test_where_of_questions_gives_the_same_with_and_without_an_index(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, draw, found = query.open(world.path), random.Random(7), 0
    wheres: list[Any] = [predicate(draw) for _ in range(40 * DRAWS)]
    wheres += [{"k": ["a", "é"]}, {"n": BIG + 1}, {"k": "u7", "s": [1, 2]}, {"x": float("nan")}, {"x": 0.0}]
    for where in wheres:
        answers: list[Any] = []
        for row_us in (1e9, 0.0):
            monkeypatch.setattr(index_places, "RATES", IndexRates(row=row_us, group=1))
            try:
                one = wh.summary("x", where=where)
                answers.append((one.count, repr(one.sum), one.nulls))
                found += one.plan is not None and "index" in one.plan.ways
            except (InputError, query.EmptyWindow) as error:
                answers.append(type(error).__name__)
        assert answers[0] == answers[1], where
    assert found > 12


def test_rows_that_are_left_out_are_not_told_as_scanned(world: IndexWorld) -> None:
    wh = query.open(world.path)
    scanned = wh.summary("x", where={"s": 3}).rows_scanned
    found = wh.summary("x", where={"k": "a"}).rows_scanned
    assert scanned == len(world.kept)
    assert found is not None
    assert 60 <= found < 60 + 40  # the live batches, and the rows of history with this key


def first_part(search: Any, asked: Any) -> Any:
    return next((found for part in asked if (found := search.alternatives(part))), None)


MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "of an OR one part is looked up": (index_places._Search, "any_of", first_part),
    "a constant has no room": (
        sought,
        "bracket",
        lambda key, kind, text: (float(text),) * 2 if key.type == "float" and kind == "number" else None,
    ),
    "a row that another row follows is left out": (
        picked_rows,
        "rows_sql",
        lambda rows: f"file_row_number = {rows[0]}",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(world: IndexWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*MISTAKES[name])
    assert any(differences(world, 150, seed=0))


def test_the_rows_of_files_are_counted_and_verified(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose marks say that it has all rows of a file, and has not, is damaged."""
    assert warehouse.verify(world.path).ok
    honest = Places.to_bytes

    def more(places: Places) -> bytes:
        return honest(Places(places.files, places.rows + (places.files == places.files[:1])))

    monkeypatch.setattr(Places, "to_bytes", more)
    warehouse_of_mistakes = IndexWorld.create(world.path.parent / "mistaken", 1)
    warehouse_of_mistakes.load("b")
    monkeypatch.undo()
    assert not warehouse.verify(warehouse_of_mistakes.path).ok
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    with pytest.raises(DamagedWarehouse, match="places"):
        query.open(warehouse_of_mistakes.path).sql("SELECT n FROM events WHERE k = 'a'").fetchall()


def test_what_cannot_have_an_index_is_refused(tmp_path: Path) -> None:
    given: list[tuple[Any, str]] = [(["nope"], "nope"), (["k", "K"], "named twice"), (3, "column names")]
    for index, words in given:
        with pytest.raises(InputError, match=words):
            warehouse.create(None, tmp_path / "w", ["x"], index=index, schema=SCHEMA, time="t")
    warehouse.create(None, tmp_path / "w", ["x"], index=[], schema=SCHEMA, time="t")
    asked: list[dict[str, Any]] = [{"add_index": "nope"}, {"drop_index": "n"}]
    for one in [*asked, {"add_index": "n", "drop_index": "n"}]:
        with pytest.raises(InputError):
            warehouse.alter(None, tmp_path / "w", **one)


def test_runs_that_spark_sorted_and_files_that_it_joined(spark: Any, tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 9)
    for number in range(3):
        rows = world.rows(60)
        warehouse.load(spark, world.path, spark.createDataFrame(rows), f"b{number}", tuning=TINY)
        world.kept = pa.concat_tables([world.kept, rows])
    assert list(differences(world, 10, 0)) == []
    found = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts[0]
    assert found.rows_left < len(world.kept) / 4
    spark.sql(f"OPTIMIZE delta.`{world.path}/events`")
    joined = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts[0]
    assert joined.rows_left == len(world.kept)  # of files that it has never seen an index says nothing
    check(world)


def test_indexes_serve_a_statement_about_several_warehouses(world: IndexWorld, tmp_path: Path) -> None:
    """Each site has its own indexes, or none."""
    other = IndexWorld.create(tmp_path, 4, index=["k"], kappa=3)
    other.load("b")
    plain = IndexWorld.create(tmp_path / "plain", 6, index=[])
    plain.load("b")
    wh = query.open({"one": world.path, "two": other.path, "three": plain.path})
    statement = "SELECT count(*) FROM events WHERE k = 'a'"
    expected = sum(one.sql(statement)[0][0].as_py() for one in (world, other, plain))
    assert wh.sql(statement).fetchall() == [(expected,)]
    assert [(one.site, one.way) for one in wh.explain(statement).parts] == [
        ("one", "index"),
        ("two", "index"),
    ]
