"""One statement over several warehouses by names, against the same statement over the plain rows."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.sql.relations import Relation
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError, NotAWarehouse

PAGES = [f"/{number}" for number in range(30)]


def rankings(chance: random.Random) -> pa.Table:
    return pa.table({"url": PAGES, "rank": [chance.randrange(100) for _ in PAGES]})


def visits(chance: random.Random, rows: int) -> pa.Table:
    return pa.table(
        {
            "dest": [chance.choice([*PAGES, "/elsewhere", None]) for _ in range(rows)],
            "revenue": [chance.choice([round(chance.random(), 3), None]) for _ in range(rows)],
        }
    )


class World:
    """Two warehouses, and the rows of each."""

    def __init__(self, folder: Path) -> None:
        self.chance = random.Random(4)
        self.uris = {"rankings": str(folder / "a"), "visits": str(folder / "b")}
        self.rows = {"rankings": rankings(self.chance), "visits": visits(self.chance, 200)}
        for (name, rows), measure, key in zip(
            self.rows.items(), ("rank", "revenue"), ("url", "dest"), strict=True
        ):
            warehouse.create(None, self.uris[name], measure, key=key, schema=rows.schema)
            warehouse.load(None, self.uris[name], rows, "first")
        self.stream(0)

    def stream(self, batch: int) -> None:
        rows = visits(self.chance, 40)
        stream.append(None, self.uris["visits"], rows, source="s", batch=batch)
        self.rows["visits"] = pa.concat_tables([self.rows["visits"], rows])

    def expected(self, statement: str) -> list[Any]:
        with duckdb.connect() as plain:
            for name, rows in self.rows.items():
                plain.register(name, rows)
            return sorted(plain.sql(statement).fetchall(), key=repr)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("connect"))


@pytest.fixture(scope="module")
def both(world: World) -> query.Connection:
    return query.connect(world.uris)


def rows_of(relation: Relation) -> list[Any]:
    return sorted(relation.fetchall(), key=repr)


JOIN = (
    "SELECT url, rank, count(*), round(sum(revenue), 6) FROM rankings JOIN visits ON url = dest "
    "WHERE rank > 20 GROUP BY ALL"
)


@pytest.mark.parametrize(
    "statement",
    [
        JOIN,
        "SELECT dest, url FROM visits LEFT JOIN rankings ON url = dest",
        "SELECT * FROM rankings WHERE url NOT IN (SELECT dest FROM visits WHERE dest IS NOT NULL)",
        "SELECT (SELECT max(rank) FROM rankings), (SELECT count(revenue) FROM visits)",
    ],
)
def test_joins_are_those_of_the_plain_rows(world: World, both: query.Connection, statement: str) -> None:
    columns = {"rankings": "url, rank", "visits": "dest, revenue"}
    for name, own in columns.items():
        statement = statement.replace(f"FROM {name}", f"FROM (SELECT {own} FROM {name}) {name}")
    assert rows_of(both.sql(statement)) == world.expected(statement)


def test_functions_and_tables_have_the_names_of_the_warehouses(world: World, both: query.Connection) -> None:
    median = query.open(world.uris["visits"]).quantile(0.5).value
    assert both.sql("SELECT value FROM visits_quantile(0.5)").fetchall() == [(median,)]
    found = both.sql(
        "SELECT (SELECT count(*) FROM visits_live), (SELECT sum(rows) FROM rankings_steps), "
        "(SELECT count(*) FROM rankings_history), (SELECT value FROM visits_revenue_quantile(1))"
    ).fetchall()
    assert found == [
        (40, len(PAGES), len(PAGES), max(filter(None, world.rows["visits"]["revenue"].to_pylist())))
    ]
    assert both.sql("FROM visits_events WHERE revenue > ?", params=[2]).fetchall() == []


def test_statements_see_new_rows(tmp_path: Path) -> None:
    world = World(tmp_path)
    both = query.connect({**world.uris, "visits": query.open(world.uris["visits"])})
    assert rows_of(both.sql(JOIN)) == world.expected(JOIN)
    world.stream(1)
    assert rows_of(both.sql(JOIN)) == world.expected(JOIN)
    warehouse.alter(None, world.uris["visits"], add_key="revenue")
    assert both.sql("SELECT count(*) FROM visits_top(3, key := 'revenue')").fetchall() == [(3,)]


def test_threads_share_it(world: World, both: query.Connection) -> None:
    expected = world.expected(JOIN)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: rows_of(both.sql(JOIN)), range(8)):
            assert found == expected


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no warehouse was given"),
        (["a", "A"], "differ in case alone"),
        (["page", "page_visits"], "starts with 'page_'"),
        (["a b"], "must be an identifier"),
        ([""], "must be an identifier"),
        ([7], "must be an identifier"),
    ],
)
def test_names_that_sql_could_not_tell_are_refused(world: World, names: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        query.connect(dict.fromkeys(names, world.uris["visits"]))


def test_other_mistakes_are_refused(world: World, both: query.Connection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes a mapping"):
        query.connect([world.uris["visits"]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'other'"):
        query.connect(world.uris, {"other": {}})
    with pytest.raises(NotAWarehouse):
        query.connect({"a": tmp_path})
    for statement in (
        "SELECT * FROM nothing",
        "DROP VIEW visits",
        "SELECT 1; SELECT 2",
        "COPY visits TO 'x'",
    ):
        with pytest.raises(InputError):
            both.sql(statement).fetchall()
    with pytest.raises(EmptyWindow):
        both.sql("FROM visits_quantile(0.5, since := 100, until := 101)").fetchall()


def test_a_lost_file_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    both = query.connect(world.uris)
    (lost,) = (tmp_path / "a" / "events").glob("*.parquet")
    lost.unlink()
    with pytest.raises(DamagedWarehouse, match=lost.name):
        both.sql(JOIN).fetchall()
