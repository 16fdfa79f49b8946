"""Ranges, heavy hitters and quantiles of integer keys: an ECM-sketch for each size of dyadic range.

Model. Keys are integers from 0 to 2**bits - 1. Level l counts key >> l: how many arrivals fell into each
dyadic range of 2**l keys. Levels go up to the first whose ranges are no more than a row has columns; there
every range has a cell of its own and collides with none, so levels above it would tell nothing new.

    ranges          a range of keys is at most two dyadic ranges a level, and a stretch of the top level
    heavy hitters   from the top level down, only ranges whose upper bound reaches the threshold are opened
    quantiles       from the top level down, into the half that holds the rank

Guarantee, with counters that are certain: every bound here is, collisions included. Count-Min never counts
too little, so the hi of the dyadic ranges outside is taken from n for the lo inside; no probability is
needed. No key with f(x) >= phi * n is missed, because all ranges that hold it have at least as many
arrivals. The estimate of a range of keys is within 2 * levels * eps * n, that of a rank within levels * eps
* n, with the probability of that many point queries; eps and delta are those of a level.

Cost: an update is one of every level. Heavy hitters open at most 2 / (phi - eps) ranges a level, as likely
as points keep eps.

Source: Cormode and Muthukrishnan, J. Algorithms 2005, section 4, which Papapetrou et al. (section 6) build
on.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.count_bounds import Counts, Estimate
from tidemark.sketches.bounds.target_rank import Phi, target_rank
from tidemark.sketches.counters.counting import CounterKind, Counting
from tidemark.sketches.ecm.ecm import ECM
from tidemark.sketches.ecm.ecm_merge import merge_ecm
from tidemark.sketches.ecm.ecm_sizes import sizes_for_points
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds
from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, corrupt, unwrap, wrap
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS, Digests, RowHashes
from tidemark.sketches.inputs import INT64, as_column
from tidemark.sketches.memory_limit import require_memory

DYADIC_KIND = b"DYAD"
DYADIC_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class HeavyHitters:
    """Keys, most frequent first, with their counts; `certain` where lo alone reaches the threshold."""

    keys: NDArray[np.int64]
    counts: Counts
    certain: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class KeyQuantile:
    """A key near the rank asked for: its ranks lie within rank_lo and rank_hi, at most `error` from that."""

    key: int
    rank_lo: int
    rank_hi: int
    error: int


class DyadicECM:
    """Frequencies of integer keys that are asked by range, by rank, and for what is most frequent."""

    __slots__ = ("bits", "levels")

    def __init__(
        self,
        bits: int,
        eps: float,
        delta: float,
        *,
        window: int | None = None,
        kind: CounterKind = "EH",
        seed: int = 0,
    ) -> None:
        """An empty sketch of keys below 2**bits, bits from 1 to 62; the rest as for ECM, for each level.

        InvalidInput also where the counters of all levels together would take more than 4 GiB.
        """
        if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 62 or kind == "RW":
            raise InvalidInput(f"got bits = {bits!r}, kind {kind!r}; expected 1 to 62 bits and EH or DW")
        sizes = sizes_for_points(eps, delta)
        counting = Counting(kind, sizes.eps_sw, window)
        top = max(0, bits - (sizes.width.bit_length() - 1))
        hashes = [RowHashes(sizes.rows, sizes.width, (seed + level) % 2**64) for level in range(top)]
        hashes.append(RowHashes(1, 2 ** (bits - top), 0, direct=True))
        room = sum(counting.room(h.cells) for h in hashes)
        require_memory(room, f"{bits} bits at eps = {eps}, delta = {delta}, {len(hashes)} levels of {kind}")
        self.bits = bits
        self.levels = tuple(ECM.of(h, counting, eps=eps, delta=delta) for h in hashes)

    @classmethod
    def from_bytes(cls, data: bytes) -> "DyadicECM":
        """The sketch that `to_bytes` stored; CorruptSketch, WrongKind or NewerVersion if there is none."""
        _, payload = unwrap(DYADIC_KIND, data, newest=DYADIC_VERSION)
        parts: list[ECM] = []
        at = 1
        while at + 8 <= len(payload) and len(parts) < 64:
            (length,) = struct.unpack_from("<Q", payload, at)
            if length > len(payload) - at - 8:
                raise corrupt(PAYLOAD_OFFSET + at, "a level is longer than the bytes left, expected it whole")
            parts.append(ECM.from_bytes(payload[at + 8 : at + 8 + length]))
            at += 8 + length
        bits = payload[0] if payload else 0
        if at != len(payload) or not parts or not 1 <= bits <= 62:
            raise corrupt(
                PAYLOAD_OFFSET + at, f"got {bits} bits and {len(parts)} levels, expected those of keys"
            )
        try:
            return cls.of(bits, parts)
        except InvalidInput as unlike:
            raise corrupt(PAYLOAD_OFFSET, f"no sketch has this content: {unlike}") from unlike

    @classmethod
    def of(cls, bits: int, levels: Sequence[ECM]) -> "DyadicECM":
        """The sketch that has these levels; InvalidInput unless they belong together."""
        *lower, top = levels
        own = top.counts
        alike = {(s.counts.counting, s.n, s.counts.first, s.counts.now, s.counts.skew) for s in levels}
        flat = top.hashes.direct and top.hashes.width == 2 ** (bits - len(lower))
        if len(alike) > 1 or not flat or any(s.hashes.direct for s in lower) or own.counting.kind == "RW":
            raise InvalidInput("got levels that differ in n, times or counters; expected those of one sketch")
        if sum(s.hashes.cells for s in levels) > MOST_CELLS:
            raise InvalidInput(f"got levels of more than {MOST_CELLS:,} cells together; expected no more")
        sketch = cls(1, top.eps, top.delta)
        sketch.bits, sketch.levels = bits, tuple(levels)
        return sketch

    def to_bytes(self) -> bytes:
        """The stored form: kind b"DYAD", one byte of bits, then for each level its length and its bytes."""
        parts = [level.to_bytes() for level in self.levels]
        lengthened = [struct.pack("<Q", len(part)) + part for part in parts]
        return wrap(DYADIC_KIND, DYADIC_VERSION, bytes([self.bits]) + b"".join(lengthened))

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones too."""
        return self.levels[0].n

    def update(self, keys: ArrayLike, times: ArrayLike, counts: ArrayLike | None = None) -> None:
        """Adds arrivals in order of time; see ECM.update. keys: integers from 0 to 2**bits - 1."""
        given = self._checked(keys)
        for level, sketch in enumerate(self.levels):
            sketch.update(given >> np.uint64(level), times, counts)

    def points(self, keys: ArrayLike, since: int | None = None, until: int | None = None) -> Counts:
        """How often each key arrived in the window, with bounds."""
        return self.levels[0].points(self._checked(keys), since, until)

    def total(self, since: int | None = None, until: int | None = None) -> Estimate:
        """How many arrivals the window holds, with bounds."""
        return self.levels[-1].total(since, until)

    def count_range(
        self, low: int, high: int, since: int | None = None, until: int | None = None
    ) -> Estimate:
        """How many arrivals have a key from `low` to `high`, both inclusive, with bounds that are certain."""
        if not 0 <= low <= high < 2**self.bits:
            raise InvalidInput(f"got keys from {low} to {high}; expected 0 <= low <= high < 2**{self.bits}")
        estimate, hi = self._over(low, high + 1, since, until)
        _, below = self._over(0, low, since, until)
        _, above = self._over(high + 1, 2**self.bits, since, until)
        n = self.total(since, until)
        hi = min(hi, n.hi)
        lo = min(max(0, n.lo - below - above), hi)
        return Estimate(min(max(estimate, lo), hi), lo, hi)

    def heavy_hitters(self, phi: float, since: int | None = None, until: int | None = None) -> HeavyHitters:
        """Every key with at least phi * n arrivals in the window, and some that may have.

        InvalidInput unless eps < phi <= 1, with the eps that the sketch keeps after its merges.
        """
        least = max(level.point_eps for level in self.levels) if len(self.levels) > 1 else 0.0
        if not least < phi <= 1:
            raise InvalidInput(
                f"got phi = {phi}; expected eps < phi <= 1 with eps = {least}; use a smaller eps"
            )
        n = self.total(since, until)
        threshold = target_rank(phi, n.lo) if n.lo else 1
        surely = target_rank(phi, n.hi) if n.hi else 1
        nodes = np.arange(self.levels[-1].hashes.width, dtype=np.uint64)
        for level in range(len(self.levels) - 1, -1, -1):
            found = self.levels[level].points(nodes, since, until)
            nodes = nodes[found.hi >= threshold]
            if level:
                nodes = (nodes[:, None] * np.uint64(2) + np.array([0, 1], np.uint64)).ravel()
        counts = self.levels[0].points(nodes, since, until)
        order = np.lexsort((nodes, -counts.estimate))
        sorted_counts = Counts(counts.estimate[order], counts.lo[order], counts.hi[order])
        return HeavyHitters(nodes[order].astype(np.int64), sorted_counts, sorted_counts.lo >= surely)

    def quantile(self, phi: Phi, since: int | None = None, until: int | None = None) -> KeyQuantile:
        """The key of rank max(1, ceil(phi * n)) in the window, as near as the estimates tell.

        The ranks of the arrivals with this key lie between rank_lo and rank_hi, which are certain.
        EmptySketch if the window is empty.
        """
        n = self.total(since, until)
        if n.hi == 0:
            raise EmptySketch(
                "got a window without arrivals; a quantile needs at least one; ask a longer window"
            )
        r = target_rank(phi, max(1, int(n.estimate + 0.5)))
        top = self.levels[-1].bounds(since, until).cells.estimate
        node = min(int(np.searchsorted(np.cumsum(top), r)), len(top) - 1)
        left = r - float(top[:node].sum())
        for level in range(len(self.levels) - 2, -1, -1):
            node *= 2
            half = self.levels[level].points(np.array([node], np.uint64), since, until)[0].estimate
            if left > half:
                left, node = left - half, node + 1
        upto = self.count_range(0, node, since, until)
        below = self.count_range(0, node - 1, since, until) if node else Estimate(0.0, 0, 0)
        error = max(0, r - upto.lo, below.hi + 1 - r)
        return KeyQuantile(node, below.lo + 1, max(upto.hi, below.lo + 1), error)

    def _over(self, low: int, stop: int, since: int | None, until: int | None) -> tuple[float, int]:
        """The estimate and the upper bound of the keys from `low` to stop - 1, by dyadic ranges."""
        estimate, hi = 0.0, 0
        for level in self.levels[:-1]:
            odd = [low] * (low < stop and low & 1) + [stop - 1] * (low < stop and stop & 1)
            if odd:
                found = level.points(np.array(odd, np.uint64), since, until)
                estimate, hi = estimate + float(found.estimate.sum()), hi + int(found.hi.sum())
            low, stop = (low + 1) >> 1, stop >> 1
        if low < stop:
            top: FrequencyBounds = self.levels[-1].bounds(since, until)
            estimate += float(top.cells.estimate[low:stop].sum())
            hi += int(top.cells.hi[low:stop].sum())
        return estimate, hi

    def _checked(self, keys: ArrayLike) -> Digests:
        given = as_column(keys, INT64)
        if given.ndim != 1 or np.any(given < 0) or np.any(given >= 2**self.bits):
            raise InvalidInput(
                f"got keys out of range or shape; expected integers from 0 to 2**{self.bits} - 1"
            )
        return cast("Digests", given.astype(np.uint64))


def merge_dyadic(sketches: Sequence[DyadicECM]) -> DyadicECM:
    """A new sketch of the union of disjoint streams, level by level; see `merge_ecm`.

    InvalidInput also unless all have the same bits, eps and delta.
    """
    shapes = [(s.bits, len(s.levels)) for s in sketches]
    if len(set(shapes)) != 1:
        raise InvalidInput(
            f"got sketches of (bits, levels) {shapes}; expected at least one, all alike; "
            "build them with the same bits, eps and delta"
        )
    levels = [merge_ecm(list(level)) for level in zip(*(s.levels for s in sketches), strict=True)]
    return DyadicECM.of(sketches[0].bits, levels)
