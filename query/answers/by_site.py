"""What each warehouse has for an answer over several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.ticks import TickGrid, end_from_epoch_us


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """What one warehouse of several has for an answer.

    rows: its rows in the ticks of the window, of history and live, with NaN and NULL. The rows of all
        warehouses together are those of the answer, unless it is about some of the rows in its window.
    newest: the end of its newest tick that has rows, exclusive; None without a time column, without rows that
        have a time, and for the last tick there is.
    as_of: the versions of its tables that were read.
    """

    rows: int
    newest: datetime | None
    as_of: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """The rows of one warehouse by tick, which ascends, and the versions of its tables."""

    ticks: NDArray[np.int64]
    rows: NDArray[np.int64]
    as_of: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class BySite:
    """The rows of several warehouses, which the answers of a call share.

    without_time: the tick of rows that have no time.
    """

    sites: Mapping[str, SiteRows]
    grid: TickGrid | None
    without_time: int

    def of(self, window: tuple[Any, Any] | None) -> dict[str, SiteFacts]:
        """The facts of each warehouse for a window as answers show it. O(log ticks) and a sum."""
        return {name: self._facts(site, window) for name, site in self.sites.items()}

    def _facts(self, site: SiteRows, window: tuple[Any, Any] | None) -> SiteFacts:
        first, stop = 0, len(site.ticks)
        if window is not None and self.grid is not None:
            start, end = window
            least = self.without_time + 1 if start is None else self.grid.tick_of(first_us(start))
            first = int(site.ticks.searchsorted(least))
            if end is not None:
                stop = int(site.ticks.searchsorted(self.grid.tick_of(first_us(end) - 1), "right"))
        newest = None
        timed = site.ticks[site.ticks != self.without_time]
        if self.grid is not None and len(timed):
            newest = end_from_epoch_us(self.grid.start_of(int(timed[-1]) + 1))
        return SiteFacts(int(site.rows[first:stop].sum()), newest, dict(site.as_of))
