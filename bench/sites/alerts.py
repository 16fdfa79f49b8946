"""How long after a commit an alert over several sites fires."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from bench.data import FIRST_DAY, Rows
from bench.report import Section, say
from bench.sites.rows import DAYS, Sizes, as_table
from tidemark import query, stream

MOST_SECONDS = 1.0
PATIENCE = 30.0
KEY = 2


def measure(section: Section, uris: Mapping[str, str], sizes: Sizes) -> None:
    """Adds the seconds from the end of a commit until the notice of an alert, the longest of several.

    The alert counts the rows of a key. Each commit at one of the sites makes it certain or, by the next
    threshold, certain again: there is one condition for each commit.
    """
    wh = query.open(uris)
    row = as_table(Rows("lognormal", 999_999, 1, (FIRST_DAY + DAYS, FIRST_DAY + DAYS + 1), FIRST_DAY))
    row = row.set_column(row.schema.get_field_index("key"), "key", [[KEY]])
    count = wh.frequency(KEY, mode="exact").count
    conditions = [f"frequency({KEY}) >= {count + number + 1}" for number in range(sizes.alerts)]
    told: dict[str, float] = {}
    came, stopping = threading.Semaphore(0), threading.Event()

    def tell(notice: dict[str, Any]) -> None:
        told[notice["when"]] = time.monotonic()
        assert notice["state"] == "certain", notice
        came.release()

    alert = query.alert(*conditions, wh=wh, notify=tell)
    thread = threading.Thread(target=lambda: list(alert.watch(every=3_600, stopping=stopping)))
    thread.start()
    taken = []
    try:
        for number, when in enumerate(conditions):
            uri = list(uris.values())[number % len(uris)]
            stream.append(None, uri, row, source="alerts", batch=number)
            committed = time.monotonic()
            assert came.acquire(timeout=PATIENCE), f"no notice of {when}"
            taken.append(told[when] - committed)
    finally:
        stopping.set()
        thread.join()
        alert.close()
    assert list(told) == conditions
    say("  answers of the alert are right")
    section.add("alert: seconds from the commit to the notice, the longest", max(taken), "s", MOST_SECONDS)
