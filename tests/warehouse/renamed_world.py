"""A warehouse whose columns were renamed, and what is asked of it and of a twin that always had the names.

The renames are a chain and a swap: `g` gets the name that `v` had, and `k` and `x` exchange theirs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark import query, stream, warehouse

START = datetime(2001, 1, 1, tzinfo=UTC)
OLD = ["v", "k", "g", "t", "x", "o"]
NEW = ["value", "x", "v", "when", "k", "order"]
RENAMES = [{"v": "value", "t": "when", "o": "order", "k": "aside"}, {"g": "v", "x": "k"}, {"aside": "x"}]
KINDS = [pa.int64(), pa.string(), pa.string(), pa.timestamp("us", "UTC"), pa.float64(), pa.int64()]


def rows_of(seed: int, names: list[str] = NEW, count: int = 60) -> pa.Table:
    random = np.random.default_rng([77, seed])
    columns = [
        [None if i % 9 == 0 else int(i) for i in random.integers(0, 500, count)],
        ["abcd"[i] for i in random.integers(0, 4, count)],
        [[None, "x", "y", "z"][i] for i in random.integers(0, 4, count)],
        [START + timedelta(hours=int(i)) for i in random.integers(0, 48, count)],
        [float(i) for i in random.random(count)],
        [seed * 1000 + i for i in range(count)],
    ]
    return pa.table([pa.array(one, kind) for one, kind in zip(columns, KINDS, strict=True)], names)


def create(uri: Path, names: list[str], index: str | None = None) -> None:
    value, key, group, time, number, _ = names
    warehouse.create(
        None,
        uri,
        [value],
        keys=[key, [key, group]],
        groups=[group],
        index=index,
        time=time,
        tick="4h",
        companions={"numbers": ("tally", number)},
    )


def rename(uri: Path) -> None:
    """Renames from the old names to the new ones; each call once more, as a scheduler repeats it."""
    for names in RENAMES:
        assert warehouse.alter(None, uri, rename=names).outcome == "altered"
        assert warehouse.alter(None, uri, rename=names).outcome == "known"


def append(uri: Path, number: int, rows: pa.Table) -> None:
    stream.append(None, uri, rows, source="live", batch=number)


def before(uri: Path, names: list[str]) -> None:
    """A step and a live batch."""
    create(uri, names)
    warehouse.load(None, uri, rows_of(1, names), "one")
    append(uri, 0, rows_of(2, names))


def answers(wh: query.Warehouse) -> list[Any]:
    """What is asked of a warehouse with the new names, by all the ways to a row."""
    window = ("2001-01-01 12:00", "2001-01-02 08:00")
    phis = [0, 0.5, 1]
    return [
        [answer.value for mode in ("quick", "accurate", "exact") for answer in wh.quantile(phis, mode=mode)],
        [answer.value for answer in wh.quantile(phis, between=window)],
        wh.quantile(0.5, measure="value", where={"v": "x"}).value,
        wh.quantile(0.5, where="k > 0.5 AND x = 'a'").value,
        wh.quantile(0.5, where="k > 0.2", between=window).value,
        [(answer.group, answer.value) for answer in wh.quantile(0.5, by="v")],
        [(answer.N, answer.value) for answer in wh.quantile(0.5, by="v", between=window)],
        [(answer.N, answer.value) for answer in wh.quantile(0.5, every="4h", mode="exact")],
        [answer.N for answer in wh.distinct(key="x", every="1d")],
        [(answer.group, answer.value) for answer in wh.quantile(0.5, by="x")],
        [wh.frequency(key).hi for key in "abcd"],
        wh.frequency(("a", "y"), key=["x", "v"]).hi,
        wh.summary().sum,
        wh.companion("numbers").summary,
        wh.sql("SELECT * FROM events LIMIT 0").columns,
        wh.sql('SELECT value, x, v, "when", k, "order" FROM events ORDER BY ALL').fetchall(),
        [column.name for column in wh.measures],
    ]


def check_as(uri: Path, twin: Path, *open_before: query.Warehouse) -> None:
    expected = answers(query.open(twin))
    for wh in (query.open(uri), *open_before):
        assert answers(wh) == expected
    assert warehouse.verify(uri).ok


def pair_in(folder: Path) -> tuple[Path, Path]:
    """A warehouse whose columns were renamed when it had history and live rows, and its twin."""
    uri, twin = folder / "renamed", folder / "twin"
    before(uri, OLD)
    before(twin, NEW)
    rename(uri)
    return uri, twin
