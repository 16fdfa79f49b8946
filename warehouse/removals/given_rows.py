"""Rows that a caller gives to say which rows leave: read whole, with the warehouse's types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.execution.executors import Input, LocalExecutor
from tidemark.warehouse.ingest.column_casts import cast_rows, check_types
from tidemark.warehouse.text.given import with_text_read
from tidemark.warehouse.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class _CastRows:
    """Casts the rows of one partition of an input to `schema`, by position."""

    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (cast_rows(batch, self.schema) for batch in batches)


def given_input(work: Work, given: Any) -> Input:
    """What a caller gave as an input: a DataFrame of the session is read by it, anything else here."""
    if not work.executor.in_process and hasattr(given, "mapInArrow"):
        return work.executor.input(given)
    stored = pa.schema(tables.open_table(work.store, EVENTS).schema())
    columns = dict(work.options.columns)
    return LocalExecutor(work.store.tuning).input(with_text_read(given, stored, columns, ()))


def rows_of(work: Work, given: Any, what: str, columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """All rows that were given, in memory, with the warehouse's types.

    what      of the call, for errors: 'keys'
    columns   those that are wanted; None: all that the rows have, which are some of the warehouse's

    InputError for a column that the warehouse does not have, or that is missing, and for a value that does
    not fit its column exactly.
    """
    rows, options = given_input(work, given), work.options
    types, stored = column_types(rows.fields()), dict(options.columns)
    unknown = sorted(set(types) - set(stored))
    if unknown or not types:
        raise InputError(
            f"{what} must have columns of the warehouse, {', '.join(stored)}; got "
            f"{', '.join(map(repr, unknown)) or 'no column'}. Nothing was changed."
        )
    missing = sorted(set(columns or ()) - set(types))
    if missing:
        raise InputError(f"{what} lack the columns {', '.join(map(repr, missing))}. Nothing was changed.")
    names = list(columns if columns is not None else types)
    check_types({name: types[name] for name in names}, stored)
    events = pa.schema(tables.open_table(work.store, EVENTS).schema())
    schema = pa.schema([(name, events.field(name).type) for name in names])
    return single_batch(pa.Table.from_batches(rows.each(names, _CastRows(schema)), schema))


def single_batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
