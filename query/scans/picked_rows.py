"""Which rows of `events` a scan reads after an index has found the rows that may be selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark.query.answers.plan import INDEX
from tidemark.query.reading import spending
from tidemark.query.scans.expressions import Expression
from tidemark.query.scans.index_places import Found, find
from tidemark.query.scans.sought import Ends
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, name_at
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.snapshots.system_tables import AnyContents

FILE_ROW = "file_row_number"  # the column that DuckDB gives the rows of a file
_MOST_PARTS = 64  # files whose rows are told one by one, in a statement
_MOST_NUMBERS = 256  # rows that are told one by one; more are told as ranges
_MOST_RANGES = 32


@dataclass(frozen=True, slots=True)
class PickedRows:
    """The rows that indexes found, by the store of each warehouse where they were used."""

    found: Mapping[Store, Found]

    @classmethod
    def of(
        cls, contents: AnyContents, expression: Expression | None, wanted: Mapping[Key, Any]
    ) -> PickedRows:
        """The rows that may be true of the expression and have the names that are wanted in columns."""
        asked = None if expression is None else expression.sought
        allowed: dict[Key, Sequence[Ends]] = {}
        for key, names in wanted.items():
            allowed[key] = [(name, name) for name in (name_at(names, i) for i in range(len(names)))]
        found = {}
        for site in contents.sites:
            one = find(site, asked, allowed) if asked is not None or allowed else None
            if one is not None and one.rows is not None:
                spending.takes(INDEX)
                found[site.store] = one
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self.found)

    def of_file(self, store: Store, file: DataFile) -> Ints | None:
        """The numbers of the rows of a file that may be selected; None: any."""
        rows = self.found[store].rows if store in self.found else None
        return None if rows is None else rows.get(file.path)

    def rows_left(self, store: Store, file: DataFile) -> int:
        """How many rows of the file may be selected; negative if the log does not tell."""
        rows = self.of_file(store, file)
        return file.rows if rows is None else len(rows)


class RowConditions:
    """Conditions in SQL that name the rows to read of a file, for a bounded number of files."""

    def __init__(self, columns: Sequence[str]) -> None:
        # A column of this name would take the place of DuckDB's.
        self._left = 0 if FILE_ROW in {name.lower() for name in columns} else _MOST_PARTS

    def of(self, rows: Ints | None, file: DataFile) -> str:
        """The condition; empty if the whole file is read, because the rows or the files are too many."""
        if rows is None or not self._left or 4 * len(rows) > file.rows:
            return ""
        self._left -= 1
        return rows_sql(rows)


def rows_sql(rows: Ints) -> str:
    """SQL that is true of rows with these numbers, which ascend, and perhaps of some between them."""
    gaps = np.diff(rows)
    cuts = np.flatnonzero(gaps > 1) + 1
    if len(cuts) and len(rows) <= _MOST_NUMBERS:
        return f"{FILE_ROW} IN ({', '.join(map(str, rows.tolist()))})"
    if len(cuts) >= _MOST_RANGES:
        cuts = np.sort(np.argsort(-gaps, kind="stable")[: _MOST_RANGES - 1]) + 1
    parts = [(int(part[0]), int(part[-1])) for part in np.split(rows, cuts)]
    ranges = [f"{FILE_ROW} BETWEEN {first} AND {last}" for first, last in parts]
    return f"({' OR '.join(ranges)})"
