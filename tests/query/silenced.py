"""Three small warehouses, of which one is asked once and then does not answer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.query.siteworld import DAY, FIRST, Row, Sites, drawn, made, table
from tests.query.worlds import Oracle
from tidemark import query, warehouse
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.sizes import Tuning

WINDOWS: list[dict[str, Any]] = [{}, {"between": (FIRST + 2 * DAY, FIRST + 6 * DAY)}]
LOOKS = ("newest", "refresh", "refresh_options", "refresh_events")
PHIS = [0, 0.07, 0.5, 0.9, 1]
SILENT = "site 1"


def three_sites(folder: Path) -> Sites:
    """Of `SILENT` the marks do not know each row, its runs have rows that left, and it has live rows."""
    sites, chance = made(folder, 11, 3), random.Random(2)
    for name in sites.rows:
        sites.stream(name, drawn(chance, 80), 50)
    uri, own, more = folder / SILENT, sites.rows[SILENT], drawn(chance, 600)
    warehouse.load(None, uri, table(more), "more", tuning=Tuning(key_block_rows=8))
    report = warehouse.delete(None, uri, "x > 20 AND x < 40")
    assert report.rows
    assert not report.runs_rewritten  # the runs still have the rows, and a reader subtracts them
    own[:] = [row for row in own + more if row["x"] is None or not 20 < row["x"] < 40]
    sites.stream(SILENT, drawn(chance, 80), 51)
    return sites


class Silenced:
    """Three warehouses, of which one is asked once and then does not answer; its folder is gone."""

    def __init__(self, sites: Sites, **options: Any) -> None:
        self.sites, self.name = sites, SILENT
        self.wh = self.sites.open(missing="bounds", **options)
        self.gone = sites.folder / "elsewhere"

    def silence(self, *read: Callable[[query.Warehouse], Any]) -> None:
        """The store stops to answer after these questions."""
        self.wh.quantile(0.5)
        for ask in read:
            ask(self.wh)
        (self.sites.folder / self.name).rename(self.gone)
        for name in LOOKS:
            setattr(self._reader, name, self._refused)

    def answer_again(self) -> None:
        self.gone.rename(self.sites.folder / self.name)
        for name in LOOKS:
            delattr(self._reader, name)

    @property
    def _reader(self) -> Any:
        reader: Any = self.wh._session.snapshot
        return reader.readers[self.name]

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store did not answer.")

    def inside(self, window: dict[str, Any]) -> list[Row]:
        start, end = window.get("between", (None, None))
        rows = self.sites.all_rows
        return rows if start is None else [row for row in rows if row["at"] and start <= row["at"] < end]

    def check(self, mode: Any, window: dict[str, Any]) -> None:
        """All bounds hold, for rows that came to the others meanwhile, too."""
        truth = Oracle.of([row["x"] for row in self.inside(window)])
        for answer in self.wh.quantile(PHIS, mode=mode, **window):
            exact, rank = truth.quantile(answer.phi), truth.rank(answer.phi)
            assert (answer.N, answer.nans, answer.nulls) == (truth.n, truth.nans, truth.nulls)
            if not math.isnan(exact):
                assert answer.low <= exact <= answer.high
                assert answer.rank_lo <= truth.le(answer.value) <= answer.rank_hi
                error = max(0, rank - truth.le(answer.value), truth.lt(answer.value) + 1 - rank)
                assert error <= answer.error_bound
        for point in self.wh.rank([3, 17.5, *range(31, 99, 4)], mode=mode, **window):
            assert point.rank_lo <= truth.le(point.value) <= point.rank_hi
