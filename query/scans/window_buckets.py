"""The windows of `every` as buckets of one width: the number of a tick's bucket is one division.

Windows of `every` begin at multiples of a width; the first and the last may be cut, and some in between may
be left out, which have no rows (`split_window`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import InputError


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket number b has the ticks origin + b * width up to the next one's, exclusive.

    windows: the index of the window by the number of its bucket.
    """

    origin: int
    width: int
    windows: Mapping[int, int]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> Buckets:
        """The buckets of windows, at least two, that ascend; InputError unless each has one of its own."""
        lengths = [window.stop - window.start for window in windows]
        # Of three windows one is not cut. Of two both may be: then any greater width parts them.
        width = max(lengths) if len(windows) > 2 else windows[1].stop - windows[0].start
        origin = windows[1].start - (windows[1].start - windows[0].start + width - 1) // width * width
        ends = [((one.start - origin) // width, (one.stop - 1 - origin) // width) for one in windows]
        numbers = {first: i for i, (first, _) in enumerate(ends)}
        if len(numbers) < len(windows) or any(first != last for first, last in ends):
            raise InputError("the windows of one scan must be parts of equal width, as `every` makes them.")
        return cls(origin, width, numbers)

    def of_ticks(self, ticks: Any) -> Any:
        """The number of the bucket of ticks, none before the first window: an array, or text of SQL."""
        if isinstance(ticks, str):
            return f"({ticks} - {self.origin}) // {self.width}"
        return (ticks - self.origin) // self.width
