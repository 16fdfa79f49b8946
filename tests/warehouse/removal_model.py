"""A model of how rows leave (docs/signed_steps.md): tables as lists of versions, writers as generators.

A writer or reader yields wherever another one may go on, so before and after each commit. A kill is a
generator that is never asked again. Commits are compare-and-swap, as those of the real tables. Rows are
numbers; what a reader finds is compared with the rows that may be seen, each once.

`broken` names a step of the protocol that is left out or wrong, to show that the check needs it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

NONE, KAPPA = -1, 1
_END = object()
Steps = Iterator[None]


@dataclass(frozen=True)
class Events:
    """A version of `events`: the rows of each file, each with its batch."""

    files: dict[int, dict[int, int]] = field(default_factory=dict)
    removed: int = NONE
    voided: int = NONE


@dataclass(frozen=True)
class Record:
    number: int
    replaced: dict[int, int | None]
    rows: frozenset[int]
    steps: frozenset[int]
    kept: bool
    brings: int | None = None  # a file with rows that come
    to_step: int | None = None  # the step of these rows

    def keeps(self, run: Run) -> bool:
        """Whether the run may keep removed rows."""
        return self.kept and not (self.to_step is not None and run.first <= self.to_step <= run.last)


@dataclass(frozen=True)
class Run:
    first: int
    last: int
    level: int
    rows: tuple[int, ...]
    net_of: int
    attempt: int


class Torn(Exception):
    """A reader found a mixture that the protocol rules out."""


class World:
    def __init__(self, projections: int = 2, broken: str = "") -> None:
        self.events, self.disk = Events(), dict[int, dict[int, int]]()
        self.removals: tuple[Record, ...] = ()
        self.plans: tuple[int, ...] = ()  # the batch of each step
        self.runs: list[tuple[Run, ...]] = [() for _ in range(projections)]
        self.batches = dict[int, frozenset[int]]()  # the rows that were loaded
        self.batch_of = dict[int, int]()  # of each row, of corrections, too
        self.names, self.ids, self.broken = count(), count(), broken
        self.reads, self.seen = 0, [NONE] * projections  # by readers that have ended

    # -- what any process finds out --------------------------------------------------------------

    def valid(self, events: Events, removals: tuple[Record, ...]) -> list[Record]:
        return [one for one in removals if one.number <= events.removed and one.number != events.voided]

    def pending(self, run: Run, records: list[Record]) -> list[Record]:
        steps = range(run.first, run.last + 1)
        return [one for one in records if one.number > run.net_of and one.steps.intersection(steps)]

    def emptied(self, run: Run, records: list[Record]) -> bool:
        """Whether the run still has rows, but all of them have left by these records."""
        if not self.pending(run, records):
            return False
        batches = {self.plans[step] for step in range(run.first, run.last + 1)}
        gone = {row for one in records for row in one.rows}
        came = {row for batch in batches for row in self.batches[batch]}
        came |= {row for one in records for row in self._rows_in(one) if self.batch_of[row] in batches}
        return came <= gone

    def waiting(self, run: Run, records: list[Record]) -> list[Record]:
        """The removals for which the run has to be built again."""
        if self.emptied(run, records):
            return []
        return [one for one in self.pending(run, records) if not self.keeps(one, run)]

    def build(self, first: int, last: int, level: int, events: Events) -> Run:
        batches = {self.plans[step] for step in range(first, last + 1)}
        rows = [row for file in events.files.values() for row, batch in file.items() if batch in batches]
        net_of = events.removed
        if self.broken == "runs do not say what they are net of":
            net_of = NONE
        if self.broken == "the number is that of another version":
            net_of = self.events.removed
        return Run(first, last, level, tuple(rows), net_of, next(self.names))

    def last(self, place: int) -> int:
        return self.runs[place][-1].last if self.runs[place] else NONE

    def put(self, place: int, runs: list[Run]) -> None:
        """A commit to a runs table: a projection never goes back, and never shows a part of a removal."""
        records = self.valid(self.events, self.removals)
        before = self.state(self.runs[place], records, len(self.plans))
        self.runs[place] = tuple(sorted(runs, key=lambda run: run.first))
        after = self.state(self.runs[place], records, len(self.plans))
        if before is not None and (after is None or after < before):
            raise Torn("a commit brings rows back, or takes a part of them")

    # -- writers ---------------------------------------------------------------------------------

    def load(self, rows: int) -> Steps:
        batch, file = len(self.batches), next(self.names)
        self.batches[batch] = frozenset(next(self.ids) for _ in range(rows))
        content = dict.fromkeys(self.batches[batch], batch)
        self.batch_of |= content
        yield
        self.events = replace(self.events, files={**self.events.files, file: content})
        yield
        self.plans = (*self.plans, batch)
        yield
        yield from self.finish()

    def finish(self) -> Steps:
        for step in range(len(self.plans)):
            for place in range(len(self.runs)):
                if self.last(place) >= step:
                    continue
                events = self.events
                yield
                run = self.build(step, step, 0, events)
                yield
                if self.last(place) == step - 1:
                    self.put(place, [*self.runs[place], run])
                yield
        yield from self.finish_removal()
        for place in range(len(self.runs)):
            yield from self.merge(place)

    def keeps(self, record: Record, run: Run) -> bool:
        return record.kept if self.broken == "runs that get rows keep rows" else record.keeps(run)

    def correct(self, chosen: Callable[[int], bool], rows: int, *, kept: bool = False) -> Steps:
        """Some rows leave, others come: those of a batch whose step has no rows."""
        batch = len(self.batches)
        self.batches[batch] = frozenset()
        yield
        new = {next(self.ids): batch for _ in range(rows)}
        self.batch_of |= new
        yield from self.remove(chosen, kept=kept, new=new)

    def name(self, batch: int) -> Steps:
        """Plans the step of a batch without rows, and loads it everywhere."""
        if batch not in self.plans:
            self.plans = (*self.plans, batch)
        yield
        if self.broken != "the step is not loaded first":
            yield from self.finish()

    def remove(
        self, chosen: Callable[[int], bool], *, kept: bool, new: dict[int, int] | None = None
    ) -> Steps:
        while True:
            yield from self.finish()
            known, events, complete = self.removals, self.events, min(map(self.last, range(len(self.runs))))
            if self.open_record() or self.undone(self.valid(events, known)):
                continue
            yield
            step_of = {self.plans[step]: step for step in range(complete + 1)}
            gone = {
                row
                for file in events.files.values()
                for row, b in file.items()
                if b in step_of and chosen(row)
            }
            if not (gone or new):
                return
            replaced, steps = dict[int, int | None](), set[int]()
            for name, file in events.files.items():
                if gone.isdisjoint(file):
                    continue
                steps |= {step_of[file[row]] for row in gone.intersection(file)}
                left = {row: batch for row, batch in file.items() if row not in gone}
                replaced[name] = next(self.names) if left else None
                if (successor := replaced[name]) is not None:
                    self.disk[successor] = left
            yield
            brings, to_step = None, None
            if new:
                brings, batch = next(self.names), next(iter(new.values()))
                self.disk[brings] = new
                yield from self.name(batch)
                to_step = self.plans.index(batch)
                steps.add(to_step)
            if self.removals != known:
                continue
            number = (
                max([events.removed, self.events.removed, *(one.number for one in known)], default=NONE) + 1
            )
            record = Record(number, replaced, frozenset(gone), frozenset(steps), kept, brings, to_step)
            self.removals = (*known, record)
            yield
            yield from self.finish_removal()
            if record in self.removals:
                return

    def open_record(self) -> Record | None:
        return next((one for one in self.removals if one.number > self.events.removed), None)

    def undone(self, records: list[Record]) -> bool:
        return any(self.waiting(run, records) for runs in self.runs for run in runs)

    def keep_from_merges(self, record: Record) -> Steps:
        """Builds runs again that the removal empties, and that a merge may be reading."""
        for place, before in enumerate(self.runs):
            events = self.events
            yield
            after = [*self.valid(events, self.removals), record]
            levels = [run.level for run in before]
            old = [run for run in before if levels.count(run.level) > KAPPA and self.emptied(run, after)]
            new = [self.build(run.first, run.last, run.level, events) for run in old]
            yield
            is_late = any(run.net_of >= record.number for run in new)
            if self.broken == "runs that were built after the decision are put in place":
                is_late = False
            if old and not is_late and set(old) <= set(self.runs[place]):
                self.put(place, [*new, *(run for run in self.runs[place] if run not in old)])
            yield

    def finish_removal(self) -> Steps:
        record = self.open_record()
        forgets = self.broken == "a merge has the files of an emptied run"
        if record is not None and not record.kept and not forgets:
            yield from self.keep_from_merges(record)
        while record is not None and self.events.removed < record.number:
            events, files = self.events, dict(self.events.files)
            there = all(old in files for old in record.replaced)
            if there or self.broken == "files are not looked for":
                for old, new in record.replaced.items():
                    files.pop(old, None)
                    if new is not None:
                        files[new] = self.disk[new]
                if record.brings is not None and self.broken != "what comes has a commit of its own":
                    files[record.brings] = self.disk[record.brings]
                decided = replace(events, files=files, removed=record.number)
            else:
                decided = replace(events, removed=record.number, voided=record.number)
            yield
            if self.events is events:
                self.events = decided
            yield
            if self.broken == "what comes has a commit of its own" and decided.voided != decided.removed:
                files = {**self.events.files, **self._brought(record)}
                self.events = replace(self.events, files=files)
                yield
        self.removals = tuple(one for one in self.removals if one.number != self.events.voided)
        yield
        for place in range(len(self.runs)):
            yield from self.apply(place)

    def maintain(self) -> Steps:
        yield from self.finish_removal()
        for place in range(len(self.runs)):
            yield from self.apply(place, with_kept=True)

    def _brought(self, record: Record) -> dict[int, dict[int, int]]:
        return {} if record.brings is None else {record.brings: self.disk[record.brings]}

    def apply(self, place: int, *, with_kept: bool = False) -> Steps:
        wants = self.pending if with_kept else self.waiting
        while True:
            before, events = self.runs[place], self.events
            yield
            records = self.valid(self.events, self.removals)
            old = [run for run in before if wants(run, records)]
            if not old:
                return
            new = self.joined([self.build(run.first, run.last, run.level, events) for run in old])
            yield
            if not set(old) <= set(self.runs[place]):
                continue
            self.put(place, [*new, *(run for run in self.runs[place] if run not in old)])
            yield

    def joined(self, runs: list[Run]) -> list[Run]:
        """Neighbours of one level without rows become one run."""
        joined = list[Run]()
        for run in runs:
            before = joined[-1] if joined else None
            is_next = before is not None and (before.last + 1, before.level) == (run.first, run.level)
            is_empty = before is not None and not before.rows
            if self.broken != "a run with rows is joined":
                is_empty = is_empty and not run.rows
            joined.append(replace(joined.pop(), last=run.last) if is_next and is_empty else run)
        return joined

    def merge(self, place: int) -> Steps:
        before = self.runs[place]
        yield
        events = self.events
        yield
        records, planned = self.valid(events, self.removals), self.removals[-1:]
        if self.broken != "merges do not wait for the decision" and any(
            one.number > events.removed and not one.kept for one in planned
        ):
            return
        level = next((one for one in range(9) if sum(run.level == one for run in before) > KAPPA), None)
        if level is None:
            return
        inputs = [run for run in before if run.level == level]
        waits = [run for run in before if self.waiting(run, records)]
        if waits and self.broken != "merges do not wait":
            return
        first, last = inputs[0].first, inputs[-1].last
        with_rows = [run for run in inputs if not self.emptied(run, records)]
        if self.broken == "a merge takes emptied runs":
            with_rows = inputs
        has_kept = any(self.pending(run, records) for run in with_rows)
        if has_kept and self.broken not in {"a merge forgets kept rows", "a merge takes emptied runs"}:
            merged = self.build(first, last, level + 1, events)
        else:
            rows = tuple(row for run in with_rows for row in run.rows)
            merged = Run(first, last, level + 1, rows, events.removed, next(self.names))
        yield
        now = self.runs[place]
        if self.broken == "inputs are compared by name":
            names = {(run.first, run.last, run.level) for run in now}
            same = all((run.first, run.last, run.level) in names for run in inputs)
        else:
            same = set(inputs) <= set(now)
        if same:
            left = [run for run in now if not first <= run.first <= last]
            self.put(place, [*left, merged])
        yield

    def join_files(self) -> Steps:
        record = self.open_record()
        named = set(record.replaced) if record else set[int]()
        two = [name for name in self.events.files if name not in named][-2:]
        yield
        files = dict(self.events.files)
        if len(two) == 2 and all(name in files for name in two):
            joined = {row: batch for name in two for row, batch in files.pop(name).items()}
            self.events = replace(self.events, files={**files, next(self.names): joined})
        yield

    # -- readers ---------------------------------------------------------------------------------

    def read(self, place: int) -> Steps:
        began, seen = self.events.removed, self.seen[place]
        older = self.removals
        yield
        while True:
            if self.broken == "events is looked at before the runs":
                events = self.events
                yield
                runs = self.runs[place]
            else:
                runs = self.runs[place]
                yield
                events = self.events
            plans = self.plans
            yield
            known = older if self.broken == "the records are older than events" else self.removals
            records = self.valid(events, known)
            last = runs[-1].last if runs else NONE
            state = self.state(runs, records, last)
            if state is not None:
                break
            if self.runs[place] is runs:
                raise Torn("a removal is applied to a part of the runs")
            yield  # the runs were looked at too early
        self.check(runs, plans, events, records, state)
        assert events.removed >= began, "a removal that was decided is not seen"
        assert state >= seen, "rows that left are back"
        self.seen[place] = max(self.seen[place], state)
        self.reads += 1

    def state(self, runs: tuple[Run, ...], records: list[Record], last: int) -> int | None:
        """The newest removal that the runs, less the kept rows, are without; None if they are a mixture."""
        newest = max((one.number for one in records), default=NONE)
        if any(max(one.steps) > last for one in records):
            return None
        if not any(self.waiting(run, records) for run in runs):
            return newest
        record = next(one for one in records if one.number == newest)
        before = [one for one in records if one.number < newest]
        if any(self.waiting(run, before) for run in runs):
            return None
        touched = [
            run
            for run in runs
            if record.steps.intersection(range(run.first, run.last + 1))
            and not self.keeps(record, run)
            and not self.emptied(run, records)
        ]
        return None if any(run.net_of >= newest for run in touched) else newest - 1

    def check(
        self, runs: tuple[Run, ...], plans: tuple[int, ...], events: Events, records: list[Record], state: int
    ) -> None:
        if any(one.net_of > events.removed for one in runs):
            raise Torn("a run is net of a removal that events does not have")
        found = Counter[int]()
        shown = [one for one in records if one.number <= state]
        for run in runs:
            is_emptied = self.emptied(run, shown)
            if not is_emptied or self.broken == "an emptied run is counted":
                found.update(run.rows)
            if is_emptied and self.broken != "of an emptied run kept rows are subtracted":
                continue
            is_blind = self.broken == "kept rows are subtracted from runs that are net of them"
            for one in records if is_blind else self.pending(run, records):
                is_late = one.number > state and self.broken != "rows leave before others come"
                if one.kept and not is_late:
                    steps = {plans[step] for step in range(run.first, run.last + 1)}
                    if self.broken == "kept rows of other runs are subtracted, too":
                        steps = set(plans)
                    found.subtract(row for row in one.rows if self.batch_of[row] in steps)
        history = {plans[step] for run in runs for step in range(run.first, run.last + 1)}
        assert min(found.values(), default=0) >= 0, "a row is subtracted that is not there"
        came = {row for batch in history for row in self.batches[batch]}
        gone = {row for one in records if one.number <= state for row in one.rows}
        brought = {row for one in records if one.number <= state for row in self._rows_in(one)}
        assert +found == Counter((came | brought) - gone), "a projection"
        came |= {row for one in records for row in self._rows_in(one)}
        scanned = Counter(
            row for file in events.files.values() for row, batch in file.items() if batch in history
        )
        assert scanned == Counter(came - {row for one in records for row in one.rows}), "a scan"

    def _rows_in(self, record: Record) -> set[int]:
        return {row for file in self._brought(record).values() for row in file}

    def settle(self) -> None:
        """Runs what a load without rows does, then checks that nothing is left to do."""
        for _ in self.finish():
            pass
        records = self.valid(self.events, self.removals)
        assert self.open_record() is None
        assert not self.undone(records)
        for place in range(len(self.runs)):
            for _ in self.read(place):
                pass
            for a, b in pairwise(self.runs[place]):
                assert a.last + 1 == b.first


def play(choose: random.Random, broken: str = "", moves: int = 120) -> World:
    """Starts, advances and kills writers and readers in a drawn order; raises if one sees it go wrong."""
    world, running = World(broken=broken), list[Steps]()
    for _ in range(moves):
        draw = choose.random()
        if draw < _START and len(running) < _AT_ONCE:
            running.append(_drawn(world, choose))
        elif running and draw < _KILL:
            running.pop(choose.randrange(len(running)))
        elif running:
            one = choose.choice(running)
            if not all(_goes_on(one) for _ in range(choose.choice([1, 1, 2, 8]))):
                running.remove(one)
    world.settle()
    return world


_START, _KILL, _AT_ONCE = 0.12, 0.15, 6  # shares of the moves, and how many run at the same time


def _goes_on(one: Steps) -> bool:
    return next(one, _END) is not _END


def _drawn(world: World, choose: random.Random) -> Steps:
    """A writer or a reader."""
    kind, place = choose.randrange(8), choose.randrange(2)
    if kind == 1:
        modulus, kept = choose.randrange(1, 5), choose.random() < 0.6
        if choose.random() < 0.4:
            return world.correct(lambda row: row % modulus == 0, choose.randrange(3), kept=kept)
        return world.remove(lambda row: row % modulus == 0, kept=kept)
    if kind == 0:
        return world.load(choose.randrange(1, 4))
    makers = (world.join_files, world.finish, lambda: world.merge(place), world.maintain)
    return makers[kind - 2]() if kind < 2 + len(makers) else world.read(place)
