"""Cuts of keys: how the merge of sorted key rows is shared out among tasks without a shuffle.

Model. A cut is a pair (key, tick). In every input the rows less than the pair lie before it, so
rows of equal key and tick fall into one slice whichever inputs they come from, and are summed
there. An input has a pair once, so no pair holds more rows than there are inputs: a key that
most rows of the data have is as short as its ticks are few.

    a mark at position p with the pair s says:   rows before p  <  s  <=  rows from p on

so a cut that is no less than s has at least p rows before it, one that is no greater at most p.
Marks stand at blocks, which are bounded in rows and in bytes of keys. A block counts as its rows, and
as no fewer than the blocks of small runs have; so slices of so many rows are bounded in both too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warehouse.cuts import Reach
from warehouse.keyrows import KeyRows
from warehouse.keys import Name, Names, name_at, pairs_before, unify


@dataclass(frozen=True, slots=True, eq=False)
class SortedKeys:
    """A sorted input of a merge: its files in order, (path, first row, rows), and its marks."""

    files: tuple[tuple[str, int, int], ...]
    rows: int
    positions: NDArray[np.int64]
    keys: Names
    ticks: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyCut:
    """A place in the order of all rows: before the first row that is not less than (key, tick)."""

    key: Name
    tick: int


@dataclass(frozen=True, slots=True)
class KeySlice:
    """The rows between two cuts (None: the end of all); `reaches[j]` bounds them in input j."""

    lower: KeyCut | None
    upper: KeyCut | None
    reaches: tuple[Reach, ...]


def plan_key_slices(inputs: Sequence[SortedKeys], rows: int, block_rows: int) -> list[KeySlice]:
    """Cuts the merge of the inputs into slices of about `rows` each, in order.

    A block counts as no fewer than `block_rows`.
    """
    cuts = [None, *_cuts(inputs, rows, block_rows), None]
    return [
        KeySlice(low, high, tuple(_reach(one, low, high) for one in inputs)) for low, high in pairwise(cuts)
    ]


def within(rows: KeyRows, piece: KeySlice) -> KeyRows:
    """The rows that lie in the slice."""
    start = 0 if piece.lower is None else rows.before(piece.lower.key, piece.lower.tick)
    stop = len(rows) if piece.upper is None else rows.before(piece.upper.key, piece.upper.tick)
    return rows.part(start, stop)


def _cuts(inputs: Sequence[SortedKeys], rows: int, block_rows: int) -> list[KeyCut]:
    filled = [one for one in inputs if one.rows]
    if not filled:
        return []
    names, codes = unify([one.keys for one in filled])
    code, tick = np.concatenate(codes), np.concatenate([one.ticks for one in filled])
    counts = [np.maximum(np.diff(one.positions, append=one.rows), block_rows) for one in filled]
    order = np.lexsort((tick, code))
    weight = np.concatenate(counts)[order]
    slices = (np.cumsum(weight) - weight) // max(1, rows)
    chosen = order[1:][slices[1:] > slices[:-1]]
    pairs = dict.fromkeys(zip(code[chosen].tolist(), tick[chosen].tolist(), strict=True))
    first = (int(code[order[0]]), int(tick[order[0]]))
    return [KeyCut(name_at(names, i), at) for i, at in pairs if (i, at) != first]


def _reach(one: SortedKeys, low: KeyCut | None, high: KeyCut | None) -> Reach:
    start = 0 if low is None else _bounds(one, low)[0]
    stop = one.rows if high is None else _bounds(one, high)[1]
    return Reach(start, max(start, stop))


def _bounds(one: SortedKeys, cut: KeyCut) -> tuple[int, int]:
    """The least and the greatest number of rows of the input that may lie before the cut."""
    pair = (cut.key, cut.tick)
    least = pairs_before(one.keys, one.ticks, pair, equal=True)
    most = pairs_before(one.keys, one.ticks, pair, equal=False)
    return (
        int(one.positions[least - 1]) if least else 0,
        int(one.positions[most]) if most < len(one.positions) else one.rows,
    )
