"""Wider types: one commit replaces all files of `events` and gives the table the wider types of its columns.

A batch that was written with the narrow types meanwhile is written again by its own append
(`append_rows.commit`). Delta's readers expect the types of the table in each file, so no file may keep the
narrow one. Nothing else is written: runs, marks and summaries store numbers of a wider type as those of the
narrow one (64 bits, doubles, unscaled decimals), and fingerprints of rows do not depend on the width.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import Field, Schema
from deltalake.schema import PrimitiveType

from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.ingest.all_files import AllFiles
from tidemark.warehouse.settings.alterations import wider_columns
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.work import Work


def widen(work: Work, types: Mapping[str, str]) -> None:
    """Gives columns of `events` these types, Delta's names by the columns', where they are wider.

    Types that are not wider than their column's are left out. The cost is that of writing `events` once.
    """
    race, files = Race(work.store, EVENTS), AllFiles(work, "widened")
    while wider := wider_columns(options := read_options(work.store, race.table), types):
        stored = {options.names.stored(name): kind for name, kind in wider.items()}
        if files.replace(race, with_types(race.table.schema(), stored)):
            return


def with_types(schema: Schema, types: Mapping[str, str]) -> Schema:
    """The schema with other types of some columns, Delta's names by the columns'."""
    kinds = {name: PrimitiveType(kind) for name, kind in types.items()}
    return Schema(
        [
            Field(one.name, kinds.get(one.name, one.type), nullable=one.nullable, metadata=one.metadata)
            for one in schema.fields
        ]
    )
