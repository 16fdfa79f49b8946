"""The public surface that DESIGN.md lays out is there, with these very words."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tests.docs.pages import ROOT, blocks
from tidemark import query, stream, warehouse
from tidemark.query.plots.plots import Plots

SURFACE: dict[str, Any] = {
    "query": query,
    "stream": stream,
    "warehouse": warehouse,
    "wh": query.Warehouse,
    "wh.plot": Plots,
}


def wrong_calls(source: str) -> list[str]:
    """The calls of the source that the packages do not have, or not with these keywords."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        owner, _, name = ast.unparse(call.func).rpartition(".")
        if owner in SURFACE:
            thing = getattr(SURFACE[owner], name, None)
            takes = inspect.signature(thing).parameters if thing else {}
            free = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
            if thing is None or not (free or {one.arg for one in call.keywords} <= takes.keys()):
                found.append(ast.unparse(call))
    return found


def test_every_call_of_the_design_is_there() -> None:
    surface = "\n".join(block.text for block in blocks(ROOT / "DESIGN.md") if block.kind == "python")
    assert surface.count("wh.") > 10
    assert wrong_calls(surface) == []


def test_a_call_that_is_not_there_is_caught() -> None:
    assert (
        len(wrong_calls("wh.quantiles(0.5)\nwh.rank(1, latest='7d')\nwarehouse.loading()\nwh.plot.pie()"))
        == 4
    )
