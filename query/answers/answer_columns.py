"""A compact list of many answers: one array for each field. An answer becomes an object when it is taken out.

The fields themselves are those of the classes of answers (all_answers.py and others).

A *cell* is the subject of one question, such as a group in a window. The answers about a cell, such as one
for each of several quantiles, follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.columns.value_encoding import Measure

A = TypeVar("A")


class Taken(Sequence[Any]):
    """A value for each of some items, made when it is taken. There are no slices."""

    __slots__ = ("_items",)

    _items: Any

    def __len__(self) -> int:
        return len(self._items)


class Column(Taken):
    """The values of an array as Python's; stored numbers of a measure in its own type."""

    __slots__ = ("_measure",)

    def __init__(self, array: NDArray[Any], measure: Measure | None = None) -> None:
        self._items, self._measure = array, measure

    def __getitem__(self, at: Any) -> Any:
        value = self._items[at].item()
        return value if self._measure is None else self._measure.decode(value)

    def __iter__(self) -> Iterator[Any]:
        values = self._items.tolist()
        return iter(values) if self._measure is None else map(self._measure.decode, values)


class Picked(Taken):
    """Item i is ``values[places[i]]``."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[Any], places: NDArray[np.int64]) -> None:
        self._values, self._items = values, places

    def __getitem__(self, at: Any) -> Any:
        return self._values[self._items[at].item()]

    def __iter__(self) -> Iterator[Any]:
        values = list(self._values)
        return (values[place] for place in self._items.tolist())


class Marked(Taken):
    """A column with some items replaced, by their places, which are counted from the start."""

    __slots__ = ("_marks",)

    def __init__(self, column: Sequence[Any], marks: Mapping[int, Any]) -> None:
        self._items, self._marks = column, marks

    def __getitem__(self, at: Any) -> Any:
        return self._marks[at] if at in self._marks else self._items[at]

    def __iter__(self) -> Iterator[Any]:
        items = list(self._items)
        for place, mark in self._marks.items():
            items[place] = mark
        return iter(items)


class Computed(Taken):
    """Item i is ``compute(values[i])``."""

    __slots__ = ("_compute",)

    def __init__(self, values: Sequence[Any], compute: Callable[[Any], Any]) -> None:
        self._items, self._compute = values, compute

    def __getitem__(self, at: Any) -> Any:
        return self._compute(self._items[at])


class AnswerColumns(Sequence[A], Generic[A]):
    """Answers of one kind; it is equal to any sequence of equal answers.

    kind: the class of the answers.
    own: by name, the fields that each answer has for itself.
    of_cell: the fields that the `each` answers of a cell share; these columns have one item for each cell.
    common: the fields that all answers share, and properties of `kind` that are the same for all.
    """

    __slots__ = ("_common", "_each", "_kind", "_of_cell", "_own", "_shared")

    def __init__(
        self,
        kind: type[A],
        own: Mapping[str, Sequence[Any]],
        of_cell: Mapping[str, Sequence[Any]],
        common: Mapping[str, Any],
        each: int,
    ) -> None:
        self._kind, self._own, self._of_cell = kind, own, of_cell
        self._common, self._each = common, each
        names = {field.name for field in fields(kind)}  # type: ignore[arg-type]  # answers are dataclasses
        self._shared = {name: value for name, value in common.items() if name in names}

    def __len__(self) -> int:
        return len(next(iter(self._own.values())))

    @overload
    def __getitem__(self, at: int) -> A: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[A]: ...
    def __getitem__(self, at: int | slice) -> A | Sequence[A]:
        """One answer; for a slice, a tuple of answers."""
        if isinstance(at, slice):
            return tuple(map(self._answer, range(*at.indices(len(self)))))
        return self._answer(range(len(self))[at])

    def __iter__(self) -> Iterator[A]:
        return map(self._answer, range(len(self)))

    def __eq__(self, other: object) -> bool:
        same_length = isinstance(other, Sequence) and len(self) == len(other)
        return same_length and all(a == b for a, b in zip(self, other, strict=True))  # type: ignore[call-overload]

    __hash__ = None  # type: ignore[assignment]

    def _answer(self, at: int) -> A:
        own = {name: column[at] for name, column in self._own.items()}
        of_cell = {name: column[at // self._each] for name, column in self._of_cell.items()}
        return self._kind(**own, **of_cell, **self._shared)

    def column(self, name: str) -> list[Any]:
        """A field, or a property, of all answers."""
        if name in self._own:
            return list(self._own[name])
        if name in self._of_cell:
            return [item for item in self._of_cell[name] for _ in range(self._each)]
        if name in self._common:
            return [self._common[name]] * len(self)
        if name == "N":
            return [n + m for n, m in zip(self.column("n"), self.column("m"), strict=True)]
        return [getattr(answer, name) for answer in self]
