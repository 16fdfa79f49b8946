"""The memory limit of a new sketch, checked before any memory is allocated.

The size of a sketch is estimated as the memory of its counters when each cell has filled its first level. A
sketch with many keys reaches that size, and updates address that much memory from the first one on. A new
sketch, with all of its levels, may take at most MOST_COUNTER_BYTES; a larger one most likely has an eps or
delta that is too small by mistake.

The limit does not apply to opening, merging, storing and querying sketches: their cost depends on the buckets
present, not on this size. They are limited by the number of cells, see row_hashes.py, because a query reads
every cell.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput

MOST_COUNTER_BYTES = 2**32
REMEDY = "use a larger eps or a larger delta, or fewer cells or bits"


def require_memory(size: int, subject: str) -> None:
    """Raises InvalidInput, with `subject` in its text, if `size` is above MOST_COUNTER_BYTES."""
    if size > MOST_COUNTER_BYTES:
        raise InvalidInput(
            f"got {subject}, whose counters would take {_size_text(size)}; "
            f"expected at most {_size_text(MOST_COUNTER_BYTES)}; {REMEDY}"
        )


def zeroed(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Zeros of int64; InvalidInput if the memory is not available.

    The operating system allocates pages of zeroed memory only when they are written.
    """
    try:
        return np.zeros(shape, np.int64)
    except (MemoryError, ValueError) as no_memory:  # ValueError: more than can be addressed
        size = 8
        for length in shape:
            size *= length
        raise InvalidInput(
            f"got arrivals for which the counters take {_size_text(size)}; this machine has no such memory; "
            f"{REMEDY}"
        ) from no_memory


def _size_text(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size:,} bytes"
