"""`at=`: a warehouse as it was, history and live side, whatever was loaded, streamed and merged since."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.killing import Killed, killer
from tests.query.answers import single
from tests.soak import DRAWS, some
from tests.warehouse.hereloader import Loader, rows_of
from tests.warehouse.test_completion import tables_of
from tidemark import query, warehouse
from tidemark.jobs.cli import main
from tidemark.warehouse import DamagedWarehouse, InputError, NotAWarehouse
from tidemark.warehouse.columns.ticks import now_us
from tidemark.warehouse.delta.log_files import commit_name
from tidemark.warehouse.delta.log_versions import LogOfTable
from tidemark.warehouse.events import completion
from tidemark.warehouse.sizes import DEFAULT
from tidemark.warehouse.snapshots import past


def answers(wh: query.Warehouse) -> list[Any]:
    """Answers of all ways: blocks, live rows, keys, groups, scans, SQL; and the facts."""
    by = wh.quantile(0.5, "n", by="k", mode="exact")
    return [
        wh.quantile([0.1, 0.5, 0.99], "n", mode="exact").to_json(),
        wh.quantile(0.5, "n", between=("1970-01-02", None)).to_json(),
        repr(wh.quantile([0.3, 0.6], "x", mode="quick")),
        [(one.group, one.value, one.N) for one in by],
        [(one.value, one.count) for one in wh.top(3)],
        (wh.distinct().least, wh.distinct().most),
        wh.sql("SELECT count(*), sum(n) FROM events").fetchall(),
        wh.sql("SELECT count(*), sum(n) FROM live").fetchall(),
        [row[:2] for row in wh.sql("FROM steps").fetchall()],
    ]


def versions(wh: query.Warehouse) -> Any:
    return wh.info()["versions"]


def apart() -> datetime:
    """A time that is in another millisecond than the commits before and after."""
    time.sleep(0.005)
    now = datetime.now(UTC)
    time.sleep(0.005)
    return now


def live(loader: Loader, r: random.Random) -> bool:
    """Something happens; whether a step was completed."""
    kind = r.choice(["stream", "stream", "load", "load", "load_live", "maintain"])
    if kind == "maintain":
        loader.maintain("7 days")
    else:
        getattr(loader, kind)()
    return kind.startswith("load")


@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_moment_answers_as_it_did_then(tmp_path: Path, seed: int) -> None:
    r, loader = random.Random(seed), Loader.create(tmp_path / "w", groups=["k"])
    loader.load()
    then: list[tuple[datetime, list[Any], Any]] = []
    by_step: dict[int, list[Any]] = {}
    for number in range(6):
        if number == 3:
            warehouse.alter(None, loader.uri, add_key=["n"])
        was_step = live(loader, r)
        wh = query.open(loader.uri)
        then.append((apart(), answers(wh), versions(wh)))
        if was_step:
            by_step.setdefault(wh.info()["steps"] - 1, then[-1][1])
    for moment, expected, read in then:
        wh = query.open(loader.uri, at=moment)
        assert versions(wh) == read
        assert answers(wh) == expected
        assert not wh.refresh()
    for step, expected in by_step.items():
        assert answers(query.open(loader.uri, at=step))[3:] == expected[3:]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loader, datetime, list[Any]]:
    """Four steps and merges; a time after the second, and the answers then."""
    loader = Loader.create(tmp_path_factory.mktemp("past") / "w", groups=["k"])
    for _ in range(2):
        loader.stream()
        loader.load()
    moment, expected = apart(), answers(query.open(loader.uri))
    for _ in range(2):
        loader.stream()
        loader.load()
    return loader, moment, expected


def test_a_step_without_a_record_goes_by_the_times_of_commits(
    lived: tuple[Loader, datetime, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader, _, expected = lived
    assert answers(query.open(loader.uri, at=1)) == expected
    monkeypatch.setattr(completion.Completion, "parse", classmethod(lambda *_: None))
    assert answers(query.open(loader.uri, at=1)) == expected


def test_every_door_takes_a_moment(
    lived: tuple[Loader, datetime, list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    loader, moment, expected = lived
    count = expected[6][0][0]
    naive = moment.replace(tzinfo=None)
    for at in (1, moment, moment.isoformat(), naive.isoformat(" ")):
        assert query.open(loader.uri, at=at).sql("SELECT count(*) FROM events").fetchall() == [(count,)]
    assert query.use(loader.uri, at=1).info()["steps"] == 2
    connection = duckdb.connect()
    query.register_duckdb(connection, loader.uri, "then", at=1)
    query.register_duckdb(connection, loader.uri, "now")
    found = connection.execute(
        "SELECT (SELECT count(*) FROM then_events), count(*) FROM now_events"
    ).fetchone()
    assert found == (count, 480)
    with pytest.raises(InputError, match="which has its own moment"):
        query.register_duckdb(connection, query.open(loader.uri), "other", at=1)
    for at in ("1", moment.isoformat()):
        assert main.main(["quantile", "0.5", "-w", loader.uri, "--measure", "n", "--at", at, "--json"]) == 0
        assert f'"N": {count}' in capsys.readouterr().out.replace('"n": ', "")
        assert main.main(["info", "-w", loader.uri, "--at", at, "--json"]) == 0
        assert '"steps": 2' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (4, "its steps are 0 to 3"),
        (-1, "its steps are 0 to 3"),
        (True, "neither the number of a step nor a time"),
        (1.5, "neither the number of a step nor a time"),
        ("yesterday", "neither the number of a step nor a time"),
        ("9999-01-01", "has not been yet"),
        ("2001-03-31", "was created at"),
    ],
)
def test_what_is_no_moment_of_the_warehouse_is_refused(
    lived: tuple[Loader, datetime, list[Any]], at: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        query.open(lived[0].uri, at=at)


def test_a_place_without_a_warehouse_and_one_without_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAWarehouse):
        query.open(tmp_path / "none", at=0)
    loader = Loader.create(tmp_path / "w")
    with pytest.raises(InputError, match="it has no steps"):
        query.open(loader.uri, at=0)
    moment = apart()
    loader.load()
    assert query.open(loader.uri, at=moment).info()["steps"] == 0


def _swept(loader: Loader, _: pytest.MonkeyPatch) -> str:
    loader.maintain("0 s")
    return "is deleted"


def _old(_: Loader, monkeypatch: pytest.MonkeyPatch) -> str:
    """Eight days later."""
    ahead = now_us() + 8 * 86_400_000_000
    monkeypatch.setattr(past, "now_us", lambda: ahead)
    return "before the grace began"


def _cleaned(loader: Loader, _: pytest.MonkeyPatch) -> str:
    for name in tables_of(loader.uri):
        DeltaTable(f"{loader.uri}/{name}").create_checkpoint()
        for version in LogOfTable(loader.store, name).versions[:-1]:
            Path(loader.uri, name, "_delta_log", commit_name(version)).unlink()
    return "does not reach back to it"


@pytest.mark.parametrize("lose", [_swept, _old, _cleaned])
def test_a_moment_that_is_gone_is_refused_with_the_remedy(
    lived: tuple[Loader, datetime, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Loader, pytest.MonkeyPatch], str],
) -> None:
    loader = lived[0].copied(tmp_path / "w")
    said = lose(loader, monkeypatch)
    for at in (1, lived[1]):
        with pytest.raises(InputError, match=f"{said}.*Open a moment after .* or a copy"):
            query.open(loader.uri, at=at)
    assert query.open(loader.uri).info()["steps"] == 4


def test_clocks_that_differ_lose_no_row(
    lived: tuple[Loader, datetime, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans and batches by a machine whose clock is ahead: their tables move on until they fit the runs."""
    real = LogOfTable.time_us

    def ahead(log: LogOfTable, version: int) -> int:
        return real(log, version) + (60_000_000 if log.name in ("steps", "events") else 0)

    loader, moment, expected = lived
    monkeypatch.setattr(LogOfTable, "time_us", ahead)
    created = real(LogOfTable(loader.store, "events"), 0)
    monkeypatch.setattr(past._Past, "_version", _from_the_first(past._Past._version))
    assert created
    assert answers(query.open(loader.uri, at=moment))[3:] == expected[3:]


def _from_the_first(version_of: Callable[[Any, str], int]) -> Callable[[Any, str], int]:
    """Of a warehouse that was made long before: its tables have their first version at any moment."""

    def version(self: Any, name: str) -> int:
        if name in ("steps", "events") and name not in self.versions:
            self.versions[name] = max(0, self._log(name).version_at(self.moment_us))
        return version_of(self, name)

    return version


def test_a_stream_beside_the_look_changes_no_moment(tmp_path: Path) -> None:
    loader = Loader.create(tmp_path / "w")
    loader.stream()
    loader.load()
    moment, expected = apart(), query.open(loader.uri).quantile(0.5, "n", mode="exact")
    wh = query.open(loader.uri, at=moment)
    loader.stream()
    assert wh.quantile(0.5, "n", mode="exact").to_json() == expected.to_json()
    again = replace(expected, blocks_read=0).to_json()  # the rank of a value that many rows share is kept
    for _ in range(2):
        loader.stream()
        assert wh.quantile(0.5, "n", mode="exact").to_json() == again
    loader.load_live()
    loader.maintain("7 days")
    assert wh.quantile(0.5, "n", mode="exact").to_json() == again


def test_a_moment_that_takes_the_newest_ledger_is_caught(
    lived: tuple[Loader, datetime, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: history of then, and the live side of now."""
    loader, moment, expected = lived
    real = LogOfTable.version_at

    def newest(log: LogOfTable, moment_us: int) -> int:
        return log.versions.stop - 1 if log.name == "ledger" else real(log, moment_us)

    monkeypatch.setattr(LogOfTable, "version_at", newest)
    assert answers(query.open(loader.uri, at=moment)) != expected


def test_spark_sees_rows_and_answers_of_a_moment(
    spark: SparkSession, lived: tuple[Loader, datetime, list[Any]]
) -> None:
    loader, moment, expected = lived
    query.register_views(spark, loader.uri, "then", at=moment)
    query.register_views(spark, loader.uri, "step", at=1)
    ((count, total),) = expected[6]
    for name in ("then", "step"):
        (row,) = spark.sql(f"SELECT count(*), sum(n) FROM {name}_events").collect()
        assert tuple(row) == (count, total)
        (row,) = spark.sql(f"SELECT `value`, n + m FROM {name}_quantile(0.5, measure => 'n')").collect()
        assert tuple(row) == (query.open(loader.uri, at=1).quantile(0.5, "n").value, count)
        assert [row[0] for row in spark.sql(f"SELECT step FROM {name}_steps").collect()] == [0, 1]
    with pytest.raises(InputError, match="its steps are 0 to 3"):
        query.register_views(spark, loader.uri, "never", at=9)


def kill(loader: Loader, point: str) -> None:
    """A delete that ends where it reaches the point."""
    with pytest.raises(Killed):
        warehouse.delete(None, loader.uri, "k = 'k1'", progress=killer(point), tuning=loader.tuning)


REMOVALS: dict[str, Callable[[Loader], object]] = {
    "delete": lambda loader: warehouse.delete(None, loader.uri, "n = 3", tuning=loader.tuning),
    "unload": lambda loader: warehouse.unload(None, loader.uri, "night-1", tuning=loader.tuning),
    "expire": lambda loader: warehouse.expire(None, loader.uri, "1970-01-02", tuning=loader.tuning),
    "other rows": lambda loader: warehouse.load(None, loader.uri, rows_of(77), "night-1"),
    "killed": lambda loader: kill(loader, "decided"),
    "load": Loader.load,
    "stream": Loader.stream,
    "maintain": lambda loader: loader.maintain("7 days"),
    "delete all": lambda loader: warehouse.delete(
        None, loader.uri, "k IN ('k1', 'k2')", tuning=loader.tuning
    ),
}
Moments = list[tuple[datetime, list[Any], Any]]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Loader, Moments]:
    """Rows left in all ways, also killed, and runs were written again; the answers at each moment."""
    rewrites = replace(DEFAULT, kept_rows=0)
    return lived_through(Loader.create(tmp_path_factory.mktemp("lost") / "w", rewrites, groups=["k"]))


def lived_through(loader: Loader) -> tuple[Loader, Moments]:
    then = []
    for act in (Loader.stream, Loader.load, Loader.load, Loader.load_live, *REMOVALS.values()):
        act(loader)
        wh = query.open(loader.uri)
        then.append((apart(), answers(wh), versions(wh)))
    return loader, then


def at_killed(then: Moments) -> datetime:
    """While a removal is decided, and no run is written again."""
    return then[4 + list(REMOVALS).index("killed")][0]


@pytest.mark.parametrize("keeps", [False, True])
def test_a_moment_answers_as_it_did_then_whatever_left_since(
    lost: tuple[Loader, Moments], tmp_path: Path, keeps: bool
) -> None:
    loader, then = lived_through(Loader.create(tmp_path / "w", groups=["k"])) if keeps else lost
    for moment, expected, read in some(then[1:], 6) if keeps else then[1:]:
        wh = query.open(loader.uri, at=moment)
        assert versions(wh) == read
        assert answers(wh) == expected
    assert len({str(expected[6]) for _, expected, _ in then}) >= len(REMOVALS) - 2
    assert answers(query.open(loader.uri, at=1))[6] == then[2][1][6]


def test_a_moment_without_what_had_left_is_caught(
    lost: tuple[Loader, Moments], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the records of removals are not looked at."""
    loader, then = lost
    monkeypatch.setattr(past._Past, "_with_removed", lambda _, state, *__: (state, False))
    with pytest.raises(DamagedWarehouse):
        answers(query.open(loader.uri, at=at_killed(then)))


def test_while_a_removal_is_applied_runs_show_its_rows_and_scans_do_not(lost: tuple[Loader, Moments]) -> None:
    wh = query.open(lost[0].uri, at=at_killed(lost[1]))
    ((scanned,),) = wh.sql("SELECT count(*) FROM events").fetchall()
    shown = single(wh.quantile(0.5, "n", mode="exact"))
    assert scanned < shown.N


def test_removals_by_a_clock_that_differs_fit_the_runs(
    lost: tuple[Loader, Moments], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, (loader, then) = LogOfTable.time_us, lost

    def ahead(log: LogOfTable, version: int) -> int:
        return real(log, version) + (60_000_000 if log.name in ("events", "removals") else 0)

    monkeypatch.setattr(LogOfTable, "time_us", ahead)
    monkeypatch.setattr(past._Past, "_version", _from_the_first(past._Past._version))
    for moment, expected, _ in then[4:]:
        found = query.open(loader.uri, at=moment).quantile([0.1, 0.5, 0.99], "n", mode="exact").to_json()
        told = [{name: json.loads(one)[name] for name in ("N", "n", "m")} for one in (found, expected[0])]
        assert told[0] == told[1]


def test_a_moment_before_a_removal_is_refused_after_the_grace(
    lost: tuple[Loader, Moments], tmp_path: Path
) -> None:
    loader, then = lost
    swept = loader.copied(tmp_path / "w")
    swept.maintain("0 s")
    with pytest.raises(InputError, match=r"is deleted.*Open a moment after .* or a copy"):
        query.open(swept.uri, at=then[3][0])
    assert answers(query.open(swept.uri))[6] == then[-1][1][6]
