"""ClickHouse and Polars, which answer the SQL of the questions; each in its own dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

_QUANTILE = re.compile(r"quantile_disc\((\w+), ([\d.]+)\)")
_QUANTILES = re.compile(r"unnest\(quantile_disc\((\w+), \[([\d., ]+)\]\)\)")
_BUCKET = re.compile(r"time_bucket\(INTERVAL 1 (\w+), (\"\w+\")\)")
_BOUND = re.compile(r"(\"\w+\" (?:>=|<)) '([^'+]+)\+00:00'")
_COLUMNS = "latency_ms, bytes, status, region, url, user_id, at"
# ClickHouse takes the row floor(phi * rows) + 1 and DuckDB ceil(phi * rows). These differ where the product
# is a whole number. With a phi that is so much less they are the same, up to 10**8 rows, for every phi that
# is a whole number of hundredths or of 101st parts.
_LESS = 1e-11


class Peer(Protocol):
    """An engine with the rows of the warehouse."""

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement in DuckDB's dialect, in which the table `s` has all rows."""

    def close(self) -> None:
        """Ends it."""


class ClickHouse:
    """ClickHouse in this process; its table is in the order of the time, and merged."""

    def __init__(self, files: Sequence[str]) -> None:
        self._session: Any = import_module("chdb.session").Session()
        self._session.query("CREATE DATABASE b")
        self._session.query(
            "CREATE TABLE b.s (latency_ms Float64, bytes Int64, status Int32, region LowCardinality(String), "
            "url LowCardinality(String), user_id Int64, at DateTime64(6, 'UTC')) "
            "ENGINE = MergeTree ORDER BY at"
        )
        for file in files:
            path = file.removeprefix("file://")
            self._session.query(f"INSERT INTO b.s SELECT {_COLUMNS} FROM file('{path}', Parquet)")
        self._session.query("OPTIMIZE TABLE b.s FINAL")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """See `Peer.rows`."""
        found = self._session.query(clickhouse_sql(statement), "ArrowTable")
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def close(self) -> None:
        """See `Peer.close`; removes its files."""
        self._session.close()


class Polars:
    """Polars over the Parquet files; each statement is a lazy query for its streaming engine."""

    def __init__(self, files: Sequence[str]) -> None:
        polars: Any = import_module("polars")
        paths = [file.removeprefix("file://") for file in files]
        self._context = polars.SQLContext(s=polars.scan_parquet(paths))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """See `Peer.rows`."""
        sql, first, quantiles = polars_sql(statement)
        found = self._context.execute(sql).collect(engine="streaming").rows()
        if not quantiles:
            return list(found)
        last = first + quantiles
        return [(*row[:first], value, *row[last:]) for row in found for value in row[first:last]]

    def close(self) -> None:
        """See `Peer.close`."""


def other_peers() -> dict[str, type[ClickHouse | Polars]]:
    """Those of the two that are installed, by their names."""
    return {
        name: kind
        for name, module, kind in (("ClickHouse", "chdb", ClickHouse), ("Polars", "polars", Polars))
        if find_spec(module) is not None
    }


def clickhouse_sql(statement: str) -> str:
    """A statement of DuckDB in the dialect of ClickHouse."""

    def level(phi: str) -> str:
        return repr(float(phi) - _LESS)

    def several(found: re.Match[str]) -> str:
        levels = ", ".join(map(level, found[2].split(", ")))
        return f"arrayJoin(quantilesExact({levels})({found[1]}))"

    sql = _QUANTILES.sub(several, statement)
    sql = _QUANTILE.sub(lambda found: f"quantileExact({level(found[2])})({found[1]})", sql)
    sql = _BUCKET.sub(r"toDateTime64(toStartOfInterval(\2, INTERVAL 1 \1), 6, 'UTC')", sql)
    sql = _BOUND.sub(r"\1 toDateTime64('\2', 6, 'UTC')", sql)
    return re.sub(r"\bFROM s\b", "FROM b.s", sql)


def polars_sql(statement: str) -> tuple[str, int, int]:
    """A statement of DuckDB in the dialect of Polars, which has no lists of quantiles.

    And the place of the first column of several quantiles, each in a column, and how many they are.
    """
    sql = _BUCKET.sub(lambda found: f"DATE_TRUNC('{found[1]}', {found[2]})", statement)
    several = _QUANTILES.search(sql)
    if several is None:
        return sql, 0, 0
    phis = several[2].split(", ")
    columns = ", ".join(f"quantile_disc({several[1]}, {phi}) AS q{i}" for i, phi in enumerate(phis))
    return _QUANTILES.sub(columns, sql), sql[: several.start()].count(","), len(phis)
