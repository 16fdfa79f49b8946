"""The windows of `every` as buckets of one width: the number of a tick's bucket is one division.

Windows of `every` begin at multiples of a width; the first and the last may be cut, and windows without rows
may be left out (`split_window`). With a greater `width` the windows overlap: each window has several buckets
then, and a bucket is in several windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.warehouse.columns.arrow_buffers import arrow_table
from tidemark.warehouse.columns.ticks import Window

BUCKET, PART = "bucket", "part"  # the columns of `pairs`


@dataclass(frozen=True)
class Buckets:
    """Bucket number b has the ticks origin + b * width up to the next one's, exclusive.

    edges: (windows, 2), the first bucket of each window and its last one, both inclusive.
    """

    origin: int
    width: int
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> Buckets:
        """The buckets of windows, at least two, that ascend. Outside of all of them there are no rows."""
        first, last = windows[0].start, windows[-1].stop
        inner = {window.start for window in windows} | {window.stop for window in windows}
        ends = sorted(inner - {first, last})
        some = ends[0] if ends else first
        width = gcd(*(end - some for end in ends)) or max(1, last - some, some - first)
        origin = some - (some - first + width - 1) // width * width
        edges = [((one.start - origin) // width, (one.stop - 1 - origin) // width) for one in windows]
        return cls(origin, width, np.array(edges, np.int64))

    def of_ticks(self, ticks: Any) -> Any:
        """The number of the bucket of ticks, none before the first window: an array, or text of SQL."""
        if isinstance(ticks, str):
            return f"({ticks} - {self.origin}) // {self.width}"
        return (ticks - self.origin) // self.width

    @cached_property
    def are_windows(self) -> bool:
        """Whether each window is one bucket, and no other has it."""
        first, last = self.edges.T
        return bool((first == last).all()) and len(np.unique(first)) == len(first)

    @property
    def most_windows(self) -> int:
        """The greatest number of windows that a bucket is in."""
        first, last = self.edges.T
        starts, stops = np.unique(first, return_counts=True), np.unique(last + 1, return_counts=True)
        places = np.concatenate([starts[0], stops[0]])
        steps = np.concatenate([starts[1], -stops[1]])
        return int(np.cumsum(steps[np.lexsort([steps, places])]).max())

    @property
    def pairs(self) -> pa.Table:
        """Each bucket of each window, with the number of the window."""
        sizes = self.edges[:, 1] - self.edges[:, 0] + 1
        part = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(len(part)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        bucket = self.edges[part, 0] + within
        return arrow_table({BUCKET: bucket, PART: part})

    def windows_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The window of each number, which counts buckets, or windows where these overlap."""
        if not self.are_windows:
            return numbers
        order = np.argsort(self.edges[:, 0])
        windows: NDArray[np.int64] = order[self.edges[order, 0].searchsorted(numbers)]
        return windows
