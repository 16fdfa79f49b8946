"""Many groups, windows and ranks at once, out of whole runs: the answers are those of each one alone."""

from __future__ import annotations

import math
import pickle
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, MEASURES, PHIS, START, WINDOWS, GroupWorld, check_quantile
from tests.soak import draws
from tidemark import query
from tidemark.query import EmptyWindow, InputError
from tidemark.query.answers import answer_columns
from tidemark.query.answers.answer_columns import AnswerColumns, Column
from tidemark.query.answers.measure_answers import RankAnswer
from tidemark.query.asking import declared_groups
from tidemark.query.groups import many_groups
from tidemark.query.groups.group_bounds import GroupBounds
from tidemark.query.groups.group_table import GroupTable
from tidemark.query.groups.many_groups import ManyGroups
from tidemark.query.quantiles import cells, whole_runs
from tidemark.query.quantiles.many_windows import ManyWindows
from tidemark.query.quantiles.window_bounds import WindowBoundsCache
from tidemark.query.reading import merged_parts, shares
from tidemark.query.reading.costs import Costs
from tidemark.query.reading.number_parts import NumberParts
from tidemark.warehouse.columns import tick_counts

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
Ask = Callable[..., Any]

POINTS = [-2, Decimal("0.5"), 0, 3, 10**30]
GROUPED: list[dict[str, Any]] = [
    {"by": "origin"},
    {"by": ["number", "origin"]},
    {"by": ["origin", "number"]},
    {"by": "origin", "limit": 2},
    {"by": "origin", "top": 2},
    {"by": ["origin", "number"], "top": 3},
    {"by": "origin", "groups": ["b", "nowhere", "a", "b"]},
    {"by": "number", "where": {"origin": ["a", "b", "nowhere"]}},
    {"by": "number", "groups": [1, 2.5, 7], "where": {"origin": "a"}},
    {"where": {"origin": ["a", "b", ""]}},
    {"where": {"origin": "nowhere"}},
    {"where": {"origin": "a", "number": [1, 2**63 - 1]}},
    {"by": "origin", "least_rows": 5},
    {"by": "origin", "order": "rows"},
]
ORDERED: list[dict[str, Any]] = [  # these need one answer for each group
    {"by": "origin", "order": "-value", "top": 2},
    {"by": ["origin", "number"], "order": "value", "least_rows": 2},
    {"by": "origin", "order": "-error", "top": 1},
]


def ask(wh: query.Warehouse, question: Ask, *, together: bool) -> Any:
    """The answers of a question, answered in one of the two ways; or its refusal.

    Three threads share the few rows here.
    """
    with pytest.MonkeyPatch.context() as patch:
        for way in (ManyGroups, ManyWindows):
            patch.setattr(way, "cost", lambda *_: -1.0 if together else None)
        patch.setattr(Costs, "event_scan", lambda *_, **__: 1e15)
        if together:  # where the other way was taken, there is nothing to compare
            patch.setattr(declared_groups, "FEWEST_CELLS", 0)
            patch.delattr(GroupBounds, "get")
            patch.delattr(WindowBoundsCache, "compute")
            patch.setattr(shares, "CORES", 3)
            patch.setattr(shares, "SHARED", 1)
        try:
            return question(wh)
        except (EmptyWindow, InputError) as refusal:
            return type(refusal), str(refusal)


def shown(answer: Any) -> str:
    """An answer without what differs: one alone reads blocks, and may know the ends of its rank less well."""
    facts = {**answer.document, "blocks_read": 0}
    return str({**facts, "rank_lo": 0, "rank_hi": 0} if isinstance(answer, query.Answer) else facts)


def check_same(wh: query.Warehouse, question: Ask) -> None:
    """Both ways give the same answers, in the same order, or the same refusal."""
    alone, together = (ask(wh, question, together=way) for way in (False, True))
    if isinstance(alone, tuple) or isinstance(together, tuple):
        assert alone == together
        return
    assert list(map(shown, together)) == list(map(shown, alone))
    columns = [name for name in alone.to_arrow().column_names if not name.startswith("rank_")]
    assert str(together.to_arrow().select(columns)) == str(alone.to_arrow().select(columns))
    assert together._repr_html_().count("<tr>") == alone._repr_html_().count("<tr>")


@pytest.mark.slow
@SOME
@given(
    BATCHES,
    WINDOWS,
    MEASURES,
    st.sampled_from(["accurate", "exact"]),
    st.sampled_from([None, 1, 3, 24]),
    st.permutations(GROUPED),
    st.permutations(ORDERED),
)
def test_cells_are_answered_together_as_each_is_alone(
    batches: Any,
    window: Any,
    measure: str,
    mode: Any,
    hours: int | None,
    grouped: list[dict[str, Any]],
    ordered: list[dict[str, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wh = GroupWorld.of(Path(folder), batches).open()
        asked: dict[str, Any] = {"measure": measure, "mode": mode, "between": window}
        check_same(wh, lambda wh: wh.quantile(PHIS, **asked, every=(hours or 2) * HOUR))
        check_same(wh, lambda wh: wh.rank(POINTS, **asked, every=(hours or 2) * HOUR))
        if hours:
            asked["every"] = hours * HOUR
        else:
            check_same(wh, lambda wh: wh.quantile(PHIS, **asked))
        for more in grouped[:4]:
            check_same(wh, lambda wh, more=more: wh.quantile(PHIS, **more, **asked))
        check_same(wh, lambda wh: wh.rank(POINTS, **grouped[4], **asked))
        check_same(wh, lambda wh: wh.cdf(POINTS, **grouped[5], **asked))
        check_same(wh, lambda wh: wh.histogram([-1, 0, 1, 2], **grouped[6], **asked))
        check_same(wh, lambda wh: wh.cdf(1, **ordered[0], **asked))
        check_same(wh, lambda wh: wh.quantile(0.5, **ordered[1], **asked))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two runs and a live batch, with NaN and NULL, rows of no group and rows without a time."""
    rows: list[Any] = [
        (
            START + i * HOUR / 3,
            ["a", "b", "", "c", None][i % 5],
            [1, 2, None][i % 3],
            [float(i * 7 % 40), math.nan, None, -0.0][min(i % 23, 3) if i % 23 < 3 else 0],
            Decimal(i % 9) / 2,
        )
        for i in range(90)
    ]
    rows += [(None, "a", 1, 5.0, None)] * 3
    return GroupWorld.of(
        tmp_path_factory.mktemp("mixed"), [(True, rows), (True, rows[:40]), (False, rows[20:])]
    )


@pytest.mark.parametrize(
    "asked", [{}, {"every": 6 * HOUR}, {"between": (START + 2 * HOUR, START + 9 * HOUR)}]
)
@pytest.mark.parametrize("mode", ["quick", "accurate", "exact"])
def test_the_answers_are_those_of_plain_lists(mixed: GroupWorld, mode: Any, asked: dict[str, Any]) -> None:
    wrong = wrong_answers(mixed, mode, **asked)
    assert wrong == []


def wrong_answers(
    world: GroupWorld, mode: Any = "accurate", wh: query.Warehouse | None = None, **asked: Any
) -> list[Any]:
    """The answers that are not those of sorted lists of the rows of their groups and windows."""
    wh, wrong = wh or world.open(), list[Any]()
    for by in ("origin", ["number", "origin"]):
        answers = ask(wh, lambda wh, by=by: wh.quantile(PHIS, by=by, mode=mode, **asked), together=True)
        names = [by] if isinstance(by, str) else by
        found = len({str(answer.group) for answer in answers})
        wrong += [] if found == len(world.groups(names, asked.get("between"))) else [(by, found)]
        wrong += [answer for answer in answers if not is_right(world, answer, mode)]
    if mode != "quick":
        for series in ({"every": HOUR}, {"every": 6 * HOUR, "by": "origin"}):
            both = {**series, **asked}
            answers = ask(wh, lambda wh, both=both: wh.quantile(PHIS, mode=mode, **both), together=True)
            wrong += [answer for answer in answers if not is_right(world, answer, mode)]
    return wrong


def is_right(world: GroupWorld, answer: Any, mode: str) -> bool:
    try:
        truth = world.truth("value", dict(answer.group or {}), answer.window)
        check_quantile(answer, truth, mode)
        assert answer.m <= answer.N
        assert (answer.error_bound, answer.rows_scanned) == (0, None)
        assert (
            answer.value is None
            or answer.low is answer.value
            or answer.low == answer.value
            or math.isnan(answer.low)
        )
    except AssertionError:
        return False
    return True


def test_rows_of_runs_that_are_kept_are_not_read_again(mixed: GroupWorld) -> None:
    wh = mixed.open()

    def read(**asked: Any) -> int:
        found: int = ask(wh, lambda wh: wh.quantile(0.5, **asked), together=True)[0].blocks_read
        return found

    assert read(by="origin") > 0
    assert read(by="origin", every=HOUR) == 0
    assert read(by=["number", "origin"], every=HOUR) > 0
    assert read(every=HOUR) > 0
    assert read(every=2 * HOUR) == 0


def test_an_answer_is_an_object_when_somebody_takes_it(
    mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    right = AnswerColumns._answer

    def counted(self: Any, at: int) -> Any:
        taken.append(at)
        return right(self, at)

    answers = ask(mixed.open(), lambda wh: wh.quantile([0.1, 0.9], by="origin", every=HOUR), together=True)
    monkeypatch.setattr(answer_columns.AnswerColumns, "_answer", counted)
    assert len(answers.to_arrow()) == len(answers) > 100
    assert taken == []
    last, some = answers[-1], answers[3:5]
    assert taken == [len(answers) - 1, 3, 4]
    assert (last.phi, some[0].phi, some[1].phi) == (0.9, 0.9, 0.1)
    assert some[0].window == answers[2].window
    assert pickle.loads(pickle.dumps(answers)).to_json() == answers.to_json()
    with pytest.raises(IndexError):
        answers[len(answers)]


def test_columns_are_equal_to_the_answers_that_they_are() -> None:
    rank, fields = Column(np.array([1, 2])), {"eps": 0.1, "mode": "exact", "measure": "v", "blocks_read": 0}
    scope = {"m": Column(np.array([0])), "nans": Column(np.array([0])), "nulls": Column(np.array([0]))}
    own = {"value": rank, "rank": rank, "rank_lo": rank, "rank_hi": rank}
    shared = {**fields, "window": None, "as_of": {}}
    answers: Any = AnswerColumns(RankAnswer, own, {"n": Column(np.array([5])), **scope}, shared, 2)
    assert answers == list(answers) == [answers[0], answers[1]]
    assert answers != [answers[1], answers[0]]
    assert answers != answers[:1]
    assert answers.column("N") == [5, 5]
    assert answers.column("error_bound") == [0, 0]


def test_only_many_cells_are_answered_together(mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few groups or windows are found by marks; many are not, unless the memory is too small for the runs."""
    read: list[Any] = []
    right = whole_runs.WholeRuns.rows

    def counted(self: Any, view: Any, windows: Any) -> Any:
        read.append(view)
        return right(self, view, windows)

    monkeypatch.setattr(whole_runs.WholeRuns, "rows", counted)
    questions: list[tuple[int, Ask]] = [
        (0, lambda wh: wh.quantile(0.5, by="origin")),
        (0, lambda wh: wh.quantile(PHIS, every=24 * HOUR)),
        (0, lambda wh: wh.quantile([i / 100 for i in range(100)], every=HOUR, mode="quick")),
        (1, lambda wh: wh.quantile(0.5, by="origin", groups=["a", *map(str, range(100))])),
        (1, lambda wh: wh.quantile(0.5, by="origin", every=HOUR)),
        (1, lambda wh: wh.quantile([i / 100 for i in range(100)])),
        (1, lambda wh: wh.rank([3, 4], every=HOUR)),
    ]
    for expected, question in questions:
        for memory, most in ((2**28, expected), (1000, 0)):
            read.clear()
            question(mixed.open(memory=memory))
            assert len(read) == most


# Deliberately broken variants: each must be caught by the comparison with plain lists.


def live_rows_are_left_out(patch: pytest.MonkeyPatch) -> None:
    right = cells.numbers_by_cell

    def wrong(parts: Any, *more: Any) -> Any:
        return right([part for part in parts if not part.is_live], *more)

    patch.setattr(many_groups, "numbers_by_cell", wrong)


def rows_outside_the_windows_are_taken(patch: pytest.MonkeyPatch) -> None:
    right = tick_counts.window_codes
    patch.setattr(cells, "window_codes", lambda ticks, windows: np.maximum(right(ticks, windows), 0))


def the_rows_of_a_share_are_left_out(patch: pytest.MonkeyPatch) -> None:
    right = shares.equal_shares
    patch.setattr(cells, "equal_shares", lambda items: right(items)[1:])


def the_last_tick_is_cut(patch: pytest.MonkeyPatch) -> None:
    right = cells.Part.within
    patch.setattr(
        cells.Part, "within", lambda self, first, last, **asked: right(self, first, last - 1, **asked)
    )


def parts_are_not_merged(patch: pytest.MonkeyPatch) -> None:
    right = NumberParts

    def wrong(numbers: Any, edges: Any, **_: Any) -> Any:
        return right(numbers, edges, are_sorted=True)

    patch.setattr(merged_parts, "NumberParts", wrong)


def whole_parts_start_one_row_late(patch: pytest.MonkeyPatch) -> None:
    right = merged_parts.Stretches.of
    patch.setattr(
        merged_parts.Stretches,
        "of",
        lambda numbers, starts, stops, parts: right(np.roll(numbers, -1), starts, stops, parts),
    )


def nan_counts_as_a_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cells, "_kinds", lambda _: None)


def groups_are_off_by_one(patch: pytest.MonkeyPatch) -> None:
    right = GroupTable.by_values

    def wrong(self: Any, choice: Any) -> Any:
        places, shown = right(self, choice)
        return np.roll(places, 1), shown

    patch.setattr(GroupTable, "by_values", wrong)


@pytest.mark.parametrize(
    "broken",
    [
        live_rows_are_left_out,
        rows_outside_the_windows_are_taken,
        the_rows_of_a_share_are_left_out,
        the_last_tick_is_cut,
        parts_are_not_merged,
        whole_parts_start_one_row_late,
        nan_counts_as_a_number,
        groups_are_off_by_one,
    ],
)
def test_a_broken_variant_is_caught(
    mixed: GroupWorld, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    broken(monkeypatch)
    assert wrong_answers(mixed, between=(START + 2 * HOUR, START + 9 * HOUR)) or wrong_answers(mixed)
