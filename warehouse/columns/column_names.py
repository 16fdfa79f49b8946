"""The names of a column: the one that users see, and the stored one of files and folders.

A column keeps its first name, its *stored* name, in the files of `events`, in the folders of runs and in the
ledger. `alter(rename=...)` gives it another name for users, and nothing is written anew. So a column may have
two names, which are translated at few places: where rows of `events` are read and written, and where tables
are named. Everywhere else a name is the user's.

A name that came free may be given again. A new column gets a stored name that no column has.

A private column gets another stored name when its secret is rotated, in all files. So no file with tokens of
one secret is taken for a file with tokens of another secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Pairs (name, stored name) of the columns whose two names differ; the stored names of private ones."""

    renamed: tuple[tuple[str, str], ...] = ()
    private: frozenset[str] = frozenset()

    def stored(self, name: str) -> str:
        """The stored name of a column."""
        return next((stored for own, stored in self.renamed if own == name), name)

    def name_of(self, stored: str) -> str:
        """The name of the column with this stored name."""
        return next((own for own, one in self.renamed if one == stored), stored)

    def stored_of(self, names: Iterable[str]) -> list[str]:
        """The stored names of columns, in their order."""
        return [self.stored(name) for name in names]

    def of_table(self, rows: pa.Table) -> pa.Table:
        """Rows of `events` with the names of their columns in the place of the stored ones."""
        return rows.rename_columns([*map(self.name_of, rows.column_names)]) if self.renamed else rows

    def of_schema(self, stored: pa.Schema) -> pa.Schema:
        """The schema of `events` with the names of the columns."""
        return pa.schema([one.with_name(self.name_of(one.name)) for one in stored])

    def of_types(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Types by stored names, by the names."""
        return {self.name_of(name): kind for name, kind in stored.items()}

    def of_statistics(self, stats: Mapping[str, Any]) -> Mapping[str, Any]:
        """Statistics of a file by 'min.<name>' and the like; the given ones have stored names there."""
        if not self.renamed:
            return stats
        parts = ((*key.partition("."), value) for key, value in stats.items())
        return {f"{what}{dot}{self.name_of(name)}": value for what, dot, name, value in parts}

    def free(self, name: str, stored: Collection[str]) -> str:
        """The stored name of a new column; `stored` are the names in use. Case makes no difference."""
        taken, found, number = {one.lower() for one in stored}, name, 2
        while found.lower() in taken:
            found, number = f"{name}_{number}", number + 1
        return found
