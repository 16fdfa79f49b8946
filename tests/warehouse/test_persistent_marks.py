"""Key marks list the keys of many ticks with all their rows, and the rows of ticks that have few.

tests/warehouse/test_key_types.py asks it of keys of every type, through loads and merges.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.keyworld import TINY, KeyWorld
from tidemark import warehouse
from tidemark.warehouse.columns.keys import Key, KeyColumn, name_at
from tidemark.warehouse.columns.tick_counts import TickCounts
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.projections import key_marks, persistent_marks
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows, count_pairs
from tidemark.warehouse.projections.persistent_marks import (
    ROW_BYTES,
    PersistentCollector,
    PersistentKeys,
    join_persistent,
)

Pairs = Counter[tuple[Any, int]]
LONG = Key("k", "long")


def listed(persistent: PersistentKeys) -> Pairs:
    """The listed rows: the count of each key, as a name, and tick."""
    rows = persistent.rows
    names = [name_at(rows.names, int(code)) for code in rows.codes]
    return Counter(dict(zip(zip(names, rows.ticks.tolist(), strict=True), rows.counts.tolist(), strict=True)))


def expected(pairs: Pairs, sizes: dict[Any, int], totals: TickCounts, limits: tuple[int, int, int]) -> Any:
    """The floor, the complete ticks and the listed rows, by the definition."""
    listing_bytes, complete_rows, complete_bytes = limits
    pairs = Counter({pair: count for pair, count in pairs.items() if pair[1] != NO_TICK})
    ticks: dict[Any, set[int]] = defaultdict(set)
    for name, tick in pairs:
        ticks[name].add(tick)
    floor = 1
    while sum(sizes[k] + ROW_BYTES * len(t) for k, t in ticks.items() if len(t) >= floor) > listing_bytes:
        floor += 1
    rows = dict(zip(totals.ticks.tolist(), totals.counts.tolist(), strict=True))
    rows.pop(NO_TICK, None)
    complete: list[int] = []
    for tick in sorted(rows, key=lambda tick: (rows[tick], tick)):
        chosen = [*complete, tick]
        in_bytes = sum(sizes[name] + ROW_BYTES for name, at in pairs if at in chosen)
        if sum(rows[at] for at in chosen) > complete_rows or in_bytes > complete_bytes:
            break
        complete = chosen
    kept = {(k, t): c for (k, t), c in pairs.items() if len(ticks[k]) >= floor or t in complete}
    return floor, sorted(complete), Counter(kept)


def limit(patch: pytest.MonkeyPatch, limits: tuple[int, ...]) -> None:
    """Marks list no more than this."""
    for name, most in zip(("BYTES", "COMPLETE_ROWS", "COMPLETE_BYTES"), limits, strict=True):
        patch.setattr(persistent_marks, name, most)


def check(world: KeyWorld, marks: KeyMarks, limits: tuple[int, int, int]) -> None:
    persistent, pairs = marks.persistent(), world.pairs(range(marks.run.first, marks.run.last + 1))
    assert persistent is not None
    named: Pairs = Counter()
    for (value, tick), count in pairs.items():
        nan = world.key.is_double and value == "NaN"
        named[world.key.name_of(float("nan") if nan else value), tick] += count
    sizes = {name: len(name) if isinstance(name, bytes) else 8 for name, _ in named}
    floor, complete, rows = expected(named, sizes, marks.totals, limits)
    assert (persistent.floor, persistent.complete.tolist()) == (floor, complete)
    assert listed(persistent) == rows


def drawn(keys: list[int], ticks: list[int]) -> tuple[KeyRows, TickCounts]:
    """The sorted rows of these keys and ticks, and their numbers by tick."""
    all_ticks = np.array(ticks, np.int64)
    names = np.array(keys, np.int64)
    rows = count_pairs(KeyColumn(names, None, np.zeros(len(names), bool)), all_ticks)
    unique, counts = np.unique(all_ticks, return_counts=True)
    none = np.zeros(len(unique), np.int64)
    return rows, TickCounts(unique, counts.astype(np.int64), none, none)


ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12) | st.just(NO_TICK)), min_size=1, max_size=80)


@given(ROWS, st.lists(st.integers(0, 80), max_size=8), st.integers(0, 3), st.data())
def test_any_division_of_the_rows_lists_the_same(rows: Any, cuts: list[int], files: int, data: Any) -> None:
    """Pieces and files begin anywhere, also inside a key."""
    limits = tuple(data.draw(st.sampled_from([0, 12, 40, 90, 2**19])) for _ in range(3))
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, limits)
        sorted_rows, totals = drawn(*map(list, zip(*rows, strict=True)))
        edges = sorted({0, len(sorted_rows), *(min(cut, len(sorted_rows)) for cut in cuts)})
        pieces = [sorted_rows.part(a, b) for a, b in pairwise(edges)]
        parts = []
        for number in range(files + 1):
            collector = PersistentCollector(LONG, totals)
            for piece in pieces[
                number * len(pieces) // (files + 1) : (number + 1) * len(pieces) // (files + 1)
            ]:
                collector.add(piece, totals.ticks.searchsorted(piece.ticks))
            parts.append(collector.finish())
        found = join_persistent(LONG, parts, totals)
        stored = persistent_marks.to_arrow(LONG, found)
        again = persistent_marks.from_arrow(LONG, stored, totals.ticks)
        names = [name_at(sorted_rows.names, int(code)) for code in sorted_rows.codes]
        pairs = dict(
            zip(zip(names, sorted_rows.ticks.tolist(), strict=True), sorted_rows.counts.tolist(), strict=True)
        )
        sizes = dict.fromkeys(names, 8)
        for one in (found, again):
            assert (one.floor, one.complete.tolist(), listed(one)) == expected(
                Counter(pairs), sizes, totals, limits
            )
        if pieces:
            assert np.bincount(again.rows.codes).sum() == len(again.rows)


@pytest.mark.slow
def test_keys_at_the_edges_of_files_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join that takes the edges of files for whole keys is found by verify."""

    def forgets_edges(key: Any, parts: Any, totals: Any) -> PersistentKeys:
        return join_persistent(key, parts[:1], totals)

    for broken in (False, True):
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr(key_marks, "join_persistent", forgets_edges)
            world = KeyWorld(tmp_path / f"{broken}", tuning=TINY)
            world.load([(name, tick) for name in "ab" for tick in range(60)], files=6)
        report = warehouse.verify(world.uri)
        assert report.ok is not broken
        assert ("persistent keys" in str(report)) is broken
