"""TOPiCo as printed (algorithm 1), to show what its errors cost; sketches/topk has the corrected one."""

from __future__ import annotations

from collections.abc import Mapping

Counted = list[tuple[int, int]]  # (item, count), by falling count, the smaller item first


def ordered(counts: Mapping[int, int]) -> Counted:
    """The items by falling count, the smaller item first."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


class PrintedSite:
    """One site; `told` of every site goes to `take` of every site, itself included.

    echoes_all: what it echoes of others are all items, as printed, or only their first ones.
    computes_all: whether a new list makes all sums new, or only those of its items, as printed.
    keeps_l: whether it keeps l items, the length of its own list, as line 13 has it, or k.
    """

    def __init__(
        self,
        sites: int,
        k: int,
        *,
        echoes_all: bool = True,
        computes_all: bool = False,
        keeps_l: bool = False,
    ) -> None:
        self.sites, self.k, self.keeps_l, self.length = sites, k, keeps_l, k
        self.echoes_all, self.computes_all = echoes_all, computes_all
        self.lists: dict[int, dict[int, int]] = {}
        self.firsts: dict[int, set[int]] = {}
        self.best: Counted = []

    def told(self, local: Mapping[int, int]) -> tuple[dict[int, int], set[int]]:
        """Lines 14 to 30: (the list, its first items)."""
        order = ordered(local)
        full = len(self.best) >= self.k
        least = self.best[self.k - 1][1] if full else (float("inf") if self.computes_all else 0)
        length = min(self.k, len(order))
        while length < len(order) and order[length][1] * self.sites >= least:
            length += 1
        self.length = length
        first = {item for item, _ in order[:length]}
        others = self.lists.values() if self.echoes_all else self.firsts.values()
        echoed = {item for one in others for item in one}
        return {item: local[item] for item in first | (echoed & local.keys())}, first

    def take(self, sender: int, told: Mapping[int, int], first: set[int]) -> None:
        """Lines 6 to 13."""
        self.lists[sender], self.firsts[sender] = dict(told), first
        best = {} if self.computes_all else dict(self.best)
        renewed = {item for one in self.lists.values() for item in one} if self.computes_all else set(told)
        for item in renewed:
            best[item] = sum(one.get(item, 0) for one in self.lists.values())
        self.best = ordered(best)[: self.length if self.keeps_l else self.k]
