"""One sketch twice among the inputs of a merge would count its elements twice: it is refused everywhere."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tidemark.sketches import (
    ECM,
    GK,
    Counting,
    DyadicECM,
    InvalidInput,
    WindowCounts,
    merge,
    merge_counts,
    merge_dyadic,
    merge_ecm,
)
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.ecm import ecm_merge
from tidemark.sketches.gk import gk


def gk_of(at: int) -> GK:
    return GK.from_sorted(np.arange(10.0) + at, 0.1)


def ecm_of(kind: CounterKind) -> Callable[[int], ECM]:
    def build(at: int) -> ECM:
        sketch = ECM(0.5, 0.5, kind=kind, site=at)
        sketch.update(np.arange(10, dtype=np.uint64), np.arange(10) + at)
        return sketch

    return build


def dyadic_of(at: int) -> DyadicECM:
    sketch = DyadicECM(8, 0.5, 0.5)
    sketch.update(np.arange(10), np.arange(10) + at)
    return sketch


def counts_of(kind: CounterKind) -> Callable[[int], WindowCounts]:
    def build(at: int) -> WindowCounts:
        counting = Counting(kind, 0.5, delta=0.5 if kind == "RW" else 0.0, site=at)
        counts = WindowCounts(counting)
        counts.update(np.arange(10) + at)
        return counts

    return build


KINDS: tuple[CounterKind, ...] = ("EH", "DW", "RW")
MERGES: dict[str, tuple[Callable[[Sequence[Any]], Any], Callable[[int], Any]]] = {
    "GK": (merge, gk_of),
    "GK, pruned": (lambda parts: merge(parts, 0.2), gk_of),
    "DyadicECM": (merge_dyadic, dyadic_of),
    **{f"ECM {kind}": (merge_ecm, ecm_of(kind)) for kind in KINDS},
    **{f"WindowCounts {kind}": (merge_counts, counts_of(kind)) for kind in KINDS},
}
LISTS = [[0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 2, 1], [0] * 5]


@pytest.mark.parametrize("order", LISTS, ids=str)
@pytest.mark.parametrize("name", MERGES)
def test_a_sketch_is_not_merged_with_itself(name: str, order: list[int]) -> None:
    union, build = MERGES[name]
    parts = [build(at) for at in range(3)]
    with pytest.raises(InvalidInput, match="one sketch twice"):
        union([parts[at] for at in order])
    assert union(parts).n == 30, "the inputs are left as they were"


@pytest.mark.parametrize("name", [name for name in MERGES if "RW" not in name])
def test_sketches_of_equal_content_are_merged(name: str) -> None:
    """Two streams may hold the same values; only one object is surely one stream."""
    union, build = MERGES[name]
    assert union([build(1), build(1)]).n == 20


def test_an_empty_sketch_adds_nothing_and_may_be_there_twice() -> None:
    cases: tuple[tuple[Callable[[list[Any]], Any], Any, Any], ...] = (
        (merge, GK(0.1), gk_of(0)),
        (merge_ecm, ECM(0.5, 0.5), ecm_of("EH")(0)),
        (merge_dyadic, DyadicECM(8, 0.5, 0.5), dyadic_of(0)),
    )
    for union, empty, full in cases:
        assert union([empty, full, empty]).n == 10


def test_two_sketches_that_share_their_counters_are_not_merged() -> None:
    one = ecm_of("EH")(0)
    other = ECM.of(one.hashes, one.counts.counting, eps=0.5, delta=0.5, counts=one.counts)
    with pytest.raises(InvalidInput, match="one sketch twice"):
        merge_ecm([one, other])


def test_more_elements_than_are_counted_are_refused() -> None:
    sketch = gk_of(0)
    for _ in range(59):
        sketch = merge([sketch, GK.from_bytes(sketch.to_bytes())], 0.1)
    assert sketch.n == 10 * 2**59
    assert sketch.quantile(0.5) in {4.0, 5.0}, "ranks add up to more than int64 holds"
    assert sketch.quantiles([0, 1]).tolist() == [sketch.min, sketch.max] == [0.0, 9.0]
    with pytest.raises(InvalidInput, match="2\\*\\*63"):
        merge([sketch, GK.from_bytes(sketch.to_bytes())])
    counts = [WindowCounts(Counting("EH", 0.5)) for _ in range(4)]
    for one in counts:
        one.update([1], [2**60])
    with pytest.raises(InvalidInput, match="2\\*\\*62"):
        merge_counts(counts)
    assert merge_counts(counts[:3]).since()[0].hi == 3 * 2**60


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_that_does_not_look_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gk, "require_disjoint", lambda _: None)
    monkeypatch.setattr(ecm_merge, "require_disjoint", lambda _: None)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_sketch_is_not_merged_with_itself(name, [0, 0])
