"""History on disk: the runs table and the marks table of a projection, read and committed.

Whatever the rows of a projection are, its runs have one layout and one protocol.

A run is written as `run=<name>/<attempt>-<number>-<task>.parquet`, its marks as
`run=<name>/<attempt>.parquet` of the marks table, which is committed first. So whoever sees a
run in a snapshot finds its marks by name, and what a lost race leaves behind is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import retry_lost_races
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.tables import DataFile
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile, open_sealed
from tidemark.warehouse.runs.levels import Layout, Merge, Run
from tidemark.warehouse.runs.marks import (
    BY_ORDER,
    CONTENT,
    DIGESTS,
    ENDS,
    FileDigests,
    RunFile,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, Projection


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run whose files are written and not yet committed; the files are in order.

    `totals` are the rows of its steps by tick, `marks` the projection's row groups of the marks, by name.
    """

    run: Run
    attempt: str
    files: Sequence[MarkedFile]
    totals: TickCounts
    marks: Mapping[str, pa.Table]


def create_tables(store: Store, projection: Projection[Any], grace_us: int = 0) -> None:
    """The runs and the marks table of the projection, where they are not there; logs outlive the grace."""
    schema = projection.marks_schema.append(CONTENT)
    tables.create(store, projection.marks_table, schema, ["run"], grace_us=grace_us)
    tables.create(store, projection.runs_table, projection.runs_schema, ["run"], grace_us=grace_us)


def run_path(projection: Projection[Any], run: Run, attempt: str, number: int) -> str:
    """Where a run's data file goes, below the warehouse."""
    return f"{projection.runs_table}/run={run.name}/{attempt}-{number:05d}.parquet"


def attempt_name(path: str) -> str:
    """The attempt that wrote a file of the runs or the marks table."""
    return path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].split("-", maxsplit=1)[0]


def files_by_run(found: Sequence[DataFile]) -> dict[Run, list[DataFile]]:
    """The files of a snapshot of a runs table, by run."""
    runs: dict[Run, list[DataFile]] = {}
    for file in sorted(found, key=lambda file: file.path):
        runs.setdefault(Run.parse(file.partition["run"]), []).append(file)
    return runs


def read_layout(table: DeltaTable) -> Layout:
    """The layout that a snapshot of a runs table holds."""
    return Layout.of(files_by_run(tables.list_files(table)))


def read_marks(store: Store, projection: Projection[Any], run: Run, found: Sequence[DataFile]) -> Any:
    """The marks of a run of the snapshot; what is seldom asked for is read when it is."""
    path = f"{projection.marks_table}/run={run.name}/{attempt_name(found[0].path)}.parquet"
    filesystem = store.filesystem()

    def later(read: Callable[[SealedFile], Any]) -> Any:
        with open_sealed(filesystem, path, names=BY_ORDER) as file:
            if not file.is_sealed and CONTENT.name in file.metadata.schema.names:
                raise ValueError("it has no seal, and is of a version that seals its files")
            return read(file)

    def marks(file: SealedFile) -> Any:
        own: Any = projection.read_marks(run, file, later)
        digests = _read_digests(projection, file)
        return replace(own, files=tuple(replace(one, digests=digests.get(one.path)) for one in own.files))

    result: Any = later(marks)
    _check_files(run, found, result.files)
    return result


def _read_digests(projection: Projection[Any], file: SealedFile) -> dict[str, FileDigests]:
    """The digests of a run's files, by path; nothing for a run of an earlier version."""
    if DIGESTS not in file.names:
        return {}
    columns = [*(name for name in projection.runs_schema.names if name != "run"), ENDS]
    rows = file.read(DIGESTS, columns=["file", CONTENT.name])
    told = zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True)
    return {path: FileDigests.from_bytes(content, columns) for path, content in told}


def _check_files(run: Run, found: Sequence[DataFile], files: Sequence[RunFile]) -> None:
    """The table's snapshot and the marks name the same files."""
    named, marked = {file.path for file in found if file.rows}, {file.path for file in files}
    if named != marked:
        raise DamagedWarehouse(
            f"table and marks of {run.name} name other files: only the table {sorted(named - marked)}, "
            f"only the marks {sorted(marked - named)}. Restore the table's log."
        )


def commit_run(store: Store, projection: Projection[Any], new: NewRun) -> bool:
    """Adds the next step's run in one commit; False where somebody else has added it."""

    def attempt() -> bool:
        table = tables.open_table(store, projection.runs_table)
        layout = read_layout(table)
        if layout.last_step >= new.run.last:
            return False
        if layout.add_step() != new.run:
            raise DamagedWarehouse(
                f"step {new.run.first} cannot follow step {layout.last_step}: a step is missing."
            )
        tables.commit(table, _add_actions(new))
        return True

    return retry_lost_races(projection.runs_table, attempt)


def commit_merge(store: Store, projection: Projection[Any], merge: Merge, new: NewRun) -> bool:
    """Replaces the merge's inputs by its output in one commit; False where they are gone."""

    def attempt() -> bool:
        table = tables.open_table(store, projection.runs_table)
        runs = files_by_run(tables.list_files(table))
        if not Layout.of(runs).allows(merge):
            return False
        removed = [tables.remove_action(file) for run in merge.inputs for file in runs[run]]
        tables.commit(table, [*removed, *_add_actions(new)])
        return True

    return retry_lost_races(projection.runs_table, attempt)


def append_marks(store: Store, projection: Projection[Any], new: NewRun) -> None:
    """Adds the marks of a run that is about to be committed."""
    name = projection.marks_table
    path = f"run={new.run.name}/{new.attempt}.parquet"
    files = [file for file in new.files if file.rows]
    own = {
        "file": pa.array([path_in_table(file.path) for file in files], pa.string()),
        CONTENT.name: pa.array([file.digests.to_bytes() for file in files], CONTENT.type),
    }
    groups = {**new.marks, DIGESTS: pa.table(own)}
    schema = pa.schema([*next(iter(new.marks.values())).schema, CONTENT])
    action = tables.write_file(store, name, {n: _as(schema, part) for n, part in groups.items()}, path)
    retry_lost_races(name, lambda: tables.commit(tables.open_table(store, name), [action], blind=True))


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with all columns of the schema; those that they have not are NULL."""
    names = rows.column_names
    columns = [
        rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _add_actions(new: NewRun) -> list[Any]:
    return [
        tables.add_action(path_in_table(file.path), file.size, file.rows, file.stats, {"run": new.run.name})
        for file in new.files
    ]
