"""Keys of groups, counted by a sort of numbers: as Counters of the rows count them, and as DuckDB does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, START, WINDOWS, GroupWorld, Row
from tests.query.test_selected_keys import BY, CUT, Truth, group_of, holds, made
from tests.soak import draws
from tidemark import query
from tidemark.query.reading import costs, shares
from tidemark.query.scans import sorted_pairs
from tidemark.query.scans.key_scan import KeyScan
from tidemark.query.scans.sorted_pairs import _Piece

Patch = pytest.MonkeyPatch
World = tuple[GroupWorld, list[tuple[Row, bool]]]
KEYS = ["number", "origin", "price"]
BYS = [BY[1], BY[3]]  # a text; a number and a text
FIRSTS = [-(2**63), -7, 0, 2**53 - 3, 2**63 - 40]  # the least number of a world
ROWS = st.tuples(
    st.none() | st.integers(0, 47),
    st.sampled_from(["a"] * 4 + ["b", "", "\U0010ffff", "é" * 30, None]),
    st.none() | st.integers(0, 39) | st.sampled_from([0, 1, 1, 1]),
)
BATCHES = st.lists(st.tuples(st.booleans(), st.lists(ROWS, min_size=1, max_size=60)), min_size=1, max_size=4)


def rows_of(drawn: list[Any], first: int = 0) -> list[Row]:
    return [
        (
            None if half is None else START + half * HOUR / 2,
            text,
            None if number is None else first + number,
            0.0,
            None,
        )
        for half, text, number in drawn
    ]


@pytest.fixture
def noted(monkeypatch: Patch) -> list[Any]:
    """What sorts tell, None where they are not possible."""
    found: list[Any] = []
    right = KeyScan._pairs

    def pairs(self: KeyScan) -> Any:
        found.append(right(self))
        return found[-1]

    monkeypatch.setattr(KeyScan, "_pairs", pairs)
    return found


def check(world: World, key: str, by: Any, window: Any, every: str | None) -> list[Any]:
    """What the numbers of each group and window say; returns the answers."""
    wh, rows = world[0].open(), world[1]
    inside = [one for one in rows if holds(window, one[0][0]) and (every is None or one[0][0] is not None)]
    truth = Truth(inside, key, by[1])
    asked: dict[str, Any] = {"key": key, "by": by[0], "between": window, "every": every}
    distinct, joins = list(wh.distinct(**asked)), list(wh.self_join(**asked))
    assert {group_of(one, by[0]) for one in distinct} == set(truth.groups)
    for one, join in zip(distinct, joins, strict=True):
        keys, live, nulls = truth.of(group_of(one, by[0]), one.window if every else window)
        assert one.lo == one.hi == one.count == len(keys)
        assert join.lo == join.hi == join.count == sum(rows**2 for rows in keys.values())
        for answer in (one, join):
            assert (answer.n, answer.m) == (sum(keys.values()) - sum(live.values()), sum(live.values()))
            assert (answer.nulls, answer.window, answer.group) == (nulls, one.window, one.group)
    return [*distinct, *joins]


@given(
    batches=BATCHES,
    window=WINDOWS,
    first=st.sampled_from(FIRSTS),
    key=st.sampled_from(KEYS),
    by=st.sampled_from(BYS),
    every=st.sampled_from([None, "5h"]),
    cores=st.sampled_from([1, 3]),
)
@settings(max_examples=draws(6))
def test_a_sort_counts_as_a_counter_does_and_as_duckdb_does(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Any,
    window: Any,
    first: int,
    key: str,
    by: Any,
    every: str | None,
    cores: int,
) -> None:
    """NULL in groups and keys, late and live rows, rows without a time, windows that cut files."""
    given = [(is_loaded, rows_of(rows, first)) for is_loaded, rows in batches]
    world = made(tmp_path_factory.mktemp("w"), given, key)
    with Patch.context() as patch:
        found = noted.__wrapped__(patch)  # type: ignore[attr-defined]
        patch.setattr(costs, "NUMBERS_A_ROW", 2**20)  # so few rows have few groups
        patch.setattr(shares, "SHARED", 0)
        patch.setattr(shares, "CORES", cores)
        answers = check(world, key, by, window, every)
        assert not answers or all(one is not None for one in found)
        patch.setattr(KeyScan, "_pairs", lambda _: None)
        assert check(world, key, by, window, every) == answers


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two loads, of which the second has late rows, and a live batch; to be read alone."""
    texts = ["a", "b", "", None, "é", "a"]
    drawn = [(i % 24, texts[i % 6], None if i % 11 == 0 else i * i % 20) for i in range(160)]
    batches = [(True, rows_of(drawn[:60])), (True, rows_of(drawn[50:110])), (False, rows_of(drawn[100:]))]
    return made(tmp_path_factory.mktemp("known"), batches, "number", "origin")


PART = (START + 2 * HOUR, START + 7 * HOUR)


def check_known(known: World) -> None:
    for key in ("number", "origin"):
        for window, every in ((None, None), (PART, None), (PART, "2h")):
            check(known, key, BY[1], window, every)


COLUMN, COUNT = sorted_pairs._column, sorted_pairs._count


def as_history(*piece: Any) -> _Piece:
    return _Piece(*piece)._replace(is_live=False)


def without_null(*piece: Any) -> _Piece:
    columns, names, _, *rest = piece
    return _Piece(columns, names, np.zeros(0, bool), *rest)


def by_own_dictionary(pieces: Any, place: int) -> Any:
    """The codes of each dictionary are taken for those of all."""
    found = COLUMN(pieces, place)
    return found._replace(places=[np.arange(len(own)) for own in found.places])


def without_sort(pairs: Any, *given: Any, **options: Any) -> Any:
    class Unsorted(np.ndarray[Any, Any]):
        def sort(self, *_: Any, **__: Any) -> None:
            """Leaves them as they are."""

    return COUNT(pairs.view(Unsorted), *given, **options)


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "live rows are history": (sorted_pairs, "_Piece", as_history),
    "rows without a key have one": (sorted_pairs, "_Piece", without_null),
    "codes of one dictionary are those of all": (sorted_pairs, "_column", by_own_dictionary),
    "equal pairs are apart": (sorted_pairs, "_count", without_sort),
    "a bit is missing": (
        sorted_pairs,
        "_count",
        lambda pairs, live, groups, bits, *rest, **options: COUNT(
            pairs, live, groups, bits - 1, *rest, **options
        ),
    ),
}


@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_broken_sorts_are_noticed(
    known: World, noted: list[Any], monkeypatch: Patch, broken: str | None
) -> None:
    if broken is None:
        check_known(known)
        assert noted
        assert all(one is not None for one in noted)
        return
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check_known(known)


UNFIT: dict[str, tuple[Any, str, Any]] = {
    "memory": (sorted_pairs, "ROW_BYTES", 2**60),
    "bits": (sorted_pairs, "MOST_BITS", 4),
    "groups": (sorted_pairs, "most_numbers", lambda _: 2),
    "names": (sorted_pairs, "FEW_NAMES", 0),
}


@pytest.mark.parametrize("what", UNFIT)
def test_rows_that_do_not_fit_into_numbers_are_counted_by_duckdb(
    known: World, noted: list[Any], monkeypatch: Patch, what: str
) -> None:
    monkeypatch.setattr(*UNFIT[what])
    monkeypatch.setattr(sorted_pairs, "ROWS_A_NAME", 2**20 if what == "names" else 4)
    monkeypatch.setattr(shares, "SHARED", 0)
    monkeypatch.setattr(shares, "CORES", 3)
    check_known(known)
    assert set(map(type, noted)) == {type(None)}


def test_squares_of_many_rows_are_counted_by_duckdb(
    known: World, noted: list[Any], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(sorted_pairs, "MOST_SQUARED", 10)
    check(known, "number", BY[1], None, None)
    assert [one is None for one in noted] == [False, True]


@pytest.mark.parametrize("asked", [{"where": "number > 1"}, {"where": {"origin": "a"}}, {"by": "value"}])
def test_other_questions_are_asked_of_duckdb(known: World, noted: list[Any], asked: dict[str, Any]) -> None:
    wh = known[0].open()
    wh.distinct(**{"key": "number", "by": "origin", **asked})
    assert noted == [None]


def test_a_window_that_cuts_a_tick_is_counted_by_duckdb(known: World, noted: list[Any]) -> None:
    check(known, "number", BY[1], (PART[0] + CUT, PART[1] + 2 * CUT), None)
    assert set(map(type, noted)) == {type(None)}


def test_rows_of_several_warehouses_are_counted_together(
    known: World, tmp_path: Path, noted: list[Any]
) -> None:
    more = rows_of([(i % 24, "xyab"[i % 4], 15 + i % 30) for i in range(90)])
    other, _ = made(tmp_path, [(True, more)], "number", "origin")
    wh = query.open({"a": known[0].path, "b": other.path})
    every = [*known[1], *((row, False) for row in more)]
    for window in (None, PART):
        truth = Truth([one for one in every if holds(window, one[0][0])], "number", BY[1][1])
        found = {
            group_of(one, "origin"): one.count
            for one in wh.distinct(key="number", by="origin", between=window)
        }
        assert found == {group: len(truth.of(group, window)[0]) for group in truth.groups}
    assert all(one is not None for one in noted)
    assert noted
