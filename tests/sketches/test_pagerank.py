"""PageRank by walks: against networkx on graphs that it ships, and on random ones, after every batch."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tidemark.sketches import EmptySketch, InvalidInput
from tidemark.sketches.pagerank import PageRank

Edges = list[tuple[int, int]]


def shipped(name: str) -> Edges:
    """The edges of an undirected graph of networkx in both directions, its nodes numbered."""
    import networkx as nx  # noqa: PLC0415  half a second for each process that collects

    graph: Any = getattr(nx, name)()
    return [*nx.convert_node_labels_to_integers(graph).to_directed().edges()]


def random_edges(seed: int) -> Edges:
    """A directed graph with nodes without edges out, edges to the node itself, and repeated edges."""
    rng = np.random.default_rng(seed)
    return list(zip((rng.integers(0, 30, 70) ** 2).tolist(), rng.integers(0, 900, 70).tolist(), strict=True))


GRAPHS: dict[str, Callable[[], Edges]] = {
    "karate club": lambda: shipped("karate_club_graph"),
    "les miserables": lambda: shipped("les_miserables_graph"),
    "random": lambda: random_edges(1),
    "one edge": lambda: [(7, 8)],
    "a node alone with itself": lambda: [(-5, -5)],
}


def true_ranks(edges: Edges, damping: float) -> dict[int, float]:
    """By networkx's matrix of the walk, applied until nothing changes."""
    import networkx as nx  # noqa: PLC0415

    graph = nx.DiGraph(edges)
    matrix = np.asarray(nx.google_matrix(graph, alpha=damping))
    shares = np.full(len(matrix), 1 / len(matrix))
    for _ in range(300):
        shares = shares @ matrix
    return dict(zip(graph.nodes(), shares.tolist(), strict=True))


def is_wrong(found: PageRank, edges: Edges, delta: float) -> bool:
    true, ranks = true_ranks(edges, found.damping), found.ranks(delta)
    assert sorted(ranks.nodes.tolist()) == sorted(true)
    assert np.all((ranks.lo <= ranks.estimate) & (ranks.estimate <= ranks.hi))
    shares = np.array([true[node] for node in ranks.nodes.tolist()])
    return bool(np.any((shares < ranks.lo) | (shares > ranks.hi)))


def exercise(edges: Edges, walks: int, batch: int, seed: int = 3, damping: float = 0.85) -> PageRank:
    """Adds the edges in random order, in batches of a size; looks at the ranks after each."""
    found, order = PageRank(walks, damping, seed), np.random.default_rng(seed).permutation(len(edges))
    for at in range(0, len(edges), batch):
        part = [edges[i] for i in order[at : at + batch]]
        found.add(*zip(*part, strict=True))
        before = [edges[i] for i in order[: at + batch]]
        assert not is_wrong(found, before, delta=1e-4), "a rank is outside of its bounds"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_ranks_are_within_their_bounds_after_every_batch(name: str) -> None:
    exercise(GRAPHS[name](), walks=200, batch=40)
    exercise(GRAPHS[name](), walks=40, batch=1 if len(GRAPHS[name]()) < 100 else 25, damping=0.5)


@pytest.mark.slow
def test_many_walks_give_ranks_within_a_hundredth() -> None:
    edges = GRAPHS["les miserables"]()
    found, true = exercise(edges, walks=2_000, batch=len(edges) // 2), true_ranks(edges, 0.85)
    ranks = found.ranks()
    assert np.all(ranks.hi - ranks.lo < 0.01)
    assert max(abs(true[n] - e) for n, e in zip(ranks.nodes.tolist(), ranks.estimate, strict=True)) < 1e-3


@pytest.mark.slow
def test_bounds_fail_no_more_often_than_they_say() -> None:
    edges = random_edges(2)
    wrong = 0
    for seed in range(40):
        found = PageRank(20, seed=seed)
        found.add(*zip(*edges, strict=True))
        wrong += is_wrong(found, edges, delta=0.2)
    assert wrong <= 8


def test_walks_go_along_edges_and_are_found_where_they_pass() -> None:
    edges = set(random_edges(4))
    found = exercise([*edges], walks=10, batch=7)
    nodes = [*found._number]
    for walk, path in enumerate(found._paths):
        steps = [(nodes[a], nodes[b]) for a, b in pairwise(path)]
        assert edges.issuperset(steps)
        assert all(walk in found._through[node] for node in path)
    assert sum(map(len, found._through)) == sum(len(set(path)) for path in found._paths)


def test_what_is_no_graph_is_refused() -> None:
    for options in ({"walks": 0}, {"damping": 1.0}, {"damping": float("nan")}):
        with pytest.raises(InvalidInput):
            PageRank(**options)
    graph = PageRank(10)
    with pytest.raises(EmptySketch, match="edges"):
        graph.ranks()
    for ends in (([1], [1, 2]), ([[1]], [[2]]), ([0.5], [1.0]), (["a"], ["b"])):
        with pytest.raises(InvalidInput):
            graph.add(*ends)
    graph.add([], [])
    with pytest.raises(InvalidInput, match="delta"):
        graph.ranks(1.0)


RE_ROUTE = PageRank._re_route


def _always(self: PageRank, walk: int, added: dict[int, list[int]]) -> None:
    targets, self._targets = (
        self._targets,
        [[0] if node in added else each for node, each in enumerate(self._targets)],
    )
    RE_ROUTE(self, walk, added)
    self._targets = targets


def _with_its_rest(self: PageRank, walk: int, added: dict[int, list[int]]) -> None:
    """The walk takes the new edge, and then the steps that it had taken without it."""
    before: Any = list(self._paths[walk])
    RE_ROUTE(self, walk, added)
    same = next((i for i, (a, b) in enumerate(zip(before, self._paths[walk], strict=False)) if a != b), None)
    if same is not None:
        self._paths[walk] = self._paths[walk][: same + 1] + before[same + 1 :]


def _not_those_that_were_lost(self: PageRank, walk: int, added: dict[int, list[int]]) -> None:
    if not self._is_lost[walk]:
        RE_ROUTE(self, walk, added)


MISTAKES = {
    "walks are not re-routed": lambda *_: None,
    "every walk takes the new edge": _always,
    "the rest of a walk stays": _with_its_rest,
    "a walk that was lost stays lost": _not_those_that_were_lost,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageRank, "_re_route", MISTAKES[mistake])
    with pytest.raises(AssertionError):
        exercise(GRAPHS["les miserables"](), walks=400, batch=100)
