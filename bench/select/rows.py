"""The rows: web pages with their ranks, and visits to them, after AMPLab's benchmark of Hive and others.

`rankings` has a row for each page: its rank is Zipf's (P(rank >= v) = 1/v). `visits` are to pages by Zipf's
law; each visitDate is of the same number of visits, which are scattered over all loads; visitId ascends.
Revenues are multiples of 1/64, so that sums of doubles are the same in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidemark import warehouse

OF_A_DATE = 400  # visits of each visitDate
SPARE = 5  # revenues below the one that a hundred thousandth of the visits reach
FIRST_DATE = date(1970, 1, 1)
_COUNTRIES = pa.array(["USA", "CAN", "MEX", "BRA", "DEU", "FRA", "IND", "CHN", "JPN", "AUS"])
_LANGUAGES = pa.array(["en-US", "fr-CA", "es-MX", "pt-BR", "de-DE", "fr-FR", "hi-IN", "zh-CN"])
_AGENTS = pa.array([f"Mozilla/5.0 (engine {i}; like others) Browser/{i}.0" for i in range(40)])
_WORDS = pa.array([f"word{i:04}" for i in range(5_000)])

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: of each table, in `loads`; a question is asked `turns` times, and a load made `repeats` times."""

    rows: tuple[int, ...] = (400_000, 1_600_000, 4_000_000)
    loads: int = 10
    turns: int = 15
    repeats: int = 3


@dataclass(slots=True)
class Filled:
    """Two warehouses of equally many rows, and what questions ask of them.

    rank: one that about OF_A_DATE pages have. revenues: the greatest ones, ascending, SPARE of them below the
    one that a hundred thousandth of the visits reach.
    """

    folder: Path
    rows: int
    rank: int = 0
    revenues: list[float] = field(default_factory=list)

    def date(self, number: int) -> date:
        """A date that has visits; successive numbers are successive dates."""
        days = self.rows // OF_A_DATE
        return FIRST_DATE + timedelta(days=(days // 2 + number) % days)

    def uri(self, table: str) -> Path:
        """The warehouse of a table."""
        return self.folder / table


def fill(folder: Path, rows: int, loads: int, options: dict[str, Options]) -> Filled:
    """Makes the warehouses; `options` are those of each table beside its measure."""
    filled = Filled(folder, rows)
    ranks, revenues = [], []
    for step in range(loads):
        parts = {"rankings": rankings(rows, loads, step), "visits": visits(rows, loads, step)}
        for table, part in parts.items():
            if not step:
                measure = {"rankings": "pageRank", "visits": "adRevenue"}[table]
                given = {"schema": part.schema, **options[table]}
                warehouse.create(None, filled.uri(table), measure, **given)
            warehouse.load(None, filled.uri(table), part, f"load {step}")
        ranks.append(parts["rankings"].column("pageRank").to_numpy())
        revenues.append(parts["visits"].column("adRevenue").to_numpy())
    counts = np.bincount(np.minimum(np.concatenate(ranks), rows))
    filled.rank = int(np.argmin(np.abs(counts - OF_A_DATE)))
    few = max(1, rows // 100_000) + SPARE
    filled.revenues = np.sort(np.partition(np.concatenate(revenues), -few)[-few:]).tolist()
    return filled


def rankings(rows: int, loads: int, step: int) -> pa.Table:
    """The pages of a load."""
    rng, pages = np.random.default_rng([1, step]), _numbers(rows, loads, step)
    ranks = np.minimum(1 / (1 - rng.random(len(pages))), 1e9).astype(np.int64)
    columns = {"pageURL": _urls(pages), "pageRank": ranks, "avgDuration": rng.integers(1, 100, len(pages))}
    return pa.table(columns)


def visits(rows: int, loads: int, step: int) -> pa.Table:
    """The visits of a load."""
    rng, numbers = np.random.default_rng([2, step]), _numbers(rows, loads, step)
    count, days = len(numbers), max(1, rows // OF_A_DATE)
    dates = np.random.default_rng([3, rows]).permutation(rows)[numbers] % days
    octets = [pa.array(rng.integers(0, 256, count)).cast(pa.string()) for _ in range(4)]
    return pa.table(
        {
            "visitId": numbers,
            "sourceIP": pc.binary_join_element_wise(*octets, "."),
            "destURL": _urls((rows ** rng.random(count)).astype(np.int64) - 1),
            "visitDate": pa.array(dates.astype(np.int32), pa.int32()).cast(pa.date32()),
            "adRevenue": rng.integers(0, 2**26, count) / 64,
            "userAgent": _AGENTS.take(pa.array(rng.integers(0, len(_AGENTS), count))),
            "countryCode": _COUNTRIES.take(pa.array(rng.integers(0, len(_COUNTRIES), count))),
            "languageCode": _LANGUAGES.take(pa.array(rng.integers(0, len(_LANGUAGES), count))),
            "searchWord": _WORDS.take(pa.array(rng.integers(0, len(_WORDS), count))),
            "duration": rng.integers(1, 600, count),
        }
    )


def _numbers(rows: int, loads: int, step: int) -> NDArray[np.int64]:
    """The numbers of the rows of a load."""
    return np.arange(rows * step // loads, rows * (step + 1) // loads)


def _urls(pages: NDArray[np.int64]) -> pa.Array:
    numbers = pc.utf8_lpad(pa.array(pages).cast(pa.string()), 9, "0")
    return pc.binary_join_element_wise("http://www.example.org/", numbers, "page.html", "")
