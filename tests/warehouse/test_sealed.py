"""Sealed files: what is read is what was written, or an error that names the file and the column."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from tests.warehouse.test_digests import tables as any_tables
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.integrity import digests, sealed_files
from tidemark.warehouse.integrity.digests import column_digest
from tidemark.warehouse.integrity.sealed_files import SEAL, SealedWriter, open_sealed
from tidemark.warehouse.runs.marks import STATISTICS_COLUMN, FileDigests

DISK = fs.LocalFileSystem()
ROWS = pa.table(
    {
        "x": [1.5, None, -0.0, 2.5],
        "n": [1, 2, None, 4],
        "k": ["a", None, "", "zebra"],
        "s": [{"a": 1, "b": "u"}, None, {"a": None, "b": "v"}, {"a": 2, "b": None}],
        "many": [[{"m": "p", "q": b"\0"}], [], None, [{"m": None, "q": b"\xff"}, {"m": "r", "q": b""}]],
    }
)


def write(path: Path, rows: pa.Table = ROWS, **groups: pa.Table) -> str:
    """A sealed file of the rows, and of further groups by name."""
    with SealedWriter(DISK, str(path), rows.schema) as writer:
        writer.write(rows)
        for name, more in groups.items():
            writer.write(more, name)
    return str(path)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_rows_come_back(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of every type at any depth, in any chunks, whole or some columns."""
    rows, _ = data.draw(any_tables())
    cut = data.draw(st.integers(0, rows.num_rows))
    parts = pa.concat_tables([rows.slice(0, cut), rows.slice(cut)])
    path = write(tmp_path_factory.mktemp("any") / "a.parquet", parts, more=parts.slice(cut))
    wanted = data.draw(st.lists(st.sampled_from(rows.schema.names), unique=True)) or None
    with open_sealed(DISK, path) as file:
        assert file.names == ("rows", "more")
        assert [file.read(name, columns=wanted).num_rows for name in file.names] == [
            len(rows),
            len(rows) - cut,
        ]
        plain = pq.read_table(path, columns=wanted)
        assert repr(file.read(columns=wanted).to_pydict()) == repr(plain.to_pydict())


def test_fields_of_structs_are_read_and_checked_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet")
    with open_sealed(DISK, path, texts=["k"]) as file:
        assert file.read(columns=["s.b", "k"]).to_pydict() == {
            "s": [{"b": "u"}, None, {"b": "v"}, {"b": None}],
            "k": ["a", None, "", "zebra"],
        }


def test_texts_that_repeat_may_be_read_as_the_dictionaries_that_a_file_has(tmp_path: Path) -> None:
    """Others not: making a dictionary takes longer than reading them. Both are compared with the seal."""
    rows = pa.table(
        {
            "kind": ["a", None, "b"] * 100,
            "id": [f"{number:040}" for number in range(300)],
            "bytes": [b"x", b"", b"\0"] * 100,
            "struct": [{"kind": "a"}] * 300,
            "n": range(300),
        }
    )
    path = write(tmp_path / "a.parquet", rows, more=rows.slice(0, 7))
    for texts in ((), ("bytes", "absent")):
        with open_sealed(DISK, path, texts=texts, repeated=True) as file:
            assert sorted(file.coded) == ["bytes", "kind"]
            found = file.read()
        coded = [field.name for field in found.schema if pa.types.is_dictionary(field.type)]
        assert sorted(coded) == ["bytes", "kind"]
        assert with_plain_types(found) == pa.concat_tables([rows, rows.slice(0, 7)])
    others = rows.set_column(0, "kind", pa.array(["a", None, "c"] * 100))
    held = {SEAL: pq.read_metadata(write(tmp_path / "b.parquet", rows)).metadata[SEAL]}
    pq.write_table(others.replace_schema_metadata(held), tmp_path / "b.parquet")
    with (
        pytest.raises(DamagedWarehouse, match="the column 'kind' of row group 0"),
        open_sealed(DISK, str(tmp_path / "b.parquet"), repeated=True) as file,
    ):
        file.read()


def changed(name: str, values: list[Any]) -> pa.Table:
    """The rows with another column."""
    at = ROWS.schema.names.index(name)
    return ROWS.set_column(at, name, pa.array(values, ROWS.schema.field(name).type))


CHANGES: dict[str, pa.Table] = {
    "a value": changed("n", [1, 2, None, 5]),
    "a sign of zero": changed("x", [1.5, None, 0.0, 2.5]),
    "a NULL": changed("n", [1, None, None, 4]),
    "a text": changed("k", ["b", None, "", "zebra"]),
    "where a text ends": changed("k", ["az", None, "", "ebra"]),
    "an empty text for NULL": changed("k", ["a", "", None, "zebra"]),
    "a field": changed("s", [{"a": 1, "b": "w"}, *ROWS["s"].to_pylist()[1:]]),
    "fields of NULL for NULL": changed(
        "s", [{"a": 1, "b": "u"}, {"a": None, "b": None}, *ROWS["s"].to_pylist()[2:]]
    ),
    "where a list ends": changed("many", [[], [{"m": "p", "q": b"\0"}], *ROWS["many"].to_pylist()[2:]]),
    "bytes in a list": changed("many", [[{"m": "p", "q": b"\1"}], *ROWS["many"].to_pylist()[1:]]),
    "a type": ROWS.set_column(1, "n", ROWS["n"].cast(pa.float64())),
    "a row less": ROWS.slice(1),
    "order": ROWS.take([1, 0, 2, 3]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_other_rows_under_the_same_seal_are_refused(tmp_path: Path, what: str) -> None:
    path = write(tmp_path / "a.parquet")
    held = {SEAL: pq.read_metadata(path).metadata[SEAL]}
    rows = CHANGES[what]
    pq.write_table(rows.replace_schema_metadata(held), path)
    with (
        pytest.raises(
            DamagedWarehouse,
            match=r"a\.parquet.*(is not what was written|do not match its seal).*only a copy",
        ),
        open_sealed(DISK, path) as file,
    ):
        file.read()


def test_without_the_comparison_other_rows_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant of the test above."""
    path = write(tmp_path / "a.parquet")
    held = {SEAL: pq.read_metadata(path).metadata[SEAL]}
    pq.write_table(CHANGES["a value"].replace_schema_metadata(held), path)
    monkeypatch.setattr(sealed_files, "_check_digests", lambda *_: None)
    with open_sealed(DISK, path) as file:
        assert file.read(columns=["n"]).to_pydict() == {"n": [1, 2, None, 5]}


@pytest.mark.parametrize(
    "change",
    [lambda text: text[:-3], lambda text: text.replace(b"rows", b"rowz", 1), lambda _: b"", lambda _: b"{}"],
)
def test_a_seal_that_is_none_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / "a.parquet")
    held = {SEAL: change(pq.read_metadata(path).metadata[SEAL])}
    pq.write_table(ROWS.replace_schema_metadata(held), path)
    with pytest.raises(DamagedWarehouse, match="seal"), open_sealed(DISK, path):
        pass


def test_groups_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", later=ROWS.slice(0, 1))
    with open_sealed(DISK, path) as file:
        assert file.read("rows").equals(ROWS)
        assert file.read("none of these").num_rows == 0


def test_a_file_without_a_seal_is_read_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "others.parquet")
    pq.write_table(ROWS, path, row_group_size=2)
    with open_sealed(DISK, path) as file:
        assert file.read("rows").equals(ROWS)


def test_what_another_files_footer_held_is_left_out(tmp_path: Path) -> None:
    """Rows that were read of a sealed file have its seal in their schema; it is not that of the next."""
    path = write(tmp_path / "a.parquet", pq.read_table(write(tmp_path / "b.parquet")).slice(1))
    assert json.loads(pq.read_metadata(path).metadata[SEAL][16:])[0]["rows"] == 3
    with open_sealed(DISK, path) as file:
        assert file.read().equals(ROWS.slice(1))


@pytest.mark.parametrize("checksums", [False, True])
def test_pages_have_checksums(tmp_path: Path, *, checksums: bool) -> None:
    """One flipped bit of a page: decoding may not see it, the digest does; the checksum says so first."""
    rows, path = pa.table({"x": np.arange(1000.0)}), tmp_path / "a.parquet"
    with SealedWriter(DISK, str(path), rows.schema, compression="none", use_dictionary=False) as writer:
        writer.write(rows)
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    said = "CRC" if checksums else "is not what was written"
    with (
        pytest.raises(DamagedWarehouse, match=said),
        open_sealed(DISK, str(path), checksums=checksums) as file,
    ):
        file.read()


def test_the_digests_of_a_file_are_stored_and_come_back() -> None:
    blocks = {
        name: np.array([1, 2**64 - 1, at], np.uint64)
        for at, name in enumerate(("value", "tick", STATISTICS_COLUMN))
    }
    found = FileDigests.from_bytes(FileDigests(2**64 - 5, blocks).to_bytes(), list(blocks))
    assert found.row_digest == 2**64 - 5
    assert {name: one.tolist() for name, one in found.blocks.items()} == {
        n: b.tolist() for n, b in blocks.items()
    }


def test_a_digest_does_not_depend_on_chunks() -> None:
    for column in ROWS.columns:
        parts = pa.chunked_array([column.slice(0, 1).combine_chunks(), column.slice(1).combine_chunks()])
        assert column_digest(parts) == column_digest(column)


NULLABLE = [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.decimal128(9, 2)]


@pytest.mark.parametrize("kind", [*NULLABLE, pa.timestamp("us", "UTC"), pa.list_(pa.int64())], ids=str)
def test_columns_of_nulls_have_the_digest_of_the_values_and_nulls(kind: pa.DataType) -> None:
    found = set()
    for rows in (1, 3):
        column = pa.nulls(rows, kind)
        parts = pa.chunked_array([column.slice(0, 1), column.slice(1)])
        found |= {column_digest(column), column_digest(parts), column_digest(pa.chunked_array([column]))}
        assert column_digest(column) == digests._digest_of(column)
    assert len(found) == 2, "the number of rows tells them apart"
