"""One statement over several warehouses by names, against the same statement over the plain rows."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.sql.duckdb_sql import connected
from tidemark.query.sql.found_rows import SiteFiles
from tidemark.query.sql.relations import Relation
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError, NotAWarehouse
from tidemark.warehouse.ingest.event_files import RowFile

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


FILTERED = "SELECT count(*) FROM visits JOIN pages ON dest = page WHERE revenue = 77"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """4,000 pages in four loads, ascending, and a thousand visits in two."""
    folder = tmp_path_factory.mktemp("filtered")
    uris = {"pages": str(folder / "pages"), "visits": str(folder / "visits")}
    numbers = {"pages": range(4000), "visits": range(1000)}
    for name, loads, columns in (("pages", 4, ("page", "rank")), ("visits", 2, ("revenue", "dest"))):
        each = len(numbers[name]) // loads
        for load in range(loads):
            own = list(numbers[name])[load * each : (load + 1) * each]
            rows = pa.table({columns[0]: own, columns[1]: [(one * 7) % 4000 for one in own]})
            if not load:
                warehouse.create(None, uris[name], columns[0], schema=rows.schema)
            warehouse.load(None, uris[name], rows, f"load {load}")
    return uris


def plan_of(uris: dict[str, str], statement: str) -> tuple[Any, str]:
    """The answer, and what DuckDB tells of the way to it."""
    database = connected({name: query.open(uri) for name, uri in uris.items()})
    answer = database.connection.execute(statement).fetchall()
    ((_, text),) = database.connection.execute(f"EXPLAIN ANALYZE {statement}").fetchall()
    return answer, text


@pytest.mark.parametrize(
    "statement",
    [FILTERED, "SELECT count(*) FROM pages WHERE page IN (SELECT dest FROM visits WHERE revenue = 77)"],
)
def test_the_keys_of_a_filtered_side_reach_the_scan_of_the_other(
    loaded: dict[str, str], statement: str
) -> None:
    """DuckDB knows which side is small: of four row groups it reads the one that can have the key."""
    answer, plan = plan_of(loaded, statement)
    assert answer == [(1,)]
    assert "page = 539" in plan
    assert plan.count("Row Groups Scanned: 1 / 4") == 1


def test_sides_of_unknown_size_would_be_caught(
    loaded: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the first file that DuckDB sees has no rows, so both sides seem empty."""
    monkeypatch.setattr(SiteFiles, "leads", lambda *_: False)
    answer, plan = plan_of(loaded, FILTERED)
    assert answer == [(1,)]
    assert "page = 539" not in plan


def test_a_file_with_other_columns_does_not_lead(loaded: dict[str, str], tmp_path: Path) -> None:
    """Another tool wrote the largest file with its columns in another order: the view keeps its own."""
    uri = str(shutil.copytree(loaded["visits"], tmp_path / "w"))
    store, statement = Store.from_uri(uri), "SELECT * FROM events ORDER BY revenue"
    expected = query.open(uri).sql(statement)
    rows = expected.to_arrow_table()
    events = tables.open_table(store, EVENTS)
    schema = pa.schema(events.schema())
    turned = pa.schema(list(reversed(list(schema))))
    with RowFile(store, turned) as file:
        file.write(rows.select(turned.names).cast(turned))
    paths = {one.path for one in data_files.list_files(events)}
    replace_files(store, EVENTS, paths, [file.written().action(new_rows=False)])
    found = query.open(uri).sql(statement)
    assert found.columns == expected.columns
    assert found.fetchall() == query.open(loaded["visits"]).sql(statement).fetchall()
