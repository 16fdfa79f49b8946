"""The answer about a companion: the joined summary of a window, and the rows that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidemark.query.answers.all_answers import Scope, nonzero_counts


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompanionAnswer(Scope):
    """A companion in a window, which is whole ticks.

    companion, kind, column: its name, the name of its kind, and the column that it summarises.
    summary: the summary of all rows of the window, an object of the kind; each answer has one of its own.
    rows_scanned: the rows of `events` that were read because no stored cell serves them; 0 if there are none.

    The other fields are those of `Scope`.
    """

    SUBJECT: ClassVar = "column"
    COLUMNS: ClassVar = ("companion", "kind")
    READ_FACTS: ClassVar = ("rows_scanned", "as_of")

    companion: str
    kind: str
    column: str = field()  # not the property of `Scope`
    summary: Any
    rows_scanned: int

    def __repr__(self) -> str:
        return f"{self.companion}, {self.kind} of {self.scope_text}"

    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        scanned = [f"{self.rows_scanned:,} rows scanned"] if self.rows_scanned else []
        return nonzero_counts(NULL=self.nulls), scanned

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`; the summary itself is not shown."""
        facts = {name: fact for name, fact in self._document().items() if name not in ("window", "as_of")}
        return [*facts], [[*facts.values()]], [], repr(self)
