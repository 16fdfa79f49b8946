"""The answer about a companion: the joined summary of a window, and the rows that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.query.answers.common import Renderable, nonzero_counts
from tidemark.query.answers.rendering import window_text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompanionAnswer(Renderable):
    """A companion in a window.

    companion, kind, column: its name, the name of its kind, and the column that it summarises.
    summary: the summary of all rows of the window, an object of the kind; each answer has one of its own.
    n, m: rows of history and of the live side in the window, without the NULL rows.
    nulls: rows whose column is NULL.
    window: (start, end) as times or step numbers, the end exclusive, None for an open side. None for all
        rows. Windows are whole ticks.
    widened: what the window was widened from; None if it is what was asked.
    as_of: the versions of the tables that were read.
    rows_scanned: the rows of `events` that were read because no stored cell serves them; 0 if there are none.
    """

    companion: str
    kind: str
    column: str
    summary: Any
    n: int
    m: int
    nulls: int
    window: tuple[Any, Any] | None
    as_of: Mapping[str, int]
    rows_scanned: int
    widened: str | None = None

    @property
    def N(self) -> int:  # noqa: N802 - the symbol of the papers
        """All rows of the window without the NULL rows: n + m."""
        return self.n + self.m

    def __repr__(self) -> str:
        rows = "; ".join([f"{self.n:,} history + {self.m:,} live", *nonzero_counts(NULL=self.nulls)])
        scanned = f", {self.rows_scanned:,} rows scanned" if self.rows_scanned else ""
        window = ", ".join([window_text(self.window), *([self.widened] if self.widened else [])])
        return f"{self.companion}, {self.kind} of {self.column}, {window}: N = {self.N:,} ({rows}){scanned}"

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`; the summary itself is not shown."""
        facts = {name: fact for name, fact in self._document().items() if name not in ("window", "as_of")}
        return [*facts], [[*facts.values()]], [], repr(self)

    def _document(self) -> Mapping[str, Any]:
        names = ("companion", "kind", "column", "N", "n", "m", "nulls", "rows_scanned", "as_of")
        start_and_end = None if self.window is None else dict(zip(("start", "end"), self.window, strict=True))
        widened = {"widened": self.widened} if self.widened else {}
        return {**{name: getattr(self, name) for name in names}, "window": start_and_end, **widened}
