"""Answers by each of several keys, against Counters of the tuples of all rows."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.query.answers import several, single
from tests.query.groupworld import HOUR, ONE, ROWS, SCHEMA, START, GroupWorld, Row
from tests.soak import draws
from tests.warehouse.damages import rewrite
from tests.warehouse.disk import replace_rows, rows_of
from tests.warehouse.test_verify import failures
from tests.warehouse.test_verify_keys import at
from tidemark import query, stream, warehouse
from tidemark.query import InputError
from tidemark.warehouse.columns.composite_keys import CompositeKey, ReorderedKey
from tidemark.warehouse.columns.keys import KeyColumn
from tidemark.warehouse.projections.key_counts import KeyCounts

SOME = settings(max_examples=draws(3), suppress_health_check=[HealthCheck.too_slow])
EPS = 0.1
PAIR, NUMBERS = ("origin", "number"), ("value", "price")
KEYS: list[tuple[str, ...]] = [("origin",), ("number",), PAIR, NUMBERS]
OPTIONS: dict[str, Any] = {
    "key": "origin",
    "keys": ["number", list(PAIR), list(NUMBERS)],
    "measures": ONE,
    "groups": ["origin"],
    "key_eps": EPS,
    "key_delta": 1e-9,  # so a bound that holds with probability 1 - delta holds in every example
}
Window = tuple[datetime, datetime] | None
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["load", "stream", "stream", "stream", "again", "take"]),
        st.lists(ROWS, min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=7,
)
WHOLE: st.SearchStrategy[Window] = st.none() | st.tuples(st.integers(0, 20), st.integers(1, 12)).map(
    lambda ticks: (START + ticks[0] * HOUR, START + (ticks[0] + ticks[1]) * HOUR)
)
HALVES = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(
    lambda halves: (START + halves[0] * HOUR / 2, START + (halves[0] + halves[1]) * HOUR / 2)
)
MODES = st.sampled_from(["approximate", "exact"])


def place(value: Any) -> Any:
    """What a value is ordered and counted by: text by its bytes, NaN after every number, -0.0 as 0.0."""
    if isinstance(value, str):
        return value.encode()
    return (1, 0) if value != value else (0, value)  # noqa: PLR0124  NaN


def places(value: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(place, value))


@dataclass
class SeveralKeys(GroupWorld):
    """A warehouse with the four keys, and all of its rows; `last` is the batch that came last."""

    last: tuple[list[Row], bool] | None = field(default=None)

    @classmethod
    def make(cls, folder: Path, steps: Sequence[tuple[str, list[Row]]] = ()) -> SeveralKeys:
        world = cls(GroupWorld.create(folder, **OPTIONS).path, [])
        for step, rows in steps:
            world.do(step, rows)
        return world

    def do(self, step: str, rows: list[Row]) -> None:
        """A load, a batch of a stream, the batch that came last once more, or a load of what is live."""
        if step == "take":
            self.load_live()
        elif step == "again" and self.last:
            came, batches = list(self.rows), self.batches
            self.batches -= 1
            self.add(self.last[0], load=self.last[1])
            self.rows, self.batches = came, batches
        else:
            self.last = (rows, step == "load")
            self.add(rows, load=step == "load")

    def inside(self, window: Window) -> list[Row]:
        return [row for row in self.rows if window is None or (row[0] and window[0] <= row[0] < window[1])]

    def values(self, columns: Sequence[str], window: Window = None) -> list[tuple[Any, ...]]:
        """The tuples of the columns of the rows in the window; None for NULL."""
        spots = [SCHEMA.names.index(name) for name in columns]
        return [tuple(row[i] for i in spots) for row in self.inside(window)]

    def counts(self, columns: Sequence[str], window: Window = None) -> tuple[Counter[Any], int]:
        """The rows of each tuple by its places, and the rows with NULL in one of the columns."""
        values = self.values(columns, window)
        counted = Counter(places(value) for value in values if None not in value)
        return counted, len(values) - counted.total()


def asked_as(columns: Sequence[str], value: Sequence[Any]) -> Any:
    """A tuple as it is asked for: of one column its value."""
    return value[0] if len(columns) == 1 else tuple(value)


def told(columns: Sequence[str], answer: Any) -> tuple[Any, ...]:
    """The places of the value of an answer."""
    return places([answer.value] if len(columns) == 1 else answer.value)


def candidates(columns: Sequence[str], world: SeveralKeys) -> list[tuple[Any, ...]]:
    """Each tuple of the warehouse once, and some that no row has."""
    seen = {places(value): value for value in world.values(columns) if None not in value}
    never: dict[str, Any] = {"origin": "never", "number": 2.5, "value": 77.0, "price": Decimal("0.005")}
    found = list(seen.values())
    found.append(tuple(never[name] for name in columns))
    found += [(*value[:-1], never[columns[-1]]) for value in found[:2]]
    return found


def check_counts(
    wh: query.Warehouse, world: SeveralKeys, columns: tuple[str, ...], window: Window, mode: Any
) -> None:
    """Every key's count in a window of whole ticks, the heavy ones, the range and the join."""
    counts, nulls = world.counts(columns, window)
    how: dict[str, Any] = {"key": columns, "between": window, "mode": mode}
    rows = counts.total()
    values = candidates(columns, world)
    answers = several(wh.frequency([asked_as(columns, value) for value in values], **how))
    for value, answer in zip(values, answers, strict=True):
        true = counts[places(value)]
        assert (answer.N, answer.nulls, answer.key) == (rows, nulls, ", ".join(columns))
        assert answer.in_history <= true
        assert answer.lo <= true <= answer.hi
        assert abs(answer.count - true) <= EPS * answer.m
        if mode == "exact":
            assert answer.lo == answer.count == answer.hi == true
    for phi in (0.02, 0.3, 1):
        found = {told(columns, one): one for one in wh.heavy_hitters(phi, **how)}
        heavy = {key for key, count in counts.items() if count >= phi * rows}
        assert heavy <= set(found)
        assert {key for key, one in found.items() if one.certain} <= heavy
        assert all(one.lo <= counts[key] <= one.hi for key, one in found.items())
        if mode == "exact":
            assert heavy == set(found)
    best = wh.top(3, **how)
    assert len(best) == min(3, len(counts))
    if mode == "exact":
        assert [one.count for one in best] == [count for _, count in counts.most_common(3)]
        assert all(one.count == counts[told(columns, one)] for one in best)
    squares = sum(count * count for count in counts.values())
    joined = wh.self_join(**how)
    assert joined.lo == joined.count == joined.hi == squares
    assert (joined.N, joined.nulls) == (rows, nulls)


def check_range(
    wh: query.Warehouse,
    world: SeveralKeys,
    columns: tuple[str, ...],
    window: Window,
    ends: Sequence[Any],
    *,
    cut: bool,
) -> None:
    """The rows between two ends; an end may have values of the first columns only, or be None."""
    low, high = ends
    counts, _ = world.counts(columns, window)

    def below(key: Any, end: Any) -> bool:
        return bool(key[: len(end)] < places(end))

    true = sum(
        count
        for key, count in counts.items()
        if (low is None or not below(key, low)) and (high is None or below(key, high))
    )
    given = [None if end is None else asked_as(columns, end) for end in ends]
    answer = wh.key_range(*given, key=columns, between=window)
    assert answer.lo <= true <= answer.hi
    assert cut or answer.lo == answer.count == answer.hi


def check_cut(
    wh: query.Warehouse, world: SeveralKeys, columns: tuple[str, ...], window: Window, mode: Any
) -> None:
    """In a window that cuts ticks, history's part of these is open and all bounds hold the truth."""
    counts, _ = world.counts(columns, window)
    how: dict[str, Any] = {"key": columns, "between": window, "mode": mode}
    values = candidates(columns, world)
    for value, answer in zip(
        values, several(wh.frequency([asked_as(columns, v) for v in values], **how)), strict=True
    ):
        assert answer.in_history <= counts[places(value)]
        assert answer.lo <= counts[places(value)] <= answer.hi
        assert answer.lo <= answer.count <= answer.hi
    for one in wh.top(3, **how):
        assert one.lo <= counts[told(columns, one)] <= one.hi
    joined = wh.self_join(**how)
    assert joined.lo <= sum(count * count for count in counts.values()) <= joined.hi


ENDS: dict[str, list[Any]] = {
    "origin": ["", "a", "a\x00", "b", "\U0010ffff"],
    "number": [-(2**63), -(2**70), 0.5, 1, 2, 2**63 - 1, 2**63, math.inf],
    "value": [-math.inf, -1.5, 0.0, 1, math.inf, math.nan],
    "price": [Decimal(-3), 0, 0.001, Decimal("9.99"), 10**9],
}


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[str, ...], list[Any]]:
    """A key and two ends, each a tuple of its first columns, or None."""
    columns = draw(st.sampled_from(KEYS))
    ends: list[Any] = []
    for _ in range(2):
        whole = tuple(draw(st.sampled_from(ENDS[name])) for name in columns)
        ends.append(draw(st.sampled_from([None, *(whole[:n] for n in range(1, len(whole) + 1))])))
    return columns, ends


@pytest.mark.slow
@SOME
@given(STEPS, STEPS, WHOLE, HALVES, st.lists(ranges(), min_size=8, max_size=8), MODES)
def test_each_key_is_answered_as_its_tuples_are(
    steps: Any, others: Any, whole: Window, halves: Window, asked: Any, mode: Any
) -> None:
    """In windows of whole ticks and in those that cut ticks; ranges may end at a prefix; warehouses join."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as another:
        world = SeveralKeys.make(Path(one), steps)
        wh = world.open()
        for columns in KEYS:
            check_counts(wh, world, columns, whole, mode)
            check_cut(wh, world, columns, halves, mode)
        for columns, ends in asked:
            check_range(wh, world, columns, whole, ends, cut=False)
            check_range(wh, world, columns, halves, ends, cut=True)
        report = warehouse.verify(world.path)
        assert report.ok, str(report)

        other = SeveralKeys.make(Path(another), others)
        other_wh = other.open()
        for columns in KEYS:
            mine, theirs = world.counts(columns, whole)[0], other.counts(columns, whole)[0]
            answer = wh.inner_product(other_wh, key=columns, between=whole)
            true = sum(count * theirs[key] for key, count in mine.items())
            assert answer.lo == answer.count == answer.hi == true


# One small world for everything that is not drawn.

NOBODY: Any = None


def some_rows(seed: int, count: int = 40) -> list[Row]:
    """Rows of four hours; of each key some are NULL, in the first column or the last."""
    rows: list[Row] = []
    for i in range(seed, seed + count):
        origin = [NOBODY, "a", "a", "b", "a\x00", "a"][i % 6]
        number = [1, -1, 1, None, 2**63 - 1][i % 5]
        value = [0.0, -0.0, math.nan, None][i % 4]
        rows.append((START + i % 8 * HOUR / 2, origin, number, value, None if i % 7 == 0 else Decimal(i % 3)))
    return rows


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SeveralKeys:
    """Four loads, so a merge, then five live batches, so ranges of the ledger's cascade."""
    steps = [("load", some_rows(i)) for i in range(4)] + [("stream", some_rows(50 + i)) for i in range(5)]
    return SeveralKeys.make(tmp_path_factory.mktemp("several"), steps)


@pytest.fixture
def world(sound: SeveralKeys, tmp_path: Path) -> SeveralKeys:
    """A copy, to be changed."""
    return sound.copy(tmp_path)


def wrong(world: SeveralKeys) -> bool:
    """Whether the checks find an answer that is wrong."""
    try:
        for mode in ("approximate", "exact"):
            for window in (None, (START + HOUR, START + 3 * HOUR)):
                for columns in KEYS:
                    check_counts(world.open(), world, columns, window, mode)
    except AssertionError:
        return True
    return False


def test_the_right_variant_is_right(world: SeveralKeys) -> None:
    assert failures(world.path) == {}
    assert not wrong(world)
    world.do("again", [])
    assert not wrong(world)
    world.do("take", [])
    assert failures(world.path) == {}
    assert not wrong(world)


def test_the_columns_of_a_key_may_be_named_in_any_order(sound: SeveralKeys) -> None:
    wh = sound.open()
    true = sound.counts(PAIR)[0][places(("a", 1))]
    assert true
    for key in (PAIR, list(PAIR), frozenset(PAIR)):
        answer = single(wh.frequency(("a", 1), key=key, mode="exact"))
        assert (answer.count, answer.key) == (true, "origin, number")
    assert several(wh.frequency([("a", 1), ("a", 5)], key=PAIR, mode="exact"))[0].count == true
    assert several(wh.frequency([["a", 1]], key=PAIR, mode="exact"))[0].count == true


@pytest.mark.parametrize("is_broken", [False, True])
def test_values_are_in_the_order_in_which_the_columns_are_named(
    sound: SeveralKeys, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """In the question and in each answer. The broken variant takes the declared order."""
    if is_broken:
        monkeypatch.setattr(ReorderedKey, "as_named", lambda key, _: key)
    wh, turned = sound.open(), PAIR[::-1]
    asks: list[Callable[[Any, Any], Any]] = [
        lambda key, value: wh.frequency(value, key=key, mode="exact"),
        lambda key, value: wh.frequency([value], key=key)[0],
        lambda key, value: wh.persistence(value, key=key),
        lambda key, value: next(one for one in wh.top(99, key=key) if one.value == value),
        lambda key, value: next(one for one in wh.top(99, key=key, every="24h") if one.value == value),
        lambda key, value: next(one for one in wh.persistent(0.01, key=key) if one.value == value),
    ]
    try:
        for ask in asks:
            one, other = ask(PAIR, ("a", 1)), ask(turned, (1, "a"))
            assert (one.value, other.value) == (("a", 1), (1, "a"))
            assert (one.key, other.key) == ("origin, number", "number, origin")
            assert int(one) == int(other) > 0
        assert wh.sql("SELECT count FROM frequency('1,a', key := 'number,origin')").fetchall() == [
            (int(asks[0](PAIR, ("a", 1))),)
        ]
        assert wh.distinct(key=turned).count == wh.distinct(key=PAIR).count
        with pytest.raises(InputError, match="range of keys goes by the declared order"):
            wh.key_range((1, "a"), None, key=turned)
        with pytest.raises(InputError, match="a key of number, origin is a tuple of 2"):
            wh.frequency((1,), key=turned)
    except (AssertionError, InputError):
        assert is_broken
    else:
        assert not is_broken


def test_the_option_key_is_the_default(sound: SeveralKeys) -> None:
    wh = sound.open()
    assert [key.name for key in wh.keys] == ["origin", "number", "origin, number", "value, price"]
    assert (
        single(wh.frequency("a", mode="exact")).count
        == single(wh.frequency("a", key="origin", mode="exact")).count
    )
    assert wh.top(1)[0].key == "origin"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda wh: wh.frequency("a", key="nothing"),
            "no key nothing here. Declared: origin; number; origin and",
        ),
        (lambda wh: wh.frequency(1.0, key="value"), "no key value here"),
        (lambda wh: wh.top(key=["origin", "price"]), "no key origin and price here"),
        (lambda wh: wh.heavy_hitters(0.1, key=[*PAIR, "price"]), "no key number and origin and price here"),
        (lambda wh: wh.self_join(key=7), "named by its column or a list of its columns, got 7"),
        (lambda wh: wh.self_join(key=[]), "named by its column"),
        (lambda wh: wh.self_join(key=["origin", 3]), "named by its column"),
        (lambda wh: wh.frequency(("a",), key=PAIR), "tuple of 2 values in this order, got ('a',)"),
        (lambda wh: wh.frequency(("a", 1, 2), key=PAIR), "tuple of 2 values"),
        (lambda wh: wh.frequency("ab", key=PAIR), "a key of origin, number is a tuple of 2 values"),
        (lambda wh: wh.frequency(["ab"], key=PAIR), "tuple of 2 values"),
        (lambda wh: wh.frequency([("a", 1), ("a",)], key=PAIR), "tuple of 2 values"),
        (
            lambda wh: wh.frequency((1, "a"), key=PAIR),
            "cannot compare 1 with 'origin', which is of type string",
        ),
        (lambda wh: wh.frequency(("a", "1"), key=PAIR), "number"),
        (lambda wh: wh.frequency(("a", None), key=PAIR), "number"),
        (lambda wh: wh.frequency((None, 1), key=PAIR), "origin"),
        (lambda wh: wh.frequency("a", key="number"), "number"),
        (lambda wh: wh.key_range("a", None, key=PAIR), "tuple of 2 values"),
        (lambda wh: wh.key_range((), None, key=PAIR), "tuple of 2 values"),
        (lambda wh: wh.key_range(None, ("a", 1, 1), key=PAIR), "tuple of 2 values"),
        (lambda wh: wh.key_range(("a", "b"), None, key=PAIR), "number"),
        (lambda wh: wh.heavy_hitters(0, key=PAIR), "phi must lie in (0, 1]"),
    ],
)
def test_what_cannot_be_asked_is_told(
    sound: SeveralKeys, ask: Callable[[query.Warehouse], object], words: str
) -> None:
    with pytest.raises(InputError) as found:
        ask(sound.open())
    assert words in str(found.value)


def test_keys_of_other_columns_do_not_join(sound: SeveralKeys, tmp_path: Path) -> None:
    other = GroupWorld.create(tmp_path, groups=None, keys=[["number", "origin"], "origin"])
    with pytest.raises(InputError, match="do not join"):
        sound.open().inner_product(other.open(), key=PAIR)
    with pytest.raises(InputError, match="no key number here"):
        sound.open().inner_product(other.open(), key="number")
    assert sound.open().inner_product(other.open(), key="origin").count == 0


# Deliberately broken variants: each must be caught by the checks that the tests above use.


def test_rows_with_null_that_are_counted_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CompositeKey.encode

    def greedy(key: CompositeKey, events: pa.Table) -> KeyColumn:
        for part in key.parts:
            i = events.column_names.index(part.name)
            column = events.column(i)
            plain = column.cast(pa.string()) if part.is_text else column
            zero = Decimal(0) if pa.types.is_decimal(plain.type) else 0
            filled = pc.fill_null(plain, "" if part.is_text else pa.scalar(zero, plain.type))
            events = events.set_column(i, part.name, filled)
        return right(key, events)

    monkeypatch.setattr(CompositeKey, "encode", greedy)
    for step in ("load", "stream"):
        assert wrong(SeveralKeys.make(tmp_path, [(step, some_rows(0))]))


def test_the_ledgers_summary_of_another_key_is_caught(
    world: SeveralKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = {"origin, number": "value, price", "value, price": "origin, number"}
    fields = {
        counts.key.name: counts.ledger_field
        for counts in warehouse.open_snapshot(world.path).options.key_counts
    }

    def other(counts: KeyCounts) -> str:
        return fields[swapped.get(counts.key.name, counts.key.name)]

    monkeypatch.setattr(KeyCounts, "ledger_field", property(other))
    assert wrong(world)
    assert any("live counts hold" in name for name in failures(world.path))


def test_a_batch_that_comes_twice_is_caught(world: SeveralKeys) -> None:
    table = pa.table(
        [pa.array([row[i] for row in some_rows(0)], SCHEMA.types[i]) for i in range(len(SCHEMA.names))],
        schema=SCHEMA,
    )
    assert stream.append(None, world.path, table, source="another", batch=0)
    assert wrong(world)


# What verify finds.

FURTHER = [("number",), PAIR]


def tampered(world: SeveralKeys, columns: tuple[str, ...], change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the summary of a further key in the ledger's rows of batches that are live."""
    rows = rows_of(world.path, "ledger")
    changed = rows.to_pylist()
    field = counts_of(world, columns).ledger_field
    for row in changed:
        if row["rows"]:
            row["keys"][field] = change(row["keys"][field])
    replace_rows(world.path, "ledger", pa.Table.from_pylist(changed, schema=rows.schema))


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "one NULL more": lambda keys: keys | {"nulls": keys["nulls"] + 1},
    "too many known": lambda keys: keys | {"known": [count + 1 for count in keys["known"]]},
    "too few known": lambda keys: keys | {"known": [count - 1 for count in keys["known"]]},
    "nothing listed": lambda keys: (
        keys | {"texts": keys["texts"] and [], "numbers": keys["numbers"] and [], "known": [], "slack": []}
    ),
    "cells too low": lambda keys: keys | {"cells": [0] * len(keys["cells"])},
    "no summary": lambda _: None,
}


@pytest.mark.slow
@pytest.mark.parametrize(("how", "columns"), [*zip(TAMPERED, cycle(FURTHER), strict=False)])
def test_a_tampered_summary_of_a_further_key_is_found(
    world: SeveralKeys, columns: tuple[str, ...], how: str
) -> None:
    tampered(world, columns, TAMPERED[how])
    found = failures(world.path)
    assert list(found) == [f"keys of {', '.join(columns)}: live counts hold their bounds"]


def other_tuple(rows: pa.Table) -> pa.Table:
    """A tuple that was not there takes the place of the last one."""
    last = rows.column("key")[-1].as_py()
    keys = [key + b"\xff" if key == last else key for key in rows.column("key").to_pylist()]
    return rows.set_column(0, "key", pa.array(keys, pa.binary()))


RUNS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "one more": at("count", 1, lambda count: count + 1),
    "another tick": at("tick", 0, lambda tick: tick - 1),
    "another tuple": other_tuple,
    "a row twice": lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, rows.num_rows - 1)]),
}


def counts_of(world: SeveralKeys, columns: tuple[str, ...]) -> KeyCounts:
    return warehouse.open_snapshot(world.path).options.key_count(columns)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "columns"), [*zip(RUNS, cycle([PAIR, NUMBERS]), strict=False)])
def test_a_tampered_run_of_a_further_key_is_found(
    world: SeveralKeys, columns: tuple[str, ...], how: str
) -> None:
    projection = counts_of(world, columns)
    assert projection.runs_table == f"keys/{'.'.join(columns)}"
    rewrite(world.path, projection.runs_table, "L01", RUNS[how])
    found = failures(world.path)
    found.pop("files: every named file is there", None)  # a file may be of another size now
    assert f"{projection.name}: runs are sorted and summed, marks are exact" in found
    assert all(name.startswith(f"{projection.name}: ") for name in found)


@pytest.mark.slow
def test_a_run_whose_digests_do_not_match_is_found(world: SeveralKeys) -> None:
    """One byte of a file, which no log tells."""
    projection = counts_of(world, PAIR)
    path = next((world.path / projection.runs_table).glob("run=L01*/*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    assert projection.name in " ".join(failures(world.path))
    with pytest.raises(warehouse.DamagedWarehouse, match=path.stem):
        world.open().self_join(key=PAIR)
    assert world.open().self_join(key="number").count


@pytest.mark.slow
def test_a_changed_mark_of_a_further_key_is_found(world: SeveralKeys) -> None:
    projection = counts_of(world, PAIR)
    rewrite(world.path, projection.marks_table, "L01", at("count", -1, lambda count: count + 1))
    assert any(name.startswith(f"{projection.name}: ") for name in failures(world.path))
