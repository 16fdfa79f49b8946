"""SS and B, the algorithms that sample items: k sites and a coordinator, and the messages between them.

Model. Every instance of the plan has its own hashes, k sites and a coordinator. Its messages are delivered
before anything else happens, however often they must be repeated. When a slot begins that no row or question
has reached yet, each site first renews the items that would leave the window, then all sites forget the items
that nobody has renewed. An item is persistent if one instance reports it; its estimate is the mean over the
instances that do.

    B    plan.with_exact_sets()        sites keep every slot of a tracked item: counts are exact
    SS   plan                          sites keep samples of slots, see slot_sample.py

Guarantee: that of promise.py, see plans.py. With the same plan B tracks the same items as SS. Where the
sample size of the plan is n + 1, SS is B. For the same rows the reported items and estimates do not depend
on the site at which a row was observed, nor on the order of the rows of one slot.

When SS pays: of a tracked item with c slots, B keeps min(8 * c, n / 8) bytes at a site, and SS min(8 * s, n /
8), with s about 2 * ln(1 / delta2) / eps2**2. So SS needs c > s and n > 64 * s to be the smaller one. With
alpha = 0.3, eps = 0.05 and delta = 0.1 that is n > 510,000 for the thesis's plan, n > 130,000 for ours. For
slots of hours or days, B is smaller and exact.

If a place is started again without its state, the others tell it the items, and questions raise LostState
until the window has moved beyond the slot of that start.

Cost: at most tau times the sum of all p(d) of the window items are tracked, in expectation. Each takes 24
bytes and its slots at every site. A message goes to all when an item begins to be tracked, and in a sliding
window when the slot that was told last leaves it; a question sends the slots of all items from all sites.

Errata of the thesis, beside those of plans.py:
  1. Algorithm 5, line 2, asks whether (d, t) is in S_i; S_i has items, so it must be d, as in algorithm 2.
  2. Nothing is ever untracked in a sliding window. Every item that goes on occurring is sampled at some
     time, so in the end all are tracked, and theorem 7 does not hold. Here an item is forgotten when no
     pair of it in the window is sampled; site.py shows that sites agree about that. The missed slots stay
     geometric, because none between the start of the window and t_d was sampled.
  3. Theorems 3, 4, 7 and 8 leave out the number of instances, by which state and messages are multiplied. The
     factor 2 in their 2 * tau * p(d) is not needed: tau * p(d) bounds the probability that d is tracked.
  4. Algorithm 6 holds t_d for a slot of the window until t = t_d + n, when the window begins with t_d + 1.

Source: Singh, thesis, Iowa State University, 2015, sections 3.5 to 3.7.
"""

import numpy as np

from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.persistence.coordinator import Coordinator
from tidemark.sketches.persistence.pair_hashes import hash_salt
from tidemark.sketches.persistence.plans import Plan
from tidemark.sketches.persistence.promise import (
    PersistenceTracker,
    PersistentItems,
    checked_rows,
    checked_slot,
)
from tidemark.sketches.persistence.site import Site
from tidemark.sketches.persistence.slot_sample import Sampling
from tidemark.sketches.sites.channel import Channel
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message
from tidemark.sketches.sites.network import Network


class SampledItems(PersistenceTracker):
    """SS, or B where the plan has exact sets.

    >>> from tidemark.sketches.persistence.plans import one_instance_plan
    >>> from tidemark.sketches.persistence.promise import Promise
    >>> promise = Promise(sites=2, slots=100, alpha=0.8, eps=0.2, delta=0.01, sliding=True)
    >>> tracker = SampledItems(one_instance_plan(promise))
    >>> for slot in range(300):
    ...     tracker.update(slot % 2, np.array([7, slot], np.uint64), slot)
    >>> tracker.persistent().digests
    array([7], dtype=uint64)

    plan: see plans.py; it has the promise.
    channel: carries the messages of all instances; None means one that does no harm.
    """

    def __init__(self, plan: Plan, channel: Channel | None = None) -> None:
        promise = plan.promise
        self.plan = plan
        self._start, self._now = 0, 0  # of the window, both inclusive
        self._channel = Channel() if channel is None else channel
        self._samplings = [
            Sampling(plan.sample_size, promise.sliding, hash_salt(promise.seed, instance, "counting"))
            for instance in range(plan.instances)
        ]
        self._sites = [
            [self._site(instance) for _ in range(promise.sites)] for instance in range(plan.instances)
        ]
        self._coordinators = [Coordinator(plan, sampling) for sampling in self._samplings]
        self._networks = [
            Network(
                f"persistence {instance}",
                {COORDINATOR: coordinator, **dict(enumerate(sites))},
                channel=self._channel,
            )
            for instance, (sites, coordinator) in enumerate(zip(self._sites, self._coordinators, strict=True))
        ]

    @property
    def tracked(self) -> int:
        """The number of items that are tracked, summed over the instances."""
        return sum(len(coordinator) for coordinator in self._coordinators)

    @property
    def nbytes(self) -> int:
        """The bytes of the state of all sites and coordinators; see messages.py."""
        at_sites = sum(site.nbytes(self._start) for sites in self._sites for site in sites)
        return at_sites + sum(coordinator.nbytes for coordinator in self._coordinators)

    def update(self, site: int, digests: Digests, slot: int) -> None:
        """Adds the rows (d, slot) for every d of `digests`, observed at `site`; see PersistenceTracker.

        O(instances) a row, apart from the samples of slots. Raises InvalidInput for arguments out of range,
        and Undelivered where the channel lets too little through: then it has to be made anew.
        """
        site, digests = checked_rows(self.plan.promise, site, digests)
        self._advance(checked_slot(self.plan.promise, slot, self._now, "slot"))
        for instance, sites in enumerate(self._sites):
            self._deliver(instance, site, sites[site].observe(digests, self._now))

    def persistent(self, now: int | None = None) -> PersistentItems:
        """The items that are persistent in the window that ends with the slot `now`; see PersistenceTracker.

        O(s log s), for s slots that are kept. Raises InvalidInput for a `now` out of range, LostState for a
        window in which a place was started again, Undelivered as `update`.
        """
        promise = self.plan.promise
        self._advance(self._now if now is None else checked_slot(promise, now, self._now, "now"))
        reports = []
        for instance, coordinator in enumerate(self._coordinators):
            self._deliver(instance, COORDINATOR, coordinator.answers.ask())
            reports.append(coordinator.report())
        return _any_of(reports)

    def restart(self, place: int) -> None:
        """A site, or COORDINATOR, ends and is started again, and knows nothing of what was before."""
        for instance, network in enumerate(self._networks):
            if place == COORDINATOR:
                coordinator = Coordinator(self.plan, self._samplings[instance], self._now)
                self._coordinators[instance] = coordinator
                network.restart(place, coordinator)
            else:
                self._sites[instance][place] = self._site(instance)
                network.restart(place, self._sites[instance][place])
            network.settle()

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless all sites and the coordinator of an instance track the same items."""
        for sites, coordinator in zip(self._sites, self._coordinators, strict=True):
            for number, site in enumerate(sites):
                site.check_invariants(self._start, self._now)
                if site.told() != coordinator.told():
                    raise BrokenInvariant(
                        f"got other items at site {number} than at the coordinator; expected the same, with "
                        "the same newest slots"
                    )

    def _advance(self, now: int) -> None:
        """Moves the window to end with `now`."""
        before, self._start = self._start, self.plan.promise.window_start(now)
        self._now = now
        for instance, (sites, coordinator) in enumerate(zip(self._sites, self._coordinators, strict=True)):
            coordinator.answers.move(now)
            if self._start == before:
                continue
            for number, site in enumerate(sites):
                self._deliver(instance, number, site.renew(self._start))
            for site in sites:
                site.forget(self._start)
            coordinator.forget(self._start)

    def _deliver(self, instance: int, sender: int, messages: list[Message]) -> None:
        """Delivers what one place sends, and what follows from it."""
        if messages:
            self._networks[instance].send(sender, messages)
            self._networks[instance].settle()

    def _site(self, instance: int) -> Site:
        plan, salt = self.plan, hash_salt(self.plan.promise.seed, instance, "tracking")
        return Site(plan.rate, salt, self._samplings[instance], plan.promise.slots, self._start)


def _any_of(reports: list[PersistentItems]) -> PersistentItems:
    """The items of any report, each with the mean of its estimates."""
    digests, inverse = np.unique(np.concatenate([one.digests for one in reports]), return_inverse=True)
    estimates = np.concatenate([one.persistence for one in reports])
    sums = np.bincount(inverse, weights=estimates, minlength=len(digests))
    return PersistentItems(digests, sums / np.bincount(inverse, minlength=len(digests)))
