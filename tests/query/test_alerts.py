"""Alerts: the language of conditions, states of groups against an oracle, notices that are never lost."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark import query, stream, warehouse
from tidemark.query.alerts import alert as alerts
from tidemark.query.alerts import of_warehouse
from tidemark.query.alerts.alert import Alert
from tidemark.query.alerts.condition import QUESTIONS, parse_condition
from tidemark.query.alerts.levels import Condition
from tidemark.query.alerts.of_warehouse import OfWarehouse
from tidemark.query.alerts.reading import Limit, Reading, Verdict
from tidemark.query.alerts.state_file import StateFile
from tidemark.warehouse.errors import DamagedWarehouse, InputError

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("ms", pa.float64()), ("o", pa.string())])
START = datetime(2024, 3, 1, 12, tzinfo=UTC)


class Service:
    """A warehouse that gets rows, and a clock that the test moves."""

    def __init__(self, uri: Path) -> None:
        self.uri, self.now, self._batches = uri, START, 0
        warehouse.create(None, uri, ["ms"], schema=SCHEMA, key="o", groups=["o"], time="at", tick="1 minute")
        self.reader = query.open(uri)

    def get(self, values: list[float], origin: str = "a") -> None:
        """Rows of this moment, which then is over: a window ends before the clock."""
        rows = [{"at": self.now, "ms": value, "o": origin} for value in values]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        stream.append(None, self.uri, table, source="s", batch=self._batches, ahead=None)
        self._batches += 1
        self.wait(milliseconds=1)

    def wait(self, **times: float) -> None:
        self.now += timedelta(**times)

    def alert(self, *when: str, **options: Any) -> Alert:
        return query.alert(*when, wh=self.reader, **options)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service(tmp_path / "service")
    monkeypatch.setattr(alerts, "now_us", lambda: int(found.now.timestamp() * 10**6))
    return found


def said(alert: Alert) -> list[tuple[str, str]]:
    """From which state to which the groups went."""
    return [(notice.previous, notice.state) for notice in alert.check()]


def states(alert: Alert) -> list[str]:
    return [one.state for one in alert.states]


def test_conditions_are_parsed() -> None:
    one, two = parse_condition(
        "quantile(0.99, 'ms', last='15m', by=\"o,\"\"p\"\"\", for='5m') > 5e2 "
        "and burn(300, 0.999, last='1h') <= -1",
        ["ms"],
    )
    assert (one.question, one.given["phi"], one.given["measure"]) == ("quantile", Decimal("0.99"), "ms")
    assert (one.given["last"], one.given["by"]) == ("15m", ["o", '"p"'])
    assert (one.operator, one.threshold, one.lasting) == (">", Decimal(500), 300_000_000)
    assert (two.question, two.field, two.objective, two.threshold) == ("rank", "burn", Decimal("0.999"), -1)
    (share,) = parse_condition("rank(300)<0.999")
    assert (share.field, share.given) == ("share", {"x": 300})
    assert parse_condition("rank(300) < 2")[0].field is None
    assert parse_condition("max(last='1h') >= '2024-03-01'")[0].threshold == "2024-03-01"
    where = parse_condition("frequency('it''s', where='ms > 1 and o = ''a''', least_rows=20) > 1")[0]
    assert (where.given["value"], where.given["where"], where.least_rows) == (
        "it's",
        "ms > 1 and o = 'a'",
        20,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "quantile(0.99)",
        "quantile(0.99) > ",
        "quantile(0.99) == 5",
        "quantile(0.99) > 5 or rank(1) > 5",
        "quantile(0.99) > 5 and",
        "quantile(0.99 > 5",
        "quantile(0.99, last=) > 5",
        "quantile(last='1h', 0.99) > 5",
        "quantile([0.5, 0.9]) > 5",
        "quantile() > 5",
        "quantile(0.5, 'nothing') > 5",
        "quantile(0.99, every='1h') > 5",
        "quantile(0.99, top=3, by='o') > 5",
        "quantile(0.99, nothing=3) > 5",
        "quantile(0.99, last='1h', last='2h') > 5",
        "quantile(0.99, least_rows=1.5) > 5",
        "quantile(0.99, for='soon') > 5",
        "burn(300) > 1",
        "burn(300, 1) > 1",
        "frequency(['a', 'b']) > 1",
        "__import__('os').system('true') > 1",
        "open('x') > 1",
        "quantile(0.99) > 1e9999",
        "quantile(0.99) > 0x10",
        "quantile(0.99) > five",
        "quantile(0.5, by='a') > 1 and quantile(0.5, by='b') > 1",
        "quantile(0.99, where='a" + "x" * 20_000 + "') > 5",
        "(" * 5_000,
        "quantile([[[[1]]]]) > 1",
        None,
        7,
    ],
)
def test_what_is_no_condition_is_refused(text: Any) -> None:
    with pytest.raises(InputError) as refused:
        parse_condition(text)
    assert len(str(refused.value)) < 1_000


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                [*QUESTIONS, "(", ")", ",", "=", ">", "<=", "'1h'", "0.5", "and", "last", "for", "["]
            ),
            max_size=14,
        ).map(" ".join),
    )
)
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(InputError):
        assert parse_condition(text)


ENDS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, -math.inf, math.inf, math.nan, Decimal("0.5"), Fraction(1, 2)])
)


def _key(value: Any) -> float:
    return math.inf if value != value else float(value)  # noqa: PLR0124  NaN is above all


@given(ENDS, ENDS, st.integers(-3, 3), st.sampled_from([">", ">=", "<", "<="]))
def test_a_verdict_is_that_of_all_values_of_the_interval(a: Any, b: Any, number: int, operator: str) -> None:
    low, high = sorted((a, b), key=_key)
    between = [
        one for one in (low, high, -2.5, -1, 0, 0.5, 1, 2, number) if _key(low) <= _key(one) <= _key(high)
    ]
    holds = {
        {">": x > number, ">=": x >= number, "<": x < number, "<=": x <= number}[operator]
        for x in map(_key, between)
    }
    wanted = Verdict.POSSIBLE if len(holds) == 2 else Verdict.CERTAIN if True in holds else Verdict.CLEAR
    found = Limit(operator, Fraction(number)).verdict(Reading(low=low, value=low, high=high))
    assert found is wanted


def test_a_true_quantile_fires_whatever_buckets_others_have(service: Service) -> None:
    """A p99 of 11 s fires no alert of 30 s, one of 45 s does, and few rows give no NaN."""
    alert = service.alert("quantile(0.99, last='15m') > 30")
    service.get([11.0] * 3)
    assert said(alert) == []
    assert states(alert) == ["clear"]
    assert alert.states[0].value == 11
    service.get([45.0])
    assert said(alert) == [("clear", "certain")]
    assert (alert.states[0].low, alert.states[0].high) == (45, 45)


def test_it_stays_until_the_value_is_well_on_the_other_side(service: Service) -> None:
    alert = service.alert("quantile(1, last='1m') > 100", "quantile(1, last='1m') > 90", theta=0.1)
    level = service.alert("quantile(1, last='1m') > 100", clear=50)
    seen, seen_level = [], []
    for value in (100, 101, 95, 91, 90, 81.5, 81, 60, 101, 50):
        service.wait(minutes=3)  # a window is whole ticks: the one before would be in it, too
        service.get([value])
        alert.check()
        level.check()
        seen.append([state == "certain" for state in states(alert)])
        seen_level += [state == "certain" for state in states(level)]
    assert [first for first, _ in seen] == [False, True, True, True, False, False, False, False, True, False]
    assert [second for _, second in seen] == [True, True, True, True, True, True, False, False, True, False]
    assert seen_level == [False, True, True, True, True, True, True, True, True, False]


def test_a_lower_limit_is_cleared_above_it(service: Service) -> None:
    alert = service.alert("quantile(0, last='1m') < 100", theta=0.1)
    seen = []
    for value in (100, 99, 105, 110, 99):
        service.wait(minutes=3)  # a window is whole ticks: the one before would be in it, too
        service.get([value])
        alert.check()
        seen += states(alert)
    assert seen == ["clear", "certain", "certain", "clear", "certain"]


@pytest.mark.parametrize("fires", [False, True])
def test_a_stream_that_stops_is_stale_and_never_clear(service: Service, fires: bool) -> None:
    alert = service.alert("quantile(1, last='15m') > 100")
    before = "certain" if fires else "clear"
    service.get([500.0 if fires else 1.0])
    alert.check()
    assert states(alert) == [before]
    service.wait(minutes=14)
    assert said(alert) == []
    service.wait(minutes=3)
    assert said(alert) == [(before, "stale")]
    assert "no new rows" in alert.states[0].reason
    assert said(alert) == []
    service.get([100.0])  # no longer beyond, and without theta clear
    assert said(alert) == [("stale", "clear")]


def test_what_was_firing_before_it_was_stale_fires_at_once_and_keeps_its_level(service: Service) -> None:
    alert = service.alert("quantile(1, last='15m', for='10m') > 100", theta=0.5)
    service.get([500.0])
    assert said(alert) == []
    service.wait(minutes=10)
    assert said(alert) == [("clear", "certain")]
    service.wait(hours=1)
    assert said(alert) == [("certain", "stale")]
    service.get([60.0])
    assert said(alert) == [("stale", "certain")]  # above the level of 50
    service.wait(hours=1)
    assert said(alert) == [("certain", "stale")]
    service.get([50.0])
    assert said(alert) == [("stale", "clear")]


def test_for_counts_only_while_it_holds(service: Service) -> None:
    alert = service.alert("quantile(1, last='1m', for='9m') > 100", stale="1h")
    seen = []
    for value in (500, 500, 1, 500, 500, 500, 500):
        service.wait(minutes=3)
        service.get([value])
        alert.check()
        seen += states(alert)
    assert seen == ["clear"] * 6 + ["certain"]


def test_a_question_that_fails_is_stale(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.get([500.0])
    alert = service.alert("quantile(1, last='15m') > 100")
    alert.check()
    with monkeypatch.context() as broken:

        def fails(*_: Any, **__: Any) -> Any:
            raise DamagedWarehouse("the store does not answer")

        broken.setattr(query.Warehouse, "quantile", fails)
        assert said(alert) == [("certain", "stale")]
        assert "does not answer" in alert.states[0].reason
    assert said(alert) == [("stale", "certain")]


def test_without_rows_it_is_stale_and_without_columns_refused(service: Service, tmp_path: Path) -> None:
    alert = service.alert("quantile(1, last='15m') > 100")
    assert said(alert) == [("clear", "stale")]
    for text in ("quantile(1, 'other') > 1", "frequency('a', key='none') > 1", "quantile(2) > 1"):
        with pytest.raises(InputError):
            service.alert(text).check()
    warehouse.create(None, tmp_path / "bare", ["ms"], time="at")
    with pytest.raises(InputError):
        query.alert("quantile(0.5, 'other') > 1", wh=query.open(tmp_path / "bare")).check()


def test_any_origin(service: Service) -> None:
    alert = service.alert("quantile(0.5, by='o', last='15m', least_rows=2) > 100")
    service.get([500.0, 500.0], "a")
    service.get([1.0, 1.0], "b")
    service.get([500.0], "c")  # fewer rows than asked for
    changed = alert.check()
    assert [(one.group, one.state) for one in changed] == [({"o": "a"}, "certain")]
    assert {one.group["o"]: one.state for one in alert.states if one.group} == {
        "a": "certain",
        "b": "clear",
        "c": "clear",
    }
    service.wait(minutes=16)
    service.get([1.0, 1.0], "b")
    assert [(one.group, one.state) for one in alert.check()] == [({"o": "a"}, "clear")]
    assert [one.group for one in alert.states] == [{"o": "b"}]
    alert.check()
    assert [one.group for one in alert.states] == [{"o": "b"}]


def test_comparisons_hold_together(service: Service) -> None:
    alert = service.alert(
        "quantile(1, last='15m') > 100 and frequency('b', last='15m') >= 2",
        "quantile(0.5, last='15m', by='o') > 100 and count(last='15m') > 2",
        "burn(100, 0.5, last='15m') > 0.6 and rank(100, last='15m') < 0.75",
    )
    service.get([500.0])
    alert.check()
    assert states(alert) == ["clear", "clear", "certain"]
    service.get([1.0, 1.0], "b")
    alert.check()
    assert [one.state for one in alert.states] == ["certain", "certain", "clear", "certain"]


def test_shares_are_compared_without_rounding(service: Service) -> None:
    """999 of 1000 rows are not below a share of 0.999, though the double 0.999 is."""
    service.get([1.0] * 999 + [500.0])
    alert = service.alert(
        "rank(300, last='15m') < 0.999", "cdf(300, last='15m') >= 0.999", "burn(300, 0.999, last='15m') > 1"
    )
    alert.check()
    assert states(alert) == ["clear", "certain", "clear"]


def test_without_a_time_column_windows_are_steps(tmp_path: Path) -> None:
    schema = pa.schema([("ms", pa.int64())])
    warehouse.create(None, tmp_path / "w", ["ms"], schema=schema)
    for value in (1, 500):
        warehouse.load(None, tmp_path / "w", pa.table({"ms": [value]}), str(value))
    alert = query.alert("quantile(0, last=1) > 100", "quantile(0) > 100", wh=query.open(tmp_path / "w"))
    alert.check()
    assert states(alert) == ["certain", "clear"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"theta": 1.0}, "theta"),
        ({"theta": 0.1}, "Give clear"),
        ({"clear": 5}, "other side"),
        ({"clear": math.nan}, "finite"),
        ({"clear": "soon"}, "not a time"),
        ({"lag": "soon"}, "not a duration"),
        ({"stale": "0s"}, "positive"),
    ],
)
def test_options_are_checked(service: Service, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        service.alert("quantile(1, last='1m') > 0", **options)
    for when in ([], ["rank(1) > 1", "rank(1) > 1"]):
        with pytest.raises(InputError, match="each once"):
            service.alert(*when)


class Receiver:
    """Takes notices, unless it is down."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.is_down = False

    def __call__(self, notice: dict[str, Any]) -> None:
        if self.is_down:
            raise OSError("nobody is there")
        self.got.append(notice)


def test_what_was_not_delivered_comes_again_with_its_id(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    receiver, state = Receiver(), tmp_path / "state.json"
    receiver.is_down = True
    when = "quantile(1, last='15m') > 100"
    service.get([500.0])
    with service.alert(when, state=state, notify=receiver) as alert:
        (notice,) = alert.check()
        assert alert.deliver() == 1
    receiver.is_down = False
    with service.alert(when, state=state, notify=receiver) as alert:
        assert said(alert) == []  # it knows that it fires
        assert [one["id"] for one in receiver.got] == [notice.id]
        assert alert.deliver() == 0
        receiver.is_down = True
        service.get([1.0] * 3)
        service.wait(minutes=16)
        service.get([1.0])
        assert said(alert) == [("certain", "clear")]
        for seconds in (0.5, 0.5, 1.5, 0.5, 3.5):  # it waits 1, 2 and 4 seconds
            moment[0] += seconds
            alert.deliver()
        receiver.is_down = False
        assert alert.deliver() == 1
        moment[0] += 0.5
        assert alert.deliver() == 0
    assert [one["state"] for one in receiver.got] == ["certain", "clear"]
    assert len({one["id"] for one in receiver.got}) == 2


class _Killed(BaseException):
    """A process that ends here."""


def _kills(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before it replaces a state file for the count-th time."""
    left = [count]
    replace = Path.replace

    def ends(self: Path, target: Any) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise _Killed
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", ends)


def _delivered_through_kills(
    service: Service, state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The ids that came where the process was killed at each write of the state file."""
    for count in range(3):
        receiver = Receiver()
        state.unlink(missing_ok=True)
        when = "quantile(1, last='15m') > 100"
        with monkeypatch.context() as patched:
            _kills(count, patched)
            alert = service.alert(when, state=state, notify=receiver)
            try:
                alert.check()
            except _Killed:
                pass
            finally:
                alert.close()
        with service.alert(when, state=state, notify=receiver) as alert:
            alert.check()
        yield [one["id"] for one in receiver.got]


def test_a_kill_loses_no_notice(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service.get([500.0])
    found = list(_delivered_through_kills(service, tmp_path / "state.json", monkeypatch))
    assert all(ids and len(set(ids)) == 1 for ids in found), found
    assert max(map(len, found)) == 2  # at least once


def test_a_variant_that_keeps_no_state_is_caught(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know after a crash what it told, and tells it again as another change."""
    monkeypatch.setattr(StateFile, "write", lambda _: None)
    receiver, state = Receiver(), tmp_path / "state.json"
    service.get([500.0])
    for _ in range(2):
        with service.alert("quantile(1, last='15m') > 100", state=state, notify=receiver) as alert:
            alert.check()
        service.wait(seconds=1)
    assert len({one["id"] for one in receiver.got}) == 2


def test_a_variant_that_takes_stale_for_clear_is_caught(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_warehouse, "staleness", lambda *_: None)
    alert = service.alert("quantile(1, last='15m') > 100")
    service.get([500.0])
    alert.check()
    service.wait(hours=1)
    assert said(alert) == [("certain", "clear")]  # what the tests above do not allow


def test_state_files_are_held_and_checked(service: Service, tmp_path: Path) -> None:
    state = tmp_path / "deep" / "state.json"
    service.get([1.0])
    when = "quantile(1, last='15m') > 100"
    with service.alert(when, state=state) as alert:
        alert.check()
        with pytest.raises(InputError, match="another process"):
            service.alert(when, state=state)
    text = state.read_text()
    assert json.loads(text)["groups"][when][""]["state"] == "clear"
    for wrong in ("", "{}", "[]", "7", text[:-5], text.replace('"clear"', "7"), "[" * 100_000):
        state.write_text(wrong)
        with pytest.raises(InputError, match="no state file"):
            service.alert(when, state=state)
        assert state.read_text() == wrong
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        service.alert(when, state=tmp_path / "file" / "state.json")


def test_several_warehouses_are_stale_if_one_is(service: Service, tmp_path: Path) -> None:
    other = Service(tmp_path / "other")
    both = query.open({"eu": service.uri, "us": other.uri})
    alert = query.alert("quantile(1, last='15m') > 100", wh=both)
    service.get([500.0])
    other.get([1.0])
    assert said(alert) == [("clear", "certain")]
    service.wait(minutes=20)
    service.get([1.0])
    assert said(alert) == [("certain", "stale")]
    assert "us" in alert.states[0].reason


def test_it_is_asked_after_a_commit_and_by_the_timer(service: Service) -> None:
    service.get([1.0])
    seen = []
    alert = service.alert("quantile(1, last='15m') > 100")
    watching = alert.watch(every=60, poll=0.01, times=9)
    service.get([500.0])
    seen.append(next(watching).state)
    service.get([1.0])
    service.wait(hours=1)
    service.get([1.0])
    seen.append(next(watching).state)
    assert seen == ["certain", "clear"]
    assert list(alert.watch(every=0.01, poll=0.01, times=3)) == []


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_commit_between_two_conditions_is_asked_about(
    service: Service, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The second condition sees the commit, the first was asked before it. The variant waits for another."""
    service.get([1.0])
    alert, ask, seen = service.alert("quantile(1) > 100", "quantile(1) > 1000"), OfWarehouse._ask, list[str]()

    def asked(self: OfWarehouse, condition: Condition, now: int, fires: set[str]) -> Any:
        seen.append(condition.text)
        found = ask(self, condition, now, fires)
        if len(seen) == 1:
            service.get([500.0])
        return found

    monkeypatch.setattr(OfWarehouse, "_ask", asked)
    if is_broken:
        monkeypatch.setattr(type(service.reader), "seen", property(lambda _: ()))
    told, stopping = threading.Semaphore(0), threading.Event()

    def watch() -> None:
        for _ in alert.watch(every=3_600, poll=0.01, stopping=stopping):
            told.release()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert told.acquire(timeout=0.5 if is_broken else 30) is not is_broken
    finally:
        stopping.set()
        thread.join()


def test_a_condition_with_the_name_of_before_is_stale_and_says_the_new_one(service: Service) -> None:
    service.get([9.0] * 20)
    alert = service.alert("quantile(0.9, 'ms', last='1h', by='o') > 5")
    assert said(alert) == [("clear", "certain")]
    warehouse.alter(None, service.uri, rename={"ms": "latency", "o": "origin"})
    (notice,) = alert.check()
    assert (notice.state, "'ms' was renamed: it is 'latency' now" in str(notice)) == ("stale", True)
    assert said(service.alert("quantile(0.9, 'latency', last='1h', by='origin') > 5")) == [
        ("clear", "certain")
    ]
