"""A warehouse for scans with columns of all types, and plain Python over its visible rows."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import strategies as st

from tidemark import query, stream, warehouse
from tidemark.query.scans.duckdb_files import ScannedColumns
from tidemark.query.scans.event_scan import EventScan
from tidemark.query.scans.expressions import checked_expression
from tidemark.warehouse.columns.ticks import ALL_TIME, NO_TICK, Window
from tidemark.warehouse.columns.value_encoding import Measure, encode_values
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.sizes import Tuning
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

    def copied(self, uri: Path) -> World:
        """One to be changed, where this one is kept for the next test."""
        shutil.copytree(self.uri, uri)
        draw = Random()
        draw.setstate(self.random.getstate())
        return World(uri, draw, list(self.history), list(self.live), self.streamed)

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


def read_without_duckdb(patch: pytest.MonkeyPatch) -> None:
    """As in object stores, DuckDB reads no file by itself."""
    patch.setattr(ScannedColumns, "path_of", lambda *_: None)
