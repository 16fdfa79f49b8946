"""What DuckDB is stopped by is told as ours, with its error as the cause, at every door to it."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from errno import EACCES
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.query.keys import key_relation
from tidemark.query.reading import block_reader, duckdb_errors
from tidemark.query.sql import relations
from tidemark.warehouse import DamagedWarehouse, InputError, SystemRefused, TidemarkError

ROWS = pa.table({"x": np.arange(3000) * 0.5, "k": [f"k{i % 7}" for i in range(3000)]})
# Each way to read the rows of a relation.
READ: dict[str, Callable[[Any], Any]] = {
    "fetchall": lambda found: found.fetchall(),
    "df": lambda found: found.df(),
    "arrow": lambda found: found.arrow().read_all(),
    "arrow stream": pa.table,
    "rows": lambda found: list(found.iter_rows()),
    "shown": repr,
    "filtered": lambda found: found.filter("x > 1").limit(3).fetchall(),
    "with itself": lambda found: found.union(found).fetchall(),
    "a column": lambda found: found["x"].fetchall(),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    uri = tmp_path_factory.mktemp("whole") / "w"
    warehouse.create(None, uri, ["x"], key="k", groups=["k"], eps=0.1, schema=ROWS.schema)
    warehouse.load(None, uri, ROWS, "a")
    return uri


@pytest.fixture
def uri(whole: Path) -> Iterator[Path]:
    """A copy in a folder that anybody may pass through, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        Path(folder).chmod(0o755)
        yield Path(shutil.copytree(whole, Path(folder) / "w"))


def file_of(uri: Path, table: str) -> Path:
    return next((uri / table).rglob("*.parquet"))


def said(kind: type[TidemarkError], use: Callable[[], Any]) -> str:
    """The one line of the error; its cause is an error of DuckDB or of the system."""
    with pytest.raises(kind) as found:
        use()
    assert isinstance(found.value.__cause__, duckdb.Error | OSError | pa.ArrowException)
    assert "\n" not in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("read", READ)
def test_a_file_that_is_gone_or_cut_while_a_relation_reads_is_damage_with_its_name(
    uri: Path, read: str
) -> None:
    found = query.open(uri).sql("SELECT x, k FROM events")
    assert READ[read](found) is not None
    file = file_of(uri, "events")
    content = file.read_bytes()
    written = file.stat().st_mtime
    file.write_bytes(content[:-100] + bytes(100))
    os.utime(file, (written + 2, written + 2))  # DuckDB keeps a footer by the second of the file's time
    assert file.name in said(DamagedWarehouse, lambda: READ[read](found))
    file.unlink()  # as maintenance with a short grace does
    assert f"{file.name} is missing" in said(DamagedWarehouse, lambda: READ[read](found))
    file.write_bytes(content)
    assert READ[read](found) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "SELEC 1",
        "SELECT nope FROM events",
        "FROM nope",
        "SELECT 'x'::INTEGER",
        "SELECT 9223372036854775807 + 1::BIGINT",
        "SELECT error('mine')",
        "SELECT $x",
        "FROM '/no/such.parquet'",
        "SELECT CASE WHEN x > 1400 THEN 'a' ELSE '1' END::INTEGER FROM events",
    ],
)
@pytest.mark.parametrize("read", ["fetchall", "arrow"])
def test_a_statement_that_duckdb_refuses_is_bad_input(whole: Path, statement: str, read: str) -> None:
    said(InputError, lambda: READ[read](query.open(whole).sql(statement)))


def test_what_is_no_statement_or_no_parameters_is_bad_input(whole: Path) -> None:
    wh = query.open(whole)
    with pytest.raises(InputError, match="one query as text, got 5"):
        wh.sql(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="params"):
        wh.sql("SELECT ?", params=5)
    with pytest.raises(InputError, match="params"):
        wh.sql("SELECT ?", params=np.array(5))


def test_too_many_open_files_are_told_by_sql_and_by_questions(whole: Path) -> None:
    wh = query.open(whole)
    found = wh.sql("SELECT sum(x) FROM events")
    expected = found.fetchall()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told, held = set(), list[int]()
    few = max(256, len(list(Path("/dev/fd").iterdir())) + 64)  # whatever tests before have left open
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(12):
            for use in (
                found.fetchall,
                lambda: query.open(whole).sql("FROM events").fetchall(),
                wh.self_join,
            ):
                try:
                    use()
                except SystemRefused as refusal:
                    told.add("ulimit -n" in str(refusal))
            os.close(held.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in held:
            os.close(number)
    assert told == {True}
    assert found.fetchall() == expected


def ask_unreadable(uri: Path) -> None:
    """Each question that reads all keys by DuckDB, where nobody may read their file."""
    wh = query.open(uri)
    for ask in (
        wh.self_join,
        lambda: wh.inner_product(wh),
        lambda: wh.quantile(0.5, by="k"),
    ):
        with pytest.raises(SystemRefused) as found:
            ask()
        said = str(found.value)
        assert said.startswith("reading keys/"), said
        assert "Permission denied" in said, said


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def may_not(place: Any, *_: Any) -> Any:
        raise PermissionError(EACCES, os.strerror(EACCES), place.path)

    monkeypatch.setattr(block_reader, "_open", may_not)


@pytest.mark.usefixtures("unreadable")
def test_a_file_of_keys_that_may_not_be_read_is_told_as_that(uri: Path) -> None:
    ask_unreadable(uri)


@pytest.mark.usefixtures("unreadable")
def test_an_error_of_ours_that_duckdb_wraps_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_relation, "_checked_path", lambda *_: None)  # DuckDB gets the blocks
    monkeypatch.setattr(duckdb_errors.Raised, "behind", lambda *_: None)
    with pytest.raises(AssertionError, match="Invalid Input Error"):
        ask_unreadable(uri)


def test_a_relation_whose_errors_nobody_tells_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "report_duckdb_errors", lambda *_: nullcontext())
    found = query.open(uri).sql("SELECT x, k FROM events")
    file_of(uri, "events").unlink()
    with pytest.raises(duckdb.Error):
        said(DamagedWarehouse, found.fetchall)
