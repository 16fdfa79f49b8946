"""A real Thrift server in a process of its own, and Hive's JDBC driver in this one's Java."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.jobs.said import environment

COMMAND = (sys.executable, "-m", "tidemark.jobs.cli.main", "sql-server")
Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Server:
    """A running server: its process, its address, and the folder that it was started in."""

    process: subprocess.Popen[str]
    url: str
    folder: Path

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])


@contextmanager
def serving(folder: Path, line: Sequence[object], **changed: str) -> Iterator[Server]:
    """The server that a line starts, until the end of the block. The line has --json."""
    with subprocess.Popen(
        [str(word) for word in line],
        cwd=folder,
        env=environment(**changed),
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        try:
            yield Server(started, json.loads(started.stdout.readline())["url"], folder)
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGTERM)


@dataclass(frozen=True)
class Driver:
    """Hive's driver in the Java of the tests' session; `opened` is what it has to close."""

    java: Any
    opened: list[Any] = field(default_factory=list)

    def connect(self, url: str, user: str | None = None, password: str = "") -> Client:
        given = self.java.java.util.Properties()
        if user is not None:
            given.setProperty("user", user)
            given.setProperty("password", password)
        connection = self.java.org.apache.hive.jdbc.HiveDriver().connect(url, given)
        self.opened.append(connection)
        return Client(connection)

    def close(self) -> None:
        for connection in self.opened:
            connection.close()


@dataclass(frozen=True)
class Client:
    """A session of its own."""

    connection: Any

    def __call__(self, text: str) -> list[Row]:
        """What a statement returns; of a command that returns nothing, no rows."""
        statement = self.connection.createStatement()
        rows = all_rows(statement.getResultSet()) if statement.execute(text) else []
        statement.close()
        return rows

    def wire(self) -> Any:
        """What the driver itself talks through: it sends what the driver would not."""
        field_of_driver = self.connection.getClass().getDeclaredField("client")
        field_of_driver.setAccessible(True)
        return field_of_driver.get(self.connection)


def all_rows(found: Any) -> list[Row]:
    columns = range(1, found.getMetaData().getColumnCount() + 1)
    rows = []
    while found.next():
        rows.append(tuple(found.getString(i) for i in columns))
    return rows


def told(failed: Py4JJavaError) -> str:
    """What the driver tells of an error."""
    return str(failed.java_exception.getMessage())
