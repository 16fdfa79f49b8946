"""SQL of DuckDB for the stored form of a column of `events`: the number, or the text as bytes.

The SQL gives what `ColumnType.encode` gives, by the same facts about types. -0.0 becomes 0.0, and every NaN
the same NaN: DuckDB groups NaN by its sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.query.reading.sql_text import literal
from tidemark.warehouse.columns.column_types import (
    DECIMAL_DIGITS,
    MEASURE_DIGITS,
    ColumnType,
    Storage,
)
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.events.reader import BatchRange


def stored_sql(kind: ColumnType, value: str) -> str:
    """The stored value of a column of the type `kind`; `value` is SQL of the column. NULL is NULL."""
    if kind.is_double:
        return f"CASE WHEN isnan({value}) THEN 'NaN'::DOUBLE ELSE {value}::DOUBLE + 0.0 END"
    if kind.is_decimal:
        # DuckDB multiplies decimals of 18 digits in 64 bits, unless one of them is wider.
        wide = kind.digits + kind.scale >= MEASURE_DIGITS
        number = f"{value}::DECIMAL({DECIMAL_DIGITS}, {kind.scale})" if wide else value
        return f"CAST({number} * CAST('1{'0' * kind.scale}' AS DECIMAL({kind.scale + 1}, 0)) AS BIGINT)"
    if kind.unit_us == DAY_US:
        return f"({value} - DATE '1970-01-01')"
    if kind.unit_us is not None:
        return f"epoch_us({value})"
    if kind.storage is Storage.STRING:
        return f"encode({value})"
    return value if kind.is_text else f"{value}::BIGINT"


def measure_sql(kind: ColumnType, value: str) -> str:
    """The same of a measure, of which no NaN is grouped or compared: it may be any NaN."""
    return f"({value}::DOUBLE + 0.0)" if kind.is_double else stored_sql(kind, value)


def among_sql(key: Key, column: str, values: Sequence[Any]) -> str:
    """SQL that is true where a column is equal to one of the values, as keys are equal.

    Where the column's own type compares so, it is compared as it is: its statistics then spare row groups.
    InputError for a value that cannot be compared with the column.
    """
    names = sorted({name for value in values if (name := key.name_of(value)) is not None})
    kind = key.column_type
    if kind.is_text:
        texts = [name for name in names if isinstance(name, bytes)]
        if kind.storage is Storage.STRING and all(map(_is_plain, texts)):
            return _among(column, [f"'{text.decode()}'" for text in texts])
        return _among(stored_sql(kind, column), [f"'{_escaped(text)}'::BLOB" for text in texts])
    if kind.is_double:
        numbers = [f"'{key.value_of(name)!r}'::DOUBLE" for name in names]
        return _among(stored_sql(kind, column), numbers)
    own = column if kind.is_integer else stored_sql(kind, column)
    return _among(own, [str(name) for name in names])


def _among(value: str, literals: Sequence[str]) -> str:
    return f"{value} IN ({', '.join(literals)})" if literals else "false"


def _is_plain(text: bytes) -> bool:
    """Whether the text is a literal as it stands."""
    return text.isascii() and b"'" not in text and b"\0" not in text


def _escaped(text: bytes) -> str:
    return "".join(f"\\x{byte:02X}" for byte in text)


def batches_sql(batches: Sequence[BatchRange]) -> str:
    """SQL that is true of the rows of `events` of these batches."""
    parts = (
        f'("_source" = {literal(one.source)} AND "_batch" BETWEEN {one.first} AND {one.last})'
        for one in batches
    )
    return f"({' OR '.join(parts)})"
