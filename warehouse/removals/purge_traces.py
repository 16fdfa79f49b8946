"""The first stage of a purge: no table names a file with removed rows any more, or has other traces of them.

First all removals are finished (finish.py), also those whose rows are kept, so no current file of `events` or
of a run has removed rows. Then the other traces are removed, table by table:

    rejected   records whose text has a constant of the condition are removed
    steps      samples and times of the steps that lost rows are computed again, from the remaining rows
    removed    the files of all removals are written again, without kept rows, digests of rows and statistics
               of files
    marks      the marks of the runs as they were before they were built again are removed
    fences     a commit to each table; from this version on the table names no file with the rows
               (delta/fences.py)
    purges     the certificate is written, at the stage 'left'

Each part does only what is missing, so the same call goes on after a crash. A purge covers all rows that were
ever removed, also by earlier deletes and unloads, because conditions are not stored. Old files and entries of
logs stay for the grace, for readers; then purge_files.py deletes them.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
from deltalake.transaction import AddAction, RemoveAction

from tidemark.warehouse.columns.arrow_buffers import arrow_array
from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.fences import put_fence
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import (
    EVENTS,
    LEDGER,
    PURGES,
    REJECTED,
    REMOVALS,
    REMOVED,
    STEPS,
    marks_of,
)
from tidemark.warehouse.events import purges
from tidemark.warehouse.events.purges import Certificate
from tidemark.warehouse.events.removals import Removal
from tidemark.warehouse.events.removed_rows import RemovedFile, has_rows, read_batches, read_replaced
from tidemark.warehouse.events.step_facts import StepFacts, read_facts, text_of
from tidemark.warehouse.events.steps import StepPlan, newest_plan
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ingest.overlaps import sample_of_batch
from tidemark.warehouse.removals.finish import finish_open
from tidemark.warehouse.removals.purge_files import files_of_warehouse
from tidemark.warehouse.removals.rows_to_remove import open_complete
from tidemark.warehouse.removals.upkeep import put_files, take_marks
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.work import Work

_NUMBER = re.compile(r"-?[\d.]+")


def forget(
    work: Work, constants: Sequence[str] | None, request: str | None, removal: int | None
) -> Certificate:
    """Removes all traces of removed rows but old files and logs; returns the certificate of the first stage.

    constants   of the condition: records of `rejected` that have one of them are removed. If it is empty, all
                records are; if it is None, no record is
    removal     the number of the removal of this call; None if no row of history matched
    """
    store = work.store
    work = replace(work, options=read_options(store))
    removed = finish_open(work, with_kept=True).removed
    since = purges.purged_up_to(store)
    with work.phase("purge"):
        # Before anything is changed, so that `purged_records` looks.
        tables.create(store, PURGES, purges.SCHEMA, grace_us=work.options.grace_us)
        if constants is not None:
            _forget_records(store, () if work.options.reveals else constants)  # sealed records have no text
        work.reached("records purged")
        newly = [one for one in removed.removals if one.number > since]
        _, plans = open_complete(work)
        _renew_facts(work, plans, {step for one in newly for step in one.steps})
        work.reached("samples purged")
        forget_digests(store, newly)
        work.reached("digests purged")
        for projection in work.options.projections:
            take_marks(store, projection, removed)
        work.reached("marks purged")
        purge = uuid.uuid4().hex
        versions = {name: put_fence(store, name, purge) for name in all_tables(store, work.options)}
        work.reached("fences put")
        certificate = Certificate(
            purge,
            "left",
            request,
            removal,
            sum(one.rows for one in removed.removals if one.number == removal),
            (),  # records that left `rejected` are counted when the certificate is committed
            removed.number,
            newest_plan(plans),
            purges.now(),
            versions,
            sum(map(len, files_of_warehouse(store, versions).values())),
        )
        certificate = purges.commit_certificate(store, certificate)
    work.reached("purge recorded")
    return certificate


def certificate_of(store: Store, request: str | None) -> Certificate | None:
    """The certificate of the purge that this request named; None if there is none."""
    if request is None:
        return None
    return next((one for one in purges.read_certificates(store) if one.request == request), None)


def all_tables(store: Store, options: Options) -> list[str]:
    """The names of all tables that exist, also of dropped ones, except `purges`."""
    names = [name for one in options.projections for name in (one.runs_table, one.marks_table)]
    names += [name for dropped in options.dropped for name in (dropped, marks_of(dropped))]
    names += [LEDGER, STEPS, REJECTED, REMOVALS, REMOVED, EVENTS]
    return [name for name in dict.fromkeys(names) if table_open.exists(store, name)]


def _forget_records(store: Store, constants: Sequence[str]) -> None:
    """Removes records from `rejected`, by a commit that notes how many records of each batch it removes."""
    wanted = _pattern(constants)
    race = Race(store, REJECTED)
    while True:
        actions: list[AddAction | RemoveAction] = []
        gone: list[tuple[str, int, int]] = []
        for file in data_files.list_files(race.table):
            rows = data_files.read_file(store, REJECTED, file.path)
            told = rows.drop_columns(["source", "batch", "rejected_at"])  # what may quote a record is left
            texts = ["\n".join(map(str, filter(None, row.values()))) for row in told.to_pylist()]
            stays = np.flatnonzero([wanted.search(text) is None for text in texts])
            if len(stays) == rows.num_rows:
                continue
            source, batch = file.stats["min.source"], file.stats["min.batch"]
            gone.append((source, batch, rows.num_rows - len(stays)))
            actions.append(data_files.remove_action(file))
            if len(stays):
                written = rejected.write_rows(store, source, batch, rows.take(arrow_array(stays)))
                actions.append(written.action())
        if not actions or race.commit(actions, notes=purges.note_of(tuple(gone))):
            return


def _pattern(constants: Sequence[str]) -> re.Pattern[str]:
    """Matches text that has one of the constants, as it is or as JSON, CSV or base64 write it.

    A number is not found inside a longer one. Without constants, any text matches.
    """
    forms: set[str] = set()
    for one in constants:
        if _NUMBER.fullmatch(one):
            forms.add(rf"(?<![\d.]){re.escape(one)}(?!\d)")
        elif one:
            encoded = base64.b64encode(one.encode()).decode().rstrip("=")
            written = {json.dumps(one)[1:-1], json.dumps(one, ensure_ascii=False)[1:-1]}
            forms |= {re.escape(form) for form in {one, one.replace('"', '""'), encoded, *written}}
    return re.compile("|".join(sorted(forms)))  # without constants, the pattern matches every text


def _renew_facts(work: Work, plans: Sequence[StepPlan], lost_rows: set[int]) -> None:
    store, race = work.store, Race(work.store, STEPS)
    events, renewed = tables.open_table(store, EVENTS), dict[int, StepFacts]()
    while True:
        files = data_files.list_files(race.table)
        facts = read_facts(store, files)
        for plan in plans:
            if plan.step in lost_rows and plan.step in facts and plan.step not in renewed:
                sample = reduce(add, (sample_of_batch(work, events, part) for part in plan.batches))
                is_sampled = facts[plan.step].sample is not None
                renewed[plan.step] = replace(
                    facts[plan.step], times=sample.times, sample=sample if is_sampled else None
                )
        if all(facts.get(step) == one for step, one in renewed.items()):
            return
        rows = data_files.read(store, STEPS, race.table)
        if race.commit(data_files.append_actions(store, STEPS, rows, files, text_of(facts | renewed))):
            return


def forget_digests(store: Store, purged: Iterable[Removal]) -> None:
    """Writes the files of removals anew, without rows, digests of rows and statistics."""
    new: dict[Removal, RemovedFile] = {}
    for one in purged:
        files, batches = read_replaced(store, one.file), read_batches(store, one.file)
        bare = [replace(file, new=file.new and replace(file.new, stats="{}")) for file in files]
        unknown = [replace(batch, digest=None, latest=None) for batch in batches]
        if bare != files or unknown != batches or has_rows(store, one.file):
            new[one] = RemovedFile(bare, unknown)
    put_files(store, new)
