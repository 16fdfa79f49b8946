"""A question about a measure that a scan of `events` answers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tidemark.query.answers.measure_answers import MeasureScope
from tidemark.query.asking.asked import Asked
from tidemark.query.asking.measure_arguments import (
    MeasureArguments,
    asked_cells,
    check_rows,
    fields_of,
    windows_of,
)
from tidemark.query.asking.scan_choice import ScanChoice, choose_scan
from tidemark.query.asking.scan_progress import shown_progress
from tidemark.query.asking.scanned_questions import scanned_questions
from tidemark.query.asking.session import Session
from tidemark.query.reading.windows import rows_of
from tidemark.query.scans.asked_rows import key_of
from tidemark.query.scans.event_scan import EventScan
from tidemark.warehouse.projections.sorted_groups import SortedGroups
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.snapshots.system_tables import AnyContents
from tidemark.warehouse.snapshots.views import View

M = TypeVar("M", bound=MeasureScope)


@dataclass(frozen=True, slots=True)
class MeasureScan(Generic[M]):
    """A question that a scan answers; a `Plan`."""

    session: Session
    request: MeasureArguments[M]
    choice: ScanChoice
    mode: str = "exact"
    topic: Hashable = None

    def newest(self) -> tuple[View, AnyContents]:
        """See `Plan.newest`."""
        return self.session.newest_contents(None if self.choice.measure else self.request.measure)

    def answer(self, newest: tuple[View, AnyContents]) -> Asked[M]:
        """See `Plan.answer`."""
        (view, contents), options, choice = newest, self.session.options, self.choice
        if choice.measure is not None:
            view = replace(view, projection=SortedValues(choice.measure))
        window, parts = windows_of(self.request, view, options.grid)
        ticks = [part.ticks for part in parts]
        keys = [key_of(contents, name, choice.computed) for name in choice.by]
        with (
            shown_progress(self.session.progress) as progress,
            EventScan(
                contents,
                view.measure,
                ticks,
                equal=choice.equal_of(keys),
                expression=choice.expression,
                by=choice.by,
                computed=choice.computed,
                progress=progress,
                summed=self.request.wanted.needs_sums,
            ) as scan,
        ):
            fields = {**fields_of(self.session, view, self.mode, parts[0]), "eps": float(options.eps)}
            questions = scanned_questions(scan, choice, keys, parts, rows_of(view, ticks), fields)
            if not choice.by:
                check_rows(questions, view, window, options.grid, choice.shown(()) or None)
            return asked_cells(questions, self.request, choice.by, choice.order, len(parts))


def scan_of(session: Session, request: MeasureArguments[M], mode: str = "exact") -> MeasureScan[M]:
    """How a scan answers where an index has the columns, but cannot be used or gains nothing."""
    chosen = choose_scan(session.options, request.groups, request.measure)
    return MeasureScan(session, request, replace(chosen, declare=None), mode)


def scanned(
    session: Session,
    request: MeasureArguments[M],
    mode: str,
    groups: SortedGroups | None = None,
    *,
    is_only: bool = False,
) -> Asked[M] | None:
    """The answers of a scan of the newest view, in place of the runs of a measure, or of it by group.

    is_only: whether no other way answers the question. Otherwise None where `Session.scan_contents` is None:
        then another way answers, from the view of which it was chosen.
    """
    scan = scan_of(session, request, mode)
    newest = scan.newest() if is_only else session.scan_contents(request.measure, groups)
    return None if newest is None else scan.answer(newest)


def scan_cost(session: Session, request: MeasureArguments[Any], rows: int, cells: int) -> float:
    """The cost of a scan of about so many rows that finds so many groups and windows."""
    of_cells = cells if request.groups.by is not None or request.every is not None else None
    return session.costs.event_scan(rows, of_cells, far=session.is_far)
