"""Rows that left are taken out of runs in memory, each once; questions about many cells do not count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.groupworld import HOUR, KEEPS, START, GroupWorld
from tests.query.test_many_cells import ask, wrong_answers
from tidemark import warehouse
from tidemark.query.quantiles import whole_runs
from tidemark.query.quantiles.cells import KINDS, PackedRows, pack
from tidemark.query.quantiles.kept_cells import rows_without
from tidemark.warehouse.columns.keys import join_names
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.group_rows import sorted_rows
from tidemark.warehouse.projections.sorted_values import ValueRows

ROW = st.tuples(
    st.integers(0, 3),
    st.integers(0, KINDS - 1),
    st.sampled_from([-np.inf, -1.0, 0.0, 2.5]),
    st.integers(0, 4),
)
LEFT = st.lists(st.tuples(ROW, st.booleans()), max_size=40)
Take = Callable[[PackedRows, PackedRows], PackedRows]


def packed(rows: list[Any], *, cut: int = 0) -> PackedRows:
    """The rows of groups, in two pieces as blocks are read, so that a group may have two stretches."""
    ordered = sorted((group, kind, 0.0 if kind else value, tick) for group, kind, value, tick in rows)
    pieces = []
    for piece in (ordered[:cut], ordered[cut:]):
        groups, kinds, values, ticks = np.array(piece, np.float64).reshape(-1, 4).T
        names, codes = np.unique(groups.astype(np.int64), return_inverse=True)
        own = (values, kinds.astype(np.int64), ticks.astype(np.int64))
        pieces.append(pack(sorted_rows([(names, codes)], *own)))
    first, second = pieces
    return PackedRows(
        groups=(join_names([first.groups[0], second.groups[0]]),),
        sizes=np.concatenate([first.sizes, second.sizes]),
        values=np.concatenate([first.values, second.values]),
        ticks=np.arange(9, dtype=np.int64),
        codes=np.concatenate([one.ticks[one.codes] for one in pieces]).astype(np.uint8),
    )


def unpacked(rows: PackedRows) -> Counter[Any]:
    cells = np.repeat(np.arange(rows.sizes.size), rows.sizes.ravel())
    groups: Any = rows.groups[0]
    kinds = cells % KINDS
    values = np.where(kinds == 0, rows.values, 0)
    return Counter(
        zip(
            groups[cells // KINDS].tolist(),
            kinds.tolist(),
            values.tolist(),
            rows.ticks[rows.codes].tolist(),
            strict=True,
        )
    )


@given(LEFT, st.integers(0, 40))
def test_of_equal_rows_as_many_are_taken_out_as_left(rows: list[Any], cut: int) -> None:
    whole, gone = packed([row for row, _ in rows], cut=cut), packed([row for row, left in rows if left])
    rest = rows_without(whole, gone)
    assert unpacked(rest) == unpacked(packed([row for row, left in rows if not left]))
    assert rest.sizes.sum() == len(rest.values) == len(rest.codes)
    numbers = [(row[2], row[3]) for row, _ in rows]
    of_measure = pack(ValueRows(*_columns(sorted(numbers))))
    left_numbers = sorted((row[2], row[3]) for row, left in rows if left)
    stay = rows_without(of_measure, pack(ValueRows(*_columns(left_numbers))))
    values = list(zip(stay.values.tolist(), stay.ticks[stay.codes].tolist(), strict=True))
    assert Counter(values) == Counter(numbers) - Counter(left_numbers)
    assert values == sorted(values, key=lambda row: row[0])


def _columns(rows: list[tuple[float, int]]) -> tuple[Any, Any]:
    return np.array([value for value, _ in rows], float), np.array([tick for _, tick in rows], np.int64)


@pytest.mark.parametrize("row", [(1, 0, 2.5, 3), (0, 0, 2.5, 2), (0, 0, 0.0, 3), (0, 1, 2.5, 3)])
def test_a_row_that_is_not_there_is_damage(row: Any) -> None:
    with pytest.raises(DamagedWarehouse):
        rows_without(packed([(0, 0, 2.5, 3)]), packed([row]))
    with pytest.raises(DamagedWarehouse):
        rows_without(packed([(0, 0, 2.5, 3)]), packed([(0, 0, 2.5, 3)] * 2))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two runs; most rows of one are in the other, too."""
    rows: list[Any] = [
        (
            START + (i % 12) * HOUR + timedelta(minutes=i),
            ["a", "b", "é", None, *"cdefghi"][i % 11],
            i % 10,
            value,
            None,
        )
        for i, value in enumerate([1.0, None, float("nan"), 2.0, 2.0, 0.0, 7.5] * 12)
    ]
    return GroupWorld.of(tmp_path_factory.mktemp("made"), [(True, rows), (True, rows[:60])])


def delete(world: GroupWorld, condition: str, stays: Callable[[Any], bool]) -> None:
    report = warehouse.delete(None, world.path, condition, tuning=KEEPS)
    assert report.outcome == "removed"
    assert not report.runs_rewritten
    world.rows[:] = list(filter(stays, world.rows))
    world._truths.clear()


def check_many_cells(world: GroupWorld) -> list[Any]:
    """A reader that has the whole runs in memory, then the rows that leave, twice; and a new reader."""
    wh = world.open()
    for question in ({"by": "origin"}, {"every": HOUR}):
        ask(wh, lambda wh, question=question: wh.quantile(0.5, **question), together=True)
    wrong: list[Any] = []
    for condition, stays in [
        ("number = 1", lambda row: row[2] != 1),
        ("origin = 'a'", lambda row: row[1] != "a"),
    ]:
        delete(world, condition, stays)
        wrong += wrong_answers(world, wh=wh)
    return [
        *wrong,
        *wrong_answers(world),
        *wrong_answers(world, between=(START + 2 * HOUR, START + 9 * HOUR)),
    ]


def test_many_cells_are_answered_without_the_rows_that_left(made: GroupWorld, tmp_path: Path) -> None:
    assert check_many_cells(made.copy(tmp_path)) == []


def takes_nothing(rows: PackedRows, _: PackedRows) -> PackedRows:
    return rows


def takes_the_first(rows: PackedRows, gone: PackedRows) -> PackedRows:
    """A mistake: of equal numbers any is taken, whatever its tick is."""
    one = replace(gone, codes=np.zeros_like(gone.codes))
    taken = rows_without(replace(rows, codes=np.zeros_like(rows.codes), ticks=one.ticks), one)
    return replace(taken, ticks=rows.ticks, codes=rows.codes[: len(taken.values)])


@pytest.mark.parametrize("mistake", [takes_nothing, takes_the_first])
def test_a_run_with_other_rows_is_noticed(
    made: GroupWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Take
) -> None:
    monkeypatch.setattr(whole_runs, "rows_without", mistake)
    with pytest.raises(AssertionError):
        assert check_many_cells(made.copy(tmp_path)) == []
