"""Runs know what they hold: loads and merges make what came, or nothing, and name the damaged file."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.warehouse.hereloader import Loader
from tidemark import query, warehouse
from tidemark.warehouse.projections.sorted_values import SortedValues
from tidemark.warehouse.runs import marks
from tidemark.warehouse.runs.cuts import SortedInput
from tidemark.warehouse.runs.levels import Run

STEPS = [Run(step, step, 0) for step in range(2)]


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    """Two runs; the next load merges them with its own."""
    made = Loader.create(tmp_path / "w")
    for _ in STEPS:
        made.load()
    return made


def runs(loader: Loader) -> list[Run]:
    return [one.run for one in warehouse.open_snapshot(loader.uri).current().view("n").runs]


def change(loader: Loader) -> Path:
    """One value of a run is another, in a file that any reader of Parquet takes; still in order."""
    path = next(Path(loader.uri, "runs/n").glob("run=L00-0000000000*/*.parquet"))
    rows = pq.read_table(path, partitioning=None)
    values = rows.column("value").to_pylist()
    at = next(i for i in range(1, len(values) - 1) if values[i] < values[i + 1])
    values[at] += 1
    pq.write_table(rows.set_column(0, "value", pa.array(values)), path)
    return path


def test_a_changed_block_is_told_by_answers_and_verify(loader: Loader) -> None:
    path = change(loader)
    with pytest.raises(warehouse.DamagedWarehouse, match=rf"{path.name}.*'value'.*is not what was written"):
        query.open(loader.uri).quantile([0.1 * i for i in range(11)], measure="n", mode="exact")
    assert not warehouse.verify(loader.uri).ok


@pytest.mark.parametrize("table", ["marks/n", "key_marks/k"])
def test_marks_that_have_lost_their_seal_are_refused(loader: Loader, table: str) -> None:
    path = next(Path(loader.uri, table).glob("run=*/*.parquet"))
    path.write_bytes(path.read_bytes().replace(b"tidemark.seal", b"tidemark.sea1"))

    def ask() -> object:
        wh = query.open(loader.uri)
        return wh.quantile(0.5, measure="n"), wh.frequency("k1")

    with pytest.raises(warehouse.DamagedWarehouse, match=rf"{path.name}.*it has no seal"):
        ask()
    assert not warehouse.verify(loader.uri).ok


def test_a_merge_of_a_changed_input_names_it_and_commits_nothing(loader: Loader) -> None:
    path = change(loader)
    with pytest.raises(warehouse.DamagedWarehouse, match=path.name):
        loader.load()
    assert all(run.level == 0 for run in runs(loader))


def test_its_rows_are_compared_too(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where blocks are not, what was read of an input is compared with what its marks say of all its rows."""
    path = change(loader)
    monkeypatch.setattr(marks.FileDigests, "check_block", lambda *_: None)
    with pytest.raises(
        warehouse.DamagedWarehouse, match=rf"{path.name} differ from those that were written there"
    ):
        loader.load()
    assert all(run.level == 0 for run in runs(loader))


def test_a_merge_that_compares_nothing_makes_a_valid_run_of_bad_rows(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: only verify, which reads events, can tell then."""
    change(loader)
    monkeypatch.setattr(marks.FileDigests, "check_block", lambda *_: None)
    monkeypatch.setattr(SortedInput, "digest", ANY)
    loader.load()
    assert any(run.level == 1 for run in runs(loader))
    broken = {check.name for check in warehouse.verify(loader.uri).checks if not check.ok}
    assert broken == {"n: nothing is lost or counted twice"}


def test_marks_of_a_run_are_those_of_its_rows(loader: Loader) -> None:
    """The digest of all files together is that of the values in events."""
    loader.load()
    view = warehouse.open_snapshot(loader.uri).current().view("n")
    (run,) = view.runs
    rows = pa.concat_tables(
        pq.read_table(Path(loader.uri, "events", path.name), partitioning=None)
        for path in Path(loader.uri, "events").glob("*.parquet")
    )
    rows = rows.filter(pc.is_valid(rows["n"]))
    values = SortedValues(view.measure)
    found = values.digest(values.decode(rows)[0])
    assert found == sum(file.digests.row_digest for file in run.files) % 2**64
