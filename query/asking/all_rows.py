"""A question about all rows of a window, or of each window of `every`.

There are three ways: the runs by block, whole runs in memory, and a scan. The way with the least estimated
cost answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.answers.plan import INDEX, RUNS, SCAN, Way
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.measure_arguments import MeasureArguments, check_rows, fields_of, windows_of
from tidemark.query.asking.measure_scans import scan_cost, scan_of, scanned
from tidemark.query.asking.session import Session
from tidemark.query.quantiles.questions import WindowQuestion
from tidemark.query.quantiles.window_sums import have_sums
from tidemark.query.reading import spending
from tidemark.query.reading.costs import Reading, cheapest
from tidemark.query.reading.windows import ShownWindow, rows_of, runs_within
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.snapshots.system_tables import AnyContents
from tidemark.warehouse.snapshots.views import View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class AllRows(Generic[M]):
    """A question about all rows of a window; a `Plan`.

    A scan finds sums that the marks of a run do not have.
    """

    session: Session
    request: MeasureArguments[M]
    mode: str

    @property
    def topic(self) -> Hashable:
        """See `Plan.topic`."""
        if self.mode == "quick":  # it seldom reads blocks
            return None
        return f"{'sums' if self.request.wanted.needs_sums else 'rows'} {self.request.measure!r}"

    def newest(self) -> View | tuple[View, AnyContents]:
        """See `Plan.newest`."""
        view = self.session.newest_view(self.request.measure, live_rows=self.mode != "quick")
        wanted = self.request.wanted
        has_all = not wanted.needs_sums or have_sums(view)
        if view.silent and wanted.is_exact and not (wanted.needs_sums and has_all):
            self.session.refuse_silent()
        return view if has_all else scan_of(self.session, self.request).newest()

    def answer(self, view: View | tuple[View, AnyContents]) -> Asked[M]:
        """See `Plan.answer`."""
        if isinstance(view, tuple):
            return scan_of(self.session, self.request).answer(view)
        asked = windows_of(self.request, view, self.session.options.grid)
        if view.silent:  # the index answers without their rows
            return _Ways(self, view, *asked, has_ways=False).alone()
        estimates, reading = self._estimates(view, asked[1])
        errs = self.mode == "accurate" and not self.session.live.fits(view)
        ways = _Ways(self, view, *asked, len(estimates) > 1 and not errs)
        if errs:  # and other ways' answers do not: one way answers while the rows stay
            estimates, reading = cheapest(estimates), None
        return self.session.costs.answer("rows", ways, estimates, reading)

    def _estimates(self, view: View, parts: Sequence[ShownWindow]) -> tuple[dict[Way, float], Reading | None]:
        """The cost of each way, and the part of it that is spent once."""
        costs, wanted = self.session.costs, self.request.wanted
        runs = view.runs if len(parts) == 1 else runs_within(view.runs, [part.ticks for part in parts])
        estimates: dict[Way, float] = {INDEX: costs.windows(len(parts), wanted.targets, len(runs))}
        reading = None
        if self.mode != "quick":
            summed = costs.sums(self._rows(view, parts)) if wanted.needs_sums and len(parts) > 1 else 0.0
            together = self.session.many_windows.cost(view, parts, wanted.targets)
            if together is not None:
                estimates[RUNS] = together + summed
                reading = self.session.many_windows.reading(view, parts)
            # An accurate answer about one window stays while the versions do: so only the index gives it. And
            # while runs lag behind a removal, a scan would lack rows that a later answer has again.
            if (self.mode == "exact" or len(parts) > 1) and not view.is_behind:
                scan = scan_cost(self.session, self.request, self._rows(view, parts), len(parts))
                estimates[SCAN] = scan + summed
        return estimates, reading

    def _rows(self, view: View, windows: Sequence[ShownWindow]) -> int:
        """About how many rows the windows have: for one window, by its bounds, which are needed anyway."""
        if self.request.every is None:
            return self.session.bounds.get(view, windows[0].ticks).rows
        return rows_of(view, [window.ticks for window in windows])


@dataclass(frozen=True, slots=True, eq=False)
class _Ways(Generic[M]):
    """The windows of a question in a view, and each way to the answers about them.

    window: has all of `parts`. has_ways: see `WindowQuestion`.
    """

    plan: AllRows[M]
    view: View
    window: Window
    parts: Sequence[ShownWindow]
    has_ways: bool

    def by(self, way: Way) -> Asked[M] | None:
        if way == INDEX:
            return self.alone()
        plan = self.plan
        return self._together() if way == RUNS else scanned(plan.session, plan.request, plan.mode)

    def _together(self) -> Asked[M]:
        session, view, request = self.plan.session, self.view, self.plan.request
        fields = fields_of(session, view, self.plan.mode, self.parts[0])
        together = session.many_windows.questions(session.snapshot, view, self.parts, fields)
        check_rows(together, view, self.window, session.options.grid)
        answers, windows = together.answers(request.wanted), request.every is not None
        return Asked(answers, len(together), windows=windows, plan=spending.current_plan())

    def alone(self) -> Asked[M]:
        session, wanted = self.plan.session, self.plan.request.wanted
        sums: Sequence[Sums | None] = [None] * len(self.parts)
        if wanted.needs_sums:
            sums = session.sums.get(session.snapshot, self.view, [part.ticks for part in self.parts])
        questions = [self._question(part, own) for part, own in zip(self.parts, sums, strict=True)]
        check_rows(questions, self.view, self.window, session.options.grid)
        answers = [answer for one in spending.checked(questions) for answer in one.answers(wanted)]
        windows = self.plan.request.every is not None
        return Asked(answers, len(questions), windows=windows, plan=spending.current_plan())

    def _question(self, window: ShownWindow, sums: Sums | None) -> WindowQuestion:
        session, view = self.plan.session, self.view
        known = session.bounds
        spending.check()
        is_one = self.plan.request.every is None  # only then are the bounds kept
        bounds = known.get(view, window.ticks) if is_one else known.compute(view, window.ticks)
        return WindowQuestion(
            counts=bounds,
            bounds=bounds,
            source=session.source,
            sums=sums,
            has_ways=self.has_ways,
            window=window.shown,
            **fields_of(session, view, self.plan.mode, window),
        )
