"""The stored form of a key sample: kind b"KSMP", version 1, inside the envelope.

    offset  bytes  field (offsets inside the payload; add 20 for the stored bytes)
    0       1      flags: 1 the sample has all keys, 2 all entries, 4 it has times, 8 one entry a key,
                   16 one tick
    1       8      threshold, 0 if the sample has all keys
    9       8      detail, 0 if it has all entries
    17      4      k, the number of hashes
    21      4      d, the number of hashes with entries
    25      4      e, the number of entries
    29      8      the least tick, signed; 0 without entries
    37      8      the least time, signed; 0 without times
    45      8 * k  the hashes
    ...            varints: the number of entries of each of the d hashes, unless each has one
    ...            varints: each tick less the least one, unless all are equal
    ...            varints: the counts
    ...            varints: each first time less the least one, then each last time less its first, if there
    are times

All numbers are little endian. Equal samples have equal bytes. Encoding and decoding take O(k + e).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import corrupt_payload, unwrap, wrap
from tidemark.sketches.encoding.varints import decode_varints, encode_varints, exact_sum
from tidemark.sketches.errors import BrokenInvariant, CorruptSketch

if TYPE_CHECKING:
    from tidemark.sketches.sampling.key_sample import KeySample

KSMP_KIND = b"KSMP"
KSMP_VERSION = 1
_HEADER = struct.Struct("<BQQIIIqq")
_ALL_KEYS, _ALL_ENTRIES, _TIMED, _ONE_ENTRY, _ONE_TICK = 1, 2, 4, 8, 16
_LARGEST = 2**64

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]


def encode(sample: KeySample) -> bytes:
    """The stored form of a sample; the inverse of `decode`."""
    lengths = np.diff(sample.starts)
    least_tick = int(sample.ticks.min()) if len(sample.ticks) else 0
    tick_offsets = (sample.ticks - np.int64(least_tick)).view(np.uint64)
    one_entry, one_tick = bool(np.all(lengths == 1)), not tick_offsets.any()
    flags = _ALL_KEYS * (sample.threshold == _LARGEST) | _ALL_ENTRIES * (sample.detail == _LARGEST)
    flags |= _ONE_ENTRY * one_entry | _ONE_TICK * one_tick
    arrays = [] if one_entry else [lengths.astype(np.uint64)]
    arrays += [] if one_tick else [tick_offsets]
    arrays.append(sample.counts.astype(np.uint64))
    least_time = 0
    if sample.times is not None:
        flags |= _TIMED
        first, last = sample.times.T
        least_time = int(first.min()) if len(first) else 0
        arrays += [(first - np.int64(least_time)).view(np.uint64), (last - first).view(np.uint64)]
    header = _HEADER.pack(
        flags,
        sample.threshold % _LARGEST,
        sample.detail % _LARGEST,
        len(sample.hashes),
        len(lengths),
        len(sample.counts),
        least_tick,
        least_time,
    )
    numbers = encode_varints(np.concatenate(arrays))
    return wrap(KSMP_KIND, KSMP_VERSION, header + sample.hashes.astype("<u8").tobytes() + numbers)


def decode(data: bytes) -> tuple[int, int, Words, Ints, Ints, Ints, Ints | None]:
    """The fields of the sample of stored bytes, in their order; the inverse of `encode`.

    Raises CorruptSketch for damaged bytes; WrongKind and NewerVersion as `unwrap` does.
    """
    _, payload = unwrap(KSMP_KIND, data, newest=KSMP_VERSION)
    if len(payload) < _HEADER.size:
        raise corrupt_payload(0, f"got a payload of {len(payload)} bytes, expected at least {_HEADER.size}")
    flags, threshold, detail, k, d, e, least_tick, least_time = _HEADER.unpack_from(payload)
    hashes_end = _HEADER.size + 8 * k
    timed, one_entry, one_tick = (bool(flags & flag) for flag in (_TIMED, _ONE_ENTRY, _ONE_TICK))
    sizes = [0 if one_entry else d, 0 if one_tick else e, e, e * timed, e * timed]
    if flags > 31 or d > k or (one_entry and d != e) or len(payload) < hashes_end + sum(sizes):
        raise corrupt_payload(0, f"got {k} hashes, {d} of them with {e} entries, in {len(payload)} bytes")
    try:
        numbers = decode_varints(payload[hashes_end:])
    except CorruptSketch as cut:
        raise corrupt_payload(hashes_end, str(cut)) from cut
    if len(numbers) != sum(sizes):
        raise corrupt_payload(0, f"got {len(numbers)} numbers, expected {sum(sizes)}")
    lengths, ticks, counts, first, spans = np.split(numbers, np.cumsum(sizes)[:-1])
    if one_entry:
        lengths = np.ones(d, np.uint64)
    if exact_sum(lengths) != e or exact_sum(counts) >= 2**63:
        raise corrupt_payload(
            0, f"got keys with {exact_sum(lengths)} entries, expected {e}, and fewer than 2**63 rows"
        )
    times = None
    if timed:
        first_times = _offset(least_time, first)
        times = np.stack([first_times, _offset_each(first_times, spans)], axis=1)
    return (
        _LARGEST if flags & _ALL_KEYS else threshold,
        _LARGEST if flags & _ALL_ENTRIES else detail,
        np.frombuffer(payload, "<u8", k, _HEADER.size).astype(np.uint64),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths.astype(np.int64))]),
        np.full(e, least_tick, np.int64) if one_tick else _offset(least_tick, ticks),
        counts.astype(np.int64),
        times,
    )


def checked(check: Callable[[], None]) -> None:
    """Calls a check of the invariants; what breaks them is CorruptSketch."""
    try:
        check()
    except BrokenInvariant as broken:
        raise corrupt_payload(0, str(broken)) from broken


def _offset(least: int, offsets: Words) -> Ints:
    """Numbers from their least one and their distances to it."""
    if len(offsets) and least + int(offsets.max()) >= 2**63:
        raise corrupt_payload(0, f"got a number beyond 2**63 - 1, {int(offsets.max())} above {least}")
    return (offsets + np.uint64(least % _LARGEST)).view(np.int64)


def _offset_each(starts: Ints, offsets: Words) -> Ints:
    """Numbers from numbers that are not above them and their distances to these."""
    with np.errstate(over="ignore"):
        ends = (offsets + starts.view(np.uint64)).view(np.int64)
    if bool(np.any(ends < starts)) or bool(np.any(offsets >= np.uint64(2**63))):
        raise corrupt_payload(0, "got a last time beyond 2**63 - 1")
    return ends
