import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sketches.oracle import assert_certified, batches
from tidemark.sketches import GK, CorruptSketch, InvalidInput, NewerVersion, WrongKind, merge
from tidemark.sketches.encoding.envelope import unwrap, wrap
from tidemark.sketches.gk.gk_bytes import GK_KIND

# Envelope; eps, n, k, dtype and widths; values; gaps; spreads; checksum.
GOLDEN_FLOAT64 = (
    "544d534b474b5153010000002f00000000000000"
    "000000000000d03f030000000000000003000000660000"
    "000000000000f0ff00000000000000000000000000000440"
    "7aa6ec88"
)
GOLDEN_INT64 = (
    "544d534b474b5153010000005300000000000000"
    "000000000000d03f080000000000000006000000690101"
    "010000000000000002000000000000000300000000000000"
    "050000000000000007000000000000000100000000002000"
    "000001010000"
    "000101000000"
    "6583cfd9"
)


def small_sketch() -> GK:
    sketch = merge([GK.from_sorted(np.arange(0, 40, 2), 0.1), GK.from_sorted(np.arange(1, 40, 2), 0.1)])
    assert (sketch.summary.rmax > sketch.summary.rmin).any()
    return sketch


def golden_sketches() -> dict[str, GK]:
    float64 = GK(0.25)
    float64.update([2.5, -np.inf, 0.0])
    int64 = merge([GK.from_sorted([1, 2, 3, 2**53 + 1], 0.25), GK.from_sorted([2, 2, 5, 7], 0.25)])
    return {GOLDEN_FLOAT64: float64, GOLDEN_INT64: int64}


def test_the_stored_form_is_fixed() -> None:
    """These bytes are in tables already: a change here needs a new version number and a reader of both."""
    for golden, sketch in golden_sketches().items():
        assert sketch.to_bytes().hex() == golden
        reopened = GK.from_bytes(bytes.fromhex(golden))
        assert (reopened.n, reopened.eps, reopened.dtype) == (sketch.n, sketch.eps, sketch.dtype)
        for name in ("values", "rmin", "rmax"):
            assert getattr(reopened.summary, name).tolist() == getattr(sketch.summary, name).tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_a_reopened_sketch_goes_on_as_if_never_stored(dtype: type) -> None:
    for parts in batches(dtype, np.random.default_rng(11), size=500).values():
        kept, reopened = GK(0.01, dtype), GK(0.01, dtype)
        for part in parts:
            kept.update(part)
            reopened.update(part)
            reopened = GK.from_bytes(reopened.to_bytes())
        assert reopened.to_bytes() == kept.to_bytes()
        assert_certified(reopened, np.concatenate(parts).astype(dtype))


@pytest.mark.parametrize("gap", [0, 1, 255, 256, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**61])
def test_ranks_of_every_width_come_back(gap: int) -> None:
    """The gap is made by hand: one value at the ranks 1 and gap + 2."""
    payload = struct.pack("<dQIcBB", 0.1, gap + 2, 2, b"i", 8, 0) + struct.pack("<qqQQ", 5, 5, 0, gap)
    sketch = GK.from_bytes(wrap(GK_KIND, 1, payload))
    assert sketch.summary.rmin.tolist() == [1, gap + 2]
    again = GK.from_bytes(sketch.to_bytes())
    assert again.summary.rmin.tolist() == again.summary.rmax.tolist() == [1, gap + 2]
    assert len(sketch.to_bytes()) <= len(wrap(GK_KIND, 1, payload))


def test_an_empty_sketch_comes_back() -> None:
    sketch = GK.from_bytes(GK(0.125, np.int64).to_bytes())
    assert (sketch.n, sketch.eps, sketch.dtype) == (0, 0.125, np.dtype(np.int64))


def test_exact_ranks_take_no_bytes_of_their_own() -> None:
    assert len(GK.from_sorted(np.arange(10.0), 0.01).to_bytes()) == 24 + 23 + 8 * 10


def test_a_cut_at_every_byte_is_noticed() -> None:
    data = small_sketch().to_bytes()
    for end in range(len(data)):
        with pytest.raises(CorruptSketch, match="at byte"):
            GK.from_bytes(data[:end])


def test_a_flip_of_every_bit_is_noticed() -> None:
    data = small_sketch().to_bytes()
    for position in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSketch, match="at byte"):
            GK.from_bytes(bytes(damaged))


@pytest.mark.slow
def test_damage_under_a_right_checksum_is_refused_or_is_another_sketch() -> None:
    """Each byte of the payload takes every value. What is let through must keep every rule."""
    _, payload = unwrap(GK_KIND, small_sketch().to_bytes())
    for position in range(len(payload)):
        for change in range(1, 256):
            damaged = bytearray(payload)
            damaged[position] ^= change
            try:
                sketch = GK.from_bytes(wrap(GK_KIND, 1, bytes(damaged)))
            except CorruptSketch:
                continue
            sketch.check_invariants()


def test_a_payload_cut_or_extended_under_a_right_checksum_is_refused() -> None:
    _, payload = unwrap(GK_KIND, small_sketch().to_bytes())
    for wrong in [payload[:end] for end in range(len(payload))] + [payload + b"\0"]:
        with pytest.raises(CorruptSketch):
            GK.from_bytes(wrap(GK_KIND, 1, wrong))


@given(st.binary(max_size=200))
def test_any_payload_raises_nothing_but_corrupt_sketch(payload: bytes) -> None:
    with pytest.raises(CorruptSketch):
        GK.from_bytes(wrap(GK_KIND, 1, payload))
    with pytest.raises(CorruptSketch):
        GK.from_bytes(payload)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ((0.1, 2**64 - 1, 2, b"i", 8, 0), struct.pack("<qqQQ", 5, 5, 2**64 - 1, 2**64 - 2)),
        ((0.1, 2, 2, b"i", 8, 0), struct.pack("<qqQQ", 5, 5, 2**63, 2**63)),
        ((0.1, 2, 2, b"i", 0, 8), struct.pack("<qqQQ", 5, 5, 2**64 - 1, 0)),
        ((0.1, 2, 2**32 - 1, b"i", 0, 0), struct.pack("<qq", 5, 5)),
        ((float("nan"), 2, 2, b"i", 0, 0), struct.pack("<qq", 5, 5)),
        ((0.5, 2, 2, b"i", 0, 0), struct.pack("<qq", 5, 5)),
        ((0.1, 2, 2, b"x", 0, 0), struct.pack("<qq", 5, 5)),
        ((0.1, 2, 2, b"f", 0, 0), struct.pack("<dd", 5, float("nan"))),
        ((0.1, 2, 2, b"f", 0, 0), struct.pack("<dd", 5, 4)),
        ((0.1, 2, 2, b"f", 0, 0), struct.pack("<dd", -0.0, 4)),
        ((0.1, 2, 2, b"f", 3, 0), struct.pack("<dd", 5, 5) + bytes(6)),
        ((0.1, 0, 2, b"f", 0, 0), struct.pack("<dd", 5, 5)),
        ((0.1, 2, 0, b"f", 0, 0), b""),
    ],
)
def test_hostile_numbers_are_refused(header: tuple[object, ...], body: bytes) -> None:
    with pytest.raises(CorruptSketch, match="at byte"):
        GK.from_bytes(wrap(GK_KIND, 1, struct.pack("<dQIcBB", *header) + body))


def test_other_sketches_and_newer_releases_are_named() -> None:
    _, payload = unwrap(GK_KIND, small_sketch().to_bytes())
    with pytest.raises(WrongKind):
        GK.from_bytes(wrap(b"ECMS", 1, payload))
    with pytest.raises(NewerVersion):
        GK.from_bytes(wrap(GK_KIND, 2, payload))
    with pytest.raises(InvalidInput):
        GK.from_bytes(None)  # type: ignore[arg-type]  # not bytes
