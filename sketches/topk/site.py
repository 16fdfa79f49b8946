"""A site of TOPiCo: it counts the rows of its window, and tells the others what may be among the top k.

Model. A pure state machine: rows and messages go in, messages come out. With n sites, every so often:

    1  count the items of the window: the list L, by falling count, the smaller item first
    2  g: the k-th largest lower bound of the answer by all lists (answer.py); infinite if it has fewer items
    3  tell the first l items of L, at least k of them, and all with count * n >= g; and, as echoes, every
       other item that is a first item of another site's last list, with its count here, which may be 0;
       where that is longer than L, tell L, with the cut-off 0

A list that brings a first item which this site has not told makes it tell that item's count at once, unless
its cut-off is 0.

Guarantee. The answer's lo and hi are certain for the windows of which the lists are. And if the windows of
all sites stand still, two rounds later, once their messages are delivered, every site has the true top k,
each with its exact count, and each certain.

Proof. After the first round all lists are of these windows, so g is at most the true k-th count G at every
site. An item x of the true top k has G / n rows or more at some site. There x passes the test in the second
round, and all other sites tell their counts of it: x is exact everywhere. Another item y is a first item of
some site, and then exact, or of none: then it has less than G / n rows at each site, and each cut-off is
less than G / n, so hi(y) < G. If there are fewer than k items, every list has all of its site.

Rows that a site lost because it was started again cannot be told. Until its window has moved beyond that
moment there is no answer at any site, but LostState. (If all sites are, nobody is left who knows it.)

Cost: O(w log w) a round for the w rows of the window; O(m) a message of m items.

Source: Schiavoni, Riviere, Sutra, Felber, Matos and Oliveira, "TOPiCo: Detecting most frequent items from
multiple high-rate event streams", DEBS 2015. We deviate: the paper computes only the items of the new list
again, so a sum stays when a site stops telling the item; it echoes echoes, without end; and where it has
fewer than k items, g is 0, so that everything is told. Cut-offs, certainty and echoes at once are ours.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tidemark.sketches.errors import InvalidInput, LostState, Undelivered
from tidemark.sketches.hashing.row_hashes import Digests
from tidemark.sketches.inputs import INT64, as_column
from tidemark.sketches.sites.machine import Message
from tidemark.sketches.topk.answer import TopkAnswer, bounds_of, top_of
from tidemark.sketches.topk.lists import ECHO, LIST, RESUMED, Ints, TopkList


class TopkSite:
    """One site, a `Machine` of an exchange without a coordinator; see the module docstring.

    site: its number, below `sites`. k: the length of the answer, at least 1.
    window: rows later than now - window count, up to now, in the unit of the times, at least 1.

    Raises InvalidInput for values outside these ranges.
    """

    def __init__(self, site: int, sites: int, *, k: int, window: int) -> None:
        if not 0 <= site < sites or k < 1 or not 1 <= window <= 2**62:
            raise InvalidInput(
                f"got the site {site} of {sites}, k = {k} and a window of {window}; expected a site below "
                "their number, and k and a window of at least 1"
            )
        self.site, self.k, self.window = site, k, window
        self._others = [one for one in range(sites) if one != site]
        self._rows = [(np.empty(0, np.uint64), np.empty(0, np.int64))]
        self._local = (np.empty(0, np.uint64), np.empty(0, np.int64))  # ascending items, and their counts
        self._lists: dict[int, TopkList] = {}
        self._begun: int | None = None  # the time of the first round
        self._lost = False
        self._doubted: set[int] = set()  # sites that were started again, and may not know it

    def observe(self, items: Digests, times: ArrayLike) -> None:
        """Rows of this site, in any order. They count from the next round on, if their time has come then.

        items: uint64, shape (n,), such as `digest` makes. times: integers, shape (n,).

        Raises InvalidInput for other arrays. O(n).
        """
        time_array = as_column(times, INT64)
        if items.dtype != np.uint64 or items.shape != time_array.shape or items.ndim != 1:
            raise InvalidInput(
                f"got items of {items.dtype}, shape {items.shape}, and times of shape {time_array.shape}; "
                "expected uint64 and integers in one dimension, of equal length; use digest(keys)"
            )
        self._rows.append((items, time_array))

    def round(self, now: int) -> list[Message]:
        """The window ends with `now`; returns what to tell the other sites.

        Raises InvalidInput if `now` is before that of the last round.
        """
        before = self._lists.get(self.site)
        if before is not None and now < before.now:
            raise InvalidInput(f"got a round at {now} after one at {before.now}; expected no earlier time")
        self._begun = now if self._begun is None else self._begun
        row_items = np.concatenate([each for each, _ in self._rows])
        times = np.concatenate([each for _, each in self._rows])
        kept = times > now - self.window
        row_items, times = row_items[kept], times[kept]
        self._rows = [(row_items, times)]
        items, counts = np.unique(row_items[times <= now], return_counts=True)
        self._local = (items, counts.astype(np.int64))
        own = self._list(now)
        self._lists[self.site] = own
        return [Message(other, LIST, own.to_bytes()) for other in self._others]

    @property
    def told(self) -> tuple[int, int, int]:
        """How many items the last round had: of the window, of the list, and first ones of the list."""
        own = self._lists.get(self.site)
        return (0, 0, 0) if own is None else (len(self._local[0]), len(own.items), own.first)

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of another site; see `Machine`. CorruptSketch for a payload that is none."""
        if kind == RESUMED:
            self._lost = True
            return self._tell_again(self._others)
        told = TopkList.of(payload)
        if kind == ECHO:
            if sender in self._lists:
                self._lists[sender] = self._lists[sender].with_echoes(told.items, told.counts)
            return []
        self._lists[sender] = told
        return self._echo(told.first_items)

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """What a site that has come must be told; see `Machine`."""
        if again:
            self._lists.pop(peer, None)
            self._doubted.add(peer)
        resumed = [Message(peer, RESUMED, b"")] if again else []
        return [*resumed, *self._tell_again([peer])]

    def answer(self) -> TopkAnswer:
        """The k most frequent items as of the last delivered messages.

        Raises Undelivered if a site has told nothing yet, and LostState if one has lost rows of its window.
        O(m log m) for m entries of all lists.
        """
        missing = [site for site in (self.site, *self._others) if site not in self._lists]
        if missing:
            raise Undelivered(f"got no list of the sites {sorted(missing)}; expected one of each")
        lost = sorted(
            site
            for site, one in self._lists.items()
            if not one.is_complete or (site in self._doubted and not one.has_resumed)
        )
        if lost:
            raise LostState(
                f"got lists of the sites {lost}, which were started again and lost rows of their windows; "
                f"ask again when a window of {self.window} has passed"
            )
        all_own = self._all_own(self._lists[self.site].now)
        return top_of({**self._lists, self.site: all_own}, self.k)

    def _list(self, now: int) -> TopkList:
        """The list of step 3."""
        items, counts = self._local
        order = np.lexsort((items, -counts))
        rest = {site: one for site, one in self._lists.items() if site != self.site}
        least = self._kth(rest)
        first = min(self.k, len(order))
        if least is not None:
            passed = counts[order] * (len(self._others) + 1) >= least
            first = max(first, int(np.sum(passed)))
        first_items = items[order[:first]]
        asked = np.concatenate([np.empty(0, np.uint64), *(one.first_items for one in rest.values())])
        echoes = np.setdiff1d(asked, first_items)
        left = np.setdiff1d(items, np.concatenate([first_items, echoes]))
        zeros = np.setdiff1d(echoes, items)
        if len(zeros) >= len(left):  # the whole window is as short, and needs no zeros
            echoes, left = np.setdiff1d(items, first_items), left[:0]
        told, cutoff = np.concatenate([first_items, echoes]), int(self._counts_of(left).max(initial=0))
        return TopkList(now, cutoff, self._is_complete(now), self._lost, told, self._counts_of(told), first)

    def _kth(self, rest: dict[int, TopkList]) -> int | None:
        """The k-th largest lower bound by the lists of the others and all own items; None if it is 0."""
        _, lo, _ = bounds_of({**rest, self.site: self._all_own(0)})
        lo = np.sort(lo[lo > 0])
        return int(lo[-self.k]) if len(lo) >= self.k else None

    def _echo(self, asked: Digests) -> list[Message]:
        """The counts of items that this site has not told since its last round."""
        own = self._lists.get(self.site)
        if own is None or not own.cutoff:  # what it has not told has no rows here
            return []
        new = np.setdiff1d(asked, own.items)
        if not len(new):
            return []
        counts = self._counts_of(new)
        self._lists[self.site] = own.with_echoes(new, counts)
        echo = replace(own, items=new, counts=counts, first=0).to_bytes()
        return [Message(other, ECHO, echo) for other in self._others]

    def _tell_again(self, to: Iterable[int]) -> list[Message]:
        """The last list, with the echoes since."""
        own = self._lists.get(self.site)
        if own is None:
            return []
        own = replace(own, is_complete=self._is_complete(own.now), has_resumed=self._lost)
        self._lists[self.site] = own
        return [Message(other, LIST, own.to_bytes()) for other in to]

    def _all_own(self, now: int) -> TopkList:
        """A list with every item of this site."""
        items, counts = self._local
        return TopkList(now, 0, True, False, items, counts, 0)

    def _counts_of(self, items: Digests) -> Ints:
        """The rows of each item in the window of the last round."""
        own, counts = self._local
        if not len(own):
            return np.zeros(len(items), np.int64)
        places = np.minimum(np.searchsorted(own, items), len(own) - 1)
        return np.where(own[places] == items, counts[places], 0)

    def _is_complete(self, now: int) -> bool:
        return not self._lost or (self._begun is not None and now >= self._begun + self.window)
