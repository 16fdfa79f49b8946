"""History on disk: the runs table and the marks table of a measure, read and committed.

A run is written as `run=<name>/<attempt>-<number>-<task>.parquet`, its marks as
`run=<name>/<attempt>.parquet` of the marks table, which is committed first. So whoever sees a
run in a snapshot finds its marks by name, and what a lost race leaves behind is never seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from warehouse import tables
from warehouse.errors import DamagedWarehouse
from warehouse.layout import Layout, Merge, Run
from warehouse.marks import HEADER, RunMarks, Spans, TickCounts, from_arrow, schema, spans_from_arrow
from warehouse.measures import Measure
from warehouse.runfiles import WrittenFile
from warehouse.storage import Store, marks_table, runs_table
from warehouse.tables import DataFile, LostRace

_BASIC = ["file", "position", "value"]
_LISTS = ["ticks", "counts", "nans", "nulls"]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run whose files are written and not yet committed; the files are in order."""

    run: Run
    attempt: str
    files: tuple[WrittenFile, ...]
    totals: TickCounts


def create_tables(store: Store, measure: Measure) -> None:
    """The runs and the marks table of the measure, where they are not there yet."""
    runs = pa.schema([("value", measure.arrow_type), ("tick", pa.int64()), ("run", pa.string())])
    tables.create(store, marks_table(measure.name), schema(measure), ["run"])
    tables.create(store, runs_table(measure.name), runs, ["run"])


def run_path(measure: Measure, run: Run, attempt: str, number: int) -> str:
    """Where a run's data file goes, below the warehouse."""
    return f"{runs_table(measure.name)}/run={run.name}/{attempt}-{number:05d}.parquet"


def attempt_of(path: str) -> str:
    """The attempt that wrote a file of the runs or the marks table."""
    return path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].split("-", maxsplit=1)[0]


def runs_of(found: Sequence[DataFile]) -> dict[Run, list[DataFile]]:
    """The files of a snapshot of a runs table, by run."""
    runs: dict[Run, list[DataFile]] = {}
    for file in sorted(found, key=lambda file: file.path):
        runs.setdefault(Run.parse(file.partition["run"]), []).append(file)
    return runs


def layout_of(table: DeltaTable) -> Layout:
    """The layout that a snapshot of a runs table holds."""
    return Layout.of(runs_of(tables.files(table)))


def read_marks(store: Store, measure: Measure, run: Run, found: Sequence[DataFile]) -> RunMarks:
    """The marks of a run of the snapshot; its spans are read when they are asked for."""
    path = f"{marks_table(measure.name)}/run={run.name}/{attempt_of(found[0].path)}.parquet"
    filesystem = store.filesystem()

    def spans() -> Spans:
        with _reading(filesystem, path) as file:
            return spans_from_arrow(file.read(["position", "ticks", "counts"]))

    with _reading(filesystem, path) as file:
        marks = from_arrow(run, file.read(_BASIC), file.read_row_group(0, _LISTS), spans)
    named, marked = {file.path for file in found if file.rows}, {file.path for file in marks.files}
    if named != marked:
        raise DamagedWarehouse(
            f"table and marks of {run.name} name other files: only the table {sorted(named - marked)}, "
            f"only the marks {sorted(marked - named)}. Restore the table's log."
        )
    return marks


@contextmanager
def _reading(filesystem: fs.FileSystem, path: str) -> Iterator[pq.ParquetFile]:
    """The marks' file; whatever cannot be read of it is told with its name."""
    try:
        with pq.ParquetFile(path, filesystem=filesystem) as file:
            yield file
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DamagedWarehouse(
            f"cannot read the marks {path}: {error}. Restore the file, or the table."
        ) from error


def commit_run(store: Store, measure: Measure, new: NewRun) -> bool:
    """Adds the next step's run in one commit; False where somebody else has added it."""
    while True:
        table = tables.open_table(store, runs_table(measure.name))
        layout = layout_of(table)
        if layout.last_step >= new.run.last:
            return False
        if layout.add_step() != new.run:
            raise DamagedWarehouse(
                f"step {new.run.first} cannot follow step {layout.last_step}: a step is missing."
            )
        try:
            tables.commit(table, _add_actions(new))
            return True
        except LostRace:
            continue


def commit_merge(store: Store, measure: Measure, merge: Merge, new: NewRun) -> bool:
    """Replaces the merge's inputs by its output in one commit; False where they are gone."""
    while True:
        table = tables.open_table(store, runs_table(measure.name))
        runs = runs_of(tables.files(table))
        if not Layout.of(runs).allows(merge):
            return False
        removed = [tables.remove(file) for run in merge.inputs for file in runs[run]]
        try:
            tables.commit(table, [*removed, *_add_actions(new)])
            return True
        except LostRace:
            continue


def append_marks(store: Store, measure: Measure, new: NewRun) -> None:
    """Adds the marks of a run that is about to be committed."""
    name = marks_table(measure.name)
    rows = _marks_rows(measure, new)
    path = f"run={new.run.name}/{new.attempt}.parquet"
    # The header comes first, in a row group of its own: a reader takes its lists and no others.
    action = tables.write_file(store, name, rows, path, row_groups=[1, rows.num_rows - 1])
    tables.commit(tables.open_table(store, name), [action], blind=True)


def _marks_rows(measure: Measure, new: NewRun) -> pa.Table:
    """The header, then the marks of each file in order with positions counted from the run's first row."""
    parts = [_header(measure, new)]
    first = 0
    for file in new.files:
        opens = np.searchsorted(file.positions, file.span_starts)
        lengths = np.zeros(len(file.positions), dtype=np.int32)
        lengths[opens] = np.diff(file.span_offsets)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        nothing = pa.nulls(len(file.positions), pa.list_(pa.int64()))
        parts.append(
            pa.table(
                {
                    "file": pa.array([file.path.split("/", 2)[2]] * len(file.positions), pa.string()),
                    "position": pa.array(file.positions + first),
                    "value": pa.array(file.values, measure.arrow_type),
                    "ticks": pa.ListArray.from_arrays(offsets, pa.array(file.ticks)),
                    "counts": pa.ListArray.from_arrays(offsets, pa.array(file.counts)),
                    "nans": nothing,
                    "nulls": nothing,
                }
            )
        )
        first += file.rows
    return pa.concat_tables(parts)


def _header(measure: Measure, new: NewRun) -> pa.Table:
    lists = [pa.array([getattr(new.totals, name).tolist()], pa.list_(pa.int64())) for name in _LISTS]
    file = new.files[0].path.split("/", 2)[2]
    return pa.table(
        [pa.array([file]), pa.array([HEADER]), pa.nulls(1, measure.arrow_type), *lists], names=_BASIC + _LISTS
    )


def _add_actions(new: NewRun) -> list[Any]:
    return [
        tables.describe(file.path.split("/", 2)[2], file.size, file.rows, _stats(file), {"run": new.run.name})
        for file in new.files
    ]


def _stats(file: WrittenFile) -> dict[str, Any]:
    """Exact statistics; infinities have no JSON, so a side that is infinite goes without."""
    if not file.rows or file.tick_range is None:
        return {"nullCount": {"value": 0, "tick": 0}}
    low, high = file.values[0].item(), file.values[-1].item()
    least: dict[str, Any] = {"tick": file.tick_range[0]}
    most: dict[str, Any] = {"tick": file.tick_range[1]}
    if math.isfinite(low) and math.isfinite(high):
        least["value"], most["value"] = low, high
    return {"minValues": least, "maxValues": most, "nullCount": {"value": 0, "tick": 0}}
