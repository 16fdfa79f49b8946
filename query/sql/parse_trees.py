"""Parse trees of statements, as DuckDB's json_serialize_sql gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Node: TypeAlias = dict[str, Any]


def nodes(tree: Any) -> Iterator[Node]:
    """All nodes of a tree, each before those inside it."""
    children: Iterable[Any] = ()
    if isinstance(tree, dict):
        yield tree
        children = tree.values()
    elif isinstance(tree, list):
        children = tree
    for child in children:
        yield from nodes(child)
