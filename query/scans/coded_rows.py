"""The rows of a scan by group, if groups are integers in a narrow range, by the statistics of files.

The code of a row is the number of its group among all that there may be. Rows stay as they were read, in
pieces that fit into the cache of a processor. A question goes through the pieces in shares, which threads do
at the same time; each piece is sorted by code, with a radix sort if there are more than a few:

* Exact sums and ends add the stretches of a piece. Nothing but results is written to memory.
* Ranks need the numbers of each group together (reading/number_parts.py). Each share knows where its numbers
  of a group begin. High ranks need only the numbers from a sample on that is likely to be below: all others
  are counted (`_of_tails`). If the count shows that it is not below, all numbers are used.

With many groups a piece has short stretches, so all pieces of a share are sorted together.

If only sums and ends are asked, they are found while rows are read, and rows are not kept: memory that was
never used before takes longer to write than to add what is in it.

Cost: O(rows), some nanoseconds a row. Memory: `bytes_a_row`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import Picked
from tidemark.query.reading.number_parts import FEW, MOST_SAMPLES, STEP, NumberParts, sample_ranks
from tidemark.query.reading.shares import each_share, shares_of
from tidemark.query.reading.sorted_parts import Ints, RankedValues, no_ends
from tidemark.query.scans.coded_pieces import (
    FEWEST_CODES,
    Codes,
    CodeTotals,
    Piece,
    Stretches,
    Totals,
    added_totals,
    stretches_of,
)
from tidemark.query.scans.plain_files import FileReading, PlainFile, Rows, read_rows
from tidemark.warehouse.columns.arrow_buffers import arrow_array, zero_for_null
from tidemark.warehouse.columns.codes import combine_codes, unique_codes
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.looped_sums import MOST_CODES as MOST_SUMMED
from tidemark.warehouse.columns.looped_sums import LoopedSums, loading
from tidemark.warehouse.columns.value_encoding import Measure, as_numpy, as_numpy_bools, single_array

Span = tuple[int, int]  # the least number of a column, and how many there are from it to the greatest

MOST_CODES = 2**16  # that are sorted in one pass
PIECE_ROWS = 2**17
_BYTES, _COLUMN_BYTES = 48, 16  # of a row: as it was read, sorted, and put in its place
FEW_GROUPS = 2**6  # whose stretches are taken piece by piece
MANY = 2**18  # rows of which samples are taken
TAILS = 0.25  # the share of rows up to which those from samples on are taken alone
_NUMBERS, _LIVE, _NANS, _NULLS = range(4)  # rows of counts


class _Outside(Exception):
    """A number is not in the span of its column."""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Rows by group, in any order; the questions are those of `NumberParts`, about groups.

    stored: for each column of the group its stored values. counts: (groups, 4), see `ScannedGroups`.
    read: gives the pieces of each share. rows: (shares, groups), the numbers of each group in each share.
    codes: the code of each group. group_of: the group of each code. dtype: the type of the numbers.
    totals: the sums and the ends of each group, if they were found while the rows were read.
    """

    stored: list[pa.Array]
    counts: Ints
    read: Callable[[], Sequence[Sequence[Piece]]]
    rows: Ints
    codes: Ints
    group_of: Codes
    dtype: np.dtype[Any]
    totals: tuple[Sequence[Sums], NDArray[Any]] | None = None

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
        *,
        summed: bool = False,
    ) -> CodedRows | None:
        """From files; None if their numbers are not in the spans, which statistics tell.

        summed: whether sums and ends are asked. Then the rows are not kept, if there are few groups; what
            asks for others reads them again.
        """
        most = max(PIECE_ROWS, codes_of(spans))

        def rows(first: int, last: int) -> Iterator[Rows]:
            return read_rows(files[first:last], measure, by, most, reading)

        try:
            sizes = [file.rows for file in files]
            return cls._of_spans(spans, rows, sizes, measure.dtype, in_turn=True, summed=summed)
        except _Outside:
            return None

    @classmethod
    def _of_spans(
        cls,
        spans: Sequence[Span],
        rows: Callable[[int, int], Iterator[Rows]],
        sizes: Sequence[int],
        dtype: np.dtype[Any],
        *,
        in_turn: bool = False,
        summed: bool = False,
    ) -> CodedRows:
        """rows: of a share of items of these sizes.

        in_turn: whether one thread goes through all shares, unless threads add without Python's lock.
        """
        codes = codes_of(spans)

        def code_of(groups: Sequence[Ints]) -> Ints:
            numbers = [column - low for column, (low, _) in zip(groups, spans, strict=True)]
            for own, (_, size) in zip(numbers, spans, strict=True):
                if own.min(initial=0) < 0 or own.max(initial=0) >= size:
                    raise _Outside
            return combine_codes(numbers, [size for _, size in spans])

        def read(dtype_of_sums: np.dtype[Any] | None) -> list[_Share]:
            def one(first: int, last: int) -> _Share:
                given = rows(first, last)
                looped = None if dtype_of_sums is None else LoopedSums.of(codes)
                if looped is not None:
                    given = _rest(looped, given, code_of, spans)
                return _share(given, code_of, codes, dtype_of_sums, looped)

            is_looped = dtype_of_sums is not None and loading().loop is not None
            return [one(*share) for share in shares] if in_turn and not is_looped else each_share(one, shares)

        shares = shares_of(np.array(sizes, np.int64))
        found = read(dtype if summed and codes <= MOST_SUMMED else None)
        counts = np.stack([share.counts for share in found]).sum(axis=0)
        filled = np.flatnonzero(counts[_NUMBERS] + counts[_NANS] + counts[_NULLS])
        places = np.unravel_index(filled, [size for _, size in spans])
        stored = [arrow_array(own + low) for own, (low, _) in zip(places, spans, strict=True)]
        coded = cls._of_shares(stored, found, filled, dtype)
        totals = [part for share in found for part in share.totals]
        if not totals:
            return coded
        loading().added(int(counts[_NUMBERS].sum()))
        sums, ends = added_totals(totals)
        ends[counts[_NUMBERS] == 0] = 0
        own = Picked(sums, filled), ends[filled]
        return replace(coded, read=lambda: [share.pieces for share in read(None)], totals=own)

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
        pieces = [share.pieces for share in shares]
        return cls(stored, counts, lambda: pieces, rows, filled, group_of, dtype)

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `SortedParts.values_at`."""
        return self.parts.values_at(ranks)

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `SortedParts.same_values_at`."""
        return self._of_tails(ranks) or self.parts.same_values_at(ranks)

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `SortedParts.ranks_at`."""
        return self.parts.ranks_at(points)

    def sums(self) -> Sequence[Sums]:
        """The exact sums of the numbers of each group."""
        return self.parts.sums() if self._totals is None else self._totals[0]

    def ends(self) -> NDArray[Any]:
        """(groups, 2): the least and the greatest number of each group, 0 for a group without numbers."""
        return self.parts.ends() if self._totals is None else self._totals[1]

    def _of_tails(self, ranks: Ints) -> RankedValues | None:
        """The same of a few high ranks in a few large groups; None for others, and if the samples mislead."""
        sizes = self.rows.sum(axis=0)[:, np.newaxis]
        if not self._has_few or not 0 < ranks.shape[1] <= FEW or sizes.sum() < MANY:
            return None
        is_asked = (ranks >= 1) & (ranks <= sizes)
        limits = self._limits(np.where(is_asked, ranks, sizes + 1), sizes)
        if limits is None:
            return None
        tails = self._some(lambda piece: np.flatnonzero(piece.numbers >= limits[piece.codes]))
        below = sizes - tails.rows.sum(axis=0)[:, np.newaxis]
        if np.any(is_asked & (ranks <= below)):
            return None
        values, ranks_le = tails.parts.same_values_at(np.where(is_asked, ranks - below, 0))
        return RankedValues(values, ranks_le + below)

    def _limits(self, ranks: Ints, sizes: Ints) -> NDArray[Any] | None:
        """For each code a number that is likely to be below all ranks; None if it leaves too many numbers.

        ranks: those that are not asked are above the sizes.
        """
        step = max(STEP, int(sizes.sum()) // MOST_SAMPLES)
        samples = self._some(lambda _: slice(step // 2, None, step)).parts
        counts = samples.sizes[:, np.newaxis]
        lows = np.where(ranks > sizes, counts + 1, sample_ranks(ranks, sizes, counts)[0])
        lows = lows.min(axis=1, keepdims=True)
        left = sizes * (1 - np.maximum(lows - 1, 0) / np.maximum(counts, 1))
        if left.sum() > TAILS * sizes.sum():
            return None
        greatest, least = no_ends(1, self.dtype)[0]
        found = samples.same_values_at(lows).values
        limits = np.zeros(len(self.group_of), self.dtype)
        limits[self.codes] = np.where(lows < 1, least, np.where(lows > counts, greatest, found))[:, 0]
        return limits

    def _some(self, chosen: Callable[[Piece], Any]) -> CodedRows:
        """The same groups with some rows of each piece; `chosen` gives their places."""

        def share(number: int, _: int) -> tuple[list[Piece], Ints]:
            found = [(piece, chosen(piece)) for piece in self._shares[number]]
            pieces = [Piece(piece.codes[places], piece.numbers[places]) for piece, places in found]
            if not sum(len(piece.codes) for piece in pieces):
                return [], np.zeros(len(self.codes), np.int64)
            whole = Piece(*map(np.concatenate, zip(*pieces, strict=True)))
            return [whole], np.bincount(self.group_of[whole.codes], minlength=len(self.codes))

        shares, rows = zip(*each_share(share, self._each), strict=True)
        return replace(self, read=lambda: shares, rows=np.array(rows, np.int64))

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
    def _totals(self) -> tuple[Sequence[Sums], NDArray[Any]] | None:
        """The sums and the ends of each group; None for many groups: `parts` finds them."""
        if self.totals is not None or not self._has_few:
            return self.totals

        def add(share: int, _: int) -> Totals:
            found = CodeTotals(len(self.counts), self.dtype, LoopedSums.of(len(self.counts)))
            for stretches in self._stretches(share):
                found.add(stretches)
            return found.found

        sums, ends = added_totals(each_share(add, self._each))
        loading().added(int(self.rows.sum()))
        ends[self.rows.sum(axis=0) == 0] = 0
        return sums, ends

    @cached_property
    def _shares(self) -> Sequence[Sequence[Piece]]:
        return self.read()

    @property
    def _each(self) -> list[tuple[int, int]]:
        return [(share, share + 1) for share in range(len(self.rows))]

    @property
    def _has_few(self) -> bool:
        return len(self.counts) <= FEW_GROUPS

    def _stretches(self, share: int) -> Iterator[Stretches]:
        """The numbers of a share by group; those of a group in one stretch for each of its pieces."""
        pieces = self._shares[share]
        if pieces and not self._has_few:
            pieces = [Piece(*map(np.concatenate, zip(*pieces, strict=True)))]
        for piece in pieces:
            if len(self.codes) <= FEWEST_CODES:
                numbers, edges, codes = stretches_of(piece, self.codes)
                yield Stretches(numbers, edges, self.group_of[codes].astype(np.int64))
            else:
                yield stretches_of(Piece(self.group_of[piece.codes], piece.numbers), self.codes)


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
    totals: list[Totals]


def _share(
    rows: Iterator[Rows],
    code_of: Callable[[Sequence[Ints]], Ints],
    codes: int,
    summed: np.dtype[Any] | None = None,
    looped: LoopedSums | None = None,
) -> _Share:
    """Some of the rows; `codes` is how many there are.

    summed: the type of numbers whose totals are asked in place of the pieces. looped: has the totals of rows
        that are not among these.
    """
    totals = None if summed is None else CodeTotals(codes, summed)
    found = _Share(np.zeros((4, codes), np.int64), [], [])
    kind = np.min_scalar_type(max(0, codes - 1))
    for groups, values, is_null, is_live in rows:
        own, numbers, is_out = code_of(groups).astype(kind), values, is_null
        _count(found.counts[_LIVE], own, is_live & ~is_null if len(is_null) and len(is_live) else is_live)
        _count(found.counts[_NULLS], own, is_null)
        if values.dtype.kind == "f":
            is_nan = np.isnan(values)
            _count(found.counts[_NANS], own, is_nan)
            is_out = is_nan | is_null if len(is_null) else is_nan
        if is_out.any():
            own, numbers = own[~is_out], values[~is_out]
        _count(found.counts[_NUMBERS], own)
        if len(own) and totals is not None:
            totals.add(stretches_of(Piece(own, numbers), np.flatnonzero(found.counts[_NUMBERS])))
        elif len(own):
            found.pieces.append(Piece(own, numbers))
    if totals is not None:
        found.totals.append(totals.found)
        if looped is not None:
            found.counts[:] += looped.counts
            found.totals.append((looped.each(), looped.ends(totals.ends.dtype)))
    return found


def _rest(
    looped: LoopedSums,
    rows: Iterator[Rows],
    code_of: Callable[[Sequence[Ints]], Ints],
    spans: Sequence[Span],
) -> Iterator[Rows]:
    """The rows that the loop cannot add, once it has added those before them."""
    for one in rows:
        groups, values, is_null, is_live = one
        codes, least = (groups[0], spans[0][0]) if len(groups) == 1 else (code_of(groups), 0)
        done = looped.add(values, codes, least, is_null, is_live)
        if done < len(values):
            yield Rows([column[done:] for column in groups], values[done:], is_null[done:], is_live[done:])


def _rows(batch: pa.RecordBatch, width: int) -> Rows:
    """The rows of a batch; see `CodedRows.of`."""
    values, is_null = present(batch.column(width))
    is_live = as_numpy(batch.column(width + 1)) if batch.num_columns > width + 1 else np.zeros(0, np.uint8)
    return Rows([as_numpy(batch.column(i)) for i in range(width)], values, is_null, is_live.view(bool))


def present(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The values, something where they are NULL; and whether each is NULL, empty if none is."""
    values = single_array(column) if isinstance(column, pa.ChunkedArray) else column
    if not values.null_count:
        return as_numpy(values), np.zeros(0, bool)
    return as_numpy(zero_for_null(values)), as_numpy_bools(values.is_null())


def _count(counts: Ints, codes: Codes, chosen: NDArray[np.bool_] | None = None) -> None:
    """Adds the rows of each code; only those that are chosen, if that is given."""
    if chosen is not None:
        codes = codes[chosen] if chosen.any() else codes[:0]
    if not len(codes):
        return
    known = np.flatnonzero(counts)
    if len(known) <= FEWEST_CODES:
        found = [np.count_nonzero(codes == code) for code in known.tolist()]
        if sum(found) == len(codes):
            counts[known] += found
            return
    counts += np.bincount(codes, minlength=len(counts))


def _dtype(table: pa.Table, width: int) -> np.dtype[Any]:
    return np.dtype(np.float64 if pa.types.is_floating(table.schema.field(width).type) else np.int64)


def _span(column: pa.ChunkedArray) -> Span:
    """The span of a column without NULL."""
    ends = pc.min_max(column)
    least, greatest = (ends[end].as_py() or 0 for end in ("min", "max"))
    return least, greatest - least + 1
