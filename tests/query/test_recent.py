"""What is kept: the values asked for last, within the budget, and none of objects that were replaced."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, GroupWorld
from tests.query.ways import OF_MEASURES, forced
from tidemark.query.reading import budgets
from tidemark.warehouse.memory_cache import Budget, LRUCache


@given(st.integers(0, 20), st.lists(st.integers(0, 9)))
def test_the_values_asked_for_last_are_kept_as_far_as_they_fit(budget: int, asked: list[int]) -> None:
    """Against a list; a number weighs itself."""
    cache: LRUCache[int] = LRUCache(budget)
    model: OrderedDict[int, None] = OrderedDict()
    for name in asked:
        was_kept = name in model
        model.pop(name, None)
        model[name] = None
        while sum(model) > budget and len(model) > 1:
            model.popitem(last=False)
        kept = cache.at(name)
        assert kept.value == (name if was_kept else None)
        if not was_kept:
            assert kept.keep(name, name) == name
        assert {one for one in range(10) if one in cache} == set(model)


def asked(cache: LRUCache[Any], key: Hashable, made: Any, **of: Any) -> Any:
    """The value of a key, `made` if there is none; a number weighs itself."""
    kept = cache.at(key, **of)
    return kept.keep(made, made if isinstance(made, int) else 1) if kept.value is None else kept.value


def test_a_topic_forgets_what_was_made_of_other_objects_and_others_keep_theirs() -> None:
    cache: LRUCache[str] = LRUCache(10)
    old, new = [1], [1]  # equal, and not the same
    assert asked(cache, "a", "old", topic="x", sources=(old,)) == "old"
    assert asked(cache, "b", "old", topic="x", sources=(old,)) == "old"
    assert asked(cache, "a", "other", topic="y", sources=(old,)) == "other"
    assert asked(cache, "a", "new", topic="x", sources=(old,)) == "old"
    assert asked(cache, "a", "new", topic="x", sources=(new,)) == "new"
    assert asked(cache, "b", "new", topic="x", sources=(new,)) == "new"
    assert asked(cache, "a", "new", topic="y", sources=(old,)) == "other"
    assert asked(cache, "a", "fewer", topic="x", sources=()) == "fewer"


def test_a_value_whose_objects_were_replaced_while_it_was_made_is_given_and_not_kept() -> None:
    cache: LRUCache[str] = LRUCache(10)
    old, new = object(), object()

    slow = cache.at("a", sources=(old,))
    assert asked(cache, "a", "new", sources=(new,)) == "new"
    assert slow.keep("old") == "old"
    assert asked(cache, "a", "made anew", sources=(new,)) == "new"


def test_threads_that_ask_at_once_get_their_own_values_and_the_budget_holds() -> None:
    cache: LRUCache[int] = LRUCache(30)
    barrier = threading.Barrier(8)

    def ask(first: int) -> None:
        barrier.wait()
        for i in range(500):
            name = (first + i) % 12
            assert asked(cache, name, name) == name

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert sum(one for one in range(12) if one in cache) == cache.weight <= 30


ASKED = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=30)


def shares_as_a_list_does(budget: int, asked_of: list[tuple[int, int]]) -> None:
    """Three caches of one budget against lists of their names, the one that was asked last first."""
    shared = Budget(budget)
    caches: list[LRUCache[int]] = [LRUCache(shared) for _ in range(3)]
    models: dict[int, list[int]] = {}
    for number, name in asked_of:
        own = models.pop(number, [])
        models = {number: [name, *(one for one in own if one != name)], **models}
        while sum(name for own in models.values() for name in own) > budget:
            victim = next((one for one in reversed(models) if one != number and any(models[one])), number)
            if models[victim] == [name] and victim == number:
                break
            models[victim].pop()
        asked(caches[number], name, name)
        for place, cache in enumerate(caches):
            assert {one for one in range(10) if one in cache} == set(models.get(place, []))
        assert shared.weight == sum(name for own in models.values() for name in own)


@given(st.integers(0, 30), ASKED)
def test_caches_of_one_budget_take_room_from_the_one_that_was_asked_longest_ago(
    budget: int, asked_of: list[tuple[int, int]]
) -> None:
    shares_as_a_list_does(budget, asked_of)


def test_a_budget_that_each_cache_has_for_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "weight", property(lambda _: 0))
    with pytest.raises(AssertionError):
        shares_as_a_list_does(10, [(0, 9), (1, 9)])


def test_a_cache_that_nobody_has_any_more_counts_no_more() -> None:
    shared = Budget(10)
    gone, kept = LRUCache[int](shared), LRUCache[int](shared)
    asked(gone, 9, 9)
    del gone
    gc.collect()
    asked(kept, 8, 8)
    assert shared.weight == kept.weight == 8


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_is_kept_of_a_warehouse_weighs_its_bytes(
    late_and_live: GroupWorld, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    put = LRUCache.put
    if is_broken:  # a weight is forgotten, so that the value counts as one byte
        monkeypatch.setattr(LRUCache, "put", lambda *given, **named: put(*given[:3], **named))
    wh = late_and_live.open(memory=2**26)
    for way in ("index", "runs"):
        with forced(way):
            for ask in OF_MEASURES:
                ask(wh)
    wh.quantile(0.5, last=5 * HOUR)
    wh.distinct(key="origin", last=5 * HOUR)
    wh.persistent(0.2, key="origin")
    kept = list(wh._session.memory._entries.values())
    assert len({type(value) for value, _ in kept}) >= 8
    assert all(weight == value.nbytes for value, weight in kept) is not is_broken


def test_the_budget_of_a_process_is_a_tenth_of_the_memory_that_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's limit counts; text is not one. A small machine has the least."""
    machine, limits = budgets.machine_memory(), [tmp_path / name for name in ("new", "old", "missing")]
    monkeypatch.setattr(budgets, "_GROUP_LIMITS", limits)
    for new, old, expected in [("max", str(2**62), None), (str(2**32), "max", 2**32), ("0", "x", 0)]:
        limits[0].write_text(new + "\n")
        limits[1].write_text(old)
        found = budgets.machine_memory()
        assert found == expected or (expected is None and found >= machine)
        budgets.shared_budget.cache_clear()
        assert budgets.shared_budget().most == max(2**28, found // 10)
    budgets.shared_budget.cache_clear()
