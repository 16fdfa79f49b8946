"""/metrics for Prometheus: freshness, rows, runs, live batches, lost races, quantiles, latency of questions.

A scrape asks in mode quick, mostly from memory. If that takes longer than WAIT_SECONDS, as where an object
store does not answer, the scrape gets what the last one found, and tidemark_view_age_seconds says how old
that is. At most MOST_SERIES series of a warehouse are returned; tidemark_series_left_out says how many are
left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import Response

from tidemark.query.answers.by_site import SiteFacts
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.columns.moments import exact_us
from tidemark.warehouse.delta.lost_race_counter import LostRaces
from tidemark.warehouse.errors import EmptyWindow, TidemarkError

WAIT_SECONDS = 0.8  # for newer data; then the last view answers
FIRST_SECONDS = 10.0  # if there is no view yet
MOST_SERIES = 1_000  # series of a warehouse, without the latencies, which are about 200
BUCKETS = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
PHIS = (0.5, 0.9, 0.99)
_SECOND = timedelta(seconds=1)

# What each metric says, and its labels beside the warehouse. Those that end in _total are counters.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tidemark_up": ("Whether the last look at the warehouse succeeded.", ()),
    "tidemark_newest_row_timestamp_seconds": (
        "The start of the newest tick with rows, not in the future: the newest event time is at or after it.",
        (),
    ),
    "tidemark_tick_seconds": ("The width of a tick.", ()),
    "tidemark_rows": ("Rows, by side: history or live.", ("side",)),
    "tidemark_steps": ("Loads that are in history.", ()),
    "tidemark_live_batches": ("Streamed batches that are not loaded yet.", ()),
    "tidemark_rejected_records": ("Records that could not be taken, by source.", ("source",)),
    "tidemark_runs": ("Sorted runs of measures, keys and groups, by level.", ("kind", "projection", "level")),
    "tidemark_site_rows": ("Rows of one of several warehouses that are asked as one.", ("site",)),
    "tidemark_site_newest_row_timestamp_seconds": ("The start of its newest tick with rows.", ("site",)),
    "tidemark_quantile_value": ("A quantile of a measure, in mode quick.", ("measure", "phi")),
    "tidemark_quantile_low": ("The exact quantile is certainly at least this.", ("measure", "phi")),
    "tidemark_quantile_high": ("The exact quantile is certainly at most this.", ("measure", "phi")),
    "tidemark_lost_races_total": ("Tries of commits that lost the race to other writers and came again.", ()),
}
Sample = tuple[str, tuple[str, ...], float]  # the metric, the values of its labels, the value


_log = logging.getLogger("tidemark.serve")


@dataclass
class Metrics:
    """The metrics that a scrape gets. Safe to share between threads.

    phis, last: the quantiles of every measure, for the rows of `last`; None: for all rows.
    """

    warehouses: Mapping[str, Warehouse]
    phis: Sequence[float] = PHIS
    last: Any = None

    def __post_init__(self) -> None:
        self._latency = Histogram(
            "tidemark_question_seconds",
            "How long questions took, waiting included.",
            ["warehouse", "question"],
            buckets=BUCKETS,
            registry=CollectorRegistry(),
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidemark-metrics")
        self._running: Future[None] | None = None
        self._races = {
            name: {site: LostRaces(one.store) for site, one in wh.sites.items()}
            for name, wh in self.warehouses.items()
        }
        self._found: dict[str, list[Sample]] = {}
        self._found_at = math.nan

    def took(self, warehouse: str, question: str, seconds: float) -> None:
        """Counts a question."""
        self._latency.labels(warehouse, question).observe(seconds)

    async def scrape(self, names: Iterable[str]) -> Response:
        """The metrics of these warehouses, as text."""
        if self._running is None or self._running.done():
            self._running = self._pool.submit(self._look)
        waits = WAIT_SECONDS if self._found else FIRST_SECONDS
        await asyncio.wait({asyncio.wrap_future(self._running)}, timeout=waits)
        registry: Any = SimpleNamespace(collect=lambda: self._families(set(names)))
        text = generate_latest(registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    def close(self) -> None:
        """Ends the looks."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> None:
        self._found = {
            name: samples(wh, self.phis, self.last, self._races[name]) for name, wh in self.warehouses.items()
        }
        self._found_at = time.monotonic()

    def _families(self, names: set[str]) -> Iterator[Metric]:
        found = {name: own for name, own in self._found.items() if name in names}
        age = GaugeMetricFamily("tidemark_view_age_seconds", "How old what follows of the warehouses is.")
        age.add_metric([], time.monotonic() - self._found_at)
        yield age
        for metric, (words, labels) in FAMILIES.items():
            kind = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
            family = kind(metric, words, labels=["warehouse", *labels])
            for name, own in found.items():
                for sample, values, value in own[:MOST_SERIES]:
                    if sample == metric:
                        family.add_metric([name, *values], value)
            yield family
        cut = GaugeMetricFamily(
            "tidemark_series_left_out", f"Series beyond {MOST_SERIES:,} of a warehouse.", labels=["warehouse"]
        )
        for name, own in found.items():
            cut.add_metric([name], max(0, len(own) - MOST_SERIES))
        yield cut
        for latency in self._latency.collect():
            latency.samples = [
                one
                for one in latency.samples
                if one.labels["warehouse"] in names and not one.name.endswith("_created")
            ]
            yield latency


def samples(wh: Warehouse, phis: Sequence[float], last: Any, races: Mapping[str, LostRaces]) -> list[Sample]:
    """The samples of a warehouse; if it cannot be read, only that it is not up.

    races: the lost races of each of several warehouses by its name; for a single one by the name "".
    """
    try:
        info = wh.info()
        sites = wh.by_site() if "warehouses" in info else None
        rows = _rows(wh) if sites is None else sum(one.rows for one in sites.values())
        of_sites = _of_sites(wh, sites or {})
        lost = _lost_races(info, races)
        found = [*_of_tables(info, rows), lost, *of_sites, *_newest(wh), *_quantiles(wh, phis, last)]
        return [("tidemark_up", (), 1.0), *found]
    except TidemarkError as error:
        _log.warning("a look at a warehouse failed: %s: %s", type(error).__name__, error)
    except Exception as error:  # noqa: BLE001  the other warehouses are told all the same
        _log.error("a look at a warehouse failed unexpectedly", exc_info=error)
    return [("tidemark_up", (), 0.0)]


def _rows(wh: Warehouse) -> int:
    """The rows of all visible batches."""
    try:
        return sum(wh.contents().counts.values())
    except EmptyWindow:  # no columns yet
        return 0


def _lost_races(info: Mapping[str, Any], races: Mapping[str, LostRaces]) -> Sample:
    facts = info.get("warehouses", {"": info})
    number = sum(one.look(facts[name]["versions"]) for name, one in races.items())
    return "tidemark_lost_races_total", (), number


def _of_sites(wh: Warehouse, sites: Mapping[str, SiteFacts]) -> Iterator[Sample]:
    for name, one in sites.items():
        yield "tidemark_site_rows", (name,), one.rows
        if one.newest is not None and wh.tick is not None:
            newest = one.newest.timestamp() - wh.tick / _SECOND
            yield "tidemark_site_newest_row_timestamp_seconds", (name,), newest


def _of_tables(info: Mapping[str, Any], rows: int) -> Iterator[Sample]:
    yield "tidemark_rows", ("history",), rows - info["live_rows"]
    yield "tidemark_rows", ("live",), info["live_rows"]
    yield "tidemark_steps", (), info["steps"]
    yield "tidemark_live_batches", (), info["live_batches"]
    for source, rejected in info.get("rejected", {}).items():
        yield "tidemark_rejected_records", (source,), rejected
    for role in ("measures", "keys", "groups"):
        for name, facts in info.get(role, {}).items():
            for level, runs in facts["runs_by_level"].items():
                yield "tidemark_runs", (role.removesuffix("s"), name, str(level)), runs


def _newest(wh: Warehouse) -> Iterator[Sample]:
    if wh.tick is None:
        return
    yield "tidemark_tick_seconds", (), wh.tick / _SECOND
    try:
        start, _ = wh.span(last=wh.tick)
    except EmptyWindow:
        return
    yield "tidemark_newest_row_timestamp_seconds", (), start.timestamp()


def _quantiles(wh: Warehouse, phis: Sequence[float], last: Any) -> Iterator[Sample]:
    for measure in wh.measures:
        try:
            answers = wh.quantile(list(phis), measure.name, last=last, mode="quick")
        except EmptyWindow:
            continue
        for answer in answers:
            labels = measure.name, f"{answer.phi:g}"
            for name, towards in (("value", None), ("low", -math.inf), ("high", math.inf)):
                yield f"tidemark_quantile_{name}", labels, number(getattr(answer, name), towards)


def number(value: Any, towards: float | None = None) -> float:
    """A value as a double; of a time the seconds since 1970.

    towards: if no double is the value, the next double in this direction is taken, so that bounds stay
        bounds; None: the nearest.
    """
    if isinstance(value, float):
        return value
    exact = exact_us(value) / 10**6 if isinstance(value, date) else Fraction(value)
    found = float(exact)
    if towards is not None and (Fraction(found) > exact if towards < 0 else Fraction(found) < exact):
        return math.nextafter(found, towards)
    return found
