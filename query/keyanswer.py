"""Answers about keys: counts, and what is certain of them.

Of the N = n + m rows of a window that have a key, n lie in history and m on the live side; rows whose key is
NULL are counted apart. Of a tick that the window cuts in the middle, n and m are about what lies inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from query.plain import json_text, window_facts
from query.show import html_table, interval_bar, text_of, window_text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeyScope:
    """What an answer speaks of; a part of every answer.

    key: the key column. eps, confidence: |count - true| <= eps * m for the live share of an approximate
    answer, with this probability; exact answers have 0 and 1. `window` is (start, end) as times or step
    numbers, the end exclusive, None for an open side; None stands for all rows. `as_of` has the versions of
    the tables read.
    """

    n: int
    m: int
    nulls: int
    eps: float
    confidence: float
    mode: str
    key: str
    window: tuple[Any, Any] | None
    as_of: Mapping[str, int]

    @property
    def N(self) -> int:  # noqa: N802 - the symbol of the papers
        """All rows of the window that have a key."""
        return self.n + self.m

    @property
    def scope_text(self) -> str:
        """The scope in one line."""
        nulls = f"; {self.nulls:,} NULL" if self.nulls else ""
        promise = f", eps = {self.eps:g}, confidence {self.confidence:g}" if self.eps else ""
        rows = f"N = {self.N:,} ({self.n:,} history + {self.m:,} live{nulls})"
        return f"{self.key}, {window_text(self.window)}: {rows}, {self.mode}{promise}"

    @property
    def scope_facts(self) -> dict[str, Any]:
        """The scope by name, for programs."""
        names = ("n", "m", "nulls", "eps", "confidence", "mode", "as_of")
        facts = {name: getattr(self, name) for name in names}
        return {"key": self.key, "window": window_facts(self.window), "N": self.N, **facts}


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

    def to_json(self) -> str:
        """The answer and its scope as one JSON document, see query/plain.py."""
        return json_text({**{name: getattr(self, name) for name in self.COLUMNS}, **self.scope_facts})

    def _repr_html_(self) -> str:
        cells, bar = (
            [getattr(self, name) for name in self.COLUMNS],
            interval_bar(self.lo, self.count, self.hi),
        )
        return html_table(self.COLUMNS, [cells], self.scope_text, [bar])

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
