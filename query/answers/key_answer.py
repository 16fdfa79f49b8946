"""Answers about keys: counts, and what is certain of them.

Of the N = n + m rows of a window that have a key, n lie in history and m on the live side; rows whose key is
NULL are counted apart. Of a tick that the window cuts in the middle, n and m are about what lies inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.query.answers.rendering import text_of
from tidemark.query.answers.scope import Scope, counts


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyScope(Scope):
    """What an answer about keys speaks of.

    key: the key column. eps, confidence: |count - true| <= eps * m for the live share of an approximate
    answer, with this probability; exact answers have 0 and 1. The other fields are those of `Scope`.
    """

    ABOUT: ClassVar = "key"
    FACTS: ClassVar = ("n", "m", "nulls", "eps", "confidence", "mode", "as_of")

    confidence: float
    key: str

    def _aside(self) -> tuple[Sequence[str], Sequence[str]]:
        promise = [f"eps = {self.eps:g}", f"confidence {self.confidence:g}"] if self.eps else []
        return counts(NULL=self.nulls), [self.mode, *promise]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Counted(KeyScope):
    """lo <= the true count <= hi; `lo` holds with the answer's confidence, `hi` always."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("count", "lo", "hi")
    INTERVAL: ClassVar = ("lo", "count", "hi")

    count: int
    lo: int
    hi: int

    def __int__(self) -> int:
        return self.count

    def __float__(self) -> float:
        return float(self.count)

    def _told(self) -> str:
        exact = self.lo == self.hi
        return f"{self.count:,} ({'exact' if exact else f'{self.lo:,} to {self.hi:,}'})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FrequencyAnswer(_Counted):
    """How often the key `value` is there; `in_history` rows of it lie in history, which is exact."""

    COLUMNS: ClassVar = ("value", "count", "lo", "hi", "in_history")

    value: Any
    in_history: int

    def __repr__(self) -> str:
        return f"{self._told()} rows with {text_of(self.value)} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HitterAnswer(_Counted):
    """A frequent key: `lo` and `hi` always hold, and `certain` says that it surely is what was asked for.

    `in_history` rows of it lie in history, which is exact.
    """

    COLUMNS: ClassVar = ("value", "count", "lo", "hi", "in_history", "share", "certain")

    value: Any
    in_history: int
    certain: bool

    @property
    def share(self) -> float:
        """Its part of the rows with a key, about."""
        return self.count / self.N if self.N else 0.0

    def __repr__(self) -> str:
        return f"{self._told()} rows with {text_of(self.value)} of {self.scope_text}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CountAnswer(_Counted):
    """A number of rows, or of pairs of rows: of a range of keys, of a join."""

    def __repr__(self) -> str:
        return f"{self._told()} of {self.scope_text}"
