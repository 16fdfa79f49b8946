"""Slices share no row and miss none: put together they are the sorted whole, and none is too large."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import fs

from tidemark.warehouse.columns.value_encoding import Measure
from tidemark.warehouse.projections.sorted_values import SortedValues, ValueRows
from tidemark.warehouse.projections.span_marks import SpanMarkCollector
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput, clip_to_slice, plan_slices
from tidemark.warehouse.runs.marks import RunFile
from tidemark.warehouse.runs.run_files import InputReader, merge_slices, write_rows

FLOATS = st.one_of(st.sampled_from([-math.inf, -1.0, 0.0, 1.0, math.inf]), st.floats(allow_nan=False))
INTS = st.one_of(
    st.sampled_from([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]), st.integers(-(2**63), 2**63 - 1)
)


def trim(values: NDArray[Any], offset: int, source: int, piece: MergeSlice) -> tuple[int, int]:
    """Where the slice's rows of input `source` start and stop in `values`, read from row `offset` on."""
    places = np.arange(len(values))
    kept = clip_to_slice(ValueRows(values, places), offset, source, piece).ticks.tolist()
    return (kept[0], kept[-1] + 1) if kept else (0, 0)


class Marked(SortedValues):
    """Values that are marked every 100 rows."""

    def collector(self, run_spec: Any) -> SpanMarkCollector:  # noqa: ARG002
        return SpanMarkCollector(self, 100, 100)


MARKED = Marked(Measure("x", "long"))


@st.composite
def sorted_inputs(draw: st.DrawFn) -> tuple[list[NDArray[Any]], list[SortedInput], int]:
    """Up to six inputs, each marked at a grain of its own: first and last row, and each grain-th."""
    kind, dtype = draw(st.sampled_from([(FLOATS, np.float64), (INTS, np.int64)]))
    few = draw(st.booleans())
    values = draw(
        st.lists(
            st.lists(
                st.sampled_from(draw(st.lists(kind, min_size=1, max_size=3))) if few else kind, max_size=60
            ),
            max_size=6,
        )
    )
    arrays, inputs, widest = [], [], 1
    for part in values:
        array = np.sort(np.array(part, dtype=dtype)) + dtype(0)
        grain = draw(st.integers(1, 20))
        widest = max(widest, grain)
        positions = (
            np.unique(np.append(np.arange(0, len(array), grain), len(array) - 1))[-len(array) - 1 :]
            if len(array)
            else np.empty(0, np.int64)
        )
        arrays.append(array)
        inputs.append(
            SortedInput(
                (),
                len(array),
                positions.astype(np.int64),
                (cast("NDArray[np.int64]", array[positions.astype(np.int64)]),),
            )
        )
    return arrays, inputs, widest


@pytest.mark.slow
@settings(max_examples=400)
@given(sorted_inputs(), st.integers(1, 12))
def test_the_slices_together_are_the_merged_whole(
    given_inputs: tuple[list[NDArray[Any]], list[SortedInput], int], slices: int
) -> None:
    arrays, inputs, grain = given_inputs
    total = sum(len(array) for array in arrays)
    taken: list[list[tuple[int, int]]] = [[] for _ in arrays]
    last: Any = None
    planned = plan_slices(inputs, slices)
    assert len(planned) <= max(1, slices)
    for piece in planned:
        parts = []
        for j, (array, reach) in enumerate(zip(arrays, piece.input_ranges, strict=True)):
            assert 0 <= reach.start <= reach.stop <= len(array)
            start, stop = trim(array[reach.start : reach.stop], reach.start, j, piece)
            taken[j].append((reach.start + start, reach.start + stop))
            parts.append(array[reach.start + start : reach.start + stop])
        rows = np.concatenate(parts) if parts else np.empty(0)
        assert len(rows) <= total / slices + grain * len(arrays) + 1
        if len(rows):
            assert last is None or last <= rows.min()
            last = rows.max()
    for array, ranges in zip(arrays, taken, strict=True):
        filled = [r for r in ranges if r[0] < r[1]]
        assert [a for r in filled for a in r] == (
            [0, *[e for r in filled[:-1] for e in (r[1], r[1])], len(array)] if len(array) else []
        )


def test_a_constant_column_is_cut_as_evenly_as_any_other() -> None:
    array = np.zeros(1000)
    positions = np.unique(np.append(np.arange(0, 1000, 10), 999))
    inputs = [SortedInput((), 1000, positions, (array[positions],))] * 4
    sizes = []
    for piece in plan_slices(inputs, 8):
        ends = [trim(array[r.start : r.stop], r.start, j, piece) for j, r in enumerate(piece.input_ranges)]
        sizes.append(sum(stop - start for start, stop in ends))
    assert sum(sizes) == 4000
    assert len(sizes) == 8
    assert max(sizes) <= 500 + 40


@pytest.mark.parametrize("slices", [1, 2, 7, 40])
def test_slices_read_from_files_and_merged_are_the_sorted_rows(tmp_path: Path, slices: int) -> None:
    """Row by row with its tick; inputs of several files and row groups, an empty one among them."""
    disk = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    r = np.random.default_rng(slices)
    inputs, rows = [], []
    for number, sizes in enumerate([(20_000, 7), (1,), (0,), (40_000, 30_000)]):
        values = np.sort(r.integers(-50, 50, sum(sizes)))
        ticks = r.integers(0, 5, sum(sizes))
        rows += list(zip(values.tolist(), ticks.tolist(), strict=True))
        files, positions, first = [], [], 0
        for at, size in enumerate(sizes):
            part = slice(first, first + size)
            pieces = iter([ValueRows(values[part], ticks[part])])
            written = write_rows(disk, f"run/{number}-{at}.parquet", MARKED, pieces, None)
            files.append(RunFile(written.path, first, size, written.digests))
            positions.append(written.positions + first)
            first += size
        marked = np.concatenate(positions)
        inputs.append(SortedInput(tuple(files), first, marked, (values[marked],)))
    readers = [InputReader(disk, MARKED, inputs, source) for source in range(len(inputs))]
    merged = list(merge_slices(MARKED, readers, plan_slices(inputs, slices)))
    assert [reader.digest % 2**64 for reader in readers] == [one.digest for one in inputs]
    values = np.concatenate([rows.values for rows in merged])
    ticks = np.concatenate([rows.ticks for rows in merged])
    assert np.all(values[:-1] <= values[1:])
    assert sorted(zip(values.tolist(), ticks.tolist(), strict=True)) == sorted(rows)
