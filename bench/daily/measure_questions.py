"""Questions about a measure."""

from __future__ import annotations

from fractions import Fraction

from bench.daily.question import BY_DAY, HOUR, Question, quantiles, summaries
from bench.daily.rows import DAY, ONE_URL, WEEK

PHIS = [Fraction(i, 101) for i in range(1, 101)]
_P99 = "quantile_disc(latency_ms, 0.99), count(*)"
_PLAIN, _GROUPED, _SERIES = quantiles(), quantiles("group"), quantiles("start")
_SUMS = (
    "count(*), sum(latency_ms), avg(latency_ms), min(latency_ms), max(latency_ms), stddev_samp(latency_ms)"
)
_SEVERAL = "unnest(quantile_disc(latency_ms, [{}])), count(*)"


def measure_questions() -> list[Question]:
    """The questions, in the order of the report."""
    week = {"between": WEEK}
    by_hour = {"every": "1h", **week}
    every_url = {"limit": 10**6}
    return [
        Question(
            "p99",
            lambda wh: wh.quantile(0.99),
            _PLAIN,
            f"SELECT {_P99} FROM s",
            is_heavy=True,
        ),
        Question(
            "p50, p90, p99",
            lambda wh: wh.quantile([0.5, 0.9, 0.99]),
            _PLAIN,
            f"SELECT {_SEVERAL.format('0.5, 0.9, 0.99')} FROM s",
            is_heavy=True,
        ),
        Question(
            "p99, 7 days", lambda wh: wh.quantile(0.99, **week), _PLAIN, f"SELECT {_P99} FROM s {{week}}"
        ),
        Question(
            "100 quantiles, 7 days",
            lambda wh: wh.quantile([float(phi) for phi in PHIS], **week),
            _PLAIN,
            f"SELECT {_SEVERAL.format(', '.join(str(float(phi)) for phi in PHIS))} FROM s {{week}}",
        ),
        Question(
            "p99, one day", lambda wh: wh.quantile(0.99, between=DAY), _PLAIN, f"SELECT {_P99} FROM s {{day}}"
        ),
        Question(
            "p99 by hour, 7 days",
            lambda wh: wh.quantile(0.99, **by_hour),
            _SERIES,
            f"SELECT {HOUR}, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p99 by day",
            lambda wh: wh.quantile(0.99, every="1d"),
            _SERIES,
            f"SELECT {BY_DAY}, {_P99} FROM s GROUP BY 1",
            is_heavy=True,
        ),
        Question(
            "share below 100 ms, 7 days",
            lambda wh: wh.rank(100.0, **week),
            lambda one: [(one.rank, one.N)],
            "SELECT count(*) FILTER (WHERE latency_ms <= 100), count(*) FROM s {week}",
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
            is_heavy=True,
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
            quantiles("group", "start"),
            f"SELECT region, {HOUR}, {_P99} FROM s {{week}} GROUP BY 1, 2",
        ),
        Question(
            "p99 of one url",
            lambda wh: wh.quantile(0.99, where={"url": ONE_URL}),
            _PLAIN,
            f"SELECT {_P99} FROM s WHERE url = '{ONE_URL}'",
        ),
        Question(
            "p99 of one url by day",
            lambda wh: wh.quantile(0.99, where={"url": ONE_URL}, every="1d"),
            _SERIES,
            f"SELECT {BY_DAY}, {_P99} FROM s WHERE url = '{ONE_URL}' GROUP BY 1",
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
            is_heavy=True,
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
            f"SELECT {HOUR}, {_P99} FROM s {{week}} AND status = 500 GROUP BY 1",
        ),
        Question(
            "p99 by status, 7 days (scan)",
            lambda wh: wh.quantile(0.99, by="status", **week),
            _GROUPED,
            f"SELECT status, {_P99} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "p99 by status (scan)",
            lambda wh: wh.quantile(0.99, by="status"),
            _GROUPED,
            f"SELECT status, {_P99} FROM s GROUP BY 1",
        ),
        Question(
            "summary by region",
            lambda wh: wh.summary(by="region"),
            summaries,
            f"SELECT region, {_SUMS} FROM s GROUP BY 1",
        ),
        Question(
            "summary by region, 7 days",
            lambda wh: wh.summary(by="region", **week),
            summaries,
            f"SELECT region, {_SUMS} FROM s {{week}} GROUP BY 1",
        ),
        Question(
            "summary of every url",
            lambda wh: wh.summary(by="url", **every_url),
            summaries,
            f"SELECT url, {_SUMS} FROM s GROUP BY 1",
        ),
        Question(
            "summary by status (scan)",
            lambda wh: wh.summary(by="status"),
            summaries,
            f"SELECT status, {_SUMS} FROM s GROUP BY 1",
        ),
    ]
