"""Random hostile files mean what Python's own modules say, or the same line of them is refused."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse import hostile_text
from tests.warehouse.hostile_text import SCHEMA, Bad
from tidemark.warehouse import InputError
from tidemark.warehouse.text import csv_records, files, rows, values
from tidemark.warehouse.text.csv_records import CsvRecords
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.records import TextColumns

COLUMNS = TextColumns(SCHEMA)


def comparable(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """NaN is equal to itself, and -0.0 is not 0.0."""
    return [
        {name: repr(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in found
    ]


def json_truth(text: str) -> list[dict[str, Any]] | int:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(" \t\r"):
            continue
        try:
            found.append(hostile_text.json_row(line))
        except (Bad, ValueError):
            return number
    return found


def outcome(path: Path, form: str) -> list[dict[str, Any]] | int:
    """The rows of the file, or the line that is refused."""
    try:
        chunks = files.read_chunks(path)
        return [row for part in rows.part_rows(str(path), chunks, form, COLUMNS) for row in part.to_pylist()]
    except InputError as error:
        found = re.search(r", line (\d+): ", str(error))
        return int(found[1]) if found else -1


def stream_outcome(text: str, form: str) -> list[dict[str, Any]] | int:
    """The same for a stream of the lines of the file, which refuses single records."""
    lines = pa.array([line.encode() for line in text.split("\n")], pa.binary())
    parser = CsvRecords(COLUMNS) if form == "csv" else JsonRecords(COLUMNS)
    kept = rows.are_rows(lines, form, COLUMNS)
    parsed = parser.parse(lines.filter(kept))
    if parsed.refused:
        return [i for i, keep in enumerate(kept.to_pylist(), 1) if keep][min(parsed.refused)]
    return list(parsed.rows.to_pylist())


def check(folder: Path, seeds: range) -> tuple[int, int]:
    """Compares files of these seeds; returns how many were taken and refused."""
    taken = refused = 0
    for seed in seeds:
        r = random.Random(seed)
        form = r.choice(["csv", "json"])
        text = hostile_text.random_csv(r) if form == "csv" else hostile_text.random_json(r)
        path = folder / f"{seed}.{form}"
        path.write_bytes((b"\xef\xbb\xbf" if r.random() < 0.2 else b"") + text.encode())
        truth = hostile_text.csv_rows(text) if form == "csv" else json_truth(text)
        found = [outcome(path, form)]
        if '"a\n' not in text and "\na" not in text and '"a\r' not in text and '""' not in text:
            found.append(stream_outcome(text, form))  # a record of a stream is one line
        for one in found:
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
    "records end at each line": (rows, "record_ends", files.line_ends),
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
