"""Memory that tasks free stays with the process for the next arrays.

A task makes and frees thousands of arrays of some megabytes. glibc gives a block of more than 128 KiB back
to the system when it is freed, and a new one costs a page fault for each 4 KiB: a third of the time of a
sort. The limit is dynamic (mallopt(3), M_MMAP_THRESHOLD): it rises to the size of the largest block that
was freed, to 32 MiB at most, and twice as much may stay free at the end of the heap. So one block that is
made, never touched and freed raises it. Where the user set the limit (MALLOC_MMAP_THRESHOLD_), and in other
allocators, it does nothing. Cost: up to 64 MiB for each thread with tasks.
"""

from __future__ import annotations

from functools import cache

import numpy as np

_BLOCK_BYTES = 2**25 - 2**16  # a little less than the most to which the limit rises


@cache
def keep_freed_memory() -> None:
    """Keeps freed blocks of up to 32 MiB from now on; only the first call does something."""
    np.empty(_BLOCK_BYTES, np.uint8)
