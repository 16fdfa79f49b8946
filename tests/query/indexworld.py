"""A warehouse with indexes, its rows as one table, and what changes both; DuckDB is the oracle."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark import query, stream, warehouse
from tidemark.query.scans.covered_files import CoveredFiles
from tidemark.warehouse import Tuning
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.origins import file_id
from tidemark.warehouse.ingest.event_files import JoinFiles, RowFile

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

    def fetched(self, statement: str) -> list[tuple[Any, ...]]:
        """The same as rows of Python."""
        self.oracle.register("events", self.kept)
        return self.oracle.sql(statement).fetchall()

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
        found = wh.sql(statement)
        if repr(found.to_arrow_table().to_pylist()) != repr(expected.to_pylist()):
            yield where
        elif repr(found.fetchall()) != repr(world.fetched(statement)):  # which writes the rows into it
            yield f"fetchall: {where}"


def check(world: IndexWorld, asked: int = 10, seed: int = 0) -> None:
    assert list(differences(world, asked, seed)) == []
    report = warehouse.verify(world.path)
    assert report.ok, str(report)


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


def covers_all(contents: Any, _: Any) -> CoveredFiles:
    files = contents.list_events()
    return CoveredFiles({file_id(file.path): (file, None) for file in files}, {})
