"""What is dear to make and asked for again: kept in memory, the newest, within a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from operator import is_
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """The values asked for last, by name, as many as fit into a budget and one at least.

    Threads may share it; two that ask for one name at once may both make the value. A call costs O(1), and
    O(values) where a topic's objects are new.

    room: what all values may weigh together, in the unit of `weight`.
    weight: what a value weighs, told once, when it is made; 1 where it is left out, so `room` counts values.
    """

    def __init__(self, room: int, weight: Callable[[T], int] = lambda _: 1) -> None:
        self._room, self._weight, self._weighs = room, weight, 0
        self._values: OrderedDict[tuple[Hashable, Hashable], tuple[T, int]] = OrderedDict()
        self._made_of: dict[Hashable, tuple[object, ...]] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: Hashable) -> bool:
        return (None, name) in self._values

    def get(
        self, name: Hashable, make: Callable[[], T], *, topic: Hashable = None, of: Sequence[object] = ()
    ) -> T:
        """The value of a name in a topic, made where it is not kept.

        `of` are the objects that the topic's values are made of. Where others come (by identity, not by
        equality) all values of the topic are forgotten; no value outlives what it was made of.
        """
        place = (topic, name)
        with self._lock:
            known = self._made_of.get(topic, ())
            if known is not of and not _same(known, of):
                self._made_of[topic] = tuple(of)
                for old in [one for one in self._values if one[0] == topic]:
                    self._forget(old)
            kept = self._values.get(place)
            if kept is not None:
                self._values.move_to_end(place)
                return kept[0]
        made = make()
        weight = self._weight(made)
        with self._lock:
            if _same(self._made_of.get(topic, ()), of):  # nobody came with others meanwhile
                self._forget(place)
                self._values[place] = made, weight
                self._weighs += weight
            while self._weighs > self._room and len(self._values) > 1:
                self._forget(next(iter(self._values)))
        return made

    def _forget(self, place: tuple[Hashable, Hashable]) -> None:
        _, weight = self._values.pop(place, (None, 0))
        self._weighs -= weight


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))
