"""Schema checks and casts: which input columns a warehouse accepts, and how they get the stored types.

The rules are the same for every engine. `check_columns` compares Delta types before any row is read.
`cast_rows` casts Arrow batches when rows are written or compared. No cast loses information:

    byte, short, integer, long          may be stored as a type of integers or floats that holds every value
    float                               may be stored as double
    timestamps without a zone           are stored as UTC
    finer units, dictionaries, views    are stored as Delta's type if every value fits it

Anything else is an InputError.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Field

from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.column_types import find_column_type
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.options import Options

_WIDE = pa.decimal128(38, 0)  # holds every integer, and every double that one becomes


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
    check_types(columns, stored)


def check_types(columns: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """InputError unless each column's type fits the stored one of its name without loss."""
    for name, kind in columns.items():
        if kind != stored[name] and not _may_fit(kind, stored[name]):
            raise InputError(
                f"column {name!r} is {kind}, the warehouse has {stored[name]}. Cast it in the input."
            )


def _may_fit(kind: str, stored: str) -> bool:
    """Whether values of the type may be of the stored one without loss; for integers that depends on them."""
    found, target = find_column_type(kind), find_column_type(stored)
    if found is None or target is None:
        return False
    return stored in found.wider or (found.is_integer and (target.is_integer or target.is_double))


def cast_rows(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with their first columns renamed and cast, by position, to the fields of the schema.

    Columns after these are unchanged. InputError if a value does not fit its type exactly.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    count = len(schema)
    try:
        first = with_plain_types(table.select(range(count)).rename_columns(schema.names))
        typed = [_cast(column, field) for column, field in zip(first.columns, schema, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InputError(f"the rows do not fit the warehouse's columns: {error}.") from error
    arrays = [column.combine_chunks() for column in [*typed, *table.columns[count:]]]
    return pa.RecordBatch.from_arrays(arrays, [*schema.names, *table.schema.names[count:]])


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    if not (pa.types.is_integer(column.type) and pa.types.is_floating(field.type)):
        return column.cast(field.type)
    values = column.cast(field.type, safe=False)
    exact = pc.equal(values.cast(_WIDE), column.cast(_WIDE))
    if pc.all(exact).as_py() is False:
        first = column[pc.index(exact, False).as_py()].as_py()
        raise ValueError(
            f"{field.name} is of type {field.type}, which cannot hold the whole number {first} exactly. "
            "Nothing was changed. Store such numbers as integers or decimals, or round them in the input"
        )
    return values
