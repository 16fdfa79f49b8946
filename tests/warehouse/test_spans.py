"""Counts by span and tick: packed in the marks, or in lists as version 0.1 has them; of one file or many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.disk import forget_digests
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, warehouse
from tidemark.query.reading.modes import Mode
from tidemark.warehouse.columns.ticks import NO_TICK, Window
from tidemark.warehouse.projections.spans import Spans

PHIS = [0.1, 0.5, 0.9]
MODES: tuple[Mode, ...] = ("quick", "accurate", "exact")
FAR = 2**50 + 12345


def test_windows_are_answered_from_either_form_of_the_counts(tmp_path: Path) -> None:
    """Lists in the marks, which version 0.1 wrote, and packed tables: the same counts, bounds and answers."""
    loader = Loader.create(tmp_path / "w", tick="1 day")
    for _ in range(3):
        loader.load()
    loader.load(rows_of(3, 5000))

    def answers() -> list[str]:
        wh = query.open(loader.uri)
        windows = [f"{days} d" for days in range(1, 5)]
        return [str(wh.quantile(PHIS, last=last, mode=mode)) for last in windows for mode in MODES]

    def counts() -> list[Spans]:
        return [run.spans() for run in warehouse.open_snapshot(loader.uri).view("x").runs]

    told, packed = answers(), counts()
    assert any(len(spans.starts) > 1 for spans in packed)
    forget_digests(loader.uri)  # and makes lists of the counts
    assert answers() == told
    assert all(one.equals(other) for one, other in zip(counts(), packed, strict=True))


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
