"""Alerts over sites: at each quiet moment the states of an alert that asks all, with fewer messages."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query.alerts import alert as alerts
from tidemark.query.alerts import at_site, over_sites
from tidemark.query.alerts import linear as linear_forms
from tidemark.query.alerts.alert import Alert
from tidemark.query.alerts.at_site import AlertSite
from tidemark.query.alerts.levels import conditions_of
from tidemark.query.alerts.linear import Counted, Sum, linear
from tidemark.query.alerts.places import REPORT, level_of, level_text
from tidemark.query.alerts.reading import Reading
from tidemark.sketches.geometric.linear import LinearSite
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message
from tidemark.warehouse.delta.object_client import ObjectClient
from tidemark.warehouse.errors import InputError, SystemRefused, TidemarkError

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("ms", pa.float64()),
        ("qty", pa.int64()),
        ("o", pa.string()),
    ]
)
START = datetime(2024, 3, 1, 12, tzinfo=UTC)
OPERATORS = (">", ">=", "<", "<=")
LONG = int(os.environ.get("TIDEMARK_SOAK_STREAMS", "0"))  # `make soak` sets it
SECRET = b"sixteen bytes or more"


class Clock:
    """The time of all places, which the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def us(self) -> int:
        return int(START.timestamp() * 10**6 + self.seconds * 10**6)

    def wait(self, **times: float) -> None:
        self.seconds += timedelta(**times).total_seconds()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (alerts, at_site, over_sites):
        monkeypatch.setattr(module, "now_us", found.us)
    monkeypatch.setattr(time, "monotonic", lambda: found.seconds)
    return found


class Lab:
    """Warehouses at sites, an alert over them, and one that asks them all."""

    def __init__(self, folder: Path, sites: int, clock: Clock) -> None:
        self.folder, self.clock, self.batches = folder, clock, [0] * sites
        self.uris = [folder / f"site-{number}" for number in range(sites)]
        for uri in self.uris:
            warehouse.create(None, uri, ["ms", "qty"], schema=SCHEMA, key="o", time="at", tick="1 minute")
        self.sites: list[AlertSite | None] = [None] * sites

    @property
    def exchange(self) -> query.Exchange:
        return query.Exchange(uri=self.folder / "exchange", topic="slow", secret=SECRET)

    def get(self, site: int, values: list[float | None], origin: str | None = "a") -> int:
        """Rows of this moment, which then is over; the number of their batch."""
        at = START + timedelta(seconds=self.clock.seconds)
        rows = [
            {"at": at, "ms": one, "qty": None if one is None else int(one), "o": origin} for one in values
        ]
        batch = self.batches[site]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        stream.append(None, self.uris[site], table, source="s", batch=batch, ahead=None)
        self.batches[site] += 1
        self.clock.wait(milliseconds=1)
        return batch

    def start(self, site: int) -> None:
        self.sites[site] = query.alert_site(
            site, exchange=self.exchange, wh=query.open(self.uris[site]), every=0.0005
        )

    def alert(self, *when: str, **options: Any) -> Alert:
        for site in range(len(self.uris)):
            self.start(site)
        return query.alert(*when, sites=len(self.uris), exchange=self.exchange, **options)

    def asking(self, *when: str, **options: Any) -> Alert:
        """The oracle: it asks all sites each time."""
        uris = [str(uri) for uri in self.uris]
        return query.alert(*when, wh=query.open(uris if len(uris) > 1 else uris[0]), **options)

    def quiet(self, alert: Alert) -> list[query.Notice]:
        """Turns until nothing is under way; what the alert told."""
        changed, still = [], 0
        for _ in range(200):
            came = [site.turn() for site in self.sites if site is not None]
            seen = alert._source.seen
            changed += alert.check()
            still = 0 if any(came) or alert._source.seen != seen else still + 1
            if still == 2:
                return changed
        raise AssertionError("no end")


def states(alert: Alert) -> list[str]:
    return [one.state for one in alert.states]


def by_group(states: Iterable[query.GroupState]) -> list[tuple[str, str, str]]:
    return sorted((one.when, str(one.group), one.state) for one in states)


CONDITIONS = (
    "quantile(0.9, measure='ms', last='15m') > 100",
    "quantile(0.5, measure='qty', last='15m') <= 50 and count(measure='ms', last='15m') >= 10",
    "frequency('a', last='10m') > 20",
    "burn(100, 0.9, measure='ms', last='5m', least_rows=5) > 1.5",
    "rank(100, measure='ms') >= 60",
    "quantile(0, measure='ms', last='15m', for='2m') < 1",
    "quantile(0.9, measure='ms', last='15m', by='o') > 100",
    "count(measure='qty', last='10m', by='o', least_rows=3) >= 8 and rank(100, measure='ms') >= 40",
)
WHERE = "cdf(60, measure='ms', where=\"o = 'b'\", last='15m') < 0.5"  # a scan


def act(lab: Lab, chance: random.Random) -> None:
    """Rows that come, leave, are loaded, or become old."""
    lab.clock.wait(seconds=chance.choice([1, 20, 70, 200]))
    level = chance.choice([30, 99, 101, 160])
    for _ in range(chance.randint(1, 2)):
        site = chance.randrange(len(lab.uris))
        drawn = [float(chance.randrange(level)) for _ in range(chance.randint(1, 25))]
        batch = lab.get(
            site, [*drawn, *([None, 100.0] if chance.random() < 0.3 else [])], chance.choice("aab")
        )
        what = chance.random()
        if what < 0.15:
            warehouse.load(None, lab.uris[site])
        elif what < 0.3:
            warehouse.delete(None, lab.uris[site], where=f"ms >= {chance.choice([20, 90, 100])}")
        elif what < 0.35 and batch:
            warehouse.unload(None, lab.uris[site], source="s", batches=(batch, batch))


def run(folder: Path, clock: Clock, sites: int, steps: int, seed: int) -> dict[str, int]:
    """The states of both alerts at each quiet moment; AssertionError where they differ. The traffic."""
    lab, chance = Lab(folder, sites, clock), random.Random(seed)
    options: dict[str, Any] = {"theta": 0.1, "stale": "1h"}
    for site in range(sites):
        lab.get(site, [1.0])
    when = CONDITIONS if sites > 1 else (*CONDITIONS, WHERE)
    alert, asking = lab.alert(*when, **options), lab.asking(*when, **options)
    told = []
    for step in range(steps):
        if step:
            act(lab, chance)
        changed = by_group(lab.quiet(alert))
        assert changed == by_group(asking.check()), step
        assert by_group(alert.states) == by_group(asking.states), step
        told += changed
    assert told
    return dict(alert.traffic)


@pytest.mark.parametrize(
    ("sites", "steps", "seed"),
    [
        (1, 3, 1),
        (2, 5, 2),
        (3, 4, 3),
        (8, 2, 8),
        *((1 + seed % 8, 20, 100 + seed) for seed in range(10 * LONG)),
    ],
)
def test_no_quiet_state_of_random_streams_differs_from_that_of_asking_all(
    tmp_path: Path, clock: Clock, sites: int, steps: int, seed: int
) -> None:
    run(tmp_path, clock, sites, steps, seed)


VALUES: list[tuple[Any, ...]] = [
    (1.0, 1, Decimal("0.10"), date(2024, 3, 1)),
    (0.1, 2, Decimal("0.20"), date(2024, 3, 2)),
    (math.inf, 2, Decimal("-7.00"), date(2024, 3, 2)),
    (math.nan, 3, None, date(2024, 3, 9)),
    (-0.0, -(2**63), Decimal("9.99"), None),
    (2.5, 2**53 + 1, Decimal("0.20"), date(1999, 12, 31)),
    (None, None, None, None),
]
TYPES = {"x": pa.float64(), "i": pa.int64(), "d": pa.decimal128(9, 2), "day": pa.date32()}


def comparisons(folder: Path) -> None:
    """Every operator, levels on and between values of every type, the ends of phi, NaN and NULL."""
    schema = pa.schema([("k", pa.string()), *TYPES.items()])
    uris = [str(folder / name) for name in ("eu", "us")]
    for place, uri in enumerate(uris):
        rows = [{"k": "ab"[i % 2], **dict(zip(TYPES, one, strict=True))} for i, one in enumerate(VALUES)]
        warehouse.create(None, uri, list(TYPES), schema=schema, key="k")
        warehouse.load(None, uri, pa.Table.from_pylist(rows[place::2], schema), "b")
    levels = {"x": ("0.1", "0", "1", "3e300"), "i": ("2", "2.5", f"{2**53 + 1}"), "d": ("0.2", "0.15")}
    asked = [
        f"quantile({phi}, measure='{name}')"
        for name, phi in [("x", "0"), ("x", "0.5"), ("x", "1"), ("i", "0.4"), ("i", "1"), ("d", "0.5")]
    ]
    when = [f"{one} {op} {level}" for one in asked for op in OPERATORS for level in levels[one[-3]]]
    days = ["'2024-03-02'", "'2024-03-02 12:00'"]
    when += [f"quantile(0.5, measure='day') {op} {day}" for op in OPERATORS for day in days]
    others = ("rank(1, measure='i')", "count(measure='x')", "frequency('a')", "frequency('none')")
    when += [f"{one} {op} {level}" for one in others for op in OPERATORS for level in (2, 3, "3.5")]
    shares = ("cdf(2, measure='i')", "burn(1, 0.5, measure='x')")
    when += [f"{one} {op} {level}" for one in shares for op in OPERATORS for level in ("0.5", "2", "0.28")]
    exchange = query.Exchange(uri=folder / "exchange", topic="slow", secret=SECRET)
    sites = [query.alert_site(i, exchange=exchange, wh=query.open(uri)) for i, uri in enumerate(uris)]
    alert = query.alert(*when, sites=2, exchange=exchange)
    asking = query.alert(*when, wh=query.open(uris))
    asking.check()
    for _ in range(12):
        for site in sites:
            site.turn()
        alert.check()
    assert [(one.when, one.state) for one in alert.states] == [(one.when, one.state) for one in asking.states]
    assert {one.state for one in alert.states} == {"clear", "certain"}


def test_each_comparison_over_sites_is_what_its_question_says(tmp_path: Path) -> None:
    comparisons(tmp_path)


def rows_equal_to_x_count(asked: Any, point: Any = None, is_less: bool = False) -> Counted:  # noqa: ARG001
    return Counted(asked, point)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("Counted", rows_equal_to_x_count), ("_moment", lambda _: "2024-03-02 06:00")],
)
def test_a_comparison_that_says_something_else_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mistake: Any
) -> None:
    """Rows equal to x, and a time that is rounded."""
    monkeypatch.setattr(linear_forms, name, mistake, raising=False)
    with pytest.raises((AssertionError, TidemarkError)):
        comparisons(tmp_path)


def test_far_from_the_threshold_little_is_said(tmp_path: Path, clock: Clock) -> None:
    lab = Lab(tmp_path, 3, clock)
    for site in range(3):
        lab.get(site, [1.0] * 40)
    alert = lab.alert("quantile(0.9, measure='ms', last='1h') > 100", "frequency('a', last='1h') > 9000")
    lab.quiet(alert)
    before = alert.traffic
    for step in range(12):
        clock.wait(seconds=1)
        lab.get(step % 3, [1.0] * (5 + step))
        lab.quiet(alert)
    assert states(alert) == ["clear", "clear"]
    lab.clock.wait(seconds=25)
    lab.quiet(alert)  # each says that it is there, and how often it looked
    spent = {name: value - before[name] for name, value in alert.traffic.items()}
    assert spent["messages"] < spent["messages_of_asking"] / 3
    assert spent["bytes"] < spent["bytes_of_asking"] / 3
    document = alert.states[0].to_dict()
    assert document["traffic"]["bytes"] == alert.traffic["bytes"]
    assert (document["value"], "0 of 120 rows were above 100" in document["reason"]) == (None, True)
    asking = lab.asking("quantile(0.9, measure='ms', last='1h') > 100")
    asking.check()
    assert "traffic" not in asking.states[0].to_dict()


def rises_and_falls(folder: Path, clock: Clock) -> None:
    """A count rises, falls by a removal, rises, and falls because its window slides; each is told."""
    lab = Lab(folder, 2, clock)
    alert = lab.alert("frequency('a', last='10m') >= 6", stale="1d")
    lab.get(0, [1.0] * 4)
    lab.get(1, [1.0], "b")
    batch = lab.get(1, [2.0] * 4)
    lab.quiet(alert)
    assert states(alert) == ["certain"]
    assert (alert.states[0].low, alert.states[0].high) == (8, 8)
    warehouse.unload(None, lab.uris[1], source="s", batches=(batch, batch))
    lab.quiet(alert)
    assert states(alert) == ["clear"]
    lab.get(1, [2.0] * 4)
    assert [one.state for one in lab.quiet(alert)] == ["certain"]
    clock.wait(minutes=12)  # nothing comes
    assert [one.state for one in lab.quiet(alert)] == ["clear"]


def test_a_window_that_slides_and_rows_that_leave_end_an_alert(tmp_path: Path, clock: Clock) -> None:
    rises_and_falls(tmp_path, clock)


def test_a_site_that_gets_no_rows_or_says_nothing_makes_it_stale(tmp_path: Path, clock: Clock) -> None:
    lab = Lab(tmp_path, 3, clock)
    for site in range(3):
        lab.get(site, [500.0])
    when = "quantile(0.5, measure='ms', last='15m') > 100"
    alert = lab.alert(when, silent="1m")
    lab.quiet(alert)
    assert states(alert) == ["certain"]
    clock.wait(minutes=16)
    for site in (0, 2):
        lab.get(site, [500.0])
    assert [(one.previous, one.state) for one in lab.quiet(alert)] == [("certain", "stale")]
    assert "site 1: no new rows" in alert.states[0].reason
    lab.get(1, [500.0])
    assert [(one.previous, one.state) for one in lab.quiet(alert)] == [("stale", "certain")]
    lab.sites[2] = None
    clock.wait(seconds=59)
    assert lab.quiet(alert) == []
    clock.wait(seconds=2)
    assert [(one.previous, one.state) for one in lab.quiet(alert)] == [("certain", "stale")]
    assert "site 2 has said nothing for 6" in alert.states[0].reason
    lab.start(2)
    lab.get(2, [500.0])
    assert [(one.previous, one.state) for one in lab.quiet(alert)] == [("stale", "certain")]


def test_a_question_that_fails_at_a_site_is_stale(tmp_path: Path, clock: Clock) -> None:
    lab = Lab(tmp_path, 2, clock)
    for site in range(2):
        lab.get(site, [500.0])
    alert = lab.alert("quantile(0.5, measure='none') > 1", "rank(100, measure='ms') < 1")
    lab.quiet(alert)
    assert states(alert) == ["stale", "certain"]
    assert "site 0: the question failed" in alert.states[0].reason


def test_until_all_sites_have_told_states_stay(tmp_path: Path, clock: Clock) -> None:
    lab = Lab(tmp_path, 2, clock)
    alert = query.alert("frequency('a') > 1", sites=2, exchange=lab.exchange)
    lab.start(0)
    lab.quiet(alert)
    assert states(alert) == []
    lab.get(1, [1.0, 2.0])
    lab.start(1)
    lab.quiet(alert)
    assert states(alert) == ["certain"]


@pytest.mark.parametrize("name", ["put_new", "get"])
def test_an_exchange_that_does_not_answer_is_stale_and_loses_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lab = Lab(tmp_path, 2, clock)
    for site in range(2):
        lab.get(site, [1.0])
    alert = lab.alert("frequency('a', last='1h') >= 4", stale="1d")
    lab.quiet(alert)

    def refuses(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    lab.get(0, [1.0] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(ObjectClient, name, refuses)
        for one in lab.sites:
            assert one is not None
            with suppress(SystemRefused):
                one.turn()
        alert._source.refresh()  # what it says now cannot be said
        clock.wait(seconds=30)
        assert [one.state for one in alert.check()] == (["stale"] if name == "get" else [])
    clock.wait(seconds=30)
    lab.quiet(alert)
    clock.wait(seconds=60)
    lab.quiet(alert)
    assert states(alert) == ["certain"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"7",
        b"[1]",
        b"[1,[[0,[1]]]]",
        b'[1,[[9,"",[1]]]]',
        b'[1,[[0,"",[1,2.5,3]]]]',
        b'[1,[[0,"a",[1,2,3]]]]',
        b"[1,[[0,[7],[1,2,3]]]]",
        b'["x",[]]',
    ],
)
def test_what_another_release_says_is_refused(tmp_path: Path, clock: Clock, payload: bytes) -> None:
    lab = Lab(tmp_path, 1, clock)
    lab.get(0, [1.0])
    alert = lab.alert("frequency('a') >= 4")
    lab.quiet(alert)
    site = lab.sites[0]
    assert site is not None
    site._place.say([Message(COORDINATOR, REPORT, payload)])
    with pytest.raises(TidemarkError, match="one release of tidemark"):
        lab.quiet(alert)


def test_a_site_whose_own_warehouses_do_not_all_answer_is_stale(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its question answers then is not certain for the present."""
    lab = Lab(tmp_path, 1, clock)
    lab.get(0, [1.0] * 9)
    alert = lab.alert("frequency('a') >= 4")
    monkeypatch.setattr(
        linear_forms, "readings", lambda *_: iter([{"": Reading(low=9, value=9, high=9, now="low")}] * 2)
    )
    lab.quiet(alert)
    assert states(alert) == ["stale"]
    assert "a warehouse of this site does not answer" in alert.states[0].reason


class _Killed(BaseException):
    """A process that ends here."""


class Receiver:
    """Takes notices; the ids that came, and the state of each."""

    def __init__(self) -> None:
        self.got: dict[str, str] = {}
        self.count = 0

    def __call__(self, notice: dict[str, Any]) -> None:
        self.got[notice["id"]] = notice["state"]
        self.count += 1


def _kill_at(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before or after it puts or replaces a file for the count-th time."""
    left = [count]

    def dying(does: Any) -> Any:
        def done(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise _Killed
            found = does(*args)
            left[0] -= 1
            if left[0] == -1:
                raise _Killed
            return found

        return done

    monkeypatch.setattr(ObjectClient, "put_new", dying(ObjectClient.put_new))
    monkeypatch.setattr(Path, "replace", dying(Path.replace))


def _through_kills(folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, points: range) -> None:
    """Whoever of the three is at work is killed at one point and started again; what was told is right."""
    lab, when = Lab(folder, 2, clock), "frequency('a', last='1h') >= 6"
    options: dict[str, Any] = {"stale": "1d", "state": folder / "state", "silent": "1h"}
    for site in range(2):
        lab.get(site, [1.0])
    wanted, receiver, killed = ["clear"], Receiver(), set[int | None]()
    alert = lab.alert(when, notify=receiver, **options)
    lab.quiet(alert)
    for point in points:
        if wanted[-1] == "clear":
            batches = [lab.get(site, [1.0] * 3) for site in range(2)]
            wanted.append("certain")
        else:
            for site, batch in enumerate(batches):
                warehouse.unload(None, lab.uris[site], source="s", batches=(batch, batch))
            wanted.append("clear")
        for _ in range(4):
            with monkeypatch.context() as patched:
                _kill_at(point, patched)
                for place in (0, 1, None):
                    try:
                        if place is None:
                            alert.check()
                        else:
                            one = lab.sites[place]
                            assert one is not None
                            one.turn()
                    except _Killed:
                        killed.add(place)
                        patched.undo()
                        if place is None:
                            alert.close()
                            alert = query.alert(
                                when, sites=2, exchange=lab.exchange, notify=receiver, **options
                            )
                        else:
                            lab.start(place)
            clock.wait(seconds=5)
        lab.quiet(alert)
        assert states(alert) == wanted[-1:], point
        assert list(receiver.got.values()) == wanted[1:], point
    assert killed == {0, 1, None}
    assert receiver.count >= len(receiver.got)
    alert.close()


def test_a_kill_of_any_place_at_any_point_loses_no_notice(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _through_kills(tmp_path, clock, monkeypatch, range(6))


def test_a_later_process_of_a_place_ends_the_earlier_one(tmp_path: Path, clock: Clock) -> None:
    lab = Lab(tmp_path, 1, clock)
    lab.get(0, [1.0])
    alert = lab.alert("frequency('a') > 1")
    lab.quiet(alert)
    first = lab.sites[0]
    assert first is not None
    lab.start(0)
    lab.quiet(alert)
    clock.wait(minutes=1)
    with pytest.raises(TidemarkError, match="started again"):
        first.turn()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"when": ["quantile(0.5, 'ms') > 1"]}, "not a measure"),
        ({"when": ["distinct() > 1"]}, "distinct is no sum over sites"),
        ({"when": ["self_join() > 1"]}, "open the warehouses as one"),
        ({"when": ["max() > 1"]}, "max is no sum"),
        ({"when": ["quantile(0.5, last=3) > 1"]}, "steps of sites"),
        ({"when": ["quantile(2) > 1"]}, "from 0 to 1"),
        ({"sites": 0}, "1 to 1,000 sites"),
        ({"exchange": None}, "needs an exchange"),
        ({"silent": "0s"}, "positive"),
    ],
)
def test_what_is_no_alert_over_sites_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    exchange = query.Exchange(uri=tmp_path / "x", topic="t", secret=SECRET)
    right: dict[str, Any] = {"when": ["frequency('a') > 1"], "sites": 2, "exchange": exchange}
    given = {**right, **options}
    with pytest.raises(InputError, match=words):
        query.alert(*given.pop("when"), **given)


def test_a_secret_that_is_too_short_is_refused_and_none_is_shown(tmp_path: Path) -> None:
    exchange = query.Exchange(uri=tmp_path / "x", topic="t", secret=b"short")
    with pytest.raises(TidemarkError, match="16 to 64"):
        query.alert("frequency('a') > 1", sites=2, exchange=exchange)
    assert "short" not in repr(exchange)


@pytest.mark.parametrize("clear", [None, 5, 0.1, "2024-03-01", START])
def test_a_clear_level_travels_exactly(clear: Any) -> None:
    found = level_of(level_text(clear))
    text = "max(last='1h') > '2024-03-02'" if isinstance(clear, str | datetime) else "count() > 7"
    (one,), (other,) = (conditions_of([text], 0.0, level).values() for level in (clear, found))
    assert one.limits == other.limits


def zones_that_are_too_wide(self: LinearSite, zones: Any) -> None:
    TAKE(self, [[sign, least - 40] for sign, least in zones])


def a_drift_that_is_not_reset(self: LinearSite, zones: Any) -> None:
    if self._zones is None:
        TAKE(self, zones)


def removals_are_not_subtracted(self: Sum, reading: Any, *, is_last: bool) -> tuple[int, int]:
    low, high = INTERVAL(self, reading, is_last=is_last)
    most = MOST.setdefault(repr(self), {"low": low, "high": high})
    most["low"], most["high"] = max(most["low"], low), max(most["high"], high)
    return most["low"], most["high"]


TAKE, INTERVAL = LinearSite.take, Sum.interval
MOST: dict[str, dict[str, int]] = {}
MISTAKES: dict[str, Any] = {
    "a safe zone that is too wide": (LinearSite, "take", zones_that_are_too_wide),
    "a drift that is not reset": (LinearSite, "take", a_drift_that_is_not_reset),
    "a removal that is not subtracted": (Sum, "interval", removals_are_not_subtracted),
    "windows do not slide": (at_site, "window_end", lambda *_: START + timedelta(hours=3)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(
    mistake: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    MOST.clear()
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, TidemarkError)):
        rises_and_falls(tmp_path, clock)


def test_sums_are_each_there_once() -> None:
    (one,) = conditions_of(["burn(100, 0.9) > 2 and cdf(100) < 0.5"], 0.0, None).values()
    assert len(linear(one).sums) == 3  # of equal levels, and of equal numbers of rows
    with pytest.raises(InputError):
        conditions_of([], 0.0, None)
