"""How a statement of SQL finds the rows of `events`: what `explain` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidemark.query.answers.plan import Way


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPlan:
    """How the rows of one view in a statement are found.

    site: the name of the warehouse, if there are several; else empty.
    view: "events", "history" or "live". alias: its name in the statement.
    columns: those whose indexes are used, or would be.
    way: "index" if rows are looked up, "scan" if that would not pay.
    is_covered: whether the index has all columns of the statement, so that history is not read.
    selected: how many rows the WHERE selects, at least and at most. Both are the same for history if the
        index has the columns of the WHERE; live batches widen them.
    most: how many rows of history the WHERE selects at most, by the marks of the indexes.
    rows, rows_left: the rows of all files, and those that may be selected. Likewise files and row_groups.
        Live batches, and files that an index does not cover, are left whole.
    estimates_ms: the milliseconds that each way was estimated to take.
    """

    site: str
    view: str
    alias: str
    columns: tuple[str, ...]
    way: Way
    is_covered: bool
    selected: tuple[int, int]
    most: int
    rows: int
    rows_left: int
    files: int
    files_left: int
    row_groups: int
    row_groups_left: int
    estimates_ms: Mapping[Way, float]

    def __str__(self) -> str:
        left = ", ".join(
            f"{getattr(self, f'{name}_left'):,} of {getattr(self, name):,} {name.replace('_', ' ')}"
            for name in ("files", "row_groups", "rows")
        )
        costs = ", ".join(f"{way} {ms:,.1f} ms" for way, ms in self.estimates_ms.items())
        on = ", ".join(self.columns) + (", which has all columns" if self.is_covered else "")
        low, high = self.selected
        selected = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        view = f"{self.site} {self.view}" if self.site else self.view
        return f"{view} AS {self.alias}: {self.way} on {on}; {selected} rows; {left}; {costs}"


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """How a statement finds its rows: a part for each view of rows for which an index is useful."""

    parts: Sequence[RowsPlan]

    @property
    def document(self) -> list[dict[str, Any]]:
        """The parts as plain values."""
        return [{**asdict(one), "columns": list(one.columns)} for one in self.parts]

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts)) or "scan: no WHERE says anything of a column with an index"
