"""The arguments of a question about a measure, and what each way to an answer makes of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypedDict, TypeVar

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import GroupArguments
from tidemark.query.groups.group_order import GroupOrder
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.questions import Question, Wanted
from tidemark.query.reading.asked_window import AskedWindow, checked_width
from tidemark.query.reading.modes import Mode
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.query.reading.spending import current_plan
from tidemark.query.reading.windows import (
    ShownWindow,
    choose_window,
    data_ticks,
    empty_window,
    shown_window,
    split_window,
    widened_text,
)
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import TickGrid, Window
from tidemark.warehouse.snapshots.views import GroupView, View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class MeasureArguments(Generic[M]):
    """The arguments of a question about a measure, as the caller gave them, with scalars as Python values."""

    wanted: Wanted[M]
    measure: str | None
    window: AskedWindow
    every: Any
    mode: Any
    width: Any
    groups: GroupArguments

    def __post_init__(self) -> None:
        take_scalars(self)

    @classmethod
    def of(  # noqa: PLR0913  the parameters of all questions about measures, once
        cls,
        wanted: Wanted[M],
        measure: str | None,
        *,
        last: Any = None,
        as_of: Any = None,
        between: Any = None,
        mode: Mode = "accurate",
        where: Any = None,
        by: Any = None,
        top: int | None = None,
        groups: Any = None,
        limit: int | None = None,
        order: str | None = None,
        least_rows: int | None = None,
        every: Any = None,
        width: Any = None,
    ) -> Self:
        """The request of a call with these parameters; they are described at `Reader`."""
        chosen = GroupArguments(where, by, top, groups, limit, order, least_rows)
        window = AskedWindow(last, between, as_of)
        return cls(wanted, measure, window, every, mode, checked_width(width, every), chosen)


class WindowOptions(TypedDict, total=False):
    """The keyword parameters of `MeasureArguments.of` for all rows of a window."""

    last: Any
    as_of: Any
    between: Any
    mode: Mode


class ChosenOptions(WindowOptions, total=False):
    """The keyword parameters for rows of a window, or of groups without an order."""

    where: Any
    top: int | None
    groups: Any
    limit: int | None


class OneOptions(ChosenOptions, total=False):
    """The keyword parameters for one answer."""

    order: str | None
    least_rows: int | None
    by: None
    every: None


class GroupOptions(ChosenOptions, total=False):
    """The keyword parameters of `MeasureArguments.of`."""

    order: str | None
    least_rows: int | None
    by: Any
    every: Any
    width: Any


def windows_of(
    request: MeasureArguments[Any], view: View | GroupView, grid: TickGrid | None
) -> tuple[Window, list[ShownWindow]]:
    """The window of a question, and its parts: itself without `every`. EmptyWindow if there is no part."""
    window = choose_window(view, request.window, grid)
    parts = [window]
    if request.every is not None:
        parts = split_window(window, data_ticks(view), request.every, grid, request.width)
    if not parts:
        raise empty_window(view, window, 0, grid)
    widened = widened_text(view, request.window, grid)
    return window, [ShownWindow(part, shown_window(part, grid), widened) for part in parts]


def asked_cells(
    questions: CellQuestions,
    request: MeasureArguments[M],
    by: tuple[str, ...],
    order: GroupOrder | None,
    windows: int,
) -> Asked[M]:
    """The answers about cells, in an order if one is asked."""
    wanted = request.wanted
    if order is not None:
        questions = order.of_cells(questions, wanted, windows)
    has_windows, plan = request.every is not None, current_plan()
    return Asked(questions.answers(wanted), len(questions), by, has_windows, order, plan)


def fields_of(session: Session, view: View | GroupView, mode: str, window: ShownWindow) -> dict[str, Any]:
    """The fields of `Question` that are the same for all questions of a call."""
    eps = float(session.options.eps)
    return {
        "measure": view.measure,
        "mode": mode,
        "eps": max(eps, view.live_eps) if isinstance(view, View) else eps,
        "shared": shared_fields(view, window.widened, session.options.grid),
    }


def check_rows(
    questions: Sequence[Question] | CellQuestions,
    view: View | GroupView,
    window: Window,
    grid: TickGrid | None,
    group: Mapping[str, Any] | None = None,
) -> None:
    """EmptyWindow if none of the questions has a row with a rank."""
    if isinstance(questions, CellQuestions):
        rows, nulls = int(questions.cells.rows.sum()), int(questions.cells.counts[:, 3].sum())
    else:
        rows = sum(question.counts.rows for question in questions)
        nulls = sum(question.counts.nulls for question in questions)
    if not rows:
        raise empty_window(view, window, nulls, grid, group)
