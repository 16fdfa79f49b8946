"""Rows that expire: against a list of all rows, by moments and by the clock, late, killed, beside others."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.killing import Killed, killer
from tests.query.groupworld import HOUR, ONE, START, TINY, GroupWorld, Row
from tests.query.tally import Tally
from tests.query.test_companions import DECLARED
from tests.soak import DRAWS, some
from tests.warehouse.test_remove import (
    POINTS,
    append,
    check,
    delete,
    keep,
    load,
    once,
    rows,
)
from tidemark import query, warehouse
from tidemark.warehouse import BatchMismatch, InputError
from tidemark.warehouse.columns.ticks import DAY_US, NO_TICK, TickGrid
from tidemark.warehouse.companions import kinds
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.removals import conditions
from tidemark.warehouse.removals.conditions import BeforeTick
from tidemark.warehouse.removals.rewrite import RewriteTask
from tidemark.warehouse.removals.select import SelectTask
from tidemark.warehouse.settings.alterations import Asked, declared
from tidemark.warehouse.settings.options import Options

expiry: Any = import_module("tidemark.warehouse.expire")  # the package has its function by this name
MOMENT = START + 10 * HOUR
TIMELESS: list[Row] = [(None, "a", 2, 4.0, None), (None, "b", 1, 11.0, None)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Four steps in history, one of old rows alone, and two live batches; some rows have no time."""
    made = GroupWorld.create(tmp_path_factory.mktemp("made"), ONE, groups=["origin"])
    for number in range(6):
        given = rows(number) + TIMELESS
        if number == 1:
            given = [row for row in rows(number) if row[0] < MOMENT]
        made.add(given, load=number < 4)
    return made


@pytest.fixture
def world(made: GroupWorld, tmp_path: Path) -> GroupWorld:
    return made.copy(tmp_path)


def expire(world: GroupWorld, before: Any = MOMENT, **options: Any) -> warehouse.RemovalReport:
    return warehouse.expire(None, world.path, before, tuning=TINY, **options)


def is_old(row: Row, moment: datetime = MOMENT) -> bool:
    return row[0] is not None and row[0] < moment


def left(world: GroupWorld, moment: datetime = MOMENT) -> None:
    keep(world, lambda row: not is_old(row, moment))


def test_older_rows_leave_every_answer_and_rows_without_a_time_stay(world: GroupWorld) -> None:
    old = sum(map(is_old, world.rows))
    report = expire(world)
    assert (report.outcome, report.kind, report.rows, report.before) == ("removed", "expire", old, MOMENT)
    assert sum(report.rows_by_step.values()) == old
    left(world)
    check(world, verified=False)
    assert expire(world).outcome == "known"
    assert expire(world, START).before == MOMENT
    assert expire(world, MOMENT + 3 * HOUR).removal == 1
    left(world, MOMENT + 3 * HOUR)
    check(world)


def test_a_tick_leaves_as_a_whole(world: GroupWorld) -> None:
    assert expire(world, MOMENT + HOUR / 2).before == MOMENT
    left(world)
    check(world)


def test_rows_that_come_late_leave_at_the_next_expiry(world: GroupWorld) -> None:
    expire(world)
    left(world)
    world.add(rows(7), load=True)
    world.add(rows(8), load=False)
    check(world, verified=False)
    late = sum(map(is_old, world.rows))
    report = expire(world, START)  # an earlier moment: the later one holds
    assert (report.outcome, report.rows, report.before) == ("removed", late, MOMENT)
    left(world)
    check(world)


def test_a_horizon_that_falls_and_late_rows_that_stay_are_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_at_least", lambda _, horizon: horizon)
    with pytest.raises(AssertionError):
        test_rows_that_come_late_leave_at_the_next_expiry(world)


def test_rows_without_a_time_that_expire_are_caught(
    world: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "NO_TICK", 0)
    with pytest.raises(AssertionError):
        test_older_rows_leave_every_answer_and_rows_without_a_time_stay(world)


def test_all_rows_can_expire_and_others_come(world: GroupWorld) -> None:
    expire(world, START + 100 * HOUR)
    left(world, START + 100 * HOUR)
    check(world)
    world.add(rows(8), load=True)
    check(world, verified=False)
    expire(world, START)
    left(world, START + 100 * HOUR)
    check(world)


@given(
    st.integers(-3, 3),
    st.lists(st.none() | st.integers(-4, 4), min_size=1, max_size=5),
)
def test_statistics_never_promise_what_the_rows_do_not_hold(tick: int, drawn: list[int | None]) -> None:
    ticks = [NO_TICK if one is None else one for one in drawn]
    expired = [one is not None and one < tick for one in drawn]
    share = BeforeTick(tick).share({"min._tick": min(ticks), "max._tick": max(ticks)})
    assert share in {"some", "all" if all(expired) else "none" if not any(expired) else "some"}
    if None not in drawn:
        assert (share == "all") == all(expired)
        assert (share == "none") == (not any(expired))
    assert BeforeTick(tick).share({}) == "some"


def test_files_with_older_rows_alone_are_not_read(world: GroupWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for task in (SelectTask, RewriteTask):
        run = task.run

        def told(self: Any, run: Callable[[Any], Any] = run) -> Any:
            if isinstance(self, SelectTask) or not self.selected.is_whole:
                asked.append(self.path if isinstance(self, SelectTask) else self.selected.path)
            return run(self)

        monkeypatch.setattr(task, "run", told)
    world.load_live()
    store = Store.from_uri(world.path)
    events = tables.open_table(store, EVENTS)
    grid = TickGrid(3_600_000_000)
    share = BeforeTick(grid.tick_of(int(MOMENT.timestamp()) * 10**6)).share
    by_share: dict[str, list[str]] = {"all": [], "some": [], "none": []}
    for file in data_files.list_files(events):
        by_share[share(file.stats)].append(file.path)
    assert by_share["all"]
    assert by_share["some"]
    report = expire(world)
    assert set(asked) <= set(by_share["some"])
    assert report.files_rewritten >= len(by_share["all"])
    left(world)
    check(world)


def test_a_batch_that_lost_rows_is_known_when_it_comes_again(world: GroupWorld) -> None:
    expire(world)
    came = rows(3) + TIMELESS
    assert load(world, came, "batch 3").outcome == "known"
    assert load(world, [row for row in rows(1) if is_old(row)], "batch 1").outcome == "known"
    assert not append(world, rows(5) + TIMELESS, 5)
    with pytest.raises(BatchMismatch, match="62 rows are stored, 61 came"):
        load(world, came[1:], "batch 3")
    young = next(place for place, row in enumerate(came) if not is_old(row))
    other = [*came[:young], (came[young][0], "other", *came[young][2:]), *came[young + 1 :]]
    with pytest.raises(BatchMismatch, match="content differs"):
        load(world, other, "batch 3")
    delete(world, "number = 1")
    assert load(world, came, "batch 3").outcome == "known"
    with pytest.raises(BatchMismatch, match="61 came"):
        load(world, came[1:], "batch 3")
    left(world)
    keep(world, lambda row: row[2] != 1)
    check(world)


@pytest.mark.parametrize(
    "point", some(["horizon raised", "rewritten", "removal planned", "removal applied"], 2)
)
def test_a_call_that_is_killed_is_finished_by_the_same_call(world: GroupWorld, point: str) -> None:
    with pytest.raises(Killed):
        expire(world, request="r", progress=killer(point))
    wh = world.open()
    assert wh.info()["expired_before"] == MOMENT
    assert "which have expired" in str(wh.quantile(0.5).widened)
    assert expire(world, request="r").outcome in {"removed", "known"}
    assert expire(world, request="r").outcome == "known"
    left(world)
    check(world)


@pytest.mark.parametrize("point", some(["horizon raised", "rewritten", "decided"], 2))
def test_two_at_once_both_happen(world: GroupWorld, point: str) -> None:
    later = MOMENT + 4 * HOUR
    expire(world, progress=once(point, lambda: expire(world, later)))
    left(world, later)
    check(world)


def test_rows_that_arrive_while_it_works_leave_or_are_late(world: GroupWorld) -> None:
    def arrive() -> None:
        world.add(rows(7), load=False)
        world.add(rows(8), load=True)

    expire(world, progress=once("rewritten", arrive))
    came = [*rows(7), *rows(8)]
    left(world)
    world.rows += [row for row in came if is_old(row)]
    check(world, verified=False)
    expire(world)
    left(world)
    check(world)


def test_a_dry_run_tells_what_is_done_and_changes_nothing(world: GroupWorld) -> None:
    told = expire(world, dry_run=True)
    assert (told.outcome, told.before) == ("planned", MOMENT)
    assert "expired_before" not in world.open().info()
    check(world, verified=False)
    did = expire(world)
    assert did.rows == told.rows + told.live_rows
    assert {step: count for step, count in did.rows_by_step.items() if step < 4} == told.rows_by_step


def test_answers_say_what_has_expired(world: GroupWorld) -> None:
    expire(world)
    wh = world.open()
    said = "without the rows before 2024-01-01 10:00:00, which have expired"
    ends = MOMENT - HOUR, MOMENT, MOMENT + 5 * HOUR
    for answer in (
        wh.quantile(0.5, "value"),
        wh.quantile(0.5, "value", between=(ends[0], ends[2])),
        wh.quantile(0.5, "value", between=(ends[0], ends[2]), where="number = 2"),
        wh.frequency("a"),
        wh.frequency("a", between=(ends[0] + HOUR / 2, ends[2])),
        wh.distinct(),
        wh.summary("value"),
        wh.quantile(0.5, "value", last="3 days"),
    ):
        assert said in str(answer.widened), answer
        assert said in answer.scope_text
    for answer in (
        wh.quantile(0.5, "value", between=(ends[1], ends[2])),
        wh.frequency("a", between=(ends[1] + HOUR / 2, ends[2])),
        wh.quantile(0.5, "value", last="3 hours", where="number = 2"),
    ):
        assert said not in str(answer.widened)
    assert wh.info()["expired_before"] == MOMENT
    told = {check.name: check.detail for check in warehouse.verify(world.path).checks}
    assert "rows before 2024-01-01 10:00:00" in told["expiry: the moment before which rows expired is told"]
    steps = warehouse.history(world.path)
    assert sum(step.rows_out for step in steps) > 0
    assert steps[1].rows_in == steps[1].rows_out


@pytest.mark.parametrize(
    ("before", "error"),
    [
        ("9000-01-01", "in the future"),
        ("yesterday", "not a time"),
        (7, "A number does not say its unit"),
        (None, "no retention"),
    ],
)
def test_what_is_no_moment_changes_nothing(made: GroupWorld, before: Any, error: str) -> None:
    with pytest.raises(InputError, match=error):
        expire(made, before)
    assert "expired_before" not in made.open().info()


def test_a_warehouse_without_a_time_column_has_no_retention(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no time column"):
        warehouse.create(None, tmp_path / "w", ["x"], retention="7 days")
    warehouse.create(None, tmp_path / "w", ["x"])
    with pytest.raises(InputError, match="no time column"):
        warehouse.alter(None, tmp_path / "w", retention="7 days")
    with pytest.raises(InputError, match="no time column"):
        warehouse.expire(None, tmp_path / "w", date(2000, 1, 1))


def options_with(retention: str | None, horizon: int | None) -> Options:
    asked = Options(("x",), "at", DAY_US, 0.1, 10, 0, horizon=horizon)
    return asked if retention is None else declared(asked, Asked.of(retention=retention), lambda: -1)


@given(st.integers(0, 30_000), st.integers(1, 5_000), st.none() | st.integers(-10, 30_000))
def test_the_clock_moves_the_horizon_by_a_sixteenth_and_it_never_falls(
    today: int, days: int, horizon: int | None
) -> None:
    options = options_with(f"{days} days", horizon)
    grid = TickGrid(DAY_US)
    due = expiry.due_horizon(options, grid, today * DAY_US + 5)
    assert due <= today - days or due == horizon  # no row that is younger than the retention
    assert horizon is None or due >= horizon
    assert due > today - days - days / 16 - 1  # and none that is a sixteenth older
    assert horizon is None or due in (horizon, today - days)


def test_the_retention_of_a_warehouse_is_set_changed_and_taken_away(tmp_path: Path) -> None:
    world = GroupWorld.create(tmp_path, ONE, groups=["origin"], retention="400 days")
    now = datetime.now(UTC)
    ages = [1, 399, 401, 500, 5000, -1]
    world.add([(now - timedelta(days=age), "a", 1, float(age), None) for age in ages] + TIMELESS, load=True)
    report = warehouse.expire(None, world.path, tuning=TINY)
    assert (report.outcome, report.rows) == ("removed", 3)
    assert timedelta(days=400) <= now - report.before <= timedelta(days=400, hours=2)  # type: ignore[operator]
    assert warehouse.expire(None, world.path, tuning=TINY).outcome == "known"
    assert world.open().info()["retention"] == "400 days, 0:00:00"
    assert warehouse.alter(None, world.path, retention="10 days").outcome == "altered"
    assert warehouse.expire(None, world.path, tuning=TINY).rows == 1
    assert warehouse.alter(None, world.path, retention="forever").outcome == "altered"
    assert warehouse.alter(None, world.path, retention="Forever").outcome == "known"
    with pytest.raises(InputError, match="no retention"):
        warehouse.expire(None, world.path)
    assert world.open().quantile(0.5, "value", mode="exact").N == 4
    with pytest.raises(warehouse.OptionsMismatch, match="retention"):
        warehouse.create(None, world.path, ["value"], retention="3 days")


@pytest.mark.parametrize("seed", range(DRAWS))
def test_loads_streams_expiries_and_deletes_in_any_order_and_killed_at_any_point(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    world, horizon = GroupWorld.create(tmp_path, ONE, groups=["origin"]), START
    for number in range(9):
        move = draw.randrange(6) if world.rows else 0
        if move < 2:
            given = rows(number, draw.randrange(1, 40)) + TIMELESS[: draw.randrange(3)]
            world.add(given, load=draw.random() < 0.6)
        elif move == 2:
            delete(world, "number = 3")
            keep(world, lambda row: row[2] != 3)
        elif move == 3:
            warehouse.maintain(None, world.path, grace="0s", tuning=TINY)
        else:
            moment = START + draw.randrange(40) * HOUR
            try:
                expire(world, moment, progress=killer(draw.choice([*POINTS, "horizon raised", ""])))
            except Killed:
                expire(world, START)
            horizon = max(horizon, moment)
            left(world, horizon)
    check(world)


def test_what_is_left_answers_as_a_warehouse_that_never_had_more(tmp_path: Path) -> None:
    """Distinct and persistent keys, companions, and the views of SQL."""
    came = [rows(number) + TIMELESS for number in range(4)]
    young = [[row for row in given if not is_old(row)] for given in came]
    warehouse.register_companion(Tally())
    worlds = [GroupWorld.create(tmp_path, groups=["origin"], companions=DECLARED) for _ in range(2)]
    for world, batches in zip(worlds, (came, young), strict=True):
        for batch in batches:
            world.add(batch, load=True)
    expire(worlds[0])
    window: dict[str, Any] = {"between": (MOMENT, MOMENT + 20 * HOUR)}
    found = []
    for world in worlds:
        wh, connection = world.open(), duckdb.connect()
        query.register_duckdb(connection, world.path, "w")
        distinct = [wh.distinct(), wh.distinct(mode="exact"), wh.distinct(**window)]
        asked: list[Any] = [
            [(one.least, one.most) for one in distinct],
            [(one.value, one.lo, one.hi) for one in wh.persistent(0.3)],
            [(one.value, one.lo, one.hi) for one in wh.persistent(0.1, **window)],
            [(wh.companion(name).summary.values, wh.companion(name, **window).N) for name in DECLARED],
            connection.execute(
                "SELECT count(*), count(DISTINCT origin), sum(number) FROM w_events"
            ).fetchall(),
            connection.execute("SELECT value, n, m FROM w_quantile(0.5, measure => 'value')").fetchall(),
            [(one.value, one.N) for one in wh.quantile([0.1, 0.9], "price", by="origin", every="4h")],
        ]
        found.append(asked)
    kinds._REGISTERED.pop("tally")
    assert found[0] == found[1]


def test_spark_s_tasks_do_it_too_and_its_views_show_it(spark: SparkSession, world: GroupWorld) -> None:
    world.load_live()
    query.register_views(spark, world.path, "expiring")
    assert warehouse.expire(spark, world.path, MOMENT, tuning=TINY).outcome == "removed"
    left(world)
    check(world)
    (row,) = spark.sql("SELECT count(*), count(number) FROM expiring_events").collect()
    assert tuple(row) == (len(world.rows), sum(row[2] is not None for row in world.rows))
    (row,) = spark.sql("SELECT n, widened FROM expiring_quantile(0.5, measure => 'value')").collect()
    assert "which have expired" in row[1]
