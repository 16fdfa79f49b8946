"""A reader of a store needs few rounds of requests, and sees one moment whatever is committed meanwhile."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.gate import Fault
from tests.stores.rows import check
from tidemark import query, warehouse
from tidemark.query.asking import ask
from tidemark.warehouse.delta import far_files
from tidemark.warehouse.delta.far_files import FarFiles
from tidemark.warehouse.delta.round_trips import ByteRange, Rounds, in_rounds
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError, StoreUnavailable
from tidemark.warehouse.snapshots.far_tables import FarTables
from tidemark.warehouse.snapshots.needed import Needed
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader


def test_the_rounds_of_answers(place: Place) -> None:
    filled = Filled(place, 5, 10)
    opened: list[query.Warehouse] = []
    cold = filled.rounds_of(lambda: opened.append(filled.open()))
    (wh,) = opened
    assert cold + filled.rounds_of(lambda: wh.quantile(0.5)) <= 8
    assert filled.rounds_of(lambda: wh.quantile([0.05, 0.31, 0.93])) == 1
    assert filled.rounds_of(lambda: wh.quantile(0.5, mode="quick")) == 1
    filled.append()
    assert filled.rounds_of(lambda: wh.quantile(0.5, mode="quick")) <= 3
    filled.append()
    assert filled.rounds_of(lambda: wh.quantile(0.5)) <= 6
    patient = filled.open(max_staleness="1 hour")
    patient.quantile(0.5)
    assert filled.rounds_of(lambda: patient.quantile(0.5, mode="quick")) == 0
    assert filled.rounds_of(lambda: patient.quantile(0.77)) <= 1
    keys = filled.open()
    assert filled.rounds_of(lambda: keys.frequency("/1")) <= 7
    assert filled.rounds_of(lambda: keys.frequency("/2")) == 1
    check(wh, filled.committed)


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_answered_during_a_look_is_given_only_if_nothing_is_newer(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    if is_broken:
        monkeypatch.setattr(ask, "_is_same", lambda *_: True)
    filled = Filled(place, 2, 2)
    wh = filled.open()
    right: list[bool] = []
    nothing: Callable[[], object] = bool
    for change in (nothing, filled.append, nothing, filled.load, filled.move, nothing):
        change()
        whole = pa.concat_tables(filled.committed)
        ms = sorted(whole.column("ms").to_pylist())
        for phi in (0.2, 0.8):
            answer = wh.quantile(phi)  # exact, because the live rows are in memory
            right.append((answer.N, answer.value) == (len(ms), ms[math.ceil(phi * len(ms)) - 1]))
        count = wh.frequency("/1", mode="exact").count
        right.append(count == whole.column("page").to_pylist().count("/1"))
    assert all(right) != is_broken


def test_a_question_that_is_wrong_is_so_during_a_look(filled: Filled) -> None:
    wh = filled.open()
    wh.quantile(0.5)
    for _ in range(2):
        with pytest.raises(EmptyWindow):
            wh.quantile(0.5, between=("2020-01-01", "2020-01-02"))


def test_a_reader_may_be_as_old_as_it_was_told(filled: Filled) -> None:
    wh, patient = filled.open(), filled.open(max_staleness="1 hour")
    assert patient.rank(0.0).N == 400
    filled.append()
    assert (wh.rank(0.0).N, patient.rank(0.0).N) == (600, 400)
    assert patient.refresh()
    assert patient.rank(0.0).N == 600


def test_a_memory_that_holds_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_files, "CACHED_BYTES", 1)
    filled = Filled(place, 3, 2)
    check(filled.open(), filled.committed)


def looks_once(*_: object) -> None:
    """A broken reader: it does not look again at tables that come after one that changed."""


def interrupted_by(filled: Filled, when: int, get: Callable[..., Any]) -> Callable[..., Any]:
    """`FarFiles.get` that reads one file after the other, those of runs last.

    Before its read number `when` of a file of runs, a batch is streamed and moved to history.
    """
    reads = count()

    def one_by_one(self: FarFiles, ranges: Sequence[ByteRange]) -> list[bytes | None]:
        answers: dict[int, bytes | None] = {}
        for i in sorted(range(len(ranges)), key=lambda i: "runs/" in ranges[i].path):
            if "runs/" in ranges[i].path and next(reads) == when:
                filled.append()
                filled.move()
            (answers[i],) = get(self, [ranges[i]])
        return [answers[i] for i in range(len(ranges))]

    return one_by_one


@pytest.mark.parametrize("is_broken", [False, True])
def test_commits_between_the_requests_of_a_reader(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Whatever comes between two requests, an answer is that of one moment."""
    if is_broken:
        monkeypatch.setattr(FarTables, "_look_again", looks_once)
        monkeypatch.setattr(SnapshotReader, "_compare", lambda *_: (None, False))  # it looks again, too
    get, wrong = FarFiles.get, 0
    warm = filled.open()
    warm.quantile(0.5)
    for when, is_cold in [(0, False), (0, True), (1, True), (4, True)]:
        before = len(filled.committed)
        with monkeypatch.context() as patch:
            patch.setattr(FarFiles, "get", interrupted_by(filled, when, get))
            answer = (filled.open() if is_cold else warm).quantile(0.5, mode="exact")
        assert len(filled.committed) == before + 1
        medians = {}
        for until in (before, before + 1):
            values = sorted(pa.concat_tables(filled.committed[:until]).column("ms").to_pylist())
            medians[len(values)] = values[math.ceil(0.5 * len(values)) - 1]
        wrong += medians.get(answer.N) != answer.value
    assert wrong if is_broken else not wrong
    if not is_broken:
        check(filled.open(), filled.committed)


def test_a_folder_that_keeps_what_was_read(place: Place, tmp_path: Path) -> None:
    filled, folder = Filled(place, 2, 1), tmp_path / "a" / "cache"
    check(filled.open(cache=folder), filled.committed)
    place.server.set()
    check(filled.open(cache=folder), filled.committed)
    read = {
        request.path.split("/flights/")[1]
        for request in place.server.requests()
        if "/flights/" in request.path
    }
    assert all("_delta_log/" in path for path in read)
    for entry in folder.iterdir():
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content)
    check(filled.open(cache=folder), filled.committed)
    with pytest.raises(InputError, match="cannot be made"):
        filled.open(cache=next(folder.iterdir()))


def test_a_merge_and_maintenance_behind_a_patient_reader(place: Place) -> None:
    filled = Filled(place, 3, 1, kappa=3)
    patient = filled.open(max_staleness="1 hour")
    patient.quantile(0.5, mode="quick")
    filled.load()  # the fourth run: all are merged
    warehouse.maintain(None, place.uri, grace="0 s", **filled.how)
    answer = patient.quantile(0.31, mode="exact")
    values = sorted(pa.concat_tables(filled.committed).column("ms").to_pylist())
    assert (answer.N, answer.value) == (len(values), values[math.ceil(0.31 * len(values)) - 1])


def test_a_file_that_is_missing_is_named(place: Place) -> None:
    filled = Filled(place, 1, 0, kappa=2)
    wh = filled.open()
    files = warehouse.open_snapshot(place.uri, place.options).store.filesystem()
    wh.quantile(0.5, mode="quick")
    for info in files.get_file_info(fs.FileSelector("runs/ms", recursive=True)):
        if info.path.endswith(".parquet") and "run=" in info.path:
            files.delete_file(info.path)
    with pytest.raises(DamagedWarehouse, match=r"runs/ms/run=.* is missing\. Run `tidemark verify`"):
        wh.quantile(0.31)
    filled.load()
    with pytest.raises(DamagedWarehouse, match=r"is missing\. Run `tidemark verify`"):
        filled.load()  # and merge


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_look_that_the_store_interrupts(
    place: Place, filled: Filled, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The runs moved, and the steps could not be looked at: the next question looks at all tables."""
    if is_broken:
        look = FarTables.look

        def forgetting(self: FarTables, needed: Needed, _: object, max_age: float) -> list[str]:
            return look(self, needed, self.state, max_age)

        monkeypatch.setattr(FarTables, "look", forgetting)
        monkeypatch.setattr(SnapshotReader, "_compare", lambda *_: (None, False))  # it looks, too
    wh = filled.open()
    wh.quantile(0.5, mode="exact")
    filled.append()
    filled.move()
    place.server.set(Fault("403", path="flights/steps/"))
    with pytest.raises(StoreUnavailable, match="not allowed"):
        wh.quantile(0.5, mode="exact")
    place.server.set()
    values = sorted(pa.concat_tables(filled.committed).column("ms").to_pylist())
    answer = wh.quantile(0.5, mode="exact")
    is_right = (answer.N, answer.value) == (len(values), values[math.ceil(0.5 * len(values)) - 1])
    assert is_right != is_broken


def test_a_round_that_fails_ends_its_readings(place: Place) -> None:
    """The error is kept, as notebooks keep the last one; a lock that a reading holds must be free then."""
    lock, files = threading.Lock(), FarFiles(place.uri, place.options)

    def reading() -> Rounds[None]:
        with lock:
            yield [ByteRange("x"), ByteRange("y")]

    place.server.set(Fault("403"))
    with pytest.raises(OSError, match="403"):
        in_rounds(files, [reading()])
    assert not lock.locked()
