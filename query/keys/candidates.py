"""Keys that may have as many rows as asked, or be among the most frequent, and the bounds of their rows.

A *name* is a key as memory holds it (columns/keys.py). A name in no list has at most as many rows as
the sum of (floor - 1) over all lists. If this sum is not below the requested number of rows, all keys are
counted. Warehouses that do not answer have lists, too (silent_keys.py), but their other keys cannot be
counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tidemark.query.answers.plan import INDEX, SCAN, Way
from tidemark.query.keys import key_scan
from tidemark.query.keys.key_blocks import count_names
from tidemark.query.keys.key_question import KeyQuestion
from tidemark.query.keys.key_scan import CountedNames, NameCounts
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.keys.silent_keys import SilentKeys, joined_names
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.columns.keys import Names, find_names, name_at, take_names, unify_names
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.errors import StoreUnavailable


def find_candidates(question: KeyQuestion, least: int | None, k: int = 0) -> CountedNames:
    """Names that include every name with `least` rows, or the k most frequent ones, and their counts.

    least: None for the k most frequent names.
    """
    if (silent := question.silent) is not None:
        return _beside_silent(question, silent, least, k)
    if question.scanned is not None and question.scanned.scan.is_quick:
        return _scanned(question, least, k)
    listed = question.source.listed(question.history(question.window.overlapping))
    missing = listed.unlisted_max + question.live.unlisted_max
    if missing >= (_most_certain(question, listed) if least is None else least):
        return _scanned(question, least, k)
    names, _ = unify_names([listed.names, question.live.names])
    low, high = _bounds_of_lists(question, listed, names)
    wanted = least
    if wanted is None:
        # If k names certainly have this many rows, a name with fewer is not among the k most frequent.
        wanted = _least_of_most(low, k)
    if missing >= wanted:
        return _scanned(question, least, k)
    possible = np.flatnonzero(high >= wanted)
    names, in_history = take_names(names, possible), high[possible] - question.live.listed(names)[1][possible]
    known = None if question.window.partial_ticks else _exact_in_history(listed, names)
    unknown = len(names) if known is None else int((known < 0).sum())
    together = 1 if question.scanned is None else len(question.scanned.scan.windows)
    scan = question.scan_cost(summed=question.scanned is None) / together
    estimates = {INDEX: question.lookups(unknown), SCAN: scan}
    ways = _Ways(question, least, k, wanted, names, in_history, known)
    return question.source.costs.answer("keys", ways, estimates)


@dataclass(frozen=True, slots=True, eq=False)
class _Ways:
    """Each way to names with `least` rows, or to the k most frequent ones.

    names: all that may have `wanted` rows. in_history: the most rows of each there. known: of
        `count_candidates`.
    """

    question: KeyQuestion
    least: int | None
    k: int
    wanted: int
    names: Names
    in_history: Ints
    known: Ints | None

    def by(self, way: Way) -> CountedNames:
        """See `Ways.by`."""
        if way == SCAN:
            return _scanned(self.question, self.least, self.k)
        most = self.in_history + self.question.live.count(self.names).most
        kept = np.flatnonzero(most >= self.wanted)
        names, known = take_names(self.names, kept), None if self.known is None else self.known[kept]
        return CountedNames(names, count_candidates(self.question, names, known), 0, None)


def _beside_silent(question: KeyQuestion, silent: SilentKeys, least: int | None, k: int) -> CountedNames:
    """As `find_candidates`, while warehouses do not answer: by all lists, or by a scan of those that do.

    A name that no silent warehouse lists has at most `unlisted_max` rows there. So it has `wanted` rows only
    if it has `wanted - unlisted_max` rows in the others, and a scan finds all of these.

    StoreUnavailable if a name that no silent warehouse lists may have `least` rows in these alone.
    """
    listed = question.source.listed(question.history(question.window.overlapping))
    names = joined_names([listed.names, question.live.names, silent.names])
    (low, high), (silent_low, silent_high) = (
        _bounds_of_lists(question, listed, names),
        silent.listed(names),
    )
    low, high = low + silent_low, high + silent_high
    wanted = least
    if wanted is None:
        wanted = max(1, _least_of_most(low, k))
    possible, scanned, omitted = take_names(names, np.flatnonzero(high >= wanted)), None, wanted - 1
    if listed.unlisted_max + question.live.unlisted_max + silent.unlisted_max >= wanted:
        here, rows = wanted - silent.unlisted_max, question.rows(summed=True)
        if least is None:
            found = key_scan.top_names(rows, k)
            omitted = max(omitted, found.omitted + silent.unlisted_max)
        elif here > 0:
            found = key_scan.names_with(rows, here)
        else:
            raise StoreUnavailable(
                f"{silent.told}. A key that is in none of the lists read before may have "
                f"{silent.unlisted_max:,} rows there, and keys with {wanted:,} rows are asked for. Ask for a "
                "greater share of the rows."
            )
        scanned = rows.stored_rows + question.live_totals.rows
        possible = joined_names([possible, found.names])
    return CountedNames(possible, count_candidates(question, possible), omitted, scanned)


def _scanned(question: KeyQuestion, least: int | None, k: int) -> CountedNames:
    """As `find_candidates`, by a scan of all rows of keys in the window, also of live ones."""
    if question.scanned is not None:
        scan, part = question.scanned
        found = scan.top(part, k) if least is None else scan.names_with(part, least)
        stored = scan.stored_rows
    else:
        rows = question.rows(summed=True)
        found = key_scan.top_names(rows, k) if least is None else key_scan.names_with(rows, least)
        stored = rows.stored_rows
    return replace(found, rows_scanned=stored + question.live_totals.rows)


def _least_of_most(rows: Ints, k: int) -> int:
    """The least of the k greatest numbers of rows; 0 if there are fewer than k."""
    return int(np.partition(rows, -k)[-k]) if len(rows) >= k else 0


def _exact_in_history(listed: ListedKeys, names: Names) -> Ints:
    """The rows of names in history, shape (k,), where the marks give them exactly; -1 elsewhere."""
    places = find_names(listed.names, names)
    is_listed = places >= 0
    known = np.full(len(places), 0 if listed.unlisted_max == 0 else -1, dtype=np.int64)
    entries = places[is_listed]
    known[is_listed] = np.where(listed.slack[entries] == 0, listed.rows[entries], -1)
    return known


def _most_certain(question: KeyQuestion, listed: ListedKeys) -> int:
    """A number of rows that no lower bound of `_bounds_of_lists` exceeds.

    O(listed keys), without a look at their names.
    """
    most = listed.rows + listed.slack if question.window.partial_ticks else listed.rows
    return int(most.max(initial=0)) + question.live.most_known


def _bounds_of_lists(question: KeyQuestion, listed: ListedKeys, names: Names) -> tuple[Ints, Ints]:
    """Certain bounds (low, high) of the rows of ascending names, by the lists of marks and ledger.

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


def count_candidates(question: KeyQuestion, names: Names, known: Ints | None = None) -> NameCounts:
    """The counts of ascending names.

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
    live = question.bounded(names, exact=question.mode != "approximate")
    return NameCounts(whole, partial_estimate, partial_most, live)


def row_bounds(question: KeyQuestion) -> tuple[int, int]:
    """Certain bounds (least, most) of the window's rows that have a key."""
    parts = [(history.rows if share == 1 else 0, history.rows) for history, share in question.histories]
    parts.append(question.live.row_bounds())
    if question.silent is not None:
        parts.append(question.silent.row_bounds())
    return sum(one for one, _ in parts), sum(one for _, one in parts)
