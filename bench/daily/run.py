"""Asks the questions of tidemark and of other engines, and writes the section.

DuckDB is asked over the files of `events` and over the files that were loaded, in turn with tidemark. After
that, because their threads could disturb these, ClickHouse is asked over a table of its own, and Polars over
the files of `events`, less often. Answers are compared before anything is timed.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from bench.daily.key_questions import key_questions
from bench.daily.measure_questions import measure_questions
from bench.daily.peers import other_peers
from bench.daily.question import SLACK_MS, Question, condition
from bench.daily.rows import DAY, LIVE, WEEK, Sizes, fill
from bench.daily.ways import measure_far_ways, measure_ways
from bench.engines import Duck
from bench.latency import MS, timed
from bench.report import Section, number, say, table
from tidemark import query

TIMES = 1.1  # a question takes at most so much more than DuckDB, and SLACK_MS
FEW_TURNS, LONG_MS = 3, 1_000.0  # of the others: turns, and one turn where a question takes longer than this
QUICK = (Sizes(3_000, 20, 300, 1, nights=4, share=6),)
SIZES = (Sizes(3_000_000), Sizes(30_000_000))
FAR_NIGHTS = 9  # of a warehouse in an object store, with at most so many of the rows:
FAR_ROWS = 300_000
FAR_SHARE = 3  # of its questions one of so many is asked, because each waits for the store


@dataclass(frozen=True, slots=True)
class Asked:
    """A question: its answer by DuckDB as sorted rows, and the medians in ms by the names of engines."""

    question: Question
    answer: list[tuple[Any, ...]]
    taken: dict[str, float]


OURS, EVENTS, LOADED = "tidemark", "DuckDB over events", "DuckDB over the loaded files"


def run(work: Path, all_sizes: Sequence[Sizes]) -> Section:
    """Measures all questions and returns the section."""
    section = Section("daily", "Daily: what analysts ask, beside scans")
    for sizes in all_sizes:
        _measure_all(section, work / "daily", sizes, questions(sizes), chooses=sizes is all_sizes[0])
    first = all_sizes[0]
    far = replace(first, rows=min(first.rows, FAR_ROWS), nights=min(first.nights, FAR_NIGHTS))
    some = questions(far)[:: FAR_SHARE * far.share]
    measure_far_ways(section, work / "far", far, some, min(far.turns, FEW_TURNS))
    return section


def run_heaviest(work: Path, sizes: Sizes) -> Section:
    """Measures the twelve questions that take scans longest, and returns the section."""
    section = Section("daily-heaviest", "Daily: the twelve heaviest questions, over more rows")
    heaviest = [question for question in questions(sizes) if question.is_heavy]
    assert len(heaviest) == 12, [question.name for question in heaviest]
    _measure_all(section, work / "daily", sizes, heaviest)
    return section


def questions(sizes: Sizes) -> list[Question]:
    """All questions, in the order of the report."""
    return [*measure_questions(), *key_questions(sizes)]


def _measure_all(
    section: Section, folder: Path, sizes: Sizes, asked: Sequence[Question], *, chooses: bool = False
) -> None:
    """Makes the rows, asks the questions of all engines, and adds their figures and their table.

    chooses: whether figures about the choice of ways are added; they take as long as all else.
    """
    fill(folder, sizes)
    events = DeltaTable(folder / "w" / "events").file_uris()
    loaded = sorted(map(str, (folder / "source").glob("*.parquet")))
    ducks = {EVENTS: Duck(events), LOADED: Duck(loaded)}
    wh = query.open(folder / "w")
    found = [_measure(question, wh, ducks, sizes.turns) for question in asked]
    for name, kind in other_peers().items():
        peer = kind(events)
        for one in found:
            one.taken[name] = _measure_other(one, peer.rows, min(sizes.turns, FEW_TURNS))
            say(f"  {one.question.name}: {name} {one.taken[name]:.1f} ms")
        peer.close()
    _report(section, sizes, found)
    if chooses:
        measure_ways(
            section, f"{sizes.rows / 1e6:g} M rows", wh, asked[:: sizes.share], min(sizes.turns, FEW_TURNS)
        )
    shutil.rmtree(folder)


def _measure(question: Question, wh: Any, ducks: Mapping[str, Duck], turns: int) -> Asked:
    """Asks tidemark and DuckDB in turn, after their answers were compared."""
    sql = _statement(question)
    works: dict[str, Callable[[], Any]] = {OURS: partial(question.ask, wh)}
    works |= {name: partial(duck.rows, sql) for name, duck in ducks.items()}
    ours = sorted(question.rows(works[OURS]()))
    theirs = [sorted(works[name]()) for name in ducks]
    assert all(ours == rows for rows in theirs), (question.name, [rows[:3] for rows in (ours, *theirs)])
    taken = [[timed(work)[0] for work in works.values()] for _ in range(turns)]
    medians = [statistics.median(column) * MS for column in zip(*taken, strict=True)]
    say(f"  {question.name}: {medians[0]:.1f} ms, DuckDB {medians[1]:.1f} and {medians[2]:.1f}")
    return Asked(question, ours, dict(zip(works, medians, strict=True)))


def _measure_other(asked: Asked, rows: Callable[[str], list[tuple[Any, ...]]], turns: int) -> float:
    """The median of another engine in ms, after its answer was compared."""
    work = partial(rows, _statement(asked.question))
    first, found = timed(work)
    assert sorted(found) == asked.answer, (asked.question.name, sorted(found)[:3], asked.answer[:3])
    turns = 1 if first * MS > LONG_MS else turns
    return statistics.median(timed(work)[0] for _ in range(turns)) * MS


def _statement(question: Question) -> str:
    return question.sql.format(week=condition(*WEEK), day=condition(*DAY))


def _report(section: Section, sizes: Sizes, found: Sequence[Asked]) -> None:
    """The figures and the table of one size."""
    title, engines = f"{sizes.rows / 1e6:g} M rows", list(found[0].taken)
    beyond = [(one.taken[OURS] - SLACK_MS) / one.taken[EVENTS] for one in found]
    late = sum(one > TIMES for one in beyond)
    section.add(f"{title}: questions slower than {TIMES} x DuckDB + {SLACK_MS:g} ms", late, "questions", 0)
    section.add(f"{title}: the slowest, without these {SLACK_MS:g} ms / DuckDB", max(beyond), "x", TIMES)
    for engine in (EVENTS, *engines[3:]):
        middle = statistics.median(one.taken[engine] / one.taken[OURS] for one in found)
        name = "DuckDB" if engine == EVENTS else engine
        section.add(f"{title}: {name} / tidemark, median of {len(found)} questions", middle, "x")
    lines = [
        [one.question.name, *map(number, one.taken.values()), number(one.taken[OURS] / one.taken[EVENTS])]
        for one in found
    ]
    missing = [name for name in ("ClickHouse", "Polars") if name not in engines]
    section.text(
        f"{sizes.rows:,} web requests in {sizes.nights} nightly loads and {LIVE} live batches, tick 1h, "
        f"keys url ({sizes.urls:,}) and user_id ({sizes.users:,}, flat), groups region and url. Warm medians "
        f"of {sizes.turns}; every answer is exact and was compared first. The ratio is tidemark / DuckDB "
        "over `events`. ClickHouse has the rows in a MergeTree table in the order of the time; Polars reads "
        f"the files of `events`. Both are asked {FEW_TURNS} times, but once where an answer takes longer "
        "than a second."
        + "".join(f" {name} was not measured: its package is not installed." for name in missing)
        + "\n\n"
        + table(["question", *(f"{name} (ms)" for name in engines), "ratio"], lines)
        + "\n\n"
        + _ends(title, found)
    )


def _ends(title: str, found: Sequence[Asked]) -> str:
    """The table of the slowest and the fastest question beside DuckDB, which pages show."""
    ordered = sorted(found, key=lambda one: (one.taken[OURS] - SLACK_MS) / one.taken[EVENTS])
    fastest = min(found, key=lambda one: one.taken[OURS] / one.taken[EVENTS])
    lines = [
        [f"{title}: {end}", f'asks for "{one.question.name}"', *(f"{number(ms)} ms" for ms in taken)]
        for end, one in (("the slowest", ordered[-1]), ("the fastest", fastest))
        for taken in [(one.taken[OURS], one.taken[EVENTS])]
    ]
    return table(["beside DuckDB over events", "question", "tidemark", "DuckDB"], lines)
