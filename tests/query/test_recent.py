"""What is kept: the values asked for last, within the budget, and none of objects that were replaced."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.memory_cache import LRUCache


@given(st.integers(0, 20), st.lists(st.integers(0, 9)))
def test_the_values_asked_for_last_are_kept_as_far_as_they_fit(budget: int, asked: list[int]) -> None:
    """Against a list; a number weighs itself."""
    cache: LRUCache[int] = LRUCache(budget, int)
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
            assert kept.keep(name) == name
        assert {one for one in range(10) if one in cache} == set(model)


def asked(cache: LRUCache[Any], key: Hashable, made: Any, **of: Any) -> Any:
    """The value of a key, `made` if there is none."""
    kept = cache.at(key, **of)
    return kept.keep(made) if kept.value is None else kept.value


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
    cache: LRUCache[int] = LRUCache(30, int)
    barrier = threading.Barrier(8)

    def ask(first: int) -> None:
        barrier.wait()
        for i in range(500):
            name = (first + i) % 12
            assert asked(cache, name, name) == name

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert sum(one for one in range(12) if one in cache) == cache._total_weight <= 30
