"""The macros of a warehouse in DuckDB. Each is made when a statement names it, which saves time.

A name is searched anywhere in the text, because an unneeded macro does no harm. Making all macros takes ten
times as long. For a statement about functions, which may list them, all are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidemark.query.reading.sql_text import quoted
from tidemark.query.sql.pinned_readers import PinnedReaders

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LISTS = "functions"  # duckdb_functions(), pragma_functions ...


class Macros:
    """The macros that are not made yet.

    make: the beginning of a statement that makes one. definitions: by name, functions that give the
        parameters and the body. readers: the readers that the macros use.
    """

    def __init__(
        self, make: str, definitions: Mapping[str, Callable[[], str]], readers: PinnedReaders
    ) -> None:
        self._make, self._definitions, self._readers = make, dict(definitions), readers
        self._names = {name: quoted(name)[1:-1].casefold() for name in definitions}  # as a text has them

    def named_in(self, text: str | None) -> list[str]:
        """The macros that are named in a text; all if it is None."""
        folded = None if text is None else text.casefold()
        return [
            name
            for name, in_text in self._names.items()
            if folded is None or _LISTS in folded or in_text in folded
        ]

    def make(self, connection: DuckDBPyConnection, text: str | None = None) -> None:
        """Makes the macros that are named in a text; all if it is None. `connection` has no open result."""
        names = self.named_in(text)
        if not names:
            return
        self._readers.has_macros = False
        for name in names:
            connection.execute(f"{self._make} {quoted(name)}{self._definitions[name]()}")
            del self._names[name]
        self._readers.has_macros = True
