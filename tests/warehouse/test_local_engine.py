"""Without Spark a warehouse is the same: equal tables, and either engine goes on where the other ended."""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from tests.soak import some
from tests.warehouse.disk import files_of, table_names, tables_of
from tests.warehouse.hereloader import SCHEMA, rows_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.execution import arrow_inputs, executors
from tidemark.warehouse.execution.executors import LocalExecutor, SparkExecutor
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.integrity.digests import fingerprint
from tidemark.warehouse.sizes import Tuning

OPTIONS: dict[str, Any] = {"key": "k", "time": "t", "eps": 0.1, "kappa": 2}
POINTS = ["appended", "planned", "sorted", "marked", "committed", "merge sorted", "merge marked", "merged"]
WRITTEN_WHEN = {"planned_at", "rejected_at", "arrived", "file"}  # tell of the writing, not of the rows
HERE = None  # in place of a Spark session


class Killed(Exception):
    """What a test raises where a process would die."""


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    """An empty warehouse."""
    return created(tmp_path / "w")


def created(uri: Path) -> Path:
    warehouse.create(None, uri, ["x", "n"], schema=SCHEMA, **OPTIONS)
    return uri


def killed_at(point: str) -> Callable[[str], None]:
    def progress(reached: str) -> None:
        if reached == point:
            raise Killed

    return progress


def framed(spark: SparkSession, folder: Path, rows: pa.Table) -> DataFrame:
    """The rows in one partition, in their order."""
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, path)
    return spark.read.parquet(str(path)).coalesce(1)


def contents(uri: Path) -> dict[str, list[str]]:
    """Every row of every table, and what its log says of it: all but the names of files and when it was."""
    found = {}
    for name in table_names(uri):
        table, rows = DeltaTable(uri / name), []
        for file in data_files.list_files(table):
            with pq.ParquetFile(uri / name / file.path) as parquet:
                rows += [{**row, **file.partition} for row in parquet.read().to_pylist()]
        kept = [{k: v for k, v in row.items() if k not in WRITTEN_WHEN} for row in rows]
        stats = [json.dumps(file.stats, default=str, sort_keys=True) for file in data_files.list_files(table)]
        found[name] = [f"version {table.version()}", *sorted(map(repr, kept)), *sorted(stats)]
    return found


def test_both_engines_make_equal_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Loads, a merge, a stream, its load and maintenance: the same rows, runs, marks, sketches, versions."""
    by_spark, here = created(tmp_path / "spark"), created(tmp_path / "here")
    for seed, name in enumerate(["a", "b", "c"]):
        rows = rows_of(seed)
        done = warehouse.load(spark, by_spark, framed(spark, tmp_path, rows), name)
        same = warehouse.load(None, here, rows, name)
        assert (same.outcome, same.step, same.rows) == (done.outcome, done.step, done.rows)
        assert (same.nans, same.nulls, same.runs_by_level) == (done.nans, done.nulls, done.runs_by_level)
    for number in range(2):
        rows = rows_of(10 + number)
        assert stream.append(spark, by_spark, framed(spark, tmp_path, rows), source="s", batch=number)
        assert stream.append(None, here, rows, source="s", batch=number)
    assert contents(here) == contents(by_spark)
    warehouse.load(spark, by_spark)
    warehouse.load(None, here)
    assert contents(here) == contents(by_spark)
    for session, place in ((spark, by_spark), (HERE, here)):
        assert warehouse.maintain(session, place, grace="0 s").compacted["events"] == (5, 1)
        assert warehouse.verify(place).ok
    asked = [query.open(place).quantile([0.1, 0.5, 0.9], mode="exact") for place in (by_spark, here)]
    assert [one.value for one in asked[0]] == [one.value for one in asked[1]]


@pytest.mark.slow
@pytest.mark.parametrize("point", some(POINTS, 3))
def test_a_load_that_was_killed_is_finished_in_this_process(uri: Path, tmp_path: Path, point: str) -> None:
    truth = created(tmp_path / "truth")
    for seed in range(3):
        warehouse.load(None, truth, rows_of(seed), f"night-{seed}")
    for seed in range(2):
        warehouse.load(None, uri, rows_of(seed), f"night-{seed}")
    with pytest.raises(Killed):
        warehouse.load(None, uri, rows_of(2), "night-2", progress=killed_at(point))
    warehouse.load(None, uri, rows_of(2), "night-2")
    whole, found = contents(truth), contents(uri)
    for name in ("events", "runs/x", "runs/n", "keys/k", "steps"):
        assert found[name] == whole[name], name
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("point", some(["appended", "planned", "committed"], 2))
def test_either_engine_goes_on_with_what_the_other_began(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    one, other = created(tmp_path / "one"), created(tmp_path / "other")
    rows = rows_of(0)
    frame = framed(spark, tmp_path, rows)
    with pytest.raises(Killed):
        warehouse.load(spark, one, frame, "a", progress=killed_at(point))
    assert warehouse.load(None, one, rows, "a").outcome == "loaded"
    with pytest.raises(Killed):
        warehouse.load(None, other, rows, "a", progress=killed_at(point))
    assert warehouse.load(spark, other, frame, "a").outcome == "loaded"
    assert contents(one)["runs/x"] == contents(other)["runs/x"]
    for place in (one, other):
        before = tables_of(place)
        assert warehouse.load(None, place, rows, "a").outcome == "known"
        assert warehouse.load(spark, place, frame, "a").outcome == "known"
        with pytest.raises(BatchMismatch, match="59 came"):
            warehouse.load(None, place, rows.slice(1), "a")
        with pytest.raises(BatchMismatch, match="60 rows are stored, 60 came, and their content differs"):
            warehouse.load(spark, place, framed(spark, tmp_path, rows_of(1)), "a")
        assert tables_of(place) == before
        assert warehouse.verify(place).ok


# A column of each kind, with the values that engines like to change.
MANY = pa.table(
    {
        "x": pa.array([-0.0, 0.0, math.nan, None, math.inf, 5e-324]),
        "f": pa.array([-0.0, 0.0, math.nan, None, -math.inf, 0.1], pa.float32()),
        "b": pa.array([-128, 127, 0, None, 1, 2], pa.int8()),
        "n": pa.array([2**53 + 1, 2**63 - 1, -(2**63), None, 0, 1]),
        "d": pa.array([Decimal("-99999999.99"), Decimal("0.01"), Decimal(0), None, None, Decimal(1)],
                      pa.decimal128(10, 2)),
        "w": pa.array([10**37, -(10**37), 0, None, 1, 2**64], pa.decimal128(38, 0)),
        "day": pa.array([date(1, 1, 1), date.max, None, None, date(1969, 12, 31), date(1970, 1, 1)]),
        "at": pa.array([datetime(1883, 11, 18, 12, 1, tzinfo=UTC), None, None, None,
                        datetime.max.replace(tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]),
        # 02:30 is no time of day in New York: 1710037800000000 is 2024-03-10 02:30.
        "wall": pa.array([1710037800 * 10**6, None, None, None, -1, 1730597400 * 10**6], pa.timestamp("us")),
        "s": pa.array(["", "a\0b", "ä→☃" * 3000, None, "null", "\U0010ffff"]),
        "raw": pa.array([b"", b"\xff\x00", b"x" * 9000, None, b"null", b"a"]),
        "ok": pa.array([True, False, None, None, True, False]),
        "xs": pa.array([[1.5, None, math.nan], [], None, None, [-0.0], [0.0]], pa.list_(pa.float64())),
        "st": pa.array([{"a": 1, "b": ["p", None]}, {"a": None, "b": None}, None, {"a": 2, "b": []}, None,
                        {"a": 1, "b": ["p"]}], pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        "m": pa.array([[("k", 1), ("l", None)], [], None, None, [("", 0)], [("k", 1)]],
                      pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip


def test_rows_of_every_type_come_again_by_either_engine(spark: SparkSession, tmp_path: Path) -> None:
    """Shuffled, too; and with any one column of two rows exchanged they are other rows, to both."""
    frame = framed(spark, tmp_path, MANY)
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        warehouse.create(None, place, ["x"], eps=0.1, schema=MANY.schema)
    assert warehouse.load(spark, one, frame, "a").rows == len(MANY)
    assert warehouse.load(None, other, MANY, "a").rows == len(MANY)
    assert contents(one)["events"] == contents(other)["events"]
    for place in (one, other):
        assert warehouse.load(None, place, MANY.take([5, 3, 1, 0, 2, 4]), "a").outcome == "known"
        assert warehouse.load(spark, place, frame.repartition(3), "a").outcome == "known"
        for name in MANY.column_names:
            with pytest.raises(BatchMismatch, match="content differs"):
                warehouse.load(None, place, exchanged(MANY, name), "a")
    with pytest.raises(BatchMismatch, match="content differs"):
        warehouse.load(spark, other, framed(spark, tmp_path, exchanged(MANY, "m")), "a")


def exchanged(rows: pa.Table, name: str) -> pa.Table:
    """The first and the last value of a column change places: its values and the other columns stay."""
    at = rows.column_names.index(name)
    order = [len(rows) - 1, *range(1, len(rows) - 1), 0]
    return rows.set_column(at, rows.schema.field(at), rows.column(at).take(order))


def test_a_digest_that_leaves_out_a_column_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above asserts of each column fails on a digest without the last one."""
    true = fingerprint
    monkeypatch.setattr(same_rows, "fingerprint", lambda rows: true(rows.select(rows.schema.names[:-1])))
    warehouse.load(None, uri, rows_of(0), "a")
    with pytest.raises(BatchMismatch):
        warehouse.load(None, uri, exchanged(rows_of(0), "x"), "a")
    assert warehouse.load(None, uri, exchanged(rows_of(0), "n"), "a").outcome == "known"


def test_rows_come_as_a_table_a_batch_a_reader_a_file_or_a_folder(uri: Path, tmp_path: Path) -> None:
    """All of them are the same rows; a reader can be read once, and is needed once."""
    rows = rows_of(0, 300)
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "whole.parquet", row_group_size=70)
    pq.write_table(rows.slice(0, 100), tmp_path / "in" / "b.parquet")
    pq.write_table(rows.slice(100), tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "_SUCCESS").touch()
    given: list[Any] = [
        rows,
        rows.combine_chunks().to_batches()[0],
        rows.to_reader(max_chunksize=7),
        tmp_path / "whole.parquet",
        str(tmp_path / "in"),
        rows.select(["n", "x", "k", "t"]),
    ]
    assert warehouse.load(None, uri, given[3], "a").rows == 300
    for one in given:
        assert warehouse.load(None, uri, one, "a").outcome == "known"
    assert stream.append(None, uri, rows.to_reader(), source="s", batch=0)
    assert stream.append(None, uri, rows, source="s", batch=0) is False
    answer = query.open(uri).quantile(0.5)
    assert answer.n == answer.m > 0
    assert warehouse.verify(uri).ok


def test_a_reader_that_is_needed_twice_is_told(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else commits the batch between the look and the commit: then its rows are compared."""
    reader = rows_of(0).to_reader()
    first: list[str] = []

    def other(point: str) -> None:
        if point == "append" and not first:
            first.append(point)
            monkeypatch.setattr(Race, "commit_numbered", after_another)

    true = Race.commit_numbered

    def after_another(race: Race, *given: Any) -> bool:
        monkeypatch.setattr(Race, "commit_numbered", true)
        warehouse.load(None, uri, rows_of(0), "a")
        return true(race, *given)

    with pytest.raises(InputError, match=r"can be read once.*Pass a Table"):
        warehouse.load(None, uri, reader, "a", progress=other)
    assert warehouse.load(None, uri, rows_of(0).to_reader(), "a").outcome == "known"


def test_a_reader_for_a_name_that_was_unloaded_is_told_unless_its_rows_are_wanted(uri: Path) -> None:
    """They are compared with the rows that were unloaded, and then needed again."""
    warehouse.load(None, uri, rows_of(0), "a")
    warehouse.unload(None, uri, batch="a")
    with pytest.raises(InputError, match=r"was unloaded.*Pass a Table"):
        warehouse.load(None, uri, rows_of(1).to_reader(), "a")
    assert warehouse.load(None, uri, rows_of(1).to_reader(), "a", again=True).outcome == "loaded"


def test_the_first_batch_fixes_the_columns_without_spark(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path, "x", key="k", eps=0.1)
    rows = pa.table(
        {"x": pa.array([1, None], pa.int32()), "k": ["a", None], "other": pa.array([0.5, None], pa.float32())}
    )
    assert warehouse.load(None, tmp_path, rows, "first").rows == 2
    narrow = rows.set_column(0, "x", rows["x"].cast(pa.int8())).set_column(
        1, "k", rows["k"].dictionary_encode()
    )
    assert warehouse.load(None, tmp_path, narrow, "first").outcome == "known"
    assert dict(warehouse.open_snapshot(tmp_path).options.columns) == {
        "x": "integer",
        "k": "string",
        "other": "float",
    }
    assert warehouse.load(None, tmp_path, rows.slice(0, 0), "none").outcome == "empty"


def test_memory_is_bounded_by_batches(tmp_path: Path) -> None:
    """Rows are read, cast and written in batches of so many rows, fewer where rows are wide."""
    tuning = Tuning(batch_rows=64, batch_bytes=10_000)
    pq.write_table(rows_of(0, 1000), tmp_path / "narrow.parquet")
    wide = pa.table({"s": [f"{i}" * 400 for i in range(1000)]})
    pq.write_table(wide, tmp_path / "wide.parquet", use_dictionary=False)
    for given, most in (
        (rows_of(0, 1000), 64),
        (tmp_path / "narrow.parquet", 64),
        (tmp_path / "wide.parquet", 20),
    ):
        sizes = [batch.num_rows for batch in arrow_inputs.arrow_rows(given, tuning).read()]
        assert (sum(sizes), max(sizes) <= most) == (1000, True)


def changed(name: str, column: pa.Array | None) -> pa.Table:
    rows = rows_of(0)
    at = rows.column_names.index(name)
    return rows.remove_column(at) if column is None else rows.set_column(at, name, column)


NULLS = [None] * 59
BAD_ROWS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a measure is missing": (lambda: changed("x", None), ("measure", "'x'", "missing")),
    "the key is missing": (lambda: changed("k", None), ("key", "'k'", "missing")),
    "a column is unknown": (
        lambda: rows_of(0).append_column("more", [list(range(60))]),
        ("unknown ['more']",),
    ),
    "a measure is text": (lambda: changed("x", pa.array(["1", *NULLS])), ("'x'", "string", "double", "Cast")),
    "digits to lose": (lambda: changed("n", pa.array([1.5, *NULLS])), ("'n'", "double", "long", "Cast")),
    "a long for a double": (
        lambda: changed("x", pa.array([2**53 + 1, *NULLS])),
        ("x is of type double", str(2**53 + 1)),
    ),
    "nanoseconds to lose": (
        lambda: changed("t", pa.array([1, *NULLS], pa.timestamp("ns", tz="UTC"))),
        ("do not fit", "lose data"),
    ),
    "a year that is not taken": (
        lambda: changed("t", pa.array([2**62, *NULLS], pa.timestamp("us", tz="UTC"))),
        ("t lies outside the years 1 to 9999", "Nothing was changed"),
    ),
    "a type without a column": (
        lambda: changed("k", pa.array([1, *NULLS], pa.duration("s"))),
        ("duration", "Cast"),
    ),
    "only NULL, without a type": (lambda: changed("k", pa.nulls(60)), ("'k'", "null", "Cast")),
    "a name twice": (lambda: rows_of(0).append_column("X", [list(range(60))]), ("'X'", "twice")),
    "no rows at all": (lambda: [1, 2], ("pyarrow Table", "builtins.list")),
    "a dictionary": (lambda: {"x": [1]}, ("pyarrow Table", "builtins.dict")),
    "no such path": (lambda: "/nowhere/in.parquet", ("no such input", "/nowhere/in.parquet")),
    "another machine": (lambda: "s3://bucket/in.parquet", ("s3://bucket", "not on this machine")),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused_and_change_no_table(uri: Path, reason: str) -> None:
    """Where a value is what does not fit, a file may be left that no table names; else no file changes."""
    make, words = BAD_ROWS[reason]
    warehouse.load(None, uri, rows_of(1), "a")
    before, held = files_of(uri), tables_of(uri)
    with pytest.raises(InputError) as found:
        warehouse.load(None, uri, make(), "new")
    assert all(word in str(found.value) for word in words), found.value
    if reason != "a year that is not taken":
        with pytest.raises(InputError):
            stream.append(None, uri, make(), source="s", batch=99)
    assert tables_of(uri) == held
    added = files_of(uri).keys() - before.keys()
    assert all(path.startswith("events/") and path.endswith(".parquet") for path in added)
    assert not added or "value" in reason or reason in {"nanoseconds to lose", "a year that is not taken"}


def folders(at: Path) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Inputs that are not read without Spark."""
    rows = rows_of(0)
    for name in ("cut", "nested/k=1", "differ", "empty", "text"):
        (at / name).mkdir(parents=True)
    for name in ("cut/a", "nested/a", "differ/a"):
        pq.write_table(rows, at / f"{name}.parquet")
    (at / "cut" / "b.parquet").write_bytes((at / "cut" / "a.parquet").read_bytes()[:900])
    (at / "text" / "a.parquet").write_text("t,k,x,n\n")
    pq.write_table(rows.drop_columns("k"), at / "differ" / "b.parquet")
    write_deltalake(at / "delta", rows)
    return {
        "a cut file": (at / "cut", ("b.parquet", "cannot read")),
        "text": (at / "text", ("a.parquet", "cannot read")),
        "folders below": (at / "nested", ("the folder k=1",)),
        "other columns": (at / "differ", ("a.parquet", "b.parquet", "k string")),
        "an empty folder": (at / "empty", ("contains no files",)),
        "a Delta table": (at / "delta", ("Delta table", "Spark")),
    }


def test_inputs_that_spark_alone_reads_are_refused(uri: Path, tmp_path: Path) -> None:
    before = files_of(uri)
    for reason, (path, words) in folders(tmp_path / "in").items():
        with pytest.raises(InputError) as found:
            warehouse.load(None, uri, path, "new")
        assert all(word in str(found.value) for word in words), (reason, found.value)
    assert files_of(uri) == before


def test_rows_of_the_other_engine_are_refused() -> None:
    with pytest.raises(InputError, match=r"DataFrame of that session; got pyarrow.lib.Table. Pass None"):
        SparkExecutor(None).input(rows_of(0))  # type: ignore[arg-type]  # refused on purpose


@dataclass(frozen=True)
class Meets:
    """A task that ends once as many others run; or fails then."""

    others: threading.Barrier
    number: int
    fails: bool = False

    def run(self) -> int:
        self.others.wait(60)
        if self.fails:
            raise InputError(f"task {self.number}")
        return self.number


@dataclass(frozen=True)
class Follows:
    """A task that takes half a second."""

    begun: list[int]

    def run(self) -> None:
        self.begun.append(1)
        time.sleep(0.5)


def test_tasks_of_this_process_run_at_once_and_their_results_are_in_order() -> None:
    meeting = threading.Barrier(executors.AT_ONCE)
    tasks = [Meets(meeting, number) for number in range(3 * executors.AT_ONCE)]
    assert LocalExecutor().run(tasks) == list(range(len(tasks)))
    assert LocalExecutor().run([]) == []


def test_tasks_that_have_not_begun_when_one_fails_are_left_out() -> None:
    meeting, begun = threading.Barrier(executors.AT_ONCE), list[int]()
    failing = [Meets(meeting, number, fails=True) for number in range(executors.AT_ONCE)]
    with pytest.raises(InputError, match="task 0"):
        LocalExecutor().run([*failing, *[Follows(begun)] * 100])
    assert len(begun) <= 2 * executors.AT_ONCE


@dataclass(frozen=True)
class Waits:
    """A task that ends after the caller has set the event."""

    event: threading.Event

    def run(self) -> bool:
        return self.event.wait(60)


def test_results_come_one_by_one_and_closing_leaves_out_what_has_not_begun() -> None:
    seen = threading.Event()
    results = LocalExecutor().each([Where(), *[Waits(seen)] * executors.AT_ONCE])
    next(results)
    seen.set()
    assert [*results] == [True] * executors.AT_ONCE
    begun = list[int]()
    results = LocalExecutor().each([Where(), *[Follows(begun)] * 100])
    next(results)
    results.close()
    assert len(begun) <= 2 * executors.AT_ONCE


class Where:
    """A task that says which thread it runs in."""

    def run(self) -> int:
        return threading.get_ident()


def test_tasks_that_sort_few_rows_run_in_the_thread_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "AT_ONCE", 2)
    few, here = LocalExecutor(Tuning(sort_rows=100)), threading.get_ident()
    assert few.run([Where()] * 3) == [here] * 3
    monkeypatch.setattr(executors, "_FEW_ROWS", 99)
    assert here not in few.run([Where()] * 3)
