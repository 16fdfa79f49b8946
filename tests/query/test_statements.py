"""A statement of `sql` is bound, looked up and pinned once, and sees what is there when its rows are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event, RLock, get_ident
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.query.reading.sql_text import literal
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.query.sql import parse_trees, pinned_readers, relations
from tidemark.query.sql.found_rows import looked_up
from tidemark.query.sql.narrowed import Narrowed, RowsView
from tidemark.query.sql.parse_trees import Bindings
from tidemark.warehouse.errors import DamagedWarehouse, InputError
from tidemark.warehouse.snapshots.system_tables import Contents

STATEMENT, ROWS = "SELECT n FROM events WHERE n BETWEEN 14 AND 16 ORDER BY n", [(14,), (15,), (16,)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three loads of ten rows."""
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    warehouse.create(None, tmp_path / "w", ["n"], index=["n"], schema=schema)
    for load in range(3):
        load_more(tmp_path / "w", load)
    return tmp_path / "w"


def load_more(path: Path, load: int) -> None:
    rows = {"n": [*range(10 * load, 10 * load + 10)], "s": ["x"] * 10}
    warehouse.load(None, path, pa.table(rows), f"b{load}")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done for statements, in order."""
    done: list[str] = []

    def counted(owner: Any, name: str) -> None:
        honest = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            done.append(name)
            return honest(*given, **named)

        monkeypatch.setattr(owner, name, call)

    counted(query.Warehouse, "pinned")
    counted(pinned_readers, "looked_up")
    return done


@pytest.mark.parametrize("row_us", [1e9, 0.0], ids=["index", "scan"])
@pytest.mark.parametrize("params", [None, [16]])
def test_a_statement_is_pinned_and_looked_up_once(
    path: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch, row_us: float, params: Any
) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=row_us, group=1))
    wh, statement = query.open(path), STATEMENT if params is None else STATEMENT.replace("16", "?")
    assert wh.sql("SELECT count(*) FROM events WHERE n = 14").fetchall() == [(1,)]
    looks.clear()
    relation = wh.sql(statement, params=params)
    assert (relation.columns, looks) == (["n"], [])
    assert relation.fetchall() == ROWS
    assert looks == ["pinned", "looked_up"]
    assert relation.fetchall() == ROWS
    assert looks == ["pinned", "looked_up", "pinned"]  # what was found is kept
    load_more(path, 3)
    load_more(path, 1)
    assert relation.fetchall() == ROWS
    assert looks == ["pinned", "looked_up", "pinned", "pinned", "looked_up"]
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(40,)]


def test_a_statement_that_is_looked_up_twice_is_caught(
    path: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations, "binding_columns", nullcontext)
    with pytest.raises(AssertionError):
        test_a_statement_is_pinned_and_looked_up_once(path, looks, monkeypatch, 1e9, None)


def test_a_statement_is_refused_when_it_is_made(path: Path) -> None:
    wh = query.open(path)
    for refused in ("m", "n + s", "rowid"):
        with pytest.raises(InputError, match="DuckDB refuses"):
            wh.sql(f"SELECT {refused} FROM events WHERE n = 14")
    relation = wh.sql("SELECT n, s AS t FROM events WHERE n = 14")
    assert (relation.columns, list(map(str, relation.types))) == (["n", "t"], ["BIGINT", "VARCHAR"])


def test_a_statement_that_is_not_bound_when_it_is_made_is_caught(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bindings, "has", lambda *_: True)
    with pytest.raises(pytest.fail.Exception):
        test_a_statement_is_refused_when_it_is_made(path)


def check_shapes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, quoted_name = query.open(path), "SELECT n FROM events WHERE n = {} AND \"{}\" = '{}'"
    wh.sql(quoted_name.format(14, "s", "x"))
    wh.sql("SELECT n FROM events WHERE n = ?", params=[14])
    with monkeypatch.context() as patched:
        patched.setattr(relations.Relation, "bind", lambda _: pytest.fail("it was bound"))
        for number, text, found in (("15", "x", [(15,)]), ("1.6e1", "x", [(16,)]), ("15", "it''s", [])):
            assert wh.sql(quoted_name.format(number, "s", text)).fetchall() == found
        assert wh.sql("SELECT n FROM events WHERE n = ?", params=[15]).fetchall() == [(15,)]
    with pytest.raises(InputError, match="DuckDB refuses"):
        wh.sql(quoted_name.format(14, "m", "x"))
    for hidden in ("-- it's\n", "/* it's */", "$$'$$ = 'x' AND"):
        odd = f"SELECT n FROM events WHERE {hidden} {{}} = 14 AND s = 'x'"
        wh.sql(odd.format("n"))
        with pytest.raises(InputError, match="DuckDB refuses"):
            wh.sql(odd.format("m"))
    with pytest.raises(InputError, match="Values were not provided"):
        wh.sql("SELECT n FROM events WHERE n = ?")
    late = wh.sql("SELECT n FROM events WHERE n = ?", params=["no number"])
    with pytest.raises(InputError, match="DuckDB refuses"):
        late.fetchall()


def test_a_statement_with_other_constants_is_not_bound_when_it_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_shapes(path, monkeypatch)


def test_names_that_count_as_constants_are_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_trees, "_kind_of_constant", lambda found: found[0][0])
    monkeypatch.setattr(parse_trees, "_types", lambda _: ())
    with pytest.raises(pytest.fail.Exception):
        check_shapes(path, monkeypatch)


def test_what_binds_statements_reads_no_files(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a\n1\n")
    bindings, other = Bindings({"events": [("n", "BIGINT")]}), literal(str(tmp_path / "other.csv"))
    assert bindings.has("SELECT n FROM events", None)
    assert not bindings.has(f"SELECT n FROM events, read_csv({other})", None)
    assert not bindings.has(f"SELECT n FROM events, {other}", None)
    rows = query.open(path).sql(f"SELECT n, a FROM events, read_csv({other}) WHERE n = 14").fetchall()
    assert rows == [(14, 1)]


def test_what_one_thread_binds_takes_no_rows_of_another(path: Path) -> None:
    """One is about to bind a statement for its columns while the other reads rows of an earlier one."""
    wh = query.open(path)
    with ThreadPoolExecutor(1) as other:
        relation = other.submit(wh.sql, STATEMENT).result()
        assert other.submit(lambda: relation.columns).result() == ["n"]
        with pinned_readers.binding_columns():
            assert other.submit(relation.to_df).result()["n"].tolist() == [n for (n,) in ROWS]


def test_a_sign_that_all_threads_see_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_readers, "_columns_alone", SimpleNamespace(on=False))
    with pytest.raises(AssertionError):
        test_what_one_thread_binds_takes_no_rows_of_another(path)


class TriedLock:
    """A lock that tells when the second thread is about to wait for it."""

    def __init__(self) -> None:
        self.tried, self._lock, self._first = Event(), RLock(), get_ident()

    def __enter__(self) -> None:
        if get_ident() != self._first:
            self.tried.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class NoLock(TriedLock):
    """The broken variant: nobody waits. It tells when the second thread is done."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if get_ident() != self._first:
            self.tried.set()


def read_at_once(path: Path, monkeypatch: pytest.MonkeyPatch, lock: TriedLock) -> tuple[Any, ...]:
    """The rows of a relation for two threads: the second one begins while DuckDB runs for the first."""
    monkeypatch.setattr(relations, "threading", SimpleNamespace(RLock=lambda: lock))
    relation, honest = query.open(path).sql(STATEMENT), looked_up
    assert relation.columns == ["n"]
    with ThreadPoolExecutor(1) as pool:
        second: list[Any] = []

        def meanwhile(*given: Any, **named: Any) -> Any:
            if not second:
                second.append(pool.submit(relation.to_df))
                lock.tried.wait(60)
            return honest(*given, **named)

        monkeypatch.setattr(pinned_readers, "looked_up", meanwhile)
        return tuple(found["n"].tolist() for found in (relation.to_df(), second[0].result()))


def test_threads_that_read_a_relation_wait_for_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [n for (n,) in ROWS]
    assert read_at_once(path, monkeypatch, TriedLock()) == (expected, expected)


def test_threads_that_do_not_wait_are_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="open reader"):
        read_at_once(path, monkeypatch, NoLock())


def test_a_reader_that_is_open_is_told(path: Path) -> None:
    wh = query.open(path)
    reader = wh.sql("FROM range(100000)").to_arrow_reader(1000)
    assert reader.read_next_batch().num_rows == 1000
    relation = wh.sql(STATEMENT)
    with pytest.raises(InputError, match="open reader of Arrow batches still reads"):
        relation.fetchall()
    assert sum(batch.num_rows for batch in reader) == 99_000
    assert relation.fetchall() == ROWS


@pytest.mark.parametrize(
    "params",
    [[3], (3,), {"a": 3}.values(), (n for n in [3]), {"1": 3}, MappingProxyType({"1": 3})],
    ids=lambda given: type(given).__name__,
)
def test_values_come_in_any_collection(path: Path, params: Any) -> None:
    relation = query.open(path).sql("SELECT $1::INT AS n", params=params)
    assert relation.fetchnumpy()["n"].tolist() == [3]
    assert relation.fetchall() == [(3,)]


def test_values_are_those_of_the_call(path: Path) -> None:
    params = [3]
    relation = query.open(path).sql("SELECT $1::INT", params=params)
    params[0] = 4
    assert relation.fetchall() == [(3,)]


class Interrupted:
    """A connection whose rows are not read to their end."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, *given: Any) -> Any:
        self._connection.execute(*given).fetchone()
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def read_after_an_interrupt(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    wh = query.open(path)
    many = wh.sql("FROM range(100000)")
    database = many._whole["fetchall"].func.__self__  # type: ignore[attr-defined]
    with monkeypatch.context() as during:
        during.setattr(database, "connection", Interrupted(database.connection))
        with pytest.raises(KeyboardInterrupt):
            many.fetchall()
    return wh.sql(STATEMENT).to_df()["n"].tolist()


def test_rows_that_are_not_read_to_their_end_leave_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_after_an_interrupt(path, monkeypatch) == [14, 15, 16]


def test_a_result_that_stays_open_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupted, "abort", lambda _: None, raising=False)
    with pytest.raises(InputError):
        read_after_an_interrupt(path, monkeypatch)


def test_an_open_warehouse_follows_files_that_maintenance_joined(path: Path) -> None:
    wh = query.open(path)
    before = wh.sql("SELECT count(*) FROM events").fetchall()
    warehouse.maintain(None, path, grace="0 s")
    assert len([*(path / "events").glob("*.parquet")]) == 1
    assert wh.sql("SELECT count(*) FROM events").fetchall() == before == [(30,)]


def test_a_list_of_files_that_is_kept_for_good_is_caught(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[Any] = []
    honest = Contents.list_events

    def kept(contents: Contents) -> Any:
        first.append(first[0] if first else honest(contents))
        return first[0]

    monkeypatch.setattr(Contents, "list_events", kept)
    with pytest.raises(DamagedWarehouse):
        test_an_open_warehouse_follows_files_that_maintenance_joined(path)


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("events", True),
        ('"EVENTS" ', True),
        ("events e", True),
        ('Events AS "E"', True),
        ("events\nas\te", True),
        ("events /* e */ e", False),
        ("events f", False),
        ("vents e", False),
        ("events, e", False),
        ("", False),
    ],
)
def test_the_name_of_a_view_and_its_alias_alone_are_replaced(text: str, is_named: bool) -> None:
    view = RowsView("", "events", ("n",), ("n",))
    assert Narrowed("events", view, "e", [], None, None, 0, 0).is_named_by(text) is is_named


def test_runs_without_the_values_cost_no_lookup(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three runs has ten values: of one range a block is read in one or two, of all in three."""
    monkeypatch.setattr(index_places, "RATES", IndexRates(edge=1_000.0, place=0.0, row=1e9))
    wh = query.open(path)
    (one,) = wh.explain("SELECT * FROM events WHERE n = 5").parts
    (every,) = wh.explain("SELECT * FROM events WHERE n BETWEEN 5 AND 25").parts
    assert [round(part.estimates_ms["index"]) for part in (one, every)] == [1, 3]


def test_rows_that_lie_together_are_estimated_at_less_than_their_row_group(path: Path) -> None:
    """Ten rows of a group: three that follow each other cost less than the group, two with a gap as much."""
    files = query.open(path).contents().list_events()
    read = [index_places._rows_read(files[0], np.array(rows)) for rows in ([3, 4, 5], [3, 5], [*range(10)])]
    assert read == [6.5, 10, 10]
    assert index_places._rows_read(files[0], None) == 10
