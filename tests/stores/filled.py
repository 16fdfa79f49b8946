"""A warehouse in the store that tests fill by loads and a stream, and what it must hold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa

from tests.stores.gate import rounds
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.query.reading import block_reader
from tidemark.warehouse.delta import far_files

if TYPE_CHECKING:
    from tests.stores.conftest import Place

# So long that all requests of a round begin before the first ends, however slow the server is.
LATENCY = 0.3


class Access(TypedDict):
    """How the store is reached."""

    storage_options: dict[str, str]


class Filled:
    """A warehouse in the store, and the rows that were committed to it."""

    def __init__(self, place: Place, loads: int = 0, batches: int = 0, kappa: int = 30) -> None:
        self.place, self.how = place, Access(storage_options=place.options)
        self.committed: list[pa.Table] = []
        self.batches = 0
        warehouse.create(None, place.uri, ["ms"], **{**HOW, "kappa": kappa}, **self.how)
        for _ in range(loads):
            self.load()
        for _ in range(batches):
            self.append()

    def copy(self, place: Place) -> Filled:
        """One to be changed, where this one is kept for the next test."""
        self.place.server.copy(self.place.uri, place.uri)
        copied = copy.copy(self)
        copied.place, copied.committed = place, list(self.committed)
        return copied

    def load(self) -> None:
        """Loads a batch of its own, and with it all that was streamed."""
        number = len(self.committed)
        report = warehouse.load(None, self.place.uri, rows(number), f"night-{number}", **self.how)
        assert report.outcome == "loaded"
        self.committed.append(rows(number))

    def move(self) -> None:
        """Moves what was streamed into history."""
        warehouse.load(None, self.place.uri, **self.how)

    def append(self, batch: int | None = None) -> bool:
        """Streams a batch: the next one, or one of before again, where nothing was loaded between them."""
        given = rows(len(self.committed)) if batch is None else self.committed[batch]
        number = self.batches if batch is None else batch
        if batch is None:
            self.committed.append(given)
            self.batches += 1
        return stream.append(None, self.place.uri, given, source="web", batch=number, **self.how)

    def check(self) -> None:
        """AssertionError unless the warehouse has exactly what was committed."""
        check(query.open(self.place.uri, self.place.options), self.committed)
        assert warehouse.verify(self.place.uri, **self.how).ok

    def forget(self) -> None:
        """Takes what this process has read of the store out of memory."""
        far_files.far_files.cache_clear()
        block_reader._shared_footers._entries.clear()

    def open(self, **how: Any) -> query.Warehouse:
        """A reader that has nothing in memory."""
        self.forget()
        return query.open(self.place.uri, self.place.options, **how)

    def rounds_of(self, ask: Callable[[], object]) -> int:
        """The rounds of requests that something takes."""
        self.place.server.set(latency=LATENCY)
        try:
            ask()
            return rounds(self.place.server.requests())
        finally:
            self.place.server.set()
