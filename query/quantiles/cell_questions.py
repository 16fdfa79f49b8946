"""Questions about many cells, which are answered together; see cells.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import AnswerColumns, Column, Picked
from tidemark.query.quantiles.cells import CellNumbers
from tidemark.query.quantiles.questions import Question, SortedQuestion, Wanted
from tidemark.query.reading.row_counts import NO_ROWS

A = TypeVar("A")


@dataclass(frozen=True, slots=True, eq=False)
class CellQuestions:
    """One question for each cell.

    windows, groups: as answers show them. window_of, group_of: (cells,) which of them a cell has.
    fields: the other fields of `Question`, which are the same for all.
    """

    cells: CellNumbers
    windows: Sequence[Any]
    window_of: NDArray[np.int64]
    groups: Sequence[Any]
    group_of: NDArray[np.int64]
    fields: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, places: NDArray[np.int64]) -> CellQuestions:
        """Some of the questions, in this order."""
        return replace(
            self,
            cells=self.cells.take(places),
            window_of=self.window_of[places],
            group_of=self.group_of[places],
        )

    def answers(self, wanted: Wanted[A]) -> Sequence[A]:
        """The answers of each question, one question after the other; exact."""
        columns = wanted.columns(self.cells, self.fields["measure"])
        if columns is None:
            return [answer for at in range(len(self)) for answer in self._question(at).answers(wanted)]
        cells = self.cells
        of_cell = {
            "n": Column(cells.n),
            "m": Column(cells.m),
            "nans": Column(cells.nans),
            "nulls": Column(cells.nulls),
            "window": Picked(self.windows, self.window_of),
            "group": Picked(self.groups, self.group_of),
        }
        scope = Question(counts=NO_ROWS, window=None, **self.fields).scope(0)
        common = {name: value for name, value in scope.items() if name not in of_cell}
        return AnswerColumns(
            columns.kind, columns.own, of_cell, {**common, **columns.constant}, wanted.targets
        )

    def _question(self, at: int) -> SortedQuestion:
        counts = self.cells.cell(at)
        return SortedQuestion(
            counts=counts,
            numbers=counts.numbers,
            window=self.windows[self.window_of[at]],
            group=self.groups[self.group_of[at]],
            **self.fields,
        )
