"""The ledger as readers see it: what is live of a measure, and of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import ECM, GK
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import LEDGER, Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.ledger_rows import KEYS, RANGE, intact, names_in, plain_rows, sketch_of
from tidemark.warehouse.ledger.ledger_table import only

_LIVE_KEYS = [*RANGE, "tick", "rows", "min_time", "max_time"]
_LIVE_KEYS += [f"keys.{field.name}" for field in KEYS if field.name != "sketch"]
LIVE = [*RANGE, "tick", "rows", "measures"]  # what a reader of a measure needs


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One tick of a range of live batches, seen from one measure; stored values = rows - nans - nulls."""

    source: str
    first_batch: int
    last_batch: int
    tick: int
    rows: int
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True, eq=False)
class LiveKeys:
    """One tick of a range of live batches, seen from the key.

    `rows` have a key, `nulls` have none. `names`, `known`, `slack` and `floor` are the listing, see
    keysummaries.py; `cells` are those of the sketch for the whole tick. `times` is the range of event
    times in microseconds, inclusive, None where there are none. The sketch itself is at `path`.
    """

    batches: BatchRange
    tick: int
    rows: int
    nulls: int
    times: tuple[int, int] | None
    names: Names
    known: NDArray[np.int64]
    slack: NDArray[np.int64]
    floor: int
    cells: NDArray[np.int64]
    path: str


def live_rows(rows: pa.Table, measure: str) -> list[LiveRow]:
    """Ledger rows as one measure sees them; rows of empty batches are left out."""
    found = []
    for row in rows.select(["source", "first_batch", "last_batch", "tick", "rows", "measures"]).to_pylist():
        if row["rows"]:
            batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
            found.append(_live_row(batches, row["tick"], row["rows"], row["measures"], measure))
    return found


def _live_row(
    batches: BatchRange, tick: int, rows: int, summaries: list[dict[str, Any]], measure: str
) -> LiveRow:
    mine = [one for one in summaries if one["measure"] == measure]
    if len(mine) != 1:
        raise DamagedWarehouse(
            f"the ledger row of {batches} has {len(mine)} summaries of {measure!r}, expected 1."
        )
    one = mine[0]
    sketch = sketch_of(one["sketch"], batches, tick, measure)
    if sketch.n != rows - one["nans"] - one["nulls"]:
        raise DamagedWarehouse(
            f"the summary of {measure!r} in {batches} holds {sketch.n} values of {rows} rows."
        )
    return LiveRow(batches.source, batches.first, batches.last, tick, rows, one["nans"], one["nulls"], sketch)


def live_keys(
    store: Store, found: Mapping[str, list[BatchRange]], wanted: Iterable[BatchRange]
) -> list[LiveKeys]:
    """What the ledger rows of these ranges say of the keys, as far as whole ticks are asked of."""
    ranges = set(wanted)
    result = []
    for path, held in found.items():
        here = ranges.intersection(held)
        for row in plain_rows(tables.read_file(store, LEDGER, path, _LIVE_KEYS)) if here else []:
            one = BatchRange(row["source"], row["first_batch"], row["last_batch"])
            if one in here and row["rows"] and row["keys"] is not None:
                result.append(_live_keys(row, one, path))
    return result


def _live_keys(row: Mapping[str, Any], batches: BatchRange, path: str) -> LiveKeys:
    keys = row["keys"]
    known, slack, cells = (np.array(keys[name], dtype=np.int64) for name in ("known", "slack", "cells"))
    return LiveKeys(
        batches=batches,
        tick=row["tick"],
        rows=row["rows"] - keys["nulls"],
        nulls=keys["nulls"],
        times=None if row["min_time"] is None else (row["min_time"], row["max_time"]),
        names=names_in(keys),
        known=known,
        slack=slack,
        floor=keys["floor"],
        cells=cells,
        path=path,
    )


def read_sketch(store: Store, live: LiveKeys) -> ECM:
    """The sketch of a row, for what cuts its tick."""
    rows = only(tables.read_file(store, LEDGER, live.path, [*RANGE, "tick", "keys.sketch"]), live.batches)
    (found,) = [row["keys"]["sketch"] for row in rows.to_pylist() if row["tick"] == live.tick]
    with intact("keys", live.batches, live.tick):
        return ECM.from_bytes(found)
