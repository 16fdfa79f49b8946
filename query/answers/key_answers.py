"""Answers about keys: counts with certified bounds.

Of the N = n + m rows of a window that have a key, n are in history and m on the live side. Rows with a NULL
key are counted separately as `nulls`. Where the window covers a tick only in part, n and m are estimates of
the rows in that part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tidemark.query.answers.all_answers import PromisedFields, PromisedScope, nonzero_counts
from tidemark.query.answers.answer_columns import Taken
from tidemark.query.answers.one_value import OneValue
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.columns.keys import Key, Names, name_at


class KeyValues(Taken):
    """The values of names of a key."""

    __slots__ = ("_key",)

    def __init__(self, key: Key, names: Names) -> None:
        self._key, self._items = key, names

    def __getitem__(self, at: Any) -> Any:
        return self._key.value_of(name_at(self._items, at))

    def __iter__(self) -> Iterator[Any]:
        names = self._items
        return map(self._key.value_of, names.tolist() if isinstance(names, np.ndarray) else names.to_pylist())


class KeyFields(PromisedFields):
    """The fields of `KeyScope` by name."""

    confidence: float
    key: str


class ScannedFields(KeyFields):
    """The fields of `KeyScope` by name, of an answer by a scan of `events`."""

    group: Mapping[str, Any] | None
    rows_scanned: int | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyScope(PromisedScope):
    """The rows that an answer about keys covers.

    key: the name of the key column.
    eps, confidence: an approximate answer has |count - true count| <= eps * m on the live side with
        probability `confidence`. Exact answers have 0 and 1.
    rows_scanned: the rows of keys that were read because marks do not tell enough; None if they do. With
        `group` they are rows of `events`.

    The other fields are those of `PromisedScope`.
    """

    SUBJECT: ClassVar = "key"
    OWN_FACTS: ClassVar = {"confidence": "eps"}

    confidence: float
    key: str
    rows_scanned: int | None = None

    def _optional_facts(self) -> Mapping[str, Any]:
        return {"group": self.group, "rows_scanned": self.rows_scanned}

    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        promise = [f"eps = {self.eps:g}", f"confidence {self.confidence:g}"] if self.eps else []
        return nonzero_counts(NULL=self.nulls), [self.mode, *promise, *self._scan_note]

    @property
    def _scan_note(self) -> list[str]:
        """A note that the answer took a scan of `events`, if it did."""
        return [] if self.group is None else [f"a scan of {self.rows_scanned:,} rows"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class _CountedRows(OneValue, KeyScope):
    """lo <= true count <= hi; `lo` holds with the answer's confidence, `hi` always."""

    ONE: ClassVar = "count"

    COLUMNS: ClassVar[tuple[str, ...]] = ("count", "lo", "hi")
    INTERVAL: ClassVar = ("lo", "count", "hi")

    count: int
    lo: int
    hi: int

    def __repr__(self) -> str:
        return (
            f"{self._count_text()} rows with {text_of(getattr(self, self.COLUMNS[0]))} of {self.scope_text}"
        )

    def _count_text(self) -> str:
        exact = self.lo == self.hi
        return f"{self.count:,} ({'exact' if exact else f'{self.lo:,} to {self.hi:,}'})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class _SharedRows(_CountedRows):
    """Rows, and how large a part they are of all rows with a key."""

    @property
    def share(self) -> float:
        """The estimated share, from 0 to 1."""
        return self.count / self.N if self.N else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class FrequencyAnswer(_CountedRows):
    """The number of rows with the key `value`.

    in_history: how many of them are in history's whole ticks, exact.
    """

    COLUMNS: ClassVar = ("value", "count", "lo", "hi", "in_history")

    value: Any
    in_history: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class HitterAnswer(_SharedRows):
    """A frequent key; here `lo` and `hi` both hold with certainty.

    in_history: how many of its rows are in history's whole ticks, exact.
    certain: whether the key certainly meets the condition of the question (at least phi of the rows, or no
        omitted key has more).
    """

    COLUMNS: ClassVar = ("value", "count", "lo", "hi", "in_history", "share", "certain")

    value: Any
    in_history: int
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CountAnswer(_CountedRows):
    """A number of rows in a range of keys, or a number of pairs of rows of a join."""

    def __repr__(self) -> str:
        return f"{self._count_text()} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PrefixAnswer(_SharedRows):
    """The rows of all keys that have a prefix; `lo` and `hi` both hold with certainty.

    prefix: text; a key itself is the last of its prefixes. level: 1 for the shortest.
    in_history: how many of its rows are in history's whole ticks, exact.
    certain: whether it certainly has the share of the question.
    rest: the rows that no longer prefix of the answers has, estimated.
    """

    COLUMNS: ClassVar = ("prefix", "level", "count", "lo", "hi", "in_history", "share", "certain", "rest")

    prefix: str
    level: int
    in_history: int
    certain: bool
    rest: int
