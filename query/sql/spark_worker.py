"""Answers in Spark's Python workers: warehouses stay open from one call to the next.

A worker is reused, so the second call finds marks and summaries in memory and only looks for newer data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark.query.reader import Reader
from tidemark.query.sql import sql_rows
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot

_opened: dict[Place, Reader] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """A warehouse: its address, and its identity, so that one made anew at the same place is another."""

    uri: str
    storage_options: tuple[tuple[str, str], ...]
    identity: str | None = None

    def open(self) -> Reader:
        """The warehouse, opened by the first call."""
        if self not in _opened:
            _opened[self] = self.opened_anew()
        return _opened[self]

    def opened_anew(self) -> Reader:
        """The warehouse as it is at the address now, whatever its identity."""
        return Reader(open_snapshot(self.uri, dict(self.storage_options) or None))


def told(place: tuple[Any, ...], what: str, *args: Any) -> Iterator[Any]:
    """What a table function yields; an error of ours is told by its message alone, without a traceback.

    Spark ends a worker that has failed, so the variable is set for nobody else.
    """
    try:
        yield from _TOLD[what](Place(*place), *args)
    except TidemarkError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _described(place: Place) -> Iterator[tuple[str]]:
    wh = place.opened_anew()
    _opened[replace(place, identity=wh.identity)] = wh
    options = wh.options
    facts = {"properties": options.properties(), "columns": dict(options.columns), "identity": wh.identity}
    yield (json.dumps(facts),)


def options_of(uri: str, described: str) -> tuple[Options, str]:
    """What `describe` told: the options of a warehouse, and its identity."""
    facts = json.loads(described)
    return Options.from_properties(uri, facts["properties"], facts["columns"]), facts["identity"]


def _rows(
    place: Place, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    return sql_rows.rows(place.open(), name, measure, args, named)


def _batches(place: Place) -> Iterator[tuple[Any, ...]]:
    """The visible ranges. Spark reads `events` by itself: not where it would be led out of the warehouse."""
    contents = place.open().contents()
    contents.event_paths("events")
    return contents.batches()


_TOLD: dict[str, Any] = {
    "describe": _described,
    "rows": _rows,
    "summary": lambda place: _rows(place, "summary", None, (), {}),
    "live": lambda place: place.open().contents().live_rows(),
    "batches": _batches,
    "steps": lambda place: place.open().contents().step_rows(),
    "runs": lambda place: place.open().contents().run_rows(),
}
