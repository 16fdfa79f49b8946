"""Whether functions that were registered are still those of the warehouse at its address."""

from __future__ import annotations

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import NotAWarehouse


class Registered:
    """A warehouse that was opened or registered, on a disk or in an object store.

    identity: see `Reader.identity`.
    """

    def __init__(self, store: Store, identity: str) -> None:
        self._store, self._identity = store, identity
        self._seen: tuple[int, int] | None = None  # the log's folder, when the identity was last compared

    def check(self) -> None:
        """Raises NotAWarehouse if the warehouse was deleted, or deleted and made again.

        An object store is not asked: each call would take a round of requests more.
        """
        try:
            seen = self._store.files.stamp(f"{EVENTS}/_delta_log")
        except FileNotFoundError:
            raise self._gone("deleted") from None
        if seen == self._seen:
            return
        if str(tables.open_table(self._store, EVENTS).metadata().id) != self._identity:
            raise self._gone("deleted and made again")
        self._seen = seen

    def _gone(self, what: str) -> NotAWarehouse:
        return NotAWarehouse(
            f"the warehouse at {self._store.uri} was {what} since it was opened or registered. "
            "Open or register it again."
        )
