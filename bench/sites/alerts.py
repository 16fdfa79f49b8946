"""How long after a commit an alert over several sites fires."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from bench.data import FIRST_DAY, Rows
from bench.report import Section, say
from bench.sites.rows import DAYS, Sizes, as_table
from tidemark import query, stream

MOST_SECONDS = 1.0
PATIENCE = 30.0
POLL, PHASES = 0.5, 5  # seconds between two looks, by default
KEY = 2


def measure(section: Section, uris: Mapping[str, str], sizes: Sizes) -> None:
    """Adds the seconds from the end of a commit until the notice of an alert, the longest of several.

    The alert counts the rows of a key, and a commit at one of the sites brings one more than it waits for.
    """
    wh, row = query.open(uris), _row()
    count, taken = wh.frequency(KEY, mode="exact").count, []
    for number in range(sizes.alerts):
        uri = list(uris.values())[number % len(uris)]
        commit = partial(stream.append, None, uri, row, source="alerts", batch=number)
        pause = number % PHASES * POLL / PHASES  # the commits come at different times after a look
        taken.append(_fired(wh, f"frequency({KEY}) >= {count + number + 1}", commit, pause))
    say("  answers of the alert are right")
    section.add("alert: seconds from the commit to the notice, the longest", max(taken), "s", MOST_SECONDS)


def _row() -> pa.Table:
    day = FIRST_DAY + DAYS
    row = as_table(Rows("lognormal", 999_999, 1, (day, day + 1), FIRST_DAY))
    return row.set_column(row.schema.get_field_index("key"), "key", [[KEY]])


def _fired(wh: query.Warehouse, when: str, commit: Callable[[], Any], pause: float) -> float:
    """The seconds from the end of the commit, which makes the condition certain, until its notice."""
    told: list[tuple[str, float]] = []
    came, stopping = threading.Event(), threading.Event()

    def tell(notice: dict[str, Any]) -> None:
        told.append((notice["state"], time.monotonic()))
        came.set()

    with query.alert(when, wh=wh, notify=tell) as alert:
        assert not alert.check()
        watch = threading.Thread(target=lambda: list(alert.watch(every=3_600, poll=POLL, stopping=stopping)))
        watch.start()
        try:
            time.sleep(pause)
            commit()
            committed = time.monotonic()
            assert came.wait(PATIENCE), f"no notice of {when}"
        finally:
            stopping.set()
            watch.join()
    ((state, at),) = told
    assert state == "certain", (when, state)
    return at - committed
