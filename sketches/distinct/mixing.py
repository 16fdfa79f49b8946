"""Mixing: digests become hashes that behave like independent uniform 64-bit numbers.

Integers are their own digests, so digests may be 0, 1, 2 ... A sketch of distinct keys reads the leading bits
of a hash as a place and the trailing bits as a random level, which such digests would not spread at all.

    mix(x) = splitmix(x * GOLDEN + salt)        modulo 2**64, with a salt for each seed

is a bijection: GOLDEN is odd, and splitmix is a bijection. Different digests never share a hash. The hashes
of the digests 0, 1, 2 ... are the outputs of the SplitMix64 generator started at the salt. O(1) a digest.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. The thesis found
MurmurHash3 the best of five hashes; splitmix is a variant of its last step.
"""

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.hashing.row_hashes import GOLDEN, Digests, splitmix, splitmix_int

Hashes = NDArray[np.uint64]


def salt_of(seed: int) -> int:
    """The salt of a seed: two seeds give hashes that behave like independent ones."""
    return splitmix_int(seed + GOLDEN)


def mix(digests: Digests, salt: int) -> Hashes:
    """The hash of each digest; see the module docstring."""
    return splitmix(digests * np.uint64(GOLDEN) + np.uint64(salt))


def cell_of(hashes: Hashes, cells: int) -> NDArray[np.int64]:
    """A uniform cell from 0 to cells - 1 for each hash, from its leading 32 bits; cells <= 2**31."""
    return (hashes >> np.uint64(32)).astype(np.int64) * cells >> 32


def level_of(hashes: Hashes) -> NDArray[np.int64]:
    """The number of trailing zero bits of each hash, 64 for hash 0: l or more with probability 2**-l."""
    return np.bitwise_count(~hashes & (hashes - np.uint64(1))).astype(np.int64)
