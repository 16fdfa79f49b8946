"""Digests: 64 bits that tell whether rows, or the bytes that a file was decoded to, are those that they were.

Two kinds, for two questions.

    of a column   XXH3 of the values in their order (`column_digest`): a block of a run, a column of a row
                  group. It is that of the decoded values, whatever pages and encodings they lie in.
    of rows       the sum over the rows of a number each, modulo 2**64 (`fingerprint`, `mixed_sum`): rows may
                  be shared out and reordered at will, and the digests of the parts add. So a merge has the
                  sum of its inputs, and a load that of the rows it read.

A digest that differs proves other values. Two different columns, or multisets of rows, have the same one with
probability about 2**-64; who makes them to that end succeeds: digests find damage, not forgery.

The number of a row mixes all of its columns:

    numbers, times      their value in 64 bits; decimals their unscaled value in 128
    float, double       their bits as a double; every NaN is one; -0.0 is not 0.0
    text, binary        its bytes as the digits of a number in base B, and how many they are
    struct              its fields in order
    list                its items in order, and how many they are
    map                 its entries in any order, and how many they are
    NULL                a number of its own, at any depth

The mixing is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014). B is odd, so the number of a text
is another wherever one byte is, and that of all texts of a column is a matter of their running sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.warehouse.columns.arrow_types import plain_type
from tidemark.warehouse.columns.measures import as_numpy, as_numpy_bools

Hashes = NDArray[np.uint64]
DigestInput: TypeAlias = pa.ChunkedArray | pa.Array | NDArray[np.int64] | NDArray[np.float64]
ColumnsByName: TypeAlias = Mapping[str, Any]  # what `columns_of` returns

PRIME = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6A09E667F3BCC909)
_ROW = np.uint64(0xBB67AE8584CAA73B)
_NAN = np.uint64(0x7FF8000000000000)
_AT_A_TIME = 2**13  # words mixed at a time: they stay in the processor's cache
_BYTES_AT_A_TIME = 2**14  # of texts

# Not by pa.array or pa.scalar: they import pandas, which no reader needs.
_ZERO = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(bytes(8))])
_EMPTY = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])


def _filled(array: pa.Array, filling: pa.Array) -> pa.Array:
    """The array with the one value of the other in place of NULL."""
    return pc.fill_null(array, filling.cast(array.type)[0])


# Columns


def columns_by_name(table: pa.Table) -> ColumnsByName:
    """A table's columns by name: those of 64-bit numbers, without NULL, as NumPy arrays; others unchanged.

    Wrapping a column takes longer than its digest does, so each block that is read is wrapped once, for both.
    """
    return {
        name: as_numpy(column) if column.type.id in _WORDS else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def column_digest(column: DigestInput) -> int:
    """The digest of a column's values and NULLs in their order, and of their plain type.

    Chunks do not matter, but for dictionaries: of these entries and indices count, a chunk at a time.
    """
    if isinstance(column, np.ndarray):
        return _xxh3(column, _WORD_SEEDS[column.dtype])
    kind = column.type
    if kind.id in _WORDS and not column.null_count:
        return column_digest(as_numpy(column))
    seed = _seed(kind)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if pa.types.is_dictionary(kind):
        for chunk in chunks:
            seed = _xxh3(as_numpy(chunk.indices), seed ^ column_digest(chunk.dictionary))
        return seed
    if pa.types.is_list(kind) and len(column):
        lists = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        found = _xxh3(_lengths(lists), seed ^ column_digest(pc.list_flatten(lists)))
    else:
        values, ends = xxhash.xxh3_64(seed=seed), xxhash.xxh3_64(seed=seed)
        for chunk in chunks:
            for hasher, words in zip((values, ends), _words(chunk), strict=False):
                _feed(hasher, words)
        found = values.intdigest() ^ (ends.intdigest() if _is_text(kind) else 0)
    if column.null_count:
        nulls = np.concatenate([as_numpy_bools(chunk.is_null()) for chunk in chunks])
        return _xxh3(nulls, found)
    return found


def _feed(hasher: Any, words: Any) -> None:
    hasher.update(words)


def _xxh3(words: Any, seed: int) -> int:
    return int(xxhash.xxh3_64_intdigest(words, seed))


@cache
def _is_text(kind: pa.DataType) -> bool:
    return bool(plain_type(kind) in {pa.string(), pa.binary()})


@cache
def _seed(kind: pa.DataType) -> int:
    # Parquet and Arrow give other names to what lists and maps hold.
    name = "nested" if pa.types.is_nested(kind) else str(plain_type(kind))
    return int(xxhash.xxh3_64_intdigest(name.encode()))


def _words(chunk: pa.Array) -> Iterator[NDArray[Any]]:
    """What is hashed of an array: its values, and of texts also how long each is."""
    kind = chunk.type
    if _is_text(kind):
        data, offsets = _texts(_filled(chunk.cast(pa.binary()), _EMPTY) if chunk.null_count else chunk)
        yield data[int(offsets[0]) : int(offsets[-1])]
        yield np.diff(offsets)
    elif pa.types.is_nested(kind) or pa.types.is_decimal(kind):
        yield value_hashes(chunk)
    else:
        yield as_numpy(_filled(_number(chunk), _ZERO) if chunk.null_count else _number(chunk))


def _texts(chunk: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of texts without NULL, and where each of them begins and the last one ends."""
    _, ends, data = chunk.buffers()
    if not len(chunk) or ends is None or data is None:
        return np.empty(0, np.uint8), np.zeros(len(chunk) + 1, np.int64)
    wide = chunk.type in {pa.large_string(), pa.large_binary()}
    kind = np.dtype(np.int64 if wide else np.int32)
    offsets = np.frombuffer(ends, kind, len(chunk) + 1, kind.itemsize * chunk.offset)
    return np.frombuffer(data, np.uint8), offsets.astype(np.int64)


def _number(array: pa.Array) -> pa.Array:
    """Times and booleans as numbers; numbers as they are."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_date(kind):
        return array.cast(pa.int32())
    return array


# Columns of 64-bit words are asked for most: they may come as they lie in memory.
_WORDS = {pa.int64().id, pa.float64().id}
_WORD_SEEDS = {np.dtype(np.int64): _seed(pa.int64()), np.dtype(np.float64): _seed(pa.float64())}


# Rows


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many rows, and the sum of their numbers modulo 2**64."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % 2**64)


def fingerprint(rows: pa.RecordBatch) -> Fingerprint:
    """The fingerprint of rows of the warehouse's types."""
    mixes = np.full(rows.num_rows, _ROW)
    for column in rows.columns:
        mixes = _mixed(mixes + value_hashes(column))
    return Fingerprint(rows.num_rows, int(mixes.sum(dtype=np.uint64)))


def hash_sum(
    words: NDArray[np.uint64], ticks: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> int:
    """The sum over rows (word, tick) of 64 mixed bits each, each as often as it counts, modulo 2**64."""
    total = 0
    with np.errstate(over="ignore"):
        for at in range(0, len(words), _AT_A_TIME):
            part = slice(at, at + _AT_A_TIME)
            mixes = splitmix(words[part] + ticks[part].view(np.uint64) * PRIME)
            if counts is not None:
                mixes *= counts[part].view(np.uint64)
            total += int(mixes.sum(dtype=np.uint64))
    return total % 2**64


def text_hashes(texts: pa.Array) -> Hashes:
    """A number for each text or binary, none of them NULL: sum of byte i times B**i, and the length.

    Of a text of more than 16 KB it is XXH3 in place of the sum.
    """
    data, offsets = _texts(texts)
    found = np.diff(offsets).view(np.uint64) * PRIME
    at = 0
    with np.errstate(over="ignore"):
        while at < len(texts):
            most = int(offsets[at]) + _BYTES_AT_A_TIME
            stop = max(at + 1, int(np.searchsorted(offsets, most, side="right")) - 1)
            low, high = int(offsets[at]), int(offsets[stop])
            if high - low > _BYTES_AT_A_TIME:  # one text
                found[at] += np.uint64(_xxh3(data[low:high], 0))
            else:
                powers, inverses = _powers()
                sums = np.zeros(high - low + 1, np.uint64)
                np.cumsum(data[low:high] * powers[: high - low], out=sums[1:])
                begin, end = offsets[at:stop] - low, offsets[at + 1 : stop + 1] - low
                # The sum of a text that begins at byte k has the factor B**k: it is taken out again.
                found[at:stop] += (sums[end] - sums[begin]) * inverses[begin]
            at = stop
    return found


@cache
def _powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """B**i and B**-i modulo 2**64, for as many i as bytes are taken at a time, and one more."""
    result = []
    for base in (int(PRIME), pow(int(PRIME), -1, 2**64)):
        steps = np.full(_BYTES_AT_A_TIME + 1, base, np.uint64)
        steps[0] = 1
        result.append(np.multiply.accumulate(steps))
    return result[0], result[1]


def _mixed(words: Hashes) -> Hashes:
    return splitmix(words + PRIME)


def value_hashes(column: pa.Array) -> Hashes:
    """A number for each value of the column, NULL included."""
    kind = column.type
    if pa.types.is_struct(kind):
        found = np.full(len(column), _ROW)
        for part in column.flatten():
            found = _mixed(found + value_hashes(part))
    elif pa.types.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        found = _items(column.cast(entries), ordered=False)
    elif pa.types.is_list(kind):
        found = _items(column, ordered=True)
    elif pa.types.is_decimal(kind):
        found = _decimals(column)
    else:
        found = _mixed(_plain(column))
    if column.null_count:
        found[as_numpy_bools(column.is_null())] = _NULL
    return found


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """How many items each list has; none where it is NULL."""
    return as_numpy(_filled(pc.list_value_length(lists), _ZERO)).astype(np.int64)


def _items(column: pa.Array, *, ordered: bool) -> Hashes:
    """Of each list the sum of its items' mixes, each with its place where that counts, and their number."""
    counts = _lengths(column)
    ends = np.cumsum(counts)
    found = _mixed(value_hashes(pc.list_flatten(column)))
    if ordered:
        places = np.arange(len(found)) - np.repeat(ends - counts, counts)
        found = _mixed(found + places.astype(np.uint64) * PRIME)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(found, dtype=np.uint64)])
    return _mixed((sums[ends] - sums[ends - counts]) + counts.astype(np.uint64))


def _decimals(column: pa.Array) -> Hashes:
    """Both halves of the unscaled 128 bits."""
    if not len(column):  # whose buffer may be of any size
        return np.empty(0, np.uint64)
    words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset)
    return _mixed(_mixed(words[::2]) + words[1::2])


def _plain(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_floating(kind):
        floats = as_numpy(_filled(column.cast(pa.float64()), _ZERO))
        return np.where(np.isnan(floats), _NAN, floats.view(np.uint64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # As bytes: an engine may have taken bytes for text that are none.
        return text_hashes(_filled(column.cast(pa.binary()), _EMPTY))
    return as_numpy(_filled(_number(column).cast(pa.int64()), _ZERO)).view(np.uint64)
