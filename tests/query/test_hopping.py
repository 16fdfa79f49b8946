"""Windows of `every` with a greater `width`, which overlap, against the rows of each of them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, ONE, START, WINDOWS, GroupWorld, Row, check_quantile
from tests.query.keyoracle import counts
from tidemark.query import InputError
from tidemark.query.groups.many_groups import ManyGroups
from tidemark.query.keys import window_scan
from tidemark.query.quantiles import cells
from tidemark.query.quantiles.many_windows import ManyWindows
from tidemark.query.reading.costs import Costs
from tidemark.query.scans import window_buckets
from tidemark.warehouse.columns import tick_counts

Patch = pytest.MonkeyPatch
Window = tuple[datetime, datetime]
EPOCH = datetime(1970, 1, 1, tzinfo=START.tzinfo)
WIDTHS = [(2, 5), (3, 6), (4, 4), (1, 24)]  # every and width, in hours
WHERES: list[Any] = [{}, {"where": "number = 1"}, {"where": {"origin": "a"}}]


def hops(world: GroupWorld, window: Window | None, every: int, width: int) -> list[Window]:
    """The windows that touch the time from the first row to the last one, cut where the asked one ends."""
    hours = [START + (row[0] - START) // HOUR * HOUR for row in world.rows if row[0] is not None]
    inside = (min(hours), max(hours) + HOUR) if hours else (START, START)
    if window is not None:
        inside = max(inside[0], window[0]), min(inside[1], window[1])
    if inside[0] >= inside[1]:
        return []
    step = every * HOUR
    at = EPOCH + (inside[0] - width * HOUR - EPOCH) // step * step
    found: dict[Window, None] = {}
    while at < inside[1]:
        start, end = at, at + width * HOUR
        if end > inside[0]:
            found[(start, end) if window is None else (max(start, window[0]), min(end, window[1]))] = None
        at += step
    return list(found)


def rows_where(world: GroupWorld, window: Window, where: dict[str, Any]) -> list[Row]:
    place, value = (2, 1) if where.get("where") == "number = 1" else (1, "a")
    return [
        row
        for row in world.rows
        if row[0] is not None and window[0] <= row[0] < window[1] and (not where or row[place] == value)
    ]


def check(world: GroupWorld, window: Window | None, every: int, width: int) -> None:
    asked: dict[str, Any] = {"between": window, "every": f"{every}h", "width": f"{width}h"}
    windows = hops(world, window, every, width)
    for where in WHERES:
        check_keys(world, windows, asked, where)
        check_values(world, windows, asked, where)
    if windows:
        check_groups(world, asked)


def check_keys(
    world: GroupWorld, windows: list[Window], asked: dict[str, Any], where: dict[str, Any]
) -> None:
    wh, rows = world.open(), [rows_where(world, one, where) for one in windows]
    numbers = wh.distinct(**asked, **where, key="number", mode="exact")
    assert [one.window for one in numbers] == windows
    true = [Counter(row[2] for row in own if row[2] is not None) for own in rows]
    assert [one.count for one in numbers] == list(map(len, true))
    joins = wh.self_join(**asked, **where, key="number")
    assert [join.count for join in joins] == [sum(n**2 for n in one.values()) for one in true]
    top: dict[Any, list[int]] = {}
    for hit in wh.top(2, **asked, **where, key="origin"):
        top.setdefault(hit.window, []).append(hit.count)
    for one, own in zip(windows, rows, strict=True):
        names = Counter(row[1] for row in own if row[1] is not None)
        assert top.get(one, []) == [n for _, n in names.most_common(2)]


def check_values(
    world: GroupWorld, windows: list[Window], asked: dict[str, Any], where: dict[str, Any]
) -> None:
    wh, group = world.open(), {"number": 1} if where.get("where") == "number = 1" else where.get("where", {})
    truths = [world.truth("value", group, one) for one in windows]
    if not any(truth.n for truth in truths):
        return
    answers = wh.quantile([0.1, 0.9], "value", **asked, **where)
    assert [answer.window for answer in answers[::2]] == windows
    for i, answer in enumerate(answers):
        check_quantile(answer, truths[i // 2], answer.mode)
    assert [one.N for one in wh.summary("value", **asked, **where)] == [truth.n for truth in truths]


def check_groups(world: GroupWorld, asked: dict[str, Any]) -> None:
    """Of a declared group, and by a scan."""
    wh = world.open()
    for by, place in (("origin", 1), ("number", 2)):
        for answer in wh.quantile(0.5, "value", **asked, by=by):
            truth = world.truth("value", dict(answer.group or {}), answer.window)
            check_quantile(answer, truth, answer.mode)
        for number in wh.distinct(**asked, by=by, key="number"):
            assert number.group is not None
            assert number.window is not None
            own = [row for row in rows_where(world, number.window, {}) if row[place] == number.group[by]]
            assert number.count == len({row[2] for row in own} - {None})


def created(folder: Path, batches: Any) -> GroupWorld:
    world = GroupWorld.create(folder, ONE, keys=["number"])
    for is_loaded, rows in batches:
        world.add(rows, load=is_loaded)
    return world


def set_ways(patch: Patch, *, pays: bool) -> None:
    """Whole runs pay, or do not; a scan never does where there is another way."""
    for way in (ManyWindows, ManyGroups):
        patch.setattr(way, "cost", lambda *_: -1.0 if pays else None)
    patch.setattr(Costs, "event_scan", lambda *_, **__: 1e15)


@given(batches=BATCHES, window=WINDOWS, hop=st.sampled_from(WIDTHS), pays=st.booleans())
@settings(max_examples=4)
def test_each_window_has_its_rows(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, window: Any, hop: tuple[int, int], pays: bool
) -> None:
    world = created(tmp_path_factory.mktemp("w"), batches)
    with Patch.context() as patch:
        set_ways(patch, pays=pays)
        check(world, window, *hop)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """To be read alone."""
    rows: list[Row] = [
        (START + (i * 7 % 20) * HOUR, "ab"[i % 2], i % 5 or None, float(i % 11), None) for i in range(90)
    ]
    return created(
        tmp_path_factory.mktemp("known"), [(True, rows[:40]), (True, rows[40:70]), (False, rows[70:])]
    )


def first_alone(windows: Any) -> list[list[int]]:
    return [list(range(len(windows)))]


PAIRS: Any = window_buckets.Buckets.pairs.fget  # type: ignore[attr-defined]  # a property
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "rows in arrays are in one window": (cells, "disjoint_windows", first_alone),
    "rows of small groups are in one window": (tick_counts, "disjoint_windows", first_alone),
    "keys of runs are in one window": (window_scan, "disjoint_windows", first_alone),
    "scanned rows are in one window": (
        window_buckets.Buckets,
        "pairs",
        property(lambda self: PAIRS(self).slice(0, len(self.edges))),
    ),
}


@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_windows_without_the_rows_of_others_are_noticed(
    known: GroupWorld, monkeypatch: Patch, broken: str | None
) -> None:
    pays = broken == "rows in arrays are in one window"
    set_ways(monkeypatch, pays=pays)
    if broken is None:
        check(known, None, 2, 5)
        return
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises((AssertionError, IndexError)):
        check(known, None, 2, 5)


def test_order_and_keys_of_several_columns_go_with_overlapping_windows(known: GroupWorld) -> None:
    asked: dict[str, Any] = {"every": "4h", "width": "8h", "by": "origin", "order": "-value", "top": 1}
    best = known.open().distinct(**asked, key="number")
    for one in best:
        assert one.window is not None
        rows = rows_where(known, one.window, {})
        numbers = {row[1]: len({own[2] for own in rows if own[1] == row[1]} - {None}) for row in rows}
        assert one.count == max(numbers.values())
    total = known.open().frequency("a", key="origin", every="4h", width="8h")
    assert [one.count for one in total] == [counts(known, "origin", one.window)[0]["a"] for one in total]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"width": "2h"}, "width='2h' was given without every"),
        ({"every": "4h", "width": "2h"}, "width='2h' is shorter than every='4h'"),
        ({"every": "1h", "width": "90min"}, "width='90min' is not a multiple of the tick"),
        ({"every": "1h", "width": -1}, "not a duration: -1"),
    ],
)
def test_a_width_that_makes_no_windows_is_refused(
    known: GroupWorld, asked: dict[str, Any], words: str
) -> None:
    for ask in (known.open().distinct, lambda **options: known.open().quantile(0.5, "value", **options)):
        with pytest.raises(InputError) as told:
            ask(**asked)
        assert words in str(told.value)


def test_a_window_that_is_short_is_cut_to_one_part(known: GroupWorld) -> None:
    between = (START + 2 * HOUR, START + 3 * HOUR)
    answers = known.open().rank(5, "value", between=between, every="1h", width="12h")
    assert [one.window for one in answers] == [between]
    assert np.isfinite(answers[0].rank)
