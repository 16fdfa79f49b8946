"""The greatest and least numbers are those of sorted rows: of history, live rows, windows and groups."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, stream, warehouse
from tidemark.query import EmptyWindow, Extreme, InputError, Warehouse
from tidemark.query.quantiles.wanted import Extremes

Rows = list[dict[str, Any]]
Patch = pytest.MonkeyPatch
START = datetime(2001, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    {
        "x": pa.float64(),
        "whole": pa.int64(),
        "price": pa.decimal128(9, 2),
        "day": pa.date32(),
        "k": pa.string(),
        "other": pa.int64(),
        "t": pa.timestamp("us", "UTC"),
    }
)
WILD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, None]
HALF = (START + timedelta(hours=30), START + timedelta(hours=66))


def drawn(rng: random.Random, count: int) -> Rows:
    return [
        {
            "x": rng.choice([*WILD, *(rng.gauss(0, 9) for _ in range(9))]),
            "whole": rng.choice([-(2**63), 2**63 - 1, 2**53 + 1, None, *range(-9, 9)]),
            "price": Decimal(rng.randrange(-(10**8), 10**8)).scaleb(-2),
            "day": date(2001, 1, 1) + timedelta(days=rng.randrange(400)),
            "k": rng.choice(["a", "b", "it's", None]),
            "other": rng.randrange(4),
            "t": rng.choice([None, *[START + timedelta(minutes=rng.randrange(7200))] * 30]),
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """Four loads, of which three were merged, and two live batches; a group without numbers."""
    uri, rng = tmp_path_factory.mktemp("extremes") / "w", random.Random(7)
    parts = [drawn(rng, count) for count in (150, 1, 60, 30, 60, 30)]
    parts[2].append({**drawn(rng, 1)[0], "k": "only NaN", "x": math.nan, "t": HALF[0]})
    warehouse.create(
        None,
        uri,
        ["x", "whole", "price", "day"],
        groups=["k"],
        time="t",
        tick="6h",
        kappa=2,
        eps=0.05,
        schema=SCHEMA,
    )
    for number, rows in enumerate(parts[:4]):
        warehouse.load(None, uri, pa.Table.from_pylist(rows, SCHEMA), str(number))
    for number, rows in enumerate(parts[4:]):
        stream.append(None, uri, pa.Table.from_pylist(rows, SCHEMA), source="s", batch=number)
    return uri, [row for part in parts for row in part]


def numbers(rows: Rows, measure: str) -> list[Any]:
    found = [row[measure] for row in rows if row[measure] is not None]
    return sorted(value for value in found if not (isinstance(value, float) and math.isnan(value)))


def shown(answers: Any) -> list[tuple[Any, ...]]:
    return [(one.group and dict(one.group), one.window, one.place, one.value) for one in answers]


def check(wh: Warehouse, rows: Rows, measure: str, k: int, **options: Any) -> None:
    """Of all rows, of some groups, or of each day of a window."""
    groups: list[dict[str, Any] | None] = [None]
    by = options.get("by")
    if by is not None:
        groups = [{by: value} for value in sorted({row[by] for row in rows if row[by] is not None})]
    low, high = options.get("between", (None, None))
    chosen = [row for row in rows if low is None or (row["t"] is not None and low <= row["t"] < high)]
    if "where" in options and by is None:
        groups = [options["where"]]
    for ask, reverse in ((wh.largest, True), (wh.smallest, False)):
        expected = []
        for group in groups:
            mine = [row for row in chosen if all(row[name] == value for name, value in (group or {}).items())]
            found = numbers(mine, measure)
            best = found[::-1][:k] if reverse else found[:k]
            expected += [(group, place, value) for place, value in enumerate(best, 1)]
        answers = ask(k, measure, **options)
        assert [(group, place, value) for group, _, place, value in shown(answers)] == expected
        assert all(isinstance(one, Extreme) and one.mode == "exact" for one in answers)


def check_all(world: tuple[Path, Rows]) -> None:
    uri, rows = world
    for memory in ("256MB", 0):
        wh = query.open(uri, memory=memory)
        for measure in ("x", "whole", "price", "day"):
            for k in (1, 3, 1000):
                check(wh, rows, measure, k)
                check(wh, rows, measure, k, mode="quick", between=HALF)
                check(wh, rows, measure, k, by="k", between=HALF)
                check(wh, rows, measure, k, by="other")
                check(wh, rows, measure, k, where={"k": "it's"})


@pytest.mark.slow
def test_they_are_the_ends_of_the_sorted_rows(world: tuple[Path, Rows]) -> None:
    check_all(world)


def _nan_is_a_number(patch: Patch) -> None:
    right = Extremes.ranks

    def ranks(self: Any, counts: Any) -> Any:
        found = right(self, counts)
        return found + counts.nans if self.largest else found

    patch.setattr(Extremes, "ranks", ranks)


def _the_modes_of_quantiles_hold(patch: Patch) -> None:
    patch.setattr(Extremes, "is_exact", False)


def _the_greatest_comes_last(patch: Patch) -> None:
    patch.setattr(Extremes, "ranks", lambda self, question: right(self, question)[::-1])


right = Extremes.ranks


@pytest.mark.slow
@pytest.mark.parametrize("broken", [_nan_is_a_number, _the_modes_of_quantiles_hold, _the_greatest_comes_last])
def test_mistakes_are_caught(
    world: tuple[Path, Rows], monkeypatch: Patch, broken: Callable[[Patch], None]
) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, IndexError, EmptyWindow)):
        check_all(world)


def test_windows_have_their_own(world: tuple[Path, Rows]) -> None:
    uri, rows = world
    found = query.open(uri).largest(2, "price", every="1d", between=(START, START + timedelta(days=3)))
    expected = []
    for day in range(3):
        start = START + timedelta(days=day)
        mine = [row for row in rows if row["t"] is not None and row["t"].date() == start.date()]
        expected += [(start.date(), value) for value in numbers(mine, "price")[:-3:-1]]
    assert [(one.window[0].date(), one.value) for one in found if one.window] == expected


def test_expressions_and_sql(world: tuple[Path, Rows]) -> None:
    uri, rows = world
    wh = query.open(uri)
    doubled = sorted((2 * row["price"] for row in rows), reverse=True)
    assert [one.value for one in wh.largest(3, "price * 2")] == doubled[:3]
    for name in ("largest", "smallest"):
        answers = getattr(wh, name)(3, "whole", by="k")
        told = wh.sql(f"SELECT place, value FROM {name}(3, measure => 'whole', \"by\" => ['k'])")
        assert told.fetchall() == [(one.place, str(one.value)) for one in answers]
    assert float(wh.largest(1, "price")[0]) == float(doubled[0]) / 2
    assert wh.largest(2, "price").to_arrow().column_names == ["place", "value"]
    assert "(exact) = number 1 of price" in repr(wh.smallest(1, "price")[0])


def test_what_cannot_be_asked_is_told(world: tuple[Path, Rows]) -> None:
    wh = query.open(world[0])
    bad: list[Any] = [0, -1, 1.5, "3", True]
    for k in bad:
        with pytest.raises(InputError, match="k must be a whole number of at least 1"):
            wh.largest(k, "x")
    with pytest.raises(InputError, match="needs one value for each group"):
        wh.largest(1, "x", by="k", order="-value")
    assert [one.place for one in wh.smallest(1, "price", by="k", order="-rows", top=1)] == [1]
    with pytest.raises(EmptyWindow, match="no numbers"):
        wh.largest(3, "x", where={"k": "only NaN"})
