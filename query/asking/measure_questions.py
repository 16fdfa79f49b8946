"""Questions about measures: the rows that are asked, as one `Question` per group and window.

Rows come from the first of these that has them: the runs of the measure, the runs of a declared group, and a
scan of `events`. A scan answers any condition and any columns, exactly and slowly; its answers say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.key_questions import key_question
from tidemark.query.asking.scanned_questions import ScanChoice, answers_by_scan, choose_scan
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import GroupArguments, GroupChoice, choose_group
from tidemark.query.groups.group_questions import needs_sizes
from tidemark.query.groups.group_slices import Group
from tidemark.query.keys.frequencies import key_counts, top
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.quantiles.questions import Question, WindowQuestion, check_mode
from tidemark.query.quantiles.rank_search import MODES
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.windows import (
    choose_window,
    data_ticks,
    empty_window,
    shown_window,
    split_window,
    widened_text,
)
from tidemark.warehouse.columns.keys import Name
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import TickGrid, Window
from tidemark.warehouse.errors import NotBuilt
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.snapshots.snapshot import GroupView, KeysView, View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """The arguments of a question about a measure, as the caller gave them, with scalars as Python values."""

    measure: str | None
    window: AskedWindow
    every: Any
    mode: Any
    groups: GroupArguments

    def __post_init__(self) -> None:
        take_scalars(self)


def ask_measure(session: Session, request: MeasureRequest, answer: Callable[[Question], list[M]]) -> Asked[M]:
    """The answers of each group and window; `answer` gives those of one question."""
    mode = check_mode(request.mode, MODES)
    if not request.groups.check():
        return _ask_all_rows(session, request, mode, answer)
    column = session.options.measure(request.measure)  # checked first: without columns there are no groups
    choice, scan = choose_group(session.options, request.groups), None
    if choice is not None:
        try:
            return _ask_groups(session, request, mode, choice, SortedGroups(choice.keys, column), answer)
        except NotBuilt:  # an alter is at work, or was stopped: until its end a scan answers, as before it
            scan = replace(choose_scan(session.options, request.groups), declare=None)
    return _ask_scan(session, request, scan or choose_scan(session.options, request.groups), answer)


def _windows(
    request: MeasureRequest, view: View | GroupView, grid: TickGrid | None
) -> tuple[Window, list[Window]]:
    """The window of a question, and its parts: itself without `every`. EmptyWindow if there is no part."""
    window = choose_window(view, request.window, grid)
    if request.every is None:
        return window, [window]
    parts = split_window(window, data_ticks(view), request.every, grid)
    if not parts:
        raise empty_window(view, window, 0, grid)
    return window, parts


def _shown(
    request: MeasureRequest, view: View | GroupView, window: Window, grid: TickGrid | None
) -> dict[str, Any]:
    """The fields of `MeasureScope` about the window, by name."""
    widened = widened_text(view, request.window, grid)
    return {"window": shown_window(window, grid), "widened": widened}


def _ask_all_rows(
    session: Session, request: MeasureRequest, mode: str, answer: Callable[[Question], list[M]]
) -> Asked[M]:
    options = session.options

    def question(view: View, window: Window) -> Question:
        get = session.bounds.get if request.every is None else session.bounds.compute
        bounds = get(view, window)
        return WindowQuestion(
            counts=bounds,
            bounds=bounds,
            source=session.source(view, window),
            measure=view.measure,
            as_of=view.versions,
            mode=mode,
            eps=float(options.eps),
            **_shown(request, view, window, options.grid),
        )

    def answers(view: View) -> list[list[M]]:
        window, parts = _windows(request, view, options.grid)
        questions = [question(view, part) for part in parts]
        _check_rows(questions, view, window, options.grid)
        return [answer(question) for question in questions]

    def newest() -> View:
        return newest_view(session, request.measure, live_rows=mode != "quick")

    topic = None if mode == "quick" else f"rows {request.measure!r}"  # a quick answer seldom reads blocks
    lists = session.answer_from(newest, answers, topic)
    return Asked(lists, windows=request.every is not None)


def newest_view(session: Session, measure: str | None, *, live_rows: bool = False) -> View:
    """The newest view of a measure; `live_rows` for a question that may read live rows."""
    return session.newest_view(
        lambda snapshot: snapshot.view(measure),
        lambda options: SortedValues(options.measure(measure)),
        live_rows=live_rows,
    )


def _ask_groups(
    session: Session,
    request: MeasureRequest,
    mode: str,
    choice: GroupChoice,
    projection: SortedGroups,
    answer: Callable[[Question], list[M]],
) -> Asked[M]:
    options = session.options

    def answers(newest: tuple[GroupView, KeysView | None]) -> list[list[M]]:
        view, key = newest
        window, parts = _windows(request, view, options.grid)
        whole = Window(parts[0].start, parts[-1].stop)
        questions = session.groups.questions(
            session.snapshot,
            view,
            choice,
            parts,
            lambda k: [] if key is None else _group_sizes(session, choice, key, whole, k),
            lambda part: {
                "mode": mode,
                "eps": float(options.eps),
                **_shown(request, view, part, options.grid),
            },
        )
        if not choice.by:
            _check_rows(questions, view, window, options.grid, choice.shown(()))
        return [answer(question) for question in questions]

    with_key = needs_sizes(choice)
    lists = session.answer_from(
        lambda: session.newest_group_view(projection, with_key=with_key), answers, (projection, with_key)
    )
    return Asked(lists, tuple(key.name for key in choice.by), request.every is not None)


def _check_rows(
    questions: Sequence[Question],
    view: View | GroupView,
    window: Window,
    grid: TickGrid | None,
    group: Mapping[str, Any] | None = None,
) -> None:
    """EmptyWindow if none of the questions has a row with a rank."""
    if not any(question.counts.rows for question in questions):
        nulls = sum(question.counts.nulls for question in questions)
        raise empty_window(view, window, nulls, grid, group)


def _group_sizes(
    session: Session, choice: GroupChoice, view: KeysView, window: Window, k: int | None
) -> Sequence[tuple[Group, int]]:
    """The groups that have rows in the window, with the number of their rows; with k the k largest."""
    shown = shown_window(window, session.options.grid)
    question = key_question(session, view, KeyWindow(window, (), shown), "exact")

    def compute() -> list[tuple[Group, int]]:
        if k is None:
            counts = key_counts(question)
        else:
            counts = [(hitter.value, hitter.count) for hitter in top(question, k)]
        places = [view.key.columns.index(key.name) for key in choice.keys]
        groups = []
        for value, rows in counts:
            names = view.key.names_in(cast("Name", view.key.name_of(value)))
            groups.append((tuple(names[place] for place in places), rows))
        return groups

    return session.sizes.get((window, k), compute, topic=view.root, sources=(view,))


def _ask_scan(
    session: Session, request: MeasureRequest, choice: ScanChoice, answer: Callable[[Question], list[M]]
) -> Asked[M]:
    options = session.options

    def answers(newest: tuple[View, Any]) -> list[list[M]]:
        view, contents = newest
        window, parts = _windows(request, view, options.grid)

        def check(questions: Sequence[Question]) -> None:
            if not choice.by:
                _check_rows(questions, view, window, options.grid, choice.shown(()))

        return answers_by_scan(
            contents,
            view,
            choice,
            parts,
            lambda part: {"eps": float(options.eps), **_shown(request, view, part, options.grid)},
            check,
            answer,
            session.progress,
        )

    lists = session.answer_from(
        lambda: session.newest(lambda snapshot: (snapshot.view(request.measure), snapshot.contents())),
        answers,
    )
    return Asked(lists, choice.by, request.every is not None)
