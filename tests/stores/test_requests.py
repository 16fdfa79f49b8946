"""What the store is asked: pieces are read ahead, parts go up behind, and requests are counted."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.conftest import Place
from tests.stores.gate import Fault, rounds
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse import Tuning
from tidemark.warehouse.delta import write_behind
from tidemark.warehouse.delta.write_behind import WriteBehind
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.execution import executors
from tidemark.warehouse.integrity import read_ahead
from tidemark.warehouse.integrity.read_ahead import Range, ReadAhead

CONTENT = random.Random(5).randbytes(1000)
OFFSETS = st.integers(0, len(CONTENT))


class Counted(io.BytesIO):
    """A store with one file; it counts what is read of it."""

    def __init__(self) -> None:
        super().__init__(CONTENT)
        self.reads: list[tuple[int, int]] = []
        self.handler = self

    def open_input_file(self, _: str) -> Counted:
        return self

    def size(self) -> int:
        return len(CONTENT)

    def read_at(self, size: int, offset: int) -> bytes:
        self.reads.append((offset, size))
        return CONTENT[offset : offset + size]

    def read_ranges(self, _: str, ranges: Sequence[Range]) -> list[bytes]:
        return [self.read_at(stop - start, start) for start, stop in ranges]


@given(
    st.integers(1, 1200),
    st.integers(1, 400),
    st.integers(0, 1200),
    st.lists(st.tuples(st.sampled_from(["expect", "at once", "read"]), OFFSETS, OFFSETS)),
)
def test_what_is_read_ahead_is_what_is_there(
    whole: int, piece: int, at_once: int, steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ahead, "WHOLE_BYTES", whole)
        patch.setattr(read_ahead, "PIECE_BYTES", piece)
        patch.setattr(read_ahead, "AT_ONCE_BYTES", at_once)
        counted = Counted()
        file = ReadAhead(counted, "file")
        for step, first, second in steps:
            if step == "expect":
                file.expect(first, second)
            elif step == "at once":
                file.read_at_once([(min(first, second), max(first, second)), (first // 2, first // 2 + 50)])
            else:
                file.seek(first)
                assert file.read(second) == CONTENT[first : first + second]
        file.seek(0)
        assert file.read() == CONTENT


def test_an_expected_range_is_read_in_pieces_and_a_small_object_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_ahead, "PIECE_BYTES", 400)
    for whole, reads in ((100, [(100, 400), (500, 100)]), (1000, [(0, 1000)])):
        monkeypatch.setattr(read_ahead, "WHOLE_BYTES", whole)
        counted = Counted()
        file = ReadAhead(counted, "file")
        file.expect(100, 600)
        file.seek(100)
        for _ in range(50):
            file.read(10)
        assert counted.reads == reads


@pytest.mark.parametrize("is_broken", [False, True])
def test_columns_that_are_needed_next_are_read_in_one_round(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Of a row group of `events` that is too long to be read whole."""
    monkeypatch.setattr(executors, "AT_ONCE", 1)  # two tasks would read at the same time
    if is_broken:
        monkeypatch.setattr(read_ahead, "AT_ONCE_BYTES", 0)
    many, random_bytes = rows(0, 3000), random.Random(3).randbytes
    given = many
    for i in range(4):  # columns between those that a load reads
        given = given.add_column(2 * i, f"more{i}", pa.array(random_bytes(400) for _ in range(3000)))
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **{**HOW, "schema": given.schema}, **how)
    place.server.set(latency=LATENCY)
    warehouse.load(None, place.uri, given, "night-0", **how)
    files = re.compile(r"/events/\w+\.parquet")
    read = [one for one in place.server.requests() if one.method == "GET" and files.search(one.path)]
    assert (rounds(read) == len(read)) == is_broken
    place.server.set()
    check(query.open(place.uri, place.options), [many])


class Failing:
    """A file whose second write fails."""

    def __init__(self) -> None:
        self.written, self.closed = b"", False

    def write(self, content: bytes) -> None:
        if self.written:
            raise OSError("no second part")
        self.written += content

    def close(self) -> None:
        self.closed = True


def test_an_upload_that_fails_in_the_thread_fails_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "PIECE_BYTES", 10)
    below = Failing()
    file = WriteBehind(below)
    file.write(b"0123456789")
    file.write(b"0123456789")
    with pytest.raises(OSError, match="no second part"):
        file.close()
    assert (below.written, below.closed, file.closed) == (b"0123456789", False, True)


def test_a_part_that_is_refused_stops_the_load_and_nothing_is_committed(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    for part in ("events", "runs", "marks"):
        place.server.set(Fault("403", "PUT", rf"/{part}/.*\.parquet"))
        with pytest.raises(StoreUnavailable, match="not allowed"):
            warehouse.load(None, place.uri, rows(0), "night-0", **how)
    place.server.set()
    assert warehouse.load(None, place.uri, rows(0), "night-0", **how).outcome == "loaded"
    check(query.open(place.uri, place.options), [rows(0)])


def test_sizes_in_the_log_are_those_of_the_objects(place: Place) -> None:
    """Writers know the size of a file without asking the store. Chunks and merges are included."""
    how: dict[str, Any] = {
        "storage_options": place.options,
        "tuning": Tuning(sort_rows=50, block_rows=16, group_rows=40, slice_rows=64, file_rows=(64, 128)),
    }
    warehouse.create(None, place.uri, ["ms"], **HOW, storage_options=place.options)
    for number in range(4):
        warehouse.load(None, place.uri, rows(number), f"night-{number}", **how)
    stream.append(None, place.uri, rows(4), source="web", batch=0, **how)
    check(query.open(place.uri, place.options), map(rows, range(5)))
    assert warehouse.verify(place.uri, storage_options=place.options).ok
    assert not any("_chunks" in request.path for request in place.server.requests())


# A change that adds requests has to raise these, with a reason.
# Three rounds of a load are looks: at its rows, at its runs, and at the runs before it plans.
MOST_OF_A_LOAD = {"requests": 44, "rounds": 17}
MOST_OF_A_BATCH = {"requests": 30, "rounds": 8}
# With it, requests that are sent at once begin before the first has ended, also on a busy machine.
LATENCY = 0.3


def test_a_load_and_a_batch_wait_for_few_requests(place: Place) -> None:
    """Of a warehouse with one measure; requests that wait for one another make a round each."""
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **{**HOW, "key": None}, **how)
    place.server.set(latency=LATENCY)
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    loaded = place.server.requests()
    assert len(loaded) <= MOST_OF_A_LOAD["requests"]
    assert rounds(loaded) <= MOST_OF_A_LOAD["rounds"]
    place.server.set(latency=LATENCY)
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    appended = place.server.requests()
    assert len(appended) <= MOST_OF_A_BATCH["requests"]
    assert rounds(appended) <= MOST_OF_A_BATCH["rounds"]
