"""Digests: 64-bit checksums of decoded columns and of multisets of rows.

    column digest   XXH3 of the values in their order (`column_digest`): of a block of a run, or of a column
                    of a row group. It covers decoded values: pages and encodings do not change it.
    row digest      the sum of one hash per row, modulo 2**64 (`fingerprint`, `hash_sum`). It does not depend
                    on the order of rows, and the digests of parts add up to that of the whole. So the digest
                    of a merge is the sum over its inputs, and a load's is the sum over the rows it read.

Different digests prove different values. Two different columns, or multisets of rows, have the same digest
with probability about 2**-64. Digests detect damage, not forgery: an attacker can construct a collision.

The hash of a row mixes the hashes of its columns that are not NULL, each with its place. So a column that
comes later, where older rows are NULL, leaves their hashes as they were:

    numbers, times      the value in 64 bits; for decimals, the unscaled value in 128 bits
    float, double       the bits as a double; all NaN are equal; -0.0 equals 0.0 in the digest of rows alone
    text, binary        a polynomial in B over the bytes, and the length (`text_hashes`)
    struct              the fields in order
    list                the items in order, and their number
    map                 the entries in any order, and their number
    NULL                nothing in a column; inside of lists, structs and maps a constant of its own
    dictionary          that of the entry

The mixing function is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014). B is odd, hence invertible
modulo 2**64. So changing one byte of a text changes its polynomial, and the products of all bytes of a column
with the powers of B, from its first byte on, give the polynomials of all its texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.warehouse.columns.arrow_buffers import empty_for_null, zero_for_null
from tidemark.warehouse.columns.arrow_types import plain_type
from tidemark.warehouse.columns.value_encoding import as_numpy, as_numpy_bools

Hashes = NDArray[np.uint64]
DigestInput: TypeAlias = pa.ChunkedArray | pa.Array | NDArray[np.int64] | NDArray[np.float64]
_Words: TypeAlias = Iterator[NDArray[Any]]  # the arrays to hash for a chunk of a column
ColumnsByName: TypeAlias = Mapping[str, Any]  # what `columns_by_name` returns

PRIME = np.uint64(0x9E3779B97F4A7C15)  # also the base B of texts
_NULL_HASH = np.uint64(0x6A09E667F3BCC909)
_ROW_SEED = np.uint64(0xBB67AE8584CAA73B)
_NAN_BITS = np.uint64(0x7FF8000000000000)
_WORDS_PER_CHUNK = 2**13  # mixed at a time, so that they stay in the processor's cache
_BYTES_PER_CHUNK = 2**14  # of texts, summed at a time
_MOST_BYTES = 2**31 - 1  # of the texts of an array


# Columns


def columns_by_name(table: pa.Table) -> ColumnsByName:
    """The columns of a table by name: long and double columns without NULL as NumPy arrays, others unchanged.

    Wrapping a column as NumPy takes longer than its digest, so a block is wrapped once, for the digest and
    for the reader.
    """
    return {
        name: as_numpy(column) if column.type.id in _WORD_TYPES and not column.null_count else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def column_digest(column: DigestInput) -> int:
    """The digest of a column's plain type, and of its values and NULLs in their order.

    It does not depend on the chunks, except for dictionaries: entries and indices are digested by chunk.
    """
    if isinstance(column, np.ndarray):
        return _xxh3(column, _WORD_SEEDS[column.dtype])
    kind = column.type
    if kind.id in _WORD_TYPES and not column.null_count:
        return column_digest(as_numpy(column))
    if 0 < len(column) == column.null_count and not pa.types.is_dictionary(kind):
        return _digest_of_nulls(kind, len(column))
    return _digest_of(column)


@lru_cache(maxsize=2**12)
def _digest_of_nulls(kind: pa.DataType, rows: int) -> int:
    """The digest of a column of NULLs: most columns of most row groups of marks have only NULL.

    The bytes under a NULL of a nested type are not digested, so they make no difference.
    """
    return _digest_of(pa.nulls(rows, kind))


def _digest_of(column: pa.Array | pa.ChunkedArray) -> int:
    kind = column.type
    seed = _type_seed(kind)
    chunks = _chunks_of(column)
    if pa.types.is_dictionary(kind):
        for chunk in chunks:
            seed = _xxh3(as_numpy(chunk.indices), seed ^ column_digest(chunk.dictionary))
        return seed
    if pa.types.is_list(kind) and len(column):
        lists = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        digest = _xxh3(_list_lengths(lists), seed ^ column_digest(pc.list_flatten(lists)))
        return _with_nulls(digest, column)
    return _digest_of_words(column, map(_digest_words, chunks))


def _digest_of_words(column: pa.Array | pa.ChunkedArray, words_of_chunks: Iterable[_Words]) -> int:
    """The digest of a column; `words_of_chunks` are the arrays to hash for each of its chunks."""
    kind = plain_type(column.type)
    seed = _type_seed(kind)
    values, lengths = xxhash.xxh3_64(seed=seed), xxhash.xxh3_64(seed=seed)
    hashers: tuple[Any, Any] = values, lengths  # xxhash's own types do not accept NumPy arrays
    for words_of_chunk in words_of_chunks:
        for hasher, words in zip(hashers, words_of_chunk, strict=False):
            hasher.update(words)
    digest = values.intdigest() ^ (lengths.intdigest() if _is_text(kind) else 0)
    return _with_nulls(digest, column)


def _with_nulls(digest: int, column: pa.Array | pa.ChunkedArray) -> int:
    if not column.null_count:
        return digest
    return _xxh3(np.concatenate([as_numpy_bools(chunk.is_null()) for chunk in _chunks_of(column)]), digest)


def _chunks_of(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks: list[pa.Array] = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return chunks


def text_digest(column: pa.ChunkedArray) -> int:
    """The digest that a column of text has without its dictionaries; the indices have 32 bits.

    It is made from the entries: no text is copied out of them alone.
    """
    kind = plain_type(column.type)
    column = pa.chunked_array(chain.from_iterable(map(_parts, column.chunks)), column.type)
    if column.null_count == len(column) or any(chunk.dictionary.null_count for chunk in column.chunks):
        return column_digest(pa.chunked_array(map(_texts_of, column.chunks), kind))
    return _digest_of_words(column, map(_coded_words, column.chunks))


def _parts(chunk: pa.DictionaryArray) -> list[pa.DictionaryArray]:
    """The rows in parts, each with as much text at most as an array of texts can have."""
    longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 1
    rows = _MOST_BYTES // longest
    return [chunk.slice(start, rows) for start in range(0, len(chunk), rows)]


def _texts_of(chunk: pa.DictionaryArray) -> pa.Array:
    return chunk.dictionary.take(chunk.indices)


def _xxh3(words: Any, seed: int) -> int:
    return int(xxhash.xxh3_64_intdigest(words, seed))


@cache
def _is_text(kind: pa.DataType) -> bool:
    return bool(plain_type(kind) in {pa.string(), pa.binary()})


@cache
def _type_seed(kind: pa.DataType) -> int:
    # Parquet and Arrow name the items of lists and maps differently, so nested types share one seed.
    name = "nested" if pa.types.is_nested(kind) else str(plain_type(kind))
    return int(xxhash.xxh3_64_intdigest(name.encode()))


def _digest_words(chunk: pa.Array) -> _Words:
    """The arrays to hash for a chunk: its values; for texts, the bytes and then the lengths."""
    kind = chunk.type
    if _is_text(kind):
        data, offsets = _text_buffers(empty_for_null(chunk.cast(pa.binary())) if chunk.null_count else chunk)
        yield data[int(offsets[0]) : int(offsets[-1])]
        yield np.diff(offsets)
    elif pa.types.is_nested(kind) or pa.types.is_decimal(kind):
        yield value_hashes(chunk)
    else:
        yield as_numpy(zero_for_null(_as_number(chunk)) if chunk.null_count else _as_number(chunk))


def _coded_words(chunk: pa.DictionaryArray) -> _Words:
    """The arrays to hash for a chunk of a dictionary of texts: the same as for its texts.

    If all entries have one length, as codes, names of hosts and identifiers often have, they are copied as
    fixed numbers of bytes, in half the time of texts.
    """
    entries = chunk.dictionary
    data, offsets = _text_buffers(entries)
    length = int(offsets[1] - offsets[0]) if len(entries) else 0
    if chunk.null_count or not length or (np.diff(offsets) != length).any():
        return _digest_words(_texts_of(chunk))
    same = data[int(offsets[0]) : int(offsets[-1])].view(np.dtype((np.void, length)))
    # An index of a damaged file may be negative: then it is greater than all entries, and an error.
    found = same.take(as_numpy(chunk.indices).view(np.uint32))
    return iter((found.view(np.uint8), np.full(len(found), length)))


def _text_buffers(chunk: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes and the offsets of texts without NULL.

    Text i is bytes[offsets[i] : offsets[i + 1]]. The first offset may be greater than 0.
    """
    _, offset_buffer, data = chunk.buffers()
    if not len(chunk) or offset_buffer is None or data is None:
        return np.empty(0, np.uint8), np.zeros(len(chunk) + 1, np.int64)
    is_large = chunk.type in {pa.large_string(), pa.large_binary()}
    width = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(offset_buffer, width, len(chunk) + 1, width.itemsize * chunk.offset)
    return np.frombuffer(data, np.uint8), offsets.astype(np.int64)


def _as_number(array: pa.Array) -> pa.Array:
    """Times and booleans as integers; other arrays unchanged."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8())
    if pa.types.is_timestamp(kind):
        return (array if kind.unit == "us" else array.cast(pa.timestamp("us", kind.tz))).view(pa.int64())
    if pa.types.is_date(kind):
        return array.cast(pa.int32())
    return array


# Columns of 64-bit words are digested most often, so their memory is hashed directly.
_WORD_TYPES = {pa.int64().id, pa.float64().id}
_WORD_SEEDS = {np.dtype(np.int64): _type_seed(pa.int64()), np.dtype(np.float64): _type_seed(pa.float64())}


# Rows


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of rows, and the sum of their hashes modulo 2**64. Fingerprints of parts add."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % 2**64)


def fingerprint(rows: pa.RecordBatch) -> Fingerprint:
    """The fingerprint of rows whose columns have the warehouse's types and order; -0.0 equals 0.0."""
    return Fingerprint(rows.num_rows, int(row_hashes(rows).sum(dtype=np.uint64)))


def row_hashes(rows: pa.RecordBatch) -> Hashes:
    """A hash for each row; as `fingerprint`."""
    hashes = np.full(rows.num_rows, _ROW_SEED)
    with np.errstate(over="ignore"):
        for place, column in enumerate(rows.columns):
            mixed = _mix(hashes + value_hashes(column, signed_zeros=False) + np.uint64(place) * PRIME)
            if column.null_count:
                null = as_numpy_bools(column.is_null())
                mixed[null] = hashes[null]
            hashes = mixed
    return hashes


def name_words(names: NDArray[np.int64] | pa.Array) -> NDArray[np.uint64]:
    """A 64-bit number for each name of a key, shape (k,): integers themselves, hashes of texts and bytes."""
    return names.view(np.uint64) if isinstance(names, np.ndarray) else text_hashes(names)


def hash_sum(
    words: NDArray[np.uint64], ticks: NDArray[np.int64], counts: NDArray[np.int64] | None = None
) -> int:
    """The sum of the hashes of the rows (word, tick), modulo 2**64.

    The arrays have one length. Row i counts `counts[i]` times, or once where `counts` is None.
    """
    total = 0
    with np.errstate(over="ignore"):
        for start in range(0, len(words), _WORDS_PER_CHUNK):
            part = slice(start, start + _WORDS_PER_CHUNK)
            hashes = splitmix(words[part] + ticks[part].view(np.uint64) * PRIME)
            if counts is not None:
                hashes *= counts[part].view(np.uint64)
            total += int(hashes.sum(dtype=np.uint64))
    return total % 2**64


def text_hashes(texts: pa.Array) -> Hashes:
    """A hash for each text or binary: the sum of byte i times B**i, plus length times B, modulo 2**64.

    The array must have no NULL. For a text of more than 16 KB, XXH3 replaces the sum. Linear in the bytes.

    Example: the bytes of "ab" and "c" one after the other are 97, 98, 99. Times the powers of B they are 97,
    98 B, 99 B**2, whose sums are 97 + 98 B and 99 B**2; the latter times B**-2 is 99. The hashes are
    97 + 98 B + 2 B and 99 + 1 B.
    """
    data, offsets = _text_buffers(texts)
    lengths = np.diff(offsets)
    hashes, none_empty = lengths.view(np.uint64) * PRIME, bool(lengths.all())
    start, products = 0, np.empty(_BYTES_PER_CHUNK, np.uint64)
    with np.errstate(over="ignore"):
        while start < len(texts):
            byte_limit = int(offsets[start]) + _BYTES_PER_CHUNK
            stop = max(start + 1, int(np.searchsorted(offsets, byte_limit, side="right")) - 1)
            low, high = int(offsets[start]), int(offsets[stop])
            if high - low > _BYTES_PER_CHUNK:  # a single long text
                hashes[start] += np.uint64(_xxh3(data[low:high], 0))
            elif high > low:
                powers, inverses = _base_powers()
                np.multiply(data[low:high], powers[: high - low], out=products[: high - low])
                filled = slice(start, stop) if none_empty else start + np.flatnonzero(lengths[start:stop])
                begins = offsets[filled] - low
                # The sum of a text that begins at byte k of the chunk has the factor B**k: divide it out.
                hashes[filled] += np.add.reduceat(products[: high - low], begins) * inverses[begins]
            start = stop
    return hashes


@cache
def _base_powers() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """B**i and B**-i modulo 2**64, for i = 0 .. _BYTES_PER_CHUNK."""
    powers = []
    for base in (int(PRIME), pow(int(PRIME), -1, 2**64)):
        factors = np.full(_BYTES_PER_CHUNK + 1, base, np.uint64)
        factors[0] = 1
        powers.append(np.multiply.accumulate(factors))
    return powers[0], powers[1]


def _mix(words: Hashes) -> Hashes:
    return splitmix(words + PRIME)


def value_hashes(column: pa.Array, *, signed_zeros: bool = True) -> Hashes:
    """A hash for each value of the column, NULL included; `signed_zeros` tells -0.0 from 0.0."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        hashes = _coded_hashes(column, signed_zeros)
    elif pa.types.is_struct(kind):
        hashes = np.full(len(column), _ROW_SEED)
        for field in column.flatten():
            hashes = _mix(hashes + value_hashes(field, signed_zeros=signed_zeros))
    elif pa.types.is_map(kind):
        entries = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        hashes = _list_hashes(column.cast(entries), signed_zeros, ordered=False)
    elif pa.types.is_list(kind):
        hashes = _list_hashes(column, signed_zeros, ordered=True)
    elif pa.types.is_decimal(kind):
        hashes = _decimal_hashes(column)
    else:
        hashes = _mix(_scalar_words(column, signed_zeros))
    if column.null_count:
        hashes[as_numpy_bools(column.is_null())] = _NULL_HASH
    return hashes


def _coded_hashes(column: pa.DictionaryArray, signed_zeros: bool) -> Hashes:
    """The hashes of the entries, by the indices; for NULL the hash of any entry."""
    if column.null_count == len(column):
        return np.full(len(column), _NULL_HASH)
    entries = value_hashes(column.dictionary, signed_zeros=signed_zeros)
    return entries.take(as_numpy(zero_for_null(column.indices)))


def _list_lengths(lists: pa.Array) -> NDArray[np.int64]:
    """The number of items of each list; 0 for NULL."""
    return as_numpy(zero_for_null(pc.list_value_length(lists))).astype(np.int64)


def _list_hashes(column: pa.Array, signed_zeros: bool, *, ordered: bool) -> Hashes:
    """For each list, its length and the sum of its item hashes, mixed; `ordered` adds each item's place."""
    lengths = _list_lengths(column)
    ends = np.cumsum(lengths)
    items = _mix(value_hashes(pc.list_flatten(column), signed_zeros=signed_zeros))
    if ordered:
        places = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
        items = _mix(items + places.astype(np.uint64) * PRIME)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(items, dtype=np.uint64)])
    return _mix((sums[ends] - sums[ends - lengths]) + lengths.astype(np.uint64))


def _decimal_hashes(column: pa.Array) -> Hashes:
    """Hashes of both 64-bit halves of the unscaled 128-bit values."""
    if not len(column):  # the buffer of an empty array may have any size
        return np.empty(0, np.uint64)
    words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset)
    return _mix(_mix(words[::2]) + words[1::2])


def _scalar_words(column: pa.Array, signed_zeros: bool) -> Hashes:
    """64 bits for each value of a column that is not nested or decimal; NULL as 0 or empty text."""
    kind = column.type
    if pa.types.is_floating(kind):
        floats = as_numpy(zero_for_null(column.cast(pa.float64())))
        floats = floats if signed_zeros else floats + 0.0
        return np.where(np.isnan(floats), _NAN_BITS, floats.view(np.uint64))
    if pa.types.is_large_binary(kind):
        return text_hashes(empty_for_null(column))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # As binary: some engines store bytes in text columns that are not valid UTF-8.
        return text_hashes(empty_for_null(column.cast(pa.binary())))
    return as_numpy(zero_for_null(_as_number(column).cast(pa.int64()))).view(np.uint64)
