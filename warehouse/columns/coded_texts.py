"""Text columns that are dictionaries: their names, their size as plain text, and unused entries taken out.

Parquet stores texts that repeat as a dictionary for each row group, and indices. Arrow reads and writes both
as they are, so a text that repeats is copied, hashed and compared once. Each chunk of a column has a
dictionary of its own. Cost: O(rows + entries).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_array, zero_for_null
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools

_TYPES = {pa.dictionary(pa.int32(), kind) for kind in (pa.string(), pa.binary())}
_OFFSET_BYTES = 4  # of a text in memory, beside its bytes


def coded_texts(schema: pa.Schema) -> list[str]:
    """The columns that are dictionaries of text or bytes, as Arrow reads and writes them."""
    return [field.name for field in schema if field.type in _TYPES]


def plain_bytes(rows: pa.Table) -> int:
    """The memory that the rows take once texts in dictionaries are texts."""
    coded, size = coded_texts(rows.schema), 0
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        size += sum(map(_text_bytes, column.chunks)) if name in coded else column.nbytes
    return size


def _text_bytes(chunk: pa.DictionaryArray) -> int:
    lengths = as_numpy(zero_for_null(pc.binary_length(chunk.dictionary)))
    return _OFFSET_BYTES * len(chunk) + int(lengths.take(_codes(chunk)).sum(dtype=np.int64))


def with_used_entries(rows: pa.Table, coded: Sequence[str]) -> pa.Table:
    """The rows with one dictionary for each of these columns, of the entries that some row has."""
    if not coded:
        return rows
    for name in coded:
        for chunk in rows.column(name).chunks:
            _codes(chunk)  # a check: Arrow renumbers without one, and would read beyond the entries
    rows = rows.unify_dictionaries()
    for name in coded:
        column = rows.column(name)
        used = np.zeros(max((len(chunk.dictionary) for chunk in column.chunks), default=0), np.bool_)
        for chunk in column.chunks:
            used[_codes(chunk)] = True
        if not used.all():
            chunks = [_renumbered(chunk, used) for chunk in column.chunks]
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.chunked_array(chunks))
    return rows


def _renumbered(chunk: pa.DictionaryArray, used: NDArray[np.bool_]) -> pa.DictionaryArray:
    """The rows of a chunk with a dictionary of these entries alone."""
    numbers = np.cumsum(used, dtype=np.int32) - np.int32(1)
    null = as_numpy_bools(chunk.is_null()) if chunk.null_count else None
    codes = numbers.take(as_numpy(zero_for_null(chunk.indices)))
    entries = chunk.dictionary.take(arrow_array(np.flatnonzero(used)))
    return pa.DictionaryArray.from_arrays(arrow_array(codes, null), entries)


def _codes(chunk: pa.DictionaryArray) -> NDArray[np.uint32]:
    """The codes of the rows that are not NULL; IndexError for a code beyond the entries (damage)."""
    codes: NDArray[np.uint32] = as_numpy(chunk.indices.drop_null()).view(np.uint32)  # a negative one is huge
    if len(codes) and codes.max() >= len(chunk.dictionary):
        raise IndexError(f"index {codes.max()} of a dictionary of {len(chunk.dictionary)} entries")
    return codes
