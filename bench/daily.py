"""Part `daily`: what analysts ask in a day, each beside scans by other engines.

The rows are web requests in nightly loads and a few live batches. Each question is asked of tidemark and of
DuckDB, over the files of `events` and over the files that were loaded. Answers are compared before anything
is timed.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from bench.engines import Duck
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from tidemark import query, stream, warehouse

LIVE = 10
END = datetime(2026, 3, 3, tzinfo=UTC)  # the live rows are those of the last day
WEEK = (END - timedelta(days=7), END)
DAY = (END - timedelta(days=2), END - timedelta(days=1))
TIMES, SLACK_MS = 1.1, 5.0  # a question takes at most so much more than DuckDB, and so many ms
_REGIONS = np.array(["us-east", "us-west", "eu-central", "eu-west", "ap-south", "ap-north", "sa", "af"])
_PHIS = [i / 101 for i in range(1, 101)]


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: in history, in `nights` loads of a day each; a question is asked `turns` times."""

    rows: int
    urls: int
    users: int
    turns: int
    nights: int = 60


QUICK = (Sizes(3_000, 20, 300, 1, nights=9),)
SIZES = tuple(Sizes(rows, 5_000, 400_000, 5) for rows in (3_000_000, 30_000_000))


@dataclass(frozen=True, slots=True)
class Question:
    """sql: for DuckDB over the view `s`; {week} and {day} are conditions on the time.

    rows: the answer as rows of the query's columns, in any order.
    """

    name: str
    ask: Callable[[Any], Any]
    rows: Callable[[Any], list[tuple[Any, ...]]]
    sql: str


def _each(answers: Any) -> list[Any]:
    return list(answers) if hasattr(answers, "__iter__") else [answers]


def _quantiles(*columns: str) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of group, start of the window if it is a column, value and number of rows."""

    def scope(answer: Any) -> tuple[Any, ...]:
        group = tuple(answer.group.values()) if "group" in columns else ()
        return (*group, *(answer.window[:1] if "start" in columns else ()))

    return lambda answers: [(*scope(one), one.value, one.N) for one in _each(answers) if one.N]


def _counts(*, start: bool = False) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of the start of the window, if it is a column, the key and its count."""
    return lambda answers: [
        (*(one.window[:1] if start else ()), one.value, one.count) for one in _each(answers)
    ]


def _number(*, start: bool = False) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Rows of the start of the window, if it is a column, and a number."""
    return lambda answers: [
        (*(one.window[:1] if start else ()), one.count) for one in _each(answers) if one.count or not start
    ]


_P99 = "quantile_disc(latency_ms, 0.99), count(*)"
_HOUR, _BY_DAY = 'time_bucket(INTERVAL 1 hour, "at")', 'time_bucket(INTERVAL 1 day, "at")'
_PLAIN, _GROUPED, _SERIES = _quantiles(), _quantiles("group"), _quantiles("start")
_TOP = "ORDER BY 2 DESC, 1 LIMIT 10"
_SEVERAL = "unnest(quantile_disc(latency_ms, [{}])), count(*)"


def questions(sizes: Sizes) -> list[Question]:
    """The questions, in the order of the report."""
    week = {"between": WEEK}
    url, user = "/page/0007", sizes.users // 3
    by_hour = {"every": "1h", **week}
    every_url = {"limit": 10**6}
    return [
        Question("p99", lambda wh: wh.quantile(0.99), _PLAIN, f"SELECT {_P99} FROM s"),
        Question(
            "p50, p90, p99",
            lambda wh: wh.quantile([0.5, 0.9, 0.99]),
            _PLAIN,
            f"SELECT {_SEVERAL.format('0.5, 0.9, 0.99')} FROM s",
        ),
        Question(
            "p99, 7 days", lambda wh: wh.quantile(0.99, **week), _PLAIN, f"SELECT {_P99} FROM s {{week}}"
        ),
        Question(
            "100 quantiles, 7 days",
            lambda wh: wh.quantile(_PHIS, **week),
            _PLAIN,
            f"SELECT {_SEVERAL.format(', '.join(map(str, _PHIS)))} FROM s {{week}}",
        ),
        Question(
            "p99, one day", lambda wh: wh.quantile(0.99, between=DAY), _PLAIN, f"SELECT {_P99} FROM s {{day}}"
        ),
        Question(
            "p99 by hour, 7 days",
            lambda wh: wh.quantile(0.99, **by_hour),
            _SERIES,
            f"SELECT {_HOUR}, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p99 by day",
            lambda wh: wh.quantile(0.99, every="1d"),
            _SERIES,
            f"SELECT {_BY_DAY}, {_P99} FROM s GROUP BY 1",
        ),
        Question(
            "share below 100 ms, 7 days",
            lambda wh: wh.rank(100.0, **week),
            lambda one: [(one.rank, one.N)],
            "SELECT count(*) FILTER (latency_ms <= 100), count(*) FROM s {week}",
        ),
        Question(
            "histogram of 5 bins, 7 days",
            lambda wh: wh.histogram([0.0, 10.0, 20.0, 50.0, 100.0, 1000.0], **week),
            lambda found: [(one.left, one.count) for one in found],
            "SELECT CASE WHEN latency_ms < 10 THEN 0 WHEN latency_ms < 20 THEN 10 WHEN latency_ms < 50 "
            "THEN 20 WHEN latency_ms < 100 THEN 50 ELSE 100 END::DOUBLE, count(*) FROM s {week} "
            "AND latency_ms <= 1000 GROUP BY 1",
        ),
        Question(
            "p99 of a region, 7 days",
            lambda wh: wh.quantile(0.99, where={"region": "us-east"}, **week),
            _PLAIN,
            f"SELECT {_P99} FROM s {{week}} AND region = 'us-east'",
        ),
        Question(
            "p99 by region",
            lambda wh: wh.quantile(0.99, by="region"),
            _GROUPED,
            f"SELECT region, {_P99} FROM s GROUP BY 1",
        ),
        Question(
            "p99 by region, 7 days",
            lambda wh: wh.quantile(0.99, by="region", **week),
            _GROUPED,
            f"SELECT region, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p50, p90, p99 by region, 7 days",
            lambda wh: wh.quantile([0.5, 0.9, 0.99], by="region", **week),
            _GROUPED,
            f"SELECT region, {_SEVERAL.format('0.5, 0.9, 0.99')} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p99 by region and hour, 7 days",
            lambda wh: wh.quantile(0.99, by="region", **by_hour),
            _quantiles("group", "start"),
            f"SELECT region, {_HOUR}, {_P99} FROM s {{week}} GROUP BY 1, 2",
        ),
        Question(
            "p99 of one url",
            lambda wh: wh.quantile(0.99, where={"url": url}),
            _PLAIN,
            f"SELECT {_P99} FROM s WHERE url = '{url}'",
        ),
        Question(
            "p99 of one url by day",
            lambda wh: wh.quantile(0.99, where={"url": url}, every="1d"),
            _SERIES,
            f"SELECT {_BY_DAY}, {_P99} FROM s WHERE url = '{url}' GROUP BY 1",
        ),
        Question(
            "p99 of every url, 7 days",
            lambda wh: wh.quantile(0.99, by="url", **every_url, **week),
            _GROUPED,
            f"SELECT url, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p99 of every url",
            lambda wh: wh.quantile(0.99, by="url", **every_url),
            _GROUPED,
            f"SELECT url, {_P99} FROM s GROUP BY 1",
        ),
        Question(
            "p99 of the 20 urls with most rows, 7 days",
            lambda wh: wh.quantile(0.99, by="url", top=20, **week),
            _GROUPED,
            f"SELECT url, {_P99} FROM s {{week}} GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 20",
        ),
        Question(
            "the 20 slowest urls, 7 days",
            lambda wh: wh.quantile(0.99, by="url", order="-value", top=20, least_rows=100, **week),
            _GROUPED,
            f"SELECT url, {_P99} FROM s {{week}} GROUP BY 1 HAVING count(*) >= 100 "
            "ORDER BY 2 DESC, 1 LIMIT 20",
        ),
        Question(
            "p99 by region and url, one day (scan)",
            lambda wh: wh.quantile(0.99, by=["region", "url"], between=DAY, **every_url),
            _GROUPED,
            f"SELECT region, url, {_P99} FROM s {{day}} GROUP BY 1, 2",
        ),
        Question(
            "p99 where status = 500, 7 days (scan)",
            lambda wh: wh.quantile(0.99, where="status = 500", **week),
            _PLAIN,
            f"SELECT {_P99} FROM s {{week}} AND status = 500",
        ),
        Question(
            "p99 where status = 500 (scan)",
            lambda wh: wh.quantile(0.99, where="status = 500"),
            _PLAIN,
            f"SELECT {_P99} FROM s WHERE status = 500",
        ),
        Question(
            "p99 where bytes > 5000 and region like 'us%', 7 days (scan)",
            lambda wh: wh.quantile(0.99, where="bytes > 5000 and region like 'us%'", **week),
            _PLAIN,
            f"SELECT {_P99} FROM s {{week}} AND bytes > 5000 AND region LIKE 'us%'",
        ),
        Question(
            "p99 where status = 500 by hour, 7 days (scan)",
            lambda wh: wh.quantile(0.99, where="status = 500", **by_hour),
            _SERIES,
            f"SELECT {_HOUR}, {_P99} FROM s {{week}} AND status = 500 GROUP BY 1",
        ),
        Question(
            "p99 by status, 7 days (scan)",
            lambda wh: wh.quantile(0.99, by="status", **week),
            _GROUPED,
            f"SELECT status, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "rows of one user",
            lambda wh: wh.frequency(user, key="user_id"),
            _number(),
            f"SELECT count(*) FROM s WHERE user_id = {user}",
        ),
        Question(
            "rows of one user, 7 days",
            lambda wh: wh.frequency(user, key="user_id", **week),
            _number(),
            f"SELECT count(*) FROM s {{week}} AND user_id = {user}",
        ),
        Question(
            "rows of one url by day",
            lambda wh: wh.frequency(url, key="url", every="1d"),
            _number(start=True),
            f"SELECT {_BY_DAY}, count(*) FROM s WHERE url = '{url}' GROUP BY 1",
        ),
        *_about_keys(week),
    ]


def _about_keys(week: dict[str, Any]) -> list[Question]:
    exact = {"mode": "exact"}
    per_user, per_url = (f"SELECT {key}, count(*) FROM s {{}} GROUP BY 1" for key in ("user_id", "url"))
    return [
        Question(
            "top 10 users",
            lambda wh: wh.top(10, key="user_id", **exact),
            _counts(),
            f"{per_user.format('')} {_TOP}",
        ),
        Question(
            "top 10 users, 7 days",
            lambda wh: wh.top(10, key="user_id", **exact, **week),
            _counts(),
            f"{per_user.format('{week}')} {_TOP}",
        ),
        Question(
            "top 10 urls",
            lambda wh: wh.top(10, key="url", **exact),
            _counts(),
            f"{per_url.format('')} {_TOP}",
        ),
        Question(
            "top 10 urls, 7 days",
            lambda wh: wh.top(10, key="url", **exact, **week),
            _counts(),
            f"{per_url.format('{week}')} {_TOP}",
        ),
        Question(
            "top 10 users by day",
            lambda wh: wh.top(10, key="user_id", every="1d", **exact),
            _counts(start=True),
            f"SELECT d, user_id, n FROM (SELECT {_BY_DAY} d, user_id, count(*) n FROM s GROUP BY 1, 2) "
            "QUALIFY row_number() OVER (PARTITION BY d ORDER BY n DESC, user_id) <= 10",
        ),
        Question(
            "urls with at least 1 % of the rows",
            lambda wh: wh.heavy_hitters(0.01, key="url", **exact),
            _counts(),
            "SELECT url, count(*) n FROM s GROUP BY 1 HAVING n >= (SELECT ceil(0.01 * count(*)) FROM s)",
        ),
        Question(
            "users with at least 0.001 % of the rows",
            lambda wh: wh.heavy_hitters(0.00001, key="user_id", **exact),
            _counts(),
            "SELECT user_id, count(*) n FROM s GROUP BY 1 "
            "HAVING n >= (SELECT ceil(0.00001 * count(*)) FROM s)",
        ),
        Question(
            "distinct users",
            lambda wh: wh.distinct(key="user_id", **exact),
            _number(),
            "SELECT count(DISTINCT user_id) FROM s",
        ),
        Question(
            "distinct users, 7 days",
            lambda wh: wh.distinct(key="user_id", **exact, **week),
            _number(),
            "SELECT count(DISTINCT user_id) FROM s {week}",
        ),
        Question(
            "distinct users by day",
            lambda wh: wh.distinct(key="user_id", every="1d", **exact),
            _number(start=True),
            f"SELECT {_BY_DAY}, count(DISTINCT user_id) FROM s GROUP BY 1",
        ),
        Question(
            "distinct urls, 7 days",
            lambda wh: wh.distinct(key="url", **exact, **week),
            _number(),
            "SELECT count(DISTINCT url) FROM s {week}",
        ),
        Question(
            "users seen on 4 of 7 days",
            lambda wh: wh.persistent(4 / 7, slot="1d", key="user_id", **week),
            lambda answers: [(one.value, one.slots) for one in answers],
            f"SELECT user_id, count(DISTINCT {_BY_DAY}) n FROM s {{week}} GROUP BY 1 HAVING n >= 4",
        ),
        Question(
            "self-join of users",
            lambda wh: wh.self_join(key="user_id", **exact),
            _number(),
            "SELECT sum(n * n)::BIGINT FROM (SELECT count(*) n FROM s GROUP BY user_id)",
        ),
    ]


def run(work: Path, all_sizes: Sequence[Sizes]) -> Section:
    """Measures and returns the section."""
    section = Section("daily", "Daily: what analysts ask, beside scans")
    for sizes in all_sizes:
        folder = work / "daily"
        _fill(folder, sizes)
        _ask(section, folder, sizes)
        shutil.rmtree(folder)
    return section


def _ask(section: Section, folder: Path, sizes: Sizes) -> None:
    """Asks all questions, and adds their table."""
    wh = query.open(folder / "w")
    loaded = sorted(map(str, (folder / "source").glob("*.parquet")))
    peers = [Duck(DeltaTable(folder / "w" / "events").file_uris()), Duck(loaded)]
    taken = {}
    for question in questions(sizes):
        ours, *theirs = taken[question.name] = _measure(question, wh, peers, sizes.turns)
        say(f"  {question.name}: {ours:.1f} ms, DuckDB {theirs[0]:.1f} and {theirs[1]:.1f}")
    title = f"{sizes.rows / 1e6:g} M rows"
    beyond = [(ours - SLACK_MS) / events for ours, events, _ in taken.values()]
    late = sum(one > TIMES for one in beyond)
    section.add(f"{title}: questions slower than {TIMES} x DuckDB + {SLACK_MS:g} ms", late, "questions", 0)
    section.add(f"{title}: the slowest, without these {SLACK_MS:g} ms / DuckDB", max(beyond), "x", TIMES)
    middle = statistics.median(events / ours for ours, events, _ in taken.values())
    section.add(f"{title}: DuckDB / tidemark, median of {len(taken)} questions", middle, "x")
    head = [
        "question",
        "tidemark (ms)",
        "DuckDB over events (ms)",
        "DuckDB over the loaded files (ms)",
        "ratio",
    ]
    lines = [[name, *map(number, found), number(found[0] / found[1])] for name, found in taken.items()]
    section.text(
        f"{sizes.rows:,} web requests in {sizes.nights} nightly loads and {LIVE} live batches, tick 1h, "
        f"keys url ({sizes.urls:,}) and user_id ({sizes.users:,}, flat), groups region and url. Warm medians "
        f"of {sizes.turns}; every answer is exact and was compared first. The ratio is tidemark / DuckDB "
        "over `events`.\n\n" + table(head, lines)
    )


def _measure(question: Question, wh: Any, peers: Sequence[Duck], turns: int) -> list[float]:
    """The medians of all in ms, after their answers were compared."""
    given = {name: _condition(*window) for name, window in (("week", WEEK), ("day", DAY))}
    sql = question.sql.format(**given)
    works = [partial(question.ask, wh), *(partial(peer.rows, sql) for peer in peers)]
    found = [sorted(question.rows(works[0]())), *(sorted(work()) for work in works[1:])]
    assert found[0] == found[1] == found[2], (question.name, [rows[:3] for rows in found])
    taken = [[timed(work)[0] for work in works] for _ in range(turns)]
    return [statistics.median(column) * MS for column in zip(*taken, strict=True)]


def _condition(start: datetime, end: datetime) -> str:
    return f"WHERE \"at\" >= '{start}' AND \"at\" < '{end}'"


def _fill(folder: Path, sizes: Sizes) -> None:
    """Makes the rows, loads them, and keeps the files that were loaded."""
    (folder / "source").mkdir(parents=True)
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, sizes.urls + 1) ** 1.1
    urls = np.array([f"/page/{i:04d}" for i in range(sizes.urls)])
    day_us = 86_400_000_000

    start_us = int(END.timestamp() * 1e6) - (sizes.nights + 1) * day_us

    def rows(count: int, day: int) -> pa.Table:
        times = start_us + day * day_us + np.sort(rng.integers(0, day_us, count))
        statuses = rng.choice([200, 304, 404, 500], count, p=[0.9, 0.05, 0.04, 0.01])
        return pa.table(
            {
                "latency_ms": rng.lognormal(3, 1, count),
                "bytes": rng.integers(0, 100_000, count),
                "status": statuses.astype(np.int32),
                "region": _REGIONS[rng.integers(0, len(_REGIONS), count)],
                "url": urls[rng.choice(sizes.urls, count, p=shares / shares.sum())],
                "user_id": rng.integers(0, sizes.users, count),
                "at": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )

    uri = folder / "w"
    for day in range(sizes.nights):
        part = rows(sizes.rows // sizes.nights, day)
        if not day:
            warehouse.create(
                None,
                uri,
                "latency_ms",
                keys=["url", "user_id"],
                groups=["region", "url"],
                time="at",
                tick="1h",
                schema=part.schema,
            )
        pq.write_table(part, folder / "source" / f"{day:02d}.parquet")
        warehouse.load(None, uri, part, f"night {day}")
    for batch in range(LIVE):
        part = rows(max(10, sizes.rows // (LIVE * 600)), sizes.nights)
        pq.write_table(part, folder / "source" / f"live{batch}.parquet")
        stream.append(None, uri, part, source="requests", batch=batch)
