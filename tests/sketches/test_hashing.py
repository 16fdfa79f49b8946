from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sketches import InvalidInput, digest, digest_one
from tidemark.sketches.compiled.kernels import hash_rows
from tidemark.sketches.hashing.row_hashes import RowHashes

GOLDEN = {
    "ATL": 16952139720185244505,
    "Zürich": 838883168505079630,
    "a\x00": 970730967732026843,
    "ATL of seed 7": 1779148285120918453,
}
GOLDEN_FACTORS = [13679457532755275413, 2949826092126892291, 5139283748462763858]
GOLDEN_CELLS = [[76, 5, 34, 71], [513, 333, 533, 462], [643, 703, 728, 607]]


def test_digests_are_the_same_everywhere() -> None:
    """Stored sketches depend on these: a change here makes every one of them unreadable in effect."""
    assert digest(["", "ATL", "Zürich", "a\0"]).tolist() == [
        3244421341483603138,
        GOLDEN["ATL"],
        GOLDEN["Zürich"],
        GOLDEN["a\0"],
    ]
    assert digest(["ATL"], seed=7).tolist() == [GOLDEN["ATL of seed 7"]]
    assert digest([0, 1, -1, 2**63 - 1]).tolist() == [0, 1, 2**64 - 1, 2**63 - 1]
    assert digest_one("ATL") == GOLDEN["ATL"]


def test_row_hashes_are_the_same_everywhere() -> None:
    hashes = RowHashes(3, 275, 42)
    assert hashes.factors()[0].tolist() == GOLDEN_FACTORS
    assert hashes.cells_of(np.array([0, 1, 2**63, 2**64 - 1], np.uint64)).tolist() == GOLDEN_CELLS


@pytest.mark.parametrize(
    "same",
    [
        [["b", "a", "b"], pa.array(["b", "a", "b"]), np.array(["b", "a", "b"]), np.array([b"b", b"a", b"b"])],
        [pa.array(["b", "a", "b"], pa.large_string()), pa.array(["b", "a", "b"], pa.string_view())],
        [pa.array(["b", "a", "b"]).dictionary_encode(), pa.chunked_array([["b"], ["a", "b"]])],
        [pa.array([b"b", b"a", b"b"], pa.binary(1)), [b"b", b"a", b"b"], ["b", "a", "b"]],
        [
            [1, 0, 1],
            np.array([1, 0, 1], np.int8),
            np.array([1, 0, 1], np.uint64),
            np.array([True, False, True]),
        ],
        [[True, False, True], pa.array([True, False, True]), pa.array([1, 0, 1], pa.uint16())],
        [pa.array([1, 0, 1]).dictionary_encode(), pa.chunked_array([[1, 0], [1]])],
        [[date(1970, 1, 2), date(1970, 1, 1)], pa.array([date(1970, 1, 2), date(1970, 1, 1)]), [1, 0]],
        [
            pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            np.array(["1970-01-01T00:00:01"], "datetime64[us]"),
            [10**6],
        ],
        [[], np.empty(0, str), pa.array([], pa.string()), pa.chunked_array([], pa.string())],
        [pa.array([], pa.dictionary(pa.int8(), pa.string())), pa.array([], pa.int64())],
    ],
)
def test_a_key_has_one_digest_whatever_holds_it(same: list[Any]) -> None:
    first, *others = [digest(keys) for keys in same]
    assert first.dtype == np.uint64
    for other in others:
        assert other.dtype == np.uint64
        assert other.tolist() == first.tolist()


def test_a_slice_of_a_dictionary_hashes_what_it_shows() -> None:
    encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(["a", None, "b"]))
    assert digest(encoded.slice(2)).tolist() == digest(["b", "a"]).tolist()
    with pytest.raises(InvalidInput, match="NULL"):
        digest(encoded)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.array(["a", None]), "1 NULL"),
        (pa.array([1, None]), "1 NULL"),
        (pa.array([None, None]), "2 NULL"),
        (["a", None], "None"),
        ([1, None], "None"),
        (np.array(["a", None], object), "None"),
        (np.array(["NaT"], "datetime64[us]"), "NaT"),
        ([1.5], "float64"),
        (np.array([np.nan]), "float64"),
        (pa.array([1.5]), "type double"),
        (pa.array([[1]]), "type list"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
        (np.zeros((2, 2), int), "shape"),
        (["a", 1], "type int at index 1"),
        (["\ud800"], "UTF-8"),
        ([object()], "type object"),
    ],
)
def test_what_is_no_key_is_refused(keys: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        digest(keys)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed: int) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        digest(["a"], seed=seed)


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=30),
    st.integers(1, 7),
    st.sampled_from([1, 2, 30, 275, 10**6]),
    st.integers(0, 2**64 - 1),
)
def test_the_compiled_hash_is_the_plain_one(keys: list[int], rows: int, width: int, seed: int) -> None:
    hashes = RowHashes(rows, width, seed)
    digests = np.array(keys, np.uint64)
    plain, fast = hashes.cells_of(digests), np.empty((rows, len(keys)), np.int64)
    hash_rows(digests, hashes.factors(), width, fast)
    assert plain.tolist() == fast.tolist()
    columns = plain - np.arange(rows)[:, None] * width
    assert ((columns >= 0) & (columns < width)).all()
    for row, (a, b, c) in enumerate(hashes.factors().tolist()):
        by_hand = [(((a * (x % 2**32) + b * (x >> 32) + c) % 2**64 >> 32) * width) >> 32 for x in keys]
        assert columns[row].tolist() == by_hand


@pytest.mark.parametrize("step", [1, 2**32, 86_400_000_000])
def test_columns_fill_evenly_and_pairs_meet_as_seldom_as_chance(step: int) -> None:
    """Keys in even steps are what a weak hash fails at. Over seeds a pair shares a column once in width."""
    keys = np.arange(2000, dtype=np.uint64) * np.uint64(step)
    met = []
    for seed in range(300):
        hashes = RowHashes(1, 50, seed)
        columns = hashes.cells_of(keys)[0]
        met.append(columns[0] == columns[1])
        if seed < 5:
            assert np.bincount(columns, minlength=50).max() < 2000 / 50 * 3
    assert np.mean(met) <= 1 / 50 + 4 * np.sqrt(1 / 50 / 300)
