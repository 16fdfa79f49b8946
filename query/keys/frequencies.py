"""Frequencies of keys: exact counts of history plus bounds of the live side.

    lo <= rows of the key <= hi        only the live side and partial ticks widen it, history is exact

    approximate   the live side by its sketches: |count - true| <= key_eps * m with probability 1 - key_delta
    exact         the live rows are counted in `events`; only history's part of a partial tick stays uncertain

Heavy hitters have no false negatives. A key that no run and no ledger row lists has at most the sum of their
(floor - 1) rows. If that sum is not below the requested number of rows, all keys are counted.
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

from tidemark.query.answers.key_answers import CountAnswer, FrequencyAnswer, HitterAnswer, KeyScope
from tidemark.query.answers.plan import INDEX, SCAN
from tidemark.query.keys import key_scan
from tidemark.query.keys.key_blocks import count_between, count_names, count_rows_between
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys, key_scope, scope_fields
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.keys.live_keys import LiveCounts
from tidemark.query.keys.scanned_parts import ScannedKey, ScannedParts
from tidemark.warehouse.columns.keys import (
    Key,
    Names,
    find_names,
    name_at,
    names_from,
    take_names,
    unify_names,
)
from tidemark.warehouse.columns.scalars import is_sequence
from tidemark.warehouse.columns.ticks import ALL_TIME, Window
from tidemark.warehouse.errors import InputError, whole_number
from tidemark.warehouse.projections.key_rows import KeyRows

Ints = NDArray[np.int64]

A = TypeVar("A")


@dataclass(frozen=True, slots=True, eq=False)
class _NameCounts:
    """The counts of names, which ascend; arrays of shape (k,).

    whole: rows in history's whole ticks, exact.
    partial_estimate: the estimated rows in history's partial ticks, by the covered share of each tick.
    partial_most: the most rows in history's partial ticks: those of the whole ticks.
    live: the live rows.
    """

    whole: Ints
    partial_estimate: NDArray[np.float64]
    partial_most: Ints
    live: LiveCounts

    @property
    def estimate(self) -> Ints:
        return np.rint(self.whole + self.partial_estimate + self.live.estimate).astype(np.int64)

    @property
    def least(self) -> Ints:
        """The certain lower bound."""
        return self.whole + self.live.least

    @property
    def likely(self) -> Ints:
        """A lower bound with probability 1 - delta."""
        return self.whole + self.live.likely

    @property
    def most(self) -> Ints:
        return self.whole + self.partial_most + self.live.most


Given = tuple[list[A], bool]  # the answers, and whether several values were given


def values_of(key: Key, given: Any) -> tuple[list[Any], bool]:
    """The values of a key that were given, and whether it is a sequence of them, maybe of one.

    A tuple is one value of a key of several columns.
    """
    several = is_sequence(given) and not (isinstance(given, tuple) and len(key.parts) > 1)
    return (list(given) if several else [given]), several


@dataclass(frozen=True, slots=True)
class Frequencies(WantedKeys[Given[FrequencyAnswer]]):
    """How many rows have each key. One round of reads; one or two blocks per key and run.

    value: see `values_of`; in any order, with repetitions. A key that no row can have counts 0.
    """

    value: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> Given[FrequencyAnswer]:
        """One answer per key, in their order."""
        (question,) = questions
        key, (values, several) = question.key, values_of(question.key, self.value)
        names = [key.name_of(value) for value in values]
        unique_names = sorted({name for name in names if name is not None})
        counts = _count_candidates(question, names_from(key, unique_names))
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
            (
                [FrequencyAnswer(**scope, **one.fields) for one in found],
                several,
            )
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

    phi: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[list[HitterAnswer], KeyScope]:
        """The keys, most rows first, and the scope of the question, as there may be none."""
        (question,) = questions
        least, certain_least = map(self._least, row_bounds(question))
        found = _candidates(question, least)
        kept = np.flatnonzero(found.counts.most >= least)
        certain = found.counts.least >= certain_least
        return _hitter_answers(question, found, kept, certain), key_scope(question)

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

    k: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[list[HitterAnswer], KeyScope]:
        """The keys, most rows first, and the scope of the question."""
        (question,) = questions
        whole_number("k", self.k, 1)
        found = _candidates(question, None, self.k)
        counts = found.counts
        order = np.lexsort([np.arange(len(found.names)), -counts.estimate])
        kept, left_out = order[: self.k], order[self.k :]
        certain = counts.least >= int(counts.most[left_out].max(initial=found.omitted))
        return _hitter_answers(question, found, kept, certain), key_scope(question)

    def of_scan(self, parts: ScannedParts) -> list[tuple[list[HitterAnswer], KeyScope]]:
        """See `WantedKeys.of_scan`."""
        whole_number("k", self.k, 1)
        return _scanned_hitters(parts, parts.top(self.k))


def key_counts(question: KeyQuestion) -> list[tuple[Any, int]]:
    """Every key that has rows in a window of whole ticks, ascending, with its number of rows; a scan."""
    counts = key_scan.name_counts(question.rows())
    return [(question.key.value_of(name), rows) for name, rows in counts]


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

    def answers(self, questions: Sequence[KeyQuestion]) -> CountAnswer:
        """The number of pairs."""
        (question,) = questions
        if question.scanned is not None:
            count = question.scanned.second_moment
            return _bounded_answer(question, (count, count, count))
        return _bounded_answer(question, key_scan.second_moment(question.rows()))

    def of_scan(self, parts: ScannedParts) -> list[CountAnswer]:
        """See `WantedKeys.of_scan`."""
        counts = zip(parts.scopes, parts.second_moments.tolist(), strict=True)
        return [CountAnswer(**scope, count=count, lo=count, hi=count) for scope, count in counts]

    def counts_of_scan(self, parts: ScannedParts) -> NDArray[Any] | None:
        """See `WantedKeys.counts_of_scan`."""
        return parts.second_moments


@dataclass(frozen=True, slots=True)
class InnerProduct(WantedKeys[CountAnswer]):
    """The size of the join of two warehouses on their keys; a scan of all keys of both.

    question: about one of them, whose scope the answer has.

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

    name, example: of the parameter, for the error.
    """
    number = isinstance(share, (int, float, Fraction, Decimal)) and not isinstance(share, bool)
    # Not as floats: a number may be too large for them. Decimals that are not numbers cannot be compared.
    if not number or (isinstance(share, Decimal) and share.is_nan()) or not 0 < share <= 1:
        raise InputError(f"{name} must lie in (0, 1], got {share!r}. Give {example}.")
    return max(1, math.ceil(Fraction(str(share)) * n))


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Names that ascend, their counts, and the most rows of a name that is not among them.

    rows_scanned: the rows that were read to count all names; None if the marks list enough of them.
    """

    names: Names
    counts: _NameCounts
    omitted: int
    rows_scanned: int | None


def _candidates(question: KeyQuestion, least: int | None, k: int = 0) -> _Candidates:
    """Names that include every name with `least` rows, or the k most frequent ones, and their counts.

    least: None for the k most frequent names.
    """
    if question.scanned is not None and question.scanned.is_quick:
        return _scanned(question, least, k)
    listed = question.source.listed(question.history(question.window.overlapping))
    names, _ = unify_names([listed.names, question.live.names])
    low, high = _bounds_of_lists(question, listed, names)
    wanted = least
    if wanted is None:
        # If k names certainly have this many rows, a name with fewer is not among the k most frequent.
        wanted = int(np.partition(low, -k)[-k]) if len(low) >= k else 0
    if listed.unlisted_max + question.live.unlisted_max >= wanted:
        return _scanned(question, least, k)
    possible = np.flatnonzero(high >= wanted)
    names, in_history = take_names(names, possible), high[possible] - question.live.listed(names)[1][possible]
    known = None if question.window.partial_ticks else _exact_in_history(listed, names)
    unknown = len(names) if known is None else int((known < 0).sum())
    together = 1 if question.scanned is None else question.scanned.together
    estimates = {INDEX: question.lookups(unknown), SCAN: question.scan_cost / together}
    for attempt in question.source.costs.attempts("keys", estimates):
        with attempt:
            if attempt.way == SCAN:
                return _scanned(question, least, k)
            kept = np.flatnonzero(in_history + question.live.count(names).most >= wanted)
            names = take_names(names, kept)
            counts = _count_candidates(question, names, None if known is None else known[kept])
            return _Candidates(names, counts, 0, None)
    raise AssertionError("no way answered")


def _scanned(question: KeyQuestion, least: int | None, k: int) -> _Candidates:
    """As `_candidates`, by a scan of all rows of keys in the window, also of live ones."""
    source = question.scanned
    if source is not None:
        found = source.top(k) if least is None else source.names_with(least)
        stored = source.scan.stored_rows
    else:
        rows = question.rows()
        found = key_scan.top_names(rows, k) if least is None else key_scan.names_with(rows, least)
        stored = rows.stored_rows
    live = LiveCounts.exact(found.live)
    counts = _NameCounts(found.whole, found.partial_estimate, found.partial_most, live)
    return _Candidates(found.names, counts, found.omitted, stored + question.live_totals.rows)


def _exact_in_history(listed: ListedKeys, names: Names) -> Ints:
    """The rows of names in history, shape (k,), where the marks give them exactly; -1 elsewhere."""
    places = find_names(listed.names, names)
    is_listed = places >= 0
    known = np.full(len(places), 0 if listed.unlisted_max == 0 else -1, dtype=np.int64)
    entries = places[is_listed]
    known[is_listed] = np.where(listed.slack[entries] == 0, listed.rows[entries], -1)
    return known


def _bounds_of_lists(question: KeyQuestion, listed: ListedKeys, names: Names) -> tuple[Ints, Ints]:
    """Certain bounds (low, high) of the rows of names, which ascend, by the lists of marks and ledger.

    listed: the listed keys of all ticks that overlap the window. Where some of these are partial, they give
        an upper bound only; the lower bound then comes from the whole ticks.
    """
    window, (live_least, live_most) = question.window, question.live.listed(names)
    inner = listed
    if window.partial_ticks and window.whole:
        inner = question.source.listed(question.history(window.whole))
    joined, (outer_place, inner_place, place) = unify_names([listed.names, inner.names, names])
    low, high = np.zeros(len(joined), np.int64), np.full(len(joined), listed.unlisted_max, dtype=np.int64)
    high[outer_place] = listed.rows + listed.slack
    if window.whole:
        low[inner_place] = inner.rows
    return low[place] + live_least, high[place] + live_most


def _count_candidates(question: KeyQuestion, names: Names, known: Ints | None = None) -> _NameCounts:
    """The counts of names, which ascend.

    known: history's rows of each name where they are known, else -1; only the names with -1 are read.
    """
    window = question.window
    zeros = np.zeros(len(names), np.int64)
    whole = (zeros if known is None else known).copy()
    unknown = np.arange(len(names)) if known is None else np.flatnonzero(known < 0)
    scalars = [name_at(names, i) for i in unknown.tolist()]  # all of them, if ticks are partial
    if window.whole and scalars:
        whole[unknown] = count_names(question.history(window.whole), scalars)
    partial_estimate, partial_most = zeros.astype(np.float64), zeros
    for tick in window.partial_ticks if scalars else ():
        rows = count_names(question.history(Window(tick.tick, tick.tick + 1)), scalars)
        partial_estimate, partial_most = partial_estimate + tick.share * rows, partial_most + rows
    live = (
        question.live.count(names)
        if question.mode == "approximate"
        else exact_live_counts(question.all_live_rows(), names)
    )
    return _NameCounts(whole, partial_estimate, partial_most, live)


def exact_live_counts(rows: KeyRows, names: Names) -> LiveCounts:
    """The rows of names, which ascend."""
    sums = np.add.reduceat(rows.counts, rows.starts()) if len(rows) else rows.counts
    joined, (summed_places, places) = unify_names([rows.names, names])
    joined_sums = np.zeros(len(joined), np.int64)
    joined_sums[summed_places] = sums
    return LiveCounts.exact(joined_sums[places])


def _hitter_answers(
    question: KeyQuestion, found: _Candidates, kept: Ints, certain: NDArray[np.bool_]
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


def _scanned_hitters(
    parts: ScannedParts, found: Sequence[Sequence[ScannedKey]]
) -> list[tuple[list[HitterAnswer], KeyScope]]:
    """The keys that were found of each part, and its scope."""
    return [
        (
            [HitterAnswer(**scope, **one.fields, certain=True) for one in keys],
            KeyScope(**scope),
        )
        for scope, keys in zip(parts.scopes, found, strict=True)
    ]


def row_bounds(question: KeyQuestion) -> tuple[int, int]:
    """Certain bounds (least, most) of the window's rows that have a key."""
    least = most = 0
    if question.window.whole:
        least = most = question.history(question.window.whole).rows
    for tick in question.window.partial_ticks:
        most += question.history(Window(tick.tick, tick.tick + 1)).rows
    live_least, live_most = question.live.row_bounds()
    return least + live_least, most + live_most
