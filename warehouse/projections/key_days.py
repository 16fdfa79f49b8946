"""The distinct keys of the days and weeks of a run: exact numbers, and samples of the keys of each day.

Model. Where ticks divide a day, the ticks of a run lie in days of UTC, and these in weeks from Monday on. For
each of them the run has the number of keys with rows in it, exactly: rows ascend by key, then tick, so each
pair (key, day) is a stretch of rows. For each day it has a sample of its keys, by the same hashes as all
samples (sketches/sampling/key_sample.py): all keys whose hash is below the day's threshold. A sample has
DAY_KEYS keys, fewer where the run has so many days that they would be more than RUN_DAY_KEYS together. So it
does not thin out as a run grows, as the entries by tick of the whole run do. A day whose keys these entries
tell as well has no sample of its own. Rows without a time are in no day.

Days and weeks are two row groups of the run's key marks, with a row for each day (``days``) or week
(``weeks``):

    tick     the first tick of the run in it
    count    the number of keys
    content  of a day with a sample: the threshold (8 bytes, 0 if it has all keys), then the hashes,
             ascending, 8 bytes each; little endian

Marks that earlier versions wrote have neither.

Cost: O(rows), about 80 nanoseconds each; 16 bytes a day or week, and 8 a sampled key: at most 64 KB a day and
8 MB a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.sketches.sampling import ALL
from tidemark.sketches.sampling.key_sample import Hashes, below
from tidemark.warehouse.columns.keys import Name, name_at
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import MONDAY, NO_TICK
from tidemark.warehouse.columns.value_encoding import as_numpy
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.runs.marks import CONTENT_FIELD, DAYS_GROUP, WEEKS_GROUP

Ints = NDArray[np.int64]

# If two runs have half of a day each, the error is a thousandth to 0.4 % of the day's keys.
DAY_KEYS = 2**13
RUN_DAY_KEYS = 2**20
PART_KEYS = 2**17  # keys that a part of a run, such as a file, may always have
_ANY = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Days or weeks of a run.

    firsts: shape (p,), where the ticks of each begin among those of the run; they end where the next begin.
    keys: shape (p,), the number of different keys with rows in each.
    """

    firsts: Ints
    keys: Ints

    def inside(self, first: int, stop: int, ticks: int) -> slice:
        """The periods of which all ticks are among those from `first` to `stop` (exclusive), of `ticks`."""
        ends = np.append(self.firsts[1:], ticks)
        start = int(self.firsts.searchsorted(first))
        return slice(start, max(start, int(ends.searchsorted(stop, "right"))))


@dataclass(frozen=True, slots=True, eq=False)
class KeyDays:
    """The days and weeks of a run.

    thresholds: of the sample of each day, 1 to ALL; 0 for a day without one. samples: the sampled hashes of
    each day, ascending.
    """

    days: Periods
    weeks: Periods
    thresholds: tuple[int, ...]
    samples: tuple[Hashes, ...]

    @property
    def nbytes(self) -> int:
        """The memory of the arrays."""
        periods = sum(one.firsts.nbytes + one.keys.nbytes for one in (self.days, self.weeks))
        return periods + sum(sample.nbytes for sample in self.samples)

    def has_only(self, found: KeyDays) -> bool:
        """Whether the numbers are those found in the rows, and the samples are parts of the found ones."""
        same = all(
            np.array_equal(mine.firsts, other.firsts) and np.array_equal(mine.keys, other.keys)
            for mine, other in ((self.days, found.days), (self.weeks, found.weeks))
        )
        return same and all(
            threshold <= most and np.array_equal(sample, below(hashes, threshold))
            for threshold, sample, most, hashes in zip(
                self.thresholds, self.samples, found.thresholds, found.samples, strict=True
            )
        )


@dataclass(frozen=True, slots=True)
class _End:
    """The first or the last row of a part that has a time: its key, and the index of its day and week."""

    name: Name
    day: int
    week: int


@dataclass(frozen=True, slots=True, eq=False)
class DayPart:
    """What a part of a run, such as a file, adds.

    ends: its first and last row; None without rows that have a time. days, weeks: numbers of keys.
    limits: shape (days,); the hashes of a day up to its limit, inclusive, are among `hashes`.
    owners, hashes: the day of each sampled key, and its hash; by day, then hash.
    """

    ends: tuple[_End, _End] | None
    days: Ints
    weeks: Ints
    limits: Hashes
    owners: Ints
    hashes: Hashes


class _Calendar:
    """The days and weeks of ascending ticks: those of each cell (a tick), -1 without a time."""

    def __init__(self, ticks: Ints, ticks_a_day: int) -> None:
        timed = ticks != NO_TICK
        days = ticks[timed] // ticks_a_day
        self.day_firsts, self.days = _numbered(days, timed)
        self.week_firsts, self.weeks = _numbered((days - MONDAY) // 7, timed)
        self.sample = min(DAY_KEYS, max(1, RUN_DAY_KEYS // max(1, len(self.day_firsts))))


def _numbered(periods: Ints, timed: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Where each period begins among all ticks, and the index of the period of each tick."""
    begins = np.flatnonzero(np.diff(periods, prepend=periods[:1] - 1))
    indices = np.full(len(timed), -1, np.int64)
    indices[timed] = np.cumsum(np.diff(periods, prepend=periods[:1]) != 0)
    return begins + int((~timed).sum()), indices


class DayCollector:
    """Counts and samples the keys of each day of sorted rows, which are added in pieces of any length.

    totals: the rows of the whole run by tick. ticks_a_day: how many ticks a day has.
    """

    def __init__(self, totals: TickCounts, ticks_a_day: int) -> None:
        self._calendar = calendar = _Calendar(totals.ticks, ticks_a_day)
        self._sample = calendar.sample
        self._rows = int(totals.counts.sum())
        self._days = np.zeros(len(calendar.day_firsts), np.int64)
        self._weeks = np.zeros(len(calendar.week_firsts), np.int64)
        self._limits = np.full(len(self._days), _ANY)
        self._first: _End | None = None
        self._last: _End | None = None
        self._waiting: list[tuple[Ints, Hashes]] = []

    def add(self, rows: KeyRows, cells: Ints, words: Hashes) -> None:
        """Adds the next rows. cells: the index of each row's tick. words: `name_words` of the rows' names."""
        days, codes = self._calendar.days[cells], rows.codes
        weeks = self._calendar.weeks[cells]
        if (days < 0).any():
            timed = days >= 0
            days, weeks, codes = days[timed], weeks[timed], codes[timed]
        if not len(days):
            return
        first, last = (_End(name_at(rows.names, int(codes[i])), int(days[i]), int(weeks[i])) for i in (0, -1))
        new_key = np.diff(codes, prepend=codes[:1] - 1) != 0
        new_day, new_week = (new_key | (np.diff(one, prepend=one[:1]) != 0) for one in (days, weeks))
        if self._last is not None and self._last.name == first.name:
            new_day[0] = first.day != self._last.day
            new_week[0] = first.week != self._last.week
        self._first, self._last = self._first or first, last
        self._weeks += np.bincount(weeks[new_week], minlength=len(self._weeks))
        owners, found = days[new_day], splitmix(words)[codes[new_day]]
        self._days += np.bincount(owners, minlength=len(self._days))
        kept = found <= self._limits[owners]
        self._waiting.append((owners[kept], found[kept]))
        if sum(len(part) for part, _ in self._waiting) > 2 * max(PART_KEYS, len(self._days) * self._sample):
            self._prune(self._sample)

    def _prune(self, most: int) -> tuple[Ints, Hashes]:
        owners, hashes, self._limits = _least(self._waiting, self._limits, most)
        self._waiting = [(owners, hashes)]
        return owners, hashes

    def finish(self, rows: int) -> DayPart:
        """The keys of all pairs added, which stand for so many rows of `events`."""
        owners, hashes = self._prune(self._sample)
        most = _fitting(np.bincount(owners), max(PART_KEYS, 4 * RUN_DAY_KEYS * rows // max(1, self._rows)))
        if most < self._sample:
            owners, hashes = self._prune(most)
        ends = None if self._first is None or self._last is None else (self._first, self._last)
        return DayPart(ends, self._days, self._weeks, self._limits, owners, hashes)


def _fitting(sizes: Ints, most: int) -> int:
    """The greatest size at which samples of at most these sizes have `most` keys together, or about."""
    low, high = 1, int(sizes.max(initial=1))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= most else (low, middle - 1)
    return low


def _least(parts: Sequence[tuple[Ints, Hashes]], limits: Hashes, most: int) -> tuple[Ints, Hashes, Hashes]:
    """The `most` least hashes of each day, in order, each once, and the limits up to which they are all."""
    owners = np.concatenate([np.empty(0, np.int64), *(part for part, _ in parts)])
    hashes = np.concatenate([np.empty(0, np.uint64), *(part for _, part in parts)])
    inside = hashes <= limits[owners]
    owners, hashes = owners[inside], hashes[inside]
    order = np.argsort(hashes)
    short = np.min_scalar_type(len(limits))  # numpy sorts numbers of 16 bits in one pass
    order = order[np.argsort(owners[order].astype(short), kind="stable")]
    owners, hashes = owners[order], hashes[order]
    new = np.ones(len(order), bool)
    new[1:] = (owners[1:] != owners[:-1]) | (hashes[1:] != hashes[:-1])
    owners, hashes = owners[new], hashes[new]
    places = np.arange(len(owners)) - owners.searchsorted(owners)
    limits, beyond = limits.copy(), places == most
    limits[owners[beyond]] = hashes[beyond] - np.uint64(1)
    return owners[places < most], hashes[places < most], limits


def join_days(parts: Sequence[DayPart], ticks: Ints, ticks_a_day: int, detail: int) -> KeyDays:
    """The days of a run from its consecutive parts.

    detail: below it, the run's own sample has the ticks of its keys. Days without a higher threshold have no
        sample.
    """
    calendar = _Calendar(ticks, ticks_a_day)
    days, weeks = np.zeros(len(calendar.day_firsts), np.int64), np.zeros(len(calendar.week_firsts), np.int64)
    limits = np.full(len(days), _ANY)
    for part in parts:
        days, weeks, limits = days + part.days, weeks + part.weeks, np.minimum(limits, part.limits)
    for (_, before), (after, _) in pairwise(part.ends for part in parts if part.ends is not None):
        days[after.day] -= before.name == after.name and before.day == after.day
        weeks[after.week] -= before.name == after.name and before.week == after.week
    owners, hashes, limits = _least([(part.owners, part.hashes) for part in parts], limits, calendar.sample)
    thresholds = [limit + 1 if limit + 1 > detail else 0 for limit in limits.tolist()]
    samples = np.split(hashes, owners.searchsorted(np.arange(1, len(days)))) if len(days) else []
    return KeyDays(
        Periods(calendar.day_firsts, days),
        Periods(calendar.week_firsts, weeks),
        tuple(thresholds),
        tuple(below(sample, threshold) for sample, threshold in zip(samples, thresholds, strict=True)),
    )


def to_arrow(days: KeyDays, ticks: Ints) -> dict[str, pa.Table]:
    """The row groups ``days`` and ``weeks``."""
    contents = [
        None if not threshold else (threshold % ALL).to_bytes(8, "little") + sample.astype("<u8").tobytes()
        for threshold, sample in zip(days.thresholds, days.samples, strict=True)
    ]
    tables = {DAYS_GROUP: (days.days, contents), WEEKS_GROUP: (days.weeks, [None] * len(days.weeks.keys))}
    return {
        name: pa.table(
            {
                "tick": pa.array(ticks[periods.firsts]),
                "count": pa.array(periods.keys),
                CONTENT_FIELD.name: pa.array(content, CONTENT_FIELD.type),
            }
        )
        for name, (periods, content) in tables.items()
    }


def from_arrow(days: pa.Table, weeks: pa.Table, ticks: Ints) -> KeyDays:
    """The days of the two row groups; DamagedWarehouse if they are not those of these ticks."""
    contents: list[bytes | None] = days.column(CONTENT_FIELD.name).to_pylist()
    if any(content is not None and len(content) % 8 for content in contents) or b"" in contents:
        raise DamagedWarehouse("the samples of the days' keys are not as many bytes as hashes have")
    return KeyDays(
        _periods(days, ticks),
        _periods(weeks, ticks),
        tuple(0 if content is None else int.from_bytes(content[:8], "little") or ALL for content in contents),
        tuple(np.frombuffer(content or b"", "<u8", offset=8 if content else 0) for content in contents),
    )


def _periods(table: pa.Table, ticks: Ints) -> Periods:
    names = as_numpy(table.column("tick"))
    if not np.isin(names, ticks).all() or (np.diff(names) <= 0).any():
        raise DamagedWarehouse("the days of the distinct keys are of other ticks than the run's")
    return Periods(ticks.searchsorted(names), as_numpy(table.column("count")))
