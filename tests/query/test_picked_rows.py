"""The condition that tells rows of a file: all of them, no others where gaps are few, and short text."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pytest

from tidemark.query.scans import picked_rows
from tidemark.query.scans.picked_rows import FILE_ROW, rows_sql

NUMBERS = 4_000


def selected(sql: str) -> list[int]:
    rows = duckdb.execute(f"SELECT {FILE_ROW} FROM range({NUMBERS}) t({FILE_ROW}) WHERE {sql}").fetchall()
    return [number for (number,) in rows]


def check(rows: Sequence[int], *, is_exact: bool) -> None:
    sql = rows_sql(np.array(rows))
    found = selected(sql)
    assert set(rows) <= set(found)
    assert not is_exact or found == list(rows)
    assert sql.count("BETWEEN") <= 32
    assert sql.count(",") < 256


def check_all() -> None:
    draw = np.random.default_rng(3)
    check([7], is_exact=True)
    check([*range(100, 900)], is_exact=True)  # together
    check([*range(400), *range(500, 900), *range(3_000, NUMBERS)], is_exact=True)
    check([*range(0, NUMBERS, 20)], is_exact=True)  # few rows, each alone
    check([*range(0, NUMBERS, 2)], is_exact=False)
    for rows in (3, 200, 300, 2_000):
        check(np.sort(draw.choice(NUMBERS, rows, replace=False)).tolist(), is_exact=rows <= 256)


def test_the_rows_are_told() -> None:
    check_all()


def test_rows_that_lie_together_are_one_range() -> None:
    assert rows_sql(np.arange(100, 500)) == f"({FILE_ROW} BETWEEN 100 AND 499)"
    assert rows_sql(np.arange(3)) == f"({FILE_ROW} BETWEEN 0 AND 2)"


MISTAKES: dict[str, tuple[str, int]] = {
    "each row is told, however many": ("_MOST_NUMBERS", 2**20),
    "each gap cuts": ("_MOST_RANGES", 2**20),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(picked_rows, *MISTAKES[name])
    with pytest.raises(AssertionError):
        check_all()
