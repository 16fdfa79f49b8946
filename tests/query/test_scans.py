"""Exact scans of events agree with plain Python over the visible rows, for any measure, group and filter."""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.in_duckdb import damage_for_duckdb
from tidemark import query, stream, warehouse
from tidemark.query.reading import checked_files, connections, number_parts
from tidemark.query.reading.sorted_parts import RankedValues
from tidemark.query.scans import duckdb_files, event_scan, held_rows, open_scan, row_source
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.query.scans.event_scan import EventScan
from tidemark.query.scans.expressions import checked_expression
from tidemark.warehouse import DamagedWarehouse, InputError
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, Window
from tidemark.warehouse.columns.value_encoding import Measure, encode_values
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.races import replace_files
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.visible_files import VisibleFile, visible_files
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.snapshots import system_tables
from tidemark.warehouse.snapshots.system_tables import Contents

Row = dict[str, Any]
Group = tuple[Any, ...]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY = 11_000
SMALL_GROUPS = Tuning(group_rows=16)  # several row groups in each file
FIELDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "k": (pa.string(), ["", "a", "ab", "é" * 20, "\U0010ffff", "12", None]),
    "b": (pa.binary(), [b"", b"\x00", b"\xff" * 20, b"a", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "i8": (pa.int8(), [-128, -1, 0, 1, 127, None]),
    "n": (pa.int64(), [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1, None]),
    "f": (pa.float32(), [-0.0, 0.0, 0.1, -1.5, math.inf, -math.inf, math.nan, None]),
    "x": (pa.float64(), [-0.0, 0.0, 0.1, 5e-324, math.inf, -math.inf, math.nan, 1e300, None]),
    "p": (
        pa.decimal128(9, 2),
        [Decimal("-9999999.99"), Decimal("0.00"), Decimal("1.25"), Decimal("7.10"), None],
    ),
    "q": (pa.decimal128(18, 18), [Decimal("0." + "9" * 18), Decimal("-0." + "9" * 18), Decimal(0), None]),
    "d": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2001, 2, 3), date(9999, 12, 31), None]),
    "u": (
        pa.timestamp("us", tz="UTC"),
        [EPOCH - timedelta(microseconds=1), EPOCH, datetime(2001, 2, 3, 4, 5, 6, 7, UTC), None],
    ),
    "Odd-Näme": (pa.int32(), [1, 2, 3, None]),
    "value": (pa.float64(), [0.5, 1.5, math.nan, None]),
    "wide": (pa.decimal128(38, 2), [Decimal("1" * 30), None]),
    "nested": (pa.struct([("a", pa.int32())]), [{"a": 1}, None]),
}
SCHEMA = pa.schema(
    [("t", pa.timestamp("us", tz="UTC")), *((name, kind) for name, (kind, _) in FIELDS.items())]
)
MEASURES = {
    "i8": "byte",
    "n": "long",
    "f": "float",
    "x": "double",
    "p": "decimal(9,2)",
    "q": "decimal(18,18)",
    "d": "date",
    "u": "timestamp",
    "Odd-Näme": "integer",
    "value": "double",
    "t": "timestamp",
}
KEYS = ["k", "b", "flag", *MEASURES]


def known(condition: Callable[..., bool], *names: str) -> Callable[[Row], bool]:
    """The condition on these columns, false where one of them is NULL."""
    return lambda row: all(row[name] is not None for name in names) and condition(*(row[n] for n in names))


def above(limit: float) -> Callable[[float], bool]:
    """To DuckDB NaN is greater than all numbers."""
    return lambda value: value > limit or math.isnan(value)


# Expressions, and what they mean in Python.
EXPRESSIONS: dict[str, Callable[[Row], bool]] = {
    "k LIKE 'a%'": known(lambda k: k.startswith("a"), "k"),
    "K IN ('a', '') AND n >= 0": known(lambda k, n: k in {"a", ""} and n >= 0, "k", "n"),
    "x > 0": known(above(0), "x"),
    "value > 1 AND f > -2": known(lambda v, f: above(1)(v) and above(-2)(f), "value", "f"),
    "flag IS NOT TRUE": lambda row: row["flag"] is not True,
    "p * 2 = 2.5 OR d < DATE '1970-01-01'": lambda row: (
        row["p"] == Decimal("1.25") or (row["d"] is not None and row["d"] < date(1970, 1, 1))
    ),
    'year(u) = 2001 AND "odd-Näme" BETWEEN 1 AND 2': known(
        lambda u, odd: u.year == 2001 and 1 <= odd <= 2, "u", "Odd-Näme"
    ),
    "u >= TIMESTAMPTZ '1970-01-01 00:00:00+00:00'": known(lambda u: u >= EPOCH, "u"),
    "value > 2": known(above(2), "value"),
    "TRY_CAST(k AS INTEGER) = 12": lambda row: row["k"] == "12",
    "b = ''::BLOB OR length(k) = 20": lambda row: row["b"] == b"" or row["k"] == "é" * 20,
    "wide IS NULL": lambda row: row["wide"] is None,
    "i8 > 127": lambda row: False,  # noqa: ARG005  no row
}


@dataclass
class World:
    """A warehouse, and the rows that are visible in it."""

    uri: Path
    random: Random
    history: list[Row] = field(default_factory=list, repr=False)
    live: list[Row] = field(default_factory=list, repr=False)
    streamed: int = 0

    @classmethod
    def of(cls, uri: Path, seed: int) -> World:
        """Loads, merges, live batches that went into history, live batches, and an unfinished batch."""
        warehouse.create(None, uri, ["x", "n"], schema=SCHEMA, time="t", eps=0.1, kappa=2, key="k")
        world = cls(uri, Random(seed))
        for number in range(5):
            world.load(40, f"night-{number}")
        world.stream(30)
        world.stream(30)
        warehouse.load(None, uri, tuning=SMALL_GROUPS)
        world.history, world.live = world.history + world.live, []
        warehouse.maintain(None, uri, grace="0 s")
        world.stream(20)
        world.stream(25)
        world.unfinished(50)
        return world

    def load(self, rows: int, name: str) -> None:
        drawn = self.rows(rows)
        warehouse.load(None, self.uri, table(drawn), name, tuning=SMALL_GROUPS)
        self.history += drawn

    def stream(self, rows: int) -> None:
        drawn = self.rows(rows)
        self._append(drawn)
        self.live += drawn
        self.streamed += 1

    def unfinished(self, rows: int) -> None:
        """A batch whose rows are in `events` and which is not in the ledger."""
        drawn = [{**row, "k": "no number"} for row in self.rows(rows)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ledger_table, "append_batch", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                self._append(drawn)

    def _append(self, rows: list[Row]) -> None:
        stream.append(
            None,
            self.uri,
            table(rows),
            source="web",
            batch=self.streamed,
            tuning=SMALL_GROUPS,
        )

    def rows(self, count: int) -> list[Row]:
        first = self.random.randint(0, 8)
        return [
            {
                "t": self.random.choice([None, *(self.time(first + day) for day in (0, 0, 1, 1, 2))]),
                **{name: self.random.choice(values) for name, (_, values) in FIELDS.items()},
            }
            for _ in range(count)
        ]

    def time(self, day: int) -> datetime:
        return EPOCH + timedelta(days=FIRST_DAY + day, microseconds=self.random.randrange(86_400_000_000))

    @property
    def contents(self) -> Contents:
        return query.open(self.uri).contents()


def facts(world: World) -> list[dict[str, Any]]:
    """The files of `events` with their statistics."""
    actions = DeltaTable(str(world.uri / "events")).get_add_actions(flatten=True)
    found: list[dict[str, Any]] = pa.table(actions).to_pylist()
    return found


@dataclass(frozen=True)
class Asked:
    """What a scan is asked for."""

    measure: str = "x"
    by: tuple[str, ...] = ()
    equal: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    text: str | None = None
    window: Window = ALL_TIME

    def scan(self, contents: Contents, **more: Any) -> EventScan:
        expression = None if self.text is None else checked_expression(self.text, contents.columns)
        return EventScan(
            contents,
            self.typed,
            [self.window],
            equal=dict(self.equal),
            expression=expression,
            by=self.by,
            **more,
        )

    @property
    def typed(self) -> Measure:
        return Measure(self.measure, MEASURES[self.measure])

    def holds(self, row: Row) -> bool:
        """Whether the row lies in the window."""
        tick = NO_TICK if row["t"] is None else (row["t"] - EPOCH) // timedelta(days=1)
        return self.window == ALL_TIME or self.window.start <= tick < self.window.stop

    def selects(self, row: Row) -> bool:
        """Whether a row of the window is selected and belongs to a group."""
        return (
            all(row[name] is not None for name in self.by)
            and all(plain(row, name) in set(map(comparable, values)) for name, values in self.equal)
            and (self.text is None or EXPRESSIONS[self.text](row))
        )


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def plain(row: Row, name: str) -> Any:
    """The value of a column as Python compares it: NaN is a word, the zeros are one, floats have 32 bits."""
    value = row[name]
    return comparable(float(np.float32(value)) if name == "f" and value is not None else value)


def comparable(value: Any) -> Any:
    """A value as Python compares it; what is asked for is not rounded, so 0.1 is no float of 32 bits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def stored(values: Sequence[Any], measure: Measure) -> list[Any]:
    """The stored values of a measure that are not NULL, NaN last."""
    kind = SCHEMA.field(measure.name).type
    encoded = encode_values(measure, pa.array([v for v in values if v is not None], kind)).stored.tolist()
    return sorted(encoded, key=lambda value: (isinstance(value, float) and math.isnan(value), value))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def group_order(group: Group) -> list[Any]:
    """Numbers by value with NaN last, text by its bytes, false before true."""
    return [
        (1, 0.0)
        if value == "NaN" and not isinstance(value, bytes)
        else (0, value.encode())
        if isinstance(value, str)
        else (0, value)
        for value in group
    ]


def check(world: World, asked: Asked, **more: Any) -> None:
    """All answers of the scan are those of plain Python over the visible rows."""
    inside = [
        (live, row)
        for live, rows in enumerate((world.history, world.live))
        for row in rows
        if asked.holds(row)
    ]
    expected: dict[Group, list[tuple[int, Any]]] = defaultdict(list)
    if not asked.by:
        expected[()] = []
    for live, row in inside:
        if asked.selects(row):
            expected[tuple(plain(row, name) for name in asked.by)].append((live, row[asked.measure]))
    order = sorted(expected, key=group_order)
    with asked.scan(world.contents, **more) as scan:
        groups = scan.groups()
        assert [tuple("NaN" if is_nan(v) else v for v in group.values) for group in groups] == order
        numbers = [stored([value for _, value in expected[group]], asked.typed) for group in order]
        finite = [[value for value in values if not is_nan(value)] for values in numbers]
        for group, key, values in zip(groups, order, numbers, strict=True):
            rows = expected[key]
            assert group.nulls == sum(value is None for _, value in rows)
            assert group.n == sum(value is not None for live, value in rows if not live)
            assert group.m == sum(value is not None for live, value in rows if live)
            assert group.nans == sum(map(is_nan, values))
        check_values(scan, asked, finite, [list(range(len(values), 0, -1)) for values in finite])
        for phis in ([Fraction(1, 3)], [Fraction(1, 10**9), Fraction(1)]):  # the same ones for all groups
            check_values(
                scan, asked, finite, [[ceil(phi * len(v)) for phi in phis] if v else [] for v in finite]
            )
            check_same_values(scan, finite, [[ceil(phi * len(v)) for phi in phis] for v in numbers])
        points = sorted({value for values in finite for value in values})[::-1]
        for own in ([points] * len(order), [values[::-1] for values in finite]):
            ranks = scan.ranks_at([np.array(one, asked.typed.dtype) for one in own])
            for found, values, one in zip(ranks, finite, own, strict=True):
                assert found.tolist() == [sum(v <= point for v in values) for point in one]


def check_values(scan: EventScan, asked: Asked, numbers: list[list[Any]], ranks: list[list[int]]) -> None:
    for found, values, wanted in zip(scan.values_at(ranks), numbers, ranks, strict=True):
        assert found.values.dtype == asked.typed.dtype
        np.testing.assert_array_equal(found.values, [values[rank - 1] for rank in wanted])
        assert not np.signbit(found.values[found.values == 0]).any()
        assert found.ranks_le.tolist() == [sum(v <= values[rank - 1] for v in values) for rank in wanted]


def check_same_values(scan: EventScan, numbers: list[list[Any]], ranks: list[list[int]]) -> None:
    """As many ranks of each group; some are those of NaN, or of no row."""
    found = scan.same_values_at(
        np.array(ranks, np.int64).reshape(len(ranks), max(map(len, ranks), default=0))
    )
    for own, values, ranks_le, wanted in zip(numbers, *found, ranks, strict=True):
        for value, rank_le, rank in zip(values.tolist(), ranks_le.tolist(), wanted, strict=True):
            if 1 <= rank <= len(own):
                assert (value, rank_le) == (own[rank - 1], sum(v <= own[rank - 1] for v in own))


@st.composite
def questions(draw: st.DrawFn) -> Asked:
    by = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    equal = draw(st.lists(st.sampled_from([name for name in KEYS if name != "t"]), max_size=2, unique=True))
    start = draw(st.integers(-1, 11)) + FIRST_DAY
    return Asked(
        measure=draw(st.sampled_from(list(MEASURES))),
        by=tuple(by),
        equal=tuple(
            (
                name,
                tuple(
                    draw(st.lists(st.sampled_from([v for v in FIELDS[name][1] if v is not None]), max_size=4))
                ),
            )
            for name in equal
        ),
        text=draw(st.none() | st.sampled_from(list(EXPRESSIONS))),
        window=draw(st.just(ALL_TIME) | st.integers(1, 6).map(lambda width: Window(start, start + width))),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.of(tmp_path_factory.mktemp("scans") / "a 'w' =x=1", seed=20261123)


@pytest.fixture
def own(tmp_path: Path) -> World:
    return World.of(tmp_path / "own", seed=5)


@settings(max_examples=50)
@given(asked=questions())
def test_any_question_has_the_answers_of_plain_python(world: World, asked: Asked) -> None:
    check(world, asked)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_type_is_encoded_as_in_runs(world: World, measure: str) -> None:
    check(world, Asked(measure=measure))
    check(world, Asked(measure=measure, by=(measure,)))


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_expression_selects_what_it_says(world: World, text: str) -> None:
    check(world, Asked(text=text, by=("flag",)))


def test_small_batches_for_duckdb_change_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_source, "BATCH_ROWS", 3)
    read_without_duckdb(monkeypatch)
    check(world, Asked(by=("k", "b"), text="k LIKE 'a%'", equal=(("flag", (True, False)),)))


def read_without_duckdb(patch: pytest.MonkeyPatch) -> None:
    """As in object stores, DuckDB reads no file by itself."""
    patch.setattr(ScannedColumns, "path_of", lambda *_: None)


@pytest.mark.parametrize("measure", MEASURES)
def test_rows_that_duckdb_does_not_read_by_itself_give_the_same_answers(
    world: World, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    text = "k LIKE 'a%'" if list(MEASURES).index(measure) % 2 else None
    read_without_duckdb(monkeypatch)
    check(world, Asked(measure=measure, by=(measure, "k"), equal=(("k", ("a", "12", "ab")),), text=text))


def test_rows_beyond_the_memory_stay_in_duckdb(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered by a sort, as those in memory are; few rows of large files are held."""
    for held in (0, 60):
        monkeypatch.setattr(event_scan, "most_held", lambda _, held=held: held)
        for measure in ("x", "n", "p"):
            check(world, Asked(measure=measure))
            check(world, Asked(measure=measure, by=("k",)))
            check(world, Asked(measure=measure, by=("k", "flag"), text="flag IS NOT TRUE"))


@pytest.mark.parametrize("small", [0, 10**9])
@pytest.mark.parametrize("few", [0, 8])
def test_ranks_are_selected_or_sorted(
    world: World, monkeypatch: pytest.MonkeyPatch, small: int, few: int
) -> None:
    monkeypatch.setattr(number_parts, "SMALL", small)
    monkeypatch.setattr(number_parts, "FEW", few)
    for measure in ("x", "n", "p"):
        check(world, Asked(measure=measure, by=("k",)))
        check(world, Asked(measure=measure, by=("k", "x"), window=Window(FIRST_DAY, FIRST_DAY + 4)))


@pytest.mark.parametrize("few", [0, 8])
def test_ranks_that_forget_equal_numbers_are_caught(
    world: World, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The broken variant: the rank of a value is the rank that was asked, whatever equals it."""
    monkeypatch.setattr(number_parts, "FEW", few)
    right = held_rows.HeldRows.same_values_at
    monkeypatch.setattr(
        held_rows.HeldRows,
        "same_values_at",
        lambda rows, ranks: RankedValues(right(rows, ranks).values, ranks),
    )
    with pytest.raises(AssertionError):
        check(world, Asked(by=("flag",)))


def test_rows_that_are_not_visible_are_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: rows are not filtered by the visible batches, whoever reads them."""

    def all_rows(files: Any, history: Any, live: Any, **_: Any) -> tuple[VisibleFile, ...]:
        every = [[BatchRange(one.source, 0, 2**62) for one in ranges] for ranges in (history, live)]
        return visible_files(files, *every)

    for is_read_by_duckdb in (True, False):
        with monkeypatch.context() as patch:
            if not is_read_by_duckdb:
                read_without_duckdb(patch)
            check(world, Asked())
            patch.setattr(system_tables, "visible_files", all_rows)
            with pytest.raises(AssertionError):
                check(world, Asked())


def test_a_view_that_takes_all_rows_for_visible_is_caught(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are joined: the new one has rows of history, of live batches, and of the unfinished one."""
    path = shutil.copytree(world.contents.store.files.folder or "", tmp_path / "w")
    store = Store.from_uri(str(path))
    events = tables.open_table(store, EVENTS)
    paths = [file.path for file in data_files.list_files(events)]
    joined = JoinFiles(store, pa.schema(events.schema()), tuple(paths)).run()
    replace_files(store, EVENTS, set(paths), [joined.action(new_rows=False)])
    parts = {"events": world.history + world.live, "history": world.history, "live": world.live}

    def counted(part: str) -> int:
        ((count,),) = query.open(path).sql(f"SELECT count(*) FROM {part}").fetchall()
        return int(count)

    assert {part: counted(part) for part in parts} == {part: len(rows) for part, rows in parts.items()}
    monkeypatch.setattr(Contents, "shows_all_rows", lambda _: True)
    assert counted("events") != len(parts["events"])


def test_an_expression_fails_on_visible_rows_alone(world: World) -> None:
    """`no number` is the text of the unfinished batch; the visible rows have others that are none."""
    numbers = Asked(text="CAST(k AS INTEGER) = 12", equal=(("k", ("12",)),))
    with numbers.scan(world.contents) as scan:
        (group,) = scan.groups()
    rows = [row for row in world.history + world.live if row["k"] == "12"]
    assert group.n + group.m + group.nulls == len(rows)
    with Asked(text="CAST(k AS INTEGER) = 12").scan(world.contents) as scan:
        with pytest.raises(InputError, match=r"CAST\(k AS INTEGER\) = 12.*Could not convert string"):
            scan.groups()
        with pytest.raises(InputError, match="Could not convert string"):
            scan.groups()  # each question tries again


def test_a_warehouse_without_rows_has_one_group_or_none(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], schema=SCHEMA, time="t")
    contents = query.open(tmp_path / "w").contents()
    with Asked(text="k = 'a'").scan(contents) as scan:
        (group,) = scan.groups()
        assert (group.values, group.rows, group.nulls) == ((), 0, 0)
        assert [list(values) for values, _ in scan.values_at([[]])] == [[]]
        assert [one.tolist() for one in scan.ranks_at([np.array([1.0])])] == [[0]]
    with Asked(by=("k", "n")).scan(contents) as scan:
        assert not list(scan.groups())
        assert scan.values_at([]) == []
        assert scan.ranks_at([]) == []


def test_values_that_no_row_can_have_select_nothing(world: World) -> None:
    check(world, Asked(equal=(("n", ()),)))
    for name, value in (("n", 0.5), ("i8", 1000), ("k", "nobody"), ("f", 0.1), ("flag", True)):
        with Asked(equal=((name, (value,)),)).scan(world.contents) as scan:
            (group,) = scan.groups()
            assert (group.n + group.m + group.nulls > 0) == (name == "flag")
    with pytest.raises(InputError, match="cannot compare"):
        Asked(equal=(("k", (5,)),)).scan(world.contents)
    with pytest.raises(InputError, match="cannot compare"):
        Asked(equal=(("flag", (None,)),)).scan(world.contents)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (Asked(by=("missing",)), "there is no column 'missing'. Expected one of: t, k, b"),
        (Asked(equal=(("_tick", (1,)),)), "there is no column '_tick'"),
        (Asked(by=("nested",)), "of type struct.*, which cannot group or select rows"),
        (Asked(by=("wide",)), r"of type decimal\(38,2\), which cannot group or select rows"),
        (Asked(by=("k", "n", "k")), "named twice"),
    ],
)
def test_columns_that_cannot_be_used_are_refused(world: World, asked: Asked, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        asked.scan(world.contents)


def test_ranks_and_points_are_checked(world: World) -> None:
    with Asked(by=("flag",)).scan(world.contents) as scan:
        last = scan.groups()[-1]
        with pytest.raises(InputError, match="the ranks of 2 groups, got those of 1"):
            scan.values_at([[1]])
        for rank in (0, last.stored + 1):
            with pytest.raises(InputError, match=f"ranks from 1 to {last.stored}, got"):
                scan.values_at([[], [1, rank]])
        with pytest.raises(InputError, match="NaN has no rank"):
            scan.ranks_at([np.array([1.0, math.nan]), np.array([1.0])])


def test_a_scan_has_the_contents_that_it_was_given(own: World) -> None:
    """Later batches are not part of it, and what maintenance rewrites is read once."""
    before = World(own.uri, own.random, list(own.history), list(own.live))
    contents = own.contents
    own.load(30, "late")
    warehouse.load(None, own.uri)
    warehouse.maintain(None, own.uri, grace="0 s")
    with Asked().scan(contents) as scan:
        (group,) = scan.groups()
    assert (group.n, group.m) == tuple(
        sum(r["x"] is not None for r in rows) for rows in (before.history, before.live)
    )


def test_files_outside_of_the_window_are_not_opened(own: World) -> None:
    for row in (rows := own.rows(10)):
        row["t"] = own.time(500)
    warehouse.load(None, own.uri, table(rows), "later")
    own.history += rows
    window = Window(FIRST_DAY + 490, FIRST_DAY + 510)
    for fact in facts(own):
        if fact["max._tick"] < window.start and fact["min._batch"] == fact["max._batch"]:
            (own.uri / "events" / fact["path"]).unlink()  # of several batches: they are counted in any window
    check(own, Asked(window=window))
    with Asked().scan(own.contents) as scan, pytest.raises(DamagedWarehouse, match="is missing"):
        scan.groups()


def test_damage_is_found_before_it_is_answered_from(own: World) -> None:
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    (unfinished,) = (path for path in files if b"no number" in path.read_bytes())
    unfinished.unlink()  # nobody reads it
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    victim = max((path for path in files if path != unfinished), key=lambda path: path.stat().st_size)
    damaged = bytearray(victim.read_bytes())
    for at in range(200, 1200):
        damaged[at] ^= 0x55
    victim.write_bytes(damaged)
    scan = Asked(by=("k",), text="x > 0").scan(own.contents)
    with scan, pytest.raises(DamagedWarehouse, match=victim.name):
        scan.groups()


def test_a_scan_reads_no_other_file_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("secret")
    scan = Asked(by=("k",)).scan(world.contents)
    scan.groups()
    (folder,) = scan.connection.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    assert os.path.isdir(folder)  # noqa: PTH112  DuckDB names it
    for statement in (
        f"SELECT * FROM read_text('{other}')",
        f"COPY scanned TO '{tmp_path / 'copy.csv'}'",
        f"ATTACH '{tmp_path / 'db'}'",
        "SET enable_external_access = true",
        "SET threads = 1",
        "INSTALL httpfs",
        "LOAD httpfs",
    ):
        with pytest.raises(duckdb.Error):
            scan.connection.execute(statement)
    connection = scan.connection
    scan.close()
    scan.close()
    with pytest.raises(AttributeError):  # another scan may use it now
        scan.groups()
    assert list(Path(folder).iterdir()) == []
    assert connection.execute("SHOW ALL TABLES").fetchall() == []
    assert list(tmp_path.iterdir()) == [other]


def test_a_scan_gets_the_connection_of_the_last_one_without_its_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scans at once have two. The broken variant keeps the tables."""
    asked = Asked(by=("k",))
    monkeypatch.setattr(event_scan, "most_held", lambda _: 0)  # more are kept in a table
    with asked.scan(world.contents) as first, asked.scan(world.contents) as second:
        used = [first.connection, second.connection]
        assert used[0] is not used[1]
        assert list(first.groups()) == list(second.groups())
    with asked.scan(world.contents) as third:
        assert third.connection in used
        assert third.connection.execute("FROM duckdb_tables()").fetchall() == []
    monkeypatch.setattr(open_scan, "give_back", connections._idle[os.getpid()].append)
    with asked.scan(world.contents) as fourth:
        fourth.groups()
    last = connections._idle[os.getpid()][-1].connection
    assert last.execute("FROM duckdb_tables()").fetchall() != []
    connections._idle[os.getpid()].pop()


def test_ctrl_c_ends_a_query_and_the_connection_stays_usable() -> None:
    """The signal arrives while DuckDB counts to a number that it does not reach."""
    endless = "SELECT sum(a.range * b.range % 7) FROM range(1000000000) a, range(1000000000) b"
    with connections.open_connection() as connection:

        def rows(statement: str) -> Callable[[], Any]:
            return lambda: connection.execute(statement).fetchall()

        with pytest.raises(KeyboardInterrupt):
            connections.run_query(connection, rows(endless), lambda _: signal.raise_signal(signal.SIGINT))
        assert connections.run_query(connection, rows("SELECT 1 + 1")) == [(2,)]


def test_a_scan_that_was_interrupted_starts_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, asked = row_source.RowSource.batches, Asked(by=("k",))

    def endless(source: row_source.RowSource, files: Any) -> Iterator[pa.RecordBatch]:
        while True:
            yield from batches(source, files)

    def interrupted(share: float) -> None:
        if share < 1:
            signal.raise_signal(signal.SIGINT)

    read_without_duckdb(monkeypatch)
    with asked.scan(world.contents, progress=interrupted) as scan:
        with monkeypatch.context() as patch:
            patch.setattr(row_source.RowSource, "batches", endless)
            with pytest.raises(KeyboardInterrupt):
                scan.groups()
        scan._progress = None
        with asked.scan(world.contents) as other:
            assert list(scan.groups()) == list(other.groups())


def test_progress_rises_to_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REPORT_SECONDS", 0.001)
    monkeypatch.setattr(row_source, "BATCH_ROWS", 1)
    seen: list[float] = []
    with Asked().scan(world.contents, progress=seen.append) as scan:
        scan.groups()
    assert seen[: seen.index(1.0) + 1] == sorted(seen[: seen.index(1.0) + 1])  # files that were compared
    read_without_duckdb(monkeypatch)
    seen.clear()
    with Asked(by=("k",), text="x > 0").scan(world.contents, progress=seen.append) as scan:
        scan.groups()
    assert 1.0 in seen
    reading = seen[: seen.index(1.0) + 1]
    assert reading == sorted(reading)
    assert all(0 <= share <= 1 for share in seen)
    assert scan._source.share == 1


def test_many_points_are_many_ranks(world: World) -> None:
    points = np.random.default_rng(7).normal(0, 1, 3000)
    values = [row["x"] for row in world.history + world.live if row["x"] is not None]
    with Asked().scan(world.contents) as scan:
        (found,) = scan.ranks_at([points])
        assert found.tolist() == [sum(v <= point for v in values) for point in points]
        assert [one.tolist() for one in scan.ranks_at([points[:0]])] == [[]]


def test_a_scan_of_all_ticks_is_caught(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: files are pruned by the window, and their rows are not."""
    asked = Asked(window=Window(FIRST_DAY + 3, FIRST_DAY + 4))
    check(world, asked)
    monkeypatch.setattr(Window, "covers", lambda *_: True)
    with pytest.raises(AssertionError):
        check(world, asked)
    monkeypatch.setattr(Window, "holds", lambda _, ticks: np.ones(len(ticks), dtype=bool))
    read_without_duckdb(monkeypatch)
    with pytest.raises(AssertionError):
        check(world, asked)


def test_a_file_that_was_damaged_after_its_check_is_found(own: World) -> None:
    """Its size and times of change are those of before, but for the one that nobody can set."""
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    visible = [path for path in files if b"no number" not in path.read_bytes()]
    victim = max(visible, key=lambda path: path.stat().st_size)
    before = victim.stat()
    damaged = bytearray(victim.read_bytes())
    for at in range(200, 1200):
        damaged[at] ^= 0x55
    victim.write_bytes(damaged)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    with asked.scan(own.contents) as scan, pytest.raises(DamagedWarehouse, match=victim.name):
        scan.groups()


def test_a_file_that_duckdb_alone_refuses_is_read_all_the_same(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [own.uri / "events" / fact["path"] for fact in facts(own)]
    visible = [path for path in files if b"no number" not in path.read_bytes()]
    damage_for_duckdb(max(visible, key=lambda path: path.stat().st_size))
    asked = Asked(by=("k",), text="x > 0")
    check(own, asked)
    # The broken variant.
    monkeypatch.setattr(checked_files, "_checked", LRUCache(1))
    monkeypatch.setattr(duckdb_files, "duckdb_reads", lambda *_: True)
    with asked.scan(own.contents) as scan, pytest.raises(DamagedWarehouse):
        scan.groups()


def test_damage_that_nothing_shows_is_found_within_an_hour(
    own: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant never compares a file again."""
    seen: list[str] = []
    checked = ScannedColumns._checked

    def counted(columns: ScannedColumns, file: str, names: Sequence[str]) -> dict[str, int | None]:
        seen.append(file)
        return checked(columns, file, names)

    monkeypatch.setattr(ScannedColumns, "_checked", counted)
    check(own, Asked(text="x > 0"))
    files = len(set(seen))
    assert files > 1
    seen.clear()
    check(own, Asked(text="x > 0"))
    assert seen == []
    check(own, Asked(text="value > 2"))
    assert len(set(seen)) == files  # another column
    seen.clear()
    monkeypatch.setattr(checked_files, "RECHECK_SECONDS", -1)
    check(own, Asked(text="x > 0"))
    assert set(seen) != set()


@pytest.mark.parametrize("is_trusted", [False, True])
def test_nan_in_files_of_other_tools_is_not_skipped(
    own: World, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    """Their statistics leave out NaN, which is greater than all numbers. The broken variant trusts them."""
    events = DeltaTable(str(own.uri / "events"))
    events.optimize.compact()
    if is_trusted:
        monkeypatch.setattr(ScannedColumns, "_checked", lambda _, __, names: dict.fromkeys(names, True))
        monkeypatch.setattr(checked_files, "_checked", LRUCache(9))
    asked = [Asked(), Asked(measure="n", text="value > 2"), Asked(measure="f", by=("x",))]
    with pytest.raises(AssertionError) if is_trusted else nullcontext():
        for one in asked:
            check(own, one)
