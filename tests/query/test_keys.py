"""History's frequencies against a Counter: counts, ranges, heavy hitters, top and second moments."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import query.keys as frequencies
from query import keyscan
from query.keyblocks import KeyHistory
from tests.warehouse.keyworld import KeyWorld, Row, in_this_process, plain, tiny_pieces
from tests.warehouse.test_damage import HARM
from tests.warehouse.test_keys import VALUES
from warehouse import DamagedWarehouse, InputError, heavy
from warehouse.keymarks import KeyMarks
from warehouse.ticks import ALL_TIME, Window

RANGES = [
    (None, None),
    ("key-1", "key-2"),
    ("key-2", None),
    (None, "key-15"),
    ("b", "a"),
    ("key-3", "key-3"),
]
WINDOWS = [ALL_TIME, Window(2, 5), Window(0, 1), Window(3, 100), Window(50, 60)]
PHIS = [1, 0.5, 0.2, 0.05, 0.01, "1/1000"]


def zipf(seed: int, count: int = 400, ticks: int = 8) -> list[Row]:
    r = random.Random(seed)
    rows: list[Row] = [
        (f"key-{int(r.paretovariate(0.7))}", r.randrange(seed, seed + ticks)) for _ in range(count)
    ]
    return [*rows, (None, seed), ("no time", None)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> KeyWorld:
    """Runs of two levels with blocks of 4 rows; late ticks, NULLs and rows without a time."""
    world = KeyWorld(tmp_path_factory.mktemp("keys") / "w")
    with pytest.MonkeyPatch.context() as patch:
        in_this_process(patch)
        tiny_pieces(patch)
        patch.setattr("warehouse.tasks.SORT_ROWS", 200)
        for seed in range(4):
            world.load(zipf(seed), files=2)
    assert [run.run.level for run in world.history().view.runs] == [1, 0]
    return world


def ranked(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0].encode()))


def check(history: KeyHistory, truth: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about the window, from marks and by a scan."""
    n = sum(truth.values())
    assert history.rows == n
    asked = [*truth, "key-", "", "zzz", "key-1"]
    assert frequencies.counts(history, asked) == [truth[key] for key in asked]
    for low, high in RANGES:
        inside = [key for key in truth if (low is None or key >= low) and (high is None or key < high)]
        true = sum(truth[key] for key in inside)
        assert frequencies.range_count(history, low, high) == true, (low, high)
    assert frequencies.second_moment(history) == sum(count * count for count in truth.values())
    for scanned in (False, True):
        with monkeypatch.context() as patch:
            if scanned:
                patch.setattr(frequencies, "listed_names", listed_nowhere)
            for phi in PHIS:
                share = Fraction(phi)
                true_heavy = [one for one in ranked(truth) if n and one[1] >= Fraction(str(phi)) * n]
                given = phi if isinstance(phi, int | float) else share
                assert frequencies.heavy_hitters(history, given) == true_heavy, (phi, scanned)
            for k in (1, 3, 10, 10_000):
                assert frequencies.top(history, k) == ranked(truth)[:k]


def listed_nowhere(_: KeyHistory) -> Any:
    none = np.empty(0, np.int64)
    return frequencies.Listed(none, none, none, 2**62)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_question_about_a_window_is_answered_as_a_counter_would(
    world: KeyWorld, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(world.history(window), world.truth(window), monkeypatch)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("budget", [(5, 2**20), (2**15, 200), (0, 0)], ids=["few", "short", "none"])
def test_with_any_budget_for_heavy_keys_no_answer_changes(
    tmp_path: Path, window: Window, budget: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floors rise, and questions below them go to a scan."""
    in_this_process(monkeypatch)
    tiny_pieces(monkeypatch)
    monkeypatch.setattr(heavy, "ENTRIES", budget[0])
    monkeypatch.setattr(heavy, "BYTES", budget[1])
    world = KeyWorld(tmp_path / "w", kappa=3)
    for seed in range(2):
        world.load(zipf(seed, 60))
    check(world.history(window), world.truth(window), monkeypatch)


def test_heavy_hitters_of_few_come_from_the_marks_alone(
    world: KeyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyscan, "_ask", None)
    for window in WINDOWS[:3]:
        truth = world.truth(window)
        least = math.ceil(0.05 * sum(truth.values()))
        found = frequencies.heavy_hitters(world.history(window), 0.05)
        assert found == [one for one in ranked(truth) if one[1] >= least]


def test_a_look_up_reads_the_blocks_that_may_hold_the_key_and_no_others(
    world: KeyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = world.history(Window(3, 4))
    read: list[int] = []
    tables = history.blocks.tables
    monkeypatch.setattr(
        history.blocks, "tables", lambda *a, **k: (read.append(len(a[2])), tables(*a, **k))[1]
    )
    frequencies.counts(history, ["key-77777"])
    assert sum(read) <= len(history.shares)
    read.clear()
    frequencies.counts(history, ["key-1", "key-2", "key-1"])
    assert sum(read) <= 2 * 2 * len(history.shares)  # eight ticks of a key fill two blocks or three
    read.clear()
    whole = KeyHistory(history.blocks, history.view, ALL_TIME)
    frequencies.range_count(whole, "key-1", "key-9")
    assert sum(read) <= 2 * len(whole.shares)


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_keys_of_every_type_are_asked_for_as_the_user_has_them(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    tiny_pieces(monkeypatch)
    world = KeyWorld(tmp_path / "w", kind)
    r = random.Random(3)
    world.load([(r.choice([*VALUES[kind], None]), r.randrange(3)) for _ in range(60)])
    history, truth = world.history(), world.truth()
    assert frequencies.counts(history, VALUES[kind]) == [truth[plain(key)] for key in VALUES[kind]]
    found = frequencies.top(history, 100)
    assert {plain(key): count for key, count in found} == dict(truth)
    assert [type(key) for key, _ in found] == [type(VALUES[kind][0])] * len(found)
    assert frequencies.range_count(history) == sum(truth.values())
    least = min(VALUES[kind], key=lambda key: (key != key, key))  # noqa: PLR0124  NaN is last
    assert frequencies.range_count(history, least) == sum(truth.values())
    assert frequencies.range_count(history, None, least) == 0
    assert frequencies.inner_product(history, history) == sum(count**2 for count in truth.values())


def test_numbers_that_no_row_can_have_count_nothing_and_bound_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    cases: list[tuple[str, list[Any], Any, int]] = [
        ("long", [1, 2, 3, 2**63 - 1], 2.5, 2),
        ("long", [1, 2, 3, 2**63 - 1], 2**70, 0),
        ("long", [-5, 1], -(2**70), 2),
        ("long", [1, 2], math.nan, 0),
        ("double", [0.5, math.nan], math.nan, 1),
        ("double", [0.1, 0.5], Decimal("0.1"), 2),
        ("decimal(18,4)", [Decimal("1.5"), Decimal("1.6")], Decimal("1.50001"), 1),
        ("date", [date(2024, 1, 1), date(2024, 1, 2)], "2024-01-02", 1),
    ]
    for number, (kind, keys, bound, from_there) in enumerate(cases):
        world = KeyWorld(tmp_path / str(number), kind)
        world.load([(key, 0) for key in keys])
        history = world.history()
        assert frequencies.range_count(history, bound) == from_there, (kind, bound)
        same = kind == "date" or (bound != bound and kind == "double")  # noqa: PLR0124
        assert frequencies.counts(history, [bound]) == [int(same)], (kind, bound)


def test_a_key_of_another_type_is_an_error_that_says_so(world: KeyWorld) -> None:
    with pytest.raises(InputError, match="5 is no key here: 'k' is of type string"):
        frequencies.counts(world.history(), [5])
    for phi in (0, 1.5, "x", True, -1):
        with pytest.raises(InputError, match=r"phi must lie in \(0, 1\]"):
            frequencies.heavy_hitters(world.history(), phi)
    with pytest.raises(InputError, match="k must be a whole number"):
        frequencies.top(world.history(), 0)


def test_two_warehouses_join_on_their_keys(
    world: KeyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    other = KeyWorld(tmp_path / "other")
    other.load([("key-1", 3), ("key-1", 4), ("key-2", 3), ("nowhere", 3)])
    a, b = world.history(Window(2, 4)), other.history(Window(3, 4))
    counts = world.truth(Window(2, 4))
    assert frequencies.inner_product(a, b) == counts["key-1"] + counts["key-2"]
    numbers = KeyWorld(tmp_path / "numbers", "long")
    numbers.load([(1, 0)])
    with pytest.raises(InputError, match="keys of types string and long do not join"):
        frequencies.inner_product(a, numbers.history())


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("ask", ["counts", "top", "marks"])
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path: Path, harm: str, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    world = KeyWorld(tmp_path / "w")
    world.load([(f"key-{i}", i % 5) for i in range(5000)])
    folder = "key_marks" if ask == "marks" else "keys"
    (path,) = (world.uri / folder).glob("run=*/*.parquet")
    history = world.history()
    HARM[harm](path)
    asks: dict[str, Callable[[], Any]] = {
        "counts": lambda: frequencies.counts(history, [f"key-{i}" for i in range(5000)]),
        "top": lambda: frequencies.second_moment(history),
        "marks": lambda: frequencies.top(world.history(), 1),
    }
    with pytest.raises(DamagedWarehouse, match=path.stem):
        asks[ask]()


def test_heavy_marks_that_miss_a_tick_are_found(world: KeyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above fails on a reader that leaves a cell out: here the first tick of each window."""
    whole = frequencies._cells

    def misses(run: KeyMarks, window: Window) -> Any:
        found = whole(run, window)
        kept = found.cells > 0
        floors = np.where(np.arange(len(found.floors)) > 0, found.floors, 1)
        names = frequencies.take(found.keys, np.flatnonzero(kept))
        return heavy.Heavy(names, found.cells[kept], found.counts[kept], floors)

    monkeypatch.setattr(frequencies, "_cells", misses)
    history, truth = world.history(Window(2, 5)), world.truth(Window(2, 5))
    with pytest.raises(AssertionError):
        check(history, truth, monkeypatch)


def test_counts_and_heavy_hitters_need_no_java_no_pandas_and_no_duckdb(world: KeyWorld) -> None:
    script = """
import sys, query.keys
from query.blocks import BlockReader
from query.keyblocks import KeyHistory
from warehouse import open_snapshot
from warehouse.ticks import ALL_TIME
snapshot = open_snapshot(sys.argv[1])
history = KeyHistory(BlockReader(snapshot.store), snapshot.keys_view(), ALL_TIME)
print(query.keys.counts(history, ["key-1"]), query.keys.heavy_hitters(history, 0.05)[0][1])
query.keys.range_count(history, "a", "key-2")
print(sorted({"pandas", "pyspark", "py4j", "duckdb"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(world.uri)], capture_output=True, text=True, check=True
    )
    most = world.truth()["key-1"]
    assert run.stdout.splitlines() == [f"[{most}] {most}", "[]"]
