"""Run tables: creates, reads and commits the runs table and the marks table of a projection.

The data files of a run are `run=<name>/<attempt>-<number>-<task>.parquet` in the runs table. <task> is
random, because Spark may execute a task twice at the same time. The marks of the run are the file
`run=<name>/<attempt>.parquet` in the marks table, which is committed first. So the marks of every run in a
snapshot exist, and their path follows from the path of a data file. A writer that loses a commit race leaves
files that no snapshot of the runs table lists; readers never open them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from tidemark.warehouse.columns.arrow_types import with_columns_of
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.races import Race, add_files, replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import PROPERTY_PREFIX, is_index_runs_table
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.integrity.sealed_files import SealedFile
from tidemark.warehouse.runs.levels import Layout, Run
from tidemark.warehouse.runs.marks import (
    CONTENT_FIELD,
    DIGESTS_GROUP,
    FOOTERS_GROUP,
    STATISTICS_COLUMN,
    FileDigests,
    MarksFile,
    RunFile,
    path_in_table,
)
from tidemark.warehouse.runs.projection import MarkedFile, Projection

# The format of runs and their marks; it is stored as a property of the runs table. Tables with another format
# are not read: `repair` makes them again from `events`.
FORMAT = 1
_FORMAT_PROPERTY = f"{PROPERTY_PREFIX}format"
# The first indexes, of the same format, had rows of a group: group_1 ..., value, tick.
_INDEX_COLUMNS = {"file", "row"}


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run whose files are written and not yet committed; the files are in order.

    `totals` are the rows of its steps by tick. `marks` are the projection's row groups of the marks, by name.
    """

    run: Run
    attempt: str
    files: Sequence[MarkedFile]
    totals: TickCounts
    marks: Mapping[str, pa.Table]


def create_tables(store: Store, projection: Projection[Any], grace_us: int = 0) -> None:
    """Creates the projection's runs table and marks table if they do not exist.

    `grace_us` is the retention of old files in microseconds; the tables' logs are kept longer.
    """
    schema = projection.marks_schema.append(CONTENT_FIELD)
    tables.create(store, projection.marks_table, schema, ["run"], grace_us=grace_us)
    properties = {_FORMAT_PROPERTY: str(FORMAT)}
    tables.create(
        store, projection.runs_table, projection.runs_schema, ["run"], properties, grace_us=grace_us
    )


def written_files(projection: Projection[Any], new: NewRun, *, with_marks: bool) -> list[str]:
    """The files of a run, and with `with_marks` those of its marks, relative to the warehouse."""
    marks = [f"{projection.marks_table}/{_marks_in_table(new)}"] if with_marks else []
    return [*(file.path for file in new.files), *marks]


def _marks_in_table(new: NewRun) -> str:
    """The path of the run's marks relative to their table."""
    return f"run={new.run.name}/{new.attempt}.parquet"


def run_path(projection: Projection[Any], run: Run, attempt: str, number: int) -> str:
    """The path of a run's data file relative to the warehouse."""
    return f"{projection.runs_table}/run={run.name}/{attempt}-{number:05d}.parquet"


def attempt_name(path: str) -> str:
    """The name of the attempt that wrote a file of the runs table or the marks table."""
    return path.rsplit("/", 1)[-1].split(".", maxsplit=1)[0].split("-", maxsplit=1)[0]


def new_attempt(net_of: int = -1) -> str:
    """A unique name for an attempt to write a run without the rows of the removals 0 to `net_of`."""
    return data_files.unique_name() + (f"r{net_of}" if net_of >= 0 else "")


def net_of(path: str) -> int:
    """The number of the newest removal whose rows the run of this file leaves out; -1 if there is none."""
    _, _, number = attempt_name(path).partition("r")  # the unique name has hexadecimal digits alone
    return int(number) if number else -1


def nets_of(runs: Mapping[Run, Sequence[DataFile]]) -> dict[Run, int]:
    """For each run the newest removal whose rows its files do not have; `net_of` of its path."""
    return {run: net_of(files[0].path) for run, files in runs.items()}


def other_log(table: DeltaTable) -> str | None:
    """Why the log, or its checkpoint, cannot be that of a table of runs or marks; None if it can be."""
    columns = table.metadata().partition_columns
    if columns == ["run"]:
        return None
    by = ", ".join(columns) or "nothing"
    return f"its log is that of another table, partitioned by {by}, expected run"


def other_format(table: DeltaTable) -> str | None:
    """What is wrong with the format of a runs table and its marks; None if this version has that format."""
    if (reason := other_log(table)) is not None:
        return reason
    found = table.metadata().configuration.get(_FORMAT_PROPERTY, "0")
    if found != str(FORMAT):
        return f"it has the format {found}, this version reads {FORMAT}"
    if not is_index_runs_table(table.table_uri):
        return None
    names = [field.name for field in table.schema().fields]
    if {*names} >= _INDEX_COLUMNS:
        return None
    return f"it has the columns {', '.join(names)}, this version reads indexes with file and row"


def runs_of(table: DeltaTable | None, files: Sequence[DataFile] | None = None) -> dict[Run, list[DataFile]]:
    """The files of each run in a snapshot of a runs table, sorted by path; empty if `table` is None.

    `files` are the files of the snapshot; if None, they are listed from `table`. DamagedWarehouse if the
    table has another format.
    """
    runs: dict[Run, list[DataFile]] = {}
    if table is None:
        return runs
    if (reason := other_format(table)) is not None:
        raise DamagedWarehouse(
            f"the runs {table.table_uri} cannot be read: {reason}. Run `tidemark repair` with this version, "
            "which makes them again from the table events."
        )
    for file in sorted(data_files.list_files(table) if files is None else files, key=attrgetter("path")):
        runs.setdefault(Run.parse(file.partition["run"]), []).append(file)
    return runs


def read_layout(table: DeltaTable) -> Layout:
    """The layout of a snapshot of a runs table; DamagedWarehouse as `runs_of`."""
    return Layout.of(runs_of(table))


def marks_path(projection: Projection[Any], run: Run, files: Sequence[DataFile]) -> str:
    """The path of a run's marks, relative to the warehouse; `files` as in `read_marks`."""
    return f"{projection.marks_table}/run={run.name}/{attempt_name(files[0].path)}.parquet"


def read_marks(store: Store, projection: Projection[Any], run: Run, files: Sequence[DataFile]) -> Any:
    """Reads the marks of a run; `files` are its files in the snapshot of the runs table.

    Large row groups are read when they are first used. Raises DamagedWarehouse if the marks and the snapshot
    list different files.
    """
    source = MarksFile(store.filesystem(), marks_path(projection, run, files))
    with source.open() as file:
        marks: Any = projection.read_marks(run, file, source)
        _check_same_files(run, files, marks.files)
        names = [*(name for name in projection.runs_schema.names if name != "run"), STATISTICS_COLUMN]
        contents, sizes = _contents_by_file(file, DIGESTS_GROUP), {file.path: file.size for file in files}
        footers = _contents_by_file(file, FOOTERS_GROUP) if store.files.takes_rounds else {}
        completed = (
            replace(
                one,
                digests=FileDigests.from_bytes(contents[one.path], names),
                size=sizes.get(one.path, 0),
                footer=footers.get(one.path),
                store=store,
                root=projection.runs_table,
            )
            for one in marks.files
        )
        return replace(marks, files=tuple(completed))


def _contents_by_file(file: SealedFile, group: str) -> dict[str, bytes]:
    """What a row group of the marks stores about each file of the run, by path."""
    rows = file.read(group, columns=["file", CONTENT_FIELD.name])
    return dict(zip(*(rows.column(name).to_pylist() for name in ("file", CONTENT_FIELD.name)), strict=True))


def _check_same_files(run: Run, in_table: Sequence[DataFile], in_marks: Sequence[RunFile]) -> None:
    listed, marked = {file.path for file in in_table if file.rows}, {file.path for file in in_marks}
    if listed != marked:
        raise DamagedWarehouse(
            f"table and marks of {run.name} list different files: only the table {sorted(listed - marked)}, "
            f"only the marks {sorted(marked - listed)}"
        )


def replace_run(store: Store, projection: Projection[Any], old: NewRun, new: NewRun) -> None:
    """Replaces the files of `old` by those of `new`, another attempt to write the run, if the table has them.

    The marks of `new` must be appended before.
    """
    replace_files(
        store, projection.runs_table, {path_in_table(file.path) for file in old.files}, add_actions(new)
    )
    replace_files(store, projection.marks_table, {_marks_in_table(old)})


def replace_if_same(
    store: Store,
    projection: Projection[Any],
    olds: Mapping[Run, Sequence[DataFile]],
    news: Sequence[NewRun],
) -> bool:
    """Replaces `olds` by `news` in one commit, if the table still lists exactly the files that were read.

    olds   the files that were read, by run
    news   the runs in their place; they may have the names of old ones. Their marks must be appended before

    False, and nothing is changed, if one of the runs has gone or has other files, which may have other rows.
    """
    race = Race(store, projection.runs_table)
    while True:
        runs = runs_of(race.table)
        if not all(_are_same(runs.get(run, ()), files) for run, files in olds.items()):
            return False
        removed = [data_files.remove_action(file) for run in olds for file in runs[run]]
        if race.commit([*removed, *chain.from_iterable(map(add_actions, news))]):
            return True


def replace_runs(
    store: Store,
    projection: Projection[Any],
    gone: Mapping[Run, Sequence[DataFile]],
    new: NewRun | None = None,
) -> None:
    """Removes runs, and adds one in their place, in one commit. The layout may be invalid before and after.

    gone   the runs to remove, each with the files that were read

    Runs of `gone` that the table no longer has are ignored. Nothing is changed if a run of `gone` has other
    files now, or if a run that is not in `gone` has steps of the new one: another process was faster.
    """
    race = Race(store, projection.runs_table)
    while True:
        runs = runs_of(race.table)
        others = [run for run in runs if run not in gone]
        if new and any(run.first <= new.run.last and new.run.first <= run.last for run in others):
            return
        left = {run: runs[run] for run in gone if run in runs}
        if not all(_are_same(files, gone[run]) for run, files in left.items()):
            return
        removed = [data_files.remove_action(file) for files in left.values() for file in files]
        if race.commit([*removed, *(add_actions(new) if new else ())]):
            return


def _are_same(files: Sequence[DataFile], others: Sequence[DataFile]) -> bool:
    return {file.path for file in files} == {file.path for file in others}


def append_marks(
    store: Store, projection: Projection[Any], new: NewRun, first: DeltaTable | None = None
) -> None:
    """Commits the marks of a run; must come before the commit of the run.

    `first` is the marks table, opened before, for the first try.
    """
    add_files(store, projection.marks_table, [marks_file(store, projection, new)], first)


def marks_file(store: Store, projection: Projection[Any], new: NewRun) -> AddAction:
    """Writes the file of a run's marks; its add action."""
    files = [file for file in new.files if file.rows]
    groups = {
        **new.marks,
        DIGESTS_GROUP: _by_file(files, [file.digests.to_bytes() for file in files]),
        FOOTERS_GROUP: _by_file(files, [file.footer for file in files]),
    }
    schema = pa.schema([*(field for field in projection.marks_schema if field.name != "run"), CONTENT_FIELD])
    row_groups = {group: with_columns_of(schema, rows) for group, rows in groups.items()}
    path, encoding = _marks_in_table(new), _marks_encoding(schema)
    return data_files.write_file(store, projection.marks_table, row_groups, path, encoding=encoding)


def _marks_encoding(schema: pa.Schema) -> dict[str, Any]:
    """The options of the writer of marks.

    Most columns of a row group are NULL: a dictionary, statistics and zstd take more time than they save.
    Only the path of a file is repeated, and only the contents are long.
    """
    lists = {field.name: ".list.element" for field in schema if pa.types.is_list(field.type)}
    codecs = {name + lists.get(name, ""): "lz4" for name in schema.names}
    return {
        "compression": {**codecs, CONTENT_FIELD.name: "zstd"},
        "use_dictionary": ["file"],
        "write_statistics": False,
    }


def _by_file(files: Sequence[MarkedFile], contents: Sequence[bytes]) -> pa.Table:
    """The rows of a row group of the marks that stores something about each file of the run."""
    paths = [path_in_table(file.path) for file in files]
    content = pa.array(contents, CONTENT_FIELD.type)
    return pa.table({"file": pa.array(paths, pa.string()), CONTENT_FIELD.name: content})


def add_actions(new: NewRun) -> list[AddAction]:
    """The add actions of a run's files."""
    return [
        data_files.add_action(
            path_in_table(file.path), file.size, file.rows, file.stats, {"run": new.run.name}
        )
        for file in new.files
    ]
