"""A digest of rows that does not ask for their order: whether a batch that comes again has the same rows.

A row is mixed to 64 bits over all of its columns, and the digest is the sum of these numbers modulo 2**64. So
rows may be shared out and reordered at will, and the digests of the parts add. One that differs proves other
rows. Two different multisets of rows have the same digest with probability about 2**-64; who makes rows to
that end succeeds, which is no danger here: the batches are the caller's own.

    numbers, times      their value in 64 bits; decimals their unscaled value in 128
    float, double       their bits as a double; every NaN is one; -0.0 is not 0.0
    text, binary        XXH3 of the bytes
    struct              its fields in order
    list                its items in order, and how many they are
    map                 its entries in any order, and how many they are
    NULL                a number of its own, at any depth

The rows have the warehouse's types (`fitting.fitted`), so the digest does not depend on what types they came
in. It is stored nowhere. The mixing is SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sketches.hashing import digest as text_digest
from sketches.row_hashes import splitmix
from warehouse.events import Batches, Share, read_rows
from warehouse.fitting import fitted
from warehouse.measures import flags, numbers
from warehouse.mixing import PRIME
from warehouse.storage import Store

Mixes = NDArray[np.uint64]

_NULL = np.uint64(0x6A09E667F3BCC909)
_ROW = np.uint64(0xBB67AE8584CAA73B)
_NAN = np.uint64(0x7FF8000000000000)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How many rows, and the sum of their mixes modulo 2**64."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % 2**64)


@dataclass(frozen=True, slots=True)
class DigestRows:
    """The fingerprint of one partition of given rows, whose columns are those of `schema` by their order."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Fingerprint]:
        """One fingerprint."""
        yield sum((fingerprint(fitted(batch, self.schema)) for batch in batches), Fingerprint())


@dataclass(frozen=True, slots=True)
class DigestTask:
    """The fingerprint of a batch's rows in some shares of `events`; `schema` has the user's columns."""

    store: Store
    schema: pa.Schema
    batch: Batches
    shares: tuple[Share, ...]

    def __call__(self) -> Fingerprint:
        """The rows are read a row group at a time."""
        names = self.schema.names
        found = read_rows(self.store.filesystem(), self.shares, names, [self.batch])
        rows = (fitted(table.select(names), self.schema) for table in found)
        return sum(map(fingerprint, rows), Fingerprint())


def fingerprint(rows: pa.RecordBatch) -> Fingerprint:
    """The fingerprint of rows of the warehouse's types."""
    mixes = np.full(rows.num_rows, _ROW)
    for column in rows.columns:
        mixes = _mixed(mixes + _values(column))
    return Fingerprint(rows.num_rows, int(mixes.sum(dtype=np.uint64)))


def _mixed(words: Mixes) -> Mixes:
    return splitmix(words + PRIME)


def _values(column: pa.Array) -> Mixes:
    """A number for each value of the column, NULL included."""
    kind = column.type
    if pa.types.is_struct(kind):
        found = np.full(len(column), _ROW)
        for part in column.flatten():
            found = _mixed(found + _values(part))
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
        found[flags(column.is_null())] = _NULL
    return found


def _items(column: pa.Array, *, ordered: bool) -> Mixes:
    """Of each list the sum of its items' mixes, each with its place where that counts, and their number."""
    counts = numbers(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    ends = np.cumsum(counts)
    found = _mixed(_values(pc.list_flatten(column)))
    if ordered:
        places = np.arange(len(found)) - np.repeat(ends - counts, counts)
        found = _mixed(found + places.astype(np.uint64) * PRIME)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(found, dtype=np.uint64)])
    return _mixed((sums[ends] - sums[ends - counts]) + counts.astype(np.uint64))


def _decimals(column: pa.Array) -> Mixes:
    """Both halves of the unscaled 128 bits."""
    if not len(column):  # whose buffer may be of any size
        return np.empty(0, np.uint64)
    words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset)
    return _mixed(_mixed(words[::2]) + words[1::2])


def _plain(column: pa.Array) -> Mixes:
    kind = column.type
    if pa.types.is_floating(kind):
        floats = numbers(pc.fill_null(column.cast(pa.float64()), 0.0))
        return np.where(np.isnan(floats), _NAN, floats.view(np.uint64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # As bytes: an engine may have taken bytes for text that are none.
        given = pc.fill_null(column.cast(pa.binary()), b"")
        return np.asarray(text_digest(given))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return numbers(pc.fill_null(column.cast(pa.int64()), 0)).view(np.uint64)
