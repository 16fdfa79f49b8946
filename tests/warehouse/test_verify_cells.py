"""verify() compares counts by span and tick pair by pair, however far apart the ticks lie."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.warehouse.disk import recounted, rewrite_file
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import warehouse
from tidemark.warehouse.delta import data_files, tables
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.projections import spans
from tidemark.warehouse.projections.spans import Spans
from tidemark.warehouse.runs.marks import SPANS_GROUP

TICK = 2**50 + 12345  # microseconds since 1970: 2005
APART = TICK ^ 2**40  # twelve days away
CHECK = "x: runs are sorted and disjoint, marks are exact"


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    """Ticks of a microsecond, rows at two of them, and marks of several spans."""
    loader = Loader.create(tmp_path / "w", tick="1 us")
    rows = rows_of(0, 3000)
    times = np.where(np.arange(rows.num_rows) % 2, TICK, APART)
    loader.load(rows.set_column(0, "t", pa.array(times, pa.timestamp("us", tz="UTC"))))
    return tmp_path / "w"


def swap(uri: Path) -> None:
    """Rows of four spans are counted under the other tick: each span and each tick keeps as many."""
    store = Store.from_uri(uri)
    table = tables.open_table(store, "marks/x")
    (file,) = data_files.list_files(table)
    added = rewrite_file(uri, "marks/x", file.path, swapped, packed=SPANS_GROUP)
    tables.commit(table, [data_files.remove_action(file)])
    tables.commit(tables.open_table(store, "marks/x"), [added])


def swapped(rows: pa.Table) -> pa.Table:
    def swap(counts: NDArray[np.int64]) -> None:
        counts[:4] += np.array([[1, -1], [1, -1], [-1, 1], [-1, 1]])

    return recounted(rows, swap)


def failing(uri: Path) -> dict[str, str]:
    return {check.name: check.detail for check in warehouse.verify(uri).checks if not check.ok}


def test_counts_that_change_places_between_far_ticks_of_neighbouring_spans_are_found(uri: Path) -> None:
    assert failing(uri) == {}
    swap(uri)
    assert "counts by tick" in failing(uri)[CHECK]


def test_pairs_that_are_folded_into_one_number_are_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above fails on the comparison that was: span << 40, mixed into the tick."""

    def folded(one: Spans, other: Spans) -> bool:
        return by_one_number(one) == by_one_number(other)

    def by_one_number(spans: Spans) -> Counter[int]:
        sums: Counter[int] = Counter()
        for span, counts in enumerate(spans.counts):
            for tick, count in zip(spans.ticks.tolist(), counts.tolist(), strict=True):
                sums[tick ^ (span << 40)] += count
        return sums

    monkeypatch.setattr(Spans, "equals", folded)
    swap(uri)
    assert CHECK not in failing(uri)


cells = st.tuples(
    st.integers(0, 5), st.sampled_from([-(2**63), 0, 1, TICK, APART, 2**63 - 1]), st.integers(1, 9)
)


@given(st.lists(cells, min_size=1))
def test_cells_are_the_sums_of_a_dictionary(drawn: list[tuple[int, int, int]]) -> None:
    sums: dict[tuple[int, int], int] = {}
    for span, tick, count in drawn:
        sums[span, tick] = sums.get((span, tick), 0) + count
    arrays = np.array(sorted(drawn), dtype=np.int64).T
    found = zip(*(part.tolist() for part in spans.count_cells(*arrays)), strict=True)
    assert list(found) == sorted((*pair, count) for pair, count in sums.items())
