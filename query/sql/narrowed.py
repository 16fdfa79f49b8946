"""Statements whose conditions say which rows of `events` they select: indexes find these rows.

Method. DuckDB parses the statement. In each SELECT whose FROM has one of the views of rows, the condition of
WHERE is read (`query/scans/sought.py`). If it says something of a column with an index, the name of the view
is replaced in the text by a function, whose argument is what the condition says. DuckDB calls it each time
that the statement is run: it gives SQL of the files, and of their rows, that can have selected rows at that
moment. The condition stays where it is and is asked of all these rows.

A WHERE is asked of rows after joins, so the rows that it does not select may be left out before, if a row
that is left out changes no other row of the join: not so of ASOF and positional joins. A sample of a table is
of all of its rows. A name that a CTE has is not the view. The new text is parsed again, and its tree must be
the first one but for the replaced names; else the statement stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.query.reading.sql_text import literal, quoted
from tidemark.query.scans.sought import Node, Sought, columns_of, sought
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.snapshots.system_tables import PARTS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VIEWS = {EVENTS, *PARTS}
_POSITIONS = {"query_location", "query_location_length"}
_JOINS = {"INNER", "LEFT", "RIGHT", "OUTER", "FULL"}


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A view of rows in a statement, and what its WHERE says.

    part   the name of the view
    alias  under which the statement names its columns
    asked  what its WHERE says of columns with an index
    start, stop
           the bytes of the statement that name it, the end exclusive
    """

    part: str
    alias: str
    asked: Sought
    start: int
    stop: int
    node: Node


def function_name(part: str) -> str:
    """The name of the function that takes the place of a view."""
    return f"tidemark rows of {part}"


def narrowed_parts(
    connection: DuckDBPyConnection, statement: str, params: Any, columns: Sequence[str]
) -> list[Narrowed]:
    """The views of rows whose WHERE says something of these columns, in the order of the text."""
    tree = _parsed(connection, statement)
    if tree is None:
        return []
    given = _by_identifier(params)
    found = [
        one
        for select in _selects(tree)
        for one in _narrowed(select, {name.lower(): name for name in columns}, given)
    ]
    shadows = {str(entry.get("key", "")).lower() for entry in _ctes(tree)}
    return [] if shadows & {one.part for one in found} else sorted(found, key=lambda one: one.start)


def narrowed_statement(
    connection: DuckDBPyConnection, statement: str, parts: Sequence[Narrowed]
) -> str | None:
    """The statement with functions in the place of these views; None if it cannot be written so."""
    content, tree = statement.encode(), _parsed(connection, statement)
    for one in reversed(parts):
        content = content[: one.start] + _call(one).encode() + content[one.stop :]
    text = content.decode(errors="replace")
    wanted = {(one.part, one.alias, one.start): _call(one) for one in parts}
    expected = _replaced(connection, tree, wanted)
    written = _parsed(connection, text)
    return text if written is not None and _plain(written) == _plain(expected) else None


def _call(one: Narrowed) -> str:
    asked = literal(json.dumps(one.asked))
    return f" {quoted(function_name(one.part))}({asked}) AS {quoted(one.alias)} "


def _replaced(connection: DuckDBPyConnection, node: Any, wanted: Mapping[Any, str]) -> Any:
    """The tree with the nodes of calls in the place of those of views."""
    if isinstance(node, list):
        return [_replaced(connection, item, wanted) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "BASE_TABLE":
        name, alias = str(node["table_name"]), str(node["alias"] or node["table_name"])
        call = wanted.get((name.lower(), alias, node.get("query_location")))
        tree = None if call is None else _parsed(connection, f"SELECT * FROM {call}")
        return node if tree is None else tree["statements"][0]["node"]["from_table"]
    return {field: _replaced(connection, value, wanted) for field, value in node.items()}


def _parsed(connection: DuckDBPyConnection, statement: str) -> Any:
    """The parse tree; None if DuckDB does not give it."""
    ((text,),) = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchall()
    try:
        tree = json.loads(text)
    except RecursionError:
        return None
    return None if tree.get("error") or len(tree["statements"]) != 1 else tree


def _plain(node: Any) -> Any:
    """The tree without the positions in the text."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {field: _plain(value) for field, value in node.items() if field not in _POSITIONS}


def _selects(node: Any) -> Iterator[Node]:
    """Each SELECT of the tree, also those inside others."""
    if isinstance(node, list):
        for item in node:
            yield from _selects(item)
    elif isinstance(node, dict):
        if node.get("type") == "SELECT_NODE":
            yield node
        for value in node.values():
            yield from _selects(value)


def _ctes(node: Any) -> Iterator[Node]:
    if isinstance(node, list):
        for item in node:
            yield from _ctes(item)
    elif isinstance(node, dict):
        yield from (node.get("cte_map") or {}).get("map", ())
        if "cte_name" in node or "ctename" in node:  # of a recursive one
            yield {"key": node.get("cte_name") or node.get("ctename")}
        for value in node.values():
            yield from _ctes(value)


def _narrowed(select: Node, columns: Mapping[str, str], params: Mapping[str, Any]) -> Iterator[Narrowed]:
    """The views in the FROM of a SELECT that its WHERE says something of."""
    where, table = select.get("where_clause"), select.get("from_table")
    tables = None if where is None else _tables(table)
    for one in tables or ():
        part, alias = str(one["table_name"]).lower(), str(one["alias"] or one["table_name"])
        if part not in _VIEWS or not _is_plain_view(one):
            continue
        alone = len(tables or ()) == 1 and one is table

        def column_of(names: Sequence[str], alias: str = alias, alone: bool = alone) -> str | None:
            *qualifier, name = names
            is_own = [q.lower() for q in qualifier] == [alias.lower()] if qualifier else alone
            return columns.get(name.lower()) if is_own else None

        asked = sought(where, column_of, params)
        if asked is not None and columns_of(asked):
            start = int(one["query_location"])
            yield Narrowed(part, alias, asked, start, start + int(one["query_location_length"]), one)


def _is_plain_view(table: Node) -> bool:
    """Whether a table is named without a schema, a sample, a moment, or names of its columns."""
    others = ("schema_name", "catalog_name", "sample", "at_clause", "column_name_alias")
    return not any(table.get(field) for field in others) and isinstance(table.get("query_location"), int)


def _tables(node: Any) -> list[Node] | None:
    """The tables of a FROM whose rows a WHERE may leave out before; None if one of its joins forbids it."""
    kind = node.get("type") if isinstance(node, dict) else None
    if kind == "BASE_TABLE":
        return [node]
    if kind != "JOIN":
        return []
    if node.get("join_type") not in _JOINS or node.get("ref_type") not in {"REGULAR", "CROSS"}:
        return None
    sides = [_tables(node[side]) for side in ("left", "right")]
    return None if None in sides else [one for side in sides for one in side or ()]


def _by_identifier(params: Any) -> dict[str, Any]:
    """The values of parameters by their identifiers: names, or numbers from 1."""
    if isinstance(params, Mapping):
        return {str(name): value for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return {str(number): value for number, value in enumerate(params, 1)}
    return {}
