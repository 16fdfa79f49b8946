"""The stored form of an ECM-sketch: kind b"ECMS", version 1, inside the envelope.

    offset  bytes  field (offsets inside the payload; add 20 for the stored bytes)
    0       4 + 4  rows and width, unsigned
    8       8      seed of the row hashes, unsigned
    16      1      1 where keys are columns themselves, else 0
    17      8 + 8  eps and delta as asked for, float64
    33      2      kind of counter: b"EH", b"DW" or b"RW"
    35      1      clock: b"t" time, b"c" count
    36      8 + 8  eps_sw and delta_sw of the counters, float64
    52      4 + 8  constant and site of randomised waves, unsigned
    64      8      window, 0 for none
    72      8      n, unsigned
    80      8 + 8  first and now, signed
    96      8      skew, float64
    104     8 * 3  the lengths of three lists, unsigned
    128     ...    the lists, numbers as varints.py has them

What is deterministic has k cells that hold any, b buckets and s stretches of equal size:
    k cells, each less the one before and less 1; k numbers of buckets; s sizes; s lengths;
    b ends, each less the one before it in its cell, the oldest less `first`; for DW k numbers of the expired.

Randomised waves have w waves of e entries in all (and 0):
    w numbers of entries; e cells, each less the one before it in its wave; e times, each less the one
    before in its cell, the oldest less `first`; e levels.

Empty cells take no bytes. All little endian. Equal batches in equal order have equal bytes.
"""

import struct
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.counters.buckets import Buckets, Ints, check
from tidemark.sketches.counters.counting import FARTHEST, Clock, CounterKind, CounterState, Counting
from tidemark.sketches.counters.deterministic_wave import check_ranks
from tidemark.sketches.counters.exponential_histogram import check_levels
from tidemark.sketches.counters.randomized_wave import SampledWaves, WaveSample, check_samples
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.ecm.ecm_sizes import checked_promise
from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, corrupt, unwrap, wrap
from tidemark.sketches.encoding.varints import decode_varints, encode_varints, exact_sum
from tidemark.sketches.errors import BrokenInvariant, CorruptSketch, InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS, RowHashes, checked_hashes

ECM_KIND = b"ECMS"
ECM_VERSION = 1
_ECM_HEADER = struct.Struct("<IIQBdd2scddIQqQqqdQQQ")
_UNSIGNED = np.dtype(np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class StoredECM:
    """What is stored of an ECM-sketch. `hashes.cells` counters, and the eps and delta that it states."""

    hashes: RowHashes
    counts: WindowCounts
    eps: float
    delta: float


def encode_ecm(sketch: StoredECM) -> bytes:
    """The stored form of a sketch."""
    counts, hashes = sketch.counts, sketch.hashes
    own, first = counts.counting, counts.first or 0
    lengths, numbers = _listed(counts.kept, own.kind, first)
    header = _ECM_HEADER.pack(
        hashes.rows,
        hashes.width,
        hashes.seed,
        hashes.direct,
        sketch.eps,
        sketch.delta,
        own.kind.encode(),
        own.clock[:1].encode(),
        own.eps,
        own.delta,
        own.constant,
        own.site,
        own.window or 0,
        counts.n,
        first,
        counts.now or 0,
        counts.skew,
        *lengths,
    )
    return wrap(ECM_KIND, ECM_VERSION, header + encode_varints(numbers))


def decode_ecm(data: bytes) -> StoredECM:
    """The sketch of stored bytes; the inverse of `encode_ecm`.

    Raises CorruptSketch for any damage, also for whole bytes whose content no sketch can have; WrongKind and
    NewerVersion as `unwrap` does. Time and memory are in proportion to the bytes, whatever the header says:
    every cell, bucket, arrival and wave that it claims has bytes of its own.
    """
    _, payload = unwrap(ECM_KIND, data, newest=ECM_VERSION)
    if len(payload) < _ECM_HEADER.size:
        raise _corrupt_payload(len(payload), f"the payload ends, expected at least {_ECM_HEADER.size} bytes")
    try:
        return _decoded(_ECM_HEADER.unpack_from(payload), payload[_ECM_HEADER.size :])
    except (InvalidInput, BrokenInvariant) as broken:
        raise _corrupt_payload(0, f"no sketch has this content: {broken}") from broken


def _decoded(header: tuple[Any, ...], body: bytes) -> StoredECM:
    (rows, width, seed, direct, eps, delta, kind, clock, eps_sw, delta_sw) = header[:10]
    (constant, site, window, n, first, now, skew, *lengths) = header[10:]
    clocks: dict[bytes, Clock] = {b"t": "time", b"c": "count"}
    kinds: dict[bytes, CounterKind] = {name.encode(): name for name in get_args(CounterKind)}
    if kind not in kinds or clock not in clocks or direct not in (0, 1) or (direct and rows != 1):
        raise _corrupt_payload(
            16, f"got kind {kind!r}, clock {clock!r}, direct {direct!r}, expected those of a sketch"
        )
    if not (0 <= n < FARTHEST and -FARTHEST <= first <= now <= FARTHEST and 0 <= skew < 2**20):
        raise _corrupt_payload(
            72, f"got n = {n}, times {first} to {now}, skew {skew}, expected those of a sketch"
        )
    if not (0 < eps < 1 and 0 < delta < 1):
        raise _corrupt_payload(17, f"got eps = {eps}, delta = {delta}, expected them between 0 and 1")
    eps, delta = checked_promise(eps, delta)
    hashes = checked_hashes(RowHashes(rows, width, seed, bool(direct)))
    counting = Counting(kinds[kind], eps_sw, window or None, clocks[clock], delta_sw, constant, site)
    counts = WindowCounts.empty(counting, hashes.cells)
    try:
        numbers = decode_varints(body)
    except CorruptSketch as cut:
        raise _corrupt_payload(_ECM_HEADER.size, str(cut)) from cut
    if n:
        if kind == b"RW":
            kept: CounterState = _samples(lengths, numbers, counting, first, n)
        else:
            kept = _buckets(lengths, numbers, kind == b"DW", first, n)
        _check_kept(kept, hashes, counting, n, first, now)
        counts = WindowCounts.of(counting, hashes.cells, kept, n=n, first=first, now=now, skew=skew)
    else:
        own_lengths, none = _listed(counts.kept, counting.kind, 0)
        if (*own_lengths, first, now, skew) != (*lengths, 0, 0, 0) or not np.array_equal(numbers, none):
            raise _corrupt_payload(104, "got entries or times of no arrivals, expected none")
    return StoredECM(hashes, counts, eps, delta)


def _listed(kept: CounterState, kind: str, first: int) -> tuple[tuple[int, int, int], NDArray[np.uint64]]:
    """The three lengths and all numbers of the lists."""
    if isinstance(kept, SampledWaves):
        held = [len(wave.cells) for wave in kept.waves]
        cells = [np.diff(wave.cells, prepend=0) for wave in kept.waves]
        times = [_since_the_one_before(w.times, _firsts(w.cells), first) for w in kept.waves]
        levels = [wave.levels for wave in kept.waves]
        parts: list[NDArray[np.generic]] = [np.array(held), *cells, *times, *levels]
        lengths = (len(kept.waves), sum(held), 0)
    else:
        stretches = np.flatnonzero(np.diff(kept.sizes, prepend=0))
        parts = [
            np.diff(kept.cells, prepend=-1) - 1,
            np.diff(kept.starts),
            kept.sizes[stretches],
            np.diff(stretches, append=len(kept)),
            _since_the_one_before(kept.ends, kept.starts[:-1], first),
            *([kept.before] if kind == "DW" else []),
        ]
        lengths = (len(kept.cells), len(stretches), len(kept))
    return lengths, np.concatenate([part.astype(_UNSIGNED) for part in parts])


def _buckets(lengths: list[int], numbers: NDArray[np.uint64], waves: bool, first: int, n: int) -> Buckets:
    k, s, b = lengths
    if len(numbers) != (3 if waves else 2) * k + 2 * s + b or (k == 0) != (b == 0):
        raise _corrupt_payload(
            104, f"got {len(numbers)} numbers, expected those of {k} cells, {s} sizes, {b} ends"
        )
    if k == 0:
        nothing = np.empty(0, np.int64)
        return Buckets(nothing, np.zeros(1, np.int64), nothing, nothing, nothing)
    cells, held, sizes, stretches, ends, before = np.split(numbers, np.cumsum([k, k, s, s, b]))
    if len(before) == 0:
        before = np.zeros(k, np.uint64)
    if exact_sum(held) != b or exact_sum(stretches) != b or not np.all(held) or not np.all(stretches):
        raise _corrupt_payload(104, f"got numbers of buckets and of sizes that do not make {b}, expected so")
    if exact_sum(cells) + k > MOST_CELLS or max(int(sizes.max()), int(before.max())) > n:
        raise _corrupt_payload(
            _ECM_HEADER.size, f"got a cell, a size or a count above what {n} arrivals have, expected none"
        )
    starts = np.concatenate([[0], np.cumsum(held.astype(np.int64))])
    return Buckets(
        np.cumsum(cells.astype(np.int64) + 1) - 1,
        starts,
        _times(ends, starts[:-1], first),
        np.repeat(sizes, stretches.astype(np.int64)).astype(np.int64),
        before.astype(np.int64),
    )


def _samples(
    lengths: list[int], numbers: NDArray[np.uint64], counting: Counting, first: int, n: int
) -> SampledWaves:
    w, entries, _ = lengths
    model = counting.none()
    if not isinstance(model, SampledWaves) or w != len(model.waves) or len(numbers) != w + 3 * entries:
        raise _corrupt_payload(
            104, f"got {len(numbers)} numbers for {w} waves of {entries} entries, expected them to agree"
        )
    held, cells, times, levels = np.split(numbers, np.cumsum([w, entries, entries]))
    most = (int(levels.max(initial=0)), int(cells.max(initial=0)))
    if exact_sum(held) != entries or most[0] > 64 or most[1] > MOST_CELLS:
        raise _corrupt_payload(
            _ECM_HEADER.size, "got entries, levels or cells out of range, expected those of waves"
        )
    # All waves at once: there may be as many of them as bytes.
    in_each = held.astype(np.int64)
    ends = np.cumsum(in_each)
    sums = np.concatenate([[0], np.cumsum(cells.astype(np.int64))])
    own = sums[1:] - np.repeat(sums[ends - in_each], in_each)
    new = np.diff(own, prepend=-1) != 0
    new[(ends - in_each)[in_each > 0]] = True
    firsts = np.flatnonzero(new)
    lists = [np.split(one, ends[:-1]) for one in (own, _times(times, firsts, first), levels.astype(np.uint8))]
    waves = tuple(WaveSample(*parts) for parts in zip(*lists, strict=True))
    return SampledWaves(waves, model.eps, model.most, n)


def _check_kept(
    kept: CounterState, hashes: RowHashes, counting: Counting, n: int, first: int, now: int
) -> None:
    """Raises unless counters of n arrivals from `first` to `now` can hold this."""
    if isinstance(kept, SampledWaves):
        check_samples(kept, hashes.cells, first, now)
        if max(len(wave.cells) for wave in kept.waves) > n * hashes.rows:
            raise BrokenInvariant(f"a wave must hold {n} arrivals in each row at most, and holds more")
        return
    check(kept, counting.eps)
    if counting.kind == "EH":
        check_levels(kept, counting.eps)
    else:
        check_ranks(kept, counting.eps)
    if len(kept) and (
        int(kept.cells[-1]) >= hashes.cells or kept.ends.min() < first or kept.ends.max() > now
    ):
        raise BrokenInvariant(
            f"cells must be below {hashes.cells} and times from {first} to {now}, and are not"
        )
    # A sum in doubles cannot wrap.
    of_buckets = np.repeat(kept.cells, np.diff(kept.starts)) // hashes.width
    rows = np.bincount(of_buckets, kept.sizes, hashes.rows)
    rows += np.bincount(kept.cells // hashes.width, kept.before, hashes.rows)
    if np.any(rows > n * (1 + 1e-9)) or (counting.window is None and np.any(rows < n * (1 - 1e-9))):
        raise BrokenInvariant(f"a row must hold {n} arrivals, less what expired, and does not")


def _since_the_one_before(times: Ints, firsts: Ints, first: int) -> Ints:
    steps = np.diff(times, prepend=0)
    steps[firsts] = times[firsts] - first
    return steps


def _times(steps: NDArray[np.uint64], firsts: Ints, first: int) -> Ints:
    """The inverse. Sums of hostile steps wrap, and what comes out is then not in order and refused."""
    sums = np.cumsum(steps)
    base = (sums - steps)[firsts]
    held = np.diff(firsts, append=len(steps))
    return (sums - np.repeat(base, held)).view(np.int64) + first


def _firsts(cells: Ints) -> Ints:
    return np.flatnonzero(np.diff(cells, prepend=-1))


def _corrupt_payload(offset: int, problem: str) -> CorruptSketch:
    return corrupt(PAYLOAD_OFFSET + offset, problem)
