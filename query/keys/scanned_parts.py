"""Results of a scan of `events` for questions about keys (query/scans/key_scan.py counts)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from numpy.typing import NDArray

from tidemark.query.answers.key_answers import ScannedFields
from tidemark.warehouse.columns.keys import Key

A = TypeVar("A")


class ScannedKey(NamedTuple):
    """A key, and its rows in history and on the live side."""

    value: Any
    history: int
    live: int

    @property
    def rows(self) -> int:
        """All of its rows."""
        return self.history + self.live

    @property
    def fields(self) -> dict[str, Any]:
        """The key and its rows as fields of an answer, which is exact."""
        rows = self.rows
        return {"value": self.value, "count": rows, "lo": rows, "hi": rows, "in_history": self.history}


class ScannedParts(Protocol):
    """The selected rows of some parts, each a group in a window; sequences have an item for each part."""

    @property
    def key(self) -> Key:
        """The key, with its columns in the order in which values have them."""

    @property
    def scopes(self) -> Sequence[ScannedFields]:
        """The fields of the scope of each part's answers."""

    def answers(self, kind: type[A], own: Mapping[str, NDArray[Any]]) -> Sequence[A]:
        """An answer for each part, which is made when it is taken.

        own: its fields beside those of the scope, by name.
        """

    @property
    def keys(self) -> NDArray[Any]:
        """The number of distinct keys."""

    @property
    def second_moments(self) -> NDArray[Any]:
        """The sum over all keys of the square of their rows."""

    def top(self, k: int) -> Sequence[Sequence[ScannedKey]]:
        """The k keys with the most rows, most rows first."""

    def with_rows(self, least: Sequence[int]) -> Sequence[Sequence[ScannedKey]]:
        """The keys with at least so many rows, most rows first."""

    def rows_of(self, values: Sequence[Any]) -> Sequence[Sequence[ScannedKey]]:
        """The rows of these values of the key, in their order."""
