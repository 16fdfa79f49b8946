"""Typed values for comparisons: the stored ones of every type, and given ones in all their forms.

A value is known by its exact number (`Fraction`, an infinity), its bytes or its truth, so the oracle compares
plain Python values and calls nothing of the package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

Exact = Any  # what orders: Fraction, float (an infinity), bytes or bool
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
UTC_US = pa.timestamp("us", tz="UTC")


def decimals(*texts: str) -> list[Any]:
    return [Decimal(text) for text in texts]


def days(*texts: str) -> list[Any]:
    return [date.fromisoformat(text) for text in texts]


def times(*micros: int) -> list[Any]:
    return [EPOCH + timedelta(microseconds=us) for us in micros]


# The stored values of each column, by its name.
STORED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 2, 127]),
    "i32": (pa.int32(), [-(2**31), -5, 0, 1, 10, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "f32": (pa.float32(), [-math.inf, -1.5, 0.0, 0.5, float(np.float32(0.1)), 2.0**100]),
    "f64": (pa.float64(), [-math.inf, -0.1, 0.0, 5e-324, 2.0**53, 1.7976931348623157e308]),
    "d10": (pa.decimal128(10, 2), decimals("-99999999.99", "-0.01", "0", "1.00", "1.01", "2.5")),
    "d18": (pa.decimal128(18, 4), decimals("-0.0001", "0", "0.0001", "90071992547409.9300", "1", "2")),
    "day": (pa.date32(), days("0001-01-01", "1969-12-31", "2024-01-01", "2024-01-02", "9999-12-31")),
    "ts": (UTC_US, times(-(10**15), -1, 0, 1, 1_704_067_200_000_000, 10**16)),
    "text": (pa.string(), ["", "a", "a\x00", "ab", "b", "é", "\U0001f600"]),
    "raw": (pa.binary(), [b"", b"a", b"a\x00", b"b", b"\xff", b"\xff\xff"]),
    "flag": (pa.bool_(), [False, True]),
}  # fmt: skip
UNIT = {"d10": Fraction(1, 100), "d18": Fraction(1, 10_000), "day": Fraction(DAY_US)}
MEASURES = [name for name in STORED if name not in {"text", "raw", "flag"}]
TIMES = {"day", "ts"}


def exact_of(value: Any) -> Exact:
    """What a Python value is exactly; times in microseconds since 1970."""
    if isinstance(value, datetime):
        return Fraction((value - EPOCH) // timedelta(microseconds=1))
    if isinstance(value, date):
        return Fraction((value - EPOCH.date()).days * DAY_US)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bool)):
        return value
    return value if isinstance(value, float) and math.isinf(value) else Fraction(value)


@dataclass(frozen=True)
class Given:
    """A value to compare with: what it is exactly, and one form of it."""

    exact: Exact
    form: Any


def drawn(name: str, random: Random, count: int) -> Iterator[Given]:
    """Given values of a column: stored ones, and ones just beside and between them, in random forms."""
    _, stored = STORED[name]
    for _ in range(count):
        value = random.choice(stored)
        if name in {"text", "raw", "flag"}:
            yield _other(name, value, random)
            continue
        unit = UNIT.get(name, Fraction(1))
        step = random.choice([Fraction(0), unit, unit / 2, unit / 1000, Fraction(1), unit / 3, unit * 1000])
        exact = exact_of(value)
        if name not in TIMES and isinstance(exact, Fraction):
            exact += random.choice([-1, 1]) * step
        elif name in TIMES:
            exact += random.choice([-1, 1]) * _near(step, random)
            low, high = exact_of(datetime(1, 1, 1, tzinfo=UTC)), exact_of(datetime.max.replace(tzinfo=UTC))
            exact = min(max(exact, low), high)
        yield Given(exact, random.choice(list(forms(name, exact))))


def _near(step: Fraction, random: Random) -> Fraction:
    """A distance that text can write: whole, or with three decimal digits of a microsecond."""
    return random.choice([Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 1000), Fraction(int(step))])


def forms(name: str, exact: Exact) -> Iterator[Any]:
    """Every form in which Python, numpy, pandas and pyarrow can give the value."""
    return times_of(exact) if name in TIMES else _numbers(exact)


def _numbers(exact: Exact) -> Iterator[Any]:
    if isinstance(exact, float):
        yield from (exact, np.float64(exact), np.float32(exact), Decimal(str(exact)), pa.scalar(exact))
        return
    yield exact
    if exact.denominator == 1:
        whole = int(exact)
        yield whole
        yield Decimal(whole)
        if -(2**63) <= whole < 2**63:
            yield from (
                np.int64(whole),
                np.array(whole),
                pa.scalar(whole),
                pd.Series([whole], dtype="int64")[0],
            )
        if 0 <= whole < 2**64:
            yield np.uint64(whole)
    for kind in (float, np.float32, np.float16, np.longdouble):
        with np.errstate(over="ignore"):
            try:
                number = kind(float(exact))
            except OverflowError:
                continue
        if np.isfinite(number) and Fraction(*number.as_integer_ratio()) == exact:
            yield number
    if set(_factors(exact.denominator)) <= {2, 5} and exact.denominator < 10**30:
        digits = len(str(exact.denominator)) * 4
        yield Decimal(f"{int(exact * 10**digits)}E-{digits}")


def _factors(number: int) -> Iterator[int]:
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
            yield prime
    if number != 1:
        yield number


def times_of(exact: Fraction) -> Iterator[Any]:
    """Every form of a time, in microseconds since 1970; the first ones are text."""
    us, fine = divmod(exact, 1)
    whole = EPOCH + timedelta(microseconds=int(us))
    text = whole.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    nano = int(fine * 1000)
    yield f"{text}{nano:03d}Z" if fine else f"{text}+00:00"
    yield f"{text.replace(' ', 'T')}{nano:03d}000"
    if abs(exact) < 9 * 10**15:
        ns = int(exact * 1000)
        yield from (
            np.datetime64(ns, "ns"),
            pd.Timestamp(ns, tz="UTC"),
            pa.scalar(ns, pa.timestamp("ns", tz="UTC")),
        )
        yield pd.Timestamp(ns, unit="ns").tz_localize("UTC").tz_convert("Asia/Kathmandu")
    if fine:
        return
    yield from (
        whole,
        whole.replace(tzinfo=None),
        np.datetime64(int(us), "us"),
        pa.scalar(int(us), pa.timestamp("us")),
    )
    if date(1, 1, 3) < whole.date() < date(9999, 12, 29):
        yield whole.astimezone(timezone(timedelta(hours=5, minutes=45)))
    if us % DAY_US == 0:
        yield from (
            whole.date(),
            whole.date().isoformat(),
            np.datetime64(whole.date()),
            pa.scalar(whole.date()),
        )


def _other(name: str, value: Any, random: Random) -> Given:
    if name == "flag":
        return Given(value, random.choice([value, np.bool_(value), pa.scalar(value)]))
    if name == "text":
        text = value + random.choice(["", "", "\x00", "a", "\x7f"])
        numpy = text if text.endswith("\x00") else np.str_(text)  # numpy drops zeros at the end
        return Given(text.encode(), random.choice([text, numpy, pa.scalar(text)]))
    raw = value + random.choice([b"", b"", b"\x00", b"\xff"])
    numpy = raw if raw.endswith(b"\x00") else np.bytes_(raw)
    return Given(raw, random.choice([raw, bytearray(raw), numpy, pa.scalar(raw)]))
