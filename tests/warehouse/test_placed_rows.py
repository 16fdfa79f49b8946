"""Rows of an index are sorted by value with all else carried along: against sorted lists, through files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from tests.warehouse.test_included_columns import VALUES
from tidemark.warehouse.columns.keys import Key, name_at
from tidemark.warehouse.columns.tick_counts import sum_tick_counts
from tidemark.warehouse.events.reader import FILE_OF_ROW, ROW_IN_FILE
from tidemark.warehouse.projections.included_columns import decoded_column
from tidemark.warehouse.projections.placed_rows import PlacedRows
from tidemark.warehouse.projections.row_index import RowIndex
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.projection import RunSpec
from tidemark.warehouse.runs.run_files import read_blocks, write_rows
from tidemark.warehouse.sizes import Tuning

KINDS = [*VALUES]
TINY = Tuning(block_rows=8, key_block_bytes=200)


def index(kind: str, included: Sequence[str] = KINDS) -> RowIndex:
    keys = [Key("v", kind), *(Key(f"c{number}", one) for number, one in enumerate(included))]
    return RowIndex.on(keys, TINY)


def events(projection: RowIndex, rows: int, seed: int, file: int = 7) -> pa.Table:
    """Rows of a file of `events`: every column has NULL and values that occur often."""
    draw = random.Random(seed)
    columns = {
        key.name: pa.array([draw.choice(VALUES[key.type][1]) for _ in range(rows)], VALUES[key.type][0])
        for key in projection.own
    }
    return pa.table(
        {
            **columns,
            FILE_OF_ROW: np.full(rows, file),
            ROW_IN_FILE: np.arange(rows),
            "_tick": np.array([draw.choice([-3, 0, 9]) for _ in range(rows)], np.int64),
        }
    )


def expected(projection: RowIndex, tables: Sequence[pa.Table]) -> list[str]:
    """All rows with a value, as text and in one order."""
    names = [*(key.name for key in projection.own), FILE_OF_ROW, ROW_IN_FILE, "_tick"]
    rows = [row for one in tables for row in one.select(names).to_pylist() if row["v"] is not None]
    return sorted(repr([*row.values()]) for row in rows)


def content(projection: RowIndex, parts: Sequence[PlacedRows]) -> list[str]:
    """The same of rows of the index."""
    found: list[str] = []
    for rows in parts:
        values: Any = rows.values if rows.texts is None else rows.texts.take(pa.array(rows.values))
        own = [values if isinstance(values, pa.Array) else pa.array(values), *rows.included]
        columns = [decoded_column(key, one).to_pylist() for key, one in zip(projection.own, own, strict=True)]
        places = [one.tolist() for one in (rows.files, rows.rows, rows.ticks)]
        found += [repr([*row]) for row in zip(*columns, *places, strict=True)]
    return sorted(found)


def written(projection: RowIndex, folder: Path, rows: PlacedRows, spec: RunSpec | None) -> list[PlacedRows]:
    """The blocks of a file with the rows, as they are read again."""
    filesystem, path = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), "t/run=r/a.parquet"
    file = write_rows(filesystem, path, projection, iter([rows]), spec)
    one = RunFile("run=r/a.parquet", 0, file.rows, file.digests)
    return list(read_blocks(filesystem, "t", one, projection))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_back_sorted_with_all_that_they_carry(kind: str, tmp_path: Path) -> None:
    projection = index(kind)
    tables = [events(projection, rows, seed, file=seed) for seed, rows in enumerate([40, 0, 1, 60])]
    decoded = [projection.decode(one) for one in tables]
    rows = projection.sort([part for part, _ in decoded])
    totals = sum_tick_counts([counts for _, counts in decoded])
    assert content(projection, [rows]) == expected(projection, tables)
    assert projection.ascends(rows)
    assert projection.digest(rows) == sum(projection.digest(part) for part, _ in decoded) % 2**64
    for spec in (None, RunSpec(len(rows), totals, 0.01)):
        blocks = written(projection, tmp_path, rows, spec)
        assert len(blocks) >= len(rows) // TINY.block_rows
        assert content(projection, blocks) == expected(projection, tables)
        names = [name_at(one.names(np.array([i])), 0) for one in blocks for i in range(len(one))]
        assert names == sorted(names)
        assert projection.digest(rows) == sum(map(projection.digest, blocks)) % 2**64
        assert projection.content_digest(rows) == sum(map(projection.content_digest, blocks)) % 2**64


@pytest.mark.parametrize("kind", KINDS)
def test_merged_parts_are_as_rows_that_are_sorted_at_once(kind: str) -> None:
    projection = index(kind, ["string", "double"])
    tables = [events(projection, 30, seed, file=seed % 2) for seed in range(4)]
    parts = [projection.sort([projection.decode(one)[0]]) for one in tables]
    merged = projection.merge([one.part(0, 25) for one in parts])
    assert projection.ascends(merged)
    assert content(projection, [merged]) == content(projection, [one.part(0, 25) for one in parts])
    assert len(projection.merge([])) == len(projection.sort([])) == 0


def test_integers_far_apart_are_sorted_too() -> None:
    projection = index("long", [])
    values = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 500)
    for high in (2**63 - 1, 2**40, 2**20, 3):
        numbers = np.abs(values % high) - high // 2
        table = pa.table(
            {"v": numbers, FILE_OF_ROW: numbers * 0, ROW_IN_FILE: np.arange(500), "_tick": numbers * 0}
        )
        rows = projection.sort([projection.decode(table)[0]])
        assert rows.values.tolist() == sorted(numbers.tolist())
        assert numbers[rows.rows].tolist() == rows.values.tolist()


def test_columns_that_are_the_same_in_all_rows_are_held_once() -> None:
    projection = index("long", [])
    rows = projection.sort([projection.decode(events(projection, 300, 1))[0]])
    assert rows.files.strides == (0,)
    assert rows.nbytes < 300 * 8 * 3.1


def test_blocks_are_bounded_in_bytes(tmp_path: Path) -> None:
    """A long text that repeats is in a block once; included texts are there for each row."""
    for kinds in (["long", "string"], ["string", "long"], ["string", "string"]):
        projection = index(kinds[0], kinds[1:])
        table = events(projection, 100, 3)
        for name, kind in zip(("v", "c0"), kinds, strict=True):
            if kind == "string":
                table = table.set_column(0 if name == "v" else 1, name, pa.array(["x" * 150] * 100))
        rows = projection.sort([projection.decode(table)[0]])
        lengths = [len(one) for one in written(projection, tmp_path, rows, None)]
        assert max(lengths) == (TINY.block_rows if kinds[1] == "long" else 1)


def test_a_column_that_is_not_carried_along_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    projection = index("long", ["long", "string"])
    decoded, _ = projection.decode(events(projection, 50, 1))
    right, honest = projection.digest(projection.sort([decoded])), PlacedRows.take
    for name in ("included", "files", "rows", "ticks"):

        def others(rows: PlacedRows, chosen: Any, name: str = name) -> PlacedRows:
            return replace(honest(rows, chosen), **{name: getattr(rows, name)})

        monkeypatch.setattr(PlacedRows, "take", others)
        changed = projection.digest(projection.sort([decoded]))
        assert (changed == right) == (name == "files")  # they are the same in all rows
        monkeypatch.undo()


def test_rows_that_do_not_ascend_are_seen() -> None:
    for kind in ("long", "double", "string"):
        projection = index(kind, [])
        rows = projection.sort([projection.decode(events(projection, 50, 2))[0]])
        assert projection.ascends(rows)
        assert not projection.ascends(rows.take(np.arange(len(rows))[::-1]))
