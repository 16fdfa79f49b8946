"""Appends the rows of one batch to `events`, once.

    write    tasks write the rows in the order they come, at most one file of `events` per task
    commit   one commit adds all the files

The commit records (source, batch) as an application transaction of the table, and it succeeds only as the
version after the one it was planned for (optimistic concurrency). A batch that is appended again, or by two
processes at once, finds its transaction in the table and is not added twice.

A batch may bring columns (`evolve`). Two commits before its own add them: first the options say which are
added, and that earlier versions of tidemark do not know this; then the columns come. After a kill between any
two of these commits, the warehouse lacks the column, or has it with NULL everywhere. If the batch has wider
types, one more commit widens the columns once the batch's rows are written (wider_types.py); after a kill the
columns are wider, with the same values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.transaction import AddAction

from tidemark.warehouse.columns.schema import column_types
from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.delta import own_files, tables
from tidemark.warehouse.delta.changes import NewColumns, NewProperties
from tidemark.warehouse.delta.data_files import NewFile
from tidemark.warehouse.delta.races import Race, replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, REJECTED
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import Input
from tidemark.warehouse.ingest.column_casts import check_columns
from tidemark.warehouse.ingest.event_files import WriteRows, WrittenFile
from tidemark.warehouse.ingest.private_rows import check_current
from tidemark.warehouse.ingest.rejected import RECORD_COLUMNS, has_rejected
from tidemark.warehouse.ingest.row_filter import RefusedRows, RowFilter, refused_error
from tidemark.warehouse.ingest.wider_types import widen, with_types
from tidemark.warehouse.integrity.row_sample import NO_ROWS, RowSample
from tidemark.warehouse.ledger.batch_summaries import TickSummary, by_tick
from tidemark.warehouse.settings.alterations import (
    changed_properties,
    widened,
    wider_columns,
    with_added_columns,
)
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.work import Work


@dataclass(frozen=True, slots=True)
class GivenBatch:
    """A batch as it came.

    rows        its rows, which may be read once more if they have to be written again
    batch       its source and number
    row_filter  decides which rows are taken; the others are added to `rejected`, once
    eps         the rank error of the summaries, for a batch of a stream: its rows are summarised while they
                are written, and its number is committed even if there are no rows; None for a bulk load
    evolve      whether columns that the warehouse lacks are added, and whether columns take wider types from
                the rows
    """

    rows: Input
    batch: BatchRange
    row_filter: RowFilter
    eps: float | None = None
    evolve: bool = False

    @property
    def fields(self) -> list[Field]:
        """The columns of the rows without RECORD_COLUMNS, which only rows with reasons have."""
        return self.rows.fields(*self.record_columns)

    @property
    def record_columns(self) -> Sequence[str]:
        """The columns that describe the record of each row, if the rows have them."""
        return RECORD_COLUMNS if self.row_filter.reasons else ()

    def check_columns(self, options: Options) -> None:
        """InputError unless the rows have the warehouse's columns, in any order, of types that fit."""
        check_columns(options, self.fields, evolve=self.evolve)

    def new_fields(self, options: Options) -> list[Field]:
        """The columns that the warehouse lacks; before the first batch these are all."""
        return [field for field in self.fields if field.name not in dict(options.columns)]

    def stored_fields(self, options: Options) -> list[Field]:
        """The same, by the names under which they are stored."""
        stored = self.with_columns(options).names.stored
        return [
            Field(stored(one.name), one.type, nullable=one.nullable, metadata=one.metadata)
            for one in self.new_fields(options)
        ]

    def wider(self, options: Options) -> dict[str, str]:
        """By column of the warehouse, Delta's name of the wider type that the batch gives it."""
        return (
            wider_columns(options, options.with_token_types(column_types(self.fields))) if self.evolve else {}
        )

    def with_columns(self, options: Options) -> Options:
        """The options with the columns and the types that the batch brings."""
        columns = options.with_token_types(column_types(self.new_fields(options)))
        wider = widened(options, self.wider(options))
        if options.columns:
            wider = replace(wider, earlier_names=with_added_columns(wider, columns, 0).earlier_names)
        return replace(wider, columns=(*wider.columns, *columns.items()))

    def names(self, options: Options) -> tuple[str, ...]:
        """The columns of the options that the rows have, in the order of the options."""
        there = {field.name for field in self.fields}
        return tuple(name for name, _ in options.columns if name in there)


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did.

    outcome    'appended'; 'empty' if no row was taken; 'known' if `events` had the batch or a later batch of
               its source already: then nothing was added
    rows       how many rows were taken
    rejected   how many rows were refused
    summaries  those of the rows taken, by tick, for a batch of a stream
    nulls      by column, how many of the rows taken are NULL there; columns without NULL are left out
    after      the newest batch of the source in `events` before this one; -1 if there was none
    sample     of the rows taken, for a bulk load
    added      the columns that were added to a warehouse that had others
    widened    the columns that got a wider type
    """

    outcome: Literal["appended", "known", "empty"]
    rows: int = 0
    rejected: int = 0
    summaries: Sequence[TickSummary] = ()
    nulls: Mapping[str, int] = field(default_factory=dict)
    after: int = -1
    sample: RowSample = NO_ROWS
    added: Sequence[str] = ()
    widened: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A batch whose files are written and not committed.

    given, tick        what was written
    result             what the append will have done
    files              of the rows taken
    refused            add actions of the records refused
    new_fields         the columns that the batch brings, by stored names
    options            those of the warehouse, with all columns of the files and their types
    wider              the types that were wider than the table's when the batch was written
    """

    given: GivenBatch
    tick: int
    result: Appended
    files: Sequence[NewFile]
    refused: Sequence[AddAction]
    new_fields: Sequence[Field]
    options: Options
    wider: Mapping[str, str]

    @property
    def paths(self) -> list[str]:
        """The files of the rows taken, relative to the warehouse."""
        return [f"{EVENTS}/{file.path}" for file in self.files]

    @property
    def actions(self) -> list[AddAction]:
        """The add actions of these files."""
        return [file.action() for file in self.files]


def write(store: Store, given: GivenBatch, tick: int, events: DeltaTable) -> Written:
    """Writes the rows of the batch in tasks, and commits nothing.

    tick     the tick of the rows, if the warehouse has no time column
    events   the opened table; columns that it lacks are taken from the rows, and so are wider types

    Raises InputError for rows that do not fit the warehouse's columns, and Contended as `check_current`.
    """
    options = read_options(store, events)
    check_current(given.rows, options)
    given.check_columns(options)
    new_fields, has_columns = given.new_fields(options), bool(options.columns)
    wider, stored_fields = given.wider(options), given.stored_fields(options)
    options = given.with_columns(options)
    stored_wider = {options.names.stored(name): kind for name, kind in wider.items()}
    schema = pa.schema(Schema([*with_types(events.schema(), stored_wider).fields, *stored_fields]))
    names = given.names(options)
    task = WriteRows(
        store, schema, names, given.batch, options, tick, given.row_filter, given.eps, options.companions
    )
    outputs: list[WrittenFile | RefusedRows] = given.rows.each([*names, *given.record_columns], task)
    written = [output for output in outputs if isinstance(output, WrittenFile)]
    refused = [output for output in outputs if isinstance(output, RefusedRows)]
    if refused:
        raise refused_error(refused, sum(part.file.rows for part in written) + sum(p.count for p in refused))
    files = {kind: [output.file for output in written if output.kind == kind] for kind in (EVENTS, REJECTED)}
    counts = {kind: sum(file.rows for file in files[kind]) for kind in files}
    result = Appended(
        outcome="appended" if counts[EVENTS] else "empty",
        rows=counts[EVENTS],
        rejected=counts[REJECTED],
        summaries=by_tick(chain.from_iterable(output.summaries for output in written), given.eps or 0.0),
        nulls=dict(sum((Counter(json.loads(file.nulls)) for file in files[EVENTS]), Counter())),
        sample=sum((output.sample for output in written), NO_ROWS),
        added=[field.name for field in new_fields] if has_columns else (),
        widened=[*wider],
    )
    rejected = [file.action() for file in files[REJECTED]]
    return Written(given, tick, result, files[EVENTS], rejected, stored_fields, options, wider)


def commit(work: Work, race: Race, written: Written) -> Appended | None:
    """Commits what was written, unless `events` has the batch or a later batch of its source already.

    `race` is the race for `events`; the batch was written for its table. Returns None if it brings columns
    and lost a race meanwhile, or if columns got other types: the batch has to be written again, for the
    race's new table. `work` widens columns, if the batch has wider types.
    """
    store = work.store
    batch, is_bulk = written.given.batch, written.given.eps is None
    if is_bulk:
        looks = own_files.Looks(store, before_commit=True)
        while looks.lost(written.paths):
            written = write(store, written.given, written.tick, race.table)
    if written.refused:
        _reject(store, batch, written.refused)
    if not written.files and is_bulk:
        return written.result
    if written.files and not _bring_columns(work, race, written):
        return None
    while not has_batch(race.table, batch):
        if not _has_types(race.table, written):
            return None
        after = tables.newest_transaction(race.table, batch.source)
        if race.commit_numbered(batch.source, batch.first, written.actions):
            if is_bulk:
                _replace_lost(store, written)
            return replace(written.result, after=after)
    return replace(written.result, outcome="known", added=(), widened=())


def _bring_columns(work: Work, race: Race, written: Written) -> bool:
    """Widens and adds the columns that the batch brings; False if another writer has committed meanwhile."""
    if written.wider and not has_batch(race.table, written.given.batch):
        widen(work, written.wider)
        race.look_again()
    return not written.new_fields or _add_columns(work.store, race, written)


def _add_columns(store: Store, race: Race, written: Written) -> bool:
    """Commits the columns that the batch brings; False if another writer has committed meanwhile."""
    if written.result.added:
        options = read_options(store, race.table)
        wanted = with_added_columns(options, written.result.added, now_us())
        if wanted != options and not race.change(NewProperties(changed_properties(options, wanted))):
            return False
        names = {field.name for field in race.table.schema().fields}
        if wanted.names.stored_of(written.result.added) != [one.name for one in written.new_fields]:
            return False
        if not names.isdisjoint(one.name for one in written.new_fields):
            return False
    return race.change(NewColumns(written.new_fields))


def _has_types(events: DeltaTable, written: Written) -> bool:
    """Whether the columns of the files that were written have their types in the table."""
    types = written.options.names.of_types(column_types(events.schema().fields))
    stored = written.options.with_token_types(types)
    return not written.files or all(stored.get(name) == kind for name, kind in written.options.columns)


def _replace_lost(store: Store, written: Written) -> None:
    """Replaces the files of a committed batch that were gone before the commit."""
    looks = own_files.Looks(store)
    while looks.lost(written.paths):
        again = write(store, written.given, written.tick, tables.open_table(store, EVENTS))
        replace_files(store, EVENTS, {file.path for file in written.files}, again.actions)
        written = again


def _reject(store: Store, batch: BatchRange, files: Sequence[AddAction]) -> None:
    race = Race(store, REJECTED)
    while not (has_batch(race.table, batch) and has_rejected(race.table, batch)):
        if race.commit_numbered(batch.source, batch.first, files):
            return


def has_batch(table: DeltaTable, batch: BatchRange) -> bool:
    """Whether the table has the batch, or a later batch of its source."""
    return tables.has_transaction(table, batch.source, batch.first)
