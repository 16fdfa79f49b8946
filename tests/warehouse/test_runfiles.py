"""A run file is written with its marks in one pass: positions, values and counts by tick are exact."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.projections.span_marks import SpanMarkCollector
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.runs.projection import MarkedFile
from tidemark.warehouse.runs.run_files import write_rows
from tidemark.warehouse.sizes import DEFAULT

BLOCK_ROWS = DEFAULT.block_rows
Rows = tuple[NDArray[Any], NDArray[np.int64]]


def written(folder: Path, rows: Rows, cuts: list[int], grain: int, span: int) -> MarkedFile:
    disk = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    values, ticks = rows
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    pieces = iter([ValueRows(values[a:b], ticks[a:b]) for a, b in pairwise(edges)])

    class Marked(SortedValues):
        def collector(self, run_spec: Any) -> SpanMarkCollector:  # noqa: ARG002
            return SpanMarkCollector(self, grain, span)

    marked = Marked(Measure("x", "double" if values.dtype.kind == "f" else "long"))
    return write_rows(disk, "runs/x/run=1/file.parquet", marked, pieces, None)


def check(file: MarkedFile, folder: Path, rows: Rows, grain: int, span: int) -> None:
    """Against the plain definition, row by row."""
    values, ticks = rows
    n = len(values)
    assert file.rows == n
    assert file.size == (folder / file.path).stat().st_size
    assert file.positions.tolist() == sorted({*range(0, n, grain), *([n - 1] if n else [])})
    (marks,), spans = file.sort_keys, file.extra.spans
    assert isinstance(spans, Spans)
    assert isinstance(marks, np.ndarray)
    assert marks.tolist() == values[file.positions].tolist()
    assert marks.dtype == values.dtype
    starts = list(range(0, n, span))
    assert spans.starts.tolist() == starts
    assert spans.ticks.tolist() == sorted(set(ticks.tolist()))
    assert spans.counts.shape == (len(starts), len(spans.ticks))
    for start, counts in zip(starts, spans.counts, strict=True):
        found = Counter(ticks[start : start + span].tolist())
        assert counts.tolist() == [found[tick] for tick in spans.ticks.tolist()]
    assert Spans.from_bytes(spans.to_bytes()).equals(spans)
    ranges = (file.stats["minValues"]["tick"], file.stats["maxValues"]["tick"]) if n else None
    assert ranges == ((ticks.min(), ticks.max()) if n else None)
    with pq.ParquetFile(folder / file.path) as parquet:
        table = parquet.read()
        assert table.column("value").to_numpy().tolist() == values.tolist()
        assert table.column("tick").to_pylist() == ticks.tolist()
        meta = parquet.metadata
        groups = [meta.row_group(g) for g in range(meta.num_row_groups)]
    assert [g.num_rows for g in groups] == [min(BLOCK_ROWS, n - at) for at in range(0, n, BLOCK_ROWS)]
    at = 0
    for group in groups:
        stats = group.column(0).statistics
        assert (stats.min, stats.max, stats.null_count) == (values[at], values[at + group.num_rows - 1], 0)
        assert group.sorting_columns[0].column_index == 0
        assert "BYTE_STREAM_SPLIT" not in group.column(0).encodings
        at += group.num_rows


TICKS = st.one_of(
    st.just([0]),
    st.just([NO_TICK]),
    st.just([NO_TICK, 0, 2**62]),
    st.just([-3, -2, -1, 0, 1]),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.integers(-(10**6), 10**6).map(lambda t: list(range(t, t + 50))),
)


@settings(max_examples=150)
@given(
    st.sampled_from([np.float64, np.int64]),
    st.integers(0, 300),
    TICKS,
    st.lists(st.integers(0, 300), max_size=4),
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(0, 2**32),
)
def test_marks_and_spans_are_exact_for_any_pieces_and_ticks(
    tmp_path_factory: pytest.TempPathFactory,
    dtype: Any,
    n: int,
    ticks: list[int],
    cuts: list[int],
    grain: int,
    spans: int,
    seed: int,
) -> None:
    r = np.random.default_rng(seed)
    values = np.sort(r.integers(-9, 9, n)).astype(dtype)
    if n:
        values[0], values[-1] = (-np.inf, np.inf) if dtype is np.float64 else (-(2**63), 2**63 - 1)
    rows = values, r.choice(np.array(ticks, dtype=np.int64), n)
    folder = tmp_path_factory.getbasetemp()
    check(written(folder, rows, cuts, grain, grain * spans), folder, rows, grain, grain * spans)


@pytest.mark.parametrize(
    "cuts", [[], [1], [BLOCK_ROWS], [BLOCK_ROWS - 1, BLOCK_ROWS + 1, 2 * BLOCK_ROWS + 5]]
)
def test_row_groups_are_whole_whatever_the_pieces(tmp_path: Path, cuts: list[int]) -> None:
    r = np.random.default_rng(0)
    n = 3 * BLOCK_ROWS + 17
    rows = np.sort(r.normal(size=n)), r.integers(0, 30, n)
    check(written(tmp_path, rows, cuts, 1000, 3000), tmp_path, rows, 1000, 3000)


@pytest.mark.parametrize("ticks", [[], [5], [5, 5, 5], [5, 5, 6], [6, 5, 6], [NO_TICK, 0, NO_TICK]])
def test_rows_are_sorted_with_their_ticks(ticks: list[int]) -> None:
    values = np.array([3.0, 1.0, 2.0][: len(ticks)])
    rows = ValueRows(values, np.array(ticks, dtype=np.int64))
    found = SortedValues(Measure("x", "double")).sort([rows])
    assert list(zip(found.values.tolist(), found.ticks.tolist(), strict=True)) == sorted(
        zip(values.tolist(), ticks, strict=True)
    )
