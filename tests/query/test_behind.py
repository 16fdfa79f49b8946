"""A table whose log is behind the others': every question is right, or refused by the name of the table.

The oracle is the list of all rows. A log is behind if it lost its newest commits or the last line of one, if
the table was put back to an earlier version, or if its folder is gone.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tidemark import query, stream, warehouse
from tidemark.query.reader import Reader
from tidemark.warehouse.ledger import batch_counts
from tidemark.warehouse.repairs import ledger
from tidemark.warehouse.snapshots.behind import StepsTold
from tidemark.warehouse.snapshots.snapshot import Snapshot

DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
STEPS, ROWS = 5, 40
TABLES = ["events", "steps", "runs/x", "runs/i", "keys/k", "group_runs/k/x", "group_runs/k/i"]
MARKS = ["marks/x", "key_marks/k", "group_marks/k/x"]


def rows(seed: int, count: int = ROWS) -> pa.Table:
    draw = random.Random(seed)
    return pa.table(
        {
            "t": pa.array([DAY + dt.timedelta(hours=draw.randrange(90)) for _ in range(count)]),
            "k": [f"k{draw.randrange(4)}" for _ in range(count)],
            "x": [draw.gauss(0, 1) for _ in range(count)],
            "i": [draw.randrange(-9, 9) for _ in range(count)],
        }
    )


ALL = pa.concat_tables([*(rows(step) for step in range(STEPS)), rows(99, 9)])


def make(folder: Path, *, live: bool = True) -> Path:
    """A warehouse with history of several levels and one live batch."""
    columns: Any = {"keys": ["k"], "groups": ["k"], "measures": ["x", "i"]}
    warehouse.create(None, folder, schema=rows(0, 1).schema, time="t", eps=0.1, kappa=3, **columns)
    for step in range(STEPS):
        warehouse.load(None, folder, rows(step), f"b{step}")
    if live:
        stream.append(None, folder, rows(99, 9), source="web", batch=0)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("behind") / "w")


@pytest.fixture(scope="module")
def without_live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("behind") / "w", live=False)


def exact(wh: Reader, measure: str, **more: Any) -> tuple[int, Any]:
    answer: Any = wh.quantile(0.5, measure, mode="exact", **more)
    return answer.n + answer.m, answer.value


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "all rows": lambda wh: exact(wh, "x"),
    "a second measure": lambda wh: exact(wh, "i")[0],
    "quick": lambda wh: wh.quantile(0.5, "x", mode="quick").N,
    "rank": lambda wh: wh.rank(0.0, mode="exact").rank_hi,
    "a group": lambda wh: exact(wh, "x", where={"k": "k1"})[0],
    "by": lambda wh: sum(one.N for one in wh.quantile(0.5, "x", by="k")),
    "by of the second": lambda wh: sum(one.N for one in wh.quantile(0.5, "i", by="k", top=9)),
    "frequency": lambda wh: wh.frequency("k1", mode="exact").count,
    "top": lambda wh: {one.value: one.count for one in wh.top(9, mode="exact")},
    "distinct": lambda wh: wh.distinct(mode="exact").count,
    "persistence": lambda wh: len(wh.persistent(0.01, mode="exact")),
    "scan": lambda wh: exact(wh, "x", where="i > -100"),
    "sql": lambda wh: wh.sql("SELECT count(*), sum(i) FROM events").fetchall(),
}


def truths(of: pa.Table) -> dict[str, Any]:
    """The right answer of each question, by its name."""
    xs, numbers, keys = (of.column(name).to_pylist() for name in ("x", "i", "k"))
    count, middle = len(xs), sorted(xs)[-(-len(xs) // 2) - 1]
    return {
        **dict.fromkeys(QUESTIONS, count),
        "all rows": (count, middle),
        "rank": sum(value <= 0 for value in xs),
        "a group": keys.count("k1"),
        "frequency": keys.count("k1"),
        "top": Counter(keys),
        "distinct": len(set(keys)),
        "persistence": len(set(keys)),
        "scan": (count, middle),
        "sql": [(count, sum(numbers))],
    }


def lose_commits(folder: Path, table: str, number: int) -> None:
    """The folder was copied before the newest commits."""
    log = folder / table / "_delta_log"
    for path in [*sorted(log.glob("*.json"))[-number:], *log.glob("*checkpoint*")]:
        path.unlink()


def lose_a_line(folder: Path, table: str) -> None:
    log = folder / table / "_delta_log"
    for path in log.glob("*checkpoint*"):
        path.unlink()
    newest = max(log.glob("*.json"))
    newest.write_text("\n".join(newest.read_text().splitlines()[:-1]) + "\n")


def cut_a_line(folder: Path, table: str) -> None:
    newest = max((folder / table / "_delta_log").glob("*.json"))
    newest.write_text(newest.read_text()[:-60])


def put_back(folder: Path, table: str, number: int) -> None:
    delta = DeltaTable(folder / table)
    delta.restore(delta.version() - number)


KINDS: dict[str, Callable[[Path, str], None]] = {
    "the newest commit is gone": lambda folder, table: lose_commits(folder, table, 1),
    "two commits are gone": lambda folder, table: lose_commits(folder, table, 2),
    "the last line is gone": lose_a_line,
    "the last line is cut": cut_a_line,
    "put back by one": lambda folder, table: put_back(folder, table, 1),
    "put back by two": lambda folder, table: put_back(folder, table, 2),
    "the folder is gone": lambda folder, table: shutil.rmtree(folder / table),
}


def wrong(folder: Path, *tables: str, of: pa.Table = ALL) -> Iterator[str]:
    """The questions that are answered wrongly, or refused without the name of one of the tables.

    of   the rows of the warehouse
    """
    try:
        wh = query.open(folder)
    except warehouse.DamagedWarehouse as error:  # a log that cannot be read
        if not any(table in str(error) for table in tables):
            yield str(error)
        return
    for name, truth in truths(of).items():
        try:
            answer = QUESTIONS[name](wh)
        except (warehouse.DamagedWarehouse, duckdb.Error) as error:
            if not any(table in str(error) for table in tables):
                yield f"{name}: {error}"
        else:
            if answer != truth:
                yield f"{name}: {answer} instead of {truth}"


def test_the_whole_warehouse_answers_rightly(whole: Path) -> None:
    assert list(wrong(whole)) == []
    assert query.open(whole).info()["behind"] == ""


@pytest.mark.parametrize("table", [*TABLES, *MARKS])
def test_a_table_behind_the_others_is_refused_or_does_not_matter(
    whole: Path, tmp_path: Path, table: str
) -> None:
    kinds = random.Random(table).sample(sorted(KINDS), 2)
    for number, kind in enumerate(kinds):
        folder = shutil.copytree(whole, tmp_path / str(number))
        KINDS[kind](folder, table)
        assert list(wrong(folder, table)) == [], kind


def lose_one_remove(folder: Path, table: str) -> None:
    """A merge's commit lacks the line that removes one of its inputs."""
    log = folder / table / "_delta_log"
    for path in log.glob("*checkpoint*"):
        path.unlink()
    merged = [path for path in sorted(log.glob("*.json")) if '{"remove"' in path.read_text()]
    lines = merged[-1].read_text().splitlines()
    lines.remove(next(line for line in lines if line.startswith('{"remove"')))
    merged[-1].write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("table", ["runs/i", "keys/k", "group_runs/k/x"])
def test_a_merge_that_lost_a_line_is_told_with_the_table(whole: Path, tmp_path: Path, table: str) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    lose_one_remove(folder, table)
    assert list(wrong(folder, table)) == []
    assert "do not partition the steps" in str(warehouse.verify(folder))


def append_again(folder: Path, table: str) -> None:
    """Another tool appends the rows that the table has."""
    write_deltalake(folder / table, DeltaTable(folder / table).to_pyarrow_table(), mode="append")


def check_added(whole: Path, folder: Path, table: str) -> None:
    shutil.copytree(whole, folder)
    append_again(folder, table)
    assert list(wrong(folder, table)) == []
    assert not warehouse.verify(folder).ok
    report = warehouse.repair(None, folder)
    if table == "events":
        assert "has 40 more rows" in str(report.only_a_copy)
    else:
        assert report.outcome == "repaired"
        assert list(wrong(folder)) == []
        assert warehouse.verify(folder).ok


@pytest.mark.parametrize("table", ["events", "ledger", "steps"])
def test_rows_that_another_tool_added_count_once_or_are_told(whole: Path, tmp_path: Path, table: str) -> None:
    check_added(whole, tmp_path / "w", table)


@pytest.mark.parametrize(
    ("table", "broken"),
    [
        ("events", (batch_counts, "is_complete", lambda *_: True)),
        ("ledger", (ledger, "_copied", lambda *_: {})),
    ],
)
def test_rows_that_were_added_and_not_looked_for_are_caught(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, broken: tuple[Any, str, Any]
) -> None:
    monkeypatch.setattr(*broken)
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        check_added(whole, tmp_path / "w", table)


def test_random_pairs_of_tables_behind_the_others(whole: Path, tmp_path: Path) -> None:
    draw = random.Random(8)
    for number in range(3):
        tables, folder = draw.sample(TABLES, 2), shutil.copytree(whole, tmp_path / str(number))
        for table in tables:
            KINDS[draw.choice(sorted(KINDS))](folder, table)
        assert list(wrong(folder, *tables)) == [], tables


def test_without_the_comparison_fewer_rows_are_answered(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variants: the tables' steps are not compared, or the rows of `events` are not counted."""
    runs = shutil.copytree(whole, tmp_path / "runs")
    lose_commits(runs, "runs/x", 2)
    events = shutil.copytree(whole, tmp_path / "events")
    lose_commits(events, "events", 2)
    with monkeypatch.context() as patch:
        patch.setattr(StepsTold, "damage", lambda *_: None)
        patch.setattr(Snapshot, "_pending", lambda *_: {})
        assert any("169 instead of" in text or "(169," in text for text in wrong(runs, "runs/x"))
    with monkeypatch.context() as patch:
        patch.setattr(batch_counts, "check_complete", lambda *_: None)
        assert any(text.startswith("scan") for text in wrong(events, "events"))


def kill(folder: Path, seed: int, point: str, number: int) -> None:
    """A bulk load that ends when it reaches a point for the given time."""
    reached: Counter[str] = Counter()

    def look(name: str) -> None:
        reached[name] += 1
        if (name, reached[name]) == (point, number):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warehouse.load(None, folder, rows(seed), f"b{seed}", progress=look)


@pytest.mark.parametrize(
    ("point", "number", "behind"),
    [("sorted", 1, 5), ("marked", 1, 5), ("committed", 1, 4), ("committed", 4, 1)],
)
def test_a_step_that_was_begun_is_there_for_all_columns(
    whole: Path, tmp_path: Path, point: str, number: int, behind: int
) -> None:
    """A killed load is no damage: what it has not committed is read from `events`, and told."""
    folder, seed = shutil.copytree(whole, tmp_path / "w"), STEPS
    kill(folder, seed, point, number)
    there = ALL if point == "sorted" else pa.concat_tables([ALL, rows(seed)])
    assert list(wrong(folder, of=there)) == []
    report = warehouse.verify(folder)
    told = query.open(folder).info()["behind"]
    assert report.ok
    assert told.count(" is 1 step behind") == behind
    assert told in str(report)
    warehouse.load(None, folder)
    assert list(wrong(folder, of=pa.concat_tables([ALL, rows(seed)]))) == []
    assert query.open(folder).info()["behind"] == ""


def test_an_open_reader_follows_a_load_from_commit_to_commit(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    wh, found = query.open(folder), []

    def look(point: str) -> None:
        if point in ("planned", "marked", "committed"):
            found.append([ask(wh) for ask in (lambda wh: exact(wh, "x")[0], QUESTIONS["top"])])

    before, after = (truths(of) for of in (ALL, pa.concat_tables([ALL, rows(STEPS)])))
    warehouse.load(None, folder, rows(STEPS), f"b{STEPS}", progress=look)
    assert all(n in (before["by"], after["by"]) for n, _ in found)
    assert all(top in (before["top"], after["top"]) for _, top in found)
    assert found[-1] == [after["by"], after["top"]]


@pytest.mark.parametrize("table", ["events", "steps"])
@pytest.mark.parametrize("kind", ["the newest commit is gone", "put back by one"])
def test_a_load_onto_a_table_behind_the_others_is_refused(
    whole: Path, without_live: Path, tmp_path: Path, table: str, kind: str
) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    if table == "events":  # the live batch is the newest commit there
        lose_commits(folder, table, 1)
        shutil.rmtree(folder / "ledger")
        shutil.copytree(without_live / "ledger", folder / "ledger")
    KINDS[kind](folder, table)
    before = sorted(path for path in folder.rglob("*.json"))
    given = [(rows(STEPS - 1), f"b{STEPS - 1}"), *([(rows(77), "new")] if table == "steps" else [])]
    for of, name in given:
        with pytest.raises(warehouse.DamagedWarehouse, match=table):
            warehouse.load(None, folder, of, name)
    assert sorted(path for path in folder.rglob("*.json") if path.parent.parent.name != "events") == [
        path for path in before if path.parent.parent.name != "events"
    ]


@pytest.mark.parametrize("table", [*TABLES[2:], "group_runs/k/x"])
def test_a_load_builds_the_steps_that_runs_lost(whole: Path, tmp_path: Path, table: str) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    lose_commits(folder, table, 2)
    assert warehouse.load(None, folder, rows(STEPS - 1), f"b{STEPS - 1}").outcome == "loaded"
    assert list(wrong(folder)) == []
    assert warehouse.verify(folder).ok


@pytest.mark.parametrize("table", ["events", "steps", "runs/x", "keys/k", "marks/x", "group_marks/k/x"])
def test_verify_tells_a_table_behind_the_others_and_maintenance_deletes_nothing(
    whole: Path, tmp_path: Path, table: str
) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    lose_commits(folder, table, 2)
    report = warehouse.verify(folder)
    assert not report.ok
    assert any(table in check.detail for check in report.checks if not check.ok)
    before = sorted(folder.rglob("*"))
    with pytest.raises(warehouse.DamagedWarehouse, match=table):
        warehouse.maintain(None, folder, grace="0 seconds")
    assert sorted(folder.rglob("*")) == before
