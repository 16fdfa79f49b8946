"""Inputs in an object store are loaded without Spark: files, folders and patterns, by the same rule."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jobs.said import Said, tidemark
from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tidemark import query, warehouse
from tidemark.jobs.inputs import engine
from tidemark.jobs.inputs.local_inputs import LocalInputs
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import StoreUnavailable

COLUMNS = pa.schema([("m", pa.float64())])


def put(place: Place, name: str, first: int) -> None:
    """Ten rows as a file of the bucket; CSV by its name."""
    rows = pa.table({"m": pa.array(range(first, first + 10), pa.float64())})
    content = io.BytesIO()
    if name.endswith(".csv"):
        content.write(b"m\n" + b"".join(b"%d\n" % value for value in range(first, first + 10)))
    else:
        pq.write_table(rows, content)
    folder = Store.from_uri(place.uri.rpartition("/")[0], place.options)
    with folder.filesystem().open_output_stream(name) as file:
        file.write(content.getvalue())


def test_files_of_a_store_are_loaded_by_this_process(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a warehouse in the store: each row once, and what is refused makes none."""
    monkeypatch.setattr(engine, "spark_is_there", lambda: False)
    for number, name in enumerate(("in/a.parquet", "in/b.parquet", "deep/x/c.parquet", "text/d.csv")):
        put(place, name, 10 * number)
    at = place.uri.rpartition("/")[0]
    (tmp_path / "options").write_text("\n".join(f"{name}={value}" for name, value in place.options.items()))

    def load(batch: str, *given: str) -> Said:
        line = [
            "load",
            "-w",
            place.uri,
            "--storage-options",
            tmp_path / "options",
            "--batch",
            batch,
            "--input",
        ]
        return tidemark(capsys, *line, *(f"{at}/{one}" for one in given), "--measure", "m", "--eps", "0.1")

    for given, words in (
        ("deep", "contains the folder x"),
        ("none/*.parquet", "no such input"),
        ("no", "no such"),
    ):
        said = load("b", given)
        assert (said.code, words in said.err) == (2, True), said
    assert load("a", "in").out == "a: loaded, 20 rows\n"
    assert load("a", "in/a.parquet", "in/b.parquet").out == "a: was loaded before, nothing changed\n"
    assert load("c", "deep/**/*.parquet").out == "c: loaded, 10 rows\n"
    assert load("d", "text/*").out == "d: loaded, 10 rows\n"
    found = query.open(place.uri, place.options).quantile([0, 1], mode="exact")
    assert [(answer.value, answer.N) for answer in found] == [(0, 40), (39, 40)]


def test_the_engine_follows_the_sizes_in_the_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "spark_is_there", lambda: False)
    put(place, "in/a.parquet", 0)
    put(place, "in/b.parquet", 10)
    given, store = [f"{place.uri.rpartition('/')[0]}/in"], Store.from_uri(place.uri, place.options)
    assert engine.engine_for_files(given, None, store) == "local"
    assert engine.engine_for_files([given[0].replace("s3:", "s3a:")], None, store) == "local"
    monkeypatch.setattr(engine, "HERE_BYTES", 700)  # more than one of them
    assert engine.engine_for_files(given, None, store) == "spark"
    assert engine.engine_for_files(given, None, Store.from_uri("somewhere")) == "spark"


def test_a_store_that_refuses_is_told_or_left_to_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "spark_is_there", lambda: False)
    put(place, "in/a.parquet", 0)
    warehouse.create(None, place.uri, ["m"], schema=COLUMNS, storage_options=place.options)
    place.server.set(Fault("403", "GET|HEAD"))
    given = f"{place.uri.rpartition('/')[0]}/in/a.parquet"
    assert engine.engine_for_files([given], None, Store.from_uri(place.uri, place.options)) == "spark"
    with pytest.raises(StoreUnavailable, match="not allowed"):
        LocalInputs(place.uri, place.options).read(given, None, None)
