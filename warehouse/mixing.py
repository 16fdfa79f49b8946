"""Digests of rows that add: the sum of mixed bits is the same in any order, and of parts and their whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRIME = np.uint64(0x9E3779B97F4A7C15)


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each word's bits mixed: the finaliser of splitmix64, a bijection."""
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def mixed_sum(words: NDArray[np.uint64], counts: NDArray[np.int64] | None = None) -> int:
    """The sum of the mixed words, each as often as it counts, modulo 2**64."""
    with np.errstate(over="ignore"):
        found = mixed(words) if counts is None else mixed(words) * counts.astype(np.uint64)
        return int(found.sum(dtype=np.uint64))
