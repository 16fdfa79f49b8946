"""The command, DuckDB's SQL and Spark's compare a given value as a plain list does, for every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.jobs.said import tidemark
from tests.query.given_forms import DAY_US, EPOCH, MEASURES, STORED, TIMES, Given, drawn
from tests.query.test_comparisons import floored
from tests.query.typed_world import exact_rows, make
from tidemark import query
from tidemark.query import Warehouse
from tidemark.warehouse.columns import keys, value_encoding

NUMBERS = [name for name in MEASURES if name not in TIMES]
DOUBLES = {"f32", "f64"}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return query.open(make(tmp_path_factory.mktemp("doors")))


def written(exact: Any) -> str | None:
    """A given value as text that means it exactly; None if there is none of 38 digits."""
    if isinstance(exact, bytes):
        return exact.decode()
    if isinstance(exact, (bool, float)):
        return str(exact).lower()
    number = Decimal(exact.numerator) / exact.denominator
    is_exact = Fraction(number) == exact and number.as_tuple().exponent >= -18 and abs(number) < 10**18
    return f"{number:f}" if is_exact else None


def time_text(exact: Fraction) -> str:
    us, fine = divmod(exact, 1)
    moment = (EPOCH + timedelta(microseconds=int(us))).replace(tzinfo=None)
    return f"{moment.isoformat(sep=' ', timespec='microseconds')}{int(fine * 1000):03d}"


def given(name: str, count: int) -> list[tuple[Any, str]]:
    """Given values of a column that text can say, each with its text."""
    found: list[tuple[Any, str]] = []
    for one in drawn(name, Random(f"doors {name}"), 6 * count):
        text = _text_of(name, one)
        if text is not None and len(found) < count:
            found.append((one.exact, text))
    return found


def _text_of(name: str, one: Given) -> str | None:
    if name in TIMES:
        return time_text(one.exact)
    if name == "raw":
        return str(one.exact.hex())
    if name == "text" and b"\x00" in one.exact:
        return None  # no command and no literal of SQL has it
    if name in DOUBLES and not isinstance(one.exact, float):
        double = float(one.exact)
        return repr(double) if Fraction(double) == one.exact else None
    return written(one.exact)


def truths(name: str, exact: Any) -> tuple[int, int, int]:
    """How many rows are less than the value, equal to it, and not above it."""
    stored = exact_rows(name)
    less, equal = sum(value < exact for value in stored), sum(value == exact for value in stored)
    return less, equal, less + equal


def check_command(wh: Warehouse, capsys: pytest.CaptureFixture[str], name: str) -> None:
    asked = ["-w", wh.contents().store.uri, "--mode", "exact", "--json"]
    values = given(name, 7)
    said = tidemark(capsys, "freq", *asked, "--key", name, "--", *texts(values))
    counts = [one["count"] for one in said.json["answers"]]
    assert counts == [truths(name, exact)[1] for exact, _ in values], (values, counts)
    for exact, text in values[:3]:
        said = tidemark(capsys, "quantile", "1", *asked, "--measure", "i64", "--where", f"{name}={text}")
        found = 0 if "empty window" in said.err else said.json["N"]
        assert found == truths(name, exact)[1], text
    if name in MEASURES:
        said = tidemark(capsys, "rank", *asked, "--measure", name, "--", *texts(values))
        ranks = [one["rank"] for one in said.json["answers"]]
        assert ranks == [truths(name, exact)[2] for exact, _ in values], (values, ranks)


def texts(values: Sequence[tuple[Any, str]]) -> list[str]:
    return [text for _, text in values]


@pytest.mark.parametrize("name", STORED)
def test_the_command_compares_exactly(wh: Warehouse, capsys: pytest.CaptureFixture[str], name: str) -> None:
    check_command(wh, capsys, name)


def literals(name: str, exact: Any, text: str) -> Iterator[str]:
    """The value in DuckDB's SQL."""
    quoted = "'" + text.replace("'", "''") + "'"
    if name == "raw":
        yield f"unhex('{text}')"
    elif name == "flag":
        yield from (text, quoted)
    elif name in DOUBLES:
        yield f"{quoted}::DOUBLE"
    elif name in NUMBERS:
        yield from (text, f"{quoted}::DECIMAL(38, 18)")
    else:
        yield quoted
    if name in TIMES:
        if exact.denominator == 1:
            yield from (f"{quoted}::TIMESTAMP", f"'{text}+00'::TIMESTAMPTZ")
        if exact % DAY_US == 0:
            yield f"DATE '{text[:10]}'"
        if abs(exact) < 9 * 10**15:
            yield f"{quoted}::TIMESTAMP_NS"


def check_duckdb(wh: Warehouse, name: str) -> None:
    for exact, text in given(name, 3):
        less, equal, not_above = truths(name, exact)
        for literal in literals(name, exact, text):
            found = wh.sql(
                f"SELECT f.count, r.count FROM frequency({literal}, key := '{name}', mode := 'exact') f, "
                f"key_range(NULL, {literal}, key := '{name}') r"
            ).fetchall()
            assert found == [(equal, less)], literal
            if name in MEASURES:
                ranks = f"SELECT rank FROM rank({literal}, '{name}', mode := 'exact')"
                is_text = name not in TIMES and literal.startswith("'") and "::" not in literal
                assert is_text or wh.sql(ranks).fetchall() == [(not_above,)], literal


@pytest.mark.parametrize("name", STORED)
def test_duckdb_compares_exactly(wh: Warehouse, name: str) -> None:
    check_duckdb(wh, name)


@pytest.mark.parametrize("name", ["day", "ts", "d10"])
def test_a_door_that_floors_is_caught(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for module in (keys, value_encoding):
        monkeypatch.setattr(module, "standing", floored)
    checks: list[Callable[[], None]] = [
        lambda: check_command(wh, capsys, name),
        lambda: check_duckdb(wh, name),
    ]
    for check in checks:
        with pytest.raises(AssertionError):
            check()


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    query.register_views(spark, make(tmp_path_factory.mktemp("spark-doors")), "typed")
    return spark


def spark_literal(name: str, text: str) -> str:
    if name == "raw":
        return f"X'{text}'"
    if name in DOUBLES:
        return f"CAST('{text}' AS DOUBLE)"
    return f"CAST('{text}' AS DECIMAL(38, 18))" if name in NUMBERS else f"'{text}'"


@pytest.mark.parametrize("name", ["i64", "d10", "day", "ts"])
def test_spark_compares_exactly(views: SparkSession, name: str) -> None:
    values = given(name, 5)
    rows = ", ".join(f"({i}, {spark_literal(name, text)})" for i, (_, text) in enumerate(values))
    asked = {
        "f.count": f"typed_frequency(x, key => '{name}', mode => 'exact') f",
        "r.count": f"typed_key_range(NULL, x, key => '{name}') r",
    }
    if name in MEASURES:
        asked["k.rank"] = f"typed_rank(x, '{name}', mode => 'exact') k"
    calls = ", ".join(f"LATERAL {call}" for call in asked.values())
    found = views.sql(f"SELECT {', '.join(asked)} FROM VALUES {rows} t(i, x), {calls} ORDER BY i").collect()
    for row, (exact, text) in zip(found, values, strict=True):
        less, equal, not_above = truths(name, exact)
        assert tuple(row) == (equal, less, not_above)[: len(asked)], text
