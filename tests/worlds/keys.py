"""Random questions about keys, each answer held against the plain list of rows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

from tests.worlds.rows import DAY, DRAWN, Row, disguised, plain
from tests.worlds.windows import Asked, between, floor
from tests.worlds.world import World

Values = Counter[Any]


def ask(world: World, chance: random.Random, wh: Any, history: list[Row], live: list[Row]) -> None:
    """A random question about a random key to a reader that sees these rows."""
    rows, key = history + live, chance.choice(world.keys)
    window, mode = Asked.drawn(chance, world.columns, rows), chance.choice(("approximate", "exact"))
    given = tuple(chance.sample(key, len(key)))
    options = {**window.options, "key": given[0] if len(key) == 1 else list(given), "mode": mode}
    question = chance.choice(
        (
            _frequency,
            _series,
            _top,
            _hitters,
            _key_range,
            _self_join,
            _distinct,
            _new_keys,
            _overlap,
            _persistence,
        )
    )
    question(Question(world, chance, wh, rows, key, given, window, options))


class Question:
    """A question: the reader, the rows that it sees, the key's columns as declared and as given."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        wh: Any,
        rows: list[Row],
        key: tuple[str, ...],
        given: tuple[str, ...],
        window: Asked,
        options: dict[str, Any],
    ) -> None:
        self.world, self.chance, self.wh, self.rows = world, chance, wh, rows
        self.key, self.given, self.window, self.options = key, given, window, options
        self.counts = self.count([row for row in rows if window.holds(row)])
        self.exact = options["mode"] == "exact" and window.is_whole

    def value(self, row: Row) -> Any:
        """The key of a row, its columns as given; None if one of them is NULL."""
        values = tuple(row[name] for name in self.given)
        return None if None in values else values if len(values) > 1 else values[0]

    def count(self, rows: list[Row]) -> Values:
        return Counter(plain(value) for value in map(self.value, rows) if value is not None)

    def true(self, answer: Any) -> int:
        """The rows of the key of an answer, which names the columns as they were declared, or as given."""
        return self.counts[plain(answer.value)]

    def drawn(self) -> list[Any]:
        """Keys that rows have, and one that maybe none has."""
        found = list(map(self.value, self.chance.sample(self.rows, min(3, len(self.rows)))))
        made = tuple(DRAWN[self.world.columns.types[name]](self.chance) for name in self.given)
        return [*(value for value in found if value is not None), made if len(made) > 1 else made[0]]


def _frequency(asked: Question) -> None:
    values = asked.drawn()
    for value, answer in zip(values, asked.wh.frequency(values, **asked.options), strict=True):
        true = asked.counts[plain(value)]
        assert true <= answer.hi
        assert not asked.exact or (answer.lo, answer.count, answer.hi) == (true,) * 3
        assert plain(answer.value) == plain(value)
        if asked.window.is_whole:
            assert asked.counts.total() == answer.N


def _series(asked: Question) -> None:
    """The rows of a key in each part of the window, which whole ticks make."""
    if not asked.world.columns.time:
        return
    value = asked.drawn()[0]
    rows = [row for row in asked.rows if row["t"] is not None and asked.window.widened.holds(row)]
    answers = asked.wh.frequency(value, every=asked.chance.choice(("1d", "2d")), **asked.options)
    for answer in answers:
        counts = asked.count([row for row in rows if between(row, *answer.window)])
        assert counts[plain(value)] <= answer.hi
        assert counts.total() == answer.N
        assert answer.mode != "exact" or answer.count == counts[plain(value)]
    assert sum(answer.N for answer in answers) == asked.count(rows).total()


def _top(asked: Question) -> None:
    found = asked.wh.top(disguised(asked.chance, asked.chance.choice((1, 3, 50))), **asked.options)
    for answer in found:
        assert answer.lo <= asked.true(answer) <= answer.hi
    if asked.exact:
        assert [answer.count for answer in found] == [
            rows for _, rows in asked.counts.most_common(len(found))
        ]
    shown = {plain(answer.value) for answer in found}
    others = max((rows for value, rows in asked.counts.items() if value not in shown), default=0)
    assert all(asked.true(answer) >= others for answer in found if answer.certain)


def _hitters(asked: Question) -> None:
    phi = asked.chance.choice((0.01, 0.1, 0.5))
    found = {
        plain(answer.value): answer
        for answer in asked.wh.heavy_hitters(disguised(asked.chance, phi), **asked.options)
    }
    for answer in found.values():
        assert answer.lo <= asked.true(answer) <= answer.hi
    if asked.window.is_whole:
        least = phi * asked.counts.total()
        assert {value for value, rows in asked.counts.items() if rows >= least} <= set(found)
        assert all(asked.true(answer) >= least for answer in found.values() if answer.certain)


def _place(value: Any) -> Any:
    """What orders keys: numbers with NaN last, text by its bytes."""
    if isinstance(value, tuple):
        return tuple(map(_place, value))
    if isinstance(value, str) and value != "NaN":
        return value.encode()
    return (value == "NaN", 0.0 if value == "NaN" else value) if isinstance(value, float | str) else value


def _key_range(asked: Question) -> None:
    if len(asked.key) > 1:
        return
    low, high = (asked.drawn()[-1] if asked.chance.random() < 0.8 else None for _ in range(2))
    if low is not None and high is not None and _place(plain(low)) >= _place(plain(high)):
        return
    true = sum(
        rows
        for value, rows in asked.counts.items()
        if (low is None or _place(value) >= _place(plain(low)))
        and (high is None or _place(value) < _place(plain(high)))
    )
    answer = asked.wh.key_range(low, high, **asked.options)
    assert answer.lo <= true <= answer.hi
    assert not asked.window.is_whole or answer.count == true


def _self_join(asked: Question) -> None:
    answer, true = asked.wh.self_join(**asked.options), sum(rows**2 for rows in asked.counts.values())
    assert answer.lo <= true <= answer.hi
    assert not asked.window.is_whole or answer.count == true


def _distinct(asked: Question) -> None:
    answer = asked.wh.distinct(**asked.options)
    assert answer.least <= len(asked.counts) <= answer.most
    assert not asked.exact or answer.count == len(asked.counts)


def _new_keys(asked: Question) -> None:
    if asked.window.start is None:
        return
    before = asked.count(
        [row for row in asked.rows if row["t"] is not None and row["t"] < asked.window.start]
    )
    answer, true = asked.wh.new_keys(**asked.options), len(set(asked.counts) - set(before))
    assert answer.least <= true <= answer.most


def _overlap(asked: Question) -> None:
    if not asked.world.columns.time:
        return
    windows = [Asked.drawn(asked.chance, asked.world.columns, asked.rows) for _ in range(2)]
    pairs = [window.options.get("between") for window in windows]
    keys = [
        set(asked.count([row for row in asked.rows if pair is None or window.holds(row)]))
        for window, pair in zip(windows, pairs, strict=True)
    ]
    answer = asked.wh.overlap(*pairs, key=asked.options["key"], mode=asked.options["mode"])
    for number, true in ((answer.both, keys[0] & keys[1]), (answer.only_a, keys[0] - keys[1])):
        assert number.least <= len(true) <= number.most


def _persistence(asked: Question) -> None:
    """Of the window, and of one with an open side: the first draws of the question stay as they are."""
    if asked.world.columns.time:
        _presence(asked, asked.window)
        _presence(asked, Asked.beside(asked.chance, asked.window))


def _presence(asked: Question, window: Asked) -> None:
    """The slots in which keys have rows. All of the window count; an open side ends at the data."""
    columns, options = asked.world.columns, {**asked.options, "last": None, "between": None, **window.options}
    width = asked.chance.choice((columns.tick, 2 * DAY, DAY))
    rows = [row for row in asked.rows if row["t"] is not None and window.holds(row)]
    present: dict[Any, set[Any]] = defaultdict(set)
    for row in rows:
        present[plain(asked.value(row))].add(floor(row["t"], width))
    count = _slots(window, width)
    slot = f"{width // timedelta(hours=1)}h"
    values = asked.drawn()
    for value, answer in zip(values, asked.wh.persistence(values, slot=slot, **options), strict=True):
        true = present[plain(value)]
        assert answer.lo <= len(true) <= answer.hi
        assert answer.window_slots == count
        assert {floor(start, width) for start, _ in answer.present} <= true
        starts = [floor(start, width) for start, _ in (*answer.present, *answer.maybe)]
        assert true <= set(starts)
    alpha = asked.chance.choice((0.01, 0.3, 1))
    found = {plain(answer.value): answer for answer in asked.wh.persistent(alpha, slot=slot, **options)}
    for value, answer in found.items():
        assert answer.lo <= len(present[value]) <= answer.hi
    assert {
        value
        for value, slots in present.items()
        if value is not None and count and len(slots) >= alpha * count
    } <= set(found)


def _slots(window: Asked, width: timedelta) -> int:
    """The number of slots of a window; an open side of it ends at the data, and no side opens a window."""
    start, stop = window.start, window.stop
    if start is None:
        start = window.data and window.data[0]
    if stop is None:
        stop = window.data and window.data[1]
    if start is None or stop is None or start >= stop:
        return 0
    return (floor(stop - timedelta(microseconds=1), width) - floor(start, width)) // width + 1
