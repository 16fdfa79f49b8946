"""An LRU cache with a memory budget, for values that are expensive to compute and used repeatedly."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from operator import attrgetter, is_
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from tidemark.warehouse.errors import InputError, shortened

T = TypeVar("T")

# Python refuses to read numbers of more than 4,300 digits.
_SIZE = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([A-Za-z]*)\s*")
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", start=1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def parse_bytes(size: str | int) -> int:
    """A number of bytes from a number, or from text such as "256MB" (10**6 bytes each) or "1 GiB" (2**30).

    InputError for anything else.
    """
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or match[2].upper() not in _UNITS:
        raise InputError(
            f"not a size: {shortened(size)}. Expected a number of bytes, or text such as '256MB' or '1 GiB'."
        )
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


class Budget:
    """The total weight of the values of all caches that share it, in the unit of their weights.

    A cache that needs room takes it from the other caches first, beginning with the one whose last hit or
    `put` was longest ago. A cache that nothing uses any more does not count.

    `next_turn` returns a number that is greater than those before.
    """

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, threading.Lock()
        self._caches: WeakSet[LRUCache[Any]] = WeakSet()
        self.next_turn = count(1).__next__

    @property
    def weight(self) -> int:
        """The total weight of the cached values."""
        return sum(cache.weight for cache in self._caches)

    def join(self, cache: LRUCache[Any]) -> None:
        """From here on the cache shares the budget."""
        with self.lock:
            self._caches.add(cache)

    def make_room(self, asking: LRUCache[Any]) -> None:
        """Evicts values until the rest fits; one value of the asking cache stays. The caller has the lock."""
        while self.weight > self.most:
            others = [cache for cache in self._caches if cache is not asking and cache.weight]
            if not others and asking.size <= 1:
                return
            min(others, key=attrgetter("turn"), default=asking).evict_oldest()


class LRUCache(Generic[T]):
    """The most recently used values by key: as many as fit into a budget, and at least one.

    Values are not None. Safe to share between threads. If two threads miss the same key at once, both may
    compute the value. A call costs O(1), and O(cached values) when the sources of a topic change.

    budget: the total weight of all values, in the unit of the weights that they are put in with; or what
        several caches share. One value may exceed it.

    `turn` rises with each hit and `put`. Of the caches of a budget, the one with the least gives room first.
    """

    def __init__(self, budget: int | Budget) -> None:
        self._shared = budget if isinstance(budget, Budget) else Budget(budget)
        self.budget, self._total_weight, self.turn = self._shared.most, 0, 0
        self._entries: OrderedDict[tuple[Hashable, Hashable], tuple[T, int]] = OrderedDict()
        self._sources: dict[Hashable, tuple[object, ...]] = {}
        self._lock = self._shared.lock
        self._shared.join(self)

    def __contains__(self, key: Hashable) -> bool:
        return (None, key) in self._entries

    @property
    def size(self) -> int:
        """How many values are cached."""
        return len(self._entries)

    @property
    def weight(self) -> int:
        """The total weight of the cached values."""
        return self._total_weight

    def peek(self, key: Hashable, *, topic: Hashable = None, sources: Sequence[object] = ()) -> T | None:
        """The value of a key if it is cached, else None; topic and sources as in `at`."""
        with self._lock:
            return self._lookup((topic, key), sources)

    def drop(self, key: Hashable) -> None:
        """Removes a key of the topic None, if it is cached."""
        with self._lock:
            self._evict((None, key))

    def at(self, key: Hashable, *, topic: Hashable = None, sources: Sequence[object] = ()) -> Place[T]:
        """The place of a key in a topic, for a value that is computed if it is not there.

        topic: a namespace of keys. `in` tests the topic None.
        sources: the objects that the values of the topic are computed from. If they differ from those of the
            previous call (by identity, not by equality), all values of the topic are evicted. So no value
            outlives its sources. A value whose sources changed while it was computed is returned, not cached.
        """
        return Place(self, self.peek(key, topic=topic, sources=sources), key, topic, sources)

    def put(
        self,
        key: Hashable,
        value: T,
        weight: int = 1,
        *,
        topic: Hashable = None,
        sources: Sequence[object] = (),
    ) -> None:
        """Caches a value unless the sources of the topic have changed; topic and sources as in `at`.

        weight: that of the value. If each is 1, the budget counts values.
        """
        entry_key = topic, key
        with self._lock:
            if is_same(self._sources.get(topic, ()), sources):  # no other thread brought newer sources
                self._evict(entry_key)
                self._entries[entry_key] = value, weight
                self._total_weight += weight
            self.turn = self._shared.next_turn()
            self._shared.make_room(self)

    def evict_oldest(self) -> None:
        """Removes the value that was used longest ago. Only `Budget` calls it, with the lock."""
        self._evict(next(iter(self._entries)))

    def _lookup(self, entry_key: tuple[Hashable, Hashable], sources: Sequence[object]) -> T | None:
        topic = entry_key[0]
        last_sources = self._sources.get(topic, ())
        if last_sources is not sources and not is_same(last_sources, sources):
            self._sources[topic] = tuple(sources)
            for stale in [entry for entry in self._entries if entry[0] == topic]:
                self._evict(stale)
        entry = self._entries.get(entry_key)
        if entry is None:
            return None
        self._entries.move_to_end(entry_key)
        self.turn = self._shared.next_turn()
        return entry[0]

    def _evict(self, entry_key: tuple[Hashable, Hashable]) -> None:
        _, weight = self._entries.pop(entry_key, (None, 0))
        self._total_weight -= weight


@dataclass(frozen=True, slots=True)
class Place(Generic[T]):
    """A place in a cache; `value` is the value that the look-up found there, None without one."""

    cache: LRUCache[T]
    value: T | None
    key: Hashable
    topic: Hashable
    sources: Sequence[object]

    def keep(self, value: T, weight: int = 1) -> T:
        """Caches the value, and returns it; the weight as in `put`."""
        self.cache.put(self.key, value, weight, topic=self.topic, sources=self.sources)
        return value


def is_same(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether these are the same objects, and not only equal ones."""
    return len(a) == len(b) and all(map(is_, a, b))
