"""The size of an ECM-sketch for a given error, and the error of a sketch of a given size.

A sketch has rows x width cells, whose counters have a relative error of eps_sw. Collisions add at most
eps_cm = e / width of all arrivals, with probability 1 - e**-rows. n is the number of arrivals in the
window. Every function takes O(1) time.

    point queries     |f' - f|   <=  eps * n          eps = max(eps_cm (1 + eps_sw), eps_sw)
    inner products    |ab' - ab| <=  eps * n_a * n_b  eps = max(eps_cm (1 + eps_sw)**2, eps_sw**2 + 2 eps_sw)

each with probability 1 - delta. Memory is proportional to 1 / (eps_cm * eps_sw). For a given eps it is
smallest at

    point queries     eps_cm = eps / (1 + eps)        eps_sw = eps
    inner products    eps_cm = eps / (1 + eps)        eps_sw = sqrt(1 + eps) - 1.

Randomised waves may fail as well, so they and the rows get delta / 2 each. Of SPLITTER ("SP") nothing is
proved: a sub-cell takes SPLIT_SHARE / width of the window in arrivals before it may be followed by another,
as in its paper (counters/sub_cells.py).

Example. Points with eps = delta = 0.01: eps_cm = 0.0099, so 275 columns, and 5 rows; 1375 counters of
eps_sw = 0.01.

Source: Papapetrou et al., VLDB Journal 2015: lemmas 3 and 4, theorems 1 to 3.
"""

import math
from dataclasses import dataclass

import numpy as np

from tidemark.sketches.errors import InvalidInput

SPLIT_SHARE = 0.05  # tau of SPLITTER; of the shares that its paper tries, the one with few splits and errors


@dataclass(frozen=True, slots=True)
class ECMSizes:
    """rows x width cells, and the parameters of their counters.

    eps_sw: the relative error of a counter. delta_sw: the probability that it is larger; 0 for EH and DW.
    """

    rows: int
    width: int
    eps_sw: float
    delta_sw: float


def sizes_for_points(eps: float, delta: float, *, randomised: bool = False) -> ECMSizes:
    """The smallest sketch for point queries within eps * n with probability 1 - delta."""
    return _sizes(eps, delta, eps, randomised)


def split_eps(width: int) -> float:
    """The eps of SPLITTER's counters in rows of `width` columns, within the range of `Counting`."""
    return max(SPLIT_SHARE / width, 1e-6)


def sizes_for_inner_products(eps: float, delta: float) -> ECMSizes:
    """The smallest sketch for inner products within eps * n_a * n_b with probability 1 - delta."""
    eps, delta = checked_promise(eps, delta)
    return _sizes(eps, delta, math.sqrt(1 + eps) - 1, randomised=False)


def point_eps(eps_cm: float, eps_sw: float) -> float:
    """The error bound of point queries, lemma 3."""
    return max(eps_cm * (1 + eps_sw), eps_sw)


def inner_product_eps(eps_cm: float, eps_sw: float) -> float:
    """The error bound of inner products, lemma 4."""
    return max(eps_cm * (1 + eps_sw) ** 2, eps_sw**2 + 2 * eps_sw)


def eps_of_merge_inputs(eps: float, levels: int) -> float:
    """The eps_sw that counters need so that their error after `levels` levels of merges is within eps.

    Every merge uses the eps_sw of its inputs, so (1 + eps_sw)**(levels + 1) - 1 = eps. The result is smaller
    by the possible rounding error.
    """
    if not 0 < eps < 1 or levels < 0:
        raise InvalidInput(f"got eps = {eps} and {levels} levels; expected 0 < eps < 1 and 0 levels or more")
    return math.expm1(math.log1p(eps) / (levels + 1)) * (1 - (levels + 1) * 2**-48)


def checked_promise(eps: float, delta: float) -> tuple[float, float]:
    """Both as floats; InvalidInput unless 1e-6 <= eps < 1 and 1e-12 <= delta < 1."""
    numbers = all(isinstance(x, int | float | np.number) for x in (eps, delta))
    if not (numbers and 1e-6 <= eps < 1 and 1e-12 <= delta < 1):
        raise InvalidInput(
            f"got eps = {eps!r}, delta = {delta!r}; expected 1e-6 <= eps < 1 and 1e-12 <= delta < 1"
        )
    return float(eps), float(delta)


def _sizes(eps: float, delta: float, eps_sw: float, randomised: bool) -> ECMSizes:
    eps, delta = checked_promise(eps, delta)
    delta_each = delta / 2 if randomised else delta
    eps_cm = eps / (1 + eps)
    return ECMSizes(
        rows=max(1, math.ceil(math.log(1 / delta_each))),
        width=math.ceil(math.e / eps_cm),
        eps_sw=eps_sw,
        delta_sw=delta_each if randomised else 0.0,
    )
