"""Questions about each of several keys, of one column and of two, against Counters of tuples."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.groupworld import BATCHES, HOUR, SCHEMA, START, GroupWorld
from tidemark import warehouse
from tidemark.query import InputError
from tidemark.warehouse.columns.composite_keys import CompositeKey
from tidemark.warehouse.columns.keys import KeyColumn

SOME = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
KEYS: list[str | list[str]] = ["number", ["origin", "value"], ["number", "origin"]]
WINDOWS = st.none() | st.tuples(st.integers(0, 24), st.integers(1, 12)).map(
    lambda ticks: (START + ticks[0] * HOUR, START + (ticks[0] + ticks[1]) * HOUR)
)
Window = tuple[datetime, datetime] | None


def make(folder: Path, batches: Any) -> GroupWorld:
    world = GroupWorld.create(folder, keys=KEYS, groups=["origin"], key_eps=0.05)
    for is_loaded, rows in batches:
        world.add(rows, load=is_loaded)
    return world


def counts(world: GroupWorld, key: str | list[str], window: Window) -> tuple[Counter[Any], int]:
    """The rows of each value, and how many rows have a NULL."""
    columns = [key] if isinstance(key, str) else key
    places = [SCHEMA.names.index(name) for name in columns]
    found: Counter[Any] = Counter()
    for row in world.rows:
        if window is None or (row[0] is not None and window[0] <= row[0] < window[1]):
            value = tuple(plain(row[place]) for place in places)
            found[None if None in value else value if len(columns) > 1 else value[0]] += 1
    nulls = found.pop(None, 0)
    return found, nulls


def plain(value: Any) -> Any:
    """A value that equals the same one: every NaN is one, and -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def shown(value: Any) -> Any:
    return tuple(map(plain, value)) if isinstance(value, tuple) else plain(value)


def check_key(world: GroupWorld, key: str | list[str], window: Window) -> None:
    wh, (true, nulls) = world.open(), counts(world, key, window)
    asked = [
        tuple(math.nan if v == "NaN" else v for v in value) if isinstance(value, tuple) else value
        for value in true
    ]
    for mode in ("exact", "approximate"):
        options: dict[str, Any] = {"key": key, "between": window, "mode": mode}
        for value, answer in zip(true, wh.frequency(asked, **options), strict=True):
            assert answer.hi >= true[value]
            assert (answer.N, answer.nulls) == (sum(true.values()), nulls)
            assert mode != "exact" or (answer.lo, answer.count, answer.hi) == (true[value],) * 3
        top = wh.top(3, **options)
        assert all(answer.lo <= true[shown(answer.value)] <= answer.hi for answer in top)
        if mode == "exact":
            assert [answer.count for answer in top] == [rows for _, rows in true.most_common(3)]
        hitters = {shown(answer.value) for answer in wh.heavy_hitters(0.2, **options)}
        assert {value for value in true if true[value] >= 0.2 * sum(true.values())} <= hitters
        assert wh.self_join(**options).count == sum(rows**2 for rows in true.values())
        assert wh.key_range(None, None, **options).count == sum(true.values())


@pytest.mark.slow
@SOME
@given(BATCHES, WINDOWS, st.sampled_from([*KEYS, "origin"]))
def test_every_key_is_counted_as_a_counter_does(batches: Any, window: Window, key: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = make(Path(folder), batches)
        check_key(world, key, window)
        assert warehouse.verify(world.path).ok
        world.load_live()
        check_key(world, key, window)


ROWS = [(START + i * HOUR / 3, "ab"[i % 2], (i % 5) or None, float(i % 3), None) for i in range(60)] + [
    (None, None, 1, math.nan, None)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    return make(tmp_path_factory.mktemp("keys"), [(True, ROWS), (True, ROWS[:30]), (False, ROWS[20:])])


def test_the_first_key_is_the_default_and_groups_are_keys(world: GroupWorld) -> None:
    wh = world.open()
    assert [key.name for key in wh.keys] == ["number", "origin, value", "number, origin", "origin"]
    assert wh.frequency(1, mode="exact").count == counts(world, "number", None)[0][1]
    (answer,) = wh.frequency([("a", 0.0)], key=["origin", "value"], mode="exact")
    assert (answer.value, answer.count) == (("a", 0.0), counts(world, ["origin", "value"], None)[0]["a", 0.0])
    assert wh.frequency(("a", 0.0), key=["origin", "value"]).value == ("a", 0.0)
    table = wh.top(2, key=["origin", "value"]).to_arrow()
    assert table.column("value").to_pylist()[0].keys() == {"1", "2"}


def test_a_range_of_tuples_may_name_the_first_columns_alone(world: GroupWorld) -> None:
    key = ["number", "origin"]
    true = counts(world, key, None)[0]
    wh = world.open()
    for low, high in itertools.product([None, (1,), (2, "b"), (1.5,)], [None, (3,), (4, "a"), (4, "b")]):
        inside = sum(
            rows
            for value, rows in true.items()
            if (low is None or value[: len(low)] >= low) and (high is None or value[: len(high)] < high)
        )
        assert wh.key_range(low, high, key=key).count == inside


def test_two_warehouses_join_on_a_key_of_several_columns(world: GroupWorld, tmp_path: Path) -> None:
    other = make(tmp_path, [(True, ROWS[::2]), (False, ROWS[::3])])
    for key in KEYS:
        mine, theirs = counts(world, key, None)[0], counts(other, key, None)[0]
        pairs = sum(mine[value] * theirs[value] for value in mine)
        assert world.open().inner_product(other.open(), key=key).count == pairs


@pytest.mark.parametrize(
    ("value", "key", "words"),
    [
        ("a", "nothing", "nothing"),
        ("a", ["origin", "price"], "price"),
        (("a",), ["number", "origin"], "tuple of 2 values"),
        (("a", 1), ["number", "origin"], "number"),
        ([("a", 1.0, 2)], ["origin", "value"], "tuple of 2 values"),
        ("a", 7, "7"),
    ],
)
def test_what_is_no_key_is_refused(world: GroupWorld, value: Any, key: Any, words: str) -> None:
    with pytest.raises(InputError) as told:
        world.open().frequency(value, key=key)
    assert words in str(told.value)


def test_a_replayed_batch_counts_once(tmp_path: Path) -> None:
    world = make(tmp_path, [(False, ROWS[:20])])
    before = list(world.open().top(50, key=["origin", "value"]))
    world.batches, rows = 0, list(world.rows)
    world.add(ROWS[:20], load=False)
    world.rows = rows
    assert [(a.value, a.count) for a in world.open().top(50, key=["origin", "value"])] == [
        (a.value, a.count) for a in before
    ]


def test_rows_with_null_that_are_counted_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: a NULL in a column is a value of its own."""
    encode = CompositeKey.encode

    def counted(self: CompositeKey, events: pa.Table) -> KeyColumn:
        found = encode(self, events)
        return KeyColumn(found.names, found.codes, found.null & False)

    monkeypatch.setattr(CompositeKey, "encode", counted)
    world = make(tmp_path, [(True, ROWS)])
    with pytest.raises(AssertionError):
        check_key(world, ["number", "origin"], None)


@pytest.mark.parametrize("field", ["nulls", "known"])
def test_verify_finds_another_summary_of_a_further_key(tmp_path: Path, field: str) -> None:
    world = make(tmp_path, [(True, ROWS), (False, ROWS[:40])])
    assert warehouse.verify(world.path).ok
    path = f"{world.path}/ledger"
    rows = DeltaTable(path).to_pyarrow_table()
    place = rows.column_names.index("more_keys")
    summaries = rows.column(place).to_pylist()
    for summary in summaries:
        for own in summary.values() if summary else ():
            own[field] = own[field] + 1 if field == "nulls" else [rows + 1 for rows in own[field]]
    changed = pa.array(summaries, rows.schema.field(place).type)
    write_deltalake(path, rows.set_column(place, rows.schema.field(place), changed), mode="overwrite")
    failed = {check.name for check in warehouse.verify(world.path).checks if not check.ok}
    assert any("number, origin" in name for name in failed), failed


def test_verify_finds_another_run_of_a_further_key(tmp_path: Path) -> None:
    world = make(tmp_path, [(True, ROWS)])
    path = f"{world.path}/more_keys/number.origin"
    (file,) = Path(path).rglob("*.parquet")
    rows = pq.read_table(file)
    counts = [count + 1 for count in rows.column("count").to_pylist()]
    place = rows.column_names.index("count")
    pq.write_table(rows.set_column(place, rows.schema.field(place), pa.array(counts)), file)
    failed = {check.name for check in warehouse.verify(world.path).checks if not check.ok}
    assert failed
