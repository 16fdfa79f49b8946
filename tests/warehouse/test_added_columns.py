"""Batches that bring columns: each question is that of a plain list in which older rows have NULL."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import draws, some
from tests.warehouse.disk import files_of
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch
from tidemark.warehouse import BatchMismatch, DamagedWarehouse, InputError, Tuning
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.integrity import digests
from tidemark.warehouse.integrity.sealed_files import SEAL, SealedWriter, open_sealed
from tidemark.warehouse.settings.features import ADDED_COLUMNS

ROOT = Path(__file__).resolve().parents[2]
START = datetime(2024, 1, 1, tzinfo=UTC)
BASE = pa.schema([("time", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("k", pa.string())])
LATER = {"tip": pa.float64(), "zone": pa.string(), "n": pa.int32()}
TINY = Tuning(sort_rows=60, slice_rows=40, file_rows=(40, 80), block_rows=16, span_cells=24, fan=3)
Row = dict[str, Any]


def rows_of(seed: int, columns: frozenset[str] = frozenset(), count: int = 24) -> list[Row]:
    """Rows with some of the later columns, which have NULL, too."""
    random = np.random.default_rng([37, seed])
    rows: list[Row] = []
    for i in range(count):
        row: Row = {
            "time": START + timedelta(hours=int(random.integers(0, 48))),
            "x": int(random.integers(-9, 9)),
            "k": f"k{random.integers(0, 3)}",
        }
        later = {"tip": float(random.integers(0, 8)) / 2, "zone": f"z{random.integers(0, 2)}", "n": i % 5}
        rows.append(row | {name: None if i % 7 == 3 else later[name] for name in sorted(columns)})
    return rows


def table_of(rows: list[Row]) -> pa.Table:
    schema = [*BASE, *(pa.field(name, kind) for name, kind in LATER.items() if name in rows[0])]
    return pa.Table.from_pylist(rows, schema=pa.schema(schema))


@dataclass
class World:
    """A warehouse, its rows by batch (bulk: text, streamed: number), and the columns that came."""

    path: Path
    batches: dict[Any, list[Row]] = field(default_factory=dict)
    gone: list[tuple[Any, Row]] = field(default_factory=list)

    @classmethod
    def create(cls, path: Path, **options: Any) -> World:
        given = {"key": "k", "groups": ["k"], "time": "time", "tick": "1h", "eps": 0.2, "kappa": 2, **options}
        warehouse.create(None, path, ["x"], schema=BASE, **given)
        return cls(path)

    def load(self, name: str, rows: list[Row], *, evolve: bool = True) -> warehouse.LoadReport:
        report = warehouse.load(None, self.path, table_of(rows), name, evolve=evolve, tuning=TINY)
        self.batches[name] = rows
        return report

    def append(self, number: int, rows: list[Row], *, evolve: bool = True) -> None:
        how: dict[str, Any] = {"source": "s", "batch": number, "evolve": evolve, "tuning": TINY}
        assert stream.append(None, self.path, table_of(rows), **how)
        self.batches[number] = rows

    def delete(self, where: str, is_gone: Callable[[Row], bool]) -> None:
        warehouse.delete(None, self.path, where=where, tuning=TINY)
        self.gone += [(name, row) for name, rows in self.batches.items() for row in rows if is_gone(row)]

    def rows(self) -> list[Row]:
        left = [(name, row) for name, rows in self.batches.items() for row in rows]
        for one in self.gone:
            left.remove(one)
        return [row for _, row in left]

    def check(self) -> None:
        """Indexes, scans, groups, expressions and SQL, and that each batch is known."""
        rows = self.rows()
        wh = query.open(self.path)
        added = [name for name, _ in wh.options.columns if name in LATER]
        assert set(added) == {name for batch in self.batches.values() for name in batch[0]} & set(LATER)
        answer = wh.quantile(0.5, "x", mode="exact")
        assert (answer.N, answer.value) == (len(rows), middle([row["x"] for row in rows]))
        for name in added:
            values = [row[name] for row in rows if row.get(name) is not None]
            assert len(rows) - len(values) == wh.quantile(0.5, "x", where=f"{name} IS NULL").N
            if name == "zone":
                by = {(one.group or {})["zone"]: one.N for one in wh.quantile(0.5, "x", by="zone") or ()}
                assert by == {one: values.count(one) for one in set(values)}
                assert values.count("z1") == wh.quantile(0.5, "x", where={"zone": "z1"}).N
                continue
            found = wh.quantile(0.5, f"{name} + 1", mode="exact")
            assert (found.N, found.nulls) == (len(values), len(rows) - len(values))
            assert found.value == (middle(values) + 1 if values else None)
        columns = ", ".join(["x", *added])
        found = wh.sql(f"SELECT {columns} FROM events").fetchall()
        expected = [(row["x"], *(row.get(name) for name in added)) for row in rows]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        report = warehouse.verify(self.path)
        assert report.ok, [one for one in report.checks if not one.ok]

    def replay(self) -> None:
        """Each batch as it came is known, whatever came since; with another value it is refused."""
        for name, rows in self.batches.items():
            other = [*rows[:-1], {**rows[-1], "x": 1000}]
            if isinstance(name, str):
                assert self.load(name, rows, evolve=False).outcome == "known"
                with pytest.raises(BatchMismatch):
                    warehouse.load(None, self.path, table_of(other), name)
            else:
                given = {"source": "s", "batch": name}
                assert not stream.append(None, self.path, table_of(rows), **given)
                with pytest.raises(BatchMismatch):
                    stream.append(None, self.path, table_of(other), **given)


def middle(values: list[Any]) -> Any:
    return sorted(values)[(len(values) + 1) // 2 - 1] if values else None


ALL = frozenset(LATER)
STEPS = st.lists(
    st.tuples(st.sampled_from(["load", "load", "append"]), st.sets(st.sampled_from(sorted(LATER))))
    | st.sampled_from(["load live", "delete", "maintain", "add"]).map(lambda step: (step, set())),
    min_size=2,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=draws(3))
@given(STEPS, st.integers(0, 99))
def test_columns_that_come_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[str]]], seed: int
) -> None:
    world = World.create(tmp_path_factory.mktemp("drawn") / "w", grace="0 s")
    world.load("first", rows_of(seed))
    for number, (step, columns) in enumerate(steps):
        rows = rows_of(seed + number + 1, frozenset(columns))
        there = dict(warehouse.open_snapshot(world.path).options.columns)
        if step == "load":
            world.load(f"batch {number}", rows)
        elif step == "append":
            world.append(number, rows)
        elif step == "load live":
            warehouse.load(None, world.path, tuning=TINY)
        elif step == "delete" and "tip" in there:
            warehouse.load(None, world.path, tuning=TINY)  # a delete takes rows of history
            world.delete("tip IS NULL AND x > 5", lambda row: row.get("tip") is None and row["x"] > 5)
        elif step == "maintain":
            warehouse.maintain(None, world.path)
        elif step == "add" and "n" in there:
            warehouse.alter(None, world.path, add_measure="n", add_group="n", tuning=TINY)
    world.check()
    world.replay()
    world.check()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A bulk batch and a live one without later columns; then a bulk batch and a live one with all."""
    world = World.create(tmp_path_factory.mktemp("made") / "w", grace="0 s")
    world.load("monday", rows_of(1))
    world.append(0, rows_of(2))
    world.load("tuesday", rows_of(3, ALL))
    world.append(1, rows_of(4, ALL))
    return world


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    path = tmp_path / "w"
    shutil.copytree(made.path, path)
    return World(path, dict(made.batches))


def test_older_rows_are_null(world: World) -> None:
    assert list(warehouse.open_snapshot(world.path).options.added_columns) == list(LATER)
    assert ADDED_COLUMNS in warehouse.open_snapshot(world.path).options.features
    world.check()
    world.replay()


def test_a_later_batch_may_lack_what_was_added(world: World) -> None:
    reader = query.open(world.path)
    world.load("wednesday", rows_of(5), evolve=False)
    world.append(2, rows_of(6, frozenset({"tip"})), evolve=False)
    assert world.load("thursday", rows_of(7, ALL)).added_columns == []
    world.check()
    world.replay()
    assert (
        reader.quantile(0.5, where="tip IS NULL").N
        == query.open(world.path).quantile(0.5, where="tip IS NULL").N
    )


def test_a_reader_that_is_open_sees_the_column_with_its_next_question(tmp_path: Path) -> None:
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    reader = query.open(world.path)
    assert reader.quantile(0.5).N == 24
    assert world.load("tuesday", rows_of(2, ALL)).added_columns == ["tip", "zone", "n"]
    assert reader.quantile(0.5, where="tip >= 0").N == 21
    assert reader.sql("SELECT count(tip) FROM events").fetchall() == [(21,)]


def test_a_reader_of_an_earlier_moment_has_the_columns_of_then(tmp_path: Path) -> None:
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    before = query.open(world.path)
    world.load("tuesday", rows_of(2, ALL))
    then = query.open(world.path, at=0)
    assert (
        then.sql("FROM events").columns == before.sql("SELECT * EXCLUDE (tip, zone, n) FROM events").columns
    )
    assert then.quantile(0.5, mode="exact").N == 24
    with pytest.raises(InputError, match="tip"):
        then.quantile(0.5, where="tip IS NULL")


def test_the_new_column_becomes_a_measure_a_key_and_a_group(world: World) -> None:
    warehouse.alter(None, world.path, add_measure="tip", add_key="zone", add_group="n", tuning=TINY)
    rows, wh = world.rows(), query.open(world.path)
    tips = [row["tip"] for row in rows if row.get("tip") is not None]
    answer = wh.quantile(0.5, "tip", mode="exact")
    assert (answer.N, answer.nulls, answer.value) == (len(tips), len(rows) - len(tips), middle(tips))
    assert answer.rows_scanned is None
    zones = [row.get("zone") for row in rows]
    assert wh.frequency("z1", key="zone", mode="exact").count == zones.count("z1")
    found = {(one.group or {})["n"]: one.N for one in wh.quantile(0.5, "tip", by="n", mode="exact")}
    assert found == {
        n: len([1 for row in rows if row.get("n") == n and row["tip"] is not None]) for n in range(5)
    }
    world.load("wednesday", rows_of(5), evolve=False)  # it lacks a measure, a key and a group: they are NULL
    world.append(2, rows_of(6), evolve=False)
    assert len(tips) == query.open(world.path).quantile(0.5, "tip", mode="exact").N
    warehouse.load(None, world.path, tuning=TINY)
    world.check()
    world.replay()


def test_files_are_joined_and_rows_deleted_where_some_lack_the_column(world: World) -> None:
    warehouse.load(None, world.path, tuning=TINY)
    world.delete(
        "tip > 2 OR (zone IS NULL AND x = 3)",
        lambda row: (row.get("tip") or 0) > 2 or (row.get("zone") is None and row["x"] == 3),
    )
    world.check()
    world.replay()
    assert warehouse.maintain(None, world.path).compacted["events"][1] == 1
    world.check()
    world.replay()


def test_rows_that_left_before_the_column_came_are_known(tmp_path: Path) -> None:
    """The fingerprints of removed rows are stored: a column that comes later must not change them."""
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    world.delete("x > 3", lambda row: row["x"] > 3)
    world.load("tuesday", rows_of(2, ALL))
    world.check()
    world.replay()


def test_rows_that_left_before_the_column_came_are_restored(tmp_path: Path) -> None:
    """From files that lack the columns, or have one with the type from before it was widened."""
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    warehouse.load(None, world.path, table_of(rows_of(2)), "wrong", tuning=TINY)
    warehouse.unload(None, world.path, "wrong", tuning=TINY)
    world.load("tuesday", rows_of(3, ALL))
    warehouse.delete(None, world.path, where="n = 1", tuning=TINY)
    warehouse.alter(None, world.path, widen={"n": "bigint"}, tuning=TINY)
    assert warehouse.restore(world.path, tuning=TINY, step=0).outcome == "restored"
    world.batches["restored"] = rows_of(2)
    world.check()
    del world.batches["restored"]
    world.replay()


def test_a_fingerprint_that_counts_null_of_later_columns_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: each column of the warehouse is in the hash of a row, also one that came later."""

    def row_hashes(rows: pa.RecordBatch) -> Any:
        hashes = np.full(rows.num_rows, np.uint64(7))
        for column in rows.columns:
            hashes = digests._mix(hashes + digests.value_hashes(column, signed_zeros=False))
        return hashes

    monkeypatch.setattr(digests, "row_hashes", row_hashes)
    with pytest.raises((AssertionError, BatchMismatch)):
        test_rows_that_left_before_the_column_came_are_known(tmp_path)


def test_null_of_an_old_file_that_counts_as_zero_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a file that lacks a column is read as if it had zeros there."""
    reader = importlib.import_module("tidemark.warehouse.events.reader")
    read = reader.read_columns

    def zeros(*given: Any) -> pa.Table:
        rows = read(*given)
        for i, one in enumerate(rows.schema):
            if pa.types.is_null(one.type) and one.name in ("tip", "n"):
                rows = rows.set_column(i, one.name, pa.array(np.zeros(len(rows)).astype(np.int32)))
        return rows

    monkeypatch.setattr(reader, "read_columns", zeros)
    with pytest.raises(AssertionError):
        test_the_new_column_becomes_a_measure_a_key_and_a_group(world)


TYPES: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-128, 127, None]),
    "short": (pa.int16(), [-(2**15), 1, None]),
    "int": (pa.int32(), [-(2**31), 1, None]),
    "long": (pa.int64(), [-(2**63), 2**53 + 1, None]),
    "float": (pa.float32(), [0.5, float("inf"), None]),
    "double": (pa.float64(), [0.1, -0.0, None]),
    "cents": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-0.01"), None]),
    "wide": (pa.decimal128(38, 0), [Decimal(10**37), Decimal(-1), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [START, START + timedelta(microseconds=1), None]),
    "text.with.dots": (pa.string(), ["", "é", None]),
    "bytes": (pa.binary(), [b"", b"\xff", None]),
    "nested": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        [{"a": 1, "b": ["x"]}, None, None],
    ),
    "items": (pa.list_(pa.int64()), [[1, None], [], None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], None]),
}


def test_a_column_of_any_type_may_come(tmp_path: Path) -> None:
    world = World.create(tmp_path / "w", grace="0 s")
    world.load("monday", rows_of(1, count=3))
    world.append(0, rows_of(2, count=3))
    rows = table_of(rows_of(3, count=3))
    for name, (kind, values) in TYPES.items():
        rows = rows.append_column(name, pa.array(values, kind))
    with pytest.raises(InputError, match=r"unknown \['at', 'byte'.*evolve=True"):
        warehouse.load(None, world.path, rows, "tuesday")
    assert warehouse.load(None, world.path, rows, "tuesday", evolve=True).added_columns == list(TYPES)
    assert stream.append(None, world.path, rows, source="s", batch=1)

    def check(*, live_is_there: bool) -> None:
        found = query.open(world.path).sql("FROM events ORDER BY _batch").to_arrow_table()
        assert found.num_rows == 12
        live = [*warehouse.open_snapshot(world.path).current().contents().live_rows()]
        assert bool(live) is live_is_there
        for name, (kind, values) in TYPES.items():
            shown = [one for one in found.column(name).to_pylist() if one is not None]
            assert len(shown) == 2 * sum(value is not None for value in values)
            for batch in live:
                assert batch.schema.field(name).type == plain(kind)
        for name, (_, values) in TYPES.items():
            if name in ("nested", "items", "map", "wide"):
                continue
            counted = query.open(world.path).quantile(0.5, "x", where=f'"{name}" IS NOT NULL').N
            assert counted == 2 * sum(value is not None for value in values)
        assert warehouse.load(None, world.path, rows, "tuesday").outcome == "known"
        assert warehouse.load(None, world.path, table_of(rows_of(1, count=3)), "monday").outcome == "known"
        assert warehouse.verify(world.path).ok

    check(live_is_there=True)
    warehouse.load(None, world.path)
    warehouse.maintain(None, world.path)
    check(live_is_there=False)


def plain(kind: pa.DataType) -> pa.DataType:
    return importlib.import_module("tidemark.warehouse.columns.arrow_types").plain_type(kind)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_text_brings_columns(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = tmp_path / "w"

    def written(name: str, rows: list[Row]) -> Path:
        path = tmp_path / f"{name}.{form}"
        if form == "json":
            lines = [json.dumps(row) for row in rows]
        else:
            lines = [
                ",".join(rows[0]),
                *(",".join("" if v is None else str(v) for v in row.values()) for row in rows),
            ]
        path.write_text("\n".join(lines) + "\n")
        return path

    old = [{"x": i, "k": "00501"} for i in range(5)]
    new = [
        {"x": i, "tip": None if i == 2 else i / 2, "k": "7", "zip": "0050", "at": "2024-01-01"}
        for i in range(5)
    ]
    monday, tuesday = written("monday", old), written("tuesday", new)

    def load(path: Path, *options: str) -> int:
        given = ["--warehouse", str(uri), "--input", str(path), "--batch", path.stem, "--engine", "local"]
        return load_batch.main([*given, *options])

    assert load(monday, "--measure", "x", "--key", "k") == 0
    before = files_of(uri)
    assert load(tuesday) == 2
    assert "--evolve" in capsys.readouterr().err
    assert files_of(uri) == before
    assert load(tuesday, "--evolve", "--type", "zip=string") == 0
    assert "loaded, 5 rows; added tip, zip, at" in capsys.readouterr().out
    columns = dict(warehouse.open_snapshot(uri).options.columns)
    assert columns == {"x": "long", "k": "string", "tip": "double", "zip": "string", "at": "date"}
    assert load(monday) == 0
    assert load(tuesday, "--evolve") == 0
    assert capsys.readouterr().out.count("was loaded before") == 2
    assert query.open(uri).sql("SELECT count(*), sum(tip), min(zip) FROM events").fetchall() == [
        (10, 4.0, "0050")
    ]
    assert warehouse.load(None, uri, tuesday, "by path", evolve=True).added_columns == []
    wednesday = written("wednesday", [{**row, "more": True} for row in new])
    assert warehouse.load(None, uri, wednesday, "wednesday", evolve=True).added_columns == ["more"]
    assert dict(warehouse.open_snapshot(uri).options.columns)["more"] == "boolean"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"X": pa.array([1] * 4)}, "twice|only in case"),
        ({"Time ": pa.array([1] * 4)}, "cannot be stored"),
        ({"_TICK": pa.array([1] * 4)}, "tidemark's own columns"),
        ({"tip": pa.nulls(4)}, "null, which cannot be stored"),
        ({"span": pa.array([1] * 4, pa.duration("us"))}, "cannot be stored"),
    ],
)
def test_a_column_that_cannot_be_added_changes_nothing(
    columns: dict[str, pa.Array], words: str, tmp_path: Path
) -> None:
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1, count=4))
    before, rows = files_of(world.path), table_of(rows_of(2, count=4))
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    with pytest.raises(InputError, match=words):
        warehouse.load(None, world.path, rows, "tuesday", evolve=True)
    assert files_of(world.path) == before
    without = table_of(rows_of(2, count=4)).drop_columns(["x"]).append_column("y", pa.array([1] * 4))
    with pytest.raises(InputError, match="the measure column 'x' is missing"):
        warehouse.load(None, world.path, without, "tuesday", evolve=True)
    without = table_of(rows_of(2, count=4)).rename_columns(["time", "x", "key"])
    with pytest.raises(InputError, match="the key column 'k' is missing"):
        stream.append(None, world.path, without, source="s", batch=0, evolve=True)
    assert files_of(world.path) == before


def test_the_same_batch_with_a_value_in_a_new_column_is_another_one(world: World) -> None:
    rows = table_of(world.batches["tuesday"])
    empty = rows.append_column("later", pa.nulls(len(rows), pa.int64()))
    assert warehouse.load(None, world.path, empty, "tuesday", evolve=True).outcome == "known"
    filled = rows.append_column("later", pa.array(range(len(rows))))
    with pytest.raises(BatchMismatch):
        warehouse.load(None, world.path, filled, "tuesday", evolve=True)
    assert "later" not in dict(warehouse.open_snapshot(world.path).options.columns)


def during(monkeypatch: pytest.MonkeyPatch, other: Callable[[], Any], at: int) -> None:
    """Another load runs before the change of columns or properties with this number, once."""
    change, seen = Race.change, [0]

    def changed(self: Race, what: Any) -> bool:
        seen[0] += 1
        if seen[0] == at + 1:
            other()
        return change(self, what)

    monkeypatch.setattr(Race, "change", changed)


@pytest.mark.parametrize(
    ("at", "columns"), some(product([0, 1], [frozenset({"tip"}), frozenset({"n"}), ALL]), 4)
)
def test_two_loads_that_bring_columns_at_once(
    at: int, columns: frozenset[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    during(monkeypatch, lambda: world.load("other", rows_of(2, columns)), at)
    world.load("mine", rows_of(3, frozenset({"tip", "zone"})))
    world.check()
    world.replay()


def test_two_loads_that_bring_one_column_with_two_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    during(monkeypatch, lambda: world.load("other", rows_of(2, frozenset({"tip"}))), 1)
    rows = table_of(rows_of(3)).append_column("tip", pa.array(["much"] * 24))
    with pytest.raises(InputError, match="column 'tip' is string, the warehouse has double"):
        warehouse.load(None, world.path, rows, "mine", evolve=True)
    world.check()
    world.replay()


KILLED = """
import os, signal, sys
from tests.warehouse import test_added_columns as here
from tidemark.warehouse.delta import races
commits = [int(sys.argv[2])]
def counted(method):
    def call(self, *given, **how):
        done = method(self, *given, **how)
        if self.name == "events":
            commits[0] -= 1
            if commits[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call
races.Race.change = counted(races.Race.change)
races.Race.commit = counted(races.Race.commit)
world = here.World(here.Path(sys.argv[1]))
world.load("tuesday", here.rows_of(2, here.ALL))
"""


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_kill_between_the_commits_is_mended_by_the_same_load(commits: int, tmp_path: Path) -> None:
    """After the options, the columns, and the rows."""
    world = World.create(tmp_path / "w")
    world.load("monday", rows_of(1))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(world.path), str(commits)], cwd=ROOT, check=False
    )
    assert done.returncode == -signal.SIGKILL
    there = dict(warehouse.open_snapshot(world.path).options.columns)
    assert ("tip" in there) == (commits > 1)
    assert query.open(world.path).quantile(0.5, mode="exact").N == 24
    assert world.load("between", rows_of(3), evolve=False).outcome == "loaded"
    report = world.load("tuesday", rows_of(2, ALL))
    assert report.added_columns == (["tip", "zone", "n"] if commits == 1 else [])
    world.check()
    world.replay()


def test_a_column_that_a_file_lost_is_damage(tmp_path: Path) -> None:
    """A file that lacks a column is told from one that had it: the seal has the columns that were written."""
    filesystem = importlib.import_module("pyarrow.fs").LocalFileSystem()
    rows = pa.table({"_tick": [1, 2], "x": [3, 4]})
    with SealedWriter(filesystem, str(tmp_path / "whole.parquet"), rows.schema) as writer:
        writer.write(rows)
    seal = pq.read_metadata(tmp_path / "whole.parquet").metadata[SEAL]
    less = rows.select(["_tick"]).replace_schema_metadata({SEAL: seal})
    pq.write_table(less, tmp_path / "less.parquet")
    read_columns = importlib.import_module("tidemark.warehouse.events.reader").read_columns
    with open_sealed(filesystem, str(tmp_path / "whole.parquet"), texts=["later"]) as file:
        assert read_columns(file, 0, ["_tick", "later"]).column("later").null_count == 2
    for columns in (["_tick", "x"], None):
        with (
            pytest.raises(DamagedWarehouse, match="'x' of row group 0 is not there any more"),
            open_sealed(filesystem, str(tmp_path / "less.parquet")) as file,
        ):
            file.read_group(0, columns)
    with (
        pytest.raises(DamagedWarehouse, match="it lacks the column '_batch'"),
        open_sealed(filesystem, str(tmp_path / "whole.parquet")) as file,
    ):
        read_columns(file, 0, ["_tick", "_batch"])
