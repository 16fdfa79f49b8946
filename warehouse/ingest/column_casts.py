"""Schema checks and casts: which input columns a warehouse accepts, and how they get the stored types.

The rules are the same for every engine. `check_columns` compares Delta types before any row is read.
`cast_rows` casts Arrow batches when rows are written or compared. No cast loses information:

    byte, short, integer, float         may be stored as a wider number of their kind
    timestamps without a zone           are stored as UTC
    finer units, dictionaries, views    are stored as Delta's type if every value fits it

Anything else is an InputError.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Field

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options


def check_columns(options: Options, fields: list[Field]) -> None:
    """InputError unless the columns are the warehouse's, in any order, of types that fit without loss."""
    columns = column_types(fields)
    if not options.columns:
        options.check_columns(columns)
        return
    stored = dict(options.columns)
    options.check_columns({name: stored.get(name, kind) for name, kind in columns.items()})
    missing, unknown = sorted(set(stored) - set(columns)), sorted(set(columns) - set(stored))
    if missing or unknown:
        raise InputError(f"the columns differ from the warehouse's: missing {missing}, unknown {unknown}.")
    for name, kind in columns.items():
        if kind != stored[name] and stored[name] not in _wider_types(kind):
            raise InputError(
                f"column {name!r} is {kind}, the warehouse has {stored[name]}. Cast it in the input."
            )


def _wider_types(kind: str) -> tuple[str, ...]:
    """The wider types that a column of the type may be stored as without loss."""
    found = find_column_type(kind)
    return () if found is None else found.wider


def cast_rows(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with their first columns renamed and cast, by position, to the fields of the schema.

    Columns after these are unchanged. InputError if a value does not fit its type.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    count = len(schema)
    try:
        first = with_plain_types(table.select(range(count)).rename_columns(schema.names))
        typed = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(first.columns, schema, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InputError(f"the rows do not fit the warehouse's columns: {error}.") from error
    arrays = [column.combine_chunks() for column in [*typed, *table.columns[count:]]]
    return pa.RecordBatch.from_arrays(arrays, [*schema.names, *table.schema.names[count:]])
