"""The stored form of an ECM-sketch: kind b"ECMS", version 1, inside the envelope.

    offset  bytes  field (offsets inside the payload; add 20 for the stored bytes)
    0       4 + 4  rows and width, unsigned
    8       8      seed of the row hashes, unsigned
    16      1      1 if a key is its own column (direct hashes), else 0
    17      8 + 8  eps and delta as requested at construction, float64
    33      2      kind of counter: b"EH", b"DW" or b"RW"; the other kinds have no stored form
    35      1      clock: b"t" time, b"c" count
    36      8 + 8  eps_sw and delta_sw of the counters, float64
    52      4 + 8  constant and site of randomised waves, unsigned
    64      8      window, 0 for none
    72      8      n, unsigned
    80      8 + 8  first and now, signed
    96      8      skew, float64
    104     8 * 3  three lengths, unsigned: (k, s, b) or (w, e, 0), see below
    128     ...    lists of numbers, encoded as in varints.py

EH and DW have k cells with buckets, b buckets, and s sequences of consecutive buckets of equal size. The
lists, one after the other:
    k cells: the difference from the cell before, or from -1 for the first, minus 1
    k numbers of buckets of a cell
    s sizes of the buckets of a sequence
    s numbers of buckets of a sequence
    b ends: the difference from the end before in the same cell; for the oldest one, from `first`
    k numbers of expired arrivals of a cell, for DW only

Randomised waves have w waves with e entries together:
    w numbers of entries of a wave
    e cells: the difference from the cell before in the same wave
    e times: the difference from the time before in the same cell; for the first entry that from `first`
    e levels

Empty cells take no bytes. All numbers are little endian. Equal batches in equal order give equal bytes.

Example. EH, first = 100, cells 2 and 5; cell 2 has buckets of 2, 1, 1 arrivals that end at 103, 107, 107, and
cell 5 has one bucket of 1 that ends at 100. The lengths are (2, 2, 4), and the lists:
    cells 2, 2; numbers of buckets 3, 1; sizes 2, 1; buckets of each size 1, 3; ends 3, 4, 0, 0
"""

import struct
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.counters.buckets import Buckets, Ints, no_buckets
from tidemark.sketches.counters.counting import (
    COUNT_LIMIT,
    PROVEN_KINDS,
    TIME_LIMIT,
    Clock,
    CounterKind,
    CounterState,
    Counting,
)
from tidemark.sketches.counters.randomized_wave import SampledWaves, WaveSample
from tidemark.sketches.counters.window_counts import WindowCounts, check_kept
from tidemark.sketches.ecm.ecm_sizes import checked_promise
from tidemark.sketches.encoding.envelope import corrupt_payload, unwrap, wrap
from tidemark.sketches.encoding.varints import decode_varints, encode_varints, exact_sum
from tidemark.sketches.errors import BrokenInvariant, CorruptSketch, InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS, RowHashes, checked_hashes

ECM_KIND = b"ECMS"
ECM_VERSION = 1
_ECM_HEADER = struct.Struct("<IIQBdd2scddIQqQqqdQQQ")


def encode_ecm(hashes: RowHashes, counts: WindowCounts, eps: float, delta: float) -> bytes:
    """The stored form of a sketch; the inverse of `decode_ecm`. O(cells + b) for b buckets.

    counts: `hashes.cells` counters. eps, delta: as requested at construction.

    Raises InvalidInput for a kind that has none: PF, SI, PR and SP.
    """
    counting, first = counts.counting, counts.first or 0
    lengths, numbers = _state_lists(counts.kept, counting.kind, first)
    header = _ECM_HEADER.pack(
        hashes.rows,
        hashes.width,
        hashes.seed,
        hashes.direct,
        eps,
        delta,
        counting.kind.encode(),
        counting.clock[:1].encode(),
        counting.eps,
        counting.delta,
        counting.constant,
        counting.site,
        counting.window or 0,
        counts.n,
        first,
        counts.now or 0,
        counts.skew,
        *lengths,
    )
    return wrap(ECM_KIND, ECM_VERSION, header + encode_varints(numbers))


def decode_ecm(data: bytes) -> tuple[RowHashes, WindowCounts, float, float]:
    """(hashes, counts, eps, delta) of stored bytes; the inverse of `encode_ecm`.

    Raises CorruptSketch for damaged bytes and for intact bytes that cannot be the state of a sketch;
    WrongKind and NewerVersion as `unwrap` does. Time and memory are O(len(data)), whatever the header claims,
    because every cell, bucket, entry and wave must have bytes.
    """
    _, payload = unwrap(ECM_KIND, data, newest=ECM_VERSION)
    if len(payload) < _ECM_HEADER.size:
        raise corrupt_payload(
            len(payload), f"got a payload of {len(payload)} bytes, expected at least {_ECM_HEADER.size}"
        )
    try:
        return _decode_content(_ECM_HEADER.unpack_from(payload), payload[_ECM_HEADER.size :])
    except (InvalidInput, BrokenInvariant) as broken:
        raise corrupt_payload(0, f"got content that no sketch can have: {broken}") from broken


def _decode_content(header: tuple[Any, ...], body: bytes) -> tuple[RowHashes, WindowCounts, float, float]:
    (rows, width, seed, direct, eps, delta, kind, clock, eps_sw, delta_sw) = header[:10]
    (constant, site, window, n, first, now, skew, *lengths) = header[10:]
    clocks: dict[bytes, Clock] = {b"t": "time", b"c": "count"}
    kinds: dict[bytes, CounterKind] = {name.encode(): cast("CounterKind", name) for name in PROVEN_KINDS}
    if kind not in kinds or clock not in clocks or direct not in (0, 1) or (direct and rows != 1):
        raise corrupt_payload(
            16,
            f"got kind {kind!r}, clock {clock!r}, direct {direct!r} and {rows} rows, "
            "expected EH, DW or RW, t or c, and 0, or 1 with one row",
        )
    if not (0 <= n < COUNT_LIMIT and -TIME_LIMIT <= first <= now <= TIME_LIMIT and 0 <= skew < 2**20):
        raise corrupt_payload(
            72, f"got n = {n}, times {first} to {now}, skew {skew}, expected those of a sketch"
        )
    if not (0 < eps < 1 and 0 < delta < 1):
        raise corrupt_payload(17, f"got eps = {eps}, delta = {delta}, expected both above 0 and below 1")
    eps, delta = checked_promise(eps, delta)
    hashes = checked_hashes(RowHashes(rows, width, seed, bool(direct)))
    counting = Counting(kinds[kind], eps_sw, window or None, clocks[clock], delta_sw, constant, site)
    counts = WindowCounts.empty(counting, hashes.cells)
    try:
        numbers = decode_varints(body)
    except CorruptSketch as cut:
        raise corrupt_payload(_ECM_HEADER.size, str(cut)) from cut
    if n:
        if kind == b"RW":
            kept: Buckets | SampledWaves = _decode_samples(lengths, numbers, counting, first, n)
        else:
            kept = _decode_buckets(lengths, numbers, kind == b"DW", first, n)
        _check_state(kept, hashes, counting, n, first, now)
        counts = WindowCounts.of(counting, hashes.cells, kept, n=n, first=first, now=now, skew=skew)
    else:
        empty_lengths, empty_numbers = _state_lists(counts.kept, counting.kind, 0)
        if (*empty_lengths, first, now, skew) != (*lengths, 0, 0, 0) or not np.array_equal(
            numbers, empty_numbers
        ):
            raise corrupt_payload(104, "got entries or times with n = 0, expected none")
    return hashes, counts, eps, delta


def _state_lists(
    kept: CounterState, kind: str, first: int
) -> tuple[tuple[int, int, int], NDArray[np.uint64]]:
    """The three lengths, and the numbers of all lists together."""
    if isinstance(kept, SampledWaves):
        entries = [len(wave.cells) for wave in kept.waves]
        cells = [np.diff(wave.cells, prepend=0) for wave in kept.waves]
        times = [
            _time_differences(w.times, np.flatnonzero(np.diff(w.cells, prepend=-1)), first)
            for w in kept.waves
        ]
        levels = [wave.levels for wave in kept.waves]
        parts: list[NDArray[np.generic]] = [np.array(entries), *cells, *times, *levels]
        lengths = (len(kept.waves), sum(entries), 0)
    elif isinstance(kept, Buckets):
        sequence_starts = np.flatnonzero(np.diff(kept.sizes, prepend=0))
        parts = [
            np.diff(kept.cells, prepend=-1) - 1,
            np.diff(kept.starts),
            kept.sizes[sequence_starts],
            np.diff(sequence_starts, append=len(kept)),
            _time_differences(kept.ends, kept.starts[:-1], first),
            *([kept.expired] if kind == "DW" else []),
        ]
        lengths = (len(kept.cells), len(sequence_starts), len(kept))
    else:
        raise InvalidInput(f"got counters of the kind {kind}; expected one of {PROVEN_KINDS} to store")
    return lengths, np.concatenate(parts, dtype=np.int64).view(np.uint64)


def _decode_buckets(
    lengths: list[int], numbers: NDArray[np.uint64], waves: bool, first: int, n: int
) -> Buckets:
    k, s, b = lengths
    if len(numbers) != (3 if waves else 2) * k + 2 * s + b or (k == 0) != (b == 0):
        raise corrupt_payload(
            104, f"got {len(numbers)} numbers, expected those of {k} cells, {s} sizes, {b} ends"
        )
    if k == 0:
        return no_buckets()
    cells, bucket_counts, sizes, size_counts, ends, expired = np.split(numbers, np.cumsum([k, k, s, s, b]))
    if len(expired) == 0:
        expired = np.zeros(k, np.uint64)
    if not (
        exact_sum(bucket_counts) == b
        and exact_sum(size_counts) == b
        and np.all(bucket_counts)
        and np.all(size_counts)
    ):
        raise corrupt_payload(
            104,
            f"got {b} buckets but other numbers of them by cell or by size, expected equal sums without 0",
        )
    if exact_sum(cells) + k > MOST_CELLS or max(int(sizes.max()), int(expired.max())) > n:
        raise corrupt_payload(
            _ECM_HEADER.size, f"got a cell, a size or a count that is too large for {n} arrivals"
        )
    starts = np.concatenate([[0], np.cumsum(bucket_counts.astype(np.int64))])
    return Buckets(
        np.cumsum(cells.astype(np.int64) + 1) - 1,
        starts,
        _times_of_differences(ends, starts[:-1], first),
        np.repeat(sizes, size_counts.astype(np.int64)).astype(np.int64),
        expired.astype(np.int64),
    )


def _decode_samples(
    lengths: list[int], numbers: NDArray[np.uint64], counting: Counting, first: int, n: int
) -> SampledWaves:
    w, entries, _ = lengths
    empty = counting.none()
    if not isinstance(empty, SampledWaves) or w != len(empty.waves) or len(numbers) != w + 3 * entries:
        raise corrupt_payload(
            104, f"got {len(numbers)} numbers for {w} waves of {entries} entries, expected them to agree"
        )
    wave_lengths, cells, times, levels = np.split(numbers, np.cumsum([w, entries, entries]))
    largest_level, largest_cell = int(levels.max(initial=0)), int(cells.max(initial=0))
    if exact_sum(wave_lengths) != entries or largest_level > 64 or largest_cell > MOST_CELLS:
        raise corrupt_payload(
            _ECM_HEADER.size, "got entries, levels or cells out of range, expected those of waves"
        )
    # All waves are decoded at once, because there may be as many waves as bytes.
    lengths_of_waves = wave_lengths.astype(np.int64)
    wave_ends = np.cumsum(lengths_of_waves)
    sums = np.concatenate([[0], np.cumsum(cells.astype(np.int64))])
    cell_of_entry = sums[1:] - np.repeat(sums[wave_ends - lengths_of_waves], lengths_of_waves)
    begins_cell = np.diff(cell_of_entry, prepend=-1) != 0
    begins_cell[(wave_ends - lengths_of_waves)[lengths_of_waves > 0]] = True
    time_of_entry = _times_of_differences(times, np.flatnonzero(begins_cell), first)
    columns = (cell_of_entry, time_of_entry, levels.astype(np.uint8))
    lists = [np.split(column, wave_ends[:-1]) for column in columns]
    waves = tuple(WaveSample(*parts) for parts in zip(*lists, strict=True))
    return SampledWaves(waves, empty.eps, empty.most, n)


def _check_state(
    kept: Buckets | SampledWaves, hashes: RowHashes, counting: Counting, n: int, first: int, now: int
) -> None:
    """Raises BrokenInvariant unless counters of n arrivals from `first` to `now` can have this state."""
    check_kept(kept, counting, hashes.cells, first, now)
    if isinstance(kept, SampledWaves):
        if max(len(wave.cells) for wave in kept.waves) > n * hashes.rows:
            raise BrokenInvariant(f"got a wave with more entries than {n} arrivals in each row")
        return
    if len(kept) and (
        int(kept.cells[-1]) >= hashes.cells or kept.ends.min() < first or kept.ends.max() > now
    ):
        raise BrokenInvariant(
            f"got a cell or time out of range; "
            f"expected cells below {hashes.cells} and times from {first} to {now}"
        )
    # Sums in float64 do not overflow; the factors below allow for their rounding errors.
    bucket_rows = np.repeat(kept.cells, np.diff(kept.starts)) // hashes.width
    row_totals = np.bincount(bucket_rows, kept.sizes, hashes.rows)
    row_totals += np.bincount(kept.cells // hashes.width, kept.expired, hashes.rows)
    if np.any(row_totals > n * (1 + 1e-9)) or (
        counting.window is None and np.any(row_totals < n * (1 - 1e-9))
    ):
        raise BrokenInvariant(f"got a row with another number of arrivals; expected {n} with expired ones")


def _time_differences(times: Ints, group_starts: Ints, first: int) -> Ints:
    """Each time minus the one before it; at the start of a group (a cell) minus `first`.

    Example: times [103, 107, 100], group starts [0, 2], first 100 gives [3, 4, 0].
    """
    differences = np.diff(times, prepend=0)
    differences[group_starts] = times[group_starts] - first
    return differences


def _times_of_differences(differences: NDArray[np.uint64], group_starts: Ints, first: int) -> Ints:
    """The inverse of `_time_differences`.

    Sums of forged differences may overflow. The times are then out of order or range, which the checks of the
    state detect.
    """
    sums = np.cumsum(differences)
    base = (sums - differences)[group_starts]
    group_lengths = np.diff(group_starts, append=len(differences))
    return (sums - np.repeat(base, group_lengths)).view(np.int64) + first
