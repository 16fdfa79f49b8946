"""How many tuples a GK keeps: what gk_summary.py says was measured, for every order and size of batches."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tidemark.sketches import GK
from tidemark.sketches.gk import gk, gk_summary
from tidemark.sketches.gk.gk_summary import GKSummary
from tidemark.sketches.inputs import ValueArray

ORDERS: dict[str, Callable[[int], ValueArray]] = {
    "sorted": lambda n: np.arange(n, dtype=float),
    "reversed": lambda n: -np.arange(n, dtype=float),
    "random": lambda n: np.random.default_rng(1).random(n),
    "alternating": lambda n: np.arange(n) * np.where(np.arange(n) % 2, 1.0, -1.0),
    "zooming in": lambda n: (n - np.arange(n)) * np.where(np.arange(n) % 2, 1.0, -1.0),
    "zooming in at random": lambda n: (
        (np.random.default_rng(2).random(n) - 0.5) * np.exp(-np.arange(n) / n * 600)
    ),
}
UPDATES = {1: 500, 10: 300, 100: 100, 1000: 30, 10_000: 6}  # by the size of a batch


def assert_size(sketch: GK, order: str) -> None:
    gaps = 2 * sketch.eps * sketch.n
    most = 2 + math.log2(max(1, gaps)) if order.startswith("zooming") else 2.5
    # Two tuples of a bound are the ends, which are kept whatever eps is.
    assert len(sketch) <= most / (2 * sketch.eps) + 2, f"{sketch} after {order}"


def grow(order: str, eps: float, batch: int) -> None:
    values, sketch = ORDERS[order](batch * UPDATES[batch]), GK(eps)
    for part in np.array_split(values, UPDATES[batch]):
        sketch.update(part)
        assert_size(sketch, order)
    assert sketch.n == len(values)
    sketch.check_invariants()


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("order", ORDERS)
def test_the_size_stays_within_the_documented_one_after_every_batch(order: str, eps: float) -> None:
    for batch in UPDATES:
        grow(order, eps, batch)


def half_as_far(summary: GKSummary, eps: float) -> GKSummary:
    return gk_summary.prune(summary, eps / 2)


@pytest.mark.parametrize("order", ["random", "zooming in"])
@pytest.mark.parametrize(
    "prune", [half_as_far, lambda summary, _: summary], ids=["half as far", "not at all"]
)
def test_a_prune_that_leaves_more_is_caught(
    order: str, prune: Callable[[GKSummary, float], GKSummary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gk, "prune", prune)
    with pytest.raises(AssertionError, match="after"):
        grow(order, 0.01, 100)
