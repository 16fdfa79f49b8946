import numpy as np
import pytest

from tests.sketches.arrivals import Ints, assert_points
from tests.sketches.test_ecm import WINDOWS, stream
from tidemark.sketches import ECM, Counting, InvalidInput, WindowCounts, digest, merge_counts, merge_ecm
from tidemark.sketches.counters.randomized_wave import SampledWaves
from tidemark.sketches.hashing.row_hashes import splitmix_int

EPS, DELTA, CONSTANT = 0.2, 0.1, 6


def waves(site: int = 0, window: int | None = None, cells: int = 1) -> WindowCounts:
    return WindowCounts(Counting("RW", EPS, window, delta=DELTA, constant=CONSTANT, site=site), cells)


def share_off(counts: WindowCounts, times: Ints, asked: range) -> float:
    """The share of windows whose estimate is off by more than eps, or whose bounds do not hold."""
    off = 0
    for since in asked:
        true, found = int((times >= since).sum()), counts.since(since)[0]
        off += not (found.lo <= true <= found.hi and abs(found.estimate - true) <= EPS * true)
    return off / len(asked)


def test_estimates_are_within_eps_but_for_delta() -> None:
    times = np.sort(np.random.default_rng(1).integers(0, 5000, 30_000))
    counts = waves()
    for part in np.array_split(times, 4):
        counts.update(part)
    assert counts.n == 30_000
    assert share_off(counts, times, range(0, 5000, 50)) <= DELTA


def test_few_arrivals_are_counted_exactly() -> None:
    counts = waves()
    counts.update(np.arange(149))
    for since in range(-1, 151):
        assert counts.since(since)[0].lo == counts.since(since)[0].hi == 149 - min(149, max(0, since))


@pytest.mark.slow
@pytest.mark.parametrize("sites", [2, 16, 256])
def test_a_merge_adds_no_error(sites: int) -> None:
    rng, parts, whole = np.random.default_rng(sites), [], []
    for site in range(sites):
        times = np.sort(rng.integers(0, 5000, 20_000 // sites))
        parts.append(waves(site))
        parts[-1].update(times)
        whole.append(times)
    merged = merge_counts(parts)
    assert (merged.error, merged.skew, merged.n) == (EPS, 0.0, 20_000 // sites * sites)
    assert share_off(merged, np.concatenate(whole), range(0, 5000, 100)) <= DELTA
    tree = parts
    while len(tree) > 1:
        tree = [merge_counts(pair) for pair in zip(tree[::2], tree[1::2], strict=True)]
    assert_same(tree[0], merged)


def assert_same(one: WindowCounts, other: WindowCounts) -> None:
    a, b = one.kept, other.kept
    assert isinstance(a, SampledWaves)
    assert isinstance(b, SampledWaves)
    for x, y in zip(a.waves, b.waves, strict=True):
        assert (x.times.tolist(), x.levels.tolist()) == (y.times.tolist(), y.levels.tolist())


def test_a_wave_is_no_larger_than_its_levels() -> None:
    counts = waves()
    counts.update(np.arange(100_000))
    held = counts.kept
    assert isinstance(held, SampledWaves)
    levels = 18
    assert len(held) <= len(held.waves) * held.most * levels


@pytest.mark.slow
def test_a_wave_keeps_what_fewer_than_m_later_ones_replace() -> None:
    """Each wave of each cell against the rule itself, with levels that are drawn in plain Python."""
    rng, times = np.random.default_rng(2), np.sort(np.random.default_rng(3).integers(0, 99, 3_000))
    cells = np.stack([rng.integers(0, 2, 3_000), rng.integers(2, 4, 3_000)])
    counts = waves(site=7, cells=4)
    for part in np.array_split(np.arange(3_000), 3):
        counts.update(times[part], cells=cells[:, part])
    held = counts.kept
    assert isinstance(held, SampledWaves)
    for number, wave in enumerate(held.waves[:3]):
        kept = []
        for cell in range(4):
            later = [0] * 65
            mine: list[tuple[int, int]] = []
            for i in np.flatnonzero(cells[cell // 2] == cell)[::-1].tolist():
                lot = splitmix_int(splitmix_int(7) + i) ^ splitmix_int(cell + splitmix_int(number + 1))
                level = (splitmix_int(lot) & -splitmix_int(lot)).bit_length() - 1
                if later[level] < held.most:
                    mine.append((int(times[i]), level))
                    later[: level + 1] = [n + 1 for n in later[: level + 1]]
            kept += mine[::-1]
        assert list(zip(wave.times.tolist(), wave.levels.tolist(), strict=True)) == kept


def test_a_window_forgets() -> None:
    counts = waves(window=100)
    for start in range(0, 3000, 500):
        counts.update(np.arange(start, start + 500))
    assert counts.since()[0].lo == counts.since()[0].hi == 100
    assert len(counts.kept) <= 100 * 26


def test_a_count_draws_as_many_lots() -> None:
    at_once, one_by_one = waves(), waves()
    at_once.update([1, 2, 7], [300, 5, 1000])
    one_by_one.update(np.repeat([1, 2, 7], [300, 5, 1000]))
    assert_same(at_once, one_by_one)
    with pytest.raises(InvalidInput, match="use EH"):
        at_once.update([8], [2**40])
    assert_same(at_once, one_by_one)


def test_sites_that_draw_the_same_lots_are_not_merged() -> None:
    with pytest.raises(InvalidInput, match="sites that differ"):
        merge_counts([waves(1), waves(1)])


def test_points_keep_eps_with_their_delta() -> None:
    history = stream(1.5, 4000)
    sketch, halves = ECM(0.25, 0.2, kind="RW"), [ECM(0.25, 0.2, kind="RW", site=i) for i in range(2)]
    sketch.update(digest(history.keys), history.times)
    for i, half in enumerate(halves):
        half.update(digest(history.keys[i::2]), history.times[i::2])
    assert_points(sketch, history, WINDOWS[:4])
    assert_points(merge_ecm(halves), history, WINDOWS[:4])
    with pytest.raises(InvalidInput, match="nothing is proved"):
        sketch.self_join()
