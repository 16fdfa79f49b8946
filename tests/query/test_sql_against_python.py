"""Random calls of functions in SQL and in Python: equal answers, or refusals in the same words."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.query.in_duckdb import in_python, in_sql, literal
from tests.query.test_sql_points import made
from tidemark import query, stream
from tidemark.query.sql import sql_rows

START = datetime(2001, 1, 1, tzinfo=UTC)
OF_MEASURES = ["quantile", "rank", "cdf", "histogram", "summary", "largest", "smallest"]
OF_KEYS = [
    "frequency",
    "heavy_hitters",
    "hierarchy",
    "top",
    "key_range",
    "self_join",
    "distinct",
    "new_keys",
]
IN_SLOTS = ["persistent", "persistence"]
NAMES = [*OF_MEASURES, *OF_KEYS, *IN_SLOTS]
CALLS = 60


@dataclass(frozen=True)
class Text:
    """An argument that is written in another way than `literal` would."""

    sql: str
    value: Any

    def __str__(self) -> str:
        return self.sql


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    """History and live rows: doubles with NaN and infinities, integers beyond 2**53, keys with NULL."""
    rng = random.Random(1)
    uri = tmp_path_factory.mktemp("agree") / "w"

    def rows(count: int) -> pa.Table:
        wild = [math.nan, math.inf, -math.inf, 0.1, 2.5]
        doubles = [rng.choice([*wild, rng.uniform(-9, 9)]) for _ in range(count)]
        times = [START + timedelta(minutes=rng.randrange(14_400)) for _ in range(count)]
        return pa.table(
            {
                "x": doubles,
                "whole": [rng.choice([rng.randrange(-9, 9), 2**53 + 1, None]) for _ in range(count)],
                "k": [rng.choice(["a", "b", "it's", "é", None]) for _ in range(count)],
                "t": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )

    wh = made(uri, rows(300), measures=["x", "whole"], key="k", groups=["k"], time="t", tick="1h", eps=0.05)
    stream.append(None, uri, rows(60), source="s", batch=0)
    return wh


def subjects(name: str, rng: random.Random) -> list[Any]:
    """Arguments for the first parameters; some are refused."""
    some: dict[str, list[Any]] = {
        "quantile": [0.5, 0, 1, Decimal("0.9"), [0.1, 0.99], 1.5, Text("'half'", "half")],
        "rank": [2, 0.1, 2.5, math.inf, [0.5, 3], 2**53 + 1, "x"],
        "cdf": [0.25, -math.inf, [1, 2], math.nan],
        "histogram": [[-9, 0.5, 9], [0, 1e30], [3, 1], 0, [Text("1", 1), Text("2", 2), Text("4", 4)]],
        "frequency": ["a", "it's", ["a", "zz"], 3],
        "heavy_hitters": [Decimal("0.1"), 0.3, 2],
        "hierarchy": [Decimal("0.1"), 0.3, 0],
        "top": [1, 3, 0],
        "largest": [1, 7, 0],
        "smallest": [2, 1000, -1],
        "persistent": [Decimal("0.5"), 0.9, 7],
        "persistence": ["é", ["a", "b"], 1],
    }
    if name == "key_range":
        return rng.sample(["a", "b", "z"], 2)
    return [rng.choice(some[name])] if name in some else []


def options(name: str, rng: random.Random) -> dict[str, Any]:
    """Named arguments; some are refused."""
    measures = name in OF_MEASURES
    modes = ["quick", "accurate", "exact"] if measures else ["approximate", "exact"]
    given: dict[str, Any] = {"separator": rng.choice(["t", "'", "é", "", 5])} if name == "hierarchy" else {}
    if rng.random() < 0.6:
        given["mode"] = rng.choice([*modes, "best"] if rng.random() < 0.2 else modes)
    if measures and rng.random() < 0.4:
        given["measure"] = rng.choice(["x", "whole"])
    window = rng.random()
    if window < 0.3:
        given["last"] = rng.choice(["1d", "36 hours", "7d", "a week"])
    elif window < 0.6:
        start = START + timedelta(hours=rng.randrange(120))
        given["since"] = rng.choice([start, start.isoformat(), start.date().isoformat()])
        given["until"] = start + timedelta(hours=rng.choice([1, 24, 90, -1]))
    if name in IN_SLOTS:
        if rng.random() < 0.5:
            given["slot"] = rng.choice(["1 day", "12h", "90 minutes"])
    elif rng.random() < 0.2:
        given["every"] = rng.choice(["1 day", "2d", "1 minute"])
    if measures and rng.random() < 0.4:
        given["where"] = rng.choice([{"k": "a"}, {"k": ["b", "it's"]}, {"nothing": 1}, {"k": "zz"}, "x > 0"])
    if measures and rng.random() < 0.2 and "where" not in given:
        given["by"] = "k"
        given |= rng.choice([{}, {"top": 2}, {"groups": ["é", "zz"]}])
    return given


def sql_call(name: str, positional: list[Any], named: dict[str, Any]) -> str:
    """The integers have functions of their own, whose columns hold them."""
    if named.get("measure") == "whole":
        name, named = f"whole_{name}", {key: value for key, value in named.items() if key != "measure"}
    arguments = [*map(literal, positional), *(f'"{key}" := {literal(value)}' for key, value in named.items())]
    return f'SELECT * FROM "{name}"({", ".join(arguments)})'


def plain(value: Any) -> Any:
    if isinstance(value, Text):
        return value.value
    return [plain(item) for item in value] if isinstance(value, list) else value


def in_python_too(wh: query.Warehouse, name: str, positional: list[Any], named: dict[str, Any]) -> Any:
    """The answers in rows as SQL has them; a refusal as text."""
    given = {key: value for key, value in named.items() if key not in {"since", "until"}}
    if "since" in named:
        given["between"] = (named["since"], named["until"])
    method = getattr(wh, name)
    return in_python(lambda: list(rows_of(method(*map(plain, positional), **given))))


def rows_of(found: Any) -> Iterator[tuple[Any, Any]]:
    """Each answer, or bin, with what has its scope."""
    if hasattr(found, "edges"):
        yield from ((bin_, found) for bin_ in found)
    elif hasattr(found, "COLUMNS"):
        yield found, found
    else:
        for one in found:
            yield from rows_of(one)


def shown(value: Any) -> Any:
    """A number exactly, and a time as an instant, whatever its type."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else value
    if isinstance(value, float):
        return repr(value) if not value.is_integer() else int(value)
    return value


def check(wh: query.Warehouse, seed: int) -> tuple[int, int]:
    """How many calls were answered, and refused."""
    rng, answered, refused = random.Random(seed), 0, 0
    for _ in range(CALLS):
        name = rng.choice(NAMES)
        positional, named = subjects(name, rng), options(name, rng)
        text = sql_call(name, positional, named)
        found, expected = in_sql(wh, text), in_python_too(wh, name, positional, named)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected, text
            refused += 1
            continue
        assert len(found) == len(expected), text
        columns = wh.sql(text).columns
        for row, (answer, scope) in zip(found, expected, strict=True):
            cells = dict(zip(columns, row, strict=True))
            for column in (*answer.COLUMNS, "n", "m", "mode"):
                value = getattr(answer if hasattr(answer, column) else scope, column)
                assert shown(cells[column]) == shown(value), (text, column)
            window = cells["window"] and (cells["window"]["start"], cells["window"]["end"])
            assert window == scope.window, text
        answered += 1
    return answered, refused


@pytest.mark.slow
def test_sql_answers_as_python_does(wh: query.Warehouse) -> None:
    answered, refused = check(wh, seed=0)
    assert answered > CALLS / 3
    assert refused > CALLS / 10


def test_points_in_the_type_of_the_measure_are_the_broken_variant(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_rows, "point_type", lambda own, _given, **_: own)
    monkeypatch.setattr(sql_rows, "edge_type", lambda own, _given, **_: own)
    with pytest.raises(AssertionError):
        check(wh, seed=0)
