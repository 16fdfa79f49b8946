"""Tests of the tests: each mistake that is easy to make here must be caught by the checks of arrivals.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.sketches.arrivals import History, assert_counts, assert_points, joined, single, zipf
from tidemark.sketches import ECM, FrequencyBounds, SketchError, WindowCounts, digest, merge_ecm
from tidemark.sketches.bounds.count_bounds import Counts
from tidemark.sketches.counters import deterministic_wave as wave
from tidemark.sketches.counters import exponential_histogram as histogram
from tidemark.sketches.counters.buckets import Buckets, Ints
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.ecm import ecm_merge, frequency_bounds
from tidemark.sketches.ecm.ecm_merge import merge_counts

SINCE, DROP_EXPIRED = Buckets.since, Buckets.drop_expired
HALVES, BETWEEN = ecm_merge.halves, WindowCounts.between
MOST, SLOTS = histogram.most_buckets, wave.slots_per_level
Patch = tuple[object, str, Callable[..., object]]


def exercise(seeds: tuple[int, int] = (1, 1)) -> None:
    """Counters and sketches with and without a window, updated and merged, each against its arrivals."""
    rng = np.random.default_rng(6)
    kinds: tuple[CounterKind, CounterKind] = ("EH", "DW")
    for kind in kinds:
        for window in (None, 5):
            # So few that every bucket holds one, and every count is exact.
            few = single(kind, 0.1, window)
            few.update(np.arange(8))
            assert_counts(few, np.arange(8))
            for until in range(4, 9):
                assert few.between(3, until)[0].lo == few.between(3, until)[0].hi == until - 3
        for window in (None, 300):
            parts, whole = [], []
            for _ in range(4):
                counts, now, mine = single(kind, 0.1, window), 0, []
                for _ in range(3):
                    times = now + np.cumsum(rng.integers(0, 3, 150))
                    often = rng.integers(1, 4, 150)
                    now = int(times[-1])
                    counts.update(times, often)
                    mine.append(np.repeat(times, often))
                assert_counts(counts, np.concatenate(mine))
                parts.append(counts)
                whole += mine
            assert_counts(merge_counts(parts), np.concatenate(whole))
        histories = [History(zipf(rng, 1.0, 4000), np.sort(rng.integers(0, 10_000, 4000))) for _ in seeds]
        sketches = [ECM(0.05, 0.1, kind=kind, seed=seed) for seed in seeds]
        windows = [(None, None), (3000, None), (2000, 2400)]
        for sketch, history in zip(sketches, histories, strict=True):
            sketch.update(digest(history.keys), history.times)
            assert_points(sketch, history, windows)
        assert_points(merge_ecm(sketches), joined(histories), windows)


def since_with(lo: int = 0, hi: int = 0, later: int = 0) -> Callable[[Buckets, int, int], Counts]:
    def broken(buckets: Buckets, time: int, cells: int) -> Counts:
        found = SINCE(buckets, time + later, cells)
        return Counts(found.estimate, found.lo + lo, found.hi + hi)

    return broken


def halves_in_any_order(part: WindowCounts) -> tuple[Ints, Ints, Ints]:
    cells, times, counts = HALVES(part)
    return cells, times[::-1], counts


def wholes_at_the_end(part: WindowCounts) -> tuple[Ints, Ints, Ints]:
    kept: Any = part.kept
    return np.repeat(kept.cells, np.diff(kept.starts)), kept.ends, kept.sizes


def later_halves_alone(part: WindowCounts) -> tuple[Ints, Ints, Ints]:
    cells, times, counts = HALVES(part)
    held = len(part.kept)
    return cells[-held:], times[-held:], counts[-held:]


def counts_left_out(_: WindowCounts, counts: object) -> Ints:
    return np.empty(0, np.int64) if counts is None else np.ones(len(np.asarray(counts)), np.int64)


MISTAKES: dict[str, Patch] = {
    "a merge forgets the order": (ecm_merge, "halves", halves_in_any_order),
    "a merge puts whole buckets where they end": (ecm_merge, "halves", wholes_at_the_end),
    "a merge loses the earlier halves": (ecm_merge, "halves", later_halves_alone),
    "a merged counter forgets its skew": (WindowCounts, "_widened", lambda _, counts: counts),
    "a window begins one later": (Buckets, "since", since_with(later=1)),
    "a window begins one earlier": (Buckets, "since", since_with(later=-1)),
    "a window keeps one less": (
        Buckets,
        "drop_expired",
        lambda self, horizon: DROP_EXPIRED(self, horizon + 1),
    ),
    "a window ends one later": (
        WindowCounts,
        "between",
        lambda self, since, until: BETWEEN(self, since, None if until is None else until + 1),
    ),
    "lo is one too high": (Buckets, "since", since_with(lo=1)),
    "hi is one too low": (Buckets, "since", since_with(hi=-1)),
    "counts are left out": (WindowCounts, "_checked_counts", counts_left_out),
    "half the buckets": (histogram, "most_buckets", lambda eps: tuple(n // 2 for n in MOST(eps))),
    "half the slots of a wave": (wave, "slots_per_level", lambda eps: SLOTS(eps) // 2),
    "collisions are left out of lo": (
        FrequencyBounds,
        "_without_collisions",
        lambda _, least, hi: (least, hi),
    ),
}


def test_the_exercise_passes_without_a_mistake() -> None:
    exercise()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises((AssertionError, SketchError)):
        exercise()


def test_sketches_of_unequal_seeds_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing refused them, their merge would break the upper bounds."""
    with pytest.raises(SketchError, match="seed"):
        exercise(seeds=(1, 2))
    monkeypatch.setattr(ecm_merge, "require_same_hashes", lambda _: None)
    monkeypatch.setattr(frequency_bounds, "require_same_hashes", lambda _: None)
    with pytest.raises(AssertionError):
        exercise(seeds=(1, 2))
