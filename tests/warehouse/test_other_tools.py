"""Rows of `events` that another tool rewrote, deleted or added: read where whole, missed where not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.compatibility import kept
from tests.query.answers import several
from tests.warehouse.keyworld import DAY_US, KeyWorld
from tests.warehouse.test_verify import failures
from tidemark import query, warehouse
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.arrow_types import plain_type, with_plain_types
from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.snapshots.live_rows import live_values
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader

WHOLE = "events: each batch has the rows that came"
KEYS: dict[str, list[Any]] = {"string": ["a", "é", None, "ccc"], "binary": [b"a", b"\xff", None, b""]}


MADE: dict[str, KeyWorld] = {}


@pytest.fixture(scope="module", autouse=True)
def _made(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of each kind a loaded step of 40 rows, and live batches of 20, 24 and 28."""
    for kind, keys in KEYS.items():
        world = MADE[kind] = KeyWorld(tmp_path_factory.mktemp("made") / "w", kind)
        world.load([(keys[i % 4], i % 3) for i in range(40)])
        for number in range(3):
            world.stream([(keys[i % 4], i % 3 * DAY_US) for i in range(20 + 4 * number)])


def make(folder: Path, kind: str = "string") -> KeyWorld:
    """One to be changed."""
    return MADE[kind].copied(folder / "w")


def events(world: KeyWorld) -> DeltaTable:
    return DeltaTable(world.store.table(EVENTS))


def exact(world: KeyWorld) -> dict[Any, int]:
    keys = [key for key in KEYS[world.type] if key is not None]
    return {one.value: one.count for one in several(query.open(world.uri).frequency(keys, mode="exact"))}


def counts(world: KeyWorld) -> dict[Any, int]:
    every = [row[0] for some in (*world.loaded, *world.streamed) for row in some]
    return dict(Counter(key for key in every if key is not None))


def check_missed(world: KeyWorld, words: str) -> None:
    """Exact counts, the load and verify refuse, in the same words."""
    for ask in (
        lambda: exact(world),
        lambda: query.open(world.uri).key_range(None, None),
        lambda: query.open(world.uri).self_join(),
        lambda: warehouse.load(None, world.uri),
    ):
        with pytest.raises(DamagedWarehouse) as told:
            ask()
        assert words in str(told.value)
    assert words in failures(world.uri)[WHOLE]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS)
def test_deleted_rows_of_live_batches_are_missed_and_can_be_restored(tmp_path: Path, kind: str) -> None:
    world = make(tmp_path, kind)
    before = events(world).version()
    literal = "'a'" if kind == "string" else "X'61'"
    events(world).delete(f"_source = 's' and _batch >= 1 and k = {literal}")
    check_missed(
        world,
        "batch 1 of 's' lost 6 of its 24 rows; batch 2 of 's' lost 7 of its 28 rows. "
        f"Its version {before + 1} is a DELETE: restore version {before}",
    )
    assert query.open(world.uri).frequency(KEYS[kind][0]).count == counts(world)[KEYS[kind][0]]
    events(world).restore(before)
    assert exact(world) == counts(world)
    assert warehouse.load(None, world.uri).rows == 72
    assert exact(world) == counts(world)
    assert failures(world.uri) == {}


def test_a_live_batch_without_any_rows_left_is_missed(tmp_path: Path) -> None:
    world = make(tmp_path)
    events(world).delete("_source = 's' and _batch = 0")
    check_missed(world, "batch 0 of 's' lost 20 of its 20 rows")


def test_rows_deleted_before_later_batches_came_are_to_be_appended(tmp_path: Path) -> None:
    world = make(tmp_path)
    before = events(world).version()
    lost = (
        events(world)
        .to_pyarrow_table()
        .filter((pa.compute.field("_source") == "s") & (pa.compute.field("_batch") == 1))
    )
    events(world).delete("_source = 's' and _batch = 1")
    world.stream([("a", DAY_US)] * 5)
    check_missed(world, f"and rows came after it: append those that version {before} has")
    write_deltalake(world.store.table(EVENTS), lost, mode="append")
    assert exact(world) == counts(world)
    assert warehouse.load(None, world.uri).rows == 77


def test_rows_added_by_hand_are_told_with_their_batch(tmp_path: Path) -> None:
    world = make(tmp_path)
    write_deltalake(world.store.table(EVENTS), world._table([("new", 1)] * 3, 1, "s"), mode="append")
    check_missed(world, "batch 1 of 's' has 3 more rows than the 24 that came. Restore the version")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS)
def test_deleted_rows_of_a_planned_step_stop_its_load(tmp_path: Path, kind: str) -> None:
    world = make(tmp_path, kind)
    world.append([(KEYS[kind][i % 4], i) for i in range(12)])
    before = events(world).version()
    events(world).delete("_source = 'load:b' and _batch = 1 and _tick < 5")
    words = "should have 12 rows, by plans and removals, but the table events has 7: rows of the table"
    with pytest.raises(DamagedWarehouse, match=words) as told:
        warehouse.load(None, world.uri)
    assert "batch 1 of 'load:b' lost 5 of its 12 rows" in str(told.value)
    assert "batch 1 of 'load:b' lost 5 of its 12 rows" in failures(world.uri)[WHOLE]
    events(world).restore(before)
    warehouse.load(None, world.uri)
    assert exact(world) == counts(world)


@pytest.mark.parametrize("kind", KEYS)
def test_rows_deleted_after_their_load_stay_in_history_and_verify_tells(tmp_path: Path, kind: str) -> None:
    world = make(tmp_path, kind)
    events(world).delete("_source = 'load:b' and _tick = 2")
    assert exact(world) == counts(world)
    found = failures(world.uri)
    assert "batch 0 of 'load:b' lost 13 of its 40 rows" in found[WHOLE]
    assert set(found) >= {
        "x: nothing is lost or counted twice",
        "keys of k: nothing is lost or counted twice",
    }


@pytest.mark.parametrize("kind", KEYS)
def test_a_file_that_a_delete_rewrote_serves_its_other_batches(tmp_path: Path, kind: str) -> None:
    world = make(tmp_path, kind)
    warehouse.maintain(None, world.uri)  # joins the files
    assert len(events(world).file_uris()) == 1
    events(world).delete("_source = 'load:b' and _tick = 1")
    (file,) = events(world).file_uris()
    assert "view" in str(pq.read_schema(file).field("k").type)
    assert exact(world) == counts(world)
    world.stream([(key, 0) for key in KEYS[kind]])
    warehouse.maintain(None, world.uri)
    (file,) = events(world).file_uris()
    assert "view" not in str(pq.read_schema(file))
    assert exact(world) == counts(world)
    events(world).update(updates={"x": "2.0"}, predicate="_batch = 1 and _source = 's'")
    assert exact(world) == counts(world)
    assert warehouse.load(None, world.uri).rows == 76
    assert exact(world) == counts(world)


STORED = {
    "large": {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()},
    "views": {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()},
    "dictionaries": {kind: pa.dictionary(pa.int16(), kind) for kind in (pa.string(), pa.binary())},
    "dictionaries of large": {
        pa.string(): pa.dictionary(pa.int32(), pa.large_string()),
        pa.binary(): pa.dictionary(pa.int32(), pa.large_binary()),
    },
}


def store_as(world: KeyWorld, kinds: dict[pa.DataType, pa.DataType]) -> None:
    """Every file of events with its texts in other Arrow types, and times in 96 bits."""
    for file in events(world).file_uris():
        rows = with_plain_types(pq.read_table(file))
        for i, field in enumerate(rows.schema):
            kind = kinds.get(field.type, field.type)
            column = rows.column(i)
            if pa.types.is_dictionary(kind):
                column = column.cast(kind.value_type).dictionary_encode()
            rows = rows.set_column(i, field.name, column.cast(kind))
        pq.write_table(rows, file, use_deprecated_int96_timestamps=True)


@pytest.mark.parametrize("kind", KEYS)
def test_texts_of_any_arrow_type_are_read(tmp_path: Path, kind: str) -> None:
    world = make(tmp_path, kind)
    for kinds in STORED.values():
        store_as(world, kinds)
        assert exact(world) == counts(world)
        half = query.open(world.uri).key_range(None, None, last="36h")  # reads the times, too
        assert half.lo <= half.hi
    assert set(failures(world.uri)) == {"files: every named file is there"}  # of other sizes
    assert warehouse.load(None, world.uri).rows == 72
    assert exact(world) == counts(world)


def test_types_as_they_were_read_before_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.events.reader.with_plain_types", lambda rows, _=(): rows)
    with pytest.raises(Exception, match="string_view"):
        test_a_file_that_a_delete_rewrote_serves_its_other_batches(tmp_path, "string")


def test_exact_counts_that_nobody_checks_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("warehouse.snapshots.live_rows", "query.reading.live_cache"):
        monkeypatch.setattr(f"tidemark.{module}.check_live_rows", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_live_batch_without_any_rows_left_is_missed(tmp_path)


NESTED = [
    (pa.string_view(), pa.string()),
    (pa.dictionary(pa.int8(), pa.large_binary()), pa.binary()),
    (pa.timestamp("ns"), pa.timestamp("us", tz="UTC")),
    (pa.large_list(pa.string_view()), pa.list_(pa.string())),
    (pa.list_view(pa.int32()), pa.list_(pa.int32())),
    (pa.map_(pa.string_view(), pa.binary_view()), pa.map_(pa.string(), pa.binary())),
    (
        pa.struct([("a", pa.struct([("b", pa.large_string())]))]),
        pa.struct([("a", pa.struct([("b", pa.string())]))]),
    ),
    (pa.decimal128(9, 2), pa.decimal128(9, 2)),
]


@pytest.mark.parametrize(("stored", "read"), NESTED, ids=str)
def test_each_type_becomes_the_plain_one(stored: pa.DataType, read: pa.DataType) -> None:
    assert plain_type(stored) == read
    assert with_plain_types(pa.table({"a": pa.nulls(3, stored)})).schema.field("a").type == read


def test_dictionaries_of_views_become_dictionaries_of_texts() -> None:
    views = pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["x", "y"], pa.string_view()))
    assert with_plain_types(pa.table({"k": views})).column("k").to_pylist() == ["y", "x", None]
    coded = with_plain_types(pa.table({"k": views}), ["k"]).column("k")
    assert coded.type.value_type == pa.string()
    assert coded.to_pylist() == ["y", "x", None]


@pytest.fixture
def timed(tmp_path: Path) -> Store:
    """The kept warehouse with columns of text beside the key, and its files of events joined."""
    uri = kept.unpacked(tmp_path, "timed")
    warehouse.maintain(None, uri)
    return Store.from_uri(uri)


def test_columns_of_users_are_read_as_they_are_stored(timed: Store) -> None:
    before = sorted(map(repr, live_notes(timed)))
    DeltaTable(timed.table(EVENTS)).delete("note = 'night-0:77'")
    assert sorted(map(repr, live_notes(timed))) == before
    (rows,) = query.open(timed.uri).sql("SELECT count(*) FROM live WHERE note LIKE 'web-%'").fetchall()[0]
    assert rows == sum("'web-" in note for note in before)


def live_notes(store: Store) -> list[Any]:
    schema = pa.schema(tables.open_table(store, EVENTS).schema())
    found = []
    for batch in query.open(store.uri).contents().live_rows():
        assert batch.schema.types == schema.types
        found += batch.column("note").to_pylist()
    return found


def test_live_values_are_missed_even_where_they_are_nan_or_null(timed: Store) -> None:
    snapshot = SnapshotReader(timed)
    before, view = DeltaTable(timed.table(EVENTS)).version(), snapshot.current().view("x")
    values = sum(len(chunk) for chunk in live_values(snapshot, view, ALL_TIME))
    for number, note in enumerate(("web-9:3", "web-9:4", "web-9:7")):  # NULL, NaN and a number
        DeltaTable(timed.table(EVENTS)).delete(f"note = '{note}'")
        with pytest.raises(DamagedWarehouse, match=r"batch 9 of 'web' lost 1 of its 20 rows"):
            list(live_values(snapshot, view, ALL_TIME))
        DeltaTable(timed.table(EVENTS)).restore(before + 2 * number)
    DeltaTable(timed.table(EVENTS)).delete("note = 'night-1:40'")  # of history
    assert sum(len(chunk) for chunk in live_values(snapshot, view, ALL_TIME)) == values


def test_a_joined_file_has_the_plain_types(timed: Store) -> None:
    schema = pa.schema(tables.open_table(timed, EVENTS).schema())
    with RowFile(timed, schema) as file:
        file.write(with_plain_types(pa.table({field.name: pa.nulls(1, field.type) for field in schema})))
    assert pq.read_schema(f"{timed.table(EVENTS)}/{file.written().path}").types == schema.types
