"""How many rows and keys each group of `events` has, or how often each window has each key, by one sort.

A row is a number: the code of its group, and below it that of its key. Sorted, equal pairs of group and key
stand together. The code of an integer is its distance from the least one. Text has the codes of the
dictionaries with which it is read, whose names are united once. So this way serves columns whose text
repeats, and whose codes fit into a number. Each thread reads files of its own (plain_files.py).

Cost: some tens of nanoseconds a row, a fraction of what a hash table of the pairs takes. Memory: ROW_BYTES
for each row, and COLUMN_BYTES for each column of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.query.reading.costs import most_numbers
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.scans.asked_rows import group_name
from tidemark.query.scans.plain_files import READ_WEIGHT, FileReading, PlainFile, read_row_groups
from tidemark.query.scans.row_source import RowSource
from tidemark.warehouse.columns.arrow_buffers import arrow_table
from tidemark.warehouse.columns.codes import Ints, combine_codes
from tidemark.warehouse.columns.keys import Names, encode_keys, take_names, unify_names
from tidemark.warehouse.columns.value_encoding import as_numpy, single_array

Bools = NDArray[np.bool_]
T = TypeVar("T")

ROW_BYTES, COLUMN_BYTES = 64, 8  # the key, the number and copies of both; the codes of a column of the group
MOST_BITS = 62  # of a number
MOST_SQUARED = 2**31  # rows, whose square is a number
FEW_NAMES, ROWS_A_NAME = 2**12, 4  # text repeats if a row group has few names, or so many rows for each


class _Unfit(Exception):
    """The rows do not fit into numbers."""


class _Piece(NamedTuple):
    """The rows of a row group that belong to a group.

    columns: of each column of the group and of the key the places among its names, or its numbers.
    names: of each column that is text.
    has_no_key: for each row; empty if all have one. buckets: that of each row, where there are some.
    rows: how many the row group has.
    """

    columns: list[Ints]
    names: list[Names | None]
    has_no_key: Bools
    buckets: Ints | None
    rows: int
    is_live: bool


class _Column(NamedTuple):
    """A column of all pieces.

    size: the number of codes. least: the number of code 0.
    names: of text, ascending. places: for each piece the places of its names among these.
    """

    size: int
    least: int = 0
    names: Names | None = None
    places: Sequence[Ints] = ()

    def codes(self, pieces: Sequence[_Piece], number: int, place: int) -> Ints:
        """The codes of the rows of a piece; they mean nothing for rows without a key."""
        own = pieces[number].columns[place]
        if self.names is None:
            return own - self.least
        return self.places[number][own] if len(self.places[number]) else own

    def names_of(self, codes: Ints) -> Names:
        """The names of codes."""
        return codes + self.least if self.names is None else take_names(self.names, codes)


class _Coded(NamedTuple):
    """All rows as numbers.

    pairs: of the rows, those of history first; history: how many these are.
    by, key: the columns. sizes: how many codes the columns of the group have, and the buckets; low: the
        least bucket. bits: that the key has in a number; the code `key.size` stands for a row without a key.
    """

    pairs: Ints
    history: int
    by: list[_Column]
    key: _Column
    sizes: list[int]
    low: int
    bits: int

    @property
    def groups(self) -> int:
        """How many groups there may be, each with each bucket."""
        return prod(self.sizes)


class PairRows(NamedTuple):
    """The rows of each key in each bucket that has some, ascending by bucket, then key; arrays (pairs,).

    code: of the key; codes ascend as keys do, and names_of gives their names.
    history, live: its rows.
    """

    bucket: Ints
    code: Ints
    history: Ints
    live: Ints
    names_of: Callable[[Ints], Names]


def count_pairs(source: RowSource, *, squares: bool, memory: int, reading: FileReading) -> pa.Table | None:
    """The names of each group, ascending, and n, m, nulls, keys and, if asked, squares of `KeyParts`.

    source: it has plain files. memory: how many bytes may be used. None: the rows do not fit into numbers.

    Errors and stops as those of `read_row_groups`.
    """
    return _of_rows(source, memory, reading, lambda coded: _counted(source, coded, squares=squares))


def rows_of_pairs(source: RowSource, *, memory: int, reading: FileReading) -> PairRows | None:
    """The rows of each key in each bucket of the source, which has no columns of a group.

    The parameters, None, errors and stops are those of `count_pairs`.
    """
    return _of_rows(source, memory, reading, _pair_rows)


def _of_rows(source: RowSource, memory: int, reading: FileReading, found: Callable[[_Coded], T]) -> T | None:
    """What `found` makes of all rows; None as that of `count_pairs`."""
    files = sorted(source.plain, key=lambda file: file.is_live)
    sizes = np.array([file.rows for file in files], np.int64)
    if int(sizes.sum()) * (ROW_BYTES + COLUMN_BYTES * len(source.by)) > memory:
        return None

    def read(first: int, last: int) -> list[_Piece]:
        pieces = []
        for piece in read_row_groups(files[first:last], lambda *given: _piece(source, *given), reading):
            most = max(FEW_NAMES, piece.rows // ROWS_A_NAME)
            if any(own is not None and len(own) > most for own in piece.names):
                raise _Unfit
            pieces.append(piece)
        return pieces

    try:
        pieces = [piece for share in each_share(read, shares_of(sizes, READ_WEIGHT)) for piece in share]
        return found(_coded(source, pieces, reading)) if pieces else None
    except _Unfit:
        return None


def _piece(source: RowSource, table: pa.Table, file: PlainFile) -> _Piece:
    keys = (*source.by, *source.key)
    stored = [single_array(table.column(name)) for name in file.columns]
    coded = [encode_keys(key, column) for key, column in zip(keys, stored, strict=False)]
    names = [None if one.codes is None else one.names for one in coded]
    ticks = as_numpy(stored[-1]) if len(stored) > len(keys) else None
    is_out = np.any([one.null for one in coded[:-1]], axis=0)
    if ticks is not None:
        is_out |= ~source.range.holds(ticks)
    columns = [np.asarray(one.names) if one.codes is None else one.codes for one in coded]
    has_no_key, buckets = coded[-1].null, None
    if ticks is not None and source.buckets is not None:
        buckets = source.buckets.of_ticks(ticks)
    if is_out.any():
        kept = ~is_out
        columns, has_no_key = [one[kept] for one in columns], has_no_key[kept]
        buckets = None if buckets is None else buckets[kept]
    has_no_key = has_no_key if has_no_key.any() else has_no_key[:0]
    return _Piece(columns, names, has_no_key, buckets, len(table), file.is_live)


def _column(pieces: Sequence[_Piece], place: int) -> _Column:
    """One of the columns."""
    parts = [own for piece in pieces if (own := piece.names[place]) is not None]
    if parts:
        names, places = unify_names(parts)
        return _Column(len(names), 0, names, places)
    is_key = place == len(pieces[0].columns) - 1
    known = [
        piece.columns[place][~piece.has_no_key] if is_key and len(piece.has_no_key) else piece.columns[place]
        for piece in pieces
    ]
    least = min((int(own.min()) for own in known if len(own)), default=0)
    size = max((int(own.max()) for own in known if len(own)), default=least) - least + 1
    if size.bit_length() > MOST_BITS:
        raise _Unfit
    return _Column(size, least)


def _coded(source: RowSource, pieces: Sequence[_Piece], reading: FileReading) -> _Coded:
    """The rows of the pieces, of which those of history come first."""
    *by, key = (_column(pieces, place) for place in range(len(source.by) + 1))
    sizes, low = [column.size for column in by], 0
    if source.buckets is not None:
        low = int(source.buckets.edges.min())
        sizes.append(int(source.buckets.edges.max()) - low + 1)
    edges = np.cumsum([0, *(len(piece.columns[-1]) for piece in pieces)])
    groups, bits = prod(sizes), key.size.bit_length()
    if groups > most_numbers(int(edges[-1])) or groups.bit_length() + bits > MOST_BITS:
        raise _Unfit
    pairs = np.empty(edges[-1], np.int64)

    def code(first: int, last: int) -> None:
        for number in range(first, last):
            reading.check()
            piece = pieces[number]
            codes = [column.codes(pieces, number, place) for place, column in enumerate(by)]
            codes += [] if piece.buckets is None else [piece.buckets - low]
            keys = key.codes(pieces, number, len(by))
            if len(piece.has_no_key):
                keys = np.where(piece.has_no_key, key.size, keys)
            own = pairs[edges[number] : edges[number + 1]]
            np.left_shift(combine_codes(codes, sizes), bits, out=own)
            own |= keys

    each_share(code, shares_of(np.diff(edges)))
    reading.check()
    history = int(edges[sum(not piece.is_live for piece in pieces)])
    return _Coded(pairs, history, by, key, sizes, low, bits)


def _counted(source: RowSource, coded: _Coded, *, squares: bool) -> pa.Table:
    """See `count_pairs`."""
    pairs, live = coded.pairs, coded.pairs[coded.history :].copy()
    group, counts = _count(pairs, live, coded.groups, coded.bits, coded.key.size, squares=squares)
    codes = np.unravel_index(group, coded.sizes)
    names = [column.names_of(own) for column, own in zip(coded.by, codes, strict=False)]
    if source.buckets is not None:
        names.append(codes[-1] + coded.low)
    return arrow_table({**{group_name(i): own for i, own in enumerate(names, 1)}, **counts})


def _pair_rows(coded: _Coded) -> PairRows:
    """See `rows_of_pairs`."""
    of_live, live_rows = _each_once(coded.pairs[coded.history :].copy())
    pairs, rows = _each_once(coded.pairs)
    live = np.zeros(len(pairs), np.int64)
    live[pairs.searchsorted(of_live)] = live_rows
    code = pairs & (1 << coded.bits) - 1
    has_key = code != coded.key.size
    bucket, code, rows, live = (one[has_key] for one in (pairs >> coded.bits, code, rows, live))
    return PairRows(bucket + coded.low, code, rows - live, live, coded.key.names_of)


def _each_once(pairs: Ints) -> tuple[Ints, Ints]:
    """Each pair once, ascending, and how often it is there; they are sorted in place."""
    pairs.sort()
    is_first = np.ones(len(pairs), bool)
    np.not_equal(pairs[1:], pairs[:-1], out=is_first[1:])
    places = np.flatnonzero(is_first)
    return pairs[places], np.diff(places, append=len(pairs))


def _count(
    pairs: Ints, live: Ints, groups: int, bits: int, no_key: int, *, squares: bool
) -> tuple[Ints, dict[str, Ints]]:
    """The number of each group that has rows, ascending, and by name the columns of `KeyParts`.

    pairs: are sorted in place. live: those of the live rows, which are among them.
    bits: that the key has in a number; no_key: stands in its place where a row has none.
    """
    pairs.sort()
    firsts = np.arange(groups + 1) << bits  # the least pair of each group
    edges, ends = pairs.searchsorted(firsts), pairs.searchsorted(firsts[:-1] + no_key)
    filled = np.flatnonzero(np.diff(edges))
    starts, ends, stops = edges[filled], ends[filled], edges[filled + 1]
    is_first = np.ones(len(pairs), bool)
    np.not_equal(pairs[1:], pairs[:-1], out=is_first[1:])
    m = np.bincount(live[live & (1 << bits) - 1 != no_key] >> bits, minlength=groups)[filled]
    equal = len(pairs) - np.count_nonzero(is_first)  # to the one before
    if 2 * equal < len(pairs):  # the rarer ones are listed
        others = np.flatnonzero(~is_first)
        keys = stops - starts - others.searchsorted(stops) + others.searchsorted(starts)
    else:
        places = np.flatnonzero(is_first)
        keys = places.searchsorted(stops) - places.searchsorted(starts)
    nulls = stops - ends
    counts = {"n": ends - starts - m, "m": m, "nulls": nulls, "keys": keys - (nulls > 0)}
    if squares:
        if len(pairs) >= MOST_SQUARED:
            raise _Unfit
        places = np.flatnonzero(is_first)
        rows, firsts = np.diff(places, append=len(pairs)), places.searchsorted(starts)
        summed = np.add.reduceat(rows * rows, firsts) if len(firsts) else firsts
        counts["squares"] = summed - nulls**2
    return filled, counts
