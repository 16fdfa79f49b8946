"""How soon the page of a server is there, in a real browser, where there is one."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.latency import MS
from bench.report import Section, say
from tests.jobs.browser import CHROMIUM, READY, browsing

LOADS = 5
MOST_MS = 1_000
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def measure(section: Section, port: int, token: str) -> None:
    """Adds the times of the first paint, and of all panels, after the token was typed once."""
    if CHROMIUM is None:
        say("  there is no chromium: the page is not measured")
        return
    painted, drawn = [], []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, browsing(Path(folder)) as page:
        page.size(1200, 900, "light")
        page.log_in(port, token)
        for _ in range(LOADS):
            page.call("Page.navigate", url="about:blank")  # else the figures of the last page are there
            page.until("location.href == 'about:blank'")
            page.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
            page.until(f"{_PAINT} > 0")
            page.until(READY)
            drawn.append(float(page.js("performance.now()")))
            painted.append(float(page.js(_PAINT)))
    section.add("page: first paint", statistics.median(painted) / MS, "s", MOST_MS / MS)
    section.add("page: all panels", statistics.median(drawn) / MS, "s")
