"""Files that stay open: told from what their names stand for now, closed with their version, never shared."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.query.answers import single
from tests.query.worlds import HandMade, World, open_world
from tidemark.query.reading import block_reader
from tidemark.query.reading.block_reader import Footer
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.runs.marks import RunFile

ROWS = tuple((float(i), 0) for i in range(1000))
WORLD = World((ROWS, ROWS[:700]), eps=0.3)


def files_of(wh: HandMade) -> list[Path]:
    return sorted(Path(wh._session.store.uri).rglob("*.parquet"))


def remove_all(wh: HandMade) -> None:
    for file in files_of(wh):
        file.unlink()


def is_mapped(file: Path) -> bool:
    return str(file.resolve()) in Path("/proc/self/maps").read_text()


@pytest.fixture
def wh(tmp_path: Path) -> HandMade:
    found = open_world(tmp_path, WORLD)
    assert single(found.rank(450.5)).rank == 902
    return found


def test_a_file_that_went_missing_while_it_was_open_is_named(wh: HandMade) -> None:
    remove_all(wh)
    with pytest.raises(DamagedWarehouse, match="is missing"):
        wh.rank(450.5)


def test_without_a_look_at_the_name_a_missing_file_goes_unseen(
    wh: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_reader._Place, "local_identity", ())
    wh.rank(450.5)
    remove_all(wh)
    assert single(wh.rank(450.5)).rank == 902  # so the test above would fail


def test_a_file_that_came_back_as_another_is_opened_anew(wh: HandMade) -> None:
    for file in files_of(wh):
        whole = file.read_bytes()
        file.unlink()
        file.write_bytes(whole)
    assert single(wh.rank(450.5)).rank == 902


def test_a_footer_is_parsed_once_for_all_readers_and_anew_where_the_file_is_another(
    wh: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    real = block_reader._read_footer

    def read_footer(place: Any, file: RunFile) -> Footer:
        parsed.append(place.path)
        return real(place, file)

    monkeypatch.setattr(block_reader, "_read_footer", read_footer)
    assert single(HandMade(wh.snapshot, wh.world).rank(450.5)).rank == 902
    assert parsed == []
    for file in files_of(wh):
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedWarehouse, match=r"parquet .* cannot be read"):
        HandMade(wh.snapshot, wh.world).rank(450.5)
    assert len(parsed) == 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")
def test_files_are_closed_with_their_version(wh: HandMade) -> None:
    files = files_of(wh)
    assert any(map(is_mapped, files))
    (view,) = wh.snapshot.views
    wh._session.blocks.use_versions(view.root, view.runs_versions)
    assert any(map(is_mapped, files))
    wh._session.blocks.use_versions(view.root, (view.versions["runs"] + 1,))
    assert not any(map(is_mapped, files))


def test_threads_that_ask_at_once_never_share_an_open_file(
    wh: HandMade, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: set[int] = set()
    lock = threading.Lock()
    real = block_reader._open

    class Watched:
        def __init__(self, file: pq.ParquetFile) -> None:
            self.file, self.reader = file, self

        def read_row_group(self, *args: object, **kwargs: object) -> object:
            with lock:
                assert id(self) not in inside
                inside.add(id(self))
            try:
                return self.file.reader.read_row_group(*args, **kwargs)
            finally:
                with lock:
                    inside.discard(id(self))

    points = [n + 0.5 for n in range(0, 700, 7)] * 4
    wh.rank(points)  # footers are read by other files
    monkeypatch.setattr(block_reader, "_open", lambda *args: (Watched(real(*args)[0]), None))
    wh._session.blocks.use_versions(wh.snapshot.views[0].root, (-1,))
    with ThreadPoolExecutor(8) as pool:
        ranks = list(pool.map(lambda x: single(wh.rank(x)).rank, points))
    assert ranks == [2 * (int(x) + 1) for x in points]
