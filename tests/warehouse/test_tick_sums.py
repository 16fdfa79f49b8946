"""Sums by tick are those of a plain loop over fractions, whatever the pieces, and are read as written."""

from __future__ import annotations

import math
import random
import struct
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tidemark.warehouse.columns import code_sums, tick_sums
from tidemark.warehouse.columns.code_sums import CodeSums, EachSums
from tidemark.warehouse.columns.exact_sums import UNIT_BITS, Sums
from tidemark.warehouse.columns.tick_sums import TickSummer, TickSums
from tidemark.warehouse.columns.ticks import Window

HUGE, TINY = 1.7976931348623157e308, 5e-324
DOUBLES = [HUGE, -HUGE, TINY, -TINY, 0.0, 0.1, -1e16, 2.0**53 + 2, 3e-310, math.inf, -math.inf]
WHOLE = [-(2**63), 2**63 - 1, 2**32, -(2**32) - 1, 2**31, -(2**31), 0, -1, 7]


def drawn(rng: random.Random, kind: str) -> Any:
    if kind == "whole":
        return rng.choice([*WHOLE, rng.randrange(-(2**63), 2**63)])
    return rng.choice([*DOUBLES, rng.uniform(-1, 1) * 2.0 ** rng.randrange(-1074, 1023), rng.gauss(0, 9)])


def truth(values: list[Any], ticks: list[int]) -> dict[int, Sums]:
    found: dict[int, Sums] = defaultdict(Sums)
    for value, tick in zip(values, ticks, strict=True):
        if isinstance(value, float) and math.isinf(value):
            found[tick] += Sums(negative=int(value < 0), positive=int(value > 0))
        else:
            unit = 2**UNIT_BITS if isinstance(value, float) else 1
            exact = int(Fraction(value) * unit)
            found[tick] += Sums(1, exact, exact**2)
    return dict(found)


def summed(values: list[Any], ticks: list[int], kind: str, cuts: list[int]) -> TickSums:
    summer = TickSummer(np.unique([*ticks, -5, 10**6]))
    dtype = np.float64 if kind == "double" else np.int64
    rows = np.array(values, dtype), np.array(ticks, np.int64)
    for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
        summer.add(rows[0][start:stop], rows[1][start:stop])
    return summer.finish()


def check(seed: int) -> None:
    rng = random.Random(seed)
    kind, count = rng.choice(["double", "whole"]), rng.choice([0, 1, 5, 300])
    values = [drawn(rng, kind) for _ in range(count)]
    if kind == "double" and seed % 2:  # whose digits are all stored
        values = [1.0 if abs(one) < 2.0**-1022 else one for one in values]
    ticks = [rng.choice([3, 4, 9, 400, -(2**62)]) for _ in range(count)]
    if seed % 3 == 0:
        ticks.sort()
    cuts = sorted(rng.randrange(count + 1) for _ in range(rng.randrange(4)))
    found, exact = summed(values, ticks, kind, cuts), truth(values, ticks)
    assert found.by_tick == exact
    assert TickSums.from_bytes(found.to_bytes()).by_tick == exact
    for window in (Window(3, 5), Window(4, 401), Window(-(2**63), 10**9), Window(5, 9)):
        assert found.within(window) == sum(
            (sums for tick, sums in exact.items() if window.start <= tick < window.stop), Sums()
        )
    middle = count // 2
    halves = [
        summed(values[:middle], ticks[:middle], kind, []),
        summed(values[middle:], ticks[middle:], kind, []),
    ]
    assert TickSums.joined(halves).by_tick == exact


def check_all(*, greatest: bool = False) -> None:
    for seed in range(24):
        check(seed)
    if greatest:
        check_greatest_digits()


def test_sums_are_those_of_fractions() -> None:
    check_all()


def check_greatest_digits() -> None:
    """More rows than are summed at once, whose digits and their products are the greatest that fit."""
    rows, greatest = 2**18, 2**20 * (1 + 2**21 + 2**42)
    doubles = (math.nextafter(2.0**28, 0), -(2.0**27), math.pi * 2**8, math.nextafter(2.0, 0))
    for value in (2**63 - 1, -(2**63), -1, 2**20, 2**41 - 2**20, greatest, -greatest, *doubles):
        numbers = np.full(rows, value)
        codes = np.full(rows, 7)
        # The unit of a chunk is that of 1/2.
        numbers[: rows // code_sums.BLOCK_ROWS] = numbers.dtype.type(0.5)
        numbers = np.ascontiguousarray(numbers.reshape(code_sums.BLOCK_ROWS, -1).T).ravel()
        summer = TickSummer(np.array([7]))
        summer.add(numbers[: rows // 2], codes[: rows // 2])
        summer.add(numbers[rows // 2 :], np.broadcast_to(codes[:1], rows // 2))  # as tasks give a common tick
        exact = truth([value, numbers[0].item()], [0, 1])
        count = int(np.count_nonzero(numbers == value))
        expected = Sums(*(count * getattr(exact[0], name) for name in ("count", "total", "squares")))
        others = Sums(*((rows - count) * getattr(exact[1], name) for name in ("count", "total", "squares")))
        assert summer.finish().by_tick == {7: expected + others}


def test_many_rows_of_the_greatest_digits_are_not_rounded() -> None:
    check_greatest_digits()


def check_stretches(patch: pytest.MonkeyPatch) -> None:
    """Short and long stretches, of numbers that have few and many digits in their common unit."""
    rng = np.random.default_rng(5)
    patch.setattr(code_sums, "CHUNK_ROWS", 2**13 + 2**12)
    sizes = np.array([1, 9000, *[20] * 90, 8192, 700, 1024, 1023, 17_000, 2, 8193])
    edges = np.concatenate([[0], np.cumsum(sizes)])
    rows = edges[-1]
    for numbers in (
        rng.lognormal(3, 1, rows),
        rng.normal(0, 1e-300, rows),
        rng.uniform(-1, 1, rows) * 2.0 ** rng.integers(-40, 40, rows),
        np.where(rng.random(rows) < 0.001, 2.0**1023, 1e290) * rng.random(rows),
        rng.integers(0, 2**53, rows) * 5e-324,
        rng.integers(-(2**63), 2**63 - 1, rows),
        rng.integers(-(2**22), 2**22, rows),
    ):
        summer = CodeSums(len(sizes))
        summer.add(numbers, edges[:-1], np.arange(len(sizes)))
        for code, found in enumerate(summer.each()):
            own = numbers[edges[code] : edges[code + 1]].tolist()
            assert found == exact_sums_of(own)


def exact_sums_of(numbers: list[Any]) -> Sums:
    if isinstance(numbers[0], int):
        return Sums(len(numbers), sum(numbers), sum(one**2 for one in numbers))
    quotients = [one.as_integer_ratio() for one in numbers]
    whole = [above << UNIT_BITS + 1 - below.bit_length() for above, below in quotients]
    return Sums(len(whole), sum(whole), sum(one**2 for one in whole))


def test_stretches_of_any_length_are_added_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    check_stretches(monkeypatch)


def _a_first_digit_that_is_too_long(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(code_sums, "_SQUARES", 75)


def _blocks_without_the_last(patch: pytest.MonkeyPatch) -> None:
    right = code_sums._blocks
    patch.setattr(code_sums, "_blocks", lambda rows: right(rows)[:1])


@pytest.mark.parametrize("broken", [_a_first_digit_that_is_too_long, _blocks_without_the_last])
def test_mistakes_with_stretches_are_caught(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeWarning)):
        check_stretches(monkeypatch)


def test_parts_that_are_joined_have_the_sums_of_each() -> None:
    first, second = CodeSums(2), CodeSums(1)
    first.add(np.array([1.0, 2.0, -math.inf]), np.array([0, 1]), np.array([0, 1]))
    second.add(np.array([2.0**700]), np.array([0]), np.array([0]))
    joined = EachSums.joined([first.each(), second.each()])
    assert list(joined) == [*first.each(), *second.each()]
    assert joined[1] == Sums(1, 2 << UNIT_BITS, 4 << 2 * UNIT_BITS, negative=1)
    assert joined[2].total == 1 << UNIT_BITS + 700
    third = CodeSums(2)
    third.add(np.array([5e-324, 3.0, math.inf]), np.array([0, 2]), np.array([0, 1]))
    added = EachSums.added([first.each(), third.each()])
    assert list(added) == [a + b for a, b in zip(first.each(), third.each(), strict=True)]


def _a_unit_of_fewer_digits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(code_sums, "DIGITS", 40)


def _squares_without_the_middle(patch: pytest.MonkeyPatch) -> None:
    right = code_sums._sums_of
    patch.setattr(code_sums, "_sums_of", lambda unit, limbs: right(unit, [*limbs[:9], 0, 0, *limbs[11:]]))


def _rows_of_a_tick_that_seem_to_follow_each_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tick_sums, "stable_order", lambda codes: np.arange(len(codes)))


def _the_exponent_of_one_is_more(patch: pytest.MonkeyPatch) -> None:
    right = code_sums._exponent
    patch.setattr(code_sums, "_exponent", lambda number: right(number) + 8)


def _the_greatest_unit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(code_sums.CodeSums, "_unit_of", lambda _, greatest, __: greatest + 16)


def _too_many_rows_at_once(patch: pytest.MonkeyPatch) -> None:
    for module in (code_sums, tick_sums):
        patch.setattr(module, "BLOCK_ROWS", 2**18)
    patch.setattr(code_sums, "CHUNK_ROWS", 2**18)


@pytest.mark.parametrize(
    "broken",
    [
        _a_unit_of_fewer_digits,
        _squares_without_the_middle,
        _rows_of_a_tick_that_seem_to_follow_each_other,
        _the_exponent_of_one_is_more,
        _the_greatest_unit,
        _too_many_rows_at_once,
    ],
)
def test_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    broken(monkeypatch)
    with pytest.raises((AssertionError, RuntimeWarning)):  # that a sum does not fit into 64 bits
        check_all(greatest=True)


def test_bytes_that_are_cut_are_refused() -> None:
    data = summed([1.5, 2.5, -3.0], [1, 2, 2], "double", []).to_bytes()
    for length in range(len(data)):
        with pytest.raises((ValueError, struct.error)):
            TickSums.from_bytes(data[:length])
