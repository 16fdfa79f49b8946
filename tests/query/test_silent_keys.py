"""Keys and sums while a warehouse does not answer: what was read of it last bounds them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.silenced import WINDOWS, Silenced
from tests.query.siteworld import DAY, FIRST, Sites, drawn
from tidemark import query
from tidemark.query.alerts.reading import Limit, Reading, Verdict
from tidemark.query.keys import key_samples
from tidemark.query.keys.key_blocks import KeyShare
from tidemark.query.keys.key_question import KeyQuestion
from tidemark.query.keys.live_keys import LiveCounts
from tidemark.query.keys.silent_keys import SilentKeys, UnreadHistory, UnreadRun
from tidemark.query.quantiles.window_sums import WindowSums
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.keys import Key, separator
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.errors import StoreUnavailable
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.key_marks import KeyMarks

CUT: dict[str, Any] = {"between": (FIRST + 2 * DAY + DAY / 3, FIRST + 6 * DAY + DAY / 2)}
ALL_WINDOWS = [*WINDOWS, CUT]
READ: dict[str, Sequence[Callable[[query.Warehouse], Any]]] = {
    "lists": [
        lambda wh: wh.top(3),
        lambda wh: wh.distinct(),
        lambda wh: wh.summary("d"),
        lambda wh: wh.frequency("a", **CUT),
    ],
    "marks alone": [lambda wh: wh.frequency("a")],
}


@pytest.fixture(scope="module")
def worlds(to_silence: Sites, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Silenced]:
    """Much was read of a warehouse before it fell silent, or little; the others went on."""
    found = {}
    for read, questions in READ.items():
        world = found[read] = Silenced(to_silence.copy(tmp_path_factory.mktemp("silent")))
        world.silence(*questions)
        chance = random.Random(5)
        world.sites.stream("site 0", drawn(chance, 60), 80)
        world.sites.load_live("site 2")
    return found


@pytest.fixture(params=READ)
def silenced(request: pytest.FixtureRequest, worlds: dict[str, Silenced]) -> Silenced:
    return worlds[request.param]


def counts(world: Silenced, window: dict[str, Any]) -> Counter[str]:
    return Counter(row["k"] for row in world.inside(window))


def check_frequencies(world: Silenced, mode: Any, window: dict[str, Any]) -> None:
    truth = counts(world, window)
    names = [*sorted(truth), "nobody"]
    for answer in world.wh.frequency(names, mode=mode, **window):
        assert answer.lo <= truth[answer.value] <= answer.hi
        assert answer.lo <= answer.count <= answer.hi
        assert answer.complete is False


def check_hitters(world: Silenced, mode: Any, window: dict[str, Any]) -> int:
    """No key is missed; the number of shares that were answered."""
    truth, answered = counts(world, window), 0
    for phi in (0.02, 0.05, 0.09, 0.3):
        try:
            found = {one.value: one for one in world.wh.heavy_hitters(phi, mode=mode, **window)}
        except StoreUnavailable as error:
            if "A key that is in none of the lists read before may have" not in str(error):
                raise
            continue
        answered += 1
        assert {name for name, rows in truth.items() if rows >= phi * truth.total()} <= found.keys()
        for name, one in found.items():
            assert one.lo <= truth[name] <= one.hi
            assert not one.certain or truth[name] >= phi * truth.total()
    return answered


def check_top(world: Silenced, mode: Any, window: dict[str, Any]) -> None:
    truth = counts(world, window)
    for k in (1, 4, 300):
        found = world.wh.top(k, mode=mode, **window)
        names = {one.value for one in found}
        left_out = max((rows for name, rows in truth.items() if name not in names), default=0)
        for one in found:
            assert one.lo <= truth[one.value] <= one.hi
            assert not one.certain or truth[one.value] >= left_out


def check_distinct(world: Silenced, mode: Any, window: dict[str, Any]) -> None:
    answer, truth = world.wh.distinct(mode=mode, **window), len(counts(world, window))
    assert answer.least <= truth <= answer.most
    assert answer.least <= answer.lo <= answer.count <= answer.hi <= answer.most
    if mode == "exact":
        assert answer.lo <= truth <= answer.hi


def check_summary(world: Silenced, window: dict[str, Any]) -> None:
    rows = [row["d"] for row in world.inside(window) if row["d"] is not None]
    answer = world.wh.summary("d", **window)
    assert (answer.count, answer.sum, answer.min, answer.max) == (len(rows), sum(rows), min(rows), max(rows))
    assert "does not answer" in str(answer.widened)


@pytest.mark.parametrize("window", ALL_WINDOWS, ids=["all", "whole ticks", "cut ticks"])
@pytest.mark.parametrize("mode", ["approximate", "exact"])
def test_bounds_of_keys_hold(silenced: Silenced, mode: Any, window: dict[str, Any]) -> None:
    check_frequencies(silenced, mode, window)
    check_hitters(silenced, mode, window)
    check_top(silenced, mode, window)
    check_distinct(silenced, mode, window)


def test_windows_after_one_another_are_bounded(silenced: Silenced) -> None:
    for answer in silenced.wh.frequency("a", every="3d"):
        assert answer.lo <= counts(silenced, {"between": answer.window})["a"] <= answer.hi
    for number in silenced.wh.distinct(every="3d"):
        assert number.least <= len(counts(silenced, {"between": number.window})) <= number.most


def test_what_was_read_of_lists_is_narrow(worlds: dict[str, Silenced]) -> None:
    """After a question that reads the lists, frequent keys of the silent warehouse are exact."""
    world = worlds["lists"]
    assert check_hitters(world, "exact", {}) == 4
    for answer in world.wh.frequency([name for name, _ in counts(world, {}).most_common(5)], mode="exact"):
        assert answer.hi - answer.lo <= 5


def test_sums_that_were_read_are_told(worlds: dict[str, Silenced]) -> None:
    check_summary(worlds["lists"], {})
    with pytest.raises(StoreUnavailable, match="least and greatest value in this window are not known"):
        worlds["lists"].wh.summary("d", **WINDOWS[1])
    for world, measure in ((worlds["lists"], "x"), (worlds["marks alone"], "x")):
        with pytest.raises(StoreUnavailable, match="the sums of its rows were not read before"):
            world.wh.summary(measure)


OTHERS: list[Callable[[query.Warehouse], Any]] = [
    lambda wh: wh.key_range("a", "c"),
    lambda wh: wh.self_join(),
    lambda wh: wh.scan_plan(),
    lambda wh: wh.persistent(0.5),
    lambda wh: wh.persistence("a"),
    lambda wh: wh.new_keys(last="2d"),
    lambda wh: wh.overlap((FIRST, FIRST + DAY), (FIRST + DAY, FIRST + 2 * DAY)),
    lambda wh: wh.frequency("a", where="x > 3"),
    lambda wh: wh.top(2, by="g"),
    lambda wh: wh.inner_product(wh),
]


@pytest.mark.parametrize("ask", OTHERS)
def test_other_questions_about_keys_are_refused(silenced: Silenced, ask: Callable[..., Any]) -> None:
    with pytest.raises(StoreUnavailable, match="the warehouse 'site 1': the store did not answer"):
        ask(silenced.wh)


def test_an_alert_is_certain_only_by_the_others(silenced: Silenced) -> None:
    """A quantile is never certain while a warehouse does not answer, a lower bound of rows may be."""
    others = Counter(row["k"] for name in ("site 0", "site 2") for row in silenced.sites.rows[name])
    conditions = {
        "quantile(0.5) >= -1000": "possible",
        "rank(1000) >= 0.1": "possible",
        "distinct() > 1": "possible",
        "frequency('a', mode='exact') > 1": "certain",
        f"frequency('a', mode='exact') > {others['a'] + 1}": "possible",
        "frequency('a') < 100000": "possible",
        "frequency('a') > 100000": "clear",
    }
    with query.alert(*conditions, wh=silenced.wh) as alert:
        alert.check()
        assert {one.when: one.state for one in alert.states} == conditions


def test_ends_that_are_not_certain_now_are_at_most_possible() -> None:
    reading = Reading(low=5, value=6, high=7, now="low")
    assert Limit(">", 4).verdict(reading) is Verdict.CERTAIN
    assert Limit("<", 8).verdict(reading) is Verdict.POSSIBLE
    assert Limit(">", 4).verdict(replace(reading, now="none")) is Verdict.POSSIBLE
    assert Limit(">", 8).verdict(replace(reading, now="none")) is Verdict.CLEAR


# ---- a run whose lists were not read


def marks_of(key: Key, pairs: Sequence[tuple[Any, int, int]], block: int) -> KeyMarks:
    """The marks of a run with these (name, tick, count), ascending, in blocks of so many pairs."""
    starts = range(0, len(pairs), block)
    keys = [pairs[0][0]] + [
        pairs[at][0] if pairs[at][0] == pairs[at - 1][0] else separator(pairs[at - 1][0], pairs[at][0])
        for at in starts[1:]
    ]
    before = np.concatenate([[0], np.cumsum([count for *_, count in pairs])])
    ticks = sorted({tick for _, tick, _ in pairs})
    by_tick = np.array([sum(count for _, tick, count in pairs if tick == own) for own in ticks], np.int64)
    zeros = np.zeros_like(by_tick)
    source: Any = None
    run: Any = None
    return KeyMarks(
        key,
        run,
        (),
        len(pairs),
        np.array(starts, np.int64),
        pa.array(keys, pa.binary()) if key.is_text else np.array(keys, np.int64),
        np.array([pairs[at][1] for at in starts], np.int64),
        before[list(starts)].astype(np.int64),
        TickCounts(np.array(ticks, np.int64), by_tick, zeros, zeros),
        source,
    )


def check_run(pairs: Sequence[tuple[Any, int, int]], block: int, *, is_text: bool) -> None:
    key = Key("k", "string" if is_text else "long")
    marks = marks_of(key, pairs, block)
    truth: Counter[Any] = Counter()
    for name, _, count in pairs:
        truth[name] += count
    run = UnreadRun(KeyShare(marks, marks.count, whole=True), None)
    names = run.names
    listed = names.tolist() if isinstance(names, np.ndarray) else names.to_pylist()
    assert all(truth[name] for name in listed)  # no mark that is shorter than its key
    assert all(rows <= run.unlisted_max for name, rows in truth.items() if name not in listed)
    asked = sorted(truth)
    least, most = run.bounds(pa.array(asked, pa.binary()) if is_text else np.array(asked, np.int64))
    for name, low, high in zip(asked, least.tolist(), most.tolist(), strict=True):
        assert low <= truth[name] <= high


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[Any, int, int]], int, bool]:
    is_text = draw(st.booleans())
    name: st.SearchStrategy[Any] = (
        st.text("ab", max_size=3).map(str.encode) if is_text else st.integers(-3, 3)
    )
    places = sorted(draw(st.sets(st.tuples(name, st.integers(0, 9)), min_size=1, max_size=40)))
    pairs = [(*place, draw(st.integers(1, 5))) for place in places]
    return pairs, draw(st.integers(1, 6)), is_text


@given(runs())
def test_marks_alone_bound_the_rows_of_keys(drawn_run: tuple[list[tuple[Any, int, int]], int, bool]) -> None:
    pairs, block, is_text = drawn_run
    check_run(pairs, block, is_text=is_text)


# ---- mistakes


def _nothing(_: SilentKeys, names: Any, **__: Any) -> Any:
    return LiveCounts.exact(np.zeros(len(names), np.int64))


def _kept_too(self: UnreadHistory, names: Any) -> Any:
    found = [run.bounds(names) for run in self.runs]
    return tuple(sum((one[end] for one in found), np.zeros(len(names), np.int64)) for end in (0, 1))


def _no_keys(self: KeyQuestion) -> Any:
    return key_samples.combine([], [], self.window)


PAIRS = [(name, tick, 1) for name in (b"a", b"b", b"c", b"d") for tick in range(3)]
CHECKS: dict[str, Callable[[Silenced], Any]] = {
    "frequencies": lambda world: check_frequencies(world, "exact", {}),
    "hitters": lambda world: check_hitters(world, "approximate", {}),
    "top": lambda world: check_top(world, "approximate", {}),
    "distinct": lambda world: check_distinct(world, "exact", {}),
    "summary": lambda world: check_summary(world, {}),
    "run": lambda _: check_run(PAIRS, 2, is_text=True),
}


@pytest.mark.parametrize(
    ("place", "name", "mistake", "check", "read"),
    [
        (SilentKeys, "counts", _nothing, "frequencies", "lists"),
        (UnreadHistory, "bounds", _kept_too, "frequencies", "lists"),
        (UnreadRun, "unlisted_max", property(lambda _: 0), "run", "lists"),
        (SilentKeys, "row_bounds", lambda _: (0, 0), "hitters", "lists"),
        (SilentKeys, "names", property(lambda self: self.live.names), "top", "lists"),
        (KeyQuestion, "silent_keys", _no_keys, "distinct", "marks alone"),
        (WindowSums, "_of_silent", lambda *given: [Sums()] * len(given[-1]), "summary", "lists"),
    ],
    ids=["left out", "removed rows count", "lists are whole", "no rows", "live names", "no keys", "no sums"],
)
def test_mistakes_about_keys_of_silent_sites_are_caught(
    worlds: dict[str, Silenced],
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
    mistake: Any,
    check: str,
    read: str,
) -> None:
    monkeypatch.setattr(worlds[read].wh._session.keys, "_silent", LRUCache(1))
    monkeypatch.setattr(place, name, mistake)
    with pytest.raises(AssertionError):
        CHECKS[check](worlds[read])
