"""Columns get wider types: every answer stays, every file of `events` has the types of the table."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.soak import some
from tests.warehouse.disk import files_of
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.main import main
from tidemark.warehouse import BatchMismatch, InputError, Tuning
from tidemark.warehouse.columns import column_types
from tidemark.warehouse.companions.declared import Companion
from tidemark.warehouse.loads.history import LoadReport
from tidemark.warehouse.settings.alterations import wider_columns, wider_types

START = datetime(2024, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
NARROW = pa.schema(
    [("time", TIME), ("x", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(6, 2)), ("b", pa.int8())]
)
WIDE = pa.schema(
    [("time", TIME), ("x", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(12, 2)), ("b", pa.int16())]
)
TYPES = {"x": "bigint", "f": "double", "d": "decimal(12,2)", "b": "smallint"}
TINY = Tuning(sort_rows=60, slice_rows=40, file_rows=(40, 80), block_rows=16, span_cells=24, fan=3)


def rows_of(seed: int, schema: pa.Schema = NARROW, count: int = 24) -> pa.Table:
    """Values at the ends of the narrow types, NaN and NULL."""
    random = np.random.default_rng([41, seed])
    rows = [
        {
            "time": START + timedelta(hours=int(random.integers(0, 48))),
            "x": [None, -(2**31), 2**31 - 1, *range(5)][random.integers(0, 8)],
            "f": [None, float("nan"), float("-inf"), -0.0, 0.1, 3.0][random.integers(0, 6)],
            "d": [None, Decimal("-9999.99"), Decimal("9999.99"), Decimal("0.01")][random.integers(0, 4)],
            "b": [None, -128, 127, 0][random.integers(0, 4)],
        }
        for _ in range(count)
    ]
    for row in rows:  # as the narrow types hold them
        row["f"] = None if row["f"] is None else float(np.float32(row["f"]))
    return pa.Table.from_pylist(rows, schema=schema)


def load(uri: Path, name: str, rows: pa.Table) -> str:
    return warehouse.load(None, uri, rows, name, tuning=TINY).outcome


def append(uri: Path, number: int, rows: pa.Table) -> bool:
    return stream.append(None, uri, rows, source="s", batch=number, tuning=TINY)


def widen(uri: Path, types: dict[str, str] = TYPES, **how: Any) -> str:
    return warehouse.alter(None, uri, widen=types, tuning=TINY, **how).outcome


def make(uri: Path, **keys: Any) -> Path:
    """Three steps in history, a live batch, a removal."""
    warehouse.create(
        None, uri, ["x", "f", "d"], **keys, time="time", tick="1h", eps=0.2, kappa=2, grace="0 s"
    )
    for seed in range(3):
        load(uri, f"day {seed}", rows_of(seed))
    append(uri, 0, rows_of(3))
    warehouse.delete(None, uri, where="x = 3", tuning=TINY)
    return uri


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measures, keys and groups of each type."""
    return make(tmp_path_factory.mktemp("made") / "w", keys=["x", ["d", "x"]], groups=["d"])


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "w"))


@pytest.fixture(scope="module")
def made_plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("plain") / "w")


@pytest.fixture
def plain(made_plain: Path, tmp_path: Path) -> Path:
    """As `world`, without keys and groups: for what happens to `events` and the measures."""
    return Path(shutil.copytree(made_plain, tmp_path / "w"))


def answers(uri: Path) -> list[str]:
    """What questions of each kind say: quick and exact, of groups, keys, conditions, windows and SQL."""
    wh, told = query.open(uri), []
    for measure in ("x", "f", "d"):
        told += [wh.quantile([0, 0.3, 0.5, 1], measure, mode=mode).to_json() for mode in ("quick", "exact")]
        told.append(wh.quantile(0.5, measure, last="1 day", as_of=START + timedelta(days=2)).to_json())
        told.append(wh.quantile(0.5, measure, by="d", limit=99, mode="exact").to_json())
        told.append(wh.quantile(0.5, measure, where="b = 127").to_json())
        told.append(wh.quantile(0.5, measure, by="b", limit=99).to_json())
    told += [str(wh.frequency(x, key="x").count) for x in (-(2**31), 2**31 - 1, 0)]
    told.append(str(wh.frequency((Decimal("0.01"), 0), key=["d", "x"]).count))
    told.append(str(wh.distinct(key="x").to_json()))
    told.append(repr(sorted(map(repr, wh.sql("SELECT x, f, d, b FROM events").fetchall()))))
    return told


def check_types(uri: Path) -> None:
    """Each file that the table names has the types of the table, as any reader of Delta expects."""
    table = DeltaTable(str(uri / "events"))
    types = {field.name: field.type for field in pa.schema(table.schema())}
    for path in table.file_uris():
        found = pq.read_schema(path)
        assert {name: found.field(name).type for name in types if name in found.names} == {
            name: types[name] for name in types if name in found.names
        }
    assert table.protocol().min_reader_version == 1


def check_wide(uri: Path) -> None:
    columns = dict(warehouse.open_snapshot(uri).options.columns)
    assert columns == {"time": "timestamp", "x": "long", "f": "double", "d": "decimal(12,2)", "b": "short"}
    check_types(uri)
    report = warehouse.verify(uri)
    assert report.ok, [one for one in report.checks if not one.ok]


def replay(uri: Path, schema: pa.Schema) -> None:
    for seed in range(3):
        assert load(uri, f"day {seed}", rows_of(seed, schema)) == "known"
    assert not append(uri, 0, rows_of(3, schema))
    with pytest.raises(BatchMismatch):
        load(uri, "day 0", rows_of(9, schema))


def test_answers_and_runs_stay_and_batches_are_known(world: Path) -> None:
    before, reader = answers(world), query.open(world)
    asked = reader.quantile(0.5, "d").to_json()
    others = {path: size for path, size in files_of(world).items() if not path.startswith("events")}
    assert widen(world) == "altered"
    assert {path: size for path, size in files_of(world).items() if not path.startswith("events")} == others
    assert answers(world) == before
    assert reader.quantile(0.5, "d").to_json() == asked
    check_wide(world)
    replay(world, NARROW)
    replay(world, WIDE)
    assert widen(world) == "known"


def test_greater_values_come_after_it(world: Path) -> None:
    greater = rows_of(5, WIDE).to_pylist()
    greater[0] |= {"x": 2**40, "f": 1e300, "d": Decimal("12345678.90"), "b": 300}
    rows = pa.Table.from_pylist(greater, schema=WIDE)
    before = files_of(world)
    with pytest.raises(InputError, match=r"column 'f' is double, the warehouse has float.*widen="):
        load(world, "great", rows)
    assert files_of(world) == before
    widen(world)
    assert load(world, "great", rows) == "loaded"
    assert append(world, 1, rows)
    assert load(world, "narrow", rows_of(6)) == "loaded"
    wh = query.open(world)
    assert [wh.quantile(1, measure, mode="exact").value for measure in ("x", "d")] == [
        2**40,
        Decimal("12345678.90"),
    ]
    assert wh.quantile(1, "f", where="f = 1e300").value == 1e300
    assert wh.frequency(2**40, key="x", mode="exact").count == 2
    assert wh.quantile(0.5, "x", where="b = 300").N == 2
    warehouse.load(None, world, tuning=TINY)
    warehouse.maintain(None, world)
    check_wide(world)
    replay(world, WIDE)
    assert load(world, "great", rows) == "known"


def test_bounds_of_32_bits_are_caught(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: integers are stored as if they still had 32 bits."""
    encode = column_types.encode_integers
    kind = column_types.COLUMN_TYPES["long"]
    monkeypatch.setattr(
        type(kind), "encode", lambda _, array: encode(array).astype(np.int32).astype(np.int64)
    )
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        test_greater_values_come_after_it(world)


def writes_meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], Any]) -> None:
    """`what` runs once, after the rows of an append are written and before they are committed."""
    module = importlib.import_module("tidemark.warehouse.ingest.append_rows")
    write, calls = module.write, [0]

    def written(*given: Any) -> Any:
        done = write(*given)
        calls[0] += 1
        if calls[0] == 1:
            what()
        return done

    monkeypatch.setattr(module, "write", written)


@pytest.mark.parametrize("kind", ["load", "append"])
def test_a_batch_that_was_written_with_the_narrow_types_is_written_again(
    kind: str, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes_meanwhile(monkeypatch, lambda: widen(plain))
    if kind == "load":
        assert load(plain, "late", rows_of(7)) == "loaded"
    else:
        assert append(plain, 1, rows_of(7))
    check_wide(plain)


def test_a_narrow_file_that_stays_is_caught(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: an append does not look whether the types are still those that it wrote."""
    module = importlib.import_module("tidemark.warehouse.ingest.append_rows")
    monkeypatch.setattr(module, "_has_types", lambda *_: True)
    with pytest.raises(AssertionError):
        test_a_batch_that_was_written_with_the_narrow_types_is_written_again("load", plain, monkeypatch)


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda uri: load(uri, "late", rows_of(7)),
        lambda uri: append(uri, 1, rows_of(7)),
        lambda uri: warehouse.delete(None, uri, where="x = 4", tuning=TINY),
        lambda uri: warehouse.maintain(None, uri),  # with no grace: it deletes what no commit names
        lambda uri: warehouse.load(
            None, uri, rows_of(7).append_column("tip", pa.array([1.5] * 24)), "late", evolve=True, tuning=TINY
        ),
    ],
    ids=["load", "append", "delete", "sweep", "evolve"],
)
def test_others_write_while_files_are_rewritten(meanwhile: Callable[[Path], Any], world: Path) -> None:
    twin = Path(shutil.copytree(world, world.parent / "twin"))
    meanwhile(twin)
    done = [0]

    def once(point: str) -> None:
        done[0] += point == "rewritten"
        if (point, done[0]) == ("rewritten", 1):
            meanwhile(world)

    widen(world, progress=once)
    assert done[0] == 2
    assert answers(world) == answers(twin)
    report = warehouse.verify(world)
    assert report.ok, [one for one in report.checks if not one.ok]
    check_types(world)
    replay(world, WIDE)


class StoppedError(Exception):
    """The process ended here."""


@pytest.mark.parametrize("at", ["rewritten", "widened"])
def test_a_call_that_ended_is_called_again(at: str, world: Path) -> None:
    before = answers(world)

    def stop(point: str) -> None:
        if point == at:
            raise StoppedError

    with pytest.raises(StoppedError):
        widen(world, progress=stop)
    assert answers(world) == before
    check_types(world)
    assert widen(world) == ("altered" if at == "rewritten" else "known")
    assert answers(world) == before
    check_wide(world)


def test_widened_columns_become_measures_in_the_same_call(world: Path) -> None:
    warehouse.alter(None, world, widen={"b": "long"}, add_measure="b", add_group="b", tuning=TINY)
    wh = query.open(world)
    assert wh.quantile(1, "b", mode="exact").value == 127
    assert wh.quantile(0.5, "x", by="b", mode="exact")[0].rows_scanned is None
    assert warehouse.verify(world).ok


def test_a_statement_that_was_made_with_a_narrow_type_is_refused(plain: Path) -> None:
    wh = query.open(plain)
    held = wh.sql("SELECT max(f) FROM events")
    assert held.fetchall()
    widen(plain, {"f": "double"})
    with pytest.raises(InputError, match=r"'f' was changed .* Do that again"):
        held.fetchall()
    assert wh.sql("SELECT typeof(any_value(f)) FROM events").fetchall() == [("DOUBLE",)]


def test_a_warehouse_without_rows_is_widened(tmp_path: Path) -> None:
    uri = tmp_path / "w"
    warehouse.create(None, uri, ["x"], time="time", schema=NARROW)
    assert widen(uri) == "altered"
    assert load(uri, "first", rows_of(1, WIDE)) == "loaded"
    check_wide(uri)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"nothing": "long"}, "no column 'nothing' to widen"),
        ({"x": "smallint"}, "'x' is integer and cannot become short"),
        ({"x": "double"}, "'x' is integer and cannot become double"),
        ({"f": "long"}, "'f' is float and cannot become long"),
        ({"d": "decimal(12,3)"}, "'d' is decimal.6,2. and cannot become"),
        ({"d": "decimal(20,2)"}, "at most 18 digits"),
        ({"time": "date"}, "'time' is timestamp and cannot become date"),
        ({"x": "number"}, "the type of x is 'number'"),
        (
            {"x": "long", "f": "float", "b": "byte", "d": "decimal(5,2)"},
            "'d' is decimal.6,2. and cannot become",
        ),
        ({"x": None}, "widen must map columns to types"),
        (["x"], "widen must map columns to types"),
        ({}, "needs something to change"),
    ],
)
def test_what_is_no_wider_type_is_refused(types: Any, words: str, made: Path) -> None:
    before = files_of(made)
    with pytest.raises(InputError, match=words):
        widen(made, types)
    assert files_of(made) == before


def test_a_column_that_a_companion_summarises_is_not_widened(world: Path) -> None:
    options = warehouse.open_snapshot(world).options
    with pytest.raises(InputError, match="'b' is summarised by a companion"):
        wider_types(replace(options, companion_names=(Companion("all", "sums", "b"),)), {"b": "long"})
    assert wider_types(options, {"b": "long", "x": "integer"}) == {"b": "long"}


def test_the_command_widens(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alter", "-w", str(plain), "--widen", "x=bigint", "--widen", "d=decimal(12,2)"]) == 0
    assert "done, without sorting any rows" in capsys.readouterr().out
    columns = dict(warehouse.open_snapshot(plain).options.columns)
    assert (columns["x"], columns["d"], columns["f"]) == ("long", "decimal(12,2)", "float")
    with pytest.raises(SystemExit):
        main(["alter", "-w", str(plain), "--widen", "x"])
    assert "--widen x: expected COLUMN=TYPE" in capsys.readouterr().err


def evolve(uri: Path, name: str, rows: pa.Table, **how: Any) -> LoadReport:
    return warehouse.load(None, uri, rows, name, evolve=True, tuning=TINY, **how)


def great() -> pa.Table:
    """Rows of the wide types with values that the narrow ones cannot hold."""
    greater = rows_of(5, WIDE).to_pylist()
    greater[0] |= {"x": 2**40, "f": 1e300, "d": Decimal("12345678.90"), "b": 300}
    return pa.Table.from_pylist(greater, schema=WIDE)


@pytest.mark.parametrize("kind", ["load", "append"])
def test_a_batch_widens_the_columns_that_are_wider_in_it(kind: str, plain: Path) -> None:
    reader = query.open(plain)
    assert evolve(plain, "narrow", rows_of(6)).widened_columns == []
    assert dict(warehouse.open_snapshot(plain).options.columns)["x"] == "integer"
    if kind == "load":
        report = evolve(plain, "great", great())
        assert (report.outcome, sorted(report.widened_columns)) == ("loaded", ["b", "d", "f", "x"])
    else:
        assert stream.append(None, plain, great(), source="s", batch=1, evolve=True, tuning=TINY)
    check_wide(plain)
    for wh in (query.open(plain), reader):
        assert wh.quantile(1, "x", mode="exact").value == 2**40
        assert wh.quantile(1, "f", where="f = 1e300").value == 1e300
        assert wh.quantile(0.5, "x", where="b = 300").N == 1
    replay(plain, NARROW)
    replay(plain, WIDE)
    if kind == "load":
        assert evolve(plain, "great", great()).widened_columns == []
        assert load(plain, "great", great()) == "known"
    else:
        assert not stream.append(None, plain, great(), source="s", batch=1, evolve=True, tuning=TINY)


def test_what_is_refused_or_known_or_empty_widens_nothing(plain: Path) -> None:
    late = great().to_pylist()
    late[3]["time"] = datetime(2999, 1, 1, tzinfo=UTC)
    before = files_of(plain)
    with pytest.raises(InputError, match="too far in the future"):
        evolve(plain, "late", pa.Table.from_pylist(late, schema=WIDE))
    with pytest.raises(BatchMismatch, match="content differs"):
        evolve(plain, "day 0", great())
    assert evolve(plain, "day 0", rows_of(0, WIDE)).outcome == "known"
    assert evolve(plain, "none", great().slice(0, 0)).outcome == "empty"
    digits = WIDE.set(WIDE.get_field_index("d"), pa.field("d", pa.decimal128(20, 2)))
    with pytest.raises(InputError, match="at most 18 digits"):
        evolve(plain, "digits", great().cast(digits))
    table = DeltaTable(str(plain / "events")).schema().to_json()
    assert not stream.append(None, plain, rows_of(3, WIDE), source="s", batch=0, evolve=True, tuning=TINY)
    assert DeltaTable(str(plain / "events")).schema().to_json() == table
    assert {path for path in files_of(plain) if "_delta_log" in path} == {
        path for path in before if "_delta_log" in path
    }


@pytest.mark.parametrize(
    ("meanwhile", "digits"),
    [
        (lambda uri: load(uri, "other", rows_of(7)), 12),
        (lambda uri: append(uri, 1, rows_of(7)), 12),
        (widen, 12),
        (lambda uri: widen(uri, {"d": "decimal(14,2)", "x": "long"}), 14),
        (lambda uri: evolve(uri, "other", rows_of(8, WIDE)), 12),
        (lambda uri: warehouse.maintain(None, uri), 12),
    ],
    ids=["load", "append", "widen", "wider", "evolve", "sweep"],
)
def test_others_write_before_a_batch_widens(
    meanwhile: Callable[[Path], Any], digits: int, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes_meanwhile(monkeypatch, lambda: meanwhile(plain))
    assert evolve(plain, "great", great()).outcome == "loaded"
    monkeypatch.undo()
    columns = dict(warehouse.open_snapshot(plain).options.columns)
    assert (columns["x"], columns["d"]) == ("long", f"decimal({digits},2)")
    check_types(plain)
    assert query.open(plain).quantile(1, "d", mode="exact").value == Decimal("12345678.90")
    assert warehouse.verify(plain).ok
    replay(plain, NARROW)
    assert load(plain, "great", great()) == "known"


@pytest.mark.parametrize("at", some(["rewritten", "widened", "appended", "planned"], 2))
def test_a_load_that_ended_while_it_widened_is_called_again(at: str, world: Path) -> None:
    before = answers(world)

    def stop(point: str) -> None:
        if point == at:
            raise StoppedError

    with pytest.raises(StoppedError):
        evolve(world, "great", great(), progress=stop)
    if at in ("rewritten", "widened"):
        assert answers(world) == before
    check_types(world)
    assert evolve(world, "great", great()).outcome == "loaded"
    check_wide(world)
    replay(world, WIDE)
    assert query.open(world).quantile(1, "x", mode="exact").value == 2**40


def test_a_batch_whose_types_are_not_given_to_the_table_is_caught(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the files of the batch are wider than the table says."""
    module = importlib.import_module("tidemark.warehouse.ingest.append_rows")
    monkeypatch.setattr(module, "widen", lambda *_: None)
    monkeypatch.setattr(module, "_has_types", lambda *_: True)
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse, InputError)):
        test_a_batch_widens_the_columns_that_are_wider_in_it("load", plain)


def test_a_column_that_a_companion_summarises_keeps_its_type_by_batches(world: Path) -> None:
    options = warehouse.open_snapshot(world).options
    kept = replace(options, companion_names=(Companion("all", "sums", "x"),))
    assert wider_columns(kept, {"x": "long", "b": "short", "f": "float"}) == {"b": "short"}


def test_the_command_widens_by_a_batch(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(great(), tmp_path / "great.parquet")
    given = ["load", "-w", str(plain), "--input", str(tmp_path / "great.parquet"), "--batch", "great"]
    assert main([*given, "--engine", "local"]) == 2
    assert "evolve=True, or alter(widen=" in capsys.readouterr().err
    assert main([*given, "--engine", "local", "--evolve"]) == 0
    assert "loaded, 24 rows; widened x, f, d, b" in capsys.readouterr().out
    check_wide(plain)
