"""ECM-sketches: frequencies of keys in any window of time, in memory independent of the number of keys.

Model. A Count-Min sketch whose cells are sliding-window counters. An arrival is added, with its time, to one
counter in each row, chosen by the row's hash of its key. For a query window, each counter gives its count
with bounds. Together these counts are a plain Count-Min sketch with bounds, `FrequencyBounds`, which answers
every query.

For a window that ends now and lies within the window of the sketch, with n arrivals in it,

    |f'(x) - f(x)|  <=  eps * n        with probability at least 1 - delta
    f(x)            <=  hi             always, with all counters but randomised waves (RW)
    lo <= f(x)                         with probability at least 1 - delta

where f(x) is the true frequency of key x and f'(x) the estimate. A window that ends before now is the
difference of two windows: its bounds hold, but its error is relative to the larger of the two. A window that
includes all arrivals is exact in each cell: then hash collisions are the only error.

With counters of the kinds SI, PR and SP (SIMPLE, PROPORTIONAL and SPLITTER of Rivetti et al.), only the last
two lines hold: nothing bounds the error of the estimate, and `point_eps` is infinite. With PF, PERFECT, each
cell is exact.

Cost: an update takes amortised O(rows) an arrival. The first query of a window reads all counters, O(cells +
b) for b buckets; further queries of the same window take O(rows) a key. Memory: that of rows x width
counters, see ecm_sizes.py and the modules of the counters.

Source: Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams", VLDB
Journal 2015, section 4; the sizes are in ecm_sizes.py.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.count_bounds import Counts, Estimate
from tidemark.sketches.counters.counting import Clock, CounterKind, Counting
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.ecm.ecm_bytes import decode_ecm, encode_ecm
from tidemark.sketches.ecm.ecm_sizes import (
    checked_promise,
    inner_product_eps,
    point_eps,
    sizes_for_inner_products,
    sizes_for_points,
    split_eps,
)
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds, digests_below
from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import (
    CellIndices,
    Digests,
    RowHashes,
    checked_hashes,
)
from tidemark.sketches.inputs import INT64, as_column, as_contiguous
from tidemark.sketches.memory_limit import require_memory

Purpose = Literal["points", "inner products"]


class ECM:
    """Frequencies of keys in sliding windows, within eps of the arrivals.

    >>> from tidemark.sketches import digest, digest_one
    >>> sketch = ECM(eps=0.01, delta=0.01)
    >>> sketch.update(digest(["a", "b", "a", "c"]), times=[10, 20, 20, 30])
    >>> sketch.point(digest_one("a"), since=15)
    Estimate(estimate=1.0, lo=1, hi=1)

    Keys are passed as digests, see key_digests.py. eps and delta are the values requested at construction;
    `point_eps` is the error after all merges. A call that raises changes nothing.
    """

    __slots__ = ("_cached_bounds", "counts", "delta", "eps", "hashes")

    def __init__(
        self,
        eps: float,
        delta: float,
        *,
        window: int | None = None,
        purpose: Purpose = "points",
        kind: CounterKind = "EH",
        clock: Clock = "time",
        seed: int = 0,
        site: int = 0,
    ) -> None:
        """An empty sketch of the smallest size that keeps eps and delta for its purpose.

        eps: the error as a share of the arrivals, 1e-6 <= eps < 1.
        delta: the probability that an error is larger, 1e-12 <= delta < 1.
        window: how far back from the last arrival queries reach, in the unit of the times, or in arrivals on
            the clock "count"; None keeps everything.
        purpose: "points", or "inner products" for inner products and self joins within eps.
        kind, clock, site: see `Counting`. PF, SI, PR and SP need a window.
        seed: chooses the row hashes, below 2**64; sketches that will be merged or combined need the same one.

        Raises InvalidInput for values out of range, and if the counters could take more than 4 GiB, see
        memory_limit.py.
        """
        if purpose not in ("points", "inner products") or (purpose == "inner products" and kind == "RW"):
            raise InvalidInput(
                f"got the purpose {purpose!r} for the kind {kind!r}; expected 'points', or 'inner products' "
                "with a kind other than RW, because nothing is proved for inner products of randomised waves"
            )
        if purpose == "points":
            sizes = sizes_for_points(eps, delta, randomised=kind == "RW")
        else:
            sizes = sizes_for_inner_products(eps, delta)
        eps_sw = split_eps(sizes.width) if kind == "SP" else sizes.eps_sw
        counting = Counting(kind, eps_sw, window, clock, sizes.delta_sw, site=site)
        self.eps, self.delta = float(eps), float(delta)
        hashes = RowHashes(sizes.rows, sizes.width, seed)
        require_memory(counting.room(hashes.cells), f"eps = {eps}, delta = {delta} with {kind}")
        self.hashes = checked_hashes(hashes)
        self.counts = WindowCounts(counting, self.hashes.cells)
        # The window of the last query and its result, until the next update.
        self._cached_bounds: tuple[int | None, int | None, FrequencyBounds] | None = None

    @classmethod
    def of(
        cls,
        hashes: RowHashes,
        counting: Counting,
        *,
        eps: float,
        delta: float,
        counts: WindowCounts | None = None,
    ) -> "ECM":
        """A sketch with these hashes and counters, without the memory limit of the constructor.

        eps, delta: the values that the sketch reports; they do not determine its size.
        counts: the counters, hashes.cells of them; None means new ones without arrivals.

        Raises InvalidInput for values out of range.
        """
        sketch = cls.__new__(cls)
        sketch.eps, sketch.delta = checked_promise(eps, delta)
        sketch.hashes = checked_hashes(hashes)
        sketch.counts = WindowCounts.empty(counting, hashes.cells) if counts is None else counts
        sketch._cached_bounds = None  # noqa: SLF001  same class
        return sketch

    @classmethod
    def from_bytes(cls, data: bytes) -> "ECM":
        """The sketch that `to_bytes` stored. Time and memory O(len(data)).

        Raises CorruptSketch, WrongKind or NewerVersion if `data` is not such a sketch.
        """
        hashes, counts, eps, delta = decode_ecm(data)
        return cls.of(hashes, counts.counting, eps=eps, delta=delta, counts=counts)

    def to_bytes(self) -> bytes:
        """The stored form, see ecm_bytes.py. Equal batches in equal order give equal bytes.

        Raises InvalidInput for PF, SI, PR and SP, which have none. O(cells + b) time for b buckets; empty
        cells take no bytes.
        """
        return encode_ecm(self.hashes, self.counts, self.eps, self.delta)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """Pickles the stored form, which is much smaller than the sketch in memory."""
        return ECM.from_bytes, (self.to_bytes(),)

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones included."""
        return self.counts.n

    @property
    def point_eps(self) -> float:
        """The error bound of point queries for windows that end now, after all merges so far."""
        return point_eps(self.hashes.eps, self.counts.error)

    @property
    def inner_product_eps(self) -> float:
        """The error bound of inner products for windows that end now, after all merges so far."""
        return inner_product_eps(self.hashes.eps, self.counts.error)

    def __repr__(self) -> str:
        counting, hashes = self.counts.counting, self.hashes
        return (
            f"ECM(eps={self.eps}, delta={self.delta}, {hashes.rows} x {hashes.width} {counting.kind}, "
            f"window={counting.window}, n={self.n})"
        )

    def update(
        self, digests: Digests, times: ArrayLike | None = None, counts: ArrayLike | None = None
    ) -> None:
        """Adds arrivals in order of time; an empty array changes nothing.

        digests: shape (n,), uint64, the digests of the keys.
        times: shape (n,), never decreasing, none before the last arrival so far; None on the clock "count".
        counts: shape (n,), how often each arrives, at least 1; None means once.

        Raises InvalidInput for other input. Put late arrivals into a separate sketch and add the answers of
        both with `combine_frequencies`.

        Amortised O(rows) an arrival. With a window, an update also takes O(cells + b) for b buckets to drop
        expired ones: pass thousands of arrivals at once.
        """
        self.counts.update(times, counts, cells=self._cells_of(digests_below(digests, self.hashes)))
        self._cached_bounds = None

    def bounds(self, since: int | None = None, until: int | None = None) -> FrequencyBounds:
        """The Count-Min sketch of the arrivals from `since` to before `until`, with bounds.

        since: inclusive; None means everything that has not expired. until: exclusive; None means no end.

        Raises InvalidInput for a time that has expired. O(cells + b) for b buckets; the result of the last
        window is cached until the next update.
        """
        if self._cached_bounds is None or self._cached_bounds[:2] != (since, until):
            frequencies = FrequencyBounds(self.hashes, self.counts.between(since, until))
            self._cached_bounds = (since, until, frequencies)
        return self._cached_bounds[2]

    def point(self, digest: int, since: int | None = None, until: int | None = None) -> Estimate:
        """How often one key arrived in the window, with bounds.

        digest: as `digest_one` returns it. since, until: as for `bounds`, also in the methods below.

        O(rows), plus `bounds` of the window.
        """
        return self.points(np.array([digest], np.uint64), since, until)[0]

    def points(self, digests: Digests, since: int | None = None, until: int | None = None) -> Counts:
        """How often each key arrived in the window, with bounds. O(rows) a key, plus `bounds`."""
        return self.bounds(since, until).points(digests)

    def total(self, since: int | None = None, until: int | None = None) -> Estimate:
        """The number of arrivals in the window, with bounds. O(cells), plus `bounds`."""
        return self.bounds(since, until).total()

    def inner_product(self, other: "ECM", since: int | None = None, until: int | None = None) -> Estimate:
        """The sum over all keys of their frequency here times that in `other`, in the same window of both.

        Raises InvalidInput unless both have the same row hashes, and for randomised waves. O(cells), plus
        `bounds` of both.
        """
        _require_deterministic(self)
        _require_deterministic(other)
        return self.bounds(since, until).inner_product(other.bounds(since, until))

    def self_join(self, since: int | None = None, until: int | None = None) -> Estimate:
        """The sum over all keys of their squared frequency in the window. O(cells), plus `bounds`.

        Raises InvalidInput for randomised waves.
        """
        _require_deterministic(self)
        return self.bounds(since, until).self_join()

    def _cells_of(self, digests: Digests) -> CellIndices:
        if self.hashes.direct:
            return self.hashes.cells_of(digests)
        from tidemark.sketches.compiled.kernels import hash_rows

        cells = np.empty((self.hashes.rows, len(digests)), np.int64)
        hash_rows(as_contiguous(digests), self.hashes.factors(), self.hashes.width, cells)
        return cells


def in_time_order(
    digests: Digests, times: ArrayLike, counts: ArrayLike | None = None
) -> tuple[Digests, NDArray[np.int64], NDArray[np.int64] | None]:
    """(digests, times, counts) sorted by time, as `update` expects them. O(n log n).

    Arrivals with equal times keep their order. counts: None stays None.
    """
    time_array = as_column(times, INT64)
    order = np.argsort(time_array, kind="stable")
    return digests[order], time_array[order], None if counts is None else as_column(counts, INT64)[order]


def _require_deterministic(sketch: ECM) -> None:
    if sketch.counts.counting.kind == "RW":
        raise InvalidInput(
            "got randomised waves (RW); expected another kind, because nothing is proved for inner products "
            "of randomised waves; build the sketch with EH"
        )
