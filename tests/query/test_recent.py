"""What is kept: the values asked for last, within the budget, and none of objects that were replaced."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from tidemark.query.reading.memory_cache import Recent


@given(st.integers(0, 20), st.lists(st.integers(0, 9)))
def test_the_values_asked_for_last_are_kept_as_far_as_they_fit(room: int, asked: list[int]) -> None:
    """Against a list; a number weighs itself."""
    made: list[int] = []
    recent: Recent[int] = Recent(room, lambda value: value)
    model: OrderedDict[int, None] = OrderedDict()
    for name in asked:
        was_kept = name in model
        model.pop(name, None)
        model[name] = None
        while sum(model) > room and len(model) > 1:
            model.popitem(last=False)
        made.clear()
        assert recent.get(name, lambda name=name: made.append(name) or name) == name  # type: ignore[misc]
        assert made == ([] if was_kept else [name])
        assert {one for one in range(10) if one in recent} == set(model)


def test_a_topic_forgets_what_was_made_of_other_objects_and_others_keep_theirs() -> None:
    recent: Recent[str] = Recent(10)
    old, new = [1], [1]  # equal, and not the same
    assert recent.get("a", lambda: "old", topic="x", of=(old,)) == "old"
    assert recent.get("b", lambda: "old", topic="x", of=(old,)) == "old"
    assert recent.get("a", lambda: "other", topic="y", of=(old,)) == "other"
    assert recent.get("a", lambda: "new", topic="x", of=(old,)) == "old"
    assert recent.get("a", lambda: "new", topic="x", of=(new,)) == "new"
    assert recent.get("b", lambda: "new", topic="x", of=(new,)) == "new"
    assert recent.get("a", lambda: "new", topic="y", of=(old,)) == "other"
    assert recent.get("a", lambda: "fewer", topic="x", of=()) == "fewer"


def test_a_value_whose_objects_were_replaced_while_it_was_made_is_given_and_not_kept() -> None:
    recent: Recent[str] = Recent(10)
    old, new = object(), object()

    def overtaken() -> str:
        assert recent.get("a", lambda: "new", of=(new,)) == "new"
        return "old"

    assert recent.get("a", overtaken, of=(old,)) == "old"
    assert recent.get("a", lambda: "made anew", of=(new,)) == "new"


def test_threads_that_ask_at_once_get_their_own_values_and_the_budget_holds() -> None:
    recent: Recent[int] = Recent(30, lambda value: value)
    barrier = threading.Barrier(8)

    def ask(first: int) -> None:
        barrier.wait()
        for i in range(500):
            name = (first + i) % 12
            assert recent.get(name, lambda name=name: name) == name  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert sum(one for one in range(12) if one in recent) == recent._weighs <= 30
