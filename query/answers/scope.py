"""What answers have in common: the rows that they speak of, and how they are shown and told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.query.answers.rendering import html_table, interval_bar, window_text
from tidemark.warehouse.columns.json_values import json_text


class Shown(ABC):
    """An answer, or several: JSON for programs, a table for notebooks."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> tuple[Sequence[str], Sequence[Any], str]:
        """The names of the columns, the items with an INTERVAL that are its rows, and the caption."""

    @abstractmethod
    def _document(self) -> Mapping[str, Any]:
        """All that is told, by name."""

    def to_json(self) -> str:
        """What was answered, with its scope, as one JSON document; see warehouse/columns/json_values.py."""
        return json_text(self._document())

    def _repr_html_(self) -> str:
        """A table; each row ends with a drawing of its certified interval."""
        names, items, caption = self._table()
        bars = [interval_bar(*cells(one, one.INTERVAL)) for one in items]
        return html_table(names, [cells(one, names) for one in items], caption, bars)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scope(Shown):
    """What an answer speaks of; a part of every answer.

    n, m: rows of history and of the live side; the `nulls` are not among them. eps, mode: what was promised,
    and how it was answered. `window` is (start, end) as times or step numbers, the end exclusive, None for an
    open side; None stands for all rows. `as_of` has the versions of the tables read.
    """

    ABOUT: ClassVar[str]  # the field that names the column
    FACTS: ClassVar[tuple[str, ...]]  # the other fields, in the order in which programs are told
    COLUMNS: ClassVar[tuple[str, ...]] = ()  # what the answer itself says
    INTERVAL: ClassVar[tuple[str, str, str]]  # the certified least, the answer, the certified most

    n: int
    m: int
    nulls: int
    eps: float
    mode: str
    window: tuple[Any, Any] | None
    as_of: Mapping[str, int]

    @property
    def N(self) -> int:  # noqa: N802 - the symbol of the papers
        """All rows of the window that have a rank, or a key."""
        return self.n + self.m

    @property
    def column(self) -> str:
        """The column that was asked of."""
        return str(getattr(self, self.ABOUT))

    @property
    def scope_text(self) -> str:
        """The scope in one line."""
        aside, how = self._aside()
        rows = "; ".join([f"{self.n:,} history + {self.m:,} live", *aside])
        return f"{self.column}, {window_text(self.window)}: N = {self.N:,} ({rows}), {', '.join(how)}"

    @property
    def scope_facts(self) -> dict[str, Any]:
        """The scope by name, for programs."""
        first = {self.ABOUT: self.column, "window": _window_facts(self.window), "N": self.N}
        return {**first, **named(self, self.FACTS)}

    @abstractmethod
    def _aside(self) -> tuple[Sequence[str], Sequence[str]]:
        """The rows that are counted apart, and how it was answered, as texts."""

    def _table(self) -> tuple[Sequence[str], Sequence[Any], str]:
        return self.COLUMNS, [self], self.scope_text

    def _document(self) -> Mapping[str, Any]:
        return {**named(self, self.COLUMNS), **self.scope_facts}


def cells(one: Any, names: Sequence[str]) -> list[Any]:
    """What an answer has under the names."""
    return [getattr(one, name) for name in names]


def named(one: Any, names: Sequence[str]) -> dict[str, Any]:
    """The same by name."""
    return dict(zip(names, cells(one, names), strict=True))


def _window_facts(window: tuple[Any, Any] | None) -> dict[str, Any] | None:
    """A window as {start, end}; None for all rows. An open side is None."""
    return None if window is None else {"start": window[0], "end": window[1]}


def counts(**rows: int) -> list[str]:
    """Rows of some kinds as texts; a kind without rows is not told."""
    return [f"{count:,} {kind}" for kind, count in rows.items() if count]
