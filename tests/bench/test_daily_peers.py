"""The dialects of the daily questions' peers, and the rank that ClickHouse takes for a quantile."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

from bench.daily.measure_questions import PHIS
from bench.daily.peers import clickhouse_sql, polars_sql

SEVERAL = "SELECT region, unnest(quantile_disc(latency_ms, [0.5, 0.9])), count(*) FROM s GROUP BY 1"


def test_clickhouse_takes_the_rank_that_duckdb_takes() -> None:
    rows = np.concatenate([np.arange(1, 2_000), np.arange(10**8 - 2_000, 10**8)])
    for phi in (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100), *PHIS):
        found = re.search(r"quantileExact\(([\d.]+)\)", clickhouse_sql(f"quantile_disc(x, {float(phi)})"))
        ranks = -(-phi.numerator * rows // phi.denominator)
        assert found
        assert ((float(found[1]) * rows).astype(np.int64) + 1 == ranks).all()
        # Without the correction some ranks differ: these rows would show it.
        assert ((float(phi) * rows).astype(np.int64) + 1 != ranks).any()


def test_a_statement_is_written_in_each_dialect() -> None:
    assert "arrayJoin(quantilesExact(0.49999999999, 0.89999999999)(latency_ms))" in clickhouse_sql(SEVERAL)
    columns = "region, quantile_disc(latency_ms, 0.5) AS q0, quantile_disc(latency_ms, 0.9) AS q1, count(*)"
    assert polars_sql(SEVERAL) == (f"SELECT {columns} FROM s GROUP BY 1", 1, 2)
    bucket = 'SELECT time_bucket(INTERVAL 1 hour, "at") FROM s WHERE "at" < \'2026-03-03 00:00:00+00:00\''
    assert clickhouse_sql(bucket) == (
        "SELECT toDateTime64(toStartOfInterval(\"at\", INTERVAL 1 hour), 6, 'UTC') FROM b.s "
        "WHERE \"at\" < toDateTime64('2026-03-03 00:00:00', 6, 'UTC')"
    )
    assert polars_sql(bucket)[0].startswith("SELECT DATE_TRUNC('hour', \"at\") FROM s")
