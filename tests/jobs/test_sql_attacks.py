"""Clients of the SQL server ask and do nothing else, by whatever statement, setting or connection they try.

One server has the rules and asks for the names and passwords of a file. The other allows all and has no
limits, to show that the attacks do what they are meant to; it asks a directory (LDAP).
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.jobs import attacks, raw_logins
from tests.jobs.ldap import directory
from tests.jobs.raw_logins import IN, OUT, login
from tests.jobs.served import COMMAND, Client, Driver, Server, all_rows, serving, told
from tests.query.sqlworld import make
from tidemark.jobs.sql import users
from tidemark.jobs.sql.janino import compile_java

REFUSED = "refused: "
ALLOWED = "Clients of this server may run: SELECT from its views and table functions"
# The password is "sea level"; made with `openssl passwd -6`.
ANN = "ann:$6$tidemark$FuCAKogoBWf5w4bRNvYZloKUiiMleX9gw/wYjxxL560xgtA58eKFBYy/uK9uyFOlCo6hPmfy.0myGohGi9Lkh/"
LOGIN_SECONDS = 5
# The server without its limits on logins and on memory, and with few threads.
UNLIMITED = """
import sys
from tidemark.jobs import sql_server
from tidemark.jobs.cli import main
from tidemark.jobs.sql import entrance
assert "SqlLogins.limit(" in entrance.JAVA
entrance.JAVA = entrance.JAVA.replace("SqlLogins.limit(", "// ")
sql_server.LOCAL = {}
sys.stderr = open("said", "w")
sys.exit(main.main())
"""
THREADS = 12
# Its list of 10 GB does not fit into the server's Java.
TOO_LARGE = "SELECT max(size(x)) FROM (SELECT collect_list(repeat('x', 100000)) x FROM range(100000))"
ATTACKED = "SELECT java_method('java.lang.System', 'getProperty', 'tidemark.attacked')"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("attacked") / "w")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """What is attacked."""
    spark.range(5).coalesce(1).write.format("delta").save(str(tmp_path / "table"))
    spark.range(5).coalesce(1).write.parquet(str(tmp_path / "secret.parquet"))
    (tmp_path / "secret.csv").write_text("a secret\n")
    return tmp_path


@pytest.fixture(scope="module")
def guarded(uri: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started_in = tmp_path_factory.mktemp("guarded")
    (started_in / "users").write_text(f"bob:$6$x$y\n{ANN}\n")
    line = [*COMMAND, "-w", f"flights={uri}", "--json", "--host", "0.0.0.0", "--users", "users"]  # noqa: S104
    timeout = f"--conf spark.hadoop.hive.server2.thrift.login.timeout={LOGIN_SECONDS}s"
    conf = f"--driver-memory 512m {timeout} pyspark-shell"
    with serving(started_in, line, PYSPARK_SUBMIT_ARGS=conf) as started:
        yield started


@pytest.fixture(scope="module")
def open_to_all(uri: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with directory("uid=ann,ou=people", "sea level") as port:
        settings = {
            "hive.server2.authentication": "LDAP",
            "hive.server2.authentication.ldap.url": f"ldap://127.0.0.1:{port}",
            "hive.server2.authentication.ldap.baseDN": "ou=people",
            "hive.server2.thrift.max.worker.threads": str(THREADS),
            "hive.server2.thrift.login.timeout": "1s",
        }
        confs = (f"--conf spark.hadoop.{name}={value}" for name, value in settings.items())
        conf = " ".join(["--driver-memory 512m", *confs, "pyspark-shell"])
        options = ["-w", f"flights={uri}", "--json", "--allow-all"]
        line = [sys.executable, "-c", UNLIMITED, "sql-server", *options]
        folder = tmp_path_factory.mktemp("open")
        with serving(folder, line, PYSPARK_SUBMIT_ARGS=conf) as started:
            yield started


@pytest.fixture
def driver(spark: SparkSession) -> Iterator[Driver]:
    opening = Driver(spark.sparkContext._jvm)
    yield opening
    opening.close()


def address(server: Server, rest: str = "") -> str:
    return f"jdbc:hive2://127.0.0.1:{server.port}/{rest}"


def as_ann(driver: Driver, server: Server, rest: str = "") -> Client:
    return driver.connect(address(server, rest), "ann", "sea level")


def contents(*folders: Path) -> dict[str, str]:
    """Every file below, and a digest of it."""
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refusal(client: Client, statement: str) -> str | None:
    """What the client is told; None where the statement was carried out."""
    try:
        client(statement)
    except Py4JJavaError as failed:
        return told(failed)
    return None


def let_through(client: Client, statements: tuple[str, ...], folder: Path) -> list[tuple[str, str | None]]:
    """The statements that were not refused in so many words, and what was told."""
    heard = [(one, refusal(client, one.format(folder=folder))) for one in statements]
    return [(one, text) for one, text in heard if text is None or REFUSED not in text or ALLOWED not in text]


def test_every_attack_is_refused_and_changes_nothing(
    guarded: Server, driver: Driver, folder: Path, uri: Path
) -> None:
    before = contents(folder, uri, guarded.folder)
    client = as_ann(driver, guarded)
    views = client("SHOW VIEWS")
    assert let_through(client, attacks.STATEMENTS, folder) == []
    assert refusal(client, "SELECT 1; DELETE FROM flights_events") is not None
    assert contents(folder, uri, guarded.folder) == before
    assert client("SHOW VIEWS") == as_ann(driver, guarded)("SHOW VIEWS") == views
    assert client("SELECT count(*) FROM flights_events") == [("12901",)]


def test_no_session_lifts_the_rules(guarded: Server, driver: Driver, folder: Path, uri: Path) -> None:
    before = contents(folder, uri)
    client = as_ann(driver, guarded)
    assert let_through(client, attacks.LIFTING, folder) == []
    for allowed in ("USE default", "SET spark.sql.ansi.enabled=false", "SET spark.sql.caseSensitive=true"):
        client(allowed)
    assert let_through(client, attacks.STATEMENTS, folder) == []
    assert contents(folder, uri) == before


def test_no_connection_brings_settings_of_its_own(guarded: Server, driver: Driver) -> None:
    for rest in attacks.IN_THE_ADDRESS:
        with pytest.raises(Py4JJavaError) as failed:
            as_ann(driver, guarded, rest)
        assert REFUSED in told(failed.value), rest
    wire = as_ann(driver, guarded).wire()
    for name, value in attacks.ON_THE_WIRE.items():
        answer = wire.OpenSession(opening(driver, name, value)).getStatus().getErrorMessage()
        assert answer is not None, name
        assert REFUSED in answer or "PARSE_SYNTAX_ERROR" in answer, name
    assert len(as_ann(driver, guarded)("SHOW VIEWS LIKE 'flights_live'")) == 1


def opening(driver: Driver, name: str, value: str) -> object:
    """The request for a session with one setting."""
    asked = driver.java.org.apache.hive.service.rpc.thrift.TOpenSessionReq()
    settings = driver.java.java.util.HashMap()
    settings.put(name, value)
    asked.setConfiguration(settings)
    return asked


def test_only_the_right_name_and_password_come_in(guarded: Server, driver: Driver) -> None:
    for user, password in (("ann", "wrong"), ("ann", ""), ("", ""), ("nobody", "sea level"), ("bob", "")):
        with pytest.raises(Py4JJavaError, match="Error validating the login"):
            driver.connect(address(guarded), user, password)
    with pytest.raises(Py4JJavaError, match="Error validating the login"):
        driver.connect(address(guarded))
    assert as_ann(driver, guarded)("SELECT current_user()") == [("ann",)]


def test_a_name_taken_out_of_the_file_no_longer_comes_in(guarded: Server, driver: Driver) -> None:
    users = guarded.folder / "users"
    kept = users.read_text()
    users.write_text("bob:$6$x$y\n")
    with pytest.raises(Py4JJavaError, match="Error validating the login"):
        as_ann(driver, guarded)
    users.write_text(kept)
    as_ann(driver, guarded)


def test_silent_connections_lock_nobody_out(guarded: Server, driver: Driver) -> None:
    """More than the server has threads. One sends half a login, one a byte from time to time."""
    with raw_logins.silent(guarded.port, 520) as waiting:
        assert raw_logins.told(guarded.port, login("ann", "sea level")) == IN
        assert as_ann(driver, guarded)("SELECT count(*) FROM flights_events") == [("12901",)]
        half, drop = waiting[-2:]  # the newest are still there
        half.sendall(login("ann", "sea level")[:20])
        drop.sendall(raw_logins.message(raw_logins.START, b"", announced=1000))
        deadline = time.monotonic() + raw_logins.SECONDS
        while raw_logins.answer(drop, within=0.2) is None:
            assert time.monotonic() < deadline
            drop.sendall(b"x")
        assert {raw_logins.answer(one) for one in waiting} == {b""}
    assert as_ann(driver, guarded)("SELECT current_user()") == [("ann",)]


def test_a_login_that_announces_much_is_closed(guarded: Server, driver: Driver) -> None:
    for announced in (1 << 17, 99_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1):
        first = raw_logins.message(raw_logins.START, b"", announced=announced)
        assert raw_logins.told(guarded.port, first) == b"", announced
        second = raw_logins.message(raw_logins.COMPLETE, b"", announced=announced)
        assert raw_logins.told(guarded.port, raw_logins.message(raw_logins.START, b"PLAIN"), second) == b""
    assert raw_logins.told(guarded.port, login("ann", "x" * 1_000_000)) == b""
    assert as_ann(driver, guarded)("SELECT current_user()") == [("ann",)]


@pytest.mark.spark
def test_without_limits_these_connections_lock_out_and_allocate(open_to_all: Server) -> None:
    """The broken variant."""
    announces = raw_logins.message(raw_logins.START, b"", announced=99_000_000)
    assert raw_logins.told(open_to_all.port, announces, within=1) is None
    with raw_logins.silent(open_to_all.port, THREADS + 2) as waiting:
        assert raw_logins.told(open_to_all.port, login("ann", "sea level")) == b""
        assert raw_logins.answer(waiting[0], within=2) is None


def test_a_password_above_1_kb_is_refused_before_it_is_hashed(
    guarded: Server, driver: Driver, spark: SparkSession, tmp_path: Path
) -> None:
    """The cost of a hash grows with the square of the length; without the limit it is computed."""
    assert raw_logins.told(guarded.port, login("ann", "x" * 60_000)) == OUT
    assert as_ann(driver, guarded)("SELECT current_user()") == [("ann",)]
    java: Any = spark.sparkContext._jvm
    longest = "é" * 512
    crypt = java.org.apache.commons.codec.digest.Crypt
    (tmp_path / "users").write_text(f"eve:{crypt.crypt(longest, '$6$salt$')}\n")
    java.java.lang.System.setProperty("tidemark.users", str(tmp_path / "users"))
    limit = "secret.length > 1024"
    assert limit in users.JAVA
    hashed = users.JAVA.replace(limit, "false")
    for name, source, refusal in (("Limited", users.JAVA, "1024 bytes"), ("Broken", hashed, "is wrong")):
        loaded = compile_java(spark, source.replace("SqlUsers", name)).getClassLoader()
        check = loaded.loadClass(f"org.apache.hive.service.auth.{name}").newInstance()
        check.Authenticate("eve", longest)
        with pytest.raises(Py4JJavaError, match=refusal):
            check.Authenticate("eve", longest + "x")


def test_a_query_that_takes_all_memory_fails_alone(guarded: Server, driver: Driver) -> None:
    ordinary, hungry = as_ann(driver, guarded), as_ann(driver, guarded)
    with ThreadPoolExecutor(1) as beside:
        refused = beside.submit(refusal, hungry, TOO_LARGE)
        while not refused.done():
            # Its answer is right; or for a moment it lacks memory, too, and says so.
            told = refusal(ordinary, "SELECT count(*) FROM flights_live")
            assert told is None or "memory" in told.lower() or "heap" in told.lower()
    assert "OutOfMemoryError" in str(refused.result())
    for client in (ordinary, hungry, as_ann(driver, guarded)):
        assert client("SELECT count(*) FROM flights_events") == [("12901",)]
    assert guarded.process.poll() is None


def test_what_allows_all_lets_the_attacks_through(
    open_to_all: Server, driver: Driver, folder: Path, spark: SparkSession
) -> None:
    """The rules are what stops them: without, the same statements write, read and call."""
    client = as_ann(driver, open_to_all)
    through = {one for one, text in let_through(client, attacks.MAIN, folder) if text is None}
    assert through == {one for one in attacks.MAIN if "readString" not in one}
    rows = sorted(row.id for row in spark.read.format("delta").load(str(folder / "table")).collect())
    assert rows == [0, 3, 4, 7, 8]
    assert (folder / "touched").exists()
    assert (folder / "written").is_dir()
    assert (folder / "made").is_dir()
    assert client("SELECT * FROM mine") == [("a secret",)]
    assert client(ATTACKED) == [("yes",)]


def test_what_allows_all_takes_settings_from_the_connection(open_to_all: Server, driver: Driver) -> None:
    wire = as_ann(driver, open_to_all, "default?spark.sql.variable.substitute=true").wire()
    asked = opening(driver, "set:system:tidemark.attacked.twice", "yes")
    assert wire.OpenSession(asked).getStatus().getErrorMessage() is None
    twice = ATTACKED.replace("attacked", "attacked.twice")
    assert as_ann(driver, open_to_all)(twice) == [("yes",)]


def test_a_directory_can_tell_who_comes_in(open_to_all: Server, driver: Driver) -> None:
    for user, password in (("ann", "wrong"), ("bob", "sea level"), ("ann", "")):
        with pytest.raises(Py4JJavaError, match="Error validating the login"):
            driver.connect(address(open_to_all), user, password)
    about = as_ann(driver, open_to_all).connection.getMetaData()
    assert all_rows(about.getTables(None, "default", "flights_live", None))


def test_the_server_ends_with_an_error_when_its_java_does(open_to_all: Server, driver: Driver) -> None:
    """The last test of this server. Without the setting of `sql_server.LOCAL`, the query ends Java."""
    assert refusal(as_ann(driver, open_to_all), TOO_LARGE) is not None
    assert open_to_all.process.wait(raw_logins.SECONDS) == 1
    assert "error: the server has ended" in (open_to_all.folder / "said").read_text()
    driver.opened.clear()  # there is nobody to say goodbye to
