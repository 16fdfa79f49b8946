"""Geometric monitoring of queries over sites in one process: machines, messages, and compiled loops.

For simulations and figures. Arrivals run through machine code until a site leaves a safe zone; then messages
travel until all is quiet. See queries.py for what is promised, zones.py for the proof, coordinator.py for the
protocol.

Cost: an arrival takes some tenths of a microsecond for each row and window, 10 million take seconds to
minutes; a message between two places takes about 50 microseconds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.geometric.coordinator import Coordinator, Monitored
from tidemark.sketches.geometric.layout import MOST_ARRIVALS, Layout, layout_of
from tidemark.sketches.geometric.queries import HeavyPrefixes, Query
from tidemark.sketches.geometric.site import Arrays, Site
from tidemark.sketches.inputs import INT64, as_column, as_contiguous
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Machine, Message
from tidemark.sketches.sites.network import Network

Ints = NDArray[np.int64]


class Monitoring:
    """Queries over the arrivals of several sites, certain after every arrival and tick.

    >>> from tidemark.sketches.geometric.queries import Frequent, SelfJoin
    >>> often = Frequent(threshold=100, theta=0.2, window=1000)
    >>> monitoring = Monitoring([often, SelfJoin(theta=0.2, window=1000)], sites=4, eps=0.1, delta=0.1)
    >>> keys = np.array([7, 8, 9, 7] * 100, np.uint64)
    >>> monitoring.update(keys, sites=np.arange(400) % 4, times=np.arange(400))
    >>> monitoring.is_frequent(often, np.array([7, 8], np.uint64)).tolist()
    [True, False]

    queries: see queries.py. sites: n, from 1 to 2**16.
    eps, delta: of the sketches, see `ECM`; of their inner products if a query is about such.
    bits: keys are integers below 2**bits (ranges of keys need this); None: digests.
    seed: of the row hashes. channel: carries the messages; None means one that does no harm.

    Raises InvalidInput for values out of range, and if the arrays would take more than 4 GiB.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        sites: int,
        *,
        eps: float,
        delta: float,
        bits: int | None = None,
        seed: int = 0,
        channel: Channel | None = None,
    ) -> None:
        self.layout: Layout = layout_of(queries, sites, eps=eps, delta=delta, bits=bits, seed=seed)
        self.channel = Channel() if channel is None else channel
        self._arrays = Arrays(self.layout, sites)
        self._sites = [Site(self._arrays, index) for index in range(sites)]
        self._coordinator = Coordinator(self.layout)
        machines: dict[int, Machine] = {COORDINATOR: self._coordinator, **dict(enumerate(self._sites))}
        self._network = Network("monitoring", machines, channel=self.channel)
        self._arrived = 0

    @property
    def now(self) -> int:
        """The last time."""
        return int(self._arrays.counters.now[0])

    @property
    def phases(self) -> dict[str, int]:
        """How often some sites were balanced, all were (`first`), and all vectors collected (`second`)."""
        return dict(self._coordinator.phases)

    @property
    def merged(self) -> NDArray[np.float64]:
        """The sum over all sites of their vectors now, shape (windows, cells): what queries are about."""
        total: NDArray[np.float64] = self._arrays.vectors.values.sum(axis=0)
        return total

    def update(
        self, keys: NDArray[np.uint64], sites: ArrayLike, times: ArrayLike, streams: ArrayLike | None = None
    ) -> None:
        """Adds arrivals in order of time, each as if it came alone.

        keys: shape (k,), uint64, digests or integers below 2**bits. sites: shape (k,).
        times: shape (k,), never decreasing. streams: shape (k,), 0 or 1, for inner products; None means 0.

        Raises InvalidInput for other input, which changes nothing; Undelivered where the channel lets too
        little through: then the monitoring has to be made anew.
        """
        from tidemark.sketches.compiled.monitoring import run

        arrays, n = self._arrays, self.layout.sites
        at, when = as_contiguous(as_column(sites, INT64)), as_contiguous(as_column(times, INT64))
        which = None if streams is None else as_column(streams, INT64)
        self._check(keys, at, when, which)
        if not len(keys):
            return
        cells = self.layout.cells_of(keys, which)
        self._arrived += len(keys)
        start = ticked = 0
        while start < len(when):
            start, ticked, outside = run(
                arrays.counters, arrays.vectors, arrays.zones, n, when, at, cells, arrays.spare, start, ticked
            )
            if outside >= 0:
                self._deliver(outside, self._sites[outside].complaints())

    def tick(self, now: int) -> None:
        """The time is `now` at all sites: what has left the windows expires. Raises as `update`."""
        for number, site in enumerate(self._sites):
            self._deliver(number, site.tick(now))
        self._arrays.counters.now[0] = now

    def answer(self, query: Query) -> Monitored:
        """What is known of a query now; see `Coordinator.answer`."""
        return self._coordinator.answer(query, self.now)

    def is_frequent(self, query: Query, keys: NDArray[np.uint64], level: int = 0) -> NDArray[np.bool_]:
        """Whether keys, or dyadic ranges of a level, are in F now; see `Coordinator.is_frequent`."""
        return self._coordinator.is_frequent(query, keys, self.now, level)

    def heavy_prefixes(self, query: HeavyPrefixes) -> list[tuple[int, int]]:
        """(level, number) of the dyadic ranges in F now; see `Coordinator.heavy_prefixes`."""
        return self._coordinator.heavy_prefixes(query, self.now)

    def restart(self, place: int) -> None:
        """A site, or COORDINATOR, ends and is started again, and knows nothing of what was before."""
        if place == COORDINATOR:
            self._coordinator = Coordinator(self.layout)
            self._network.restart(place, self._coordinator)
        else:
            self._arrays.forget(place)
            self._sites[place] = Site(self._arrays, place)
            self._network.restart(place, self._sites[place])
        self._network.settle()

    def _deliver(self, sender: int, outgoing: list[Message]) -> None:
        if outgoing:
            self._network.send(sender, outgoing)
            self._network.settle()

    def _check(self, keys: NDArray[np.uint64], sites: Ints, times: Ints, streams: Ints | None) -> None:
        is_right = isinstance(keys, np.ndarray) and keys.dtype == np.uint64 and keys.ndim == 1
        is_right = is_right and sites.shape == times.shape == keys.shape
        is_right = is_right and (streams is None or streams.shape == keys.shape)
        if is_right and len(keys):
            is_right = (
                0 <= sites.min() <= sites.max() < self.layout.sites
                and bool((np.diff(times, prepend=self.now) >= 0).all())
                and -(2**60) < times[0] <= times[-1] < 2**60
                and (streams is None or 0 <= streams.min() <= streams.max() < self.layout.streams)
                and (self.layout.bits is None or int(keys.max()) < 2**self.layout.bits)
                and self._arrived + len(keys) < MOST_ARRIVALS
            )
        if not is_right:
            raise InvalidInput(
                f"got {np.shape(keys)} keys, {sites.shape} sites, {times.shape} times; expected one of each "
                "for an arrival: uint64 keys, below 2**bits where there are levels, sites below "
                f"{self.layout.sites}, times that never decrease, from {self.now} on, and streams below "
                f"{self.layout.streams}"
            )
