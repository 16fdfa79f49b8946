"""Questions that no declared group answers: one scan of `events` for all groups and windows of a call.

What all questions want is found together: the values of their ranks in one query over all groups, then the
ranks of their points in another one. The answers are made last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, TypeVar

import numpy as np

from tidemark.query.asking.scan_choice import ScanChoice, names_in
from tidemark.query.asking.scan_progress import shown_progress
from tidemark.query.groups.group_choice import Values as GroupValues
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks, Values
from tidemark.query.quantiles.questions import Found, Question, Wanted
from tidemark.query.reading.row_counts import NO_ROWS
from tidemark.query.reading.windows import ShownWindow, rows_of
from tidemark.query.scans.event_scan import EventScan
from tidemark.query.scans.row_source import key_of
from tidemark.query.scans.scanned_rows import RankedValues, ScannedGroup
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.snapshots.system_tables import Contents
from tidemark.warehouse.snapshots.views import View

A = TypeVar("A")


class ScannedQuestions:
    """One question per group and window, the windows of a group one after the other, and their scan."""

    def __init__(
        self,
        scan: EventScan,
        view: View,
        choice: ScanChoice,
        keys: Sequence[Key],
        windows: Sequence[ShownWindow],
        eps: float,
    ) -> None:
        self._scan, self._groups, self._dtype = scan, scan.groups(), view.measure.dtype
        rows = rows_of(view, [window.ticks for window in windows])
        places = {(names_in(keys, group.values), group.window): i for i, group in enumerate(self._groups)}
        chosen = _chosen(choice, keys, self._groups)
        self._codes = [  # the number of the group of each question; None without rows
            places.get((names_in(keys, values), number))
            for values in chosen
            for number in range(len(windows))
        ]
        self.questions = [
            Question(
                counts=NO_ROWS if code is None else self._groups[code],
                measure=view.measure,
                as_of=view.versions,
                mode="exact",
                eps=eps,
                window=window.shown,
                widened=window.widened,
                group=choice.shown(values) or None,
                certain=None if choice.largest is None else True,
                rows_scanned=rows,
                declare=choice.declare,
            )
            for (values, window), code in zip(product(chosen, windows), self._codes, strict=True)
        ]

    def answers(self, wanted: Wanted[A]) -> list[list[A]]:
        """The answers of each question; exact."""
        ranks = [wanted.ranks(question) for question in self.questions]
        values = self._values_at(
            [of[of <= question.counts.stored] for of, question in zip(ranks, self.questions, strict=True)]
        )
        points = [
            wanted.points(question, of.values, of.values)
            for question, of in zip(self.questions, values, strict=True)
        ]
        stored = [of.places(question.measure) for question, of in zip(self.questions, points, strict=True)]
        found = self._ranks_at([numbers for _, numbers in stored])
        sums = self._scan.sums() if wanted.needs_sums else []
        answers = []
        for i, question in enumerate(self.questions):
            rank_le = np.zeros(len(points[i].stored), np.int64)
            rank_le[stored[i][0]] = found[i]
            exact, code = Candidates.exact(*values[i]), self._codes[i]
            own_sums = sums[code] if sums and code is not None else None
            answers.append(
                wanted.answers(question, Found(ranks[i], exact, points[i], rank_le, rank_le, 0, own_sums))
            )
        return answers

    def _values_at(self, ranks: Sequence[Ranks]) -> list[RankedValues]:
        """The values of ranks of each question, and their ranks."""
        by_group = self._by_group(ranks, np.empty(0, np.int64))
        found = self._scan.values_at(by_group) if any(map(len, by_group)) else []
        nothing = RankedValues(np.empty(0, self._dtype), np.empty(0, np.int64))
        return [found[code] if code is not None and found else nothing for code in self._codes]

    def _ranks_at(self, points: Sequence[Values]) -> list[Ranks]:
        """The ranks of stored values of each question."""
        by_group = self._by_group(points, np.empty(0, self._dtype))
        found = self._scan.ranks_at(by_group) if any(map(len, by_group)) else []
        return [
            found[code] if code is not None and found else np.zeros(len(own), np.int64)
            for code, own in zip(self._codes, points, strict=True)
        ]

    def _by_group(self, wanted: Sequence[Values], nothing: Values) -> list[Values]:
        """What is wanted of each question, by the group that the scan has for it."""
        by_group = [nothing] * len(self._groups)
        for code, own in zip(self._codes, wanted, strict=True):
            if code is not None:
                by_group[code] = own
        return by_group


@contextmanager
def scanned_questions(
    contents: Contents,
    view: View,
    choice: ScanChoice,
    windows: Sequence[ShownWindow],
    eps: float,
    progress: Callable[[float], None] | None,
) -> Iterator[ScannedQuestions]:
    """The questions of each group and window, answered by a scan until the end of the context.

    contents, view: the visible batches and the versions of one moment.

    Raises InputError for an unknown column and for too many groups, and the errors of `EventScan`.
    """
    keys = [key_of(contents, name, choice.computed) for name in choice.by]
    with (
        shown_progress(progress) as shown,
        EventScan(
            contents,
            view.measure,
            [window.ticks for window in windows],
            equal=choice.equal_of(keys),
            expression=choice.expression,
            by=choice.by,
            computed=choice.computed,
            progress=shown,
        ) as scan,
    ):
        yield ScannedQuestions(scan, view, choice, keys, windows, eps)


def _chosen(choice: ScanChoice, keys: Sequence[Key], scanned: Sequence[ScannedGroup]) -> list[GroupValues]:
    """The values of the `by` columns that are answered, in the order of the answers."""
    if not choice.by:
        return [()]
    if choice.groups is not None:
        return list(choice.groups)
    rows: dict[tuple[Any, ...], int] = {}
    values: dict[tuple[Any, ...], GroupValues] = {}
    for group in scanned:  # they ascend
        names = names_in(keys, group.values)
        rows[names] = rows.get(names, 0) + group.rows + group.nulls
        values[names] = group.values
    found = list(values.values())
    return [found[i] for i in choice.picked(np.array(list(rows.values()), np.int64))]
