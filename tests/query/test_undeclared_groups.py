"""Questions that no declared group answers: scans of `events`, against sorted lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, GroupWorld, Row, Truth, check_quantile, group_of
from tidemark.query import EmptyWindow, InputError
from tidemark.query.asking import scan_progress

PHIS = [0, 0.25, 0.5, 0.99, 1]
NAMES = ["a", "b", "", "é" * 30, None]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Loaded steps with late rows, and two live batches."""
    made = GroupWorld.create(tmp_path_factory.mktemp("world"))
    for batch in range(7):
        rows: list[Row] = [
            (START + (batch * 5 - i % 3) * HOUR, NAMES[i * 7 % 5], i % 4 or None, number(i), None)
            for i in range(40)
        ]
        made.add(rows, load=batch < 5)
    return made


def number(i: int) -> float | None:
    return {3: None, 5: math.nan}.get(i % 11, float(i * 37 % 23) - 5)


def truth(world: GroupWorld, condition: Callable[[Row], bool]) -> Truth:
    return Truth.of([row[3] for row in world.rows if condition(row)])


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("origin = 'a'", lambda row: row[1] == "a"),
        ("number >= 2 AND origin <> ''", lambda row: row[2] is not None and row[2] >= 2 and row[1]),
        ("origin IS NULL OR value > 3", lambda row: row[1] is None or over(row[3], 3)),
        ("origin LIKE 'é%'", lambda row: (row[1] or "").startswith("é")),
        ("hour(time) % 2 = 0", lambda row: row[0].hour % 2 == 0),
    ],
)
def test_a_condition_as_text_selects_its_rows(
    world: GroupWorld, text: str, condition: Callable[[Row], bool]
) -> None:
    wh, rows = world.open(), truth(world, condition)
    for answer in wh.quantile(PHIS, "value", where=text, mode="quick"):
        check_quantile(answer, rows, "exact")
        assert answer.rows_scanned == len(world.rows)
        assert (answer.declare, answer.group) == (None, {"where": text})
        assert f"a scan of {len(world.rows)} rows" in repr(answer)
    assert [one.rank for one in wh.rank([-9, 0, 7.5], "value", where=text)] == [
        rows.rank(point) for point in (-9, 0, 7.5)
    ]
    histogram = wh.histogram([-10, 0, 5, 20], "value", where=text)
    assert sum(histogram.counts) == len(rows.numbers)


def test_the_rows_of_the_window_are_told_as_scanned(world: GroupWorld) -> None:
    """Those that the condition was asked of: history's and live ones, whatever their values are."""
    wh = world.open()
    for hours in (4, 20, 33):
        end = START + hours * HOUR
        inside = [row for row in world.rows if row[0] < end]
        answer = wh.rank(0, "value", where="number >= 2", between=(None, end))
        assert answer.rows_scanned == len(inside)
        for part in wh.rank(0, "value", where="number >= 2", between=(None, end), every="6h"):
            assert part.rows_scanned == len(inside)


def over(value: float | None, limit: float) -> bool:
    return value is not None and (math.isnan(value) or value > limit)  # NaN is the greatest to DuckDB


def test_undeclared_columns_name_the_group_that_would_do(world: GroupWorld) -> None:
    answers = world.open().quantile(PHIS, "value", by="number")
    assert [group_of(answer)["number"] for answer in answers[:: len(PHIS)]] == [1, 2, 3]
    for answer in answers:
        check_quantile(answer, world.truth("value", group_of(answer), None), "exact")
        assert answer.declare == ("number",)
        assert "declare groups=[['number']] to avoid it" in answer.scope_text
    mixed = world.open().rank(0, "value", where={"price": 1, "origin": ["a", "b"]}, by="number", groups=[1])
    assert [(answer.N, answer.declare) for answer in mixed] == [(0, ("number", "price", "origin"))]


def test_top_limit_and_groups_choose_among_scanned_groups(world: GroupWorld) -> None:
    wh, text = world.open(), "number IS NOT NULL"
    names = ["", "a", "b", "é" * 30]
    sizes = {name: sum(row[1] == name and row[2] is not None for row in world.rows) for name in names}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name.encode()))[:2]
    top = wh.quantile(0.5, "value", where=text, by="origin", top=2)
    assert [group_of(answer)["origin"] for answer in top] == largest
    assert all(answer.certain for answer in top)
    chosen = wh.quantile(0.5, "value", where=text, by="origin", groups=["b", "nowhere", "a"])
    assert [group_of(answer)["origin"] for answer in chosen] == ["b", "nowhere", "a"]
    assert [answer.N > 0 for answer in chosen] == [True, False, True]
    with pytest.raises(InputError, match="4 groups by origin, more than limit=3"):
        wh.quantile(0.5, "value", where=text, by="origin", limit=3)
    histograms = wh.histogram(3, "value", where=text, by="origin")
    for name, histogram in zip(names, histograms, strict=True):
        inside = truth(world, lambda row, name=name: row[1] == name and row[2] is not None)  # type: ignore[misc]  # bound at once
        assert sum(histogram.counts) == len(inside.numbers)
        assert histogram.edges[0] == inside.numbers[0]


def test_a_condition_without_rows_is_an_empty_window(world: GroupWorld) -> None:
    with pytest.raises(EmptyWindow, match=r"where \(number > 99\)"):
        world.open().quantile(0.5, "value", where="number > 99")
    assert list(world.open().quantile(0.5, "value", where="number > 99", by="origin")) == []


def test_an_empty_list_of_quantiles_has_no_answers(world: GroupWorld) -> None:
    assert list(world.open().quantile([], "value", where="number = 1")) == []
    assert list(world.open().quantile([], "value", where={"origin": "a"})) == []


def test_a_column_of_null_alone_is_equal_to_nothing(tmp_path: Path) -> None:
    """Text has no names then; rows of other files may have some."""
    nobody: Any = None
    made = GroupWorld.create(tmp_path, groups=None)
    made.add([(START, nobody, 1, 1.0, Decimal(2))], load=True)
    wh = made.open()
    with pytest.raises(EmptyWindow, match="no rows of 'value' where origin = a"):
        wh.quantile(0.5, where={"origin": "a"})
    made.add([(START, "a", nobody, 2.0, nobody), (START, nobody, 1, 3.0, nobody)], load=False)
    for where, value in (({"origin": "a"}, 2), ({"number": 1}, 1), ({"number": Decimal("sNaN")}, None)):
        if value is not None:
            assert wh.quantile(0, where=where).value == value
        else:
            with pytest.raises(EmptyWindow):
                wh.quantile(0, where=where)
    with pytest.raises(EmptyWindow, match="its 2 rows are all NULL"):
        wh.quantile(0.5, "price", where="value > 1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"where": "read_csv('/etc/passwd') IS NULL"}, "is not valid"),
        ({"where": "value > (SELECT 1)"}, "subquery"),
        ({"where": "random() < 0.5"}, "random"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"by": "nothing"}, "no column 'nothing'"),
        ({"by": "_tick"}, "no column '_tick'"),
        ({"where": {"number": "one"}}, "number"),
    ],
)
def test_what_no_scan_answers_is_refused(world: GroupWorld, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as told:
        world.open().quantile(0.5, "value", **arguments)
    assert words in str(told.value)


def test_progress_is_told_to_the_caller_or_where_a_person_looks(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shares: list[float] = []
    world.open(progress=shares.append).quantile(0.5, "value", where="number = 1")
    assert shares[-1] == 1
    assert all(0 <= share <= 1 for share in shares)
    world.open().quantile(0.5, "value", where="number = 1")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(scan_progress, "_is_watched", lambda: True)
    monkeypatch.setattr(scan_progress, "SLOW_SECONDS", -1)
    world.open().quantile(0.5, "value", where="number = 1")
    assert "scanning events: 100%" in capsys.readouterr().err
