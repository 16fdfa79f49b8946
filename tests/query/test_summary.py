"""Summaries are those of the rows, in fractions: by window, group and condition, of history and live rows."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.query.ways import forced
from tests.warehouse.test_looped_sums import use_loop
from tidemark import query, stream, warehouse
from tidemark.query import EmptyWindow, InputError, Summary, Warehouse
from tidemark.query.quantiles import window_sums
from tidemark.query.reading.merged_parts import MergedParts, Stretches
from tidemark.query.scans import event_scan, grouped_rows, sums_query
from tidemark.query.scans.event_scan import EventScan
from tidemark.warehouse.columns import code_sums, exact_sums
from tidemark.warehouse.columns.exact_sums import Sums
from tidemark.warehouse.columns.looped_sums import LoopedSums
from tidemark.warehouse.columns.tick_sums import TickSums
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.projections import sorted_values

Rows = list[dict[str, Any]]
Patch = pytest.MonkeyPatch
START = datetime(2001, 1, 1, tzinfo=UTC)
TICK = "6h"
TINY, HUGE = 5e-324, 1.7976931348623157e308
WILD = [math.nan, math.inf, -math.inf, TINY, -TINY, 0.0, -0.0, 1e16, -1e16, 0.1, 2.0**53 + 2, 3e-310, None]


def drawn(rng: random.Random, count: int) -> Rows:
    def row(number: int) -> dict[str, Any]:
        return {
            "status": (200, 404, None)[number % 3],
            "x": rng.choice([*WILD, *(rng.gauss(0, 1) * 10.0 ** rng.randrange(-9, 9) for _ in range(20))]),
            "whole": rng.choice([-(2**63), 2**63 - 1, 2**53 + 1, None, *range(-9, 9)]),
            "price": Decimal(rng.randrange(-(10**18) + 1, 10**18)).scaleb(-2),
            "day": date(2001, 1, 1) + timedelta(days=rng.randrange(400)),
            "k": rng.choice(["a", "b", "it's", None]),
            "t": rng.choice([None, *[START + timedelta(minutes=rng.randrange(7200))] * 30]),
        }

    return [row(number) for number in range(count)]


SCHEMA = pa.schema(
    {
        "status": pa.int32(),
        "x": pa.float64(),
        "whole": pa.int64(),
        "price": pa.decimal128(18, 2),
        "day": pa.date32(),
        "k": pa.string(),
        "t": pa.timestamp("us", "UTC"),
    }
)
MEASURES = ("x", "whole", "price", "day")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Warehouse, Rows]:
    """Four loads, of which three were merged, and two live batches."""
    uri = tmp_path_factory.mktemp("summary") / "w"
    return build(uri, [*MEASURES], key="k", groups=["k"])


def build(uri: Path, measures: list[str], **options: Any) -> tuple[Warehouse, Rows]:
    rng = random.Random(7)
    parts = [drawn(rng, count) for count in (150, 1, 60, 30, 60, 30)]
    warehouse.create(None, uri, measures, time="t", tick=TICK, kappa=2, eps=0.05, schema=SCHEMA, **options)
    for number, rows in enumerate(parts[:4]):
        warehouse.load(None, uri, pa.Table.from_pylist(rows, SCHEMA), str(number))
    for number, rows in enumerate(parts[4:]):
        stream.append(None, uri, pa.Table.from_pylist(rows, SCHEMA), source="s", batch=number)
    return query.open(uri), [row for part in parts for row in part]


def rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def units(value: Any) -> Fraction:
    return Fraction(value.toordinal() if isinstance(value, date) else value)


def check(answer: Summary, rows: Rows) -> None:
    """The answer is that of the rows."""
    values = [row[answer.measure] for row in rows if row[answer.measure] is not None]
    floats = [value for value in values if isinstance(value, float)]
    numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    finite = [value for value in numbers if not (isinstance(value, float) and math.isinf(value))]
    assert (answer.N, answer.nulls) == (len(values), len(rows) - len(values))
    assert (answer.nans, answer.count) == (sum(map(math.isnan, floats)), len(finite))
    assert (answer.negative_infinities, answer.positive_infinities) == tuple(
        floats.count(value) for value in (-math.inf, math.inf)
    )
    assert (answer.min, answer.max) == ((min(numbers), max(numbers)) if numbers else (None, None))
    total: Any = sum(map(units, finite), Fraction(0))
    if not finite:
        assert (answer.sum, answer.mean) == (None, None)
        return
    mean = total / len(finite)
    if isinstance(finite[0], date):
        assert (answer.sum, answer.variance, answer.stddev) == (None, None, None)
        assert answer.mean == date.fromordinal(round(mean))
        return
    assert answer.sum == (rounded(total) if floats else total)
    assert isinstance(answer.sum, type(finite[0]))
    assert answer.mean == rounded(mean)
    if len(finite) < 2:
        assert (answer.variance, answer.stddev) == (None, None)
        return
    variance = sum((units(value) - mean) ** 2 for value in finite) / (len(finite) - 1)
    assert answer.variance == rounded(variance)
    assert answer.stddev is not None
    assert answer.stddev == pytest.approx(rounded(variance) ** 0.5, rel=1e-14)
    for other in (math.nextafter(answer.stddev, 0), math.nextafter(answer.stddev, math.inf)):
        middle = (Fraction(other) + Fraction(answer.stddev)) / 2  # the root is on the side of the answer
        assert (middle**2 <= variance) if other < answer.stddev else (middle**2 >= variance)


def inside(rows: Rows, start: datetime | None, end: datetime | None) -> Rows:
    return [
        row
        for row in rows
        if row["t"] is not None and (start is None or row["t"] >= start) and (end is None or row["t"] < end)
    ]


def check_all(wh: Warehouse, rows: Rows) -> None:
    for measure in MEASURES:
        by_index, by_scan = wh.summary(measure), wh.summary(measure, where="k IS NULL OR k IS NOT NULL")
        check(by_index, rows)
        assert (by_index.rows_scanned, by_scan.rows_scanned) == (None, len(rows))
        assert all(repr(getattr(by_index, one)) == repr(getattr(by_scan, one)) for one in Summary.COLUMNS)
    parts = wh.summary("x", every="12h")
    assert sum(one.N + one.nulls for one in parts) == len([row for row in rows if row["t"] is not None])
    for one in parts:
        assert one.window is not None
        check(one, inside(rows, *one.window))
    week = (START + timedelta(days=1), START + timedelta(days=3, hours=12))
    check(wh.summary("x", between=week), inside(rows, *week))
    cut = (START + timedelta(days=1, hours=1), START + timedelta(days=2, hours=20))
    widened = wh.summary("x", between=cut)
    assert widened.window == (START + timedelta(days=1), START + timedelta(days=3))
    check(widened, inside(rows, *widened.window))
    check(
        wh.summary("price", where="whole > 0 AND k <> 'a'"),
        [one for one in rows if (one["whole"] or 0) > 0 and one["k"] not in ("a", None)],
    )
    for way in ("runs", "scan"):
        with forced(way):
            check_groups(wh, rows, week)


def check_groups(wh: Warehouse, rows: Rows, week: tuple[datetime, datetime]) -> None:
    check(wh.summary("whole", where={"k": ["a", "it's"]}), [one for one in rows if one["k"] in ("a", "it's")])
    by_key = wh.summary("x", by="k")
    assert [one.group for one in by_key] == [{"k": "a"}, {"k": "b"}, {"k": "it's"}]
    for one in by_key:
        check(one, [row for row in rows if row["k"] == (one.group or {})["k"]])
    assert pickle.loads(pickle.dumps(by_key)).to_json() == by_key.to_json()
    for measure in ("x", "whole"):
        by_number = wh.summary(measure, by="status")
        assert [one.group for one in by_number] == [{"status": 200}, {"status": 404}]
        for one in by_number:
            check(one, [row for row in rows if row["status"] == (one.group or {})["status"]])
    found = wh.summary("x", by="k", groups=["b", "never"], every="12h", between=week)
    assert len(found) == 2 * 5
    for one in found:
        assert one.window is not None
        check(one, [row for row in inside(rows, *one.window) if row["k"] == (one.group or {})["k"]])


@pytest.mark.parametrize(("held", "is_looped"), [(2**20, False), (0, False), (2**20, True)])
def test_a_summary_is_that_of_the_rows(
    world: tuple[Warehouse, Rows], monkeypatch: Patch, held: int, is_looped: bool
) -> None:
    monkeypatch.setattr(event_scan, "most_held", lambda *_: held)
    if is_looped:
        use_loop(monkeypatch)
    check_all(*world)


def test_a_loop_that_leaves_rows_out_is_caught(world: tuple[Warehouse, Rows], monkeypatch: Patch) -> None:
    use_loop(monkeypatch)
    right = LoopedSums.add
    monkeypatch.setattr(LoopedSums, "add", lambda *given: right(*given) + 1)
    with pytest.raises(AssertionError):
        check_groups(*world, (START, START + timedelta(days=4)))


def test_all_modes_give_the_same(world: tuple[Warehouse, Rows]) -> None:
    wh, _ = world
    assert repr(wh.summary("x", mode="quick")) == repr(wh.summary("x", mode="exact")) == repr(wh.summary("x"))


def test_order_takes_the_rows(world: tuple[Warehouse, Rows]) -> None:
    wh, rows = world
    most, *_ = wh.summary("x", by="k", order="-rows", top=1)
    counted = [row["k"] for row in rows if row["k"] is not None and row["x"] is not None]
    assert max(counted.count(name) for name in "ab") == most.N
    with pytest.raises(InputError, match="order='-value' needs one value for each group"):
        wh.summary("x", by="k", order="-value")


def adds_doubles(patch: Patch) -> None:
    right = EventScan.sums

    def wrong(scan: EventScan) -> list[Sums]:
        return [
            replace(one, total=int(float(one.total >> 900)) << 900) if abs(one.total) > 2**1000 else one
            for one in right(scan)
        ]

    patch.setattr(EventScan, "sums", wrong)


def forgets_what_is_mixed(patch: Patch) -> None:
    right = sums_query.sums_of_rows
    patch.setattr(event_scan, "most_held", lambda *_: 0)  # more rows are summed by DuckDB
    patch.setattr(
        grouped_rows,
        "sums_of_rows",
        lambda rows, codes: right([(*row[:5], 0, row[6]) for row in rows], codes),
    )


def counts_infinity(patch: Patch) -> None:
    right = exact_sums.mean_of
    patch.setattr(
        "tidemark.query.quantiles.summaries.mean_of",
        lambda measure, sums: right(measure, replace(sums, count=sums.count + sums.positive)),
    )


def divides_by_all(patch: Patch) -> None:
    right = exact_sums._variance

    def wrong(measure: Measure, sums: Sums) -> tuple[int, int]:
        top, bottom = right(measure, sums)
        return top, bottom // (sums.count - 1) * sums.count

    patch.setattr(exact_sums, "_variance", wrong)


def forgets_live_rows(patch: Patch) -> None:
    patch.setattr(window_sums.WindowSums, "_of_live", lambda *_: TickSums.of(np.empty(0, np.int64), []))


def begins_a_tick_late(patch: Patch) -> None:
    right = TickSums.within

    def wrong(sums: TickSums, window: Window) -> Sums:
        return right(sums, replace(window, start=window.start + 1))

    patch.setattr(TickSums, "within", wrong)


def adds_what_lies_between_the_numbers_of_groups(patch: Patch) -> None:
    """There are NaN and NULL."""

    def wrong(one: Stretches) -> Any:
        first = one.starts[0]
        return one.numbers[first : one.stops[-1]], one.starts - first, one.parts

    patch.setattr(Stretches, "adjacent", wrong)


def takes_the_ends_of_the_last_run(patch: Patch) -> None:
    right = MergedParts.ends

    def wrong(parts: MergedParts) -> Any:
        return right(MergedParts(parts._stretches[-1:], parts.sizes, parts._dtype))

    patch.setattr(MergedParts, "ends", wrong)


BROKEN = [
    *(adds_what_lies_between_the_numbers_of_groups, takes_the_ends_of_the_last_run),
    *(adds_doubles, forgets_what_is_mixed, counts_infinity, divides_by_all),
    *(forgets_live_rows, begins_a_tick_late),
]


@pytest.mark.parametrize("broken", BROKEN)
def test_mistakes_are_caught(
    world: tuple[Warehouse, Rows], monkeypatch: Patch, broken: Callable[[Patch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check_all(*world)


def scanned(measure: Measure, codes: Sequence[int], values: Sequence[Any]) -> list[Sums]:
    connection = duckdb.connect()
    kind = pa.float64() if measure.is_double else pa.int64()
    table = pa.table({"code": pa.array(codes, pa.int64()), "v": pa.array(values, kind, from_pandas=False)})
    connection.register("given", table)
    rows = connection.execute(sums_query.sums_query(measure, "given", "v")).fetchall()
    return sums_query.sums_of_rows(rows, max(codes) + 1)


def edges() -> list[float]:
    """Around each power of two: the place of a number hangs on a logarithm, which may err."""
    powers = [math.ldexp(1.0, e) for e in range(-1074, 1024)]
    return [
        v for p in powers for v in (p, math.nextafter(p, 0), math.nextafter(p, math.inf), -p, p * 1.99999)
    ]


def test_each_double_is_added_whole() -> None:
    values = [value for value in [*edges(), HUGE, -HUGE, TINY, 0.0, -0.0] if math.isfinite(value)]
    found = scanned(Measure("v", "double"), list(range(len(values))), values)
    for value, sums in zip(values, found, strict=True):
        exact = Fraction(value) * 2**1074
        assert sums == Sums(1, int(exact), int(exact**2)), value


def test_sums_do_not_depend_on_the_order_of_the_rows() -> None:
    rng = random.Random(3)
    for kind, draw in (
        ("double", lambda: rng.choice([rng.uniform(-1, 1) * 2.0 ** rng.randrange(-1000, 1000), TINY, HUGE])),
        ("long", lambda: rng.choice([rng.randrange(-(2**63), 2**63), -(2**63), 2**32, -(2**32) - 1])),
    ):
        values = [draw() for _ in range(400)]
        codes = [rng.randrange(7) for _ in values]
        unit = 2**1074 if kind == "double" else 1
        found = scanned(Measure("v", kind), codes, values)
        pairs = sorted(zip(codes, values, strict=True), key=lambda pair: pair[0])
        for code, group in groupby(pairs, key=lambda pair: pair[0]):
            whole = [int(Fraction(value) * unit) for _, value in group]
            assert found[code] == Sums(len(whole), sum(whole), sum(v * v for v in whole))
        assert sum(found, Sums()) == scanned(Measure("v", kind), [0] * 400, values[::-1])[0]


def test_what_has_no_rows_is_told(tmp_path: Path) -> None:
    rows = pa.table({"x": pa.array([None, None], pa.float64()), "k": ["a", "b"]})
    warehouse.create(None, tmp_path / "w", ["x"], key="k", schema=rows.schema)
    wh = query.open(tmp_path / "w")
    with pytest.raises(EmptyWindow, match="no rows of 'x' yet"):
        wh.summary()
    warehouse.load(None, tmp_path / "w", rows, "a")
    with pytest.raises(EmptyWindow, match="its 2 rows of 'x' are all NULL"):
        wh.summary()
    (one, other) = wh.summary(by="k")
    assert (one.N, one.count, one.sum, one.min, other.nulls) == (0, 0, None, None, 1)
    warehouse.load(None, tmp_path / "w", pa.table({"x": [math.nan, 3.0], "k": ["a", "b"]}), "b")
    assert (wh.summary(where={"k": "a"}).nans, wh.summary(where={"k": "a"}).mean) == (1, None)
    with pytest.raises(InputError, match=r"Take one of them, such as summary\.mean"):
        float(wh.summary())
    assert (wh.summary().mean, wh.summary().stddev) == (3, None)


def test_live_rows_that_do_not_fit_into_memory_are_read(world: tuple[Warehouse, Rows]) -> None:
    wh, rows = world
    small = query.open(wh.store.uri, memory="1KB")
    check(small.summary("x"), rows)
    for one in small.summary("whole", every="2d"):
        assert one.window is not None
        check(one, inside(rows, *one.window))


def test_runs_without_sums_are_scanned_until_a_merge_makes_them(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as before:  # as a version before there were sums writes
        before.setattr(sorted_values, "sums_table", lambda _files: {})
        wh, rows = build(tmp_path / "w", ["x"])
        assert wh.summary("x").rows_scanned == len(rows)
        check(wh.summary("x"), rows)
        assert warehouse.verify(tmp_path / "w").ok
    while wh.summary("x").rows_scanned is not None:
        rows += (more := drawn(random.Random(3), 5))
        warehouse.load(None, tmp_path / "w", pa.Table.from_pylist(more, SCHEMA), f"and {len(rows)}")
        check(wh.summary("x"), rows)
    assert warehouse.verify(tmp_path / "w").ok


def test_verify_finds_sums_of_other_rows(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as broken:
        right = code_sums.CodeSums._products
        broken.setattr(code_sums.CodeSums, "_products", lambda *given: 0 * right(*given))
        build(tmp_path / "w", ["x"])
    report = warehouse.verify(tmp_path / "w")
    assert "the sums by tick of run L" in str(report)
    assert not report.ok


def test_sql_has_the_types_of_the_measure(world: tuple[Warehouse, Rows]) -> None:
    wh, _ = world
    kinds = {
        "x": ["BIGINT", "DOUBLE", "DOUBLE", "DOUBLE"],
        "whole": ["BIGINT", "DECIMAL(38,0)", "DOUBLE", "BIGINT"],
        "price": ["BIGINT", "DECIMAL(38,2)", "DOUBLE", "DECIMAL(18,2)"],
        "day": ["BIGINT", "DOUBLE", "DATE", "DATE"],
    }
    for measure, expected in kinds.items():
        found = wh.sql(f"SELECT count, sum, mean, min FROM {measure}_summary()")
        assert [str(kind) for kind in found.types] == expected
        answer = wh.summary(measure)
        assert found.fetchall() == [(answer.count, answer.sum, answer.mean, answer.min)]
