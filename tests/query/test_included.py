"""An index that includes columns answers statements about them as a scan does, whoever changed `events`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.query.indexworld import CHANGES, SCHEMA, TINY, IndexWorld, covers_all, grown, predicate
from tidemark import query, warehouse
from tidemark.query.reading import block_reader
from tidemark.query.scans import index_places, index_rows
from tidemark.query.scans.covered_files import CoveredFiles
from tidemark.query.scans.index_places import IndexRates
from tidemark.query.scans.index_rows import IndexRows
from tidemark.query.sql import found_rows, pinned_readers
from tidemark.query.sql.pinned_readers import PinnedReaders
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.arrow_buffers import zero_for_null
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections import included_columns, row_index
from tidemark.warehouse.snapshots.system_tables import Contents

pytestmark = pytest.mark.usefixtures("index_pays")
INCLUDING: list[Any] = [
    {"on": "k", "include": ["x", "f", "n", "m"]},
    {"on": "n", "include": ["k", "d", "x"]},
    {"on": "t", "include": "s"},
    "d",
]


@pytest.fixture
def values_given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows an index gave the values of, each time."""
    given: list[int] = []
    honest = IndexRows.table

    def counted(rows: IndexRows, chosen: Any) -> pa.Table:
        given.append(len(chosen))
        return honest(rows, chosen)

    monkeypatch.setattr(IndexRows, "table", counted)
    return given


def statement(draw: random.Random) -> str:
    """Some columns of the rows of a condition, or sums of them."""
    names = draw.sample(SCHEMA.names, draw.randint(1, 3))
    where = predicate(draw, draw.randint(0, 1))
    if draw.random() < 0.3:
        return f"SELECT count(*), count({names[0]}), count(DISTINCT {names[-1]}) FROM events WHERE {where}"
    return f"SELECT {', '.join(names)} FROM events AS e WHERE {where} ORDER BY {', '.join(names)}"


def different(world: IndexWorld, draws: int, seed: int) -> Iterator[str]:
    """The statements that are answered otherwise than by DuckDB over all rows."""
    wh, draw = query.open(world.path), random.Random(seed)
    for _ in range(draws):
        asked = statement(draw)
        try:
            expected = world.sql(asked)
        except duckdb.Error:  # a constant that does not fit
            continue
        found = wh.sql(asked)
        if sorted(map(repr, found.to_arrow_table().to_pylist())) != sorted(map(repr, expected.to_pylist())):
            yield asked
        elif sorted(map(repr, found.fetchall())) != sorted(map(repr, world.fetched(asked))):
            yield f"fetchall: {asked}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    return grown(tmp_path_factory.mktemp("included"), index=INCLUDING)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    """One with two indexes; a test that changes it takes a copy."""
    return grown(tmp_path_factory.mktemp("few"), seed=3, index=INCLUDING[:2])


def test_answers_are_those_of_a_scan(world: IndexWorld, values_given: list[int]) -> None:
    assert list(different(world, 80, 0)) == []
    assert sum(map(bool, values_given)) > 3
    report = warehouse.verify(world.path)
    assert report.ok, str(report)


def test_no_file_of_history_is_read_if_the_index_has_all_columns(world: IndexWorld) -> None:
    wh = query.open(world.path)
    (plan,) = wh.explain("SELECT x, sum(n) FROM events WHERE k = 'a' GROUP BY x").parts
    assert (plan.way, plan.is_covered) == ("index", True)
    assert plan.rows_left == 60 < len(world.kept)  # those that are live
    expected = world.sql("SELECT x FROM events WHERE k = 'a'").num_rows
    for asked in (
        "SELECT x, s FROM events WHERE k = 'a'",
        "SELECT * FROM events WHERE k = 'a'",
        "SELECT e FROM events e WHERE k = 'a'",
        "SELECT _batch FROM events WHERE k = 'a'",
        "SELECT #1 FROM events WHERE k = 'a'",
        "SELECT x FROM events WHERE k = 'a' ORDER BY s",
        "SELECT columns('x|s') FROM events WHERE k = 'a'",
    ):
        (plan,) = wh.explain(asked).parts
        assert not plan.is_covered, asked
        assert len(wh.sql(asked).fetchall()) == expected, asked


def test_rows_that_are_not_visible_yet_are_not_given(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may see an index that has a step before the measures have it."""
    asked = "SELECT count(*) FROM events WHERE k >= 'a'"
    ((before,),) = query.open(world.path).sql(asked).fetchall()
    honest = Contents.visible_files
    monkeypatch.setattr(
        Contents, "visible_files", lambda own, *part: [one for one in honest(own, *part) if one.is_live]
    )
    ((live,),) = query.open(world.path).sql(asked).fetchall()
    assert live == world.sql(asked.replace("events", "(FROM events OFFSET 240)"))[0][0].as_py() < before


CHANGED = [
    "compaction",
    "joined by another tool",
    "delete",
    "purge",
    "load of what is live",
    "wider",
    "another index",
]


@pytest.mark.parametrize("change", CHANGED)
def test_answers_are_those_of_a_scan_after_a_change(made: IndexWorld, tmp_path: Path, change: str) -> None:
    world = made.copy(tmp_path)
    CHANGES[change](world)
    assert list(different(world, 12, 1)) == []
    world.load("after")
    assert list(different(world, 6, 2)) == []
    report = warehouse.verify(world.path)
    assert report.ok, str(report)


def test_a_purge_leaves_no_included_value(tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 8, index=[{"on": "n", "include": ["k"]}])
    world.load("a")
    rows = world.rows(40).set_column(2, "k", pa.array(["secret-name"] * 40))
    warehouse.load(None, world.path, rows, "b", tuning=TINY)
    files = {path for path in world.path.rglob("*.parquet") if b"secret-name" in path.read_bytes()}
    assert {path.parts[len(world.path.parts)] for path in files} >= {"events", "index_runs"}
    warehouse.delete(None, world.path, "k = 'secret-name'", purge=True, grace="0 s", tuning=TINY)
    assert [
        path for path in world.path.rglob("*") if path.is_file() and b"secret-name" in path.read_bytes()
    ] == []
    assert list(different(world, 10, 0)) == []
    assert warehouse.verify(world.path).ok


COMPACTED = "SELECT x, n FROM events WHERE k >= ''"


def compacts_meanwhile(world: IndexWorld, patch: pytest.MonkeyPatch) -> None:
    """After the next look into an index, the files of `events` are joined."""
    honest = found_rows.looked_up

    def joining(*given: Any, **named: Any) -> Any:
        found = honest(*given, **named)
        patch.setattr(pinned_readers, "looked_up", honest)
        world.join()
        return found

    patch.setattr(pinned_readers, "looked_up", joining)


def rows_of(read: str, wh: Any) -> list[str]:
    found = getattr(wh.sql(COMPACTED), read)()
    return sorted(map(repr, found if read == "fetchall" else map(tuple, map(dict.values, found.to_pylist()))))


@pytest.mark.parametrize("read", ["fetchall", "to_arrow_table"])
def test_rows_are_found_and_read_in_one_list_of_files(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Else those that an index gave come again from a file into which they were joined meanwhile."""
    expected = sorted(map(repr, made.fetched(COMPACTED)))
    world = made.copy(tmp_path / "first")
    compacts_meanwhile(world, monkeypatch)
    assert rows_of(read, query.open(world.path)) == expected
    world = made.copy(tmp_path / "second")
    compacts_meanwhile(world, monkeypatch)
    monkeypatch.setattr(Contents, "listed", lambda own: own)
    assert len(rows_of(read, query.open(world.path))) > len(expected)


def test_a_statement_is_of_one_moment(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What indexes find, and the views beside it."""
    world, honest = made.copy(tmp_path), PinnedReaders.rows_now
    asked = f"SELECT (SELECT count(*) FROM ({COMPACTED})), (SELECT count(*) FROM events WHERE x IS NOT NULL)"

    def counts(batch: int) -> Any:
        def appending(*given: Any) -> str:
            found = honest(*given)
            world.append(batch)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(PinnedReaders, "rows_now", appending)
            (found,) = query.open(world.path).sql(asked).fetchall()
        return found

    before = world.fetched(asked)
    assert [counts(7)] == before
    before = world.fetched(asked)
    anew = property(PinnedReaders._pinned, lambda *_: None)
    monkeypatch.setattr(PinnedReaders, "_now", anew, raising=False)
    indexed, beside = counts(8)
    assert indexed == before[0][0]
    assert beside > before[0][1]


def test_blocks_that_are_kept_are_those_of_the_file(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was damaged after its blocks were read is read again."""
    world = made.copy(tmp_path)
    wh, asked = query.open(world.path), "SELECT x FROM events WHERE k = 'a'"

    def rows(*more: str) -> list[str]:
        return sorted(map(repr, wh.sql(" OR ".join([asked, *more])).fetchall()))

    def mistaken() -> list[str]:
        with monkeypatch.context() as patch:
            patch.setattr(block_reader._Place, "local_identity", ())
            return sorted(map(repr, query.open(world.path).sql(asked).fetchall()))

    before = rows()
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetFile", None)  # nothing is opened
        assert rows("k = 'a'") == before
    assert mistaken() == before
    for file in (world.path / "index_runs").rglob("run=*/*.parquet"):
        content = file.read_bytes()
        file.write_bytes(content[:4] + bytes(len(content) - 204) + content[-200:])
        os.utime(file, ns=(0, 0))
    assert mistaken() == before
    with pytest.raises(DamagedWarehouse):
        rows("k = 'a'", "k = 'a'")


def test_an_error_of_rows_is_told_of_the_statement_as_it_is(world: IndexWorld) -> None:
    with pytest.raises(
        InputError, match=r"LINE 1: SELECT CAST\(k AS INTEGER\) FROM events WHERE k = 'é' "
    ) as told:
        query.open(world.path).sql("SELECT CAST(k AS INTEGER) FROM events WHERE k = 'é'").fetchall()
    assert "parquet" not in str(told.value)


def test_an_index_gets_and_loses_its_columns(tmp_path: Path) -> None:
    world = grown(tmp_path, seed=5, index=["k"])
    with pytest.raises(InputError, match="Drop it first"):
        warehouse.alter(None, world.path, add_index={"on": "k", "include": ["x"]})
    warehouse.alter(None, world.path, drop_index="k")
    warehouse.alter(None, world.path, add_index={"on": "k", "include": ["x"]})
    asked = "SELECT x FROM events WHERE k = 'a'"
    assert query.open(world.path).explain(asked).parts[0].is_covered
    warehouse.alter(None, world.path, drop_index="k")
    assert query.open(world.path).explain(asked).parts == []
    assert warehouse.alter(None, world.path, drop_index="k").outcome == "known"
    warehouse.alter(None, world.path, add_index="k=x,n")
    assert query.open(world.path).explain("SELECT n FROM events WHERE k = 'a'").parts[0].is_covered
    assert list(different(world, 15, 3)) == []


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ({"on": "k", "include": ["k"]}, "named twice"),
        ({"on": "k", "include": ["x", "X"]}, "named twice"),
        ([{"on": "k", "include": ["x"]}, "k"], "named twice"),
        ({"on": "k", "include": ["nope"]}, "nope"),
        ({"on": "k", "include": 3}, "mappings"),
        ({"on": "k", "with": ["x"]}, "mappings"),
        ({"include": ["x"]}, "mappings"),
        ("k=", "mappings"),
        ({"on": "k", "include": [f"c{i}" for i in range(32)]}, "at most 31"),
        ({"on": "k", "include": ["_tick"]}, "own columns"),
    ],
)
def test_what_an_index_cannot_include_is_refused(tmp_path: Path, index: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        warehouse.create(None, tmp_path / "w", ["x"], index=index, schema=SCHEMA, time="t")
    assert not (tmp_path / "w").exists()


def test_an_included_value_that_events_has_not_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = IndexWorld.create(tmp_path, 6, index=[{"on": "n", "include": ["s"]}])
    honest = included_columns.stored_column

    def others(*given: Any) -> Any:
        return pa.array(honest(*given).to_numpy() + 1)

    monkeypatch.setattr(row_index, "stored_column", others)
    world.load("a")
    monkeypatch.undo()
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    assert not warehouse.verify(world.path).ok
    asked = "SELECT sum(s) FROM events WHERE n > -50"
    assert query.open(world.path).sql(asked).fetchall() != [(world.sql(asked)[0][0].as_py(),)]


def test_a_damaged_file_of_the_index_is_reported_and_repaired(tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 6, index=[{"on": "n", "include": ["k"]}])
    world.load("a")
    (file,) = (world.path / "index_runs").rglob("run=*/*.parquet")
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(DamagedWarehouse):
        query.open(world.path).sql("SELECT k FROM events WHERE n > -50").fetchall()
    warehouse.repair(None, world.path, tuning=TINY)
    assert warehouse.verify(world.path).ok
    assert list(different(world, 20, 0)) == []


def every_place(found: IndexRows, _: Any) -> Any:
    return np.arange(len(found.rows))


def without_null(key: Any, stored: Any) -> Any:
    return included_columns.decoded_column(key, zero_for_null(stored))


def without_sign(key: Any, stored: Any) -> Any:
    found = included_columns.decoded_column(key, stored)
    return pc.add(found, 0.0) if pa.types.is_floating(found.type) else found


MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "files that the index does not have are not scanned": (CoveredFiles, "of", covers_all),
    "values of files that left are given": (index_places, "_of_files", every_place),
    "NULL is lost": (index_rows, "decoded_column", without_null),
    "the sign of zero is lost": (index_rows, "decoded_column", without_sign),
    "rows of history are given beside the live ones": (found_rows, "PARTS", ("live", "history")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world = made
    if "files" in name:
        world = made.copy(tmp_path)
        CHANGES["joined by another tool"](world)  # the index has no file any more
    asked = ["SELECT x, n FROM events WHERE k >= ''", "SELECT x, n FROM live WHERE k >= ''"]

    def answers() -> list[list[str]]:
        wh = query.open(world.path)
        return [sorted(map(repr, wh.sql(one).fetchall())) for one in asked]

    right = answers()
    expected = world.sql(asked[0]).to_pylist()
    assert right[0] == sorted(repr(tuple(row.values())) for row in expected)
    monkeypatch.setattr(*MISTAKES[name])
    assert answers() != right


def test_columns_with_other_names_are_given_by_these(tmp_path: Path) -> None:
    world = grown(tmp_path, seed=7, index=[{"on": "k", "include": ["s", "m"]}])
    asked = "SELECT {}, {} FROM events WHERE {} >= 'a' ORDER BY ALL"
    before = query.open(world.path).sql(asked.format("s", "k", "k")).fetchall()
    warehouse.alter(None, world.path, rename={"s": "m2", "k": "name"})
    statement = asked.format("m2", "name", "name").replace("ORDER BY ALL", "ORDER BY m2, name")
    wh = query.open(world.path)
    assert wh.explain(statement).parts[0].is_covered
    assert sorted(wh.sql(statement).fetchall(), key=repr) == sorted(before, key=repr)
    assert warehouse.verify(world.path).ok


def test_explain_bounds_the_rows_that_are_selected(world: IndexWorld) -> None:
    """Exactly for history where the index has the columns of the condition."""
    wh, draw, exact = query.open(world.path), random.Random(3), 0
    for _ in range(40):
        where = predicate(draw)
        for view in ("events", "history"):
            plans = wh.explain(f"SELECT n FROM {view} WHERE {where}").parts
            if plans:
                ((true,),) = wh.sql(f"SELECT count(*) FROM {view} WHERE {where}").fetchall()
                low, high = plans[0].selected
                assert low <= true <= high, where
                exact += low == high
    assert exact > 5


def test_a_count_of_rows_that_left_is_caught(world: IndexWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "SELECT n FROM history WHERE n > -50"
    ((true,),) = query.open(world.path).sql(asked.replace("SELECT n", "SELECT count(*)")).fetchall()
    assert query.open(world.path).explain(asked).parts[0].selected == (true, true)
    monkeypatch.setattr(CoveredFiles, "in_history", lambda *_: CoveredFiles({}, {}))
    low, high = query.open(world.path).explain(asked).parts[0].selected
    assert low == 0 < true <= high
