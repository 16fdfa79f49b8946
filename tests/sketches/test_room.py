"""What no sketch should take is refused before any of it is taken."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from tidemark.sketches import ECM, GK, Counting, DyadicECM, InvalidInput, WindowCounts, merge_dyadic
from tidemark.sketches.ecm import dyadic
from tidemark.sketches.ecm.ecm_sizes import sizes_for_points
from tidemark.sketches.hashing.row_hashes import MOST_CELLS, RowHashes
from tidemark.sketches.memory_limit import MOST_COUNTER_BYTES

TOO_LARGE: dict[str, Callable[[], object]] = {
    "dyadic of 62 bits": lambda: DyadicECM(62, 0.001, 1e-10),
    "dyadic of waves": lambda: DyadicECM(62, 0.001, 1e-10, kind="DW"),
    "dyadic at the least eps": lambda: DyadicECM(62, 1e-6, 1e-12),
    "histograms at the least eps": lambda: ECM(1e-6, 1e-12),
    "histograms for inner products": lambda: ECM(1e-5, 1e-12, purpose="inner products"),
    "waves at the least eps": lambda: ECM(1e-6, 1e-12, kind="DW"),
    "randomised waves at the least eps": lambda: ECM(1e-6, 1e-12, kind="RW"),
    "randomised waves that hold every arrival": lambda: ECM(0.001, 1e-10, kind="RW"),
    "cells of counters": lambda: WindowCounts(Counting("EH", 1e-6), 1000),
    "cells of waves": lambda: WindowCounts(Counting("DW", 1e-6), 2000),
    "one counter of many waves": lambda: WindowCounts(Counting("RW", 0.01, delta=1e-13, constant=1000)),
}


def refused_within(build: Callable[[], object], most: int) -> str:
    """The message of the refusal, which may take this many bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput) as refused:
            build()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    return str(refused.value)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_sketch_larger_than_the_budget_is_refused_before_any_memory_is_taken(name: str) -> None:
    message = refused_within(TOO_LARGE[name], 2_000_000)
    assert "would take" in message
    assert "GiB" in message
    assert "at most 4.0 GiB" in message
    assert "use a larger eps" in message


@pytest.mark.parametrize("cells", [2**22 + 1, 2**40, 2**63, 0, -1, 1.5, True, None])
def test_a_number_of_cells_that_none_has_is_refused(cells: int) -> None:
    assert "cells" in refused_within(lambda: WindowCounts(Counting("EH", 0.5), cells), 200_000)


@pytest.mark.parametrize("hashes", [RowHashes(1, 2**40, 0), RowHashes(64, 2**17, 0), RowHashes(65, 1, 0)])
def test_row_hashes_of_too_many_cells_are_refused(hashes: RowHashes) -> None:
    message = refused_within(lambda: ECM.of(hashes, Counting("EH", 0.5), eps=0.5, delta=0.5), 200_000)
    assert f"{MOST_CELLS:,}" in message


def test_levels_of_too_many_cells_together_are_refused() -> None:
    wide = [ECM.of(RowHashes(1, 2**21, 0), Counting("EH", 0.5), eps=0.5, delta=0.5) for _ in range(3)]
    top = ECM.of(RowHashes(1, 2, 0, direct=True), Counting("EH", 0.5), eps=0.5, delta=0.5)
    with pytest.raises(InvalidInput, match="cells together"):
        DyadicECM.of(4, [*wide, top])


@pytest.mark.parametrize(("eps", "delta"), [(0.001, 1e-10), (0.001, 0.01), (0.01, 1e-12), (0.5, 0.5)])
def test_sketches_within_the_budget_work(eps: float, delta: float) -> None:
    for kind in ("EH", "DW"):
        sketch = ECM(eps, delta, kind=kind)
        sketch.update(np.arange(600, dtype=np.uint64), np.arange(600))
        assert 1 <= sketch.point(3).hi <= 1 + 2 * eps * 600
        assert ECM.from_bytes(sketch.to_bytes()).n == 600


def test_what_is_stored_opens_whatever_its_room() -> None:
    """Warehouses may hold it: the budget is for new sketches, and what is held costs what it holds."""
    sizes = sizes_for_points(2e-4, 0.01)
    counting = Counting("EH", sizes.eps_sw / 6)
    assert counting.room(sizes.rows * sizes.width) > MOST_COUNTER_BYTES
    with pytest.raises(InvalidInput, match="would take"):
        WindowCounts(counting, sizes.rows * sizes.width)
    empty = ECM.of(RowHashes(sizes.rows, sizes.width, 0), counting, eps=2e-4, delta=0.01)
    assert ECM.from_bytes(empty.to_bytes()).to_bytes() == empty.to_bytes()


def test_arrivals_for_which_no_machine_has_the_memory_are_refused_and_change_nothing() -> None:
    for kind in ("EH", "DW"):
        sketch = ECM.of(RowHashes(1, MOST_CELLS, 0), Counting(kind, 1e-6), eps=0.5, delta=0.5)
        sketch.update(np.array([1], np.uint64), [2])  # the first arrivals need no arrays
        before = sketch.to_bytes()
        with pytest.raises(InvalidInput, match="no such memory"):
            sketch.update(np.array([1], np.uint64), [3])
        assert sketch.to_bytes() == before


def test_a_window_or_times_of_any_length_cost_nothing() -> None:
    sketch = ECM(0.1, 0.1, window=2**62)
    tracemalloc.start()
    try:
        sketch.update(np.array([1, 1], np.uint64), [-(2**62), 2**62], [2**60, 2**61])
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert sketch.n == 3 * 2**60
    with pytest.raises(InvalidInput, match="2\\*\\*62 arrivals"):
        sketch.update(np.array([1], np.uint64), [2**62], [2**60])


def test_a_gk_of_any_eps_holds_what_came_at_most() -> None:
    for eps in (5e-324, 1e-300, 1e-12):
        sketch = GK(eps)
        for part in np.array_split(np.arange(300.0), 3):
            sketch.update(part)
        assert len(sketch) == sketch.n == 300


def test_sketches_of_unlike_levels_are_not_merged() -> None:
    with pytest.raises(InvalidInput, match="bits, levels"):
        merge_dyadic([DyadicECM(16, 0.1, 0.1), DyadicECM(16, 0.01, 0.1)])


@pytest.mark.parametrize("bits", [1.5, "8", True, None])
def test_bits_that_are_no_integer_are_refused(bits: int) -> None:
    with pytest.raises(InvalidInput, match="bits"):
        DyadicECM(bits, 0.1, 0.1)


@pytest.mark.parametrize("eps", ["0.1", None, float("nan")])
def test_an_eps_that_is_no_number_is_refused(eps: float) -> None:
    for build in (lambda: ECM(eps, 0.1), lambda: ECM(0.1, eps), lambda: DyadicECM(8, eps, 0.1)):
        with pytest.raises(InvalidInput, match="got eps"):
            build()


def test_a_constructor_without_the_budget_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dyadic, "require_memory", lambda *_: None)
    with pytest.raises(pytest.fail.Exception):
        refused_within(TOO_LARGE["dyadic of 62 bits"], 2_000_000)
