"""An alert: conditions, the states of their groups, and the notices of changes.

States of a group:

    clear      the condition does not hold
    possible   it may hold: a part of the interval is beyond the threshold
    certain    the whole interval is beyond the threshold
    stale      unknown: the newest row is too old, or the question failed

A group that is possible or certain becomes clear only when its whole interval is on the other side of a
second level, the *clear level* (by default the threshold). A stale group keeps the state that it had before,
and goes on from there.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from fractions import Fraction
from operator import is_not
from typing import Any, NamedTuple, Protocol

from tidemark.query.alerts.levels import Condition
from tidemark.query.alerts.reading import ALL, Reading, Verdict
from tidemark.query.alerts.state_file import CERTAIN, CLEAR, POSSIBLE, STALE, StateFile
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.columns.json_values import json_value
from tidemark.warehouse.columns.ticks import from_epoch_us, now_us
from tidemark.warehouse.errors import TidemarkError

FIRING = (POSSIBLE, CERTAIN)
Notify = Callable[[dict[str, Any]], None]
_log = logging.getLogger("tidemark.alerts")
_LONGEST_WAIT = 60.0  # seconds between two attempts to deliver
_NAMES = {Verdict.CLEAR: CLEAR, Verdict.POSSIBLE: POSSIBLE, Verdict.CERTAIN: CERTAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The state of a group of a condition.

    when: the text of the condition.
    group: the values of the columns of `by`; None for all rows.
    state: clear, possible, certain or stale. since: when it began, by the clock of this machine.
    value, low, high: of the first comparison; None where there are no rows, and where the question failed.
        A share or a burn rate is a fraction.
    window: the window of the first comparison.
    reason: why the group has this state, in words.
    traffic: for an alert over sites, the `messages` and `bytes` that all places have sent so far, and in
        `messages_of_asking` and `bytes_of_asking` the cost of asking each site at every look.
        None without sites.
    """

    when: str
    group: Mapping[str, Any] | None
    state: str
    since: datetime
    value: Any
    low: Any
    high: Any
    window: tuple[Any, Any] | None
    reason: str
    traffic: Mapping[str, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as values of JSON; fractions are doubles. Without sites there is no traffic."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.traffic is None:
            del found["traffic"]
        for name in ("value", "low", "high"):
            found[name] = float(found[name]) if isinstance(found[name], Fraction) else found[name]
        document: dict[str, Any] = json_value(found)
        return document

    def __str__(self) -> str:
        named = ", ".join(f"{name}={text_of(value)}" for name, value in (self.group or {}).items())
        group = f" [{named}]" if named else ""
        return f"{self.since:%Y-%m-%d %H:%M:%S} {self.state}: {self.when}{group}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(GroupState):
    """A change of the state of a group of a condition.

    id: the same whenever this notice is delivered again, so that receivers can leave out repetitions.
    previous: the state before.
    """

    id: str
    previous: str


class Seen(NamedTuple):
    """What one look says about a group.

    verdict: its comparison with the thresholds. kept: its comparison with the clear levels.
    reason: the first reading in words.
    """

    verdict: Verdict
    kept: Verdict
    first: Reading
    group: Mapping[str, Any] | None
    reason: str


class Look(NamedTuple):
    """What one look says about a condition.

    seen: the groups by their names. problem: why the present state is not known; None if it is.
    waiting: the groups of which nothing is known yet, so that their states stay.
    """

    seen: Mapping[str, Seen]
    problem: str | None
    waiting: Collection[str] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known yet; groups that come later do not make it so."""
        return bool(self.waiting) and not self.seen


class Source(Protocol):
    """Where the answers come from."""

    @property
    def identity(self) -> str:
        """What identifies the warehouse or exchange that is asked."""

    @property
    def seen(self) -> tuple[object, ...]:
        """The same objects until `refresh` finds something new."""

    def refresh(self) -> None:
        """Looks for something new."""

    def begin(self) -> None:
        """A look at all conditions begins."""

    def look(self, condition: Condition, now: int, fires: set[str]) -> Look | None:
        """A look at a condition; None if nothing is known about it yet, so that its state stays.

        fires: the names of the groups that are possible or certain.
        """

    def end(self) -> None:
        """A look at all conditions was made."""

    def traffic(self) -> Mapping[str, int]:
        """See `GroupState`; nothing without sites."""


class Alert:
    """Conditions that are asked again and again. For one thread.

    unknown: the conditions of which nothing was known at the last look, because sites had not told yet.
    """

    def __init__(
        self, source: Source, conditions: Mapping[str, Condition], state: Any, notify: Notify | None
    ) -> None:
        self._source, self._conditions, self._notify = source, conditions, notify
        self._tries, self._next_try = 0, 0.0
        self._now: dict[tuple[str, str], GroupState] = {}
        self.unknown: list[str] = []
        self._file = StateFile(state)

    @property
    def states(self) -> Sequence[GroupState]:
        """The state of each group at the last look, conditions in their order.

        A group without rows is among them while it is stale, and not once it is clear.
        """
        return list(self._now.values())

    @property
    def traffic(self) -> Mapping[str, int]:
        """The traffic of an alert over sites, see `GroupState`; empty without sites."""
        return self._source.traffic()

    def close(self) -> None:
        """Lets other processes use the state file."""
        self._file.close()

    def __enter__(self) -> Alert:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> list[Notice]:
        """Asks each condition once, and returns the changes; delivers them, too, as far as that works.

        InputError at the first look for a question that the warehouse does not answer. Later, and for every
        other error of a question, the state is stale. TidemarkError where a later process has its place in
        the exchange with the sites.
        """
        changed: list[Notice] = []
        self._source.begin()
        now = now_us()
        before, self._now, self.unknown = self._now, {}, []
        for text in self._conditions:
            changed += self._look(text, now, before)
        self._source.end()
        if self._notify is not None:
            self._file.undelivered.extend(notice.to_dict() for notice in changed)
        self._file.write()
        self.deliver()
        return changed

    def watch(
        self,
        every: float = 15.0,
        poll: float = 0.5,
        times: int | None = None,
        stopping: threading.Event | None = None,
    ) -> Iterator[Notice]:
        """Yields the changes: asks after each commit to the warehouse, and at least every so many seconds.

        poll: seconds between two looks for a commit. times: ends after so many looks. stopping: ends it.
        """
        stopping = stopping or threading.Event()
        looks = 0
        while not stopping.is_set():
            seen = self._source.seen
            yield from self.check()
            looks += 1
            if looks == times:
                return
            self._wait(every, poll, stopping, seen)

    def deliver(self) -> int:
        """Delivers the notices that nobody took yet, the oldest first, and returns how many are left.

        After a failure it waits 1, 2, 4 ... 60 seconds before it tries again, at one of the next calls.
        """
        waiting = self._file.undelivered
        while waiting and self._notify is not None and time.monotonic() >= self._next_try:
            try:
                self._notify(waiting[0])
            except Exception as error:  # noqa: BLE001  of the receiver: it is tried again
                seconds = min(_LONGEST_WAIT, 2.0**self._tries)
                self._tries, self._next_try = self._tries + 1, time.monotonic() + seconds
                _log.warning(
                    "notice %s was not delivered, it is tried again in %d s: %s",
                    waiting[0]["id"],
                    seconds,
                    error,
                )
                break
            del waiting[0]
            self._tries = 0
            self._file.write()
        return len(waiting)

    def _wait(self, every: float, poll: float, stopping: threading.Event, seen: tuple[object, ...]) -> None:
        """Returns once there is a commit, the time is over, or the alert has to stop.

        seen: the result of the look before the conditions were asked. A commit that a later condition has
            seen already counts, too: the conditions before it were asked without this commit.
        """
        until = time.monotonic() + every
        while not stopping.wait(max(0.0, min(poll, until - time.monotonic()))):
            self.deliver()
            try:
                self._source.refresh()
                if any(map(is_not, self._source.seen, seen)):
                    return
            except TidemarkError:
                return  # the look says what is wrong
            if time.monotonic() >= until:
                return

    def _look(self, text: str, now: int, before: Mapping[tuple[str, str], GroupState]) -> Iterator[Notice]:
        """Asks a condition, notes the states of its groups, and yields those that changed."""
        known = self._file.groups.setdefault(text, {})
        fires = {
            name
            for name, one in known.items()
            if (one["before"] if one["state"] == STALE else one["state"]) in FIRING
        }
        found = self._source.look(self._conditions[text], now, fires)
        stays = set(known) if found is None else found.waiting
        if found is None or found.is_unknown:
            self.unknown.append(text)
        self._now |= {(text, name): one for (of, name), one in before.items() if of == text and name in stays}
        if found is None:
            return
        (seen, problem, _), grouped = found, self._conditions[text].has_groups
        names = [*seen, *(name for name in known if name not in seen and name not in stays)]
        if not names and (problem is not None or not grouped):
            names = [ALL]
        for name in names:
            yield from self._enter(text, name, seen.get(name), problem, now)
            if name not in seen and known[name]["state"] == CLEAR and grouped:
                del known[name], self._now[text, name]

    def _enter(
        self, text: str, name: str, seen: Seen | None, problem: str | None, now: int
    ) -> Iterator[Notice]:
        """Notes the state of one group, and yields a notice if it changed."""
        entry = self._file.groups[text].setdefault(
            name, {"state": CLEAR, "before": CLEAR, "since": now, "holds": None, "number": 0, "group": None}
        )
        one = seen or Seen(Verdict.CLEAR, Verdict.CLEAR, Reading(), None, "no rows")
        if one.group is not None:
            entry["group"] = json_value(one.group)
        previous = entry["state"]
        entry["state"] = STALE if problem is not None else self._next(text, entry, one, now)
        if problem is not None:
            entry["holds"] = None
        else:
            entry["before"] = CLEAR if entry["state"] == STALE else entry["state"]
        if entry["state"] != previous:
            entry["since"] = now
        first = one.first
        facts: dict[str, Any] = {
            "when": text,
            "group": entry["group"] if one.group is None else one.group,
            "state": entry["state"],
            "since": from_epoch_us(entry["since"]),
            "value": first.value,
            "low": first.low,
            "high": first.high,
            "window": first.window,
            "reason": problem or one.reason,
            "traffic": self._source.traffic() or None,
        }
        self._now[text, name] = GroupState(**facts)
        if entry["state"] != previous:
            entry["number"] += 1
            spoken = f"{self._source.identity}\0{text}\0{name}\0{entry['number']}\0{now}"
            digest = hashlib.sha256(spoken.encode("utf-8", "surrogatepass")).hexdigest()[:24]
            yield Notice(id=digest, previous=previous, **facts)

    def _next(self, text: str, entry: dict[str, Any], seen: Seen, now: int) -> str:
        """The state of a group whose question was answered."""
        before = entry["before"] if entry["state"] == STALE else entry["state"]
        if before in FIRING:
            stays = before if seen.kept is not Verdict.CLEAR else CLEAR
            return stays if seen.verdict is Verdict.CLEAR else _NAMES[seen.verdict]
        if seen.verdict is Verdict.CLEAR:
            entry["holds"] = None
            return CLEAR
        entry["holds"] = now if entry["holds"] is None else entry["holds"]
        is_due = now - entry["holds"] >= self._conditions[text].lasting
        return _NAMES[seen.verdict] if is_due else str(entry["state"])
