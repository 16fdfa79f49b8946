"""Part `change`: what it costs that rows leave or are corrected, beside Delta's own DELETE and MERGE.

A warehouse with a measure, a key and a group has a run for each load. Each change is made to a copy of it,
and by delta-rs, the peer, to a copy of its table `events` alone: the peer rewrites the files with such rows,
and has no answers to keep. Rows are found by a condition, or, to be corrected, by their user and time. Both
take turns. Answers are compared with the rows that are left, before anything counts. Then questions are asked
of the warehouse as it was, right after a small change, and after maintenance.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from bench.data import DAY_US, FIRST_DAY, Oracle
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from bench.turns import turns_of
from tidemark import query, warehouse

SMALL, LARGE = 1.3, 2.5  # a change takes at most so many times what Delta's DELETE of the same rows takes
AFTER, MAINTAINED = 1.15, 1.05  # a question takes at most so many times what it took before
DRAWS = 300  # values of the column by which a share of all rows leaves
SITES = 50
USER = 7  # whose rows leave
CORRECTED = 1000  # of so many rows one is corrected
RAISED = 1.0  # what a correction adds to a value
PHIS = [0.0, 0.01, 0.5, 0.99, 1.0]


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: in `steps` loads, of `users` that are equally frequent; each change is made `turns` times."""

    rows: int
    steps: int = 25
    users: int = 100_000
    turns: int = 3
    asks: int = 75  # how often each question is asked
    quiet: float = 3.0  # seconds after maintenance, until readers ask each log once (snapshots/quiet_logs.py)


QUICK = Sizes(6_000, 3, 60, 1, 1, 0)


@dataclass(frozen=True, slots=True)
class History:
    """Rows that were loaded; arrays of shape (rows,). Times are in microseconds since 1970."""

    step: NDArray[np.int64]
    user: NDArray[np.int64]
    site: NDArray[np.int64]
    draw: NDArray[np.int64]
    time: NDArray[np.int64]
    value: NDArray[np.float64]

    @property
    def columns(self) -> list[NDArray[Any]]:
        """The arrays, in the order of the fields."""
        return [getattr(self, one.name) for one in fields(self)]

    def taken(self, which: NDArray[Any]) -> History:
        """Some of the rows, by a mask or by their numbers."""
        return History(*(column[which] for column in self.columns))

    def table(self) -> pa.Table:
        """The rows as they are loaded."""
        names = pa.array([_site(number) for number in range(SITES)])
        return pa.table(
            {
                "value": self.value,
                "user_id": self.user,
                "site": pa.DictionaryArray.from_arrays(self.site, names).cast(pa.string()),
                "draw": self.draw,
                "at": pa.array(self.time, pa.timestamp("us", "UTC")),
            }
        )


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """make: changes the warehouse at an address. plain: the peer's change of the same rows; their number.

    rows: this number. left: makes the rows that are there afterwards; those of all changes may be too many
    for memory. most: see SMALL and LARGE.
    """

    name: str
    make: Callable[[str], warehouse.RemovalReport]
    plain: Callable[[DeltaTable], int]
    rows: int
    left: Callable[[], History]
    most: float


def changes(sizes: Sizes, rows: History) -> list[Change]:
    """The changes, in the order of the report."""
    kept = sizes.steps // 3  # the first step that does not expire
    first_day = date(1970, 1, 1) + timedelta(days=FIRST_DAY + kept)

    def deleting(name: str, where: str, leave: NDArray[np.bool_], most: float) -> Change:
        return leaving(name, lambda uri: warehouse.delete(None, uri, where=where), where, leave, most)

    def leaving(name: str, make: Any, sql: str, leave: NDArray[np.bool_], most: float) -> Change:
        def plain(table: DeltaTable) -> int:
            return int(table.delete(sql)["num_deleted_rows"])

        return Change(name, make, plain, int(leave.sum()), lambda: rows.taken(~leave), most)

    return [
        deleting("delete the rows of one key", f"user_id = {USER}", rows.user == USER, SMALL),
        _correction(rows),
        leaving(
            "unload a step",
            lambda uri: warehouse.unload(None, uri, batch="step 1"),
            "_source = 'load:step 1'",
            rows.step == 1,
            SMALL,
        ),
        deleting("delete 1 % of the rows", "draw < 3", rows.draw < DRAWS // 100, LARGE),
        deleting("delete a third of the rows", "draw < 100", rows.draw < DRAWS // 3, LARGE),
        leaving(
            "expire a third of the rows",
            lambda uri: warehouse.expire(None, uri, before=first_day),
            f"_tick < {FIRST_DAY + kept}",
            rows.step < kept,
            LARGE,
        ),
    ]


def _correction(rows: History) -> Change:
    """Rows of all steps get other values; they are found by their user and their time."""
    count = len(rows.value) // CORRECTED
    which = np.sort(np.random.default_rng(2).choice(len(rows.value), count, replace=False))
    values = rows.value.copy()
    values[which] += RAISED
    left = replace(rows, value=values)  # its other columns are those of `rows`
    new = left.taken(which).table()

    def plain(table: DeltaTable) -> int:
        merger = table.merge(new, "old.user_id = new.user_id AND old.at = new.at", "new", "old")
        return int(merger.when_matched_update({"value": "new.value"}).execute()["num_target_rows_updated"])

    def make(uri: str) -> warehouse.RemovalReport:
        return warehouse.correct(None, uri, new, batch="correction", on=["user_id", "at"])

    return Change(f"correct {count:,} rows", make, plain, count, lambda: left, SMALL)


QUESTIONS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("p50, p90, p99", lambda wh: wh.quantile([0.5, 0.9, 0.99])),
    ("p99, 7 days", lambda wh: wh.quantile(0.99, last="7d")),
    ("p99 by site", lambda wh: wh.quantile(0.99, by="site")),
    ("rows of one user", lambda wh: wh.frequency(USER + 1)),
    ("distinct users", lambda wh: wh.distinct()),
    ("top 10 users", lambda wh: wh.top(10, mode="exact")),
)


def run(work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section = Section("change", "Change: rows that leave")
    folder = work / "change"
    say(f"change: {sizes.rows:,} rows in {sizes.steps} loads")
    rows = _fill(folder / "base", sizes)
    made = changes(sizes, rows)
    lines = [_measured(section, folder, one, sizes.turns) for one in made]
    head = ["change", "rows", "tidemark (s)", "Delta (s)", "ratio", "tidemark (MB)", "Delta (MB)", "ratio"]
    section.text(
        f"{sizes.rows:,} rows in {sizes.steps} runs with a measure, a key ({sizes.users:,} users) and a "
        f"group ({SITES} sites), in this process. Delta is `DeltaTable.delete` of delta-rs on a copy of "
        "`events`, and `DeltaTable.merge` where rows are corrected. Medians of "
        f"{sizes.turns}; MB are of all files that were written:\n\n" + table(head, lines)
    )
    _ask(section, folder, made[0], sizes)
    shutil.rmtree(folder)
    return section


def _measured(section: Section, folder: Path, change: Change, turns: int) -> list[str]:
    """Makes a change several times, and adds its figures; its line of the table."""
    left, plain = folder / "changed", folder / "plain"
    taken = []
    for turn in turns_of(turns):
        ours = _made(folder / "base", left, lambda: change.make(str(left)))
        assert ours.result.outcome in ("removed", "corrected"), ours.result
        if turn <= 0:  # all turns leave the same rows
            _check(left, change.left())
        theirs = _made(folder / "base" / "events", plain, lambda: change.plain(DeltaTable(plain)))
        assert ours.result.rows == theirs.result == change.rows, (ours.result, theirs.result)
        if turn >= 0:
            taken.append((ours.seconds, theirs.seconds, ours.written / 1e6, theirs.written / 1e6))
        shutil.rmtree(left)
        shutil.rmtree(plain)
    seconds, plain_seconds, size, plain_size = (statistics.median(own) for own in zip(*taken, strict=True))
    say(f"  {change.name}: {seconds:.2f} s, Delta {plain_seconds:.2f} s")
    section.add(f"{change.name}: seconds / Delta's", seconds / plain_seconds, "x", change.most)
    section.add(f"{change.name}: bytes / Delta's", size / plain_size, "x", change.most)
    ratios = number(seconds / plain_seconds), number(size / plain_size)
    shown = [number(one) for one in (seconds, plain_seconds, size, plain_size)]
    return [change.name, f"{change.rows:,}", *shown[:2], ratios[0], *shown[2:], ratios[1]]


@dataclass(frozen=True, slots=True)
class _Made:
    """The result of a change, its seconds, and the bytes of the files that it wrote."""

    result: Any
    seconds: float
    written: int


def _made(origin: Path, own: Path, make: Callable[[], Any]) -> _Made:
    """Makes a change to a copy."""
    shutil.copytree(origin, own)
    before = _sizes(own)
    seconds, result = timed(make)
    return _Made(result, seconds, sum(size for path, size in _sizes(own).items() if path not in before))


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _check(uri: Path, rows: History) -> None:
    """The answers are about these rows."""
    wh, oracle = query.open(uri), Oracle(rows.value)
    for answer in wh.quantile(PHIS):
        assert (answer.N, answer.value) == (len(oracle.values), oracle.quantile(answer.phi)), answer
    counts = np.bincount(rows.site, minlength=SITES).tolist()
    found = {str(answer.group): answer.N for answer in wh.quantile(0.5, by="site")}
    true = {str({"site": _site(site)}): count for site, count in enumerate(counts) if count}
    assert found == true, found
    users = np.bincount(rows.user)
    for user in (USER, USER + 1):
        assert wh.frequency(user).count == users[user]
    assert wh.distinct(mode="exact").count == np.count_nonzero(users)


def _ask(section: Section, folder: Path, change: Change, sizes: Sizes) -> None:
    """Asks the questions before a small change, right after it, and after maintenance."""
    left = folder / "changed"
    shutil.copytree(folder / "base", left)
    change.make(str(left))
    lines, worst = [], []
    ratios: list[list[float]] = []
    for _ in range(2):
        pair = [query.open(folder / "base"), query.open(left)]
        ratios.append([])
        for name, ask in QUESTIONS:
            before, after = _medians(ask, pair, sizes.asks)
            ratios[-1].append(after / before)
            lines.append((name, before, after))
        worst.append(max(ratios[-1]))
        warehouse.maintain(None, str(left))
        time.sleep(sizes.quiet)
    _check(left, change.left())
    say("  answers are right after maintenance")
    section.add("questions right after a small delete / before, the slowest", worst[0], "x", AFTER)
    section.add("questions after maintenance / before, the slowest", worst[1], "x", MAINTAINED)
    head = ["question", "before (ms)", "right after (ms)", "ratio", "after maintenance, ratio"]
    shown = [
        [name, number(before * MS), number(after * MS), number(first), number(second)]
        for (name, before, after), first, second in zip(lines, *ratios, strict=False)
    ]
    section.text(
        f"Questions, warm medians of {sizes.asks}, each asked in turn of the warehouse as it was and of the "
        "one that lost the rows of one key:\n\n" + table(head, shown)
    )


def _medians(ask: Callable[[Any], Any], readers: Sequence[Any], asks: int) -> list[float]:
    """The seconds that the question takes each reader."""
    taken = [[timed(partial(ask, wh))[0] for wh in readers] for _ in turns_of(asks)]
    return [statistics.median(own) for own in zip(*taken[-asks:], strict=True)]


def _site(number: int) -> str:
    return f"site-{number:02}"


def _fill(uri: Path, sizes: Sizes) -> History:
    """Makes the rows and loads them, a day a step."""
    rng = np.random.default_rng(1)
    parts: list[History] = []
    for step in range(sizes.steps):
        count = sizes.rows // sizes.steps
        user, site = rng.integers(0, sizes.users, count), rng.integers(0, SITES, count)
        draw, value = rng.integers(0, DRAWS, count), rng.lognormal(3, 1, count)
        in_day = np.sort(rng.integers(0, DAY_US - count, count)) + np.arange(count)  # no two are equal
        times = (FIRST_DAY + step) * DAY_US + in_day
        part = History(np.full(count, step), user, site, draw, times, value)
        table = part.table()
        if not step:
            warehouse.create(
                None,
                uri,
                "value",
                key="user_id",
                groups=["site"],
                time="at",
                kappa=sizes.steps + 1,
                schema=table.schema,
            )
        warehouse.load(None, uri, table, f"step {step}")
        parts.append(part)
    columns = zip(*(one.columns for one in parts), strict=True)
    return History(*map(np.concatenate, columns))
