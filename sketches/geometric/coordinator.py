"""The coordinator of a monitoring: it balances sites that left a zone, or has all of them begin anew.

Model. A pure state machine. A site whose value of a condition is outside of its zone complains.

    1  the values of 1, 2, 4 ... further sites are asked for, until the mean over those asked leaves enough
       room: then each of them gets that mean (balancing). If all are asked, the mean bounds the
       value of all sites together: phase 1
    2  too little room over all sites: every site reports its vector, and all get the sum: phase 2, one
       synchronisation for all queries

A cell of `Frequent` is a number, so the mean over all sites is the cell of the sum V: it becomes heavy if it
reaches the threshold, else light, without vectors. A key is in F if all of its cells are heavy.

Guarantee: while no message is under way, all conditions of queries.py (a quantile's up to its slack) hold for
the sum of the vectors of all sites; proof in zones.py. True counts differ by the errors of counters and
collisions, too: at most eps of the window's arrivals, with probability 1 - delta (ecm_sizes.py). If a site
was started again, what it had counted is lost: answers raise LostState until the widest window has passed.

Errata of the paper, and what shows them:
  1. The query Q of section 6.3 has its signs swapped: as printed, each key from threshold *
     (1 - theta) to threshold * (1 + theta) violates always.
  2. Section 6.4 defines v as the mean; lemma 2 needs the sum, else the test is n times too strict.
  3. d^u and d^l are printed with the global v(t0). It must be the site's own v(t0), else a site that never
     changed violates.
  4. A site must keep its own last report. And a report about one key moves cells of other keys: with one
     zone a key, as in 6.3, these may then leave their zones unseen. So here each cell has a zone: each key
     outside of F has a light cell, shared or not.

Source: as in zones.py.
"""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput, LostState
from tidemark.sketches.geometric import messages
from tidemark.sketches.geometric.layout import Layout
from tidemark.sketches.geometric.queries import Frequent, HeavyPrefixes, Maximum, Quantile, Query
from tidemark.sketches.geometric.zones import HEAVY, LIGHT, Floats, Reference, limits, reference
from tidemark.sketches.sites.machine import Message

# How much of the room of a condition a balanced set of sites may have used up, and how much all sites
# together.
BALANCED = 0.5
ALL = 0.8
_GRAIN = 1024.0  # shifts are multiples of 1 / _GRAIN, so that their sums are exact


@dataclass(frozen=True, slots=True)
class Monitored:
    """What is known of a query: f of the merged vectors is from lo to hi, both inclusive.

    value: what is answered. For Quantile a key: the share of arrivals before it is at most hi, that up to it
    at least lo. If collisions may break this, -lo = hi is by how many arrivals more the key may err.
    """

    value: float
    lo: float
    hi: float


@dataclass(slots=True)
class _Negotiation:
    """The balancing of one condition: the values that sites told, and how many more are expected."""

    condition: int
    values: dict[int, float] = field(default_factory=dict)
    missing: int = 0


class Coordinator:
    """The state of the coordinator, a `Machine`; see the module docstring."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.reference: Reference = reference(layout, np.zeros((len(layout.windows), layout.cells)))
        self._states = [one.copy() for one in self.reference.cell_states]
        self._joined: set[int] = set()
        self._complaints: deque[tuple[int, int]] = deque()
        self._negotiation: _Negotiation | None = None
        self._collecting = self._lost = False
        self._collected: dict[int, Floats] = {}
        self._number = self._next = 0
        self.complete_from = -math.inf
        """From this time on the windows have all arrivals of all sites."""
        self.phases = {"balanced": 0, "first": 0, "second": 0}
        """How often: a part of the sites balanced, all sites balanced, all vectors collected."""

    def answer(self, query: Query, now: int) -> Monitored:
        """What is known of a query at the time `now`, for all but Frequent and HeavyPrefixes. O(1).

        Raises InvalidInput for a query that is not monitored, LostState while a window misses arrivals.
        """
        at = self._index(query, now)
        value, slack = self.reference.values[at], self.reference.slack[at]
        if not isinstance(query, Quantile):
            return Monitored(value, *limits(query, value))
        if slack:
            return Monitored(value, -slack, slack)
        return Monitored(value, query.phi - query.theta, query.phi + query.theta)

    def is_frequent(
        self, query: Query, keys: NDArray[np.uint64], now: int, level: int = 0
    ) -> NDArray[np.bool_]:
        """Whether each key, or dyadic range of a level, is in F: all of its cells are heavy. O(rows) a key.

        Raises as `answer`.
        """
        self._index(query, now)
        states = self._states[self._plan_of(query) + level]
        cells = self._layout.level_cells(level, keys)
        return np.asarray((states[cells] == HEAVY).all(axis=1))

    def heavy_prefixes(self, query: HeavyPrefixes, now: int) -> list[tuple[int, int]]:
        """(level, number) of the dyadic ranges in F with all wider ones in F, the widest first.

        O(rows) for each range below those found. Raises as `answer`.
        """
        found, nodes = [], np.arange(self._layout.hashes[-1].width)
        for level in range(len(self._layout.hashes) - 1, -1, -1):
            nodes = nodes[self.is_frequent(query, nodes.astype(np.uint64), now, level)]
            found += [(level, node) for node in nodes.tolist()]
            nodes = (nodes[:, None] * 2 + np.array([0, 1])).ravel()
        return found

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of a site; see `Machine`."""
        if kind == messages.VECTOR:
            number, now = messages.numbers_of(kind, payload)
            estimates = messages.estimates_of(kind, payload, self.reference.total.shape)
            return self._take_vector(sender, number, now, estimates)
        condition, value = messages.numbers_of(messages.VALUE, payload)
        found = self.reference
        cells = len(found.cell_plan) * self._layout.cells
        messages.check_condition(condition, len(found.bounds) + cells)
        if self._collecting:
            return []  # what they say of the old zones is of no use any more
        if kind == messages.VIOLATED:
            if self._negotiation is None:
                self._negotiation = _Negotiation(condition, {sender: value})
                return self._go_on()
            self._complaints.append((sender, condition))
            return []
        talk = self._negotiation
        if talk is None or talk.condition != condition or sender in talk.values:
            return []
        talk.values[sender] = value
        talk.missing -= 1
        return self._go_on() if talk.missing == 0 else []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """Once all sites are there, and whenever one was started again, all begin anew; see `Machine`."""
        self._joined.add(peer)
        self._lost |= again
        return self._collect() if len(self._joined) == self._layout.sites else []

    def _step(self) -> list[Message]:
        """Takes up the next complaint, if there is nothing else to do."""
        if self._negotiation is not None or self._collecting or not self._complaints:
            return []
        site, condition = self._complaints.popleft()
        self._negotiation = _Negotiation(condition, missing=1)
        return [messages.message(site, messages.ASK, condition)]

    def _go_on(self) -> list[Message]:
        """All values asked for are there: they are enough, or more are asked for, or all begins anew."""
        talk = self._negotiation
        if talk is None:
            return []
        scalars, cells = len(self.reference.bounds), self._layout.cells
        has_all = len(talk.values) == self._layout.sites
        mean = sum(talk.values.values()) / len(talk.values)
        plan, cell = divmod(talk.condition - scalars, cells) if talk.condition >= scalars else (-1, 0)
        state = LIGHT if plan < 0 else int(self._states[plan][cell])
        if plan < 0:
            bound, centre = self.reference.bounds[talk.condition], self.reference.centres[talk.condition]
            is_enough = mean <= centre + (ALL if has_all else BALANCED) * (bound - centre)
        else:
            light, heavy = self.reference.cell_goals[plan]
            is_enough = mean < light if state == LIGHT else mean >= heavy
            if has_all and not is_enough and not self.reference.cell_is_fixed[plan]:
                state = HEAVY if state == LIGHT else LIGHT
                self._states[plan][cell], is_enough = state, True
        if is_enough:
            return self._balance(talk, mean, state)
        if has_all:
            return self._collect()
        return self._ask_more(talk)

    def _balance(self, talk: _Negotiation, mean: float, state: int) -> list[Message]:
        """Gives each of the sites the mean; what rounding leaves stays with the last one."""
        self.phases["first" if len(talk.values) == self._layout.sites else "balanced"] += 1
        self._negotiation, sent, given = None, [], 0.0
        for i, (site, value) in enumerate(talk.values.items()):
            amount = math.floor((mean - value) * _GRAIN) / _GRAIN
            if i == len(talk.values) - 1:
                amount = -given
            given += amount
            sent.append(messages.message(site, messages.SHIFT, talk.condition, amount, state))
        return sent + self._step()

    def _ask_more(self, talk: _Negotiation) -> list[Message]:
        others: list[Message] = []
        n = self._layout.sites
        while len(others) < len(talk.values) and len(others) + len(talk.values) < n:
            if self._next not in talk.values:
                others.append(messages.message(self._next, messages.ASK, talk.condition))
            self._next = (self._next + 1) % n
        talk.missing = len(others)
        return others

    def _collect(self) -> list[Message]:
        """Phase 2: asks every site for its vector."""
        self._negotiation, self._collecting = None, True
        self._complaints.clear()
        self._collected.clear()
        self._number += 1
        sites = range(self._layout.sites)
        return [messages.message(site, messages.COLLECT, self._number) for site in sites]

    def _take_vector(self, site: int, number: int, now: int, values: Floats) -> list[Message]:
        if not self._collecting or number != self._number:
            return []
        self._collected[site] = values
        if self._lost:
            self.complete_from = max(self.complete_from, now + self._layout.windows[-1])
        if len(self._collected) < self._layout.sites:
            return []
        self.phases["second"] += 1
        self._collecting = self._lost = False
        total = np.sum(list(self._collected.values()), axis=0)
        self.reference = reference(self._layout, total)
        self._states = [one.copy() for one in self.reference.cell_states]
        sites = range(self._layout.sites)
        return [messages.message(site, messages.RESTART, estimates=total) for site in sites]

    def _index(self, query: Query, now: int) -> int:
        if query not in self._layout.queries:
            raise InvalidInput(f"got {query}; expected one of the queries that are monitored")
        if now < self.complete_from:
            raise LostState(
                f"got the time {now}; a site was started again, and its windows miss arrivals until "
                f"{self.complete_from}; ask again then"
            )
        return self._layout.queries.index(query)

    def _plan_of(self, query: Query) -> int:
        """The first plan of cells of a query."""
        before = self._layout.queries[: self._layout.queries.index(query)]
        levels, with_cells = len(self._layout.hashes), (Frequent, HeavyPrefixes, Maximum)
        return sum(
            1 if isinstance(one, Frequent) else levels for one in before if isinstance(one, with_cells)
        )
