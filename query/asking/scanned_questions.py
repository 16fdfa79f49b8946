"""Questions that no declared group answers: one scan of `events` for all groups and windows of a call.

The values of ranks and the ranks of values are found by queries over all groups at once. An answer that
needs one that is not known yet is given up. When all answers were tried, what they need is fetched in one
query, and they are tried again. A quantile takes two rounds: its value, then the rank of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.asking.scan_progress import shown_progress
from tidemark.query.groups.group_choice import (
    DEFAULT_LIMIT,
    GroupArguments,
    Values,
    by_columns,
    given_groups,
    too_many_groups,
    where_values,
)
from tidemark.query.quantiles.choose_candidate import Candidates
from tidemark.query.quantiles.combined_bounds import Ranks
from tidemark.query.quantiles.questions import Question
from tidemark.query.reading.row_counts import RowCounts
from tidemark.query.scans.event_scan import EventScan, ScannedGroup
from tidemark.query.scans.expressions import Expression, checked_expression
from tidemark.query.scans.row_source import key_of
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.snapshot import View
from tidemark.warehouse.snapshots.system_tables import Contents

T = TypeVar("T")
Progress = Callable[[float], None]

_POINTS = 4096  # of one query for ranks


@dataclass(frozen=True, slots=True)
class ScanChoice:
    """A question that is answered by a scan, checked as far as that needs no table.

    equal: the allowed values of columns. expression: a condition, or None.
    by: the columns of the groups. top, groups, limit: which groups.
    declare: the columns of the group that would answer the question without a scan; None if none would.
    """

    equal: Mapping[str, Sequence[Any]]
    expression: Expression | None
    by: tuple[str, ...]
    top: int | None
    groups: tuple[Values, ...] | None
    limit: int
    declare: tuple[str, ...] | None

    def shown(self, values: Values) -> dict[str, Any]:
        """The group as answers show it: the condition, and the values of the columns."""
        where = {"where": self.expression.text} if self.expression else {}
        equal = {name: given[0] if len(given) == 1 else list(given) for name, given in self.equal.items()}
        return {**where, **equal, **dict(zip(self.by, values, strict=False))}


def choose_scan(options: Options, arguments: GroupArguments) -> ScanChoice:
    """Checks the arguments of a question that is answered by a scan.

    Raises InputError for a condition that is not one expression over the columns.
    """
    by = by_columns(arguments.by)
    expression, equal = None, {}
    if isinstance(arguments.where, str):
        expression = checked_expression(arguments.where, dict(options.columns))
    else:
        equal = where_values(arguments.where)
    return ScanChoice(
        equal=equal,
        expression=expression,
        by=by,
        top=arguments.top,
        groups=None if arguments.groups is None else given_groups(by, arguments.groups),
        limit=arguments.limit or DEFAULT_LIMIT,
        declare=None if expression is not None else tuple(dict.fromkeys([*by, *equal])),
    )


def answers_by_scan(
    contents: Contents,
    view: View,
    choice: ScanChoice,
    windows: Sequence[Window],
    fields: Callable[[Window], dict[str, Any]],
    check: Callable[[Sequence[Question]], None],
    answer: Callable[[Question], list[T]],
    progress: Progress | None,
) -> list[list[T]]:
    """The answers of each group and window, the windows of a group one after the other; exact.

    contents, view: the visible batches and the versions of one moment.
    fields: the fields `eps` and `window` of the questions about a window.
    check: raises an error for questions that have no answer.

    Raises InputError for an unknown column and for too many groups, and the errors of `EventScan`.
    """
    keys = [key_of(contents, name) for name in choice.by]
    equal = dict(choice.equal)
    if choice.groups is not None:  # only their rows are kept
        for place, name in enumerate(choice.by):
            wanted = [group[place] for group in choice.groups]
            allowed = {keys[place].name_of(value) for value in equal.get(name, wanted)}
            equal[name] = [value for value in wanted if keys[place].name_of(value) in allowed]
    with (
        shown_progress(progress) as shown,
        EventScan(
            contents,
            view.measure,
            windows,
            equal=equal,
            expression=choice.expression,
            by=choice.by,
            progress=shown,
        ) as scan,
    ):
        scanned = scan.groups()
        places = {(_names(keys, group.values), group.window): code for code, group in enumerate(scanned)}
        batch = _Batch(scan, len(scanned))
        template = _ScannedQuestion(
            counts=RowCounts(n=0, m=0, nans=0, nulls=0),
            measure=view.measure,
            as_of=view.versions,
            mode="exact",
            eps=0,
            window=None,
            certain=True if choice.top is not None else None,
            rows_scanned=scan.rows_scanned,
            declare=choice.declare,
            batch=batch,
        )
        questions = []
        shown_windows = [fields(window) for window in windows]
        for values in _chosen(choice, keys, scanned):
            names, group = _names(keys, values), choice.shown(values)
            for number, window_fields in enumerate(shown_windows):
                code = places.get((names, number))
                counts: dict[str, Any] = {} if code is None else {"counts": scanned[code], "code": code}
                questions.append(replace(template, group=group, **window_fields, **counts))
        check(questions)
        return batch.answers(questions, answer)


def _names(keys: Sequence[Key], values: Values) -> tuple[Any, ...]:
    return tuple(key.name_of(value) for key, value in zip(keys, values, strict=True))


def _chosen(choice: ScanChoice, keys: Sequence[Key], scanned: Sequence[ScannedGroup]) -> list[Values]:
    """The values of the `by` columns that are answered, in the order of the answers."""
    if not choice.by:
        return [()]
    if choice.groups is not None:
        return list(choice.groups)
    rows: dict[tuple[Any, ...], int] = {}
    values: dict[tuple[Any, ...], Values] = {}
    for group in scanned:  # they ascend
        names = _names(keys, group.values)
        rows[names] = rows.get(names, 0) + group.rows + group.nulls
        values[names] = group.values
    order = list(rows)
    if choice.top is not None:
        order = sorted(order, key=lambda names: -rows[names])[: choice.top]
    elif len(order) > choice.limit:
        raise too_many_groups(len(order), choice.by, choice.limit)
    return [values[names] for names in order]


class _NotKnownYetError(Exception):
    """A value or a rank has to be fetched before the answer can be made."""


class _Batch:
    """The values of ranks, and the ranks of values, that are known; and those that are wanted."""

    def __init__(self, scan: EventScan, groups: int) -> None:
        self._scan, self._groups = scan, groups
        self._values: dict[tuple[int, int], Any] = {}
        self._ranks: dict[tuple[int, Any], int] = {}
        self._wanted_values: set[tuple[int, int]] = set()
        self._wanted_ranks: set[tuple[int, Any]] = set()

    def values(self, code: int, ranks: Sequence[int]) -> list[Any]:
        """The values of ranks of a group, if they are known."""
        return self._known(self._values, self._wanted_values, [(code, rank) for rank in ranks])

    def ranks(self, code: int, points: Sequence[Any]) -> list[int]:
        """The ranks of values in a group, if they are known."""
        return self._known(self._ranks, self._wanted_ranks, [(code, point) for point in points])

    def answers(self, questions: Sequence[Question], answer: Callable[[Question], list[T]]) -> list[list[T]]:
        """The answers of each question."""
        while True:
            found = [self._tried(question, answer) for question in questions]
            if not self._wanted_values and not self._wanted_ranks:
                return [answers for answers in found if answers is not None]
            self._fetch()

    def _tried(self, question: Question, answer: Callable[[Question], list[T]]) -> list[T] | None:
        try:
            return answer(question)
        except _NotKnownYetError:
            return None

    def _known(self, known: dict[Any, T], wanted: set[Any], places: Sequence[Any]) -> list[T]:
        missing = [place for place in places if place not in known]
        if missing:
            wanted.update(missing)
            raise _NotKnownYetError
        return [known[place] for place in places]

    def _fetch(self) -> None:
        if self._wanted_values:
            ranks: list[list[int]] = [[] for _ in range(self._groups)]
            for code, rank in self._wanted_values:
                ranks[code].append(rank)
            for code, values in enumerate(self._scan.values_at(ranks)):
                self._values |= {
                    (code, rank): value for rank, value in zip(ranks[code], values.tolist(), strict=True)
                }
        points = sorted({point for _, point in self._wanted_ranks})
        for start in range(0, len(points), _POINTS):
            chunk = points[start : start + _POINTS]
            places = {point: place for place, point in enumerate(chunk)}
            found = self._scan.ranks_at(chunk)
            self._ranks |= {
                (code, point): int(found[code, places[point]])
                for code, point in self._wanted_ranks
                if point in places
            }
        self._wanted_values, self._wanted_ranks = set(), set()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _ScannedQuestion(Question):
    """A group of a scan in a window. `code` is its number, -1 for a group without rows."""

    batch: _Batch
    code: int = -1

    def values_at(self, ranks: Ranks) -> tuple[Candidates, int]:
        """See `Question.values_at`."""
        values = np.array(self.batch.values(self.code, ranks.tolist()), dtype=self.measure.dtype)
        return Candidates.exact(values, self.ranks_at(values)[0]), 0

    def ranks_at(self, points: NDArray[Any]) -> tuple[Ranks, Ranks, int]:
        """See `Question.ranks_at`."""
        if self.code < 0:
            ranks = np.zeros(len(points), dtype=np.int64)
        else:
            ranks = np.array(self.batch.ranks(self.code, points.tolist()), dtype=np.int64)
        return ranks, ranks, 0
