"""The rows of a scan by group, where groups are integers that lie close together by the statistics of files.

The code of a row is the number of its group among all that there may be. Rows stay as they were read, in
pieces that fit into the cache of a processor. A question goes through the pieces in shares, which threads do
at the same time; each piece is sorted by code, with a radix sort if there are more than a few:

* Exact sums and ends add the stretches of a piece. Nothing but results is written to memory.
* Ranks need the numbers of each group together (reading/number_parts.py). Each share knows where its numbers
  of a group begin.

With many groups a piece has short stretches, so all pieces of a share are sorted together.

Cost: O(rows), some nanoseconds a row. Memory: `bytes_a_row`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.query.reading.number_parts import NumberParts
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.reading.sorted_parts import Ints, RankedValues, no_ends
from tidemark.query.scans.divided_rows import present
from tidemark.query.scans.plain_files import FileReading, PlainFile, Rows, read_rows
from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.columns.code_sums import CodeSums, EachSums
from tidemark.warehouse.columns.codes import combine_codes, stable_order, unique_codes
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, single_array

Codes = NDArray[np.integer[Any]]
Span = tuple[int, int]  # the least number of a column, and how many there are from it to the greatest

MOST_CODES = 2**16  # that are sorted in one pass
PIECE_ROWS = 2**15
READ_WEIGHT = 8  # how many times as long as to go through a row it takes to read it
_BYTES, _COLUMN_BYTES = 48, 16  # of a row: as it was read, sorted, and put in its place
FEW_GROUPS = 2**6  # whose stretches are taken piece by piece
FEWEST_GROUPS = 8  # that are found sooner one by one than by a sort
_NUMBERS, _LIVE, _NANS, _NULLS = range(4)  # rows of counts


class _Outside(Exception):
    """A number is not in the span of its column."""


class Piece(NamedTuple):
    """Some rows whose values are numbers: the code of each, and its value."""

    codes: Codes
    numbers: NDArray[Any]


class Stretches(NamedTuple):
    """The numbers of a piece by group; those of ``groups[i]`` are ``numbers[edges[i] : edges[i + 1]]``."""

    numbers: NDArray[Any]
    edges: Ints
    groups: Ints


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows by group, in any order; the questions are those of `NumberParts`, about groups.

    stored: for each column of the group its stored values. counts: (groups, 4), see `ScannedGroups`.
    shares: the pieces of each share. rows: (shares, groups), the numbers of each group in each share.
    codes: that of each group. group_of: the group of each code. dtype: of numbers.
    """

    stored: list[pa.Array]
    counts: Ints
    shares: Sequence[Sequence[Piece]]
    rows: Ints
    codes: Ints
    group_of: Codes
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, table: pa.Table, width: int) -> CodedRows:
        """From `width` columns of the group, which are integers, the value, and whether rows are live.

        The last column is left out if no rows are.
        """
        spans = [_span(column) for column in table.columns[:width]]
        if codes_of(spans) > MOST_CODES:  # the statistics that another tool wrote are wrong
            return cls._of_any(table, width)
        most = max(PIECE_ROWS, codes_of(spans))
        batches = [batch for batch in table.to_batches(max_chunksize=most) if len(batch)]

        def rows(first: int, last: int) -> Iterator[Rows]:
            return (_rows(batch, width) for batch in batches[first:last])

        return cls._of_spans(spans, rows, [len(batch) for batch in batches], _dtype(table, width))

    @classmethod
    def of_files(
        cls,
        files: Sequence[PlainFile],
        spans: Sequence[Span],
        measure: Measure,
        by: Sequence[Key],
        reading: FileReading,
    ) -> CodedRows | None:
        """From files; None if their numbers are not in the spans, which statistics tell."""
        most = max(PIECE_ROWS, codes_of(spans))

        def rows(first: int, last: int) -> Iterator[Rows]:
            return read_rows(files[first:last], measure, by, most, reading)

        try:
            return cls._of_spans(spans, rows, [file.rows for file in files], measure.dtype, READ_WEIGHT)
        except _Outside:
            return None

    @classmethod
    def _of_spans(
        cls,
        spans: Sequence[Span],
        rows: Callable[[int, int], Iterator[Rows]],
        sizes: Sequence[int],
        dtype: np.dtype[Any],
        weight: int = 1,
    ) -> CodedRows:
        """rows: of a share of items of these sizes."""
        codes = codes_of(spans)

        def code_of(groups: Sequence[Ints]) -> Ints:
            numbers = [column - low for column, (low, _) in zip(groups, spans, strict=True)]
            for own, (_, size) in zip(numbers, spans, strict=True):
                if own.min(initial=0) < 0 or own.max(initial=0) >= size:
                    raise _Outside
            return combine_codes(numbers, [size for _, size in spans])

        shares = shares_of(np.array(sizes, np.int64), weight)
        found = each_share(lambda first, last: _share(rows(first, last), code_of, codes), shares)
        counts = np.stack([share.counts for share in found]).sum(axis=0)
        filled = np.flatnonzero(counts[_NUMBERS] + counts[_NANS] + counts[_NULLS])
        places = np.unravel_index(filled, [size for _, size in spans])
        stored = [arrow_array(own + low) for own, (low, _) in zip(places, spans, strict=True)]
        return cls._of_shares(stored, found, filled, dtype)

    @classmethod
    def _of_any(cls, table: pa.Table, width: int) -> CodedRows:
        """As `of`, whatever the integers are."""
        coded = [unique_codes(as_numpy(column)) for column in table.columns[:width]]
        combined = combine_codes([own for _, own in coded], [len(names) for names, _ in coded])
        _, firsts, codes = np.unique(combined, return_index=True, return_inverse=True)
        (batch,) = table.combine_chunks().to_batches()
        found = _share(iter([_rows(batch, width)]), lambda _: codes, len(firsts))
        stored = table.select(range(width)).take(arrow_array(firsts))
        stored = list(map(single_array, stored.columns))
        return cls._of_shares(stored, [found], np.arange(len(firsts)), _dtype(table, width))

    @classmethod
    def _of_shares(
        cls, stored: list[pa.Array], shares: Sequence[_Share], filled: Ints, dtype: np.dtype[Any]
    ) -> CodedRows:
        """filled: the codes that have rows, in the order of `stored`."""
        rows = np.array([share.counts[_NUMBERS, filled] for share in shares], np.int64)
        _, m, nans, nulls = np.sum([share.counts for share in shares], axis=0)[:, filled]
        counts = np.stack([rows.sum(axis=0) + nans - m, m, nans, nulls], axis=1)
        group_of = np.zeros(len(shares[0].counts[0]), np.min_scalar_type(max(0, len(filled) - 1)))
        group_of[filled] = np.arange(len(filled))
        return cls(stored, counts, [share.pieces for share in shares], rows, filled, group_of, dtype)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `SortedParts.values_at`."""
        return self.parts.values_at(ranks)

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `SortedParts.same_values_at`."""
        return self.parts.same_values_at(ranks)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `SortedParts.ranks_at`."""
        return self.parts.ranks_at(points)

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each group."""
        return self._totals[0] if self._has_few else self.parts.sums()

    def ends(self) -> NDArray[Any]:
        """(groups, 2): the least and the greatest number of each group, 0 for a group without numbers."""
        return self._totals[1] if self._has_few else self.parts.ends()

    @cached_property
    def parts(self) -> NumberParts:
        """The numbers of each group together."""
        edges = np.concatenate([[0], np.cumsum(self.rows.sum(axis=0))])
        starts = edges[:-1] + np.cumsum(self.rows, axis=0) - self.rows
        found = np.empty(edges[-1], self.dtype)

        def place(share: int, _: int) -> None:
            ends = starts[share].copy()  # where the next number of a group stands
            for numbers, cuts, groups in self._stretches(share):
                sizes = np.diff(cuts)
                columns = (cuts[:-1], cuts[1:], ends[groups], ends[groups] + sizes)
                for first, last, start, stop in zip(*(one.tolist() for one in columns), strict=True):
                    found[start:stop] = numbers[first:last]
                ends[groups] += sizes

        each_share(place, self._each)
        return NumberParts(found, edges)

    @cached_property
    def _totals(self) -> tuple[EachSums, NDArray[Any]]:
        """The sums and the ends of each group."""

        def add(share: int, _: int) -> tuple[EachSums, NDArray[Any]]:
            summer, ends = CodeSums(len(self.counts)), no_ends(len(self.counts), self.dtype)
            for numbers, cuts, groups in self._stretches(share):
                summer.add(numbers, cuts[:-1], groups)
                least, most = (one.reduceat(numbers, cuts[:-1]) for one in (np.minimum, np.maximum))
                ends[groups, 0] = np.minimum(ends[groups, 0], least)
                ends[groups, 1] = np.maximum(ends[groups, 1], most)
            return summer.each(), ends

        sums, ends = zip(*each_share(add, self._each), strict=True)
        found = np.stack([np.min(ends, axis=0)[:, 0], np.max(ends, axis=0)[:, 1]], axis=1)
        found[self.rows.sum(axis=0) == 0] = 0
        return EachSums.added(sums), found

    @property
    def _each(self) -> list[tuple[int, int]]:
        return [(share, share + 1) for share in range(len(self.shares))]

    @property
    def _has_few(self) -> bool:
        return len(self.counts) <= FEW_GROUPS

    def _stretches(self, share: int) -> Iterator[Stretches]:
        """The numbers of a share by group; those of a group in one stretch for each of its pieces."""
        pieces = self.shares[share]
        if pieces and not self._has_few:
            pieces = [Piece(*map(np.concatenate, zip(*pieces, strict=True)))]
        for codes, numbers in pieces:
            if len(self.counts) <= FEWEST_GROUPS:
                own = [numbers[codes == code] for code in self.codes.tolist()]
                filled = np.array([len(one) for one in own], np.int64)
                edges = np.concatenate([[0], np.cumsum(filled[filled > 0])])
                yield Stretches(np.concatenate(own), edges, np.flatnonzero(filled))
                continue
            groups = self.group_of[codes]
            order = stable_order(groups)
            groups = groups[order]
            is_first = np.ones(len(groups) + 1, bool)
            np.not_equal(groups[1:], groups[:-1], out=is_first[1:-1])
            edges = np.flatnonzero(is_first)
            yield Stretches(numbers[order], edges, groups[edges[:-1]].astype(np.int64))


def codes_of(spans: Sequence[Span]) -> int:
    """How many codes there are."""
    return prod(size for _, size in spans)


def bytes_a_row(columns: int) -> int:
    """How many bytes a row takes, with so many columns of the group."""
    return _BYTES + _COLUMN_BYTES * columns


class _Share(NamedTuple):
    """counts: (4, codes), of each code its rows that are numbers, live ones without NULL, NaN, and NULL."""

    counts: Ints
    pieces: list[Piece]


def _share(rows: Iterator[Rows], code_of: Callable[[Sequence[Ints]], Ints], codes: int) -> _Share:
    """Some of the rows; `codes` is how many there are."""
    found = _Share(np.zeros((4, codes), np.int64), [])
    kind = np.min_scalar_type(max(0, codes - 1))
    for groups, values, is_null, is_live in rows:
        own, numbers, is_out = code_of(groups), values, is_null
        _count(found.counts[_LIVE], own, is_live & ~is_null if len(is_null) and len(is_live) else is_live)
        _count(found.counts[_NULLS], own, is_null)
        if values.dtype.kind == "f":
            is_nan = np.isnan(values)
            _count(found.counts[_NANS], own, is_nan)
            is_out = is_nan | is_null if len(is_null) else is_nan
        if is_out.any():
            own, numbers = own[~is_out], values[~is_out]
        _count(found.counts[_NUMBERS], own)
        if len(own):
            found.pieces.append(Piece(own.astype(kind), numbers))
    return found


def _rows(batch: pa.RecordBatch, width: int) -> Rows:
    """The rows of a batch; see `CodedRows.of`."""
    values, is_null = present(batch.column(width))
    is_live = as_numpy(batch.column(width + 1)) if batch.num_columns > width + 1 else np.zeros(0, np.uint8)
    return Rows([as_numpy(batch.column(i)) for i in range(width)], values, is_null, is_live.view(bool))


def _count(counts: Ints, codes: Ints, chosen: NDArray[np.bool_] | None = None) -> None:
    """Adds the rows of each code; only those that are chosen, if that is given."""
    if chosen is not None:
        codes = codes[chosen] if chosen.any() else codes[:0]
    if len(codes):
        counts += np.bincount(codes, minlength=len(counts))


def _dtype(table: pa.Table, width: int) -> np.dtype[Any]:
    return np.dtype(np.float64 if pa.types.is_floating(table.schema.field(width).type) else np.int64)


def _span(column: pa.ChunkedArray) -> Span:
    """That of a column without NULL."""
    ends = pc.min_max(column)
    least, greatest = (ends[end].as_py() or 0 for end in ("min", "max"))
    return least, greatest - least + 1
