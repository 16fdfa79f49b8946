"""New files of `events` or `rejected`: what a task returns so that the driver can commit them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deltalake.transaction import AddAction

from tidemark.warehouse.delta.tables import add_action


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that was written and is not committed: its path relative to its table, and its size in bytes.

    `stats` are Delta's statistics, as JSON. `nulls` is a JSON object: by column, how many rows are NULL
    there; columns without NULL are left out.
    """

    path: str
    size: int
    rows: int
    stats: str
    nulls: str = "{}"

    def action(self, *, new_rows: bool = True) -> AddAction:
        """The add action of the file; `new_rows` is False if its rows are in the table already."""
        return add_action(self.path, self.size, self.rows, json.loads(self.stats), {}, new_rows=new_rows)
