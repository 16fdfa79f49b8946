"""The hashes of pairs, and the samples of slots that count them."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from tidemark.sketches import BrokenInvariant
from tidemark.sketches.persistence import pair_hashes as hashing
from tidemark.sketches.persistence.messages import SlotLists, slot_lists, union
from tidemark.sketches.persistence.pair_hashes import hash_salt, pair_hashes
from tidemark.sketches.persistence.slot_sample import Sampling, SlotSample, sample_size

SALT = hash_salt(0, 0, "counting")
GOLDEN_SALT = 6238072747940578789
GOLDEN_HASHES = [0.8902436584997363, 0.44458101173872044, 0.0763032759895036]


def hashes_of(digest: int, slots: NDArray[np.int64], salt: int = SALT) -> NDArray[np.float64]:
    return pair_hashes(np.array([digest], np.uint64), slots, salt)


def test_hashes_are_the_same_everywhere() -> None:
    assert hash_salt(0, 0, "tracking") == GOLDEN_SALT
    assert hashes_of(7, np.array([0, 1, 2**61]), GOLDEN_SALT).tolist() == GOLDEN_HASHES


def test_hashes_of_neighbours_are_uniform_and_independent() -> None:
    """Items 0 to 199 in slots 0 to 199: chi-squares of pairs with other hashes, and with neighbours."""
    digests, slots = np.arange(200, dtype=np.uint64)[:, None], np.arange(200)[None]
    h = pair_hashes(digests, slots, hash_salt(0, 0, "tracking"))
    others = [
        pair_hashes(digests, slots, SALT),
        pair_hashes(digests, slots, hash_salt(0, 1, "tracking")),
        pair_hashes(digests, slots, hash_salt(1, 0, "tracking")),
        np.roll(h, 1, axis=0),
        np.roll(h, 1, axis=1),
    ]
    for other in others:
        cells = (h * 16).astype(np.int64) * 16 + (other * 16).astype(np.int64)
        expected = h.size / 256
        chi_square = ((np.bincount(cells.ravel(), minlength=256) - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)


def test_no_hash_is_0_or_1(monkeypatch: pytest.MonkeyPatch) -> None:
    for state in (0, 2**64 - 1):
        monkeypatch.setattr(hashing, "splitmix", lambda states, state=state: np.full_like(states, state))
        assert 0 < hashes_of(7, np.array([3]))[0] < 1


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 300), unique=True, max_size=120).map(sorted),
    st.integers(2, 9),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_any_window_of_any_division_has_its_smallest_hashes(
    slots: list[int], size: int, sites: int, sliding: bool, data: st.DataObject
) -> None:
    """Sites that see some of the slots each, or the same ones: the union counts like all slots at once."""
    sampling = Sampling(size, sliding, SALT)
    samples = [SlotSample(7, sampling) for _ in range(sites)]
    for slot in slots:
        for site in data.draw(st.sets(st.integers(0, sites - 1), min_size=1)):
            samples[site].insert(slot, 0)
            samples[site].insert(slot, 0)
    for sample in samples:
        sample.check_invariants(0, 300)
    for start in (0, 50, 299) if sliding else (0,):
        live = np.array([slot for slot in slots if slot >= start], np.int64)
        merged = union([slot_lists([(7, sample.kept(start))]) for sample in samples])
        assert set(merged.slots.tolist()) <= set(live.tolist())
        expected = (
            float(len(live)) if len(live) < size else (size - 1) / np.sort(hashes_of(7, live))[size - 1]
        )
        assert sampling.estimate(7, merged.slots) == expected


@pytest.mark.parametrize("sliding", [True, False])
def test_a_sample_is_as_large_as_stated(*, sliding: bool) -> None:
    """Slots: s of a fixed window; s * (1 + ln(D / s)) of a sliding one, here the second window."""
    size, window, kept = 16, 512, []
    for digest in range(60):
        sample = SlotSample(digest, Sampling(size, sliding, SALT))
        for slot in range(2 * window if sliding else window):
            sample.insert(slot, max(0, slot - window + 1) if sliding else 0)
        kept.append(len(sample.kept(window if sliding else 0)))
    expected = size * (1 + math.log(window / size))
    if sliding:
        assert abs(np.mean(kept) - expected) < 0.05 * expected
    else:
        assert set(kept) == {size}


@pytest.mark.parametrize(("eps", "delta"), [(0.2, 0.1), (0.1, 0.3), (0.5, 0.02)])
def test_each_side_of_a_count_errs_with_at_most_delta(eps: float, delta: float) -> None:
    size, slots = sample_size(eps, delta), np.arange(1000)
    assert size < len(slots)
    chernoff = math.log1p(eps) - eps / (1 + eps)
    assert math.exp(-(size - 1) * chernoff) <= delta < math.exp(-(size - 2) * chernoff)
    sampling = Sampling(size, False, SALT)
    counts = np.array([sampling.estimate(digest, slots) for digest in range(2000)])
    for wrong in (counts > 1000 * (1 + eps), counts < 1000 * (1 - eps)):
        assert wrong.mean() <= delta + 4 * math.sqrt(delta * (1 - delta) / 2000)
    assert counts.max() > 1000 * (1 + eps)
    # 1 / v has the mean D / (s - 1), and the relative variance (D - s + 1) / (D * (s - 2)).
    deviation = math.sqrt(1000 * (1001 - size) / (size - 2))
    assert abs(counts.mean() - 1000) < 4 * deviation / math.sqrt(2000)
    assert abs(counts.std() / deviation - 1) < 0.1


def test_a_sample_below_its_size_is_exact() -> None:
    sampling = Sampling(10, True, SALT)
    for count in range(10):
        assert sampling.estimate(7, np.arange(count)) == count
        assert sampling.kept(7, np.arange(count)).tolist() == list(range(count))


def test_lists_count_the_smaller_of_a_list_and_a_bitmap() -> None:
    lists = slot_lists([(5, np.arange(3)), (4, np.arange(0)), (9, np.arange(100))])
    assert lists.digests.tolist() == [5, 9]
    assert lists.counts.tolist() == [3, 100]
    assert lists.nbytes(1000) == 8 + 24 + 8 + 125
    assert lists.nbytes(10**6) == 8 + 24 + 8 + 800
    assert slot_lists([]).nbytes(1000) == 0


def test_a_union_of_nothing_is_empty() -> None:
    nothing: SlotLists = union([slot_lists([]), slot_lists([])])
    assert (nothing.digests.tolist(), nothing.starts.tolist(), nothing.slots.tolist()) == ([], [0], [])


def test_broken_samples_are_found() -> None:
    def sample_of(slots: list[int]) -> SlotSample:
        sample = SlotSample(7, Sampling(4, True, SALT))
        sample._slots = slots
        return sample

    sample_of([1, 2, 5]).check_invariants(2, 5)
    for slots in ([2, 1], [1, 1], [-1, 2], [1, 6], list(range(17))):
        with pytest.raises(BrokenInvariant, match="expected at most 16, ascending, from 0 to 5"):
            sample_of(slots).check_invariants(0, 5)
