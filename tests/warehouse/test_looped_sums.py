"""The compiled loop has the counts, ends and exact sums of a plain one, and no question waits for it."""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.warehouse.test_tick_sums import exact_sums_of
from tidemark.warehouse.columns import looped_sums
from tidemark.warehouse.columns.code_sums import CodeSums
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.looped_sums import Loading, LoopedSums

DOUBLES = (
    0.0,
    5e-324,
    -2.2e-308,
    2.3e-308,
    1.7e308,
    -1.7e308,
    0.1,
    -2.5,
    3.0,
    1e10,
    math.pi,
    -math.inf,
    math.inf,
)
INTEGERS = (0, 1, -1, 7, 2**53 - 1, 1 - 2**53, 2**27, -(2**27) - 1)


@pytest.fixture(scope="module")
def loop() -> Any:
    return looped_sums._loaded()


def use_loop(patch: pytest.MonkeyPatch, loop: Any = None) -> None:
    """Makes this process one that has loaded the loop."""
    state = Loading()
    state.loop = loop or looped_sums._loaded()
    patch.setattr(looped_sums, "loading", lambda: state)


def sums_of(numbers: list[Any]) -> Sums:
    finite = [one for one in numbers if math.isfinite(one)]
    found = exact_sums_of(finite) if finite else Sums()
    return found + Sums(negative=numbers.count(-math.inf), positive=numbers.count(math.inf))


def check(loop: Any, *, seeds: int = 30) -> None:
    for seed in range(seeds):
        rng = random.Random(seed)
        size, least = rng.choice([0, 1, 40, 3000]), rng.choice([-5, 0, 200])
        doubles = [*rng.sample(DOUBLES, 5), math.nan, rng.lognormvariate(3, 1)]
        drawn: list[list[Any]] = [doubles, doubles[:1], [*INTEGERS], [2**53 - 1], [math.nextafter(2, 0)]]
        given = rng.choice(drawn)
        numbers = np.array(
            rng.choices(given, k=size), np.float64 if isinstance(given[0], float) else np.int64
        )
        codes = np.array(rng.choices(range(3), k=size), np.int64)
        is_null, is_live = (
            rng.choice([np.zeros(0, bool), np.array(rng.choices([False, True], k=size), bool)]) for _ in "ab"
        )
        found = LoopedSums(loop, 4)
        cut = rng.randrange(size + 1)
        for here in (slice(0, cut), slice(cut, None)):
            masks = [mask[here] for mask in (is_null, is_live)]
            assert found.add(numbers[here], codes[here] + least, least, *masks) == len(numbers[here])
        is_there = ~is_null if len(is_null) else np.ones(size, bool)
        live = is_live if len(is_live) else np.zeros(size, bool)
        sums, ends = found.each(), found.ends(numbers.dtype).tolist()
        nothing = [math.inf, -math.inf] if numbers.dtype.kind == "f" else [2**63 - 1, -(2**63)]
        for code in range(4):
            own = numbers[(codes == code) & is_there]
            there = own[~np.isnan(own)].tolist()
            assert found.counts[:, code].tolist() == [
                len(there),
                np.count_nonzero(live & is_there & (codes == code)),
                len(own) - len(there),
                np.count_nonzero(~is_there & (codes == code)),
            ]
            assert sums[code] == sums_of(there)
            assert ends[code] == ([min(there), max(there)] if there else nothing)


def test_rows_are_added_as_by_a_plain_loop(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check(loop)
    monkeypatch.setattr(looped_sums, "CELLS", 1)  # there is room for one, then for two
    check(loop)


def test_sums_are_those_of_numpy(loop: Any) -> None:
    """So a process may change from one to the other between two questions, and inside one."""
    rng = np.random.default_rng(3)
    numbers, codes = rng.lognormal(3, 1, 20_000), np.sort(rng.integers(0, 3, 20_000))
    looped, summer = LoopedSums(loop, 3), CodeSums(3)
    looped.add(numbers, codes)
    summer.add(numbers, np.flatnonzero(np.diff(codes, prepend=-1)), np.arange(3))
    assert list(looped.each()) == list(summer.each())


def test_rows_that_need_too_many_cells_are_left_to_numpy(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looped_sums, "CELLS", 2)
    monkeypatch.setattr(looped_sums, "MOST_CELLS", 4)
    numbers = 2.0 ** np.arange(-3, 4)
    looped = LoopedSums(loop, 2)
    assert looped.add(numbers, np.zeros(7, np.int64)) == 4
    assert looped.add(numbers[2:], np.ones(5, np.int64)) == 0
    assert looped.add(numbers[:4], np.zeros(4, np.int64)) == 4
    summer = CodeSums(2, LoopedSums(loop, 2))
    summer.add(np.tile(numbers, 2), np.array([0, 7]), np.arange(2))
    assert list(summer.each()) == [sums_of(numbers.tolist())] * 2


@pytest.mark.parametrize("beyond", [2**53, -(2**53), 2**63 - 1, -(2**63)])
def test_a_row_that_does_not_fit_ends_the_loop(loop: Any, beyond: int) -> None:
    found = LoopedSums(loop, 2)
    assert found.add(np.array([5, beyond, 6]), np.array([1, 1, 1])) == 1
    assert found.add(np.array([7, 8]), np.array([0, 2]), is_live=np.ones(2, bool)) == 1
    assert found.add(np.array([9]), np.array([-1])) == 0
    assert (list(found.each()), found.counts.tolist()) == (
        [Sums(1, 7, 49), Sums(1, 5, 25)],
        [[1, 1], [1, 0], [0, 0], [0, 0]],
    )


def test_arrays_that_are_lent_are_not_compiled_for(loop: Any) -> None:
    before = len(loop.add_rows.signatures)
    lent = np.arange(5)
    lent.flags.writeable = False
    found = LoopedSums(loop, 5)
    assert found.add(lent, lent, is_live=np.ones(5, bool)) == 5
    assert len(loop.add_rows.signatures) == before


def of_loop(loop: Any, **changed: Any) -> Any:
    names = ("Places", "EXPONENTS", "add_rows")
    return SimpleNamespace(**{name: getattr(loop, name) for name in names} | changed)


def _the_last_numbers_of_a_cell_are_lost(loop: Any, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(looped_sums, "_emptied", lambda _, sums: sums)
    return loop


def _live_rows_are_not_known(loop: Any, _: pytest.MonkeyPatch) -> Any:
    def add_rows(numbers: Any, codes: Any, null: Any, live: Any, *rest: Any) -> Any:
        return loop.add_rows(numbers, codes, null, live[:0], *rest)

    return of_loop(loop, add_rows=add_rows)


def _null_is_a_number(loop: Any, _: pytest.MonkeyPatch) -> Any:
    def add_rows(numbers: Any, codes: Any, null: Any, *rest: Any) -> Any:
        return loop.add_rows(numbers, codes, null[:0], *rest)

    return of_loop(loop, add_rows=add_rows)


def _doubles_are_integers(loop: Any, _: pytest.MonkeyPatch) -> Any:
    def add_rows(*given: Any) -> Any:
        return loop.add_rows(*given[:4], (given[4][0], False), given[5])

    return of_loop(loop, add_rows=add_rows)


def _cells_are_lost_where_more_are_made(loop: Any, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(looped_sums, "CELLS", 1)
    right = LoopedSums._grow

    def grow(one: LoopedSums) -> None:
        right(one)
        one._places.words[:] = 0

    patch.setattr(LoopedSums, "_grow", grow)
    return loop


def _lower_parts_have_a_bit_less(loop: Any, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(looped_sums, "_LOW", 26)
    return loop


def _negative_doubles_are_in_no_order(loop: Any, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(LoopedSums, "ends", lambda one, dtype: one._places.ends.view(dtype))
    return loop


@pytest.mark.parametrize(
    "broken",
    [
        _the_last_numbers_of_a_cell_are_lost,
        _live_rows_are_not_known,
        _null_is_a_number,
        _doubles_are_integers,
        _cells_are_lost_where_more_are_made,
        _lower_parts_have_a_bit_less,
        _negative_doubles_are_in_no_order,
    ],
)
def test_a_wrong_loop_is_caught(
    loop: Any, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any, pytest.MonkeyPatch], Any]
) -> None:
    with pytest.raises(AssertionError):
        check(broken(loop, monkeypatch))


def at_once(**given: Any) -> Any:
    """A thread that has ended when it has begun."""
    return SimpleNamespace(start=given["target"])


def test_the_loop_is_loaded_once_a_process_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []

    def load() -> Any:
        loads.append(1)
        return "the loop"

    monkeypatch.setattr(looped_sums, "LOAD_ROWS", 10)
    monkeypatch.setattr(looped_sums, "Thread", at_once)
    monkeypatch.setattr(looped_sums, "_loaded", load)
    loading = Loading()
    loading.added(100)
    assert (loads, loading.loop) == ([], None)  # a process that asks once does not load it
    loading.added(1)
    loading.added(1)
    assert (loads, str(loading.loop)) == ([1], "the loop")


def test_numpy_adds_where_the_loop_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ImportError("Numba needs NumPy 2.4 or less")

    monkeypatch.setattr(looped_sums, "LOAD_ROWS", 0)
    monkeypatch.setattr(looped_sums, "Thread", at_once)
    monkeypatch.setattr(looped_sums, "_loaded", fails)
    loading = Loading()
    with caplog.at_level(logging.WARNING, "tidemark.sums"):
        loading.added(1)
    assert loading.loop is None
    assert caplog.messages == [
        "rows are added by numpy, because numba cannot compile the loop: Numba needs NumPy 2.4 or less"
    ]


def test_numpy_adds_where_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(looped_sums, "LOAD_ROWS", 0)
    monkeypatch.setattr(looped_sums, "Thread", lambda **_: SimpleNamespace(start=fails))
    loading = Loading()
    with caplog.at_level(logging.WARNING, "tidemark.sums"):
        loading.added(1)
        loading.added(1)
    assert loading.loop is None
    assert caplog.messages == [
        "rows are added by numpy, because nothing loads the loop: can't start new thread"
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_process_forks_once_the_loop_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a child would have the locks of a thread that it does not have."""

    def load() -> Any:
        time.sleep(0.1)
        return "the loop"

    state = Loading()
    monkeypatch.setattr(looped_sums, "LOAD_ROWS", 0)
    monkeypatch.setattr(looped_sums, "_loaded", load)
    monkeypatch.setattr(looped_sums, "loading", lambda: state)
    state.added(1)
    child = os.fork()
    if not child:
        os._exit(0 if state.loop else 1)
    assert os.waitpid(child, 0)[1] == 0
