"""An entry of a log that nests JSON too deep is told, before delta-rs ends the process at it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.delta import log_nesting
from tidemark.warehouse.delta.log_nesting import check_nesting, entries_read

DEEP = "[" * 100_000 + "]" * 100_000
TABLES = ["events", "steps", "ledger", "runs/n", "marks/n", "keys/k", "key_marks/k", "rejected"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    loader = Loader.create(tmp_path_factory.mktemp("nested") / "w")
    loader.load(rows_of(0, 60))
    loader.stream(rows_of(1, 20))
    return loader


@pytest.fixture
def loader(sound: Loader, tmp_path: Path) -> Loader:
    return sound.copied(tmp_path / "w")


def newest(uri: str | Path, table: str) -> Path:
    return max(Path(uri, table, "_delta_log").glob("*.json"))


def write(path: Path, text: str) -> Path:
    path.unlink(missing_ok=True)  # of the copy alone
    path.write_text(text)
    return path


def add_line(line: str) -> Callable[[Path, str], Path]:
    """Adds a line to the newest entry."""
    return lambda uri, table: write(path := newest(uri, table), path.read_text() + line + "\n")


def next_entry(text: str) -> Callable[[Path, str], Path]:
    """Adds an entry."""

    def harm(uri: Path, table: str) -> Path:
        path = newest(uri, table)
        return write(path.with_name(f"{int(path.stem) + 1:020d}.json"), text)

    return harm


def statistics(uri: Path, table: str) -> Path:
    """A file whose statistics, a text of its own, are nested."""
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return add_line(json.dumps({"add": {**add, "stats": DEEP}}))(uri, table)


def checkpoint(uri: Path, table: str) -> Path:
    """A checkpoint in which the statistics of a file are nested."""
    DeltaTable(Path(uri, table)).create_checkpoint()
    path = max(Path(uri, table, "_delta_log").glob("*.checkpoint.parquet"))
    stored = pq.read_table(path)
    rows = stored.to_pylist()
    for row in rows:
        if row["add"]:
            row["add"]["stats"] = DEEP
    path.unlink()
    pq.write_table(pa.Table.from_pylist(rows, stored.schema), path)
    return path


def hint(uri: Path, table: str) -> Path:
    return write(Path(uri, table, "_delta_log", "_last_checkpoint"), f'{{"version": 0, "a": {DEEP}}}')


KINDS: dict[str, Callable[[Path, str], Path]] = {
    "an entry": next_entry(DEEP),
    "over lines": next_entry(DEEP.replace("[", "[\n")),
    "objects": next_entry('{"add":' * 100_000 + "1" + "}" * 100_000),
    "a line": add_line(DEEP),
    "a field": add_line(f'{{"add":{{"path":{DEEP}}}}}'),
    "without an end": next_entry('{"a":' * 100_000),
    "statistics": statistics,
    "the hint": hint,
    "a checkpoint": checkpoint,
}


def refused(do: Callable[[], object], table: str, entry: Path) -> None:
    with pytest.raises(DamagedWarehouse, match="levels deep") as caught:
        do()
    assert f"the log of the table {table} " in str(caught.value)
    assert entry.name in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_door_tells_the_table_and_the_entry(loader: Loader, kind: str) -> None:
    uri, rows = loader.uri, rows_of(7, 5)
    entry = KINDS[kind](Path(uri), "events")
    doors: list[Callable[[], object]] = [
        lambda: query.open(uri),
        lambda: warehouse.load(None, uri, rows, "more"),
        lambda: stream.append(None, uri, rows, source="web", batch=7),
        lambda: warehouse.verify(uri),
        lambda: warehouse.repair(None, uri),
        lambda: warehouse.maintain(None, uri),
        lambda: warehouse.alter(None, uri, add_key=["k"]),
        lambda: warehouse.create(None, uri, ["n"]),
    ]
    for door in doors:
        refused(door, "events", entry)


@pytest.mark.parametrize("table", TABLES[1:])
def test_every_table_is_told_and_made_again(loader: Loader, table: str) -> None:
    """By the reader that opens it, or by verify. Only the log of `rejected` has to come back from a copy."""
    uri = loader.uri
    wh = query.open(uri)

    def ask(reader: Any) -> list[Any]:
        top = reader.top(3, mode="exact")
        return [reader.quantile(0.5, "n", mode="exact").value, *((one.value, one.count) for one in top)]

    truth = ask(wh)
    entry = KINDS["an entry"](Path(uri), table)
    if table in ("ledger", "runs/n", "keys/k"):
        refused(lambda: ask(wh), table, entry)
    if table in ("ledger", "runs/n", "keys/k", "steps"):
        refused(lambda: ask(query.open(uri)), table, entry)
    try:
        told = str(warehouse.verify(uri))
    except DamagedWarehouse as error:
        told = str(error)
    assert entry.name in told
    assert "levels deep" in told
    if table != "rejected":
        assert warehouse.repair(None, uri).outcome == "repaired"
        assert warehouse.verify(uri).ok
        assert ask(query.open(uri)) == truth


def test_brackets_in_texts_are_no_nesting(loader: Loader) -> None:
    harm = add_line(json.dumps({"commitInfo": {"batch": '\\"' + "[{" * 100_000}}))
    before = query.open(loader.uri).quantile(0.5)
    for table in TABLES:
        harm(Path(loader.uri), table)
    assert query.open(loader.uri).quantile(0.5) == before
    assert warehouse.verify(loader.uri).ok


def depth(value: Any) -> int:
    """The oracle: the levels of what Python's own parser finds."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


TEXTS = st.text(st.sampled_from('[]{}"\\:,a\n\u00e9'))
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
)


@settings(max_examples=40)
@given(VALUES, st.integers(0, 6), st.booleans(), st.booleans())
def test_the_levels_are_those_of_a_parser(value: Any, most: int, ascii_only: bool, is_stats: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    found = depth(value)
    if is_stats:
        text = json.dumps({"add": {"path": "[[[[[[[", "stats": text}}, ensure_ascii=ascii_only)
        found = max(found, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_nesting, "MOST_LEVELS", most)
        if found > most:
            with pytest.raises(DamagedWarehouse):
                check_nesting("t", "e.json", text.encode())
        else:
            check_nesting("t", "e.json", text.encode())


def test_only_what_delta_rs_reads_is_read() -> None:
    names = [f"{version:020d}.json" for version in range(9)]
    names += [f"{version:020d}.checkpoint.parquet" for version in (3, 6)]
    names += ["_last_checkpoint", f"{7:020d}.crc", "x.tmp"]
    assert entries_read(names) == ["_last_checkpoint", names[10], *names[6:9]]
    assert entries_read(names, version=5) == ["_last_checkpoint", names[9], *names[3:6]]
    assert entries_read(names, version=1) == ["_last_checkpoint", *names[:2]]
    assert entries_read(names, after=7) == [names[8]]
    assert entries_read(names, after=8) == entries_read([]) == []


@pytest.mark.parametrize("kind", ["an entry", "statistics", "a checkpoint"])
def test_without_the_look_the_process_ends(loader: Loader, kind: str) -> None:
    """The broken variant."""
    KINDS[kind](Path(loader.uri), "ledger")
    code = (
        "import sys; from tidemark import query; from tidemark.warehouse.delta import table_open\n"
        "table_open.check_nesting = lambda *_: None\n"
        "query.open(sys.argv[1]).quantile(0.5)"
    )
    command = [sys.executable, "-c", code, loader.uri]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ended.returncode < 0
