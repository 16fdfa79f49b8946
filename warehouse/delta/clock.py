"""Compares this machine's clock with the store's: writes a small file, and reads its time back.

Maintenance computes the age of a file from the store's time of the file and this machine's clock. If this
clock were ahead, the files of a running load would seem old.
"""

from __future__ import annotations

import time
import uuid

from tidemark.warehouse.delta.retries import delete_file
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import SystemRefused, without_secrets

TOLERANCE = 60.0  # seconds: stores round their times, and clocks that are set by NTP differ by less


def check_clock(store: Store) -> None:
    """SystemRefused if this machine's clock and the store's differ by more than TOLERANCE seconds.

    Three requests. The file that is written for it is deleted.
    """
    filesystem, path = store.filesystem(), f"_clock-{uuid.uuid4().hex}"
    before = time.time()
    with filesystem.open_output_stream(path) as file:
        file.write(b"what time is it?")
    try:
        stored = filesystem.get_file_info(path).mtime.timestamp()
    finally:
        delete_file(filesystem, path)
    ahead = before - stored if before > stored else min(0.0, time.time() - stored)
    if abs(ahead) > TOLERANCE:
        where = f"{_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"
        raise SystemRefused(
            f"this machine's clock is {where} the clock of {without_secrets(store.uri)}. By it, maintenance "
            "would delete files that are not old. Nothing was changed: set the clock, or run maintenance on "
            "another machine."
        )


def _duration(seconds: float) -> str:
    for unit, width in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds > 1.5 * width:
            return f"{seconds / width:,.0f} {unit}"
    return f"{seconds:.0f} seconds"
