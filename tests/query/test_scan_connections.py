"""The connections of scans: what they may read, what they leave, and queries that are interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.scanworld import (
    Asked,
    World,
    read_without_duckdb,
)
from tidemark.query.reading import budgets, connections
from tidemark.query.scans import event_scan, open_scan, row_source


@pytest.fixture(scope="module")
def world(scan_world: World) -> World:
    return scan_world


def test_a_scan_reads_no_other_file_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("secret")
    scan = Asked(by=("k",)).scan(world.contents)
    scan.groups()
    (folder,) = scan.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    assert os.path.isdir(folder)  # noqa: PTH112  DuckDB names it
    for statement in (
        f"SELECT * FROM read_text('{other}')",
        f"COPY scanned TO '{tmp_path / 'copy.csv'}'",
        f"ATTACH '{tmp_path / 'db'}'",
        "SET enable_external_access = true",
        "SET threads = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
    ):
        with pytest.raises(duckdb.Error):
            scan.connection.execute(statement)
    connection = scan.connection
    scan.close()
    scan.close()
    with pytest.raises(AttributeError):  # another scan may use it now
        scan.groups()
    assert list(Path(folder).iterdir()) == []
    assert connection.execute("SHOW ALL TABLES").fetchall() == []
    assert list(tmp_path.iterdir()) == [other]


def test_a_scan_gets_the_connection_of_the_last_one_without_its_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scans at once have two. The broken variant keeps the tables."""
    asked = Asked(by=("k",))
    monkeypatch.setattr(event_scan, "most_held", lambda *_: 0)  # more are kept in a table
    with asked.scan(world.contents) as first, asked.scan(world.contents) as second:
        used = [first.connection, second.connection]
        assert used[0] is not used[1]
        assert list(first.groups()) == list(second.groups())
    with asked.scan(world.contents) as third:
        assert third.connection in used
        assert third.connection.execute("FROM duckdb_tables()").fetchall() == []
    monkeypatch.setattr(open_scan, "give_back", connections._idle[os.getpid()].append)
    with asked.scan(world.contents) as fourth:
        fourth.groups()
    last = connections._idle[os.getpid()][-1].connection
    assert last.execute("FROM duckdb_tables()").fetchall() != []
    connections._idle[os.getpid()].pop()


def _scans_at_once(questions: int) -> int:
    """The bytes that so many scans at once may take in DuckDB, of connections that are made now."""
    budgets.share_scans(questions)
    taken = [connections.take_connection() for _ in range(questions)]
    for one in taken:
        one.connection.close()
    return sum(one.memory for one in taken)


def test_the_scans_of_all_questions_share_half_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan alone may take a quarter. The broken variant gives each a quarter."""
    memory = 2**33
    monkeypatch.setattr(budgets, "machine_memory", lambda: memory)
    monkeypatch.setattr(budgets, "_at_once", [1])
    monkeypatch.setattr(connections, "_idle", {})
    for questions in (2, 3, 7):
        assert 0.45 < _scans_at_once(questions) / memory < 0.55  # DuckDB tells it rounded
    assert 0.22 < _scans_at_once(1) / memory < 0.28
    monkeypatch.setattr(connections, "scan_memory", lambda: memory // 4)
    assert _scans_at_once(7) / memory > 0.55


def test_ctrl_c_ends_a_query_and_the_connection_stays_usable() -> None:
    """The signal arrives while DuckDB counts to a number that it does not reach."""
    endless = "SELECT sum(a.range * b.range % 7) FROM range(1000000000) a, range(1000000000) b"
    with connections.open_connection() as connection:

        def rows(statement: str) -> Callable[[], Any]:
            return lambda: connection.execute(statement).fetchall()

        with pytest.raises(KeyboardInterrupt):
            connections.run_query(connection, rows(endless), lambda _: signal.raise_signal(signal.SIGINT))
        assert connections.run_query(connection, rows("SELECT 1 + 1")) == [(2,)]


def test_a_scan_that_was_interrupted_starts_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, asked = row_source.RowSource.batches, Asked(by=("k",))

    def endless(source: row_source.RowSource, files: Any) -> Iterator[pa.RecordBatch]:
        while True:
            yield from batches(source, files)

    def interrupted(share: float) -> None:
        if share < 1:
            signal.raise_signal(signal.SIGINT)

    read_without_duckdb(monkeypatch)
    with asked.scan(world.contents, progress=interrupted) as scan:
        with monkeypatch.context() as patch:
            patch.setattr(row_source.RowSource, "batches", endless)
            with pytest.raises(KeyboardInterrupt):
                scan.groups()
        scan._progress = None
        with asked.scan(world.contents) as other:
            assert list(scan.groups()) == list(other.groups())


def test_progress_rises_to_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REPORT_SECONDS", 0.001)
    monkeypatch.setattr(row_source, "BATCH_ROWS", 1)
    seen: list[float] = []
    with Asked().scan(world.contents, progress=seen.append) as scan:
        scan.groups()
    assert seen[: seen.index(1.0) + 1] == sorted(seen[: seen.index(1.0) + 1])  # files that were compared
    read_without_duckdb(monkeypatch)
    seen.clear()
    with Asked(by=("k",), text="x > 0").scan(world.contents, progress=seen.append) as scan:
        scan.groups()
    assert 1.0 in seen
    reading = seen[: seen.index(1.0) + 1]
    assert reading == sorted(reading)
    assert all(0 <= share <= 1 for share in seen)
    assert scan._source.share == 1
