"""Repair of the ledger: damaged files leave it, and unaccounted batches are summarised from `events`.

All is written first and committed at once, so no reader sees a ledger that lacks what was in it before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, Transaction

from tidemark.warehouse.delta import data_files, table_open, tables
from tidemark.warehouse.delta.commits import first_line
from tidemark.warehouse.delta.log_repair import remove_log, unreadable
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BULK, BatchRange, rows_by_batch
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import batch_counts, ledger_rows, ledger_table, unaccounted
from tidemark.warehouse.ledger.batch_summaries import TickSummary
from tidemark.warehouse.ledger.ledger_rows import RANGE_COLUMNS, to_arrow
from tidemark.warehouse.ledger.unaccounted import Unaccounted
from tidemark.warehouse.loads.missing_summaries import summarise
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.work import Work

_OPENED_ROWS = 256  # rows whose summaries are in memory at the same time


@dataclass(frozen=True, slots=True)
class LedgerDamage:
    """Why the log cannot be opened, and why files of the ledger cannot be read, by path."""

    log: str | None
    faults: dict[str, str]

    def __bool__(self) -> bool:
        return self.log is not None or bool(self.faults)


def find_damage(store: Store) -> LedgerDamage:
    """What is wrong with the ledger itself; reads all of its rows and opens their summaries."""
    reason = unreadable(store, LEDGER)
    if reason is not None:
        return LedgerDamage(reason, {})
    faults, ranges = {}, {}
    for file in data_files.list_files(tables.open_table(store, LEDGER)):
        try:
            rows = data_files.read_file(store, LEDGER, file.path)
            _check_once(rows)
            check_summaries(rows)
            ranges[file.path] = set(ledger_table.range_of_each(rows))
        except (DamagedWarehouse, FileNotFoundError) as error:
            faults[file.path] = first_line(error)
    return LedgerDamage(None, faults | _copied(ranges))


def _check_once(rows: pa.Table) -> None:
    """DamagedWarehouse if a tick of a range is there twice in a file: its rows would count twice."""
    ticks = rows.group_by([*RANGE_COLUMNS, "tick"]).aggregate([([], "count_all")])
    if ticks.num_rows < rows.num_rows:
        raise DamagedWarehouse("a tick of a range is in it more than once")


def all_wrong(store: Store, fault: str) -> LedgerDamage:
    """The damage of a ledger of which no summary is trusted; files of batches without rows stay."""
    faults = {}
    for file in data_files.list_files(tables.open_table(store, LEDGER)):
        rows = data_files.read_file(store, LEDGER, file.path)
        if pc.sum(rows.column("rows")).as_py():
            faults[file.path] = fault
    return LedgerDamage(None, faults)


def check_summaries(rows: pa.Table) -> None:
    """DamagedWarehouse if a summary in these rows of a file of the ledger cannot be read.

    Digests do not find this if another tool rewrote the file, or if the summary was wrong when it was
    written.
    """
    no_rows = data_files.table_without_rows(ledger_rows.SCHEMA)  # older files lack columns
    stored = pa.concat_tables([no_rows, rows], promote_options="permissive")
    for start in range(0, stored.num_rows, _OPENED_ROWS):
        ledger_rows.from_arrow(stored.slice(start, _OPENED_ROWS))


def _copied(ranges: Mapping[str, Collection[BatchRange]]) -> dict[str, str]:
    """Files that have to leave so that no range is in two files.

    First, files whose ranges are all in other files, too, leave, those with most ranges first. Then all files
    with a range that is still in two files leave, so that range is in none.
    """
    counts, copied = Counter(chain.from_iterable(ranges.values())), dict[str, str]()
    for is_last in (False, True):
        for path in sorted(ranges.keys() - copied.keys(), key=lambda path: (-len(ranges[path]), path)):
            again = [one for one in ranges[path] if counts[one] > 1]
            if again and (is_last or len(again) == len(ranges[path])):
                copied[path] = f"another file has {unaccounted.named(sorted(again))}, too"
                if not is_last:
                    counts.subtract(ranges[path])
    return copied


def find_missing(store: Store, damage: LedgerDamage, plans: Sequence[StepPlan]) -> Unaccounted:
    """The batches of `events` that neither the plans nor the sound part of the ledger accounts for."""
    ledger = None if damage.log is not None else tables.open_table(store, LEDGER)
    return unaccounted.find(store, tables.open_table(store, EVENTS), ledger, plans, set(damage.faults))


def expected_rows(store: Store, plans: Sequence[StepPlan], events: DeltaTable) -> dict[BatchRange, int]:
    """The rows that `events` should have of each batch: by the plans and by the sound part of the ledger."""
    damage = find_damage(store)
    ledger = None if damage.log is not None else tables.open_table(store, LEDGER)
    removed = removed_at(store, events)
    return batch_counts.expected_rows(store, plans, ledger, removed, set(damage.faults))


def mend(work: Work, damage: LedgerDamage, plans: Sequence[StepPlan]) -> None:
    """Writes the rows of what is missing and removes damaged files, in one commit."""
    store, options = work.store, work.options
    if damage.log is not None and table_open.exists(store, LEDGER) and remove_log(store, LEDGER):
        damage = find_damage(store)  # of the version before the newest one
    parts = _lost_parts(store, damage) if damage.faults else set[BatchRange]()
    missing = sorted({*find_missing(store, damage, plans).streamed, *parts})
    adds = {batch: _write(store, options, batch, summarise(work, batch)) for batch in missing}
    newest = _newest_numbers(store, [*(one for plan in plans for one in plan.batches), *missing])
    if damage.log is not None:
        schema = ledger_rows.schema(options.key_fields)
        tables.create(store, LEDGER, schema, grace_us=options.grace_us)
        known = [*missing, *(one for plan in plans for one in plan.batches)]
        adds |= {batch: _write(store, options, batch, []) for batch in _empty_batches(newest, known)}
    else:
        ledger_table.add_columns(store, options.key_fields)
    race = Race(store, LEDGER)
    while True:
        bad = [file for file in data_files.list_files(race.table) if file.path in damage.faults]
        numbers = [
            Transaction(source, number)
            for source, number in newest.items()
            if number > tables.newest_transaction(race.table, source)
        ]
        found = ledger_table.ranges_by_file(store, race.table, without=set(damage.faults))
        ranges = list(chain.from_iterable(found.values()))  # an append may have written its own meanwhile
        new = [
            action
            for batch, action in adds.items()
            if batch not in ranges and (batch in parts or not any(map(batch.within, ranges)))
        ]
        if not (bad or new or numbers):
            return
        if race.commit([*map(data_files.remove_action, bad), *new], transactions=numbers):
            return


def _lost_parts(store: Store, damage: LedgerDamage) -> set[BatchRange]:
    """Batches of a wide range that are in none of its narrower ranges, though the ledger has some of them."""
    files = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER), without=set(damage.faults))
    known, events = set(chain.from_iterable(files.values())), tables.open_table(store, EVENTS)
    lost: set[BatchRange] = set()
    for whole in known:
        parts = [part for part in known if part != whole and part.within(whole)]
        if parts:
            for number in rows_by_batch(store, events, whole):
                if not any(part.holds(whole.source, number) for part in parts):
                    lost.add(BatchRange(whole.source, number, number))
    return lost


def _newest_numbers(store: Store, batches: Iterable[BatchRange]) -> dict[str, int]:
    events = tables.open_table(store, EVENTS)
    sources = {one.source for one in batches if not one.source.startswith(BULK)}
    return {source: tables.newest_transaction(events, source) for source in sorted(sources)}


def _empty_batches(newest: dict[str, int], known: Sequence[BatchRange]) -> list[BatchRange]:
    """The newest batch of each source that had no rows: its replay must find it."""
    return [
        BatchRange(source, number, number)
        for source, number in newest.items()
        if not any(batches.holds(source, number) for batches in known)
    ]


def _write(store: Store, options: Options, batch: BatchRange, summaries: Sequence[TickSummary]) -> AddAction:
    return ledger_table.write_rows(store, batch, to_arrow(batch, summaries, options.key_fields))
