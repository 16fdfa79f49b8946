"""Hashes of pairs (item, slot): uniform numbers in (0, 1) that are equal at all sites.

    hash(d, t)  =  splitmix(splitmix(d + salt) + t * GOLDEN)

which for one item is the sequence of a SplitMix64 generator whose state is a hash of the item, so items that
differ have independent sequences. Digests of integers are the integers themselves, unmixed; the inner
splitmix separates neighbours. The salt is a hash of the seed, of the instance and of the purpose. SS needs
two independent hashes of a pair: h decides from which slot on an item is tracked, g which of its slots are
kept. With one hash for both, the slot that began the tracking would always be among the smallest, and the
number of slots would be overestimated.

Deviation: the thesis defines h for slots up to n only. In a sliding window slots go on, and a slot taken
modulo n would have one hash for ever: of an item with period n, either every slot were sampled or none.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import GOLDEN, Digests, splitmix, splitmix_int

Floats = NDArray[np.float64]
Purpose = Literal["tracking", "counting"]

_PURPOSES = {"tracking": 1, "counting": 2}


def hash_salt(seed: int, instance: int, purpose: Purpose) -> int:
    """The salt of one of the independent hashes: below 2**64. O(1)."""
    return splitmix_int(splitmix_int(splitmix_int(seed) + instance) + _PURPOSES[purpose])


def pair_hashes(digests: Digests, slots: NDArray[np.int64], salt: int) -> Floats:
    """The hash of each pair of digest and slot, in (0, 1): float64. O(pairs).

    digests, slots: arrays that broadcast against each other.
    """
    states = splitmix(digests + np.uint64(salt)) + slots.astype(np.uint64) * np.uint64(GOLDEN)
    # 52 bits and a half: a double holds every such number exactly, so none is rounded to 1.
    return ((splitmix(states) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
