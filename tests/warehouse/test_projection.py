"""The engine of runs serves any projection: it does what it does for the known ones for one of this file."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from numpy.typing import NDArray

from tests.soak import some
from tests.warehouse.at_once import let_go
from tests.warehouse.hereloader import Loader
from tidemark import warehouse
from tidemark.warehouse.columns.tick_counts import TickCounts, count_by_tick
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, encode_values, single_array
from tidemark.warehouse.integrity.digests import ColumnsByName, hash_sum
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.loads import run_builder
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.marks import (
    HEADER_GROUP,
    MARKS_GROUP,
    MarksFile,
    RunFile,
    files_from_marks,
    flatten,
    path_in_table,
)
from tidemark.warehouse.runs.projection import (
    MarkedFile,
    Projection,
    RunSpec,
    SortColumns,
    SortKey,
)
from tidemark.warehouse.runs.run_files import fixed_block_edges, read_blocks
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.sizes import Tuning

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 8
LISTS = ("ticks", "counts", "nans", "nulls")
TINY = Tuning(sort_rows=50, slice_rows=40, file_rows=(40, 80), fan=3)  # shares, slices and files


@dataclass(frozen=True, slots=True, eq=False)
class TickRows:
    """Row i has `ticks[i]` and `values[i]`."""

    ticks: NDArray[np.int64]
    values: NDArray[Any]

    def __len__(self) -> int:
        return len(self.ticks)

    @property
    def nbytes(self) -> int:
        return self.ticks.nbytes + self.values.nbytes

    def part(self, start: int, stop: int) -> TickRows:
        return TickRows(self.ticks[start:stop], self.values[start:stop])

    def sort_key(self, i: int) -> SortKey:
        return int(self.ticks[i]), self.values[i].item()


@dataclass(frozen=True, slots=True, eq=False)
class TickMarks:
    """The first row of each block."""

    run: Run
    files: tuple[RunFile, ...]
    rows: int
    positions: NDArray[np.int64]
    sort_keys: SortColumns
    totals: TickCounts


@dataclass(frozen=True, slots=True)
class ByTick(Projection[TickRows]):
    """A measure's values in the order of time."""

    measure: Measure

    name = title = "by tick"
    type = "double"
    runs_table, marks_table = "runs_by_tick", "marks_by_tick"
    order = ("tick", "value")
    merges_equal = False
    min_block_cost = 0
    texts = dictionaries = ()
    encoding = MappingProxyType[str, Any]({})

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.measure.name,)

    @property
    def runs_schema(self) -> pa.Schema:
        return pa.schema([("tick", pa.int64()), ("value", self.measure.arrow_type), ("run", pa.string())])

    @property
    def marks_schema(self) -> pa.Schema:
        places = [("position", pa.int64()), ("tick", pa.int64()), ("value", self.measure.arrow_type)]
        lists = [(name, pa.list_(pa.int64())) for name in LISTS]
        return pa.schema([("run", pa.string()), ("file", pa.string()), *places, *lists])

    def decode(self, events: pa.Table) -> tuple[TickRows, TickCounts]:
        ticks = as_numpy(events.column("_tick"))
        column = encode_values(self.measure, single_array(events.column(self.measure.name)))
        kept = ~(column.nan | column.null)
        return TickRows(ticks[kept], column.stored[kept]), count_by_tick(ticks, column.null, column.nan)

    def sorted_bytes(self, rows: int, ticks: int) -> int:  # noqa: ARG002
        return 16 * rows

    def sort(self, parts: Sequence[TickRows]) -> TickRows:
        ticks = np.concatenate([np.empty(0, np.int64), *(part.ticks for part in parts)])
        values = np.concatenate([np.empty(0, self.measure.dtype), *(part.values for part in parts)])
        order = np.lexsort((values, ticks))
        return TickRows(ticks[order], values[order])

    def merge(self, parts: Sequence[TickRows]) -> TickRows:
        return self.sort(parts)

    def blocks(
        self,
        pieces: Iterator[TickRows],
        run_spec: RunSpec | None,  # noqa: ARG002
    ) -> Iterator[tuple[TickRows, list[int]]]:
        return ((rows, fixed_block_edges(len(rows), BLOCK)) for rows in pieces if len(rows))

    def to_stored(self, rows: TickRows) -> pa.Table:
        return pa.table([pa.array(rows.ticks), pa.array(rows.values)], names=["tick", "value"])

    def from_stored(self, stored: ColumnsByName) -> list[TickRows]:
        return [TickRows(stored["tick"], stored["value"])]

    def collector(self, run_spec: RunSpec | None) -> Collector:  # noqa: ARG002
        return Collector()

    def marks_tables(self, files: Sequence[MarkedFile], totals: TickCounts) -> Mapping[str, pa.Table]:
        schema = pa.schema([field for field in self.marks_schema if field.name != "run"])
        header = {"position": -1, **{name: getattr(totals, name).tolist() for name in LISTS}}
        found = [schema.empty_table()]
        first = 0
        for file in files:
            columns = (file.positions + first, *file.sort_keys)
            rows = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
            path = path_in_table(file.path)
            marks = [{"file": path, "position": at, "tick": tick, "value": value} for at, tick, value in rows]
            found.append(pa.Table.from_pylist(marks, schema))
            first += file.rows
        return {HEADER_GROUP: pa.Table.from_pylist([header], schema), MARKS_GROUP: pa.concat_tables(found)}

    def read_marks(self, run: Run, file: SealedFile, source: MarksFile) -> TickMarks:  # noqa: ARG002
        header, marks = file.read(HEADER_GROUP), file.read(MARKS_GROUP)
        totals = TickCounts(*(flatten(header.column(name)) for name in LISTS))
        rows = int(totals.counts.sum())
        positions = as_numpy(marks.column("position"))
        files = files_from_marks(marks.column("file"), positions, rows)
        places = as_numpy(marks.column("tick")), as_numpy(marks.column("value"))
        return TickMarks(run, files, rows, positions, places, totals)

    def ascends(self, rows: TickRows) -> bool:
        places = [rows.sort_key(i) for i in range(len(rows))]
        return places == sorted(places)

    def checker(self, marks: TickMarks) -> Checker:
        return Checker(marks)

    def digest(self, rows: TickRows) -> int:
        return hash_sum(rows.values.view(np.uint64), rows.ticks)


class Collector:
    """A mark a block."""

    def __init__(self) -> None:
        self.rows = 0
        self.marks: list[tuple[int, int, float]] = []
        self.ticks: list[int] = []

    def add(self, rows: TickRows, blocks: NDArray[np.int64]) -> None:
        self.marks += [(self.rows + at, *rows.sort_key(at)) for at in blocks.tolist()]
        self.ticks += [int(rows.ticks[0]), int(rows.ticks[-1])]
        self.rows += len(rows)

    def finish(self, path: str, size: int) -> MarkedFile:
        found = list(zip(*self.marks, strict=True)) or [(), (), ()]
        positions, ticks = (np.array(column, dtype=np.int64) for column in found[:2])
        places = ticks, np.array(found[2], dtype=np.float64)
        stats: dict[str, Any] = {"nullCount": {"tick": 0, "value": 0}}
        if self.ticks:
            stats |= {"minValues": {"tick": self.ticks[0]}, "maxValues": {"tick": self.ticks[-1]}}
        return MarkedFile(path, self.rows, size, self.rows, positions, places, stats, None)


class Checker:
    """Every mark is the row where it stands."""

    def __init__(self, marks: TickMarks) -> None:
        self.marks, self.at = marks, 0

    def begin(self, file: RunFile) -> None:
        assert file.first == self.at

    def add(self, rows: TickRows) -> None:
        ticks, values = map(np.asarray, self.marks.sort_keys)
        at = self.marks.positions - self.at
        for i in np.flatnonzero((at >= 0) & (at < len(rows))):
            if (int(ticks[i]), values[i].item()) != rows.sort_key(int(at[i])):
                raise warehouse.DamagedWarehouse("a mark by tick is not the row where it stands")
        self.at += len(rows)

    def finish(self) -> None:
        assert self.at == self.marks.rows


def with_ticks(kind: type[ByTick], patch: pytest.MonkeyPatch) -> None:
    """Warehouses have the projection, too."""
    usual = Options.projections.fget  # type: ignore[attr-defined]  # it is a property

    def all_of(options: Options) -> tuple[Projection[Any], ...]:
        return (*usual(options), *(kind(one) for one in options.measures[:1]))

    patch.setattr(Options, "projections", property(all_of))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ticks(ByTick, monkeypatch)


@pytest.fixture
def loader(toy: None, tmp_path: Path) -> Loader:  # noqa: ARG001
    return Loader.create(tmp_path / "w", TINY)


def stored(uri: str) -> list[SortKey]:
    """All rows by tick that history stores; each run in order."""
    snapshot = warehouse.open_snapshot(uri)
    by_tick, disk = ByTick(snapshot.options.measures[0]), snapshot.store.filesystem()
    found: list[SortKey] = []
    for marks in snapshot.current().marks(by_tick):
        rows = [
            part.sort_key(i)
            for file in marks.files
            for part in read_blocks(disk, "runs_by_tick", file, by_tick)
            for i in range(len(part))
        ]
        assert rows == sorted(rows)
        found += rows
    return sorted(found)


def in_events(uri: str) -> list[SortKey]:
    """All rows of `events` that have a value."""
    rows = DeltaTable(f"{uri}/events").to_pyarrow_table()
    pairs = zip(rows.column("_tick").to_pylist(), rows.column("x").to_pylist(), strict=True)
    return sorted((tick, x) for tick, x in pairs if x is not None and x == x)  # noqa: PLR0124  NaN


def check(uri: str) -> None:
    """Nothing is live; history by tick is what `events` has; every check holds."""
    assert stored(uri) == in_events(uri)
    report = warehouse.verify(uri)
    assert report.ok, str(report)
    names = [one.name for one in report.checks]
    assert sum(name.startswith("by tick: ") for name in names) == 3


@pytest.mark.slow
def test_it_is_loaded_streamed_merged_and_maintained(loader: Loader) -> None:
    levels = set()
    for _ in range(4):
        loader.round()
        check(loader.uri)
        snapshot = warehouse.open_snapshot(loader.uri)
        levels |= {run.run.level for run in snapshot.current().marks(ByTick(snapshot.options.measures[0]))}
    assert len(levels) > 1
    assert snapshot.current().info()["steps"] == 8


def test_what_left_its_tables_is_swept(loader: Loader) -> None:
    for _ in range(4):
        loader.load()
    folders = [Path(loader.uri) / name for name in ("runs_by_tick", "marks_by_tick")]
    before = [len(list(folder.rglob("*.parquet"))) for folder in folders]
    loader.maintain()
    after = [len(list(folder.rglob("*.parquet"))) for folder in folders]
    assert all(left < had for left, had in zip(after, before, strict=True))
    check(loader.uri)


def test_a_warehouse_from_before_it_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Loader.create(tmp_path / "w")
    for _ in range(4):
        old.load()
    old.stream()
    with_ticks(ByTick, monkeypatch)
    old.tuning = TINY
    old.load_live()
    check(old.uri)


CHILD = """
import sys
from pathlib import Path
import pytest
from tests.warehouse.test_projection import ByTick, child, with_ticks
with pytest.MonkeyPatch.context() as patch:
    with_ticks(ByTick, patch)
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def child(uri: str, what: str, kill_at: int) -> None:
    """Loads the night of that number, or what is live; dies at the point of that number."""
    points = itertools.count(1)

    def progress(_: str) -> None:
        if next(points) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    print("ready", flush=True)
    sys.stdin.readline()
    if what == "live":
        Loader(uri, tuning=TINY).load_live(progress)
    else:
        Loader(uri, bulk=int(what), seed=100 + int(what), tuning=TINY).load(progress=progress)
    print("points", next(points) - 1)


def start(uri: str, what: str, kill_at: int = 0) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", CHILD, uri, what, str(kill_at)]
    return subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(*running: subprocess.Popen[str]) -> list[str]:
    """Lets all go at once; what each printed last."""
    let_go(running)
    return [one.communicate(timeout=300)[0].strip() for one in running]


@pytest.mark.slow
def test_a_load_that_is_killed_anywhere_is_mended_by_the_next(loader: Loader, tmp_path: Path) -> None:
    """The load merges; a driver dies at points from its first to its last."""
    for _ in range(2):
        loader.load()
    places = some(range(8), 4)
    copies = [shutil.copytree(loader.uri, tmp_path / f"copy-{n}") for n in range(len(places) + 1)]
    whole = start(str(copies[0]), "2")
    (said,) = finish(whole)
    points = int(said.removeprefix("points "))
    assert points > 25
    pairs = zip(places, copies[1:], strict=True)
    attacked = {uri: start(str(uri), "2", 1 + at * points // 8) for at, uri in pairs}
    assert finish(*attacked.values()) == [""] * len(places)
    assert {one.returncode for one in attacked.values()} == {-signal.SIGKILL}
    for uri in attacked:
        Loader(str(uri), bulk=2, seed=102, tuning=TINY).load()
        check(str(uri))
    assert len({tuple(stored(str(uri))) for uri in copies}) == 1


def test_loaders_that_race_count_every_row_once(loader: Loader) -> None:
    """Two of the same night, one of another, and one of what is live, at once."""
    loader.load()
    loader.stream()
    loader.stream()
    racing = [start(loader.uri, what) for what in ("1", "1", "2", "live")]
    finish(*racing)
    assert [one.returncode for one in racing] == [0, 0, 0, 0]
    loader.load_live()
    check(loader.uri)
    assert DeltaTable(f"{loader.uri}/events").to_pyarrow_table().num_rows == 5 * 60


class Forgets(ByTick):
    """A merge loses a row."""

    def merge(self, parts: Sequence[TickRows]) -> TickRows:
        rows = super().merge(parts)
        return rows.part(0, len(rows) - 1) if len(parts) > 1 else rows


class Swaps(ByTick):
    """A merge gives two rows each other's tick."""

    def merge(self, parts: Sequence[TickRows]) -> TickRows:
        rows = super().merge(parts)
        apart = np.flatnonzero(np.diff(rows.ticks))
        if len(apart):
            values = rows.values.copy()
            values[[apart[0], apart[0] + 1]] = values[[apart[0] + 1, apart[0]]]
            return super().merge([TickRows(rows.ticks, values)])
        return rows


def load_four(uri: Path) -> None:
    loader = Loader.create(uri, TINY)
    for _ in range(4):
        loader.load()


@pytest.mark.parametrize(
    ("kind", "said"), [(Forgets, "Nothing was committed"), (Swaps, "other rows than were read")]
)
def test_a_merge_that_loses_or_changes_rows_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[ByTick], said: str
) -> None:
    with_ticks(kind, monkeypatch)
    with pytest.raises(warehouse.DamagedWarehouse, match=said):
        load_four(tmp_path / "w")
    snapshot = warehouse.open_snapshot(tmp_path / "w")
    runs = [marks.run for marks in snapshot.current().marks(ByTick(snapshot.options.measures[0]))]
    assert runs == [Run(step, step, 0) for step in range(3)]


def test_rows_that_a_merge_changed_are_found_by_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a load that does not compare would commit them."""
    with_ticks(Swaps, monkeypatch)
    monkeypatch.setattr(run_builder, "_check_conserved", lambda *_: None)
    load_four(tmp_path / "w")
    broken = [one.name for one in warehouse.verify(tmp_path / "w").checks if not one.ok]
    assert "by tick: nothing is lost or counted twice" in broken
    assert all(name.startswith("by tick: ") for name in broken)
