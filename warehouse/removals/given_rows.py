"""Rows that a caller gives to name the rows that leave: read whole, with the warehouse's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.executors import Input, LocalExecutor
from tidemark.warehouse.ingest.column_casts import cast_rows, check_types
from tidemark.warehouse.ingest.private_rows import text_columns, with_tokens
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.text.given import text_files
from tidemark.warehouse.work import Work


@dataclass(frozen=True, slots=True)
class _CastRows:
    """Casts the rows of one partition of an input to `schema`, by position."""

    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (cast_rows(batch, self.schema) for batch in batches)


def given_input(work: Work, given: Any) -> Input:
    """A caller's rows as an input: the session reads its DataFrame, this process anything else."""
    if not work.executor.in_process and hasattr(given, "mapInArrow"):
        return with_tokens(work.executor.input(given), work.options)
    if (texts := text_files(given)) is not None:
        columns = text_columns(tables.open_table(work.store, EVENTS), work.options)
        given = texts.rows(columns, dict(work.options.columns), ())
    return with_tokens(LocalExecutor(work.store.tuning).input(given), work.options)


def rows_of(work: Work, given: Any, what: str, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """All rows that were given, in memory, with the warehouse's types.

    what      the argument's name, for errors: 'keys'
    columns   the wanted columns; None: all columns of the rows, which are some of the warehouse's

    InputError for a column that the warehouse does not have, or that is missing, and for a value that does
    not fit its column exactly.
    """
    rows, stored = given_input(work, given), dict(work.options.columns)
    types = work.options.with_token_types(column_types(rows.fields()))
    unknown = sorted(set(types) - set(stored))
    if unknown or not types:
        raise InputError(
            f"{what} must have columns of the warehouse, {', '.join(stored)}; got "
            f"{', '.join(map(repr, unknown)) or 'no column'}. Nothing was changed."
        )
    missing = sorted(set(columns or ()) - set(types))
    if missing:
        raise InputError(f"{what} lack the columns {', '.join(map(repr, missing))}. Nothing was changed.")
    return cast_input(work.options, rows, schema_of(work, columns if columns is not None else types))


def schema_of(work: Work, names: Iterable[str]) -> pa.Schema:
    """The Arrow types of columns of the warehouse."""
    stored = pa.schema(tables.open_table(work.store, EVENTS).schema())
    events = work.options.names.of_schema(stored)
    return pa.schema([(name, events.field(name).type) for name in names])


def cast_input(options: Options, rows: Input, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of the schema, in memory, with its types; InputError if one does not fit the options."""
    types, stored = options.with_token_types(column_types(rows.fields())), dict(options.columns)
    check_types({name: types[name] for name in schema.names if name in stored}, stored)
    table = pa.Table.from_batches(rows.each(schema.names, _CastRows(schema)), schema)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=schema)
