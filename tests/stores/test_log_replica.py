"""The copy of a table's log shows the version and files that delta-rs sees, whatever the log looks like."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler

from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tidemark.warehouse.delta import data_files, log_replica
from tidemark.warehouse.delta.grace import RETENTION
from tidemark.warehouse.delta.log_replica import LogReplica
from tidemark.warehouse.delta.round_trips import in_rounds
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse

LOG = "steps/_delta_log"


class World:
    """A table with the name `steps`."""

    def __init__(self, place: Place, **configuration: str) -> None:
        self.store = Store.from_uri(place.uri, place.options)
        self.uri, self.options = f"{place.uri}/steps", place.options
        self.configuration = {"delta.checkpointInterval": "1000", RETENTION: "interval 30 days"}
        self.configuration |= configuration
        self.written: DeltaTable | None = None
        self.copy = LogReplica(self.store, "steps")

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            rows = pa.table({"a": [1]})
            how: dict[str, Any] = {"mode": "append", "configuration": self.configuration}
            if self.written is None:
                write_deltalake(self.uri, rows, storage_options=self.options, **how)
                self.written = DeltaTable(self.uri, storage_options=self.options)
            else:
                write_deltalake(self.written, rows, **how)

    def checkpoint(self) -> None:
        DeltaTable(self.uri, storage_options=self.options).create_checkpoint()

    def read(self, name: str) -> bytes:
        with self.store.filesystem().open_input_stream(f"{LOG}/{name}") as stream:
            return bytes(stream.read())

    def write(self, name: str, content: bytes) -> None:
        client: Any = DeltaStorageHandler(self.store.uri, self.options)._handler
        stream = client.open_output_stream(f"{LOG}/{name}", None)
        stream.write(content)
        stream.close()

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.store.filesystem().delete_file(f"{LOG}/{name}")

    def check(self) -> None:
        """The copy catches up, and says that it did if there was anything."""
        table = DeltaTable(self.uri, storage_options=self.options)
        before = -1 if self.copy.table is None else self.copy.table.version()
        (changed,) = in_rounds(self.store.far_files, [self.copy.catch_up()])
        assert changed == (before != table.version())
        assert self.copy.table is not None
        assert self.copy.table.version() == table.version()
        here, there = ({file.path for file in data_files.list_files(one)} for one in (self.copy.table, table))
        assert here == there

    @property
    def is_copy(self) -> bool:
        return self.copy._folder is not None


def commits(versions: Iterable[int]) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def test_a_table_that_does_not_exist_yet(place: Place) -> None:
    world = World(place)
    assert in_rounds(world.store.far_files, [world.copy.catch_up()]) == [False]
    assert world.copy.table is None
    world.commit()
    world.check()
    assert world.is_copy


@pytest.mark.parametrize("after", [0, 4, 5, 28])
def test_commits_after_the_checkpoint(place: Place, after: int) -> None:
    world = World(place)
    world.commit(3)
    world.checkpoint()
    world.commit(after)
    world.check()
    world.check()
    world.commit()
    world.check()
    world.commit(after)
    world.check()
    assert world.is_copy


def test_a_log_that_was_cleaned_behind_its_checkpoint(place: Place) -> None:
    world = World(place)
    world.commit(4)
    world.checkpoint()
    world.commit(2)
    world.delete(commits(range(3)))
    world.check()
    assert world.is_copy


def test_a_hint_to_an_older_checkpoint(place: Place) -> None:
    world = World(place)
    world.commit(2)
    world.checkpoint()
    hint = world.read("_last_checkpoint")
    world.commit(8)
    world.checkpoint()
    world.write("_last_checkpoint", hint)
    world.check()
    assert world.is_copy
    world.delete([*commits(range(3)), f"{1:020d}.checkpoint.parquet"])  # as cleaning does
    world.store.far_files.logs.drop("steps")
    world.copy = LogReplica(world.store, "steps")
    world.check()
    assert not world.is_copy


@pytest.mark.parametrize(
    "hint",
    [b"no json", b"[1]", b'{"version": 3, "parts": 2}', b'{"version": 77}', b'{"version": "x"}'],
)
def test_a_hint_that_is_damaged_or_of_another_kind(place: Place, hint: bytes) -> None:
    world = World(place)
    world.commit(4)
    world.checkpoint()
    world.commit()
    world.write("_last_checkpoint", hint)
    world.check()
    assert not world.is_copy


def aged(world: World, version: int, age: timedelta) -> None:
    """Makes a commit older."""
    (name,) = commits([version])
    moment = int((datetime.now(UTC) - age).timestamp() * 1000)
    lines = [json.loads(line) for line in world.read(name).splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = moment
    world.write(name, "\n".join(map(json.dumps, lines)).encode())


@pytest.mark.parametrize(("days", "is_copy"), [(28, True), (30, False)])
def test_a_commit_that_may_have_been_cleaned(place: Place, days: int, is_copy: bool) -> None:
    """Commits behind an old one may be gone: a copy would end before them, delta-rs lists the log."""
    world = World(place)
    world.commit(2)
    world.checkpoint()
    hint = world.read("_last_checkpoint")
    world.commit(3)
    world.checkpoint()
    world.commit()
    world.write("_last_checkpoint", hint)
    if not is_copy:
        world.delete(commits([2, 3]))
    aged(world, 1, timedelta(days=days))
    aged(world, 5, timedelta(days=days))
    world.check()
    assert world.is_copy == is_copy
    world.commit()
    world.check()


def test_without_the_rule_of_age_a_reader_would_miss_commits(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_replica, "_is_trusted", lambda *_: True)
    with pytest.raises(AssertionError):
        test_a_commit_that_may_have_been_cleaned(place, 30, is_copy=False)


def test_a_log_that_is_kept_for_less_than_two_days(place: Place) -> None:
    world = World(place, **{RETENTION: "interval 1 hours"})
    world.commit(2)
    world.checkpoint()
    world.check()
    assert not world.is_copy
    world.commit()
    world.check()
    world.check()


def test_a_reader_that_slept_for_a_day_reads_the_log_anew(place: Place) -> None:
    world = World(place)
    world.commit(3)
    world.check()
    world.commit(3)
    world.checkpoint()
    world.delete(commits([3]))  # the next commit is gone
    world.copy.checked -= 86_401
    world.store.far_files.logs.drop("steps")
    world.check()


def test_a_store_that_fails_is_an_error_and_changes_nothing(place: Place) -> None:
    world = World(place)
    world.commit(3)
    world.check()
    world.commit()
    place.server.set(Fault("403"))
    with pytest.raises(OSError, match="403"):
        in_rounds(world.store.far_files, [world.copy.catch_up()])
    place.server.set()
    world.check()


def test_an_entry_nested_too_deep_is_told_however_the_log_is_opened(place: Place) -> None:
    """delta-rs, which ends the process, does not get it: in a fresh copy, an open one, or opened directly."""
    world, deep = World(place), b"[" * 100_000
    world.commit(2)
    world.check()
    (entry,) = commits([2])
    world.write(entry, deep)
    for copy in (world.copy, LogReplica(world.store, "steps")):
        with pytest.raises(DamagedWarehouse, match=rf"table steps .*{entry} nests"):
            in_rounds(world.store.far_files, [copy.catch_up()])
    world.delete([entry])
    world.write("_last_checkpoint", b'{"version":' + deep)
    world.store.files.forget()
    with pytest.raises(DamagedWarehouse, match=r"table steps .*_last_checkpoint nests"):
        in_rounds(world.store.far_files, [LogReplica(world.store, "steps").catch_up()])


def test_a_log_that_was_begun_anew_is_followed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open copy compares its newest entry; the broken variant never does, and stays with the old log."""
    world = World(place)
    world.commit(3)
    world.check()
    world.delete(commits(range(3)))
    world.written = None
    world.commit(2)
    with pytest.raises(AssertionError):
        world.check()
    monkeypatch.setattr(log_replica, "PROVED_SECONDS", 0)
    assert in_rounds(world.store.far_files, [world.copy.catch_up()]) == [True]
    world.check()
    world.commit()
    world.check()


@pytest.mark.parametrize("compares", [True, False])
def test_a_longer_log_that_was_begun_anew_is_not_taken_for_what_follows(
    place: Place, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """The first new entry makes an open copy compare its newest one; the broken variant mixes the logs."""
    world = World(place)
    world.commit(3)
    world.check()
    world.delete(commits(range(3)))
    world.written = None
    world.commit(5)
    if compares:
        assert in_rounds(world.store.far_files, [world.copy.catch_up()]) == [True]
        world.check()
        world.commit()
        world.check()
        return
    monkeypatch.setattr(LogReplica, "_has_newest", lambda *_: False)
    with pytest.raises(AssertionError):
        world.check()
