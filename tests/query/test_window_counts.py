"""Keys of several windows, counted by a sort: as Counters of the rows count them, and as DuckDB does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, KEEPS, START, WINDOWS, GroupWorld, Row
from tests.query.keyoracle import counts
from tests.query.test_selected_keys import Truth, made
from tests.query.test_sorted_pairs import (
    BATCHES,
    FIRSTS,
    as_history,
    by_own_dictionary,
    rows_of,
    without_null,
)
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query.asking import event_keys
from tidemark.query.asking.event_keys import EventKeys
from tidemark.query.keys.window_counts import PairCounts
from tidemark.query.reading import costs, shares
from tidemark.query.scans import sorted_pairs
from tidemark.query.scans.window_buckets import Buckets

Patch = pytest.MonkeyPatch
World = tuple[GroupWorld, list[tuple[Row, bool]]]
KEYS = ["number", "origin"]
FACTS = ("window", "value", "count", "lo", "hi", "in_history", "certain", "n", "m", "nulls", "least", "most")
PART = (START + 2 * HOUR, START + 13 * HOUR)


@pytest.fixture
def noted(monkeypatch: Patch) -> list[Any]:
    """What sorts tell, None where they are not possible."""
    found: list[Any] = []
    right = EventKeys.counted

    def counted(self: EventKeys, windows: Any) -> Any:
        found.append(right(self, windows))
        return found[-1]

    monkeypatch.setattr(EventKeys, "counted", counted)
    monkeypatch.setattr(costs, "NUMBERS_A_ROW", 2**20)  # so few rows have few windows
    return found


def check(wh: query.Warehouse, rows: list[tuple[Row, bool]], key: str, window: Any, every: str) -> list[Any]:
    """Each question that asks the keys of several windows together; returns what the answers say."""
    truth = Truth([one for one in rows if one[0][0] is not None], key, lambda _: ())
    asked: dict[str, Any] = {"key": key, "between": window, "every": every, "mode": "exact"}
    distinct, joins, seen = list(wh.distinct(**asked)), list(wh.self_join(**asked)), set[Any]()
    true = {one.window: truth.of((), one.window) for one in distinct}
    assert [one.count for one in distinct] == [len(keys) for keys, _, _ in true.values()]
    assert [one.count for one in joins] == [
        sum(rows**2 for rows in keys.values()) for keys, _, _ in true.values()
    ]
    tops = [wh.top(k, **asked) for k in (1, 3, 2**63 - 1)]
    for k, top in zip((1, 3, 1000), tops, strict=True):
        expected = [
            (shown, name, keys[name], keys[name] - live[name])
            for shown, (keys, live, _) in true.items()
            for name in sorted(keys, key=lambda name: (-keys[name], name))[:k]
        ]
        assert [(one.window, one.value, one.count, one.in_history) for one in top] == expected
    hitters = wh.heavy_hitters(0.3, **asked)
    assert {(one.window, one.value) for one in hitters} == {
        (shown, name)
        for shown, (keys, _, _) in true.items()
        for name, rows in keys.items()
        if rows >= 0.3 * sum(keys.values())
    }
    fresh = [] if window is None or window[0] is None else list(wh.new_keys(**asked))
    before = [one for one in rows if one[0][0] is not None and fresh and one[0][0] < fresh[0].window[0]]
    seen = {name for _, _, name in Truth(before, key, lambda _: ()).groups.get((), []) if name is not None}
    for one in fresh:
        keys = set(true[one.window][0])
        assert one.count == len(keys - seen)
        seen |= keys
    answers = [*distinct, *joins, *(one for top in tops for one in top), *hitters, *fresh]
    return [[getattr(one, name, None) for name in FACTS] for one in answers]


@given(
    batches=BATCHES,
    window=WINDOWS,
    first=st.sampled_from(FIRSTS),
    key=st.sampled_from(KEYS),
    every=st.sampled_from(["1h", "5h"]),
    cores=st.sampled_from([1, 3]),
)
@settings(max_examples=draws(4))
def test_a_sort_counts_as_a_counter_does_and_as_duckdb_does(
    tmp_path_factory: pytest.TempPathFactory,
    batches: Any,
    window: Any,
    first: int,
    key: str,
    every: str,
    cores: int,
) -> None:
    """NULL in keys, late and live rows, rows without a time, windows that cut files or have no rows."""
    given = [(is_loaded, rows_of(rows, first)) for is_loaded, rows in batches]
    world, rows = made(tmp_path_factory.mktemp("w"), given, key)
    with Patch.context() as patch:
        noted.__wrapped__(patch)  # type: ignore[attr-defined]
        patch.setattr(shares, "SHARED", 0)
        patch.setattr(shares, "CORES", cores)
        answers = check(world.open(), rows, key, window, every)
        patch.setattr(EventKeys, "counted", lambda *_: None)
        assert check(world.open(), rows, key, window, every) == answers


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two loads, of which the second has late rows, and a live batch; to be read alone."""
    texts = ["a", "b", "", None, "é", "a"]
    drawn = [(i % 24, texts[i % 6], None if i % 11 == 0 else i * i % 20) for i in range(160)]
    batches = [(True, rows_of(drawn[:60])), (True, rows_of(drawn[50:110])), (False, rows_of(drawn[100:]))]
    return made(tmp_path_factory.mktemp("known"), batches, "number", "origin")


def check_known(known: World) -> None:
    for key in KEYS:
        for window, every in ((None, "1h"), (PART, "2h")):
            check(known[0].open(), known[1], key, window, every)


AT, BUCKETS, LEXSORT = PairCounts._at, Buckets.windows_of, np.lexsort


def reversed_names(self: PairCounts, places: Any) -> Any:
    found = AT(self, places)
    return found._replace(names=found.names[::-1])


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "live rows are history": (sorted_pairs, "_Piece", as_history),
    "rows without a key have one": (sorted_pairs, "_Piece", without_null),
    "codes of one dictionary are those of all": (sorted_pairs, "_column", by_own_dictionary),
    "equal pairs are apart": (sorted_pairs, "_each_once", lambda pairs: (pairs, np.ones_like(pairs))),
    "names are of other keys": (PairCounts, "_at", reversed_names),
    "of equal keys the last": (
        np,
        "lexsort",
        lambda keys: LEXSORT([-np.arange(len(keys[0])), *keys]),
    ),
    "rows are in the next window": (
        Buckets,
        "windows_of",
        lambda self, numbers: np.minimum(BUCKETS(self, numbers) + 1, len(self.edges) - 1),
    ),
}


@pytest.mark.parametrize("broken", [None, *BROKEN])
def test_broken_sorts_are_noticed(
    known: World, noted: list[Any], monkeypatch: Patch, broken: str | None
) -> None:
    if broken is None:
        check_known(known)
        assert sum(one is not None for one in noted) > len(KEYS)
        return
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises((AssertionError, IndexError)):
        check_known(known)


UNFIT: dict[str, tuple[Any, str, Any]] = {
    "memory": (sorted_pairs, "ROW_BYTES", 2**60),
    "bits": (sorted_pairs, "MOST_BITS", 4),
    "windows": (sorted_pairs, "most_numbers", lambda _: 2),
    "names": (sorted_pairs, "FEW_NAMES", 0),
}


@pytest.mark.parametrize("what", UNFIT)
def test_rows_that_do_not_fit_into_numbers_are_counted_by_duckdb(
    known: World, noted: list[Any], monkeypatch: Patch, what: str
) -> None:
    monkeypatch.setattr(*UNFIT[what])
    monkeypatch.setattr(sorted_pairs, "ROWS_A_NAME", 2**20 if what == "names" else 4)
    check(known[0].open(), known[1], "origin", PART, "2h")
    assert noted
    assert set(map(type, noted)) == {type(None)}


@pytest.mark.parametrize(
    ("asked", "is_counted"),
    [({}, True), ({"width": "4h"}, False), ({"between": (START, START + 2 * HOUR)}, False)],
)
def test_windows_that_overlap_and_one_alone_are_counted_by_duckdb(
    known: World, noted: list[Any], asked: dict[str, Any], is_counted: bool
) -> None:
    for one in known[0].open().self_join(key="number", every="2h", mode="exact", **asked):
        assert one.count == sum(rows**2 for rows in counts(known[0], "number", one.window)[0].values())
    assert (noted != [None]) == is_counted


@pytest.mark.parametrize("is_broken", [False, True])
def test_all_times_before_one_window_are_counted_by_duckdb(
    known: World, noted: list[Any], monkeypatch: Patch, is_broken: bool
) -> None:
    """Distances from a window without a start are no numbers of 64 bits, as the broken variant shows."""
    monkeypatch.setattr(event_keys, "MOST_TICKS", 2**80 if is_broken else event_keys.MOST_TICKS)
    between = (START + 2 * HOUR, START + 3 * HOUR)
    before, inside = (
        set(counts(known[0], "origin", window)[0]) for window in ((START - HOUR, between[0]), between)
    )
    asked: dict[str, Any] = {"key": "origin", "between": between, "every": "1h", "mode": "exact"}
    if is_broken:
        with pytest.raises(Exception):  # noqa: B017, PT011
            assert [one.count for one in known[0].open().new_keys(**asked)] == [len(inside - before)]
        return
    assert [one.count for one in known[0].open().new_keys(**asked)] == [len(inside - before)]
    assert noted == [None]


def test_rows_that_were_removed_do_not_count(known: World, tmp_path: Path, noted: list[Any]) -> None:
    """Live rows of which some leave are loaded first."""
    world = known[0].copy(tmp_path)
    assert warehouse.delete(None, world.path, "number = 4", tuning=KEEPS).outcome == "removed"
    rows = [(row, False) for row, _ in known[1] if row[2] != 4]
    check(world.open(), rows, "number", PART, "2h")
    assert noted


def test_rows_of_several_warehouses_are_counted_together(
    known: World, tmp_path: Path, noted: list[Any]
) -> None:
    more = rows_of([(i % 24, "xyab"[i % 4], 15 + i % 30) for i in range(90)])
    other, added = made(tmp_path, [(True, more)], "number", "origin")
    wh = query.open({"a": known[0].path, "b": other.path})
    check(wh, [*known[1], *added], "origin", PART, "2h")
    assert any(one is not None for one in noted)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans()), max_size=40),
    st.integers(1, 6),
)
def test_arrays_answer_as_counters_do(rows: list[tuple[int, int, bool]], k: int) -> None:
    every = sorted(Counter((part, key) for part, key, _ in rows).items())
    live = Counter((part, key) for part, key, is_live in rows if is_live)
    part, code = (np.array([pair[i] for pair, _ in every], np.int64) for i in (0, 1))
    of_live = np.array([live[pair] for pair, _ in every], np.int64)
    history = np.array([number for _, number in every], np.int64) - of_live
    found: Any = PairCounts(part, code, history, of_live, lambda codes: codes + 7, 5)
    by_part = [{key: number for (own, key), number in every if own == window} for window in range(5)]
    most = [sorted(keys, key=lambda key: (-keys[key], key))[:k] for keys in by_part]
    for by_name in (False, True):
        got = found.most(k, by_name=by_name)
        expected = [
            (window, key) for window, keys in enumerate(most) for key in (sorted(keys) if by_name else keys)
        ]
        assert [*zip(got.part.tolist(), (got.names - 7).tolist(), strict=True)] == expected
        assert got.live.tolist() == [live[pair] for pair in expected]
        assert (got.history + got.live).tolist() == [by_part[window][key] for window, key in expected]
    assert found.keys() == {window: len(keys) for window, keys in enumerate(by_part) if keys}
    assert found.second_moments() == {
        window: sum(number**2 for number in keys.values()) for window, keys in enumerate(by_part) if keys
    }
    first = Counter(min(own for (own, key), _ in every if key == one) for one in set(code.tolist()))
    assert found.new_keys() == dict(sorted(first.items()))
    for window in range(5):
        expected = [(window, key) for key, number in by_part[window].items() if number >= k]
        got = found.names_with(window, k)
        assert [*zip(got.part.tolist(), (got.names - 7).tolist(), strict=True)] == expected
