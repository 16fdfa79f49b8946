"""A warehouse in the store has each row once, whatever happens to requests; kills and races: tests/crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.stores.conftest import Place
from tests.stores.faults import FAULTS, TIMEOUT, insist
from tests.stores.gate import Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta.far_files import FarFiles
from tidemark.warehouse.delta.store import Store


def options(place: Place) -> dict[str, str]:
    return {**place.options, "timeout": TIMEOUT}


def load(place: Place, number: int) -> str:
    def work() -> str:
        batch = f"night-{number}"
        return warehouse.load(None, place.uri, rows(number), batch, storage_options=options(place)).outcome

    return insist(work)


def append(place: Place, source: str, batch: int, seed: int) -> bool:
    def work() -> bool:
        given = rows(seed)
        return stream.append(
            None, place.uri, given, source=source, batch=batch, storage_options=options(place)
        )

    return insist(work)


@pytest.mark.parametrize("faults", [(), pytest.param(FAULTS, marks=pytest.mark.slow)], ids=["calm", "faults"])
def test_a_whole_life(place: Place, faults: tuple[Fault, ...]) -> None:
    """Create, load until runs merge, stream, load that, maintain, verify; a reader sees all of it."""
    how: dict[str, Any] = {"storage_options": options(place)}
    place.server.set(*faults)
    insist(lambda: warehouse.create(None, place.uri, ["ms"], **HOW, **how))
    for number in range(4):
        assert load(place, number) == "loaded" or faults
    assert load(place, 1) == "known"
    assert append(place, "web", 0, 100) or faults
    assert not append(place, "web", 0, 100)
    wh = insist(lambda: query.open(place.uri, options(place)))
    history = [rows(number) for number in range(4)]
    insist(lambda: check(wh, [*history, rows(100)]))
    assert insist(lambda: warehouse.load(None, place.uri, **how)).outcome == "loaded" or faults
    insist(lambda: check(wh, [*history, rows(100)]))
    assert append(place, "web", 1, 101) or faults
    insist(lambda: warehouse.maintain(None, place.uri, grace="0 s", **how))
    insist(lambda: check(wh, [*history, rows(100), rows(101)]))
    assert insist(lambda: warehouse.verify(place.uri, storage_options=options(place))).ok
    broken = sum(bool(request.fault) for request in place.server.requests())
    assert (broken > 10) == bool(faults)


@pytest.mark.parametrize("table", ["ledger", "steps", "marks"])
@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_verified_is_what_the_store_has(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, is_broken: bool
) -> None:
    """A file is damaged after a reader of the same process has it in memory and on disk."""
    if is_broken:
        monkeypatch.setattr(FarFiles, "forget", lambda _: None)
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    warehouse.load(None, place.uri, rows(0), "night", **how)
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    check(query.open(place.uri, place.options, cache=tmp_path), [rows(0), rows(1)])
    store = Store.from_uri(place.uri, place.options)
    files = store.filesystem()
    found = files.get_file_info(fs.FileSelector(table, recursive=True))
    (path,) = [one.path for one in found if one.path.endswith(".parquet") and "_delta_log" not in one.path]
    with files.open_input_stream(path) as file:
        content = bytearray(file.read())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)  # much of a small file is footer
    assert store.far_files.objects is not None
    # Not through the file system: that remembers small files.
    store.far_files.objects.put(path, bytes(content))
    assert warehouse.verify(place.uri, **how).ok == is_broken
