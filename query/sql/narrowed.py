"""Statements whose conditions say which rows of `events` they select: indexes find these rows.

Method. DuckDB parses the statement. In each SELECT whose FROM has one of the views of rows, the condition of
WHERE is read (`query/scans/sought.py`). If the condition is about a column with an index, the name of the
view is replaced in the text by a function, whose argument is the parsed condition. DuckDB calls it each time
that the statement is run: it gives SQL of the files, and of their rows, that can have selected rows at that
moment. The condition stays where it is and is asked of all these rows.

A WHERE is asked after the joins. Rows that it does not select may be left out before a join in which no row
depends on whether another one is there. In ASOF and positional joins, and in samples of a table, rows do: the
name of the view stays there. It also stays where a CTE has the same name. Only the name of the view is
replaced, with or without its alias; a statement that has other text at this place stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeAlias

from tidemark.query.reading.sql_text import literal, quoted
from tidemark.query.scans.sought import Sought, columns_of, sought
from tidemark.query.sql.parse_trees import Node, nodes, parsed, written
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.snapshots.system_tables import PARTS

_JOINS = {"INNER", "LEFT", "RIGHT", "OUTER", "FULL"}
_OF_MORE = {"SUBQUERY", "PARAMETER", "WINDOW", "LAMBDA", "LAMBDA_REF"}  # no conditions on columns alone
_READ_ANY = {"STAR", "POSITIONAL_REFERENCE", "PIVOT", "SHOW_REF", "COLUMN_DATA", "DELIM_GET"}  # any columns


@dataclass(frozen=True, slots=True)
class RowsView:
    """A view of rows of a warehouse.

    warehouse  its name, "" if it is asked alone
    part       "events", "history" or "live"
    indexed    the columns with an index
    columns    all columns
    """

    warehouse: str
    part: str
    indexed: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def function(self) -> str:
        """The name of the function that takes the place of the view."""
        return function_name(f"{self.warehouse}_{self.part}" if self.warehouse else self.part)

    def has(self, name: str) -> bool:
        """Whether it has a column of this name, in any case."""
        return any(name.lower() == one.lower() for one in self.columns)


Views: TypeAlias = Mapping[str, RowsView]  # by their names in lower case


def rows_views(warehouse: str, indexed: Sequence[str], columns: Sequence[str]) -> dict[str, RowsView]:
    """The views of a warehouse; of one that has a name, the name itself is a view of its rows, too."""
    views = {part: RowsView(warehouse, part, tuple(indexed), tuple(columns)) for part in (EVENTS, *PARTS)}
    if not warehouse:
        return views
    return {f"{warehouse}_{part}".lower(): one for part, one in views.items()} | {
        warehouse.lower(): views[EVENTS]
    }


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A view of rows in a statement, and the ranges that its WHERE allows.

    name   the name of the view there, in lower case
    view   the view
    alias  the name by which the statement qualifies its columns
    asked  the ranges that its WHERE allows in columns with an index
    needed the columns that the statement may read of it; None: any
    where  the WHERE in the parse tree if it is of this view alone, and depends on its rows alone; else None
    start, stop
           the bytes of the statement that name it, the end exclusive
    """

    name: str
    view: RowsView
    alias: str
    asked: Sought
    needed: tuple[str, ...] | None
    where: Node | None
    start: int
    stop: int

    @property
    def told(self) -> str:
        """The ranges that its WHERE allows, and the columns that are read, in the function's form."""
        return json.dumps({"where": self.asked, "needed": self.needed})

    @property
    def call(self) -> str:
        """SQL of the function in the place of the view."""
        return f"{quoted(self.view.function)}({literal(self.told)})"

    def is_named_by(self, text: str) -> bool:
        """Whether a text is the name of the view, and nothing else but its alias."""
        name, alias = (rf'(?:{re.escape(one)}|"{re.escape(one)}")' for one in (self.name, self.alias))
        return re.fullmatch(rf"\s*{name}(?:\s+(?:AS\s+)?{alias})?\s*", text, re.IGNORECASE) is not None


def function_name(view: str) -> str:
    """The name of the function that takes the place of a view of rows."""
    return f"tidemark rows of {view}"


def narrowed_views(statement: str, params: Any, views: Views) -> list[Narrowed]:
    """The views of rows whose WHERE allows only ranges in columns with an index, in the order of the text."""
    tree = parsed(statement)
    if tree is None:
        return []
    given, every = _by_identifier(params), [*nodes(tree)]
    selects = (one for one in every if one.get("type") == "SELECT_NODE")
    parts = [one for select in selects for one in _narrowed(select, views, given)]
    if _ctes(every) & {one.name for one in parts}:
        return []
    reads = _Read.of(every)
    found = [replace(one, needed=reads.of_view(one.alias, one.view.columns)) for one in parts]
    return sorted(found, key=lambda one: one.start)


def with_rows(
    statement: str, parts: Sequence[Narrowed], rows_of: Callable[[Narrowed], str] = attrgetter("call")
) -> str | None:
    """The statement with other SQL in the place of its `narrowed_views`; None if it cannot be written so.

    rows_of: the SQL of a part, by default its function.
    """
    content = statement.encode()
    for one in reversed(parts):
        if not one.is_named_by(content[one.start : one.stop].decode(errors="replace")):
            return None
        rows = f" {rows_of(one)} AS {quoted(one.alias)} "
        content = content[: one.start] + rows.encode() + content[one.stop :]
    return content.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class _Read:
    """The names of columns that a statement has, in lower case, wherever they stand.

    alone: the names that stand without the name of a table. is_known: whether the statement reads no other
    columns.
    """

    names: frozenset[str]
    alone: frozenset[str]
    is_known: bool

    @classmethod
    def of(cls, every: Iterable[Node]) -> _Read:
        """The names in the nodes of a parse tree."""
        names, alone, is_known = set[str](), set[str](), True
        for node in every:
            if node.get("class") == "COLUMN_REF":
                own = [str(name).lower() for name in node["column_names"]]
                names.update(own)
                alone.update(own if len(own) == 1 else ())
            names.update(str(name).lower() for name in node.get("using_columns") or ())
            kinds = {str(node.get("class")), str(node.get("type"))}  # the type of a constant is an object
            is_known = is_known and _READ_ANY.isdisjoint(kinds)
        return cls(frozenset(names), frozenset(alone), is_known)

    def of_view(self, alias: str, columns: Sequence[str]) -> tuple[str, ...] | None:
        """The names of columns of a view with these columns; None: any. Its alias alone is the whole row."""
        if not self.is_known or alias.lower() in self.alone:
            return None
        return tuple(name for name in columns if name.lower() in self.names)


def _ctes(every: Iterable[Node]) -> set[str]:
    """The names of common table expressions, in lower case, which hide those of views."""
    names = set[str]()
    for node in every:
        entries = (node.get("cte_map") or {}).get("map", ())
        names.update(str(entry.get("key", "")).lower() for entry in entries)
        if name := node.get("cte_name") or node.get("ctename"):  # of a recursive one
            names.add(str(name).lower())
    return names


def _narrowed(select: Node, views: Views, params: Mapping[str, Any]) -> Iterator[Narrowed]:
    """The views in the FROM of a SELECT in whose columns the WHERE allows only ranges."""
    where, table = select.get("where_clause"), select.get("from_table")
    tables = (None if where is None else _tables(table)) or []
    known = [views.get(str(one["table_name"]).lower()) for one in tables if _is_plain_view(one)]
    for one in tables:
        name, alias = str(one["table_name"]).lower(), str(one["alias"] or one["table_name"])
        view = views.get(name)
        if view is None or not view.indexed or not _is_plain_view(one):
            continue
        is_told = one is table or (_are_all(table) and len(known) == len(tables) and None not in known)
        others = [other for other, own in zip(known, tables, strict=False) if own is not one]

        def column_of(
            names: Sequence[str],
            alias: str = alias,
            view: RowsView = view,
            others: Sequence[RowsView | None] = others,
            is_told: bool = is_told,
        ) -> str | None:
            *qualifier, last = names
            if qualifier:
                is_own = [q.lower() for q in qualifier] == [alias.lower()]
            else:  # DuckDB refuses a name that two tables have
                is_own = is_told and not any(other is not None and other.has(last) for other in others)
            return next((known for known in view.indexed if known.lower() == last.lower() and is_own), None)

        asked = sought(where, column_of, params)
        if asked is not None and columns_of(asked):
            start = int(one["query_location"])
            stop = start + int(one["query_location_length"])
            is_own = where is not None and one is table and _is_of_rows(where, view, alias)
            yield Narrowed(name, view, alias, asked, None, where if is_own else None, start, stop)


def _is_of_rows(where: Node, view: RowsView, alias: str) -> bool:
    """Whether a condition reads columns of the view alone."""
    for node in nodes(where):
        if node.get("class") in _OF_MORE or node.get("class") in _READ_ANY:
            return False
        if node.get("class") == "COLUMN_REF":
            *qualifier, last = (str(name).lower() for name in node["column_names"])
            if not view.has(last) or qualifier not in ([], [alias.lower()]):
                return False
    return True


def condition_sql(where: Node) -> tuple[str, set[str]] | None:
    """A condition as SQL, and the names of its columns in lower case; None if DuckDB does not write it."""
    tree = parsed("SELECT 1 WHERE true")
    if tree is None:
        return None
    tree["statements"][0]["node"]["where_clause"] = where
    before, found, condition = written(tree).partition(" WHERE ")
    is_whole = bool(found) and before == "SELECT 1"
    return (condition.rstrip(";"), set(_Read.of(nodes(where)).names)) if is_whole else None


def _are_all(node: Any) -> bool:
    """Whether a FROM has tables alone, joined by conditions."""
    if node.get("type") == "BASE_TABLE":
        return True
    is_join = node.get("type") == "JOIN" and not node.get("using_columns")
    return is_join and _are_all(node["left"]) and _are_all(node["right"])


def _is_plain_view(table: Node) -> bool:
    """Whether a table is named without a schema, a sample, a moment, or names of its columns."""
    others = ("schema_name", "catalog_name", "sample", "at_clause", "column_name_alias")
    return not any(table.get(field) for field in others) and isinstance(table.get("query_location"), int)


def _tables(node: Any) -> list[Node] | None:
    """The tables of a FROM whose rows a WHERE may leave out before the join; None if a join forbids it."""
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
