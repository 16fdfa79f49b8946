"""A service that becomes slow is seen by who watches it: an alert, a scrape of Prometheus, the page."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.jobs.browser import CHROMIUM, browsing
from tests.jobs.http_served import TOKEN, Site, serving
from tests.jobs.test_serve_metrics import scraped
from tidemark import query, stream, warehouse

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("ms", pa.float64()), ("origin", pa.string())])
WHEN = ("quantile(0.99, last='15m', by='origin') > 500", "burn(300, 0.999) > 14.4")


def come(uri: str, batch: int, ms: float, rows: int, origin: str) -> None:
    at = datetime.now(UTC) - timedelta(seconds=1)
    table = pa.Table.from_pylist([{"at": at, "ms": ms, "origin": origin}] * rows, SCHEMA)
    stream.append(None, uri, table, source="web", batch=batch)


def p99(site: Site) -> tuple[float, float]:
    """The certain bounds of a scrape."""
    found, labels = scraped(site), (("measure", "ms"), ("phi", "0.99"), ("warehouse", "service"))
    return found["tidemark_quantile_low", labels], found["tidemark_quantile_high", labels]


def live_rows(site: Site) -> float:
    return scraped(site)["tidemark_rows", (("side", "live"), ("warehouse", "service"))]


@pytest.mark.slow
def test_who_watches_a_service_sees_that_it_becomes_slow(tmp_path: Path) -> None:
    uri, told = str(tmp_path / "service"), list[dict[str, Any]]()
    warehouse.create(
        None, uri, ["ms"], schema=SCHEMA, key="origin", groups=["origin"], time="at", tick="1 minute"
    )
    come(uri, 0, 120.0, 200, "ATL")
    browser = nullcontext() if CHROMIUM is None else browsing(tmp_path / "browser")
    with (
        serving({"service": query.open(uri)}) as site,
        query.alert(*WHEN, wh=query.open(uri), notify=told.append) as alert,
        browser as page,
    ):
        if page is not None:
            page.size(1200, 900, "light")
            page.log_in(site.port, TOKEN)
            page.until("document.getElementById('now').innerText.includes('Rows live\\t200')")
        assert alert.check() == []
        assert (p99(site), live_rows(site)) == ((120, 120), 200)
        come(uri, 1, 900.0, 20, "SEA")
        assert [(one.group, one.state) for one in alert.check()] == [
            ({"origin": "SEA"}, "certain"),
            (None, "certain"),
        ]
        assert [(one["state"], one["value"]) for one in told] == [
            ("certain", 900),
            ("certain", pytest.approx(90.909, rel=1e-4)),
        ]
        low, high = p99(site)  # as the rules say: certain if low is beyond, possible if high is
        assert 500 < low <= 900 <= high
        assert live_rows(site) == 220
        if page is not None:
            page.js("refresh()")
            page.until("document.getElementById('now').innerText.includes('Rows live\\t220')")
            page.until("document.getElementById('quantiles').ariaLabel?.includes('p99 900')")
            assert "SEA" in str(page.js("document.getElementById('groups').innerText"))
            assert not page.problems()
        assert alert.check() == []
