"""A question about the rows of a declared group: which groups are asked, and the way to their answers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.answers.plan import INDEX, RUNS, SCAN, Way
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.key_questions import key_question
from tidemark.query.asking.measure_arguments import (
    MeasureArguments,
    asked_cells,
    check_rows,
    fields_of,
    windows_of,
)
from tidemark.query.asking.measure_scans import scan_cost, scan_of, scanned
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import GroupChoice
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
from tidemark.query.quantiles.questions import Question
from tidemark.query.reading import spending
from tidemark.query.reading.costs import FEWEST_CELLS, SLACK
from tidemark.query.reading.windows import ShownWindow, rows_of, runs_within, shown_window
from tidemark.warehouse.columns.keys import Name
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.memory_cache import Place
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.snapshots.system_tables import AnyContents, Contents, SitesContents
from tidemark.warehouse.snapshots.views import GroupView, KeysView, View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class DeclaredGroups(Generic[M]):
    """A question about rows of a declared group; a `Plan`.

    While an alter that declares it is at work, or was stopped, a scan answers, as before it.
    """

    session: Session
    request: MeasureArguments[M]
    mode: str
    choice: GroupChoice
    projection: SortedGroups

    @property
    def topic(self) -> Hashable:
        """See `Plan.topic`."""
        return self.projection, needs_sizes(self.choice)

    def newest(self) -> tuple[GroupView, KeysView | None] | tuple[View, AnyContents]:
        """See `Plan.newest`."""
        built = self.session.newest_group_view(self.projection, with_key=needs_sizes(self.choice))
        return built or scan_of(self.session, self.request).newest()

    def answer(self, newest: tuple[GroupView, KeysView | None] | tuple[View, AnyContents]) -> Asked[M]:
        """See `Plan.answer`."""
        view, beside = newest
        if isinstance(view, GroupView) and not isinstance(beside, Contents | SitesContents):
            parts = windows_of(self.request, view, self.session.options.grid)
            return _Ways(self, self.session, self.choice, view, beside, *parts).answer()
        return scan_of(self.session, self.request).answer(cast("tuple[View, AnyContents]", newest))


@dataclass(frozen=True, slots=True, eq=False)
class _Ways(Generic[M]):
    """The windows of a question in a view, and each way to the answers about its groups.

    key: the view of the key, where it tells which groups there are. window: has all of `parts`.
    """

    plan: DeclaredGroups[M]
    session: Session
    choice: GroupChoice
    view: GroupView
    key: KeysView | None
    window: Window
    parts: Sequence[ShownWindow]

    def answer(self) -> Asked[M]:
        session, costs, view, parts = self.session, self.session.costs, self.view, self.parts
        groups, sizes, windows = self._expected(), self._cost_of_sizes(), self._ticks
        wanted, reading = self.plan.request.wanted, None
        alone = costs.groups(groups, len(parts), len(runs_within(view.runs, windows))) + sizes
        estimates = {} if wanted.needs_sums else {INDEX: alone}  # marks have no sums of groups
        together = self._cost_together(groups)
        if together is not None:
            estimates[RUNS] = together + (0.0 if self._asks_all else sizes)
            reading = session.many_groups.reading(view, parts)
        if not estimates or (self.plan.mode != "quick" and not view.is_behind):
            matters = wanted.needs_sums or alone > costs.rates.statement
            rows = rows_of(view, windows) if matters else 0
            estimates[SCAN] = scan_cost(session, self.plan.request, rows, groups * len(parts))
            if wanted.needs_sums:
                estimates[SCAN] += costs.sums(rows)
        return costs.answer(self._topic, self, estimates, reading)

    def by(self, way: Way) -> Asked[M] | None:
        if way == SCAN:
            plan = self.plan
            is_only = plan.request.wanted.needs_sums and self._cost_together(self._expected()) is None
            return scanned(plan.session, plan.request, plan.mode, plan.projection, is_only=is_only)
        if way == RUNS and self._asks_all:
            together = self.session.many_groups.all_groups(
                self.session.snapshot, self.view, self.choice, self.parts, self._fields
            )
            if together is not None:
                return self._asked_together(together)
        return self._chosen(way)

    @property
    def _topic(self) -> str:
        return "sums" if self.plan.request.wanted.needs_sums else "groups"

    @property
    def _ticks(self) -> list[Window]:
        return [part.ticks for part in self.parts]

    def _expected(self) -> int:
        """About how many groups are asked; if all are asked, at most as many as there are."""
        choice = self.choice
        if not choice.by or choice.groups is not None:
            return len(choice.groups or [()])
        if choice.largest is not None or self.key is None:
            return choice.largest or 1
        rows_by_tick = [run.rows // len(run.totals.ticks) for run in runs_within(self.key.runs, self._ticks)]
        return max(rows_by_tick, default=0)

    def _cost_of_sizes(self) -> float:
        """The cost of counting the rows of all groups, or listing the largest; 0 if that is known."""
        session, key = self.session, self.key
        if key is None or _kept_sizes(session, self.choice, key, self._whole).value is not None:
            return 0.0
        scan = session.costs.key_scan(runs_within(key.runs, self._ticks), far=session.is_far)
        return scan if largest_needed(self.choice) is None else min(scan, session.costs.lists(1))

    @property
    def _whole(self) -> Window:
        return Window(self.parts[0].ticks.start, self.parts[-1].ticks.stop)

    @property
    def _asks_all(self) -> bool:
        """Whether all groups with rows are asked: whole runs tell these, without the rows of the key."""
        choice = self.choice
        is_some = choice.groups is not None or choice.where or choice.largest
        return self.key is not None and bool(choice.by) and not is_some

    @property
    def _fields(self) -> dict[str, Any]:
        certain = None if self.choice.largest is None else True
        return {**fields_of(self.session, self.view, self.plan.mode, self.parts[0]), "certain": certain}

    def _chosen(self, way: Way) -> Asked[M]:
        """The answers about groups that are chosen first; by whole runs, or each alone, as is less work.

        way: the one that is taken. It was chosen by an estimate of how many groups there are.
        """
        choice, session, view, wanted = self.choice, self.session, self.view, self.plan.request.wanted
        sizes = () if self.key is None else group_sizes(session, choice, self.key, self._whole)
        groups, windows = chosen_groups(choice, sizes), len(self.parts)
        asked = groups, chosen_selections(choice, groups, sizes), self.parts, self._fields
        if wanted.needs_sums or self._are_less_work(way, len(groups)):
            spending.takes(RUNS)
            together = session.many_groups.listed(session.snapshot, view, choice, *asked)
            self._check_rows(together)
            return self._asked_together(together)
        spending.takes(INDEX)
        questions = session.groups.questions(session.snapshot, view, choice, *asked)
        self._check_rows(questions)
        if choice.order is None:
            return self._asked([question.answers(wanted) for question in spending.checked(questions)])
        return self._asked(choice.order.read(questions, wanted, windows))

    def _are_less_work(self, way: Way, groups: int) -> bool:
        """Whether so many groups are less work by whole runs than each alone, as far as that is possible."""
        cost = self._cost_together(groups)
        if cost is None or way == RUNS:
            return cost is not None
        costs = self.session.costs
        alone = costs.groups(groups, len(self.parts), len(runs_within(self.view.runs, self._ticks)))
        return costs.corrected(self._topic, RUNS, cost) < costs.corrected(self._topic, INDEX, alone)

    def _cost_together(self, groups: int) -> float | None:
        """The cost of so many groups by whole runs; None where that is not considered.

        It is not for few groups and windows, unless the index has needed long twice: once its marks are in
        memory, it takes less than estimated.
        """
        session, wanted = self.session, self.plan.request.wanted
        is_many = wanted.needs_sums or groups * len(self.parts) >= FEWEST_CELLS
        if not is_many and session.costs.lasted(self._topic, INDEX) <= SLACK:
            return None
        return session.many_groups.cost(self.view, self.parts, groups, wanted)

    def _check_rows(self, questions: Sequence[Question] | CellQuestions) -> None:
        if not self.choice.by:
            check_rows(questions, self.view, self.window, self.session.options.grid, self.choice.shown(()))

    def _asked_together(self, questions: CellQuestions) -> Asked[M]:
        by = tuple(key.name for key in self.choice.by)
        return asked_cells(questions, self.plan.request, by, self.choice.order, len(self.parts))

    def _asked(self, lists: Sequence[Sequence[M]]) -> Asked[M]:
        by = tuple(key.name for key in self.choice.by)
        answers = [answer for part in lists for answer in part]
        windows, plan = self.plan.request.every is not None, spending.current_plan()
        return Asked(answers, len(lists), by, windows, self.choice.order, plan)


def group_sizes(
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
    return kept.keep(groups, len(groups))


def _kept_sizes(
    session: Session, choice: GroupChoice, view: KeysView, window: Window
) -> Place[list[tuple[Group, int]]]:
    return session.sizes.at((window, largest_needed(choice)), topic=view.root, sources=(view,))
