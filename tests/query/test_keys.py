"""Keys of history against a Counter: counts, ranges, heavy hitters, top and joins, as users ask."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.query.answers import several
from tests.warehouse.keyworld import DAY_US, TINY, KeyWorld, Row, plain
from tests.warehouse.test_damage import HARM
from tests.warehouse.test_keys import VALUES
from tidemark import query
from tidemark.query.keys import key_scan, key_source, listed_keys
from tidemark.query.keys.key_blocks import KeyHistory
from tidemark.query.keys.listed_keys import ListedKeys
from tidemark.query.reading.block_reader import RowGroups
from tidemark.warehouse import DamagedWarehouse, InputError
from tidemark.warehouse.columns import heavy_keys
from tidemark.warehouse.columns.keys import Key, no_names, take_names
from tidemark.warehouse.columns.ticks import ALL_TIME, Window, from_epoch_us

RANGES = [
    (None, None),
    ("key-1", "key-2"),
    ("key-2", None),
    (None, "key-15"),
    ("b", "a"),
    ("key-3", "key-3"),
]
WINDOWS = [ALL_TIME, Window(2, 5), Window(0, 1), Window(3, 100), Window(50, 60)]
PHIS: list[float | str] = [1, 0.5, 0.2, 0.05, 0.01, "1/1000"]


def zipf(seed: int, count: int = 400, ticks: int = 8) -> list[Row]:
    r = random.Random(seed)
    rows: list[Row] = [
        (f"key-{int(r.paretovariate(0.7))}", r.randrange(seed, seed + ticks)) for _ in range(count)
    ]
    return [*rows, (None, seed), ("no time", None)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> KeyWorld:
    """Runs of two levels with blocks of 4 rows; late ticks, NULLs and rows without a time."""
    world = KeyWorld(tmp_path_factory.mktemp("keys") / "w", tuning=replace(TINY, sort_rows=200))
    for seed in range(4):
        world.load(zipf(seed), files=2)
    assert [run.run.level for run in world.view().runs] == [1, 0]
    return world


def ranked(counts: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0].encode()))


def of(window: Window) -> dict[str, Any]:
    """The window as a question takes it."""
    if window == ALL_TIME:
        return {}
    return {"between": tuple(from_epoch_us(edge * DAY_US) for edge in (window.start, window.stop))}


def exact(answer: Any) -> int:
    """The count of an answer that leaves nothing open."""
    assert answer.lo == answer.count == answer.hi
    return int(answer.count)


def listed(found: Any) -> list[tuple[Any, int]]:
    """Keys that were found, with their counts, all of them certain."""
    assert all(one.certain for one in found)
    return [(one.value, exact(one)) for one in found]


def check(world: KeyWorld, window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about the window, from marks and by a scan."""
    wh, truth, where = query.open(world.uri), world.truth(window), of(window)
    n = sum(truth.values())
    asked = [*truth, "key-", "", "zzz", "key-1"]
    found = several(wh.frequency(asked, **where))
    assert [exact(one) for one in found] == [one.in_history for one in found] == [truth[key] for key in asked]
    assert (found[0].n, found[0].m) == (n, 0)
    for low, high in RANGES:
        inside = [key for key in truth if (low is None or key >= low) and (high is None or key < high)]
        true = sum(truth[key] for key in inside)
        assert exact(wh.key_range(low, high, **where)) == true, (low, high)
    assert exact(wh.self_join(**where)) == sum(count * count for count in truth.values())
    for scanned in (False, True):
        with monkeypatch.context() as patch:
            if scanned:
                patch.setattr(key_source, "listed_names", listed_nowhere)
            wh = query.open(world.uri)
            for phi in PHIS:
                share = Fraction(phi)
                true_heavy = [one for one in ranked(truth) if n and one[1] >= Fraction(str(phi)) * n]
                given = phi if isinstance(phi, int | float) else share
                assert listed(wh.heavy_hitters(given, **where)) == true_heavy, (phi, scanned)
            for k in (1, 3, 10, 10_000):
                assert listed(wh.top(k, **where)) == ranked(truth)[:k]


def listed_nowhere(key: Key, *_: object) -> ListedKeys:
    none = np.empty(0, np.int64)
    return ListedKeys(no_names(key), none, none, 2**62)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_every_question_about_a_window_is_answered_as_a_counter_would(
    world: KeyWorld, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(world, window, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [(5, 2**20), (2**15, 200), (0, 0)], ids=["few", "short", "none"])
def test_with_any_budget_for_heavy_keys_no_answer_changes(
    tmp_path: Path, budget: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floors rise, and questions below them go to a scan."""
    monkeypatch.setattr(heavy_keys, "ENTRIES", budget[0])
    monkeypatch.setattr(heavy_keys, "BYTES", budget[1])
    world = KeyWorld(tmp_path / "w", kappa=3, tuning=TINY)
    for seed in range(2):
        world.load(zipf(seed, 60))
    for window in WINDOWS:
        check(world, window, monkeypatch)


def test_heavy_hitters_of_few_come_from_the_marks_alone(
    world: KeyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_scan, "database", None)
    for window in WINDOWS[:3]:
        truth = world.truth(window)
        least = math.ceil(0.05 * sum(truth.values()))
        found = query.open(world.uri).heavy_hitters(0.05, **of(window))
        assert listed(found) == [one for one in ranked(truth) if one[1] >= least]


def test_a_look_up_reads_the_blocks_that_may_hold_the_key_and_no_others(
    world: KeyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, view = query.open(world.uri), world.view()
    read: list[int] = []
    blocks = wh._session.blocks.read

    def counted(wanted: RowGroups) -> Any:
        read.append(len(wanted.groups))
        return blocks(wanted)

    monkeypatch.setattr(wh._session.blocks, "read", counted)
    shares = len(KeyHistory(wh._session.blocks, view, Window(3, 4)).shares)
    wh.frequency("key-77777", **of(Window(3, 4)))
    assert sum(read) <= shares
    read.clear()
    wh.frequency(["key-1", "key-2", "key-1"], **of(Window(3, 4)))
    assert sum(read) <= 2 * 2 * shares  # eight ticks of a key fill two blocks or three
    read.clear()
    wh.key_range("key-1", "key-9")
    assert sum(read) <= 2 * len(view.runs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(VALUES))
def test_keys_of_every_type_are_asked_for_as_the_user_has_them(tmp_path: Path, kind: str) -> None:
    world = KeyWorld(tmp_path / "w", kind, tuning=TINY)
    r = random.Random(3)
    world.load([(r.choice([*VALUES[kind], None]), r.randrange(3)) for _ in range(60)])
    wh, truth = query.open(world.uri), world.truth()
    assert [exact(one) for one in several(wh.frequency(VALUES[kind]))] == [
        truth[plain(key)] for key in VALUES[kind]
    ]
    found = listed(wh.top(100))
    assert {plain(key): count for key, count in found} == dict(truth)
    assert [type(key) for key, _ in found] == [type(VALUES[kind][0])] * len(found)
    assert exact(wh.key_range(None, None)) == sum(truth.values())
    least = min(VALUES[kind], key=lambda key: (key != key, key))  # noqa: PLR0124  NaN is last
    assert exact(wh.key_range(least, None)) == sum(truth.values())
    assert exact(wh.key_range(None, least)) == 0
    assert exact(wh.inner_product(wh)) == sum(count**2 for count in truth.values())


@pytest.mark.slow
def test_numbers_that_no_row_can_have_count_nothing_and_bound_ranges(tmp_path: Path) -> None:
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
        wh = query.open(world.uri)
        assert exact(wh.key_range(bound, None)) == from_there, (kind, bound)
        same = kind == "date" or (bound != bound and kind == "double")  # noqa: PLR0124
        assert exact(wh.frequency(bound)) == int(same), (kind, bound)


def test_a_key_of_another_type_is_an_error_that_says_so(world: KeyWorld) -> None:
    wh = query.open(world.uri)
    with pytest.raises(InputError, match="cannot compare 5 with 'k', which is of type string"):
        wh.frequency([5])
    for phi in (0, 1.5, "x", True, -1):
        with pytest.raises(InputError, match=r"phi must lie in \(0, 1\]"):
            wh.heavy_hitters(phi)
    with pytest.raises(InputError, match="k must be a whole number"):
        wh.top(0)


def test_two_warehouses_join_on_their_keys(world: KeyWorld, tmp_path: Path) -> None:
    other = KeyWorld(tmp_path / "other")
    other.load([("key-1", 3), ("key-1", 4), ("key-2", 3), ("nowhere", 3)])
    wh, counts = query.open(world.uri), world.truth(Window(2, 4))
    found = wh.inner_product(query.open(other.uri), **of(Window(2, 4)))
    assert exact(found) == counts["key-1"] + counts["key-2"]
    numbers = KeyWorld(tmp_path / "numbers", "long")
    numbers.load([(1, 0)])
    with pytest.raises(InputError, match="keys of types string and long do not join"):
        wh.inner_product(query.open(numbers.uri))


@pytest.fixture(scope="module")
def many_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One to be copied."""
    world = KeyWorld(tmp_path_factory.mktemp("keys") / "w")
    world.load([(f"key-{i}", i % 5) for i in range(5000)])
    return world.uri


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("ask", ["counts", "top", "marks"])
def test_a_damaged_file_is_an_error_that_names_it(
    many_keys: Path, tmp_path: Path, harm: str, ask: str
) -> None:
    uri = shutil.copytree(many_keys, tmp_path / "w")
    folder = "key_marks/k" if ask == "marks" else "keys/k"
    (path,) = (uri / folder).glob("run=*/*.parquet")
    wh = query.open(uri)
    wh._session.newest_keys_view()  # the marks are in memory, their lists of frequent keys are not
    HARM[harm](path)
    asks: dict[str, Callable[[], Any]] = {
        "counts": lambda: wh.frequency([f"key-{i}" for i in range(5000)]),
        "top": wh.self_join,
        "marks": lambda: query.open(uri).top(1),
    }
    with pytest.raises(DamagedWarehouse, match=path.stem):
        asks[ask]()


def test_heavy_marks_that_miss_a_tick_are_found(world: KeyWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above fails on a reader that leaves a cell out: here the first tick of each window."""
    whole = listed_keys._run_listing

    def misses(share: Any, window: Window, lists: Any) -> Any:
        found = whole(share, window, lists)
        kept = found.cells > 0
        floors = np.where(np.arange(len(found.floors)) > 0, found.floors, 1)
        names = take_names(found.keys, np.flatnonzero(kept))
        return heavy_keys.HeavyKeys(names, found.cells[kept], found.counts[kept], floors)

    monkeypatch.setattr(listed_keys, "_run_listing", misses)
    with pytest.raises(AssertionError):
        check(world, Window(2, 5), monkeypatch)


@pytest.mark.slow
def test_counts_and_heavy_hitters_need_no_java_no_pandas_and_no_duckdb(world: KeyWorld) -> None:
    script = """
import sys
from tidemark import query
wh = query.open(sys.argv[1])
print([wh.frequency("key-1").count], wh.heavy_hitters(0.05)[0].count)
wh.key_range("a", "key-2")
print(sorted({"pandas", "pyspark", "py4j", "duckdb"} & set(sys.modules)))
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(world.uri)], capture_output=True, text=True, check=True
    )
    most = world.truth()["key-1"]
    assert run.stdout.splitlines() == [f"[{most}] {most}", "[]"]
