"""Random windows, and the rows that lie in them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.worlds.rows import DAY, DAYS, FIRST, Columns, Row, disguised

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Edge = datetime | None


@dataclass(frozen=True)
class Asked:
    """The arguments that select a window, its edges (the end exclusive), and the ticks that have rows."""

    options: dict[str, Any]
    start: Edge
    stop: Edge
    tick: timedelta
    data: tuple[datetime, datetime] | None  # the first tick's start and the last tick's end

    @classmethod
    def drawn(cls, chance: random.Random, columns: Columns, rows: Sequence[Row]) -> Asked:
        ticks = [floor(row["t"], columns.tick) for row in rows if row.get("t")] if columns.time else []
        data = (min(ticks), max(ticks) + columns.tick) if ticks else None
        kind = chance.choice(("all", "last", "between", "between")) if columns.time else "all"
        if kind == "last" and data:
            days = chance.choice((1, 3, 30))
            return cls({"last": f"{days}d"}, data[1] - days * DAY, None, columns.tick, data)
        if kind != "between":
            return cls({}, None, None, columns.tick, data)
        edges = sorted(_edge(chance, columns.tick) for _ in range(2))
        edges[1] += columns.tick if edges[0] == edges[1] else timedelta(0)
        start, stop = (edge if chance.random() < 0.8 else None for edge in edges)
        between = tuple(disguised(chance, edge) for edge in (start, stop))
        return cls({"between": between}, start, stop, columns.tick, data)

    @classmethod
    def beside(cls, chance: random.Random, window: Asked) -> Asked:
        """A window with an open side; the other one is inside of a tick before, in or after the data."""
        first, end = window.data or (FIRST, FIRST + DAYS * DAY)
        tick = chance.choice((first - 3 * window.tick, first, end - window.tick, end, end + 3 * window.tick))
        edge = tick + window.tick * chance.choice((0, 0.25, 0.5))
        start, stop = chance.choice(((edge, None), (None, edge)))
        return cls({"between": (start, stop)}, start, stop, window.tick, window.data)

    @property
    def is_open(self) -> bool:
        """Whether it has all rows, also those without a time."""
        return not self.options

    @property
    def is_whole(self) -> bool:
        """Whether it consists of whole ticks."""
        return all(edge is None or edge == floor(edge, self.tick) for edge in (self.start, self.stop))

    @property
    def widened(self) -> Asked:
        """The whole ticks that overlap it."""
        stop = self.stop
        if stop is not None and stop != floor(stop, self.tick):
            stop = floor(stop, self.tick) + self.tick
        return Asked(self.options, self.start and floor(self.start, self.tick), stop, self.tick, self.data)

    def holds(self, row: Row) -> bool:
        return self.is_open or between(row, self.start, self.stop)


def between(row: Row, start: Edge, stop: Edge) -> bool:
    """Whether the row has a time from `start` on and before `stop`."""
    time = row["t"]
    return time is not None and (start is None or start <= time) and (stop is None or time < stop)


def floor(time: datetime, width: timedelta, origin: datetime = EPOCH) -> datetime:
    return time - (time - origin) % width


def _edge(chance: random.Random, tick: timedelta) -> datetime:
    """A time before, in and after the days of the rows, at a tick or inside of one."""
    time = FIRST + chance.randrange(-4, DAYS + 4) * DAY + chance.randrange(4) * timedelta(hours=6)
    return chance.choice((floor(time, tick), time + timedelta(hours=chance.random() * 5)))
