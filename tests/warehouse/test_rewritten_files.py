"""Files of `events` without the rows that leave: what stays, what is told of these rows, and no trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.file_contents import files_with, forms_of_text
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.integrity.digests import fingerprint
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.removals import rewrite
from tidemark.warehouse.removals.rewrite import RewriteTask, Rewritten
from tidemark.warehouse.removals.select import Selected
from tidemark.warehouse.settings.option_checks import SYSTEM_COLUMNS
from tidemark.warehouse.sizes import Tuning

ROWS, LEAVING = 240, "leaves-by-its-site"
REPEATED = [LEAVING, "stays", None, "", "ä"]
FIELDS = [
    ("_source", pa.string()),
    ("_batch", pa.int64()),
    ("_tick", pa.int64()),
    ("site", pa.string()),
    ("note", pa.string()),
    ("raw", pa.binary()),
    ("id", pa.int64()),
    ("at", pa.timestamp("us", "UTC")),
]


def rows_of(batches: int) -> pa.Table:
    """Rows whose `site` and `raw` repeat, and whose `note` does not; the batches are mixed."""
    numbers = range(ROWS)
    columns = [
        [f"source {number % batches}" for number in numbers],
        [number % batches for number in numbers],
        [number // 50 for number in numbers],
        [REPEATED[number % 5] for number in numbers],
        [None if number % 7 == 0 else f"the note of {number:030}" for number in numbers],
        [[b"\0", None, b""][number % 3] for number in numbers],
        [number * 1_000_003 for number in numbers],
        [number * 10**7 if number % 4 else None for number in numbers],
    ]
    return pa.table(columns, schema=pa.schema(FIELDS))


def rewritten(folder: Path, rows: pa.Table, leaves: np.ndarray, **options: Any) -> tuple[Rewritten, str]:
    """Writes a file of the rows, and it again without those that leave; also the path of the first."""
    folder.joinpath("events").mkdir(parents=True)
    store = Store.from_uri(str(folder), tuning=Tuning(group_rows=100))
    with RowFile(store, rows.schema) as file:
        file.write(rows)
    gone = rows.filter(pa.array(leaves)).select(["_source", "_batch"]).to_pylist()
    counts = Counter((row["_source"], row["_batch"]) for row in gone)
    path = file.written().path
    selected = Selected(path, np.packbits(leaves).tobytes(), len(leaves), counts)
    later = pa.schema([*rows.schema, ("later", pa.string())])  # a column that the file lacks
    return RewriteTask(store, later, Measure("at", "timestamp"), selected, **options).run(), path


def check(folder: Path, batches: int) -> None:
    rows = rows_of(batches)
    user = rows.schema.names[len(SYSTEM_COLUMNS) :]
    leaves = np.array(
        [site == LEAVING or place >= 200 for place, site in enumerate(rows["site"].to_pylist())]
    )
    done, old = rewritten(folder, rows, leaves, keeps=batches == 1)
    with open_sealed(Store.from_uri(str(folder)).filesystem(), f"events/{old}", repeated=True) as file:
        assert {"site", "raw"} <= {*file.coded}
        assert "note" not in file.coded
    assert done.file.new is not None
    new = pq.read_table(folder / "events" / done.file.new.path)
    later = pa.nulls(rows.num_rows, pa.string())
    assert new.equals(rows.append_column("later", later).filter(pa.array(~leaves)))
    gone = rows.filter(pa.array(leaves))
    if batches == 1:
        assert done.rows is not None
        assert done.rows.drop_columns("later").equals(gone)
    else:
        assert done.rows is None
    for number in range(batches):
        own = gone.filter(pa.compute.equal(gone["_batch"], number))
        (part,) = own.select(user).combine_chunks().to_batches()
        of_batch = f"source {number}", number
        assert done.removed[of_batch] == fingerprint(part)
        assert done.latest[of_batch] == max(filter(None, own["at"].cast(pa.int64()).to_pylist()))
    found = files_with(Store.from_uri(str(folder)).filesystem(), forms_of_text(LEAVING))
    assert {one.lstrip("/") for one in found} == {f"events/{old}"}


@pytest.mark.parametrize("batches", [1, 3])
def test_rows_stay_as_they_were_and_what_left_is_told_by_batch(tmp_path: Path, batches: int) -> None:
    """Texts are read as the dictionaries that the file has; the new file has no entry of a row that left."""
    check(tmp_path / "w", batches)


def _other_rows(usual: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda rows, places: usual(rows, np.maximum(places - 1, 0))


def _all_rows(usual: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda rows, _: usual(rows, np.arange(rows.num_rows))


@pytest.mark.parametrize("broken", [_other_rows, _all_rows])
def test_other_rows_are_caught(tmp_path: Path, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_rows_at", broken(rewrite._rows_at))
    with pytest.raises(AssertionError):
        check(tmp_path / "w", 1)


def test_a_file_of_which_all_rows_leave_gets_no_successor(tmp_path: Path) -> None:
    done, _ = rewritten(tmp_path / "w", rows_of(1), np.ones(ROWS, np.bool_))
    assert done.file.new is None
    assert done.removed["source 0", 0].rows == ROWS


@pytest.mark.parametrize("is_joined", [False, True])
def test_the_chunks_of_a_column_are_never_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_joined: bool
) -> None:
    """A row group may have more text than one array can have: 2 GiB."""
    usual, read, chunks = rewrite._rows_at, SealedFile.read_group, list[int]()

    def in_pieces(file: SealedFile, group: int) -> pa.Table:
        rows = read(file, group)
        return pa.concat_tables(rows.slice(start, 40) for start in range(0, rows.num_rows, 40))

    def taken(rows: pa.Table, places: np.ndarray) -> pa.Table:
        found = rows.take(pa.array(places)) if is_joined else usual(rows, places)
        chunks.extend(column.num_chunks for column in found.columns)
        return found

    def only_chunk(column: pa.ChunkedArray) -> pa.Array:
        (chunk,) = column.chunks
        return chunk

    monkeypatch.setattr(SealedFile, "read_group", in_pieces)
    monkeypatch.setattr(rewrite, "_rows_at", taken)
    monkeypatch.setattr(rewrite, "single_array", only_chunk)
    check(tmp_path / "one", 1)
    check(tmp_path / "several", 3)
    assert ({*chunks} == {3, 1}) is not is_joined  # row groups of 100, 100 and 40 rows
