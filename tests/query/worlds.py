"""Small warehouses made by hand, with every row kept in plain lists beside them: the oracle.

A world is what hypothesis draws: runs and live batches of (value, tick) rows, the options, and how finely
runs are marked, cut into files, row groups and spans. `open_world` writes the run files and opens a
`Warehouse` on a snapshot that is made of values.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from tests.warehouse.disk import digests_of
from tidemark.query.asking.session import Session
from tidemark.query.quantiles.rank_search import Source
from tidemark.query.reading.costs import Rates
from tidemark.query.warehouse import Warehouse
from tidemark.sketches import GK
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ledger.live_summaries import LiveRow
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.projections.value_marks import ValueMarks
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import MarksFile, RunFile
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.views import View

ROOT = "runs/x"
Row = tuple[Any, int]  # value (None: NULL) and tick
_numbers = itertools.count()


@dataclass(frozen=True)
class World:
    """All rows of a warehouse and how its runs are laid out. Ticks are step numbers."""

    runs: tuple[tuple[Row, ...], ...]
    live: tuple[tuple[Row, ...], ...] = ()
    type: str = "double"
    eps: float = 0.1
    grain: int = 16
    span: int = 2  # grains a span
    group_rows: int = 8
    file_rows: int = 50
    rows_a_run: int = 2**16
    rows_a_round: int = 2**24
    live_fits: bool = False

    def rows(self, window: tuple[int, int] | None, *, live: bool | None = None) -> list[Any]:
        """The values of the rows in the window, NULLs too."""
        parts = self.runs + self.live if live is None else self.live if live else self.runs
        return [v for part in parts for v, tick in part if window is None or window[0] <= tick < window[1]]

    def promised(self, mode: str, rows: int, live: int) -> Fraction:
        """The greatest error of an answer over that many rows, of which `live` are live."""
        inexact = {"quick": rows, "accurate": 0 if self.live_fits else live, "exact": 0}
        return Fraction(str(self.eps)) * inexact[mode]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


@dataclass(frozen=True)
class Oracle:
    """The truth about a window: its numbers, sorted, and how many NaN and NULL there are."""

    numbers: list[Any]
    nans: int
    nulls: int

    @classmethod
    def of(cls, rows: list[Any]) -> Oracle:
        numbers = sorted(v for v in rows if v is not None and not is_nan(v))
        return cls(numbers, sum(map(is_nan, rows)), sum(v is None for v in rows))

    @property
    def n(self) -> int:
        return len(self.numbers) + self.nans

    def rank(self, phi: Any) -> int:
        return max(1, math.ceil(Fraction(str(phi)) * self.n))

    def quantile(self, phi: Any) -> Any:
        r = self.rank(phi)
        return self.numbers[r - 1] if r <= len(self.numbers) else math.nan

    def le(self, x: Any) -> int:
        return sum(v <= x for v in self.numbers)

    def lt(self, x: Any) -> int:
        return sum(v < x for v in self.numbers)


def check_quantile(world: World, answer: Any, phi: Any, mode: str, window: tuple[int, int] | None) -> None:
    """Everything that an answer says is true, and the promise is kept."""
    truth = Oracle.of(world.rows(window))
    live = Oracle.of(world.rows(window, live=True))
    assert (answer.n, answer.m) == (truth.n - live.n, live.n)
    assert (answer.nans, answer.nulls, answer.N) == (truth.nans, truth.nulls, truth.n)
    assert answer.mode == mode
    exact = truth.quantile(phi)
    if is_nan(exact):
        assert is_nan(answer.value)
        assert (answer.rank_lo, answer.rank_hi, answer.error_bound) == (truth.n, truth.n, 0)
        return
    r, le, lt = truth.rank(phi), truth.le(answer.value), truth.lt(answer.value)
    assert max(0, r - le, lt + 1 - r) <= answer.error_bound
    assert answer.rank_lo <= le <= answer.rank_hi
    assert answer.low <= exact <= answer.high
    assert answer.error_bound <= world.promised(mode, truth.n, live.n)
    if answer.error_bound == 0:
        assert answer.value == exact


class FakeSnapshot:
    """A snapshot made of values; `refresh` moves to the next view if there is one."""

    def __init__(self, folder: Path, options: Options, views: list[View]) -> None:
        self.store, self.options, self.views = Store.from_uri(folder), options, views
        self.sites = (self,)

    def refresh_events(self) -> bool:
        return False

    def refresh_options(self, **_: Any) -> bool:
        return False

    def refresh(self, *_: Any, **__: Any) -> bool:
        return False

    def newest(self, *_: Any, **__: Any) -> FakeSnapshot:
        self.refresh()
        return self

    def pinned(self) -> FakeSnapshot:
        return self

    def view(self, measure: str | None) -> View:
        self.options.measure(measure)
        return self.views[0]

    def contents(self) -> Any:
        return SimpleNamespace(step_rows=list, live=(), plans=lambda *_: [])

    def info(self) -> dict[str, Any]:
        return {"steps": len(self.views[0].runs), "measures": {"x": {"type": "double"}}}


class HandMade(Warehouse):
    """A warehouse whose live rows come from the world."""

    def __init__(self, snapshot: FakeSnapshot, world: World) -> None:
        super().__init__(cast("Any", snapshot))
        self.snapshot, self.world = snapshot, world
        self._session: HandMadeSession = HandMadeSession(cast("Any", snapshot), 2**28)
        self._session.world = world


class HandMadeSession(Session):
    """A session whose live rows come from the world; each window and rank is answered alone."""

    world: World

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.many_windows = cast("Any", SimpleNamespace(cost=lambda *_: None))
        self.costs.rates = Rates(statement=1e15)  # there are no events to scan

    @property
    def source(self) -> Source:
        live = SimpleNamespace(values=self._live_chunks, fits=lambda _: self.world.live_fits)
        return Source(
            self.blocks,
            cast("Any", live),
            self.snapshot,
            rows_a_run=self.world.rows_a_run,
            rows_a_round=self.world.rows_a_round,
        )

    def _live_chunks(self, _: FakeSnapshot, view: View, window: Window) -> Iterator[NDArray[Any]]:
        for batch in self.world.live:
            rows = [row for row in batch if window.holds(np.array([row[1]]))[0]]
            yield np.sort(_numbers_of(rows, view.measure.dtype)[0])


def open_world(folder: Path, world: World) -> HandMade:
    """Writes the world's runs below a new folder and opens it."""
    folder = folder / f"world-{next(_numbers)}"
    measure = Measure("x", world.type)
    options = Options(("x",), None, None, world.eps, 10, 0, columns=(("x", world.type),))
    runs = tuple(write_run(folder, world, at, rows) for at, rows in enumerate(world.runs))
    live = tuple(row for at, rows in enumerate(world.live) for row in ledger_rows(world, at, rows))
    counts = {(row.batches, row.tick): row.rows for row in live}
    versions = {"runs": 1, "steps": 1, "ledger": 1}
    view = View(SortedValues(measure), versions, runs, (), counts, live)
    return HandMade(FakeSnapshot(folder, options, [view]), world)


def ledger_rows(world: World, batch: int, rows: tuple[Row, ...]) -> list[LiveRow]:
    dtype = Measure("x", world.type).dtype
    found = []
    for tick in sorted({tick for _, tick in rows}):
        mine = [row for row in rows if row[1] == tick]
        sketch = GK(world.eps / 4, dtype)
        sketch.update(_numbers_of(mine, dtype)[0])
        nans, nulls = sum(is_nan(v) for v, _ in mine), sum(v is None for v, _ in mine)
        found.append(LiveRow(BatchRange("s", batch, batch), tick, len(mine), nans, nulls, sketch))
    return found


def _numbers_of(rows: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    kept = [(v, tick) for v, tick in rows if v is not None and not is_nan(v)]
    values = np.array([v for v, _ in kept], dtype=dtype)
    return values + dtype.type(0), np.array([tick for _, tick in kept], dtype=np.int64)


def write_run(folder: Path, world: World, at: int, rows: tuple[Row, ...]) -> ValueMarks:
    """One run: its files on disk, its marks as a value."""
    measure = Measure("x", world.type)
    values, ticks = _numbers_of(rows, measure.dtype)
    order = np.argsort(values, kind="stable")
    values, ticks = values[order], ticks[order]
    run = Run(at, at, 0)
    grain = max(1, min(world.grain, int(world.eps / 2 * len(values))))
    files: list[RunFile] = []
    positions: list[int] = []
    starts: list[int] = []
    for number, first in enumerate(range(0, len(values), world.file_rows)):
        part = slice(first, min(first + world.file_rows, len(values)))
        path = f"run={run.name}/{number}.parquet"
        target = folder / ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"value": pa.array(values[part], measure.arrow_type), "tick": ticks[part]})
        pq.write_table(table, target, row_group_size=world.group_rows)
        groups = range(0, part.stop - first, world.group_rows)
        blocks = [table.slice(group, world.group_rows) for group in groups]
        digests, store = digests_of(pq.read_metadata(target), blocks), Store.from_uri(folder)
        files.append(RunFile(path, first, part.stop - first, digests, store=store))
        positions += [*range(first, part.stop, grain), part.stop - 1]
        starts += range(first, part.stop, grain * world.span)
    marked = np.unique(np.array(positions, dtype=np.int64))
    totals = _totals(rows)
    no_file = MarksFile(fs.LocalFileSystem(), "none")
    spans = _spans(starts, ticks)
    return HandMarks(run, tuple(files), len(values), marked, (values[marked],), totals, no_file, made=spans)


@dataclass(frozen=True)
class HandMarks(ValueMarks):
    """Marks whose spans are in memory."""

    made: Spans = field(kw_only=True)

    def spans(self) -> Spans:
        return self.made


def _totals(rows: tuple[Row, ...]) -> TickCounts:
    ticks = sorted({tick for _, tick in rows})
    nulls = Counter(tick for v, tick in rows if v is None)
    nans = Counter(tick for v, tick in rows if is_nan(v))
    every = Counter(tick for _, tick in rows)
    columns = (
        [every[t] - nans[t] - nulls[t] for t in ticks],
        [nans[t] for t in ticks],
        [nulls[t] for t in ticks],
    )
    return TickCounts(np.array(ticks, dtype=np.int64), *(np.array(c, dtype=np.int64) for c in columns))


def _spans(starts: list[int], ticks: NDArray[np.int64]) -> Spans:
    parts = np.split(ticks, starts[1:]) if starts else []
    names = np.unique(ticks)
    counts = np.array([[int((part == name).sum()) for name in names] for part in parts], np.uint16)
    return Spans(np.array(starts, dtype=np.int64), names, counts.reshape(len(starts), len(names)))


def check_rank(world: World, answer: Any, point: Any, mode: str, window: tuple[int, int] | None) -> None:
    """The bounds of a rank hold, and the promise is kept."""
    truth = Oracle.of(world.rows(window))
    m = Oracle.of(world.rows(window, live=True)).n
    assert answer.rank_lo <= truth.le(point) <= answer.rank_hi
    assert answer.rank_lo <= answer.rank <= answer.rank_hi
    assert answer.error_bound <= world.promised(mode, truth.n, m)
    assert (answer.N, answer.m) == (truth.n, m)


def check_histogram(world: World, histogram: Any, window: tuple[int, int] | None) -> None:
    """Each bin's bounds hold for the edges that it shows; only the last bin has its right edge."""
    numbers = Oracle.of(world.rows(window)).numbers
    for i, one in enumerate(histogram):
        last = i == len(histogram) - 1
        true = sum(one.left <= v < one.right or (last and v == one.right) for v in numbers)
        assert one.lo <= true <= one.hi
        assert one.lo <= one.count <= one.hi
        if histogram.mode == "exact" or (histogram.m == 0 and histogram.mode == "accurate"):
            assert one.count == true
