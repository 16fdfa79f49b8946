"""Files that a task wrote for `events` or `rejected`: what their add actions need."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deltalake.transaction import AddAction

from tidemark.warehouse.delta.tables import add_action


@dataclass(frozen=True, slots=True)
class NewRows:
    """A file written: its path below its table, size in bytes, rows, and statistics as JSON.

    `nulls` says, as JSON, in how many rows each column is NULL, of those that are so in any.
    """

    path: str
    size: int
    rows: int
    stats: str
    nulls: str = "{}"

    def action(self, *, new_rows: bool = True) -> AddAction:
        """Its add action; `new_rows` is false where it holds rows that the table has."""
        return add_action(self.path, self.size, self.rows, json.loads(self.stats), {}, new_rows=new_rows)
