"""Linear counting: the printed formula, cells that run out, and LC2."""

import math

import numpy as np
import pytest

from tests.sketches.distinct_streams import answer, hashes_of, streams
from tidemark.sketches import SketchError, digest
from tidemark.sketches.distinct import LinearCounting, ListedCounting
from tidemark.sketches.distinct.linear_counting import linear_error, linear_estimate
from tidemark.sketches.distinct.mixing import cell_of
from tidemark.sketches.errors import Saturated

CELLS = 1000


@pytest.mark.parametrize(("keys", "printed"), [(1000, 368), (3000, 146)])
def test_the_printed_formula_is_far_too_small(keys: int, printed: int) -> None:
    """It is m * ln(n / m), with m = n * e**-p cells left at the load p: p * e**-p cells of n."""
    assert CELLS * math.exp(-keys / CELLS) * keys / CELLS == pytest.approx(printed, rel=0.03)
    right, wrong = [], []
    for seed in range(50):
        unset = CELLS - len(set(cell_of(hashes_of(keys, seed), CELLS).tolist()))
        wrong.append(unset * math.log(CELLS / unset))
        right.append(linear_estimate(unset, CELLS))
    assert np.mean(wrong) == pytest.approx(printed, rel=0.05)
    assert np.mean(right) == pytest.approx(keys, rel=4 * linear_error(keys, CELLS) / math.sqrt(50) + 0.002)


@pytest.mark.parametrize("sketch", [LinearCounting, ListedCounting])
def test_without_an_unset_cell_there_is_no_answer(sketch: type[LinearCounting | ListedCounting]) -> None:
    counter = sketch(cells=4)
    counter.update(digest(range(100)), np.arange(100))
    with pytest.raises(Saturated, match="use more cells"):
        counter.distinct(0)
    assert issubclass(Saturated, SketchError)
    assert counter.distinct(99) == pytest.approx(4 * math.log(4 / 3))
    counter.check_invariants()


def test_a_thousand_cells_run_out_at_a_load_of_seven() -> None:
    """There are n * e**-p cells left: at a load of 7 of 1000 cells, 0.9 of one, so 40 % have none."""
    left = [CELLS - len(set(cell_of(hashes_of(7000, seed), CELLS).tolist())) for seed in range(100)]
    assert np.mean(left) == pytest.approx(1000 * math.exp(-7), abs=0.4)
    assert 25 <= left.count(0) <= 55


def test_the_error_grows_with_the_load() -> None:
    assert linear_error(0, CELLS) == 0
    assert linear_error(1, CELLS) == pytest.approx(1 / math.sqrt(2 * CELLS), rel=1e-3)
    assert linear_error(12 * CELLS, CELLS) == pytest.approx(math.exp(6) / 12 / math.sqrt(CELLS), rel=1e-3)
    assert linear_error(10**6, CELLS) == math.inf
    errors = [linear_error(distinct, CELLS) for distinct in range(2000, 12_000, 100)]
    assert errors == sorted(errors)


def test_the_list_of_lc2_gives_the_answers_of_lc() -> None:
    for stream in streams(np.random.default_rng(9)).values():
        plain, listed = LinearCounting(cells=700, seed=2), ListedCounting(cells=700, seed=2)
        for batch in stream.batches([1, 500, 30]):
            for counter in (plain, listed):
                counter.update(digest(batch.keys), batch.times)
            # Windows that move forward, one that is over, and one of the past.
            now = int(batch.times[-1])
            for since in (now - 300, now - 200, now, now + 1, int(stream.times[0])):
                assert answer(listed, since) == answer(plain, since)
        listed.check_invariants()
