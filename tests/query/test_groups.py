"""Answers about groups, against sorted lists of the rows of each group."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import (
    BATCHES,
    HOUR,
    MEASURES,
    MEMORY,
    ONE,
    PHIS,
    START,
    WINDOWS,
    GroupWorld,
    check_quantile,
    group_of,
)
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query import EmptyWindow, InputError
from tidemark.query.groups import group_bounds, group_slices
from tidemark.query.groups.group_slices import LargeSlice
from tidemark.query.quantiles import history_ranks
from tidemark.query.reading.costs import Rates
from tidemark.query.reading.live_cache import LiveCache
from tidemark.warehouse.loads import history
from tidemark.warehouse.projections import group_rows
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.value_marks import RunValues
from tidemark.warehouse.sizes import DEFAULT

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
MODES = st.sampled_from(["quick", "accurate", "exact"])
WHERE = st.sampled_from(
    [
        {"origin": "a"},
        {"origin": "b"},
        {"origin": "nowhere"},
        {"origin": ["a", "b", "", "nowhere"]},
        {"origin": "a", "number": 1},
        {"number": [1, 2**63 - 1, 2.5], "origin": ["a", "\U0010ffff"]},
    ]
)
Window = tuple[datetime, datetime] | None
ORIGINS: dict[str, Any] = {"measures": ONE, "groups": ["origin"]}  # of tests that ask about no other


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Three rows of two groups; no test changes it."""
    rows = [(START, name, 1, 2.0, None) for name in "aab"]
    return GroupWorld.of(tmp_path_factory.mktemp("small"), [(True, rows)], measures=ONE)


@pytest.mark.slow
@SOME
@given(BATCHES, WHERE, WINDOWS, MEASURES, MODES, st.sampled_from([None, "a", ["a", "b"]]), MEMORY)
def test_a_group_is_answered_as_its_rows_are(
    batches: Any, where: dict[str, Any], window: Window, measure: str, mode: Any, origin: Any, memory: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = GroupWorld.of(Path(folder), batches)
        wh, truth = world.open(memory=memory), world.truth(measure, where, window)
        check_by(wh, world, window, measure, mode, origin)
        if not truth.n:
            with pytest.raises(EmptyWindow, match="empty window"):
                wh.quantile(0.5, measure, where=where, between=window, mode=mode)
            return
        for quantile in wh.quantile(PHIS, measure, where=where, between=window, mode=mode):
            check_quantile(quantile, truth, mode)
            assert quantile.group == where
        points = [-2, 0, 1, 3]
        ranks = wh.rank(points, measure, where=where, between=window, mode=mode)
        for point, answer in zip(points, ranks, strict=True):
            assert answer.rank_lo <= truth.rank(point) <= answer.rank_hi
            assert mode == "quick" or answer.rank == truth.rank(point)


def check_by(
    wh: query.Warehouse, world: GroupWorld, window: Window, measure: str, mode: Any, origin: Any
) -> None:
    """`by` gives one answer for each group."""
    where = None if origin is None else {"origin": origin}
    by = ["origin"] if where is None else ["number"]
    answers = wh.quantile(PHIS, measure, where=where, by=by, between=window, mode=mode)
    groups = world.groups(["origin"], window)
    if where is not None:
        allowed = origin if isinstance(origin, list) else [origin]
        pairs = world.groups(["number", "origin"], window)
        groups = sorted({(number,) for number, name in pairs if name in allowed})
    assert [group_of(answer)[by[0]] for answer in answers[:: len(PHIS)]] == [group[0] for group in groups]
    for answer in answers:
        check_quantile(answer, world.truth(measure, group_of(answer), window), mode)


def test_top_takes_the_groups_with_the_most_rows(tmp_path: Path) -> None:
    rows = [
        (START, name, 1, float(i), None)
        for name, count in (("a", 5), ("b", 9), ("c", 7))
        for i in range(count)
    ]
    world = GroupWorld.of(tmp_path, [(True, rows[:10]), (False, rows[10:])], measures=ONE)
    answers = world.open().quantile(0.5, by="origin", top=2)
    assert [(answer.group, answer.N, answer.certain) for answer in answers] == [
        ({"origin": "b"}, 9, True),
        ({"origin": "c"}, 7, True),
    ]
    both = world.open().quantile(0.5, where={"number": 1}, by="origin", top=2)
    assert [group_of(answer)["origin"] for answer in both] == ["b", "c"]


@pytest.mark.parametrize("others", [[], ["a", "b"]])
def test_batches_of_rows_without_a_group_are_read(tmp_path: Path, others: list[str]) -> None:
    rows = [(START, name, 1, float(i), None) for i, name in enumerate(others)]
    nowhere = [(START, None, None, 1.0, None)]
    world = GroupWorld.of(tmp_path, [(True, nowhere), (True, nowhere + rows), (False, nowhere)], **ORIGINS)
    for memory in (0, 2**28):
        for mode in ("quick", "accurate", "exact"):
            check_few_groups(world.open(memory=memory), others, mode)


def check_few_groups(wh: query.Warehouse, others: list[str], mode: Any) -> None:
    day = (START, START + 24 * HOUR)
    for between in (None, day):
        answers = wh.quantile(0.5, by="origin", between=between, mode=mode)
        assert [group_of(answer)["origin"] for answer in answers] == others
        assert [answer.N for answer in wh.rank(9, by="origin", groups=["a", "x"], mode=mode)] == [
            len(others[:1]),
            0,
        ]
        with pytest.raises(EmptyWindow):
            wh.quantile(0.5, where={"origin": "x"}, between=between, mode=mode)
    days = wh.quantile(0.5, by="origin", top=2, between=day, every="1d", mode=mode)
    assert sorted({group_of(answer)["origin"] for answer in days}) == others
    assert wh.frequency("x", key="origin").hi == 0
    assert sorted(answer.value for answer in wh.top(5, key="origin")) == others


def test_groups_keep_their_order_and_an_absent_one_has_no_rows(tmp_path: Path) -> None:
    rows = [(START, "a", 1, 1.0, None), (START, "b", 1, math.nan, None)]
    wh = GroupWorld.of(tmp_path, [(True, rows)], **ORIGINS).open()
    quantiles = wh.quantile(0.5, by="origin", groups=["b", "nowhere", "a"])
    assert [answer.N for answer in quantiles] == [1, 0, 1]
    assert quantiles[1].value is None
    assert [answer.rank for answer in wh.rank(1, by="origin", groups=["nowhere", "a"])] == [0, 1]
    shares = [answer.cdf for answer in wh.cdf(1, by="origin", groups=["nowhere", "a"])]
    assert math.isnan(shares[0])
    assert shares[1] == 1
    empty, full = wh.histogram(2, by="origin", groups=["nowhere", "a"])
    assert (empty.counts, full.counts) == ([], [1])


def test_numbers_that_no_arrow_type_holds_are_doubles_in_tables(tmp_path: Path) -> None:
    rows = [(START, "a", number, 1.0, None) for number in (-(2**63), 5, 2**63 - 1)]
    wh = GroupWorld.of(tmp_path, [(True, rows)]).open()
    points = [2**70, Fraction(1, 2), Decimal("Infinity")]
    assert wh.rank(points, by="origin").to_arrow()["value"].to_pylist() == [2.0**70, 0.5, math.inf]
    path, numbers = tmp_path / "numbers", pa.array([-(2**63), 5, 2**63 - 1])
    warehouse.create(None, path, ["n"], groups=["k"])
    warehouse.load(None, path, pa.table({"n": numbers, "k": ["a", "a", "a"]}), "batch")
    edges = query.open(path).histogram(2, by="k").to_arrow()["edges"].to_pylist()
    assert edges == [[-(2**63), -1, 2**63 - 1]]


def test_rows_without_a_time_are_in_no_window_of_every(tmp_path: Path) -> None:
    """A group whose rows all have no time is none of the groups, whether it is declared or scanned."""
    rows = [
        (START, "a", 1, 1.0, Decimal(1)),
        (None, "b", 1, 2.0, Decimal(2)),
        (None, "b", 1, 2.0, Decimal(2)),
    ]
    wh = GroupWorld.of(tmp_path, [(True, rows)], **ORIGINS).open()
    for by in ("origin", "price"):
        assert [answer.N for answer in wh.quantile(0.5, by=by)] == [1, 2]
        assert [answer.N for answer in wh.quantile(0.5, every="1h", by=by)] == [1]
        assert [answer.N for answer in wh.quantile(0.5, every="1h", top=1, by=by)] == [1]


def test_a_group_of_nan_alone_has_no_bins(tmp_path: Path) -> None:
    rows = [
        (START + i * HOUR, name, 1, x, Decimal(i))
        for i, (name, x) in enumerate([("a", 1.0), ("b", math.nan)])
    ]
    wh = GroupWorld.of(tmp_path, [(True, rows)], **ORIGINS).open()
    for histograms in (
        wh.histogram(3, by="origin"),
        wh.histogram(3, by="price"),
        wh.histogram(3, every="1h"),
    ):
        assert [(one.counts, one.nans) for one in histograms] == [([1], 0), ([], 1)]
    with pytest.raises(EmptyWindow, match="no numbers of 'value': its 1 rows are NaN"):
        wh.histogram(3, where={"origin": "b"})


@pytest.mark.parametrize("by", [None, "number"])
def test_of_long_lists_only_groups_with_rows_are_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str | None
) -> None:
    rows = [(START + i % 9 * HOUR, "abc"[i % 3], i % 4, float(i), None) for i in range(60)]
    world = GroupWorld.of(tmp_path, [(True, rows), (False, rows)], measures=ONE)
    names, window = [*"ab", *(f"no {i}" for i in range(5000))], (START + HOUR, START + 7 * HOUR)
    where: dict[str, Any] = {"origin": names} | ({} if by else {"number": [*range(3), *range(100, 200)]})
    asked: list[Any] = []
    right = group_slices.SliceReader.slices

    def counted(self: Any, projection: Any, runs: Any, groups: Any) -> Any:
        asked.extend(groups)
        return right(self, projection, runs, groups)

    monkeypatch.setattr(group_slices.SliceReader, "slices", counted)
    more: dict[str, Any] = {"by": by, "groups": [2, 77, 1, 2.5]} if by else {}
    wh = world.open()
    wh._session.costs.rates = Rates(event_row=1e9, passed_row=1e9)  # which would be less work
    answers = wh.quantile(PHIS, where=where, between=window, **more)
    assert 0 < len(asked) <= 12
    for answer in answers:
        check_quantile(answer, world.truth("value", group_of(answer), window), "accurate")
    assert [answer.N > 0 for answer in answers[:: len(PHIS)]] == (
        [True, False, True, False] if by else [True]
    )


def test_tables_of_groups_begin_with_the_columns_of_by(small: GroupWorld) -> None:
    answers = small.open().quantile([0.5, 1], by="origin")
    frame = answers.to_pandas()
    assert list(frame.columns[:2]) == ["origin", "phi"]
    assert frame["N"].tolist() == [2, 2, 1, 1]
    assert "origin" in repr(answers)
    assert "<th>origin</th>" in answers._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"where": {"nothing": 1}}, "no column 'nothing'"),
        ({"where": {"origin": None}}, "belongs to no group"),
        ({"where": {"origin": []}}, "expected a value or a list"),
        ({"where": {}}, "where must map columns"),
        ({"where": "origin"}, "the expression 'origin' is not valid"),
        ({"where": 7}, "where must map columns"),
        ({"where": {"origin": 7}}, "origin"),
        ({"where": {"origin": "\ud800"}}, "cannot compare"),
        ({"where": {"price": Decimal("sNaN")}, "by": np.array(3)}, "by must be the name"),
        ({"by": "origin", "groups": np.array(3)}, "groups must be a list"),
        ({"mode": np.array(["quick"])}, "no mode"),
        ({"measure": np.array(["value", "price"])}, "no measure"),
        ({"by": "nothing"}, "no column 'nothing'"),
        ({"by": []}, "by must be the name"),
        ({"by": ["origin", "origin"]}, "twice"),
        ({"top": 3}, "without by"),
        ({"by": "origin", "top": 0}, "whole number"),
        ({"by": "origin", "top": 3, "limit": 3}, "exclude each other"),
        ({"by": "origin", "limit": 1}, "2 groups by origin, more than limit=1"),
        ({"by": "origin", "groups": "a"}, "groups must be a list"),
        ({"by": "origin", "groups": [("a", "b")]}, "expected 1 value"),
        ({"by": "origin", "groups": [None]}, "belongs to no group"),
        ({"where": {"origin": "a"}, "mode": "fast"}, "no mode 'fast'"),
    ],
)
def test_what_cannot_be_asked_is_told(small: GroupWorld, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as found:
        small.open().quantile(0.5, **arguments)
    assert words in str(found.value)


def test_groups_are_those_of_the_steps_that_the_groups_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that ends between the commits of the keys and of the groups adds no groups without rows.

    Streamed rows are live for the groups; those of a bulk load are read from `events`.
    """
    rows = [(START, name, 1, 1.0, None) for name in "aaabb"]
    world = GroupWorld.of(tmp_path, [(True, rows)], **ORIGINS)
    world.add([(START, "b", 1, 3.0, None)] * 3, load=False)
    right = history.StepCommits.commit

    def killed(commits: Any, projection: Any, *run: Any) -> bool:
        if isinstance(projection, SortedGroups):
            raise KeyboardInterrupt
        return right(commits, projection, *run)

    def check(groups: list[tuple[str, int]]) -> None:
        wh = world.open()
        for one in (wh, wh.pinned()):
            found = one.quantile(0.5, by="origin", limit=len(groups))
            assert [(group_of(a)["origin"], a.N) for a in found] == groups
            (top,) = one.quantile(0.5, by="origin", top=1)
            largest = max(groups, key=itemgetter(1))
            assert (group_of(top)["origin"], top.N, top.certain) == (*largest, True)
        names = wh.sql("SELECT \"group\"['origin'] FROM quantile(0.5, \"by\" := 'origin')").fetchall()
        assert names == [(name,) for name, _ in groups]

    monkeypatch.setattr(history.StepCommits, "commit", killed)
    with pytest.raises(KeyboardInterrupt):  # the batch is in the keys, and live for the groups
        world.load_live()
    check([("a", 3), ("b", 5)])
    monkeypatch.undo()
    world.load_live()
    monkeypatch.setattr(history.StepCommits, "commit", killed)
    with pytest.raises(KeyboardInterrupt):  # the batch is in the keys alone
        world.add([(START, name, 1, 2.0, None) for name in "cccccccd"], load=True)
    check([("a", 3), ("b", 5), ("c", 7), ("d", 1)])
    wh = world.open()
    assert wh.frequency("c", key="origin").count == 7
    monkeypatch.undo()
    warehouse.load(None, world.path)
    assert [group_of(answer)["origin"] for answer in wh.quantile(0.5, by="origin")] == ["a", "b", "c", "d"]


def test_live_rows_are_the_same_within_and_past_the_budget(tmp_path: Path) -> None:
    world = GroupWorld.create(tmp_path, **ORIGINS)
    readers = [world.open(memory=memory) for memory in (0, 2**28)]
    for batch in range(7):
        world.add([(START + i * HOUR / 7, "ab"[i % 2], 1, float(i % 5), None) for i in range(30)], load=False)
        if batch == 4:
            world.load_live()
        for wh in readers:
            for name in "ab":
                (answer,) = wh.quantile([0.5], where={"origin": name})
                check_quantile(answer, world.truth("value", {"origin": name}, None), "accurate")
            assert wh.quantile(0.5, mode="exact").value == world.truth("value", {}, None).quantile(0.5)


# Deliberately broken variants: each must be caught by the check that the tests above use.


def wrong(world: GroupWorld, memory: int = 2**28, **window: Any) -> bool:
    """Whether an answer about a group is wrong."""
    wh = world.open(memory=memory)
    for name in "ab":
        truth = world.truth("value", {"origin": name}, window.get("between"))
        for answer in wh.quantile(PHIS, where={"origin": name}, **window):
            try:
                check_quantile(answer, truth, "accurate")
            except AssertionError:
                return True
    return False


@pytest.fixture(scope="module")
def mixed_once(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """One to be copied."""
    rows = [(START + i * HOUR, "aabb"[i % 4], 1, float(i * 7 % 40), None) for i in range(40)]
    nobody: Any = None  # rows of no group
    rows += [(START, nobody, 1, float(i), None) for i in range(40)]
    batches = [(True, rows), (True, rows), (False, rows)]
    return GroupWorld.of(tmp_path_factory.mktemp("mixed"), batches, **ORIGINS)


@pytest.fixture
def mixed(mixed_once: GroupWorld, tmp_path: Path) -> GroupWorld:
    return mixed_once.copy(tmp_path)


def test_the_right_variant_is_right(mixed: GroupWorld) -> None:
    assert not wrong(mixed)
    assert not wrong(mixed, between=(START + 3 * HOUR, START + 17 * HOUR))


def test_a_slice_off_by_one_is_caught(mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    right = group_rows.GroupRows.rows_before

    def off(rows: Any, group: Any, kind: int) -> int:
        return max(0, right(rows, group, kind) - 1)

    monkeypatch.setattr(group_rows.GroupRows, "rows_before", off)
    assert wrong(mixed)


def test_ticks_before_an_edge_that_are_left_out_are_caught(
    mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = group_slices.cut_slice

    def forgetful(large: Any, edge_ticks: Any, spans: Any, window: Any) -> Any:
        none = group_slices.EdgeTicks(edge_ticks.spans, edge_ticks.counts * 0)
        return right(large, none, spans, window)

    monkeypatch.setattr("tidemark.query.groups.group_bounds.cut_slice", forgetful)
    assert wrong(mixed, memory=0, between=(START + 3 * HOUR, START + 17 * HOUR))


def test_ranks_in_memory_that_are_taken_for_exact_are_caught(
    mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: of the numbers in memory some are in the staircase, and nobody reads the others."""
    mixed.add([(START, "a", 1, float(i), None) for i in range(400)], load=False)
    assert not wrong(mixed, memory=0)
    right = history_ranks.read_intervals

    def blind(blocks: Any, history: Any, *more: Any) -> Any:
        return right(blocks, replace(history, in_memory=history.in_memory[:0]), *more)

    monkeypatch.setattr("tidemark.query.quantiles.rank_search.read_intervals", blind)
    assert wrong(mixed, memory=0)


def test_slices_are_read_whole_while_the_memory_suffices() -> None:
    def large(rows: int) -> LargeSlice:
        numbers = RunValues((), rows, np.array([0, rows - 1]), np.array([0.0, 1.0]))
        return LargeSlice((5, 5 + rows, 5 + rows, 5 + rows), numbers)

    block = DEFAULT.block_rows
    sizes = {(0, (b"a",)): 3 * block, (0, (b"b",)): block, (1, (b"a",)): 3 * block, (1, (b"b",)): 2 * block}
    slices: dict[Any, Any] = {place: large(rows) for place, rows in sizes.items()}

    def read_whole(budget: int) -> list[Any]:
        return list(group_bounds._to_read_whole(slices, [1, 2], budget))

    assert read_whole(16 * 9 * block) == [(0, (b"b",)), (1, (b"b",)), (1, (b"a",))]  # (0, a) costs too much
    assert read_whole(16 * 3 * block) == [(0, (b"b",)), (1, (b"b",))]
    assert read_whole(16 * block) == [(0, (b"b",))]
    assert read_whole(0) == []


def test_a_cache_that_serves_a_batch_that_history_has_taken_is_caught(
    mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh = mixed.open()
    wh.quantile(0.5, where={"origin": "a"})
    right = LiveCache.rows
    seen: list[Any] = []

    def greedy(*arguments: Any) -> Any:
        seen.extend(right(*arguments))
        return seen

    monkeypatch.setattr(LiveCache, "rows", greedy)
    assert mixed.truth("value", {"origin": "b"}, None).n == wh.quantile(0.5, where={"origin": "b"}).N
    mixed.load_live()
    assert mixed.truth("value", {"origin": "a"}, None).n < wh.quantile(0.5, where={"origin": "a"}).N
