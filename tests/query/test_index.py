"""An index gives the rows that a scan gives, whoever rewrote `events`: against DuckDB over all rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.killing import Killed, killer
from tests.soak import DRAWS
from tidemark import query, stream, warehouse
from tidemark.query.scans import index_places, picked_rows, sought
from tidemark.query.scans.covered_files import CoveredFiles
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import InputError, Tuning
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.origins import Origins, StayingOrigins, file_id, origins_in
from tidemark.warehouse.ingest import event_files
from tidemark.warehouse.ingest.event_files import JoinFiles, RowFile
from tidemark.warehouse.projections.index_marks import Places

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("k", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("m", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("s", pa.int32()),
    ]
)
INDEXED = [name for name in SCHEMA.names if name != "s"]
FEW = ["n", "k", "t"]  # for less time
TINY = Tuning(group_rows=16, block_rows=8, file_rows=(16, 64), slice_rows=64, sort_rows=128)
BIG = 2**53
TEXTS = ["a", "ab", "abc", "b", "", "é", "é%", "x'y", "z" * 40]


def values(draw: random.Random) -> dict[str, Any]:
    """A row; every column has NULL and values that occur often."""
    row = {
        "x": draw.choice([draw.randint(-5, 60) / 4, float("nan"), -0.0, 0.0, float("inf"), 1e300]),
        "n": draw.choice([draw.randint(-40, 400), BIG, BIG + 1, BIG + 2, -(2**63), 2**63 - 1]),
        "k": draw.choice([*TEXTS, f"u{draw.randint(0, 99)}"]),
        "d": date(2024, 1, 1) + timedelta(days=draw.randint(0, 60)),
        "m": Decimal(draw.randint(-500, 5000)) / 100,
        "f": draw.choice([0.1, 0.5, float("nan"), draw.randint(0, 90) / 7]),
    }
    row = {name: None if draw.random() < 0.07 else value for name, value in row.items()}
    return {**row, "t": START + timedelta(minutes=draw.randint(0, 90_000)), "s": draw.randint(0, 9)}


@dataclass
class IndexWorld:
    """A warehouse, and the rows that it has, as one table."""

    path: Path
    draw: random.Random
    kept: pa.Table = field(default_factory=SCHEMA.empty_table)
    oracle: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def __post_init__(self) -> None:
        self.oracle.execute("SET TimeZone = 'UTC'")

    @classmethod
    def create(cls, folder: Path, seed: int, **options: Any) -> IndexWorld:
        given: dict[str, Any] = {"index": INDEXED, "kappa": 2, "schema": SCHEMA, "time": "t", **options}
        warehouse.create(None, folder / "w", ["x"], **given)
        return cls(folder / "w", random.Random(seed))

    def rows(self, count: int) -> pa.Table:
        return pa.Table.from_pylist([values(self.draw) for _ in range(count)], SCHEMA)

    def load(self, name: str, count: int = 60, **options: Any) -> None:
        rows = self.rows(count).cast(self.kept.schema)
        warehouse.load(None, self.path, rows, name, tuning=TINY, **options)
        self.kept = pa.concat_tables([self.kept, rows])

    def append(self, batch: int, count: int = 20) -> None:
        rows = self.rows(count)
        stream.append(None, self.path, rows, source="web", batch=batch, tuning=TINY)
        self.kept = pa.concat_tables([self.kept, rows])

    def delete(self, where: str, **options: Any) -> None:
        warehouse.delete(None, self.path, where, tuning=TINY, **options)
        self.kept = self.sql(f"SELECT * FROM events WHERE ({where}) IS NOT TRUE")

    def sql(self, statement: str) -> pa.Table:
        """The answer of DuckDB over all rows."""
        self.oracle.register("events", self.kept)
        return self.oracle.sql(statement).to_arrow_table()

    def copy(self, folder: Path) -> IndexWorld:
        """One to be changed, where this one is kept for the next test."""
        path = Path(shutil.copytree(self.path, folder / "w"))
        draw = random.Random()
        draw.setstate(self.draw.getstate())
        return IndexWorld(path, draw, self.kept)

    def join(self, *, first_first: bool = False, by_another_tool: bool = False) -> None:
        """Joins the files of `events`, the last batch first or last, and cuts their row groups elsewhere.

        by_another_tool: as OPTIMIZE does, which neither keeps the order of the rows nor tells their origins.
        """
        store = Store.from_uri(str(self.path), tuning=Tuning(group_rows=7))
        events = tables.open_table(store, EVENTS)
        files = sorted(
            data_files.list_files(events),
            key=lambda file: (file.stats["min._source"], file.stats["min._batch"]),
            reverse=not first_first,
        )
        paths = [file.path for file in files]
        joined = JoinFiles(store, pa.schema(events.schema()), tuple(paths)).run()
        if by_another_tool:
            rows = pq.read_table(store.table(f"{EVENTS}/{joined.path}"), partitioning=None)
            with RowFile(store, pa.schema(events.schema())) as file:
                file.write(rows.take(self.draw.sample(range(len(rows)), len(rows))))
            joined = file.written()
        replace_files(store, EVENTS, set(paths), [joined.action(new_rows=False)])


@pytest.fixture(autouse=True)
def _pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small worlds a scan is always faster: here an index is used wherever it can be."""
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))


def grown(folder: Path, seed: int = 1, **options: Any) -> IndexWorld:
    """Merged runs, a run of level 0, and live batches."""
    world = IndexWorld.create(folder, seed, **options)
    for number in range(4):
        world.load(f"b{number}")
    for batch in range(3):
        world.append(batch)
    return world


CONSTANTS: dict[str, Callable[[random.Random], str]] = {
    "x": lambda draw: draw.choice(["0", "-0.0", "3", "2.75", "1e300", "1e1", "14.250000001"]),
    "n": lambda draw: draw.choice(
        [str(draw.randint(-50, 420)), "7.5", f"{BIG + 1}", f"{BIG}.0", "9.007199254740993e15", "2e2", "-4e1"]
    ),
    "k": lambda draw: "'" + draw.choice([*TEXTS, f"u{draw.randint(0, 99)}"]).replace("'", "''") + "'",
    "d": lambda draw: draw.choice(
        [
            f"'2024-01-{draw.randint(1, 31):02}'",
            f"DATE '2024-02-{draw.randint(1, 28):02}'",
            "'2024-01-09 12:30:00'",
            "TIMESTAMP '2024-01-09 12:30:00'",
            "'2024-1-9'",
        ]
    ),
    "t": lambda draw: draw.choice(
        [
            f"'2024-01-{draw.randint(1, 31):02} 0{draw.randint(0, 9)}:30'",
            "DATE '2024-02-01'",
            "TIMESTAMP '2024-01-20 00:00:00'",
            "'2024-01-15 12:00:00+05'",
            "'2024-01-15T12:00:00Z'",
        ]
    ),
    "m": lambda draw: draw.choice([str(draw.randint(-600, 5200) / 100), "3.333", "1e1", "12"]),
    "f": lambda draw: draw.choice(["0.1", "0.5", "3", "CAST('0.1' AS DOUBLE)", "12.857142857"]),
    "s": lambda draw: str(draw.randint(0, 9)),
}


def predicate(draw: random.Random, depth: int = 2) -> str:
    """A condition of comparisons on columns with an index and without one."""
    if depth and draw.random() < 0.6:
        parts = [predicate(draw, depth - 1) for _ in range(draw.randint(2, 3))]
        return f"({draw.choice([' AND ', ' OR ']).join(parts)})"
    name = draw.choice(SCHEMA.names)
    constant = CONSTANTS[name]
    kind = draw.randint(0, 9)
    if kind < 4:
        return f"{name} = {constant(draw)}"
    if kind < 6:
        return f"{name} {draw.choice(['<', '<=', '>', '>='])} {constant(draw)}"
    if kind == 6:
        return f"{name} IN ({', '.join(constant(draw) for _ in range(3))})"
    if kind == 7:
        return f"{name} BETWEEN {constant(draw)} AND {constant(draw)}"
    if kind == 8:
        return draw.choice(
            ["k LIKE 'a%'", "k LIKE 'é%'", "k LIKE 'u1_'", "starts_with(k, 'u')", "k LIKE '%b'"]
        )
    return draw.choice([f"{constant(draw)} < {name}", f"NOT {name} = {constant(draw)}", f"{name} IS NULL"])


def differences(world: IndexWorld, asked: int, seed: int) -> Iterator[str]:
    """The conditions of which the index gives other rows than DuckDB over all rows does."""
    wh, draw = query.open(world.path), random.Random(seed)
    for _ in range(asked):
        where = predicate(draw)
        statement = f"SELECT {', '.join(SCHEMA.names)} FROM events WHERE {where} ORDER BY ALL"
        try:
            expected = world.sql(statement)
        except duckdb.Error:  # a constant that does not fit
            continue
        if repr(wh.sql(statement).to_arrow_table().to_pylist()) != repr(expected.to_pylist()):
            yield where


def check(world: IndexWorld, asked: int = 10, seed: int = 0) -> None:
    assert list(differences(world, asked, seed)) == []
    report = warehouse.verify(world.path)
    assert report.ok, str(report)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    return grown(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    """One with few indexes; a test that changes it takes a copy."""
    return grown(tmp_path_factory.mktemp("few"), seed=3, index=FEW)


def test_an_index_gives_the_rows_of_a_scan(world: IndexWorld) -> None:
    """Runs of several levels, and live batches, which no index has."""
    check(world, 60 * DRAWS)


def test_where_of_questions_gives_the_same_with_and_without_an_index(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, draw, found = query.open(world.path), random.Random(7), 0
    wheres: list[Any] = [predicate(draw) for _ in range(40 * DRAWS)]
    wheres += [{"k": ["a", "é"]}, {"n": BIG + 1}, {"k": "u7", "s": [1, 2]}, {"x": float("nan")}, {"x": 0.0}]
    for where in wheres:
        answers: list[Any] = []
        for row_us in (1e9, 0.0):
            monkeypatch.setattr(index_places, "RATES", IndexRates(row=row_us, group=1))
            try:
                one = wh.summary("x", where=where)
                answers.append((one.count, repr(one.sum), one.nulls))
                found += one.plan is not None and "index" in one.plan.ways
            except (InputError, query.EmptyWindow) as error:
                answers.append(type(error).__name__)
        assert answers[0] == answers[1], where
    assert found > 12


def test_rows_that_are_left_out_are_not_told_as_scanned(world: IndexWorld) -> None:
    wh = query.open(world.path)
    scanned = wh.summary("x", where={"s": 3}).rows_scanned
    found = wh.summary("x", where={"k": "a"}).rows_scanned
    assert scanned == len(world.kept)
    assert found is not None
    assert 60 <= found < 60 + 40  # the live batches, and the rows of history with this key


def compacted(world: IndexWorld) -> None:
    warehouse.maintain(None, world.path, grace="0 s", tuning=TINY)


def deleted_after_join(world: IndexWorld) -> None:
    world.join(by_another_tool=True)
    world.delete("n BETWEEN 10 AND 60")


def changed_often(world: IndexWorld) -> None:
    """Joined, a row of one batch deleted, joined again with others, and again."""
    compacted(world)
    world.delete(f"t = {first_time(world)}")
    world.load("next")
    world.join()
    world.delete("k = 'b'")
    world.load("last")
    compacted(world)


def first_time(world: IndexWorld) -> str:
    """The time of the first row, as SQL."""
    return f"'{world.kept.column('t')[0].as_py().isoformat(sep=' ')}'"


def restored(world: IndexWorld) -> None:
    before = world.kept
    compacted(world)
    report = warehouse.delete(None, world.path, "n < 100", tuning=TINY)
    warehouse.restore(world.path, removal=report.removal, tuning=TINY)
    world.kept = before


def corrected(world: IndexWorld) -> None:
    compacted(world)
    before, rows = world.kept.slice(100, 5), world.rows(5)
    warehouse.correct(None, world.path, rows, before=before, batch="fixed", tuning=TINY)
    world.kept = pa.concat_tables([world.kept.slice(0, 100), world.kept.slice(105), rows])


def dropped_and_added(world: IndexWorld) -> None:
    warehouse.alter(None, world.path, drop_index="n")
    world.load("more")
    warehouse.alter(None, world.path, add_index="n")


def loaded(world: IndexWorld) -> None:
    warehouse.load(None, world.path, tuning=TINY)


def widened(world: IndexWorld) -> None:
    warehouse.alter(None, world.path, widen={"s": "long"})
    world.kept = world.kept.cast(SCHEMA.set(7, pa.field("s", pa.int64())))


def another(world: IndexWorld) -> None:
    warehouse.alter(None, world.path, add_index="s")


CHANGES: dict[str, Callable[[IndexWorld], None]] = {
    "compaction": compacted,
    "joined by another tool": lambda world: world.join(by_another_tool=True),
    "joined in other groups": lambda world: world.join(),
    "delete": lambda world: world.delete("k = 'a' OR n < 30"),
    "delete, joined before": deleted_after_join,
    "joins and deletes": changed_often,
    "restore": restored,
    "correct": corrected,
    "purge": lambda world: world.delete("k = 'ab'", purge=True, grace="0 s"),
    "load of what is live": loaded,
    "wider": widened,
    "index dropped and added": dropped_and_added,
    "another index": another,
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_gives_the_rows_of_a_scan_after_a_change(
    made: IndexWorld, tmp_path: Path, change: str
) -> None:
    world = made.copy(tmp_path)
    CHANGES[change](world)
    check(world)
    world.load("after")
    assert list(differences(world, 5, seed=1)) == []


def test_a_reader_of_an_earlier_moment_finds_the_rows_of_that_moment(
    made: IndexWorld, tmp_path: Path
) -> None:
    world = made.copy(tmp_path)
    pinned, statement = query.open(world.path).pinned(), "SELECT count(*) FROM events WHERE k = 'a'"
    (before,) = world.sql(statement).to_pylist()[0].values()
    CHANGES["delete"](world)
    world.join()
    assert before
    assert pinned.sql(statement).fetchall() == [(before,)]
    assert query.open(world.path).sql(statement).fetchall() == [(0,)]


def covers_all(contents: Any, _: Any) -> CoveredFiles:
    files = contents.list_events()
    return CoveredFiles({file_id(file.path): (file, None) for file in files}, {})


def test_files_that_the_index_does_not_have_must_be_scanned(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live batches, files that another tool joined or cut, and files that a delete wrote anew."""
    world = made.copy(tmp_path)

    def cut(world: IndexWorld) -> None:
        loaded(world)
        world.join(by_another_tool=True)

    changes: list[Callable[[IndexWorld], None]] = [lambda _: None, cut, one_row_deleted]
    for number, change in enumerate(changes):
        change(world)
        assert list(differences(world, 15, number)) == []
        with monkeypatch.context() as mistake:
            mistake.setattr(CoveredFiles, "of", covers_all)
            assert list(differences(world, 15, number)) != []


def rows_left(world: IndexWorld) -> int:
    """How many rows of `events` a statement about few rows would read."""
    (found,) = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts
    assert found.way == "index"
    return int(found.rows_left)


def test_an_index_pays_after_files_were_written_anew(made: IndexWorld, tmp_path: Path) -> None:
    """Of joined files, and of those of which other batches lost rows, it knows where its rows are."""
    world = made.copy(tmp_path)
    loaded(world)
    few = rows_left(world)
    assert few < len(world.kept) / 8
    changes: list[Callable[[IndexWorld], None]] = [compacted, IndexWorld.join, widened, one_row_deleted]
    for change in changes:
        change(world)
        assert few - 1 <= rows_left(world) <= few
    check(world)


def one_row_deleted(world: IndexWorld) -> None:
    world.delete(f"t = {first_time(world)}")


class FirstRows(Origins):
    def of_rows(self, start: int, stop: int) -> Any:
        return super().of_rows(0, stop - start)


def first_rows(file: Any, path: str) -> FirstRows:
    found = origins_in(file, path)
    return FirstRows(found.files, found.first, found.rows, found.nulls)


def turned(staying: StayingOrigins, numbers: Any, _: int, __: int) -> Any:
    files, rows = staying.told.of_rows(0, int(staying.told.rows.sum()))
    return files[numbers], rows[numbers][::-1]


WRONG_ORIGINS: dict[str, tuple[Any, str, Any]] = {
    "each row group is taken for the first": (event_files, "origins_in", first_rows),
    "rows that stay get the numbers of others": (StayingOrigins, "of_rows", turned),
}


@pytest.mark.parametrize("name", WRONG_ORIGINS)
def test_a_wrong_origin_is_caught(
    made: IndexWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world = made.copy(tmp_path)
    loaded(world)
    monkeypatch.setattr(*WRONG_ORIGINS[name])
    world.join(first_first=True)
    one_row_deleted(world)
    assert list(differences(world, 40, 3)) != []


def first_part(search: Any, asked: Any) -> Any:
    return next((found for part in asked if (found := search.alternatives(part))), None)


MISTAKES: dict[str, tuple[Any, str, Any]] = {
    "of an OR one part is looked up": (index_places._Search, "any_of", first_part),
    "a constant has no room": (
        sought,
        "bracket",
        lambda key, kind, text: (float(text),) * 2 if key.type == "float" and kind == "number" else None,
    ),
    "a row that another row follows is left out": (
        picked_rows,
        "rows_sql",
        lambda rows: f"file_row_number = {rows[0]}",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(world: IndexWorld, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*MISTAKES[name])
    assert any(differences(world, 150, seed=0))


STATEMENTS = {
    "alias": "SELECT sum(e.s) AS q FROM events AS e WHERE e.k = 'a'",
    "no alias": "FROM (SELECT events.n + 1 AS n FROM events WHERE events.n = 7) ORDER BY ALL",
    "names of columns": "SELECT a FROM events AS e(a, b, c) WHERE b = 7 ORDER BY 1",
    "case": "SELECT count(*) FROM Events WHERE K = 'a'",
    "é before": "SELECT 'é', count(*) AS \"né\" FROM events /* é */ WHERE k = 'é'",
    "join": "SELECT count(*) FROM events e JOIN events f ON e.s = f.s WHERE e.k = 'a' AND f.n = 7",
    "left join": "SELECT count(*) FROM (SELECT 1 AS s) a LEFT JOIN events e USING (s) WHERE e.k = 'a'",
    "full join": "SELECT count(*) FROM (SELECT 1 AS s) a FULL JOIN events e USING (s) WHERE e.k = 'a'",
    "asof": "SELECT a.v, e.n FROM (SELECT 1 AS v, TIMESTAMPTZ '2024-02-01' AS t) a ASOF JOIN events e "
    "ON a.t >= e.t WHERE e.n < 40",
    "positional": "SELECT count(*) FROM (SELECT 1) a POSITIONAL JOIN events e WHERE e.k = 'a'",
    "subquery": "SELECT count(*) FROM events WHERE s IN (SELECT s FROM events WHERE k = 'a') AND n = 7",
    "correlated": "SELECT count(*) FROM events e WHERE EXISTS (FROM events WHERE k = 'a' AND s = e.s)",
    "cte of this name": "WITH events AS (SELECT 'a' AS k, 1 AS n) SELECT count(*) FROM events WHERE k = 'a'",
    "union": "SELECT n FROM events WHERE k = 'a' UNION ALL SELECT n FROM events WHERE n = 7 ORDER BY 1",
    "alias of the select": "SELECT s AS n FROM events WHERE n = 7 ORDER BY 1",
    "window": "SELECT n, row_number() OVER (ORDER BY t, n, s, x) AS r FROM events WHERE k = 'a' ORDER BY r",
    "negated": "SELECT count(*) FROM events WHERE NOT (k = 'a' OR n = 7)",
    "text that quotes": "SELECT count(*) FROM events WHERE k = 'x''y'",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements_of_all_forms_give_the_same(world: IndexWorld, name: str) -> None:
    found = query.open(world.path).sql(STATEMENTS[name])
    expected = world.sql(STATEMENTS[name])
    assert found.columns == expected.column_names
    assert repr(found.to_arrow_table().to_pylist()) == repr(expected.to_pylist())


def test_parameters_are_constants(world: IndexWorld) -> None:
    wh = query.open(world.path)
    for condition, params in (
        ("k = ? AND n > ?", ["a", -5]),
        ("k = $key", {"key": "é"}),
        ("d = ? OR t < ?", [date(2024, 1, 5), START + timedelta(days=3)]),
        ("m = ?", [Decimal("12.5")]),
        ("k = ?", [None]),
    ):
        statement = f"SELECT count(*) FROM events WHERE {condition}"
        world.oracle.register("events", world.kept)
        expected = world.oracle.execute(statement, params).fetchall()
        assert wh.sql(statement, params=params).fetchall() == expected
        assert len(wh.explain(statement, params=params).parts) == (params != [None])


def test_a_relation_that_is_run_again_sees_new_rows(made: IndexWorld, tmp_path: Path) -> None:
    world = made.copy(tmp_path)
    relation = query.open(world.path).sql("SELECT count(*) AS c FROM events WHERE k = 'a'")
    before = relation.to_arrow_table()
    world.append(3, count=200)
    world.load("more", count=200)
    assert relation.to_arrow_table() == world.sql("SELECT count(*) AS c FROM events WHERE k = 'a'") != before


def test_errors_are_those_of_the_statement_as_it_is(world: IndexWorld) -> None:
    for statement in ("SELECT nope FROM events WHERE k = 'a'", "SELECT n FROM events WHERE k = 'a' GROUP"):
        with pytest.raises(InputError) as raised:
            query.open(world.path).sql(statement).fetchall()
        assert "tidemark rows" not in str(raised.value)


def test_explain_tells_the_rows_that_are_left(world: IndexWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    wh, statement = query.open(world.path), "SELECT * FROM events WHERE k = 'a'"
    ((true,),) = wh.sql("SELECT count(*) FROM history WHERE k = 'a'").fetchall()
    ((live,),) = wh.sql("SELECT count(*) FROM live").fetchall()
    (plan,) = wh.explain(statement).parts
    assert (plan.way, plan.columns, plan.rows) == ("index", ("k",), len(world.kept))
    assert plan.rows_left == true + live  # no batch that is live has a part in the index
    assert plan.most >= true
    assert plan.files_left <= plan.files
    assert plan.row_groups_left < plan.row_groups
    assert "index on k" in str(wh.explain(statement))
    assert wh.explain("SELECT * FROM events WHERE s = 1").parts == []
    monkeypatch.setattr(index_places, "RATES", IndexRates())
    (plan,) = wh.explain(statement).parts
    assert (plan.way, plan.rows_left) == ("scan", len(world.kept))


def test_a_load_that_is_killed_at_any_point_leaves_an_index_that_is_right(tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 5, index=["k", "n"])
    points = [
        "appended",
        "planned",
        "sorted",
        "marked",
        "committed",
        "merge sorted",
        "merge marked",
        "merged",
    ]
    for number, point in enumerate(points):
        rows = world.rows(40)
        world.kept = pa.concat_tables([world.kept, rows])
        with suppress(Killed):
            warehouse.load(None, world.path, rows, f"b{number}", tuning=TINY, progress=killer(point))
        wh, statement = query.open(world.path), "SELECT count(*) AS c FROM events WHERE k = 'a'"
        seen = wh.sql(statement.replace(" WHERE k = 'a'", " WHERE k || '' = 'a'")).fetchall()
        assert wh.sql(statement).fetchall() == seen
        warehouse.load(None, world.path, rows, f"b{number}", tuning=TINY)
        assert list(differences(world, 5, number)) == []
    check(world)


def test_a_delete_from_a_joined_file_that_was_killed(made: IndexWorld, tmp_path: Path) -> None:
    """At each point: a reader finds what a scan finds, and so it does after the next call has finished it."""
    points = [
        "rewritten",
        "removal planned",
        "decided",
        "removal sorted",
        "removal marked",
        "removal applied",
    ]
    world = made.copy(tmp_path)
    loaded(world)
    world.join(first_first=True)
    for number, point in enumerate(points):
        where, rows = f"t = {first_time(world)}", len(world.kept)
        with suppress(Killed):
            warehouse.delete(None, world.path, where, tuning=TINY, progress=killer(point))
        ((seen,),) = query.open(world.path).sql("SELECT count(*) FROM events").fetchall()
        assert seen == rows - (number > 1)
        if seen < rows:
            world.kept = world.sql(f"SELECT * FROM events WHERE ({where}) IS NOT TRUE")
        assert list(differences(world, 6, number)) == []
        world.delete(where)
        assert list(differences(world, 3, number)) == []
    check(world)


def test_the_rows_of_files_are_counted_and_verified(
    world: IndexWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose marks say that it has all rows of a file, and has not, is damaged."""
    assert warehouse.verify(world.path).ok
    honest = Places.to_bytes

    def more(places: Places) -> bytes:
        return honest(Places(places.files, places.rows + (places.files == places.files[:1])))

    monkeypatch.setattr(Places, "to_bytes", more)
    warehouse_of_mistakes = IndexWorld.create(world.path.parent / "mistaken", 1)
    warehouse_of_mistakes.load("b")
    monkeypatch.undo()
    assert not warehouse.verify(warehouse_of_mistakes.path).ok
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
    with pytest.raises(DamagedWarehouse, match="places"):
        query.open(warehouse_of_mistakes.path).sql("SELECT n FROM events WHERE k = 'a'").fetchall()


def test_what_cannot_have_an_index_is_refused(tmp_path: Path) -> None:
    given: list[tuple[Any, str]] = [(["nope"], "nope"), (["k", "K"], "named twice"), (3, "column names")]
    for index, words in given:
        with pytest.raises(InputError, match=words):
            warehouse.create(None, tmp_path / "w", ["x"], index=index, schema=SCHEMA, time="t")
    warehouse.create(None, tmp_path / "w", ["x"], index=[], schema=SCHEMA, time="t")
    asked: list[dict[str, Any]] = [{"add_index": "nope"}, {"drop_index": "n"}]
    for one in [*asked, {"add_index": "n", "drop_index": "n"}]:
        with pytest.raises(InputError):
            warehouse.alter(None, tmp_path / "w", **one)


def test_runs_that_spark_sorted_and_files_that_it_joined(spark: Any, tmp_path: Path) -> None:
    world = IndexWorld.create(tmp_path, 9)
    for number in range(3):
        rows = world.rows(60)
        warehouse.load(spark, world.path, spark.createDataFrame(rows), f"b{number}", tuning=TINY)
        world.kept = pa.concat_tables([world.kept, rows])
    assert list(differences(world, 10, 0)) == []
    found = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts[0]
    assert found.rows_left < len(world.kept) / 4
    spark.sql(f"OPTIMIZE delta.`{world.path}/events`")
    joined = query.open(world.path).explain("SELECT * FROM events WHERE k = 'a'").parts[0]
    assert joined.rows_left == len(world.kept)  # of files that it has never seen an index says nothing
    check(world)


def test_indexes_serve_a_statement_about_several_warehouses(world: IndexWorld, tmp_path: Path) -> None:
    """Each site has its own indexes, or none."""
    other = IndexWorld.create(tmp_path, 4, index=["k"], kappa=3)
    other.load("b")
    plain = IndexWorld.create(tmp_path / "plain", 6, index=[])
    plain.load("b")
    wh = query.open({"one": world.path, "two": other.path, "three": plain.path})
    statement = "SELECT count(*) FROM events WHERE k = 'a'"
    expected = sum(one.sql(statement)[0][0].as_py() for one in (world, other, plain))
    assert wh.sql(statement).fetchall() == [(expected,)]
    assert [(one.site, one.way) for one in wh.explain(statement).parts] == [
        ("one", "index"),
        ("two", "index"),
    ]
