"""Three small warehouses, of which one is asked once and then does not answer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.query.siteworld import DAY, FIRST, Row, drawn, made, table
from tests.query.worlds import Oracle
from tidemark import query, warehouse
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.sizes import Tuning

WINDOWS: list[dict[str, Any]] = [{}, {"between": (FIRST + 2 * DAY, FIRST + 6 * DAY)}]
LOOKS = ("newest", "refresh", "refresh_options", "refresh_events")
PHIS = [0, 0.07, 0.5, 0.9, 1]


class Silenced:
    """Three warehouses, of which one is asked once and then does not answer; its folder is gone."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.sites = made(folder, 11, 3)
        chance = random.Random(2)
        for name in self.sites.rows:
            self.sites.stream(name, drawn(chance, 80), 50)
        self.name, more = "site 1", drawn(chance, 600)  # so many that its marks do not know each row
        warehouse.load(None, folder / self.name, table(more), "more", tuning=Tuning(key_block_rows=8))
        self.sites.rows[self.name] += more
        report = warehouse.delete(None, folder / self.name, "x > 20 AND x < 40")
        assert report.rows
        assert not report.runs_rewritten  # the runs still have the rows, and a reader subtracts them
        own = self.sites.rows[self.name]
        own[:] = [row for row in own if row["x"] is None or not 20 < row["x"] < 40]
        self.sites.stream(self.name, drawn(chance, 80), 51)
        self.wh = self.sites.open(missing="bounds", **options)
        self.gone = folder / "elsewhere"

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
