"""Reports of removals: what a removal did, by its record, and what a planned one would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.purges import Certificate
from tidemark.warehouse.events.removals import Removal, RemovedPart
from tidemark.warehouse.events.removed_rows import RemovedFile, read_batches, read_replaced
from tidemark.warehouse.events.steps import planned_batches
from tidemark.warehouse.removals.room_to_keep import room_for
from tidemark.warehouse.removals.rows_to_remove import Wanted, open_complete, parts_of, select_live
from tidemark.warehouse.removals.select import count_by_batch, select
from tidemark.warehouse.runs import run_tables
from tidemark.warehouse.work import Work


@dataclass(slots=True)
class RemovalReport:
    """What an unload, a delete or a correction did.

    outcome         'removed'; 'corrected'; 'empty': no row was selected, nothing was changed; 'known': it was
                    done before; 'planned': a dry run, which changed nothing, and whose figures tell what
                    would be done
    kind            'unload', 'delete', 'correct' or 'expire'
    removal         its number; None if nothing was removed
    rows            rows that were removed
    rows_in         rows that came in their place, by a correction
    rows_by_step    the removed rows, by step of history
    live_rows       for a dry run, the selected rows that are not in history yet. They would be loaded first
    batches         the number of batches that lost rows
    files_rewritten
                    files of `events` that were replaced
    runs_rewritten  by title of the projection, how many runs were built anew; a run that lost all rows is not
    before          for an expiry, the time before which rows have expired, in UTC
    bytes_written   bytes of all new files, without files that runs got only because a merge may be reading
                    them. For a dry run an upper limit, by the present files
    seconds         time spent
    certificate     for a purge, its certificate; else None
    """

    outcome: Literal["removed", "corrected", "empty", "known", "planned"]
    kind: removals.Kind
    removal: int | None = None
    rows: int = 0
    rows_in: int = 0
    rows_by_step: dict[int, int] = field(default_factory=dict)
    live_rows: int = 0
    batches: int = 0
    files_rewritten: int = 0
    runs_rewritten: dict[str, int] = field(default_factory=dict)
    before: datetime | None = None
    bytes_written: int = 0
    seconds: float = 0.0
    certificate: Certificate | None = None


def report_of(removal: Removal, content: RemovedFile) -> RemovalReport:
    """The report of a removal by its record and the content of its file."""
    return RemovalReport(
        "corrected" if removal.kind == "correct" else "removed",
        removal.kind,
        removal.number,
        removal.rows,
        removal.rows_in,
        _rows_by_step(removal.parts),
        batches=len(content.batches),
        files_rewritten=sum(one.old is not None for one in content.files),
    )


def known_report(work: Work, removal: Removal) -> RemovalReport:
    """The report of a removal that was done before."""
    content = RemovedFile(read_replaced(work.store, removal.file), read_batches(work.store, removal.file))
    return replace(report_of(removal, content), outcome="known")


def _rows_by_step(parts: Iterable[RemovedPart]) -> dict[int, int]:
    """How many rows leave of each step that loses some, ascending."""
    by_step = Counter[int]()
    for part in parts:
        by_step[part.step] += part.rows
    return {step: rows for step, rows in sorted(by_step.items()) if rows > 0}


def planned(work: Work, wanted: Wanted) -> RemovalReport:
    """The report of what a removal would do; nothing is changed."""
    events, plans = open_complete(work)
    selected = select(work, wanted.condition, wanted.of(planned_batches(plans)), events)
    parts = parts_of(wanted, plans, selected)
    by_step = _rows_by_step(parts)
    report = RemovalReport("planned", wanted.kind, rows=sum(by_step.values()), rows_by_step=by_step)
    live = select_live(work, wanted, events, plans)
    if wanted.coming is not None:
        wanted.coming.check_free(plans)
        wanted.coming.chosen(work, [*selected, *live])
        report.rows_in = wanted.coming.count(work)
    report.live_rows = sum(count_by_batch(live).values())
    report.batches = len(count_by_batch(selected))
    report.files_rewritten = len(selected)
    cut = {one.path for one in selected if not one.is_whole}
    size = sum(file.size for file in data_files.list_files(events) if file.path in cut)
    room = room_for(work, events, plans, parts, may_keep=wanted.may_keep)
    left = removals.removed_at(work.store, events).rows_by_step(plans)
    left.subtract(by_step)
    for projection in () if room.fits and not room.is_full else work.options.projections:
        (table,) = tables.find_tables(work.store, projection.runs_table)
        touched = [
            files
            for run, files in run_tables.runs_of(table).items()
            if any(run.first <= step <= run.last for step in report.rows_by_step)
            and (room.is_full or any(left[step] for step in run.steps))
        ]
        if touched:
            report.runs_rewritten[projection.title] = len(touched)
            size += sum(file.size for files in touched for file in files)
    report.bytes_written = size
    return report
