"""Expressions in the place of a measure and of columns of `by`: as plain Python computes them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, GroupWorld, Row, Truth, check_quantile, group_of
from tidemark.query import EmptyWindow, InputError
from tidemark.query.reading import checked_files
from tidemark.query.scans import asked_rows
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.warehouse.memory_cache import LRUCache

PHIS = [0, 0.3, 0.5, 0.99, 1]
DAY = timedelta(days=1)


def number(i: int) -> float | None:
    return {3: None, 5: math.nan, 7: -0.0}.get(i % 11, float(i * 37 % 23) - 5)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Loaded steps with late rows, and two live batches."""
    made = GroupWorld.create(tmp_path_factory.mktemp("world"))
    for batch in range(5):
        rows: list[Row] = [
            (
                None if i == 9 else START + (batch * 9 - i % 4) * HOUR,
                ["a", "b", "", "12", None][i * 7 % 5],
                i % 4 or None,
                number(i + batch),
                None,
            )
            for i in range(40)
        ]
        made.add(rows, load=batch < 3)
    return made


def known(compute: Callable[..., Any], *places: int) -> Callable[[Row], Any]:
    """What is computed of these columns; None where one of them is NULL."""
    return lambda row: None if any(row[i] is None for i in places) else compute(*(row[i] for i in places))


MEASURES: dict[str, Callable[[Row], Any]] = {
    "value / number": known(lambda v, n: v / n, 3, 2),
    "value * 0": known(lambda v: v * 0, 3),
    "number * 2 + 1": known(lambda n: n * 2 + 1, 2),
    "CASE WHEN origin = 'a' THEN value END": lambda row: row[3] if row[1] == "a" else None,
    "coalesce(number, 0)": lambda row: row[2] or 0,
}
GROUPS: dict[str, Callable[[Row], Any]] = {
    "hour(time)": known(lambda t: t.hour, 0),
    "origin || '!'": known(lambda o: f"{o}!", 1),
    "isnan(value)": known(math.isnan, 3),
    "value / 2": known(lambda v: "NaN" if math.isnan(v) else v / 2 + 0.0, 3),
    "date_trunc('day', time)": known(lambda t: t.replace(hour=0), 0),
    "CAST(time AS DATE)": known(lambda t: t.date(), 0),
}


def plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def check(world: GroupWorld, text: str, by: str, hours: int | None) -> None:
    """The answers by group and in one are those of sorted lists."""
    window = None if hours is None else (START - DAY, START + hours * HOUR)
    inside = [r for r in world.rows if window is None or (r[0] is not None and r[0] < window[1])]
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in inside:
        if GROUPS[by](row) is not None:
            groups[GROUPS[by](row)].append(MEASURES[text](row))
    wh = world.open()
    for answer in wh.quantile(PHIS, text, between=window):
        check_quantile(answer, Truth.of([MEASURES[text](row) for row in inside]), "exact")
        assert (answer.rows_scanned, answer.measure, answer.declare) == (len(inside), text, None)
    found = wh.quantile(PHIS, text, by=by, between=window)
    assert {plain(group_of(one)[by]) for one in found} == set(groups)
    for answer in found:
        check_quantile(answer, Truth.of(groups[plain(group_of(answer)[by])]), "exact")
    some = [name for name in groups if name != "NaN"][:2]
    chosen = wh.rank([0], text, by=by, groups=some, between=window)
    assert [one.rank for one in chosen] == [Truth.of(groups[name]).rank(0) for name in some]


@pytest.mark.parametrize("text", MEASURES)
@pytest.mark.parametrize("is_read_by_duckdb", [True, False])
def test_computed_measures_are_those_of_plain_python(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, text: str, is_read_by_duckdb: bool
) -> None:
    if not is_read_by_duckdb:  # as in object stores
        monkeypatch.setattr(ScannedColumns, "path_of", lambda *_: None)
    for number, by in enumerate(GROUPS):
        if number % len(MEASURES) == list(MEASURES).index(text):
            check(world, text, by, None)
            check(world, text, by, 11)


def test_windows_and_columns_stand_beside_expressions(world: GroupWorld) -> None:
    wh = world.open()
    for answer in wh.rank(0, "value - 1", by=["origin", "number % 2"], where="value > -3", every="1d"):
        group, window = group_of(answer), answer.window
        assert window is not None
        inside = [
            row[3] - 1
            for row in world.rows
            if row[0] is not None
            and window[0] <= row[0] < window[1]
            and None not in row[1:4]
            and (row[1], row[2] % 2) == (group["origin"], group["number % 2"])
            and (math.isnan(row[3]) or row[3] > -3)
        ]
        assert answer.rank == sum(value <= 0 for value in inside)
        assert len(inside) == answer.N
    histogram = wh.histogram([0, 4, 8], "number * 2")
    counts = [sum(low <= 2 * row[2] for row in world.rows if row[2]) for low in (0, 4)]
    assert histogram.counts == [counts[0] - counts[1], counts[1]]


@pytest.mark.parametrize("is_broken", [False, True])
def test_values_are_computed_of_selected_rows_alone(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """A cast fails on all other rows. The broken variant asks no guards."""
    if is_broken:
        monkeypatch.setattr(asked_rows, "_guarded", lambda expression, *_: f"({expression.sql})")
        monkeypatch.setattr(checked_files, "_checked", LRUCache(99))
    end = START + 11 * HOUR
    asked: dict[str, Any] = {
        "by": "CAST(origin AS INTEGER)",
        "where": {"origin": "12"},
        "between": (None, end),
    }
    if is_broken:
        with pytest.raises((InputError, AssertionError)):
            assert world.open().rank(0, "CAST(origin AS INTEGER)", by="origin", groups=["12"])[0].rank == -1
        return
    (answer,) = world.open().rank(99, "CAST(origin AS INTEGER) + 1", **asked)
    inside = [row for row in world.rows if row[1] == "12" and row[0] is not None and row[0] < end]
    assert (answer.rank, answer.N, group_of(answer)["CAST(origin AS INTEGER)"]) == (
        len(inside),
        len(inside),
        12,
    )


@pytest.mark.parametrize(
    ("measure", "options", "words"),
    [
        ("valu", {}, "no measure 'valu' here"),
        ("value / nothing", {}, "there is no column 'nothing'"),
        ("random() + 1", {}, "the function random is not allowed"),
        ("(SELECT 1)", {}, "a subquery is not allowed"),
        ("value, number", {}, "is not valid"),
        ("origin || 'x'", {}, "no ranks"),
        ("time - TIMESTAMPTZ '2024-01-01'", {}, "cannot be ranked or grouped"),
        ("CAST(origin AS BIGINT) + 0", {}, "cannot be evaluated"),
        ("value", {"by": "hours"}, "there is no column 'hours'"),
        ("value", {"by": "read_text('/etc/passwd') || ''"}, "is not allowed"),
        ("value", {"by": "CAST(price AS DECIMAL(30, 2))"}, "cannot be ranked or grouped"),
    ],
)
def test_what_is_no_expression_is_refused(
    world: GroupWorld, measure: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as told:
        world.open().quantile(0.5, measure, **options)
    assert words in str(told.value)


def test_values_that_are_all_null_are_an_empty_window(world: GroupWorld) -> None:
    with pytest.raises(EmptyWindow, match="NULL"):
        world.open().quantile(0.5, "price * 2")
