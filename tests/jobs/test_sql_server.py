"""JDBC clients: a real Thrift server in a process of its own, Hive's JDBC driver in this one's Java."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.jobs.said import ROOT, process, tidemark
from tests.jobs.served import Client, Driver, Server, all_rows, serving, told
from tests.query.sqlworld import FLIGHTS, Rows, make, month
from tidemark import stream, warehouse
from tidemark.jobs import sql_server
from tidemark.jobs.cli.named_warehouses import is_local_address
from tidemark.jobs.sql import entrance

ANN = "ann:$6$salt$hash"
HISTORY, LIVE, BOTH = Rows.of(1), Rows.of(2), Rows.of(1, 2)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("served") / "w")


@pytest.fixture(scope="module")
def server(uri: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """By spark-submit, which has the warehouse from a setting."""
    submit = Path(sys.prefix) / "bin" / "spark-submit"
    conf = ["--master", "local[2]", "--conf", f"spark.tidemark.flights={uri}"]
    line = [submit, *conf, ROOT / "jobs" / "sql_server.py", "--json"]
    with serving(tmp_path_factory.mktemp("started-here"), line) as started:
        yield started


@pytest.fixture
def connect(spark: SparkSession, server: Server) -> Iterator[Callable[..., Client]]:
    """Each call opens a session of its own; what is given to it stands at the end of the address."""
    driver = Driver(spark.sparkContext._jvm)
    yield lambda rest="": driver.connect(server.url + rest)
    driver.close()


def test_every_session_of_a_client_has_functions_and_views(connect: Callable[..., Client]) -> None:
    truth = BOTH.oracle()
    for ask in (connect(), connect()):
        ((value, n, m),) = ask("SELECT value, n, m FROM flights_quantile(0.99, mode => 'exact')")
        assert (value, n, m) == (str(truth.quantile(0.99)), str(HISTORY.oracle().n), str(LIVE.oracle().n))
        lateral = "VALUES (0.5), (0.9) t(p), LATERAL flights_quantile(p, 'exact', '7 days') q"
        rows = ask(f"SELECT q.value FROM {lateral}")
        week = BOTH.last_days(7).oracle()
        assert sorted(rows) == sorted((str(week.quantile(phi)),) for phi in (0.5, 0.9))
        ((count,),) = ask("SELECT `count` FROM flights_frequency('ATL', mode => 'exact')")
        assert count == str(BOTH.keys()["ATL"])
        grouped = ask("SELECT `group`['origin'], value FROM flights_quantile(0.5, by => 'origin', top => 2)")
        assert grouped == [
            (name, str(BOTH.where(origin=name).oracle().quantile(0.5)))
            for name, _ in BOTH.keys().most_common(2)
        ]
        for view, rows_there in (("events", BOTH), ("history", HISTORY), ("live", LIVE)):
            assert ask(f"SELECT count(*) FROM flights_{view}") == [(str(len(rows_there)),)]
        assert len(ask("SELECT * FROM flights_summary")) == 10


def test_sessions_are_apart(connect: Callable[..., Client]) -> None:
    one, other = connect(), connect()
    one("SET spark.sql.session.timeZone=Asia/Tokyo")
    ((zone,),) = other("SELECT current_timezone()")
    assert zone == "UTC"


def test_a_mistake_is_told_in_the_message_s_first_line(connect: Callable[..., Client]) -> None:
    with pytest.raises(Py4JJavaError) as failed:
        connect()("SELECT * FROM flights_quantile(1.5)")
    first = told(failed.value).splitlines()[0]
    assert "InputError: not a quantile: got phi = 1.5; expected 0 <= phi <= 1" in first


QUESTIONS = {
    "SELECT a.origin, count(*), rank() OVER (ORDER BY count(*) DESC) FROM flights_live a "
    "JOIN flights_history b ON a.origin = b.origin AND a.delay = b.delay GROUP BY 1 LIMIT 3": 3,
    "WITH l AS (SELECT * FROM flights_events WHERE delay > 60) SELECT CAST(max(delay) AS INT) FROM l": 1,
    "SELECT q.value FROM (VALUES (0.5D), (0.9D)) t(phi) LEFT JOIN LATERAL flights_quantile(phi) q ON TRUE": 2,
    "SELECT * FROM default.flights_runs UNION ALL SELECT * FROM spark_catalog.default.flights_runs": 12,
    "SELECT explode(array(1, 2)), current_user()": 2,
    "SELECT * FROM range(3) LATERAL VIEW posexplode(array(5)) AS i, x": 3,
    "SELECT (SELECT max(delay) FROM flights_live), 1 IN (SELECT delay FROM flights_live)": 1,
    "VALUES (1, date '2001-03-19'), (2, NULL)": 2,
    "TABLE flights_steps": 1,
    "SHOW TABLES": 6,
    "SHOW VIEWS IN default": 6,
    "SHOW SCHEMAS": 1,
    "SHOW COLUMNS IN flights_steps": None,
    "SHOW CREATE TABLE flights_live": 1,
    "SHOW TABLE EXTENDED LIKE 'flights_*'": 6,
    "SHOW FUNCTIONS LIKE 'percentile'": 1,
    "DESCRIBE flights_events": 8,
    "DESCRIBE TABLE EXTENDED default.flights_events": None,
    "DESCRIBE QUERY SELECT delay FROM flights_live": 1,
    "DESCRIBE FUNCTION abs": None,
    "DESCRIBE SCHEMA default": None,
    "EXPLAIN FORMATTED SELECT count(*) FROM flights_events": 1,
    "USE default": 0,
    "USE spark_catalog.default": 0,
    "SET spark.sql.shuffle.partitions=3": 1,
    "SET TIME ZONE 'UTC'": 1,
    "RESET spark.sql.shuffle.partitions": 0,
    "SELECT '${env:HOME}'": 1,
}


def test_what_asks_is_answered(connect: Callable[..., Client]) -> None:
    ask = connect()
    for question, rows in QUESTIONS.items():
        found = ask(question)
        assert rows is None or len(found) == rows, (question, found)
    assert ask("SELECT '${env:HOME}'") == [("${env:HOME}",)]


def test_drivers_look_around_and_prepare_statements(connect: Callable[..., Client]) -> None:
    client = connect("default;fetchSize=10?spark.sql.session.timeZone=Asia/Tokyo")
    assert client("SELECT current_timezone()") == [("Asia/Tokyo",)]
    about = client.connection.getMetaData()
    views = {row[2] for row in all_rows(about.getTables(None, "default", "flights_%", None))}
    assert views == {f"flights_{one}" for one in ("events", "history", "live", "steps", "runs", "summary")}
    assert "default" in {row[0] for row in all_rows(about.getSchemas())}
    columns = [row[3] for row in all_rows(about.getColumns(None, "default", "flights_events", "%"))]
    assert {"delay", "origin", "time"} <= set(columns)
    assert [row[2] for row in all_rows(about.getFunctions(None, None, "abs"))] == ["abs"]
    assert len(all_rows(about.getTypeInfo())) > 10
    asked = client.connection.prepareStatement("SELECT count(*) FROM flights_live WHERE origin = ?")
    asked.setString(1, "ATL")
    assert all_rows(asked.executeQuery()) == [(str(LIVE.keys()["ATL"]),)]


def test_clients_see_what_came_since(spark: SparkSession, uri: Path, connect: Callable[..., Client]) -> None:
    """This process streams and loads, the server is another one."""
    ask = connect()
    ask("SELECT * FROM flights_quantile(0.5)")
    frame = spark.read.parquet(str(FLIGHTS))
    stream.append(spark, uri, month(frame, 3), source="web", batch=1)
    march = len(Rows.of(3))
    assert ask("SELECT count(*) FROM flights_live") == [(str(len(LIVE) + march),)]
    warehouse.load(spark, uri)
    assert ask("SELECT count(*) FROM flights_live") == [("0",)]
    assert ask("SELECT count(*) FROM flights_events") == [(str(len(BOTH) + march),)]
    assert ask("SELECT n + nulls, m FROM flights_quantile(0.5)") == [(str(len(BOTH) + march), "0")]


@pytest.mark.spark
def test_sigterm_ends_it_with_0_and_it_leaves_nothing_behind(server: Server) -> None:
    """The last test of this server."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    assert list(server.folder.iterdir()) == []


@pytest.mark.slow
def test_usage_that_is_wrong_ends_with_2(uri: Path) -> None:
    """Before Java is started."""
    said = process("sql-server", "-w", f"1a={uri}")
    assert said.code == 2
    assert "name must be an identifier" in said.err
    taken = process("sql-server", "-w", f"f={uri}", "--host", "203.0.113.1")
    assert taken.code == 2
    assert "cannot listen on 203.0.113.1:0" in taken.err


@pytest.mark.usefixtures("spark")
def test_beyond_this_machine_it_asks_for_passwords_or_says_so(
    uri: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session is there already, so this takes no start of Spark."""
    for host in ("0.0.0.0", ""):  # noqa: S104
        said = tidemark(capsys, "sql-server", "-w", f"f={uri}", "--host", host)
        assert said.code == 2
        assert "can be reached from outside. Give --users FILE" in said.err
    users = tmp_path / "users"
    for text, problem in (
        ("", "has no users"),
        ("ann:secret\n", "line 1: expected NAME:HASH"),
        (f"{ANN}\nbob\n", "line 2: expected NAME:HASH"),
    ):
        users.write_text(text)
        said = tidemark(capsys, "sql-server", "-w", f"f={uri}", "--users", users)
        assert said.code == 2
        assert problem in said.err
    said = tidemark(capsys, "sql-server", "-w", f"f={uri}", "--users", tmp_path / "none")
    assert said.code == 2
    assert "cannot be read" in said.err


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("", False)],  # noqa: S104
)
def test_which_hosts_are_this_machine_s(host: str, own: bool) -> None:
    assert is_local_address(host) is own


def test_the_server_looks_whether_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_server, "_SECONDS_BETWEEN_LOOKS", 0.01)
    spark, server, stopping = Mock(), Mock(), Event()
    monkeypatch.setattr(entrance, "serves", lambda *_: False)
    with pytest.raises(sql_server.ServerEnded, match="--driver-memory"):
        sql_server._wait(spark, server, stopping)
    looks: list[int] = []

    def blind(*_: object) -> bool:
        """The broken variant: it waits for ever, here until the third look."""
        looks.append(1)
        if len(looks) == 3:
            stopping.set()
        return True

    monkeypatch.setattr(entrance, "serves", blind)
    sql_server._wait(spark, server, stopping)
    assert len(looks) == 3
