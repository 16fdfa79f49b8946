"""Quantiles and frequencies with certified bounds, over Delta Lake history and the live stream.

>>> import tidemark                                                  # doctest: +SKIP
>>> tidemark.create(None, "flights", ["delay"], time="at")           # doctest: +SKIP
>>> tidemark.load(None, "flights", "january.parquet", batch="1")     # doctest: +SKIP
>>> tidemark.open("flights").quantile(0.99, last="7d")               # doctest: +SKIP

This module has the most used names of `tidemark.query`, `tidemark.warehouse` and `tidemark.stream`. Each is
imported at its first use, so that `import tidemark` itself is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark.query import (
        Answer,
        Answers,
        Warehouse,
        cdf,
        frequency,
        heavy_hitters,
        histogram,
        info,
        open,  # noqa: A004  as in gzip.open
        quantile,
        rank,
        register_duckdb,
        register_views,
        top,
        use,
    )
    from tidemark.stream import append, start
    from tidemark.warehouse import (
        TidemarkError,
        alter,
        correct,
        create,
        delete,
        load,
        maintain,
        repair,
        unload,
        verify,
    )

_QUERY = (
    "Answer Answers Warehouse cdf frequency heavy_hitters histogram info open quantile rank register_duckdb "
    "register_views top use"
)
_WAREHOUSE = "TidemarkError alter correct create delete load maintain repair unload verify"
_MODULE_OF = {
    **dict.fromkeys(_QUERY.split(), "tidemark.query"),
    **dict.fromkeys(("append", "start"), "tidemark.stream"),
    **dict.fromkeys(_WAREHOUSE.split(), "tidemark.warehouse"),
}
_PACKAGES = ("jobs", "query", "sketches", "stream", "warehouse")

__all__ = [
    "Answer",
    "Answers",
    "TidemarkError",
    "Warehouse",
    "alter",
    "append",
    "cdf",
    "correct",
    "create",
    "delete",
    "frequency",
    "heavy_hitters",
    "histogram",
    "info",
    "load",
    "maintain",
    "open",
    "quantile",
    "rank",
    "register_duckdb",
    "register_views",
    "repair",
    "start",
    "top",
    "unload",
    "use",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"tidemark.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tidemark' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
