"""What a forked child asks of a warehouse that its parent used is answered, or is an error of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.sql import parse_trees
from tidemark.warehouse.delta import table_open

ROWS = pa.table({"m": [1.0, 2.0], "k": ["a", "b"]})


def in_child(use: Callable[[], Any]) -> str:
    """What `except Exception` finds in a forked child; nothing if the child ends otherwise."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where delta-rs panics
        told = b""
        try:
            told = f"answered {use()}".encode()
        except Exception as error:  # noqa: BLE001  whatever it is
            told = f"{type(error).__name__}: {error}".encode()
        finally:
            os.write(writing, told)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def check_children(uri: Path) -> None:
    """Each door, after a new batch."""
    wh = query.open(uri)
    found = wh.quantile(0.5).N
    stream.append(None, uri, ROWS, source="s", batch=found)
    uses: dict[str, Callable[[], Any]] = {
        "reader": lambda: wh.quantile(0.5),
        "sql": lambda: wh.sql("FROM quantile(0.5)").fetchall(),
        "open": lambda: query.open(uri),
        "load": lambda: warehouse.load(None, uri, ROWS, "b"),
        "append": lambda: stream.append(None, uri, ROWS, source="s", batch=99),
        "create": lambda: warehouse.create(None, uri.parent / "new", ["m"]),
        "maintain": lambda: warehouse.maintain(None, uri),
        "verify": lambda: warehouse.verify(uri),
    }
    for name, use in uses.items():
        said = in_child(use)
        assert said.startswith("SystemRefused: "), (name, said)
        assert "was forked" in said
        assert "get_context('spawn')" in said
    assert found + ROWS.num_rows == wh.quantile(0.5).N


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    warehouse.create(None, tmp_path / "w", ["m"], key="k", eps=0.1, schema=ROWS.schema)
    warehouse.load(None, tmp_path / "w", ROWS, "a")
    return tmp_path / "w"


def test_a_forked_child_is_told_what_to_do_at_each_door(uri: Path) -> None:
    check_children(uri)
    assert not (uri.parent / "new").exists()


def test_a_panic_of_delta_rs_in_a_child_is_told_too(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_open, "check_not_forked", lambda: None)
    check_children(uri)


def test_a_panic_that_nobody_tells_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_open, "check_not_forked", lambda: None)
    monkeypatch.setattr("tidemark.warehouse.os_errors._FORKED", "nothing")
    with pytest.raises(AssertionError):
        check_children(uri)


def test_a_child_that_was_forked_before_the_first_use_is_refused_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_open, "_users", set())
    assert in_child(table_open.check_not_forked) == "answered None"
    table_open.check_not_forked()
    assert in_child(table_open.check_not_forked).startswith("SystemRefused: ")


def check_parser() -> None:
    """The child has a parser of its own, and lets that of its parent be: to close it ends the process."""
    own = parse_trees._parser()
    said = in_child(
        lambda: (
            parse_trees._parser() is not own
            and own in parse_trees._parsers.values()
            and parse_trees.parsed("SELECT 1") is not None
        )
    )
    assert said == "answered True"


def test_statements_are_parsed_in_a_child_too() -> None:
    check_parser()


def test_a_child_that_takes_its_parents_parser_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_trees, "os", SimpleNamespace(getpid=lambda: 1))
    with pytest.raises(AssertionError):
        check_parser()
