"""Files of a running load that maintenance deletes: the load writes them again. And clocks that are wrong."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.soak import some
from tidemark import query, warehouse
from tidemark.warehouse.delta import clock, own_files
from tidemark.warehouse.delta.near_files import NearFiles

POINTS = ["appended", "planned", "sorted", "marked", "committed", "merge sorted", "merge marked", "merged"]


def rows(seed: int) -> pa.Table:
    values = [seed * 100 + number for number in range(30)]
    return pa.table({"k": [f"k{value % 3}" for value in values], "x": [float(value) for value in values]})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose next load merges."""
    folder = tmp_path_factory.mktemp("swept") / "w"
    warehouse.create(None, folder, ["x"], schema=rows(0).schema, key="k", eps=0.1, kappa=2)
    for step in range(2):
        warehouse.load(None, folder, rows(step), f"b{step}")
    return folder


def check(folder: Path) -> None:
    """All rows of three loads are there, and the warehouse is whole."""
    wh = query.open(folder)
    truth = [value for step in range(3) for value in rows(step).column("x").to_pylist()]
    assert [wh.quantile(phi).value for phi in (0, 0.5, 1)] == [truth[0], sorted(truth)[44], truth[-1]]
    assert {one.value: one.count for one in wh.top(3)} == Counter(f"k{int(value) % 3}" for value in truth)
    assert wh.sql("SELECT count(*), sum(x) FROM events").fetchall() == [(90, sum(truth))]
    assert warehouse.verify(folder).ok


@pytest.mark.parametrize("point", some(POINTS, 3))
def test_a_load_beside_maintenance_without_grace(whole: Path, tmp_path: Path, point: str) -> None:
    folder, swept = shutil.copytree(whole, tmp_path / "w"), list[dict[str, int]]()

    def sweep(reached: str) -> None:
        if reached == point and not swept:
            swept.append(warehouse.maintain(None, folder, grace="0 seconds").swept)

    assert warehouse.load(None, folder, rows(2), "b2", progress=sweep).outcome == "loaded"
    assert swept
    assert warehouse.load(None, folder, rows(2), "b2").outcome == "known"
    check(folder)


def deleting(monkeypatch: pytest.MonkeyPatch, looks: Sequence[int]) -> list[str]:
    """Deletes a file before some of the looks, counted from 0; returns the list of all that is looked at.

    Looks for newer versions in logs are not among them: the load's own files are what may be deleted.
    """
    look, seen = NearFiles.absent, list[str]()

    def absent(files: NearFiles, paths: Sequence[str]) -> list[str]:
        if any("/_delta_log/" in path for path in paths):
            return look(files, paths)
        if len(seen) in looks:
            Path(str(files.folder), paths[-1]).unlink()
        seen.append(paths[-1])
        return look(files, paths)

    monkeypatch.setattr(NearFiles, "absent", absent)
    return seen


def test_whatever_is_gone_at_a_look_is_made_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = deleting(monkeypatch, [])
    warehouse.load(None, shutil.copytree(whole, tmp_path / "seen"), rows(2), "b2")
    assert {path.split("/")[0] for path in looks} == {"events", "runs", "marks", "keys", "key_marks"}
    for number in some(range(len(looks)), 6):
        folder = shutil.copytree(whole, tmp_path / str(number))
        with monkeypatch.context() as patch:
            deleting(patch, [number])
            warehouse.load(None, folder, rows(2), "b2")
        check(folder)


def test_a_load_that_always_loses_its_files_ends_and_may_be_run_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(whole, tmp_path / "w")
    with monkeypatch.context() as patch:
        deleting(patch, range(999))
        with pytest.raises(warehouse.Contended, match="were deleted 5 times in a row, such as events/"):
            warehouse.load(None, folder, rows(2), "b2")
    warehouse.load(None, folder, rows(2), "b2")
    check(folder)


def test_without_the_look_the_rows_are_lost(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant."""
    folder = shutil.copytree(whole, tmp_path / "w")

    def sweep(reached: str) -> None:
        if reached == "sorted":
            warehouse.maintain(None, folder, grace="0 seconds")

    monkeypatch.setattr(own_files.Looks, "lost", lambda *_: set())
    with pytest.raises(warehouse.DamagedWarehouse, match="is missing"):  # the merge reads the run
        warehouse.load(None, folder, rows(2), "b2", progress=sweep)


@pytest.mark.parametrize(("seconds", "words"), [(8 * 86_400, "8 days ahead of"), (-7_200, "2 hours behind")])
def test_maintenance_by_a_wrong_clock_is_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, words: str
) -> None:
    folder, now = shutil.copytree(whole, tmp_path / "w"), time.time
    orphan = folder / "events" / "orphan.parquet"
    orphan.write_bytes(b"of a load that is running")
    before = sorted(folder.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + seconds)
        with pytest.raises(warehouse.SystemRefused, match=f"clock is {words} the clock of .* set the clock"):
            warehouse.maintain(None, folder)
        assert sorted(folder.rglob("*")) == before
        patch.setattr(clock, "TOLERANCE", float("inf"))  # the broken variant
        warehouse.maintain(None, folder)
    assert orphan.exists() == (seconds < 0)


def test_maintenance_by_a_clock_that_is_nearly_right(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, now = shutil.copytree(whole, tmp_path / "w"), time.time
    monkeypatch.setattr(time, "time", lambda: now() + 30)
    warehouse.maintain(None, folder)
    assert not list(folder.glob("_clock-*"))
