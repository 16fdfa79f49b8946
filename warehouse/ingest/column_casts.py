"""How rows fit a warehouse: which columns of which types are taken, and how they get the stored types.

One rule for every engine: `check_columns` looks at Delta's types before a row is read, `fitted` casts
Arrow's batches where rows are written or compared. Nothing is cast with loss:

    byte, short, integer, float         are taken as a wider number of their kind
    timestamps without a zone           are taken as UTC
    finer units, dictionaries, views    are taken as Delta's type where every value fits it

Anything else is an InputError.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Field

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

# What a column may be read as without loss, beside its own type.
_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
    "float": {"double"},
}


def check_columns(options: Options, fields: list[Field]) -> None:
    """The columns are the warehouse's, in any order, of types that fit without loss; InputError otherwise."""
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
        if kind != stored[name] and stored[name] not in _WIDER.get(kind, set()):
            raise InputError(
                f"column {name!r} is {kind}, the warehouse has {stored[name]}. Cast it in the input."
            )


def fitted(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with their first columns, by their order, in the names and types of the schema.

    Columns after these stay as they are. InputError where a value does not fit.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    count = len(schema)
    try:
        own = with_plain_types(table.select(range(count)).rename_columns(schema.names))
        typed = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(own.columns, schema, strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InputError(f"the rows do not fit the warehouse's columns: {error}.") from error
    whole = [column.combine_chunks() for column in [*typed, *table.columns[count:]]]
    return pa.RecordBatch.from_arrays(whole, [*schema.names, *table.schema.names[count:]])
