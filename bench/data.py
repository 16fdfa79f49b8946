"""The rows of the benchmarks: values by distribution, event times by day, the same in every run.

Rows of step s depend on (distribution, s, rows) alone. So the files that Spark loads and the oracle in numpy
are made from one description, each where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

FLIGHTS = Path(__file__).resolve().parent.parent / "docs" / "data" / "flights-200k.parquet"
DAY_US = 86_400_000_000
FIRST_DAY = 20_089  # 2025-01-01
GROUPS = 100_000
USERS = 10_000_000
LATE = 0.01  # the share of rows that arrive long after their day

Values = NDArray[Any]


@cache
def _delays() -> Values:
    return np.asarray(pq.read_table(FLIGHTS, columns=["delay"]).column("delay").to_numpy(), np.int64)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "uniform": lambda rng, rows: rng.random(rows) * 1e9,
    "normal": lambda rng, rows: rng.normal(1e8, 1e7, rows),
    "lognormal": lambda rng, rows: rng.lognormal(3.0, 2.0, rows),
    "flights": lambda rng, rows: _delays()[rng.integers(0, len(_delays()), rows)],
}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one step.

    `days` are those of event time, first inclusive, stop exclusive; `LATE` of the rows fall on any day from
    `earliest` on.
    """

    distribution: str
    step: int
    rows: int
    days: tuple[int, int]
    earliest: int

    def values(self) -> Values:
        """The measure's values."""
        return DISTRIBUTIONS[self.distribution](np.random.default_rng([1, self.step]), self.rows)

    def times(self) -> NDArray[np.int64]:
        """The event times, in microseconds since 1970."""
        rng = np.random.default_rng([2, self.step])
        first, stop = self.days
        late = rng.random(self.rows) < LATE
        days = rng.integers(first, stop, self.rows)
        days[late] = rng.integers(self.earliest, stop, int(late.sum()))
        return days * DAY_US + rng.integers(0, DAY_US, self.rows)

    def keys(self) -> NDArray[np.int64]:
        """Zipf's keys."""
        return np.minimum(np.random.default_rng([3, self.step]).zipf(1.3, self.rows), 1_000_000)

    def groups(self) -> NDArray[np.int64]:
        """Groups by Zipf's law with exponent 1.1, from 1, the largest, to GROUPS."""
        chances = np.random.default_rng([4, self.step]).random(self.rows)
        return np.searchsorted(_zipf(), chances) + 1

    def users(self) -> NDArray[np.int64]:
        """Visitors, 0 to USERS - 1: most rows are of any of them, three of ten of those with low numbers."""
        rng = np.random.default_rng([5, self.step])
        chances = rng.random(self.rows)
        often = rng.random(self.rows) < 0.3
        chances[often] **= 4
        return (chances * USERS).astype(np.int64)

    def write(self, path: Path, *, files: int = 1, columns: Sequence[str] = ("key",)) -> None:
        """Writes the rows as Parquet files for Spark: time, value and the wanted ones of key, group, user."""
        path.mkdir(parents=True, exist_ok=True)
        times = pa.array(self.times()).cast(pa.timestamp("us", tz="UTC"))
        more: dict[str, Any] = {"key": self.keys()} if "key" in columns else {}
        more |= {"user": self.users()} if "user" in columns else {}
        more |= {"group": _named(self.groups())} if "group" in columns else {}
        table = pa.table({"time": times, "value": self.values(), **more})
        each = -(-self.rows // files)
        for number in range(files):
            pq.write_table(table.slice(number * each, each), path / f"{number}.parquet", compression="snappy")


@cache
def _zipf() -> NDArray[np.float64]:
    """The chance of a group up to each rank."""
    weights = np.arange(1, GROUPS + 1) ** -1.1
    chances: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    return chances


def group_name(rank: int) -> str:
    """The name of the group of a rank."""
    return f"group-{rank:06}"


def _named(ranks: NDArray[np.int64]) -> pa.Array:
    names = pa.array([group_name(rank) for rank in range(1, GROUPS + 1)])
    return pa.DictionaryArray.from_arrays(pa.array(ranks - 1, pa.int32()), names).cast(pa.string())


def year(distribution: str, rows: int, steps: int, *, days: int, mixed: bool) -> list[Rows]:
    """`rows` rows in `steps` equal steps over `days` days: each step its own days, or (mixed) all of them."""
    edges = np.linspace(FIRST_DAY, FIRST_DAY + days, steps + 1).astype(int).tolist()
    whole = (edges[0], edges[-1])
    counts = np.diff(np.linspace(0, rows, steps + 1).astype(int)).tolist()
    return [
        Rows(distribution, step, count, whole if mixed else (edges[step], edges[step + 1]), FIRST_DAY)
        for step, count in enumerate(counts)
    ]


class Oracle:
    """All rows of a window, sorted: what is true."""

    def __init__(self, values: Values) -> None:
        values.sort()
        self.values = values

    @classmethod
    def of(cls, parts: Sequence[Rows], window: tuple[int, int] | None = None) -> Oracle:
        """The rows of the parts; `window` is a range of days, the end exclusive."""
        pieces = []
        for part in parts:
            values = part.values()
            if window is not None:
                days = part.times() // DAY_US
                values = values[(days >= window[0]) & (days < window[1])]
            pieces.append(values)
        return cls(np.concatenate(pieces))

    def rank(self, phi: float) -> int:
        """The rank that the quantile has."""
        return max(1, -(-Fraction(str(phi)) * len(self.values) // 1))

    def quantile(self, phi: float) -> Any:
        """The exact quantile."""
        return self.values[self.rank(phi) - 1]

    def error(self, phi: float, value: Any) -> int:
        """The rank error of an answer, in rows."""
        r = self.rank(phi)
        lt, le = (int(np.searchsorted(self.values, value, side=side)) for side in ("left", "right"))
        return max(0, r - le, lt + 1 - r)
