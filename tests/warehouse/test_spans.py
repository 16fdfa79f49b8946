"""Counts by span and tick, of one file or many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.columns.ticks import NO_TICK, Window
from tidemark.warehouse.projections.spans import Spans

FAR = 2**50 + 12345


@given(st.data())
def test_spans_of_several_files_are_those_of_their_rows(data: st.DataObject) -> None:
    """Whatever ticks each file has, and however wide its counts are."""
    ticks = st.sampled_from([NO_TICK, -1, 0, 1, FAR])
    of_file = st.dictionaries(st.tuples(st.integers(0, 3), ticks), st.integers(1, 2**40), min_size=1)
    files, first = data.draw(st.lists(of_file, min_size=1, max_size=3)), 0
    expected: dict[tuple[int, int], int] = {}
    parts = []
    for found in files:
        names = sorted({span for span, _ in found})
        numbered = sorted((names.index(span), tick, count) for (span, tick), count in found.items())
        spans = Spans.of(10 * np.arange(len(names)), *np.array(numbered, dtype=np.int64).T)
        parts.append((first, spans))
        expected |= {(first + 10 * span, tick): count for span, tick, count in numbered}
        first += 10 * len(names)
    joined = Spans.concat(parts)
    assert Spans.from_bytes(joined.to_bytes()).equals(joined)
    cells = zip(*np.nonzero(joined.counts), strict=True)
    assert {(joined.starts[i], joined.ticks[j]): joined.counts[i, j] for i, j in cells} == expected
    window = Window(*sorted(data.draw(st.lists(ticks, min_size=2, max_size=2, unique=True))))
    anchors = joined.anchors(window, first)
    inside = dict.fromkeys(joined.starts.tolist(), 0)
    for (start, tick), count in expected.items():
        inside[start] += count * (window.start <= tick < window.stop)
    assert anchors.positions.tolist() == [*inside, first]
    assert anchors.counts.tolist() == [0, *np.cumsum(list(inside.values())).tolist()]
