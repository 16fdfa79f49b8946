"""`as_of`: the moment that `last` counts back from, in every question and every SQL, against a plain list."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.jobs.said import tidemark
from tests.query.answers import several, single
from tests.query.test_future_rows import questions
from tidemark import query, stream, warehouse
from tidemark.query.reading import asked_window
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.query.sql import sql_rows
from tidemark.warehouse.columns import moments
from tidemark.warehouse.errors import InputError

DAY = timedelta(days=1)
FIRST = datetime(2024, 3, 1, tzinfo=UTC)
FAR = datetime(2099, 1, 1, tzinfo=UTC)  # by a wrong clock
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", tz="UTC")), ("x", pa.int64()), ("k", pa.string()), ("g", pa.string())]
)
Row = dict[str, Any]


def drawn() -> list[Row]:
    chance = random.Random(5)
    times = [FIRST + timedelta(hours=chance.randrange(240), minutes=chance.randrange(60)) for _ in range(300)]
    return [
        {"at": at, "x": i, "k": chance.choice("abcde"), "g": chance.choice("pq")}
        for i, at in enumerate([*times, FAR, FAR + DAY])
    ]


ROWS = drawn()
HISTORY, LIVE = ROWS[:200], ROWS[200:]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    path = tmp_path_factory.mktemp("as_of") / "w"
    options: dict[str, Any] = {"key": "k", "groups": ["g"], "time": "at", "tick": "1 day"}
    warehouse.create(None, path, ["x"], schema=SCHEMA, **options)
    warehouse.load(None, path, pa.Table.from_pylist(HISTORY, schema=SCHEMA), "first")
    stream.append(None, path, pa.Table.from_pylist(LIVE, schema=SCHEMA), source="late", batch=0, ahead=None)
    return query.open(path)


def inside(start: datetime, end: datetime, rows: list[Row] = ROWS) -> list[Row]:
    return [row for row in rows if start <= row["at"] < end]


def whole(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The whole days that the time touches."""
    return start - (start - FIRST) % DAY, end + (FIRST - end) % DAY


def edges(answer: Any) -> tuple[datetime, datetime]:
    start, end = answer.window
    return start, end


def check(wh: query.Warehouse, last: timedelta, as_of: datetime) -> None:
    """Each kind of question has the rows of as_of - last to as_of; those of measures of the whole days."""
    ask: dict[str, Any] = {"last": last, "as_of": as_of}
    start, end = as_of - last, as_of
    days, rows = whole(start, end), inside(*whole(start, end))
    values = [row["x"] for row in rows]
    if rows:
        assert single(wh.quantile(1, mode="exact", **ask)).value == max(values)
        answer = single(wh.rank(150, mode="exact", **ask))
        assert (answer.rank, answer.window) == (sum(x <= 150 for x in values), days)
        assert ("widened" in answer.scope_text) == (days != (start, end))
        assert len(rows) == single(wh.histogram([0, 400], **ask)).N
        for where in ({"g": "p"}, "g = 'p'"):
            held = sum(row["g"] == "p" for row in rows)
            assert not held or sum(one.N for one in several(wh.rank([9], where=where, **ask))) == held
        groups = several(wh.rank(9, by="g", **ask))
        assert {(one.group or {})["g"]: one.N for one in groups if one.N} == Counter(row["g"] for row in rows)
        parts = several(wh.quantile(0.5, every="1 day", **ask))
        assert [one.N for one in parts] == [len(inside(*edges(one))) for one in parts]
        assert sum(one.N for one in parts) == len(rows)
    check_keys(wh, ask, start, end)


def check_keys(wh: query.Warehouse, ask: dict[str, Any], start: datetime, end: datetime) -> None:
    held = Counter(row["k"] for row in inside(start, end))
    for answer in several(wh.frequency([*"abcde"], mode="exact", **ask)):
        assert answer.window == (start, end)
        assert answer.lo <= held[answer.value] <= answer.hi
        cut = any(edge != whole(edge, edge)[0] for edge in (start, end))
        assert cut or answer.count == held[answer.value]
    days = whole(start, end)
    for answer in several(wh.frequency("a", every="1 day", **ask)):
        assert answer.lo <= sum(row["k"] == "a" for row in inside(*edges(answer))) <= answer.hi
    if (start, end) != days:
        return
    assert single(wh.distinct(mode="exact", **ask)).count == len(held)
    assert single(wh.key_range("b", "d", **ask)).count == held["b"] + held["c"]
    assert single(wh.self_join(**ask)).count == sum(rows**2 for rows in held.values())
    assert {one.value: one.count for one in wh.top(9, mode="exact", **ask)} == held
    before = {row["k"] for row in ROWS if row["at"] < start}
    assert single(wh.new_keys(mode="exact", **ask)).count == len(set(held) - before)
    found = wh.persistence("a", mode="exact", **ask)
    assert found.window_slots == (end - start) // DAY
    assert found.slots == len({row["at"].date() for row in inside(start, end) if row["k"] == "a"})
    assert all(one.window_slots == (end - start) // DAY for one in wh.persistent(0.01, **ask))


def cases() -> list[tuple[timedelta, datetime]]:
    chance = random.Random(9)
    lasts = [DAY, 2 * DAY, 9 * DAY, timedelta(hours=7), timedelta(hours=36), timedelta(minutes=1)]
    moments = [FIRST + n * DAY for n in (1, 4, 10, 12)] + [FAR + DAY, FAR + timedelta(hours=3)]
    moments += [FIRST + timedelta(minutes=chance.randrange(1, 14400)) for _ in range(12)]
    return [(last, moment) for moment in moments for last in chance.sample(lasts, 2)]


def check_all(wh: query.Warehouse) -> None:
    for last, as_of in cases():
        check(wh, last, as_of)


@pytest.mark.slow
def test_last_counts_back_from_the_moment_that_is_named(wh: query.Warehouse) -> None:
    check_all(wh)


def text(answer: Any) -> str:
    """What the answer says, without what it read and what it calls the window's arguments."""
    return re.sub(r'"blocks_read": \d+|widened from .*? to whole', "", answer.to_json())


def test_it_is_the_window_between_in_every_question(wh: query.Warehouse) -> None:
    for last, as_of in [(2 * DAY, FIRST + 5 * DAY), (3 * DAY, FIRST + timedelta(hours=55))]:
        named = questions(wh, last=last, as_of=as_of)
        same = questions(wh, between=(as_of - last, as_of))
        assert [text(one) for one in named] == [text(one) for one in same]
        assert "future" not in str(named[0])
        assert wh.span(last=last, as_of=as_of) == wh.span(between=(as_of - last, as_of))


def test_moments_have_the_rules_of_windows(wh: query.Warehouse) -> None:
    """A naive one is UTC; a zone counts; text, dates, and both ends of time."""
    wanted = single(wh.rank(400, between=("2024-03-03", "2024-03-05")))
    for moment in (
        *("2024-03-05", "20240305", "2024-03-05T05:45+05:45", datetime(2024, 3, 5), FIRST.date() + 4 * DAY),  # noqa: DTZ001
    ):
        assert single(wh.rank(400, last="2d", as_of=moment)).to_json() == wanted.to_json()
    end = single(wh.frequency("a", last="100000 days", as_of="9999-12-31 23:59:59.9999999"))
    assert end.window
    assert end.window[1] is None
    assert single(wh.frequency("a", last="9000 days", as_of="0001-02-01")).count == 0


def refusals(wh: query.Warehouse) -> dict[str, str]:
    calls: dict[str, dict[str, Any]] = {
        "alone": {"as_of": FIRST},
        "with between": {"as_of": FIRST, "between": (None, FIRST)},
        "all": {"as_of": FIRST, "between": (None, FIRST), "last": "1d"},
        "a number": {"as_of": 1704153600, "last": "1d"},
        "no time": {"as_of": "yesterday", "last": "1d"},
        "no duration": {"as_of": FIRST, "last": 3},
    }
    said = {}
    for name, call in calls.items():
        with pytest.raises(InputError) as refused:
            wh.quantile(0.5, **call)
        said[name] = str(refused.value)
        with pytest.raises(InputError) as refused:
            wh.frequency("a", **call)
        assert str(refused.value) == said[name]
    return said


def test_what_means_nothing_is_refused(wh: query.Warehouse) -> None:
    said = refusals(wh)
    for name in ("alone", "with between"):
        assert "is the moment that last counts back from. Give last, too, such as last='7d'" in said[name]
    assert "exclude each other" in said["all"]
    assert "not a time: 1704153600. A number does not say its unit" in said["a number"]
    assert "not a time: 'yesterday'" in said["no time"]
    assert "not a duration: 3" in said["no duration"]
    with pytest.raises(InputError, match="unexpected keyword"):
        wh.overlap(None, None, as_of=FIRST)  # type: ignore[call-arg]


def test_without_a_time_column_it_is_the_number_of_a_step(tmp_path: Path) -> None:
    warehouse.create(
        None, tmp_path, ["x"], key="k", schema=pa.schema([("x", pa.int64()), ("k", pa.string())])
    )
    for number in range(5):
        warehouse.load(None, tmp_path, pa.table({"x": [number], "k": ["a"]}), f"batch {number}")
    wh = query.open(tmp_path)
    first = wh.span()[0]
    answer = single(wh.quantile(1, last=2, as_of=first + 4))
    assert (answer.value, answer.N, answer.window) == (3, 2, (first + 2, first + 4))
    assert single(wh.frequency("a", last=2, as_of=first + 4)).count == 2
    for far in (2**63, 2**70):  # no step lies beyond 64 bits
        for window in ({"last": far, "as_of": far}, {"between": (-far, far)}):
            assert single(wh.frequency("a", **window)).count == 5
            assert wh.persistence("a", **window).slots == 5
    for wrong in ("2024-01-01", 2.0, True):
        with pytest.raises(InputError, match="as_of= is the number of a step, got"):
            wh.quantile(1, last=2, as_of=wrong)
    with pytest.raises(InputError, match="Give last, too, such as last=7"):
        wh.quantile(1, as_of=3)


MOMENTS = [
    "'2024-03-05'",
    "DATE '2024-03-05'",
    "TIMESTAMP '2024-03-05 00:00:00+00'",
    "'2024-03-05 02:00+02:00'",
]
CALLS = {
    "rank": "SELECT rank, n + m FROM NAMErank(150, 'exact', last => '2d', as_of => AT)",
    "frequency": "SELECT count, n + m FROM NAMEfrequency('a', last => '2d', as_of => AT)",
    "persistence": "SELECT slots, window_slots FROM NAMEpersistence('a', '2d', as_of => AT, mode => 'exact')",
}


def check_sql(wh: query.Warehouse, ask: Callable[[str], list[Any]], prefix: str) -> None:
    window: dict[str, Any] = {"between": ("2024-03-03", "2024-03-05")}
    rank, frequency = single(wh.rank(150, mode="exact", **window)), single(wh.frequency("a", **window))
    wanted = {"rank": (rank.rank, rank.N), "frequency": (frequency.count, frequency.N), "persistence": (2, 2)}
    for name, text in CALLS.items():
        for moment in MOMENTS:
            found = ask(text.replace("NAME", prefix).replace("AT", moment))
            assert [tuple(row) for row in found] == [wanted[name]], (text, moment)
    (unset,) = ask(f"SELECT m FROM {prefix}rank(150, last => '2d', as_of => NULL)")
    assert unset[0] == single(wh.rank(150, last="2d")).m


def test_duckdb_takes_it(wh: query.Warehouse) -> None:
    check_sql(wh, lambda text: wh.sql(text).fetchall(), "")
    with pytest.raises(InputError, match="Give last, too"):
        wh.sql("FROM quantile(0.5, as_of => '2024-03-05')").fetchall()
    with pytest.raises(InputError, match="not a time: 'soon'"):
        wh.sql("FROM frequency('a', '2d', as_of => 'soon')").fetchall()


def test_spark_takes_it(wh: query.Warehouse, spark: SparkSession) -> None:
    query.register_views(spark, wh.store.uri, "moments")
    check_sql(wh, lambda text: spark.sql(text).collect(), "moments_")


def test_the_command_takes_it(wh: query.Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    window: dict[str, Any] = {"last": "2d", "as_of": "2024-03-05"}
    for line, wanted in {
        "quantile 0.5": wh.quantile([0.5], **window),
        "freq a": several(wh.frequency(["a"], **window)),
        "distinct": wh.distinct(**window),
    }.items():
        said = tidemark(
            capsys, *line.split(), "-w", wh.store.uri, "--json", "--last", "2d", "--as-of", "2024-03-05"
        )
        assert (said.code, said.err, said.out) == (0, "", f"{wanted.to_json()}\n")
    said = tidemark(capsys, "quantile", "0.5", "-w", wh.store.uri, "--as-of", "2024-03-05")
    assert said.code == 2
    assert "Give last, too" in said.err


def the_moment_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AskedWindow, "resolved", lambda self, _: AskedWindow(self.last, self.between))


def the_tick_of_the_moment_counts(patch: pytest.MonkeyPatch) -> None:
    """As the newest tick of the data does."""
    real = moments.first_us
    patch.setattr(
        asked_window, "first_us", lambda moment: (real(moment) // 86_400_000_000 + 1) * 86_400_000_000
    )


@pytest.mark.parametrize("mistake", [the_moment_is_ignored, the_tick_of_the_moment_counts])
def test_mistakes_are_caught(
    wh: query.Warehouse, mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, InputError)):
        check_all(wh)


WIDENED: dict[str, Callable[[query.Warehouse], Any]] = {
    "quantile(0.5, last => '36 hours')": lambda wh: wh.quantile([0.5], last="36 hours"),
    "rank(9, since => '2024-03-03 05:00')": lambda wh: wh.rank([9], between=("2024-03-03 05:00", None)),
    "top(1, '2 days')": lambda wh: wh.top(1, last="2 days"),
    "quantile(0.5)": lambda wh: wh.quantile([0.5]),
    "persistent(0.5, '2d', as_of => '2024-03-05')": lambda wh: wh.persistent(
        0.5, last="2d", as_of="2024-03-05"
    ),
}


def check_widened(wh: query.Warehouse) -> None:
    for call, ask in WIDENED.items():
        found = wh.sql(f"SELECT DISTINCT widened FROM {call}").fetchall()
        assert found == [(ask(wh)[0].widened,)], call
    assert wh.sql("SELECT DISTINCT widened FROM overlap(since => '2024-03-03')").fetchall() == [(None,)]
    assert wh.sql("SELECT DISTINCT widened FROM summary").fetchall() == [(None,)]
    ((said,),) = wh.sql(
        "SELECT DISTINCT widened FROM histogram(2, '2d', as_of => '2024-03-05 01:00')"
    ).fetchall()
    assert said == "widened from last='2d', as_of='2024-03-05 01:00' to whole ticks of 1 day, 0:00:00"


def test_rows_in_sql_say_how_the_window_was_widened(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_widened(wh)
    value = sql_rows._value  # the broken variant
    monkeypatch.setattr(sql_rows, "_value", lambda *of: None if of[2] == "widened" else value(*of))
    with pytest.raises(AssertionError):
        check_widened(wh)
