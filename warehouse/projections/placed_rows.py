"""Placed rows: (value, included values, file, row, tick), ascending by the value alone.

Model. A *place* is (file, row): the id of a file of `events` and the number of a row in it. Rows are sorted
by their value; all other columns are carried along by the permutation that sorts the values, and are never
compared or coded. Equal values have no defined order.

Values that are texts are coded: `texts` ascend, and a row has the index of its text. So values are numbers in
memory, and a sort is one of numbers. All NaN are equal, and come after all numbers. -0.0 equals 0.0, but is
stored as -0.0.

Cost of a sort: O(n) if the values lie close together, else O(n log n); and one gather for each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.arrow_types import TextNames
from tidemark.warehouse.columns.codes import stable_order
from tidemark.warehouse.columns.keys import (
    Key,
    Names,
    ascends,
    name_at,
    no_names,
    number_names,
    take_names,
    unify_names,
)
from tidemark.warehouse.integrity.digests import PRIME, hash_sum, text_hashes, value_hashes
from tidemark.warehouse.projections.included_columns import stored_column
from tidemark.warehouse.runs.projection import SortColumns, SortKey

Ints = NDArray[np.int64]

_RADIX_BITS = 32  # of a range of integers that is sorted by digits
_ROWS_PER_CHUNK = 2**15  # digested at a time, so that they stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class PlacedRows:
    """Row i has the value `values[i]`, the place (`files[i]`, `rows[i]`) and the tick `ticks[i]`.

    key       the column of the values
    texts     the values that are texts, by the codes in `values`; None for numbers. In sorted rows they
              ascend, and each is there once; some may belong to no row
    values    (rows,) stored numbers, or codes of texts
    included  stored columns of the other columns (included_columns.py), each (rows,)
    files, rows, ticks
              (rows,) a common file or tick of all rows has stride 0
    """

    key: Key
    texts: TextNames | None
    values: NDArray[Any]
    included: tuple[pa.Array, ...]
    files: Ints
    rows: Ints
    ticks: Ints

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The memory of the rows."""
        numbers = (self.values, self.files, self.rows, self.ticks)
        arrays = (*self.included, *(() if self.texts is None else (self.texts,)))
        return sum(one.nbytes if any(one.strides) else one.itemsize for one in numbers) + sum(
            int(one.nbytes) for one in arrays
        )

    def part(self, start: int, stop: int) -> PlacedRows:
        """Rows start..stop (exclusive)."""
        stop = max(start, stop)
        included = tuple(column[start:stop] for column in self.included)
        numbers = (column[start:stop] for column in (self.files, self.rows, self.ticks))
        return PlacedRows(self.key, self.texts, self.values[start:stop], included, *numbers)

    def take(self, chosen: NDArray[Any]) -> PlacedRows:
        """The rows with these indices."""
        indices = arrow_array(chosen)
        included = tuple(column.take(indices) for column in self.included)
        numbers = (_taken(column, chosen) for column in (self.files, self.rows, self.ticks))
        return PlacedRows(self.key, self.texts, self.values[chosen], included, *numbers)

    def names(self, rows: NDArray[Any]) -> Names:
        """The names of the values of the rows with these indices."""
        values = self.values[rows]
        return number_names(self.key, values) if self.texts is None else take_names(self.texts, values)

    def sort_key(self, i: int) -> SortKey:
        """The sort key of row i: the name of its value."""
        return (name_at(self.names(np.array([i])), 0),)

    def sort_columns(self, rows: NDArray[Any]) -> SortColumns:
        """The names of the values of the rows with these indices."""
        return (self.names(rows),)

    def ascends(self) -> bool:
        """Whether the rows are in order."""
        if self.texts is None:
            return ascends([number_names(self.key, self.values)])
        return ascends([self.texts]) and ascends([self.values])

    def digest(self, *, with_places: bool = True) -> int:
        """The sum of the hashes of the rows, modulo 2**64; of all but their places without `with_places`."""
        hashes, total = None if self.texts is None else text_hashes(self.texts), 0
        with np.errstate(over="ignore"):
            for start in range(0, len(self), _ROWS_PER_CHUNK):
                part = self.part(start, start + _ROWS_PER_CHUNK)
                words = part.values.view(np.uint64) if hashes is None else hashes[part.values]
                places = (part.files, part.rows) if with_places else ()
                factor = PRIME  # of the ticks, in `hash_sum`
                for column in (*(one.view(np.uint64) for one in places), *map(value_hashes, part.included)):
                    factor = factor * PRIME
                    words = words + column * factor
                total += hash_sum(words, part.ticks)
        return total % 2**64


def no_rows(key: Key, included: Sequence[Key]) -> PlacedRows:
    """No rows of an index on the first column that includes the others."""
    nothing = np.empty(0, np.int64)
    texts: Any = no_names(key) if key.is_text else None
    values = np.empty(0, np.float64) if key.is_double else nothing
    columns = tuple(stored_column(one, pa.nulls(0)) for one in included)
    return PlacedRows(key, texts, values, columns, nothing, nothing, nothing)


def sort_rows(parts: Sequence[PlacedRows], *, merged: bool = False) -> PlacedRows:
    """The rows of all parts together, at least one part, sorted; with `merged` each part is sorted."""
    if merged and len(parts) == 1:
        return parts[0]
    rows = _joined(parts)
    values = rows.values
    if bool(np.all(values[:-1] <= values[1:])):
        return rows
    return rows.take(_order(values, merged=merged))


def _order(values: NDArray[Any], *, merged: bool) -> NDArray[np.intp]:
    """The permutation that sorts values of which there are some."""
    if merged:
        return np.argsort(values, kind="stable")  # a stable sort finds the sorted parts
    if values.dtype.kind == "i":
        low, high = int(values.min()), int(values.max())
        if (high - low).bit_length() <= _RADIX_BITS:
            return stable_order(values - low)
    return np.argsort(values)


def _joined(parts: Sequence[PlacedRows]) -> PlacedRows:
    """The rows of all parts, one part after the other, with one list of texts."""
    first = parts[0]
    values = [part.values for part in parts]
    texts = first.texts
    if texts is not None:
        names, codes = unify_names([part.texts for part in parts if part.texts is not None])
        texts = names  # type: ignore[assignment]  # names of texts are texts
        values = [code[own] for code, own in zip(codes, values, strict=True)]
    return PlacedRows(
        first.key,
        texts,
        values[0] if len(parts) == 1 else np.concatenate(values),
        tuple(_concatenated(columns) for columns in zip(*(part.included for part in parts), strict=True)),
        *(_common([getattr(part, name) for part in parts]) for name in ("files", "rows", "ticks")),
    )


def _concatenated(columns: Sequence[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _common(columns: Sequence[Ints]) -> Ints:
    """The columns, one after the other; of stride 0 if all numbers are the same."""
    filled = [column for column in columns if len(column)]
    if not filled:
        return columns[0]
    first = filled[0][:1]
    if all(np.all(column[[0, -1]] == first) for column in filled) and all(
        np.all(column == first) for column in filled
    ):
        return np.broadcast_to(first.copy(), (sum(map(len, filled)),))
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _taken(column: Ints, chosen: NDArray[Any]) -> Ints:
    """The items with these indices; a common one stays common."""
    if len(column) and not any(column.strides):
        return np.broadcast_to(column[:1], (len(chosen),))
    taken: Ints = column[chosen]
    return taken
