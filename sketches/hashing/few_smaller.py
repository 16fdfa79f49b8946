"""Which hashes are among the smallest of all that came before them: the rule that keeps samples small."""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray


def few_smaller_before(hashes: NDArray[Any], theta: int) -> NDArray[np.bool_]:
    """Whether fewer than `theta` of the hashes before it are smaller, for each of different hashes.

    O(n + k log theta) for n random hashes, of which k are so.

    The smallest theta so far are in a heap. The hashes are read in blocks, each as long as all before it. One
    comparison with the largest in the heap leaves about theta of a block, and only these are read one by one.
    """
    result = np.zeros(len(hashes), bool)
    result[:theta] = True
    # heapq keeps the least on top, so the hashes are negated.
    heap = [-key for key in hashes[:theta].tolist()]
    heapq.heapify(heap)
    begin = theta
    while begin < len(hashes):
        block = hashes[begin : 2 * begin]
        candidates = np.flatnonzero(block < hashes.dtype.type(-heap[0]))
        for i, key in zip((begin + candidates).tolist(), block[candidates].tolist(), strict=True):
            if key < -heap[0]:
                heapq.heapreplace(heap, -key)
                result[i] = True
        begin *= 2
    return result
