"""Removals: their records, which say how many rows of each part of a step were removed, and what remains.

A removal is planned by a record, which is committed to the table `removals`. It is decided by the commit to
`events` that sets the transaction TRANSACTION to its number: that commit replaces the files which held the
rows, or it sets VOIDED too, and then the removal never happens. docs/signed_steps.md has the protocol.

    rows of a part in `events`  =  rows of its plan  -  rows of its removals up to the decided one

All functions but `removed_at`, `read_removals`, `commit_removal` and `replace_records` are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_facts import facts_of
from tidemark.warehouse.delta.table_names import PROPERTY_PREFIX, REMOVALS
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import StepPlan

TRANSACTION, VOIDED = "tidemark.removed", "tidemark.voided"  # of `events`: the newest number of each
FEATURE = "signed"  # the name of the feature of warehouses with removals, see settings/features.py
NONE = -1  # the number before the first removal

Kind: TypeAlias = Literal["delete", "unload", "correct", "expire"]


SCHEMA = pa.schema(
    [
        ("removal", pa.int64()),
        ("kind", pa.string()),
        ("step", pa.int64()),
        ("source", pa.string()),
        ("first_batch", pa.int64()),
        ("last_batch", pa.int64()),
        ("rows", pa.int64()),
        ("kept", pa.bool_()),
        ("file", pa.string()),
        ("request", pa.string()),
        ("planned_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class RemovedPart:
    """How many rows were removed of `batches`, a part of the plan of `step`, as the plan has it.

    The number is negative for the batch of a correction: its plan has no row, and these rows came.
    """

    step: int
    batches: BatchRange
    rows: int


@dataclass(frozen=True, slots=True)
class Removal:
    """The record of a removal.

    kept      whether its file has the removed rows, for readers to subtract; else runs are built again, and
              so is a run that gets rows by a correction
    file      its file in the table `removed`
    request   the caller's name of the call; None without one
    """

    number: int
    kind: Kind
    parts: tuple[RemovedPart, ...]
    kept: bool
    file: str
    request: str | None = None

    @property
    def rows(self) -> int:
        """How many rows were removed."""
        return sum(max(0, part.rows) for part in self.parts)

    @property
    def rows_in(self) -> int:
        """How many rows came in their place."""
        return sum(max(0, -part.rows) for part in self.parts)

    def keeps(self, first: int, last: int) -> bool:
        """Whether a run of the steps first..last may keep removed rows: it is to get none by the removal."""
        return self.kept and not any(part.rows < 0 and first <= part.step <= last for part in self.parts)

    @property
    def steps(self) -> frozenset[int]:
        """The steps of which rows were removed, or that got rows by a correction."""
        return frozenset(part.step for part in self.parts if part.rows)


def decided(events: DeltaTable) -> int:
    """The newest removal that is decided, or void, at this version of `events`; NONE without removals."""
    return tables.newest_transaction(events, TRANSACTION) if is_signed(events) else NONE


def voided(events: DeltaTable) -> int:
    """The newest removal that is void at this version of `events`; NONE if none ever was."""
    if decided(events) == NONE:  # a void one is decided, too
        if is_signed(events):
            facts_of(events).newest[VOIDED] = None
        return NONE
    return tables.newest_transaction(events, VOIDED)


def is_signed(events: DeltaTable) -> bool:
    """Whether rows may have been removed at this version. If not, the log need not be searched."""
    return f'"{FEATURE}"' in (events.metadata().configuration.get(f"{PROPERTY_PREFIX}features") or "")


def open_removal(removals: Iterable[Removal], decided: int) -> Removal | None:
    """The removal that is planned and not decided; None if there is none."""
    return next((one for one in removals if one.number > decided), None)


def next_number(removals: Iterable[Removal], decided: int) -> int:
    """The number of the next removal; numbers of void removals are not used again."""
    return max([decided, *(one.number for one in removals)]) + 1


@dataclass(frozen=True)
class Removed:
    """The state of removals at a version of `events`: the newest number, and the removals that happened.

    damage   why some of the removals are not known
    """

    number: int = NONE
    removals: tuple[Removal, ...] = ()
    damage: str | None = None

    @classmethod
    def of(cls, removals: Sequence[Removal], decided: int, voided: int) -> Removed:
        """By the records, and the numbers of `events`; DamagedWarehouse if one is missing."""
        return cls.seen(removals, decided, voided).check()

    @classmethod
    def seen(cls, removals: Sequence[Removal], decided: int, voided: int) -> Removed:
        """As `of`, but `damage` says what is missing."""
        missing = {*range(voided + 1, decided + 1)}.difference(one.number for one in removals)
        damage = None
        if missing:
            damage = (
                f"the log of the table {REMOVALS} is behind the others: it lacks removal {min(missing)}, but "
                f"the table events has {decided}. It was copied while others wrote, cut off, or put back to "
                "an earlier version. Put back the newest one: it alone knows which rows left."
            )
        happened = tuple(one for one in removals if one.number <= decided and one.number != voided)
        return cls(decided, happened, damage)

    def check(self) -> Removed:
        """Returns itself; DamagedWarehouse if some of the removals are not known."""
        if self.damage is not None:
            raise DamagedWarehouse(self.damage)
        return self

    def up_to(self, number: int) -> Removed:
        """The state when this number was the newest."""
        return Removed(number, tuple(one for one in self.removals if one.number <= number))

    def parts(self, parts: Mapping[BatchRange, int]) -> dict[BatchRange, int]:
        """How many rows of parts of plans remain."""
        gone = Counter[BatchRange]()
        for removal in self.removals:
            for part in removal.parts:
                gone[part.batches] += part.rows
        return {batches: rows - gone[batches] for batches, rows in parts.items()}

    def rows(self, plans: Iterable[StepPlan]) -> int:
        """How many rows of steps remain."""
        return sum(self.parts({part: rows for plan in plans for part, rows in plan.parts}).values())

    def rows_by_step(self, plans: Iterable[StepPlan]) -> Counter[int]:
        """How many rows of each step remain."""
        plans = list(plans)
        remaining = self.parts({part: rows for plan in plans for part, rows in plan.parts})
        return Counter({plan.step: sum(remaining[part] for part in plan.batches) for plan in plans})

    def of_request(self, request: str | None) -> Removal | None:
        """The removal whose call had this name; None for a call without one, or if there is none."""
        return next((one for one in self.removals if request and one.request == request), None)

    def as_came(self, parts: Mapping[BatchRange, int]) -> dict[BatchRange, int]:
        """How many rows of parts of plans came, by their plans and by corrections."""
        came = Counter[BatchRange]()
        for one in self.removals:
            for part in one.parts:
                came[part.batches] += max(0, -part.rows)
        return {batches: rows + came[batches] for batches, rows in parts.items()}

    def pending(self, first: int, last: int, net_of: int) -> list[Removal]:
        """The removals whose rows a run of the steps first..last still has, as it lacks those up to `net_of`.

        O(log n) for runs that have none, which are most.
        """
        steps, numbers = self._newest
        start, stop = steps.searchsorted(first), steps.searchsorted(last, "right")
        if start == stop or numbers[start:stop].max() <= net_of:
            return []
        later = (one for one in self.removals if one.number > net_of)
        return [one for one in later if any(first <= step <= last for step in one.steps)]

    def emptied(self, nets: Mapping[Any, int], left: Mapping[int, int]) -> frozenset[Any]:
        """The runs that count as runs without rows, because all rows of their files have left.

        nets   for each run the removal that it is net of (`run_tables.nets_of`)
        left   `rows_by_step`. A step that is not in it is not known, and may have rows
        """
        return frozenset(
            run
            for run, net_of in nets.items()
            if self.pending(run.first, run.last, net_of)
            and all(left.get(step) == 0 for step in range(run.first, run.last + 1))
        )

    def before(self, batches: Iterable[BatchRange]) -> int:
        """The newest removal that is older than every removal of rows of the batches."""
        near = [one for one in batches if one.first <= self._last_of_source.get(one.source, -1)]
        took = (
            one.number
            for one in self.removals
            if near and any(part.batches.overlaps(batch) for part in one.parts for batch in near)
        )
        return min(took, default=self.number + 1) - 1

    @cached_property
    def _last_of_source(self) -> dict[str, int]:
        """For each source the greatest batch of the parts with removed rows. Live batches are greater."""
        last: dict[str, int] = {}
        for one in self.removals:
            for part in one.parts:
                source, newest = part.batches.source, part.batches.last
                last[source] = max(newest, last.get(source, -1))
        return last

    @cached_property
    def _newest(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The steps of which rows were removed, ascending, and the newest removal of each."""
        newest = {step: one.number for one in self.removals for step in one.steps}
        steps = sorted(newest)
        return np.array(steps, np.int64), np.array([newest[step] for step in steps], np.int64)


NOTHING = Removed()


def removed_at(store: Store, events: DeltaTable) -> Removed:
    """The state of removals at the version of `events`, an opened table. Records are read if there are any.

    DamagedWarehouse if a record is missing.
    """
    number = decided(events)
    if number == NONE:
        return NOTHING
    (table,) = tables.find_tables(store, REMOVALS)
    return Removed.of(read_removals(store, table), number, voided(events))


def removals_of_rows(rows: pa.Table) -> list[Removal]:
    """The removals in rows of the table `removals`, by number."""
    ordered = rows.sort_by([("removal", "ascending"), ("step", "ascending"), ("source", "ascending")])
    names = [name for name in SCHEMA.names if name != "planned_at"]
    found: dict[int, list[dict[str, Any]]] = {}
    for row in ordered.select(names).to_pylist():
        found.setdefault(row["removal"], []).append(row)
    return [_removal(number, of_one) for number, of_one in found.items()]


def _removal(number: int, rows: Sequence[Mapping[str, Any]]) -> Removal:
    head = rows[0]
    parts = tuple(
        RemovedPart(
            row["step"], BatchRange(row["source"], row["first_batch"], row["last_batch"]), row["rows"]
        )
        for row in rows
    )
    return Removal(number, head["kind"], parts, head["kept"], head["file"], head["request"])


def rows_of_removals(removals: Iterable[Removal]) -> pa.Table:
    """The rows of the table `removals` for these, planned now."""
    now = datetime.now(UTC)
    rows = [
        {
            "removal": one.number,
            "kind": one.kind,
            "step": part.step,
            "source": part.batches.source,
            "first_batch": part.batches.first,
            "last_batch": part.batches.last,
            "rows": part.rows,
            "kept": one.kept,
            "file": one.file,
            "request": one.request,
            "planned_at": now,
        }
        for one in removals
        for part in one.parts
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def read_removals(store: Store, table: DeltaTable | None) -> list[Removal]:
    """All records, by number; none without a table. They are read once for a version of the table."""
    if table is None:
        return []
    made = facts_of(table).made
    if "removals" not in made:
        made["removals"] = removals_of_rows(data_files.read(store, REMOVALS, table))
    return [*made["removals"]]


def commit_removal(store: Store, race: Race, removal: Removal) -> bool:
    """Commits the record on top of the version of the race; whether it won."""
    rows, replaced = data_files.rows_and_replaced(store, REMOVALS, race.table, rows_of_removals([removal]))
    return race.commit(_actions(store, rows, replaced))


def _actions(store: Store, rows: pa.Table, replaces: Sequence[DataFile]) -> list[AddAction | RemoveAction]:
    """Writes a file with these records; the actions that put it in the place of others."""
    return data_files.append_actions(store, REMOVALS, rows, replaces, encoding=data_files.FEW_ROWS)


def replace_records(store: Store, renewed: Callable[[Removal], Removal | None]) -> None:
    """Puts another record, or none, in the place of each; a new one keeps the time of the old one's plan."""
    race = Race(store, REMOVALS)
    while True:
        files, rows = data_files.list_files(race.table), data_files.read(store, REMOVALS, race.table)
        old = removals_of_rows(rows)
        new = [one for one in map(renewed, old) if one is not None]
        if new == old:
            return
        planned = {row["removal"]: row["planned_at"] for row in rows.to_pylist()}
        told = [{**row, "planned_at": planned[row["removal"]]} for row in rows_of_removals(new).to_pylist()]
        table = pa.Table.from_pylist(told, schema=SCHEMA)
        if race.commit(_actions(store, table, files)):
            return
