"""Columns exchange their names while rows leave: the names that a call has are those of one moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from tests.warehouse.test_remove import once
from tidemark import query, stream, warehouse
from tidemark.warehouse import Contended
from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.removals import finish

Progress: TypeAlias = Callable[[str], None] | None
SWAP = [{"v": "aside"}, {"o": "v"}, {"aside": "o"}]


def rows_of(first: int) -> pa.Table:
    """Values below 100 in `v`, numbers from 1,000 on in `o`."""
    return pa.table({"v": [i % 100 for i in range(first, first + 50)], "o": [*range(first, first + 50)]})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("made") / "w"
    warehouse.create(None, uri, ["v", "o"], keys=["o"], schema=rows_of(0).schema)
    warehouse.load(None, uri, rows_of(1000), "one")
    stream.append(None, uri, rows_of(1050), source="live", batch=0)
    return uri


def delete(uri: Path, progress: Progress) -> Any:
    return warehouse.delete(None, uri, where="v < 10 OR v BETWEEN 90 AND 99", progress=progress)


def correct(uri: Path, progress: Progress) -> Any:
    given = pa.table({"v": [500, 501], "o": [1003, 1004]})
    return warehouse.correct(None, uri, given, batch="fix", on=["o"], progress=progress)


def told(uri: Path, v: str, o: str) -> list[Any]:
    """Rows, and what runs tell of both columns."""
    wh = query.open(uri)
    found = wh.sql(f'SELECT "{v}", "{o}" FROM events ORDER BY ALL').fetchall()
    ends = [wh.quantile([0, 0.5, 1], measure, mode="exact") for measure in (v, o)]
    return [found, [answer.value for answers in ends for answer in answers], wh.frequency(1003, key=o).hi]


def check_meets(made: Path, folder: Path, change: Callable[[Path, Progress], Any], point: str) -> None:
    """The call does what it would have done before, or is refused and changes nothing."""
    met, alone = folder / "met", folder / "alone"
    shutil.copytree(made, met)
    shutil.copytree(made, alone)

    def swap() -> None:
        for names in SWAP:
            warehouse.alter(None, met, rename=names)

    with suppress(Contended):
        change(met, once(point, swap))
        change(alone, None)
    assert told(met, "o", "v") == told(alone, "v", "o")
    report = warehouse.verify(met)
    assert report.ok, [one for one in report.checks if not one.ok]


CASES = [(delete, "planned"), (delete, "selected"), (correct, "batch named"), (correct, "decided")]


@pytest.mark.parametrize(("change", "point"), CASES)
def test_rows_leave_by_the_names_of_one_moment(made: Path, tmp_path: Path, change: Any, point: str) -> None:
    check_meets(made, tmp_path, change, point)


def test_a_condition_with_the_names_of_before_is_noticed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ColumnNames, "__eq__", lambda *_: True)
    with pytest.raises(AssertionError):
        check_meets(made, tmp_path, delete, "planned")


def test_runs_with_the_column_that_has_the_name_now_are_noticed(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def options_alone(work: Any, options: Any) -> Any:
        other = replace(work, options=options)
        object.__setattr__(other, "store", work.store)
        return other

    monkeypatch.setattr(finish, "replace", options_alone)
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        check_meets(made, tmp_path, correct, "decided")
