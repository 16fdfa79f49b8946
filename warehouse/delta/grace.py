"""The grace: how long files are kept after they left a table, and how long a table keeps its log.

The grace is an option of the warehouse. vacuum.py deletes the files that are past it. The log (the property
`delta.logRetentionDuration`) is kept for longer than the grace. So a reader with a snapshot that is younger
than the grace can still apply all newer commits, and the vacuum finds in the log which files were removed
within the grace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from tidemark.warehouse.columns.ticks import DAY_US, width_us
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER, REJECTED

RETENTION = "delta.logRetentionDuration"
# Opening a table replays the commits since its last checkpoint, so there are fewer than delta-rs's 100.
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
COMMITS_OF_STREAMS = 20  # between two checkpoints of a table that each batch of a stream commits to
COMMITS_OF_LOADS = 10  # of other tables: writing a checkpoint takes as long as three commits
COMMITS_OF_FAR_LOADS = 4  # in a store, where a reader asks for all entries that may be there (log_replica.py)
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


def commits_between_checkpoints(name: str, *, is_far: bool) -> int:
    """After how many commits a table gets a checkpoint; `is_far`: in an object store."""
    if name in (EVENTS, LEDGER, REJECTED):
        return COMMITS_OF_STREAMS
    return COMMITS_OF_FAR_LOADS if is_far else COMMITS_OF_LOADS
