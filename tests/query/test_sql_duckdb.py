"""DuckDB's SQL over a warehouse: the same tables and answers, of one moment in each statement."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.sqlworld import PROJECTIONS, ROOT, Rows, make, month_of
from tidemark import query, stream, warehouse
from tidemark.query.keys import key_source, listed_keys
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.reader import Reader
from tidemark.query.reading import connections
from tidemark.query.sql import duckdb_sql, relations
from tidemark.query.sql.macros import Macros
from tidemark.query.sql.pinned_readers import CACHED_MOMENTS, PinnedReaders
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.memory_cache import LRUCache

HISTORY, LIVE, BOTH = Rows.of(1), Rows.of(2), Rows.of(1, 2)
OLD, NEW = set(HISTORY.keys()), set(LIVE.keys())
WEEK = BOTH.last_days(7)
DAYS_OF_WEEK = {
    origin: {row["time"].date() for row in WEEK.rows if row["origin"] == origin}
    for origin in WEEK.keys()  # noqa: SIM118  not a dict
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("duck") / "a 'w' =x=1")


@pytest.fixture(scope="module")
def wh(uri: Path) -> query.Warehouse:
    return query.open(uri)


@pytest.fixture
def own(uri: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uri, tmp_path / "own"))


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def test_what_the_marks_list_is_laid_out_once_for_many_statements(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = query.open(own)
    laid_out: list[Window] = []

    def counted(key: Key, window: Window, shares: Any, lists: Any) -> ListedKeys:
        laid_out.append(window)
        return listed_keys.listed_names(key, window, shares, lists)

    monkeypatch.setattr(key_source, "listed_names", counted)
    for _ in range(3):
        assert len(wh.sql("SELECT * FROM top(2)").fetchall()) == 2
    assert len(wh.top(2)) == 2
    assert len(laid_out) == 1


def test_tables_hold_what_is_visible(wh: query.Warehouse) -> None:
    for name, rows in (("events", BOTH), ("history", HISTORY), ("live", LIVE)):
        found = wh.sql(f"SELECT delay, origin, epoch_us(time) FROM {name}").fetchall()
        expected = [(row["delay"], row["origin"], int(row["time"].timestamp()) * 10**6) for row in rows.rows]
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), name
    assert wh.sql("SELECT source, rows, loaded FROM steps").fetchall() == [
        ("load:2001-01", len(HISTORY), True)
    ]
    assert {name for (name,) in wh.sql("SELECT projection FROM runs").fetchall()} == PROJECTIONS
    summary = wh.sql("SELECT measure, phi, low, high FROM summary").fetchall()
    assert len(summary) == 10
    for measure, phi, low, high in summary:
        assert low <= BOTH.oracle(measure).quantile(phi) <= high


def test_questions_are_functions(wh: query.Warehouse) -> None:
    truth, keys = BOTH.oracle(), BOTH.keys()
    asked = {
        "SELECT value, n + m FROM quantile(0.99, 'exact')": [(truth.quantile(0.99), truth.n)],
        "SELECT value FROM quantile([0.5, 0.9], mode => 'exact', measure => 'distance')": [
            (BOTH.oracle("distance").quantile(phi),) for phi in (0.5, 0.9)
        ],
        "SELECT value FROM quantile(0.5, 'exact', INTERVAL 7 DAYS)": [
            (BOTH.last_days(7).oracle().quantile(0.5),)
        ],
        "SELECT value FROM quantile(0.5, since => DATE '2001-02-01', mode => 'exact')": [
            (LIVE.oracle().quantile(0.5),)
        ],
        "SELECT rank FROM rank(60, 'exact')": [(truth.le(60),)],
        "SELECT sum(count)::INT FROM histogram(7, 'exact')": [(truth.n,)],
        "SELECT min(cdf_lo) >= 0 AND max(cdf_hi) <= 1 FROM cdf()": [(True,)],
        "SELECT count FROM frequency('ATL', mode => 'exact')": [(keys["ATL"],)],
        "SELECT count FROM (VALUES ('ORD'), (NULL)) t(k), LATERAL frequency(k, mode => 'exact')": [
            (keys["ORD"],)
        ],
        "SELECT count FROM top(3, 'exact')": [(count,) for _, count in keys.most_common(3)],
        "SELECT count(*) FROM heavy_hitters(0.03) WHERE certain": [
            (sum(count >= 0.03 * keys.total() for count in keys.values()),)
        ],
        "SELECT count FROM key_range('A', 'B')": [(sum(n for key, n in keys.items() if "A" <= key < "B"),)],
        "SELECT count FROM self_join()": [(sum(count * count for count in keys.values()),)],
        'SELECT count, least, most FROM "distinct"()': [(len(keys),) * 3],
        "SELECT count FROM \"distinct\"('exact', INTERVAL 7 DAYS)": [(len(BOTH.last_days(7).keys()),)],
        "SELECT sum(count)::INT FROM \"distinct\"(last => '7 days', every => '1 day')": [
            (len({(row["time"].date(), row["origin"]) for row in BOTH.last_days(7).rows}),)
        ],
        "SELECT count(*) FROM persistent(0.8, INTERVAL 7 DAYS, most := 100000)": [
            (sum(len(days) >= 6 for days in DAYS_OF_WEEK.values()),)
        ],
        "SELECT value, slots, lo, hi FROM persistence('ATL', '7 days', mode := 'exact')": [
            ("ATL", *[len(DAYS_OF_WEEK["ATL"])] * 3)
        ],
        "SELECT count FROM new_keys(since => DATE '2001-02-01')": [(len(NEW - OLD),)],
        (
            "SELECT part, count FROM overlap(until => DATE '2001-02-01', "
            "other_since => DATE '2001-02-01', \"key\" := 'origin')"
        ): [
            ("both", len(NEW & OLD)),
            ("only a", len(OLD - NEW)),
            ("only b", len(NEW - OLD)),
        ],
    }
    for text, expected in asked.items():
        assert wh.sql(text).fetchall() == expected, text
    (row,) = wh.sql("SELECT * FROM quantile($phi)", params={"phi": 0.5}).df().to_dict("records")
    assert row["low"] <= truth.quantile(0.5) <= row["high"]
    with pytest.raises(InputError, match=r"^not a quantile: got phi = 1\.5; expected 0 <= phi <= 1"):
        wh.sql("SELECT * FROM quantile(1.5)").fetchall()


@pytest.mark.slow
def test_each_statement_is_fresh_and_of_one_moment(
    own: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the moment each part of a statement readers for itself: the broken variant."""
    query.register_duckdb(connection, own)
    march = month_of(3)
    parts = ("count(*) FROM own_events", "n + m FROM own_quantile(0.5)", "count(*) FROM own_live")
    text = "SELECT " + ", ".join(f"(SELECT {part})" for part in parts)
    before = (len(BOTH), BOTH.oracle().n, len(LIVE))
    assert connection.sql(text).fetchall() == [before]
    stream.append(None, own, march, source="web", batch=1)
    rows = Rows.of(1, 2, 3)
    assert connection.sql(text).fetchall() == [(len(rows), rows.oracle().n, len(Rows.of(2, 3)))]
    relation = connection.sql(text)
    connection.begin()
    first = relation.fetchall()
    warehouse.load(None, own)
    assert connection.sql(text).fetchall() == first
    connection.commit()
    assert relation.fetchall() == [(len(rows), rows.oracle().n, 0)]
    kept = PinnedReaders.at

    def at_once(readers: PinnedReaders, moment: int) -> Reader:
        found = kept(readers, moment)
        readers._cache = LRUCache(CACHED_MOMENTS)
        number = next(numbers)
        stream.append(None, own, march.slice(0, 3), source="web", batch=number)
        return found

    numbers = iter(range(2, 100))
    monkeypatch.setattr(PinnedReaders, "at", at_once)
    events, counted, _ = connection.sql(text).fetchall()[0]
    assert events != counted


def test_rows_of_a_crashed_batch_are_in_no_table(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = query.open(own)
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(len(BOTH),)]
    with monkeypatch.context() as patch:
        patch.setattr(ledger_table, "append_batch", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.append(None, own, month_of(3), source="web", batch=1)
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(len(BOTH),)]
    files = [str(path) for path in (own / "events").glob("*.parquet")]
    assert duckdb.read_parquet(files).count("*").fetchall() == [(len(BOTH) + len(Rows.of(3)),)]


def test_a_warehouse_without_rows_has_tables_without_rows(tmp_path: Path) -> None:
    nested = pa.struct([("a", pa.list_(pa.int32()))])
    schema = pa.schema([("x", pa.float64()), ("y", pa.decimal128(9, 2)), ("z", nested)])
    warehouse.create(None, tmp_path / "w", ["x"], schema=schema)
    wh = query.open(tmp_path / "w")
    for name in ("events", "history", "live", "steps", "summary"):
        assert wh.sql(f"SELECT * FROM {name}").fetchall() == []
    assert wh.sql("SELECT y, z FROM live").types == ["DECIMAL(9,2)", "STRUCT(a INTEGER[])"]
    with pytest.raises(InputError, match="created without a key"):
        wh.sql("SELECT * FROM top(3)").fetchall()


def test_names_are_checked_and_registering_again_replaces(
    wh: query.Warehouse, uri: Path, connection: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(InputError, match="name must be an identifier"):
        query.register_duckdb(connection, wh)
    for one in (wh, uri):
        query.register_duckdb(connection, one, "flights")
    assert connection.sql("SELECT count(*) FROM flights_live").fetchall() == [(len(LIVE),)]
    with pytest.raises(InputError, match=r"without \* and \?"):
        duckdb_sql._check_paths(query.open(shutil.copytree(uri, uri.parent / "w*")))


def test_a_relation_outlives_the_warehouse_and_nothing_is_left_of_it(uri: Path) -> None:
    wh = query.open(uri)
    relation = wh.sql("SELECT count(*) FROM live")
    gone = weakref.ref(wh)
    del wh
    gc.collect()
    assert gone() is None
    assert relation.fetchall() == [(len(LIVE),)]


def test_threads_share_a_warehouse(wh: query.Warehouse) -> None:
    def ask(phi: float) -> tuple[float, int]:
        text = "SELECT phi, (SELECT count(*) FROM events) FROM quantile($phi)"
        row: tuple[float, int] = wh.sql(text, params={"phi": phi}).fetchall()[0]
        return row

    phis = [i / 40 for i in range(41)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, phis)) == [(phi, len(BOTH)) for phi in phis]


@pytest.mark.parametrize("text", ["BEGIN", "CREATE TABLE t AS SELECT 1", "SELECT 1; SELECT 2", ""])
def test_what_is_no_query_is_refused(wh: query.Warehouse, text: str) -> None:
    with pytest.raises(InputError, match="sql takes one query"):
        wh.sql(text)


@pytest.mark.slow
def test_python_ends_without_a_word(uri: Path) -> None:
    opened = f"from tidemark import query; wh = query.open({str(uri)!r})"
    script = f"{opened}; r = wh.sql('SELECT * FROM quantile(0.5)'); print(r)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stderr == ""
    assert "value" in run.stdout


def test_groups_windows_and_keys_are_asked_for_by_name(wh: query.Warehouse) -> None:
    ((value, group),) = wh.sql(
        """SELECT value, "group" FROM quantile(0.99, "where" := {'origin': 'ATL'}, mode := 'exact')"""
    ).fetchall()
    assert (value, group) == (BOTH.where(origin="ATL").oracle().quantile(0.99), {"origin": "ATL"})
    rows = wh.sql(
        """SELECT "group"['origin'], value FROM quantile(0.5, "by" := 'origin', top := 3, mode := 'exact')"""
    ).fetchall()
    assert rows == [
        (name, BOTH.where(origin=name).oracle().quantile(0.5)) for name, _ in BOTH.keys().most_common(3)
    ]
    days = wh.sql(
        "SELECT r.\"window\".start, n + m FROM quantile(0.5, MAP {'origin': 'ATL'}, every := '1 day') r"
    ).fetchall()
    assert sum(rows for _, rows in days) == BOTH.where(origin="ATL").oracle().n
    ((scanned,),) = wh.sql("SELECT rows_scanned FROM rank(0, \"where\" := 'distance > 500')").fetchall()
    assert scanned == len(BOTH)
    routes = Counter((row["origin"], row["destination"]) for row in BOTH.rows)
    counts = wh.sql(
        "SELECT count FROM frequency([row('ATL', 'ORD'), row('no', 'where')], key := 'origin,destination', "
        "mode := 'exact')"
    ).fetchall()
    assert counts == [(routes["ATL", "ORD"],), (0,)]


def test_expressions_are_measures_and_groups(wh: query.Warehouse) -> None:
    """The column of values has the type of the measures: what does not fit is refused with the remedy."""
    far: dict[int, list[float]] = {}
    for row in BOTH.rows:
        far.setdefault(row["distance"] // 1000, []).append(2 * row["delay"])
    found = wh.sql(
        """SELECT "group"['distance // 1000'], value, rows_scanned FROM quantile(1, measure := 'delay * 2',
        "by" := 'distance // 1000')"""
    ).fetchall()
    assert found == [(str(name), max(far[name]), len(BOTH)) for name in sorted(far)]
    ((least,),) = wh.sql(
        """SELECT value FROM quantile(0, measure := 'delay * 2', "by" := ['greatest(distance // 1000, 0)'],
        groups := ['0'])"""
    ).fetchall()
    assert least == min(far[0])
    with pytest.raises(query.InputError, match=r"of type double, and a column of .* write CAST\(... AS "):
        wh.sql("SELECT value FROM quantile(1, measure := 'delay / 7')").fetchall()


def test_values_of_keys_and_groups_have_the_types_of_their_columns(tmp_path: Path) -> None:
    """Decimals for doubles, text for any type, and structs by the names of their fields."""
    rows = {"x": [1.0, 2.0, 3.0, 4.0], "f": [0.1, 0.1, 0.5, 0.5], "a": ["1", "2", "1", "2"]}
    rows |= {"b": ["2", "1", "1", "2"], "raw": [b"\xff", b"\xff", b"a", b"\xff"]}
    path = tmp_path / "w"
    warehouse.create(None, path, ["x"], groups=["f", ["a", "b"], "raw"])
    warehouse.load(None, path, pa.table(rows), "batch")
    wh = query.open(path)

    def ask(text: str) -> list[Any]:
        return [row[0] for row in wh.sql(text).fetchall()]

    assert ask("""SELECT value FROM quantile(1, "where" := {'f': 0.1})""") == [2]
    assert ask("""SELECT value FROM quantile(1, "where" := {'f': [0.1, 0.5]})""") == [4]
    assert ask("""SELECT value FROM quantile(1, "by" := 'f', groups := [0.5, 0.1, 0.2])""") == [4, 2, None]
    assert ask("""SELECT value FROM quantile(1, "by" := 'a,b', groups := ['1,2', '2,1'])""") == [1, 2]
    assert ask("""SELECT value FROM quantile(1, "by" := 'a,b', groups := [{'b': '1', 'a': '2'}])""") == [2]
    assert ask("""SELECT value FROM quantile(1, "by" := 'raw', groups := ['ff'])""") == [4]
    assert ask("SELECT count FROM frequency(0.1, key := 'f')") == [2]
    assert ask("SELECT count FROM frequency('0.1', key := 'f')") == [2]
    assert ask("SELECT count FROM frequency('ff', key := 'raw')") == [3]
    assert ask("SELECT count FROM frequency({'b': '2', 'a': '1'}, key := 'a,b')") == [1]
    for groups in ("['1']", "['1,2,3']", "[{'a': '1'}]", "'1'"):
        with pytest.raises(InputError, match="groups"):
            ask(f"""SELECT value FROM quantile(1, "by" := 'a,b', groups := {groups})""")


def macros_of(wh: query.Warehouse) -> set[str]:
    """The macros of the warehouse that the database of this thread has."""
    connection = wh._statements._own.database.connection
    asked = "SELECT function_name FROM duckdb_functions() WHERE NOT internal AND macro_definition IS NOT NULL"
    return {name for (name,) in connection.execute(asked).fetchall()}


@pytest.mark.slow
def test_macros_are_made_when_a_statement_names_them(uri: Path) -> None:
    """In any case, also while rows of another statement are read; all before what may name them later."""
    wh = query.open(uri)
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(len(BOTH),)]
    assert macros_of(wh) == set()
    median = BOTH.oracle().quantile(0.5)
    assert wh.sql("SELECT value FROM QUANTILE(0.5, 'exact')").fetchall() == [(median,)]
    assert macros_of(wh) == {"quantile"}
    reader = wh.sql("SELECT range FROM range(100000)").to_arrow_reader(1000)
    assert reader.read_next_batch().num_rows == 1000
    named = wh.sql("SELECT rank FROM \"Distance_Rank\"(60, 'exact')")
    assert sum(batch.num_rows for batch in reader) == 99_000
    assert named.fetchall() == [(BOTH.oracle("distance").le(60),)]
    fresh = query.open(uri)
    several = fresh.sql("SELECT 1 AS x").query("q", "SELECT value FROM quantile(0.5, mode => 'exact')")
    assert several.fetchall() == [(median,)]
    assert macros_of(fresh) == macros_of(wh)
    given = query.open(uri).sql("FROM query(?)", params=["SELECT value FROM quantile(0.5, mode => 'exact')"])
    assert given.fetchall() == [(median,)]
    listed = query.open(uri)
    listed.sql("SELECT * FROM duckdb_functions()").fetchall()
    assert macros_of(listed) == macros_of(wh)


def test_macros_that_come_beside_an_open_result_are_caught(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a result that is read in parts begins before the macros are there."""
    monkeypatch.setattr(relations, "WHOLE", frozenset(dir(duckdb.DuckDBPyRelation)))
    with pytest.raises(InputError, match="rank"):
        test_macros_are_made_when_a_statement_names_them(uri)


def test_macros_that_are_named_in_another_case_are_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the text is searched for names as they are."""
    make = Macros.make
    monkeypatch.setattr(
        Macros, "make", lambda own, connection, text=None: make(own, connection, text and swapped(text))
    )
    with pytest.raises(InputError, match="quantile"):
        test_macros_are_made_when_a_statement_names_them(uri)


def swapped(text: str) -> str:
    """The text without the names that are not written as the macros are."""
    return text.replace("QUANTILE", "").replace("Distance_Rank", "")


def test_a_connection_whose_database_is_broken_is_not_kept() -> None:
    with connections.taken_connection() as first:
        first.connection.close()  # refuses statements from now on, as after an error inside DuckDB
    with connections.taken_connection() as second:
        assert second is not first
        assert second.connection.execute("SELECT 1").fetchall() == [(1,)]
    with connections.taken_connection() as third:
        assert third is second
