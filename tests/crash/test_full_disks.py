"""A disk that gets full at any moment of any writer is told as that, and harms nothing: `sweep`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import soak
from tests.warehouse.disk import files_of
from tests.warehouse.limits import filled, full_disk
from tidemark import query, stream, warehouse
from tidemark.warehouse import SystemRefused
from tidemark.warehouse.runs import run_files

PAGE = 4096
# The step of a sweep; `make soak` sets it.
SOAK_PAGES = int(os.environ.get("TIDEMARK_SOAK_DISK_PAGES", "0"))
POINTS = 3  # of a sweep in the tests
POINTS_IN_A_FILE = 12  # so many that some fall into the run's files, a fifth of what a load writes
ABOUT = """A disk gets full while a writer works, once at each page of 4 KB that the writer needs in
all. Each time the error said that the disk is full and nothing else was printed, a reader answered as before,
and the same call was done once there was room. The warehouse then held what a plain list holds, and `verify`
found nothing."""

ROWS, BATCHES = 3000, 4
PHIS = (0.0, 0.1, 0.5, 0.9, 1.0)
OPERATIONS: dict[str, tuple[Callable[[Path], Any], int]] = {  # and the rows, in batches, that it adds
    "load": (lambda uri: warehouse.load(None, uri, rows(BATCHES), "new"), 1),
    "append": (lambda uri: stream.append(None, uri, rows(BATCHES), source="s", batch=1), 1),
    "drain": (lambda uri: warehouse.load(None, uri), 0),
    "alter": (lambda uri: warehouse.alter(None, uri, add_group="kind"), 0),
    "maintain": (lambda uri: warehouse.maintain(None, uri, grace="0 s"), 0),
}


def rows(batch: int) -> pa.Table:
    random = np.random.default_rng(batch)
    return pa.table(
        {
            "x": random.normal(size=ROWS),
            "kind": pa.array(random.integers(0, 7, ROWS)).cast("string"),
            "at": pa.array(random.integers(0, 5 * 86_400_000_000, ROWS), pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A warehouse that the next load merges, with a live batch, not to be changed; and a small disk."""
    uri = tmp_path_factory.mktemp("whole") / "w"
    warehouse.create(None, uri, ["x"], key="kind", time="at", eps=0.05, kappa=2, schema=rows(0).schema)
    for batch in range(BATCHES - 1):
        warehouse.load(None, uri, rows(batch), f"batch {batch}")
    stream.append(None, uri, rows(BATCHES - 1), source="s", batch=0)
    with full_disk(tmp_path_factory.mktemp("small") / "disk") as disk:
        if not disk.is_mount():
            pytest.skip("this machine lets nobody mount a disk")
        yield uri, disk


def check_rows(uri: Path, batches: int) -> None:
    values = np.sort(np.concatenate([rows(batch)["x"].to_numpy() for batch in range(batches)]))
    wh = query.open(uri)
    answers = wh.quantile(PHIS, mode="exact")
    ranks = [max(1, int(np.ceil(round(phi * len(values), 6)))) for phi in PHIS]
    assert [(answer.N, answer.value) for answer in answers] == [(len(values), values[r - 1]) for r in ranks]
    kinds = np.concatenate([rows(batch)["kind"].to_numpy(False) for batch in range(batches)])
    assert wh.frequency("3", mode="exact").count == np.count_nonzero(kinds == "3")


def sweep(places: tuple[Path, Path], name: str, points: int | None = POINTS) -> int:
    """Leaves so many amounts of room, None: each page, below what the operation writes; how many stop it."""
    whole, disk = places
    use, more = OPERATIONS[name]
    uri = disk / "w"
    ignored: list[Any] = []
    shutil.copytree(whole, uri)
    before = files_of(uri)
    use(uri)
    written = sum(-(-size // PAGE) for _, (size, _) in files_of(uri).items() - before.items())
    pages = list(range(0, written, SOAK_PAGES or 1))
    if points is not None:
        pages = np.linspace(0, written - 1, points, dtype=int).tolist()
    stopped = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", ignored.append)
        for page in pages:
            shutil.rmtree(uri)
            shutil.copytree(whole, uri)
            with filled(disk, page * PAGE):
                stopped += is_stopped(use, uri, more)
            use(uri)
            check_rows(uri, BATCHES + more)
            if points is None or page == pages[-1]:
                assert warehouse.verify(uri).ok
            assert not ignored
    shutil.rmtree(uri)
    return stopped


def is_stopped(use: Callable[[Path], Any], uri: Path, more: int) -> bool:
    """Whether the operation finds no room; then a reader finds all of its rows or none of them."""
    try:
        use(uri)
    except SystemRefused as refusal:  # no other error may come
        assert "No space left" in str(refusal)  # noqa: PT017
        rows_now = query.open(uri).quantile(0.5, mode="exact").N
        assert rows_now in {BATCHES * ROWS, (BATCHES + more) * ROWS}
        return True
    return False


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_disk_that_gets_full_is_told_at_every_page_and_harms_nothing(
    places: tuple[Path, Path], name: str
) -> None:
    assert sweep(places, name) >= 1


def test_a_writer_that_closes_a_file_after_an_error_is_caught(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "ParquetWriter", pq.ParquetWriter)
    with pytest.raises(RuntimeError, match="only available after writer close"):
        sweep(places, "load", POINTS_IN_A_FILE)


@pytest.mark.skipif(not SOAK_PAGES, reason="`make soak` runs it")
def test_random_pages(places: tuple[Path, Path]) -> None:
    """At each page of each operation; called random, as all long runs are."""
    figures = {f"{name}: stopped at": sweep(places, name, None) for name in OPERATIONS}
    soak.write_section("A disk that gets full", ABOUT, figures)
    print(soak.table(figures))
