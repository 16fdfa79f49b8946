"""Questions to a warehouse, answered with certified bounds and without a JVM.

>>> from tidemark import query                                                    # doctest: +SKIP
>>> wh = query.open("flights")                                      # doctest: +SKIP
>>> wh.quantile(0.99)                                               # doctest: +SKIP
>>> wh.quantile([0.5, 0.9], measure="delay", last="7d")             # doctest: +SKIP
>>> wh.frequency("ATL", last="90m")                                 # doctest: +SKIP

The functions `quantile`, `rank`, `cdf`, `histogram`, `frequency`, `heavy_hitters`, `top` and `info` ask the
warehouse that `use` chose, or the one that the variable TIDEMARK_WAREHOUSE names. They take what the methods
of `Warehouse` take.
"""

from __future__ import annotations

import os
from typing import Any

from tidemark.query.answers.answer import Answer, Answers, Bin, CdfAnswer, Histogram, RankAnswer
from tidemark.query.answers.info import Info
from tidemark.query.answers.key_answer import CountAnswer, FrequencyAnswer, HitterAnswer
from tidemark.query.sql.duckdb_sql import register_duckdb
from tidemark.query.sql.spark_sql import register_views
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, InputError, NotAWarehouse, TidemarkError
from tidemark.warehouse.snapshots.snapshot_reader import open_snapshot

VARIABLE = "TIDEMARK_WAREHOUSE"
_used: dict[str, Warehouse] = {}  # the warehouse of `use` under "", others by what the variable said


def open(uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> Warehouse:  # noqa: A001
    """The warehouse at a path or an object store's address; NotAWarehouse where there is none."""
    return Warehouse(open_snapshot(uri, storage_options))


def use(uri: str | os.PathLike[str], storage_options: dict[str, str] | None = None) -> Warehouse:
    """Opens a warehouse and makes it the one that the module's functions ask."""
    _used[""] = open(uri, storage_options)
    return _used[""]


def quantile(phi: Any, measure: str | None = None, **options: Any) -> Any:
    """See `Warehouse.quantile`."""
    return _chosen().quantile(phi, measure, **options)


def rank(x: Any, measure: str | None = None, **options: Any) -> Any:
    """See `Warehouse.rank`."""
    return _chosen().rank(x, measure, **options)


def cdf(x: Any, measure: str | None = None, **options: Any) -> Any:
    """See `Warehouse.cdf`."""
    return _chosen().cdf(x, measure, **options)


def histogram(bins: Any = 20, measure: str | None = None, **options: Any) -> Histogram:
    """See `Warehouse.histogram`."""
    return _chosen().histogram(bins, measure, **options)


def frequency(key: Any, **options: Any) -> Any:
    """See `Warehouse.frequency`."""
    return _chosen().frequency(key, **options)


def heavy_hitters(phi: Any, **options: Any) -> Answers[HitterAnswer]:
    """See `Warehouse.heavy_hitters`."""
    return _chosen().heavy_hitters(phi, **options)


def top(k: int = 10, **options: Any) -> Answers[HitterAnswer]:
    """See `Warehouse.top`."""
    return _chosen().top(k, **options)


def info() -> Info:
    """See `Warehouse.info`."""
    return _chosen().info()


def _chosen() -> Warehouse:
    if "" in _used:
        return _used[""]
    uri = os.environ.get(VARIABLE)
    if not uri:
        raise InputError(
            f"no warehouse was chosen. Call query.use(path) first, or set the variable {VARIABLE}."
        )
    if uri not in _used:
        _used[uri] = open(uri)
    return _used[uri]


__all__ = [
    "Answer",
    "Answers",
    "Bin",
    "CdfAnswer",
    "CountAnswer",
    "DamagedWarehouse",
    "EmptyWindow",
    "FrequencyAnswer",
    "Histogram",
    "HitterAnswer",
    "Info",
    "InputError",
    "NotAWarehouse",
    "RankAnswer",
    "TidemarkError",
    "Warehouse",
    "cdf",
    "frequency",
    "heavy_hitters",
    "histogram",
    "info",
    "open",
    "quantile",
    "rank",
    "register_duckdb",
    "register_views",
    "top",
    "use",
]
