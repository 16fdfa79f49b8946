"""Which sums of whole numbers over sites reach their thresholds, known at all times with few messages.

Model. Site i of n holds a vector v_i of whole numbers, which rise and fall. The coordinator knows for each
place k of the vectors whether the sum over all sites of v_ik is at least c_k. Let the sign s_k be 1 if so,
else -1, and w_ik = s_k v_ik. Then the sum of the w_ik is at least d_k, which is c_k if s_k is 1, else 1 -
c_k. Each site has a number z_ik, its zone is w_ik >= z_ik, and the z_ik of all sites add up to d_k. While
every site is inside of its zones, all is as the coordinator knows it, and nothing is sent. Of all safe zones
for a linear condition these are the largest: each is a half space, and no room is left between them.

    1  a site outside of a zone reports its vector
    2  1, 2, 4 ... further sites are asked for theirs, until those that told have half of the room that as
       many sites had when all zones were made; they get zones that share it, and the sum of these stays
    3  if all were asked, the sums are known, and all zones are made anew
    4  if since then more messages were sent than with a report at each look of a site, zones do not pay:
       each site then *follows*, and reports each change. Once the sums are far from the thresholds, compared
       with the changes, there are zones again; if these do not pay soon after, the sites follow twice as long
       the next time

Guarantee: while no message is under way, and all sites are there, the signs are right. Proof: the sum of the
w_ik is at least the sum of the z_ik, which is d_k; and while sites follow, all vectors are known. Numbers
have no limit, so there is no rounding.

A site that does not know its vector reports why. It has no zones then, so all zones are made anew once it
knows the vector. A place of the vectors that is not watched has the sign 0, and no zone; once it is watched,
all zones are made anew, too.

Source: Keralapura, Cormode and Ramamirtham, "Communication-efficient distributed monitoring of thresholded
counts", SIGMOD 2006; Keren et al. and Papapetrou et al., as in zones.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tidemark.sketches.errors import CorruptSketch

FOLLOWED, LONGEST = 4, 4_096  # reports, for each site at first and at most, before zones are tried again
FAR = 4  # changes of each site for which there must be room then
Zone = tuple[int, int]
"""A sign s, 0 for no zone, and the least of s v."""


class LinearSite:
    """A site: its zones, none if it follows, and whether it has to report."""

    def __init__(self) -> None:
        self._zones: list[Zone] | None = None
        self._reported: list[int] = []
        self._has_problem = self._is_outside = False
        self._is_asked = self.is_due = True
        """Whether the coordinator waits for a report; whether it has said something since the last look."""

    @property
    def needs_all(self) -> bool:
        """Whether intervals are not enough at the next look: the numbers themselves may be reported."""
        return self._is_asked or self._has_problem

    def ask(self) -> None:
        """The coordinator asks for a report."""
        self._is_asked = self.is_due = True

    def take(self, zones: Any) -> None:
        """Takes new zones, as the coordinator sent them. CorruptSketch if these are no zones."""
        is_right = isinstance(zones, list) and all(
            isinstance(one, list) and len(one) == 2 and one[0] in (1, -1, 0) and _is_whole(one[1])
            for one in zones
        )
        if not is_right:
            raise CorruptSketch(f"got the zones {zones!r:.80}; expected pairs of a sign and a whole number")
        self._zones, self._is_outside = [(sign, least) for sign, least in zones], False
        self.is_due = True

    def is_inside(self, places: Iterable[int], low: int, high: int) -> bool:
        """Whether numbers from `low` to `high` are inside of the zones of places; without zones, yes."""
        zones = self._zones
        if zones == []:
            return all(low == high == self._reported[place] for place in places)
        return zones is None or all(
            min(sign * low, sign * high) >= least for sign, least in (zones[place] for place in places)
        )

    def must_report(self, values: Sequence[int] | str) -> bool:
        """Whether to report the vector, or why there is none; then it counts as reported."""
        if isinstance(values, str):
            must = self._is_asked or not self._has_problem
            self._has_problem, self._zones = True, None
        else:
            outside = not all(self.is_inside([place], one, one) for place, one in enumerate(values))
            must = self._is_asked or self._has_problem or (outside and not self._is_outside)
            self._has_problem, self._is_outside = False, outside and self._zones != []
            if must:
                self._reported = list(values)
        self._is_asked = self.is_due = False
        return must


class LinearCoordinator:
    """The coordinator of one vector of `sites` sites.

    thresholds: the c_k. ask, give: send a site the question, or its zones. At first all places are watched.
    """

    def __init__(
        self,
        sites: int,
        thresholds: Sequence[int],
        ask: Callable[[int], None],
        give: Callable[[int, list[Zone]], None],
    ) -> None:
        self._sites, self._thresholds, self._ask, self._give = sites, list(thresholds), ask, give
        self._zones: dict[int, list[Zone]] = {}
        self._told: dict[int, Sequence[int]] = {}
        self._asked: set[int] = set()
        self._rooms: list[int] = []
        self._signs: list[int] = [0] * len(thresholds)
        self._watched = [True] * len(thresholds)
        self._next = self._spent = self._followed = 0
        self._looks: dict[int, int] = {}
        self._looked: dict[int, int] = {}
        self._values: dict[int, Sequence[int]] = {}  # of sites that follow; else empty
        self._steps: list[int] = []
        self._wait = FOLLOWED * sites
        self.problems: dict[int, str] = {}
        """Why sites cannot say their vectors."""
        self.reached: list[bool] = []
        """Whether each sum that is watched reaches its threshold."""
        self.sums: list[int] = []
        """The sums when all were known last."""
        self.phases = {"balanced": 0, "all": 0, "followed": 0}
        """How often some sites got other zones, all were known, and sites began to follow."""

    @property
    def is_known(self) -> bool:
        """Whether all sites have zones, so that `reached` is certain while no message is under way."""
        return len(self._zones) == self._sites and not self._lacks_zones

    @property
    def _lacks_zones(self) -> bool:
        """Whether a place that is watched has no zones."""
        return any(one and not sign for one, sign in zip(self._watched, self._signs, strict=True))

    def watch(self, places: Collection[int]) -> None:
        """Only these places count from now on; `is_known` once they have zones."""
        before, self._watched = self._watched, [place in places for place in range(len(self._thresholds))]
        if (
            self._watched != before
            and len(self._zones) == self._sites
            and not self._asked
            and self._lacks_zones
        ):
            self._go_on()

    def joined(self, site: int) -> None:
        """A site was started, or started again: it knows nothing, and reports by itself."""
        self._zones.pop(site, None)
        self._told.pop(site, None)
        self.problems.pop(site, None)
        self._asked.discard(site)

    def receive(self, site: int, values: Any, looks: int = 0) -> None:
        """Takes a site's report: its vector, or as text why it has none. CorruptSketch for anything else.

        looks: how often the site looked so far.
        """
        if not isinstance(values, str) and not (
            isinstance(values, list) and len(values) == len(self._thresholds) and all(map(_is_whole, values))
        ):
            raise CorruptSketch(
                f"got the report {values!r:.80}; expected {len(self._thresholds)} whole numbers: run one "
                "release of tidemark at all places"
            )
        self._asked.discard(site)
        self._looks[site] = looks
        if isinstance(values, str):
            self.joined(site)
            self.problems[site] = values
            return
        self.problems.pop(site, None)
        if self._values and self.is_known and not self._told and not self._asked:
            self._follow(site, values)
            return
        self._spent += 1
        self._told[site] = values
        if not self._asked:
            self._go_on()

    def _go_on(self) -> None:
        """All sites that were asked have told: they are enough, or more are asked, or all get new zones."""
        told = self._told
        if len(told) == self._sites:
            self._begin_anew()
        elif not self.is_known:
            self._ask_more(self._sites)  # those without zones report by themselves
        elif all(
            2 * slack >= room * len(told) for slack, room in zip(self._slacks(), self._rooms, strict=True)
        ):
            self.phases["balanced"] += 1
            self._share(self._slacks())
        else:
            self._ask_more(len(told))

    def _ask_more(self, most: int) -> None:
        """Asks so many further sites, in turn."""
        order = [(self._next + step) % self._sites for step in range(self._sites)]
        chosen = [site for site in order if site in self._zones and site not in self._told][:most]
        if chosen:
            self._next = chosen[-1] + 1
        self._asked.update(chosen)
        self._spent += len(chosen)
        for site in chosen:
            self._ask(site)

    def _slacks(self) -> list[int]:
        """How far the sites that told are inside of their zones, together, at each place."""
        return [
            sum(sign * values[place] - self._zones[site][place][1] for site, values in self._told.items())
            for place, sign in enumerate(self._signs)
        ]

    def _begin_anew(self) -> None:
        """All vectors are known: zones for all, or all follow where zones did not pay."""
        looks = sum(max(0, self._looks[site] - self._looked.get(site, 0)) for site in self._told)
        if not self.is_known:  # a site, or a place, has no zones: that says nothing about those of others
            self._zones_for_all(self._told)
            return
        if self._spent <= looks:
            self._wait = FOLLOWED * self._sites
            self._zones_for_all(self._told)
            return
        self.phases["followed"] += 1
        self._values, self._followed, self._steps = dict(self._told), 0, [0] * len(self._thresholds)
        self._know(self._values)
        self._told.clear()
        for site in self._values:
            self._zones[site] = []
            self._give(site, [])

    def _know(self, vectors: Mapping[int, Sequence[int]]) -> None:
        """The sums of all vectors, and the signs of all places."""
        self.sums = [sum(column) for column in zip(*vectors.values(), strict=True)]
        self.reached = [one >= c for one, c in zip(self.sums, self._thresholds, strict=True)]
        self._signs = [1 if one else -1 for one in self.reached]

    def _follow(self, site: int, values: Sequence[int]) -> None:
        """Takes the report of a site that follows; zones for all if there is room for such changes."""
        self._followed += 1
        changes = [abs(one - old) for one, old in zip(values, self._values[site], strict=True)]
        self._steps = [max(pair) for pair in zip(self._steps, changes, strict=True)]
        self._values[site] = values
        self._know(self._values)
        if self._followed < self._wait:
            return
        far = [
            abs(one - c) >= FAR * self._sites * step
            for one, c, step in zip(self.sums, self._thresholds, self._steps, strict=True)
        ]
        self._followed, self._steps = 0, [0] * len(self._thresholds)
        if all(is_far or not watched for is_far, watched in zip(far, self._watched, strict=True)):
            self._wait = min(2 * self._wait, LONGEST)
            self._zones_for_all(self._values)

    def _zones_for_all(self, vectors: Mapping[int, Sequence[int]]) -> None:
        self.phases["all"] += 1
        self._know(vectors)
        self._signs = [sign if one else 0 for sign, one in zip(self._signs, self._watched, strict=True)]
        slacks = [
            sign * (one - c) - (sign < 0)
            for one, c, sign in zip(self.sums, self._thresholds, self._signs, strict=True)
        ]
        self._rooms = [slack // self._sites for slack in slacks]
        self._told, self._values = dict(vectors), {}
        self._looked, self._spent = dict(self._looks), 0
        self._share(slacks)

    def _share(self, slacks: Sequence[int]) -> None:
        """Gives the sites that told zones that share the slacks equally; the first get the remainder."""
        told = dict(self._told)
        self._told.clear()
        for number, (site, values) in enumerate(told.items()):
            self._zones[site] = [
                (sign, sign * value - _part(slack, len(told), number))
                for value, slack, sign in zip(values, slacks, self._signs, strict=True)
            ]
        self._spent += len(told)
        for site in told:
            self._give(site, self._zones[site])


def vector_text(values: Any) -> bytes:
    """Zones or a report as bytes."""
    return json.dumps(values, separators=(",", ":")).encode()


def _part(whole: int, parts: int, number: int) -> int:
    """The part with this number of a whole number in `parts` parts, no two of which differ by more than 1."""
    return whole // parts + (number < whole % parts)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
