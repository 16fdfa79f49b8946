"""Objects read and put with one request: in which stores, and what a commit through a copy leaves behind."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.gate import Fault
from tests.stores.rows import HOW
from tidemark.warehouse.delta import (
    commits,
    far_files,
    log_replica,
    object_client,
    s3_options,
    table_open,
    tables,
)
from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.far_files import FarFiles
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.s3_options import s3_client_at
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, STEPS

KEYS = {"AWS_ACCESS_KEY_ID": "a", "aws_secret_access_key": "b"}
PLACED = {**KEYS, "AWS_REGION": "eu-central-1"}


@pytest.fixture(autouse=True)
def no_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_options, "_PROFILES", ())


@pytest.mark.parametrize(
    ("uri", "options", "is_known"),
    [
        ("s3://b/w", PLACED, True),
        ("s3://b/w", {**KEYS, "endpoint_url": "http://127.0.0.1:1", "allow_http": "true"}, True),
        ("s3://b/w", {**PLACED, "AWS_CA_BUNDLE": "x", "token": "t", "conditional_put": "etag"}, True),
        ("s3://b/w", {"region": "eu-central-1"}, True),  # the role of a machine
        ("s3://b/w", KEYS, False),
        ("s3://b/w", {**PLACED, "AWS_PROFILE": "p"}, False),
        ("s3://b/w", {**PLACED, "AWS_S3_LOCKING_PROVIDER": "dynamodb"}, False),
        ("s3://b/w", {**PLACED, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, False),
        ("s3://b/w", {**PLACED, "aws_conditional_put": "disabled"}, False),
        ("s3://b/w", {**PLACED, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, False),
        ("s3://b/w", {**PLACED, "aws_checksum_algorithm": "none of them"}, False),
        ("gs://b/w", {}, False),
        ("abfss://c@a.dfs.core.windows.net/w", {}, False),
    ],
)
def test_who_writes_to_a_store(uri: str, options: dict[str, str], is_known: bool) -> None:
    assert (s3_client_at(uri, options) is not None) == is_known


def test_a_machine_with_profiles_takes_its_credentials_from_delta_rs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").touch()
    monkeypatch.setattr(s3_options, "_PROFILES", (("AWS_SHARED_CREDENTIALS_FILE", "/nowhere"),))
    options = {"AWS_REGION": "eu-central-1"}
    assert s3_client_at("s3://b/w", options) is not None
    options["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / "credentials")
    assert s3_client_at("s3://b/w", options) is None
    assert s3_client_at("s3://b/w", {**options, **KEYS}) is not None


def test_without_obstore_delta_rs_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_options, "find_spec", lambda _: None)
    assert s3_client_at("s3://b/w", PLACED) is None


def test_an_object_is_put_new_only_once(place: Place) -> None:
    mine = s3_client_at(place.uri, place.options)
    assert mine is not None

    def put(number: int) -> bool:
        try:
            mine.put_new("a/b", b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(put, range(8)))
    assert sum(done) == 1
    files = Store.from_uri(place.uri, place.options).filesystem()
    with files.open_input_stream("a/b") as stream_:
        assert stream_.read() == b"%d" % done.index(True)
    mine.put("a/b", b"other")
    with files.open_input_stream("a/b") as stream_:
        assert stream_.read() == b"other"
    place.server.set(Fault("403", "PUT"))
    with pytest.raises(OSError, match="403 Forbidden"):
        mine.put("a/c", b"")


@pytest.mark.parametrize("is_known", [True, False])
def test_bytes_are_read_as_by_delta_rs(place: Place, monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    content = bytes(range(100))
    with Store.from_uri(place.uri, place.options).filesystem().open_output_stream("a/b c=1") as file:
        file.write(content)
    if not is_known:
        monkeypatch.setattr(far_files, "s3_client_at", lambda *_: None)
    files = FarFiles(place.uri, place.options)
    assert (files.objects is not None) == is_known
    ranges = [(0, None), (0, 10), (20, 30), (99, 100), (90, None), (90, 200)]
    found = files.get(
        [ByteRange("a/b c=1", *one) for one in ranges] + [ByteRange("a/c"), ByteRange("d", 5, 9)]
    )
    assert found == [*(content[start:stop] for start, stop in ranges), None, None]
    place.server.set(Fault("403", "GET"))
    with pytest.raises(OSError, match="403 Forbidden"):
        files.get([ByteRange("a/b c=1")])


@pytest.mark.parametrize("is_tried_again", [True, False])
def test_an_answer_that_stops_half_way_is_asked_for_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_tried_again: bool
) -> None:
    """The library does so for the bytes of an object, and not for the answer that there is none."""
    if not is_tried_again:
        monkeypatch.setattr(object_client, "_READS", 1)
    files = FarFiles(place.uri, {**place.options, "AWS_TIMEOUT": "0.5s"})
    assert files.objects is not None
    files.objects.put("a", b"content")
    place.server.set(Fault("stalled", "GET", times=1, seconds=1))
    assert files.get([ByteRange("a")]) == [b"content"]
    place.server.set(Fault("stalled", "GET", times=1, seconds=1))
    with nullcontext() if is_tried_again else pytest.raises(OSError, match="body error"):
        assert files.get([ByteRange("b")]) == [None]
    place.server.set(Fault("stalled", "GET", seconds=1))
    with pytest.raises(OSError, match="body error"):
        files.get([ByteRange("b")])


def test_where_only_delta_rs_knows_how_to_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_files, "s3_client_at", lambda *_: None)
    far_files.far_files.cache_clear()
    filled = Filled(place, kappa=HOW["kappa"])
    for _ in range(2):
        filled.load()
        assert filled.append()
        assert filled.append()
    filled.move()
    filled.check()
    requests = [one for one in place.server.requests() if one.method == "POST"]
    assert any("?uploads" in one.path for one in requests)  # also small files go up in parts
    far_files.far_files.cache_clear()


def test_checkpoints_that_were_put_are_those_of_delta_rs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every table opens from its checkpoint alone, and the log is cleaned with every second one."""
    monkeypatch.setattr(log_replica, "CHECKPOINTS_BETWEEN_CLEANINGS", 2)
    filled = Filled(place, kappa=HOW["kappa"])
    cleaned, open_directly = [], table_open.open_directly

    def spy(store: Store, name: str) -> DeltaTable:
        cleaned.append(name)
        return open_directly(store, name)

    monkeypatch.setattr(table_open, "open_directly", spy)
    for _ in range(8):
        filled.load()
    monkeypatch.undo()
    for _ in range(20):
        assert filled.append()
    assert STEPS in cleaned
    filled.check()
    files = Store.from_uri(place.uri, place.options).filesystem()
    for name in (STEPS, EVENTS, "ledger", "marks/ms", "runs/ms"):
        uri = f"{place.uri}/{name}"
        before = DeltaTable(uri, storage_options=place.options)
        version = before.version()
        log = f"{name}/_delta_log"
        with files.open_input_stream(f"{log}/_last_checkpoint") as hint:
            newest = int(hint.read().split(b'"version":')[1].split(b",")[0].rstrip(b"}"))
        for old in range(newest + 1):
            files.delete_file(f"{log}/{old:020d}.json")
        after = DeltaTable(uri, storage_options=place.options)
        assert after.version() == version
        assert sorted(after.file_uris()) == sorted(before.file_uris())
    filled.check()


def test_a_checkpoint_that_cannot_be_put_fails_no_commit(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    filled = Filled(place, kappa=HOW["kappa"])
    place.server.set(Fault("403", "PUT", r"checkpoint"))
    for _ in range(5):
        filled.load()
    assert any("no checkpoint of version" in one.message for one in caplog.records)
    place.server.set()
    filled.check()


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_copy_that_lost_a_race_is_not_used_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Its newest entry is in no log. Where it is taken for the log's, it shows a commit that nobody made."""
    filled = Filled(place, kappa=HOW["kappa"])
    store = Store.from_uri(place.uri, place.options)
    mine = tables.open_table(store, STEPS)
    theirs = tables.open_table(store, STEPS)
    assert commits.commit_change(theirs, NewProperties({"tidemark.test": "theirs"})) is None
    assert commits.commit_change(mine, NewProperties({"tidemark.test": "mine"})) is not None
    if is_broken:
        monkeypatch.setattr(log_replica.LogReplica, "_is_at", lambda *_: True)
    tables.give_back(mine)
    opened = tables.open_table(store, STEPS)
    assert opened.metadata().configuration["tidemark.test"] == ("mine" if is_broken else "theirs")
    monkeypatch.undo()
    filled.load()
    filled.check()


def test_a_large_object_goes_up_in_parts_and_is_there_whole_or_not_at_all(place: Place) -> None:
    content = random.Random(5).randbytes(3 * object_client.PART_BYTES // 2)
    files = Store.from_uri(place.uri, place.options).filesystem()
    place.server.set()
    with files.open_output_stream("a/large") as file:
        file.write(content)
    assert sum("partNumber=" in one.path for one in place.server.requests()) == 2
    with files.open_input_stream("a/large") as file:
        assert file.read() == content
    place.server.set(Fault("403", "PUT", "partNumber=2"))
    with pytest.raises(OSError, match="403 Forbidden"), files.open_output_stream("a/other") as file:
        file.write(content)
    place.server.set()
    assert files.get_file_info("a/other").type == fs.FileType.NotFound
