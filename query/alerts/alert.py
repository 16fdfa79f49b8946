"""An alert: conditions on a warehouse, the states of their groups, and the notices of changes.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import chain
from operator import is_not
from typing import Any, NamedTuple

from tidemark.query.alerts.condition import Comparison, parse_condition
from tidemark.query.alerts.no_names import check_no_names
from tidemark.query.alerts.reading import ALL, Limit, Reading, Verdict, number_of, readings
from tidemark.query.alerts.state_file import CERTAIN, CLEAR, POSSIBLE, STALE, StateFile
from tidemark.query.answers.rendering import text_of
from tidemark.query.reader import Reader
from tidemark.warehouse.columns.json_values import json_value
from tidemark.warehouse.columns.ticks import from_epoch_us, now_us, parse_duration, parse_grace
from tidemark.warehouse.errors import EmptyWindow, InputError, TidemarkError, shortened

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
    window: that of the first comparison.
    reason: why, in words.
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

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as values of JSON; fractions are doubles."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
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
    """That a group of a condition has changed its state.

    id: the same whenever this notice is delivered again, so that receivers can leave out repetitions.
    previous: the state before.
    """

    id: str
    previous: str


class _Seen(NamedTuple):
    """What one look says about a group.

    verdict: its comparison with the thresholds. kept: its comparison with the clear levels.
    """

    verdict: Verdict
    kept: Verdict
    first: Reading
    group: Mapping[str, Any] | None


class Alert:
    """Conditions on a warehouse that are asked again and again. For one thread."""

    def __init__(
        self,
        wh: Reader,
        when: Iterable[str],
        *,
        theta: float = 0.0,
        clear: Any = None,
        lag: str | timedelta = "0s",
        stale: str | timedelta | None = None,
        state: Any = None,
        notify: Notify | None = None,
    ) -> None:
        """See `tidemark.query.alert`."""
        texts = list(when)
        if not texts or len(set(texts)) < len(texts):
            raise InputError(f"an alert needs conditions, each once, got {shortened(texts)}.")
        names = wh.options.measure_names if wh.options.columns else ()
        self._wh, self._notify = wh, notify
        self._conditions = {text: parse_condition(text, names) for text in texts}
        for one in chain.from_iterable(self._conditions.values()):
            check_no_names(wh.options, one)
        self._limits = {text: _limits(parts, theta, clear) for text, parts in self._conditions.items()}
        self._lag = parse_grace(lag)
        self._stale = None if stale is None else parse_duration(stale)
        self._was_asked = False
        self._tries, self._next_try = 0, 0.0
        self._now: dict[tuple[str, str], GroupState] = {}
        self._file = StateFile(state)

    @property
    def states(self) -> Sequence[GroupState]:
        """The state of each group at the last look, conditions in their order."""
        return list(self._now.values())

    def close(self) -> None:
        """Lets other processes use the state file."""
        self._file.close()

    def __enter__(self) -> Alert:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> list[Notice]:
        """Asks each condition once, and returns what changed; it is delivered, too, as far as that works.

        InputError at the first look for a question that the warehouse does not answer. Later, and for every
        other error of a question, the state is stale.
        """
        now = now_us()
        changed: list[Notice] = []
        self._now = {}
        newest = _NewestRows(self._wh)
        for text in self._conditions:
            changed += self._look(text, now, newest)
        self._was_asked = True
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
        """Yields what changes: asks after each commit to the warehouse, and at least every so many seconds.

        poll: seconds between two looks for a commit. times: ends after so many looks. stopping: ends it.
        """
        stopping = stopping or threading.Event()
        looks = 0
        while not stopping.is_set():
            seen = self._wh.seen
            yield from self.check()
            looks += 1
            if looks == times:
                return
            self._wait(every, poll, stopping, seen)

    def deliver(self) -> int:
        """Delivers what was not taken yet, the oldest first, and returns how many are left.

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
        """Returns once there is a commit, the time is over, or it is to stop.

        seen: what was seen before the conditions were asked. A commit that a later condition has seen already
            counts, too: the ones before it were asked without it.
        """
        until = time.monotonic() + every
        while not stopping.wait(max(0.0, min(poll, until - time.monotonic()))):
            self.deliver()
            try:
                self._wh.refresh()
                if any(map(is_not, self._wh.seen, seen)):
                    return
            except TidemarkError:
                return  # the look says what is wrong
            if time.monotonic() >= until:
                return

    def _look(self, text: str, now: int, newest: _NewestRows) -> Iterator[Notice]:
        """Asks a condition, notes the states of its groups, and yields those that changed."""
        known = self._file.groups.setdefault(text, {})
        seen: dict[str, _Seen] = {}
        problem = None
        try:
            seen = self._ask(text, now, known)
            problem = self._staleness(text, now, newest)
        except InputError as error:
            if not self._was_asked:
                raise
            problem = str(error)
        except TidemarkError as error:
            problem = f"the question failed: {error}"
        grouped = any(one.given.get("by") for one in self._conditions[text])
        names = [*seen, *(name for name in known if name not in seen)]
        if not names and (problem is not None or not grouped):
            names = [ALL]
        for name in names:
            yield from self._enter(text, name, seen.get(name), problem, now)
            if name not in seen and known[name]["state"] == CLEAR and grouped:
                del known[name]

    def _enter(
        self, text: str, name: str, seen: _Seen | None, problem: str | None, now: int
    ) -> Iterator[Notice]:
        """Notes the state of one group, and yields a notice if it changed."""
        entry = self._file.groups[text].setdefault(
            name, {"state": CLEAR, "before": CLEAR, "since": now, "holds": None, "number": 0, "group": None}
        )
        one = seen or _Seen(Verdict.CLEAR, Verdict.CLEAR, Reading(), None)
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
            "reason": problem or _reason(first),
        }
        self._now[text, name] = GroupState(**facts)
        if entry["state"] != previous:
            entry["number"] += 1
            spoken = f"{self._wh.identity}\0{text}\0{name}\0{entry['number']}\0{now}"
            digest = hashlib.sha256(spoken.encode("utf-8", "surrogatepass")).hexdigest()[:24]
            yield Notice(id=digest, previous=previous, **facts)

    def _next(self, text: str, entry: dict[str, Any], seen: _Seen, now: int) -> str:
        """The state of a group whose question was answered."""
        before = entry["before"] if entry["state"] == STALE else entry["state"]
        if before in FIRING:
            stays = before if seen.kept is not Verdict.CLEAR else CLEAR
            return stays if seen.verdict is Verdict.CLEAR else _NAMES[seen.verdict]
        if seen.verdict is Verdict.CLEAR:
            entry["holds"] = None
            return CLEAR
        entry["holds"] = now if entry["holds"] is None else entry["holds"]
        lasting = max(one.lasting for one in self._conditions[text])
        is_due = now - entry["holds"] >= lasting
        return _NAMES[seen.verdict] if is_due else str(entry["state"])

    def _ask(self, text: str, now: int, known: Mapping[str, Any]) -> dict[str, _Seen]:
        """What each group is now: the least of its comparisons."""
        end = None if self._wh.tick is None else from_epoch_us(now - self._lag)
        fires = {
            name
            for name, one in known.items()
            if (one["before"] if one["state"] == STALE else one["state"]) in FIRING
        }
        parts = self._conditions[text]
        found = [
            _sharp_enough(self._wh, part, limits, end, fires)
            for part, limits in zip(parts, self._limits[text], strict=True)
        ]
        grouped = [own for part, own in zip(parts, found, strict=True) if part.given.get("by")]
        names = dict.fromkeys(name for own in grouped for name in own) if grouped else {ALL: None}
        seen = {}
        for name in names:
            own = [
                readings.get(name if part.given.get("by") else ALL, Reading())
                for part, readings in zip(parts, found, strict=True)
            ]
            group = next((one.group for one in own if one.group is not None), None)
            verdicts, kept = (
                [
                    Verdict.CLEAR if one.rows < part.least_rows else limits[which].verdict(one)
                    for part, limits, one in zip(parts, self._limits[text], own, strict=True)
                ]
                for which in (0, 1)
            )
            seen[name] = _Seen(min(verdicts), min(kept), own[0], group)
        return seen

    def _staleness(self, text: str, now: int, rows: _NewestRows) -> str | None:
        """Why nothing can be said about now; None if the newest row is young enough."""
        windows = [one.window for one in self._conditions[text] if one.window is not None]
        limit = self._stale or (max(windows) if windows else None)
        if limit is None or self._wh.tick is None:
            return None
        for site, newest in rows.ends.items():
            if newest is None or newest <= from_epoch_us(now - limit):
                where = f" of {site}" if site else ""
                since = (
                    "there are none"
                    if newest is None
                    else f"the newest is from before {newest:%Y-%m-%d %H:%M:%S}"
                )
                return f"no new rows{where}: {since}"
        return None


def _limits(parts: Sequence[Comparison], theta: float, clear: Any) -> list[tuple[Limit, Limit]]:
    """The threshold of each comparison, and its clear level."""
    if not 0 <= theta < 1:
        raise InputError(f"theta must be a share from 0 to below 1, got {theta!r}.")
    if clear is not None and len(parts) > 1:
        raise InputError("clear is the level of a condition with one comparison. Use theta here.")
    found = []
    for one in parts:
        threshold = number_of(one.threshold)
        upwards = one.operator in (">", ">=")
        if clear is not None:
            level = number_of(clear)
            if level > threshold if upwards else level < threshold:
                raise InputError(
                    f"clear must be a level on the other side of the threshold, got {clear!r} for {one.text}."
                )
        elif theta and (not threshold or isinstance(one.threshold, str)):
            raise InputError(
                f"theta is a share of the threshold, and there is no such share for {one.text}. Give clear "
                "instead: the level at which the alert ends."
            )
        else:
            step = Fraction(str(theta)) * abs(threshold)  # 0.1 is a tenth
            level = threshold - step if upwards else threshold + step
        found.append((Limit(one.operator, threshold), Limit(one.operator, level)))
    return found


def _sharp_enough(
    wh: Reader, part: Comparison, limits: tuple[Limit, Limit], end: datetime | None, fires: set[str]
) -> dict[str, Reading]:
    """The readings in the first mode that decides for every group, or in the last one."""
    found: dict[str, Reading] = {}
    for found in readings(wh, part, end):
        is_open = any(
            limits[0].verdict(one) is Verdict.POSSIBLE
            or (name in fires and limits[1].verdict(one) is Verdict.POSSIBLE)
            for name, one in found.items()
        )
        if not is_open:
            break
    return found


class _NewestRows:
    """How new the rows are, read once in a look at all conditions."""

    def __init__(self, wh: Reader) -> None:
        self._wh = wh

    @cached_property
    def ends(self) -> dict[str, datetime | None]:
        """The end of the newest tick with rows, of each of several warehouses by its name, else under ""."""
        if sites := self._wh.by_site():
            return {name: one.newest for name, one in sites.items()}
        try:
            _, end = self._wh.span(last=self._wh.tick)
        except EmptyWindow:
            return {"": None}
        return {"": end or from_epoch_us(now_us())}


def _reason(reading: Reading) -> str:
    """The value in words."""
    if reading.low is None:
        return "no rows"
    low, value, high = (
        float(one) if isinstance(one, Fraction) else one for one in (reading.low, reading.value, reading.high)
    )
    exact = "exact" if low == high else f"certainly from {text_of(low)} to {text_of(high)}"
    return f"{text_of(value)} ({exact}) of {reading.rows:,} rows"
