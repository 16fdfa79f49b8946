"""The safe zones: what each site may hold without telling, from the sum of all reported vectors.

Model. n sites hold vectors v_i; V' is the sum of what they last reported, v_i'. The drift vector of a site is
U_i = V' + n (v_i - v_i'), so that the sum of all vectors is V = mean of the U_i. A condition on V is a convex
function with a bound, phi(V) <= b. By Jensen's inequality phi(V) <= mean of phi(U_i). So each site has

    phi(U_i) + o_i  <=  b        where the o_i of all sites add up to 0,

and while that holds at every site, the condition holds. A site outside of its zone asks for help: other sites
lend it some of their room, which changes the o_i and not their sum (phase 1, `offsets`); if all sites
together have too little room, all report their vectors and everything begins anew (phase 2).

    f >= lo, f the sum of minima              phi = -f, which is convex
    f <= hi, f the sum of minima              phi = the sum of those cells that are the minima in V'
    |x|**2 <= hi in some row                  phi = |x|**2 in the row that is the smallest in V'
    |x|**2 >= lo in every row                 phi = the largest |x'|**2 - 2 x' . x, a tangent of -|x|**2
    <x, y> <= hi, >= lo                       4 <x, y> = |x + y|**2 - |x - y|**2, the negative square replaced
                                              by its tangent
    R(x) < hi of all keys                     each cell that is below hi in V' stays below it
    by norms, the paper's                     phi = w . |(x_i - x_i')^+| and |(x_i' - x_i)^+|, see below

By norms (section 6.5), with a the norms of the rows of V', T_u = sqrt(hi), T_l = sqrt(lo), w = max(0, T_u -
a): the sum of w n |(x_i - x_i')^+| is at most w . w, and n |(x_i' - x_i)^+| at most a - T_l in every row.
These zones are smaller: arrivals count by their norm, also where they are orthogonal to V' and hardly matter.

Errata of the paper: see coordinator.py. Values are multiples of 1/2, so what of their squares and offsets is
below 2**51 is exact; bounds are made smaller by 1e-9 for the rounding of larger ones.

Source: Papapetrou et al., VLDB Journal 2015, section 6; Keren, Sharfman, Schuster and Livne, "Shape sensitive
geometric monitoring", TKDE 2012; Samoladas and Garofalakis, "Functional geometric monitoring for distributed
streams", EDBT 2019.
"""

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.geometric.layout import Layout
from tidemark.sketches.geometric.queries import (
    Frequent,
    HeavyPrefixes,
    InnerProduct,
    Maximum,
    Quantile,
    Range,
    SelfJoin,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_INSIDE = 1 - 1e-9
LIGHT, HEAVY, IGNORED = 0, 1, 2  # the states of a cell, as in compiled/monitoring.py


@dataclass(slots=True)
class Reference:
    """The zones around a sum of reported vectors.

    total: (w, cells). Plans and other arrays: as in compiled/monitoring.py, without the axis of sites.
    cell_goals: (m, 2), a light cell may be at the first, a heavy one at the second, after balancing.
    cell_is_fixed: (m,), whether a cell that crosses begins everything anew, instead of changing its state.
    centres: the value of each condition at the total itself.
    values: what each query answers. slack: by how many arrivals more a quantile errs, because of collisions.
    """

    total: Floats
    cell_plan: list[list[int]] = field(default_factory=list)
    cell_limits: list[list[float]] = field(default_factory=list)
    cell_goals: list[list[float]] = field(default_factory=list)
    cell_is_fixed: list[bool] = field(default_factory=list)
    cell_states: list[NDArray[np.int8]] = field(default_factory=list)
    form_plan: list[list[int]] = field(default_factory=list)
    form_rows: list[Floats] = field(default_factory=list)
    form_star: list[int] = field(default_factory=list)
    form_bounds: list[float] = field(default_factory=list)
    form_centres: list[float] = field(default_factory=list)
    sum_plan: list[list[int]] = field(default_factory=list)
    terms: list[list[Ints]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    sum_bounds: list[float] = field(default_factory=list)
    sum_centres: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    slack: list[float] = field(default_factory=list)

    @property
    def bounds(self) -> list[float]:
        """The bounds of the conditions of whole vectors."""
        return self.form_bounds + self.sum_bounds

    @property
    def centres(self) -> list[float]:
        """The values of the conditions at the total."""
        return self.form_centres + self.sum_centres


def reference(layout: Layout, total: Floats) -> Reference:
    """The zones around a sum of reported vectors, shape (windows, cells). O(cells) a query."""
    found = Reference(total)
    for query in layout.queries:
        value, slack = 0.0, 0.0
        if isinstance(query, Frequent | HeavyPrefixes):
            levels = range(len(layout.hashes) if isinstance(query, HeavyPrefixes) else 1)
            for level in levels:
                _light_and_heavy(found, layout, query, level)
            value = query.threshold
        elif isinstance(query, SelfJoin | InnerProduct):
            value = _form(found, layout, query)
        elif isinstance(query, Range):
            value = _range(found, layout, query)
        elif isinstance(query, Maximum):
            value = _maximum(found, layout, query)
        elif isinstance(query, Quantile):
            value, slack = _quantile(found, layout, query)
        found.values.append(value)
        found.slack.append(slack)
    return found


def limits(query: Any, value: float) -> tuple[float, float]:
    """The least and the largest f for which `value` is within theta of f, or within `least` of it."""
    return (
        min(value / (1 + query.theta), value - query.least),
        max(value / (1 - query.theta), value + query.least),
    )


def _light_and_heavy(found: Reference, layout: Layout, query: Frequent | HeavyPrefixes, level: int) -> None:
    w, tau = layout.window_of(query), query.threshold
    first, end = layout.bases[level : level + 2]
    found.cell_plan.append([w, first, end])
    found.cell_limits.append([tau * (1 - query.theta) / _INSIDE, tau * (1 + query.theta) * _INSIDE])
    found.cell_goals.append([tau, tau])
    found.cell_is_fixed.append(False)
    states = np.full(layout.cells, IGNORED, np.int8)
    states[first:end] = np.where(found.total[w, first:end] >= tau, HEAVY, LIGHT)
    found.cell_states.append(states)


def _form(found: Reference, layout: Layout, query: SelfJoin | InnerProduct) -> float:
    hashes, w = layout.hashes[0], layout.window_of(query)
    shape, is_product = (hashes.rows, hashes.width), isinstance(query, InnerProduct)
    x = found.total[w, : hashes.cells].reshape(shape)
    by_norms = isinstance(query, SelfJoin) and query.by_norms
    y_base = layout.bases[-1] if is_product else -1
    found.form_plan.append([w, 0, y_base, hashes.rows, hashes.width, int(by_norms)])
    y = found.total[w, y_base : y_base + hashes.cells].reshape(shape) if is_product else np.zeros(shape)
    squares = ((x + y) ** 2).sum(axis=1)
    differences = ((x - y) ** 2).sum(axis=1) if is_product else np.zeros(hashes.rows)
    factor = 4 if is_product else 1
    products = (squares - differences) / factor
    star, value = int(products.argmin()), float(products.min())
    lo, hi = limits(query, value)
    norms = np.sqrt(squares)
    weights = np.maximum(0.0, math.sqrt(hi) - norms)
    room = float(weights @ weights)
    if not room:  # nothing has arrived, and nothing may
        weights += 1
    spare = norms - math.sqrt(max(0.0, lo))
    found.form_rows.append(np.stack([squares, differences, weights, spare], axis=1))
    found.form_star.append(star)
    if by_norms:
        found.form_bounds += [room * _INSIDE, 0.0]
        found.form_centres += [0.0, -float(spare.min())]
    else:
        found.form_bounds += [factor * hi * _INSIDE, -factor * lo / _INSIDE]
        found.form_centres += [factor * value, float((differences - squares).max())]
    return value


def _add_sum(
    found: Reference,
    layout: Layout,
    w: int,
    side: int,
    cells: list[Ints],
    share: float = 0.0,
    bound: float = 0.0,
) -> float:
    """Adds a condition on a sum of minima less a share of all arrivals; returns its value at the total."""
    vector = found.total[w]
    ordered = [one[np.argsort(vector[one], kind="stable")] for one in cells]
    first, end = layout.bases[-2], layout.bases[-1]
    whole = float(vector[first:end].sum())
    centre = side * (sum(float(vector[one[0]]) for one in ordered) - share * whole)
    found.sum_plan.append([w, side, first, end])
    found.terms.append(ordered)
    found.shares.append(share)
    found.sum_bounds.append(bound)
    found.sum_centres.append(centre)
    return centre


def _nodes(layout: Layout, low: int, stop: int) -> list[Ints]:
    """The cells of the dyadic ranges that cover the keys low to stop - 1."""
    return [layout.level_cells(level, np.array([node]))[0] for level, node in layout.cover(low, stop)]


def _range(found: Reference, layout: Layout, query: Range) -> float:
    w, cells = layout.window_of(query), _nodes(layout, query.low, query.high + 1)
    value = _add_sum(found, layout, w, 1, cells)
    _add_sum(found, layout, w, -1, cells)
    lo, hi = limits(query, value)
    found.sum_bounds[-2:] = [hi * _INSIDE, -lo / _INSIDE]
    return value


def _maximum(found: Reference, layout: Layout, query: Maximum) -> float:
    w = layout.window_of(query)
    key, value = most_frequent(layout, found.total[w])
    lo, hi = limits(query, value)
    of_key = [layout.level_cells(level, np.array([key >> level]))[0] for level in range(len(layout.hashes))]
    _add_sum(found, layout, w, -1, [np.concatenate(of_key)], bound=-lo / _INSIDE)
    for level in range(len(layout.hashes)):
        first, end = layout.bases[level : level + 2]
        found.cell_plan.append([w, first, end])
        found.cell_limits.append([-math.inf, hi * _INSIDE])
        found.cell_goals.append([(value + hi) / 2, math.inf])
        found.cell_is_fixed.append(True)
        states = np.full(layout.cells, IGNORED, np.int8)
        states[first:end] = np.where(found.total[w, first:end] < hi * _INSIDE, LIGHT, IGNORED)
        found.cell_states.append(states)
    return value


def most_frequent(layout: Layout, vector: Floats) -> tuple[int, float]:
    """(key, frequency) of the most frequent key, by the least cell of all ranges that hold it. Best first."""
    top = len(layout.hashes) - 1
    first = layout.bases[top]
    waiting = [(-float(vector[first + node]), top, node) for node in range(layout.hashes[top].width)]
    heapq.heapify(waiting)
    while True:
        most, level, node = heapq.heappop(waiting)
        if level == 0:
            return node, -most
        children = np.array([2 * node, 2 * node + 1])
        for child, cells in zip(children.tolist(), layout.level_cells(level - 1, children), strict=True):
            heapq.heappush(waiting, (max(most, -float(vector[cells].min())), level - 1, child))


def _quantile(found: Reference, layout: Layout, query: Quantile) -> tuple[float, float]:
    w = layout.window_of(query)
    vector = found.total[w]
    whole = float(vector[layout.bases[-2] : layout.bases[-1]].sum())
    key = quantile_key(layout, vector, query.phi)
    below, upto = _nodes(layout, 0, key), _nodes(layout, 0, key + 1)
    upper = _add_sum(found, layout, w, 1, below, query.phi + query.theta)
    lower = _add_sum(found, layout, w, -1, upto, query.phi - query.theta)
    # Collisions may put the key outside at once; then it may err by so much more, and half of theta again.
    slack = max(0.0, upper, lower)
    slack += query.theta * whole / 2 if slack else 0.0
    found.sum_bounds[-2:] = [slack, slack]
    return float(key), slack


def quantile_key(layout: Layout, vector: Floats, phi: float) -> int:
    """The key at which the sum over the ranges before it reaches phi of all arrivals. O(levels)."""
    top = len(layout.hashes) - 1
    counts = vector[layout.bases[top] : layout.bases[top + 1]]
    target = phi * float(counts.sum())
    node = min(int(np.searchsorted(np.cumsum(counts), target)), len(counts) - 1)
    target -= float(counts[:node].sum())
    for level in range(top - 1, -1, -1):
        node *= 2
        left = float(vector[layout.level_cells(level, np.array([node]))[0]].min())
        if left < target:
            target, node = target - left, node + 1
    return node
