"""Answers about numbers of distinct keys: estimates with probable and with certain bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from tidemark.query.answers.all_answers import Renderable, nonzero_counts
from tidemark.query.answers.key_answers import KeyScope
from tidemark.query.answers.one_value import OneValue, Several
from tidemark.query.answers.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class KeyNumber(OneValue):
    """A number of keys: certainly from `least` to `most`, with the answer's confidence from `lo` to `hi`."""

    ONE: ClassVar = "count"

    INTERVAL: ClassVar = ("lo", "count", "hi")

    count: int
    lo: int
    hi: int
    least: int
    most: int

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.count:,} (exact)"
        return f"{self.count:,} ({self.lo:,} to {self.hi:,}, certainly {self.least:,} to {self.most:,})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class DistinctAnswer(OneValue, KeyScope):
    """The number of distinct keys of the window.

    lo, hi: the number lies between them with probability `confidence`.
    least, most: the number certainly lies between these.
    """

    ONE: ClassVar = "count"

    COLUMNS: ClassVar[tuple[str, ...]] = ("count", "lo", "hi", "least", "most")
    INTERVAL: ClassVar = ("lo", "count", "hi")

    count: int
    lo: int
    hi: int
    least: int
    most: int

    @property
    def number(self) -> KeyNumber:
        """The count with its bounds."""
        return KeyNumber(self.count, self.lo, self.hi, self.least, self.most)

    def __repr__(self) -> str:
        return f"{self.number} distinct keys of {self.scope_text}"

    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        promise = [] if self.least == self.most else [f"confidence {self.confidence:g}"]
        return nonzero_counts(NULL=self.nulls), [self.mode, *promise, *self._scan_note]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class OverlapPart(DistinctAnswer):
    """The number of distinct keys in both of two windows, or in one of them alone, as a row of a table.

    part: "both", "only a" or "only b". n, m, nulls and window are those of window a.
    """

    COLUMNS: ClassVar = ("part", *DistinctAnswer.COLUMNS)

    part: str


@dataclass(frozen=True, slots=True, repr=False)
class OverlapAnswer(Several, Renderable):
    """How many keys two windows share.

    a, b: the distinct keys of each window.
    both, only_a, only_b: the keys with rows in both windows, and in one of them alone.
    """

    a: DistinctAnswer
    b: DistinctAnswer
    both: KeyNumber
    only_a: KeyNumber
    only_b: KeyNumber

    @property
    def plan(self) -> Plan | None:
        """How they were found."""
        return self.a.plan

    @property
    def parts(self) -> Mapping[str, KeyNumber]:
        """The three numbers by name."""
        return {"both": self.both, "only a": self.only_a, "only b": self.only_b}

    def rows(self) -> list[OverlapPart]:
        """The three numbers, each with the scope of window a."""
        scope = {field.name: getattr(self.a, field.name) for field in fields(self.a)}
        return [OverlapPart(**scope | asdict(number), part=part) for part, number in self.parts.items()]

    def __repr__(self) -> str:
        numbers = "; ".join(f"{name}: {number}" for name, number in self.parts.items())
        return f"distinct keys in {numbers}; a is {self.a.scope_text}; b is {self.b.scope_text}"

    def with_scopes(self) -> Iterable[tuple[Any, Any]]:
        """See `Renderable.with_scopes`."""
        return ((part, part) for part in self.rows())

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`."""
        names = DistinctAnswer.COLUMNS
        rows = [[part, *(getattr(number, name) for name in names)] for part, number in self.parts.items()]
        return (
            ("part", *names),
            rows,
            [*self.parts.values()],
            f"a: {self.a.scope_text}; b: {self.b.scope_text}",
        )

    def _document(self) -> Mapping[str, Any]:
        parts = {name.replace(" ", "_"): asdict(number) for name, number in self.parts.items()}
        return {**parts, "a": self.a.document, "b": self.b.document}
