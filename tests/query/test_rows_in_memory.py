"""Rows that an index has are read from memory, each statement its own; errors are of the statement's text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.query.indexworld import IndexWorld, grown
from tidemark import query
from tidemark.query.sql import found_rows, relations, rows_in_memory
from tidemark.query.sql.found_rows import ValueFiles
from tidemark.query.sql.rows_in_memory import RowsInMemory
from tidemark.warehouse import InputError

pytestmark = pytest.mark.usefixtures("index_pays")
COVERED = "SELECT x, n, m, f FROM events WHERE k >= 'a' AND k < 'v'"
STATEMENTS = [
    COVERED,
    "SELECT x FROM history WHERE k = 'a'",
    "SELECT a.x, b.x FROM events a JOIN events b ON a.n = b.n WHERE a.k = 'a' AND b.k = 'b'",
    "WITH e AS NOT MATERIALIZED (SELECT x FROM events WHERE k = 'a') FROM e a JOIN e b USING (x)",
    "SELECT k, count(*), count(x) FROM events WHERE k >= 'u' GROUP BY GROUPING SETS ((k), ())",
    "SELECT x FROM events WHERE k = 'a' ORDER BY x, signbit(x) LIMIT 2",
    "SELECT count(*) FROM events WHERE k >= ''",
    "SELECT x FROM events WHERE k = 'nobody'",
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    return grown(
        tmp_path_factory.mktemp("memory"), seed=11, index=[{"on": "k", "include": ["x", "n", "m", "f"]}]
    )


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of indexes are written to no file."""

    def written(*_: Any) -> str:
        raise AssertionError("a file is written")

    monkeypatch.setattr(ValueFiles, "path_of", written)


def in_order(rows: Any) -> list[str]:
    return sorted(map(repr, rows))


def read(found: Any) -> dict[str, list[str]]:
    """The rows by each method that reads all of them, in any order."""
    return {
        "fetchall": in_order(found.fetchall()),
        "df": in_order(found.df().itertuples(index=False, name=None)),
        "fetchdf": in_order(found.fetchdf().itertuples(index=False, name=None)),
        "fetchnumpy": in_order(
            zip(*(column.tolist() for column in found.fetchnumpy().values()), strict=True)
        ),
        "to_arrow_table": in_order(found.to_arrow_table().to_pylist()),
    }


def answers(world: IndexWorld, statement: str) -> dict[str, list[str]]:
    """The answers of the warehouse."""
    return read(query.open(world.path).sql(statement))


def expected(world: IndexWorld, statement: str) -> dict[str, list[str]]:
    """Those of DuckDB over all rows."""
    world.oracle.register("events", world.kept)
    world.oracle.register("history", world.kept.slice(0, 240))
    return read(world.oracle.sql(statement))


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_answers_are_those_of_a_scan_and_no_file_is_written(world: IndexWorld, statement: str) -> None:
    assert answers(world, statement) == expected(world, statement)


def test_parts_of_a_statement_that_share_their_rows_are_caught(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nothing(dict[Any, int]):
        def __missing__(self, _: Any) -> int:
            return 0

        def __setitem__(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(rows_in_memory, "Counter", {pa.Schema: Nothing})
    assert answers(world, STATEMENTS[2]) != expected(world, STATEMENTS[2])


@pytest.mark.parametrize("most", [0, 1])
def test_rows_beyond_the_limit_are_given_in_files(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(rows_in_memory, "_MOST", most)
    for statement in STATEMENTS[:3]:
        assert answers(world, statement) == expected(world, statement)


def check_old_files(folder: Path) -> None:
    """Beyond the newest uses, files are gone with their rows; others stay, and are given again."""
    files, kept, used = ValueFiles(folder), pa.table({"a": [1]}), pa.table({"a": [2]})
    first, second = files.path_of(kept), files.path_of(used)
    for number in range(20):
        assert pq.read_table(files.path_of(pa.table({"a": [number]}))).to_pydict() == {"a": [number]}
        assert len([*folder.iterdir()]) <= found_rows._KEPT_FILES + 2
        assert files.path_of(used) == second
    assert files.path_of(kept) == first
    assert pq.read_table(first) == kept
    del used  # a statement that was given its path may still read it
    assert pq.read_table(files.path_of(pa.table({"a": [3]}))).to_pydict() == {"a": [3]}
    assert Path(second).exists()


@pytest.mark.parametrize("broken", [None, "files stay", "the oldest goes, used or not"])
def test_files_are_deleted_once_nobody_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str | None
) -> None:
    monkeypatch.setattr(found_rows, "_KEPT_FILES", 3)
    if broken is None:
        check_old_files(tmp_path)
        return
    lost: Any = (lambda rows: lambda: rows) if broken == "files stay" else (lambda _: lambda: None)
    monkeypatch.setattr(found_rows, "ref", lost)
    with pytest.raises(AssertionError):
        check_old_files(tmp_path)


def test_files_beyond_the_bytes_go_with_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_rows, "_KEPT_FILES", 3)
    monkeypatch.setattr(found_rows, "_KEPT_BYTES", 0)
    files, rows = ValueFiles(tmp_path), [pa.table({"a": [number]}) for number in range(5)]
    paths = [Path(files.path_of(one)) for one in rows]
    assert [path.exists() for path in paths] == [False, False, True, True, True]


def test_rows_are_let_go_with_their_statement() -> None:
    with duckdb.connect() as connection:
        memory, rows = RowsInMemory(connection), pa.table({"a": [1, 2]})
        for _ in range(2):
            with memory.statement():
                first, second = memory.sql(rows), memory.sql(rows.slice(1))
                statement = f"SELECT (SELECT count(*) FROM {first}), (SELECT count(*) FROM {second})"
                assert connection.execute(statement).fetchall() == [(2, 1)]
            assert connection.execute(statement).fetchall() == [(0, 0)]


LISTS = {
    "SHOW TABLES": "name",
    "show all tables": "name",
    "FROM (DESCRIBE)": "name",
    "FROM information_schema.tables": "table_name",
    "FROM duckdb_views() WHERE NOT internal": "view_name",
}


def check_lists(world: IndexWorld, statement: str) -> None:
    """A list of tables has the same names after rows were in memory, and reading goes on."""
    wh = query.open(world.path)
    list_, name = wh.sql(statement), LISTS[statement]
    before = sorted(list_.df()[name])
    assert before == ["events", "history", "live", "runs", "steps", "summary"]
    for _ in range(2):
        assert in_order(wh.sql(COVERED).fetchall()) == expected(world, COVERED)["fetchall"]
        assert sorted(list_.df()[name]) == before  # bound before, run now
        assert sorted(wh.sql(statement).to_arrow_table()[name].to_pylist()) == before


@pytest.mark.parametrize("statement", LISTS)
def test_lists_of_tables_have_no_rows_in_memory(world: IndexWorld, statement: str) -> None:
    check_lists(world, statement)


def test_a_statement_that_lists_tables_reads_its_own_rows(world: IndexWorld) -> None:
    statement = "SELECT x, (SELECT count(*) FROM duckdb_views()) > 0 FROM events WHERE k = 'a'"
    wh = query.open(world.path)
    for _ in range(2):
        assert in_order(wh.sql(statement).fetchall()) == expected(world, statement)["fetchall"]


def test_rows_in_memory_that_are_listed_are_caught(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowsInMemory, "hide_from", lambda *_: None)
    for statement in LISTS:
        with pytest.raises(AssertionError):
            check_lists(world, statement)


def test_text_that_is_no_text_stays_out_of_memory() -> None:
    """DuckDB takes the text of Arrow as it is, and ends its database where it finds other bytes."""
    with duckdb.connect() as connection:
        for kind in (pa.string(), pa.large_string()):
            bytes_ = pa.array([b"a", b"\xff"], pa.binary() if kind == pa.string() else pa.large_binary())
            rows, good = pa.table({"k": bytes_.view(kind)}), pa.table({"k": pa.array(["é", None], kind)})
            memory = RowsInMemory(connection)
            assert memory.sql(rows) is None
            assert connection.execute(f"FROM {memory.sql(good)}").fetchall() == [("é",), (None,)]


READS: dict[str, Callable[[Any], Any]] = {
    "fetchall": lambda found: found.fetchall(),
    "df": lambda found: found.df(),
    "Arrow": lambda found: found.to_arrow_table(),
    "reader": lambda found: found.to_arrow_reader(2).read_all(),
    "stream": pa.table,
    "limit": lambda found: found.limit(5).df(),
    "derived": lambda found: found.filter("1 = 1").fetchall(),
    "show": str,
}
FAILS = "SELECT CAST(k AS INTEGER) FROM events WHERE k = 'é'"


@pytest.mark.parametrize("read", READS)
def test_an_error_of_rows_is_told_of_the_statement_as_it_is(world: IndexWorld, read: str) -> None:
    with pytest.raises(InputError) as told:
        READS[read](query.open(world.path).sql(FAILS))
    assert "tidemark rows" not in str(told.value)
    assert "LINE" not in str(told.value) or "FROM events WHERE k" in str(told.value)
    assert "é" in str(told.value)


def test_an_error_of_another_text_is_caught(world: IndexWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations.Database, "_as_it_is", lambda *_: None)
    for read in ("fetchall", "df", "reader", "limit"):
        with pytest.raises(AssertionError):
            test_an_error_of_rows_is_told_of_the_statement_as_it_is(world, read)


def test_a_statement_that_fails_leaves_the_next_one_alone(world: IndexWorld) -> None:
    wh = query.open(world.path)
    for read in READS.values():
        with pytest.raises(InputError):
            read(wh.sql(FAILS))
        assert in_order(wh.sql(COVERED).fetchall()) == expected(world, COVERED)["fetchall"]
