"""Keys of few numbers, counted in an array: as a Counter of the rows counts them, and as DuckDB does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, KEEPS, ONE, START, WINDOWS, GroupWorld, Row
from tests.query.keyoracle import Window, counts
from tests.query.test_key_scans import listed_nowhere, ranked
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query.asking import event_keys
from tidemark.query.keys import key_scan, key_source
from tidemark.query.keys.key_scan import CountedNames
from tidemark.query.reading import costs, shares
from tidemark.query.reading.costs import Costs
from tidemark.query.scans import number_counts, row_source
from tidemark.query.scans.plain_files import PlainFile
from tidemark.query.scans.row_source import RowSource
from tidemark.warehouse.columns.value_encoding import DecodedColumn, encode_column

Patch = pytest.MonkeyPatch
MOST = Fraction(1, 10**6)  # a share that every key has
FIRSTS = [-(2**63), -7, 0, 2**53 - 3, 2**63 - 40]  # the least number of a world
NUMBERS = st.none() | st.integers(0, 39) | st.sampled_from([0, 1, 1, 1])
ROWS = st.tuples(st.none() | st.integers(0, 47), NUMBERS)
BATCHES = st.lists(st.tuples(st.booleans(), st.lists(ROWS, min_size=1, max_size=60)), min_size=1, max_size=4)


def rows_of(drawn: Sequence[tuple[int | None, int | None]], first: int = 0) -> list[Row]:
    return [
        (
            None if half is None else START + half * HOUR / 2,
            "a",
            None if number is None else first + number,
            0.0,
            None,
        )
        for half, number in drawn
    ]


def made(folder: Path, batches: list[tuple[bool, list[Row]]]) -> GroupWorld:
    return GroupWorld.of(folder, batches, measures=ONE, groups=[], keys=["number"])


@pytest.fixture
def noted(monkeypatch: Patch) -> list[Any]:
    """All keys are scanned, those of `events`; what is counted in arrays, None where there are others."""
    found: list[Any] = []
    right = event_keys._counted

    def counted(*given: Any) -> Any:
        found.append(right(*given))
        return found[-1]

    monkeypatch.setattr(key_source, "listed_names", listed_nowhere)
    monkeypatch.setattr(Costs, "event_keys", lambda *_: -1.0)
    monkeypatch.setattr(event_keys, "_counted", counted)
    return found


def check(wh: query.Warehouse, true: Counter[Any], live: Counter[Any], window: Window) -> list[Any]:
    """Each question that asks the rows of each key alone; returns the answers."""
    asked: dict[str, Any] = {"key": "number", "between": window, "mode": "exact"}
    tops = [wh.top(k, **asked) for k in (1, 3, 2**63 - 1)]
    for k, top in zip((1, 3, len(true)), tops, strict=True):
        order = sorted(true, key=lambda number: (-true[number], number))[:k]
        assert [(one.value, one.lo, one.hi) for one in top] == [(n, true[n], true[n]) for n in order]
        assert all(one.certain and one.in_history == true[one.value] - live[one.value] for one in top)
    for phi in (0.2, MOST):
        found = {one.value: one.count for one in wh.heavy_hitters(phi, **asked)}
        assert found == {n: rows for n, rows in true.items() if rows >= phi * sum(true.values())}
    join, distinct = wh.self_join(**asked), wh.distinct(**asked)
    assert (join.lo, join.hi) == (sum(rows**2 for rows in true.values()),) * 2
    assert (distinct.least, distinct.most) == (len(true), len(true))
    return [*(top.to_json() for top in tops), join, distinct]


def check_world(world: GroupWorld, live: list[Row], window: Window) -> list[Any]:
    inside = [row[2] for row in live if window is None or (row[0] and window[0] <= row[0] < window[1])]
    return check(world.open(), counts(world, "number", window)[0], Counter(inside), window)


@given(batches=BATCHES, window=WINDOWS, first=st.sampled_from(FIRSTS), cores=st.sampled_from([1, 3]))
@settings(max_examples=draws(6))
def test_numbers_are_counted_as_a_counter_does_and_as_duckdb_does(
    tmp_path_factory: pytest.TempPathFactory, batches: Any, window: Window, first: int, cores: int
) -> None:
    """NULL, late rows, live rows, rows without a time; windows that cut files; the ends of integers."""
    given = [(is_loaded, rows_of(rows, first)) for is_loaded, rows in batches]
    live = [row for is_loaded, rows in given if not is_loaded for row in rows]
    with Patch.context() as patch:
        found = noted.__wrapped__(patch)  # type: ignore[attr-defined]
        patch.setattr(costs, "NUMBERS_A_ROW", 40)  # so few rows have few numbers
        patch.setattr(shares, "SHARED", 0)
        patch.setattr(shares, "CORES", cores)
        world = made(tmp_path_factory.mktemp("w"), given)
        answers = check_world(world, live, window)
        assert None not in found
        patch.setattr(event_keys, "are_few", lambda *_: False)
        assert check_world(world, live, window) == answers


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[GroupWorld, list[Row]]:
    """Two loads, of which the second has late rows, and a live batch, which the second test returns."""
    drawn = [(i % 24, None if i % 11 == 0 else i * i % 20) for i in range(120)]
    batches = [(True, rows_of(drawn[:60])), (True, rows_of(drawn[50:90])), (False, rows_of(drawn[90:]))]
    return made(tmp_path_factory.mktemp("known"), batches), batches[-1][1]


def without_tick(path: str, columns: tuple[str, ...], *rest: Any) -> PlainFile:
    return PlainFile(path, columns[:1], *rest)


def as_history(path: str, columns: tuple[str, ...], rows: int, *_: Any) -> PlainFile:
    return PlainFile(path, columns, rows, is_live=False)


def without_nulls(*given: Any) -> DecodedColumn:
    found = encode_column(*given)
    return DecodedColumn(found.stored, found.nan, np.zeros_like(found.null))


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "ticks are not looked at": (row_source, "PlainFile", without_tick),
    "live rows are history": (row_source, "PlainFile", as_history),
    "NULL is 0": (number_counts, "encode_column", without_nulls),
    "the last piece is forgotten": (number_counts, "_together", lambda pieces, _: [next(pieces)]),
    "of equal ones the last": (key_scan, "stable_order", lambda codes: np.argsort(codes[::-1])),
}
PART = (START + 2 * HOUR, START + 7 * HOUR)


@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_numbers_that_are_counted_wrongly_are_noticed(
    known: tuple[GroupWorld, list[Row]], noted: list[Any], monkeypatch: Patch, broken: str | None
) -> None:
    if broken is None:
        check_world(*known, PART)
        assert noted
        assert None not in noted
        return
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises(AssertionError):
        check_world(*known, PART)


@pytest.mark.parametrize("spans", [[(0, 3)], [(5, 60)], []])
def test_numbers_outside_of_the_statistics_are_counted_by_duckdb(
    known: tuple[GroupWorld, list[Row]], noted: list[Any], monkeypatch: Patch, spans: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(RowSource, "_spans_of", lambda *_: spans)
    check_world(*known, None)
    assert set(map(type, noted)) == ({type(None)} if spans else set())


def test_numbers_far_apart_are_counted_by_duckdb(tmp_path: Path, noted: list[Any]) -> None:
    rows = rows_of([(i % 24, i % 5 * 10**9) for i in range(60)])
    check_world(made(tmp_path, [(True, rows)]), [], None)
    assert not noted


def test_arrays_that_do_not_fit_into_the_memory_are_counted_by_duckdb(
    known: tuple[GroupWorld, list[Row]], noted: list[Any], monkeypatch: Patch
) -> None:
    check_world(*known, None)
    assert noted
    noted.clear()
    monkeypatch.setattr(number_counts, "scan_memory", lambda: 1000)
    check_world(*known, None)
    assert not noted


@pytest.mark.parametrize("spans", [[(0, 3)], [(1, 60)]])
def test_one_share_with_numbers_outside_of_the_statistics_is_enough(
    known: tuple[GroupWorld, list[Row]], noted: list[Any], monkeypatch: Patch, spans: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(shares, "SHARED", 0)
    monkeypatch.setattr(shares, "CORES", 3)
    test_numbers_outside_of_the_statistics_are_counted_by_duckdb(known, noted, monkeypatch, spans)


def test_rows_that_were_removed_do_not_count(
    known: tuple[GroupWorld, list[Row]], tmp_path: Path, noted: list[Any]
) -> None:
    """Live rows of which some leave are loaded first."""
    world = known[0].copy(tmp_path)
    assert warehouse.delete(None, world.path, "number = 4", tuning=KEEPS).outcome == "removed"
    world.rows[:] = [row for row in world.rows if row[2] != 4]
    for window in (None, PART):
        check_world(world, [], window)
    assert noted
    assert None not in noted


def test_rows_of_several_warehouses_are_counted_together(
    known: tuple[GroupWorld, list[Row]], tmp_path: Path, noted: list[Any]
) -> None:
    other = made(tmp_path, [(True, rows_of([(i % 24, 15 + i % 30) for i in range(90)]))])
    for window in (None, PART):
        true = counts(known[0], "number", window)[0] + counts(other, "number", window)[0]
        live = [row for row in known[1] if window is None or window[0] <= row[0] < window[1]]
        wh = query.open({"a": known[0].path, "b": other.path})
        check(wh, true, Counter(row[2] for row in live), window)
    assert noted
    assert None not in noted


def test_few_numbers_make_the_scan_cheaper_and_only_where_nothing_else_is_asked() -> None:
    rows = 1000
    known = Costs()
    many, few, others = (known.event_keys(rows, numbers) for numbers in (4001, 4000, float("inf")))
    assert few < many == others == known.event_keys(rows)
    assert costs.most_numbers(2**40) == costs.MOST_NUMBERS


@pytest.mark.parametrize("most", [2**20, 2**40])
def test_sums_of_squares_are_exact(most: int) -> None:
    rows = np.array([most, most - 1, 3, 0], np.int64)
    assert key_scan.sum_of_squares(rows) == sum(int(one) ** 2 for one in rows)
    assert key_scan.sum_of_squares(rows[:0]) == 0


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(1, 14))
def test_the_first_names_are_those_with_most_rows_and_of_equal_ones_the_first(
    rows: list[int], k: int
) -> None:
    names, zeros = np.arange(len(rows)), np.zeros(len(rows), np.int64)
    found = CountedNames.certain(names, np.array(rows, np.int64), zeros).first(k)
    order = sorted(range(len(rows)), key=lambda i: (-rows[i], i))
    assert np.asarray(found.names).tolist() == sorted(order[:k])
    assert found.counts.whole.tolist() == [rows[i] for i in sorted(order[:k])]
    assert found.omitted == (rows[order[k]] if k < len(rows) else 0)
    assert ranked(Counter(dict(enumerate(rows))), k) == sorted(found.counts.least.tolist(), reverse=True)


ASKS: list[Callable[[query.Warehouse], Any]] = [
    lambda wh: wh.persistent(0.2, key="number", slot="2h", mode="exact"),
    lambda wh: wh.top(2, key="number", every="5h"),
]


@pytest.mark.parametrize("number", range(len(ASKS)))
def test_what_needs_more_than_the_rows_of_each_key_is_asked_of_duckdb(
    known: tuple[GroupWorld, list[Row]], noted: list[Any], number: int
) -> None:
    ASKS[number](known[0].open())
    assert not noted
