"""Spark's SQL over a warehouse: every form of every function and view, against the rows in memory."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import IntegerType, StructType
from pyspark.sql.udtf import AnalyzeResult

from tests.query.sqlworld import FLIGHTS, PROJECTIONS, Rows, in_another_process, make, month
from tidemark import query, stream, warehouse
from tidemark.query.sql import spark_sql as registering
from tidemark.warehouse import EmptyWindow, InputError, NotAWarehouse
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.ledger import ledger_table

HISTORY, LIVE, BOTH = Rows.of(1), Rows.of(2), Rows.of(1, 2)
FEBRUARY = datetime(2001, 2, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sql") / "w")


@pytest.fixture(scope="module")
def ask(spark: SparkSession, uri: Path) -> Callable[[str], list[Row]]:
    assert query.register_views(spark, uri, "flights") == ["flights"]
    return lambda text: spark.sql(text).collect()


@pytest.fixture
def own(spark: SparkSession, uri: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy that a test may change, registered as `own`."""
    shutil.copytree(uri, tmp_path / "own")
    query.register_views(spark, tmp_path / "own")
    yield tmp_path / "own"
    for view in ("events", "history", "live"):
        spark.catalog.dropTempView(f"own_{view}")


def check(row: Row, phi: float, rows: Rows, measure: str = "delay", mode: str = "accurate") -> None:
    """The row's bounds hold, and the promise is kept."""
    truth = rows.oracle(measure)
    exact, live = truth.quantile(phi), rows.since(FEBRUARY).oracle(measure).n
    assert (row.phi, row.measure, row.mode, row.eps) == (phi, measure, mode, 0.01)
    assert (row.n + row.m, row.m, row.nans) == (truth.n, live, 0)
    assert row.nulls == truth.nulls
    assert row.low <= exact <= row.high
    assert row.rank_lo <= truth.le(row.value) <= row.rank_hi
    assert row.error_bound <= {"quick": 0.01 * truth.n, "accurate": 0.01 * live, "exact": 0}[mode]
    if row.error_bound == 0:
        assert row.value == exact
    assert set(row.as_of.asDict()) == {"runs", "steps", "ledger"}


WEEK = BOTH.last_days(7)
QUANTILES = {
    "0.99D": (0.99, BOTH, "delay", "accurate"),
    "0.99": (0.99, BOTH, "delay", "accurate"),
    "1": (1.0, BOTH, "delay", "accurate"),
    "0.99, '7 days'": (0.99, WEEK, "delay", "accurate"),
    "'7d', 0.99D": (0.99, WEEK, "delay", "accurate"),
    "0.5, INTERVAL 7 DAYS, 'exact'": (0.5, WEEK, "delay", "exact"),
    "0.5, 'distance'": (0.5, BOTH, "distance", "accurate"),
    "'quick', 'distance', 0.5": (0.5, BOTH, "distance", "quick"),
    "phi => 0.9, last => '7 days', measure => 'distance', mode => 'exact'": (0.9, WEEK, "distance", "exact"),
    "0.9, mode => 'exact', measure => NULL": (0.9, BOTH, "delay", "exact"),
    "0.5, since => '2001-02-01'": (0.5, LIVE, "delay", "accurate"),
    "0.5, since => DATE'2001-02-01', until => TIMESTAMP'2001-03-01 00:00:00Z'": (
        0.5,
        LIVE,
        "delay",
        "accurate",
    ),
    "0.5, until => '2001-02-01'": (0.5, HISTORY, "delay", "accurate"),
}


@pytest.mark.parametrize("arguments", QUANTILES)
def test_a_quantile_is_asked_for_in_any_sensible_way(ask: Callable[[str], list[Row]], arguments: str) -> None:
    phi, rows, measure, mode = QUANTILES[arguments]
    (row,) = ask(f"SELECT * FROM flights_quantile({arguments})")
    check(row, phi, rows, measure, mode)
    assert (row.window is None) == (rows is BOTH)


def test_several_quantiles_come_by_an_array_and_by_lateral(ask: Callable[[str], list[Row]]) -> None:
    by_array = ask("SELECT * FROM flights_quantile(ARRAY(0.5, 0.9), 'exact')")
    lateral = ask(
        "SELECT q.* FROM VALUES (0.5), (0.9), (NULL) AS t(p), LATERAL flights_quantile(p, 'exact') q"
    )
    assert [row.phi for row in by_array] == [0.5, 0.9]
    assert sorted(lateral) == sorted(by_array)  # of NULL there is no quantile
    for row in by_array:
        check(row, row.phi, BOTH, mode="exact")


def test_groups_and_windows_are_asked_for_by_name(ask: Callable[[str], list[Row]]) -> None:
    (row,) = ask("SELECT * FROM flights_quantile(0.99, where => map('origin', 'ATL'))")
    check(row, 0.99, BOTH.where(origin="ATL"))
    assert (row.group, row.group_certain, row.rows_scanned) == ({"origin": "ATL"}, None, None)
    slowest = ask("SELECT * FROM flights_delay_quantile(0.5, by => 'origin', order => '-value', top => 3)")
    assert [row.value for row in slowest] == sorted((row.value for row in slowest), reverse=True)
    for row in slowest:
        check(row, 0.5, BOTH.where(origin=row.group["origin"]))
    largest = ask("SELECT * FROM flights_delay_quantile(0.5, by => 'origin', top => 3)")
    assert [row.group["origin"] for row in largest] == [name for name, _ in BOTH.keys().most_common(3)]
    for row in largest:
        check(row, 0.5, BOTH.where(origin=row.group["origin"]))
        assert row.group_certain
    days = ask(
        "SELECT CAST(date(window.start) AS STRING) AS day, value, n + m AS rows FROM flights_quantile(0.5, "
        "where => map('origin', array('ATL', 'ORD')), last => '7 days', every => '1 day')"
    )
    assert len(days) == 7
    for day in days:
        both = [*BOTH.where(origin="ATL").rows, *BOTH.where(origin="ORD").rows]
        truth = Rows([row for row in both if str(row["time"].date()) == day.day]).oracle()
        assert (day.value, day.rows) == (truth.quantile(0.5), truth.n)
    scanned = ask("SELECT * FROM flights_rank(0, where => \"destination LIKE 'S%' AND distance > 500\")")
    rows = Rows(
        [row for row in BOTH.rows if (row["destination"] or "").startswith("S") and row["distance"] > 500]
    )
    assert (scanned[0].rank, scanned[0].rows_scanned) == (rows.oracle().le(0), len(BOTH))
    far: dict[str, list[float]] = {}
    for one in BOTH.rows:
        far.setdefault(str(one["distance"] // 1000), []).append(2 * one["delay"])
    computed = ask("SELECT * FROM flights_quantile(1, measure => 'delay * 2', by => 'distance // 1000')")
    assert {one.group["distance // 1000"]: one.value for one in computed} == {
        k: max(v) for k, v in far.items()
    }
    by_lateral = ask(
        "SELECT q.* FROM VALUES ('ATL'), ('ORD') AS t(o), LATERAL flights_quantile(0.5, map('origin', o)) q"
    )
    assert {row.group["origin"] for row in by_lateral} == {"ATL", "ORD"}


def test_keys_of_several_columns_are_asked_for_by_name(ask: Callable[[str], list[Row]]) -> None:
    routes = Counter((row["origin"], row["destination"]) for row in BOTH.rows)
    (one,) = ask("SELECT * FROM flights_frequency('ATL,ORD', key => 'origin,destination', mode => 'exact')")
    assert (one.value, one["count"]) == ("ATL,ORD", routes["ATL", "ORD"])
    several = ask(
        "SELECT * FROM flights_frequency(array(struct('ATL', 'ORD'), struct('no', 'where')), "
        "key => array('origin', 'destination'), mode => 'exact')"
    )
    assert [row["count"] for row in several] == [routes["ATL", "ORD"], 0]
    top = ask("SELECT * FROM flights_top(5, key => 'origin,destination', mode => 'exact')")
    assert [row["count"] for row in top] == [rows for _, rows in routes.most_common(5)]


def test_an_answer_tells_its_window_and_a_function_of_one_measure_takes_no_other(
    spark: SparkSession, ask: Callable[[str], list[Row]]
) -> None:
    (row,) = ask(
        "SELECT CAST(window.start AS STRING) AS a, CAST(window.end AS STRING) AS b FROM "
        "flights_quantile(0.5, since => '2001-01-10 07:00', until => '2001-01-12')"
    )
    assert (row.a, row.b) == ("2001-01-10 00:00:00", "2001-01-12 00:00:00")
    (row,) = ask("SELECT * FROM flights_distance_quantile(0.5, 'exact')")
    check(row, 0.5, BOTH, "distance", "exact")
    assert "about 'distance'" in refused(
        spark, "SELECT * FROM flights_distance_quantile(0.5, measure => 'delay')"
    )


def test_ranks_and_histograms_are_those_of_the_rows(ask: Callable[[str], list[Row]]) -> None:
    truth = BOTH.oracle()
    (rank,) = ask("SELECT * FROM flights_rank(120)")
    assert rank.rank_lo <= truth.le(120) <= rank.rank_hi
    (exact,) = ask("SELECT * FROM flights_rank(-0.5, mode => 'exact')")
    assert (exact.rank, exact.error_bound) == (truth.le(-1), 0)
    curve = ask("SELECT * FROM flights_cdf()")
    assert [row.value for row in curve] == sorted({row.value for row in curve})
    assert len(curve) > 20
    for row in curve:
        assert row.cdf_lo <= truth.le(row.value) / truth.n <= row.cdf_hi
    (share,) = ask("SELECT * FROM flights_cdf(15, 'exact', 'distance')")
    assert share.cdf == BOTH.oracle("distance").le(15) / truth.n
    bins = ask("SELECT * FROM flights_histogram(5, 'exact')")
    assert sum(row["count"] for row in bins) == truth.n
    (below, above) = ask("SELECT * FROM flights_histogram(ARRAY(-1000, 0, 5000), 'exact')")
    assert (below["count"], above["count"]) == (truth.lt(0), truth.n - truth.lt(0))


def test_a_summary_is_that_of_the_rows(ask: Callable[[str], list[Row]]) -> None:
    delays = [row["delay"] for row in BOTH.rows if row["delay"] is not None]
    (row,) = ask("SELECT * FROM flights_summary()")
    assert (row["count"], row["sum"], row["min"], row["max"]) == (
        *(len(delays), sum(delays)),
        *(min(delays), max(delays)),
    )
    assert (row["mean"], row["stddev"]) == (statistics.mean(delays), statistics.stdev(delays))
    largest = ask("SELECT `group`['origin'], mean FROM flights_summary('7 days', by => 'origin', top => 1)")
    ((origin, count),) = WEEK.keys().most_common(1)
    theirs = [one["delay"] for one in WEEK.rows if one["origin"] == origin and one["delay"] is not None]
    assert (len(theirs) <= count, [tuple(one) for one in largest]) == (
        True,
        [(origin, statistics.mean(theirs))],
    )


def test_keys_are_counted_as_a_counter_does(ask: Callable[[str], list[Row]]) -> None:
    truth = BOTH.keys()
    (row,) = ask("SELECT * FROM flights_frequency('ATL')")
    assert row.lo <= truth["ATL"] <= row.hi
    assert (row.value, row.key, row.n + row.m, row.in_history) == (
        "ATL",
        "origin",
        truth.total(),
        HISTORY.keys()["ATL"],
    )
    (row,) = ask("SELECT * FROM flights_frequency('ATL', '7 days', 'exact')")
    assert (row["count"], row.confidence) == (WEEK.keys()["ATL"], 1.0)
    (row,) = ask(
        "SELECT * FROM flights_frequency('exact', '1 hour')"
    )  # the first is the key, whatever it says
    assert (row.value, row.hi, row.mode) == ("exact", 0, "approximate")
    several = ask("SELECT * FROM flights_frequency(ARRAY('ORD', 'nowhere'), mode => 'exact')")
    assert [row["count"] for row in several] == [truth["ORD"], 0]
    by_row = "VALUES ('ORD'), (NULL) t(k), LATERAL flights_frequency(k, mode => 'exact') f"
    lateral = ask(f"SELECT f.value, f.`count` FROM {by_row}")
    assert [tuple(row) for row in lateral] == [("ORD", truth["ORD"])]
    top = ask("SELECT * FROM flights_top(20, 'exact')")
    assert [row["count"] for row in top] == sorted(truth.values(), reverse=True)[:20]
    assert len(ask("SELECT * FROM flights_top()")) == 10
    heavy = ask("SELECT value FROM flights_heavy_hitters(0.03) WHERE certain")
    assert {row.value for row in heavy} == {
        key for key, count in truth.items() if count >= 0.03 * truth.total()
    }
    found = ask("SELECT prefix, `count` FROM flights_hierarchy(0.05, separator => 'T') WHERE level = 1")
    shortest = Counter(key[: key.index("T") + 1] if "T" in key else key for key in truth.elements())
    assert {row.prefix: row["count"] for row in found} == {
        prefix: rows for prefix, rows in shortest.items() if rows >= 0.05 * truth.total()
    }
    (row,) = ask("SELECT * FROM flights_key_range('A', 'B')")
    assert row["count"] == sum(count for key, count in truth.items() if "A" <= key < "B")
    (row,) = ask("SELECT * FROM flights_self_join()")
    assert row["count"] == sum(count * count for count in truth.values())


def test_numbers_of_distinct_keys(ask: Callable[[str], list[Row]]) -> None:
    old, new = set(HISTORY.keys()), set(LIVE.keys())
    (row,) = ask("SELECT * FROM flights_distinct()")
    assert (row["count"], row.least, row.most, row.n + row.m) == (*[len(old | new)] * 3, len(BOTH))
    assert (row.key, row.mode, row.confidence) == ("origin", "approximate", 1.0)
    (row,) = ask("SELECT * FROM flights_distinct('7 days', 'exact', key => 'origin,destination')")
    assert row["count"] == len({(one["origin"], one["destination"]) for one in WEEK.rows})
    days = ask("SELECT window.start, `count` FROM flights_distinct(last => '7 days', every => '1 day')")
    assert sum(row["count"] for row in days) == len(
        {(one["time"].date(), one["origin"]) for one in WEEK.rows}
    )
    (row,) = ask("SELECT * FROM flights_new_keys(since => '2001-02-01', mode => 'exact')")
    assert row["count"] == len(new - old)
    windows = "until => '2001-02-01', other_since => '2001-02-01'"
    for mode in ("approximate", "exact"):
        parts = ask(f"SELECT part, `count`, lo, hi FROM flights_overlap({windows}, mode => '{mode}')")
        numbers = {"both": len(old & new), "only a": len(old - new), "only b": len(new - old)}
        assert [tuple(row) for row in parts] == [(part, *[number] * 3) for part, number in numbers.items()]


def test_persistent_keys(ask: Callable[[str], list[Row]]) -> None:
    days = defaultdict(set)
    for one in WEEK.rows:
        days[one["origin"]].add(one["time"].date())
    found = ask("SELECT * FROM flights_persistent(0.8, '7 days')")
    every_day = {origin for origin, there in days.items() if len(there) >= 6}
    assert {row.value for row in found if row.certain} == every_day
    assert all((row.lo, row.hi, row.window_slots) == (row.slots, row.slots, 7) for row in found)
    assert found[0].share == found[0].slots / 7
    counts = Counter(one["origin"] for one in WEEK.rows)
    rare = ask("SELECT value FROM flights_persistent(0.5, 'exact', last => '7 days', most => 20)")
    assert {row.value for row in rare} == {
        origin for origin, there in days.items() if len(there) >= 4 and counts[origin] <= 20
    }
    (row,) = ask(
        "SELECT value, slots, rows_left FROM (SELECT *, n + m AS rows_left FROM "
        "flights_persistence('ATL', '7 days'))"
    )
    assert tuple(row) == ("ATL", len(days["ATL"]), len(WEEK.rows))
    weeks = ask("SELECT window_slots FROM flights_persistence('ATL', slot => '7 days', last => '14 days')")
    assert weeks[0].window_slots == 3  # weeks start on Mondays
    assert ask("SELECT * FROM flights_persistent(CAST(NULL AS DOUBLE))") == []


def test_views_hold_what_is_visible(ask: Callable[[str], list[Row]]) -> None:
    for view, rows in (("events", BOTH), ("history", HISTORY), ("live", LIVE)):
        found = ask(f"SELECT delay, origin, unix_micros(time) AS at FROM flights_{view}")
        expected = [(row["delay"], row["origin"], int(row["time"].timestamp()) * 10**6) for row in rows.rows]
        assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected)), view
    (step,) = ask("SELECT * FROM flights_steps")
    assert (step.step, step.source, step.rows, step.loaded) == (0, "load:2001-01", len(HISTORY), True)
    runs = {row.projection: row for row in ask("SELECT * FROM flights_runs")}
    assert set(runs) == PROJECTIONS
    assert (runs["delay"].first_step, runs["delay"].last_step, runs["delay"].level) == (0, 0, 0)
    assert runs["delay"].rows == HISTORY.oracle().n
    summary = ask("SELECT * FROM flights_summary")
    assert [(row.measure, row.phi) for row in summary] == [
        (measure, phi) for measure in ("delay", "distance") for phi in (0.5, 0.9, 0.95, 0.99, 0.999)
    ]
    for row in summary:
        check(row, row.phi, BOTH, row.measure)


def refused(spark: SparkSession, text: str) -> str:
    """What the user reads."""
    with pytest.raises(PySparkException) as failed:
        spark.sql(text).collect()
    return str(failed.value)


WRONG = {
    "flights_quantile(1.5)": "not a quantile: got phi = 1.5; expected 0 <= phi <= 1",
    "flights_quantile()": "quantile needs phi, such as 0.99.",
    "flights_quantile(0.5, 'dely')": "'dely' is not a measure, a mode, a span such as '7d'. There are: delay",
    "flights_quantile(0.5, measure => 'dely')": "no measure 'dely' here. Expected one of: delay, distance.",
    "flights_quantile(0.5, '7d', last => '8d')": "last is given twice",
    "flights_quantile(0.5, last => 'a week')": "not a duration: 'a week'",
    "flights_quantile(0.5, last => '7d', since => '2001-01-01')": "exclude each other",
    "flights_quantile(0.5, percent => 3)": "no parameter 'percent'. It has: phi, measure, last",
    "flights_quantile(0.5, mode => 'best')": "no mode 'best'",
    "flights_quantile(0.5, since => '2030-01-01')": "empty window: no rows of 'delay' from 2030-01-01",
    "flights_rank('many')": "cannot compare 'many' with 'delay'",
    "flights_frequency(3)": "cannot compare 3 with 'origin', which is of type string.",
    "flights_key_range('A', 'B', 'quick')": "'quick' is not a mode",
    "flights_persistent(7)": "alpha must lie in (0, 1], got 7",
    "flights_persistent(0.5, every => '1 day')": "persistent has no parameter 'every'",
    "flights_persistence('ATL', slot => '90 minutes')": "slot='90 minutes' is not a multiple of the tick",
    "flights_new_keys()": "give last, or between with a start",
    "flights_overlap('7 days')": "'7 days' is not a mode. There are: approximate, exact.",
    "flights_overlap(last => '7 days')": "no parameter 'last'. It has: since, until, other_since",
}


@pytest.mark.parametrize("call", WRONG)
def test_what_is_wrong_is_told_in_one_message(spark: SparkSession, ask: Any, call: str) -> None:  # noqa: ARG001
    said = refused(spark, f"SELECT * FROM {call}")
    assert WRONG[call] in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) <= 2, said


def test_a_mistake_of_another_is_told_with_its_traceback(spark: SparkSession, uri: Path) -> None:
    """Only our own errors hide where they came from."""
    place = (str(uri), ())
    broken = registering.table_function(place, "no such thing", (), "x int")
    spark.udtf.register("broken", broken)
    assert "Traceback" in refused(spark, "SELECT * FROM broken()")


def test_a_planner_has_imported_what_it_needs_before_it_is_forked(spark: SparkSession) -> None:
    """For the sake of the tests' time; see tests/spark_workers."""

    class Seen:
        @staticmethod
        def analyze() -> AnalyzeResult:
            name = "forked" if "tidemark.query" in sys.modules else "bare"
            return AnalyzeResult(StructType().add(name, IntegerType()))

        def eval(self) -> Iterator[tuple[int]]:
            yield (1,)

    made: Any = udtf(Seen)
    spark.udtf.register("seen", made)
    assert spark.sql("SELECT * FROM seen()").columns == ["forked"]


def test_all_is_fresh_after_another_process_has_streamed_and_loaded(spark: SparkSession, own: Path) -> None:
    """A view over a DataFrame of files is the broken variant: it stays at what it first saw."""

    def seen(events: str) -> tuple[int, ...]:
        counts = [spark.sql(f"SELECT * FROM {view}").count() for view in (events, "own_history", "own_live")]
        (answer,) = spark.sql("SELECT n, m FROM own_quantile(0.5)").collect()
        (steps,) = spark.sql("SELECT count(*) FROM own_steps WHERE loaded").collect()
        return (*counts, answer.n, answer.m, steps[0])

    spark.read.parquet(str(own / "events")).createOrReplaceTempView("frozen")
    before = (len(BOTH), len(HISTORY), len(LIVE), len(HISTORY), len(LIVE), 1)
    assert seen("own_events") == before
    in_another_process(
        own, "stream.append(None, uri, month_of(3), source='web', batch=1)\nwarehouse.load(None, uri)"
    )
    march = len(Rows.of(3))
    after = (len(BOTH) + march, len(BOTH) + march, 0, len(BOTH) + march, 0, 2)
    assert seen("own_events") == after
    assert seen("frozen") == (len(BOTH), *after[1:])


def test_rows_of_a_crashed_batch_are_in_no_view(
    spark: SparkSession, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table itself has them: a view without the filter is the broken variant."""
    march = month(spark.read.parquet(str(FLIGHTS)), 3)

    class Crash(Exception):
        pass

    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    def at_plan(point: str) -> None:
        if point == "plan":
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(ledger_table, "append_batch", crash)
        with pytest.raises(Crash):
            stream.append(spark, own, march, source="web", batch=1)
    in_table = spark.sql(f"SELECT count(*) FROM delta.`{own}/events`").collect()[0][0]
    assert in_table == len(BOTH) + len(Rows.of(3))
    for view, rows in (("events", BOTH), ("history", HISTORY), ("live", LIVE)):
        assert spark.sql(f"SELECT * FROM own_{view}").count() == len(rows), view
    stream.append(spark, own, march, source="web", batch=1)
    assert spark.sql("SELECT * FROM own_events").count() == in_table
    with pytest.raises(Crash):
        warehouse.load(spark, own, march, batch="again", progress=at_plan)
    assert spark.sql("SELECT * FROM own_events").count() == in_table


def test_live_rows_are_read_from_live_files_alone(spark: SparkSession, own: Path) -> None:
    for file in data_files.list_files(tables.open_table(Store.from_uri(own), EVENTS)):
        if file.stats["min._source"] != "web":
            (own / EVENTS / file.path).unlink()
    assert spark.sql("SELECT * FROM own_live").count() == len(LIVE)
    with pytest.raises((PySparkException, Py4JJavaError), match="File does not exist"):
        spark.sql("SELECT sum(delay) FROM own_history").collect()


def test_a_batch_that_comes_while_a_query_runs_is_in_it_whole_or_not_at_all(
    spark: SparkSession, own: Path
) -> None:
    """Planning pins `events`; which batches are visible is asked when the plan runs."""
    counts = "count(*) AS rows, count(DISTINCT struct(*)) AS apart"
    text = f"SELECT _source, {counts} FROM own_events GROUP BY _source"
    planned = spark.sql(text)
    planned._jdf.queryExecution().executedPlan()
    frame = spark.read.parquet(str(FLIGHTS))
    stream.append(spark, own, month(frame, 3), source="late", batch=0)
    warehouse.load(spark, own)
    apart = [len({tuple(row.values()) for row in rows.rows}) for rows in (HISTORY, LIVE)]
    assert sorted(map(tuple, planned.collect())) == [
        ("load:2001-01", len(HISTORY), apart[0]),
        ("web", len(LIVE), apart[1]),
    ]
    assert {row._source for row in spark.sql(text).collect()} == {"load:2001-01", "web", "late"}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a`b", "a;DROP VIEW x", "a.b", "é", "a" * 101, 3, None])
def test_a_name_that_is_no_identifier_is_refused(spark: SparkSession, uri: Path, name: Any) -> None:
    where = uri if name is not None else uri.parent / "no identifier"
    with pytest.raises(InputError, match="name must be an identifier"):
        query.register_views(spark, where, name)


def test_any_path_will_do_and_settings_name_warehouses(
    spark: SparkSession, uri: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a b 'c' `d` \"e\" =x=1"
    shutil.copytree(uri, odd)
    with pytest.raises(InputError, match=r"set spark\.tidemark\.NAME to it; set are: none"):
        query.register_views(spark)
    spark.conf.set("spark.tidemark.odd", str(odd))
    try:
        assert query.register_views(spark) == ["odd"]
        with pytest.raises(InputError, match="set are: odd"):
            query.register_views(spark, name="other")
    finally:
        spark.conf.unset("spark.tidemark.odd")
    for view, rows in (("events", BOTH), ("live", LIVE), ("history", HISTORY)):
        assert spark.sql(f"SELECT * FROM odd_{view}").count() == len(rows)
    assert spark.sql("SELECT * FROM odd_quantile(0.5)").collect()[0].n == len(HISTORY)
    monkeypatch.chdir(odd.parent)
    query.register_views(spark, Path(odd.name), "odd")
    assert spark.sql("SELECT * FROM odd_live").count() == len(LIVE)


def test_what_cannot_be_registered_is_told_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAWarehouse, match="is not a tidemark warehouse"):
        query.register_views(spark, tmp_path / "nothing")
    warehouse.create(spark, tmp_path / "empty", ["x"])
    with pytest.raises(EmptyWindow, match="no rows yet"):
        query.register_views(spark, tmp_path / "empty")


def test_a_warehouse_made_anew_at_the_same_place_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    for kind, value in (("int", 7), ("double", 0.5)):
        warehouse.create(spark, tmp_path / "w", ["x"], schema=f"x {kind}")
        query.register_views(spark, tmp_path / "w", "anew")
        assert spark.sql("SELECT * FROM anew_summary").collect() == []
        assert spark.sql("SELECT * FROM anew_events").collect() == []
        assert spark.sql("SELECT * FROM anew_live").collect() == []
        warehouse.load(spark, tmp_path / "w", spark.createDataFrame([(value,)], f"x {kind}"), batch="a")
        assert [row.value for row in spark.sql("SELECT * FROM anew_quantile(1)").collect()] == [value]
        assert "created without a key" in refused(spark, "SELECT * FROM anew_top(3)")
        shutil.rmtree(tmp_path / "w")
