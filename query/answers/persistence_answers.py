"""Answers about the slots of a window in which keys are present."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark.query.answers.all_answers import nonzero_counts
from tidemark.query.answers.key_answers import KeyScope
from tidemark.query.answers.one_value import OneValue
from tidemark.query.answers.rendering import text_of


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class _Slots(OneValue, KeyScope):
    """The slots of the window in which the key `value` has rows: certainly from `lo` to `hi`, both inclusive.

    slots: the estimate; where the presence is uncertain, the key is taken to be as frequent as elsewhere.
    window_slots: the slots of the window, also those without any rows.
    """

    ONE: ClassVar = "slots"

    COLUMNS: ClassVar[tuple[str, ...]] = ("value", "slots", "lo", "hi", "window_slots", "share")
    INTERVAL: ClassVar = ("lo", "slots", "hi")

    value: Any
    slots: int
    lo: int
    hi: int
    window_slots: int

    @property
    def share(self) -> float:
        """The estimated share of the window's slots in which the key has rows."""
        return self.slots / self.window_slots if self.window_slots else 0.0

    def __repr__(self) -> str:
        exact = "exact" if self.lo == self.hi else f"{self.lo:,} to {self.hi:,}"
        slots = f"{self.slots:,} of {self.window_slots:,} slots ({exact})"
        return f"{slots} have rows with {text_of(self.value)} of {self.scope_text}"

    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        return nonzero_counts(NULL=self.nulls), [self.mode, *self._scan_note]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PersistentAnswer(_Slots):
    """A key that may be in the wanted share of the slots.

    certain: whether it certainly is, and certainly has no more rows than `most`.
    """

    COLUMNS: ClassVar = (*_Slots.COLUMNS, "certain")

    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class PersistenceAnswer(_Slots):
    """The slots of one key.

    present: the `lo` slots in which it certainly has rows, ascending: the start and the end of each, times or
        numbers of steps, the end exclusive.
    maybe: the `hi` - `lo` slots in which it may have rows, too.
    """

    present: tuple[tuple[Any, Any], ...]
    maybe: tuple[tuple[Any, Any], ...]
