"""Retention: how long files are kept after they left a table, and how long a table keeps its log.

The grace is an option of the warehouse, DEFAULT_GRACE unless it is given at creation. vacuum.py deletes the
files that are past it. The log (the property `delta.logRetentionDuration`) is kept for longer than the grace.
So a reader with a snapshot that is younger than the grace can still apply all newer commits, and the vacuum
finds in the log which files were removed within the grace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from tidemark.warehouse.columns.ticks import DAY_US, width_us

DEFAULT_GRACE = "7 days"

RETENTION = "delta.logRetentionDuration"
_MIN_DAYS = 30  # the default of Delta
_MARGIN_DAYS = 1  # Spark cleans logs by whole days, and clocks differ


def expired(since_ms: int, grace_us: int) -> bool:
    """Whether the grace has passed since a moment in milliseconds since 1970."""
    return since_ms * 1000 + grace_us <= time.time() * 1e6


def retention_interval(grace_us: int) -> str:
    """The value of the property for a grace in microseconds."""
    return f"interval {max(_MIN_DAYS, -(-grace_us // DAY_US) + _MARGIN_DAYS)} days"


def retention_us(properties: Mapping[str, str | None]) -> int:
    """The log retention of a table with these properties, in microseconds."""
    interval = (properties.get(RETENTION) or "").lower()
    try:
        parts = re.findall(r"\d+\s*[a-z]+", interval.removeprefix("interval"))
        return sum(width_us(part) for part in parts) or _MIN_DAYS * DAY_US
    except ValueError:  # another unit, such as months
        return _MIN_DAYS * DAY_US
