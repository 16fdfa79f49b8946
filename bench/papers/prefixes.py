"""Hierarchical heavy hitters over history: by ranges of sorted keys and by a scan.

The ECM paper has them over streams (section 6 of ours, `geometric`); over history they are exact. Addresses
of four parts, of which the first two are skewed, in five loads.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import pyarrow as pa

from bench.report import Section, number, say, table
from tidemark import query, warehouse
from tidemark.query.keys import prefix_ranges


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: of a load. shares: phi."""

    rows: int = 200_000
    loads: int = 5
    shares: tuple[float, ...] = (0.1, 0.03, 0.01)


QUICK = Sizes(2_000, 2, (0.1,))


def addresses(rows: int, seed: int) -> list[str]:
    """Of which most differ."""
    rng = np.random.default_rng(seed)
    first, second = rng.zipf(1.3, rows) % 200, rng.zipf(1.2, rows) % 256
    third, fourth = rng.integers(0, 256, (2, rows))
    return [f"{a}.{b}.{c}.{d}" for a, b, c, d in zip(first, second, third, fourth, strict=True)]


def add(section: Section, out: Path, quick: bool) -> None:
    """Adds the experiment."""
    del out
    sizes, rows = QUICK if quick else Sizes(), []
    counted: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        at = Path(folder) / "addresses"
        for step in range(sizes.loads):
            drawn = addresses(sizes.rows, step)
            for address in drawn:
                parts = address.split(".")
                counted.update([*(".".join(parts[:i]) + "." for i in (1, 2, 3)), address])
            part = pa.table({"address": drawn, "ms": np.ones(len(drawn))})
            if not step:
                warehouse.create(None, at, "ms", key="address", schema=part.schema)
            warehouse.load(None, at, part, batch=str(step))
        n = sizes.rows * sizes.loads
        wh = query.open(at)
        for phi in sizes.shares:
            true = {prefix: count for prefix, count in counted.items() if count >= phi * n}
            seconds, read = {}, {}
            for how, most in (("ranges", prefix_ranges.MOST_FULL), ("a scan", -1.0)):
                seconds[how], read[how] = _asked(wh, phi, true, most)
            rows.append(
                [
                    f"{100 * phi:g} %",
                    len(true),
                    *(f"{number(seconds[how])} s, {read[how]:,} rows" for how in seconds),
                ]
            )
            if phi == sizes.shares[0]:
                for how, took in seconds.items():
                    section.add(f"prefixes with {100 * phi:g} % of {n:,} rows, by {how}", took, "s")
    say(f"answers of {2 * len(rows)} questions are those of a Counter of all prefixes")
    section.text(
        f"### Prefixes of keys\n\n{n:,} addresses in {sizes.loads} loads, {len(counted):,} prefixes and "
        "keys; `wh.hierarchy` by ranges of the sorted keys, and by a scan, the second time each. Rows are "
        "those that were read; where they are all, a scan was chosen in the place of ranges. Seconds are "
        "those of the processors."
    )
    section.text(table(["share", "prefixes", "by ranges", "by a scan"], rows))


def _asked(wh: query.Warehouse, phi: float, true: dict[str, int], most: float) -> tuple[float, int]:
    """The seconds of the processors for the second time, and the rows that it read."""
    kept, prefix_ranges.MOST_FULL = prefix_ranges.MOST_FULL, most
    try:
        for _ in range(2):
            began = process_time()
            found = wh.hierarchy(phi, ".")
            seconds = process_time() - began
    finally:
        prefix_ranges.MOST_FULL = kept
    if {one.prefix: one.count for one in found} != true:
        raise AssertionError(f"the prefixes with a share of {phi} are not those of a Counter")
    return seconds, found[0].rows_scanned or 0 if len(found) else 0
