"""Questions about measures: the rows that are asked, as one `Question` per group and window.

Rows come from the first of these that has them: the runs of the measure, the runs of a declared group, and a
scan of `events`. A scan answers any condition and any columns, exactly and slowly; its answers say so.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar, cast

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.answers.plan import INDEX, RUNS, SCAN
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.key_questions import key_question
from tidemark.query.asking.scan_choice import ScanChoice, choose_scan
from tidemark.query.asking.scanned_questions import scanned_questions
from tidemark.query.asking.session import Plan, Session
from tidemark.query.groups.group_choice import GroupArguments, GroupChoice, choose_group
from tidemark.query.groups.group_order import GroupOrder
from tidemark.query.groups.group_questions import (
    chosen_groups,
    chosen_selections,
    largest_needed,
    needs_sizes,
)
from tidemark.query.groups.group_slices import Group
from tidemark.query.keys.frequencies import Top, key_counts
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.questions import Question, Wanted, WindowQuestion
from tidemark.query.quantiles.window_sums import have_sums
from tidemark.query.reading import spending
from tidemark.query.reading.asked_window import AskedWindow, checked_width
from tidemark.query.reading.costs import cheapest
from tidemark.query.reading.modes import MODES, Mode, check_mode
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.query.reading.windows import (
    ShownWindow,
    choose_window,
    data_ticks,
    empty_window,
    rows_of,
    runs_within,
    shown_window,
    split_window,
    tick_range,
    widened_text,
)
from tidemark.query.scans.computed import computed_values
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Name
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import TickGrid, Window
from tidemark.warehouse.memory_cache import Place
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.snapshots.site_contents import AnyContents, SitesContents
from tidemark.warehouse.snapshots.system_tables import Contents
from tidemark.warehouse.snapshots.views import GroupView, KeysView, View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class MeasureRequest(Generic[M]):
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
    ) -> MeasureRequest[M]:
        """The request of a call with these parameters; they are described at `Reader`."""
        chosen = GroupArguments(where, by, top, groups, limit, order, least_rows)
        window = AskedWindow(last, between, as_of)
        return cls(wanted, measure, window, every, mode, checked_width(width, every), chosen)

    def plan(self, session: Session) -> Plan[Any, Asked[M]]:
        """How each group and window is answered."""
        mode, options = check_mode(self.mode, MODES), session.options
        session.check_windows(self.window, self.every)
        if self.wanted.is_exact:
            mode = "exact"
        is_of_groups = self.groups.check()
        if computed_values(options, self.measure) is not None:
            return _Scan(session, self, choose_scan(options, self.groups, self.measure))
        if not is_of_groups:
            return _AllRows(session, self, mode)
        column = options.measure(self.measure)  # checked first: without columns there are no groups
        if self.wanted.needs_sums:
            return self.scan(session)
        choice = choose_group(options, self.groups)
        if choice is None:
            return _Scan(session, self, choose_scan(options, self.groups, self.measure))
        return _Groups(session, self, mode, choice, SortedGroups(choice.keys, column))

    def scan(self, session: Session, mode: str = "exact") -> _Scan[M]:
        """How a scan answers in place of an index that has the columns, or would have none of use."""
        chosen = choose_scan(session.options, self.groups, self.measure)
        return _Scan(session, self, replace(chosen, declare=None), mode)

    def scanned(self, session: Session, mode: str) -> Asked[M]:
        """The answers of a scan of the newest view."""
        scan = self.scan(session, mode)
        return scan.answer(scan.newest())

    def scan_cost(self, session: Session, rows: int, cells: int) -> float:
        """What a scan costs of about so many rows, which finds so many groups and windows."""
        of_cells = cells if self.groups.by is not None or self.every is not None else None
        return session.costs.event_scan(rows, of_cells, far=session.is_far)


class WindowOptions(TypedDict, total=False):
    """The keyword parameters of `MeasureRequest.of` for all rows of a window."""

    last: Any
    as_of: Any
    between: Any
    mode: Mode


class ChosenOptions(WindowOptions, total=False):
    """Those for rows of a window, or of groups in no order of theirs."""

    where: Any
    top: int | None
    groups: Any
    limit: int | None


class QuestionOptions(ChosenOptions, total=False):
    """Those for one answer: without `by` and `every`."""

    order: str | None
    least_rows: int | None


class GroupOptions(QuestionOptions, total=False):
    """The keyword parameters of `MeasureRequest.of`."""

    by: Any
    every: Any
    width: Any


@dataclass(frozen=True, slots=True)
class SpanRequest:
    """The question for the ticks of a window that may have rows; see `Reader.span`."""

    measure: str | None
    window: AskedWindow

    def plan(self, session: Session) -> _Span:
        """How it is answered."""
        session.check_windows(self.window, None)
        return _Span(session, self)


@dataclass(frozen=True, slots=True)
class _Span:
    """A question about the span of a window; a `Plan`, as the other three."""

    session: Session
    request: SpanRequest
    topic: Hashable = None

    def newest(self) -> View:
        return self.session.newest_view(self.request.measure)

    def answer(self, view: View) -> tuple[Any, Any]:
        """The start and the end, exclusive. EmptyWindow if no tick of the data lies in the window."""
        grid, ticks = self.session.options.grid, tick_range(view)
        window = choose_window(view, self.request.window, grid)
        if ticks is None or window.misses(*ticks):
            raise empty_window(view, window, 0, grid)
        covered = Window(max(window.start, ticks[0]), min(window.stop, ticks[1] + 1))
        return shown_window(covered, grid) or (None, None)


def _windows(
    request: MeasureRequest[Any], view: View | GroupView, grid: TickGrid | None
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


@dataclass(frozen=True, slots=True)
class _AllRows(Generic[M]):
    """A question about all rows of a window; a `Plan`, as the other three.

    A scan finds sums that the marks of a run do not have.
    """

    session: Session
    request: MeasureRequest[M]
    mode: str

    @property
    def topic(self) -> Hashable:
        if self.mode == "quick":  # it seldom reads blocks
            return None
        return f"{'sums' if self.request.wanted.needs_sums else 'rows'} {self.request.measure!r}"

    def newest(self) -> View | tuple[View, AnyContents]:
        view = self.session.newest_view(self.request.measure, live_rows=self.mode != "quick")
        wanted = self.request.wanted
        has_all = not wanted.needs_sums or have_sums(view)
        if view.silent and wanted.is_exact and not (wanted.needs_sums and has_all):
            self.session.refuse_silent()
        return view if has_all else self.request.scan(self.session).newest()

    def answer(self, view: View | tuple[View, AnyContents]) -> Asked[M]:
        if isinstance(view, tuple):
            return self.request.scan(self.session).answer(view)
        costs, wanted = self.session.costs, self.request.wanted
        if view.silent:
            return self._without_silent(view)
        asked = _windows(self.request, view, self.session.options.grid)
        parts = asked[1]
        runs = view.runs if len(parts) == 1 else runs_within(view.runs, [part.ticks for part in parts])
        estimates, reading = {INDEX: costs.windows(len(parts), wanted.targets, len(runs))}, None
        if self.mode != "quick" and not wanted.needs_sums:
            together = self.session.many_windows.cost(view, parts, wanted.targets)
            if together is not None:
                estimates[RUNS] = together
                reading = self.session.many_windows.reading(view, parts)
            # While the versions stay, so does an accurate answer about a window: it is the index's own.
            if self.mode == "exact" or len(parts) > 1:
                estimates[SCAN] = self.request.scan_cost(self.session, self._rows(view, parts), len(parts))
        errs = self.mode == "accurate" and not self.session.live_fits(view)
        has_ways = len(estimates) > 1 and not errs
        if errs:  # and other ways' answers do not: one way answers while the rows stay
            estimates, reading = cheapest(estimates), None
        for attempt in costs.attempts("rows", estimates, reading):
            with attempt:
                if attempt.way == SCAN:
                    return self.request.scanned(self.session, self.mode)
                if attempt.way == RUNS:
                    return self._together(view, *asked)
                return self._alone(view, *asked, has_ways=has_ways)
        raise AssertionError("no way answered")

    def _without_silent(self, view: View) -> Asked[M]:
        """The answer while warehouses do not answer: by the index alone."""
        asked = _windows(self.request, view, self.session.options.grid)
        return self._alone(view, *asked, has_ways=False)

    def _rows(self, view: View, windows: Sequence[ShownWindow]) -> int:
        """About how many rows the windows have: of one, what its bounds say, which are needed anyway."""
        if self.request.every is None:
            return self.session.bounds.get(view, windows[0].ticks).rows
        return rows_of(view, [window.ticks for window in windows])

    def _together(self, view: View, window: Window, parts: Sequence[ShownWindow]) -> Asked[M]:
        fields = _fields(self.session, view, self.mode, parts[0])
        together = self.session.many_windows.questions(self.session.snapshot, view, parts, fields)
        _check_rows(together, view, window, self.session.options.grid)
        windows = self.request.every is not None
        return Asked(together.answers(self.request.wanted), len(together), windows=windows)

    def _alone(self, view: View, window: Window, parts: Sequence[ShownWindow], *, has_ways: bool) -> Asked[M]:
        wanted = self.request.wanted
        sums: Sequence[Sums | None] = [None] * len(parts)
        if wanted.needs_sums:
            sums = self.session.sums.get(self.session.snapshot, view, [part.ticks for part in parts])
        questions = [
            self._question(view, part, own, has_ways=has_ways) for part, own in zip(parts, sums, strict=True)
        ]
        _check_rows(questions, view, window, self.session.options.grid)
        windows = self.request.every is not None
        return Asked.of(
            [question.answers(wanted) for question in spending.checked(questions)], windows=windows
        )

    def _question(
        self, view: View, window: ShownWindow, sums: Sums | None, *, has_ways: bool
    ) -> WindowQuestion:
        known = self.session.bounds
        spending.check()
        is_one = self.request.every is None  # only then are the bounds kept
        bounds = known.get(view, window.ticks) if is_one else known.compute(view, window.ticks)
        return WindowQuestion(
            counts=bounds,
            bounds=bounds,
            source=self.session.source(view, window.ticks),
            sums=sums,
            has_ways=has_ways,
            window=window.shown,
            **_fields(self.session, view, self.mode, window),
        )


@dataclass(frozen=True, slots=True)
class _Groups(Generic[M]):
    """A question about rows of a declared group.

    While an alter that declares it is at work, or was stopped, a scan answers, as before it.
    """

    session: Session
    request: MeasureRequest[M]
    mode: str
    choice: GroupChoice
    projection: SortedGroups

    @property
    def topic(self) -> Hashable:
        return self.projection, needs_sizes(self.choice)

    def newest(self) -> tuple[GroupView, KeysView | None] | tuple[View, AnyContents]:
        built = self.session.newest_group_view(self.projection, with_key=needs_sizes(self.choice))
        return built or self.request.scan(self.session).newest()

    def answer(self, newest: tuple[GroupView, KeysView | None] | tuple[View, AnyContents]) -> Asked[M]:
        view, beside = newest
        if isinstance(view, GroupView) and not isinstance(beside, Contents | SitesContents):
            return self._answer(view, beside)
        return self.request.scan(self.session).answer(cast("tuple[View, AnyContents]", newest))

    def _answer(self, view: GroupView, key: KeysView | None) -> Asked[M]:
        session, costs = self.session, self.session.costs
        asked = _windows(self.request, view, session.options.grid)
        parts = asked[1]
        windows = [part.ticks for part in parts]
        groups, sizes = self._expected(key, windows), self._cost_of_sizes(key, windows)
        alone = costs.groups(groups, len(parts), len(runs_within(view.runs, windows))) + sizes
        estimates, reading = {INDEX: alone}, None
        together = session.many_groups.cost(view, parts, groups, self.request.wanted.targets)
        if together is not None:
            estimates[RUNS] = together + (0.0 if self._asks_all(key) else sizes)
            reading = session.many_groups.reading(view, parts)
        if self.mode != "quick":  # rows are counted where it may matter
            rows = rows_of(view, windows) if alone > costs.rates.statement else 0
            estimates[SCAN] = self.request.scan_cost(session, rows, groups * len(parts))
        for attempt in costs.attempts("groups", estimates, reading):
            with attempt:
                if attempt.way == SCAN:
                    return self.request.scanned(session, self.mode)
                if attempt.way == RUNS:
                    return self._together(view, key, *asked)
                return self._chosen(view, key, *asked)
        raise AssertionError("no way answered")

    def _expected(self, key: KeysView | None, windows: Sequence[Window]) -> int:
        """About how many groups are asked; of all groups not more than there are."""
        choice = self.choice
        if not choice.by or choice.groups is not None:
            return len(choice.groups or [()])
        if choice.largest is not None or key is None:
            return choice.largest or 1
        rows_by_tick = [run.rows // len(run.totals.ticks) for run in runs_within(key.runs, windows)]
        return max(rows_by_tick, default=0)

    def _cost_of_sizes(self, key: KeysView | None, windows: Sequence[Window]) -> float:
        """What it costs to count the rows of all groups, or to list the largest; nothing if that is known."""
        session, whole = self.session, Window(windows[0].start, windows[-1].stop)
        if key is None or _kept_sizes(session, self.choice, key, whole).value is not None:
            return 0.0
        scan = session.costs.key_scan(runs_within(key.runs, windows), far=session.is_far)
        return scan if largest_needed(self.choice) is None else min(scan, session.costs.lists(1))

    def _asks_all(self, key: KeysView | None) -> bool:
        """Whether all groups are asked that have rows: whole runs tell them, without the rows of the key."""
        choice = self.choice
        is_some = choice.groups is not None or choice.where or choice.largest
        return key is not None and bool(choice.by) and not is_some

    def _together(
        self, view: GroupView, key: KeysView | None, window: Window, parts: Sequence[ShownWindow]
    ) -> Asked[M]:
        if self._asks_all(key):
            fields = self._fields(view, parts)
            together = self.session.many_groups.all_groups(
                self.session.snapshot, view, self.choice, parts, fields
            )
            if together is not None:
                return self._asked_together(together, len(parts))
        return self._chosen(view, key, window, parts)

    def _fields(self, view: GroupView, parts: Sequence[ShownWindow]) -> dict[str, Any]:
        certain = None if self.choice.largest is None else True
        return {**_fields(self.session, view, self.mode, parts[0]), "certain": certain}

    def _chosen(
        self, view: GroupView, key: KeysView | None, window: Window, parts: Sequence[ShownWindow]
    ) -> Asked[M]:
        """The answers about groups that are chosen first; together, or each alone, as is less work."""
        choice, session, wanted = self.choice, self.session, self.request.wanted
        whole = Window(parts[0].ticks.start, parts[-1].ticks.stop)
        sizes = () if key is None else _group_sizes(session, choice, key, whole)
        groups = chosen_groups(choice, sizes)
        asked = groups, chosen_selections(choice, groups, sizes), parts, self._fields(view, parts)
        cost = session.many_groups.cost(view, parts, len(groups), wanted.targets)
        runs = len(runs_within(view.runs, [part.ticks for part in parts]))
        if cost is not None and cost < session.costs.groups(len(groups), len(parts), runs):
            spending.takes(RUNS)
            together = session.many_groups.listed(session.snapshot, view, choice, *asked)
            if not choice.by:
                _check_rows(together, view, window, session.options.grid, choice.shown(()))
            return self._asked_together(together, len(parts))
        spending.takes(INDEX)
        questions = session.groups.questions(session.snapshot, view, choice, *asked)
        if not choice.by:
            _check_rows(questions, view, window, session.options.grid, choice.shown(()))
        if choice.order is None:
            return self._asked([question.answers(wanted) for question in spending.checked(questions)])
        return self._asked(choice.order.read(questions, wanted, len(parts)))

    def _asked_together(self, questions: CellQuestions, windows: int) -> Asked[M]:
        by = tuple(key.name for key in self.choice.by)
        return _asked_cells(questions, self.request, by, self.choice.order, windows)

    def _asked(self, lists: Sequence[Sequence[M]]) -> Asked[M]:
        by, order = tuple(key.name for key in self.choice.by), self.choice.order
        text = "" if order is None else order.text
        return Asked.of(lists, by, windows=self.request.every is not None, order=text)


@dataclass(frozen=True, slots=True)
class _Scan(Generic[M]):
    """A question that a scan of `events` answers."""

    session: Session
    request: MeasureRequest[M]
    choice: ScanChoice
    mode: str = "exact"
    topic: Hashable = None

    def newest(self) -> tuple[View, AnyContents]:
        return self.session.newest_contents(None if self.choice.measure else self.request.measure)

    def answer(self, newest: tuple[View, AnyContents]) -> Asked[M]:
        (view, contents), options = newest, self.session.options
        if self.choice.measure is not None:
            view = replace(view, projection=SortedValues(self.choice.measure))
        window, parts = _windows(self.request, view, options.grid)
        eps, progress = float(options.eps), self.session.progress
        with scanned_questions(contents, view, self.choice, parts, self.mode, eps, progress) as questions:
            if not self.choice.by:
                _check_rows(questions, view, window, options.grid, self.choice.shown(()) or None)
            return _asked_cells(questions, self.request, self.choice.by, self.choice.order, len(parts))


def _asked_cells(
    questions: CellQuestions,
    request: MeasureRequest[M],
    by: tuple[str, ...],
    order: GroupOrder | None,
    windows: int,
) -> Asked[M]:
    """The answers about cells, in an order if one is asked."""
    wanted = request.wanted
    if order is not None:
        questions = order.of_cells(questions, wanted, windows)
    return Asked(
        questions.answers(wanted),
        len(questions),
        by,
        request.every is not None,
        "" if order is None else order.text,
    )


def _fields(session: Session, view: View | GroupView, mode: str, window: ShownWindow) -> dict[str, Any]:
    """The fields of `Question` that are the same for all questions of a call."""
    eps = float(session.options.eps)
    return {
        "measure": view.measure,
        "mode": mode,
        "eps": max(eps, view.live_eps) if isinstance(view, View) else eps,
        "shared": shared_fields(view, window.widened, session.options.grid),
    }


def _check_rows(
    questions: Sequence[Question] | CellQuestions,
    view: View | GroupView,
    window: Window,
    grid: TickGrid | None,
    group: Mapping[str, Any] | None = None,
) -> None:
    """EmptyWindow if none of the questions has a row with a rank."""
    if isinstance(questions, CellQuestions):
        rows, nulls = int((questions.cells.n + questions.cells.m).sum()), int(questions.cells.nulls.sum())
    else:
        rows = sum(question.counts.rows for question in questions)
        nulls = sum(question.counts.nulls for question in questions)
    if not rows:
        raise empty_window(view, window, nulls, grid, group)


def _group_sizes(
    session: Session, choice: GroupChoice, view: KeysView, window: Window
) -> Sequence[tuple[Group, int]]:
    """The groups that have rows in the window, or the largest of them, with the number of their rows."""
    k, kept = largest_needed(choice), _kept_sizes(session, choice, view, window)
    if kept.value is not None:
        return kept.value
    shown = shown_window(window, session.options.grid)
    question = key_question(session, view, KeyWindow(window, (), shown), "exact")
    if k is None:
        counts = key_counts(question)
    else:
        counts = [(hitter.value, hitter.count) for hitter in Top(k).answers([question])[0]]
    places = [view.key.columns.index(key.name) for key in choice.keys]
    groups = []
    for value, rows in counts:
        names = view.key.names_in(cast("Name", view.key.name_of(value)))
        groups.append((tuple(names[place] for place in places), rows))
    return kept.keep(groups)


def _kept_sizes(
    session: Session, choice: GroupChoice, view: KeysView, window: Window
) -> Place[list[tuple[Group, int]]]:
    """Where `_group_sizes` keeps what it found."""
    return session.sizes.at((window, largest_needed(choice)), topic=view.root, sources=(view,))
