"""Questions about keys with `where` or `by`: one scan of `events` for all groups and windows of a call.

A scan sees the times of rows, so a window that cuts ticks is exact, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.all_answers import SharedFields
from tidemark.query.answers.answer_columns import AnswerColumns, Computed, Picked
from tidemark.query.answers.key_answers import ScannedFields
from tidemark.query.asking.scan_choice import ScanChoice, names_in
from tidemark.query.asking.scan_progress import shown_progress
from tidemark.query.asking.scanned_questions import at_places
from tidemark.query.asking.session import Session
from tidemark.query.groups.group_choice import Values
from tidemark.query.groups.group_order import several_values
from tidemark.query.keys.key_question import WantedKeys
from tidemark.query.keys.key_windows import KeyWindow, key_windows
from tidemark.query.keys.scanned_parts import ScannedKey
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.reading.shared_fields import shared_fields
from tidemark.query.reading.windows import rows_of
from tidemark.query.scans.asked_rows import TimeRange, key_of
from tidemark.query.scans.key_scan import CountedKeys, KeyParts, KeyScan
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.system_tables import AnyContents
from tidemark.warehouse.snapshots.views import KeysView, View

A = TypeVar("A")

Newest = tuple[KeysView, View, AnyContents]
NO_GROUP = NO_PART = NO_PLACE = -1  # the number of a group, of a part and of a key without rows


@dataclass(frozen=True, slots=True)
class ScannedKeys(Generic[A]):
    """A question about the keys of selected rows; a `Plan`.

    There is an answer for each group and window: the windows of a group stand together. With an order, the
    groups of a window stand together.
    """

    session: Session
    wanted: WantedKeys[A]
    key: Any
    window: AskedWindow
    every: Any
    width: Any
    choice: ScanChoice
    topic: None = None

    def newest(self) -> Newest:
        """See `Plan.newest`."""
        return self.session.newest_key_contents(self.key)

    def answer(self, newest: Newest) -> Sequence[A]:
        """See `Plan.answer`."""
        (keys, view, contents), options, choice = newest, self.session.options, self.choice
        windows = key_windows(keys, self.window, self.every, options.grid, self.width)
        if not windows:
            return []
        ticks = [window.overlapping for window in windows]
        columns = [key_of(contents, name, choice.computed) for name in choice.by]
        key = options.key_named(keys.key.columns if self.key is None else self.key)
        with (
            shown_progress(self.session.progress) as progress,
            KeyScan(
                contents,
                key,
                ticks,
                keeps_keys=not self.wanted.counts_alone,
                squares=self.wanted.needs_squares,
                times=_times(options, windows),
                equal=choice.equal_of(columns),
                expression=choice.expression,
                by=choice.by,
                computed=choice.computed,
                progress=progress,
            ) as scan,
        ):
            shared = shared_fields(keys, windows[0].widened, options.grid)
            chosen = _groups(choice, columns, scan.parts)
            parts = ChosenParts(scan, key, choice, windows, shared, rows_of(view, ticks), *chosen)
            return self.wanted.of_scan(self._ordered(parts))

    def _ordered(self, parts: ChosenParts) -> ChosenParts:
        order = self.choice.order
        if order is None:
            return parts
        values: NDArray[Any] | None = None
        if order.by is not None and not order.by.endswith("rows"):
            values = self.wanted.counts_of_scan(parts)
            if values is None:
                raise several_values(order.by)
            if order.by.endswith("error"):  # of exact answers
                values = np.zeros_like(values)
        places = order.places(parts.rows, [] if values is None else values, len(parts.windows))
        return replace(parts, places=places)


@dataclass(frozen=True, eq=False)
class ChosenParts:
    """Parts of a scan that are answered, also those without rows; a `ScannedParts`.

    windows: the windows of the question. shared: the fields that all answers share. rows_scanned: how many
        rows are read.
    values: the values of each group that is answered; None if they are those that the scan found.
    groups: the number that the scan has for each group, NO_GROUP for one without rows.
    places: which parts are answered; None for all. Part `w` of group `g` has the place g * windows + w.
    """

    scan: KeyScan
    key: Key
    choice: ScanChoice
    windows: Sequence[KeyWindow]
    shared: SharedFields
    rows_scanned: int
    values: Sequence[Values] | None
    groups: NDArray[np.int64]
    places: NDArray[np.int64] | None = None

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        return np.arange(len(self.groups) * len(self.windows)) if self.places is None else self.places

    @cached_property
    def _parts(self) -> NDArray[np.int64]:
        """The scan's part of each place; NO_PART for one without rows."""
        found, width = self.scan.parts, len(self.windows)
        known = np.full((found.groups + 1, width), NO_PART, np.int64)  # the last one has no rows
        known[found.group, found.window] = np.arange(len(found.group))
        part: NDArray[np.int64] = known[self.groups[self._places // width], self._places % width]
        return part

    def _of_parts(self, column: NDArray[Any]) -> NDArray[Any]:
        return at_places(column, self._parts)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each part that have a key."""
        return self._of_parts(self.scan.parts.n + self.scan.parts.m)

    @property
    def keys(self) -> NDArray[Any]:
        """See `ScannedParts.keys`."""
        return self._of_parts(self.scan.parts.keys)

    @property
    def second_moments(self) -> NDArray[Any]:
        """See `ScannedParts.second_moments`."""
        return self._of_parts(self.scan.parts.second_moments)

    @cached_property
    def scopes(self) -> Sequence[ScannedFields]:
        """See `ScannedParts.scopes`."""
        own = self._own_fields
        each = (dict(zip(own, fields, strict=True)) for fields in zip(*own.values(), strict=True))
        return [cast("ScannedFields", {**fields, **self._common_fields}) for fields in each]

    def answers(self, kind: type[A], own: Mapping[str, NDArray[Any]]) -> Sequence[A]:
        """See `ScannedParts.answers`."""
        columns = {name: column.tolist() for name, column in own.items()}
        return AnswerColumns(kind, columns, self._own_fields, self._common_fields, 1)

    @cached_property
    def _own_fields(self) -> Mapping[str, Sequence[Any]]:
        """The fields of the scope that differ between parts, as columns."""
        found, windows = self.scan.parts, self.windows
        counts = {name: self._of_parts(getattr(found, name)).tolist() for name in ("n", "m", "nulls")}
        group_of, window_of = np.divmod(self._places, len(windows))
        groups, group_of = np.unique(group_of, return_inverse=True)
        if self.values is None:
            values = found.values_of(self.groups[groups])
        else:
            values = [self.values[group] for group in groups.tolist()]
        return {
            **counts,
            "window": Picked([window.shown for window in windows], window_of),
            "group": Picked(Computed(values, self.choice.shown), group_of),
        }

    @property
    def _common_fields(self) -> Mapping[str, Any]:
        return {
            "eps": 0.0,
            "confidence": 1.0,
            "mode": "exact",
            "key": self.key.name,
            "rows_scanned": self.rows_scanned,
            **self.shared,
        }

    def top(self, k: int) -> Sequence[Sequence[ScannedKey]]:
        """See `ScannedParts.top`."""
        return self._by_part(self.scan.top(k, self._there.tolist()))

    def with_rows(self, least: Sequence[int]) -> Sequence[Sequence[ScannedKey]]:
        """See `ScannedParts.with_rows`."""
        wanted = dict(zip(self._parts.tolist(), least, strict=True))
        parts = self._there.tolist()
        return self._by_part(self.scan.with_rows([wanted[part] for part in parts], parts))

    def rows_of(self, values: Sequence[Any]) -> Sequence[Sequence[ScannedKey]]:
        """See `ScannedParts.rows_of`."""
        names = [self.key.name_of(value) for value in values]
        unique = {name: value for name, value in zip(names, values, strict=True) if name is not None}
        places: dict[Any, int] = {name: place for place, name in enumerate(unique)}
        of_value = [places.get(name, NO_PLACE) for name in names]
        counts = {
            (part, place): (history, live)
            for part, place, history, live in self.scan.rows_of([*unique.values()])
        }
        return [
            [
                ScannedKey(value, *counts.get((part, place), (0, 0)))
                for place, value in zip(of_value, values, strict=True)
            ]
            for part in self._parts.tolist()
        ]

    @property
    def _there(self) -> NDArray[np.int64]:
        """The parts that have rows, each once."""
        parts: NDArray[np.int64] = np.unique(self._parts[self._parts != NO_PART])
        return parts

    def _by_part(self, found: CountedKeys) -> list[list[ScannedKey]]:
        keys: dict[int, list[ScannedKey]] = {}
        columns = zip(found.part.tolist(), found.history.tolist(), found.live.tolist(), strict=True)
        for i, (part, history, live) in enumerate(columns):
            keys.setdefault(part, []).append(ScannedKey(found.value(i), history, live))
        return [keys.get(part, []) for part in self._parts.tolist()]


def _groups(
    choice: ScanChoice, columns: Sequence[Key], parts: KeyParts
) -> tuple[Sequence[Values] | None, NDArray[np.int64]]:
    """`values` and `groups` of ChosenParts."""
    if not choice.by:
        return [()], np.zeros(1, np.int64)
    if choice.groups is not None:
        known = {parts.names(group): group for group in range(parts.groups)}
        names = [names_in(columns, values) for values in choice.groups]
        return choice.groups, np.array([known.get(one, NO_GROUP) for one in names], np.int64)
    rows = np.bincount(parts.group, parts.n + parts.m + parts.nulls, parts.groups).astype(np.int64)
    return None, choice.picked(rows)


def _times(options: Options, windows: Sequence[KeyWindow]) -> TimeRange | None:
    """The times of a window that cuts ticks; those of `every` do not."""
    since, until, time = windows[0].since, windows[-1].until, options.time_column
    return None if time is None or (since is None and until is None) else TimeRange(time, since, until)
