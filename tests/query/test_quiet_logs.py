"""Looks at logs that were quiet for a while ask for folders alone, and miss nothing that was committed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.warehouse.snapshots import near_tables, quiet_logs, sites
from tidemark.warehouse.snapshots.near_tables import NearTable

LONG_AGO = 60.0


def table(x: list[float], k: str = "a") -> pa.Table:
    return pa.table({"x": x, "k": [k] * len(x)})


def made(folder: Path) -> str:
    """A warehouse with three loaded rows and a live one."""
    place = str(folder / "w")
    warehouse.create(None, place, ["x"], key="k", schema=table([1.0]).schema)
    warehouse.load(None, place, table([1.0, 2.0, 3.0]), "first")
    stream.append(None, place, table([4.0], "b"), source="s", batch=0)
    return place


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return made(tmp_path)


@pytest.fixture(autouse=True)
def _always_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_tables, "_NOTED_SECONDS", -1.0)


def settle(uri: str) -> None:
    """As if all that was committed by now had been long ago."""
    at = time.time() - LONG_AGO
    for folder in Path(uri).glob("**/_delta_log"):
        for file in (*folder.iterdir(), folder):
            os.utime(file, (at, at))


def looks(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> int:
    """How many tables a question looks at by themselves."""
    found, update = [], NearTable.update

    def counted(self: Any) -> bool:
        found.append(self.name)
        return update(self)

    with monkeypatch.context() as patch:
        patch.setattr(NearTable, "update", counted)
        ask()
    return len(found)


def test_quiet_logs_are_asked_by_their_folders(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wh = query.open(uri)
    asked: list[Callable[[], Any]] = [
        lambda: wh.quantile(0.5).N,
        lambda: wh.frequency("a").count,
        lambda: wh.sql("SELECT count(*) FROM events").fetchall(),
    ]
    assert all(looks(monkeypatch, ask) for ask in asked * 2)  # they have not settled
    settle(uri)
    for ask in asked[:2] * 2:
        ask()
    assert [looks(monkeypatch, ask) for ask in asked[:2]] == [0, 0]


def change_all(uri: str) -> None:
    """AssertionError unless a reader sees each change at once, however quiet the logs were before."""
    wh = query.open(uri)
    changes: list[tuple[Callable[[], Any], Callable[[], Any], Any]] = [
        (
            lambda: stream.append(None, uri, table([9.0]), source="s", batch=1),
            lambda: (wh.quantile(1).value, wh.frequency("a").count),
            (9, 4),
        ),
        (lambda: warehouse.load(None, uri), lambda: (wh.quantile(1).n, wh.frequency("a").n), (5, 5)),
        (lambda: warehouse.alter(None, uri, eps=0.01), lambda: wh.quantile(0.5, mode="quick").eps, 0.01),
        (
            lambda: warehouse.delete(None, uri, "x = 9"),
            lambda: (wh.quantile(1).value, wh.frequency("a").count, wh.summary().sum),
            (4, 3, 10),
        ),
        (
            lambda: warehouse.load(None, uri, table([7.0, 8.0], "c"), "second"),
            lambda: (wh.quantile(1).value, wh.frequency("c").count, wh.quantile(1).N),
            (8, 2, 6),
        ),
        (lambda: warehouse.maintain(None, uri), lambda: (wh.quantile(1).value, wh.quantile(1).N), (8, 6)),
    ]
    for change, ask, expected in changes:
        settle(uri)
        for _ in range(3):
            ask()
        change()
        assert ask() == expected


def test_each_kind_of_change_is_seen_at_once(uri: str) -> None:
    change_all(uri)


def test_what_came_is_missed_by_a_look_that_never_asks(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_logs.QuietLogs, "are_unchanged", lambda _: True)
    with pytest.raises(AssertionError):
        change_all(uri)


@pytest.mark.parametrize("ahead", [-LONG_AGO, LONG_AGO / 2])
def test_folders_whose_times_stand_still_do_not_count(
    uri: str, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of some file systems that are mounted from elsewhere: `ahead` of when the warehouse was made."""
    still = int((time.time() - LONG_AGO + ahead) * 1e9)
    monkeypatch.setattr(quiet_logs, "_stamp", lambda _: (1, still))
    change_all(uri)
    # The variant that does not compare with the newest entry.
    monkeypatch.setattr(quiet_logs, "NEAR_NS", 2**62)
    if ahead > 0:
        with pytest.raises(AssertionError):
            change_all(uri)


def test_entries_that_come_within_the_grain_of_a_clock_are_waited_for(uri: str) -> None:
    entry = f"{uri}/ledger/_delta_log/{0:020}.json"
    assert quiet_logs.quiet_logs([entry]) is None
    settle(uri)
    known = quiet_logs.quiet_logs([entry])
    assert known is not None
    assert known.are_unchanged()
    os.utime(Path(entry).parent, (time.time(), time.time()))
    assert not known.are_unchanged()
    assert quiet_logs.quiet_logs([f"{uri}/nothing/{0:020}.json"]) is None


def test_a_warehouse_that_is_gone_or_made_anew_is_noticed(uri: str) -> None:
    wh = query.open(uri)
    settle(uri)
    for _ in range(2):
        wh.quantile(0.5)
    Path(uri).rename(f"{uri}-before")
    with pytest.raises(query.TidemarkError):
        wh.quantile(0.5)


def change_one_of_two(folder: Path) -> None:
    """AssertionError unless a reader of two warehouses sees at once what comes to either."""
    uris = {name: made(folder / name) for name in ("first", "second")}
    wh = query.open(uris)
    for number, place in enumerate([*uris.values()] * 2, 1):
        for uri in uris.values():
            settle(uri)
        for _ in range(3):
            assert 7 + number == wh.quantile(0.5).N
        stream.append(None, place, table([5.0], "b"), source="s", batch=number)
        assert 8 + number == wh.quantile(0.5).N
        assert wh.frequency("b").count == 2 + number


def test_several_warehouses_are_asked_by_all_of_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_one_of_two(tmp_path)
    monkeypatch.setattr(sites, "united_logs", lambda parts: parts[0])
    with pytest.raises(AssertionError):
        change_one_of_two(tmp_path / "again")
