"""Cuts of keys: slices share no pair and miss none, equal pairs meet in one slice, and shares are even."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from tidemark.warehouse.columns.keys import Key, KeyColumn, name_at, names_from, separator, take_names
from tidemark.warehouse.columns.ticks import NO_TICK
from tidemark.warehouse.projections.key_rows import KeyRows, count_pairs, sum_counts
from tidemark.warehouse.runs import cuts
from tidemark.warehouse.runs.cuts import MergeSlice, SortedInput, clip_to_slice, merge_cost, plan_slices

TEXT, NUMBER = Key("k", "string"), Key("k", "long")
texts = st.one_of(st.binary(max_size=4), st.sampled_from([b"", b"a", b"a\x00", b"aa", b"ab", b"\xff"]))
numbers = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
ticks = st.one_of(st.integers(-1, 3), st.sampled_from([NO_TICK, 2**62]))


def rows_of(key: Key, pairs: list[tuple[Any, int]]) -> KeyRows:
    names = names_from(key, [name for name, _ in pairs])
    codes = np.arange(len(pairs)) if key.is_text else None
    column = KeyColumn(names, codes, np.zeros(len(pairs), dtype=bool))
    return count_pairs(column, np.array([tick for _, tick in pairs], dtype=np.int64))


def pairs_of(rows: KeyRows) -> list[tuple[Any, int, int]]:
    names = [name_at(rows.names, i) for i in range(len(rows.names))]
    triples = zip(rows.codes, rows.ticks.tolist(), rows.counts.tolist(), strict=True)
    return [(names[code], tick, count) for code, tick, count in triples]


def marked(rows: KeyRows, each: int) -> SortedInput:
    """The rows as an input with a mark, as files have them, every so many rows."""
    marks, found = list(range(0, len(rows), each)), pairs_of(rows)
    pairs = []
    for at in marks:
        name, tick, _ = found[at]
        before = found[at - 1][0] if at else None
        if before is None or before == name:
            pairs.append((name, tick))
        else:
            pairs.append((separator(before, name), NO_TICK))
    key = NUMBER if isinstance(rows.names, np.ndarray) else TEXT
    keys, at_ticks = names_from(key, [name for name, _ in pairs]), np.array([t for _, t in pairs], np.int64)
    return SortedInput((), len(rows), np.array(marks, np.int64), (keys, at_ticks))


@st.composite
def inputs(draw: st.DrawFn) -> tuple[Key, list[list[tuple[Any, int]]]]:
    key = draw(st.sampled_from([TEXT, NUMBER]))
    pair = st.tuples(texts if key.is_text else numbers, ticks)
    few = draw(st.lists(pair, min_size=1, max_size=12))
    some = st.lists(st.one_of(st.sampled_from(few), pair), max_size=40)
    return key, draw(st.lists(some, min_size=1, max_size=4))


def planned(sources: list[SortedInput], rows: int, block: int) -> list[MergeSlice]:
    """Slices of about so many rows, a block counting as no fewer than `block`."""
    return plan_slices(sources, -(-merge_cost(sources, block) // rows), min_block_cost=block, split=False)


def merged(parts: list[KeyRows], each: int, blocks: int) -> list[KeyRows]:
    """What the tasks of a merge make, a part for each slice, of what their reaches let them read."""
    sources = [marked(part, each) for part in parts]
    found = []
    for piece in planned(sources, each * blocks, each):
        read = enumerate(zip(parts, piece.input_ranges, strict=True))
        found.append(
            sum_counts(
                [
                    clip_to_slice(part.part(reach.start, reach.stop), reach.start, source, piece)
                    for source, (part, reach) in read
                ]
            )
        )
    return found


@given(inputs(), st.integers(1, 6), st.integers(1, 3))
def test_slices_together_are_the_counter_of_all_rows_in_order(
    drawn: tuple[Key, list[list[tuple[Any, int]]]], each: int, blocks: int
) -> None:
    key, lists = drawn
    found = [
        one for part in merged([rows_of(key, rows) for rows in lists], each, blocks) for one in pairs_of(part)
    ]
    truth = Counter(pair for rows in lists for pair in rows)
    assert [(name, tick) for name, tick, _ in found] == sorted(truth)
    assert {(name, tick): count for name, tick, count in found} == dict(truth)


@pytest.mark.parametrize("key", [TEXT, NUMBER], ids=["text", "number"])
@pytest.mark.parametrize("distinct", [1, 3, 4000])
def test_no_slice_is_much_longer_than_its_share(key: Key, distinct: int) -> None:
    """Four inputs of as many rows, of one key, of few and of all apart."""
    r = np.random.default_rng(1)
    parts = []
    for _ in range(4):
        draws, days = r.integers(0, distinct, 4000).tolist(), r.integers(0, 50, 4000).tolist()
        names = [b"%d" % number for number in draws] if key.is_text else draws
        parts.append(rows_of(key, list(zip(names, days, strict=True))))
    slices = planned([marked(part, 64) for part in parts], 8 * 64, 64)
    longest = max(sum(reach.stop - reach.start for reach in piece.input_ranges) for piece in slices)
    assert longest <= (8 + 2 * 4) * 64
    assert sum(int(part.counts.sum()) for part in merged(parts, 64, 8)) == 16_000


def test_a_cut_that_splits_equal_pairs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second input's rows of the cut's own pair go before the cut, the first's after it."""

    def splits(rows: KeyRows, offset: int, source: int, piece: MergeSlice) -> KeyRows:
        late = {end: replace(cut, split=True) for end in ("lower", "upper") if (cut := getattr(piece, end))}
        clipped: KeyRows = cuts.clip_to_slice(rows, offset, source, replace(piece, **late))
        return clipped

    lists = [[(number // 3, number % 3) for number in range(60)]] * 2
    parts = [rows_of(NUMBER, rows) for rows in lists]
    monkeypatch.setitem(globals(), "clip_to_slice", splits)
    truth = [(number // 3, number % 3, 2) for number in range(60)]
    assert [one for part in merged(parts, 4, 3) for one in pairs_of(part)] != truth
    monkeypatch.setitem(globals(), "clip_to_slice", cuts.clip_to_slice)
    assert [one for part in merged(parts, 4, 3) for one in pairs_of(part)] == truth


@given(texts, texts)
def test_a_separator_lies_between_and_is_no_longer_than_it_must(a: bytes, b: bytes) -> None:
    if a == b:
        return
    low, high = sorted([a, b])
    found = separator(low, high)
    assert isinstance(found, bytes)
    assert low < found <= high
    assert all(not low < high[:length] for length in range(len(found)))


@given(inputs(), st.tuples(texts, ticks))
def test_before_is_the_number_of_lesser_rows(drawn: Any, pair: tuple[bytes, int]) -> None:
    key, lists = drawn
    rows = rows_of(key, lists[0])
    at = pair if key.is_text else (len(pair[0]) - 2, pair[1])
    assert rows.rows_before(*at) == sum((name, tick) < at for name, tick, _ in pairs_of(rows))


def test_a_part_of_rows_has_no_name_that_it_does_not_use() -> None:
    rows = rows_of(TEXT, [(b"%d" % i, i % 2) for i in range(30)])
    part = rows.part(7, 13)
    assert pairs_of(part) == pairs_of(rows)[7:13]
    assert len(part.names) == int(part.codes[-1]) + 1 == 6
    assert pairs_of(rows.part(4, 4)) == []
    first: Any = take_names(rows.names, np.array([0]))
    assert first.equals(pa.array([b"0"], pa.large_binary()))
