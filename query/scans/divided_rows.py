"""The rows of a scan by group: those of each group together.

Groups of integers that lie close together, by the statistics of files, are divided here: a radix sort of
their codes, in shares that threads do at the same time. DuckDB lists the numbers of other groups, which takes
about twice as long.

Cost: O(rows), some nanoseconds a row. Memory: `bytes_a_row`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.query.reading.shares import each_share, equal_shares
from tidemark.query.reading.sorted_parts import Ints
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.row_source import LIVE, VALUE, RowSource
from tidemark.query.scans.scanned_rows import Asker
from tidemark.warehouse.columns.arrow_buffers import arrow_array, arrow_table, zero_for_null
from tidemark.warehouse.columns.codes import combine_codes, stable_order, unique_codes
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools, single_array

_VALUE, _LIVE = quoted(VALUE), quoted(LIVE)
MOST_CODES = 2**16  # that are sorted in one pass
_LISTED_BYTES = 32  # of a row: 8 in a list that DuckDB may double while it grows, 8 in what it hands over
_SORTED_BYTES = 48  # of a row, and 16 for each column of the group: as it was read, and its code


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


def divided_rows(source: RowSource, relation: str, asker: Asker) -> DividedRows:
    """The rows by the columns of the group of the source, at least one.

    relation: SQL of the rows, to be run once.
    """
    if source.most_codes > MOST_CODES:
        return _listed(source, relation, asker)
    live = [_LIVE] if source.has_live else []
    columns = source.group_columns
    rows = asker.table(f"SELECT {', '.join([*columns, _VALUE, *live])} FROM {relation}")
    return _sorted(rows, len(columns))


def bytes_a_row(source: RowSource) -> int:
    """How many bytes a row takes while the rows of the source are divided, or are one group."""
    columns = len(source.group_columns)
    return _SORTED_BYTES + 16 * columns if columns and source.most_codes <= MOST_CODES else _LISTED_BYTES


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


def _listed(source: RowSource, relation: str, asker: Asker) -> DividedRows:
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


class _Share(NamedTuple):
    """Some of the rows by code, in the order of codes.

    rows, m, nulls: for each code the number of its rows, live values and NULL. first: one of its rows.
    values: see DividedRows.
    """

    rows: Ints
    m: Ints
    nulls: Ints
    first: Ints
    values: NDArray[Any]


def _sorted(table: pa.Table, width: int) -> DividedRows:
    """table: `width` columns of the group, which are integers, the value, and whether rows are live."""
    groups, rest = table.select(range(width)), table.columns[width:]
    coded, shares = groups.columns, equal_shares(len(table))
    spans = [_span(column) for column in coded]
    if prod(size for _, size in spans) > MOST_CODES:  # the statistics that another tool wrote are wrong
        coded = [_codes(groups)]
        spans, shares = [_span(coded[0])], [(0, len(table))]  # each share counts the rows of all codes
    sizes = [size for _, size in spans]
    codes_there = prod(sizes)

    def divide(first: int, last: int) -> _Share:
        count = last - first
        numbers = [
            as_numpy(column.slice(first, count)) - low for column, (low, _) in zip(coded, spans, strict=True)
        ]
        codes = combine_codes(numbers, sizes)
        del numbers
        values, is_null = present(rest[0].slice(first, count))
        is_live = np.zeros(0, bool)
        if rest[1:]:
            is_live = as_numpy(rest[1].slice(first, count)).astype(bool)
        rows, m, nulls = (
            np.bincount(some, minlength=codes_there)
            for some in (codes, codes[: len(is_live)][is_live], codes[: len(is_null)][is_null])
        )
        order = stable_order(_dense(codes, rows))
        places = np.append(order, 0)[np.cumsum(rows) - rows] + first
        if len(is_null):
            order = order[~is_null[order]]
            if len(is_live):
                m -= np.bincount(codes[is_live & is_null], minlength=codes_there)
        del codes
        return _Share(rows, m, nulls, places, values[order])

    return _joined(groups, each_share(divide, shares))


def _joined(groups: pa.Table, shares: Sequence[_Share]) -> DividedRows:
    """All rows of some shares. groups: the columns of the group, of all rows."""
    rows, m, nulls = (np.sum([share[i] for share in shares], axis=0) for i in range(3))
    filled = np.flatnonzero(rows)
    first = shares[0].first.copy()
    for share in shares[1:]:
        np.copyto(first, share.first, where=share.rows > 0)
    stored = groups.take(arrow_array(first[filled])).combine_chunks()
    edges = np.concatenate([[0], np.cumsum((rows - nulls)[filled])])
    values = shares[0].values
    if len(shares) > 1:
        cuts = [
            np.split(share.values, np.cumsum((share.rows - share.nulls)[filled])[:-1]) for share in shares
        ]
        values = np.concatenate([part for parts in zip(*cuts, strict=True) for part in parts])
    return DividedRows(list(map(single_array, stored.columns)), values, edges, m[filled], nulls[filled])


def _span(column: pa.ChunkedArray) -> tuple[int, int]:
    """The least number of a column without NULL, and how many numbers there are from it to the greatest."""
    ends = pc.min_max(column)
    least, greatest = (ends[end].as_py() or 0 for end in ("min", "max"))
    return least, greatest - least + 1


def _codes(groups: pa.Table) -> pa.ChunkedArray:
    """The code of each row, whatever the numbers are."""
    coded = [unique_codes(as_numpy(column)) for column in groups.columns]
    codes = combine_codes([own for _, own in coded], [len(names) for names, _ in coded])
    return arrow_table({"code": np.unique(codes, return_inverse=True)[1]}).column(0)


def _dense(codes: Ints, rows: Ints) -> NDArray[np.integer[Any]]:
    """Codes in the same order without gaps, of few digits: these are sorted sooner.

    rows: of each code.
    """
    filled = np.flatnonzero(rows)
    ranks = np.zeros(len(rows), np.min_scalar_type(max(0, len(filled) - 1)))
    ranks[filled] = np.arange(len(filled))
    return ranks[codes]
