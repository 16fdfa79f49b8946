"""ECM-sketches: how often keys arrived, in any stretch of time, in memory that does not grow with the keys.

Model. A Count-Min sketch whose cells are sliding-window counters. An arrival goes, with its time, to one
counter in each row, chosen by the row's hash of its key. Asked for a window, every counter gives its count
with bounds, and these make a plain Count-Min with bounds, `FrequencyBounds`; every answer comes from that.

For any window up to the sketch's, with n arrivals in it that reach to now,

    |f'(x) - f(x)|  <=  eps * n        with probability at least 1 - delta
    f(x)            <=  hi             always, with counters that are certain (EH, DW)
    lo <= f(x)                         with probability at least 1 - delta

A window that ends before now is the difference of two: its bounds hold, its error is relative to both. A
window that takes all arrivals is exact in each cell: then the only error is that of collisions.

Source: Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams", VLDB
Journal 2015, section 4; the sizes are in ecm_sizes.py.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.bounds.count_bounds import Counts, Estimate
from tidemark.sketches.counters.counting import Clock, CounterKind, Counting
from tidemark.sketches.counters.window_counts import WindowCounts
from tidemark.sketches.ecm.ecm_bytes import StoredECM, decode_ecm, encode_ecm
from tidemark.sketches.ecm.ecm_sizes import (
    checked_promise,
    inner_product_eps,
    point_eps,
    sizes_for_inner_products,
    sizes_for_points,
)
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds, checked_digests
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

    Keys are given as digests, see hashing.py. eps and delta are what was asked for; `point_eps` is what
    is kept after merges. A refused input changes nothing.
    """

    __slots__ = ("_asked", "counts", "delta", "eps", "hashes")

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
        """An empty sketch of the least memory that keeps eps and delta for its purpose.

        eps: from 1e-6, below 1. delta: from 1e-12, below 1. window: how much is kept, in the unit of the
        times, or on the clock "count" in arrivals; None keeps all. seed: that of the row hashes, below 2**64.
        site: see Counting. InvalidInput for what is out of range, and where the counters would take more
        than 4 GiB once they are full, see memory_limit.py.
        """
        if purpose not in ("points", "inner products") or (purpose == "inner products" and kind == "RW"):
            raise InvalidInput(
                f"got the purpose {purpose!r} for the kind {kind!r}; expected 'points', or 'inner products' "
                "with EH or DW: nothing is proved for inner products of randomised waves"
            )
        if purpose == "points":
            sizes = sizes_for_points(eps, delta, randomised=kind == "RW")
        else:
            sizes = sizes_for_inner_products(eps, delta)
        counting = Counting(kind, sizes.eps_sw, window, clock, sizes.delta_sw, site=site)
        self.eps, self.delta = float(eps), float(delta)
        hashes = RowHashes(sizes.rows, sizes.width, seed)
        require_memory(counting.room(hashes.cells), f"eps = {eps}, delta = {delta} with {kind}")
        self.hashes = checked_hashes(hashes)
        self.counts = WindowCounts(counting, self.hashes.cells)
        self._asked: tuple[int | None, int | None, FrequencyBounds] | None = None

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
        """A sketch of these hashes and counters, empty unless `counts` are given; eps and delta are told.

        InvalidInput for what is out of range. What the counters take once they are full is not looked at.
        """
        sketch = cls.__new__(cls)
        sketch.eps, sketch.delta = checked_promise(eps, delta)
        sketch.hashes = checked_hashes(hashes)
        sketch.counts = WindowCounts.empty(counting, hashes.cells) if counts is None else counts
        sketch._asked = None  # noqa: SLF001  made here
        return sketch

    @classmethod
    def from_bytes(cls, data: bytes) -> "ECM":
        """The sketch that `to_bytes` stored; CorruptSketch, WrongKind or NewerVersion if there is none."""
        stored = decode_ecm(data)
        own = stored.counts.counting
        return cls.of(stored.hashes, own, eps=stored.eps, delta=stored.delta, counts=stored.counts)

    def to_bytes(self) -> bytes:
        """The stored form, see ecm_bytes.py. Equal batches in equal order give equal bytes."""
        return encode_ecm(StoredECM(self.hashes, self.counts, self.eps, self.delta))

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        """Pickled as it is stored, which is a fraction of what it is in memory."""
        return ECM.from_bytes, (self.to_bytes(),)

    @property
    def n(self) -> int:
        """The number of arrivals so far, expired ones too."""
        return self.counts.n

    @property
    def point_eps(self) -> float:
        """What point queries up to now keep, after all merges so far."""
        return point_eps(self.hashes.eps, self.counts.error)

    @property
    def inner_product_eps(self) -> float:
        """What inner products up to now keep, after all merges so far."""
        return inner_product_eps(self.hashes.eps, self.counts.error)

    def __repr__(self) -> str:
        own = self.counts.counting
        return (
            f"ECM(eps={self.eps}, delta={self.delta}, {self.hashes.rows} x {self.hashes.width} {own.kind}, "
            f"window={own.window}, n={self.n})"
        )

    def update(
        self, digests: Digests, times: ArrayLike | None = None, counts: ArrayLike | None = None
    ) -> None:
        """Adds arrivals in order of time; an empty array changes nothing.

        times: one an arrival, never decreasing, none before the last one so far; on the clock "count" there
        are none. counts: how often each arrives, from 1; once without. InvalidInput otherwise: arrivals
        that come late go into a sketch of their own, and `combine` adds what both know.

        With a window an update also costs as much as the sketch is large, because what expired is left
        behind: bring arrivals by thousands.
        """
        self.counts.update(times, counts, cells=self._cells_of(checked_digests(digests, self.hashes)))
        self._asked = None

    def bounds(self, since: int | None = None, until: int | None = None) -> FrequencyBounds:
        """What is known of the arrivals at `since` or later and before `until`.

        None stands for the ends of the window. InvalidInput for a time that has expired.
        """
        if self._asked is None or self._asked[:2] != (since, until):
            self._asked = (since, until, FrequencyBounds(self.hashes, self.counts.between(since, until)))
        return self._asked[2]

    def point(self, digest: int, since: int | None = None, until: int | None = None) -> Estimate:
        """How often one key arrived in the window, with bounds; its digest is that of `digest_one`."""
        return self.points(np.array([digest], np.uint64), since, until)[0]

    def points(self, digests: Digests, since: int | None = None, until: int | None = None) -> Counts:
        """How often each key arrived in the window, with bounds."""
        return self.bounds(since, until).points(digests)

    def total(self, since: int | None = None, until: int | None = None) -> Estimate:
        """How many arrivals the window holds, with bounds."""
        return self.bounds(since, until).total()

    def inner_product(self, other: "ECM", since: int | None = None, until: int | None = None) -> Estimate:
        """The sum over all keys of f(x) here times f(x) there, in the same window of both.

        InvalidInput unless both have the same row hashes, and for randomised waves.
        """
        _require_certain(self)
        _require_certain(other)
        return self.bounds(since, until).inner_product(other.bounds(since, until))

    def self_join(self, since: int | None = None, until: int | None = None) -> Estimate:
        """The sum over all keys of f(x)**2 in the window; InvalidInput for randomised waves."""
        _require_certain(self)
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
    """The arrivals sorted by time, those of one time in the order given: what `update` takes."""
    given = as_column(times, INT64)
    order = np.argsort(given, kind="stable")
    return digests[order], given[order], None if counts is None else as_column(counts, INT64)[order]


def _require_certain(sketch: ECM) -> None:
    if sketch.counts.counting.kind == "RW":
        raise InvalidInput(
            "got randomised waves; nothing is proved for their inner products; build the sketch with EH"
        )
