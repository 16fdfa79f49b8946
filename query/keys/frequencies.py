"""Frequencies over history and stream: exact counts of the one, bounds of the other, put together.

    lo <= rows of the key <= hi        history is exact, so only the live side and ticks that are cut widen it

approximate   the live side by its sketches: |count - true| <= key_eps * m with probability 1 - key_delta
exact         the live rows are counted in `events`; only history's part of a cut tick is left open

Heavy hitters have no false negative. A key that no run and no ledger row lists has fewer rows than the sum of
their floors; where that is not fewer than asked for, all keys are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.key_answer import CountAnswer, FrequencyAnswer, HitterAnswer, KeyScope
from tidemark.query.keys import key_scan
from tidemark.query.keys.key_blocks import KeyHistory, between, count_between, count_names
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.keys.listed_keys import Listed
from tidemark.query.keys.live_keys import LiveCounts, LiveSide
from tidemark.query.reading.block_reader import BlockReader
from tidemark.warehouse.columns.keys import Names, find_names, name_at, names_from, take_names, unify_names
from tidemark.warehouse.columns.ticks import ALL_TIME, Window
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.projections.key_rows import KeyRows, no_rows, summed
from tidemark.warehouse.snapshots.snapshot import KeysView

MODES = ("approximate", "exact")
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyQuestion:
    """A window of the keys, how it is to be answered, and where rows are read from.

    `history` is that of some ticks and `listed` what its marks say; `live` is what the ledger says of the
    window, and `live_rows` reads its live rows from `events`, piece by piece.
    """

    view: KeysView
    window: KeyWindow
    mode: str
    promise: KeyPromise
    blocks: BlockReader
    history: Callable[[Window], KeyHistory]
    listed: Callable[[KeyHistory], Listed]
    live: LiveSide
    live_rows: Callable[[], Iterator[KeyRows]]


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Of names (k,), ascending: rows in history's whole ticks, in its cut ticks at most, and live."""

    whole: Ints
    cut_estimate: NDArray[np.float64]
    cut_most: Ints
    live: LiveCounts

    @property
    def estimate(self) -> Ints:
        return np.rint(self.whole + self.cut_estimate + self.live.estimate).astype(np.int64)

    @property
    def least(self) -> Ints:
        """Certainly there."""
        return self.whole + self.live.least

    @property
    def likely(self) -> Ints:
        """There with probability 1 - delta."""
        return self.whole + self.live.likely

    @property
    def most(self) -> Ints:
        return self.whole + self.cut_most + self.live.most


def frequencies(question: KeyQuestion, asked: Sequence[Any]) -> list[FrequencyAnswer]:
    """How often each key is there, in one round of reads."""
    key = question.view.key
    names = [key.name_of(one) for one in asked]
    known = sorted({name for name in names if name is not None})
    counts = _counts(question, names_from(key, known))
    place = {name: i for i, name in enumerate(known)}
    scope, found = _scope(question), []
    for value, name in zip(asked, names, strict=True):
        i = place.get(name)
        four = (counts.estimate, counts.likely, counts.most, counts.whole)
        number, lo, hi, past = (0, 0, 0, 0) if i is None else (int(one[i]) for one in four)
        number = min(max(number, lo), hi)
        found.append(FrequencyAnswer(**scope, value=value, count=number, lo=lo, hi=hi, in_history=past))
    return found


def heavy_hitters(question: KeyQuestion, phi: Any) -> list[HitterAnswer]:
    """Every key with at least phi of the window's rows that have a key, and some that may have it."""
    least, sure = (_least_rows(phi, rows) for rows in _rows(question))
    names, counts = _candidates(question, least)
    kept = np.flatnonzero(counts.most >= least)
    return _hitters(question, names, counts, kept, counts.least >= sure)


def top(question: KeyQuestion, k: Any) -> list[HitterAnswer]:
    """The k keys with most rows; `certain` where no key that is left out can have more."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}.")
    names, counts = _candidates(question, None, k)
    if not len(names):
        return []
    order = np.lexsort([np.arange(len(names)), -counts.estimate])
    kept, out = order[:k], order[k:]
    others = int(counts.most[out].max(initial=0))
    return _hitters(question, names, counts, kept, counts.least >= others)


def key_range(question: KeyQuestion, low: Any, high: Any) -> CountAnswer:
    """The rows with low <= key < high; the live ones are counted in `events`."""
    key, window = question.view.key, question.window
    ends = [None if end is None else key.bound_of(end) for end in (low, high)]
    whole = count_between(question.history(window.whole), *ends) if window.whole else 0
    cut = [
        (one, count_between(question.history(Window(one.tick, one.tick + 1)), *ends)) for one in window.cuts
    ]
    live = sum(between(rows, ALL_TIME, *ends) for rows in question.live_rows())
    most = whole + live + sum(rows for _, rows in cut)
    about = whole + live + round(sum(one.share * rows for one, rows in cut))
    return CountAnswer(**_scope(question, exact=True), count=about, lo=whole + live, hi=most)


def self_join(question: KeyQuestion) -> CountAnswer:
    """The sum over all keys of the square of their rows, by counting every key."""
    return _joined(question, key_scan.second_moment(_everything(question)))


def inner_product(question: KeyQuestion, other: KeyQuestion) -> CountAnswer:
    """The size of the join of two warehouses on their keys, by counting every key of both."""
    mine, theirs = question.view.key.type, other.view.key.type
    if mine != theirs:
        raise InputError(f"keys of types {mine} and {theirs} do not join. Cast one of them.")
    return _joined(question, key_scan.inner_product(_everything(question), _everything(other)))


def _joined(question: KeyQuestion, bounds: key_scan.Bounds) -> CountAnswer:
    low, about, high = bounds
    return CountAnswer(
        **_scope(question, exact=True), count=min(max(round(about), low), high), lo=low, hi=high
    )


def _everything(question: KeyQuestion) -> key_scan.Parts:
    """History's whole ticks with the live rows beside them, and the ticks that the window cuts."""
    blocks, view, window = question.blocks, question.view, question.window
    whole = KeyHistory(blocks, view, window.whole or Window(0, 0), question.live_rows)
    cuts = [(question.history(Window(cut.tick, cut.tick + 1)), cut.share) for cut in window.cuts]
    return [(whole, 1.0), *cuts]


def _least_rows(phi: Any, n: int) -> int:
    """The rows that are phi of n rows or more, at least 1; InputError unless phi is a number in (0, 1]."""
    number = isinstance(phi, (int, float, Fraction, Decimal)) and not isinstance(phi, bool)
    if not number or not math.isfinite(phi) or not 0 < phi <= 1:
        raise InputError(f"phi must lie in (0, 1], got {phi!r}. 0.01: keys with a hundredth of the rows.")
    return max(1, math.ceil(Fraction(str(phi)) * n))


def _candidates(question: KeyQuestion, least: int | None, k: int = 0) -> tuple[Names, _Counts]:
    """Names, among them every one with `least` rows or of the k most frequent, and their counts."""
    history = question.history(question.window.touched)
    past = question.listed(history)
    names, _ = unify_names([past.names, question.live.names])
    known: Ints | None = None
    low, high = _from_memory(question, past, names)
    if least is None:
        # With k names that certainly have as many rows, no other can be among the k most frequent.
        least = int(np.partition(low, -k)[-k]) if len(low) >= k else 0
    if past.unseen + question.live.unseen < least:
        names = take_names(names, np.flatnonzero(high >= least))
        known = _known(past, names)
    else:
        beside = KeyHistory(question.blocks, question.view, history.window, question.live_rows)
        names = names_from(question.view.key, key_scan.names(beside))
    return names, _counts(question, names, None if question.window.cuts else known)


def _known(past: Listed, names: Names) -> Ints:
    """The rows of names in history where the marks tell them exactly; -1 elsewhere."""
    at = find_names(past.names, names)
    listed = at >= 0
    known = np.full(len(at), 0 if past.unseen == 0 else -1, dtype=np.int64)
    known[listed] = np.where(past.more[at[listed]] == 0, past.rows[at[listed]], -1)
    return known


def _from_memory(question: KeyQuestion, past: Listed, names: Names) -> tuple[Ints, Ints]:
    """Certain bounds of the rows of names, ascending, before anything is read.

    `past` speaks of all ticks that the window touches: too many for a lower bound where some are cut.
    """
    window, live = question.window, question.live.count(names)
    inner = past
    if window.cuts and window.whole:
        inner = question.listed(question.history(window.whole))
    joined, (outer_place, inner_place, place) = unify_names([past.names, inner.names, names])
    low, high = np.zeros(len(joined), np.int64), np.full(len(joined), past.unseen, dtype=np.int64)
    high[outer_place] = past.rows + past.more
    if window.whole:
        low[inner_place] = inner.rows
    return low[place] + live.least, high[place] + live.most


def _counts(question: KeyQuestion, names: Names, known: Ints | None = None) -> _Counts:
    """Where `known` is given, those of its counts that are not -1 are history's, and need no reads."""
    plain = [name_at(names, i) for i in range(len(names))]
    window = question.window
    zero = np.zeros(len(plain), np.int64)
    whole = (zero if known is None else known).copy()
    open_ = np.arange(len(plain)) if known is None else np.flatnonzero(known < 0)
    if window.whole and len(open_):
        whole[open_] = count_names(question.history(window.whole), [plain[i] for i in open_.tolist()])
    cut_estimate, cut_most = zero.astype(np.float64), zero
    for cut in window.cuts if plain else ():
        rows = count_names(question.history(Window(cut.tick, cut.tick + 1)), plain)
        cut_estimate, cut_most = cut_estimate + cut.share * rows, cut_most + rows
    live = question.live.count(names) if question.mode == "approximate" else _live_exactly(question, names)
    return _Counts(whole, cut_estimate, cut_most, live)


def _live_exactly(question: KeyQuestion, names: Names) -> LiveCounts:
    rows = summed([no_rows(question.view.key), *question.live_rows()])
    sums = np.add.reduceat(rows.counts, rows.starts()) if len(rows) else rows.counts
    joined, (mine, theirs) = unify_names([rows.names, names])
    found = np.zeros(len(joined), np.int64)
    found[mine] = sums
    exact = found[theirs]
    return LiveCounts(exact.astype(np.float64), exact, exact, exact)


def _hitters(
    question: KeyQuestion, names: Names, counts: _Counts, kept: Ints, certain: NDArray[np.bool_]
) -> list[HitterAnswer]:
    """The kept names, most rows first."""
    key, scope = question.view.key, _scope(question)
    about = np.clip(counts.estimate, counts.least, counts.most)
    order = kept[np.lexsort([kept, -about[kept]])]
    return [
        HitterAnswer(
            **scope,
            value=key.value_of(name_at(names, i)),
            count=int(about[i]),
            lo=int(counts.least[i]),
            hi=int(counts.most[i]),
            in_history=int(counts.whole[i]),
            certain=bool(certain[i]),
        )
        for i in order.tolist()
    ]


def _rows(question: KeyQuestion) -> tuple[int, int]:
    """Rows of the window that have a key: certainly, and at most."""
    least = most = 0
    if question.window.whole:
        least = most = question.history(question.window.whole).rows
    for cut in question.window.cuts:
        most += question.history(Window(cut.tick, cut.tick + 1)).rows
    live_least, live_most = question.live.row_bounds()
    return least + live_least, most + live_most


def key_scope(question: KeyQuestion) -> KeyScope:
    """What the answers to the question speak of, also where there are none."""
    return KeyScope(**_scope(question))


def _scope(question: KeyQuestion, *, exact: bool = False) -> dict[str, Any]:
    window = question.window
    past = question.history(window.whole) if window.whole else None
    n, nulls = (past.rows, past.nulls) if past else (0, 0)
    for cut in window.cuts:
        n += round(cut.share * question.history(Window(cut.tick, cut.tick + 1)).rows)
    exact = exact or question.mode == "exact"
    return {
        "n": n,
        "m": question.live.rows,
        "nulls": nulls + question.live.nulls,
        # Above the promise only by rows that were summarised before it left room for every merge.
        "eps": 0.0 if exact else max(question.promise.eps, question.live.eps),
        "confidence": 1.0 if exact else 1.0 - question.promise.delta,
        "mode": "exact" if exact else question.mode,
        "key": question.view.key.name,
        "window": window.shown,
        "as_of": dict(question.view.versions),
    }
