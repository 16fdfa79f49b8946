"""How an answer was found: the way that was taken, what was read, and the estimated cost of each way.

And how a statement of SQL finds the rows of `events`: what `explain` returns.

A question has up to three ways:

    index   by marks, sketches and lists in memory, and the blocks that these leave open
    runs    whole runs of a measure in memory, for many groups, windows or ranks at once
    scan    all rows of the window: of `events`, or of the runs of a key
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.columns.json_values import json_text

Way = Literal["index", "runs", "scan"]
INDEX: Way = "index"
RUNS: Way = "runs"
SCAN: Way = "scan"

_UNITS = ("files", "blocks", "rows", "bytes", "rounds")


@dataclass(slots=True)
class Plan:
    """The way to the answers of one call. It is complete once they are returned.

    ways: the ways that gave the answers: one, or several if each window has its own.
    left: the ways that were begun before, and left because they cost too much.
    estimates: the milliseconds that each way was estimated to take; empty for a question with one way.
    files: different files of data that were read. blocks: row groups of runs.
    rows: the rows of the row groups and files that were read, and of live batches that were decoded.
    bytes: the bytes of the columns that were read, as they are stored, without live batches.
    rounds: rounds of requests to an object store for blocks.

    Marks, ledgers, logs of tables, and data that were in memory are not counted.
    """

    ways: list[Way] = field(default_factory=list)
    left: list[Way] = field(default_factory=list)
    estimates: dict[Way, float] = field(default_factory=dict)
    files: int = 0
    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    rounds: int = 0

    @property
    def way(self) -> str:
        """The way that gave the answers; "index and scan" if windows were answered in several."""
        return " and ".join(self.ways) or INDEX

    def took(self, way: Way) -> None:
        """Notes a way that gave answers."""
        if way not in self.ways:
            self.ways.append(way)

    @property
    def document(self) -> Mapping[str, Any]:
        """The plan by name, as in the JSON document of `--explain`."""
        read = {name: getattr(self, name) for name in _UNITS}
        estimates = {way: round(ms, 3) for way, ms in self.estimates.items()}
        return {"way": self.way, "left": list(self.left), "read": read, "estimates_ms": estimates}

    def to_json(self) -> str:
        """A JSON document with the plan alone, as that of an answer has it."""
        return json_text({"plan": self.document})

    def __str__(self) -> str:
        left = f", after {' and '.join(self.left)} was left" if self.left else ""
        estimates = ", ".join(f"{way} {ms:,.1f} ms" for way, ms in self.estimates.items())
        read = ", ".join(f"{text_of(getattr(self, name))} {name}" for name in _UNITS)
        lines = [f"way: {self.way}{left}", f"read: {read}"]
        return "\n".join([*lines, f"estimates: {estimates}"] if estimates else lines)


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
