"""Plain doubles are taken from the file: the values that decoding it would give, or an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.query.reading import block_reader
from tidemark.query.reading.block_reader import BlockReader, RowGroups
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import DamagedWarehouse
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.runs import run_files
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.sizes import Tuning

BLOCK = 256
RANDOM = np.sort(np.random.default_rng(1).lognormal(size=10 * BLOCK + 7))
REPEATED = np.repeat(np.arange(5.0), 2 * BLOCK)


def written(folder: Path, values: NDArray[Any], kind: str = "double") -> RunFile:
    """The values, all of tick 1, as a file of the table `runs`."""
    projection = SortedValues(Measure("x", kind), Tuning(block_rows=BLOCK))
    rows = ValueRows(values, np.ones(len(values), np.int64))
    disk = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    file = run_files.write_rows(disk, "runs/run=1/a.parquet", projection, iter([rows]), None)
    return RunFile("run=1/a.parquet", 0, file.rows, file.digests, store=Store.from_uri(folder))


def read(file: RunFile, columns: tuple[str, ...] = ("value",)) -> dict[str, list[Any]]:
    """The columns of all row groups, in a random order of these."""
    groups = np.random.default_rng(2).permutation(-(-file.rows // BLOCK)).tolist()
    blocks = BlockReader().read(RowGroups("runs", file, groups, columns))
    found = dict(zip(groups, blocks, strict=True))
    return {
        name: [value for group in sorted(found) for value in np.asarray(found[group][name]).tolist()]
        for name in columns
    }


def decoded(folder: Path, column: str = "value") -> list[Any]:
    values: list[Any] = pq.read_table(folder / "runs/run=1/a.parquet").column(column).to_pylist()
    return values


def codec(folder: Path) -> str:
    metadata = pq.read_metadata(folder / "runs/run=1/a.parquet")
    (found,) = {metadata.row_group(g).column(0).compression for g in range(metadata.num_row_groups)}
    return str(found)


class NotDecoded:
    """An open file of which no row group may be decoded."""

    @property
    def reader(self) -> Any:
        raise AssertionError("a row group was decoded")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(allow_nan=False), max_size=30),
    st.integers(0, 3 * BLOCK),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_what_is_read_is_what_is_decoded(tmp_path: Path, drawn: list[float], rows: int, share: float) -> None:
    noise = np.random.default_rng(rows).normal(size=rows)
    some = np.where(np.random.default_rng(1).random(rows) < share, noise, 1.5)
    values = np.sort(np.concatenate([np.array(drawn, dtype=np.float64), some])) + 0.0
    found = read(written(tmp_path, values), ("value", "tick"))
    assert found == {"value": values.tolist(), "tick": [1] * len(values)}
    assert found["value"] == decoded(tmp_path)


def test_doubles_that_do_not_compress_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, RANDOM)
    assert codec(tmp_path) == "UNCOMPRESSED"
    read(file)  # the footer is decoded, and kept for later readers
    real: Callable[..., Any] = block_reader._open
    monkeypatch.setattr(block_reader, "_open", lambda *given: (NotDecoded(), real(*given)[1]))
    assert read(file)["value"] == RANDOM.tolist()
    with pytest.raises(DamagedWarehouse, match="was decoded"):
        read(file, ("value", "tick"))


@pytest.mark.parametrize(
    ("values", "kind"), [(REPEATED, "double"), (np.arange(5 * BLOCK), "long")], ids=["repeated", "integers"]
)
def test_what_compresses_stays_compressed(tmp_path: Path, values: NDArray[Any], kind: str) -> None:
    file = written(tmp_path, values, kind)
    assert codec(tmp_path) == "LZ4"
    assert read(file)["value"] == values.tolist()


def test_a_file_that_starts_like_noise_and_ends_in_repetitions_is_compressed(tmp_path: Path) -> None:
    values = np.concatenate([-RANDOM[::-1], np.zeros(4 * len(RANDOM))])
    file = written(tmp_path, values)
    assert codec(tmp_path) == "LZ4"
    assert read(file)["value"] == values.tolist()


def test_several_pages_in_a_row_group_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their headers together may be as small as one, so the digest alone tells them from a single page."""
    options = run_files._encoding
    monkeypatch.setattr(
        run_files,
        "_encoding",
        lambda *given: {**options(*given), "data_page_size": 4 * BLOCK, "write_batch_size": BLOCK // 4},
    )
    file = written(tmp_path, RANDOM)
    assert read(file)["value"] == RANDOM.tolist()
    monkeypatch.setattr(block_reader, "column_digest", AnyDigest)
    assert read(file)["value"] != RANDOM.tolist()  # the broken variant: nobody compares


class AnyDigest:
    """Equals every digest."""

    def __init__(self, _: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_a_flipped_bit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, RANDOM)
    path = tmp_path / "runs/run=1/a.parquet"
    damaged = bytearray(path.read_bytes())
    at = damaged.index(RANDOM[3 * BLOCK + 5].tobytes())
    damaged[at] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(DamagedWarehouse, match="'value' of row group 3 is not what was written"):
        read(file)
    monkeypatch.setattr(block_reader, "column_digest", AnyDigest)
    assert read(file)["value"] != RANDOM.tolist()  # the broken variant: nobody compares
