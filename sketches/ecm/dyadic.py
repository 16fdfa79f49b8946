"""Range counts, heavy hitters and quantiles of integer keys: one ECM-sketch for each size of dyadic range.

Model. Keys are integers from 0 to 2**bits - 1. Level l counts key >> l: the number of arrivals in each dyadic
range of 2**l keys. The top level is the first whose number of ranges is at most the number of columns of a
row. It has one cell for each range and no collisions, so levels above it would add no information.

    ranges          a range of keys is covered by at most two dyadic ranges of each level below the top, and
                    consecutive cells of the top level
    heavy hitters   descends from the top level into the ranges whose upper bound reaches the threshold
    quantiles       descends from the top level into the half that contains the rank

Example. bits = 4, top level 2: keys 3 to 13 are the range [3] of level 0, [12, 13] of level 1, and the cells
of [4, 7] and [8, 11] in the top level.

Guarantee, with deterministic counters: every bound is certain, including the effect of collisions. Count-Min
never underestimates, so lo of a range is n minus the hi of the dyadic ranges outside it; no probability is
involved. No key with f(x) >= phi * n is missed, because every dyadic range that contains it has at least as
many arrivals. The estimate of a range of keys is within 2 * levels * eps * n, that of a rank within levels *
eps * n, if that many point queries keep their error; eps and delta are those of one level.

Cost: an update updates every level. Heavy hitters visit at most 2 / (phi - eps) ranges of each level, if the
point queries keep their error. Memory: levels times that of an ECM-sketch.

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
from tidemark.sketches.counters.counting import BUCKET_KINDS, CounterKind, Counting
from tidemark.sketches.ecm.ecm import ECM
from tidemark.sketches.ecm.ecm_merge import merge_ecm
from tidemark.sketches.ecm.ecm_sizes import sizes_for_points
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds
from tidemark.sketches.encoding.envelope import corrupt_payload, unwrap, wrap
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.hashing.row_hashes import MOST_CELLS, Digests, RowHashes
from tidemark.sketches.inputs import INT64, as_column
from tidemark.sketches.memory_limit import require_memory

DYADIC_KIND = b"DYAD"
DYADIC_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class HeavyHitters:
    """Keys, or ranges of them, that may have at least phi * n arrivals, most frequent first.

    keys: int64, of ranges their numbers. counts: the number of arrivals of each key, with bounds.
    certain: True for keys whose lower bound reaches the threshold.
    """

    keys: NDArray[np.int64]
    counts: Counts
    certain: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class KeyQuantile:
    """A key near a target rank.

    rank_lo, rank_hi: certain bounds of the ranks of the arrivals with this key.
    error: the largest possible distance of the target rank from the ranks of this key; 0 if it has the rank.
    """

    key: int
    rank_lo: int
    rank_hi: int
    error: int


class DyadicECM:
    """Frequencies of integer keys in sliding windows, by key, by range and by rank.

    In all queries, since and until select the window as in `ECM.bounds`: since is inclusive, until exclusive.
    """

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
        """An empty sketch of keys from 0 to 2**bits - 1.

        bits: from 1 to 62.
        eps, delta, window, seed: as for `ECM`, for each level.
        kind: "EH" or "DW".

        Raises InvalidInput for other values, and if the counters of all levels together could take more than
        4 GiB.
        """
        is_integer = isinstance(bits, int) and not isinstance(bits, bool)
        if not is_integer or not 1 <= bits <= 62 or kind not in BUCKET_KINDS:
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
        """The sketch that `to_bytes` stored. Time and memory O(len(data)).

        Raises CorruptSketch, WrongKind or NewerVersion if `data` is not such a sketch.
        """
        _, payload = unwrap(DYADIC_KIND, data, newest=DYADIC_VERSION)
        levels: list[ECM] = []
        offset = 1
        while offset + 8 <= len(payload) and len(levels) < 64:
            (length,) = struct.unpack_from("<Q", payload, offset)
            available = len(payload) - offset - 8
            if length > available:
                raise corrupt_payload(offset, f"got a level of {length} bytes, expected at most {available}")
            levels.append(ECM.from_bytes(payload[offset + 8 : offset + 8 + length]))
            offset += 8 + length
        bits = payload[0] if payload else 0
        if offset != len(payload) or not levels or not 1 <= bits <= 62:
            raise corrupt_payload(
                offset,
                f"got {bits} bits and {len(levels)} levels in {offset} of {len(payload)} bytes, "
                "expected 1 to 62 bits, and levels in all bytes",
            )
        try:
            return cls.of(bits, levels)
        except InvalidInput as mismatch:
            raise corrupt_payload(0, f"got content that no sketch can have: {mismatch}") from mismatch

    @classmethod
    def of(cls, bits: int, levels: Sequence[ECM]) -> "DyadicECM":
        """The sketch with these levels, the lowest first.

        Raises InvalidInput unless the levels can be those of one sketch.
        """
        *lower, top = levels
        kind = top.counts.counting.kind
        states = {(s.counts.counting, s.n, s.counts.first, s.counts.now, s.counts.skew) for s in levels}
        is_top = top.hashes.direct and top.hashes.width == 2 ** (bits - len(lower))
        if len(states) > 1 or not is_top or any(s.hashes.direct for s in lower) or kind not in BUCKET_KINDS:
            raise InvalidInput("got levels that differ in n, times or counters; expected those of one sketch")
        if sum(s.hashes.cells for s in levels) > MOST_CELLS:
            raise InvalidInput(f"got levels of more than {MOST_CELLS:,} cells together; expected no more")
        sketch = cls(1, top.eps, top.delta)
        sketch.bits, sketch.levels = bits, tuple(levels)
        return sketch

    def to_bytes(self) -> bytes:
        """The stored form: kind b"DYAD", version 1, inside the envelope.

        The payload has one byte of bits, then for each level its length, 8 bytes unsigned little endian, and
        its bytes as `ECM.to_bytes` returns them. O(cells + b) time for b buckets of all levels.
        """
        stored_levels = [level.to_bytes() for level in self.levels]
        with_lengths = [struct.pack("<Q", len(stored)) + stored for stored in stored_levels]
        return wrap(DYADIC_KIND, DYADIC_VERSION, bytes([self.bits]) + b"".join(with_lengths))

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones included."""
        return self.levels[0].n

    def update(self, keys: ArrayLike, times: ArrayLike, counts: ArrayLike | None = None) -> None:
        """Adds arrivals in order of time.

        keys: shape (n,), integers from 0 to 2**bits - 1. times, counts: as for `ECM.update`.

        Raises InvalidInput as `ECM.update` does. Amortised O(levels * rows) an arrival.
        """
        digests = self._checked_keys(keys)
        for level, sketch in enumerate(self.levels):
            sketch.update(digests >> np.uint64(level), times, counts)

    def points(self, keys: ArrayLike, since: int | None = None, until: int | None = None) -> Counts:
        """How often each key arrived in the window, with bounds. O(rows) a key, plus `ECM.bounds`."""
        return self.levels[0].points(self._checked_keys(keys), since, until)

    def total(self, since: int | None = None, until: int | None = None) -> Estimate:
        """The number of arrivals in the window, with bounds."""
        return self.levels[-1].total(since, until)

    def count_range(
        self, low: int, high: int, since: int | None = None, until: int | None = None
    ) -> Estimate:
        """The number of arrivals with a key from `low` to `high`, both inclusive, with certain bounds.

        O(levels * rows + cells of the top level), plus `ECM.bounds` of each level.
        """
        if not 0 <= low <= high < 2**self.bits:
            raise InvalidInput(f"got keys from {low} to {high}; expected 0 <= low <= high < 2**{self.bits}")
        estimate, hi = self._estimate_and_hi(low, high + 1, since, until)
        _, below = self._estimate_and_hi(0, low, since, until)
        _, above = self._estimate_and_hi(high + 1, 2**self.bits, since, until)
        n = self.total(since, until)
        hi = min(hi, n.hi)
        lo = min(max(0, n.lo - below - above), hi)
        return Estimate(min(max(estimate, lo), hi), lo, hi)

    def heavy_hitters(self, phi: float, since: int | None = None, until: int | None = None) -> HeavyHitters:
        """Every key with at least phi * n arrivals in the window, and keys that possibly have that many.

        phi: the share of the arrivals, eps < phi <= 1, with the largest `point_eps` of the levels as eps.

        Raises InvalidInput for another phi. Visits at most 2 / (phi - eps) ranges of each level if the point
        queries keep their error, O(rows) each, plus `ECM.bounds` of each level.
        """
        return self.heavy_ranges(phi, since, until)[0]

    def heavy_ranges(
        self, phi: float, since: int | None = None, until: int | None = None
    ) -> list[HeavyHitters]:
        """Hierarchical heavy hitters: the dyadic ranges with at least phi * n arrivals, by level.

        Item l, up to the top level, has the numbers of ranges of 2**l keys as its keys: of addresses of 32
        bits, item 8 has networks of 24. No range with the share is missed, and parameters, errors and cost
        are those of `heavy_hitters`, whose keys are item 0.
        """
        eps = max(level.point_eps for level in self.levels) if len(self.levels) > 1 else 0.0
        if not eps < phi <= 1:
            raise InvalidInput(
                f"got phi = {phi}; expected eps < phi <= 1 with eps = {eps}; "
                "use a larger phi, or build the sketch with a smaller eps"
            )
        n = self.total(since, until)
        threshold = target_rank(phi, n.lo) if n.lo else 1
        certain_threshold = target_rank(phi, n.hi) if n.hi else 1
        found: list[HeavyHitters] = []
        nodes = np.arange(self.levels[-1].hashes.width, dtype=np.uint64)
        for level in range(len(self.levels) - 1, -1, -1):
            counts = self.levels[level].points(nodes, since, until)
            kept = np.flatnonzero(counts.hi >= threshold)
            order = kept[np.lexsort((nodes[kept], -counts.estimate[kept]))]
            sorted_counts = Counts(counts.estimate[order], counts.lo[order], counts.hi[order])
            certain = sorted_counts.lo >= certain_threshold
            found.append(HeavyHitters(nodes[order].astype(np.int64), sorted_counts, certain))
            nodes = (nodes[kept][:, None] * np.uint64(2) + np.array([0, 1], np.uint64)).ravel()
        return found[::-1]

    def quantile(self, phi: Phi, since: int | None = None, until: int | None = None) -> KeyQuantile:
        """The key of estimated rank max(1, ceil(phi * n)) in the window, with certain bounds of its rank.

        phi: a number in [0, 1].

        Raises InvalidInput for another phi, EmptySketch if the window has no arrivals. O(levels * rows +
        cells of the top level), plus `ECM.bounds` of each level.
        """
        n = self.total(since, until)
        if n.hi == 0:
            raise EmptySketch(
                "got a window without arrivals; a quantile needs at least one; use a longer window"
            )
        rank = target_rank(phi, max(1, int(n.estimate + 0.5)))
        top = self.levels[-1].bounds(since, until).cells.estimate
        node = min(int(np.searchsorted(np.cumsum(top), rank)), len(top) - 1)
        rank_in_node = rank - float(top[:node].sum())
        for level in range(len(self.levels) - 2, -1, -1):
            node *= 2
            left_half = self.levels[level].points(np.array([node], np.uint64), since, until)[0].estimate
            if rank_in_node > left_half:
                rank_in_node, node = rank_in_node - left_half, node + 1
        upto = self.count_range(0, node, since, until)
        below = self.count_range(0, node - 1, since, until) if node else Estimate(0.0, 0, 0)
        error = max(0, rank - upto.lo, below.hi + 1 - rank)
        return KeyQuantile(node, below.lo + 1, max(upto.hi, below.lo + 1), error)

    def _estimate_and_hi(
        self, low: int, stop: int, since: int | None, until: int | None
    ) -> tuple[float, int]:
        """The estimate and the upper bound of the number of arrivals with keys from `low` to stop - 1.

        They are the sums over the dyadic ranges that cover these keys: at each level below the top, the first
        range if its number is odd, and the last range if its number is even.
        """
        estimate, hi = 0.0, 0
        for level in self.levels[:-1]:
            edges = [low] * (low < stop and low & 1) + [stop - 1] * (low < stop and stop & 1)
            if edges:
                counts = level.points(np.array(edges, np.uint64), since, until)
                estimate, hi = estimate + float(counts.estimate.sum()), hi + int(counts.hi.sum())
            low, stop = (low + 1) >> 1, stop >> 1
        if low < stop:
            top: FrequencyBounds = self.levels[-1].bounds(since, until)
            estimate += float(top.cells.estimate[low:stop].sum())
            hi += int(top.cells.hi[low:stop].sum())
        return estimate, hi

    def _checked_keys(self, keys: ArrayLike) -> Digests:
        key_array = as_column(keys, INT64)
        if key_array.ndim != 1 or np.any(key_array < 0) or np.any(key_array >= 2**self.bits):
            raise InvalidInput(
                f"got keys out of range or of shape {key_array.shape}; "
                f"expected integers from 0 to 2**{self.bits} - 1, in one dimension"
            )
        return cast("Digests", key_array.astype(np.uint64))


def merge_dyadic(sketches: Sequence[DyadicECM]) -> DyadicECM:
    """A new sketch of the union of disjoint streams, level by level; see `merge_ecm` for errors and costs.

    Raises InvalidInput as `merge_ecm` does, and unless all sketches have the same bits and levels.
    """
    shapes = [(s.bits, len(s.levels)) for s in sketches]
    if len(set(shapes)) != 1:
        raise InvalidInput(
            f"got sketches of (bits, levels) {shapes}; expected at least one sketch, all with the same; "
            "build them with the same bits, eps and delta"
        )
    levels = [merge_ecm(list(level)) for level in zip(*(s.levels for s in sketches), strict=True)]
    return DyadicECM.of(sketches[0].bits, levels)
