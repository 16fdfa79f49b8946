"""Questions about many cells, which are answered together; see cells.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import AnswerColumns, Column, Picked
from tidemark.query.quantiles.cells import Cells
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.questions import Found, Question, Wanted
from tidemark.query.reading.row_counts import NO_ROWS, RowCounts

A = TypeVar("A")


@dataclass(frozen=True, slots=True, eq=False)
class CellQuestions:
    """One question for each cell.

    windows, groups: as answers show them. window_of, group_of: (cells,) the window and group of a cell.
    fields: the other fields of `Question`, which are the same for all.
    """

    cells: Cells
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
            return [answer for own in self._each_answers(wanted) for answer in own]
        n, m, nans, nulls = map(Column, self.cells.counts.T)
        of_cell = {
            "n": n,
            "m": m,
            "nans": nans,
            "nulls": nulls,
            "window": Picked(self.windows, self.window_of),
            "group": Picked(self.groups, self.group_of),
        }
        scope = Question(counts=NO_ROWS, window=None, **self.fields).scope(0)
        common = {name: value for name, value in scope.items() if name not in of_cell}
        return AnswerColumns(
            columns.kind, columns.own, of_cell, {**common, **columns.constant}, wanted.targets
        )

    def _each_answers(self, wanted: Wanted[A]) -> Iterator[list[A]]:
        """The answers of each question, all of which find their values, and then their ranks, together."""
        numbers, questions, measure = self.cells.numbers, self._questions, self.fields["measure"]
        ranks = [wanted.ranks(one.counts) for one in questions]
        of_numbers = [own[own <= one.counts.stored] for own, one in zip(ranks, questions, strict=True)]
        values = numbers.values_at(of_numbers)
        points = [wanted.points(measure, own, own) for own, _ in values]
        stored = [of.places(measure) for of in points]
        found = numbers.ranks_at([own for _, own in stored])
        sums = numbers.sums() if wanted.needs_sums else [None] * len(questions)
        for at, question in enumerate(questions):
            ranks_le = np.zeros(len(points[at].stored), np.int64)
            ranks_le[stored[at][0]] = found[at]
            exact = Candidates.exact(*values[at]) if len(ranks[at]) else None
            of_rows = ranks[at], exact, points[at], ranks_le, ranks_le, sums[at]
            yield wanted.answers(Found(question.counts, measure, question.scope(0), *of_rows))

    @property
    def _questions(self) -> list[Question]:
        return [
            Question(
                counts=RowCounts(n=n, m=m, nans=nans, nulls=nulls),
                window=self.windows[window],
                group=self.groups[group],
                **self.fields,
            )
            for (n, m, nans, nulls), window, group in zip(
                self.cells.counts.tolist(), self.window_of.tolist(), self.group_of.tolist(), strict=True
            )
        ]
