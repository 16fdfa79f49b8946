"""Frequencies of keys: exact counts of history plus bounds of the live side.

    lo <= rows of the key <= hi        only the live side and partial ticks widen it, history is exact

    approximate   the live side by its sketches: |count - true| <= key_eps * m with probability 1 - key_delta
    exact         the live rows are counted in `events`; only history's part of a partial tick stays uncertain

Heavy hitters have no false negatives (candidates.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer, KeyFields, KeyScope
from tidemark.query.keys import key_scan
from tidemark.query.keys.candidates import count_candidates, find_candidates, row_bounds
from tidemark.query.keys.key_blocks import count_between, count_rows_between
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys, scope_fields
from tidemark.query.keys.key_scan import CountedNames
from tidemark.query.keys.scanned_parts import ScannedKey, ScannedParts
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Key, name_at, names_from
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.columns.ticks import ALL_TIME
from tidemark.warehouse.errors import InputError, shortened, whole_number

A = TypeVar("A")


Given = tuple[list[A], bool]  # the answers, and whether several values were given


def values_of(key: Key, given: Any) -> tuple[list[Any], bool]:
    """The given values of a key, and whether they came as a sequence, maybe of one value.

    A tuple is one value of a key of several columns.
    """
    several = is_sequence(given) and not (isinstance(given, tuple) and len(key.parts) > 1)
    return (list(given) if several else [given]), several


@dataclass(frozen=True, slots=True)
class Frequencies(WantedKeys[Given[FrequencyAnswer]]):
    """How many rows have each key. One round of reads; one or two blocks per key and run.

    value: see `values_of`; in any order, with repetitions. A key that no row can have counts 0.
    """

    bounds_silent: ClassVar[bool] = True

    value: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> Given[FrequencyAnswer]:
        """One answer per key, in their order."""
        (question,) = questions
        key, (values, several) = question.key, values_of(question.key, self.value)
        names = [key.name_of(value) for value in values]
        unique_names = sorted({name for name in names if name is not None})
        counts = count_candidates(question, names_from(key, unique_names))
        index = {name: i for i, name in enumerate(unique_names)}
        scope, answers = scope_fields(question), []
        for value, name in zip(values, names, strict=True):
            i = None if name is None else index.get(name)
            columns = (counts.estimate, counts.likely, counts.most, counts.whole)
            count, lo, hi, in_history = (0, 0, 0, 0) if i is None else (int(column[i]) for column in columns)
            count = min(max(count, lo), hi)
            answers.append(
                FrequencyAnswer(**scope, value=value, count=count, lo=lo, hi=hi, in_history=in_history)
            )
        return answers, several

    def of_scan(self, parts: ScannedParts) -> list[Given[FrequencyAnswer]]:
        """See `WantedKeys.of_scan`."""
        values, several = values_of(parts.key, self.value)
        return [
            ([FrequencyAnswer(**scope, **one.fields) for one in found], several)
            for scope, found in zip(parts.scopes, parts.rows_of(values), strict=True)
        ]

    def counts_of_scan(self, parts: ScannedParts) -> NDArray[Any] | None:
        """See `WantedKeys.counts_of_scan`."""
        values, _ = values_of(parts.key, self.value)
        if len(values) != 1:
            return None
        return np.array([one.rows for (one,) in parts.rows_of(values)], np.int64)


@dataclass(frozen=True, slots=True)
class HeavyHitters(WantedKeys[tuple[list[HitterAnswer], KeyScope]]):
    """All keys that have at least phi of the window's rows with a key, and keys that may have that many.

    Reads the blocks of candidates whose bounds differ. Scans all blocks if the marks' lists do not reach down
    to phi of the rows. Raises InputError unless 0 < phi <= 1.
    """

    bounds_silent: ClassVar[bool] = True

    phi: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[list[HitterAnswer], KeyScope]:
        """The keys, most rows first, and the scope of the question, as there may be none."""
        (question,) = questions
        least, certain_least = map(self._least, row_bounds(question))
        found = find_candidates(question, least)
        kept = np.flatnonzero(found.counts.most >= least)
        certain = found.counts.least >= certain_least
        return _hitter_answers(question, found, kept, certain), KeyScope(**scope_fields(question))

    def of_scan(self, parts: ScannedParts) -> list[tuple[list[HitterAnswer], KeyScope]]:
        """See `WantedKeys.of_scan`."""
        least = [self._least(scope["n"] + scope["m"]) for scope in parts.scopes]
        return _scanned_hitters(parts, parts.with_rows(least))

    def _least(self, rows: int) -> int:
        """The least number of rows of a key that is answered, of so many rows."""
        return least_of_share(self.phi, rows, "phi", "0.01 for keys with 1 % of the rows")


@dataclass(frozen=True, slots=True)
class Top(WantedKeys[tuple[list[HitterAnswer], KeyScope]]):
    """The k keys with the most rows; `certain` means that no omitted key can have more rows.

    The cost is that of `HeavyHitters`. Raises InputError unless k is a whole number of at least 1.
    """

    bounds_silent: ClassVar[bool] = True

    k: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[list[HitterAnswer], KeyScope]:
        """The keys, most rows first, and the scope of the question."""
        (question,) = questions
        whole_number("k", self.k, 1)
        found = find_candidates(question, None, self.k)
        counts = found.counts
        order = np.lexsort([np.arange(len(found.names)), -counts.estimate])
        kept, left_out = order[: self.k], order[self.k :]
        certain = counts.least >= int(counts.most[left_out].max(initial=found.omitted))
        return _hitter_answers(question, found, kept, certain), KeyScope(**scope_fields(question))

    def each_answers(
        self, asked: Sequence[Sequence[KeyQuestion]]
    ) -> list[tuple[list[HitterAnswer], KeyScope]]:
        """See `WantedKeys.each_answers`; of windows that share a quick scan, all are taken together."""
        questions = [question for (question,) in asked]
        scanned = questions[0].scanned if questions else None
        if scanned is None or not scanned.scan.is_quick:
            return [self.answers([question]) for question in questions]
        whole_number("k", self.k, 1)
        tops = scanned.scan.tops(self.k, questions[0].key)
        rows = scanned.scan.stored_rows
        return [
            _exact_hitters(scope_fields(question), tops[own.part], rows + question.live_totals.rows)
            for question in questions
            if (own := question.scanned) is not None
        ]

    def of_scan(self, parts: ScannedParts) -> list[tuple[list[HitterAnswer], KeyScope]]:
        """See `WantedKeys.of_scan`."""
        whole_number("k", self.k, 1)
        return _scanned_hitters(parts, parts.top(self.k))


def key_counts(question: KeyQuestion) -> list[tuple[Any, int]]:
    """Every key that has rows in a window of whole ticks, ascending, with its number of rows; a scan."""
    found = key_scan.names_with(question.rows(summed=True), 1)
    counts, value_of = found.counts.least.tolist(), question.key.value_of
    return [(value_of(name_at(found.names, i)), rows) for i, rows in enumerate(counts)]


@dataclass(frozen=True, slots=True)
class KeyRange(WantedKeys[CountAnswer]):
    """The rows with low <= key < high, None for an open side; live rows are counted in `events`."""

    low: Any
    high: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of rows."""
        (question,) = questions
        ends = [None if end is None else question.key.bound_of(end) for end in (self.low, self.high)]
        counts = [(share, count_between(history, *ends)) for history, share in question.histories]
        live = sum(count_rows_between(rows, ALL_TIME, *ends) for rows in question.live_rows())
        least = live + sum(rows for share, rows in counts if share == 1)
        most = live + sum(rows for _, rows in counts)
        estimate = least + round(sum(share * rows for share, rows in counts if share < 1))
        return CountAnswer(**scope_fields(question, exact=True), count=estimate, lo=least, hi=most)


@dataclass(frozen=True, slots=True)
class SelfJoin(WantedKeys[CountAnswer]):
    """The sum over all keys of the square of their rows; a scan of all keys, for all windows together."""

    counts_alone: ClassVar[bool] = True
    needs_squares: ClassVar[bool] = True

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of pairs."""
        (question,) = questions
        if question.scanned is not None:
            scan, part = question.scanned
            count = scan.second_moments.get(part, 0)
            return _bounded_answer(question, (count, count, count))
        return _bounded_answer(question, key_scan.second_moment(question.rows(summed=True)))

    def of_scan(self, parts: ScannedParts) -> Sequence[CountAnswer]:
        """See `WantedKeys.of_scan`."""
        return parts.answers(CountAnswer, dict.fromkeys(CountAnswer.COLUMNS, parts.second_moments))

    def counts_of_scan(self, parts: ScannedParts) -> NDArray[Any] | None:
        """See `WantedKeys.counts_of_scan`."""
        return parts.second_moments


@dataclass(frozen=True, slots=True)
class InnerProduct(WantedKeys[CountAnswer]):
    """The size of the join of two warehouses on their keys; a scan of all keys of both.

    question: the question about one of the warehouses; the answer has its scope.

    Raises InputError if the keys have different types.
    """

    question: KeyQuestion

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of pairs with the other one."""
        (other,), question = questions, self.question
        type_, other_type = question.view.key.type, other.view.key.type
        if type_ != other_type:
            raise InputError(f"keys of types {type_} and {other_type} do not join. Cast one of them.")
        return _bounded_answer(question, key_scan.inner_product(question.rows(), other.rows()))


def _bounded_answer(question: KeyQuestion, result: key_scan.BoundedEstimate) -> CountAnswer:
    low, estimate, high = result
    return CountAnswer(
        **scope_fields(question, exact=True), count=min(max(round(estimate), low), high), lo=low, hi=high
    )


def least_of_share(share: Any, n: int, name: str, example: str) -> int:
    """max(1, ceil(share * n)), computed exactly. Raises InputError unless the share is a number in (0, 1].

    name, example: the parameter's name and a value of it, for the error.
    """
    number = isinstance(share, (int, float, Fraction, Decimal)) and not isinstance(share, bool)
    # Not as floats: a number may be too large for them. Decimals that are not numbers cannot be compared.
    if not number or (isinstance(share, Decimal) and share.is_nan()) or not 0 < share <= 1:
        raise InputError(f"{name} must lie in (0, 1], got {shortened(share)}. Give {example}.")
    return max(1, math.ceil(Fraction(str(share)) * n))


def _hitter_answers(
    question: KeyQuestion, found: CountedNames, kept: Ints, certain: NDArray[np.bool_]
) -> list[HitterAnswer]:
    """One answer per kept name, most rows first; `kept` are indices of the names that were found."""
    key, scope, counts = question.key, scope_fields(question), found.counts
    least, most = counts.least, counts.most
    estimate = np.clip(counts.estimate, least, most)
    order = kept[np.lexsort([kept, -estimate[kept]])]
    return [
        HitterAnswer(
            **scope,
            value=key.value_of(name_at(found.names, i)),
            count=int(estimate[i]),
            lo=int(least[i]),
            hi=int(most[i]),
            in_history=int(counts.whole[i]),
            certain=bool(certain[i]),
            rows_scanned=found.rows_scanned,
        )
        for i in order.tolist()
    ]


def _exact_hitters(
    scope: KeyFields, found: Sequence[ScannedKey], rows_scanned: int | None
) -> tuple[list[HitterAnswer], KeyScope]:
    """The keys that a scan counted, and the scope."""
    common: dict[str, Any] = {**scope, "certain": True, "rows_scanned": rows_scanned}
    return [HitterAnswer(**common, **one.fields) for one in found], KeyScope(**scope)


def _scanned_hitters(
    parts: ScannedParts, found: Sequence[Sequence[ScannedKey]]
) -> list[tuple[list[HitterAnswer], KeyScope]]:
    """The keys that were found in each part, and the part's scope."""
    scopes = zip(parts.scopes, found, strict=True)
    return [_exact_hitters(scope, keys, scope["rows_scanned"]) for scope, keys in scopes]
