"""The truth about a warehouse under attack: which rows were ever sent to it, and what may be seen of them.

A `Truth` knows the rows of every batch, and which of them have left. A batch that is on its way may be seen
or not, as a whole; one that has arrived must be seen; and so with rows that leave. So the totals that a
reader may see are those of some states, and every answer must be certified for exactly the rows of one of
them. What was seen as there, or as gone, stays so.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.crash.batches import (
    KINDS,
    MEASURES,
    OPTIONS,
    PAIR,
    Mark,
    column,
    rows_by_batch,
    rows_of,
    sorted_numbers,
)
from tests.query.answers import several
from tidemark import query
from tidemark.warehouse import SnapshotReader, open_snapshot, verify
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.runs import run_tables

PHIS = (0, 0.001, 0.07, 0.25, 0.5, 0.75, 0.9, 0.97, 0.999, 1)


@dataclass(frozen=True)
class Seen:
    """What a reader saw at one moment: one measure's counts, and the answers given with them.

    `rows` is None where the reader met an error, told by `error`.
    """

    measure: str
    rows: int | None
    nans: int = 0
    nulls: int = 0
    m: int = 0
    answers: tuple[Any, ...] = ()
    error: str = ""
    fresh: bool = False  # by a reader opened for this question alone


@dataclass(frozen=True)
class Change:
    """What comes and what goes at one moment."""

    come: frozenset[Mark] = frozenset()
    go: frozenset[Mark] = frozenset()


State: TypeAlias = frozenset[Mark]
Place: TypeAlias = tuple[int, ...]  # a number that grows, then how far each sequence of changes is


@dataclass
class Truth:
    """What has arrived, and by total the states that may have been seen, each with its place."""

    arrived: State = frozenset()
    legal: dict[int, dict[State, Place]] = field(default_factory=lambda: {0: {frozenset(): (0, 0)}})
    rounds: int = 0  # how often rows may have left

    def coming(self, *numbers: int) -> None:
        """From now on these batches may be seen; each as a whole."""
        new = set(numbers) - self.arrived
        self.rounds += self.rounds > 0
        for count in range(len(new) + 1):
            for some in itertools.combinations(sorted(new), count):
                self._may_be_seen(self.arrived | set(some))

    def coming_in_order(self, *sequences: Sequence[int]) -> None:
        """From now on these batches may be seen; each as a whole, after those before it in its sequence."""
        for counts in itertools.product(*(range(len(sequence) + 1) for sequence in sequences)):
            some = (sequence[:count] for sequence, count in zip(sequences, counts, strict=True))
            self._may_be_seen(self.arrived.union(*some))

    def changing(self, *sequences: Sequence[Change]) -> None:
        """From now on these changes may be seen; each as a whole, after those before it in its sequence."""
        self.rounds += 1
        for counts in itertools.product(*(range(len(sequence) + 1) for sequence in sequences)):
            state = self.arrived
            for sequence, count in zip(sequences, counts, strict=True):
                for one in sequence[:count]:
                    state = (state - one.go) | one.come
            self._may_be_seen(state, (self.rounds, *counts))

    def _may_be_seen(self, state: State, place: Place | None = None) -> None:
        rows = rows_of(state)
        same = self.legal.setdefault(rows, {})
        same.setdefault(state, place or (self.rounds, rows))
        assert len(same) == 1 or self.rounds, "two sets of batches have equally many rows"

    def have_arrived(self, *numbers: int) -> None:
        """From now on these batches must be seen."""
        self.coming(*numbers)
        self.arrived |= set(numbers)

    def have_changed(self, *sequences: Sequence[Change]) -> None:
        """From now on these changes must be seen."""
        for one in itertools.chain(*sequences):
            self.arrived = (self.arrived - one.go) | one.come

    def copy(self) -> Truth:
        """The truth of a copied warehouse."""
        return Truth(self.arrived, {rows: dict(same) for rows, same in self.legal.items()}, self.rounds)


def problems(seen: Iterable[Seen], truth: Truth) -> list[str]:
    """Every way in which a reader's journal differs from what it could truly have seen."""
    found: list[str] = []
    before: dict[tuple[str, bool], list[Place]] = {}
    for one in seen:
        if one.rows is None:
            found.append(f"{one.measure}: {one.error}")
            continue
        states = truth.legal.get(one.rows)
        if states is None:
            found.append(f"{one.measure}: {one.rows} rows, legal are {sorted(truth.legal)}")
            continue
        untrue = {state: _untrue(one, state) for state in states}
        right = [states[state] for state, texts in untrue.items() if not texts]
        if not right:
            found += next(iter(untrue.values()))
            continue
        earlier = before.get((one.measure, one.fresh), [(0, 0)])
        if any(follow := [place for place in right if any(_follows(place, than) for than in earlier)]):
            before[one.measure, one.fresh] = follow
        else:
            at = one.answers[0].as_of if one.answers else "a new reader"
            found.append(f"{one.measure}: fell from {earlier} to {right}, {one.rows} rows, at {at}")
    return found


def _follows(place: Place, than: Place) -> bool:
    """Whether a state may be seen after another one, or is as early."""
    if place[0] != than[0]:
        return place[0] > than[0]
    return all(a >= b for a, b in zip(place, than, strict=True))


def _untrue(one: Seen, state: State) -> list[str]:
    """What is untrue in what was seen, if the rows were those of the state."""
    values, nans, nulls = column(one.measure, state)
    found = []
    if one.rows and (one.nans, one.nulls) != (nans, nulls):
        found.append(f"{one.measure}: {one.nans} NaN and {one.nulls} NULL, true are {nans} and {nulls}")
    for answer in one.answers:
        found += [f"{one.measure}, {one.rows} rows: {text}" for text in _wrong(answer, values, nans, one.m)]
    return found


def _wrong(answer: Any, values: np.ndarray, nans: int, m: int) -> list[str]:
    """What is untrue in a quantile's answer. NaN ranks after every number."""
    every = len(values) + nans
    rank = max(1, math.ceil(Fraction(str(answer.phi)) * every))
    is_nan = answer.value != answer.value
    le = every if is_nan else int(np.searchsorted(values, answer.value, side="right"))
    lt = len(values) if is_nan else int(np.searchsorted(values, answer.value, side="left"))
    error = max(0, rank - le, lt + 1 - rank)
    exact = values[rank - 1] if rank <= len(values) else math.nan
    promise = {"quick": OPTIONS["eps"] * every, "accurate": OPTIONS["eps"] * m, "exact": 0}[answer.mode]
    said = f"{answer.mode} {answer.phi} is {answer.value}"
    checks = {
        f"{said}, its rank {le} is not in [{answer.rank_lo}, {answer.rank_hi}]": answer.rank_lo
        <= le
        <= answer.rank_hi,
        f"{said}, an error of {error} rows, certified {answer.error_bound}": error <= answer.error_bound,
        f"{said}, certified {answer.error_bound} rows, promised {promise}": answer.error_bound <= promise,
        f"{said}, {exact} is not in [{answer.low}, {answer.high}]": _at_most(answer.low, exact)
        and _at_most(exact, answer.high),
    }
    return [text for text, holds in checks.items() if not holds]


def _at_most(low: Any, high: Any) -> bool:
    return bool(high != high or low <= high)  # noqa: PLR0124 - NaN is after every number


def wrong_at_rest(uri: str, truth: Truth) -> list[str]:
    """Every way in which a warehouse at rest differs from the rows that were sent to it."""
    report = verify(uri)
    found = [] if report.ok else [str(report)]
    if "run its load again" in str(report) or "run their load again" in str(report):
        found.append(f"a load is not finished: {report}")
    found += _wrong_events(uri, truth)
    asked = query.open(uri)
    for measure in MEASURES:
        view = asked._session.newest_view(measure)
        stored = sum(run.rows for run in view.runs)
        emptied = open_snapshot(uri).current().state.emptied(view.root)  # runs that count as empty
        runs = run_tables.runs_of(tables.open_table(asked.store, view.root))
        held = sum(file.rows for run in runs.keys() - emptied for file in runs[run])
        if held != stored:
            found.append(f"{measure}: the files of the runs hold {held} rows, their marks say {stored}")
        stored -= 0 if view.kept is None else len(view.kept.rows)
        values, nans, nulls = column(measure, truth.arrived)
        live = sum(row.rows - row.nans - row.nulls for row in view.live)
        if stored + live != len(values):
            found.append(f"{measure}: {stored} stored and {live} live values, true are {len(values)}")
        answers = tuple(asked.quantile(list(PHIS), measure, mode="exact")) if truth.arrived else ()
        for answer in answers:
            rank = max(1, math.ceil(Fraction(str(answer.phi)) * (len(values) + nans)))
            exact = values[rank - 1] if rank <= len(values) else math.nan
            if not np.array_equal(answer.value, exact, equal_nan=True):
                found.append(f"{measure}: quantile {answer.phi} is {answer.value}, true is {exact}")
        if answers and (answers[0].nans, answers[0].nulls) != (nans, nulls):
            found.append(
                f"{measure}: {answers[0].nans} NaN, {answers[0].nulls} NULL, true are {nans}, {nulls}"
            )
    if asked.keys:
        found += _wrong_keys(asked, truth)
    if asked._session.snapshot.options.group_names:
        found += _wrong_tuples(asked, truth) + _wrong_groups(asked, truth)
    return found


def _listed(wh: query.Warehouse, page: str) -> Any:
    """A page as lists of keys have it: its token, if the column is private."""
    options = wh._session.snapshot.options
    return query.token(page, options.fingerprint) if options.private else page


def _wrong_keys(wh: query.Warehouse, truth: Truth) -> list[str]:
    """Every way in which the keys differ from those of the rows that were sent."""
    counts: Counter[str] = Counter()
    for rows in rows_by_batch(truth.arrived):
        counts.update(rows.column("page").to_pylist())
    view = wh._session.newest_view(MEASURES[0])
    live = set(wh._session.newest_keys_view().batches)
    held = {row.batches for row in view.live}
    if live != held:
        return [f"keys: {live} are live, of the measures {held}"]
    answers = several(wh.frequency([*counts, "no such page"], mode="exact"))
    live_rows = sum(row.rows for row in view.live)
    told = (answers[0].n, answers[0].m, answers[0].nulls)
    true = (counts.total() - live_rows, live_rows, 0)
    if told != true:
        return [f"keys: rows of history, live and NULL are {told}, true are {true}"]
    wrong = {one.value: one for one in answers if not one.lo == one.count == one.hi == counts[one.value]}
    distinct = wh.distinct()  # all keys fit into the samples
    if not distinct.least == distinct.most == len(counts):
        return [f"keys: {distinct}, true are {len(counts)}"]
    present = {one.value for one in wh.persistent(1e-6)}  # in one slot at least
    if present != (true_keys := {_listed(wh, page) for page in counts}):
        return [f"keys: present are {present}, true are {true_keys}"]
    return [f"keys: counts are {wrong}"] if wrong else []


def _wrong_tuples(wh: query.Warehouse, truth: Truth) -> list[str]:
    """Every way in which a key of two columns differs from that of the rows that were sent."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for rows in rows_by_batch(truth.arrived):
        counts.update(zip(*(rows.column(name).to_pylist() for name in PAIR), strict=True))
    known = Counter({pair: rows for pair, rows in counts.items() if None not in pair})
    joined, squares = wh.self_join(key=PAIR), sum(rows * rows for rows in known.values())
    told = (joined.count, joined.N, joined.nulls)
    true = (squares, known.total(), counts.total() - known.total())
    if told != true:
        return [f"pairs: squares, rows and NULL are {told}, true are {true}"]
    often = known.most_common(9)
    answers = several(wh.frequency([pair for pair, _ in often], key=PAIR, mode="exact"))
    wrong = [one for one, (_, rows) in zip(answers, often, strict=True) if not one.lo == rows == one.hi]
    return [f"pairs: counts are {wrong}"] if wrong else []


def _wrong_groups(wh: query.Warehouse, truth: Truth) -> list[str]:
    """Every way in which the groups of one kind, and of a kind and page, differ from the rows' values."""
    if not truth.arrived:
        return []
    rows = pa.concat_tables(rows_by_batch(truth.arrived))
    measure, found = MEASURES[len(truth.arrived) % 2], list[str]()
    asked = [{"kind": kind} for kind in sorted(kind for kind in KINDS if kind is not None)]
    asked.append({"kind": "web", "page": "/1"})
    answers = list(several(wh.quantile(list(PHIS), measure, by="kind", mode="exact")))
    answers += several(wh.quantile(list(PHIS), measure, where=asked[-1], mode="exact"))
    told_groups = [answer.group for answer in answers[:: len(PHIS)]]
    if told_groups != asked:
        return [f"groups: {told_groups}, true are {asked}"]
    for at, group in enumerate(asked):
        inside = reduce(pc.and_, [pc.equal(rows.column(name), value) for name, value in group.items()])
        values, nans, nulls = sorted_numbers(rows.filter(inside).column(measure))
        for answer in answers[at * len(PHIS) : (at + 1) * len(PHIS)]:
            told = (answer.N, answer.nans, answer.nulls)
            if told != (len(values) + nans, nans, nulls):
                found.append(
                    f"group {group}: {told} rows, NaN, NULL, true are {len(values) + nans}, {nans}, {nulls}"
                )
            found += [f"group {group}: {text}" for text in _wrong(answer, values, nans, answer.m)]
    return found


def _wrong_events(uri: str, truth: Truth) -> list[str]:
    store = open_snapshot(uri).store
    events = tables.open_table(store, EVENTS)
    rows = data_files.read(store, EVENTS, events) if data_files.list_files(events) else None
    counts: list[int] = []
    if rows is not None:
        grouped = rows.group_by(["_source", "_batch"]).aggregate([([], "count_all")])
        counts = sorted(grouped.column("count_all").to_pylist())
    true = sorted(filter(None, (rows.num_rows for rows in rows_by_batch(truth.arrived))))
    return [] if counts == true else [f"events holds batches of {counts} rows, true are {true}"]


def look(snapshot: SnapshotReader, measure: str, *, fresh: bool = False) -> Seen:
    """What a snapshot's view holds, without asking for quantiles."""
    view = snapshot.current().view(measure)
    totals, kept = view.history_totals, view.kept
    nans = sum(int(one.nans.sum()) for one in totals) + sum(row.nans for row in view.live)
    nulls = sum(int(one.nulls.sum()) for one in totals) + sum(row.nulls for row in view.live)
    stored = sum(run.rows for run in view.runs) - (0 if kept is None else len(kept.rows))
    live = sum(row.rows - row.nans - row.nulls for row in view.live)
    return Seen(measure, stored + live + nans + nulls, nans, nulls, live, fresh=fresh)
