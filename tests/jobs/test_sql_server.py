"""JDBC clients: a real Thrift server in a process of its own, Hive's JDBC driver in this one's Java."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import stream
import warehouse
from tests.jobs.said import ROOT, environment, process
from tests.query.sqlworld import FLIGHTS, Rows, make, month

HISTORY, LIVE, BOTH = Rows.of(1), Rows.of(2), Rows.of(1, 2)
Ask = Callable[[str], list[tuple[str | None, ...]]]


@dataclass(frozen=True)
class Server:
    """A running server: its process, its address, and the folder that it was started in."""

    process: subprocess.Popen[str]
    url: str
    folder: Path


@pytest.fixture(scope="module")
def uri(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(spark, tmp_path_factory.mktemp("served") / "w")


@pytest.fixture(scope="module")
def server(uri: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """By spark-submit, which has the warehouse from a setting."""
    folder = tmp_path_factory.mktemp("started-here")
    submit = Path(sys.prefix) / "bin" / "spark-submit"
    conf = ["--master", "local[2]", "--conf", f"spark.tidemark.flights={uri}"]
    line = [str(submit), *conf, str(ROOT / "jobs" / "sql_server.py"), "--json"]
    with subprocess.Popen(line, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        facts = json.loads(started.stdout.readline())
        assert facts["warehouses"] == {"flights": str(uri)}
        yield Server(started, facts["url"], folder)
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)


@pytest.fixture
def connect(spark: SparkSession, server: Server) -> Iterator[Callable[[], Ask]]:
    """Each call opens a session of its own."""
    java: Any = spark.sparkContext._jvm
    opened = []

    def new() -> Ask:
        connection = java.org.apache.hive.jdbc.HiveDriver().connect(server.url, java.java.util.Properties())
        opened.append(connection)

        def ask(text: str) -> list[tuple[str | None, ...]]:
            found, rows = connection.createStatement().executeQuery(text), []
            columns = range(1, found.getMetaData().getColumnCount() + 1)
            while found.next():
                rows.append(tuple(found.getString(i) for i in columns))
            return rows

        return ask

    yield new
    for connection in opened:
        connection.close()


def test_every_session_of_a_client_has_functions_and_views(connect: Callable[[], Ask]) -> None:
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
        for view, rows_there in (("events", BOTH), ("history", HISTORY), ("live", LIVE)):
            assert ask(f"SELECT count(*) FROM flights_{view}") == [(str(len(rows_there)),)]
        assert len(ask("SELECT * FROM flights_summary")) == 10


def test_sessions_are_apart(connect: Callable[[], Ask]) -> None:
    one, other = connect(), connect()
    one("SET spark.sql.session.timeZone=Asia/Tokyo")
    ((zone,),) = other("SELECT current_timezone()")
    assert zone == "UTC"


def test_a_mistake_is_told_in_the_message_s_first_line(connect: Callable[[], Ask]) -> None:
    with pytest.raises(Py4JJavaError) as failed:
        connect()("SELECT * FROM flights_quantile(1.5)")
    first = failed.value.java_exception.getMessage().splitlines()[0]
    assert "InputError: not a quantile: got phi = 1.5; expected 0 <= phi <= 1" in first


def test_clients_see_what_came_since(spark: SparkSession, uri: Path, connect: Callable[[], Ask]) -> None:
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


def test_sigterm_ends_it_with_0_and_it_leaves_nothing_behind(server: Server) -> None:
    """The last test of this server."""
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    assert list(server.folder.iterdir()) == []


def test_usage_that_is_wrong_ends_with_2(uri: Path) -> None:
    """Before Java is started."""
    said = process("sql-server", "-w", f"1a={uri}")
    assert said.code == 2
    assert "name must be an identifier" in said.err
    taken = process("sql-server", "-w", f"f={uri}", "--host", "203.0.113.1")
    assert taken.code == 2
    assert "cannot listen on 203.0.113.1:0" in taken.err
