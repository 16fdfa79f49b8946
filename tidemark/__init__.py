"""Quantiles and frequencies with certified bounds, over Delta Lake history and the live stream.

>>> import tidemark                                                  # doctest: +SKIP
>>> tidemark.create(None, "flights", ["delay"], time="at")           # doctest: +SKIP
>>> tidemark.load(None, "flights", "january.parquet", batch="1")     # doctest: +SKIP
>>> tidemark.open("flights").quantile(0.99, last="7d")               # doctest: +SKIP

This module has the most used names of `tidemark.query`, `tidemark.warehouse` and `tidemark.stream`. Each is
imported at its first use, so that `import tidemark` itself is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.first_use import import_at_first_use

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

import_at_first_use(
    __name__,
    {
        "query": "Answer Answers Warehouse cdf frequency heavy_hitters histogram info open quantile rank "
        "register_duckdb register_views top use",
        "stream": "append start",
        "warehouse": "TidemarkError alter correct create delete load maintain repair unload verify",
        "": "jobs query sketches stream warehouse",
    },
)

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
