"""How long a table keeps its log: longer than the grace, so that who has an old snapshot goes on from it.

A reader whose snapshot is younger than the grace finds the commits that came since, and maintenance finds in
them what left the table within the grace. Delta's own setting is the property `delta.logRetentionDuration`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemark.warehouse.columns.ticks import DAY_US, width_us

RETENTION = "delta.logRetentionDuration"
_LEAST_DAYS = 30  # Delta's own
_MARGIN_DAYS = 1  # Spark cleans by whole days, and clocks differ


def retention_interval(grace_us: int) -> str:
    """The property of a table whose files live for the grace after they left it."""
    return f"interval {max(_LEAST_DAYS, -(-grace_us // DAY_US) + _MARGIN_DAYS)} days"


def retention_us(properties: Mapping[str, str | None]) -> int:
    """Microseconds for which a table with the properties keeps its log."""
    said = (properties.get(RETENTION) or "").lower()
    try:
        parts = re.findall(r"\d+\s*[a-z]+", said.removeprefix("interval"))
        return sum(width_us(part) for part in parts) or _LEAST_DAYS * DAY_US
    except ValueError:  # a unit that we do not know: months
        return _LEAST_DAYS * DAY_US
