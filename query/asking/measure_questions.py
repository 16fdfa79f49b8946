"""Questions about measures: how each group and window is answered.

Rows come from the first of these that has them: the runs of the measure (all_rows.py), the runs of a declared
group (declared_groups.py), and a scan of `events` (measure_scans.py). A scan answers any condition and any
columns, exactly and slowly; its answers say so.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.asking.all_rows import AllRows
from tidemark.query.asking.ask import Plan
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.declared_groups import DeclaredGroups
from tidemark.query.asking.measure_arguments import MeasureArguments
from tidemark.query.asking.measure_scans import MeasureScan, scan_of
from tidemark.query.asking.scan_choice import choose_scan
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import choose_group
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.modes import MODES, check_mode
from tidemark.query.reading.windows import choose_window, empty_window, shown_window, tick_range
from tidemark.query.scans.computed import computed_values
from tidemark.warehouse.columns.scalars import take_scalars
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.snapshots.views import View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class MeasureRequest(MeasureArguments[M]):
    """A question about a measure: its arguments, and how it is answered."""

    def plan(self, session: Session) -> Plan[Any, Asked[M]]:
        """How each group and window is answered."""
        mode, options = check_mode(self.mode, MODES), session.options
        session.check_windows(self.window, self.every)
        if self.wanted.is_exact:
            mode = "exact"
        is_of_groups = self.groups.check()
        if computed_values(options, self.measure) is not None:
            return MeasureScan(session, self, choose_scan(options, self.groups, self.measure))
        if not is_of_groups:
            return AllRows(session, self, mode)
        column = options.measure(self.measure)  # checked first: without columns there are no groups
        choice = choose_group(options, self.groups)
        if choice is None and self.wanted.needs_sums:
            return scan_of(session, self)
        if choice is None:
            return MeasureScan(session, self, choose_scan(options, self.groups, self.measure))
        return DeclaredGroups(session, self, mode, choice, SortedGroups(choice.keys, column))


@dataclass(frozen=True, slots=True)
class SpanRequest:
    """The question for the ticks of a window that may have rows; see `Reader.span`."""

    measure: str | None
    window: AskedWindow

    def __post_init__(self) -> None:
        take_scalars(self)

    def plan(self, session: Session) -> _Span:
        """How it is answered."""
        session.check_windows(self.window, None)
        return _Span(session, self)


@dataclass(frozen=True, slots=True)
class _Span:
    """A question about the span of a window; a `Plan`."""

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
