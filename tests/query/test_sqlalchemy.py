"""SQLAlchemy over warehouses: what it reflects, reads and is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy import exc, func, select

from tests.jobs.http_served import small_world
from tidemark import query, stream, warehouse
from tidemark.query.integrations.cursors import Connection
from tidemark.query.integrations.sqlalchemy_dialect import TidemarkDialect, type_of
from tidemark.warehouse.errors import InputError


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("engine"))


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("second"))


@pytest.fixture(scope="module")
def engine(path: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"tidemark://?w={path}&other={path}")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def unlocked(path: str) -> query.Connection:
    return query.connect({"w": path})


@pytest.fixture
def connection(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as connection:
        yield connection


def test_views_and_their_columns_are_reflected(connection: sa.Connection, path: str) -> None:
    found = sa.inspect(connection)
    assert found.get_schema_names() == ["main"]
    assert found.default_schema_name == "main"
    assert found.get_table_names() == []
    parts = ("", "_events", "_history", "_live", "_runs", "_steps", "_summary")
    assert found.get_view_names() == [f"{name}{part}" for name in ("other", "w") for part in parts]
    assert found.get_view_names(schema="main") == found.get_view_names()
    assert found.get_view_names(schema="elsewhere") == []
    assert found.has_table("w_live")
    assert not found.has_table("nothing")
    assert "w_events" in found.get_view_definition("w")
    columns: dict[str, Any] = {one["name"]: one["type"] for one in found.get_columns("w")}
    assert list(columns)[-7:] == list(dict(query.open(path).options.columns))
    assert isinstance(columns["big"], sa.BigInteger)
    assert isinstance(columns["name"], sa.String)
    assert (columns["price"].precision, columns["price"].scale) == (12, 2)
    assert columns["at"].timezone
    assert found.get_pk_constraint("w")["constrained_columns"] == []
    for none in (found.get_foreign_keys, found.get_indexes, found.get_unique_constraints):
        assert none("w") == []
    assert found.get_table_comment("w") == {"text": None}
    for ask in (found.get_columns, found.get_view_definition):
        with pytest.raises(exc.NoSuchTableError, match="nothing"):
            ask("nothing")


def test_a_table_by_its_name_is_read_with_the_values_of_python(connection: sa.Connection) -> None:
    w = sa.Table("w", sa.MetaData(), autoload_with=connection)
    early = select(w.c.time, w.c.ms, w.c.big, w.c.price, w.c.name, w.c.site).order_by(w.c.time)
    (row,) = connection.execute(early.offset(1).limit(1)).all()
    hour = datetime.fromtimestamp(1_000_003_600, UTC)
    assert tuple(row) == (hour, 1 / 7, 2**62 + 1, Decimal("1.01"), "SEA", "us")
    counts = (
        select(w.c.site, func.count().label("rows"), func.max(w.c.price))
        .where(w.c.price >= Decimal("50.50"), w.c.time < datetime(2030, 1, 1, tzinfo=UTC))
        .where(w.c.site.in_(["eu", "ap"]), w.c.big.is_distinct_from(None))
        .group_by(w.c.site)
        .order_by(w.c.site)
    )
    assert [tuple(row) for row in connection.execute(counts)] == [
        ("ap", 17, Decimal("98.98")),
        ("eu", 16, Decimal("96.96")),
    ]
    assert connection.execute(select(w.c.site).where(w.c.site.in_([]))).all() == []
    assert connection.execute(select(w.c.site).order_by(w.c.time).offset(99)).all() == [("eu",)]
    halves = select(sa.cast(w.c.big, sa.Float) / 2, w.c.big / 2, sa.cast("2001-09-09", sa.Date)).limit(1)
    assert connection.execute(halves).one()[2] == date(2001, 9, 9)


def test_functions_answer_questions(connection: sa.Connection, path: str) -> None:
    wh = query.open(path)
    asked = func.w_ms_quantile(0.5).table_valued("phi", "value", "low", "high")
    (row,) = connection.execute(select(asked.c.phi, asked.c.value, asked.c.low, asked.c.high)).all()
    expected = wh.quantile(0.5)
    assert tuple(row) == (0.5, expected.value, expected.low, expected.high)
    statement = sa.text("SELECT value, count FROM w_top(:k, last => :last) UNION ALL SELECT 'x', 0")
    rows = connection.execute(statement, {"k": 2, "last": "1d"}).all()
    assert [tuple(row) for row in rows][:2] == [(one.value, one.count) for one in wh.top(2, last="1d")]


CHARTS: dict[str, Any] = {
    "SELECT DATE_TRUNC('day', time) AS __timestamp, COUNT(*) AS count, MAX(price) AS \"MAX(price)\" \n"
    "FROM main.w \nWHERE time >= '2001-09-09 00:00:00.000000' AND time < '2001-09-11 00:00:00.000000' "
    "GROUP BY DATE_TRUNC('day', time) ORDER BY count DESC\n LIMIT 10000;\n\n": [
        (datetime(2001, 9, 10, tzinfo=UTC), 24, Decimal("46.46")),
        (datetime(2001, 9, 9, tzinfo=UTC), 23, Decimal("22.22")),
    ],
    "SELECT COUNT(*) AS rowcount FROM (SELECT name FROM w) AS virtual_table\n LIMIT 1": [(100,)],
    "SELECT big AS big FROM main.w ORDER BY big\n LIMIT 2\n OFFSET 30": [(2**62 + 30,), (2**62 + 31,)],
    "SELECT site, COUNT(*) AS n FROM main.w JOIN (SELECT site AS site__, COUNT(*) AS mme_inner__ "
    "FROM main.w GROUP BY site ORDER BY mme_inner__ DESC LIMIT 1) AS series_limit ON site = site__ "
    "WHERE name LIKE '%A%' GROUP BY site": [("eu", 17)],
    "SELECT MAX(value) AS v, MIN(low) AS l, MAX(high) AS h FROM (SELECT \"group\"['site'] AS site, value, "
    "low, high FROM w_big_quantile(0.5, \"by\" => 'site')) AS v\nWHERE site IN ('us')\n LIMIT 9": [
        (2**62 + 49, 2**62 + 49, 2**62 + 49)
    ],
}


def test_superset_reflects_and_draws(path: str) -> None:
    """As its engine of DuckDB asks: a connection with a name, and a description that is set again."""
    named = {"config": {"custom_user_agent": "apache-superset/6.1.0"}}
    engine = sa.create_engine(f"duckdb+tidemark://?w={path}", poolclass=sa.pool.NullPool, connect_args=named)
    found = sa.inspect(engine)
    assert found.default_schema_name in found.get_schema_names()
    assert found.has_table("w", "main")
    assert found.get_table_comment("w", "main") == {"text": None}
    assert {one["name"] for one in found.get_columns("w", "main")} >= {"time", "ms", "name"}
    connection = engine.raw_connection()
    ping: Any = connection.dbapi_connection
    assert engine.dialect.do_ping(ping)
    cursor: Any = connection.cursor()
    for statement, expected in CHARTS.items():
        cursor.execute(statement)
        described = cursor.description
        rows = cursor.fetchall()
        cursor.description = described
        assert ([tuple(row) for row in rows], len(described)) == (expected, len(expected[0]))
        connection.commit()
    connection.close()
    engine.dispose()


def test_what_is_no_setting_is_none_or_refused(path: str) -> None:
    def opened(config: Any) -> Any:
        return sa.create_engine(f"tidemark://?w={path}", connect_args={"config": config}).connect()

    with opened(None) as connection:
        assert connection.execute(sa.text("SELECT 1")).all() == [(1,)]
    with pytest.raises(exc.ProgrammingError, match=r"config is a mapping, got 'threads=1'"):
        opened("threads=1")


def test_settings_of_duckdb_are_refused(path: str) -> None:
    engine = sa.create_engine(f"tidemark://?w={path}", connect_args={"config": {"threads": 1}})
    with pytest.raises(exc.ProgrammingError, match=r"config has settings of DuckDB.*got \['threads'\]"):
        engine.connect()


def test_results_are_read_while_others_are_asked(connection: sa.Connection) -> None:
    first = connection.execute(sa.text("SELECT name FROM w ORDER BY time"))
    assert first.fetchone() is not None
    for _ in range(3):
        assert connection.execute(sa.text("SELECT count(*) FROM w_live")).scalar() == 40
    assert len(first.fetchmany(10)) == 10
    assert len(first.fetchall()) == 89


WRITING = [
    "DELETE FROM w",
    "DROP VIEW w",
    "CREATE TABLE t (x int)",
    "SET lock_configuration = false",
    "ATTACH 'other.db'",
    "COPY w TO 'rows.csv'",
    "INSTALL httpfs",
    "PRAGMA version",
    "SELECT 1; DELETE FROM w",
]
# Queries that a connection of `query.connect` would answer.
READING = [
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT * FROM read_text('{path}/../secret.csv')",
]


@pytest.mark.parametrize("statement", WRITING)
def test_statements_that_are_no_query_are_refused(statement: str, connection: sa.Connection) -> None:
    with pytest.raises(exc.ProgrammingError, match="takes one query"):
        connection.execute(sa.text(statement))
    assert connection.execute(sa.text("SELECT count(*) FROM w")).scalar() == 100


@pytest.mark.parametrize("statement", READING)
def test_no_file_beside_the_warehouses_is_read(
    statement: str, connection: sa.Connection, path: str, unlocked: query.Connection
) -> None:
    file = Path(path).parent / "secret.csv"
    file.write_text("a,b\n1,2\n")
    text = statement.format(file=file, folder=file.parent, path=path)
    with pytest.raises(exc.ProgrammingError, match="disabled by configuration"):
        connection.execute(sa.text(text))
    assert unlocked.sql(text).fetchall()  # so the refusal is that of the lock


def test_names_of_tables_are_never_variables(connection: sa.Connection) -> None:
    rows = query.open(connection.engine.url.query["w"]).sql("SELECT 1 AS one").arrow()  # noqa: F841
    with pytest.raises(exc.ProgrammingError, match="rows does not exist"):
        connection.execute(sa.text("FROM rows"))


def test_an_insert_of_several_rows_is_refused(connection: sa.Connection) -> None:
    w = sa.Table("w", sa.MetaData(), autoload_with=connection)
    with pytest.raises(exc.ProgrammingError, match="can only be read"):
        connection.execute(sa.insert(w), [{"site": "eu"}, {"site": "us"}])


def test_sites_are_asked_as_one(path: str, second: str) -> None:
    engine = sa.create_engine(f"duckdb+tidemark://?together.a={path}&together.b={second}")
    with engine.connect() as connection:
        counts = connection.execute(sa.text("SELECT _site, count(*) FROM together GROUP BY 1 ORDER BY 1"))
        assert counts.all() == [("a", 100), ("b", 100)]
    engine.dispose()


def test_each_statement_sees_the_newest_rows_and_columns(second: str) -> None:
    """It changes the second warehouse, so it comes after those that read it."""
    engine = sa.create_engine("tidemark://", connect_args={"warehouses": {"w": query.open(second)}})
    with engine.connect() as connection:
        count = sa.text("SELECT count(*) FROM w")
        assert connection.execute(count).scalar() == 100
        rows = query.open(second).sql("SELECT * EXCLUDE (_source, _batch, _tick) FROM events LIMIT 5")
        stream.append(None, second, pa.table(rows), source="web", batch=1)
        assert connection.execute(count).scalar() == 105
        measures = sa.text("SELECT count(DISTINCT measure) FROM w_summary")
        assert connection.execute(measures).scalar() == 4
        warehouse.alter(None, second, drop_measure="at")
        assert connection.execute(measures).scalar() == 3
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("tidemark:///data/w", "behind the question mark: tidemark://?NAME=PATH"),
        ("tidemark://host?w=/data", "behind the question mark"),
        ("tidemark://", "no warehouse was given"),
        ("tidemark://?w=a&w=b", "w is given 2 times"),
        ("tidemark://?w=a&w.eu=b", "both a warehouse and several sites"),
        ("tidemark://?w=/nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_addresses_that_name_no_warehouse_are_refused(url: str, said: str) -> None:
    with pytest.raises((InputError, exc.ProgrammingError)) as told:
        sa.create_engine(url).connect()
    assert said in str(told.value)


def test_types_that_have_no_word_are_told_as_unknown() -> None:
    dialect: Any = TidemarkDialect()
    assert isinstance(type_of("STRUCT(a INTEGER)"), sa.types.NullType)
    assert isinstance(type_of("HUGEINT"), sa.types.NullType)
    assert sa.cast(sa.column("x"), sa.Float).compile(dialect=dialect).string == "CAST(x AS DOUBLE)"
    assert "TIMESTAMPTZ" in str(sa.cast(sa.column("x"), sa.DateTime(timezone=True)).compile(dialect=dialect))
    assert "VARCHAR" in str(sa.cast(sa.column("x"), sa.Text).compile(dialect=dialect))


def test_what_is_closed_is_refused(path: str) -> None:
    connection = Connection({"w": query.open(path)})
    cursor = connection.cursor()
    with pytest.raises(InputError, match="no statement was run"):
        cursor.fetchall()
    assert cursor.description is None
    with pytest.raises(InputError, match="Conversion Error"):
        cursor.execute("SELECT name::INT FROM w")
    assert cursor.description is None
    cursor.execute("SELECT 1 AS one, 2 AS two")
    described: Any = cursor.description
    assert [name for name, *_ in described] == ["one", "two"]
    assert cursor.fetchmany() == [(1, 2)]
    assert cursor.fetchone() is None
    cursor.close()
    with pytest.raises(InputError, match="the cursor is closed"):
        cursor.execute("SELECT 1")
    connection.close()
    with pytest.raises(InputError, match="the connection is closed"):
        connection.cursor().execute("SELECT 1")
