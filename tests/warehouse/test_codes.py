"""Codes and orders of numbers, against sorted lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.columns.codes import stable_order, unique_codes

EDGES = st.sampled_from([0, 1, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**48 + 1, 2**63 - 1])


@given(st.lists(st.integers(0, 9) | EDGES | st.integers(0, 2**63 - 1), max_size=60))
def test_equal_codes_keep_their_order(codes: list[int]) -> None:
    order = stable_order(np.array(codes, dtype=np.int64))
    assert order.tolist() == sorted(range(len(codes)), key=codes.__getitem__)


@given(st.lists(st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1), max_size=60))
def test_each_number_has_its_code(numbers: list[int]) -> None:
    unique, codes = unique_codes(np.array(numbers, dtype=np.int64))
    assert unique[codes].tolist() == numbers
    assert unique.tolist() == sorted(set(unique.tolist()))
    assert set(numbers) <= set(unique.tolist())
