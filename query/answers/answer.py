"""Answers: values, and what was proved about them.

Of the N = n + m rows of a window, n lie in history and m on the live side; NULLs are left out of N and
counted. The promise is error_bound <= eps * m for accurate answers, eps * N for quick ones and 0 for exact
ones; `error_bound` is what was certified this time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar, overload

import pyarrow as pa

from tidemark.query.answers.rendering import text_of, text_table
from tidemark.query.answers.scope import Scope, Shown, cells, counts, named


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasureScope(Scope):
    """What an answer about a measure speaks of.

    Of the n + m rows that have a rank `nans` are NaN. `blocks_read` row groups were read by the call, for all
    its answers together. The other fields are those of `Scope`.
    """

    ABOUT: ClassVar = "measure"
    FACTS: ClassVar = ("n", "m", "nans", "nulls", "eps", "mode", "as_of", "blocks_read")

    nans: int
    measure: str
    blocks_read: int

    def _aside(self) -> tuple[Sequence[str], Sequence[str]]:
        how = (self.mode, f"eps = {self.eps:g}", f"{self.blocks_read:,} blocks read")
        return counts(NaN=self.nans, NULL=self.nulls), how


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Answer(MeasureScope):
    """A quantile.

    value: of the measure's own type; a float NaN where the rank falls among the NaNs.
    low, high: the exact quantile certainly lies between them, both inclusive.
    rank_lo, rank_hi: so many rows, certainly, are <= value, both inclusive.
    error_bound: the certified rank error, in rows; 0 says that the value is the exact quantile.
    """

    COLUMNS: ClassVar = ("phi", "value", "low", "high", "rank_lo", "rank_hi", "error_bound")
    INTERVAL: ClassVar = ("low", "value", "high")

    phi: float
    value: Any
    low: Any
    high: Any
    rank_lo: int
    rank_hi: int
    error_bound: int

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        bounds = (
            "exact"
            if self.error_bound == 0
            else f"within {self.error_bound:,} ranks, in [{text_of(self.low)}, {text_of(self.high)}]"
        )
        return f"{text_of(self.value)} ({bounds}) = quantile {self.phi:g} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RankAnswer(MeasureScope):
    """How many rows are <= value: about `rank`, certainly rank_lo to rank_hi. NaN is <= nothing."""

    COLUMNS: ClassVar = ("value", "rank", "rank_lo", "rank_hi", "error_bound")
    INTERVAL: ClassVar = ("rank_lo", "rank", "rank_hi")

    value: Any
    rank: int
    rank_lo: int
    rank_hi: int

    @property
    def error_bound(self) -> int:
        """The certified error of `rank`, in rows."""
        return max(self.rank - self.rank_lo, self.rank_hi - self.rank)

    def __float__(self) -> float:
        return float(self.rank)

    def __int__(self) -> int:
        return self.rank

    def __repr__(self) -> str:
        bounds = "exact" if self.error_bound == 0 else f"{self.rank_lo:,} to {self.rank_hi:,}"
        return f"{self.rank:,} ({bounds}) rows <= {text_of(self.value)} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CdfAnswer(MeasureScope):
    """The share of the N rows that are <= value: about `cdf`, certainly cdf_lo to cdf_hi."""

    COLUMNS: ClassVar = ("value", "cdf", "cdf_lo", "cdf_hi")
    INTERVAL: ClassVar = ("cdf_lo", "cdf", "cdf_hi")

    value: Any
    cdf: float
    cdf_lo: float
    cdf_hi: float

    def __float__(self) -> float:
        return self.cdf

    def __repr__(self) -> str:
        bounds = f"{self.cdf_lo:.10g} to {self.cdf_hi:.10g}"
        return f"{self.cdf:.10g} ({bounds}) of the rows <= {text_of(self.value)} in {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A bin [left, right) of a histogram, the last one with its right edge.

    It holds about `count` rows, certainly lo to hi.
    """

    COLUMNS: ClassVar = ("left", "right", "count", "lo", "hi")
    INTERVAL: ClassVar = ("lo", "count", "hi")

    left: Any
    right: Any
    count: int
    lo: int
    hi: int


A = TypeVar("A")


@dataclass(frozen=True, slots=True, repr=False)
class Answers(Shown, Sequence[A], Generic[A]):
    """Several answers of one call, in the order of the question.

    `kind` is their class, `caption` their scope in one line, `facts` their scope by name.
    """

    items: tuple[A, ...]
    kind: type[Any]
    caption: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @overload
    def __getitem__(self, at: int) -> A: ...
    @overload
    def __getitem__(self, at: slice) -> Answers[A]: ...
    def __getitem__(self, at: int | slice) -> A | Answers[A]:
        """One answer, or the answers of a slice."""
        return replace(self, items=self.items[at]) if isinstance(at, slice) else self.items[at]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[A]:
        return iter(self.items)

    def to_arrow(self) -> pa.Table:
        """The answers' own columns as an Arrow table, one row an answer."""
        return pa.table(
            {name: pa.array([getattr(one, name) for one in self.items]) for name in self.kind.COLUMNS}
        )

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; needs polars."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        rows = [cells(one, self.kind.COLUMNS) for one in self.items]
        return f"{text_table(self.kind.COLUMNS, rows)}\n{self.caption}"

    def _table(self) -> tuple[Sequence[str], Sequence[Any], str]:
        return self.kind.COLUMNS, self.items, self.caption

    def _document(self) -> Mapping[str, Any]:
        return {**self.facts, "answers": [named(one, self.kind.COLUMNS) for one in self.items]}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Histogram(MeasureScope, Sequence[Bin]):
    """Counts of rows in bins; indexable and iterable by bin. NaN and NULL are in no bin."""

    bins: Answers[Bin]

    @property
    def edges(self) -> list[Any]:
        """The bins' edges, one more than bins."""
        return [one.left for one in self.bins] + [self.bins[-1].right]

    @property
    def counts(self) -> list[int]:
        """The best estimate of each bin's rows."""
        return [one.count for one in self.bins]

    @overload
    def __getitem__(self, at: int) -> Bin: ...
    @overload
    def __getitem__(self, at: slice) -> Answers[Bin]: ...
    def __getitem__(self, at: int | slice) -> Bin | Answers[Bin]:
        """One bin, or the bins of a slice."""
        return self.bins[at]

    def __len__(self) -> int:
        return len(self.bins)

    def to_arrow(self) -> pa.Table:
        """One row a bin."""
        return self.bins.to_arrow()

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; needs pandas."""
        return self.bins.to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; needs polars."""
        return self.bins.to_polars()

    def __repr__(self) -> str:
        most = max(1, *self.counts)
        bars = ["#" * round(40 * one.count / most) for one in self.bins]
        names = (*Bin.COLUMNS, "")
        rows = [[*cells(one, Bin.COLUMNS), bar.ljust(40)] for one, bar in zip(self.bins, bars, strict=True)]
        return f"{text_table(names, rows)}\n{self.scope_text}"

    def _table(self) -> tuple[Sequence[str], Sequence[Any], str]:
        return Bin.COLUMNS, self.bins, self.scope_text

    def _document(self) -> Mapping[str, Any]:
        return {**self.scope_facts, "bins": [named(one, Bin.COLUMNS) for one in self.bins]}
