"""Questions that no declared group answers: one scan of `events` for all groups and windows of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.answer_columns import Computed
from tidemark.query.asking.scan_choice import ScanChoice, names_in
from tidemark.query.asking.scan_progress import shown_progress
from tidemark.query.quantiles.cell_questions import CellQuestions
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.query.reading.sorted_parts import Ints, RankedValues
from tidemark.query.reading.windows import ShownWindow, rows_of
from tidemark.query.scans.asked_rows import key_of
from tidemark.query.scans.event_scan import EventScan
from tidemark.query.scans.scanned_rows import ScannedGroups
from tidemark.warehouse.columns.codes import combine_codes
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Key, find_names, names_from
from tidemark.warehouse.snapshots.site_contents import AnyContents
from tidemark.warehouse.snapshots.views import View


@dataclass(frozen=True, slots=True, eq=False)
class ScannedCells:
    """The result of a scan as `Cells`.

    places: (cells,) the group of the scan that each cell is; -1 for a cell without rows.
    """

    scan: EventScan
    places: Ints

    def __len__(self) -> int:
        return len(self.places)

    @property
    def n(self) -> Ints:
        """See `Cells.n`."""
        return self._of_cells(self.scan.groups().counts[:, 0])

    @property
    def m(self) -> Ints:
        """See `Cells.m`."""
        return self._of_cells(self.scan.groups().counts[:, 1])

    @property
    def nans(self) -> Ints:
        """See `Cells.nans`."""
        return self._of_cells(self.scan.groups().counts[:, 2])

    @property
    def nulls(self) -> Ints:
        """See `Cells.nulls`."""
        return self._of_cells(self.scan.groups().counts[:, 3])

    def values_at(self, ranks: Ints) -> tuple[NDArray[Any], Ints, NDArray[np.bool_]]:
        """See `Cells.values_at`."""
        by_group = np.zeros((len(self.scan.groups()), ranks.shape[1]), np.int64)
        by_group[self.places[self._have_rows]] = ranks[self._have_rows]
        found = self.scan.same_values_at(by_group)
        values = np.zeros(ranks.shape, found.values.dtype)
        ranks_le = np.zeros(ranks.shape, np.int64)
        values[self._have_rows] = found.values[self.places[self._have_rows]]
        ranks_le[self._have_rows] = found.ranks_le[self.places[self._have_rows]]
        stored = self._of_cells(self.scan.groups().stored)
        return values, ranks_le, (ranks >= 1) & (ranks <= stored[:, np.newaxis])

    def ranks_at(self, points: NDArray[Any]) -> Ints:
        """See `Cells.ranks_at`."""
        found = self.each_ranks_at([points] * len(self))
        return np.array(found, np.int64).reshape(len(self), len(points))

    def each_values_at(self, ranks: Sequence[Ints]) -> list[RankedValues]:
        """See `Cells.each_values_at`."""
        nothing = np.empty(0, np.int64)
        found = self.scan.values_at(self._by_group(ranks, nothing))
        empty = RankedValues(np.empty(0, self.scan.dtype), nothing)
        return [found[place] if place >= 0 else empty for place in self.places.tolist()]

    def each_ranks_at(self, points: Sequence[NDArray[Any]]) -> list[Ints]:
        """See `Cells.each_ranks_at`."""
        nothing = np.empty(0, self.scan.dtype)
        found = self.scan.ranks_at(self._by_group(points, nothing))
        return [
            found[place] if place >= 0 else np.zeros(len(own), np.int64)
            for place, own in zip(self.places.tolist(), points, strict=True)
        ]

    def sums(self) -> Sequence[Sums]:
        """See `Cells.sums`."""
        return Computed(self.places.tolist(), partial(_sums_at, self.scan.sums()))

    def ends(self) -> NDArray[Any]:
        """See `Cells.ends`."""
        return np.append(self.scan.ends(), np.zeros((1, 2), self.scan.dtype), axis=0)[self.places]

    def take(self, cells: Ints) -> ScannedCells:
        """See `Cells.take`."""
        return ScannedCells(self.scan, self.places[cells])

    def _of_cells(self, counts: Ints) -> Ints:
        """The count of each cell, from the counts of the scan's groups; 0 for a cell without rows."""
        return np.append(counts, 0)[self.places]

    @property
    def _have_rows(self) -> NDArray[np.bool_]:
        return self.places >= 0

    def _by_group(self, wanted: Sequence[NDArray[Any]], nothing: NDArray[Any]) -> list[NDArray[Any]]:
        """The wanted items of each cell, by the group that the scan has for the cell."""
        by_group = [nothing] * len(self.scan.groups())
        for place, own in zip(self.places.tolist(), wanted, strict=True):
            if place >= 0:
                by_group[place] = own
        return by_group


def _sums_at(found: Sequence[Sums], place: int) -> Sums:
    """The sums of a group of the scan; 0 for a cell without rows."""
    return found[place] if place >= 0 else Sums()


class ShownScanned(Sequence[Any]):
    """The groups of answers as they show them, made when they are taken.

    places: the group of the scan that has the values of each.
    """

    def __init__(self, choice: ScanChoice, groups: ScannedGroups, places: Ints) -> None:
        self._choice, self._groups, self._places = choice, groups, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, at: Any) -> Any:
        """One group; no slices."""
        return self._choice.shown(self._groups.values_at(int(self._places[at])))


@contextmanager
def scanned_questions(
    contents: AnyContents,
    view: View,
    choice: ScanChoice,
    windows: Sequence[ShownWindow],
    mode: str,
    eps: float,
    progress: Callable[[float], None] | None,
    *,
    summed: bool = False,
) -> Iterator[CellQuestions]:
    """The questions of each group and window, answered by a scan until the end of the context.

    The windows of a group stand one after the other.

    contents, view: the visible batches and the versions of one moment. mode: the mode of the answers, which
        are exact in each mode. summed: whether only sums and ends are asked.

    Raises InputError for an unknown column and for too many groups, and the errors of `EventScan`.
    """
    keys = [key_of(contents, name, choice.computed) for name in choice.by]
    ticks = [window.ticks for window in windows]
    with (
        shown_progress(progress) as shown,
        EventScan(
            contents,
            view.measure,
            ticks,
            equal=choice.equal_of(keys),
            expression=choice.expression,
            by=choice.by,
            computed=choice.computed,
            progress=shown,
            summed=summed,
        ) as scan,
    ):
        groups, places = _chosen(choice, keys, scan.groups(), len(windows))
        group_of, window_of = np.divmod(np.arange(places.size), len(windows))
        yield CellQuestions(
            ScannedCells(scan, places.ravel()),
            [window.shown for window in windows],
            window_of,
            groups,
            group_of,
            {
                "measure": view.measure,
                "mode": mode,
                "eps": eps,
                "shared": shared_fields(view, windows[0].widened, contents.options.grid),
                "certain": None if choice.largest is None else True,
                "rows_scanned": scan.rows_scanned(rows_of(view, ticks)),
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
    return ShownScanned(choice, found, firsts[picked]), places[picked]


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
