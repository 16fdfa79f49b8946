import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sketches.arrivals import zipf
from tidemark.sketches import (
    ECM,
    CorruptSketch,
    DyadicECM,
    NewerVersion,
    SketchError,
    WrongKind,
    digest,
    merge_ecm,
)
from tidemark.sketches.counters.counting import CounterKind
from tidemark.sketches.ecm.ecm_bytes import ECM_KIND
from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, unwrap, wrap
from tidemark.sketches.encoding.varints import decode_varints, encode_varints

KINDS: list[CounterKind] = ["EH", "DW", "RW"]
GOLDEN = {
    "EH None": (
        "544d534b45434d5301000000b8000000000000000200000009000000030000000000000000000000000000e03f9a9999"
        "999999c93f454874000000000000e03f0000000000000000240000000000000000000000000000000000000016000000"
        "0000000000000000000000004600000000000000000000000000000006000000000000000c0000000000000014000000"
        "000000000400010105010502030502030804020102010804020102010101010401020101010401021e0f0f0109052815"
        "13151e0f0f0109052815131544d84313"
    ),
    "EH 25": (
        "544d534b45434d530100000098000000000000000200000009000000030000000000000000000000000000e03f9a9999"
        "999999c93f454874000000000000e03f0000000000000000240000000000000000000000190000000000000016000000"
        "000000000000000000000000460000000000000000000000000000000400000000000000040000000000000008000000"
        "00000000040201070301030102010201010301033c01093d3c01093dee5045a9"
    ),
    "DW None": (
        "544d534b45434d5301000000ba000000000000000200000009000000030000000000000000000000000000e03f9a9999"
        "999999c93f445774000000000000e03f0000000000000000240000000000000000000000000000000000000016000000"
        "00000000000000000000000046000000000000000000000000000000060000000000000006000000000000001c000000"
        "0000000004000101050108020408020404020104020102020a02020a05190b04010e010905280015131505190b04010e"
        "0109052800151315000000000000372f9f5e"
    ),
    "DW 25": (
        "544d534b45434d530100000098000000000000000200000009000000030000000000000000000000000000e03f9a9999"
        "999999c93f445774000000000000e03f0000000000000000240000000000000000000000190000000000000016000000"
        "00000000000000000000000046000000000000000000000000000000040000000000000001000000000000000a000000"
        "000000000402010704010401010a2e0e01093d2e0e01093d0c030c03dd89f39e"
    ),
    "merged": (
        "544d534b45434d5301000000ce000000000000000200000009000000030000000000000000000000000000e03f9a9999"
        "999999c93f454874000000000000e03f000000000000000024000000000000000000000000000000000000002c000000"
        "0000000000000000000000004600000000000000040000000000e03f060000000000000014000000000000001a000000"
        "000000000400010105010603040603041008040201020104020110080402010201040201010101010201020101020101"
        "01010201020101021e0f0f010900052800151315001e0f0f0109000528001513150079443604"
    ),
    "dyadic": (
        "544d534b4459414401000000ba0200000000000006a700000000000000544d534b45434d53010000008f000000000000"
        "000100000009000000000000000000000000000000000000e03f000000000000e03f454874000000000000e03f000000"
        "000000000024000000000000000000000000000000000000000600000000000000010000000000000009000000000000"
        "000000000000000000030000000000000002000000000000000500000000000000000600030101020101040200060100"
        "f2c2340ca600000000000000544d534b45434d53010000008e0000000000000001000000090000000100000000000000"
        "00000000000000e03f000000000000e03f454874000000000000e03f0000000000000000240000000000000000000000"
        "000000000000000006000000000000000100000000000000090000000000000000000000000000000200000000000000"
        "030000000000000004000000000000000403010301020101020101020006e87d4fafa500000000000000544d534b4543"
        "4d53010000008d000000000000000100000009000000020000000000000000000000000000e03f000000000000e03f45"
        "4874000000000000e03f0000000000000000240000000000000000000000000000000000000006000000000000000100"
        "000000000000090000000000000000000000000000000200000000000000020000000000000005000000000000000400"
        "03020201010402000600013d604b7ea700000000000000544d534b45434d53010000008f000000000000000100000008"
        "000000000000000000000001000000000000e03f000000000000e03f454874000000000000e03f000000000000000024"
        "000000000000000000000000000000000000000600000000000000010000000000000009000000000000000000000000"
        "0000000200000000000000030000000000000005000000000000000006020301020102010200010200062c1b6f6a2229"
        "1102"
    ),
}


def small(kind: CounterKind, window: int | None = None) -> ECM:
    sketch = ECM(0.5, 0.2, kind=kind, window=window, seed=3)
    for start in (0, 40):
        keys = digest(["a", "b", "a", "c", "a", "a", "a", "a", "b", "a", "a"])
        sketch.update(keys, start + np.array([0, 0, 1, 5, 5, 5, 6, 20, 21, 21, 30]))
    return sketch


def large(kind: CounterKind, window: int | None = None) -> ECM:
    rng = np.random.default_rng(4)
    sketch = ECM(0.1, 0.1, kind=kind, window=window)
    for start in (0, 10**9):
        sketch.update(zipf(rng, 1.0, 900).astype(np.uint64), start + np.sort(rng.integers(0, 10**9, 900)))
    return sketch


def stored_forms() -> dict[str, bytes]:
    sketches = {f"{kind} {window}": small(kind, window) for kind in ("EH", "DW") for window in (None, 25)}
    waves = DyadicECM(6, 0.5, 0.5)
    waves.update([1, 2, 60, 60, 60, 60], [1, 2, 3, 3, 3, 9])
    forms = {name: sketch.to_bytes() for name, sketch in sketches.items()}
    return {**forms, "merged": merge_ecm([small("EH"), small("EH")]).to_bytes(), "dyadic": waves.to_bytes()}


@pytest.mark.parametrize("name", [*GOLDEN])
def test_the_stored_form_is_fixed(name: str) -> None:
    """These bytes are in tables already: a change here needs a new version number and a reader of both."""
    assert stored_forms()[name].hex() == GOLDEN[name]
    kind = DyadicECM if name == "dyadic" else ECM
    assert kind.from_bytes(bytes.fromhex(GOLDEN[name])).to_bytes().hex() == GOLDEN[name]


def test_every_kind_has_its_golden_bytes() -> None:
    assert set(stored_forms()) == set(GOLDEN)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [None, 10**8])
def test_a_reopened_sketch_goes_on_as_if_never_stored(kind: CounterKind, window: int | None) -> None:
    rng = np.random.default_rng(9)
    options: dict[str, Any] = {"kind": kind, "window": window}
    eps = 0.5 if kind == "RW" else 0.1
    kept, reopened = ECM(eps, 0.2, **options), ECM(eps, 0.2, **options)
    now = 0
    for size in (1, 200, 3, 500, 500):
        keys, times = zipf(rng, 1.0, size).astype(np.uint64), now + np.sort(rng.integers(0, 10**8, size))
        now = int(times[-1])
        kept.update(keys, times)
        reopened.update(keys, times)
        reopened = ECM.from_bytes(reopened.to_bytes())
        assert reopened.to_bytes() == kept.to_bytes()
        for since in (None, now - 10**6, now):
            a, b = (s.points(np.arange(50, dtype=np.uint64), since) for s in (kept, reopened))
            assert (a.estimate.tolist(), a.lo.tolist()) == (b.estimate.tolist(), b.lo.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_sketch_comes_back_and_takes_few_bytes(kind: CounterKind) -> None:
    sketch = ECM(0.01, 0.01, kind=kind, window=7) if kind != "RW" else ECM(0.3, 0.3, kind=kind, window=7)
    data = sketch.to_bytes()
    assert len(data) <= 24 + 128 + (0 if kind != "RW" else 200)
    again = ECM.from_bytes(data)
    assert (again.n, again.hashes, again.counts.counting) == (0, sketch.hashes, sketch.counts.counting)


def test_bytes_hold_non_empty_cells_alone() -> None:
    """Ten arrivals of a sketch with 1,375 cells: 50 cells, each a gap, a number, an end, and one size."""
    sketch = ECM(0.01, 0.01)
    sketch.update(np.arange(10, dtype=np.uint64), np.arange(10))
    assert len(sketch.to_bytes()) <= 24 + 128 + 50 * 4 + 4


def test_merged_sketches_keep_what_they_know_of_their_error() -> None:
    merged = merge_ecm([large("EH"), large("EH")])
    again = ECM.from_bytes(merged.to_bytes())
    assert (again.counts.skew, again.point_eps, again.n) == (merged.counts.skew, merged.point_eps, merged.n)
    assert merge_ecm([again, large("EH")]).counts.error > merged.counts.error


def test_a_cut_at_every_byte_is_noticed() -> None:
    for data in stored_forms().values():
        for end in range(len(data)):
            with pytest.raises(CorruptSketch, match="at byte"):
                ECM.from_bytes(data[:end])


def test_a_flip_of_every_bit_is_noticed() -> None:
    data = small("DW", 25).to_bytes()
    for position in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSketch, match="at byte"):
            ECM.from_bytes(bytes(damaged))


@settings(max_examples=400)
@given(
    st.sampled_from([*stored_forms().values(), small("RW").to_bytes()]),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.binary(max_size=12),
)
def test_whole_bytes_of_hostile_content_raise_or_make_a_sketch(
    data: bytes, changes: list[tuple[int, int]], tail: bytes
) -> None:
    """The checksum is made anew, so the fields are all that is checked. What opens is stored as it is."""
    kind = data[4:8]
    payload = bytearray(data[PAYLOAD_OFFSET:-4])
    for at, value in changes:
        payload[at % len(payload)] = value
    hostile = wrap(kind, 1, bytes(payload) + tail)
    opener = ECM if kind == ECM_KIND else DyadicECM
    tracemalloc.start()
    try:
        sketch = opener.from_bytes(hostile)
    except SketchError:
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
        return
    finally:
        tracemalloc.stop()
    if isinstance(sketch, ECM) and sketch.hashes.cells < 10**6:
        sketch.total()
    assert opener.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()


HEADER = struct.Struct("<IIQBdd2scddIQqQqqdQQQ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, 0),
        (0, 2**32 - 1),
        (1, 0),
        (1, 2**32 - 1),
        (3, 1),
        (3, 2),
        (4, float("nan")),
        (4, 0.0),
        (5, 1.0),
        (6, b"XX"),
        (6, b"RW"),
        (7, b"x"),
        (8, 0.0),
        (8, float("nan")),
        (8, 0.01),
        (9, 0.5),
        (10, 0),
        (10, 2**32 - 1),
        (12, -1),
        (12, 2**63 - 1),
        (13, 0),
        (13, 21),
        (13, 2**64 - 1),
        (14, 10),
        (14, -(2**63)),
        (15, 60),
        (15, -1),
        (16, -1.0),
        (16, float("inf")),
        (16, float("nan")),
        (17, 2**64 - 1),
        (18, 2**63),
        (19, 10**18),
        (19, 0),
    ],
)
def test_a_header_that_no_sketch_has_is_refused(field: int, value: object) -> None:
    _, payload = unwrap(ECM_KIND, small("EH").to_bytes())
    fields = list(HEADER.unpack_from(payload))
    fields[field] = value
    with pytest.raises(CorruptSketch, match="at byte"):
        ECM.from_bytes(wrap(ECM_KIND, 1, HEADER.pack(*fields) + payload[HEADER.size :]))


@pytest.mark.parametrize(
    ("field", "value"), [(8, 1e-300), (9, 0.0), (9, 5e-324), (10, 0), (10, 2**32 - 1), (18, 2**60)]
)
def test_waves_that_would_be_billions_are_refused(field: int, value: float) -> None:
    """Their number follows from delta and the constant: a few bytes must not ask for gigabytes."""
    for sketch in (small("RW"), ECM(0.5, 0.5, kind="RW")):
        _, payload = unwrap(ECM_KIND, sketch.to_bytes())
        fields = list(HEADER.unpack_from(payload))
        fields[field] = value
        with pytest.raises(CorruptSketch, match="at byte"):
            ECM.from_bytes(wrap(ECM_KIND, 1, HEADER.pack(*fields) + payload[HEADER.size :]))


def test_another_kind_and_a_newer_version_are_told_apart() -> None:
    data = small("EH").to_bytes()
    with pytest.raises(WrongKind, match="DYAD"):
        DyadicECM.from_bytes(data)
    with pytest.raises(NewerVersion, match="upgrade"):
        ECM.from_bytes(wrap(ECM_KIND, 2, unwrap(ECM_KIND, data)[1]))


@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)), max_size=50))
def test_numbers_of_every_width_come_back(numbers: list[int]) -> None:
    data = encode_varints(np.array(numbers, np.uint64))
    assert decode_varints(data).tolist() == numbers
    assert len(data) == sum(max(1, -(-n.bit_length() // 7)) for n in numbers)
    assert encode_varints(np.array([0, 127, 128, 300], np.uint64)).hex() == "007f8001ac02"


@pytest.mark.parametrize("data", ["80", "0180", "8000", "ff" * 10 + "01", "ff" * 9 + "02", "80" * 10 + "00"])
def test_numbers_in_another_form_are_refused(data: str) -> None:
    with pytest.raises(CorruptSketch):
        decode_varints(bytes.fromhex(data))
