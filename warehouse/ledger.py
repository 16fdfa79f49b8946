"""The ledger, S(R): summaries of every batch that streamed in, by batch range and tick.

A row holds, for the batches first..last of a source and one tick: how many rows, their time
range, and for each measure its NaN and NULL counts and the GK summary of its values. A batch
exists for readers and loads from the moment its rows exist; they are appended in one commit,
which a second append of the same batch finds and leaves alone. Wider ranges repeat what their
parts say with fewer rows; `live_rows` takes the fewest that cover what is not in history.

A batch without rows has one ledger row of zero rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sketches import GK, SketchError
from warehouse import tables
from warehouse.errors import DamagedWarehouse
from warehouse.events import Batches
from warehouse.storage import LEDGER, Store
from warehouse.ticks import from_epoch_us

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("first_batch", pa.int64()),
        ("last_batch", pa.int64()),
        ("tick", pa.int64()),
        ("rows", pa.int64()),
        ("min_time", _TIME),
        ("max_time", _TIME),
        (
            "measures",
            pa.list_(
                pa.struct(
                    [
                        ("measure", pa.string()),
                        ("nans", pa.int64()),
                        ("nulls", pa.int64()),
                        ("sketch", pa.binary()),
                    ]
                )
            ),
        ),
        ("keys", pa.binary()),
        ("arrived", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a ledger row says of one measure."""

    measure: str
    nans: int
    nulls: int
    sketch: GK


@dataclass(frozen=True, slots=True)
class TickSummary:
    """What a batch brought to one tick. The time range is in microseconds, inclusive; None: no times."""

    tick: int
    rows: int
    times: tuple[int, int] | None
    measures: tuple[Summary, ...]


LiveKey = tuple[Batches, int]  # a batch range and a tick


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


def to_arrow(batches: Batches, summaries: Iterable[TickSummary]) -> pa.Table:
    """The ledger rows of a batch range."""
    now = datetime.now(UTC)
    rows = [
        {
            "source": batches.source,
            "first_batch": batches.first,
            "last_batch": batches.last,
            "tick": one.tick,
            "rows": one.rows,
            "min_time": from_epoch_us(one.times[0]) if one.times else None,
            "max_time": from_epoch_us(one.times[1]) if one.times else None,
            "measures": [
                {"measure": m.measure, "nans": m.nans, "nulls": m.nulls, "sketch": m.sketch.to_bytes()}
                for m in one.measures
            ],
            "keys": None,
            "arrived": now,
        }
        for one in summaries
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def append_batch(store: Store, source: str, batch: int, summaries: Sequence[TickSummary]) -> bool:
    """Adds the batch's rows in one commit; False where the ledger has the batch already."""
    rows = to_arrow(Batches(source, batch, batch), summaries)
    action = tables.write_file(store, LEDGER, rows, f"{tables.new_name()}.parquet")
    return tables.commit_once(store, LEDGER, source, batch, [action])


def ranges(rows: pa.Table) -> list[Batches]:
    """The distinct batch ranges of ledger rows."""
    names = [rows.column(name).to_pylist() for name in ("source", "first_batch", "last_batch")]
    return sorted({Batches(*one) for one in zip(*names, strict=True)})


def live_ranges(known: Iterable[Batches], covered: Iterable[Batches]) -> list[Batches]:
    """The fewest ranges that hold every batch which no covered range holds.

    Ranges nest (a wide one repeats narrow ones), so the widest at each place, from left to
    right, is the fewest. A range that is partly covered is left to its parts.
    """
    gone = list(covered)
    chosen: list[Batches] = []
    for one in sorted(known, key=lambda r: (r.source, r.first, -r.last)):
        loaded = any(c.source == one.source and c.first <= one.last and one.first <= c.last for c in gone)
        repeated = chosen and chosen[-1].source == one.source and one.first <= chosen[-1].last
        if not loaded and not repeated:
            chosen.append(one)
    return chosen


def live_rows(
    rows: pa.Table, live: Iterable[Batches], measure: str, known: Mapping[LiveKey, LiveRow]
) -> dict[LiveKey, LiveRow]:
    """The ledger rows of the live ranges as one measure sees them; those `known` are not read again."""
    wanted = set(live)
    names = rows.select(["source", "first_batch", "last_batch", "tick", "rows"]).to_pylist()
    found: dict[LiveKey, LiveRow] = {}
    for i, row in enumerate(names):
        key = (Batches(row["source"], row["first_batch"], row["last_batch"]), row["tick"])
        if key[0] in wanted and row["rows"]:
            found[key] = known.get(key) or _live_row(
                key, row["rows"], rows.column("measures")[i].as_py(), measure
            )
    return found


def _live_row(key: LiveKey, rows: int, summaries: list[dict[str, Any]], measure: str) -> LiveRow:
    batches, tick = key
    mine = [one for one in summaries if one["measure"] == measure]
    if len(mine) != 1:
        raise DamagedWarehouse(
            f"the ledger row of {batches} has {len(mine)} summaries of {measure!r}, expected 1."
        )
    one = mine[0]
    try:
        sketch = GK.from_bytes(one["sketch"])
    except SketchError as error:
        raise DamagedWarehouse(
            f"the ledger's summary of {measure!r} in {batches}, tick {tick}, is damaged: {error}. "
            "Restore the ledger's file, or load the batch from a copy."
        ) from error
    if sketch.n != rows - one["nans"] - one["nulls"]:
        raise DamagedWarehouse(
            f"the summary of {measure!r} in {batches} holds {sketch.n} values of {rows} rows."
        )
    return LiveRow(batches.source, batches.first, batches.last, tick, rows, one["nans"], one["nulls"], sketch)
