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
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.coded_texts import plain_bytes
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ingest import event_files
from tidemark.warehouse.ingest.event_files import RowFile
from tidemark.warehouse.integrity.digests import Fingerprint, fingerprint
from tidemark.warehouse.integrity.sealed_files import SEAL, SealedFile, open_sealed
from tidemark.warehouse.removals import rewrite
from tidemark.warehouse.removals.rewrite import RewriteTask, Rewritten
from tidemark.warehouse.removals.select import Selected
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS
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


def test_an_entry_that_no_row_has_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dictionaries of the earlier file, as they are."""
    monkeypatch.setattr(event_files, "with_used_entries", lambda rows, _: rows.unify_dictionaries())
    with pytest.raises(AssertionError, match="events/"):
        check(tmp_path / "w", 1)


def codecs(file: Path) -> dict[str, str]:
    footer = pq.read_metadata(file).row_group(0)
    columns = [footer.column(place) for place in range(footer.num_columns)]
    return {column.path_in_schema: column.compression for column in columns}


def test_columns_that_compression_makes_hardly_smaller_are_written_as_they_are(tmp_path: Path) -> None:
    """What it is for the rows is known from the earlier file; a new column is compressed."""
    rows = rows_of(1)
    drawn = pa.array(np.random.default_rng(1).random(ROWS))
    lists = pa.array([[number] * 3 for number in range(ROWS)], pa.list_(pa.int64()))
    rows = rows.append_column("drawn", drawn).append_column("lists", lists)
    done, old = rewritten(tmp_path / "w", rows, np.arange(ROWS) % 3 == 0)
    assert {*codecs(tmp_path / "w" / "events" / old).values()} == {"ZSTD"}
    assert done.file.new is not None
    found = codecs(tmp_path / "w" / "events" / done.file.new.path)
    assert found["drawn"] == "UNCOMPRESSED"
    assert found["note"] == found["lists.list.element"] == found["later"] == "ZSTD"
    new = pq.read_table(tmp_path / "w" / "events" / done.file.new.path)
    stay = pa.array(np.arange(ROWS) % 3 != 0)
    assert new.drop_columns("later").equals(rows.filter(stay))


@pytest.mark.parametrize("codec", ["NONE", "SNAPPY"])
def test_what_others_hardly_compressed_is_compressed(tmp_path: Path, codec: str) -> None:
    """With our seal, the same file would say that compression saves nothing."""
    rows, earlier = rows_of(1), tmp_path / "earlier.parquet"
    tmp_path.joinpath("events").mkdir()
    found = []
    for metadata in ({}, {SEAL: b""}):
        pq.write_table(rows.replace_schema_metadata(metadata), earlier, compression=codec)
        with RowFile(Store.from_uri(str(tmp_path)), rows.schema) as file:
            file.compress_as(pq.read_metadata(earlier))
            file.write(rows)
        found.append({*codecs(tmp_path / "events" / file.written().path).values()})
    assert found == [{"ZSTD"}, {"UNCOMPRESSED" if codec == "NONE" else "ZSTD"}]


def groups_of(folder: Path, rows: pa.Table) -> list[int]:
    """The rows of each row group of a file to which ten rows are written at a time."""
    store = Store.from_uri(str(folder), tuning=Tuning(group_bytes=30_000))
    folder.joinpath("events").mkdir(parents=True)
    with RowFile(store, with_plain_types(rows).schema) as file:
        for start in range(0, rows.num_rows, 10):
            file.write(rows.slice(start, 10))
    footer = pq.read_metadata(folder / "events" / file.written().path)
    return [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]


def test_row_groups_end_by_the_bytes_of_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by those of their dictionaries, which are few for any number of texts."""
    texts = pa.array([["x" * 1000, "y" * 1000][number % 2] for number in range(90)])
    plain, coded = pa.table({"text": texts}), pa.table({"text": texts.dictionary_encode()})
    assert groups_of(tmp_path / "plain", plain) == groups_of(tmp_path / "coded", coded) == [30, 30, 30]
    measured: list[int] = []

    def measure(rows: pa.Table) -> int:
        measured.append(rows.num_rows)
        return plain_bytes(rows)

    with monkeypatch.context() as patch:
        patch.setattr(event_files, "plain_bytes", measure)
        assert groups_of(tmp_path / "again", coded) == [30, 30, 30]
    assert sum(measured) == 90, "each row is measured once"
    monkeypatch.setattr(event_files, "plain_bytes", lambda rows: rows.nbytes)
    assert groups_of(tmp_path / "broken", coded) == [90]


def test_texts_are_dictionaries_as_in_the_first_rows(tmp_path: Path) -> None:
    """Whatever later rows have: texts, or dictionaries with other entries."""
    texts = pa.table({"text": pa.array(["a", "b", None, "a"])})
    others = pa.table({"text": pa.array(["c", "a"]).dictionary_encode()})
    wide = others.cast(pa.schema([("text", pa.dictionary(pa.int64(), pa.string()))]))
    for number, pieces in enumerate(([others, texts, others, wide], [texts, others])):
        store = Store.from_uri(str(tmp_path / str(number)))
        (tmp_path / str(number) / "events").mkdir(parents=True)
        with RowFile(store, texts.schema) as file:
            for piece in pieces:
                file.write(piece)
        found = pq.read_table(tmp_path / str(number) / "events" / file.written().path)
        assert found.equals(pa.concat_tables([with_plain_types(piece) for piece in pieces]))


def _other_rows(usual: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda rows, places: usual(rows, np.maximum(places - 1, 0))


def _all_rows(usual: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    return lambda rows, _: usual(rows, np.arange(rows.num_rows))


@pytest.mark.parametrize("broken", [_other_rows, _all_rows])
def test_other_rows_are_caught(tmp_path: Path, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "_rows_at", broken(rewrite._rows_at))
    with pytest.raises(AssertionError):
        check(tmp_path / "w", 1)


def check_whole(folder: Path, batches: int, **options: Any) -> None:
    """All rows of the file leave, and are told by batch."""
    rows = rows_of(batches)
    done, _ = rewritten(folder, rows, np.ones(ROWS, np.bool_), **options)
    assert done.file.new is None
    user = rows.schema.names[len(SYSTEM_COLUMNS) :]
    for number in range(batches):
        own = rows.filter(pa.compute.equal(rows["_batch"], number))
        (part,) = own.select(user).combine_chunks().to_batches()
        assert done.removed[f"source {number}", number] == fingerprint(part)
        assert done.latest[f"source {number}", number] == max(
            filter(None, own["at"].cast(pa.int64()).to_pylist())
        )
    if options.get("keeps"):
        assert done.rows is not None
        assert done.rows.drop_columns("later").equals(rows)


@pytest.mark.parametrize(("batches", "keeps"), [(1, False), (3, False), (1, True)])
def test_a_file_of_which_all_rows_leave_gets_no_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, *, keeps: bool
) -> None:
    """Only what is digested or kept is read."""
    read, columns = SealedFile.read_group, set[str]()

    def watched(file: SealedFile, *of: Any, **how: Any) -> pa.Table:
        rows = read(file, *of, **how)
        columns.update(rows.column_names)
        return rows

    monkeypatch.setattr(SealedFile, "read_group", watched)
    check_whole(tmp_path / "w", batches, keeps=keeps)
    assert ("_tick" in columns) is keeps
    assert ("_source" in columns) is (keeps or batches > 1)


def test_rows_are_digested_in_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the last share is left out."""
    shares = list[int]()

    def watched(rows: pa.RecordBatch) -> Fingerprint:
        shares.append(rows.num_rows)
        return fingerprint(rows)

    monkeypatch.setattr(rewrite, "_SHARED_ROWS", 7)
    monkeypatch.setattr(rewrite, "AT_ONCE", 3)
    monkeypatch.setattr(rewrite, "fingerprint", watched)
    for batches in (1, 3):
        check(tmp_path / f"some {batches}", batches)
        check_whole(tmp_path / f"all {batches}", batches)
    assert len(shares) > 3 * (1 + 3)
    monkeypatch.setattr(rewrite._Share, "run", lambda own: fingerprint(own.rows.slice(0, 7)))
    with pytest.raises(AssertionError):
        check_whole(tmp_path / "broken", 1)


@pytest.mark.parametrize("is_joined", [False, True])
def test_the_chunks_of_a_column_are_never_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_joined: bool
) -> None:
    """A row group may have more text than one array can have: 2 GiB."""
    usual, read, chunks = rewrite._rows_at, SealedFile.read_group, list[int]()

    def in_pieces(file: SealedFile, group: int, *of: Any, **how: Any) -> pa.Table:
        rows = read(file, group, *of, **how)
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
