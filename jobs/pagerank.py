"""The command `tidemark pagerank`: ranks of the nodes of a graph whose edges are the rows of a warehouse."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

import numpy as np

from tidemark import query
from tidemark.jobs.ask.watch import repetitions
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.progress import status_when_slow
from tidemark.query.answers.rendering import text_of, text_table
from tidemark.query.reading.sql_text import quoted
from tidemark.sketches.errors import EmptySketch, InvalidInput
from tidemark.sketches.pagerank import PageRank
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import EmptyWindow, InputError

DELTA = 0.01


def run(given: argparse.Namespace) -> int:
    """Shows the ranks, once or as edges arrive."""
    if given.top < 1 or (given.every is not None and not given.every > 0):
        raise InputError(f"--top and --every must be above 0, got {given.top} and {given.every}.")
    wh = query.open(given.warehouse, given.storage_options)
    graph = EdgeTable(
        wh, given.source, given.target, walks=given.walks, damping=given.damping, seed=given.seed
    )
    with suppress(KeyboardInterrupt):
        for _ in repetitions(given.every or 0.0, given.times if given.every else 1):
            with status_when_slow("walking"):
                ranks = graph.ranks()[: given.top]
            if given.json:
                document = {"nodes": len(graph.nodes), "edges": graph.edges, "confidence": 1 - DELTA}
                print(json_text({**document, "ranks": ranks}), flush=True)
            else:
                rows = [
                    [text_of(row["node"]), *(f"{row[name]:.5f}" for name in ("rank", "lo", "hi"))]
                    for row in ranks
                ]
                print(text_table(("node", "rank", "lo", "hi"), rows))
                print(
                    f"{len(graph.nodes):,} nodes, {graph.edges:,} edges, confidence {1 - DELTA:g}", flush=True
                )
    return DONE


class EdgeTable:
    """The graph of a warehouse: an edge for each pair of values that two columns have in a row.

    Raises InputError for columns that there are not, and for walks, damping or a seed that cannot be.
    """

    def __init__(self, wh: query.Warehouse, source: str, target: str, **walks: Any) -> None:
        try:
            self._ranks = PageRank(**walks)
        except InvalidInput as error:
            raise InputError(str(error)) from error
        self._wh = wh
        a, b = quoted(source), quoted(target)
        self._edges = (
            f"SELECT DISTINCT {a} AS a, {b} AS b FROM events WHERE {a} IS NOT NULL AND {b} IS NOT NULL "
            "ORDER BY ALL"
        )
        self._numbers: dict[Any, int] = {}
        self.edges = 0
        """How many there were when they were looked for last."""

    @property
    def nodes(self) -> list[Any]:
        """The nodes, in the order in which they were found."""
        return [*self._numbers]

    def ranks(self) -> list[dict[str, Any]]:
        """The nodes with their ranks and bounds, the highest first, with the edges that there are now.

        Raises EmptyWindow if there are none.
        """
        rows = self._wh.sql(self._edges).fetchall()
        ends = [[self._numbers.setdefault(row[i], len(self._numbers)) for row in rows] for i in (0, 1)]
        self.edges = len(rows)
        self._ranks.add(*ends)
        try:
            found = self._ranks.ranks(DELTA)
        except EmptySketch as error:
            raise EmptyWindow(
                "the warehouse has no rows with both ends of an edge. Load some first."
            ) from error
        nodes = self.nodes
        return [
            {"node": nodes[found.nodes[i]], "rank": found.estimate[i], "lo": found.lo[i], "hi": found.hi[i]}
            for i in np.argsort(-found.estimate, kind="stable").tolist()
        ]
