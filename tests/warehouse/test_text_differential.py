"""Random hostile files mean what Python's own modules say, or the same line of them is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse import hostile_text
from tests.warehouse.hostile_files import BYTE_ORDER_MARK, HostileFile, Truth, hostile_file
from tests.warehouse.hostile_text import SCHEMA
from tidemark.warehouse import InputError
from tidemark.warehouse.text import csv_records, files, rows, values
from tidemark.warehouse.text.file_records import MARKS, FileRecords
from tidemark.warehouse.text.records import TextColumns

COLUMNS = TextColumns(SCHEMA)
STREAMED = pa.schema(
    [
        *((f"c{i}", field.type) for i, field in enumerate(SCHEMA)),
        ("_raw", pa.binary()),
        ("_position", pa.string()),
        ("_reason", pa.string()),
    ]
)


def comparable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """NaN is equal to itself, and -0.0 is not 0.0."""
    return [
        {name: repr(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in found
    ]


def outcome(path: Path, form: str) -> Truth:
    """The rows of the file, or the line that is refused."""
    try:
        chunks = files.read_chunks(path)
        return [row for part in rows.part_rows(str(path), chunks, form, COLUMNS) for row in part.to_pylist()]
    except InputError as error:
        found = re.search(r", line (\d+): ", str(error))
        return int(found[1]) if found else -1


def stream_outcome(path: Path, file: HostileFile) -> Truth:
    """The same for a stream, which refuses single records; its tasks get the lines of the file."""
    lines = file.data.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\n").split(b"\n")
    marks = [pa.repeat(value, len(lines)) for value in (str(path), 0, True)]
    given = pa.table([pa.array(lines), *marks], ["_raw", *MARKS]).to_batches(max_chunksize=5)
    records = FileRecords(file.form, COLUMNS, COLUMNS.schema)
    found = pa.Table.from_batches(records.parse(iter(given)), STREAMED)
    refused = [row["_position"] for row in found.to_pylist() if row["_reason"] is not None]
    if refused:
        return min(int(place.rpartition(", line ")[2]) for place in refused)
    return list(found.select(range(len(SCHEMA))).rename_columns(SCHEMA.names).to_pylist())


def check(folder: Path, seeds: range) -> tuple[int, int]:
    """Compares files of these seeds; returns how many were taken and refused."""
    taken = refused = 0
    for seed in seeds:
        file = hostile_file(seed)
        path, truth = file.write(folder), file.truth
        for one in (outcome(path, file.form), stream_outcome(path, file)):
            if isinstance(truth, int) or isinstance(one, int):
                assert one == truth, (seed, one, truth)
            else:
                assert comparable(one) == comparable(truth), seed
        taken, refused = taken + isinstance(truth, list), refused + isinstance(truth, int)
    return taken, refused


def test_random_files_mean_what_the_plain_reading_says(tmp_path: Path) -> None:
    taken, refused = check(tmp_path, range(160))
    assert min(taken, refused) > 40


def test_blocks_of_any_size_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BLOCK_BYTES", 50)
    check(tmp_path, range(300, 350))


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "whole numbers are rounded": (values, "_WHOLE", "^$"),
    "a quote in a field is taken": (
        csv_records,
        "_quotes_in_place",
        lambda *given: given[1] >= 0,
    ),
    "records end at each line": (files, "record_ends", files.line_ends),
    "the line is that of the block": (files.Block, "line", lambda self, _: self.first),
    "a decimal is rounded": (
        values,
        "_decimals",
        lambda texts, kind: (texts.cast(pa.float64()).cast(kind, safe=False), []),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reader_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises((AssertionError, pa.ArrowInvalid)):
        check(tmp_path, range(300))


def test_the_truth_knows_the_hard_values() -> None:
    assert [hostile_text.VALUE_OF["t"](text).hour for text in ("2024-01-01T12:30:00-0130", "2024-01-01")] == [
        14,
        0,
    ]
    assert math.isnan(hostile_text.VALUE_OF["x"]("nan"))
