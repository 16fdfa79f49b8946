"""Loops of geometric monitoring: windowed counters that change by single arrivals and ticks, and safe zones.

All arrays have the site as their first axis: a simulation has one array for all of its sites, and a single
site has arrays of length 1. geometric/layout.py and geometric/zones.py say what the arrays mean.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.compiled.jit import compiled
from tidemark.sketches.compiled.kernels import push_buckets

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEVER = 2**62
LIGHT, HEAVY, IGNORED = 0, 1, 2  # the states of a cell


class Counters(NamedTuple):
    """Exponential histograms of all cells, and when their estimates change next.

    ends: (sites, cells, levels, slots). rings: (sites, cells, levels, 2), the head and length of each ring.
    first: (sites, cells), the time of the first arrival. most: (2,), the buckets of level 0 and of others.
    windows: (w,). heap_times, heap_ids: (sites, w * cells), heaps of (time, window * cells + cell).
    heap_sizes: (sites,). waits: (sites, w * cells), what is in the heap. now: (1,).
    """

    ends: Ints
    rings: Ints
    first: Ints
    most: Ints
    windows: Ints
    heap_times: Ints
    heap_ids: Ints
    heap_sizes: Ints
    waits: NDArray[np.bool_]
    now: Ints


class Vectors(NamedTuple):
    """Vectors of estimates, (sites, w, cells): of now, as last reported, and the sum of all reports."""

    values: Floats
    reported: Floats
    total: Floats


class Zones(NamedTuple):
    """The safe zones of all conditions; see geometric/zones.py.

    cell_plan: (m, 3), window, first cell and end. cell_limits: (sites, m, 2).
    cell_offsets, cell_states: (sites, m, cells).
    form_plan: (q, 6), window, cells of x, cells of y or -1, rows, width, whether by norms.
    form_rows: (sites, q, rows, 4), |p|**2 and |m|**2 of the total, weight and norm.
    form_sums: (sites, q, rows, 6). form_star: (sites, q).
    sum_plan: (k, 4), window, +1 upper or -1 lower, cells whose sum is the total. terms: (sites, k, t, d).
    term_counts: (sites, k). shares: (sites, k).
    offsets, bounds: (sites, 2 * q + k).
    """

    cell_plan: Ints
    cell_limits: Floats
    cell_offsets: Floats
    cell_states: NDArray[np.int8]
    form_plan: Ints
    form_rows: Floats
    form_sums: Floats
    form_star: Ints
    sum_plan: Ints
    terms: Ints
    term_counts: Ints
    shares: Floats
    offsets: Floats
    bounds: Floats


@compiled
def add_arrival(counters: Counters, site: int, cell: int, time: int, spare: Ints) -> None:
    """Adds one arrival to the histogram of a cell; spare: (2, levels * slots + 1). Amortised O(1)."""
    if counters.first[site, cell] == NEVER:
        counters.first[site, cell] = time
    start, level, new = spare.shape[1] - 1, 0, 1
    end = start + 1
    spare[0, start], spare[1, start] = time, 1
    while new > 0:
        most = counters.most[min(level, 1)]
        ring = counters.rings[site, cell, level]
        head, count, start, end, new = push_buckets(
            counters.ends[site, cell, level, : most + 1],
            ring[0],
            ring[1],
            most,
            spare[0],
            spare[1],
            start,
            end,
            new,
        )
        ring[0], ring[1] = head, count
        level += 1


@compiled
def estimate_since(counters: Counters, site: int, cell: int, since: int) -> tuple[float, int]:
    """The estimate of the arrivals at `since` or later, and the time that changes it once it has expired.

    The oldest bucket counts half of all but its last arrival, unless nothing came before `since`. O(buckets).
    """
    total, size, end = 0, 0, NEVER
    for level in range(counters.rings.shape[2]):
        slots = counters.most[min(level, 1)] + 1
        head, count = counters.rings[site, cell, level, 0], counters.rings[site, cell, level, 1]
        for k in range(count - 1, -1, -1):
            at = head + k
            time = counters.ends[site, cell, level, at if at < slots else at - slots]
            if time < since:
                return total - max(0, size - 1) / 2, end
            size, end = 1 << level, time
            total += size
    first = counters.first[site, cell]
    if total and first >= since:
        return float(total), first
    return total - max(0, size - 1) / 2, end


@compiled
def push_event(counters: Counters, site: int, time: int, what: int) -> None:
    """Notes that an estimate changes at `time`. O(log)."""
    times, ids = counters.heap_times[site], counters.heap_ids[site]
    at = counters.heap_sizes[site]
    counters.heap_sizes[site] = at + 1
    counters.waits[site, what] = True
    while at > 0 and times[(at - 1) // 2] > time:
        times[at], ids[at] = times[(at - 1) // 2], ids[(at - 1) // 2]
        at = (at - 1) // 2
    times[at], ids[at] = time, what


@compiled
def pop_event(counters: Counters, site: int) -> int:
    """Takes the first event off. O(log)."""
    times, ids = counters.heap_times[site], counters.heap_ids[site]
    found, size = ids[0], counters.heap_sizes[site] - 1
    counters.heap_sizes[site] = size
    counters.waits[site, found] = False
    time, what, at = times[size], ids[size], 0
    while True:
        child = 2 * at + 1
        if child + 1 < size and times[child + 1] < times[child]:
            child += 1
        if child >= size or times[child] >= time:
            break
        times[at], ids[at] = times[child], ids[child]
        at = child
    times[at], ids[at] = time, what
    return int(found)


@compiled
def set_value(vectors: Vectors, zones: Zones, n: int, site: int, w: int, cell: int, value: float) -> bool:
    """The estimate of a cell is `value` now. Returns whether it is outside of a zone of that cell."""
    values, reported, total = vectors.values[site, w], vectors.reported[site, w], vectors.total[site, w]
    delta = value - values[cell]
    if delta == 0:
        return False
    values[cell] = value
    for q in range(len(zones.form_plan)):
        window, x, y, rows, width = zones.form_plan[q, :5]
        is_y = y >= 0 and y <= cell < y + rows * width
        if window != w or not (is_y or x <= cell < x + rows * width):
            continue
        at = cell - (y if is_y else x)
        p, dp, m, dm, sign = total[x + at], values[x + at] - reported[x + at], 0.0, 0.0, 0.0
        if y >= 0:
            m, dm = p - total[y + at], dp - values[y + at] + reported[y + at]
            p, dp = p + total[y + at], dp + values[y + at] - reported[y + at]
            sign = -1.0 if is_y else 1.0
        before, m_before = dp - delta, dm - sign * delta
        sums = zones.form_sums[site, q, at // width]
        sums[0] += dp * dp - before * before
        sums[1] += p * delta
        sums[2] += dm * dm - m_before * m_before
        sums[3] += m * sign * delta
        sums[4] += max(dp, 0.0) ** 2 - max(before, 0.0) ** 2
        sums[5] += min(dp, 0.0) ** 2 - min(before, 0.0) ** 2
    for i in range(len(zones.cell_plan)):
        window, first, end = zones.cell_plan[i]
        if window == w and first <= cell < end:
            own, state = n * value + zones.cell_offsets[site, i, cell], zones.cell_states[site, i, cell]
            if state == LIGHT and own >= zones.cell_limits[site, i, 1]:
                return True
            if state == HEAVY and own < zones.cell_limits[site, i, 0]:
                return True
    return False


@compiled
def form_value(zones: Zones, n: int, site: int, q: int, is_upper: bool) -> float:
    """The convex function of a self-join or an inner product at the site's drift vector. O(rows)."""
    plan, rows, sums = zones.form_plan[q], zones.form_rows[site, q], zones.form_sums[site, q]
    if plan[5]:
        found = 0.0 if is_upper else -np.inf
        for row in range(plan[3]):
            if is_upper:
                found += rows[row, 2] * n * math.sqrt(max(0.0, sums[row, 4]))
            else:
                found = max(found, n * math.sqrt(max(0.0, sums[row, 5])) - rows[row, 3])
        return float(found)
    if is_upper:
        row = zones.form_star[site, q]
        found = rows[row, 0] + 2 * n * sums[row, 1] + n * n * sums[row, 0]
        return float(found - rows[row, 1] - 2 * n * sums[row, 3])
    found = -np.inf
    for row in range(plan[3]):
        squares = rows[row, 1] + 2 * n * sums[row, 3] + n * n * sums[row, 2]
        found = max(found, squares - rows[row, 0] - 2 * n * sums[row, 1])
    return float(found)


@compiled
def sum_value(vectors: Vectors, zones: Zones, n: int, site: int, k: int) -> float:
    """The convex function of a sum of minima at the site's drift vector. O(terms)."""
    w, side, first, end = zones.sum_plan[k]
    values, reported, total = vectors.values[site, w], vectors.reported[site, w], vectors.total[site, w]
    found = 0.0
    for t in range(zones.term_counts[site, k]):
        cells = zones.terms[site, k, t]
        least = total[cells[0]] + n * (values[cells[0]] - reported[cells[0]])
        if side < 0:  # above, the row that was the smallest stands for all
            for cell in cells[1:]:
                least = min(least, total[cell] + n * (values[cell] - reported[cell]))
        found += least
    whole = 0.0
    if zones.shares[site, k] != 0:
        for cell in range(first, end):
            whole += total[cell] + n * (values[cell] - reported[cell])
    return float(side * (found - zones.shares[site, k] * whole))


@compiled
def scalar_value(vectors: Vectors, zones: Zones, n: int, site: int, k: int) -> float:
    """The value of condition k at the site, with what other sites lent it; at most its bound in the zone."""
    forms = 2 * len(zones.form_plan)
    if k < forms:
        return form_value(zones, n, site, k // 2, k % 2 == 0) + float(zones.offsets[site, k])
    return sum_value(vectors, zones, n, site, k - forms) + float(zones.offsets[site, k])


@compiled
def scalars_violated(vectors: Vectors, zones: Zones, n: int, site: int) -> bool:
    """Whether a condition of whole vectors is outside of its zone."""
    for k in range(zones.bounds.shape[1]):
        if not scalar_value(vectors, zones, n, site, k) <= zones.bounds[site, k]:
            return True
    return False


@compiled
def tick(counters: Counters, vectors: Vectors, zones: Zones, n: int, site: int, now: int) -> bool:
    """Lets expire what has left the windows at `now`. Returns whether the site is outside of a zone."""
    cells, found, changed = vectors.values.shape[2], False, False
    while counters.heap_sizes[site] > 0 and counters.heap_times[site, 0] <= now:
        what = pop_event(counters, site)
        w, cell = what // cells, what % cells
        value, leaves = estimate_since(counters, site, cell, now - counters.windows[w] + 1)
        if leaves != NEVER:
            push_event(counters, site, leaves + counters.windows[w], what)
        found |= set_value(vectors, zones, n, site, w, cell, value)
        changed = True
    return found or (changed and scalars_violated(vectors, zones, n, site))


@compiled
def arrive(
    counters: Counters, vectors: Vectors, zones: Zones, n: int, site: int, now: int, cells: Ints, spare: Ints
) -> bool:
    """Adds an arrival in these cells, after the tick. Returns whether the site is outside of a zone."""
    found, all_cells = False, vectors.values.shape[2]
    for cell in cells:
        add_arrival(counters, site, cell, now, spare)
        for w in range(len(counters.windows)):
            value, leaves = estimate_since(counters, site, cell, now - counters.windows[w] + 1)
            found |= set_value(vectors, zones, n, site, w, cell, value)
            if not counters.waits[site, w * all_cells + cell]:
                push_event(counters, site, leaves + counters.windows[w], w * all_cells + cell)
    return found or scalars_violated(vectors, zones, n, site)


@compiled
def run(  # noqa: PLR0913, PLR0917  all state is arrays
    counters: Counters,
    vectors: Vectors,
    zones: Zones,
    n: int,
    times: Ints,
    sites: Ints,
    cells: Ints,
    spare: Ints,
    start: int,
    ticked: int,
) -> tuple[int, int, int]:
    """Adds arrivals from `start` on, each after a tick of all sites, until a site is outside of a zone.

    cells: (arrivals, rows). ticked: the sites that have had the tick of the first arrival already.
    Returns (the next arrival, its ticked sites, the site outside); the last is -1 at the end.
    """
    for i in range(start, len(times)):
        if times[i] > counters.now[0]:
            for site in range(ticked, len(counters.heap_sizes)):
                if (
                    counters.heap_sizes[site] > 0
                    and counters.heap_times[site, 0] <= times[i]
                    and tick(counters, vectors, zones, n, site, times[i])
                ):
                    return i, site + 1, site
            counters.now[0] = times[i]
        ticked = 0
        if arrive(counters, vectors, zones, n, sites[i], times[i], cells[i], spare):
            return i + 1, 0, sites[i]
    return len(times), 0, -1
