"""Tables that are opened again: each is as its log says, whoever wrote, removed or replaced entries."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import Transaction

from tests.soak import DRAWS
from tidemark.warehouse.delta import data_files, idle_tables, table_facts, table_open, tables
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import TableFacts
from tidemark.warehouse.errors import NotAWarehouse, TidemarkError

NAME = "runs/x"
SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.from_uri(tmp_path / "w")
    tables.create(store, NAME, SCHEMA, properties={"delta.checkpointInterval": "3"})
    return store


def log(store: Store) -> Path:
    return Path(store.table(NAME), "_delta_log")


def state(table: DeltaTable | None) -> Any:
    """All that the warehouse asks a table for."""
    if table is None:
        return None
    files = sorted((file.path, file.rows) for file in data_files.list_files(table))
    properties = sorted(table.metadata().configuration.items())
    newest = [tables.newest_transaction(table, name) for name in ("app", "other")]
    return table.version(), files, properties, table.schema().to_json(), newest


def told(store: Store, find: Callable[[Store], DeltaTable | None]) -> Any:
    try:
        return state(find(store))
    except TidemarkError as error:
        return type(error)


def check(store: Store) -> None:
    """The kept table, if there is one, is as one that is opened from the log; so is the one after it."""
    for _ in range(2):
        found = told(store, lambda store: tables.open_table(store, NAME))
        assert found == told(store, _from_log)


def _from_log(store: Store) -> DeltaTable:
    idle_tables.forget(store)
    return tables.open_table(store, NAME)


def add(store: Store, number: int) -> None:
    """A commit of the warehouse, with a checkpoint after some."""
    file = data_files.write_file(
        store, NAME, pa.table({"x": [number]}), f"{data_files.unique_name()}.parquet"
    )
    assert Race(store, NAME).commit([file], transactions=[Transaction("app", number)])


def add_as_others(store: Store, number: int) -> None:
    write_deltalake(store.table(NAME), pa.table({"x": [number]}), mode="append")


def set_property(store: Store, number: int) -> None:
    assert Race(store, NAME).change(NewProperties({"tidemark.kappa": str(number)}))


def lose_newest(store: Store, _: int) -> None:
    """As a copy of the log from before; others go on from there."""
    if len(list(log(store).glob("*.json"))) > 1:
        shutil.rmtree(log(store) / "_last_checkpoint", ignore_errors=True)
        (log(store) / "_last_checkpoint").unlink(missing_ok=True)
        for path in log(store).glob("*.checkpoint.parquet"):
            path.unlink()
        max(log(store).glob("*.json")).unlink()


def go_on_elsewhere(store: Store, number: int) -> None:
    """The newest entry is lost, and another writer commits another one in its place."""
    lose_newest(store, number)
    if Path(store.table(NAME), "_delta_log").joinpath(f"{0:020d}.json").exists():
        add_as_others(store, number)


def edit_newest(store: Store, number: int) -> None:
    """An entry says something else from now on, as long as before."""
    path = max(log(store).glob("*.json"))
    path.write_text(path.read_text().replace('"tidemark 0', f'"tidemark {number % 10}'))


def tear_newest(store: Store, _: int) -> None:
    path = max(log(store).glob("*.json"))
    path.write_bytes(path.read_bytes()[:-9])


def make_anew(store: Store, _: int) -> None:
    shutil.rmtree(store.table(NAME))
    tables.create(store, NAME, SCHEMA, properties={"delta.checkpointInterval": "3"})


def lose_all(store: Store, _: int) -> None:
    shutil.rmtree(store.table(NAME))


WRITES = [add, add, add, add_as_others, set_property]
HARMS = [lose_newest, go_on_elsewhere, edit_newest, make_anew]


@pytest.mark.parametrize("seed", range(4 * DRAWS))
def test_a_table_is_what_its_log_says_whatever_happened_to_it(store: Store, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(14):
        draw.choice(WRITES if draw.random() < 0.7 else HARMS)(store, number)
        if draw.random() < 0.7:
            check(store)
            tables.open_table(store, NAME)
    check(store)


@pytest.mark.parametrize("harm", [tear_newest, lose_all])
def test_damage_is_told_as_without_a_kept_table(store: Store, harm: Callable[[Store, int], None]) -> None:
    add(store, 0)
    tables.open_table(store, NAME)
    harm(store, 0)
    check(store)
    with pytest.raises(NotAWarehouse):
        tables.open_table(store, NAME)


def test_a_kept_log_that_is_taken_for_the_same_by_its_names_is_caught(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: files of a log are compared by name alone."""
    add(store, 0)
    tables.open_table(store, NAME)
    true = idle_tables._stamps
    monkeypatch.setattr(idle_tables, "_stamps", lambda *of: dict.fromkeys(true(*of) or (), (0, 0, 0)))
    tables.open_table(store, NAME)
    go_on_elsewhere(store, 1)
    with pytest.raises(AssertionError):
        check(store)


def _facts_of_any_version(table: DeltaTable) -> TableFacts:
    """The broken variant: what was asked of a table is kept with it whatever its version."""
    return table_facts.all_facts(table).setdefault(0, TableFacts())


def asked(store: Store) -> tuple[int, int, int]:
    """The files, the newest transaction, and what is made of the rows: their sum."""
    table = tables.open_table(store, NAME)
    made = table_facts.facts_of(table).made
    if "sum" not in made:
        made["sum"] = sum(data_files.read(store, NAME, table).column("x").to_pylist())
    return len(data_files.list_files(table)), tables.newest_transaction(table, "app"), made["sum"]


@pytest.mark.parametrize("is_broken", [False, True])
def test_files_transactions_and_what_is_made_of_rows_are_asked_for_once_for_each_version(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    for module in (data_files, tables, table_facts) if is_broken else ():
        monkeypatch.setattr(module, "facts_of", _facts_of_any_version)
        monkeypatch.setattr(tables, "know_newest", lambda *_: None)
    add(store, 3)
    first = asked(store)
    with monkeypatch.context() as patch:  # the next user of the table asks neither delta-rs nor its files
        for name in ("get_add_actions", "transaction_version"):
            patch.setattr(DeltaTable, name, lambda *_, **__: pytest.fail("asked again"))
        patch.setattr(data_files, "read_file", lambda *_: pytest.fail("read again"))
        assert asked(store) == first == (1, 3, 3)
    add(store, 4)
    found = asked(store)
    assert all(one != expected for one, expected in zip(found, (2, 4, 7), strict=True)) is is_broken
    assert (found == (2, 4, 7)) is not is_broken


@pytest.mark.parametrize("is_broken", [False, True])
def test_after_a_commit_its_transactions_are_known(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """Those that it set, and those that were asked for before; the broken variant forgets the former."""
    if is_broken:
        knows = table_facts.know_newest
        monkeypatch.setattr(
            tables, "know_newest", lambda table, version, _: knows(table, version, {"app": None})
        )
    assert tables.newest_transaction(tables.open_table(store, NAME), "other") == -1
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "transaction_version", lambda *_: pytest.fail("asked"))
        add(store, 3)
        add(store, 4)
        table = tables.open_table(store, NAME)
        found = tables.newest_transaction(table, "app")
        assert (found == 4) is not is_broken
        assert {*table_facts.all_facts(table)} == {table.version()}  # of older ones nothing stays
        if not is_broken:
            assert tables.newest_transaction(table, "other") == -1
        del table
    add_as_others(store, 5)
    assert tables.newest_transaction(tables.open_table(store, NAME), "app") == 4


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_table_that_is_in_use_is_nobody_else_s(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    """The broken variant takes a table for idle although it is in use: its version changes under the user."""
    if is_broken:
        monkeypatch.setattr(idle_tables, "weakref", SimpleNamespace(ref=lambda _: lambda: None))
    mine, other = tables.open_table(store, NAME), tables.open_table(store, NAME)
    add(store, 0)
    newest = tables.open_table(store, NAME)
    assert ((mine.version(), other.version(), newest.version()) == (0, 0, 1)) is not is_broken


@pytest.mark.parametrize("find", [tables.open_tables, tables.find_tables], ids=["open", "find"])
def test_a_table_that_lost_a_race_is_not_opened_again(store: Store, find: Any) -> None:
    (table,) = find(store, NAME)
    add_as_others(store, 0)
    file = data_files.write_file(store, NAME, pa.table({"x": [1]}), "a.parquet")
    assert tables.commit(table, [file]) is not None
    raw = table._table
    del table
    assert find(store, NAME)[0]._table is not raw
    check(store)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that are read from their logs from now on."""
    found, read = list[str](), table_open.open_directly

    def watched(store: Store, name: str) -> DeltaTable:
        found.append(name)
        return read(store, name)

    monkeypatch.setattr(tables, "open_directly", watched)
    return found


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_table_is_not_read_again_after_its_creation_and_new_properties(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_broken: bool
) -> None:
    monkeypatch.setattr(NewProperties, "is_taken_up", not is_broken)
    found = reads(monkeypatch)
    assert state(tables.open_table(store, NAME))[0] == 0
    assert not found
    set_property(store, 7)
    table = tables.open_table(store, NAME)
    assert (table.version(), table.metadata().configuration["tidemark.kappa"]) == (1, "7")
    assert bool(found) is is_broken
    del table
    add(store, 1)
    check(store)


def test_a_table_that_others_changed_at_its_creation_is_as_its_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = idle_tables.created

    def late(store: Store, name: str, table: DeltaTable) -> None:
        add_as_others(store, 0)
        created(store, name, table)

    monkeypatch.setattr(idle_tables, "created", late)
    store = Store.from_uri(tmp_path / "others")
    tables.create(store, NAME, SCHEMA)
    check(store)


def test_what_nobody_uses_is_opened_again_and_a_process_keeps_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_tables, "MOST", 2)
    monkeypatch.setattr(idle_tables, "_kept", [])
    stores = [Store.from_uri(tmp_path / str(number)) for number in range(3)]
    raws = []
    for store in stores:
        tables.create(store, NAME, SCHEMA)
        raws.append(tables.open_table(store, NAME)._table)
    again = [tables.open_table(stores[i], NAME)._table is raws[i] for i in (2, 1, 0)]
    assert again == [True, True, False]
    monkeypatch.setattr(idle_tables, "MOST_BYTES", 2)
    idle_tables.forget(stores[0])
    raw = tables.open_table(stores[0], NAME)._table
    assert tables.open_table(stores[0], NAME)._table is not raw
