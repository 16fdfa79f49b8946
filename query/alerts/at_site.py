"""A site of an alert over sites: it looks at its warehouse, and reports once it leaves a zone.

The conditions come from the coordinator. The site looks after each commit and by a timer, as an alert does:
the windows of `last` end at its clock, so counts change without new rows, too. Removed and expired rows make
them smaller. Each count is asked of the warehouse anew, in the mode that reads least, and in the next mode
only if the interval of the count is not inside the zones.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from operator import is_not
from typing import Any

from tidemark.query.alerts.levels import Condition, conditions_of
from tidemark.query.alerts.linear import Counted, LinearCondition, linear
from tidemark.query.alerts.no_names import check_no_names
from tidemark.query.alerts.of_warehouse import NewestRows, staleness, window_end
from tidemark.query.alerts.places import (
    ASK,
    GONE,
    PATIENCE,
    REPORT,
    TASK,
    ZONES,
    Exchange,
    exchange_errors,
    level_of,
    one_release,
    said,
)
from tidemark.query.alerts.reading import ALL, Reading
from tidemark.query.reader import Reader
from tidemark.sketches.geometric.linear import LinearSite
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message
from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.errors import StoreUnavailable, SystemRefused, TidemarkError

_log = logging.getLogger("tidemark.alerts")


class _Watched:
    """A condition at a site: its sums, and the zones of each group that this site or another one told of."""

    def __init__(self, number: int, condition: Condition) -> None:
        self.number, self.condition = number, condition
        self.linear: LinearCondition = linear(condition)
        self.groups = {ALL: LinearSite()}

    @property
    def names(self) -> Collection[str]:
        return [name for name in self.groups if name != ALL] if self.condition.has_groups else [ALL]

    def group(self, name: str) -> LinearSite:
        """A group, which is watched from now on."""
        return self.groups.setdefault(name, LinearSite())

    def is_inside(self, name: str, place: int, low: int, high: int) -> bool:
        """Whether numbers of a group are inside of its zone; False for a group that is not watched."""
        return name in self.groups and self.groups[name].is_inside([place], low, high)

    @property
    def is_due(self) -> bool:
        """Whether the coordinator has said something since the last look."""
        return any(one.is_due for one in self.groups.values())

    @property
    def needs_all(self) -> bool:
        return any(one.needs_all for one in self.groups.values())


class _SiteMachine:
    """The messages of the coordinator, as a `Machine`."""

    def __init__(self) -> None:
        self.watched: list[_Watched] = []
        self.lag, self.beat = 0, 0.0
        self.stale: int | None = None

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message; see `Machine`. The next look answers it. Without a task it is dropped."""
        del sender
        with one_release(payload) as content:
            if kind == TASK:
                self._begin(content)
            for number, name in content if self.watched and kind == ASK else ():
                self.watched[number].group(name).ask()
            for number, name, zones in content if self.watched and kind == ZONES else ():
                if name in self.watched[number].groups:
                    self.watched[number].groups[name].take(zones)
                else:  # forgotten here, but not by the coordinator
                    self.watched[number].group(name).ask()
            for number, name in content if self.watched and kind == GONE else ():
                self.watched[number].groups.pop(name, None)
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """Forgets the conditions of an earlier coordinator; the new one sends its own. See `Machine`."""
        del peer, again
        self.watched = []
        return []

    def _begin(self, task: dict[str, Any]) -> None:
        self.lag, self.stale, self.beat = task["lag"], task["stale"], task["beat"]
        conditions = conditions_of(task["when"], task["theta"], level_of(task["clear"]))
        self.watched = [_Watched(number, one) for number, one in enumerate(conditions.values())]


class AlertSite:
    """A site of an alert over sites; see `tidemark.query.alert_site`. For one thread."""

    def __init__(self, wh: Reader, number: int, exchange: Exchange, every: float) -> None:
        self._wh, self._every = wh, every
        self._machine = _SiteMachine()
        self._place = exchange.place(number, [COORDINATOR], self._machine)
        self._seen: tuple[object, ...] = ()
        self._next_look = self._next_word = 0.0
        self.looks = 0
        """How often it looked because of a commit or by the timer."""

    @property
    def traffic(self) -> dict[str, int]:
        """The messages and bytes that it sent and took."""
        return dict(self._place.traffic)

    def turn(self) -> bool:
        """Takes the messages that came, looks if a look is due, and sends messages; returns whether any came.

        A look is due after a commit, if the coordinator asks, and every so many seconds. TidemarkError if a
        later process of this site runs.
        """
        with exchange_errors():
            came = self._place.turn()
            self._place.say(self._said())
            self._place.repeat_at_times(PATIENCE)
        return came

    def watch(self, poll: float = 0.5, stopping: threading.Event | None = None) -> None:
        """Takes turns until `stopping`, `poll` seconds apart. If a store refuses, a turn is tried again."""
        stopping = stopping or threading.Event()
        while not stopping.is_set():
            try:
                self.turn()
            except (StoreUnavailable, SystemRefused) as error:
                _log.warning("the exchange does not answer, it is tried again: %s", error)
            stopping.wait(poll)

    def _said(self) -> list[Message]:
        """Looks at all conditions if that is due, else at those about which the coordinator sent messages."""
        watched, now = self._machine.watched, time.monotonic()
        if watched and self._is_new(now):
            self._next_look = now + self._every
            self.looks += 1
        elif now < self._next_word:
            watched = [one for one in watched if one.is_due]
        return self._look(watched) if watched else []

    def _is_new(self, now: float) -> bool:
        """Whether there was a commit, or the timer is due."""
        try:
            self._wh.refresh()
        except TidemarkError:
            return now >= self._next_look  # the look says what is wrong
        return now >= self._next_look or any(map(is_not, self._wh.seen, self._seen))

    def _look(self, watched: Sequence[_Watched]) -> list[Message]:
        now = now_us()
        self._seen, newest = self._wh.seen, NewestRows(self._wh)
        reports = []
        for one in watched:
            for name, values in self._values(one, now, newest).items():
                must = one.group(name).must_report(values)
                if must and (name == ALL or not isinstance(values, str)):
                    reports.append([one.number, name, values])
        moment = time.monotonic()
        is_late = moment >= self._next_word
        if reports or is_late:
            self._next_word = moment + self._machine.beat
        if reports or (is_late and not self._place.waiting):  # untaken messages are sent again anyway
            return [said(COORDINATOR, REPORT, [self.looks, reports])]
        return []

    def _values(self, one: _Watched, now: int, newest: NewestRows) -> Mapping[str, list[int] | str]:
        """The sums of a condition at this site, by group; or the reason why there are none, for all."""
        try:
            for part in one.condition.parts:
                check_no_names(self._wh.options, part)
            problem = staleness(self._wh, one.condition, self._machine.stale, now, newest)
            if problem is not None:
                return dict.fromkeys(one.groups, problem)
            values, is_sharp = self._sums(one, now, all_modes=one.needs_all)
            if not is_sharp:
                values, _ = self._sums(one, now, all_modes=True)
        except TidemarkError as error:
            return dict.fromkeys(one.groups, f"the question failed: {error}")
        names = {*one.names, *(name for of_sum in values for name in of_sum)} - {ALL}
        found = {name: [of_sum.get(name, of_sum.get(ALL, 0)) for of_sum in values] for name in sorted(names)}
        return {ALL: [] if one.condition.has_groups else [of_sum[ALL] for of_sum in values], **found}

    def _sums(self, one: _Watched, now: int, *, all_modes: bool) -> tuple[list[dict[str, int]], bool]:
        """For each sum its value by group, under ALL that of each group; a group without one has 0.

        And whether they decide: they are exact, or all certainly lie inside of their zones.
        """
        end = window_end(self._wh, now, self._machine.lag)
        values: list[dict[str, int]] = [{} for _ in one.linear.sums]
        is_rough = is_outside = False
        for counted, places in one.linear.counts:
            for found, is_last in counted.readings(self._wh, end):
                inside = True
                for place in places:
                    values[place], is_in = self._of_groups(one, counted, place, found, is_last)
                    inside &= is_in
                if is_last:
                    is_outside |= not inside
                elif inside and not all_modes:
                    is_rough = True
                    break
        return values, not (is_rough and is_outside)

    @staticmethod
    def _of_groups(
        one: _Watched, counted: Counted, place: int, found: dict[str, Reading], is_last: bool
    ) -> tuple[dict[str, int], bool]:
        """The values of a sum, see `_sums`, and whether all are inside of their zones."""
        values, inside, watched = dict[str, int](), True, one.names
        for name in {*watched, *found} if counted.has_groups else [ALL]:
            reading = found.get(name, Reading())
            values[name], high = one.linear.sums[place].interval(reading, is_last=is_last)
            for group in [name] if counted.has_groups else watched:
                inside &= one.is_inside(group, place, values[name], high)
        return values, inside
