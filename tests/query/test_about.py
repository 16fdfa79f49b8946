"""`info()` and the repr of a warehouse say what it is: checked against a plain list of batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.asking import about
from tidemark.warehouse.columns.ticks import Window

START = datetime(2001, 3, 1, 5, tzinfo=UTC)
DAY = timedelta(days=1)


def rows(day: int, count: int) -> pa.Table:
    """Rows of one day; the last has no time."""
    times = [START + day * DAY] * (count - 1)
    return pa.table(
        {
            "at": pa.array([*times, None], pa.timestamp("us", tz="UTC")),
            "m": pa.array(range(count), pa.float64()),
            "k": ["x"] * count,
            "l": ["y"] * count,
        }
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, int, Any]]]:
    """A warehouse, and its batches in their order: name, rows, and step or "live"."""
    uri = tmp_path_factory.mktemp("about") / "w"
    warehouse.create(
        None, uri, ["m"], keys=[["k", "l"], ["k"]], groups=["l"], time="at", schema=rows(0, 2).schema
    )
    batches: list[tuple[str, int, Any]] = []
    for step in range(4):
        warehouse.load(None, uri, rows(step, step + 2), f"n{step}")
        batches.append((f"load:n{step}", step + 2, step))
    for number in range(2):
        stream.append(None, uri, rows(9, 3), source="s", batch=number)
    warehouse.load(None, uri)
    batches.append(("s 0 to 1", 6, 4))
    stream.append(None, uri, rows(7, 5), source="s", batch=2)
    batches.append(("s 2", 5, "live"))
    return uri, batches


def check(uri: Path, batches: list[tuple[str, int, Any]]) -> None:
    wh = query.open(uri)
    for facts in (wh.info(), wh.pinned().info()):
        assert [(name, one["rows"], one["step"]) for name, one in facts["last_batches"].items()] == batches[
            -5:
        ]
        first, last = START.replace(hour=0), START.replace(hour=0) + 10 * DAY
        assert facts["span"] == {"start": first, "end": last}
        assert (facts["time"], facts["tick_seconds"]) == ("at", 86400)
        assert (facts["key_columns"], facts["group_columns"]) == (["k,l", "k", "l"], ["l"])
    told = json.loads(wh.info().to_json())
    assert told["last_batches"]["s 2"] == {"rows": 5, "step": "live"}
    assert "last_batches.s 2.rows" in repr(wh.info())


def test_info_lists_columns_grain_span_and_the_last_batches(built: Any) -> None:
    check(*built)


def test_a_span_that_ends_a_tick_early_is_caught(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about, "Window", lambda first, stop: Window(first, stop - 1))
    with pytest.raises(AssertionError):
        check(*built)


def test_the_repr_is_one_line_that_says_what_it_is(built: Any, tmp_path: Path) -> None:
    uri, _ = built
    expected = f"Warehouse('{uri}': measures m; keys k,l, k, l; groups l; time at; eps 0.001)"
    assert repr(query.open(uri)) == repr(query.open(uri).pinned()) == expected
    warehouse.create(None, tmp_path / "w", ["m"])
    assert repr(query.open(tmp_path / "w")) == f"Warehouse('{tmp_path / 'w'}': measures m; eps 0.001)"
    assert query.open(tmp_path / "w").info()["span"] is None
