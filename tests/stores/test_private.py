"""Private columns of a warehouse in a store: no object has a name, and questions by name are answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.stores.conftest import Place
from tests.warehouse.private_world import NAMES, SCHEMA, rows, secret_in, traces
from tidemark import query, stream, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.private import secrets


def test_no_object_of_a_store_has_a_name(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_known", {})
    monkeypatch.setattr(secrets, "_read", {})
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(
        None, place.uri, ["delay"], key="user", time="time", schema=SCHEMA, private=["user", "card"],
        index=["user"], secret_file=secret_in(tmp_path / "secret"), **how,
    )  # fmt: skip
    warehouse.load(None, place.uri, rows(0, 90), "a", **how)
    late = pa.concat_tables([rows(100, 20), rows(5000, 1, 40_000)])
    stream.append(None, place.uri, late, source="s", batch=0, **how)
    warehouse.delete(None, place.uri, where=f"user = '{NAMES[2]}'", **how)
    wh = query.open(place.uri, place.options, cache=tmp_path / "cache")
    users = rows(0, 90)["user"].to_pylist() + rows(100, 20)["user"].to_pylist()
    for name, count in ((NAMES[1], users.count(NAMES[1])), (NAMES[2], 0)):
        assert wh.frequency(name, mode="exact").count == count
        statement = "SELECT count(*) FROM events WHERE user = ?"
        assert wh.sql(statement, params=[name]).fetchall() == [(count,)]
    files = Store.from_uri(place.uri, place.options).filesystem()
    copied = tmp_path / "copied"
    copied.mkdir()
    names = [one.path for one in files.get_file_info(pa.fs.FileSelector("", recursive=True)) if one.is_file]
    for number, name in enumerate(names):
        content = files.open_input_stream(name).read()
        (copied / f"{number}{Path(name).suffix}").write_bytes(content)
    assert len(names) > 20
    assert traces(copied, []) == traces(tmp_path / "cache", []) == []
