"""Stored bytes from anybody: they are refused, or make a sketch that answers, within a memory they pay for.

Checksums are right everywhere: CRC-32 is no defence, so the fields are all that is checked.
"""

import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemark.sketches import ECM, GK, CorruptSketch, DyadicECM, SketchError, digest, merge, merge_ecm
from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, wrap
from tidemark.sketches.sampling import KeySample, SampleSize, merge_samples

ECM_HEADER, GK_HEADER = struct.Struct("<IIQBdd2scddIQqQqqdQQQ"), struct.Struct("<dQIcBB")
SAMPLE_HEADER = struct.Struct("<BQQIIIqq")
OPENERS: dict[bytes, Callable[[bytes], Any]] = {
    b"GKQS": GK.from_bytes,
    b"ECMS": ECM.from_bytes,
    b"DYAD": DyadicECM.from_bytes,
    b"KSMP": KeySample.from_bytes,
}
UNSIGNED = [
    0,
    1,
    2,
    7,
    2**7,
    2**22,
    2**24 + 1,
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
EXTREMES: dict[str, list[object]] = {
    "I": [x for x in UNSIGNED if x < 2**32],
    "Q": [*UNSIGNED],
    "q": [0, -1, 1, 2**62, -(2**62), 2**63 - 1, -(2**63)],
    "d": [
        0.0,
        -1.0,
        1e-300,
        5e-324,
        1e-13,
        1e-6,
        0.3,
        0.999,
        1.0,
        2.0**20,
        1e308,
        *map(float, ("nan", "inf")),
    ],
    "B": [0, 1, 2, 8, 62, 255],
    "c": [b"t", b"c", b"f", b"i", b"\0"],
    "2s": [b"EH", b"DW", b"RW", b"XX"],
}


def payload_of(stored: bytes) -> bytes:
    return stored[PAYLOAD_OFFSET:-4]


def stored_forms() -> list[bytes]:
    """Of every kind: some with arrivals, some empty, one merged."""
    forms = [GK(0.1).to_bytes(), DyadicECM(5, 0.5, 0.5).to_bytes()]
    for values in (np.arange(50.0), np.arange(0, 90, 3), [7, 7, 7]):
        parts = [GK.from_sorted(values, 0.1), GK.from_sorted(values, 0.05)]
        forms += [parts[0].to_bytes(), merge(parts).to_bytes()]
    keys = digest(["a", "b", "a", "c", "a", "a", "d", "a", "b", "a", "a"])
    for kind in ("EH", "DW", "RW"):
        for window in (None, 25):
            sketch = ECM(0.5, 0.5, kind=kind, window=window)
            forms.append(sketch.to_bytes())
            for start in (0, 30):
                sketch.update(keys, start + np.arange(11), None if kind == "RW" else np.arange(1, 12))
            forms.append(sketch.to_bytes())
    forms.append(merge_ecm([ECM.from_bytes(forms[-6]), ECM.from_bytes(forms[-6])]).to_bytes())
    stack = DyadicECM(6, 0.5, 0.5)
    stack.update([1, 2, 60, 60, 60, 60], [1, 2, 3, 3, 3, 9])
    return [*forms, *stored_samples(), stack.to_bytes()]


def stored_samples() -> list[bytes]:
    """Key samples with and without times, entries of several ticks, and more keys than fit."""
    digests, ticks = np.arange(24, dtype=np.uint64) % np.uint64(9), np.arange(24) % 5
    counts, times = 1 + np.arange(24) * 50, np.arange(48).reshape(24, 2)
    drawn = [
        KeySample.of(size, digests[:rows], ticks[:rows], counts[:rows], timed)
        for size in (SampleSize(100, 100), SampleSize(5, 6))
        for rows in (24, 9, 0)
        for timed in (None, times[:rows])
    ]
    return [sample.to_bytes() for sample in drawn]


FORMS = stored_forms()


def allowed(data: bytes, cells: int = 0) -> int:
    """A megabyte, 512 a stored byte (a wave without arrivals takes one), and 128 a cell that is asked."""
    return 2**20 + 512 * len(data) + 128 * cells


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def cells_of(sketch: GK | ECM | DyadicECM | KeySample) -> int:
    if isinstance(sketch, GK | KeySample):
        return 0
    return sum(level.hashes.cells for level in (sketch.levels if isinstance(sketch, DyadicECM) else [sketch]))


def ask(sketch: object) -> None:
    """Every kind of answer, whatever the sketch is."""
    if isinstance(sketch, GK):
        sketch.check_invariants()
        if sketch.n:
            assert sketch.min <= sketch.quantile(0.5) <= sketch.max
            assert sketch.quantiles([0, 0.3, 1]).tolist()[::2] == [sketch.min, sketch.max]
    elif isinstance(sketch, KeySample):
        sketch.check_invariants()
        room = SampleSize(max(sketch.keys, 1), max(len(sketch.ticks), 1))
        nothing = KeySample.empty(timed=sketch.times is not None)
        assert merge_samples([nothing, sketch], room).to_bytes() == sketch.to_bytes()
    elif isinstance(sketch, DyadicECM):
        assert sketch.total().lo <= sketch.total().hi
        assert sketch.count_range(0, 2**sketch.bits - 1).hi >= 0
        if sketch.total().hi:
            sketch.quantile(0.5)
    elif isinstance(sketch, ECM):
        now = sketch.counts.now
        found = sketch.points(np.arange(sketch.hashes.width if sketch.hashes.direct else 9, dtype=np.uint64))
        assert (found.lo <= found.hi).all()
        assert sketch.total(now).lo <= sketch.total(now).hi


def assert_paid(data: bytes) -> None:
    """Refused, or a sketch that answers and is stored as it is; either way in memory that is paid for."""
    opened: list[Any] = []
    refusals: list[SketchError] = []

    def open_() -> None:
        try:
            opened.append(OPENERS[data[4:8]](data))
        except SketchError as refused:
            refusals.append(refused)

    assert peak(open_) <= allowed(data), "opening takes more than the bytes pay for"
    assert all("at byte" in str(refused) for refused in refusals if isinstance(refused, CorruptSketch))
    for sketch in opened:
        again = OPENERS[data[4:8]](sketch.to_bytes())
        assert again.to_bytes() == sketch.to_bytes()
        if cells_of(sketch) <= 10**5:
            assert peak(partial(ask, sketch)) <= allowed(data, cells_of(sketch)), (
                "an answer takes more than the bytes and the cells pay for"
            )


FIELDS = {b"ECMS": ECM_HEADER, b"GKQS": GK_HEADER, b"KSMP": SAMPLE_HEADER}


def with_field(stored: bytes, field: int, drawn: int) -> bytes:
    """One header field at an extreme; of a dyadic stack of its first level, or its bits, or its length."""
    kind, payload = stored[4:8], payload_of(stored)
    if len(payload) < 40:  # cut by a length
        return stored
    if kind == b"DYAD":
        (length,) = struct.unpack_from("<Q", payload, 1)
        if field % 3 == 0:
            return wrap(kind, 1, bytes([drawn % 256]) + payload[1:])
        if field % 3 == 1 or length > len(payload):
            wrong = struct.pack("<Q", UNSIGNED[drawn % len(UNSIGNED)])
            return wrap(kind, 1, payload[:1] + wrong + payload[9:])
        level = with_field(payload[9 : 9 + length], field // 3, drawn)
        return wrap(kind, 1, payload[:1] + struct.pack("<Q", len(level)) + level + payload[9 + length :])
    header = FIELDS[kind]
    fields = list(header.unpack_from(payload))
    codes = header.format[1:].replace("2s", "S")
    at = field % len(fields)
    choices = EXTREMES["2s" if codes[at] == "S" else codes[at]]
    fields[at] = choices[drawn % len(choices)]
    return wrap(kind, 1, header.pack(*fields) + payload[header.size :])


@settings(max_examples=150)
@given(
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6),
    st.binary(max_size=20),
)
def test_changed_bytes_are_refused_or_paid_for(
    stored: bytes, changes: list[tuple[int, int]], tail: bytes
) -> None:
    payload = bytearray(payload_of(stored))
    for at, value in changes:
        payload[at % len(payload)] = value
    assert_paid(wrap(stored[4:8], 1, bytes(payload) + tail))


@settings(max_examples=150)
@given(
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=3),
)
@example(FORMS[-1], [(0, 62)])
def test_header_fields_at_their_extremes_are_refused_or_paid_for(
    stored: bytes, changes: list[tuple[int, int]]
) -> None:
    for field, drawn in changes:
        stored = with_field(stored, field, drawn)
    assert_paid(stored)


@settings(max_examples=80)
@given(st.sampled_from(FORMS), st.sampled_from(FORMS), st.integers(0, 10**6), st.integers(0, 10**6))
def test_spliced_bytes_are_refused_or_paid_for(one: bytes, other: bytes, cut: int, resume: int) -> None:
    a, b = payload_of(one), payload_of(other)
    assert_paid(wrap(one[4:8], 1, a[: cut % (len(a) + 1)] + b[resume % (len(b) + 1) :]))
