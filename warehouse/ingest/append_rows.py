"""Ingest: the rows of one batch into `events`, once.

Tasks write the rows as they come, one file a task, and one commit adds them all. It carries
(source, batch) as the table's application transaction and succeeds only as the very next version,
so a batch that comes again, or twice at once, finds itself there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.transaction import AddAction

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.commits import retry_lost_races
from tidemark.warehouse.delta.store import EVENTS, REJECTED, Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import Input
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.event_files import WriteRows, Written
from tidemark.warehouse.ingest.rejected import has_rejected
from tidemark.warehouse.ingest.row_filter import TAKE_ALL, Sieve
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.settings.options import Options, read_options

TOLD = ("_position", "_raw", "_reason")  # what a parser tells of a record beside its columns


@dataclass(slots=True)
class Appended:
    """What an append did: how many rows were taken and refused, and the summaries of those taken.

    `outcome` is 'known' where `events` had the batch already, or a later one of its source: then nothing is
    known of its rows. `nulls` says in how many of the rows taken each column is NULL, of those that are so
    in any. `after` is the newest batch of the source that `events` had before; -1 where there was none.
    """

    outcome: Literal["appended", "known", "empty"]
    rows: int = 0
    rejected: int = 0
    summaries: list[TickSummary] = field(default_factory=list)
    nulls: dict[str, int] = field(default_factory=dict)
    after: int = -1


def append_rows(
    store: Store,
    rows: Input,
    batch: BatchRange,
    step: int,
    *,
    eps: float | None = None,
    sieve: Sieve = TAKE_ALL,
    check: Callable[[Appended], None] = lambda _: None,
) -> Appended:
    """Appends the rows as that batch, unless `events` has it already, or a later one of its source.

    A warehouse without columns gets those of the rows first. `step` is the tick where there is no
    time. With `eps` it is a batch of a stream: its rows are summarised on the way, and its number is
    committed though there are no rows. What the sieve keeps back goes to `rejected`, once. `check` is told
    what is about to be committed and may refuse it, by an error.
    """

    def attempt() -> Appended:
        events = tables.open_table(store, EVENTS)
        options = read_options(store, events)
        check_rows(options, rows, sieve)
        new = [] if options.columns else _own(rows, sieve)
        known = replace(options, columns=tuple(column_types(new).items())) if new else options
        schema = pa.schema(Schema([*events.schema().fields, *new]))
        done, files, refused = _write(store, known, schema, rows, batch, step, eps, sieve)
        check(done)
        if refused:
            _reject(store, batch, refused)
        if not files and eps is None:
            return done
        if new and files:
            tables.add_columns(events, new)  # a lost race: another first batch has brought its columns
        if not _commit(store, batch, files, done):
            done.outcome = "known"
        return done

    return retry_lost_races(EVENTS, attempt)


def try_rows(store: Store, rows: Input, batch: BatchRange, step: int, sieve: Sieve) -> Appended:
    """What an append of the rows would do; nothing is committed."""
    events = tables.open_table(store, EVENTS)
    schema = pa.schema(events.schema())
    return _write(store, read_options(store, events), schema, rows, batch, step, None, sieve)[0]


def _commit(store: Store, batch: BatchRange, files: list[AddAction], done: Appended) -> bool:
    def actions(table: DeltaTable) -> list[AddAction]:
        done.after = tables.newest_transaction(table, batch.source)
        return files

    return tables.commit_once(store, EVENTS, batch.source, batch.first, actions)


def _reject(store: Store, batch: BatchRange, files: list[AddAction]) -> None:
    source, number = batch.source, batch.first
    tables.commit_once(
        store, REJECTED, source, number, lambda _: files, known=lambda table: has_rejected(table, batch)
    )


def _write(
    store: Store,
    options: Options,
    schema: pa.Schema,
    rows: Input,
    batch: BatchRange,
    step: int,
    eps: float | None,
    sieve: Sieve,
) -> tuple[Appended, list[AddAction], list[AddAction]]:
    """Writes the files of the rows, and of those refused; their add actions."""
    work = WriteRows(store, schema, batch, options, step, sieve, eps)
    names = [*(name for name, _ in options.columns), *(TOLD if sieve.reasons else ())]
    found: list[Written] = rows.each(names, work)
    files = {kind: [one.file for one in found if one.kind == kind] for kind in (EVENTS, REJECTED)}
    counts = {kind: sum(one.rows for one in files[kind]) for kind in files}
    done = Appended(
        outcome="appended" if counts[EVENTS] else "empty",
        rows=counts[EVENTS],
        rejected=counts[REJECTED],
        summaries=by_tick(chain.from_iterable(one.summaries for one in found), eps or 0.0),
        nulls=dict(sum((Counter(json.loads(one.nulls)) for one in files[EVENTS]), Counter())),
    )
    return done, [one.action() for one in files[EVENTS]], [one.action() for one in files[REJECTED]]


def _own(rows: Input, sieve: Sieve) -> list[Field]:
    """The columns of the rows without what is told of their records."""
    return rows.fields(*(TOLD if sieve.reasons else ()))


def check_rows(options: Options, rows: Input, sieve: Sieve = TAKE_ALL) -> None:
    """The rows have the warehouse's columns, in any order, of types that fit without loss."""
    check_columns(options, _own(rows, sieve))


def has_batch(store: Store, batch: BatchRange) -> bool:
    """Whether `events` holds the batch."""
    return tables.has_transaction(tables.open_table(store, EVENTS), batch.source, batch.first)
