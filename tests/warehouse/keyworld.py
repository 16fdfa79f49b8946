"""A warehouse with a key, loaded in this process, and the oracle beside it: a Counter of (key, tick).

Rows are appended to `events` by delta-rs and each step is planned by hand; the load, its tasks, commits and
files are the real ones. Ticks are days.
"""

from __future__ import annotations

import copy
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import types as T

from tidemark import warehouse
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, Window
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange, decode_rows
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.batch_summaries import TickSummarizer, by_tick
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import DEFAULT, Tuning
from tidemark.warehouse.snapshots.snapshot_reader import SnapshotReader
from tidemark.warehouse.snapshots.views import KeysView

DAY_US = 86_400_000_000
Row = tuple[Any, int | None]  # a key (None: NULL) and its tick (None: no time)
Event = tuple[Any, int | None]  # a key and its time in microseconds

# Spark's type and Arrow's of a key's column, by Delta's name.
TYPES: dict[str, tuple[T.DataType, pa.DataType]] = {
    "string": (T.StringType(), pa.string()),
    "binary": (T.BinaryType(), pa.binary()),
    "boolean": (T.BooleanType(), pa.bool_()),
    "byte": (T.ByteType(), pa.int8()),
    "short": (T.ShortType(), pa.int16()),
    "integer": (T.IntegerType(), pa.int32()),
    "long": (T.LongType(), pa.int64()),
    "float": (T.FloatType(), pa.float32()),
    "double": (T.DoubleType(), pa.float64()),
    "date": (T.DateType(), pa.date32()),
    "timestamp": (T.TimestampType(), pa.timestamp("us", tz="UTC")),
    "decimal(18,4)": (T.DecimalType(18, 4), pa.decimal128(18, 4)),
}


# Blocks of 4 rows, slices of two blocks, files of a slice, and sorts of 20 rows.
TINY = Tuning(sort_rows=20, slice_rows=8, file_rows=(8, 16), key_block_rows=4)


@dataclass
class KeyWorld:
    """Where it lies, its key's type, and all rows that were loaded, by step."""

    uri: Path
    type: str = "string"
    kappa: int = 2
    loaded: list[list[Row]] = field(default_factory=list)
    streamed: list[list[Event]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    tuning: Tuning = DEFAULT

    def __post_init__(self) -> None:
        schema = T.StructType(
            [
                T.StructField("at", T.TimestampType()),
                T.StructField("x", T.DoubleType()),
                T.StructField("k", TYPES[self.type][0]),
            ]
        )
        how: dict[str, Any] = {"time": "at", "eps": 0.1, "kappa": self.kappa, **self.options}
        warehouse.create(None, self.uri, "x", key="k", schema=schema, **how)
        self.store = Store.from_uri(self.uri, tuning=self.tuning)

    def copied(self, uri: Path) -> KeyWorld:
        """The same in a copy of the warehouse."""
        other = copy.copy(self)
        other.uri = shutil.copytree(self.uri, uri)
        other.store = Store.from_uri(uri, tuning=self.tuning)
        other.loaded, other.streamed = [*self.loaded], [*self.streamed]
        return other

    @property
    def key(self) -> Key:
        return Key("k", self.type)

    def append(self, rows: Sequence[Row], *, files: int = 1) -> None:
        """Rows in `events`, and their step's plan."""
        step = len(self.loaded)
        each = max(1, -(-len(rows) // files))
        for at in range(0, len(rows), each):
            write_deltalake(
                self.store.table("events"), self._table(rows[at : at + each], step), mode="append"
            )
        plan = StepPlan(step, ((BatchRange("load:b", step, step), len(rows)),))
        steps.commit_plan(self.store, Race(self.store, STEPS), plan)
        self.loaded.append(list(rows))

    def load(self, rows: Sequence[Row], *, files: int = 1) -> Any:
        """One more step in history."""
        self.append(rows, files=files)
        return warehouse.load(None, self.uri, tuning=self.tuning)

    def stream(self, events: Sequence[Event], *, shares: int = 1) -> None:
        """One more live batch of the source `s`, summarised by as many tasks as there are shares."""
        number, options = len(self.streamed), read_options(self.store)
        rows = [(key, None if at is None else at // DAY_US) for key, at in events]
        table = self._table(rows, number, "s", [at for _, at in events])
        write_deltalake(self.store.table("events"), table, mode="append")
        eps = ledger_table.level_eps(options.eps, 0)
        tasks = [TickSummarizer(options, eps) for _ in range(shares)]
        for piece, at in enumerate(range(0, len(events), 100)):  # in pieces, as rows come
            task = tasks[piece % shares]
            task.add(decode_rows(table.slice(at, 100).combine_chunks(), task.columns, options.keys))
            task._summarise()
        summaries = by_tick([one for task in tasks for one in task.finish()], eps)
        assert ledger_table.append_batch(self.store, options.eps, "s", number, summaries)
        self.streamed.append(list(events))

    def view(self) -> KeysView:
        """As a reader that comes now sees it."""
        return SnapshotReader(self.store).current().keys_view()

    def truth(self, window: Window = ALL_TIME) -> Counter[Any]:
        """The rows in the window of each key, as plain values; NaN by the word."""
        found: Counter[Any] = Counter()
        for (key, tick), count in self.pairs().items():
            if window == ALL_TIME or window.start <= tick < window.stop:
                found[key] += count
        return found

    def pairs(self, of: Sequence[int] | None = None) -> Counter[Any]:
        """The rows of each (key, tick) that has a key, of all steps or of those."""
        rows = [row for i, step in enumerate(self.loaded) if of is None or i in of for row in step]
        return Counter(
            (plain(key), NO_TICK if tick is None else tick) for key, tick in rows if key is not None
        )

    def _table(
        self, rows: Sequence[Row], step: int, source: str = "load:b", times: Sequence[int | None] = ()
    ) -> pa.Table:
        ticks = [tick for _, tick in rows]
        times = times or [None if tick is None else tick * DAY_US for tick in ticks]
        return pa.table(
            {
                "_source": pa.array([source] * len(rows), pa.string()),
                "_batch": pa.array([step] * len(rows), pa.int64()),
                "_tick": pa.array([NO_TICK if tick is None else tick for tick in ticks], pa.int64()),
                "at": pa.array(times, pa.timestamp("us", tz="UTC")),
                "x": pa.array([1.0] * len(rows), pa.float64()),
                "k": pa.array([key for key, _ in rows], TYPES[self.type][1]),
            }
        )


def plain(key: Any) -> Any:
    """What groups as one key, as one value: NaN is the word, the zeroes are one."""
    if isinstance(key, float):
        return "NaN" if math.isnan(key) else key + 0.0
    return key
