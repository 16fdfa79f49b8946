from typing import Any

import numpy as np
import pytest

from tidemark.sketches import ECM, digest
from tidemark.sketches.compiled import jit, kernels


def test_a_place_that_cannot_be_written_costs_compilation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is read-only and there is no home, numba refuses to keep what it compiled."""
    asked = []

    def njit(**options: bool) -> object:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("no locator available")
        return lambda loop: loop

    monkeypatch.setattr(jit, "njit", njit)
    assert jit.compiled(len)([1, 2]) == 2
    assert asked == [{"cache": True, "nogil": True}, {"nogil": True}]


def test_read_only_and_strided_arrays_are_not_compiled_for() -> None:
    """Arrow lends arrays that must not be written; a second compilation would take a second."""
    keys, times = digest(np.repeat(np.arange(50), 2)), np.repeat(np.arange(50), 2)
    plain, lent = ECM(0.1, 0.1), ECM(0.1, 0.1)
    plain.update(keys[::2].copy(), times[::2].copy(), np.ones(50, np.int64))
    loops: tuple[Any, ...] = (kernels.hash_rows, kernels.group_by_cell)
    before = [len(loop.signatures) for loop in loops]
    ones = np.ones(50, np.int64)
    for array in (keys, times, ones):
        array.flags.writeable = False
    lent.update(keys[::2], times[::2], ones)
    assert lent.to_bytes() == plain.to_bytes()
    assert [len(loop.signatures) for loop in loops] == before
