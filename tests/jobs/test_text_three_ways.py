"""Random hostile files mean the same in this process, in Spark's bulk tasks and in streams from files.

All files of a format go through each way of Spark at once, and Spark cuts them into small parts.
`TIDEMARK_SOAK_TEXTS` draws that many of each format.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark_settings import changed, cut_files
from tests.warehouse.hostile_files import Truth, hostile_file
from tests.warehouse.hostile_text import SCHEMA
from tidemark import stream, warehouse
from tidemark.jobs.inputs import spark_text
from tidemark.jobs.inputs.spark_text import open_text
from tidemark.stream.records import read_lines
from tidemark.warehouse import InputError
from tidemark.warehouse.text import rows
from tidemark.warehouse.text.files import read_chunks
from tidemark.warehouse.text.parts import Chunks, Part
from tidemark.warehouse.text.records import TextColumns

COUNT = int(os.environ.get("TIDEMARK_SOAK_TEXTS", "25"))
COLUMNS = TextColumns(SCHEMA)
PLACE = re.compile(r"([^/ ]+), line (\d+)")

Outcomes = dict[str, Truth]  # by the name of the file


@pytest.fixture
def cut(spark: SparkSession) -> Iterator[None]:
    """Spark cuts files into small parts, and a task reads several."""
    with changed(spark, cut_files(2000, 200)):
        yield


def sorted_rows(found: list[dict[str, Any]]) -> list[str]:
    """The rows as texts, so that NaN is equal to itself and -0.0 is not 0.0; times in one zone."""
    times = [row["t"] and row["t"].astimezone(UTC) for row in found]
    return sorted(repr({**row, "t": time}) for row, time in zip(found, times, strict=True))


def draw(folder: Path, form: str, seeds: range) -> tuple[list[Path], Outcomes]:
    folder.mkdir()
    files = [hostile_file(seed, form) for seed in seeds]
    return [file.write(folder) for file in files], {file.name: file.truth for file in files}


def refused_place(path: str, error: Exception) -> int:
    """The line that an error names, with its file."""
    found = PLACE.search(str(error))
    assert found is not None, error
    assert found[1] == Path(path).name
    return int(found[2])


def part_outcome(path: str, parts: Any) -> Truth:
    try:
        return [row for batch in parts for row in batch.to_pylist()]
    except InputError as error:
        return refused_place(path, error)


def in_this_process(paths: list[Path], form: str) -> Outcomes:
    return {
        path.name: part_outcome(str(path), rows.part_rows(str(path), read_chunks(path), form, COLUMNS))
        for path in paths
    }


def in_bulk_tasks(spark: SparkSession, paths: list[Path], form: str, truth: Outcomes) -> Outcomes:
    """What the tasks make of each part of each file; the tables of the good ones, and the first refusal."""
    text = open_text(spark, [str(path) for path in paths], form)
    parts = text.parts

    def outcome(part: Part, chunks: Chunks) -> tuple[str, Truth]:
        name = parts.paths[part[0]]
        return Path(name).name, part_outcome(name, parts.rows(part, chunks, COLUMNS))

    found: Outcomes = {}
    for name, some in text._collect(outcome):
        earlier = found.get(name, [])
        if isinstance(earlier, list):
            found[name] = earlier + some if isinstance(some, list) else some
    good = [path for path in paths if isinstance(truth[path.name], list)]
    stored = open_text(spark, [str(path) for path in good], form).rows(SCHEMA).toArrow()
    expected = [row for path in good for row in truth[path.name]]  # type: ignore[union-attr]
    assert sorted_rows(stored.cast(SCHEMA).to_pylist()) == sorted_rows(expected)
    first = next(path for path in paths if isinstance(truth[path.name], int))
    with pytest.raises(InputError) as refused:
        text.check(SCHEMA)
    assert refused_place(str(first), refused.value) == truth[first.name]
    return found


def line_in_file(path: Path, place: str) -> int:
    """The line of a place, which may be counted from a cut: a part begins with the first line after it."""
    found = re.search(r", line (\d+)(?: from byte ([\d,]+) on)?$", place)
    assert found is not None, place
    if found[2] is None:
        return int(found[1])
    cut = int(found[2].replace(",", ""))
    return int(found[1]) + 1 + path.read_bytes()[:cut].count(b"\n")


def in_a_stream(spark: SparkSession, paths: list[Path], form: Any) -> Outcomes:
    folder = paths[0].parent
    uri = folder.with_name(f"w-{form}")
    warehouse.create(None, uri, ["x"], key="k", time="t", eps=0.1, schema=SCHEMA)
    given = read_lines(spark, str(folder), form)
    parsed = stream.parse(given, warehouse.open_snapshot(uri).options, form, lines=True)
    taken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    lines: dict[str, int] = {}

    def keep(batch: DataFrame, _: int) -> None:
        for row in batch.drop("_raw").toArrow().to_pylist():  # it may be no UTF-8
            place, reason = row.pop("_position"), row.pop("_reason")
            name = unquote(place.rpartition("/")[2].partition(",")[0])
            if reason is None:
                taken[name].append(row)
            else:
                number = line_in_file(folder / name, place)
                lines[name] = min(lines.get(name, number), number)

    query = parsed.writeStream.foreachBatch(keep).option("checkpointLocation", f"{uri}-c")
    query.trigger(availableNow=True).start().awaitTermination()
    return {path.name: lines.get(path.name, taken[path.name]) for path in paths}


def check(spark: SparkSession, folder: Path, form: str, seeds: range) -> None:
    paths, truth = draw(folder / form, form, seeds)
    assert min(sum(isinstance(one, kind) for one in truth.values()) for kind in (list, int)) > len(seeds) / 6
    ways = {
        "process": in_this_process(paths, form),
        "bulk": in_bulk_tasks(spark, paths, form, truth),
        "stream": in_a_stream(spark, paths, form),
    }
    for way, found in ways.items():
        for name, expected in truth.items():
            one = found.get(name, [])
            if isinstance(one, list) and isinstance(expected, list):
                assert sorted_rows(one) == sorted_rows(expected), (way, name)
            else:
                assert one == expected, (way, name)


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("form", ["csv", "json"])
def test_random_files_mean_the_same_by_the_three_ways(spark: SparkSession, tmp_path: Path, form: str) -> None:
    check(spark, tmp_path, form, range(COUNT))


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize(("name", "result"), [("_count", ({}, False)), ("_cuts_a_file", False)])
def test_parts_whose_lines_are_not_counted_are_caught(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, result: object
) -> None:
    monkeypatch.setattr(spark_text, name, lambda *_: result)
    with pytest.raises((AssertionError, PySparkException)):
        check(spark, tmp_path, "csv", range(30))
