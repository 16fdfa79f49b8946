"""Distributed windowed Count-Min: sites send their counts now and then, a coordinator adds them.

Model. Each site counts its last N rows in an ECM-sketch on the clock "count", of any kind of counters, and
sends the counts of all cells after each `every` = max(1, floor(share * N)) rows. The coordinator adds the
newest counts of all sites: the frequencies in the union of the last N rows of each site.

Guarantee. Since its last message a site has had at most every - 1 rows, and as many have expired. So with all
messages delivered and k sites, lo <= the true count now <= hi for every cell, where `bounds` allows for
k * (every - 1) <= k * share * N rows in both directions: expired rows make the coordinator's counts too high,
and rows not yet sent make them too low. With PF, PR and SP, whose estimates change by at most one a row, the
estimate is at most as far from the sum of the sites' estimates; SI forgets a whole window at once.

Cost: a message of O(cells) bytes for each `every` rows, at most 1 / share a window, site and N rows.

Source: Rivetti, Busnel and Mostefaoui, 2015, section III.E. The bounds are ours.
"""

import struct
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.bounds.count_bounds import Counts, add_counts
from tidemark.sketches.ecm.ecm import ECM
from tidemark.sketches.ecm.frequency_bounds import FrequencyBounds
from tidemark.sketches.encoding.envelope import corrupt
from tidemark.sketches.encoding.varints import decode_varints, encode_varints
from tidemark.sketches.errors import InvalidInput, LostState, Undelivered
from tidemark.sketches.hashing.row_hashes import Digests, RowHashes
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

COUNTS, RESUMED = 1, 2
_HEADER = struct.Struct("<QB")  # rows so far; whether the site knows that it was started again


class DCMSite:
    """A site, a `Machine`; see the module docstring.

    sketch: its counts, an ECM on the clock "count" with a window, without rows.
    share: of the window, in rows between two messages, above 0 and at most 1.

    Raises InvalidInput for another sketch or share.
    """

    def __init__(self, sketch: ECM, share: float) -> None:
        self.every = rows_between(sketch, share)
        self.sketch, self._unsent, self._resumed = sketch, 0, False

    def update(self, digests: Digests) -> list[Message]:
        """Counts rows, in order; returns what to send. Raises InvalidInput as `ECM.update` does."""
        messages, at = [], 0
        while at < len(digests):
            part = digests[at : at + self.every - self._unsent]
            self.sketch.update(part)
            at += len(part)
            self._unsent += len(part)
            if self._unsent == self.every:
                messages.append(self._counts())
        return messages

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes what the coordinator tells a site that was started again; see `Machine`."""
        del sender, kind, payload
        self._resumed = True
        return [self._counts()]

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """The counts, for a coordinator that has come; see `Machine`."""
        del peer, again
        return [self._counts()]

    def _counts(self) -> Message:
        self._unsent = 0
        cells = self.sketch.bounds().cells
        estimates = np.clip(np.round(cells.estimate).astype(np.int64), cells.lo, cells.hi)
        numbers = np.concatenate([cells.lo, cells.hi - cells.lo, estimates - cells.lo]).astype(np.uint64)
        payload = _HEADER.pack(self.sketch.n, self._resumed) + encode_varints(numbers)
        return Message(COORDINATOR, COUNTS, payload)


class DCMCoordinator:
    """The coordinator, a `Machine`; see the module docstring.

    sketch: an ECM as each site has it. sites: their number. share: as at the sites.

    Raises InvalidInput for another sketch or share.
    """

    def __init__(self, sketch: ECM, sites: int, share: float) -> None:
        self.every = rows_between(sketch, share)
        self._hashes: RowHashes = sketch.hashes
        self._window, self._sites = sketch.counts.counting.window or 0, sites
        self._counts: dict[int, Counts] = {}
        self._doubted: set[int] = set()  # sites that were started again
        self._lost: set[int] = set()  # those whose window misses rows of before

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes the counts of a site; see `Machine`. CorruptSketch for a payload that is none."""
        del kind
        if len(payload) < _HEADER.size:
            raise corrupt(len(payload), f"got {len(payload)} bytes, expected the counts of a site")
        rows, resumed = _HEADER.unpack_from(payload)
        self._counts[sender] = _counts_of(payload[_HEADER.size :], self._hashes.cells)
        if (resumed or sender in self._doubted) and rows < self._window:
            self._lost.add(sender)
        else:
            self._lost.discard(sender)
        return []

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """Tells a site that was started again; see `Machine`."""
        if not again:
            return []
        self._doubted.add(peer)
        self._counts.pop(peer, None)
        return [Message(peer, RESUMED, b"")]

    def bounds(self) -> FrequencyBounds:
        """The frequencies now, with certain bounds of each cell, if all messages are delivered.

        Raises Undelivered if a site has sent nothing yet, and LostState if one was started again and has not
        had a window of rows since. O(sites * cells).
        """
        return FrequencyBounds(self._hashes, reduce(add_counts, map(self._now, self._all())))

    def told(self) -> FrequencyBounds:
        """The frequencies in the windows of the sites when they sent; raises as `bounds` does."""
        return FrequencyBounds(self._hashes, reduce(add_counts, self._all()))

    def _all(self) -> list[Counts]:
        missing = sorted(set(range(self._sites)) - self._counts.keys())
        if missing:
            raise Undelivered(f"got no counts of the sites {missing}; expected those of each; ask again")
        if self._lost:
            raise LostState(
                f"got counts of the sites {sorted(self._lost)}, which were started again and lost their "
                f"rows; ask again when each has had {self._window} rows"
            )
        return list(self._counts.values())

    def _now(self, counts: Counts) -> Counts:
        """Bounds that allow for what the site has not sent."""
        unsent = self.every - 1
        hi = np.minimum(counts.hi + unsent, self._window)
        return Counts(counts.estimate, np.maximum(counts.lo - unsent, 0), np.maximum(hi, counts.hi))


def rows_between(sketch: ECM, share: float) -> int:
    """The rows between two messages. Raises InvalidInput for a sketch or share that DCM cannot have."""
    counting = sketch.counts.counting
    if counting.clock != "count" or counting.window is None or sketch.n or not 0 < share <= 1:
        raise InvalidInput(
            f"got {sketch} on the clock {counting.clock!r} and a share of {share}; expected a new sketch on "
            "the clock 'count' with a window, and a share above 0 and at most 1"
        )
    return max(1, int(share * counting.window))


def _counts_of(body: bytes, cells: int) -> Counts:
    numbers: NDArray[np.int64] = decode_varints(body).view(np.int64)
    if len(numbers) != 3 * cells or np.any(numbers < 0) or np.any(numbers >= 2**61):
        raise corrupt(0, f"got {len(numbers)} numbers, expected three below 2**61 for each of {cells} cells")
    lo, width, above = np.split(numbers, 3)
    return Counts((lo + above).astype(np.float64), lo, lo + width)
