"""The answers of an alert that asks one warehouse, or several that are open as one.

A question is asked in the mode that reads least, and in the next mode only if the answer does not decide the
condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from tidemark.query.alerts.alert import Look, Seen
from tidemark.query.alerts.condition import Comparison
from tidemark.query.alerts.levels import Condition, Limits
from tidemark.query.alerts.no_names import check_no_names
from tidemark.query.alerts.reading import ALL, Reading, Verdict, readings
from tidemark.query.answers.rendering import text_of
from tidemark.query.reader import Reader
from tidemark.warehouse.columns.ticks import from_epoch_us, now_us
from tidemark.warehouse.errors import EmptyWindow, InputError, TidemarkError


class OfWarehouse:
    """A `Source` of answers: the questions of a reader. lag, stale: in microseconds."""

    def __init__(self, wh: Reader, conditions: Iterable[Condition], lag: int, stale: int | None) -> None:
        self._wh, self._lag, self._stale = wh, lag, stale
        self._newest = NewestRows(wh)
        self._was_asked = False
        for one in conditions:
            for part in one.parts:
                check_no_names(wh.options, part)

    @property
    def identity(self) -> str:
        """That of the warehouse."""
        return self._wh.identity

    @property
    def seen(self) -> tuple[object, ...]:
        """See `Reader.seen`."""
        return self._wh.seen

    def refresh(self) -> None:
        """Looks for commits."""
        self._wh.refresh()

    def begin(self) -> None:
        """A look at all conditions begins."""
        self._newest = NewestRows(self._wh)

    def end(self) -> None:
        """A look at all conditions was made: from now on a failed question is stale, and not refused."""
        self._was_asked = True

    def traffic(self) -> Mapping[str, int]:
        """There are no sites."""
        return {}

    def look(self, condition: Condition, now: int, fires: set[str]) -> Look:
        """See `Source`. InputError at the first look for a question that the warehouse does not answer."""
        seen: dict[str, Seen] = {}
        problem = None
        try:
            seen = self._ask(condition, now, fires)
            problem = staleness(self._wh, condition, self._stale, now, self._newest)
        except InputError as error:
            if not self._was_asked:
                raise
            problem = str(error)
        except TidemarkError as error:
            problem = f"the question failed: {error}"
        return Look(seen, problem)

    def _ask(self, condition: Condition, now: int, fires: set[str]) -> dict[str, Seen]:
        """The state of each group now: the least of its comparisons."""
        end = window_end(self._wh, now, self._lag)
        parts = condition.parts
        found = [
            _sharp_enough(self._wh, part, limits, end, fires)
            for part, limits in zip(parts, condition.limits, strict=True)
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
                    for part, limits, one in zip(parts, condition.limits, own, strict=True)
                ]
                for which in (0, 1)
            )
            seen[name] = Seen(min(verdicts), min(kept), own[0], group, _reason(own[0]))
        return seen


def window_end(wh: Reader, now: int, lag: int) -> datetime | None:
    """Where windows of `last` end, exclusive; None where they count steps."""
    return None if wh.tick is None else from_epoch_us(now - lag)


def _sharp_enough(
    wh: Reader, part: Comparison, limits: Limits, end: datetime | None, fires: set[str]
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


class NewestRows:
    """How new the rows are, read once in a look at all conditions."""

    def __init__(self, wh: Reader) -> None:
        self._wh = wh

    @cached_property
    def ends(self) -> Mapping[str, datetime | None]:
        """The end of the newest tick with rows, of each of several warehouses by its name, else under ""."""
        if sites := self._wh.by_site():
            return {name: one.newest for name, one in sites.items()}
        try:
            _, end = self._wh.span(last=self._wh.tick)
        except EmptyWindow:
            return {"": None}
        return {"": end or from_epoch_us(now_us())}


def staleness(wh: Reader, condition: Condition, stale: int | None, now: int, rows: NewestRows) -> str | None:
    """Why nothing can be said about now; None if the newest row is young enough."""
    limit = stale or condition.window
    if limit is None or wh.tick is None:
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


def _reason(reading: Reading) -> str:
    if reading.low is None:
        return "no rows"
    low, value, high = (
        float(one) if isinstance(one, Fraction) else one for one in (reading.low, reading.value, reading.high)
    )
    exact = "exact" if low == high else f"certainly from {text_of(low)} to {text_of(high)}"
    return f"{text_of(value)} ({exact}) of {reading.rows:,} rows"
