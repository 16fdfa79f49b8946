"""Questions that no declared group answers: one scan of `events` for all groups and windows of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import Computed
from tidemark.query.asking.scan_choice import ScanChoice, names_in
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.quantiles.cells import Cells
from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.query.reading.windows import ShownWindow
from tidemark.query.scans.event_scan import EventScan
from tidemark.query.scans.scanned_rows import ScannedGroups
from tidemark.warehouse.columns.codes import combine_codes
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Key, find_names, names_from


@dataclass(frozen=True, slots=True, eq=False)
class ScannedNumbers:
    """The numbers of cells that a scan found, see `CellNumbers`.

    places: (cells,) the group of the scan that each cell is; -1 for a cell without rows.
    """

    scan: EventScan
    places: Ints

    def same_values_at(self, ranks: Ints) -> RankedValues:
        """See `CellNumbers.same_values_at`."""
        of_groups, have_rows = np.zeros((len(self.scan.groups()), ranks.shape[1]), np.int64), self.places >= 0
        of_groups[self.places[have_rows]] = ranks[have_rows]
        values, ranks_le = self.scan.same_values_at(of_groups)
        return RankedValues(at_places(values, self.places), at_places(ranks_le, self.places))

    def same_ranks_at(self, points: NDArray[Any]) -> Ints:
        """See `CellNumbers.same_ranks_at`."""
        found = self.ranks_at([points] * len(self.places))
        return np.array(found, np.int64).reshape(len(self.places), len(points))

    def values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `CellNumbers.values_at`."""
        nothing = np.empty(0, np.int64)
        found = self.scan.values_at(self._by_group(ranks, nothing))
        empty = RankedValues(np.empty(0, self.scan.dtype), nothing)
        return [found[place] if place >= 0 else empty for place in self.places.tolist()]

    def ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `CellNumbers.ranks_at`."""
        nothing = np.empty(0, self.scan.dtype)
        found = self.scan.ranks_at(self._by_group(points, nothing))
        return [
            found[place] if place >= 0 else np.zeros(len(own), np.int64)
            for place, own in zip(self.places.tolist(), points, strict=True)
        ]

    def sums(self) -> Sequence[Sums]:
        """See `CellNumbers.sums`."""
        return Computed(self.places.tolist(), partial(_sums_at, self.scan.sums()))

    def ends(self) -> NDArray[Any]:
        """See `CellNumbers.ends`."""
        return at_places(self.scan.ends(), self.places)

    def take(self, parts: Ints) -> ScannedNumbers:
        """See `CellNumbers.take`."""
        return ScannedNumbers(self.scan, self.places[parts])

    def _by_group(self, wanted: Sequence[NDArray[Any]], nothing: NDArray[Any]) -> list[NDArray[Any]]:
        """The wanted items of each cell, by the group that the scan has for the cell."""
        by_group = [nothing] * len(self.scan.groups())
        for place, own in zip(self.places.tolist(), wanted, strict=True):
            if place >= 0:
                by_group[place] = own
        return by_group


def at_places(column: NDArray[Any], places: Ints) -> NDArray[Any]:
    """The items of a column at places; 0 at the place -1, of what has no rows."""
    found: NDArray[Any] = np.concatenate([column, np.zeros_like(column, shape=(1, *column.shape[1:]))])[
        places
    ]
    return found


def _sums_at(found: Sequence[Sums], place: int) -> Sums:
    """The sums of a group of the scan; 0 for a cell without rows."""
    return found[place] if place >= 0 else Sums()


def scanned_questions(
    scan: EventScan,
    choice: ScanChoice,
    keys: Sequence[Key],
    windows: Sequence[ShownWindow],
    rows: int,
    fields: dict[str, Any],
) -> CellQuestions:
    """The questions of each group and window; the windows of a group stand one after the other.

    keys: the columns of `by`. rows: how many the windows have. fields: the others of all `Question`s.

    Raises InputError for too many groups, and the errors of `EventScan`. They are answered while it is open.
    """
    groups, places = _chosen(choice, keys, scan.groups(), len(windows))
    here = places.ravel()
    group_of, window_of = np.divmod(np.arange(len(here)), len(windows))
    return CellQuestions(
        Cells(at_places(scan.groups().counts, here), ScannedNumbers(scan, here)),
        [window.shown for window in windows],
        window_of,
        groups,
        group_of,
        {
            **fields,
            "certain": None if choice.largest is None else True,
            "rows_scanned": scan.rows_scanned(rows),
            "declare": choice.declare,
        },
    )


def _chosen(
    choice: ScanChoice, keys: Sequence[Key], found: ScannedGroups, windows: int
) -> tuple[Sequence[Any], Ints]:
    """The groups that are answered, in the order of the answers, as these show them.

    And the place that each has in the scan in each window, (groups, windows); -1 where it has no rows.
    """
    values = combine_codes([*found.codes, np.zeros(len(found), np.int64)], [*map(len, found.names), 1])
    firsts = np.flatnonzero(np.diff(values, prepend=-1))  # of each group; its windows ascend
    group_of = np.cumsum(np.diff(values, prepend=-1) != 0) - 1
    places = np.full((len(firsts), windows), -1, np.int64)
    places[group_of, found.windows] = np.arange(len(found))
    if not choice.by:
        return [choice.shown(()) or None], places if len(places) else np.full((1, windows), -1, np.int64)
    if choice.groups is not None:
        asked = _places_of(choice, keys, found, firsts)
        places = np.concatenate([places, np.full((1, windows), -1, np.int64)])
        return [choice.shown(group) for group in choice.groups], places[asked]
    n, m, _, nulls = found.counts.T
    rows = np.bincount(group_of, n + m + nulls, len(firsts)).astype(np.int64)
    picked = choice.picked(rows)
    return Computed(Computed(firsts[picked].tolist(), found.values_at), choice.shown), places[picked]


def _places_of(choice: ScanChoice, keys: Sequence[Key], found: ScannedGroups, firsts: Ints) -> Ints:
    """(groups,) where each group that the caller listed stands among those of the scan; -1 for none."""
    groups = [names_in(keys, group) for group in choice.groups or ()]
    known = [place for place, names in enumerate(groups) if None not in names]
    codes = [
        find_names(names, names_from(key, [groups[place][column] for place in known]))
        for column, (key, names) in enumerate(zip(keys, found.names, strict=True))
    ]
    there = {
        group: place
        for place, group in enumerate(zip(*(column[firsts].tolist() for column in found.codes), strict=True))
    }
    asked = np.full(len(groups), -1, np.int64)
    asked[known] = [there.get(group, -1) for group in zip(*(own.tolist() for own in codes), strict=True)]
    return asked
