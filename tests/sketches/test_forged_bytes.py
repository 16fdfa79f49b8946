"""Bytes made to deceive, each in one way: refused, or opened in memory that their length pays for."""

import struct
from typing import Any

import numpy as np
import pytest

from tests.sketches.test_hostile_bytes import (
    ECM_HEADER,
    GK_HEADER,
    OPENERS,
    SAMPLE_HEADER,
    allowed,
    assert_paid,
    peak,
)
from tidemark.sketches import ECM, CorruptSketch
from tidemark.sketches.bounds.count_bounds import Counts
from tidemark.sketches.counters.randomized_wave import SampledWaves, WaveSample
from tidemark.sketches.ecm import ecm, ecm_bytes
from tidemark.sketches.encoding.envelope import wrap
from tidemark.sketches.encoding.varints import encode_varints, exact_sum
from tidemark.sketches.hashing.row_hashes import RowHashes


def ecm_of(kind: bytes, lists: list[object], lengths: tuple[int, int, int], **fields: object) -> bytes:
    """A forged sketch of one row: fields by name, lists of numbers as they follow."""
    header = {
        "rows": 1, "width": 10, "seed": 0, "direct": 0, "eps": 0.5, "delta": 0.5, "kind": kind, "clock": b"t",
        "eps_sw": 0.5, "delta_sw": 0.5 if kind == b"RW" else 0.0, "constant": 1, "site": 0, "window": 0,
        "n": 2**40, "first": 0, "now": 10, "skew": 0.0,
    }  # fmt: skip
    head = ECM_HEADER.pack(*{**header, **fields}.values(), *lengths)
    numbers = np.concatenate([np.asarray(part, np.uint64).ravel() for part in lists])
    return wrap(b"ECMS", 1, head + encode_varints(numbers))


def one_wave(levels: object, **fields: object) -> bytes:
    drawn = np.asarray(levels)
    nothing = np.zeros(len(drawn), np.uint64)
    return ecm_of(b"RW", [[len(drawn)], nothing, nothing, drawn], (1, len(drawn), 0), **fields)


def sample_of(hashes: list[int], lists: list[object], **fields: int) -> bytes:
    """A forged key sample: fields of the header by name, its hashes, lists of numbers as they follow."""
    header = {
        "flags": 3, "threshold": 0, "detail": 0, "keys": len(hashes), "detailed": len(hashes),
        "entries": len(hashes), "least_tick": 0, "least_time": 0,
    }  # fmt: skip
    numbers = np.concatenate([np.asarray(part, np.uint64).ravel() for part in [[], *lists]]).astype(np.uint64)
    head = SAMPLE_HEADER.pack(*{**header, **fields}.values())
    return wrap(b"KSMP", 1, head + np.asarray(hashes, "<u8").tobytes() + encode_varints(numbers))


ENTRIES = 300_000
MANY = 2**32 - 1
FORGED: dict[str, bytes] = {
    "a wave of every level": one_wave(np.arange(ENTRIES) % 65, eps_sw=0.01),
    "a wave of the highest level": one_wave(np.full(ENTRIES, 64), eps_sw=1e-5),
    "a wave of falling levels": one_wave(np.sort(np.arange(ENTRIES) % 65)[::-1], eps_sw=1e-5),
    "more entries than arrivals": one_wave(np.zeros(ENTRIES), eps_sw=1e-5, n=3),
    "hundreds of waves": ecm_of(
        b"RW", [np.zeros(864)], (864, 0, 0), constant=20, delta_sw=1e-13, width=4_000_000
    ),
    "waves of different cells": ecm_of(
        b"RW", [[1, 1], [3, 4], [0, 0], [0, 0]], (2, 2, 0), constant=2, width=4_000_000
    ),
    "waves whose last arrivals differ": ecm_of(
        b"RW", [[1, 1], [3, 3], [0, 1], [0, 0]], (2, 2, 0), constant=2, window=5
    ),
    "a cell in every other wave": ecm_of(b"RW", [[1, 0, 1], [3, 3], [0, 0], [0, 0]], (3, 2, 0), constant=3),
    "a stretch of a million": ecm_of(b"EH", [[0], [1], [1], [10**6], [0]], (1, 1, 1)),
    "a stretch of 2**62": ecm_of(b"EH", [[0], [1], [1], [2**62], [0]], (1, 1, 1)),
    "stretches that wrap": ecm_of(b"EH", [[0], [2], [2, 1], [2**63, 2**63 + 2], [0, 0]], (1, 2, 2)),
    "a bucket of 2**63": ecm_of(b"EH", [[0], [1], [2**63], [1], [0]], (1, 1, 1), n=2**62 - 1),
    "a cell far out": ecm_of(b"EH", [[2**63], [1], [1], [1], [0]], (1, 1, 1), n=1),
    "cells that wrap": ecm_of(b"EH", [[5, 2**64 - 3], [1, 1], [1], [2], [0, 0]], (2, 1, 2), n=2),
    "a time that goes back": ecm_of(b"EH", [[0], [2], [1], [2], [5, 2**64 - 3]], (1, 1, 2), n=2),
    "two to the 32 cells": ecm_of(b"EH", [[0], [1], [1], [1], [0]], (1, 1, 1), n=1, width=2**32 - 1),
    "a wave of ranks that are gone": ecm_of(
        b"DW", [[0], [9], [1], [9], np.zeros(9), [0]], (1, 1, 9), n=9, eps_sw=0.9
    ),
    "a gk of no number": wrap(b"GKQS", 1, GK_HEADER.pack(float("nan"), 1, 1, b"f", 0, 0) + bytes(8)),
    "a gk of 2**63": wrap(b"GKQS", 1, GK_HEADER.pack(0.1, 2**63, 1, b"f", 0, 0) + bytes(8)),
    "a gk of gaps that wrap": wrap(
        b"GKQS", 1, GK_HEADER.pack(0.1, 2, 2, b"i", 8, 0) + struct.pack("<qqQQ", 5, 5, 2**63, 2**63)
    ),
    "a sample of four billion keys": sample_of([1], [[1], [0], [1]], keys=MANY),
    "a sample of four billion entries": sample_of([1], [[MANY], [0], [1]], entries=MANY),
    "entries of one tick that nothing stores": sample_of([1], [[1], [1]], flags=19, entries=MANY),
    "keys of one entry that nothing stores": sample_of([1], [], flags=27, detailed=MANY, entries=MANY),
    "more entries than keys have": sample_of([1, 2], [[1, 3], [0, 0], [1, 1]]),
    "entries that add up by wrapping": sample_of([1, 2], [[2**63 + 1, 2**63 + 1], [0, 0], [1, 1]]),
    "a sampled key of no entry": sample_of([1, 2], [[2, 0], [0, 1], [1, 1]]),
    "a count of 2**63": sample_of([1], [[1], [0], [2**63]]),
    "counts that wrap": sample_of([1, 2], [[1, 1], [0, 0], [2**63, 2**63 + 1]]),
    "a count of none": sample_of([1], [[1], [0], [0]]),
    "a tick that wraps": sample_of([1], [[1], [2**63], [1]], least_tick=1),
    "ticks of a key that fall": sample_of([1], [[2], [1, 0], [1, 1]], entries=2),
    "a time that wraps": sample_of([1], [[1], [0], [1], [2**64 - 1], [0]], flags=7),
    "a time that ends before it begins": sample_of([1], [[1], [0], [1], [0], [2**64 - 1]], flags=7),
    "a hash that is no smaller than the threshold": sample_of([5], [[1], [0], [1]], flags=2, threshold=5),
    "entries beyond the threshold": sample_of([1], [[1], [0], [1]], flags=2, threshold=5),
    "keys twice": sample_of([5, 5], [[1, 1], [0, 0], [1, 1]]),
    "flags of another version": sample_of([1], [[1], [0], [1]], flags=35),
    "a large sample": sample_of(
        [*range(1, ENTRIES // 4)],
        [[1] * (ENTRIES // 4 - 1), [0] * (ENTRIES // 4 - 1), [1] * (ENTRIES // 4 - 1)],
    ),
    "a large sample of large numbers": sample_of(
        [*range(1, 9001)],
        [[1] * 9000, [2**62] * 9000, [2**49] * 9000, [2**62] * 9000, [2**62] * 9000],
        flags=7,
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_bytes_are_refused_or_paid_for(name: str) -> None:
    assert_paid(FORGED[name])


@pytest.mark.parametrize("name", [name for name in FORGED if len(FORGED[name]) > 10**5])
def test_large_forged_bytes_take_fifty_times_their_length_at_most(name: str) -> None:
    def open_() -> None:
        try:
            OPENERS[FORGED[name][4:8]](FORGED[name])
        except CorruptSketch:
            return

    assert peak(open_) <= 50 * len(FORGED[name])


TAKEN = {
    "hundreds of waves",
    "a wave of falling levels",
    "a wave of the highest level",
    "a large sample",
    "a large sample of large numbers",
}
REFUSED = set(FORGED) - TAKEN


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_no_sketch_holds_is_refused_with_an_offset(name: str) -> None:
    with pytest.raises(CorruptSketch, match=r"at byte \d+"):
        OPENERS[FORGED[name][4:8]](FORGED[name])


def test_the_most_cells_a_header_may_claim_are_asked_in_memory_that_they_pay_for() -> None:
    data = ecm_of(b"EH", [[0], [1], [1], [1], [0]], (1, 1, 1), n=1, width=2**22)
    sketch = ECM.from_bytes(data)
    assert peak(lambda: sketch.total(3)) <= allowed(data, 2**22)


def test_the_work_on_waves_does_not_grow_with_the_levels_they_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in elements that are searched: 65 searches of all were made once."""
    searched = [0]
    search = np.searchsorted

    def counted(a: np.ndarray, v: Any, *args: Any, **named: Any) -> Any:
        searched[0] += np.size(v)
        return search(a, v, *args, **named)

    monkeypatch.setattr(np, "searchsorted", counted)
    data = FORGED["a wave of every level"]
    with pytest.raises(CorruptSketch):
        ECM.from_bytes(data)
    assert searched[0] <= 2 * ENTRIES


class Believed(int):
    """A sum that is whatever it should be."""

    def __eq__(self, _: object) -> bool:
        return True

    def __ne__(self, _: object) -> bool:
        return False

    __hash__ = int.__hash__


def all_cells_of_all_waves(self: SampledWaves, time: int, cells: int) -> Counts:
    def answers(wave: WaveSample) -> np.ndarray:
        return np.bincount(wave.cells[wave.times >= time], minlength=cells).astype(float)

    estimate = np.median(np.stack([answers(wave) for wave in self.waves]), axis=0)
    return Counts(estimate, estimate.astype(np.int64), estimate.astype(np.int64))


@pytest.mark.parametrize("name", ["a stretch of a million", "two to the 32 cells", "answers of all waves"])
def test_a_reader_that_believes_the_header_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "a stretch of a million":
        monkeypatch.setattr(ecm_bytes, "exact_sum", lambda numbers: Believed(exact_sum(numbers) % 2**20))
        monkeypatch.setattr(ecm_bytes, "_check_state", lambda *_: None)
        data = FORGED[name]
    elif name == "two to the 32 cells":
        for module in (ecm, ecm_bytes):
            monkeypatch.setattr(module, "checked_hashes", lambda hashes: hashes)
        data = FORGED[name]
        assert isinstance(ECM.from_bytes(data).hashes, RowHashes)
        with pytest.raises(pytest.fail.Exception):
            test_what_no_sketch_holds_is_refused_with_an_offset(name)
        return
    else:
        monkeypatch.setattr(SampledWaves, "since", all_cells_of_all_waves)
        data = ecm_of(b"RW", [np.zeros(87)], (87, 0, 0), constant=2, delta_sw=1e-13, width=90_000, n=1)
    with pytest.raises(AssertionError, match="pay for"):
        assert_paid(data)
