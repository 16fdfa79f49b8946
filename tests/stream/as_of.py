"""The oracle of an answer in the middle of it all: the values of the batches that it says it has.

Which batches those are is read from the versions of the tables that the answer names, with delta-rs and
nothing of tidemark: those of the steps that the runs hold, and those that the ledger names.
"""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

Batch = tuple[str, int]


class Oracle:
    """Everything that was ever ingested, by batch, and what a reader could know of it at a time."""

    def __init__(self, uri: Path) -> None:
        self.uri = uri
        self.values: dict[Batch, list[float]] = {}
        for row in self._rows("events", None, "_source", "_batch", "value"):
            self.values.setdefault((row["_source"], row["_batch"]), []).append(row["value"])
        self._known: dict[tuple[int, ...], list[float]] = {}

    def wrong(self, answer: dict[str, Any]) -> str | None:
        """What is wrong with the answer; None where it is right."""
        ordered = self.at(answer["as_of"])
        value, r = answer["value"], max(1, math.ceil(Fraction(str(answer["phi"])) * len(ordered)))
        le, lt = bisect.bisect_right(ordered, value), bisect.bisect_left(ordered, value)
        error = max(0, r - le, lt + 1 - r)
        rows = answer["m"] if answer["mode"] == "accurate" else answer["n"] + answer["m"]
        held = (
            answer["n"] + answer["m"] == len(ordered),
            answer["rank_lo"] <= le <= answer["rank_hi"],
            answer["low"] <= ordered[r - 1] <= answer["high"],
            error <= answer["error_bound"] <= answer["eps"] * rows,
        )
        return None if all(held) else f"{answer}: {len(ordered)} rows, rank {le}, error {error}, {held}"

    def at(self, as_of: dict[str, int]) -> list[float]:
        """The values, ordered, of the batches that a reader of these versions has."""
        name = tuple(as_of.values())
        if name not in self._known:
            held = self._loaded(as_of) | self._named(self._rows("ledger", as_of["ledger"], *_RANGE))
            self._known[name] = sorted(value for batch in held for value in self.values.get(batch, []))
        return self._known[name]

    def _loaded(self, as_of: dict[str, int]) -> set[Batch]:
        if as_of["runs"] < 0:
            return set()
        table = DeltaTable(self.uri / "runs" / "value", version=as_of["runs"])
        runs = pa.table(table.get_add_actions(flatten=True))["partition.run"].to_pylist()
        last = max((int(run.rsplit("-", 1)[1]) for run in runs), default=-1)
        plans = self._rows("steps", as_of["steps"], "step", "source", "first_batch", "last_batch")
        return self._named([row for row in plans if row["step"] <= last])

    def _named(self, rows: list[dict[str, Any]]) -> set[Batch]:
        return {
            (row["source"], batch)
            for row in rows
            for batch in range(row["first_batch"], row["last_batch"] + 1)
        }

    def _rows(self, table: str, version: int | None, *columns: str) -> list[dict[str, Any]]:
        found = DeltaTable(self.uri / table, version=version).to_pyarrow_dataset()
        rows: list[dict[str, Any]] = found.to_table(columns=list(columns)).to_pylist()
        return rows


_RANGE = ("source", "first_batch", "last_batch")
