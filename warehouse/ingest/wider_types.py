"""Wider types: one commit replaces all files of `events` and gives the table the wider types of its columns.

    write    tasks write each file anew, the rows in their order
    commit   one commit, on a version whose files all have a successor; files that came meanwhile are written
             before the next try. A batch that was written with the narrow types meanwhile is written again
             by its own append (`append_rows.commit`)

Delta's readers expect the types of the table in each file, so no file may keep the narrow one. Nothing else
is written: runs, marks and summaries store numbers of a wider type as those of the narrow one (64 bits,
doubles, unscaled decimals), and fingerprints of rows do not depend on the width.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from tidemark.warehouse.delta import own_files
from tidemark.warehouse.delta.changes import Replacement
from tidemark.warehouse.delta.data_files import DataFile, NewFile, list_files
from tidemark.warehouse.delta.races import Race, replace_files
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.settings.changes import wider_columns
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.work import Work


def widen(work: Work, types: Mapping[str, str]) -> None:
    """Gives columns of `events` these types, Delta's names by the columns', where they are wider.

    What is no wider type of its column is left out. The cost is that of writing `events` once.
    """
    store, race = work.store, Race(work.store, EVENTS)
    looks, written = own_files.Looks(store, before_commit=True), dict[str, NewFile]()
    while wider := wider_columns(options := read_options(store, race.table), types):
        stored = {options.names.stored(name): kind for name, kind in wider.items()}
        schema = with_types(race.table.schema(), stored)
        files = [file for file in list_files(race.table) if file.rows]
        _write(work, schema, files, written)
        work.reached("rewritten")
        successors = {file.path: written[file.path] for file in files}
        if lost := looks.lost([f"{EVENTS}/{file.path}" for file in successors.values()]):
            written = {old: new for old, new in successors.items() if f"{EVENTS}/{new.path}" not in lost}
            race = Race(store, EVENTS)  # what deleted them may have replaced the old ones, too
        elif race.change(Replacement(schema, [file.action() for file in successors.values()])):
            work.reached("widened")
            _replace_lost(work, schema, successors)
            return


def _write(work: Work, schema: Schema, files: list[DataFile], written: dict[str, NewFile]) -> None:
    """Writes the files that have no successor yet, in tasks."""
    missing = [file.path for file in files if file.path not in written]
    tasks = [JoinFiles(work.store, pa.schema(schema), (path,)) for path in missing]
    written.update(zip(missing, work.executor.run(tasks), strict=True))


def _replace_lost(work: Work, schema: Schema, successors: dict[str, NewFile]) -> None:
    """Writes again what maintenance deleted before the commit: the old files stay for the grace."""
    looks = own_files.Looks(work.store)
    while lost := looks.lost([f"{EVENTS}/{file.path}" for file in successors.values()]):
        gone = {old: new for old, new in successors.items() if f"{EVENTS}/{new.path}" in lost}
        for old, new in gone.items():
            (again,) = work.executor.run([JoinFiles(work.store, pa.schema(schema), (old,))])
            replace_files(work.store, EVENTS, {new.path}, [again.action(new_rows=False)])
            successors = {**successors, old: again}


def with_types(schema: Schema, types: Mapping[str, str]) -> Schema:
    """The schema with other types of some columns, Delta's names by the columns'."""
    return Schema(
        [
            Field(one.name, PrimitiveType(types[one.name]), nullable=one.nullable, metadata=one.metadata)
            if one.name in types
            else one
            for one in schema.fields
        ]
    )
