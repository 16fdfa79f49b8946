"""PageRank of a growing graph, by random walks that new edges re-route.

Model. From each node begin `walks` walks. At each node a walk goes on with probability `damping`, to a node
that is drawn from those the node has edges to, all alike; else it ends there. Where it would go on and there
is no edge, it is lost. Of N walks, C_v end at v. With pi the PageRank of networkx and others (a node without
edges counts as one with edges to all nodes),

    pi(v) = p_v / p        p_v = E[C_v] / N,  p the probability that a walk from a random node ends

Proof. The expected visits y = (1 / n) 1 (I - damping P)^-1 fulfil y = 1 / n + damping y P, where P has rows
of zeros for nodes without edges. pi fulfils it with another constant for 1 / n, so pi is y / sum(y); and
a walk ends at v with probability 1 - damping each time it is there.

A node that had d edges gets k more: a walk that went on from it goes to one of the new ones with probability
k / (d + k), and from there on anew. Each step is then drawn from all edges alike, so after every batch the
walks are distributed as if they had been drawn in the graph as it is (Bahmani et al., section 2.2).

Guarantee. At any moment, with probability 1 - delta over the draws, lo <= pi(v) <= hi for all nodes together,
if the edges do not depend on the draws. C_v is a sum of independent draws of 0 and 1, so for q > p_v,
C_v / N >= q has probability at most exp(-N KL(q || p_v)); likewise below (Hoeffding 1963, theorem 1).

Cost: memory and first draws O(N / (1 - damping)); the d-th edge from u redraws N pi(u) /
(d (1 - damping)) walks on average, and looks at all that pass u.

Source: Bahmani, Chowdhury and Goel, "Fast incremental and personalized PageRank", VLDB 2010; the estimate is
that of Avrachenkov et al., "Monte Carlo methods in PageRank computation", SIAM J. Numer. Anal. 2007.
"""

import math
import random
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.inputs import INT64, as_column

Floats = NDArray[np.float64]
_HALVINGS = 60  # of an interval of at most 1


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks of all nodes, which add up to 1, in the order in which the nodes came.

    nodes: int64. estimate, lo, hi: float64; lo and hi are inclusive.
    """

    nodes: NDArray[np.int64]
    estimate: Floats
    lo: Floats
    hi: Floats


class PageRank:
    """The walks of a growing graph; see the module docstring.

    >>> ranks = PageRank(walks=2_000, seed=1)
    >>> ranks.add([1, 2, 3], [2, 1, 1])
    >>> [round(share, 1) for share in ranks.ranks().estimate]
    [0.5, 0.5, 0.1]

    walks: from each node, at least 1. damping: above 0 and below 1. seed: of the draws.

    Raises InvalidInput for other values.
    """

    def __init__(self, walks: int = 100, damping: float = 0.85, seed: int = 0) -> None:
        if walks < 1 or not 0 < damping < 1:
            raise InvalidInput(
                f"got walks = {walks}, damping = {damping}; expected walks >= 1 and 0 < damping < 1"
            )
        self.walks, self.damping = walks, damping
        self._random = random.Random(seed)  # noqa: S311  no secrets are drawn
        self._number: dict[int, int] = {}  # of a node; edges, targets and walks are by number
        self._edges: set[tuple[int, int]] = set()
        self._targets: list[list[int]] = []
        self._through: list[set[int]] = []  # the walks that pass a node
        self._paths: list[list[int]] = []
        self._is_lost: list[bool] = []

    def add(self, sources: ArrayLike, targets: ArrayLike) -> None:
        """Adds edges; one that is there already counts once. An edge may lead to its own node.

        sources, targets: integers, shape (k,), from -2**63 to 2**63 - 1.

        Raises InvalidInput for other arrays, which change nothing.
        """
        ends = as_column(sources, INT64), as_column(targets, INT64)
        if ends[0].shape != ends[1].shape or ends[0].ndim != 1:
            raise InvalidInput(f"got ends of shapes {ends[0].shape} and {ends[1].shape}; expected (k,) each")
        known, added = len(self._targets), dict[int, list[int]]()
        for source, target in zip(ends[0].tolist(), ends[1].tolist(), strict=True):
            edge = self._number_of(source), self._number_of(target)
            if edge not in self._edges:
                self._edges.add(edge)
                self._targets[edge[0]].append(edge[1])
                added.setdefault(edge[0], []).append(edge[1])
        for walk in sorted(set[int]().union(*(self._through[node] for node in added))):
            self._re_route(walk, added)
        for node in range(known, len(self._targets)):
            for _ in range(self.walks):
                self._paths.append([])
                self._is_lost.append(False)
                self._go_on(len(self._paths) - 1, [], node)

    def ranks(self, delta: float = 0.01) -> Ranks:
        """The ranks of all nodes. O(N / (1 - damping)).

        Raises InvalidInput unless 0 < delta < 1, and EmptySketch without edges.
        """
        if not 0 < delta < 1:
            raise InvalidInput(f"got delta = {delta}; expected 0 < delta < 1")
        n, count = len(self._targets), len(self._paths)
        if not n:
            raise EmptySketch("got a graph without edges; ranks need at least one; add edges first")
        kept = (path[-1] for path, is_lost in zip(self._paths, self._is_lost, strict=True) if not is_lost)
        ended = np.bincount(np.fromiter(kept, np.int64), minlength=n)
        bits = math.log(2 * (n + 1) / delta)  # n + 1 intervals of two ends each
        lo, hi = _interval(ended / count, bits / count)
        none_lost = all(self._targets)
        all_lo, all_hi = (1.0, 1.0) if none_lost else _interval(ended.sum() / count, bits / count)
        lo, hi = lo / all_hi, np.minimum(1.0, hi / all_lo)
        visits = np.bincount(np.fromiter(chain.from_iterable(self._paths), np.int64), minlength=n)
        estimate = np.clip(visits / visits.sum(), lo, hi)
        return Ranks(np.array([*self._number], np.int64), estimate, lo, hi)

    def _number_of(self, node: int) -> int:
        if node not in self._number:
            self._number[node] = len(self._targets)
            self._targets.append([])
            self._through.append(set())
        return self._number[node]

    def _re_route(self, walk: int, added: dict[int, list[int]]) -> None:
        """The first step that draws a new edge takes it; the rest of the walk is drawn anew."""
        path = self._paths[walk]
        for i, node in enumerate(path):
            new = added.get(node, ())
            goes_on = i + 1 < len(path) or self._is_lost[walk]
            if new and goes_on and self._random.random() * len(self._targets[node]) < len(new):
                for left in path[i + 1 :]:
                    self._through[left].discard(walk)
                self._go_on(walk, path[: i + 1], self._random.choice(new))
                return

    def _go_on(self, walk: int, path: list[int], node: int) -> None:
        """Draws the rest of a walk, from a node that it comes to after a path."""
        path.append(node)
        is_lost = False
        while not is_lost and self._random.random() < self.damping:
            targets = self._targets[path[-1]]
            is_lost = not targets
            if targets:
                path.append(self._random.choice(targets))
        self._paths[walk], self._is_lost[walk] = path, is_lost
        for each in path:
            self._through[each].add(walk)


def _interval(share: ArrayLike, bits: float) -> tuple[Floats, Floats]:
    """The least and the greatest p with KL(share || p) <= bits, by halving. Elementwise."""
    q = np.asarray(share, np.float64)
    ends = []
    for side in (0.0, 1.0):
        inside, outside = q, np.full_like(q, side)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            is_inside = _divergence(q, middle) <= bits
            inside, outside = np.where(is_inside, middle, inside), np.where(is_inside, outside, middle)
        ends.append(outside)
    return ends[0], ends[1]


def _divergence(q: Floats, p: Floats) -> Floats:
    """KL(q || p) of two draws of 0 and 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(q > 0, q * np.log(q / p), 0.0)
        return first + np.where(q < 1, (1 - q) * np.log((1 - q) / (1 - p)), 0.0)
