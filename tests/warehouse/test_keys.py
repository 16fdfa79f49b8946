"""The runs of keys are a Counter by (key, tick), whatever the order of steps and the merges.

For keys of each type tests/warehouse/test_key_types.py asks the same.
"""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from tests.query.answers import single
from tests.warehouse.keyworld import TINY, KeyWorld, Row, plain
from tidemark import query, warehouse
from tidemark.warehouse.columns.heavy_keys import HeavyKeys
from tidemark.warehouse.columns.keys import Key, KeyColumn, name_at
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.integrity.digests import columns_by_name
from tidemark.warehouse.projections import key_counts, key_marks, key_rows
from tidemark.warehouse.projections.key_counts import KeyCounts
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.settings.options import Options

KEYS = "keys/k"  # the runs table of the key

LONG = "é" * 700_000
VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "a",
        "a\x00b",
        "ab",
        "é",
        "漢字",
        "😀",
        "z" * 40,
        "z" * 33 + "é",
        LONG,
        LONG + "a",
        "\U0010ffff" * 40,
    ],
    "binary": [b"", b"\x00", b"\xff", b"\xff\xfe", b"a" * 3000],
    "boolean": [True, False],
    "byte": [-128, 0, 127],
    "short": [-(2**15), 5, 2**15 - 1],
    "integer": [-(2**31), 7, 2**31 - 1],
    "long": [-(2**63), 2**63 - 1, 2**53, 2**53 + 1, 0],
    "float": [0.5, -0.0, 0.0, math.nan, math.inf, -math.inf],
    "double": [0.1, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, -1.5],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    "timestamp": [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC)],
    "decimal(18,4)": [Decimal("-0.0001"), Decimal("99999999999999.9999"), Decimal("1.5000")],
}


def rows_of(kind: str, seed: int, count: int = 45) -> list[Row]:
    """Rows over six days, late ones among them; some keys are NULL, some times too."""
    r = random.Random(seed)
    return [
        (r.choice([*VALUES[kind], None]), r.choice([*range(seed, seed + 5), 0, None])) for _ in range(count)
    ]


def stored(world: KeyWorld, run: KeyMarks) -> list[tuple[Any, int, int]]:
    """The rows of a run's files, in order."""
    found = []
    for file in run.files:
        with pq.ParquetFile(world.uri / KEYS / file.path, read_dictionary=["key"]) as parquet:
            for group in range(parquet.num_row_groups):
                for rows in KeyCounts(world.key).from_stored(columns_by_name(parquet.read_row_group(group))):
                    names = [
                        plain(world.key.value_of(name_at(rows.names, i))) for i in range(len(rows.names))
                    ]
                    triples = zip(rows.codes, rows.ticks.tolist(), rows.counts.tolist(), strict=True)
                    found += [(names[code], tick, count) for code, tick, count in triples]
    return found


def check(world: KeyWorld) -> None:
    """Every run is its steps' Counter, and all that its marks say is so."""
    for run in world.view().runs:
        rows = stored(world, run)
        truth = world.pairs(range(run.run.first, run.run.last + 1))
        assert len(rows) == run.rows == len({(key, tick) for key, tick, _ in rows})
        assert {(key, tick): count for key, tick, count in rows} == dict(truth)
        by_tick: Counter[int] = Counter()
        for (_, tick), count in truth.items():
            by_tick[tick] += count
        listed = zip(run.totals.ticks.tolist(), run.totals.counts.tolist(), strict=True)
        assert {tick: count for tick, count in listed if count} == by_tick
        nulls = sum(key is None for i in range(run.run.first, run.run.last + 1) for key, _ in world.loaded[i])
        assert int(run.totals.nulls.sum()) == nulls
        before = [sum(count for _, _, count in rows[:at]) for at in run.positions.tolist()]
        assert run.counts_before.tolist() == before
        check_heavy(world, run, truth, by_tick)
    report = warehouse.verify(world.uri)
    assert report.ok, str(report)


def check_heavy(world: KeyWorld, run: KeyMarks, truth: Counter[Any], by_tick: Counter[int]) -> None:
    """A key is listed in a cell if and only if it reaches the cell's floor, with its exact count."""
    keys, pairs = run.heavy()
    whole: Counter[Any] = Counter()
    for (key, _), count in truth.items():
        whole[key] += count
    assert listing(world, keys) == {(key, 0): c for key, c in whole.items() if c >= keys.floors[0]}
    ticks = run.totals.ticks.tolist()
    floors = dict(zip(ticks, pairs.floors.tolist(), strict=True))
    cells = {(key, ticks.index(tick)): c for (key, tick), c in truth.items() if c >= floors[tick]}
    assert listing(world, pairs) == cells
    if not any(isinstance(key, str) and len(key) > 1000 for key in whole):  # longer ones fill the budget
        assert all(floor == max(1, -(-by_tick[tick] // 1000)) for tick, floor in floors.items())


def listing(world: KeyWorld, heavy: HeavyKeys) -> dict[tuple[Any, int], int]:
    names = [plain(world.key.value_of(name_at(heavy.keys, i))) for i in range(len(heavy.cells))]
    return dict(zip(zip(names, heavy.cells.tolist(), strict=True), heavy.counts.tolist(), strict=True))


def test_one_step_that_fits_a_task_is_one_file_with_its_marks(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    world.load([("b", 1), ("a", 1), ("b", 1), (None, 1), ("a", 0)])
    (run,) = world.view().runs
    assert stored(world, run) == [("a", 0, 1), ("a", 1, 1), ("b", 1, 2)]
    check(world)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[], [(None, 3)] * 7, [("only", 1)]], ids=["none", "all NULL", "one"])
def test_a_step_with_few_keys_or_none_is_a_run_too(tmp_path: Path, rows: list[Row]) -> None:
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    world.load(rows or [(None, 0)])
    for number in range(3):
        world.load([(f"k{number}", number)])
    check(world)


def test_the_same_load_again_changes_nothing(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    world.load(rows_of("string", 1), files=2)
    before = {file.path for file in data_files.list_files(tables.open_table(world.store, KEYS))}
    warehouse.load(None, world.uri, tuning=TINY)
    assert {file.path for file in data_files.list_files(tables.open_table(world.store, KEYS))} == before


@pytest.mark.parametrize("share", [0.9, 1.0])
def test_a_key_that_most_rows_have_is_as_short_as_its_ticks(tmp_path: Path, share: float) -> None:
    world = KeyWorld(tmp_path / "w", "long", tuning=TINY)
    r = random.Random(7)
    for _ in range(3):
        world.load(
            [(5 if r.random() < share else r.randrange(1000), r.randrange(3)) for _ in range(200)], files=4
        )
    check(world)
    (run,) = world.view().runs
    assert run.rows <= 3 + 600 * (1 - share) * 1.5


def test_all_keys_apart_are_merged_in_slices_of_their_share(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", "long", tuning=TINY)
    for step in range(3):
        world.load([(i * 7919 % 2**20, 0) for i in range(step * 100, step * 100 + 100)], files=5)
    check(world)
    (run,) = world.view().runs
    sizes = [file.rows for file in run.files]
    assert len(sizes) > 5
    assert max(sizes) <= 3 * 300 / len(sizes)


def without_keys(folder: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> KeyWorld:
    """A warehouse whose runs of keys are gone."""
    world = KeyWorld(folder / "w", kappa=4, tuning=TINY)

    def values_alone(options: Options) -> tuple[SortedValues, ...]:
        return tuple(map(SortedValues, options.measures))

    with monkeypatch.context() as patch:
        patch.setattr(Options, "projections", property(values_alone))
        for seed in range(steps):
            world.load(rows_of("string", seed))
    for name in ("keys/k", "key_marks/k"):
        shutil.rmtree(world.uri / name)
    return world


@pytest.mark.parametrize("steps", [1, 3])
def test_a_table_of_keys_that_is_gone_is_told_unless_it_lacks_one_step_and_comes_back(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of one step are read from `events`, as after a kill; of more no question counts too few."""
    world = without_keys(tmp_path, steps, monkeypatch)
    wh = query.open(world.uri)
    if steps == 1:
        assert single(wh.frequency("a")).count == world.truth()["a"]
    else:
        for ask in (lambda: wh.frequency("a"), wh.top, lambda: wh.heavy_hitters(0.1), wh.self_join):
            with pytest.raises(warehouse.DamagedWarehouse, match=r"keys/k is behind the others.* Run a load"):
                ask()
    assert wh.quantile(0.5).n == steps * 45
    warehouse.load(None, world.uri, tuning=TINY)
    assert [run.run.name[:3] for run in world.view().runs] == ["L00"] * steps
    assert single(wh.frequency("a")).in_history == world.truth()["a"]
    check(world)


def test_keys_are_asked_while_they_are_one_step_behind_in_a_load(
    tmp_path: Path,
) -> None:
    world = KeyWorld(tmp_path / "w", kappa=4, tuning=TINY)
    world.load([("a", 0)] * 3)
    world.append([("a", 0)] * 4)
    seen = []

    def look(point: str) -> None:
        if point == "committed":  # the measure's run, then the key's
            wh = query.open(world.uri)
            seen.append((wh.quantile(0.5).n, single(wh.frequency("a")).in_history))

    warehouse.load(None, world.uri, progress=look, tuning=TINY)
    assert seen == [(7, 3), (7, 7)]


def test_keys_that_do_not_fit_a_task_at_once_become_chunks(tmp_path: Path) -> None:
    """One share of `events`, of several row groups, and more distinct keys than a task may hold."""
    world = KeyWorld(tmp_path / "w", tuning=replace(TINY, sort_rows=10_000, held_bytes=2_000))
    world.load([(f"key-{i % 70}", i % 3) for i in range(400)], files=4)
    (run,) = world.view().runs
    assert len(run.files) > 1
    check(world)
    assert not [path for path in (world.uri / KEYS / "_chunks").rglob("*") if path.is_file()]


def test_info_tells_of_the_keys_what_it_tells_of_measures(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    for step in range(4):
        world.load([("a", 0), ("b", step), (None, 0)])
    told = query.open(world.uri).info()["keys"]["k"]
    assert told["runs_by_level"] == {1: 1, 0: 1}
    assert told["rows"] == 4 + 2  # pairs: of three steps a and b at three ticks, then two
    assert (told["type"], told["bytes"] > 0) == ("string", True)


@pytest.mark.parametrize("kind", ["array", "map", "struct", "decimal(38,2)"])
def test_a_key_that_cannot_be_kept_exactly_is_refused(kind: str) -> None:
    with pytest.raises(warehouse.InputError, match=r"the key 'k' is of type .* Cast it"):
        Key("k", kind)


def test_a_warehouse_is_not_made_with_such_a_key(tmp_path: Path) -> None:
    fields = [T.StructField("x", T.DoubleType()), T.StructField("k", T.ArrayType(T.StringType()))]
    with pytest.raises(warehouse.InputError, match="the key 'k' is of type"):
        warehouse.create(None, tmp_path / "w", "x", key="k", schema=T.StructType(fields))
    assert not (tmp_path / "w").exists()


def test_the_statistics_of_long_text_are_short_and_bound_it(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path / "w", kappa=4, tuning=TINY)
    world.load([(key, 0) for key in VALUES["string"]])
    (file,) = data_files.list_files(tables.open_table(world.store, KEYS))
    assert file.stats["min.key"] == ""
    assert file.stats["max.key"] == "\U0010ffff" * 40  # nothing shorter is as great
    world.load([("\U0010ffff" * 4000, 0), ("a", 0)])
    files = data_files.list_files(tables.open_table(world.store, KEYS))
    # One bound alone would mislead readers.
    assert [f.stats["min.key"] for f in files if f.stats["max.key"] is None] == [None]
    world.load([("m" * 50, 0), (LONG, 0)])
    newest = max(data_files.list_files(tables.open_table(world.store, KEYS)), key=lambda file: file.path)
    assert newest.stats["min.key"] == "m" * 32
    assert newest.stats["max.key"] > LONG
    assert len(newest.stats["max.key"]) == 33


def check_counted(ticks: int, spread: int) -> None:
    """Rows of six keys, and of as many ticks, are those that a Counter finds."""
    rng = np.random.default_rng(1)
    names, at = (rng.integers(0, most, 60) * spread - 7 for most in (6, ticks))
    rows = key_rows.count_pairs(KeyColumn(names, None, np.zeros(60, bool)), at)
    found_names: Any = rows.names
    found = zip(found_names[rows.codes].tolist(), rows.ticks.tolist(), rows.counts.tolist(), strict=True)
    wanted = Counter(zip(names.tolist(), at.tolist(), strict=True))
    assert [*found] == [(*pair, wanted[pair]) for pair in sorted(wanted)]


@pytest.mark.parametrize("spread", [1, 2, 2**40])
@pytest.mark.parametrize("ticks", [1, 3, 40])
def test_rows_are_counted_with_and_without_a_sort(
    ticks: int, spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few possible pairs, with and without gaps, and many; counts of one for all are caught."""
    check_counted(ticks, spread)
    usual = key_rows._sums_by_pair

    def of_one(*given: Any) -> Any:
        pairs, sums = usual(*given)
        return pairs, np.ones_like(sums)

    monkeypatch.setattr(key_rows, "_sums_by_pair", of_one)
    with pytest.raises(AssertionError):
        check_counted(ticks, spread)


def test_a_merge_that_does_not_sum_across_inputs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_the_newest(parts: Any) -> Any:
        merged = key_rows.sum_counts(parts)
        return key_rows.KeyRows(merged.names, merged.codes, merged.ticks, merged.counts // merged.counts)

    world = KeyWorld(tmp_path / "w", tuning=TINY)
    monkeypatch.setattr(key_counts, "sum_counts", takes_the_newest)
    with pytest.raises(warehouse.DamagedWarehouse, match="Nothing was committed"):
        world.load(rows_of("string", 0), files=3)


def test_marks_that_miss_a_heavy_key_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key of a file has rows in two files; here its share next door is forgotten."""
    whole = key_marks._heavy_of_run

    def forgets(key: Any, files: Any, totals: Any) -> Any:
        keys, pairs = whole(key, files, totals)
        return HeavyKeys(keys.keys[1:], keys.cells[1:], keys.counts[1:], keys.floors), pairs

    monkeypatch.setattr(key_marks, "_heavy_of_run", forgets)
    world = KeyWorld(tmp_path / "w", tuning=TINY)
    world.load(rows_of("string", 0))
    with pytest.raises(AssertionError):
        check(world)
    assert not warehouse.verify(world.uri).ok
