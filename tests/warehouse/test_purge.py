"""The right to be forgotten: after a purge no file of a warehouse has a row's text, or a hash of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, KEEPS, ONE, SCHEMA, START, TINY, GroupWorld, Row, check_quantile
from tests.warehouse.file_contents import files_with, forms_of_keys, forms_of_number, forms_of_text
from tidemark import query, stream, warehouse
from tidemark.warehouse import BatchMismatch, Certificate, InputError
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events import purges
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.events.removed_rows import read_batches
from tidemark.warehouse.events.step_facts import read_facts
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.removals import purge_files, purge_traces, upkeep

KEY = 'zebra-"k\u00e9y'
WHERE = f"origin = '{KEY}'"
HASHES = forms_of_keys(pa.array([KEY]))
TEXT = forms_of_text(KEY) | HASHES
FUTURE = datetime(2999, 1, 1, tzinfo=UTC)


def rows(number: int) -> list[Row]:
    """Thirty rows of batch `number`; of the fourth on, and in batch 1 of one row alone, KEY is the origin."""
    key = {3} if number == 1 else {3, 10, 17}
    return [
        (START + (number + i) * HOUR, KEY if i in key else "abc"[i % 3], i % 5, i + number / 8, None)
        for i in range(30)
    ]


def late(number: int) -> list[Row]:
    """Rows of a stream of which some are too far ahead of the clock: records of KEY and of another key."""
    return [*rows(number), (FUTURE, KEY, 1, 1.0, None), (FUTURE, "abc", 1, 1.0, None)]


def table_of(given: list[Row]) -> pa.Table:
    columns = {
        name: pa.array([row[i] for row in given], SCHEMA.types[i]) for i, name in enumerate(SCHEMA.names)
    }
    return pa.table(columns, schema=SCHEMA)


def grown(folder: Path, **options: Any) -> GroupWorld:
    """Three steps in history, of which two are one run, two live batches, and two rejected records."""
    made = GroupWorld.create(folder, ONE, **options)
    for number in range(4):
        made.add(rows(number), load=number < 3)
    assert append(made)
    made.rows += rows(4)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return grown(tmp_path_factory.mktemp("made"), groups=[], keys=["origin"])


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def append(world: GroupWorld) -> bool:
    return stream.append(None, world.path, table_of(late(4)), source="s", batch=4, tuning=TINY)


def purge(world: GroupWorld, where: str = WHERE, **options: Any) -> warehouse.RemovalReport:
    return warehouse.delete(None, world.path, where, purge=True, tuning=TINY, **options)


def maintain(world: GroupWorld, grace: str | None = "0s") -> list[Certificate]:
    return warehouse.maintain(None, world.path, grace=grace, tuning=TINY).purged


def store_of(world: GroupWorld) -> Store:
    return Store.from_uri(world.path)


def found(world: GroupWorld, forms: set[bytes] = TEXT) -> set[str]:
    """The tables that have one of the forms in a file; those of logs with the word log."""
    files = files_with(store_of(world).filesystem(), forms)
    named = (path.strip("/").split("/") for path in files)
    return {f"{parts[0]} log" if "_delta_log" in parts else parts[0] for parts in named}


def check(world: GroupWorld) -> None:
    """Every answer is that of the rows without KEY, and verify holds."""
    world.rows[:] = [row for row in world.rows if row[1] != KEY]
    world._truths.clear()
    wh = world.open()
    for mode in ("quick", "accurate", "exact"):
        for answer in wh.quantile([0, 0.4, 1], "value", mode=mode):
            check_quantile(answer, world.truth("value", {}, None), mode)
    own = world.truth("value", {"origin": "a"}, None)
    check_quantile(wh.quantile(0.5, "value", where={"origin": "a"}, mode="exact"), own, "exact")
    assert wh.frequency(KEY).count == 0
    assert wh.frequency("b", mode="exact").count == sum(row[1] == "b" for row in world.rows)
    report = warehouse.verify(world.path)
    assert report.ok, [one for one in report.checks if not one.ok]


def test_after_a_purge_no_file_has_the_text_or_its_hash(tmp_path: Path) -> None:
    world = grown(tmp_path, groups=["origin"])
    before, reader = found(world), world.open()
    assert {"events", "events log", "keys", "key_marks", "group_runs", "ledger", "rejected"} <= before
    assert found(world, HASHES) == {"key_marks", "ledger"}
    report = purge(world, request="ticket-17")
    left = report.certificate
    assert left is not None
    assert (report.outcome, report.rows, left.stage, left.rows) == ("removed", 13, "left", 13)
    with pytest.raises(InputError, match="its rows were purged"):
        warehouse.restore(world.path, removal=0)
    with pytest.raises(InputError, match="were purged since"):
        query.open(world.path, at=1)
    assert left.records == (("s", 4, 1),)
    assert maintain(world, None) == []  # readers may need the old files for the grace
    assert found(world) >= before - {"rejected"}
    (one,) = maintain(world)
    assert (one.id, one.stage, one.waits, one.request) == (left.id, "gone", (), "ticket-17")
    assert one.deleted > 0
    assert one.listing is not None
    assert one.listing["rejected"] > 0
    assert found(world) == set()
    assert warehouse.certificates(world.path) == [one]
    assert Certificate.from_json(json.loads(json.dumps(one.to_json()))) == one
    check(world)
    assert len(world.rows) == reader.quantile(0.5, "value").N  # its log was cut
    world.add([row for row in rows(5) if row[1] != KEY], load=True)
    check(world)
    assert purge(world, request="ticket-17").certificate == one
    assert maintain(world) == []


def test_what_came_and_left_by_all_ways_is_purged(tmp_path: Path) -> None:
    """Kept rows, feeds, indexes with columns beside them, keys of several columns, and other names."""
    world = grown(tmp_path, groups=["origin"], keys=[["number", "origin"]])
    uri = world.path
    assert not warehouse.delete(None, uri, f"{WHERE} AND number = 3", tuning=KEEPS).runs_rewritten
    came: list[Row] = [(START, KEY, number, 1.5, None) for number in (77, 78)]
    for batch, kinds in (("feed", ["insert", "insert"]), ("more", ["delete", "insert"])):
        rows = table_of(came).append_column("_change_type", pa.array(kinds))
        assert warehouse.correct(None, uri, batch=batch, changes=rows, tuning=KEEPS).outcome == "corrected"
        came = [came[0], (START, KEY, 79, 1.5, None)]
    warehouse.alter(None, uri, rename={"origin": "who"})
    warehouse.alter(None, uri, add_index={"on": "number", "include": ["who"]}, tuning=TINY)
    warehouse.alter(None, uri, add_index="who", tuning=TINY)
    hashes = hashes_of_pairs(world)
    assert {"key_marks"} <= found(world, hashes)
    assert {"events", "index_runs", "index_marks", "keys", "group_runs", "removed", "rejected"} <= found(
        world
    )
    report = purge(world, f"who = '{KEY}'", grace="0s")
    assert report.certificate is not None
    assert (report.certificate.stage, found(world, TEXT | hashes)) == ("gone", set())
    assert "copies and backups of the warehouse" in report.certificate.outside[0]
    wh = world.open()
    assert wh.sql("SELECT count(*) FROM events WHERE number > 70").fetchall() == [(0,)]
    assert wh.frequency((77, KEY), key=["number", "who"]).count == 0
    assert warehouse.verify(uri).ok


def hashes_of_pairs(world: GroupWorld) -> set[bytes]:
    """The hashes of KEY with each number as a key of two columns."""
    numbers = [*range(5), 77, 78, 79]
    asked = pa.table({"number": pa.array(numbers, pa.int64()), "who": [KEY] * len(numbers)})
    names = warehouse.read_options(store_of(world)).key_count(["number", "who"]).key.encode(asked).names
    return forms_of_keys(names)


def test_what_left_before_is_purged_too_with_the_hashes_of_its_rows(world: GroupWorld) -> None:
    warehouse.delete(None, world.path, WHERE, tuning=TINY)
    hashes, pairs = hashes_of_removed(world), pairs_of_samples(world)
    assert found(world, hashes) == {"removed"}
    report = purge(world, grace="0s")
    assert report.certificate is not None
    assert (report.outcome, report.removal, report.certificate.stage) == ("empty", None, "gone")
    assert found(world, TEXT | hashes) == set()
    renewed = pairs_of_samples(world)
    assert pairs - renewed  # the samples had removed rows
    warehouse.load(None, world.path, table_of([row for row in rows(1) if row[1] != KEY]), "copy", tuning=TINY)
    facts = facts_of(world)
    assert facts[1].sample == facts[4].sample  # that of the rows that are left
    world.rows += rows(1)
    check(world)


def hashes_of_removed(world: GroupWorld) -> set[bytes]:
    """The fingerprints of removed rows by batch; of batch 1 that is the hash of one row."""
    store = store_of(world)
    removed = removed_at(store, tables.open_table(store, "events"))
    digests = [batch.digest for one in removed.removals for batch in read_batches(store, one.file)]
    return {form for digest in digests if digest is not None for form in forms_of_number(digest)}


def facts_of(world: GroupWorld) -> Any:
    store = store_of(world)
    return read_facts(store, data_files.list_files(tables.open_table(store, STEPS)))


def pairs_of_samples(world: GroupWorld) -> set[Any]:
    samples = [one.sample for one in facts_of(world).values() if one.sample is not None]
    return {pair for sample in samples for pair in sample.pairs}


def test_a_purge_that_is_killed_at_any_point_goes_on_with_the_same_call(world: GroupWorld) -> None:
    for point in ("removal planned", "records purged", "digests purged", "fences put"):
        with pytest.raises(Killed):
            purge(world, request="r", progress=killer(point))
        assert not append(world), "the batch is known, with the records that left"
    report = purge(world, request="r", grace="0s")
    assert report.certificate is not None
    assert (report.outcome, report.certificate.stage, report.certificate.rows) == ("known", "gone", 13)
    assert report.certificate.records == (("s", 4, 1),)
    assert found(world) == set()
    check(world)
    another = purge(world)
    assert another.certificate is not None
    assert another.certificate.records == (), "each record is counted by one purge"
    assert not append(world)


def test_a_certificate_that_is_killed_goes_on_with_the_next_maintenance(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge(world)
    with monkeypatch.context() as patch:
        patch.setattr(purges, "commit_certificate", _killed)
        with pytest.raises(Killed):
            maintain(world)
    check(world)
    (one,) = maintain(world)
    assert (one.stage, found(world)) == ("gone", set())


def _killed(*_: object) -> None:
    raise Killed


def nothing(*_: object) -> None:
    """In the place of a part of a purge."""


@pytest.mark.parametrize(
    ("module", "name", "broken", "has"),
    [
        (purge_files, "_cut_logs", nothing, {"events log", "keys log"}),
        (purge_traces, "_forget_records", lambda *_: [], {"rejected"}),
        (purge_traces, "forget_digests", nothing, {"removed"}),
    ],
)
def test_without_a_part_of_a_purge_the_search_finds_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, has: set[str]
) -> None:
    world = GroupWorld.create(tmp_path, ONE, groups=[], keys=["origin"])
    world.add(rows(1), load=True)
    append(world)
    warehouse.load(None, world.path, tuning=TINY)
    warehouse.delete(None, world.path, WHERE, tuning=TINY)
    hashes = hashes_of_removed(world)
    monkeypatch.setattr(module, name, broken)
    purge(world)
    assert maintain(world)[0].stage == "gone"
    assert found(world, TEXT | hashes) >= has


def test_what_may_have_the_rows_holds_the_certificate_back(world: GroupWorld) -> None:
    (key_file, *_) = (world.path / "keys" / "origin").rglob("*.parquet")
    purge(world)
    (waiting,) = purge_files.certify(
        store_of(world), warehouse.read_options(store_of(world)), purge_files.due(store_of(world), 0), 0
    )
    assert waiting.stage == "left"
    told = " ".join(waiting.waits)
    assert "events are kept" in told
    assert "keys/origin are kept" in told
    assert "ledger has a summary of batch 3" in told
    assert key_file.exists()
    assert warehouse.certificates(world.path)[0].stage == "left"


def test_a_batch_that_lost_rows_to_a_purge_is_known_by_its_number_of_rows(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge(world, grace="0s")
    given = rows(1)
    assert warehouse.load(None, world.path, table_of(given), "batch 1", tuning=TINY).outcome == "known"
    with pytest.raises(BatchMismatch, match="30 rows are stored, 29 came"):
        warehouse.load(None, world.path, table_of(given[1:]), "batch 1", tuning=TINY)
    assert not append(world)
    check(world)
    monkeypatch.setattr(same_rows, "purged_records", lambda *_: 0)  # the broken variant
    with pytest.raises(BatchMismatch, match="other rows"):
        append(world)


def test_what_was_dropped_is_purged(world: GroupWorld) -> None:
    warehouse.alter(None, world.path, drop_key="origin", tuning=TINY)
    assert purge(world, grace="0s").certificate is not None
    assert (warehouse.certificates(world.path)[0].stage, found(world)) == ("gone", set())


def test_keys_are_purged_with_the_records_that_have_their_texts(world: GroupWorld) -> None:
    keys = pa.table({"origin": [KEY, "nobody"], "number": pa.array([3, 1], pa.int64())})
    report = warehouse.delete(None, world.path, keys=keys, purge=True, tuning=TINY)
    assert report.certificate is not None
    assert (report.outcome, report.certificate.records) == ("removed", (("s", 4, 1),))
    nobody = warehouse.delete(None, world.path, keys=keys.slice(0, 0), purge=True, tuning=TINY)
    assert nobody.certificate is not None
    assert (nobody.outcome, nobody.certificate.records) == ("empty", ())


def test_without_a_constant_all_rejected_records_leave(world: GroupWorld) -> None:
    assert "rejected" in found(world, forms_of_text("abc"))
    report = purge(world, "origin IS NULL")
    assert report.certificate is not None
    assert report.certificate.records == (("s", 4, 2),)
    assert report.outcome == "empty"


def test_what_is_no_purge_is_refused_or_changes_nothing(world: GroupWorld) -> None:
    with pytest.raises(InputError, match="is for a purge"):
        warehouse.delete(None, world.path, WHERE, grace="0s")
    with pytest.raises(InputError, match="is for a purge"):
        purge(world, dry_run=True, grace="0s")
    with pytest.raises(InputError, match="not a duration"):
        purge(world, grace="soon")
    with pytest.raises(InputError, match="no column"):
        purge(world, "nobody = 'x'")
    told = purge(world, dry_run=True)
    assert (told.outcome, told.certificate) == ("planned", None)
    assert warehouse.certificates(world.path) == []
    assert not (world.path / "purges").exists()
    assert upkeep.wanted_files(store_of(world)) == set()
