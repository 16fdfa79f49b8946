"""Rows that can be among the first of their part: no other row can, also where many are equal."""

from __future__ import annotations

import random
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

from tidemark.query.reading import sql_text
from tidemark.query.reading.sql_text import with_most

WithMost = Callable[[str, int, str, str, int], str]
_FIRST = (
    "SELECT g, w, k, x + y FROM {} "
    "QUALIFY row_number() OVER (PARTITION BY g, w ORDER BY x + y DESC, k) <= {} ORDER BY ALL"
)


def check(tried: WithMost) -> None:
    """The first rows of each part are the same as without it, and no rows are there that have too few."""
    rng = random.Random(5)
    rows = [
        {
            "g": rng.choice(["a", "b", "c"]),
            "w": rng.choice([0.5, float("nan")]),
            "k": k,
            "x": rng.randrange(9),
            "y": k % 2,
        }
        for k in range(400)
    ]
    connection = duckdb.connect()
    connection.register("given", pa.Table.from_pylist(rows))
    for k in (1, 2, 7, 399, sql_text.FEW, sql_text.FEW + 1, 2**62):
        few = tried("given", k, "g, w", "(x + y)", 6)
        found, expected = (connection.execute(_FIRST.format(rows, k)).fetchall() for rows in (few, "given"))
        assert str(found) == str(expected)
    few = tried("given", 1, "g, w", "(x + y)", 6)
    ((parts, numbers),) = connection.execute(
        f"SELECT count(DISTINCT (g, w)), count(DISTINCT (g, w, x + y)) FROM {few}"
    ).fetchall()
    assert parts == numbers == 6


def test_the_first_rows_are_among_those_that_are_left() -> None:
    check(with_most)


def test_memory_is_not_taken_for_many_parts() -> None:
    of_all = sql_text.FEW_OF_ALL
    assert with_most("given", 4, "g", "x", of_all // 4) != with_most("given", 4, "g", "x", of_all // 4 + 1)
    assert with_most("given", 4, "g", "x", of_all) == "(FROM given)"


@pytest.mark.parametrize(
    "broken",
    [
        lambda table, k, *rest: with_most(table, max(1, k - 1), *rest),
        lambda *given: with_most(*given).replace(">=", ">"),
        lambda table, *_: f"(FROM {table})",
        lambda table, k, part, *rest: with_most(table, k, part.split(",")[0], *rest),
    ],
    ids=["one too few", "equal ones are left out", "all rows are left", "parts are joined"],
)
def test_mistakes_are_caught(broken: WithMost) -> None:
    with pytest.raises(AssertionError):
        check(broken)
