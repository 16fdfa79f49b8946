"""Ledger rows as readers need them: the parts about one measure, or about one key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches import ECM, GK
from tidemark.sketches.sampling import KeySample
from tidemark.warehouse.columns.keys import Names
from tidemark.warehouse.companions.cells import Cell
from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import KEYS, LEDGER
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.batch_summaries import TickSummary
from tidemark.warehouse.ledger.key_summaries import KeySummary
from tidemark.warehouse.ledger.ledger_rows import (
    COMPANIONS,
    KEYS_TYPE,
    RANGE_COLUMNS,
    cells_in,
    measure_summary,
    names_in,
    plain_rows,
    report_damaged_summary,
)
from tidemark.warehouse.ledger.ledger_table import read_rows, rows_of_ranges

_TICK_COLUMNS = [*RANGE_COLUMNS, "tick", "rows", "min_time", "max_time"]
MEASURE_COLUMNS = [*RANGE_COLUMNS, "tick", "rows", "measures"]  # what `live_rows` reads


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One tick of a range of live batches, seen from one measure.

    `sketch` has the rows - nans - nulls other values.
    """

    batches: BatchRange
    tick: int
    rows: int
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True, eq=False)
class LiveKeys:
    """One tick of a range of live batches, seen from the key.

    `rows` rows have a key, `nulls` rows have none. `times` is the range of event times in microseconds, both
    ends inclusive; None if no row has a time. `names`, `known`, `slack` and `floor` are the listing (see
    key_summaries.py). `cells` are the upper bounds of the sketch's cells for the whole tick. The sketch
    itself is in the file `path` of the ledger in the `store`, in the key's `field`; `read_sketch` reads it.
    `late` is the summary of rows that came before the key was declared: the ledger has none.
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
    store: Store
    path: str
    field: str
    late: KeySummary | None = None


def live_rows(
    rows: pa.Table, measure: str, *, is_late: bool = False
) -> tuple[list[LiveRow], dict[BatchRange, dict[int, int]]]:
    """Ledger rows, with `MEASURE_COLUMNS`, seen from one measure; rows of empty batches are left out.

    is_late   whether the measure was added to the warehouse later. For ranges with batches from before that,
              only the numbers of rows by tick are returned: they have no summary of the measure

    DamagedWarehouse unless each other row has exactly one summary of the measure, with the right number of
    values.
    """
    found: dict[BatchRange, list[LiveRow]] = {}
    rows_by_tick: dict[BatchRange, dict[int, int]] = {}
    unsummarised: set[BatchRange] = set()
    for row in rows.select(MEASURE_COLUMNS).to_pylist():
        if not row["rows"]:
            continue
        batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
        rows_by_tick.setdefault(batches, {})[row["tick"]] = row["rows"]
        matching = [summary for summary in row["measures"] if summary["measure"] == measure]
        if is_late and not matching:
            unsummarised.add(batches)
            continue
        tick, count = row["tick"], row["rows"]
        if len(matching) != 1:
            raise DamagedWarehouse(
                f"the ledger row of {batches.text}, tick {tick}, has {len(matching)} summaries of "
                f"{measure!r}, expected 1. Another tool has changed the ledger: put back its version before "
                "that."
            )
        one = measure_summary(matching[0], batches, tick, count)
        live = LiveRow(batches, tick, count, one.nans, one.nulls, one.sketch)
        found.setdefault(batches, []).append(live)
    summarised = [
        live for batches, of_range in found.items() if batches not in unsummarised for live in of_range
    ]
    return summarised, {batches: rows_by_tick[batches] for batches in unsummarised}


def live_keys(
    store: Store,
    files: Mapping[str, list[BatchRange]],
    wanted: Iterable[BatchRange],
    field: str,
) -> tuple[list[LiveKeys], dict[BatchRange, dict[int, int]]]:
    """The ledger rows of some ranges, seen from the key with this `KeyCounts.ledger_field`, without sketches.

    `files` are the ranges of each file of the ledger, by path. Files without wanted ranges are not read.
    Rows of empty batches, and rows without keys, are left out.

    For ranges with batches that came before the key was declared, only the numbers of rows by tick are
    returned: the ledger does not count the key there.
    """
    ranges = set(wanted)
    result: list[LiveKeys] = []
    rows_by_tick: dict[BatchRange, dict[int, int]] = {}
    uncounted: set[BatchRange] = set()
    for path, in_file in files.items():
        wanted_here = ranges.intersection(in_file)
        if not wanted_here:
            continue
        names = [item.name for item in KEYS_TYPE if item.name not in ("sketch", "sample")]
        columns = [*_TICK_COLUMNS, *(f"{KEYS}.{field}.{name}" for name in names)]
        for row in plain_rows(data_files.read_file(store, LEDGER, path, columns)):
            batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
            if batches not in wanted_here or not row["rows"]:
                continue
            rows_by_tick.setdefault(batches, {})[row["tick"]] = row["rows"]
            keys = stored_keys_in(row, field)
            if keys is not None:
                result.append(_live_keys(row, keys, batches, store, path, field))
            else:
                uncounted.add(batches)
    counted = [live for live in result if live.batches not in uncounted]
    return counted, {batches: rows_by_tick[batches] for batches in uncounted}


def summarised_keys(store: Store, summary: TickSummary, batches: BatchRange, field: str) -> LiveKeys:
    """The result of `live_keys` for this summary, made for rows without a summary in the ledger."""
    keys = summary.keys[field]
    return LiveKeys(
        batches=batches,
        tick=summary.tick,
        rows=keys.rows,
        nulls=keys.nulls,
        times=summary.times,
        names=keys.names,
        known=keys.known,
        slack=keys.slack,
        floor=keys.floor,
        cells=keys.sketch.bounds().cells.hi,
        store=store,
        path="",
        field=field,
        late=keys,
    )


@dataclass(frozen=True, slots=True)
class LiveCell:
    """The cell of a companion in one tick of a range of live batches; None if the ledger has none."""

    batches: BatchRange
    tick: int
    rows: int
    cell: Cell | None


def live_cells(
    store: Store, files: Mapping[str, Sequence[BatchRange]], wanted: Iterable[BatchRange], name: str
) -> list[LiveCell]:
    """The cells of a companion in the ledger rows of some ranges; rows of empty batches are left out.

    `files` as in `live_keys`. DamagedWarehouse if a cell cannot be read or is not that of its row.
    """
    found = []
    rows = read_rows(store, files, wanted, [*RANGE_COLUMNS, "tick", "rows", COMPANIONS])
    for row in rows.select([*RANGE_COLUMNS, "tick", "rows", COMPANIONS]).to_pylist():
        if row["rows"]:
            batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
            cell = cells_in(row, batches).get(name)
            found.append(LiveCell(batches, row["tick"], row["rows"], cell))
    return found


def stored_keys_in(row: Mapping[str, Any], field: str) -> Mapping[str, Any] | None:
    """The stored summary of a key in a row of the ledger; None if the row has none."""
    return cast("Mapping[str, Any] | None", (row.get(KEYS) or {}).get(field))


def _live_keys(
    row: Mapping[str, Any], keys: Mapping[str, Any], batches: BatchRange, store: Store, path: str, field: str
) -> LiveKeys:
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
        store=store,
        path=path,
        field=field,
    )


def read_sketch(live: LiveKeys) -> ECM:
    """Reads the sketch of a row, for a window that starts or ends inside the row's tick."""
    if live.late is not None:
        return live.late.sketch
    columns = [*RANGE_COLUMNS, "tick", f"{KEYS}.{live.field}.sketch"]
    rows = data_files.read_file(live.store, LEDGER, live.path, columns)
    in_tick = [row for row in rows_of_ranges(rows, {live.batches}).to_pylist() if row["tick"] == live.tick]
    (stored,) = [keys["sketch"] for row in in_tick if (keys := stored_keys_in(row, live.field)) is not None]
    with report_damaged_summary("keys", live.batches, live.tick):
        return ECM.from_bytes(stored)


def read_samples(live: Iterable[LiveKeys]) -> list[KeySample]:
    """The sample of the keys of each row. Reads each file once."""
    rows = list(live)
    found: dict[tuple[Store, str, BatchRange, int], KeySample] = {}
    for store, path, field in {(row.store, row.path, row.field) for row in rows if row.late is None}:
        stored = data_files.read_file(store, LEDGER, path, [*RANGE_COLUMNS, "tick", f"{KEYS}.{field}.sample"])
        for row in stored.to_pylist():
            keys = stored_keys_in(row, field)
            if keys is not None:
                batches = BatchRange(row["source"], row["first_batch"], row["last_batch"])
                with report_damaged_summary("keys", batches, row["tick"]):
                    found[store, path, batches, row["tick"]] = KeySample.from_bytes(keys["sample"])
    return [
        found[row.store, row.path, row.batches, row.tick] if row.late is None else row.late.sample
        for row in rows
    ]
