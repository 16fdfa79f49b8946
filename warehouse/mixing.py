"""Digests of rows that add: the sum of mixed bits is the same in any order, and of parts and their whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketches.row_hashes import splitmix

PRIME = np.uint64(0x9E3779B97F4A7C15)


def mixed_sum(words: NDArray[np.uint64], counts: NDArray[np.int64] | None = None) -> int:
    """The sum of the mixed words, each as often as it counts, modulo 2**64."""
    with np.errstate(over="ignore"):
        found = splitmix(words) if counts is None else splitmix(words) * counts.astype(np.uint64)
        return int(found.sum(dtype=np.uint64))
