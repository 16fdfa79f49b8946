"""A site of a monitoring: it counts arrivals and expiries, and complains when it leaves a safe zone.

A pure state machine. `arrive` and `tick` change its counters, and return complaints; messages change its
offsets and its zones. The values that it reported last are kept beside its present ones (erratum 4 of
coordinator.py).

Cost: an arrival takes O(rows * (buckets of a cell + queries)), some tenths of a microsecond as machine code;
an expiry is an event of a heap. Memory: that of an ECM-sketch, and the vectors now, reported and summed.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.geometric import messages
from tidemark.sketches.geometric.layout import LEVELS, Layout
from tidemark.sketches.geometric.zones import HEAVY, LIGHT, Reference, reference
from tidemark.sketches.memory_limit import require_memory
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Arrays:
    """The arrays of `sites` sites with one layout, as the loops of compiled/monitoring.py take them."""

    def __init__(self, layout: Layout, sites: int) -> None:
        from tidemark.sketches.compiled.monitoring import NEVER, Counters, Vectors, Zones

        self.layout = layout
        cells, windows = layout.cells, len(layout.windows)
        slots, waits = max(layout.most) + 1, windows * layout.cells
        room = 8 * sites * (cells * LEVELS * (slots + 2) + 6 * waits)
        require_memory(room, f"{sites} sites of {cells:,} cells and {windows} windows")
        self.counters: Counters = Counters(
            np.zeros((sites, cells, LEVELS, slots), np.int64),
            np.zeros((sites, cells, LEVELS, 2), np.int64),
            np.full((sites, cells), NEVER, np.int64),
            np.array(layout.most, np.int64),
            np.array(layout.windows, np.int64),
            np.zeros((sites, waits + 1), np.int64),
            np.zeros((sites, waits + 1), np.int64),
            np.zeros(sites, np.int64),
            np.zeros((sites, waits), bool),
            np.full(1, -NEVER, np.int64),
        )
        shape = (sites, windows, cells)
        self.vectors: Vectors = Vectors(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        first = _reference_of(layout, np.zeros(shape[1:]).tobytes())
        rows, m, q, k = layout.hashes[0].rows, len(first.cell_plan), len(first.form_plan), len(first.sum_plan)
        widest = max((len(one) for terms in first.terms for one in terms), default=1)
        # The cover of a range of keys has at most two ranges a level, and all of the top.
        longest = 2 * len(layout.hashes) + layout.hashes[-1].width if k else 1
        self.zones: Zones = Zones(
            np.array(first.cell_plan, np.int64).reshape(m, 3),
            np.zeros((sites, m, 2)),
            np.zeros((sites, m, cells)),
            np.zeros((sites, m, cells), np.int8),
            np.array(first.form_plan, np.int64).reshape(q, 6),
            np.zeros((sites, q, rows, 4)),
            np.zeros((sites, q, rows, 6)),
            np.zeros((sites, q), np.int64),
            np.array(first.sum_plan, np.int64).reshape(k, 4),
            np.zeros((sites, k, longest, widest), np.int64),
            np.zeros((sites, k), np.int64),
            np.zeros((sites, k)),
            np.zeros((sites, 2 * q + k)),
            np.zeros((sites, 2 * q + k)),
        )
        self.spare = np.zeros((2, LEVELS * slots + 1), np.int64)

    def forget(self, site: int) -> None:
        """A site is started again: it knows nothing."""
        from tidemark.sketches.compiled.monitoring import NEVER

        for array in (*self.vectors, self.counters.rings, self.counters.heap_sizes, self.counters.waits):
            array[site] = 0
        self.counters.first[site] = NEVER


@lru_cache(maxsize=4)  # sites of one process begin anew with the same sum
def _reference_of(layout: Layout, total: bytes) -> Reference:
    shape = (len(layout.windows), layout.cells)
    return reference(layout, np.frombuffer(total, np.float64).reshape(shape))


class Site:
    """The state of one site, a `Machine`. arrays: of all sites; index: which place in them is its own."""

    __slots__ = ("_arrays", "_asked", "_complained", "_index", "_reported")

    def __init__(self, arrays: Arrays, index: int = 0) -> None:
        self._arrays, self._index = arrays, index
        self._complained: set[int] = set()
        self._reported: Floats | None = None
        self._install(_reference_of(arrays.layout, arrays.vectors.total[index].tobytes()))

    def arrive(self, time: int, cells: Ints) -> list[Message]:
        """Adds an arrival in the cells of a key (Layout.cells_of), after `tick` of its time."""
        from tidemark.sketches.compiled import monitoring

        arrays = self._arrays
        outgoing = self.tick(time)
        n, spare = arrays.layout.sites, arrays.spare
        is_outside = monitoring.arrive(
            arrays.counters, arrays.vectors, arrays.zones, n, self._index, time, cells, spare
        )
        return outgoing + (self.complaints() if is_outside else [])

    def tick(self, now: int) -> list[Message]:
        """The time is `now`, at least the last one: what has left the windows expires."""
        from tidemark.sketches.compiled import monitoring

        arrays = self._arrays
        if now < arrays.counters.now[0]:
            raise InvalidInput(f"got the time {now} after {arrays.counters.now[0]}; expected times in order")
        is_outside = monitoring.tick(
            arrays.counters, arrays.vectors, arrays.zones, arrays.layout.sites, self._index, now
        )
        return self.complaints() if is_outside else []

    def complaints(self) -> list[Message]:
        """What to send about zones that the site is outside of and has not yet complained of."""
        found = []
        for condition in self._outside():
            if condition not in self._complained:
                self._complained.add(condition)
                value = self.value(condition)
                found.append(messages.message(COORDINATOR, messages.VIOLATED, condition, value))
        return found

    def value(self, condition: int) -> float:
        """The value of a condition here: U_i of the cell, or phi(U_i), with what others lent."""
        from tidemark.sketches.compiled import monitoring

        arrays, scalars = self._arrays, self._arrays.zones.bounds.shape[1]
        n = arrays.layout.sites
        if condition < scalars:
            return monitoring.scalar_value(arrays.vectors, arrays.zones, n, self._index, condition)
        plan, cell = divmod(condition - scalars, arrays.layout.cells)
        window = arrays.zones.cell_plan[plan, 0]
        own = n * arrays.vectors.values[self._index, window, cell]
        return float(own + arrays.zones.cell_offsets[self._index, plan, cell])

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of the coordinator; see `Machine`."""
        del sender
        arrays, at = self._arrays, self._index
        if kind == messages.ASK:
            (condition,) = messages.numbers_of(kind, payload)
            messages.check_condition(condition, self._conditions)
            return [messages.message(COORDINATOR, messages.VALUE, condition, self.value(condition))]
        if kind == messages.SHIFT:
            self._shift(*messages.numbers_of(kind, payload))
        elif kind == messages.COLLECT:
            self._reported = arrays.vectors.values[at].copy()
            numbers = *messages.numbers_of(kind, payload), int(arrays.counters.now[0])
            return [messages.message(COORDINATOR, messages.VECTOR, *numbers, estimates=self._reported)]
        elif self._reported is not None:
            total = messages.estimates_of(messages.RESTART, payload, arrays.vectors.total.shape[1:])
            arrays.vectors.reported[at], arrays.vectors.total[at] = self._reported, total
            self._complained.clear()
            self._install(_reference_of(arrays.layout, arrays.vectors.total[at].tobytes()))
        return self.complaints()

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A coordinator asks by itself for what it needs; see `Machine`."""
        del peer, again
        return []

    @property
    def _conditions(self) -> int:
        zones = self._arrays.zones
        return int(zones.bounds.shape[1] + zones.cell_states[0].size)

    def _shift(self, condition: int, amount: float, state: int) -> None:
        messages.check_condition(condition, self._conditions)
        zones, scalars = self._arrays.zones, self._arrays.zones.bounds.shape[1]
        self._complained.discard(condition)
        if condition < scalars:
            zones.offsets[self._index, condition] += amount
            return
        plan, cell = divmod(condition - scalars, self._arrays.layout.cells)
        zones.cell_offsets[self._index, plan, cell] += amount
        zones.cell_states[self._index, plan, cell] = state

    def _outside(self) -> list[int]:
        """The conditions of which the site is outside of the zone. O(conditions)."""
        from tidemark.sketches.compiled import monitoring

        vectors, zones, at = self._arrays.vectors, self._arrays.zones, self._index
        n, cells, scalars = self._arrays.layout.sites, self._arrays.layout.cells, zones.bounds.shape[1]
        found = [
            k
            for k in range(scalars)
            if not monitoring.scalar_value(vectors, zones, n, at, k) <= zones.bounds[at, k]
        ]
        for plan, (window, first, end) in enumerate(zones.cell_plan):
            own = n * vectors.values[at, window, first:end] + zones.cell_offsets[at, plan, first:end]
            states, (lo, hi) = zones.cell_states[at, plan, first:end], zones.cell_limits[at, plan]
            outside = ((states == LIGHT) & (own >= hi)) | ((states == HEAVY) & (own < lo))
            found += (scalars + plan * cells + first + np.flatnonzero(outside)).tolist()
        return found

    def _install(self, found: Reference) -> None:
        """The zones around a new sum; nobody has lent anything."""
        zones, vectors, at = self._arrays.zones, self._arrays.vectors, self._index
        layout = self._arrays.layout
        zones.offsets[at], zones.bounds[at] = 0, found.bounds
        for plan, (window, *_) in enumerate(found.cell_plan):
            zones.cell_limits[at, plan], zones.cell_states[at, plan] = (
                found.cell_limits[plan],
                found.cell_states[plan],
            )
            drift = vectors.total[at, window] - layout.sites * vectors.reported[at, window]
            zones.cell_offsets[at, plan] = drift
        for q, rows in enumerate(found.form_rows):
            zones.form_rows[at, q], zones.form_star[at, q] = rows, found.form_star[q]
            zones.form_sums[at, q] = self._sums(found.form_plan[q])
        for k, terms in enumerate(found.terms):
            zones.term_counts[at, k], zones.shares[at, k] = len(terms), found.shares[k]
            for t, cells in enumerate(terms):
                zones.terms[at, k, t] = np.pad(cells, (0, zones.terms.shape[3] - len(cells)), "edge")

    def _sums(self, plan: list[int]) -> Floats:
        """The sums of the drifts of a self-join or an inner product, row by row."""
        window, x, y, rows, width, _ = plan
        vectors, at = self._arrays.vectors, self._index
        drift = vectors.values[at, window] - vectors.reported[at, window]
        total = vectors.total[at, window]

        def part(vector: Floats, base: int) -> Floats:
            return vector[base : base + rows * width].reshape(rows, width)

        dp, p, dm, m = part(drift, x), part(total, x), np.zeros((rows, width)), np.zeros((rows, width))
        if y >= 0:
            dm, m = dp - part(drift, y), p - part(total, y)
            dp, p = dp + part(drift, y), p + part(total, y)
        up, down = np.maximum(dp, 0), np.minimum(dp, 0)
        sums = [dp * dp, p * dp, dm * dm, m * dm, up * up, down * down]
        return np.stack([one.sum(axis=1) for one in sums], axis=1)
