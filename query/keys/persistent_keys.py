"""Persistent keys: the keys that are present in a share of a window's slots, and the slots of single keys.

    lo <= slots in which the key has rows <= hi        always

    approximate   the live side from the ledger; history is exact, except in ticks that the window cuts
    exact         the live rows are read from `events`; only history's part of a cut tick stays uncertain

No persistent key is missed. A key that no listing has is in at most S slots, where S is the sum of

    for each run                  the smaller of its floor - 1 and of the number of slots with ticks that its
                                  listing does not have whole
    for each ledger row whose     1
    sample lacks keys

While S is below the wanted number of slots, the listed keys are the candidates. Otherwise, or if that is less
work, one scan counts the slots of all keys (counted_slots.py). A scan also counts while runs still have
removed rows, because listings have these, too.

Source: S. A. Singh, thesis (Iowa State, 2015), chapter 3, who samples pairs of key and slot. The runs have
these pairs sorted, so history needs no sample and has no error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import AnswerColumns, Column
from tidemark.query.answers.key_answers import KeyFields, KeyScope, KeyValues
from tidemark.query.answers.persistence_answers import PersistenceAnswer, PersistentAnswer
from tidemark.query.answers.plan import INDEX, SCAN, Way
from tidemark.query.keys.counted_slots import CountedSlots, count_slots
from tidemark.query.keys.frequencies import least_of_share, values_of
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys, scope_fields
from tidemark.query.keys.live_slots import MAYBE, PRESENT
from tidemark.query.keys.slot_presence import UNLIMITED, Evidence
from tidemark.query.keys.slots import Slots, slots_of
from tidemark.query.reading.windows import tick_range
from tidemark.warehouse.columns.codes import Ints, stable_order
from tidemark.warehouse.columns.keys import Names, name_at, names_from, take_names
from tidemark.warehouse.errors import whole_number

A = TypeVar("A")
CELLS = 2**24  # of names and slots that are in memory at once


Answered = tuple[Sequence[A], KeyScope]  # the answers, and the scope of the question, as there may be none


@dataclass(frozen=True, slots=True)
class Persistent(WantedKeys[Answered[PersistentAnswer]]):
    """The keys with rows in at least alpha of the slots, and at most `most` rows; most slots first.

    slot: see `slots_of`.

    Raises InputError unless 0 < alpha <= 1 and `most` is None or a whole number of at least 1.
    """

    slot: Any
    alpha: Any
    most: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> Answered[PersistentAnswer]:
        """The keys."""
        question, slots = _in_slots(questions, self.slot)
        least = least_of_share(self.alpha, slots.count, "alpha", "0.8 for keys in 80 % of the slots")
        if self.most is not None:
            whole_number("most", self.most, 1)
        scope = KeyScope(**_scope(question))
        if not slots.count:
            return [], scope
        evidence = Evidence.of(question, slots)
        names, unlisted = evidence.candidates(least)
        estimates = {SCAN: question.scan_cost()}
        if unlisted < least and not question.has_kept:
            runs = sum(source.slack > 0 for source in evidence.sources)
            estimates[INDEX] = question.lookups(len(names), runs)
        ways = _Ways(evidence, names, least, self._most_rows)
        found, rows_read = question.source.costs.answer("keys", ways, estimates)
        return self._answers(question, slots, least, found, rows_read), scope

    def _answers(
        self, question: KeyQuestion, slots: Slots, least: int, found: CountedSlots, rows_read: int
    ) -> Sequence[PersistentAnswer]:
        """The answers, most slots first and then by name; objects when somebody takes them."""
        estimate = _estimate(found.least, found.most, slots.count)
        order = stable_order(slots.count - estimate)
        certain = (found.least >= least) & (found.rows_most <= self._most_rows)
        columns = {"slots": estimate, "lo": found.least, "hi": found.most, "certain": certain}
        own: dict[str, Sequence[Any]] = {name: Column(column[order]) for name, column in columns.items()}
        own["value"] = KeyValues(question.key, take_names(found.names, order))
        common = {**_scope(question), "window_slots": slots.count, "rows_scanned": rows_read or None}
        return AnswerColumns(PersistentAnswer, own, {}, common, 1)

    @property
    def _most_rows(self) -> int:
        return UNLIMITED if self.most is None else min(self.most, UNLIMITED)


class _Ways(NamedTuple):
    """Each way to the keys with rows in `least` slots and at most `most_rows` rows.

    names: all that may be among them, by the evidence.
    """

    evidence: Evidence
    names: Names
    least: int
    most_rows: int

    def by(self, way: Way) -> tuple[CountedSlots, int]:
        """See `Ways.by`; also how many rows were read for it."""
        question, slots = self.evidence.question, self.evidence.slots
        if way == SCAN:
            rows = question.rows()
            found = count_slots(rows, slots, self.least, self.most_rows)
            return found, rows.stored_rows + question.live_totals.rows
        parts = [
            CountedSlots.of(self.evidence.presence(part, self.least, self.most_rows))
            for part in _in_parts(self.names, len(self.evidence.columns))
        ]
        return CountedSlots.joined(question.view.key, parts), 0


@dataclass(frozen=True, slots=True)
class Persistence(WantedKeys[tuple[Answered[PersistenceAnswer], bool]]):
    """For each value how many slots have rows with it, and which ones.

    slot: see `slots_of`. value: see `values_of`.
    """

    slot: Any
    value: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[Answered[PersistenceAnswer], bool]:
        """One per value, in their order, and whether several values were given."""
        question, slots = _in_slots(questions, self.slot)
        key, scope = question.key, _scope(question)
        values, several = values_of(key, self.value)
        names = [key.name_of(value) for value in values]
        unique = sorted({name for name in names if name is not None})
        evidence = Evidence.of_names(question, slots, names_from(key, unique))

        def answer(
            value: Any, numbers: Sequence[int], present: Any = (), maybe: Any = ()
        ) -> PersistenceAnswer:
            fields: dict[str, Any] = dict(zip(("slots", "lo", "hi"), numbers, strict=True))
            return PersistenceAnswer(
                **scope, **fields, value=value, window_slots=slots.count, present=present, maybe=maybe
            )

        answers: dict[Any, PersistenceAnswer] = {}
        for part in _in_parts(names_from(key, unique), len(evidence.columns)):
            found = evidence.presence(part)
            least, most = found.least, found.most
            numbers = np.stack([_estimate(least, most, slots.count), least, most], axis=1).tolist()
            for i, own in enumerate(numbers):
                times = (_slots(evidence, found.states[i] == state) for state in (PRESENT, MAYBE))
                name = name_at(found.names, i)
                answers[name] = answer(key.value_of(name), own, *times)
        given = [
            answer(value, (0, 0, 0)) if name is None else answers[name]
            for name, value in zip(names, values, strict=True)
        ]
        return (given, KeyScope(**scope)), several


def _in_slots(questions: Sequence[KeyQuestion], slot: Any) -> tuple[KeyQuestion, Slots]:
    """The question about its window without open sides, and the slots of the window."""
    (question,) = questions
    window, slots = slots_of(question.window, tick_range(question.view), slot, question.grid)
    return replace(question, window=window), slots


def _in_parts(names: Names, columns: int) -> Iterator[Names]:
    """The names in parts that have at most CELLS cells."""
    size = max(1, CELLS // max(1, columns))
    for first in range(0, len(names), size):
        yield take_names(names, np.arange(first, min(first + size, len(names))))


def _estimate(least: Ints, most: Ints, slots: int) -> Ints:
    """In an uncertain slot, a key is taken to be present as often as in the certain slots."""
    known = np.maximum(1, slots - (most - least))
    estimate: Ints = least + np.rint((most - least) * least / known).astype(np.int64)
    found: Ints = np.minimum(estimate, most)
    return found


def _scope(question: KeyQuestion) -> KeyFields:
    """The bounds are certain, so there is no error to promise."""
    return {**scope_fields(question), "eps": 0.0, "confidence": 1.0}


def _slots(evidence: Evidence, chosen: NDArray[np.bool_]) -> tuple[tuple[Any, Any], ...]:
    return tuple(evidence.slots.edges_of(number) for number in evidence.columns[chosen].tolist())
