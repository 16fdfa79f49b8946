"""Persistent keys, against a dict from each key to the set of its slots."""

from __future__ import annotations

import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, KEYED, SCHEMA, START, GroupWorld
from tests.query.ways import forced
from tests.soak import draws
from tidemark import query, warehouse
from tidemark.query import InputError
from tidemark.query.keys import counted_slots, listed_slots, slot_presence, slots
from tidemark.sketches.sampling import SampleSize
from tidemark.warehouse.ledger import key_summaries
from tidemark.warehouse.projections import persistent_marks

Edges = tuple[datetime | None, datetime | None] | None


def _ascending(edges: tuple[Any, Any]) -> Edges:
    """A window of these edges that is not empty."""
    if None in edges:
        return edges
    low, high = sorted(edges)
    return low, high + HOUR / 2 if low == high else high


SOME = settings(max_examples=draws(5), suppress_health_check=[HealthCheck.too_slow], deadline=None)
MODES: list[Any] = ["approximate", "exact"]
KEYS = [["origin"], ["number"], ["number", "origin"]]
# Bytes of a listing, rows of its complete ticks, keys of a batch's sample: nothing is listed, a part, all.
SIZES = st.sampled_from([(0, 0, 1), (30, 0, 2), (60, 4, 1), (60, 10, 4096), (2**19, 2**15, 4096)])
# Whole ticks of an hour, and edges inside a tick; also before and after the rows.
EDGES = st.none() | st.integers(-8, 104).map(lambda quarters: START + quarters * HOUR / 4)
WINDOWS = st.none() | st.tuples(EDGES, EDGES).map(_ascending)
SLOTS = st.sampled_from([None, "1h", "3h", "5 hours", "1 day", timedelta(weeks=1)])
ALPHAS = st.sampled_from([0.01, 0.25, 0.5, 0.8, 1])


@contextmanager
def sizes(listing: int, complete: int, sample: int) -> Iterator[None]:
    """Listings of this many bytes, with complete ticks of this many rows, and samples of batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persistent_marks, "BYTES", listing)
        patch.setattr(persistent_marks, "COMPLETE_ROWS", complete)
        patch.setattr(key_summaries, "LEDGER_SAMPLE", SampleSize(sample, sample))
        yield


@dataclass
class Truth:
    """The slots of each key, the rows of each key, and the number of slots of the window."""

    slots: dict[Any, set[int]]
    rows: Counter[Any]
    count: int

    @classmethod
    def of(cls, rows: list[Any], columns: list[str], window: Edges, slot: Any) -> Truth:
        width = timedelta(hours=1) if slot is None else WIDTHS[slot]
        origin = datetime(1970, 1, 5 if width % timedelta(weeks=1) == timedelta(0) else 1, tzinfo=UTC)
        timed = [row for row in rows if row[0] is not None]
        low, high = window or (None, None)
        # An open side ends with the tick of the data; where that is on the other side there is no slot.
        ticks = [(row[0] - origin) // HOUR * HOUR + origin for row in timed]
        first = min(ticks, default=None) if low is None else low
        end = max(ticks, default=START - HOUR) + HOUR if high is None else high
        no_data = not ticks and window is not None and None in window
        count = 0
        if first is not None and first < end and not no_data and (ticks or window is not None):
            count = (end - timedelta.resolution - origin) // width - (first - origin) // width + 1
        places = [SCHEMA.names.index(name) for name in columns]
        slots: dict[Any, set[int]] = defaultdict(set)
        numbers: Counter[Any] = Counter()
        for row in timed:
            key = tuple(row[place] for place in places)
            inside = (low is None or row[0] >= low) and (high is None or row[0] < high)
            if None not in key and inside:
                name = key if len(key) > 1 else key[0]
                slots[name].add((row[0] - origin) // width)
                numbers[name] += 1
        return cls(slots, numbers, count)

    def wanted(self, alpha: Any, most: int | None) -> set[Any]:
        least = max(1, math.ceil(Fraction(str(alpha)) * self.count))
        return {
            key
            for key, slots in self.slots.items()
            if len(slots) >= least and (most is None or self.rows[key] <= most)
        }


WIDTHS: dict[Any, timedelta] = {
    "1h": HOUR,
    "3h": 3 * HOUR,
    "5 hours": 5 * HOUR,
    "1 day": 24 * HOUR,
    timedelta(weeks=1): timedelta(weeks=1),
}


def cuts_a_tick(window: Edges) -> bool:
    return window is not None and any(edge is not None and edge.minute for edge in window)


def check(wh: Any, truth: Truth, ask: dict[str, Any], alpha: float, most: int | None, exact: bool) -> None:
    """No false negatives, certain bounds that hold, and the very sets where nothing is uncertain."""
    found = {answer.value: answer for answer in wh.persistent(alpha, most=most, **ask)}
    wanted = truth.wanted(alpha, most)
    assert wanted <= set(found)
    for key, answer in found.items():
        assert answer.window_slots == truth.count
        assert answer.lo <= len(truth.slots.get(key, ())) <= answer.hi
        assert answer.lo <= answer.slots <= answer.hi
        assert not answer.certain or key in wanted
    if exact:
        assert set(found) == wanted
        assert all(answer.certain and answer.lo == answer.hi for answer in found.values())
    for key in [*truth.slots, *list(found)[:3]]:
        answer = wh.persistence(key, **ask)
        real = len(truth.slots.get(key, ()))
        assert answer.lo <= real <= answer.hi
        assert (len(answer.present), len(answer.maybe)) == (answer.lo, answer.hi - answer.lo)
        assert not exact or answer.slots == real


QUESTIONS = st.lists(
    st.tuples(WINDOWS, SLOTS, ALPHAS, st.none() | st.integers(1, 12), st.sampled_from(KEYS)),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@SOME
@given(BATCHES, QUESTIONS, SIZES)
def test_no_persistent_key_is_missed_and_exact_is_the_dict(batches: Any, asked: Any, size: Any) -> None:
    with tempfile.TemporaryDirectory() as folder, sizes(*size):
        world = GroupWorld.create(Path(folder), **{**KEYED, "keys": [*KEYED["keys"], "number"]})
        for is_loaded, rows in batches:
            world.add(rows, load=is_loaded)
        for loaded in (False, True):
            if loaded:
                world.load_live()
            wh = world.open()
            for window, slot, alpha, most, key in asked:
                truth, cut = Truth.of(world.rows, key, window, slot), cuts_a_tick(window)
                ask: dict[str, Any] = {"key": key, "between": window, "slot": slot}
                for mode in MODES:
                    exact = (loaded or mode == "exact") and not cut
                    check(wh, truth, {**ask, "mode": mode}, alpha, most, exact)
        assert warehouse.verify(world.path).ok


DAILY = [(START + hour * HOUR, "daily", 1, 1.0, None) for hour in range(24)]
RARE = [(START + hour * HOUR, f"rare {hour}", 1, 1.0, None) for hour in range(24)]
OFTEN = [(START + hour % 3 * HOUR, "often", 1, 1.0, None) for hour in range(40)]


def test_persistent_and_rare_keys(tmp_path: Path) -> None:
    """Heavy hitters show the frequent key; persistent keys show the one of every hour, also with few rows."""
    world = GroupWorld.of(tmp_path, [(True, [*DAILY[:12], *RARE, *OFTEN]), (False, DAILY[12:])], **KEYED)
    wh = world.open()
    assert wh.heavy_hitters(0.3)[0].value == "often"
    (answer,) = wh.persistent(0.8)
    assert (answer.value, answer.slots, answer.window_slots, answer.share) == ("daily", 24, 24, 1.0)
    assert answer.certain
    assert [answer.value for answer in wh.persistent(0.1)] == ["daily", "often"]
    assert [answer.value for answer in wh.persistent(0.1, most=30)] == ["daily"]
    assert len(wh.persistent(0.1, most=20)) == 0
    assert "nothing" not in wh.persistent(0.1, most=20)._repr_html_()


def test_slots_are_told_with_their_gaps(tmp_path: Path) -> None:
    rows = [DAILY[hour] for hour in (0, 1, 5)]
    wh = GroupWorld.of(tmp_path, [(True, rows), (False, OFTEN[:3])], **KEYED).open()
    answer = wh.persistence("daily", between=(START, START + 8 * HOUR), slot="2h")
    assert (answer.slots, answer.lo, answer.hi, answer.window_slots) == (2, 2, 2, 4)
    starts = [start.replace(tzinfo=UTC) for start, _ in answer.present]
    assert (starts, answer.maybe) == ([START, START + 4 * HOUR], ())
    assert "2 of 4 slots (exact) have rows with daily of origin" in repr(answer)
    answers = wh.persistence(["daily", "none", "often"])
    assert [answer.slots for answer in answers] == [3, 0, 3]
    assert [answer.window_slots for answer in answers] == [6, 6, 6]
    assert answers.to_pandas()["share"].tolist() == [0.5, 0, 0.5]
    assert '"slots"' in answers.to_json()
    # History does not know whether the row of the first hour lies in the window.
    cut = wh.persistence("daily", between=(START + HOUR / 2, START + 6 * HOUR))
    assert (cut.lo, cut.hi, len(cut.maybe)) == (2, 3, 1)
    assert int(cut) == cut.slots == 2 + round(2 / 5)


def cut_windows() -> list[Edges]:
    """With an open side, and an end inside a tick, before, in and after rows of the hours 10 to 13."""
    edges = [START + quarters * HOUR / 4 for quarters in (18, 20, 41, 50, 56, 57, 70)]
    closed: list[Edges] = [
        (edges[0], edges[2]),
        (edges[3], edges[6]),
        (edges[5], edges[6]),
        (edges[0], edges[1]),
    ]
    return [*((None, edge) for edge in edges), *((edge, None) for edge in edges), *closed, (None, None)]


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_window_has_no_slots_beyond_its_open_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The broken variant takes each tick that the window cuts for one of its slots, as was done before."""
    if is_broken:
        monkeypatch.setattr(
            slots,
            "_closed",
            lambda window, ticks: (
                ticks[0] if window.start < 0 else window.start,
                ticks[1] + 1 if window.stop > 2**62 else max(window.stop, ticks[0] + 1),
            ),
        )
    rows = [(time + 10 * HOUR, *row) for time, *row in DAILY[:4]]
    wh = GroupWorld.of(tmp_path, [(True, rows[:2]), (False, rows[2:])], **KEYED).open()
    wrong = 0
    for window in cut_windows():
        for slot in (None, "3h"):
            truth = Truth.of(rows, ["origin"], window, slot)
            mode = MODES[slot is None]
            answer = wh.persistence("daily", between=window, slot=slot, mode=mode)
            wrong += answer.window_slots != truth.count or answer.hi > truth.count
            wrong += not answer.lo <= len(truth.slots.get("daily", ())) <= answer.hi
        wrong += len(wh.persistent(1, between=window)) > 1
    assert bool(wrong) == is_broken


def test_a_warehouse_without_rows_has_slots_where_a_window_is_closed(tmp_path: Path) -> None:
    wh = GroupWorld.create(tmp_path, **KEYED).open()
    for window in cut_windows():
        answer = wh.persistence("a", key="origin", between=window)
        assert (answer.slots, answer.window_slots) == (0, Truth.of([], ["origin"], window, None).count)


def test_a_slot_is_counted_once_across_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows bring the same pair of key and tick into two runs; sums instead of unions are noticed."""
    world = GroupWorld.of(tmp_path, [(True, DAILY[:8]), (True, DAILY[4:12]), (False, DAILY[:6])], **KEYED)
    truth = Truth.of(world.rows, ["origin"], None, None)

    def right() -> None:
        for mode in MODES:
            check(world.open(), truth, {"mode": mode}, 0.5, None, exact=True)

    right()
    sums: Counter[Any] = Counter()
    real = slot_presence.Evidence._add

    def adds_up(evidence: Any, table: Any, index: Any, *rows: Any, **named: Any) -> None:
        sums.update(table.names[int(i)].as_py() for i in index)
        real(evidence, table, index, *rows, **named)

    def total(found: Any) -> Any:
        return np.array([sums[name.as_py()] for name in found.names], np.int64)

    monkeypatch.setattr(slot_presence.Evidence, "_add", adds_up)
    for bound in ("least", "most"):
        monkeypatch.setattr(slot_presence.Presence, bound, property(total))
    with pytest.raises(AssertionError):
        right()


def ways_that_differ(world: GroupWorld) -> list[Any]:
    """Questions that a scan answers otherwise than the listings do, with live rows and cut ticks."""
    wrong = []
    for window in (None, (START + 2 * HOUR, START + 9 * HOUR), (START + 2.5 * HOUR, START + 9.25 * HOUR)):
        for slot, most in ((None, None), ("3h", None), ("3h", 4), (None, 2**63 - 1)):
            found = []
            for way in ("index", "scan"):
                with forced(way):
                    answers = world.open().persistent(0.3, between=window, slot=slot, most=most, mode="exact")
                    found.append([{**one.document, "rows_scanned": None} for one in answers])
                    assert answers.plan is not None
                    assert answers.plan.way == way
            wrong += [found] if found[0] != found[1] else []
    return wrong


def slots_are_added_up(patch: pytest.MonkeyPatch) -> None:
    """A slot that several runs and batches have counts several times."""
    right = counted_slots._as_bits
    patch.setattr(counted_slots, "_as_bits", lambda given: right(given).replace("bit_or(", "sum("))


def cut_ticks_are_whole(patch: pytest.MonkeyPatch) -> None:
    right = counted_slots._as_bits
    patch.setattr(counted_slots, "_as_bits", lambda given: right(given.replace("(live > 0 OR ", "(true OR ")))


def test_a_scan_counts_the_slots_that_the_listings_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*many_keys(), *DAILY]
    world = GroupWorld.of(tmp_path, [(True, rows[:60]), (True, rows[30:]), (False, rows[::7])], **KEYED)
    assert ways_that_differ(world) == []
    for broken in (slots_are_added_up, cut_ticks_are_whole):
        with monkeypatch.context() as patch:
            broken(patch)
            assert ways_that_differ(world), broken.__name__
    monkeypatch.setattr(counted_slots, "FEW_SLOTS", 0)
    assert ways_that_differ(world) == []


def many_keys() -> list[Any]:
    """Keys 0 to 11: key k is in the first k + 1 hours."""
    return [(START + hour * HOUR, f"{k:02}", 1, 1.0, None) for k in range(12) for hour in range(k + 1)]


def test_a_floor_that_is_off_by_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that lists keys from floor + 1 on: a key is missed, and verify finds the run."""
    floors, real = [], persistent_marks._listed
    with sizes(200, 0, 4096):
        for broken in (False, True):
            with monkeypatch.context() as patch:
                if broken:
                    patch.setattr(
                        persistent_marks, "_listed", lambda rows, floor, ticks: real(rows, floor + 1, ticks)
                    )
                world = GroupWorld.of(tmp_path, [(True, many_keys())], **KEYED)
            (marks,) = world.open()._session.newest_keys_view().runs
            listed = marks.persistent()
            assert listed is not None
            floors.append(listed.floor)
            truth = Truth.of(world.rows, ["origin"], None, None)
            alpha = Fraction(listed.floor, 12)
            wanted = {answer.value for answer in world.open().persistent(alpha)}
            assert (wanted == truth.wanted(alpha, None)) is not broken
            report = warehouse.verify(world.path)
            assert report.ok is not broken
            assert ("persistent keys" in str(report)) is broken
    assert 1 < floors[0] == floors[1] < 12


def test_slacks_that_are_one_too_small_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key below the floors of three runs, together in half of the slots, is found; not with floor - 2."""
    rows = many_keys()
    with sizes(150, 0, 4096):
        world = GroupWorld.create(tmp_path, **KEYED, kappa=5)
        for day in range(3):
            world.add([(at + day * 12 * HOUR, *rest) for at, *rest in rows], load=True)
        truth = Truth.of(world.rows, ["origin"], None, None)
        listings = [marks.persistent() for marks in world.open()._session.newest_keys_view().runs]
        floor = min(listed.floor for listed in listings if listed is not None)
        alpha = Fraction(3 * floor - 3, 36)
        unlisted = f"{floor - 2:02}"
        assert unlisted in truth.wanted(alpha, None)
        found = world.open().persistent(alpha)
        assert unlisted in {answer.value for answer in found}
        assert found[0].rows_scanned == len(world.rows)
        real = listed_slots.Source.of_run

        def off_by_one(*args: Any) -> Any:
            source = real(*args)
            return listed_slots.Source(
                source.rows, source.starts, source.whole, source.slack - 1, source.timed, source.share
            )

        monkeypatch.setattr(listed_slots.Source, "of_run", off_by_one)
        assert unlisted not in {answer.value for answer in world.open().persistent(alpha)}


def test_without_a_time_column_slots_are_steps(tmp_path: Path) -> None:
    schema = pa.schema([("v", pa.float64()), ("k", pa.int64())])
    warehouse.create(None, tmp_path / "w", ["v"], key="k", schema=schema)
    for step in range(6):
        keys = [1, 2] if step % 2 else [1]
        rows = pa.table({"v": [1.0] * len(keys), "k": keys}, schema=schema)
        warehouse.load(None, tmp_path / "w", rows, f"{step}")
    wh = query.open(tmp_path / "w")
    assert [(answer.value, answer.slots) for answer in wh.persistent(0.5)] == [(1, 6), (2, 3)]
    assert wh.persistence(2).present == ((1, 2), (3, 4), (5, 6))
    assert [(answer.value, answer.slots) for answer in wh.persistent(1, slot=2)] == [(1, 3), (2, 3)]
    assert wh.persistence(2, last=3, slot=2).present == ((3, 4), (4, 6))
    assert wh.persistence(1.5).slots == 0
    with pytest.raises(
        InputError, match=r"slot must be a whole number of at least 1, got '1d'\. It counts steps"
    ):
        wh.persistent(0.5, slot="1d")


def test_an_empty_warehouse_has_no_slots(tmp_path: Path) -> None:
    world = GroupWorld.create(tmp_path, **KEYED)
    wh = world.open()
    assert len(wh.persistent(0.5)) == 0
    answer = wh.persistence("a")
    assert (answer.slots, answer.window_slots, answer.share) == (0, 0, 0.0)
    world.add([(None, "a", 1, 1.0, None)] * 3, load=True)
    assert world.open().persistence("a").hi == 0


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda wh: wh.persistent(0), "alpha must lie in (0, 1], got 0"),
        (lambda wh: wh.persistent(True), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(10**400), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(Fraction(10**400)), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(Decimal("NaN")), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(Decimal("sNaN")), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(math.nan), "alpha must lie in (0, 1]"),
        (lambda wh: wh.persistent(0.5, most=0), "most must be a whole number of at least 1"),
        (lambda wh: wh.persistent(0.5, most=2.5), "most must be a whole number of at least 1"),
        (lambda wh: wh.persistent(0.5, slot="90 minutes"), "slot='90 minutes' is not a multiple of the tick"),
        (lambda wh: wh.persistent(0.5, slot=2), "not a duration: 2"),
        (lambda wh: wh.persistent(0.5, mode="quick"), "no mode 'quick'"),
        (lambda wh: wh.persistent(0.5, key="value"), "value"),
        (lambda wh: wh.persistence("a", last="1h", between=(START, None)), "last"),
        (lambda wh: wh.persistence(3), "cannot compare 3 with"),
    ],
)
def test_what_cannot_be_asked_is_told(tmp_path: Path, ask: Any, words: str) -> None:
    wh = GroupWorld.of(tmp_path, [(True, DAILY[:1])], **KEYED).open()
    with pytest.raises(InputError) as found:
        ask(wh)
    assert words in str(found.value)


def test_counts_need_no_scan_and_no_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the listings have is answered without a block, and what they lack with look-ups."""
    world = GroupWorld.of(tmp_path, [(True, DAILY), (False, DAILY[:4])], **KEYED)
    monkeypatch.setattr(counted_slots, "database", None)
    monkeypatch.setattr(slot_presence, "rows_of_names", None)
    assert [answer.value for answer in world.open().persistent(0.5)] == ["daily"]
