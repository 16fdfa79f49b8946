"""The key sample is what its module defines, whatever way it was made; estimates and stored form hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sketches import BrokenInvariant, CorruptSketch, InvalidInput, NewerVersion, WrongKind
from tidemark.sketches.encoding.envelope import unwrap, wrap
from tidemark.sketches.sampling import ALL, KeySample, SampleBuilder, SampleSize, key_sample, trials_interval

PLENTY = SampleSize(10**6, 10**6)
EXACT_MERGE = key_sample.merge_samples


@dataclass(frozen=True)
class Row:
    """`count` rows of `events` with one digest and tick, whose times are from `first` to `last`."""

    digest: int
    tick: int
    count: int
    first: int
    last: int


def mixed(state: int) -> int:
    """SplitMix64's output function in plain Python (Steele, Lea and Flood, OOPSLA 2014)."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % ALL
    state = (state ^ state >> 27) * 0x94D049BB133111EB % ALL
    return state ^ state >> 31


Defined = tuple[int, int, list[int], list[tuple[int, int, int, int, int]]]


def defined(rows: Sequence[Row], size: SampleSize) -> Defined:
    """Threshold, detail, hashes and entries by definition; an entry is (hash, tick, count, first, last)."""
    of_key: dict[int, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        of_key[mixed(row.digest)][row.tick].append(row)
    ascending = sorted(of_key)
    threshold = ascending[size.keys] if len(ascending) > size.keys else ALL
    hashes = ascending[: size.keys]
    detail, entries = threshold, list[tuple[int, int, int, int, int]]()
    for name in hashes:
        more = [
            (name, tick, sum(r.count for r in same), min(r.first for r in same), max(r.last for r in same))
            for tick, same in sorted(of_key[name].items())
        ]
        if len(entries) + len(more) > size.entries:
            detail = name
            break
        entries += more
    return threshold, detail, hashes, entries


def held(sample: KeySample) -> Defined:
    assert sample.times is not None
    columns = [sample.entry_hashes, sample.ticks, sample.counts, *sample.times.T]
    entries = list(zip(*(column.tolist() for column in columns), strict=True))
    return sample.threshold, sample.detail, sample.hashes.tolist(), entries


def sample_of(rows: Sequence[Row], size: SampleSize, *, timed: bool = True) -> KeySample:
    columns = [[row.tick for row in rows], [row.count for row in rows]]
    ticks, counts = (np.array(column, np.int64) for column in columns)
    times = np.array([[row.first, row.last] for row in rows], np.int64).reshape(len(rows), 2)
    digests = np.array([row.digest for row in rows], np.uint64)
    return KeySample.of(size, digests, ticks, counts, times if timed else None)


def built(rows: Sequence[Row], size: SampleSize, piece: int) -> KeySample:
    """The sample of a builder that gets `piece` rows at once, as a task does."""
    builder = SampleBuilder(size, timed=True)
    for start in range(0, len(rows), piece):
        part = rows[start : start + piece]
        names, codes = np.unique(np.array([row.digest for row in part], np.uint64), return_inverse=True)
        numbers = np.array([(row.tick, row.count, row.first, row.last) for row in part], np.int64)
        builder.add(names, codes, numbers[:, 0], numbers[:, 1], numbers[:, 2:])
    return builder.finish()


def merged_by(parts: list[KeySample], size: SampleSize, draws: list[int]) -> KeySample:
    """The parts, merged two or three at a time in a drawn order, a tree of any shape."""
    parts, draws = list(parts), [*draws, 0]
    while len(parts) > 1:
        draw = draws.pop(0) if len(draws) > 1 else draws[0]
        taken = [parts.pop(draw % len(parts)) for _ in range(min(2 + draw % 2, len(parts)))]
        parts.append(key_sample.merge_samples(taken, size))
    return parts[0]


EDGES = [0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, ALL - 1]
TIMES = st.integers(-(2**62), 2**62)
DRAWN_ROWS = st.lists(
    st.builds(
        lambda digest, tick, count, first, length: Row(digest, tick, count, first, first + length),
        st.integers(0, 12) | st.sampled_from(EDGES),
        st.integers(-2, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
        st.integers(1, 5) | st.just(2**40),
        TIMES,
        st.integers(0, 2**61),
    ),
    max_size=40,
)
SIZES = st.builds(SampleSize, st.integers(1, 9), st.integers(1, 20))
ORDERS = st.lists(st.integers(0, 20), max_size=6)


@given(DRAWN_ROWS, SIZES, st.integers(1, 7), ORDERS, st.integers(1, 9))
def test_every_split_and_order_gives_the_bytes_of_the_definition(
    rows: list[Row], size: SampleSize, parts: int, order: list[int], piece: int
) -> None:
    whole = sample_of(rows, size)
    whole.check_invariants()
    assert held(whole) == defined(rows, size)
    split = [sample_of(rows[i::parts], size) for i in range(parts)]
    assert merged_by(split, size, order).to_bytes() == whole.to_bytes()
    assert built(rows, size, piece).to_bytes() == whole.to_bytes()
    assert merged_by([*split, KeySample.empty(timed=True)], size, order).to_bytes() == whole.to_bytes()


@given(DRAWN_ROWS, SIZES, st.integers(1, 4))
def test_a_smaller_sample_of_larger_samples_is_that_of_the_rows(
    rows: list[Row], size: SampleSize, parts: int
) -> None:
    """As the ledger's cascade and a merge of runs do: inputs may be larger than the result."""
    larger = SampleSize(2 * size.keys, 3 * size.entries)
    split = [sample_of(rows[i::parts], larger) for i in range(parts)]
    assert key_sample.merge_samples(split, size).to_bytes() == sample_of(rows, size).to_bytes()


@given(DRAWN_ROWS, SIZES)
def test_stored_samples_reopen_and_keep_their_bytes(rows: list[Row], size: SampleSize) -> None:
    for timed in (False, True):
        sample = sample_of(rows, size, timed=timed)
        reopened = KeySample.from_bytes(sample.to_bytes())
        assert reopened.to_bytes() == sample.to_bytes()
        assert (reopened.times is None) is not timed
        assert (reopened.threshold, reopened.detail) == (sample.threshold, sample.detail)
        assert reopened.has_all == (sample.detail == ALL)


@given(DRAWN_ROWS, SIZES, st.integers(-2, 3), st.integers(-2, 3))
def test_a_window_knows_each_key_below_the_detail_and_its_rows(
    rows: list[Row], size: SampleSize, first: int, last: int
) -> None:
    sample = sample_of(rows, size)
    inside = (sample.ticks >= first) & (sample.ticks <= last)
    rows_of: Counter[int] = Counter()
    for name, count in zip(sample.entry_hashes[inside].tolist(), sample.counts[inside].tolist(), strict=True):
        rows_of[name] += count
    truth: Counter[int] = Counter()
    for row in rows:
        if first <= row.tick <= last and mixed(row.digest) < sample.detail:
            truth[mixed(row.digest)] += row.count
    assert rows_of == truth


def union_estimate(parts: Sequence[KeySample]) -> float:
    """The estimated number of keys of the rows of all parts together."""
    union = key_sample.merge_samples(parts, PLENTY)
    return union.keys / (union.threshold / ALL)


def sum_of_estimates(parts: Sequence[KeySample]) -> float:
    return sum(part.keys / (part.threshold / ALL) for part in parts)


Estimate = Callable[[Sequence[KeySample]], float]
KEYS, WORLDS, SMALL = 1500, 150, SampleSize(64, 200)


def assert_estimates_are_fair(estimate: Estimate = union_estimate) -> None:
    """Worlds with consecutive integers as keys, in two parts that share some: no bias, right spread."""
    estimates = []
    for world in range(WORLDS):
        keys = (world * 10**6 + np.arange(KEYS)).astype(np.uint64)
        ones = np.ones(KEYS, np.int64)
        parts = [
            KeySample.of(SMALL, part, ones[: len(part)], ones[: len(part)])
            for part in (keys[: KEYS - 100], keys[KEYS - 300 :])
        ]
        estimates.append(estimate(parts))
    error = np.array(estimates) / KEYS - 1
    deviation = 1 / np.sqrt(SMALL.keys)
    assert abs(error.mean()) <= 4 * deviation / np.sqrt(WORLDS), "the estimate is biased"
    assert error.std() <= 1.3 * deviation, "the estimate scatters more than a sample of this size does"


def test_estimates_of_overlapping_parts_have_no_bias() -> None:
    assert_estimates_are_fair()


def test_probable_intervals_of_windows_hold_as_often_as_they_say() -> None:
    """1,000 worlds: keys of one of four ticks each; an interval at 95 % misses at most 5 % and luck."""
    misses, worlds = 0, 1000
    for world in range(worlds):
        keys = (world * 10**5 + np.arange(400)).astype(np.uint64)
        ticks = np.arange(400) % 4
        sample = KeySample.of(SMALL, keys, ticks, np.ones(400, np.int64))
        in_window = len(np.unique(sample.entry_hashes[sample.ticks < 3]))
        low, high = trials_interval(in_window, sample.detail / ALL, 0.95)
        misses += not low <= 300 <= high
    assert misses <= 0.05 * worlds + 4 * np.sqrt(0.05 * 0.95 * worlds)
    assert misses > 0, "intervals that never miss are too wide to be those of 95 %"


@pytest.mark.parametrize(("keys", "entries"), [(0, 5), (5, 0), (-1, -1)])
def test_a_sample_of_nothing_is_refused(keys: int, entries: int) -> None:
    with pytest.raises(InvalidInput, match="1 or more"):
        SampleBuilder(SampleSize(keys, entries))


def test_samples_with_and_without_times_do_not_merge() -> None:
    for parts in ([KeySample.empty(), KeySample.empty(timed=True)], []):
        with pytest.raises(InvalidInput, match="all alike"):
            key_sample.merge_samples(parts, PLENTY)


ROWS = [
    Row(7, -1, 2, -5, 9),
    Row(7, 3, 1, 20, 20),
    Row(8, 3, 300, 1, 2),
    Row(9, 3, 1, 4, 4),
    Row(9, 4, 2, 5, 6),
]
GOLDEN = {
    "all, with times": (
        ROWS,
        PLENTY,
        True,
        (
            "544d534b4b534d50010000005d00000000000000"
            "0700000000000000000000000000000000030000000300000005000000fffffffffffffffffbffff"
            "ffffffffff14df177b2330ae12d75add7fbf6a6c82e8a9eb9cbb1f6bd50202010004040504020101"
            "02ac020019090a060e00000101"
            "127caf0b"
        ),
    ),
    "three keys, two of them with entries": (
        ROWS,
        SampleSize(2, 3),
        True,
        (
            "544d534b4b534d50010000004600000000000000"
            "04e8a9eb9cbb1f6bd5d75add7fbf6a6c82020000000100000002000000fffffffffffffffffbffff"
            "ffffffffff14df177b2330ae12d75add7fbf6a6c82020004020100190e00"
            "d00b6423"
        ),
    ),
    "a tick, one entry a key": (
        ROWS[2:4],
        PLENTY,
        False,
        (
            "544d534b4b534d50010000004000000000000000"
            "1b000000000000000000000000000000000200000002000000020000000300000000000000000000"
            "0000000000d75add7fbf6a6c82e8a9eb9cbb1f6bd501ac02"
            "7610436f"
        ),
    ),
    "nothing": (
        [],
        PLENTY,
        False,
        (
            "544d534b4b534d50010000002d00000000000000"
            "1b000000000000000000000000000000000000000000000000000000000000000000000000000000"
            "0000000000"
            "acb0979f"
        ),
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_stored_form_is_fixed(name: str) -> None:
    """These bytes are in tables already: a change here needs a new version number and a reader of both."""
    rows, size, timed, golden = GOLDEN[name]
    sample = sample_of(rows, size, timed=timed)
    assert sample.to_bytes().hex() == golden
    assert KeySample.from_bytes(bytes.fromhex(golden)).to_bytes().hex() == golden


def test_every_changed_byte_is_noticed() -> None:
    stored = sample_of(ROWS, SampleSize(2, 3)).to_bytes()
    for at in range(len(stored)):
        for change in (1, 128, 255):
            flipped = bytearray(stored)
            flipped[at] ^= change
            with pytest.raises(CorruptSketch):
                KeySample.from_bytes(bytes(flipped))
    for length in range(len(stored)):
        with pytest.raises(CorruptSketch):
            KeySample.from_bytes(stored[:length])
    with pytest.raises(CorruptSketch):
        KeySample.from_bytes(stored + b"\0")


def test_other_kinds_and_newer_versions_are_named() -> None:
    _, payload = unwrap(b"KSMP", sample_of(ROWS, PLENTY).to_bytes())
    with pytest.raises(WrongKind, match="GKQS"):
        KeySample.from_bytes(wrap(b"GKQS", 1, payload))
    with pytest.raises(NewerVersion, match="upgrade"):
        KeySample.from_bytes(wrap(b"KSMP", 2, payload))


SMALL_SAMPLE = sample_of(ROWS, SampleSize(2, 4))
IMPOSSIBLE = {
    "a hash beyond the threshold": lambda s: replace(s, threshold=int(s.hashes[-1])),
    "details beyond the threshold": lambda s: replace(s, detail=s.threshold + 1),
    "falling hashes": lambda s: replace(s, hashes=s.hashes[::-1]),
    "falling ticks": lambda s: replace(s, ticks=s.ticks[::-1]),
    "a count of nothing": lambda s: replace(s, counts=s.counts * 0),
    "a key without entries": lambda s: replace(s, starts=np.array([0, 0, len(s.ticks)])),
    "entries that no key has": lambda s: replace(s, starts=s.starts - 1),
    "a time that goes back": lambda s: replace(s, times=s.times[:, ::-1] - [[0, 1]]),
    "a key below the detail without entries": lambda s: replace(s, detail=s.threshold, starts=s.starts[:1]),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_samples_are_refused_also_as_bytes(name: str) -> None:
    SMALL_SAMPLE.check_invariants()
    impossible = IMPOSSIBLE[name](SMALL_SAMPLE)
    with pytest.raises(BrokenInvariant):
        impossible.check_invariants()
    if name not in ("details beyond the threshold", "entries that no key has"):  # bytes cannot say these
        with pytest.raises(CorruptSketch, match=r"at byte \d+"):
            KeySample.from_bytes(impossible.to_bytes())


def merge_at(choose: Callable[[Sequence[int]], int]) -> Callable[..., KeySample]:
    """A merge that takes another threshold than the least."""

    def broken(samples: Sequence[KeySample], size: SampleSize) -> KeySample:
        threshold, detail = choose([s.threshold for s in samples]), choose([s.detail for s in samples])
        return EXACT_MERGE([replace(s, threshold=threshold, detail=detail) for s in samples], size)

    return broken


@pytest.mark.parametrize("name", ["unmixed integers", "a sum of estimates", "the greatest threshold"])
def test_broken_variants_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "unmixed integers":
        monkeypatch.setattr(key_sample, "splitmix", lambda digests: digests)
        with pytest.raises(AssertionError):
            assert_estimates_are_fair()
    elif name == "a sum of estimates":
        with pytest.raises(AssertionError, match="biased"):
            assert_estimates_are_fair(sum_of_estimates)
    else:
        monkeypatch.setattr(key_sample, "merge_samples", merge_at(max))
        with pytest.raises(AssertionError):
            assert_estimates_are_fair()
        rows = [Row(digest, digest % 2, 1, 0, 0) for digest in range(20)]
        check = test_every_split_and_order_gives_the_bytes_of_the_definition.hypothesis.inner_test  # type: ignore[attr-defined]
        with pytest.raises(AssertionError):
            check(rows, SampleSize(3, 4), 3, [], 2)
