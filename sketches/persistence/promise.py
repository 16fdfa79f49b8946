"""The promise about persistent items: the question, its window, and how often an answer may be wrong.

Model. k sites observe rows (d, t): item d in slot t. Slots are integers from 0, and no site is ahead of
another: no row comes after a row of a later slot. The persistence p(d) is the number of different slots of
the window in which d occurred at any site; several rows of d in one slot count once, also at several sites.
The window has n slots. A fixed one is the slots 0 to n - 1; a sliding one ends now:

    fixed      0 <= t <= n - 1
    sliding    max(0, now - n + 1) <= t <= now

Promise. For every item d and every time of asking, with alpha, eps and delta as in `Promise`,

    p(d) >= alpha * n             =>   d is reported with probability at least 1 - delta
    p(d) < (alpha - eps) * n      =>   d is reported with probability at most delta

Nothing is promised about items between the two.

Source: Singh, thesis, Iowa State University, 2015, section 3.1. We deviate: alpha * n is at least 1, which
the proof of lemma 3 uses and the thesis does not state.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.inputs import checked_digests
from tidemark.sketches.sites.channel import Channel

SLOT_LIMIT = 2**62  # slots are below this, so that sums of two fit int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What is asked about persistent items; see the module docstring.

    sites: k, the number of sites, at least 1.
    slots: n, the slots of the window, at least 1.
    alpha: an item is persistent from alpha * n slots on, 1 / n <= alpha <= 1.
    eps: how far below alpha nothing is promised, 0 < eps < alpha.
    delta: the probability of a wrong answer about one item, 0 < delta < 1.
    sliding: whether the window slides; otherwise it is the first n slots.
    seed: of the hashes, an integer below 2**64; all sites share it.

    Raises InvalidInput for values outside these ranges.
    """

    sites: int
    slots: int
    alpha: float
    eps: float
    delta: float
    sliding: bool
    seed: int = 0

    def __post_init__(self) -> None:
        for name, most in (("sites", 2**16), ("slots", 2**40)):
            count = getattr(self, name)
            if not is_integer(count) or not 1 <= count <= most:
                raise InvalidInput(f"got {name} = {count!r}; expected an integer from 1 to {most}")
        if not _is_number(self.alpha) or not 1 <= self.alpha * self.slots <= self.slots:
            raise InvalidInput(
                f"got alpha = {self.alpha!r} of {self.slots} slots; expected 1 / slots <= alpha <= 1"
            )
        if not _is_number(self.eps) or not 0 < self.eps < self.alpha:
            raise InvalidInput(f"got eps = {self.eps!r}; expected 0 < eps < alpha = {self.alpha}")
        if not _is_number(self.delta) or not 0 < self.delta < 1:
            raise InvalidInput(f"got delta = {self.delta!r}; expected 0 < delta < 1, such as 0.01")
        if not isinstance(self.sliding, bool):
            raise InvalidInput(f"got sliding = {self.sliding!r}; expected True or False")
        if not is_integer(self.seed) or not 0 <= self.seed < 2**64:
            raise InvalidInput(f"got seed = {self.seed!r}; expected an integer from 0 to 2**64 - 1")

    def window_start(self, now: int) -> int:
        """The first slot of the window that ends with the slot `now`."""
        return max(0, now - self.slots + 1) if self.sliding else 0


@dataclass(frozen=True, slots=True, eq=False)
class PersistentItems:
    """The items that are reported as persistent, by ascending digest.

    digests: uint64, shape (r,).
    persistence: float64, shape (r,), the estimate of p(d); exact from algorithm A.
    """

    digests: Digests
    persistence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.digests)


class PersistenceTracker(Protocol):
    """What the algorithms A, B and SS have in common."""

    _channel: Channel

    def update(self, site: int, digests: Digests, slot: int) -> None:
        """Adds the rows (d, slot) for every d of `digests`, observed at `site`.

        site: from 0 to sites - 1. digests: uint64, shape (rows,), in any order, repeats allowed.
        slot: at least every slot before it; in a fixed window below n.

        Raises InvalidInput for arguments outside these ranges. A call that raises changes nothing.
        """

    def persistent(self, now: int | None = None) -> PersistentItems:
        """The items that are persistent in the window that ends with the slot `now`.

        now: the last slot, which is the default, or a later one; afterwards no row may be of an earlier slot.

        Raises InvalidInput for another `now`.
        """

    @property
    def nbytes(self) -> int:
        """The bytes of the state of all sites and of the coordinator, as messages.py counts them."""

    @property
    def bytes_sent(self) -> int:
        """The bytes of all messages so far, those of questions included, without their envelopes."""
        return self._channel.sent.payload

    @property
    def messages_sent(self) -> int:
        """The number of all messages so far. A question takes two for every site and instance."""
        return self._channel.sent.messages

    def check_invariants(self) -> None:
        """Raises BrokenInvariant unless the state is one that updates lead to."""


def checked_slot(promise: Promise, slot: int, last: int, name: str) -> int:
    """`slot`; InvalidInput unless it is in the range of the window and not before the slot `last`.

    name: what the message calls it.
    """
    most = SLOT_LIMIT if promise.sliding else promise.slots
    if not is_integer(slot) or not last <= slot < most:
        raise InvalidInput(f"got {name} = {slot!r}; expected an integer from {last} to {most - 1}")
    return int(slot)


def checked_rows(promise: Promise, site: int, digests: Digests) -> tuple[int, Digests]:
    """(site, digests) of an update; InvalidInput unless they are in range."""
    if not is_integer(site) or not 0 <= site < promise.sites:
        raise InvalidInput(f"got site = {site!r}; expected an integer from 0 to {promise.sites - 1}")
    return int(site), checked_digests(digests)


def is_integer(value: object) -> bool:
    """Whether `value` is an integer of Python or numpy, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool)
