"""Value marks: the sparse index of a measure's run, which bounds the rank of any value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches import RankBounds
from tidemark.warehouse.projections.span_marks import SpanMarks
from tidemark.warehouse.projections.spans import Anchors


@dataclass(frozen=True, slots=True)
class ValueMarks(SpanMarks):
    """The marks of one run. Mark i is row `positions[i]` of the run, with the value `values[i]`."""

    @property
    def values(self) -> NDArray[Any]:
        """The values of the marks, (k,), ascending."""
        return cast("NDArray[Any]", self.sort_keys[0])

    def bounds(self, anchors: Anchors | None) -> RankBounds:
        """Rank bounds at every mark. `anchors` count the rows of a window; None means all rows of the run."""
        after = np.concatenate([[0], self.positions + 1])
        before = np.append(self.positions, self.rows)
        if anchors is None:
            return RankBounds(self.values, after, before)
        return RankBounds(self.values, anchors.before(after)[0], anchors.before(before)[1])
