"""The rows: the same loads in one warehouse and in several, so that both have the same runs.

Load number r of a site has rows of its own part of the days; the loads of all sites are those of the one
warehouse. Each site has a live batch, which the one warehouse has, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.data import FIRST_DAY, Oracle, Rows
from tidemark import stream, warehouse

DAYS, PLACES = 360, 50
LIVE_SHARE = 0.01
_LIVE = 100_000  # the first number of live batches, beyond those of loads


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is made and asked.

    rows: of all sites together. runs: of each site, in the rows of the table.
    questions: of each kind. stored_rows: of each site in an object store.
    seconds: how long a server is asked by a number of clients. alerts: how many are fired.
    """

    rows: int
    sites: int = 8
    runs: tuple[int, ...] = (3, 25)
    questions: int = 100
    stored_rows: int = 200_000
    stored_questions: int = 15
    clients: tuple[int, ...] = (1, 8, 64)
    seconds: float = 8.0
    alerts: int = 20


QUICK = Sizes(9_000, 3, (2,), 3, 1_000, 1, (2,), 0.2, 2)


@dataclass(frozen=True, slots=True)
class Loads:
    """The loads of each site, and its live batch."""

    history: tuple[tuple[Rows, ...], ...]
    live: tuple[Rows, ...]

    @classmethod
    def of(cls, rows: int, sites: int, runs: int) -> Loads:
        """`rows` in all, in equal loads."""
        edges = np.linspace(FIRST_DAY, FIRST_DAY + DAYS, runs + 1).astype(int).tolist()
        each, live = rows // (sites * runs), max(10, int(rows * LIVE_SHARE) // sites)
        history = tuple(
            tuple(
                Rows("lognormal", site * runs + run, each, (edges[run], edges[run + 1]), FIRST_DAY)
                for run in range(runs)
            )
            for site in range(sites)
        )
        last = (edges[-1], edges[-1] + 1)
        of_sites = (Rows("lognormal", _LIVE + site, live, last, FIRST_DAY) for site in range(sites))
        return cls(history, tuple(of_sites))

    @property
    def all(self) -> list[Rows]:
        """The rows of all of them."""
        return [part for own in self.history for part in own] + list(self.live)

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(part.rows for part in self.all)

    def counts_of(self, key: int) -> int:
        """How many rows have the key."""
        return sum(int(np.count_nonzero(part.keys() == key)) for part in self.all)

    def of_place(self, place: int) -> Oracle:
        """The sorted rows of a place."""
        return Oracle(np.concatenate([part.values()[places(part) == place] for part in self.all]))


def places(part: Rows) -> NDArray[np.int64]:
    """The place of each row, from 0 to PLACES - 1."""
    return part.keys() % PLACES


def fill_sites(folder: Path, loads: Loads, **options: Any) -> dict[str, str]:
    """Makes a warehouse for each site; their addresses by name."""
    uris = {f"site_{site}": str(folder / f"site_{site}") for site in range(len(loads.live))}
    for uri, own, live in zip(uris.values(), loads.history, loads.live, strict=True):
        fill(uri, own, [live], **options)
    return uris


def fill_one(folder: Path, loads: Loads) -> str:
    """Makes one warehouse with the loads and live batches of all; its address."""
    uri = str(folder / "one")
    fill(uri, [part for own in loads.history for part in own], loads.live)
    return uri


def fill(
    uri: str,
    history: list[Rows] | tuple[Rows, ...],
    live: list[Rows] | tuple[Rows, ...],
    storage_options: dict[str, str] | None = None,
) -> None:
    """Makes a warehouse with a run for each of the loads."""
    warehouse.create(
        None,
        uri,
        "value",
        key="key",
        groups=["place"],
        time="time",
        kappa=max(2, len(history) + 1),
        schema=as_table(live[0]).schema,
        storage_options=storage_options,
    )
    for number, part in enumerate(history):
        warehouse.load(None, uri, as_table(part), f"load {number}", storage_options=storage_options)
    for batch, part in enumerate(live):
        stream.append(None, uri, as_table(part), source="live", batch=batch, storage_options=storage_options)


def as_table(part: Rows) -> pa.Table:
    """The rows as they are loaded."""
    times = pa.array(part.times()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"time": times, "value": part.values(), "key": part.keys(), "place": places(part)})
