"""Every question that the servers answer, as they and Python are asked it, of `http_served.small_world`."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tidemark import query

W = query.Warehouse
# The same question as an address, as a body, and in Python.
ASKED: dict[str, tuple[str, dict[str, Any], Callable[[W], Any]]] = {
    "quantile": (
        "phi=0.5&phi=1&by=site&every=1d",
        {"phi": [0.5, 1], "by": ["site"], "every": "1d"},
        lambda wh: wh.quantile([0.5, 1], by="site", every="1d"),
    ),
    "rank": (
        "x=9223372036854775807&measure=big",
        {"x": "9223372036854775807", "measure": "big"},
        lambda wh: wh.rank([2**63 - 1], "big"),
    ),
    "cdf": (
        "x=0.1&x=50&measure=price&last=1d",
        {"x": [0.1, "50"], "measure": "price", "last": "1d"},
        lambda wh: wh.cdf([Decimal("0.1"), 50], "price", last="1d"),
    ),
    "histogram": ("bins=3&measure=big", {"bins": 3, "measure": "big"}, lambda wh: wh.histogram(3, "big")),
    "largest": ("k=2&measure=at", {"k": 2, "measure": "at"}, lambda wh: wh.largest(2, "at")),
    "smallest": ("", {}, lambda wh: wh.smallest()),
    "summary": ("measure=price", {"measure": "price"}, lambda wh: wh.summary("price")),
    "frequency": (
        "value=ATL&value=nowhere",
        {"value": ["ATL", "nowhere"]},
        lambda wh: wh.frequency(["ATL", "nowhere"]),
    ),
    "heavy_hitters": ("phi=0.1", {"phi": 0.1}, lambda wh: wh.heavy_hitters(0.1)),
    "hierarchy": (
        "phi=0.1&separator=A",
        {"phi": 0.1, "separator": "A"},
        lambda wh: wh.hierarchy(0.1, "A"),
    ),
    "top": (
        "k=2&key=site,name",
        {"k": 2, "key": ["site", "name"]},
        lambda wh: wh.top(2, key=["site", "name"]),
    ),
    "key_range": (
        "low=A&high=B&until=2001-09-11",
        {"low": "A", "high": "B", "until": "2001-09-11"},
        lambda wh: wh.key_range("A", "B", between=(None, "2001-09-11")),
    ),
    "self_join": ("where=site=eu", {"where": {"site": "eu"}}, lambda wh: wh.self_join(where={"site": "eu"})),
    "distinct": (
        "key=big&mode=exact",
        {"key": "big", "mode": "exact"},
        lambda wh: wh.distinct(key="big", mode="exact"),
    ),
    "new_keys": (
        "last=1d&key=big",
        {"last": "1d", "key": "big"},
        lambda wh: wh.new_keys(last="1d", key="big"),
    ),
    "overlap": (
        "until=2001-09-11&other_since=2001-09-11",
        {"until": "2001-09-11", "other_since": "2001-09-11"},
        lambda wh: wh.overlap((None, "2001-09-11"), ("2001-09-11", None)),
    ),
    "persistent": ("alpha=0.1", {"alpha": 0.1}, lambda wh: wh.persistent(0.1)),
    "persistence": (
        "value=SEA&slot=1d",
        {"value": "SEA", "slot": "1d"},
        lambda wh: wh.persistence(["SEA"], slot="1d"),
    ),
    "inner_product": ("other=w", {"other": "w"}, lambda wh: wh.inner_product(wh)),
}
