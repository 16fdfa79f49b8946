"""The plans of SS and B: how often to sample, how exactly to count, and which counts to report.

Model. A pair of item d and slot t is sampled if its hash h(d, t) is below the rate tau. An item is tracked
from its first sampled slot on, and from then on its slots are counted. Of the slots of d in the window let M
be those before that slot: they are missed. G = M + 1 is a geometric number of parameter tau, cut off at p(d).
The count n' estimates n_d = p(d) - M, and each of n' < (1 - eps2) * n_d and n' > (1 + eps2) * n_d has
probability at most delta2 (slot_sample.py). A pair hashes alike at all sites, so M does not depend on where
the rows are observed.

The two forms, with eps1 = share * eps, and `late` the slots of the window before the first sampled slot:

               thesis, lemmas 2, 3, 5, 6                          one instance
    tau        2 / (eps1 * n)                                     ln(1 / delta1) / (eps1 * n)
    eps2       (eps - eps1) / (4 * alpha)                         (eps - eps1) / (2 * alpha)
    report if  n' + missed >= T                                   n' >= (1 - eps2) * (alpha - eps1) * n
    delta      e**-2 + delta2 not reported, delta2 reported       delta1 + delta2, delta2
    instances  r, each with its own hashes; any of them reports   1

    missed  =  min(1 / tau - 1, late)          the mean of M, and the most that it can be
    T       =  (1 - eps2) * (alpha * n + 1 - 1 / tau) - 1        or (1 - eps2) * alpha * n if missed = 0

tau is at most 1: then every item is tracked at once and nothing is missed.

Guarantee: that of promise.py. Proof for one instance. If p(d) >= alpha * n and M <= eps1 * n, then n_d >=
(alpha - eps1) * n, and d is reported unless the count is too low. M > eps1 * n has probability at most
(1 - tau)**(eps1 * n) <= delta1. If p(d) < (alpha - eps) * n, then d is reported only if the count is too
high:

    (1 - eps2) * (alpha - eps1)  -  (1 + eps2) * (alpha - eps)
        =  (eps - eps1) * (eps + eps1) / (2 * alpha)  >  0.

Proof for the thesis's form. Let d be persistent and its count not too low. If missed = late, then n' + late
>= (1 - eps2) * (p(d) - M) + late >= (1 - eps2) * p(d), since M <= late, and d is reported. Else d is not
reported only if G > 2 / tau, of probability (1 - tau)**floor(2 / tau) <= (1 - tau)**(2 / tau - 1) <= e**-2:
in the series of (2 / tau - 1) * ln(1 - tau) = -2 + ... no other coefficient is positive. What is reported has
n' >= T - (1 / tau - 1), which is the condition of lemma 3. With r instances, not to be reported has
probability (e**-2 + delta2)**r, and to be reported at most r * delta2. We take the least r with
(e**-2 + delta / r)**r <= delta, and delta2 = delta / r.

One instance samples about as often as r instances together, because ln(1 / delta1) is about 2 * r, but an
item that it tracks has one sample of slots, not up to r.

Errata of the thesis, beside those of sampled_items.py:
  1. Theorem 2 lets delta2 be min(1, 2 / ln(1 / delta)) * delta. With r instances the items reported by
     mistake are then r * delta2, twice delta at delta = e**-2.
  2. The estimate n' + 1 / tau takes G for M: it counts the first sampled slot twice, and an item of n slots
     gets n + 1. The printed T makes up for that: it has no - 1.
  3. Algorithm 6 compares 1 / tau with t_d itself, the number of the slot, which after the first window says
     nothing. At most t_d - (start of the window) slots are missed. The promise holds either way, because T
     expects 1 / tau; but the estimate is too large by up to 1 / tau, and above n.
  4. A rate above 1, where eps1 * n < 2, is not considered. As printed, alpha = 1, eps = 0.05 and n = 10 give
     T = 10.8, and an item of all 10 slots is never reported. Lemma 2 prints T without n.
  5. Lemma 2 takes (1 - tau)**x for the probability of G > x also where x is no integer. Our proof does not.

Source: Singh, thesis, Iowa State University, 2015, sections 3.5 and 3.6; the form of one instance is ours.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.persistence.pair_hashes import Floats
from tidemark.sketches.persistence.promise import Promise
from tidemark.sketches.persistence.slot_sample import Ints, sample_size

# Of eps, for eps1: the tracked items times the slots of a sample grow as 1 / (share * (1 - share)**2).
BEST_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How SS or B keeps a promise; see the module docstring.

    promise: what is asked.
    form: "thesis", or "one instance".
    instances: r, the independent instances, at least 1.
    rate: tau, the probability that a pair is sampled, 0 < rate <= 1.
    eps1: the share of the n slots that may be missed.
    eps2, delta2: the relative error of a count, and how often each side of it is larger.
    sample_size: the slots of a sample; n + 1 if it keeps all of them.
    """

    promise: Promise
    form: Literal["thesis", "one instance"]
    instances: int
    rate: float
    eps1: float
    eps2: float
    delta2: float
    sample_size: int

    def with_exact_sets(self) -> "Plan":
        """The plan of B with the same items and limits: it keeps all slots of an item that it tracks."""
        return replace(self, sample_size=self.promise.slots + 1)

    def missed(self, late: Ints) -> Floats:
        """The slots that an item is expected to have had before it was tracked.

        late: how many slots the first sampled slot is after the start of the window, 0 if it is before it.
        """
        return np.minimum(1 / self.rate - 1, late)

    def needed(self, late: Ints) -> Floats:
        """The least n' with which an item is reported, for each `late` as in `missed`."""
        alpha, slots = self.promise.alpha, self.promise.slots
        if self.form == "one instance":
            return np.full(len(late), (1 - self.eps2) * (alpha - self.eps1) * slots)
        missed = self.missed(late)
        least = (1 - self.eps2) * (alpha * slots + 1 - 1 / self.rate) - 1
        return np.where(missed > 0, least - missed, (1 - self.eps2) * alpha * slots)


def thesis_plan(promise: Promise, *, share: float = BEST_SHARE) -> Plan:
    """The plan of SS in the thesis, corrected.

    share: of eps for the slots that are missed, 0 < share < 1. Raises InvalidInput for another share.
    """
    eps1 = _checked_share(share) * promise.eps
    eps2 = (promise.eps - eps1) / (4 * promise.alpha)
    instances = _instances(promise.delta)
    return _plan(promise, "thesis", instances, 2.0, eps1, eps2, promise.delta / instances)


def one_instance_plan(promise: Promise, *, share: float = BEST_SHARE) -> Plan:
    """The plan of SS with one instance; half of delta goes to the sampling, half to the counts.

    share: of eps for the slots that are missed, 0 < share < 1. Raises InvalidInput for another share.
    """
    eps1, delta1 = _checked_share(share) * promise.eps, promise.delta / 2
    eps2 = (promise.eps - eps1) / (2 * promise.alpha)
    return _plan(promise, "one instance", 1, math.log(1 / delta1), eps1, eps2, delta1)


def fewest_items_plan(promise: Promise) -> Plan:
    """The plan of B that tracks the fewest items: all of eps and delta go to the sampling."""
    plan = _plan(promise, "one instance", 1, math.log(1 / promise.delta), promise.eps, 0.0, 0.0)
    return plan.with_exact_sets()


def _plan(
    promise: Promise,
    form: Literal["thesis", "one instance"],
    instances: int,
    exponent: float,
    eps1: float,
    eps2: float,
    delta2: float,
) -> Plan:
    """A plan that misses more than eps1 * n slots with probability e**-exponent."""
    size = promise.slots + 1
    if eps2:
        size = min(size, sample_size(eps2, delta2))
    rate = min(1.0, exponent / (eps1 * promise.slots))
    return Plan(promise, form, instances, rate, eps1, eps2, delta2, size)


def _instances(delta: float) -> int:
    """The least r with (e**-2 + delta / r)**r <= delta."""
    instances = 1
    while (math.exp(-2) + delta / instances) ** instances > delta:
        instances += 1
    return instances


def _checked_share(share: float) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise InvalidInput(f"got share = {share!r}; expected 0 < share < 1, such as 1/3")
    return float(share)
