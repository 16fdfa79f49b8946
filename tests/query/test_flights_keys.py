"""Airports of real flights: half in history by tick, half live in batches that arrive out of order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.query.answers import several
from tests.warehouse.keyworld import DAY_US, KeyWorld
from tidemark import query
from tidemark.query.reading.modes import KeyMode
from tidemark.warehouse.sizes import Tuning

FLIGHTS = Path(__file__).resolve().parents[2] / "docs" / "data" / "flights-20k.parquet"


@pytest.mark.slow
@pytest.mark.parametrize("column", ["origin", "destination"])
def test_airports_are_counted_as_a_counter_counts_them(tmp_path: Path, column: str) -> None:
    table = pq.read_table(FLIGHTS, columns=["time", column])
    times = table.column("time").cast("int64").to_pylist()
    events = list(zip(table.column(column).to_pylist(), times, strict=True))
    half = len(events) // 2
    options = {"key_eps": 0.02, "key_delta": 0.05}
    world = KeyWorld(tmp_path / "w", options=options, tuning=Tuning(fan=3))
    past = [(airport, at // DAY_US) for airport, at in events[:half]]
    for first in range(0, half, 5000):
        world.load(past[first : first + 5000])
    live = events[half:]
    random.Random(1).shuffle(live)
    for first in range(0, half, 1000):
        world.stream(live[first : first + 1000])
    wh = query.open(world.uri)
    newest = max(at for _, at in live)
    before, now = (Counter(airport for airport, _ in some) for some in (past, live))
    true = before + now
    modes: tuple[KeyMode, ...] = ("approximate", "exact")
    for mode in modes:
        answers = several(wh.frequency(sorted(true), mode=mode))
        assert [one.in_history for one in answers] == [before[one.value] for one in answers]
        assert all(true[one.value] <= one.hi for one in answers)
        far = sum(abs(one.count - true[one.value]) > one.eps * one.m for one in answers)
        low = sum(one.lo > true[one.value] for one in answers)
        assert max(far, low) <= (0.05 * len(answers) if mode == "approximate" else 0)
        assert (answers[0].n, answers[0].m) == (half, len(live))
    for phi in (0.002, 0.01, 0.03):
        found = {one.value: one for one in wh.heavy_hitters(phi)}
        heavy = {airport for airport, count in true.items() if count >= phi * len(events)}
        assert heavy <= set(found)
        assert {airport for airport, one in found.items() if one.certain} <= heavy
    recent = Counter(airport for airport, at in live if at > newest - 36 * DAY_US // 24)
    asked = several(wh.frequency(sorted(true), last="36h"))
    assert all(recent[one.value] <= one.hi for one in asked)
    assert sum(one.lo > recent[one.value] for one in asked) <= 0.05 * len(asked)
    assert sum(abs(one.count - recent[one.value]) > one.eps * one.m for one in asked) <= 0.05 * len(asked)
    assert wh.self_join().count == sum(count * count for count in true.values())
