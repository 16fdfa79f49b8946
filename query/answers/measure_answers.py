"""Answers about measures: values with certified bounds.

Of the N = n + m rows of a window, n are in history and m on the live side. NULL rows are not part of N and
are counted separately. The promise is error_bound <= eps * m for accurate answers, eps * N for quick ones and
0 for exact ones; `error_bound` is the certified error of the answer itself, often much smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

import pyarrow as pa

from tidemark.query.answers.all_answers import (
    PromisedFields,
    PromisedScope,
    Renderable,
    Scope,
    field_values,
    fields_by_name,
    nonzero_counts,
)
from tidemark.query.answers.answer_columns import AnswerColumns
from tidemark.query.answers.flat_rows import flat_rows
from tidemark.query.answers.one_value import OneValue, Several
from tidemark.query.answers.plan import Plan
from tidemark.query.answers.rendering import text_of, text_table
from tidemark.warehouse.columns.json_values import json_type


class MeasureFields(PromisedFields):
    """The fields of `MeasureScope` by name."""

    nans: int
    measure: str
    blocks_read: int
    group: Mapping[str, Any] | None
    certain: bool | None
    rows_scanned: int | None
    declare: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MeasureScope(PromisedScope):
    """The rows that an answer about a measure covers.

    nans: how many of the n + m rows are NaN.
    measure: the name of the column.
    certain: for an answer with `top`, whether no omitted group has more rows; else None.
    blocks_read: how many row groups were read: for all answers about these rows together, and including
        those that were read once for all groups and windows of the call.
    rows_scanned: for an answer by a scan of `events`, how many rows it read; else None. Neither number
        counts where answers are compared.
    declare: for an answer by a scan, the columns of the group that would answer it without a scan; None if no
        group would, because `where` is a condition as text.

    The other fields are those of `PromisedScope`.
    """

    SUBJECT: ClassVar = "measure"
    OWN_FACTS: ClassVar = {"nans": "m"}
    READ_FACTS: ClassVar = ("as_of", "blocks_read")

    nans: int
    measure: str
    blocks_read: int = field(compare=False)
    certain: bool | None = None
    rows_scanned: int | None = field(default=None, compare=False)
    declare: tuple[str, ...] | None = None

    def _optional_facts(self) -> Mapping[str, Any]:
        names = ("group", "certain", "rows_scanned", "declare")
        return {name: getattr(self, name) for name in names}

    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        if self.rows_scanned is None:
            read = f"{self.blocks_read:,} blocks read"
        else:
            remedy = f"; declare groups=[{list(self.declare)!r}] to avoid it" if self.declare else ""
            read = f"a scan of {self.rows_scanned:,} rows{remedy}"
        return nonzero_counts(NaN=self.nans, NULL=self.nulls), (self.mode, f"eps = {self.eps:g}", read)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Answer(OneValue, MeasureScope):
    """A quantile.

    phi: the requested quantile, from 0 to 1.
    value: of the measure's own type; a float NaN if the rank falls among the NaN rows.
    low, high: the exact quantile certainly lies between them, both inclusive.
    rank_lo, rank_hi: certain bounds of the number of rows <= value, both inclusive.
    error_bound: the certified rank error, in rows; 0 means that the value is the exact quantile.
    """

    ONE: ClassVar = "value"

    COLUMNS: ClassVar = ("phi", "value", "low", "high", "rank_lo", "rank_hi", "error_bound")
    INTERVAL: ClassVar = ("low", "value", "high")

    phi: float
    value: Any
    low: Any
    high: Any
    rank_lo: int
    rank_hi: int
    error_bound: int

    def __repr__(self) -> str:
        bounds = (
            "exact"
            if self.error_bound == 0
            else f"within {self.error_bound:,} ranks, in [{text_of(self.low)}, {text_of(self.high)}]"
        )
        return f"{text_of(self.value)} ({bounds}) = quantile {self.phi:g} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RankAnswer(OneValue, MeasureScope):
    """The number of rows <= value.

    rank: the estimate.
    rank_lo, rank_hi: certain bounds, both inclusive. NaN rows are not <= any value.
    """

    ONE: ClassVar = "rank"

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

    def __repr__(self) -> str:
        bounds = "exact" if self.error_bound == 0 else f"{self.rank_lo:,} to {self.rank_hi:,}"
        return f"{self.rank:,} ({bounds}) rows <= {text_of(self.value)} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CdfAnswer(OneValue, MeasureScope):
    """The share of the N rows that are <= value, from 0 to 1.

    cdf: the estimate.
    cdf_lo, cdf_hi: certain bounds, both inclusive.
    """

    ONE: ClassVar = "cdf"

    COLUMNS: ClassVar = ("value", "cdf", "cdf_lo", "cdf_hi")
    INTERVAL: ClassVar = ("cdf_lo", "cdf", "cdf_hi")

    value: Any
    cdf: float
    cdf_lo: float
    cdf_hi: float

    def __repr__(self) -> str:
        bounds = f"{self.cdf_lo:.10g} to {self.cdf_hi:.10g}"
        return f"{self.cdf:.10g} ({bounds}) of the rows <= {text_of(self.value)} in {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A bin [left, right) of a histogram; the last bin includes its right edge.

    count: the estimated number of rows.
    lo, hi: certain bounds of it, both inclusive.
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
class Answers(Several, Renderable, Sequence[A], Generic[A]):
    """The answers of one call, in the order of its arguments; a sequence.

    items: the answers; those of many groups or windows are made when they are taken.
    kind: their class.
    caption: their scope in one line.
    facts: their scope by name.
    by: the columns of their groups, if there is one answer per group.
    windows: whether there is one answer per window, of a question with `every`.
    plan: how they were found.

    With groups or windows the rows of tables begin with the columns of `by`, and with the `start` and the
    `end` (exclusive) of the window; they end with `N`. A column of `by` whose name another column of the
    table has is called `group_` and its name.
    """

    items: Sequence[A]
    kind: type[Any]
    caption: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    windows: bool = False
    plan: Plan | None = field(default=None, compare=False)

    @overload
    def __getitem__(self, at: int) -> A: ...
    @overload
    def __getitem__(self, at: slice) -> Answers[A]: ...
    def __getitem__(self, at: int | slice) -> A | Answers[A]:
        return replace(self, items=self.items[at]) if isinstance(at, slice) else self.items[at]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[A]:
        return iter(self.items)

    def to_arrow(self) -> pa.Table:
        """The answers' own columns as an Arrow table, one row per answer."""
        columns = zip(self._columns, self._cells(), strict=True)
        return pa.table({name: _arrow_column(cells) for name, cells in columns})

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame, indexed by `start` if there are windows; needs pandas."""
        frame = self.to_arrow().to_pandas()
        return frame.set_index("start") if self.windows else frame

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; needs polars."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        table = text_table(self._columns, self._rows())
        return f"{first_line(self.facts)}{table}\n{self.caption}"

    @property
    def _columns(self) -> tuple[str, ...]:
        if not self.by and not self.windows:
            return tuple(self.kind.COLUMNS)
        others = (*(("start", "end") if self.windows else ()), *self.kind.COLUMNS, "N")
        return (*(f"group_{name}" if name in others else name for name in self.by), *others)

    def _cells(self) -> list[list[Any]]:
        own = [self._values(name) for name in self.kind.COLUMNS]
        if not self.by and not self.windows:
            return own
        groups = self._values("group") if self.by else []
        windows = self._values("window") if self.windows else []
        return [
            *([group[column] for group in groups] for column in self.by),
            *([window[end] for window in windows] for end in ((0, 1) if self.windows else ())),
            *own,
            self._values("N"),
        ]

    def _values(self, name: str) -> list[Any]:
        if isinstance(self.items, AnswerColumns):
            return self.items.column(name)
        return [getattr(answer, name) for answer in self.items]

    def _rows(self) -> list[list[Any]]:
        return [list(cells) for cells in zip(*self._cells(), strict=True)]

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`."""
        return self._columns, self._rows(), self.items, self.caption

    def _document(self) -> Mapping[str, Any]:
        if self.by or self.windows:
            return {**self.facts, "answers": [cast("Scope", answer).document for answer in self.items]}
        rows = [fields_by_name(answer, self.kind.COLUMNS) for answer in self.items]
        return {**self.facts, "answers": rows}

    def to_rows(self) -> list[dict[str, Any]]:
        """See `Renderable.to_rows`; the columns of `by` are fields, too."""
        return flat_rows(self.with_scopes(), self.by)

    def with_scopes(self) -> Iterable[tuple[Any, Any]]:
        """See `Renderable.with_scopes`."""
        if issubclass(self.kind, Histogram):
            return chain.from_iterable(one.with_scopes() for one in cast("Answers[Histogram]", self))
        return ((answer, answer) for answer in self.items)

    def json_types(self) -> Mapping[str, Any]:
        """The types of the answers' fields, and of the columns of their groups under `group`."""
        found = Renderable.json_types(self)
        if not (found and self.by):
            return found
        groups = self._values("group")
        kinds = {column: json_type(group[column] for group in groups) for column in self.by}
        return {"types": {**found["types"], "group": kinds}}

    def values_by_field(self) -> Mapping[str, Iterable[Any]]:
        """See `Renderable.values_by_field`."""
        if issubclass(self.kind, Histogram):
            bins = list(chain.from_iterable(cast("Answers[Histogram]", self)))
            return {name: [getattr(one, name) for one in bins] for name in Bin.COLUMNS}
        return {name: self._values(name) for name in self.kind.COLUMNS}


def first_line(facts: Mapping[str, Any]) -> str:
    """The line not to be missed at the end of a long table: that the window is wider than was asked."""
    return f"The window is {facts['widened']}.\n" if facts.get("widened") else ""


def _arrow_column(cells: Sequence[Any]) -> pa.Array:
    """A column of a table; values of keys of several columns, which are tuples, as structs.

    Numbers that no Arrow type holds are converted to doubles: an integer beyond 2**53 beside a fraction, as
    edges of histograms may be, or a point 2**70. Where doubles do not suffice either, such as for 10**400 or
    for times and texts in one column, all cells become text.
    """
    if not any(isinstance(cell, tuple) for cell in cells):
        for converted in (_unchanged, _as_doubles, _as_text):
            with suppress(pa.ArrowInvalid, OverflowError, TypeError):
                return pa.array([converted(cell) for cell in cells])
    parts = [pa.array(column) for column in zip(*cells, strict=True)]
    return pa.StructArray.from_arrays(parts, [f"{number}" for number in range(1, len(parts) + 1)])


def _unchanged(cell: Any) -> Any:
    return cell


def _as_doubles(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_as_doubles(item) for item in cell]
    if isinstance(cell, bool) or not isinstance(cell, (int, Decimal, Fraction)):
        return cell
    if math.isinf(double := float(cell)) and cell not in (math.inf, -math.inf):
        raise OverflowError
    return double


def _as_text(cell: Any) -> Any:
    if isinstance(cell, list):
        return [_as_text(item) for item in cell]
    return None if cell is None else str(cell)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Histogram(Several, MeasureScope, Sequence[Bin]):
    """Counts of rows in bins; a sequence of bins. NaN and NULL rows are in no bin."""

    COLUMNS: ClassVar = ("edges", "counts")  # of answers with one histogram per group or window

    bins: Answers[Bin]

    @property
    def edges(self) -> list[Any]:
        """The edges of the bins, in order; one more than there are bins, and none without bins."""
        if not self.bins:
            return []
        return [bin_.left for bin_ in self.bins] + [self.bins[-1].right]

    @property
    def counts(self) -> list[int]:
        """The estimated number of rows of each bin."""
        return [bin_.count for bin_ in self.bins]

    @overload
    def __getitem__(self, at: int) -> Bin: ...
    @overload
    def __getitem__(self, at: slice) -> Answers[Bin]: ...
    def __getitem__(self, at: int | slice) -> Bin | Answers[Bin]:
        return self.bins[at]

    def __len__(self) -> int:
        return len(self.bins)

    def to_arrow(self) -> pa.Table:
        """The bins as an Arrow table, one row per bin."""
        return self.bins.to_arrow()

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; needs pandas."""
        return self.bins.to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; needs polars."""
        return self.bins.to_polars()

    def __repr__(self) -> str:
        most = max(1, *self.counts)
        bars = ["#" * round(40 * bin_.count / most) for bin_ in self.bins]
        names = (*Bin.COLUMNS, "")
        rows = [
            [*field_values(bin_, Bin.COLUMNS), bar.ljust(40)]
            for bin_, bar in zip(self.bins, bars, strict=True)
        ]
        return f"{first_line(self.scope_facts)}{text_table(names, rows)}\n{self.scope_text}"

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`."""
        rows = [field_values(bin_, Bin.COLUMNS) for bin_ in self.bins]
        return Bin.COLUMNS, rows, self.bins, self.scope_text

    def _document(self) -> Mapping[str, Any]:
        return {**self.scope_facts, "bins": [fields_by_name(bin_, Bin.COLUMNS) for bin_ in self.bins]}

    def values_by_field(self) -> Mapping[str, Iterable[Any]]:
        """See `Renderable.values_by_field`."""
        return self.bins.values_by_field()

    def with_scopes(self) -> Iterable[tuple[Any, Any]]:
        """See `Renderable.with_scopes`."""
        return ((bin_, self) for bin_ in self.bins)
