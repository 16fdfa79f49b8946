"""Rows of `events` that DuckDB does not read by itself: with encoded keys, and selected as a scan asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.keys import (
    Key,
    KeyColumn,
    Name,
    find_names,
    names_from,
    stored_keys,
    take_names,
)
from tidemark.warehouse.columns.value_encoding import single_array
from tidemark.warehouse.errors import InputError


def names_of_values(key: Key, values: Sequence[Any]) -> Any:
    """The names of the values, ascending, each once; values that no row can have are left out."""
    names: set[Name] = {name for value in values if (name := key.name_of(value)) is not None}
    return names_from(key, sorted(names))


def is_wanted(column: KeyColumn, wanted: Any) -> NDArray[np.bool_]:
    """A mask of the rows whose name is among the ascending wanted names."""
    if isinstance(wanted, np.ndarray):
        among = np.isin(np.asarray(column.names), wanted)
    else:
        among = find_names(wanted, column.names) >= 0
    if column.codes is None:
        return np.asarray(among & ~column.null)
    found = ~column.null
    found[found] = among[column.codes[found]]  # codes of NULL mean nothing, and there may be no names
    return found


def stored_column(key: Key, column: KeyColumn, chosen: NDArray[np.int64]) -> pa.Array:
    """The stored keys of the chosen rows, text as bytes, NULL where there is none."""
    null, codes = column.null[chosen], chosen if column.codes is None else column.codes[chosen]
    if not len(column.names):  # all are NULL
        return pa.nulls(len(chosen), pa.large_binary() if key.is_text else key.stored_type)
    names = take_names(column.names, np.where(null, 0, codes))
    stored = stored_keys(key, names) if isinstance(names, np.ndarray) else names
    return pc.if_else(pa.array(null), None, stored) if null.any() else stored


def native_column(column: pa.ChunkedArray, item: pa.Field) -> pa.Array:
    """A column of the expression in its own type; InputError for text that is not UTF-8."""
    array = single_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"the column {item.name!r} has text that is not UTF-8, which expressions cannot use ({error}). "
            "Select its rows by equality instead, or leave the column out of the expression."
        ) from None
    return array.cast(item.type)
