"""What each warehouse has for an answer over several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.moments import first_us
from tidemark.warehouse.columns.ticks import NO_TICK, TickGrid, end_from_epoch_us, from_epoch_us

# Of `as_of`: the versions of tables, and the newest removal if there is one.
_READ = ("runs", "steps", "ledger", "removed")


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Facts about one of several warehouses for an answer.

    rows: its rows in the ticks of the window, of history and live, with NaN and NULL. The rows of all
        warehouses together are those of the answer, unless it is about some of the rows in its window.
    newest: the end of its newest tick that has rows, exclusive; None without a time column, without rows that
        have a time, and for the last tick there is.
    as_of: the versions of its tables that were read.
    expired_before: the time before which its rows have expired, if the window reaches behind it; None
        otherwise.
    read_at: for a warehouse that does not answer now, when its rows and versions were read; else None.
    complete: whether it may have all rows of the window that it ever had: it answers, none of them has
        expired, and its newest tick is not before the window.
    """

    rows: int
    newest: datetime | None
    as_of: Mapping[str, int]
    expired_before: datetime | None
    read_at: datetime | None
    complete: bool


class SiteRows(NamedTuple):  # quicker to make than a dataclass: each answer has one for each warehouse
    """The rows of one warehouse by tick, which ascends, and the versions of its tables.

    runs_table: the table whose version `as_of` calls `runs`.
    horizon: the tick before which its rows have expired; None if none has.
    read_us: for a warehouse that does not answer, when this was read; else None.
    """

    ticks: NDArray[np.int64]
    rows: NDArray[np.int64]
    as_of: Mapping[str, int]
    runs_table: str
    horizon: int | None
    read_us: int | None = None

    @property
    def moment(self) -> dict[str, int]:
        """The moment to open it as it was read: versions by the names of tables, and the newest removal."""
        roles = (role for role in _READ if role in self.as_of)
        return {self.runs_table if role == "runs" else role: self.as_of[role] for role in roles}


@dataclass(frozen=True, slots=True, eq=False)
class BySite:
    """The rows of several warehouses, which the answers of a call share."""

    sites: Mapping[str, SiteRows]
    grid: TickGrid | None

    def of(self, window: tuple[Any, Any] | None) -> dict[str, SiteFacts]:
        """The facts of each warehouse for a window as answers show it. O(log ticks) and a sum."""
        return {name: self._facts(site, window) for name, site in self.sites.items()}

    @property
    def has_silent(self) -> bool:
        """Whether a warehouse does not answer now."""
        return any(one.read_us is not None for one in self.sites.values())

    def _facts(self, site: SiteRows, window: tuple[Any, Any] | None) -> SiteFacts:
        first, stop, start, newest = 0, len(site.ticks), NO_TICK, None
        if window is not None and self.grid is not None:
            start = NO_TICK + 1
            if window[0] is not None:
                start = self.grid.tick_of(first_us(window[0]))
            first = int(site.ticks.searchsorted(start))
            if window[1] is not None:
                stop = int(site.ticks.searchsorted(self.grid.tick_of(first_us(window[1]) - 1), "right"))
        timed = site.ticks[site.ticks != NO_TICK]
        if self.grid is not None and len(timed):
            newest = end_from_epoch_us(self.grid.start_of(int(timed[-1]) + 1))
        expired = None
        if self.grid is not None and site.horizon is not None and start < site.horizon:
            expired = from_epoch_us(self.grid.start_of(site.horizon))
        reaches = self.grid is None or window is None or (bool(len(timed)) and int(timed[-1]) >= start)
        return SiteFacts(
            rows=int(site.rows[first:stop].sum()),
            newest=newest,
            as_of=dict(site.as_of),
            expired_before=expired,
            read_at=None if site.read_us is None else from_epoch_us(site.read_us),
            complete=reaches and expired is None and site.read_us is None,
        )
