"""Frequencies over history and the live side against a list of all events, in any window and mode."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.query.answers import several, single
from tests.warehouse.keyworld import DAY_US, TINY, KeyWorld, Row
from tidemark import query, stream, warehouse
from tidemark.query.keys.key_windows import PartialTick
from tidemark.query.keys.live_keys import LiveTotals
from tidemark.sketches import SketchError
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.ticks import from_epoch_us
from tidemark.warehouse.ledger import key_summaries
from tidemark.warehouse.ledger.key_summaries import KeyPromise

EPS, DELTA = 0.05, 0.1
HOUR_US = DAY_US // 24
NEWEST = 6 * DAY_US + 13 * HOUR_US
WINDOWS: dict[str, tuple[dict[str, Any], int | None, int | None]] = {
    "all": ({}, None, None),
    "the last two days": ({"last": "2d"}, 5 * DAY_US, None),
    "90 minutes": ({"last": "90m"}, NEWEST + 1 - 90 * HOUR_US // 60, None),
    "30 hours": ({"last": "30h"}, NEWEST + 1 - 30 * HOUR_US, None),
    "from noon to midnight": (
        {"between": (from_epoch_us(4 * DAY_US + 12 * HOUR_US), from_epoch_us(6 * DAY_US))},
        4 * DAY_US + 12 * HOUR_US,
        6 * DAY_US,
    ),
    "inside one day": (
        {"between": (from_epoch_us(5 * DAY_US + HOUR_US), from_epoch_us(5 * DAY_US + 7 * HOUR_US))},
        5 * DAY_US + HOUR_US,
        5 * DAY_US + 7 * HOUR_US,
    ),
    "before the fourth day": ({"between": (None, from_epoch_us(3 * DAY_US))}, -(2**62), 3 * DAY_US),
}
Event = tuple[Any, int | None]


@dataclass(frozen=True)
class Truth:
    """All events; those of history are as old as their tick."""

    past: list[Event]
    live: list[Event]

    def counts(self, start: int | None, stop: int | None) -> tuple[Counter[Any], Counter[Any]]:
        """The rows of each key in the window: of history, and live."""
        found = []
        for events in (self.past, self.live):
            inside = [
                key
                for key, at in events
                if key is not None
                and ((start is None and stop is None) or (at is not None and _within(at, start, stop)))
            ]
            found.append(Counter(inside))
        return found[0], found[1]


def _within(at: int, start: int | None, stop: int | None) -> bool:
    return (start is None or at >= start) and (stop is None or at < stop)


def zipf(r: random.Random, skew: float) -> str:
    return f"key-{int(r.paretovariate(skew))}"


def build(folder: Path, skew: float) -> tuple[KeyWorld, Truth]:
    """Two steps of whole days, then 14 batches in a cascade of threes; some events late, some timeless."""
    r = random.Random(int(skew * 10))
    tuning = replace(TINY, sort_rows=500, fan=3)
    world = KeyWorld(folder / "w", options={"key_eps": EPS, "key_delta": DELTA}, tuning=tuning)
    past: list[Event] = []
    for first in (0, 3):
        rows: list[Row] = [(zipf(r, skew), first + r.randrange(3)) for _ in range(600)]
        rows += [(None, first), ("no time", None)]
        world.load(rows)
        past += [(key, None if tick is None else tick * DAY_US) for key, tick in rows]
    live: list[Event] = []
    for number in range(14):
        late = 5 * DAY_US if r.random() < 0.3 else 0
        events: list[Event] = [(zipf(r, skew), NEWEST - late - r.randrange(4 * HOUR_US)) for _ in range(250)]
        events += [("key-1", DAY_US + number), (None, NEWEST - 5), ("no time", None), ("key-1", NEWEST)]
        world.stream(events)
        live += events
    return world, Truth(past, live)


Made = Callable[[float], tuple[KeyWorld, Truth]]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The warehouse of a skew; no test changes it."""
    return cache(lambda skew: build(tmp_path_factory.mktemp("frequency"), skew))


@pytest.fixture(scope="module", params=[0.8, 1.5], ids=["skew 0.8", "skew 1.5"])
def made(request: pytest.FixtureRequest, made_once: Made) -> tuple[KeyWorld, Truth]:
    return made_once(request.param)


def asked(truth: Truth) -> list[str]:
    return [*sorted({key for key, _ in truth.past + truth.live if key is not None})[:400], "never"]


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("mode", ["approximate", "exact"])
def test_a_frequency_has_right_bounds_and_keeps_its_promise(
    made: tuple[KeyWorld, Truth], window: str, mode: Any
) -> None:
    world, truth = made
    given, start, stop = WINDOWS[window]
    past, live = truth.counts(start, stop)
    cut = truth.counts(*_whole(start, stop))[0] - truth.counts(*_inner(start, stop))[0]
    answers = several(query.open(world.uri).frequency(asked(truth), mode=mode, **given))
    missed = far = 0
    for answer in answers:
        true = past[answer.value] + live[answer.value]
        assert true <= answer.hi, answer
        assert answer.lo <= answer.count <= answer.hi
        assert answer.in_history == truth.counts(*_inner(start, stop))[0][answer.value]
        missed += answer.lo > true
        far += abs(answer.count - true) > answer.eps * answer.m + cut[answer.value]
        if mode == "exact":
            assert answer.hi - answer.lo == cut[answer.value]
    allowed = DELTA * len(answers) if mode == "approximate" else 0
    assert missed <= allowed
    assert far <= allowed
    whole = start is None or (start % DAY_US == 0 and (stop or 0) % DAY_US == 0)
    if whole:
        assert (answers[0].n, answers[0].m) == (sum(past.values()), sum(live.values()))


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_error_that_is_told_holds_in_windows_that_end_inside_a_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Few rows in the window, many after it in its tick. The broken variant tells the error of the sketch."""
    if is_broken:
        told = LiveTotals.of
        monkeypatch.setattr(LiveTotals, "of", lambda parts: replace(told(parts), eps=EPS))
    world = KeyWorld(tmp_path / "w", options={"key_eps": EPS, "key_delta": DELTA}, tuning=TINY)
    events: list[Event] = [(f"key-{i % 3}", HOUR_US + i) for i in range(40)]
    events += [(f"key-{i % 3}", 9 * HOUR_US + i) for i in range(9000)]
    world.stream(events)
    wh, far = query.open(world.uri), 0
    for stop in [HOUR_US + 20, 2 * HOUR_US, *(9 * HOUR_US + 40 * i for i in range(1, 9))]:
        between = (from_epoch_us(HOUR_US), from_epoch_us(stop))
        true = Counter(key for key, at in events if at is not None and at < stop)
        answers = several(wh.frequency(["key-0", "key-1", "key-2"], between=between))
        far += sum(abs(one.count - true[one.value]) > one.eps * max(one.m, 1) for one in answers)
        assert all(true[one.value] <= one.hi for one in answers)
    whole = several(wh.frequency(["key-1"], between=(from_epoch_us(0), from_epoch_us(DAY_US))))
    assert whole[0].eps == EPS
    assert bool(far) == is_broken


def _whole(start: int | None, stop: int | None) -> tuple[int | None, int | None]:
    """The window with the ticks that it touches."""
    return (
        None if start is None else start // DAY_US * DAY_US,
        None if stop is None else -(-stop // DAY_US) * DAY_US,
    )


def _inner(start: int | None, stop: int | None) -> tuple[int | None, int | None]:
    """The whole ticks inside the window."""
    return (
        None if start is None else -(-start // DAY_US) * DAY_US,
        None if stop is None else stop // DAY_US * DAY_US,
    )


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("mode", ["approximate", "exact"])
def test_heavy_hitters_miss_none_and_say_which_are_certain(
    made: tuple[KeyWorld, Truth], window: str, mode: Any
) -> None:
    world, truth = made
    given, start, stop = WINDOWS[window]
    wh = query.open(world.uri)
    past, live = truth.counts(start, stop)
    true = past + live
    rows = sum(true.values())
    for phi in (0.001, 0.01, 0.1, 0.5, 1):
        found = {one.value: one for one in wh.heavy_hitters(phi, mode=mode, **given)}
        heavy = {key for key, count in true.items() if count >= phi * rows}
        if start is None or start % DAY_US == (stop or 0) % DAY_US == 0:
            assert heavy <= set(found), phi
            assert {key for key, one in found.items() if one.certain} <= heavy
        for key, one in found.items():
            assert one.lo <= true[key] <= one.hi or window in {"30 hours", "from noon to midnight"}
    counts = [one.count for one in wh.top(5, mode=mode, **given)]
    assert counts == sorted(counts, reverse=True)
    if mode == "exact" and window in {"all", "the last two days"}:
        assert counts == [count for _, count in true.most_common(5)]


def test_joins_and_ranges_are_exact(made: tuple[KeyWorld, Truth]) -> None:
    world, truth = made
    wh = query.open(world.uri)
    past, live = truth.counts(None, None)
    true = past + live
    assert wh.self_join().count == sum(count * count for count in true.values())
    assert wh.inner_product(wh, last="2d").count == wh.self_join(last="2d").count
    between = sum(count for key, count in true.items() if "key-1" <= key < "key-2")
    assert wh.key_range("key-1", "key-2").count == between
    assert wh.key_range(None, None).count == sum(true.values())
    start = NEWEST + 1 - 90 * HOUR_US // 60
    _, recent = truth.counts(start, None)
    assert wh.key_range("key-1", "key-2", last="90m").hi == sum(
        count for key, count in recent.items() if "key-1" <= key < "key-2"
    )
    with pytest.raises(InputError, match="mode"):
        wh.self_join(mode="quick")  # type: ignore[call-overload]  # no mode of keys


@pytest.mark.parametrize("window", WINDOWS)
def test_joins_over_any_window_hold_the_truth(made: tuple[KeyWorld, Truth], window: str) -> None:
    world, truth = made
    wh = query.open(world.uri)
    which, start, stop = WINDOWS[window]
    past, live = truth.counts(start, stop)
    answer = wh.self_join(**which)
    assert answer.lo <= sum(count * count for count in (past + live).values()) <= answer.hi
    assert answer.lo <= answer.count <= answer.hi
    assert answer.lo >= sum(count * count for count in live.values())
    assert answer.mode == "exact"
    joined = wh.inner_product(wh, **which, mode="exact")
    assert (joined.count, joined.lo, joined.hi) == (answer.count, answer.lo, answer.hi)
    if window in {"90 minutes", "inside one day"}:  # no tick is whole, and history has some of the cut one's
        assert answer.lo == sum(count * count for count in live.values())


@pytest.mark.slow
def test_a_load_moves_live_keys_into_history_and_no_answer_changes(tmp_path: Path) -> None:
    world, truth = build(tmp_path, 1.2)
    wh = query.open(world.uri)
    before = several(wh.frequency(asked(truth), mode="exact"))
    assert before[0].m
    assert warehouse.load(None, world.uri).outcome == "loaded"
    after = several(wh.frequency(asked(truth)))
    assert [one.count for one in after] == [one.count for one in before]
    assert [one.hi - one.lo for one in after] == [0] * len(after)
    assert (after[0].n, after[0].m) == (before[0].N, 0)
    assert warehouse.verify(world.uri).ok


def test_what_the_ledger_says_of_keys_is_verified(made: tuple[KeyWorld, Truth]) -> None:
    report = warehouse.verify(made[0].uri)
    assert report.ok, str(report)
    assert "keys of k: live counts hold their bounds" in str(report)


def broken_floor(parts: Any) -> Any:
    """A join that takes the floor of one part for that of all."""
    joined = keysummaries_join(parts)
    if joined is not None and len(parts) > 1:
        object.__setattr__(joined, "floor", 1)
    return joined


keysummaries_join = key_summaries.join


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a floor of one part", "another seed", "a window off by one"])
def test_mistakes_on_purpose_are_caught(
    made_once: Made, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sketch read with another seed, a listing that says too little, an edge that slips: bounds fail."""
    if how == "a floor of one part":
        monkeypatch.setattr("tidemark.warehouse.ledger.batch_summaries.join_keys", broken_floor)
        monkeypatch.setattr("tidemark.warehouse.ledger.key_summaries.THETA", 4)
        world, truth = build(tmp_path, 0.8)
    else:
        world, truth = made_once(0.8)
    given, start, stop = WINDOWS["90 minutes" if how == "a window off by one" else "all"]
    if how == "another seed":
        monkeypatch.setattr("tidemark.warehouse.ledger.key_summaries.SEED", 7)
    if how == "a window off by one":
        monkeypatch.setattr(
            PartialTick, "__post_init__", lambda cut: object.__setattr__(cut, "until", NEWEST), raising=False
        )
        original = PartialTick.__init__

        def slipped(cut: PartialTick, *args: Any, **kwargs: Any) -> None:
            original(cut, *args, **kwargs)
            object.__setattr__(cut, "until", NEWEST)

        monkeypatch.setattr(PartialTick, "__init__", slipped)
    past, live = truth.counts(start, stop)
    answers = several(query.open(world.uri).frequency(asked(truth), **given))
    assert any(past[one.value] + live[one.value] > one.hi for one in answers)


def test_questions_that_cannot_be_say_so(made: tuple[KeyWorld, Truth]) -> None:
    wh = query.open(made[0].uri)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: wh.frequency("a", mode="quick"), "mode must be one of approximate, exact"),  # type: ignore[call-overload]  # no mode of keys
        (lambda: wh.frequency(5), "cannot compare 5 with"),
        (lambda: wh.frequency("a", last="1d", between=(None, None)), "exclude each other"),
        (lambda: wh.heavy_hitters(0), r"phi must lie in \(0, 1\]"),
        (lambda: wh.top(0), "k must be a whole number"),
        (lambda: wh.frequency("a", between=(from_epoch_us(5), from_epoch_us(5))), "empty by itself"),
    ]
    for ask, words in cases:
        with pytest.raises(InputError, match=words):
            ask()
    assert single(wh.frequency("key-1", between=(from_epoch_us(90 * DAY_US), None))).N == 0


def test_sizes_of_the_sketches_are_those_of_the_promise() -> None:
    hashes = KeyPromise(EPS, DELTA).hashes
    assert hashes.eps <= EPS
    assert hashes.delta <= DELTA
    assert np.isclose(hashes.width, np.ceil(np.e * (1 + EPS) / EPS))


@pytest.mark.parametrize("too_small", [{"key_eps": 1e-6}, {"key_eps": 1e-300}, {"key_delta": 1e-13}])
def test_an_error_that_no_sketch_can_keep_is_refused_at_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, too_small: dict[str, Any]
) -> None:
    """Also without a key, which may be added later. The broken variant makes a warehouse for no stream."""
    for key in ("k", None):
        with pytest.raises(InputError, match=r"too small for any sketch.*at least 7\.0e-06.*1e-12"):
            warehouse.create(None, tmp_path / "w", "x", key=key, **too_small)
        assert not (tmp_path / "w").exists()
    warehouse.create(None, tmp_path / "least", "x", key="k", key_eps=key_summaries.LEAST_EPS * (1 + 1e-9))
    monkeypatch.setattr(KeyPromise, "check", lambda _: None)
    rows = pa.table({"x": [1], "k": [1]})
    warehouse.create(None, tmp_path / "w", "x", key="k", schema=rows.schema, **too_small)
    with pytest.raises(SketchError):
        stream.append(None, tmp_path / "w", rows, source="s", batch=0)
