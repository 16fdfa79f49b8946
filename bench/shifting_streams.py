"""Streams whose distribution shifts, after Rivetti, Busnel and Mostefaoui (2015, section IV.A).

Items are 0 to n - 1. After each `period` of rows the distribution moves right by `width` items; after
`shifts` of these moves it is back where it began. Rows that do not shift would hide that a counter mixes what
was frequent then with what is frequent now.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Law = Literal["Uniform", "Normal", "Zipf-1", "Zipf-2"]
LAWS: tuple[Law, ...] = ("Uniform", "Normal", "Zipf-1", "Zipf-2")
MIXED: tuple[Law, ...] = ("Uniform", "Normal", "Uniform", "Zipf-1", "Uniform", "Zipf-2", "Uniform")


def shares(law: Law, items: int) -> NDArray[np.float64]:
    """The probability of each item. Normal is a bell of which 3 standard deviations fit on either side."""
    ranks = np.arange(1, items + 1)
    if law == "Uniform":
        weights = np.ones(items)
    elif law == "Normal":
        weights = np.exp(-(((ranks - items / 2) / (items / 6)) ** 2) / 2)
    else:
        weights = 1.0 / ranks ** (1 if law == "Zipf-1" else 2)
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def shifting(
    law: Law,
    rows: int,
    seed: int,
    *,
    items: int = 1_000,
    period: int = 10_000,
    width: int = 2,
    shifts: int = 4,
    first: int = 0,
) -> Ints:
    """The items of `rows` rows. first: the number of the first row, from which periods are counted."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(items, rows, p=shares(law, items))
    moves = (np.arange(first, first + rows) // period) % (shifts + 1)
    return (drawn + moves * width) % items


def mixed(rows: int, seed: int, *, period: int = 15_000, swap: int = 60_000, items: int = 1_000) -> Ints:
    """Rows whose law changes each `swap` rows, in the order of MIXED, while it shifts each `period` rows."""
    parts = [
        shifting(
            MIXED[i % len(MIXED)],
            min(swap, rows - begin),
            seed + i,
            items=items,
            period=period,
            first=begin,
        )
        for i, begin in enumerate(range(0, rows, swap))
    ]
    return np.concatenate(parts)
