"""The rows of a scan by group, as DuckDB lists the values of each group.

Groups of integers that lie close together are divided by coded_rows.py, which takes about half as long.

Cost: O(rows), some tens of nanoseconds a row. Memory: LISTED_BYTES.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.sorted_parts import Ints
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.asked_rows import LIVE, VALUE
from tidemark.query.scans.row_source import RowSource
from tidemark.query.scans.scanned_rows import Asker
from tidemark.warehouse.columns.arrow_buffers import zero_for_null
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)
LISTED_BYTES = 32  # of a row: 8 in a list that DuckDB may double while it grows, 8 in what it hands over


class DividedRows(NamedTuple):
    """The rows by group; groups are in any order, and so are the rows of each.

    stored     for each column of the group its stored values, as they are in the relation
    values     those that are not NULL; those of group i are ``values[edges[i] : edges[i + 1]]``
    m, nulls   for each group how many of these are live, and how many of its rows have NULL
    """

    stored: list[pa.Array]
    values: NDArray[Any]
    edges: Ints
    m: Ints
    nulls: Ints


def present(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values, something where they are NULL; and whether each is NULL, empty if none is."""
    values = single_array(column) if isinstance(column, pa.ChunkedArray) else column
    if not values.null_count:
        return as_numpy(values), np.zeros(0, bool)
    return as_numpy(zero_for_null(values)), as_numpy_bools(values.is_null())


def without(is_out: NDArray[np.bool_], values: NDArray[Any], edges: Ints) -> tuple[NDArray[Any], Ints, Ints]:
    """(the values that stay, the edges of their parts, how many values were taken out of each part).

    is_out: whether each value is taken out; empty if none is.
    """
    if not is_out.any():
        return values, edges, np.zeros(len(edges) - 1, np.int64)
    before = np.concatenate([[0], np.cumsum(is_out)])[edges]
    return values[~is_out], edges - before, np.diff(before)


def divided_rows(source: RowSource, relation: str, asker: Asker) -> DividedRows:
    """The rows by the columns of the group of the source, at least one.

    relation: SQL of the rows, to be run once.
    """
    columns = source.group_columns
    stored = [f"encode({name}) AS {name}" if name in source.texts else name for name in columns]
    m = f"count(CASE WHEN {_LIVE} = 1 THEN {_VALUE} END)" if source.has_live else "0::BIGINT"
    listed = f"SELECT {', '.join(columns)}, {m} AS m, list({_VALUE}) AS numbers FROM {relation}"
    table = asker.columns(
        f"SELECT {', '.join(stored)}, m, numbers FROM ({listed} GROUP BY {', '.join(columns)})"
    )
    lists = single_array(table.column("numbers"))
    edges = as_numpy(lists.offsets).astype(np.int64)
    values, is_null = present(lists.values.slice(edges[0], edges[-1] - edges[0]))
    values, edges, nulls = without(is_null, values, edges - edges[0])
    names = [single_array(table.column(i)) for i in range(len(columns))]
    return DividedRows(names, values, edges, as_numpy(table.column("m")), nulls)
