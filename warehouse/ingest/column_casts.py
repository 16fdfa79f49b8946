"""Schema checks and casts: which input columns a warehouse accepts, and how they get the stored types.

The rules are the same for every engine. `check_columns` compares Delta types before any row is read.
`cast_rows` casts Arrow batches when rows are written or compared. No cast loses information:

    byte, short, integer, long          may be stored as a type of integers or floats that holds every value
    float                               may be stored as double
    decimal                             may be stored as one of more digits with the same scale
    timestamps without a zone           are stored as UTC
    finer units, dictionaries, views    are stored as Delta's type if every value fits it

Anything else is an InputError. Columns that were added to a warehouse later may be missing: they are NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Field

from tidemark.warehouse.columns.arrow_types import null_column, typed, with_plain_types
from tidemark.warehouse.columns.column_types import find_column_type, is_wider
from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.alterations import wider_columns
from tidemark.warehouse.settings.options import Options

_WIDE = pa.decimal128(38, 0)  # holds every integer, also after it was rounded to a double
_MISFIT = "the rows do not fit the warehouse's columns"


def check_columns(options: Options, fields: list[Field], *, evolve: bool = False) -> None:
    """InputError unless the columns are the warehouse's, in any order, of types that fit without loss.

    Columns that were added later may be missing. With `evolve`, there may be others, which are then added,
    and others may be of wider types, which the warehouse's columns then get.
    """
    columns = options.with_token_types(column_types(fields))
    if not options.columns:
        options.check_columns(columns)
        return
    _check_names(options, columns)
    stored = dict(options.columns) | (wider_columns(options, columns) if evolve else {})
    later = {name: stored[name] for name in options.added_columns if name in stored}
    options.check_columns({**later, **{name: stored.get(name, kind) for name, kind in columns.items()}})
    missing = sorted(set(stored) - set(columns) - set(later))
    unknown = sorted(set(columns) - set(stored))
    if missing or (unknown and not evolve):
        remedy = "" if missing else " To add what is unknown: load(..., evolve=True), --evolve."
        raise InputError(
            f"the columns differ from the warehouse's: missing {missing}, unknown {unknown}.{remedy}"
        )
    by_case = {name.lower(): name for name in stored}
    if alike := [name for name in unknown if name.lower() in by_case]:
        raise InputError(
            f"the column {alike[0]!r} differs from the warehouse's {by_case[alike[0].lower()]!r} only in "
            "case, and cannot be added beside it. Rename it in the input."
        )
    check_types(columns, stored)


def _check_names(options: Options, columns: Mapping[str, str]) -> None:
    """InputError if a column has the earlier name of one that is missing: it would be added beside it."""
    missing = {name: earlier for name, earlier in options.earlier_names.items() if name not in columns}
    if told := options.told_renamed(old for old in columns if any(old in one for one in missing.values())):
        raise InputError(f"the columns have earlier names.{told} Rename in the input. Nothing was loaded.")


def check_types(columns: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """InputError unless each column's type fits the stored one of its name, if there is one, without loss."""
    for name, kind in columns.items():
        if name in stored and kind != stored[name] and not _may_fit(kind, stored[name]):
            remedy = f", or widen the column: evolve=True, or alter(widen={{{name!r}: {kind!r}}})"
            raise InputError(
                f"column {name!r} is {kind}, the warehouse has {stored[name]}. Cast it in the input"
                f"{remedy if is_wider(kind, stored[name]) else ''}."
            )


def _may_fit(kind: str, stored: str) -> bool:
    """Whether values of the type may fit the stored one without loss; of integers some may, and some not."""
    found, target = find_column_type(kind), find_column_type(stored)
    if found is None or target is None:
        return False
    return is_wider(stored, kind) or (found.is_integer and (target.is_integer or target.is_double))


def cast_rows(
    rows: pa.RecordBatch | pa.Table, schema: pa.Schema, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The rows with their first columns renamed and cast to the fields of the schema.

    names   the names of the first columns, by position: all of the schema's, or some. Others are NULL

    Columns after these are unchanged. InputError if a value does not fit its type exactly.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    names = schema.names if names is None else names
    count, place = len(names), {name: i for i, name in enumerate(names)}
    try:
        first = with_plain_types(table.select(range(count)).rename_columns(list(names)))
        typed = [
            _cast(first.column(place[field.name]), field)
            if field.name in place
            else null_column(table.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{_MISFIT}: {error}.") from error
    arrays = [single_array(column) for column in [*typed, *table.columns[count:]]]
    return pa.RecordBatch.from_arrays(arrays, [*schema.names, *table.schema.names[count:]])


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    if not (pa.types.is_integer(column.type) and pa.types.is_floating(field.type)):
        return typed(column, field.type)
    values = column.cast(field.type, safe=False)
    exact = pc.equal(values.cast(_WIDE), column.cast(_WIDE))
    if pc.all(exact).as_py() is False:
        first = column[pc.index(exact, False).as_py()].as_py()
        raise InputError(
            f"{_MISFIT}: {field.name} is of type {field.type}, which cannot hold the whole number {first} "
            "exactly. Nothing was changed. Store such numbers as integers or decimals, or round them in the "
            "input."
        )
    return values
