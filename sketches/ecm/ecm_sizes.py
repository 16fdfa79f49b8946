"""How large an ECM-sketch must be for what is promised, and what one of a given size promises.

A sketch has rows x width cells, whose counters err by eps_sw of what they hold. Collisions add at most
eps_cm = e / width of all arrivals, with probability 1 - e**-rows. n is the number of arrivals in the
window.

    point queries     |f' - f|   <=  eps * n          eps = max(eps_cm (1 + eps_sw), eps_sw)
    inner products    |ab' - ab| <=  eps * n_a * n_b  eps = max(eps_cm (1 + eps_sw)**2, eps_sw**2 + 2 eps_sw)

each with probability 1 - delta. Memory is proportional to 1 / (eps_cm * eps_sw), and for a given eps least at

    point queries     eps_cm = eps / (1 + eps)        eps_sw = eps
    inner products    eps_cm = eps / (1 + eps)        eps_sw = sqrt(1 + eps) - 1.

Randomised waves may fail as well, so they and the rows get delta / 2 each.

Source: Papapetrou et al., VLDB Journal 2015: lemmas 3 and 4, theorems 1 to 3.
"""

import math
from dataclasses import dataclass

import numpy as np

from tidemark.sketches.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class ECMSizes:
    """rows x width cells; the counters' eps_sw, and delta_sw, how often one may fail: 0 for certain ones."""

    rows: int
    width: int
    eps_sw: float
    delta_sw: float


def sizes_for_points(eps: float, delta: float, *, randomised: bool = False) -> ECMSizes:
    """The least memory for point queries within eps * n with probability 1 - delta."""
    return _sizes(eps, delta, eps, randomised)


def sizes_for_inner_products(eps: float, delta: float) -> ECMSizes:
    """The least memory for inner products within eps * n_a * n_b with probability 1 - delta."""
    eps, delta = checked_promise(eps, delta)
    return _sizes(eps, delta, math.sqrt(1 + eps) - 1, randomised=False)


def point_eps(eps_cm: float, eps_sw: float) -> float:
    """What point queries keep, lemma 3."""
    return max(eps_cm * (1 + eps_sw), eps_sw)


def inner_product_eps(eps_cm: float, eps_sw: float) -> float:
    """What inner products keep, lemma 4."""
    return max(eps_cm * (1 + eps_sw) ** 2, eps_sw**2 + 2 * eps_sw)


def eps_of_merge_inputs(eps: float, levels: int) -> float:
    """The eps that counters need so that the error after `levels` merges, one above the other, is within eps.

    Every merge at the inputs' own eps_sw: (1 + eps_sw)**(levels + 1) - 1 = eps, less what rounding adds.
    """
    if not 0 < eps < 1 or levels < 0:
        raise InvalidInput(f"got eps = {eps} and {levels} levels; expected 0 < eps < 1 and no fewer than 0")
    return math.expm1(math.log1p(eps) / (levels + 1)) * (1 - (levels + 1) * 2**-48)


def checked_promise(eps: float, delta: float) -> tuple[float, float]:
    """Both as floats; InvalidInput unless a sketch can promise them."""
    numbers = all(isinstance(x, int | float | np.number) for x in (eps, delta))
    if not (numbers and 1e-6 <= eps < 1 and 1e-12 <= delta < 1):
        raise InvalidInput(
            f"got eps = {eps!r}, delta = {delta!r}; expected 1e-6 <= eps < 1 and 1e-12 <= delta < 1"
        )
    return float(eps), float(delta)


def _sizes(eps: float, delta: float, eps_sw: float, randomised: bool) -> ECMSizes:
    eps, delta = checked_promise(eps, delta)
    own = delta / 2 if randomised else delta
    eps_cm = eps / (1 + eps)
    return ECMSizes(
        rows=max(1, math.ceil(math.log(1 / own))),
        width=math.ceil(math.e / eps_cm),
        eps_sw=eps_sw,
        delta_sw=own if randomised else 0.0,
    )
