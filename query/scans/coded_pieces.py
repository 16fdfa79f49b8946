"""Pieces of rows, of which each has the code of its group: divided by code, and added up.

With few codes, the rows of each are found one code after the other, else by a radix sort. All calls are about
many rows, so that threads do them at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemark.query.reading.sorted_parts import Ints, no_ends
from tidemark.warehouse.columns.code_sums import CodeSums, EachSums
from tidemark.warehouse.columns.codes import stable_order
from tidemark.warehouse.columns.looped_sums import LoopedSums

Codes = NDArray[np.integer[Any]]
Totals: TypeAlias = tuple[EachSums, NDArray[Any]]  # sums of each code, and ends, if it has numbers

FEWEST_CODES = 8  # that are found sooner one by one than by a sort


class Piece(NamedTuple):
    """Some rows whose values are numbers: the code of each, and its value."""

    codes: Codes
    numbers: NDArray[Any]


class Stretches(NamedTuple):
    """The numbers of a piece by code; those of ``codes[i]`` are ``numbers[edges[i] : edges[i + 1]]``."""

    numbers: NDArray[Any]
    edges: Ints
    codes: Ints


def stretches_of(piece: Piece, known: Ints) -> Stretches:
    """The numbers of a piece that has rows, by code. known: all codes that it may have."""
    if len(known) > FEWEST_CODES:
        return _sorted(piece)
    ordered, edges = np.empty_like(piece.numbers), np.zeros(len(known) + 1, np.int64)
    for at, code in enumerate(known.tolist()):
        places = np.flatnonzero(piece.codes == code)
        edges[at + 1] = edges[at] + len(places)
        # The places are inside. Without "clip", `out` would be copied.
        piece.numbers.take(places, out=ordered[edges[at] : edges[at + 1]], mode="clip")
    filled = np.flatnonzero(np.diff(edges))
    return Stretches(ordered, np.append(edges[filled], edges[-1]), known[filled])


def _sorted(piece: Piece) -> Stretches:
    order = stable_order(piece.codes)
    codes = piece.codes[order]
    is_first = np.ones(len(codes) + 1, bool)
    np.not_equal(codes[1:], codes[:-1], out=is_first[1:-1])
    edges = np.flatnonzero(is_first)
    return Stretches(piece.numbers[order], edges, codes[edges[:-1]].astype(np.int64))


class CodeTotals:
    """Adds pieces up by code: the exact sums, the least and the greatest number.

    codes: how many there are. sums, ends: those of each code. looped: see `CodeSums`.
    """

    def __init__(self, codes: int, dtype: np.dtype[Any], looped: LoopedSums | None = None) -> None:
        self.sums, self.ends = CodeSums(codes, looped), no_ends(codes, dtype)

    def add(self, stretches: Stretches) -> None:
        """Adds the numbers of a piece."""
        numbers, edges, codes = stretches
        self.sums.add(numbers, edges[:-1], codes)
        least, most = (one.reduceat(numbers, edges[:-1]) for one in (np.minimum, np.maximum))
        self.ends[codes, 0] = np.minimum(self.ends[codes, 0], least)
        self.ends[codes, 1] = np.maximum(self.ends[codes, 1], most)

    @property
    def found(self) -> Totals:
        """The totals of what was added."""
        return self.sums.each(), self.ends


def added_totals(parts: Sequence[Totals]) -> Totals:
    """The totals of all parts, at least one, which have the same codes."""
    sums, ends = zip(*parts, strict=True)
    least, most = (np.stack(ends)[..., end] for end in (0, 1))
    return EachSums.added(sums), np.stack([least.min(axis=0), most.max(axis=0)], axis=1)
