"""How much memory a sketch may take, asked before any is taken.

The room of a sketch is what its counters take once each cell has filled its first level: all of a sketch
with many keys comes to that, and its updates address as much from the first on. A new sketch has at most
MOST_COUNTER_BYTES, all of its levels together; one that asks for more has been given an eps or a delta by mistake.
What is stored, opened, merged and asked costs what is held, whatever the room, and is not limited by it;
only the number of cells is, see row_hashes.py, because an answer looks at each.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput

MOST_COUNTER_BYTES = 2**32
REMEDY = "use a larger eps or a larger delta, or fewer cells or bits"


def require_memory(room: int, what: str) -> None:
    """InvalidInput if `what` would take more than MOST_COUNTER_BYTES bytes."""
    if room > MOST_COUNTER_BYTES:
        raise InvalidInput(
            f"got {what}, whose counters would take {_written(room)}; "
            f"expected at most {_written(MOST_COUNTER_BYTES)}; {REMEDY}"
        )


def zeroed(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Zeros, memory that the machine gives where it is written; InvalidInput if there is not that much."""
    try:
        return np.zeros(shape, np.int64)
    except (MemoryError, ValueError) as no_room:  # ValueError: more than can be addressed
        size = 8
        for length in shape:
            size *= length
        raise InvalidInput(
            f"got arrivals for which the counters take {_written(size)}; this machine has no such memory; "
            f"{REMEDY}"
        ) from no_room


def _written(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size:,} bytes"
