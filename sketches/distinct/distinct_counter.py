"""The interface of every sketch that counts distinct keys in windows."""

from typing import Protocol

from numpy.typing import ArrayLike

from tidemark.sketches.hashing.row_hashes import Digests


class DistinctCounter(Protocol):
    """Counts different digests since a given time. A call that raises changes nothing."""

    @property
    def nbytes(self) -> int:
        """The bytes of the state if arrays had no gaps: 8 for each time, 8 for each hash."""

    def update(self, digests: Digests, times: ArrayLike) -> None:
        """Adds arrivals in order; an empty array changes nothing.

        digests: shape (n,), uint64, as `sketches.digest` makes them.
        times: shape (n,), int64, never decreasing, none before the last arrival so far.

        Raises InvalidInput for other input.
        """

    def distinct(self, since: int) -> float:
        """An estimate of the number of different digests that arrived at `since` or later; 0.0 for none.

        Raises InvalidInput unless `since` is an integer above -2**63 that fits int64. Linear counters raise
        Saturated where they have no answer.
        """

    def relative_error(self, distinct: float) -> float:
        """The standard error of an estimate divided by D, for a window that holds D = `distinct` digests.

        It depends on the configuration alone, so it can be asked before anything is inserted. The modules
        state where it is a bound and where an approximation. Raises InvalidInput for `distinct` < 0.
        """

    def check_invariants(self) -> None:
        """Raises BrokenInvariant if no updates can lead to the state. O(state)."""
