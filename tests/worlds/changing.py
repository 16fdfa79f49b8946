"""A random world from which rows leave: removals, corrections and restores, kills, and two calls at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import acts, renames
from tests.worlds.acts import OF, Act, Maker, Refused, Rows, batch_of
from tests.worlds.rows import DAY, DAYS, DRAWN, FIRST, Row, cut, plain
from tests.worlds.world import Killed, World
from tidemark import query, warehouse
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.errors import BatchMismatch, InputError
from tidemark.warehouse.events.removals import removed_at
from tidemark.warehouse.settings.options import read_options

Batch = tuple[str, int]


@dataclass
class ChangingWorld(World):
    """See the module, and `World`.

    given, sent   the rows of bulk loads, and of batches of streams, as they came last
    bulk          of each bulk batch by its name, its newest generation
    unloads       how often each name was unloaded
    came          the rows of each batch as it came
    removed       what left by removals that can be undone
    moments       times at which the world had these rows
    horizon       the moment before which rows have expired
    newest_removal
                  the greatest number of a removal
    """

    given: dict[str, list[Row]] = field(default_factory=dict)
    sent: dict[Batch, list[Row]] = field(default_factory=dict)
    bulk: dict[str, int] = field(default_factory=dict)
    unloads: Counter[str] = field(default_factory=Counter)
    came: dict[Batch, int] = field(default_factory=dict)
    removed: dict[int, list[Row]] = field(default_factory=dict)
    moments: list[tuple[datetime, list[Row], list[Row]]] = field(default_factory=list)
    horizon: datetime | None = None
    newest_removal: int = -1
    numbers: Iterator[int] = field(default_factory=count)

    # -- what acts ask and tell ------------------------------------------------------------------

    def is_there(self, name: str) -> bool:
        """Whether the bulk batch with this name was not unloaded."""
        return self.bulk[name] == self.unloads[name]

    def tagged(self, rows: Sequence[Row], batch: Batch) -> list[Row]:
        """The rows as those of a batch."""
        return [{**row, OF: batch} for row in rows]

    def value_of(self, name: str) -> Any:
        """A value of a column: that of a row, or one that maybe no row has."""
        found = [row[name] for row in self.rows if row[name] is not None]
        if found and self.chance.random() < 0.8:
            return self.chance.choice(found)
        return DRAWN[self.columns.types[name]](self.chance)

    def moment(self) -> datetime:
        """That of a row, or another one."""
        found: list[datetime] = [row["t"] for row in self.rows if row["t"] is not None]
        whole = FIRST + self.chance.randrange(DAYS) * DAY
        return self.chance.choice((*found[:1], whole, whole + timedelta(hours=5)))

    def have_purged(self) -> None:
        """Nothing that left comes back, and no earlier moment can be opened."""
        self.removed.clear()
        self.moments.clear()

    def have_measures(self, measures: str) -> None:
        """These are the measures; readers of before are asked no more."""
        self.measures = measures
        self.forget_readers()

    def have_dropped(self, declared: list[tuple[str, ...]], columns: tuple[str, ...]) -> None:
        """A key or a group is gone."""
        declared.remove(columns)
        self.forget_readers()

    def have_types(self, types: Mapping[str, str]) -> None:
        """Columns have these types; new ones are NULL in the rows that there are."""
        self.columns = replace(self.columns, types={**self.columns.types, **types})
        known = [self.rows, *self.removed.values(), *self.given.values(), *self.sent.values()]
        for row in (row for rows in known for row in rows):
            for name in types:
                row.setdefault(name, None)
        self.forget_readers()

    def forget_readers(self) -> None:
        """What was opened before is asked no more."""
        self.readers, self.moments = [], []

    # -- operations ------------------------------------------------------------------------------

    def step(self) -> str:
        """Carries out a random operation, and says which; then all holds."""
        operations: dict[Callable[[], None], int] = {
            self._append: 3,
            self._act: 16,
            self._two_at_once: 5,
            self._drain: 1,
            self._replay: 2,
            self._replay_with_other_rows: 1,
            self._maintain: 1,
            self._sweep: 1,
            self._alter: 1,
            self._evolve: 1,
            self._pin: 1,
            self._look_back: 1,
            self._copy: 1,
            self._repair: 1,
        }
        chosen = self._append
        if self.rows:
            (chosen,) = self.chance.choices([*operations], [*operations.values()])
        self.done.append(chosen.__name__)
        chosen()
        if self.rows or self.came:
            self.check()
            self.moments = [*self.moments[-2:], (datetime.now(UTC), self.history[:], self.live[:])]
        return str(chosen.__name__)

    def _append(self) -> None:
        before, known = len(self.live), set(self.batches)
        super()._append()
        (batch,) = set(self.batches) - known
        for row in self.live[before:]:
            row[OF] = batch
        self.sent[batch] = self.live[before:]
        self.came[batch] = len(self.live) - before

    def _replay(self) -> None:
        """Batches that lost rows are known as they came; what was unloaded stays out."""
        if self.sent and self.chance.random() < 0.5:
            batch = self.chance.choice(list(self.sent))
            assert self._send(*batch, self.columns.table(self.sent[batch])) is False
        elif self.given:
            name = self.chance.choice(list(self.given))
            table = self.columns.table(self.given[name])
            if self.is_there(name):
                assert warehouse.load(None, self.uri, table, name).outcome == "known"
            else:
                with pytest.raises(BatchMismatch, match="was unloaded"):
                    warehouse.load(None, self.uri, table, name)

    def _replay_with_other_rows(self) -> None:
        if self.sent:
            batch, rows = self.chance.choice(list(self.sent.items()))
            others = self.columns.rows(self.chance, self.chance.randrange(1, 4))
            with pytest.raises(InputError):
                self._send(*batch, self.columns.table([*rows, *others]))

    @property
    def makers(self) -> dict[Maker, int]:
        """What makes acts, and how often."""
        return {
            acts.delete: 4,
            acts.unload: 2,
            acts.expire: 1,
            acts.correct: 4,
            acts.restore: 3,
            acts.alter: 2,
            acts.load: 4,
            renames.rename: 1,
        }

    def _drawn(self) -> Act | None:
        makers = self.makers
        (maker,) = self.chance.choices([*makers], [*makers.values()])
        return maker(self)

    def _act(self) -> None:
        """One act; of three times once it is killed, and whoever writes next goes on."""
        act = self._drawn()
        if act is None:
            return
        self.done.append(act.name)
        rows: Rows = (self.history, self.live)
        if self.chance.random() < 0.33 and (reached := self._killed(act)) is not None:
            self.done.append(f"killed at {reached[-1]}")
            if not act.again and self.chance.random() < 0.5:
                warehouse.load(None, self.uri)
                history, live = act.effect(rows) if "removal planned" in reached else rows
                self._have([act] if "removal planned" in reached else [], (history + live, []))
                if "horizon raised" in reached and "removal planned" not in reached:
                    act.done()
                return
        act.run(None)
        self._have([act], act.effect(rows))

    def _killed(self, act: Act) -> list[str] | None:
        """The points that it reached until a random one ended it; None if it came to its end."""
        left, reached = self.chance.randrange(1, 25), list[str]()

        def kill(point: str) -> None:
            reached.append(point)
            if len(reached) == left:
                raise Killed

        try:
            act.run(kill)
        except Killed:
            return reached
        return None

    def _have(self, done: Sequence[Act], rows: Rows) -> None:
        """The rows after these acts; what left by the newest removal may come back."""
        before = self.rows
        self.history, self.live = rows
        store = Store.from_uri(self.uri)
        records = removed_at(store, tables.open_table(store, EVENTS)).removals
        new = [one for one in records if one.number > self.newest_removal]
        self.newest_removal = max((one.number for one in records), default=-1)
        if len(done) == len(new) == 1 and new[0].kind in ("unload", "delete"):
            left = set(map(id, self.rows))
            gone = [row for row in before if id(row) not in left]
            assert new[0].rows == len(gone)
            if gone:
                self.removed[new[0].number] = gone
        for act in done:
            act.done()

    def _two_at_once(self) -> None:
        """One act is at work when another one comes: the rows are those of one after the other."""
        pair = [self._drawn(), self._drawn()]
        first, second = pair
        if first is None or second is None or first.name.split()[0] == second.name.split()[0]:
            return
        kinds = {first.name.split()[0], second.name.split()[0]}
        if "rename" in kinds or second.name == "rotate":  # what is drawn has the names of before
            return
        if "restore" in kinds and kinds & {"purge", "rotate"}:
            return
        at, reached, refused = self.chance.randrange(1, 20), list[str](), set[str]()

        def overtake(point: str) -> None:
            reached.append(point)
            if len(reached) == at:
                refused.update(_tried(second, None))

        refused.update(_tried(first, overtake))
        if len(reached) < at:
            refused.update(_tried(second, None))
        self.done.append(f"{first.name}, and at {reached[at - 1 :][:1]} {second.name}, refused {refused}")
        found = self.stored()
        for order in ((first, second), (second, first)):
            rows, refusals = _one_after_the_other(order, (self.history, self.live))
            if refusals == refused and _counted(self, rows[0] + rows[1]) == found:
                self._have([one for one in order if one.name not in refused], self._split(rows))
                return
        raise AssertionError("the rows are those of no order of the two")

    def _split(self, rows: Rows) -> Rows:
        """The rows, of which the live ones may have been loaded."""
        return rows if self._live_rows() == len(rows[1]) else (rows[0] + rows[1], [])

    def _sweep(self) -> None:
        """Maintenance without a grace: what left is not there any more."""
        warehouse.maintain(None, self.uri, grace="0s")
        self.removed.clear()
        self.forget_readers()

    def _evolve(self) -> None:
        """A load brings a column."""
        if "n" in self.columns.types:
            return
        self.have_types({"n": self.chance.choice(("int", "double", "text", "boolean"))})
        name = f"load {len(self.given)}"
        rows = self.tagged(self.columns.rows(self.chance, 6), batch_of(name))
        table = self.columns.table(rows)
        self._killed_at_times(
            lambda progress: warehouse.load(
                None, self.uri, cut(random.Random(0), table), name, evolve=True, progress=progress
            )
        )
        self.given[name], self.bulk[name], self.came[batch_of(name)] = rows, 0, len(rows)
        self.history = self.history + rows

    def _look_back(self) -> None:
        """A reader of an earlier moment."""
        if self.moments:
            moment, history, live = self.chance.choice(self.moments)
            self.readers = [*self.readers[-1:], (query.open(self.uri, at=moment), history, live)]

    def _copy(self) -> None:
        """The copy is the world from now on; it has no old files."""
        there = f"{self.uri}-copy"
        assert warehouse.copy(self.uri, there).verified
        self.uri, self.reader = there, query.open(there)
        self.removed.clear()
        self.moments.clear()

    def _repair(self) -> None:
        """A file of runs, marks or the ledger is damaged, and made again."""
        store = Store.from_uri(self.uri)
        names = [
            one for each in read_options(store).projections for one in (each.runs_table, each.marks_table)
        ]
        names = [name for name in (*names, LEDGER) if Path(self.uri, name).exists()]
        name = self.chance.choice(names)
        files = data_files.list_files(tables.open_table(store, name))
        if files:
            path = Path(self.uri, name, self.chance.choice(files).path)
            path.unlink() if self.chance.random() < 0.5 else path.write_bytes(b"PAR1")
        self.forget_readers()
        assert warehouse.repair(None, self.uri).outcome == ("repaired" if files else "sound")
        self.reader = query.open(self.uri)

    # -- what holds ------------------------------------------------------------------------------

    def check(self) -> None:
        """The rows are those of the list; every invariant holds, and the history adds up."""
        assert self.stored() == _counted(self, self.rows)
        assert self._live_rows() == len(self.live)
        report = warehouse.verify(self.uri)
        assert report.ok, str(report)
        left = Counter(row[OF] for row in self.history)
        total = 0
        for step in warehouse.history(self.uri):
            assert step.loaded
            own = [
                batch
                for source, first, last, _ in step.batches
                for batch in self.came
                if batch[0] == source and first <= batch[1] <= last
            ]
            assert step.rows_in == sum(self.came[batch] for batch in own), step
            assert step.rows_in - step.rows_out == sum(left[batch] for batch in own), step
            total += step.rows_in - step.rows_out
        assert total == len(self.history)

    def stored(self) -> Counter[Any]:
        """The rows of the table `events`, as plain values, and their numbers."""
        store = Store.from_uri(self.uri)
        events = tables.open_table(store, EVENTS)
        if not data_files.list_files(events):
            return Counter()
        names = read_options(store, events).names
        return _counted(self, names.of_table(data_files.read(store, EVENTS, events)).to_pylist())

    def _live_rows(self) -> int:
        if not self.rows:
            return 0  # the warehouse may have no columns yet
        session: Any = query.open(self.uri)._session
        measure = read_options(Store.from_uri(self.uri)).measure_names[0]
        return sum(row.rows for row in session.newest_view(measure).live)


def _tried(act: Act, progress: Callable[[str], None] | None) -> set[str]:
    """The name of the act if it is a correction that did not find its rows."""
    try:
        act.run(progress)
    except InputError as error:
        if "not in the warehouse" not in str(error):
            raise
        return {act.name}
    return set()


def _one_after_the_other(order: Sequence[Act], rows: Rows) -> tuple[Rows, set[str]]:
    refused = set[str]()
    for act in order:
        try:
            rows = act.effect(rows)
        except Refused:
            refused.add(act.name)
    return rows, refused


def _counted(world: World, rows: Sequence[Row]) -> Counter[Any]:
    names = world.columns.schema.names  # files from before a column came lack it
    return Counter(plain(tuple(row.get(name) for name in names)) for row in rows)
