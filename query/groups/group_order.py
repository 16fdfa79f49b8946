"""The order of the groups in an answer, and which groups it has: `order`, `top` and `least_rows`.

Each window has an order of its own. First all groups are answered in mode quick, without reads. The bounds of
these answers show which groups can be among the `top`; blocks are read only for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.answers.one_value import OneValue
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.questions import ReadQuestion, Wanted
from tidemark.query.reading.modes import ORDERS
from tidemark.warehouse.errors import InputError, shortened

A = TypeVar("A", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """Which groups of a window are answered, and in what order.

    by: one of ORDERS, '-' for the greatest first. None: the order of the questions, in which equal groups
        always stay. Groups whose value is NaN are the last ones.
    top: how many groups of a window are answered; None for all.
    least_rows: groups with fewer rows, N, are left out.
    """

    by: str | None
    top: int | None
    least_rows: int

    @property
    def text(self) -> str:
        """The order in words."""
        least = [f"of at least {self.least_rows:,} rows"] if self.least_rows > 1 else []
        return ", ".join([*([f"in the order {self.by}"] if self.by else []), *least])

    def read(self, questions: Sequence[ReadQuestion], wanted: Wanted[A], windows: int) -> list[list[A]]:
        """The answers, window by window; blocks are read only for groups that can be among the `top`.

        questions: by group, and for each group one question for each of the `windows`.
        """
        lists: list[Sequence[A]] = []
        for candidates in self._by_window(questions, windows):
            read, left = self._to_read(candidates, wanted)
            lists += self._placed([(one, one.answers(wanted)) for one in read], left)
        return [list(answers) for answers in lists]

    def of_cells(self, questions: CellQuestions, wanted: Wanted[A], windows: int) -> CellQuestions:
        """The cells (a group in a window) that are answered, window by window. Their answers are exact.

        questions: as in `read`.
        """
        rows = questions.cells.rows
        values = self._values_of(questions, wanted) if len(rows) else []
        taken = questions.take(self.places(rows, values, windows))
        return replace(taken, fields={**taken.fields, "certain": self._certain(True)})

    def places(
        self, rows: NDArray[np.int64], values: Sequence[Any] | NDArray[Any], windows: int
    ) -> NDArray[np.int64]:
        """The indices of the answers that are given, window by window, if all answers are exact.

        rows: the N of each group and window, the windows of a group one after the other.
        values: the value of each answer, if the order is by value; otherwise empty. An array has no NaN.
        """
        places = []
        for number in range(windows):
            kept = np.arange(number, len(rows), windows)
            kept = kept[rows[kept] >= self.least_rows]
            ordered = self.by if self.by is not None else ""
            if isinstance(values, np.ndarray) or ordered.endswith("rows"):
                by = values if isinstance(values, np.ndarray) else rows
                kept = kept[np.argsort(-by[kept] if self._descends else by[kept], kind="stable")]
            elif len(values):
                kept = kept[self._ordered([values[at] for at in kept.tolist()])]
            places.append(kept[: self.top])
        return np.concatenate(places)

    def _values_of(self, questions: CellQuestions, wanted: Wanted[A]) -> list[Any]:
        """The value of each answer if the order is by value, else nothing: N is known, and errors are 0."""
        if self.by is None or self.by.endswith("rows"):
            return []
        columns = wanted.columns(questions.cells, questions.fields["measure"])
        one: str | None = None if columns is None else getattr(columns.kind, "ONE", None)
        if columns is None or one is None or wanted.targets != 1:
            raise several_values(self.by)
        return list(columns.own[one]) if self.by.endswith("value") else []

    def _by_window(self, questions: Sequence[Any], windows: int) -> list[list[Any]]:
        """The questions of each window that have enough rows."""
        return [
            [one for one in questions[number::windows] if one.counts.rows >= self.least_rows]
            for number in range(windows)
        ]

    def _to_read(
        self, candidates: Sequence[ReadQuestion], wanted: Wanted[A]
    ) -> tuple[Sequence[ReadQuestion], Sequence[Sequence[A]]]:
        """The questions of one window that need an answer, and the quick answers of all others."""
        if self.top is None or (self.by or "").endswith("error"):
            return candidates, ()
        if self.by is None or self.by.endswith("rows"):
            return [one for one, _ in self._sorted([(one, ()) for one in candidates])[: self.top]], ()
        if any(one.mode == "quick" for one in candidates):
            return candidates, ()
        quick = [(one, replace(one, mode="quick").answers(wanted)) for one in candidates]
        read = self._possible(quick)
        kept = {id(one) for one in read}
        return read, [answers for one, answers in quick if id(one) not in kept]

    def _possible(self, quick: Sequence[tuple[Any, Sequence[A]]]) -> list[Any]:
        """The questions whose answers can be among the `top`, by the bounds of their quick answers."""
        bounds = [self._bounds(answers) for _, answers in quick]
        ends = sorted((last for _, last in bounds if not _is_nan(last)), reverse=self._descends)
        if self.top is None or len(ends) < self.top:
            return [one for one, _ in quick]
        threshold = ends[self.top - 1]
        return [
            one
            for (one, _), (first, _) in zip(quick, bounds, strict=True)
            if not _is_nan(first) and not self._stands_before(threshold, first)
        ]

    def _placed(
        self, found: Sequence[tuple[Any, Sequence[A]]], left: Sequence[Sequence[A]]
    ) -> list[Sequence[A]]:
        """The answers of one window in their order.

        left: the quick answers of groups that cannot be among the `top`.
        """
        ordered = self._sorted(found)
        if self.by is None or not self.by.endswith("value"):
            return [_marked(answers, self._certain(True)) for _, answers in ordered[: self.top]]
        bounds = [self._bounds(answers) for _, answers in ordered]
        best: Any = None  # the first place that a group later in the order, or a left one, can have
        for answers in left:
            best = self._first_of(best, self._bounds(answers)[0])
        certain = []
        for first, last in reversed(bounds):
            certain.append(best is None or _is_nan(best) or not self._stands_before(best, last))
            best = self._first_of(best, first)
        kept = list(zip(ordered, reversed(certain), strict=True))[: self.top]
        return [_marked(answers, self._certain(is_certain)) for (_, answers), is_certain in kept]

    def _certain(self, is_certain: bool) -> bool | None:
        return is_certain if self.top is not None else None

    def _sorted(self, found: Sequence[tuple[Any, Sequence[A]]]) -> list[tuple[Any, Sequence[A]]]:
        if self.by is None:
            return list(found)
        if self.by.endswith("rows"):
            return sorted(found, key=lambda one: one[0].counts.rows, reverse=self._descends)
        return [found[at] for at in self._ordered([self._measured(answers) for _, answers in found])]

    @property
    def _descends(self) -> bool:
        return self.by is not None and self.by.startswith("-")

    def _ordered(self, values: Sequence[Any]) -> list[int]:
        """The places of values in their order; those of NaN are the last ones."""
        numbers = [at for at, value in enumerate(values) if not _is_nan(value)]
        rest = [at for at, value in enumerate(values) if _is_nan(value)]
        return [*sorted(numbers, key=values.__getitem__, reverse=self._descends), *rest]

    def _stands_before(self, a: Any, b: Any) -> bool:
        return bool(a > b) if self._descends else bool(a < b)

    def _first_of(self, a: Any, b: Any) -> Any:
        if a is None or _is_nan(a):
            return b
        return b if not _is_nan(b) and self._stands_before(b, a) else a

    def _measured(self, answers: Sequence[A]) -> Any:
        """The number by which the answers of a group are ordered."""
        one = _one(answers, self.by or "")
        return _error(one) if (self.by or "").endswith("error") else getattr(one, one.ONE)

    def _bounds(self, answers: Sequence[A]) -> tuple[Any, Any]:
        """The first and the last place that a group's value can have, as values."""
        one: Any = _one(answers, self.by or "")
        low, _, high = (getattr(one, name) for name in one.INTERVAL)
        return (high, low) if self._descends else (low, high)


def order_of(order: Any, top: int | None, least_rows: int | None) -> GroupOrder | None:
    """The checked arguments; None if neither an order nor a least number of rows is given.

    `top` without an order takes the groups with the most rows. InputError for an unknown order.
    """
    if order is None and least_rows is None:
        return None
    if order is not None and (not isinstance(order, str) or order not in ORDERS):
        raise InputError(
            f"order must be one of {', '.join(ORDERS)}, got {shortened(order)}. With - the greatest come "
            "first."
        )
    return GroupOrder(order or ("-rows" if top is not None else None), top, least_rows or 1)


def _one(answers: Sequence[Any], order: str) -> OneValue:
    if len(answers) != 1 or not isinstance(answers[0], OneValue) or not hasattr(answers[0], "INTERVAL"):
        raise several_values(order)
    return answers[0]


def several_values(order: str) -> InputError:
    """The error for an order by value, if answers have more than one value for each group."""
    return InputError(
        f"order={shortened(order)} needs one value for each group: ask for one quantile, or for the rank or "
        "the share of one value. order='-rows' goes with any question."
    )


def _error(answer: Any) -> Any:
    low, value, high = (getattr(answer, name) for name in answer.INTERVAL)
    return answer.error_bound if hasattr(answer, "error_bound") else max(value - low, high - value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _marked(answers: Sequence[A], certain: bool | None) -> list[A]:
    return [replace(one, certain=certain) for one in answers]
