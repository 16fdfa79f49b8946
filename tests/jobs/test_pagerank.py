"""`tidemark pagerank`: the graph of a warehouse's rows, as edges arrive."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.jobs.said import tidemark
from tests.sketches.test_pagerank import true_ranks
from tidemark import query, stream, warehouse
from tidemark.jobs.pagerank import EdgeTable


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]]]:
    """Les Misérables: who is in a chapter with whom, in both directions; each edge twice, and NULLs."""
    at = tmp_path_factory.mktemp("crawl") / "w"
    import networkx as nx  # noqa: PLC0415  half a second for each process that collects

    edges = [*nx.les_miserables_graph().to_directed().edges()]
    columns = [[*(a for a, _ in edges), None], [*(b for _, b in edges), "Nobody"], [1.0] * (len(edges) + 1)]
    rows = pa.table(dict(zip(("page", "link.to", "x"), columns, strict=True)))
    warehouse.create(None, at, "x", schema=rows.schema)
    warehouse.load(None, at, rows, batch="a")
    stream.append(None, at, rows.slice(0, 50), source="s", batch=0)
    return at, edges


def test_ranks_are_those_of_networkx_as_edges_arrive(crawl: tuple[Path, list[tuple[str, str]]]) -> None:
    at, edges = crawl
    graph = EdgeTable(query.open(at), "page", "link.to", walks=300, seed=1)
    for batch, more in ((0, []), (1, [("Valjean", "Nobody"), ("Nobody", "Cosette")])):
        if more:
            columns = dict(zip(("page", "link.to"), zip(*more, strict=True), strict=True))
            rows = pa.table({**{name: list(ends) for name, ends in columns.items()}, "x": [1.0] * len(more)})
            stream.append(None, at, rows, source="t", batch=batch)
        found = graph.ranks()
        numbers = {node: i for i, node in enumerate(graph.nodes)}
        true = true_ranks([(numbers[a], numbers[b]) for a, b in [*edges, *more]], 0.85)
        assert graph.edges == len(edges) + len(more)
        assert len(found) == len(true)
        assert all(row["lo"] <= true[numbers[row["node"]]] <= row["hi"] for row in found)
        assert [row["node"] for row in found[:2]] == ["Valjean", "Myriel"]


def test_the_command_shows_the_highest_ranks(
    crawl: tuple[Path, list[tuple[str, str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    at, _ = crawl
    said = tidemark(capsys, "pagerank", "page", "link.to", "-w", at, "--top", 3)
    assert said.code == 0
    assert said.out.splitlines()[2].split()[0] == "Valjean"
    assert "confidence 0.99" in said.out
    twice = ["--every", "0.01", "--times", 2, "--json"]
    said = tidemark(capsys, "pagerank", "page", "link.to", "-w", at, *twice)
    first, second = (json.loads(line) for line in said.out.splitlines())
    assert first == second
    assert len(first["ranks"]) == 10
    for wrong in (["pagerank", "nothing", "page"], ["pagerank", "page", "link.to", "--walks", 0]):
        said = tidemark(capsys, *wrong, "-w", at)
        assert said.code == 2
        assert said.err.count("\n") == 1


def test_a_warehouse_without_edges_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warehouse.create(
        None, tmp_path / "w", "x", schema=pa.schema({"a": pa.string(), "b": pa.string(), "x": pa.float64()})
    )
    said = tidemark(capsys, "pagerank", "a", "b", "-w", tmp_path / "w")
    assert (said.code, "no rows" in said.err) == (2, True)
