"""How many rows each batch has in `events`, beside how many came: what another tool took out or put in.

A batch's rows are never changed by tidemark. Where a load or an exact answer meets other rows than were
planned or streamed, or `verify` looks, this tells which batches they are of and which version of the
table has them still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest

import numpy as np
from numpy.typing import NDArray

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.store import EVENTS, LEDGER, Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.events.reader import BatchRange, EventRowGroups, count_rows, files_of_batches
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import RANGE

_TOLD = 5  # batches that a message names
_OTHERS = {"DELETE", "UPDATE", "MERGE", "TRUNCATE"}  # what no part of tidemark does to a table


@dataclass(frozen=True, slots=True)
class Changed:
    """A range of batches that had `came` rows and has `here`."""

    batches: BatchRange
    came: int
    here: int

    def __str__(self) -> str:
        if self.here < self.came:
            return f"{self.batches.text} lost {self.came - self.here} of its {self.came} rows"
        return f"{self.batches.text} has {self.here - self.came} more rows than the {self.came} that came"


def changed(store: Store, came: Mapping[BatchRange, int]) -> list[Changed]:
    """Where `events` has other rows, by the narrowest ranges that the ledger knows inside those given."""
    here = _Counts(store, came)
    told = _in_ledger(store, came) | dict(came)
    wrong = [Changed(one, rows, here.of(one)) for one, rows in told.items()]
    wrong = [one for one in wrong if one.came != one.here]
    wrong.sort(key=lambda one: (one.batches.source, one.batches.first, -one.batches.last))
    return [
        one
        for one, after in zip_longest(wrong, wrong[1:])
        if after is None or not after.batches.within(one.batches)
    ]


def told(store: Store, found: Iterable[Changed]) -> str:
    """What was changed in `events`, and what to do."""
    some = [str(one) for one in found]
    more = f", and {len(some) - _TOLD} more" if len(some) > _TOLD else ""
    which = "; ".join(some[:_TOLD]) + more or "no batch has another number of rows, but other rows"
    return f"rows of the table {EVENTS} were changed by another tool: {which}. {_remedy(store)}"


def not_those_that_came(store: Store, came: Mapping[BatchRange, int], said: str) -> DamagedWarehouse:
    """The error for rows of `events` that are not those that came; `said` tells where they were missed."""
    return DamagedWarehouse(f"{said}: {told(store, changed(store, came))}")


def _remedy(store: Store) -> str:
    """Which version of `events` has the rows, as far as the table's log says."""
    history = tables.open_table(store, EVENTS).history()  # the newest first
    newer = list(takewhile(lambda commit: commit.get("operation") != "RESTORE", history))
    others = [at for at, commit in enumerate(newer) if commit.get("operation") in _OTHERS]
    if not others:
        return "Restore the version of the table from before that, or put back what it had."
    before = newer[others[-1]]["version"] - 1
    did = f"Its version {before + 1} is a {newer[others[-1]]['operation']}"
    if any(commit.get("operation") == "WRITE" for commit in newer[: others[-1]]):
        return f"{did}, and rows came after it: append those that version {before} has and the table has not."
    return f"{did}: restore version {before}, with deltalake: DeltaTable(path).restore({before})."


class _Counts:
    """The rows of each batch of some ranges, by source."""

    def __init__(self, store: Store, ranges: Iterable[BatchRange]) -> None:
        wanted, filesystem = list(ranges), store.filesystem()
        found = files_of_batches(tables.open_table(store, EVENTS), wanted)
        counts = count_rows(filesystem, map(EventRowGroups.whole_file, found), wanted)
        self._sources: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        for source in {name for name, _ in counts}:
            mine = sorted((batch, count) for (name, batch), count in counts.items() if name == source)
            batches, rows = np.array(mine, dtype=np.int64).T
            self._sources[source] = batches, np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])

    def of(self, one: BatchRange) -> int:
        """The rows of a range."""
        if one.source not in self._sources:
            return 0
        batches, before = self._sources[one.source]
        first, stop = np.searchsorted(batches, [one.first, one.last + 1])
        return int(before[stop] - before[first])


def _in_ledger(store: Store, came: Iterable[BatchRange]) -> dict[BatchRange, int]:
    """What the ledger says of the ranges inside these."""
    wanted: dict[str, list[BatchRange]] = {}
    for one in came:
        wanted.setdefault(one.source, []).append(one)
    held = ledger_table.ranges_by_file(store, tables.open_table(store, LEDGER))
    ranges = chain.from_iterable(held.values())
    inside = [one for one in ranges if any(one.within(whole) for whole in wanted.get(one.source, ()))]
    if not inside:
        return {}
    return ledger_table.row_counts(ledger_table.read_rows(store, held, inside, [*RANGE, "rows"]))
