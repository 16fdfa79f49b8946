"""The origins of rows: pieces that are composed, told in a footer, and kept when other rows leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events import origins
from tidemark.warehouse.events.origins import (
    Origins,
    OriginsCollector,
    StayingOrigins,
    file_id,
    origins_in,
    origins_of,
)
from tidemark.warehouse.ingest.event_files import JoinFiles, RowFile
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.sizes import Tuning

SCHEMA = pa.schema([("_source", pa.string()), ("n", pa.int64())])


def rows(values: list[int | None]) -> pa.Table:
    return pa.table({"_source": ["s"] * len(values), "n": pa.array(values, pa.int64())}, SCHEMA)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / EVENTS).mkdir()
    return Store.from_uri(str(tmp_path), tuning=Tuning(group_rows=4))


def write(store: Store, values: list[int | None]) -> str:
    with RowFile(store, SCHEMA) as file:
        file.write(rows(values))
    return file.written().path


def join(store: Store, *paths: str) -> str:
    return JoinFiles(store, SCHEMA, paths).run().path


def told(store: Store, path: str) -> list[tuple[int, int]]:
    """The origin of each row."""
    with open_sealed(store.filesystem(), f"{EVENTS}/{path}") as file:
        found = origins_in(file, path).of_rows(0, file.metadata.num_rows)
    return list(zip(*(column.tolist() for column in found), strict=True))


def own(path: str, count: int) -> list[tuple[int, int]]:
    return [(file_id(path), row) for row in range(count)]


def test_an_origin_stays_the_same_however_often_a_row_is_written_anew(store: Store) -> None:
    """Row groups are cut elsewhere, and files that were joined are joined again in another order."""
    a, b, c = write(store, [1, None, 3]), write(store, [*range(9)]), write(store, [None])
    joined = join(store, b, a)
    assert told(store, joined) == own(b, 9) + own(a, 3)
    assert told(store, join(store, c, joined)) == own(c, 1) + own(b, 9) + own(a, 3)
    with open_sealed(store.filesystem(), f"{EVENTS}/{joined}") as file:
        found = origins_of(file, joined)
    assert found is not None
    assert len(found.files) == 2
    assert found.nulls["n"] == {file_id(a): 1}
    assert found.nulls["_source"] == {}


def test_a_file_of_new_rows_is_their_origin(store: Store) -> None:
    path = write(store, [1, 2])
    assert told(store, path) == own(path, 2)


def test_a_footer_that_a_tool_copied_into_another_file_is_not_read(store: Store) -> None:
    a, b = write(store, [1]), write(store, [2, 3])
    joined = join(store, a, b)
    with open_sealed(store.filesystem(), f"{EVENTS}/{joined}") as file:
        assert origins_of(file, "another.parquet") is None


Pieces = list[tuple[int, int, int]]
PIECES = st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 2**33), st.integers(1, 6)), min_size=1)


def collected(pieces: Pieces, size: int = 5) -> tuple[Origins | None, list[tuple[int, int]]]:
    """The origins of rows that are added some at a time; and of each row."""
    each = [(file, first + i) for file, first, count in pieces for i in range(count)]
    collector = OriginsCollector(["n"])
    for start in range(0, len(each), size):
        part = each[start : start + size]
        files, numbers = (np.array(column, np.int64) for column in zip(*part, strict=True))
        collector.add(rows([None if file < 0 else 1 for file, _ in part]), (files, numbers))
    return collector.finish(), each


@given(pieces=PIECES)
def test_what_a_footer_tells_is_what_was_written(pieces: Pieces) -> None:
    found, each = collected(pieces)
    assert found is not None
    read = Origins.of_text(found.to_text("f"), "f", len(each))
    assert read is not None
    assert list(zip(*(column.tolist() for column in read.of_rows(0, len(each))), strict=True)) == each
    middle = len(each) // 2
    assert read.of_rows(middle, middle + 1)[1].tolist() == [each[middle][1]]
    nulls = {file: sum(one == file for one, _ in each) for file, _ in each if file < 0}
    assert read.nulls == {"n": nulls}
    with pytest.raises(ValueError, match="rows"):
        Origins.of_text(found.to_text("f"), "f", len(each) + 1)


@given(pieces=PIECES, seed=st.integers(0, 2**32))
def test_origin_files_that_lose_rows_lose_their_name(pieces: Pieces, seed: int) -> None:
    """So that under a name there are all rows or none; the rows that stay keep their order."""
    found, each = collected(pieces)
    assert found is not None
    leaves = np.random.default_rng(seed).random(len(each)) < 0.2
    stay = np.flatnonzero(~leaves)
    touched = {file for (file, _), gone in zip(each, leaves, strict=True) if gone}
    staying = StayingOrigins(found, np.array(sorted(touched), np.int64))
    if len(stay):
        files, numbers = staying.of_rows(stay, 99, 1000)
        expected = [
            (99, 1000 + place) if each[row][0] in touched else each[row] for place, row in enumerate(stay)
        ]
        assert list(zip(files.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_file_of_too_many_pieces_is_the_origin_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "MOST_PIECES", 3)
    assert collected([(1, 0, 1), (2, 0, 1), (1, 1, 1)])[0] is not None
    assert collected([(1, 0, 1), (2, 0, 1), (1, 1, 1), (2, 1, 1)])[0] is None


def test_text_that_is_not_of_origins_is_refused() -> None:
    found, _ = collected([(1, 0, 2)])
    assert found is not None
    whole = json.loads(found.to_text("f"))
    for name, damaged in (("pieces", "AAAA"), ("files", []), ("nulls", {"n": [[7, 1]]})):
        with pytest.raises(ValueError, match=r"origins|rows"):
            Origins.of_text(json.dumps({**whole, name: damaged}), "f", 2)
