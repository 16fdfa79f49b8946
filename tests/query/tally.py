"""A kind of companions that forgets nothing, so that its summaries can be compared with lists of rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass
class TallySummary:
    """How often each value occurs, and the times of the rows as microseconds; None for a row without one."""

    values: Counter[str] = field(default_factory=Counter)
    times: Counter[int | None] = field(default_factory=Counter)


class Tally:
    """Counts values and times."""

    name = "tally"
    deterministic = True

    def summarise(self, column: pa.Array, times: NDArray[np.datetime64]) -> TallySummary:
        assert len(column) == len(times) > 0
        assert column.null_count == 0
        assert not pa.types.is_dictionary(column.type)
        micros = [None if np.isnat(time) else int(time.astype(np.int64)) for time in times]
        return TallySummary(Counter(map(shown, column.to_pylist())), Counter(micros))

    def join(self, parts: Sequence[TallySummary]) -> TallySummary:
        assert len(parts) > 1
        whole = parts[0]
        for part in parts[1:]:
            whole.values.update(part.values)
            whole.times.update(part.times)
        return whole

    def to_bytes(self, summary: TallySummary) -> bytes:
        times = sorted(summary.times.items(), key=str)
        return json.dumps([sorted(summary.values.items()), times]).encode()

    def from_bytes(self, data: bytes) -> TallySummary:
        values, times = json.loads(data)
        return TallySummary(Counter(dict(values)), Counter(dict(map(tuple, times))))


def shown(value: Any) -> str:
    """A value as text; -0.0 and 0.0 differ, and decimals have two places."""
    return f"{value:.2f}" if isinstance(value, Decimal) else repr(value)
