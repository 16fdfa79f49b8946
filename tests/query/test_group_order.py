"""The order of groups, against the sorted rows of each: which come first, and which of them are certain."""

from __future__ import annotations

import math
import random
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, GroupWorld, Truth, group_of
from tests.soak import draws
from tidemark import query
from tidemark.jobs.cli import main as cli
from tidemark.query import InputError
from tidemark.query.groups.group_order import GroupOrder
from tidemark.query.reading.modes import ORDERS

Window = tuple[datetime, datetime] | None
NAMES = [f"g{number:02}" for number in range(24)]
DAY = (START, START + 24 * HOUR)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Groups of 1 to 250 rows, with equal values, NaN and NULL, loaded and live; some are NaN alone."""
    draw, batches = random.Random(4), []
    for number in range(4):
        rows: list[Any] = []
        for place, name in enumerate(NAMES):
            for _ in range(draw.randrange(1, 3 + 2 * place + 40 * (place % 4 == 0))):
                kind = draw.random()
                value = draw.choice([1.0, 2.0, 50.0]) if kind < 0.5 else draw.lognormvariate(place % 5, 1)
                value = math.nan if kind > 0.97 or name == "g07" else value
                price = None if kind > 0.9 else Decimal(draw.randrange(400)) / 100
                rows.append((START + draw.randrange(48) * HOUR / 2, name, place % 3, value, price))
        rows.append((START, None, 1, 9e9, Decimal(1)))
        batches.append((number < 3, rows))
    return GroupWorld.of(tmp_path_factory.mktemp("order"), batches)


def stands_before(order: str, a: Any, b: Any) -> bool:
    """By the truth; NaN stands last."""
    if any(isinstance(one, float) and math.isnan(one) for one in (a, b)):
        return not (isinstance(a, float) and math.isnan(a)) and isinstance(b, float) and math.isnan(b)
    return bool(a > b) if order.startswith("-") else bool(a < b)


def truths(world: GroupWorld, measure: str, where: Any, window: Window, least: int) -> dict[str, Truth]:
    given = {"number": [1, 2]} if isinstance(where, str) else where or {}
    found = {name: world.truth(measure, {"origin": name, **given}, window) for name in NAMES}
    return {name: truth for name, truth in found.items() if truth.n >= least}


def check(
    world: GroupWorld,
    wh: query.Warehouse,
    order: str,
    *,
    phi: float = 0.9,
    measure: str = "value",
    window: Window = None,
    where: Any = None,
    top: int | None = 5,
    least: int = 1,
    mode: Any = "exact",
) -> None:
    answers = wh.quantile(
        phi,
        measure,
        by="origin",
        where=where,
        between=window,
        order=order,
        top=top,
        least_rows=least,
        mode=mode,
    )
    true = truths(world, measure, where, window, least)
    names = [group_of(answer)["origin"] for answer in answers]
    assert len(names) == len(set(names)) == min(top or len(true), len(true))
    assert set(names) <= set(true)
    for answer, name in zip(answers, names, strict=True):
        assert true[name].n == answer.N
        assert (answer.certain is None) == (top is None)
    if order.endswith("error"):
        return
    facts = {
        name: (truth.n if order.endswith("rows") else truth.quantile(phi)) for name, truth in true.items()
    }
    for place, (answer, name) in enumerate(zip(answers, names, strict=True)):
        if answer.certain or mode == "exact":
            behind = set(true) - set(names[: place + 1])
            assert not [one for one in behind if stands_before(order, facts[one], facts[name])]
    if mode == "exact":
        expected = sorted(true)
        for _ in range(2):  # NaN last, equal ones by group
            numbers = [name for name in expected if facts[name] == facts[name]]
            numbers.sort(key=lambda name: facts[name], reverse=order.startswith("-"))
            expected = numbers + [name for name in expected if facts[name] != facts[name]]
        assert names == expected[:top]
        assert all(answer.certain for answer in answers) or top is None


@pytest.mark.parametrize("mode", ["quick", "accurate", "exact"])
@pytest.mark.parametrize("order", ORDERS)
def test_the_first_groups_of_an_order(world: GroupWorld, order: str, mode: Any) -> None:
    """Of groups that are read by block, and of groups in memory."""
    readers, draw = [world.open(memory=memory) for memory in (0, 2**28)], random.Random(f"{order} {mode}")
    for number in range(draws(2)):
        check(
            world,
            readers[number % 2],
            order,
            phi=draw.choice([0, 0.5, 0.9, 0.99, 1]),
            measure=draw.choice(["value", "price"]),
            window=draw.choice([None, DAY, (START + 3 * HOUR, START + 5 * HOUR)]),
            where=draw.choice([None, {"number": 1}, "number >= 1"]) if mode == "exact" else None,
            top=draw.choice([None, 1, 3, 20, 100]),
            least=draw.choice([1, 5, 60]),
            mode=mode,
        )


def test_each_window_has_its_order(world: GroupWorld) -> None:
    wh = world.open(memory=0)
    for where in (None, "price >= 0"):
        ask: dict[str, Any] = {"by": "origin", "between": DAY, "every": "6h", "where": where}
        first = wh.quantile(0.9, order="-value", top=3, mode="exact", **ask)
        every = wh.quantile(0.9, mode="exact", **ask)
        starts = sorted({answer.window[0] for answer in every if answer.window})
        assert [answer.window[0] for answer in first if answer.window] == [
            s for s in starts for _ in range(3)
        ]
        for number, start in enumerate(starts):
            inside = [one for one in every if one.window and one.window[0] == start]
            numbers = [one for one in inside if one.N and not math.isnan(one.value)]
            expected = sorted(numbers, key=lambda one: (-one.value, group_of(one)["origin"]))[:3]
            assert [group_of(one) for one in first[3 * number : 3 * number + 3]] == list(
                map(group_of, expected)
            )


def test_ranks_shares_and_histograms(world: GroupWorld) -> None:
    wh = world.open()
    for ask, of in ((wh.rank, "rank"), (wh.cdf, "cdf")):
        found = ask(2, by="origin", order="-value", top=4, mode="exact")
        every = ask(2, by="origin", mode="exact")
        expected = sorted(every, key=lambda one: (-getattr(one, of), group_of(one)["origin"]))[:4]
        assert list(map(group_of, found)) == list(map(group_of, expected))
    by_rows = wh.histogram(3, "price", by="origin", order="-rows", top=2)
    counts = sorted(one.N for one in wh.histogram(3, "price", by="origin"))
    assert [one.N for one in by_rows] == [counts[-1], counts[-2]]
    several = wh.quantile([0.1, 0.9], by="origin", order="-rows", top=2)
    assert [one.phi for one in several] == [0.1, 0.9] * 2
    for asked in (
        lambda: wh.quantile([0.1, 0.9], by="origin", order="value"),
        lambda: wh.histogram(3, "price", by="origin", order="value", top=2),
    ):
        with pytest.raises(InputError, match="one value for each group"):
            asked()


def test_least_rows_alone_leaves_groups_out(world: GroupWorld) -> None:
    wh = world.open()
    for where in (None, "price >= 0"):
        every = wh.quantile(0.5, by="origin", where=where)
        some = wh.quantile(0.5, by="origin", where=where, least_rows=60)
        assert [group_of(one) for one in some] == [group_of(one) for one in every if one.N >= 60] != []
    some = wh.quantile(0.5, by="origin", least_rows=60)
    assert len(wh.quantile(0.5, by="origin", least_rows=60, limit=len(some))) == len(some)
    assert len(wh.quantile(0.5, by="origin", least_rows=10**9)) == 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"by": "origin", "order": "slow"}, "order must be one of value, -value"),
        ({"by": "origin", "order": 3}, "order must be one of"),
        ({"order": "value"}, "order='value' was given without by"),
        ({"least_rows": 5}, "least_rows=5 was given without by"),
        ({"by": "origin", "least_rows": 0}, "least_rows must be a whole number of at least 1, got 0"),
        ({"by": "origin", "least_rows": "many"}, "least_rows must be a whole number"),
    ],
)
def test_what_is_refused(world: GroupWorld, given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        world.open().quantile(0.5, **given)


def test_the_doors_agree(world: GroupWorld, capsys: pytest.CaptureFixture[str]) -> None:
    wh = world.open()
    expected = [group_of(one)["origin"] for one in wh.quantile(0.9, by="origin", order="-value", top=3)]
    rows = wh.sql(
        """SELECT "group"['origin'] FROM quantile(0.9, "by" := 'origin', "order" := '-value', top := 3)"""
    )
    assert [name for (name,) in rows.fetchall()] == expected
    line = f"quantile 0.9 -w {world.path} --by origin --order=-value --top 3 --least-rows 2".split()
    assert cli.main(line) == 0
    printed = capsys.readouterr().out
    assert [word for word in printed.split() if word in NAMES] == expected
    assert "in the order -value, of at least 2 rows" in printed


def check_many(world: GroupWorld, mode: str) -> None:
    wh = world.open(memory=0)
    for phi in (0.1, 0.5, 0.7, 0.8, 0.9, 0.95):
        for top in (1, 2, 3, 5, 8, 20):
            check(world, wh, "-value", phi=phi, top=top, mode=mode)
            check(world, wh, "value", phi=phi, top=top, mode=mode, measure="price")


# Variants that are broken on purpose.


def test_groups_left_out_by_their_quick_values_are_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(self: GroupOrder, answers: Any) -> Any:
        return self._measured(answers), self._measured(answers)

    monkeypatch.setattr(GroupOrder, "_bounds", values)
    with pytest.raises(AssertionError):
        check_many(world, "exact")


def test_an_order_that_is_always_certain_is_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupOrder, "_certain", lambda *_: True)
    with pytest.raises(AssertionError):
        check_many(world, "quick")
