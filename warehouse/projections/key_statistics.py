"""Delta's statistics of a file whose rows are sorted by a key: exact for numbers, short bounds for text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from tidemark.warehouse.columns.json_values import json_value
from tidemark.warehouse.columns.keys import Key, Name
from tidemark.warehouse.columns.text_values import text_bounds


def key_statistics(
    key: Key,
    columns: Sequence[str],
    ends: Sequence[tuple[Any, ...] | None] | None,
    numbers: Mapping[str, ArrayLike],
) -> dict[str, Any]:
    """The statistics of a file, which has no NULL in these columns.

    columns: first the one that stores the key; others without bounds. ends: the first and the last row, each
    with its name first; None without rows. numbers: by column, all numbers, or the least and the greatest.

    The key has no bounds if one of the two does not exist: with only one, a filter of delta-rs loses rows.
    """
    nulls = {"nullCount": dict.fromkeys([*columns, *numbers], 0)}
    names = [end[0] for end in ends or () if end is not None]
    if not names:
        return nulls
    least: dict[str, Any] = {name: int(np.min(those)) for name, those in numbers.items()}
    greatest: dict[str, Any] = {name: int(np.max(those)) for name, those in numbers.items()}
    low, high = _bounds(key, names[0], names[-1])
    if low is not None and high is not None:
        least[columns[0]], greatest[columns[0]] = low, high
    return {"minValues": least, "maxValues": greatest, **nulls}


def _bounds(key: Key, low: Name, high: Name) -> tuple[Any, Any]:
    """The bounds of the keys between two names; None for none."""
    if isinstance(low, bytes) and isinstance(high, bytes):
        if not pa.types.is_string(key.stored_type):
            return None, None
        try:
            return text_bounds(low.decode(), high.decode())
        except UnicodeDecodeError:
            return None, None
    if not key.is_double:
        return low, high
    # Spark writes an infinity as text in JSON. With NaN as a bound, a filter of delta-rs would lose rows.
    first, last = key.value_of(low), key.value_of(high)
    return (None, None) if math.isnan(last) else (json_value(first), json_value(last))
