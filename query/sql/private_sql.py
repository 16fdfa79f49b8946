"""Statements of `sql` over a warehouse with private columns: which may run, and the tokens in them.

In SQL a token is a struct, which DuckDB compares with no text. A cast or a function could make text of a
token, and comparing that text would silently find nothing. So the parse tree of a statement is checked: a
private column, under any name that the statement gives it, may stand only in a list of columns, in GROUP BY,
in a count, or beside =, <>, IN and IS NULL. Text, whole numbers and parameters that are compared with it are
replaced by tokens. What could give the column a name that the tree does not show is refused: text that is a
statement, columns that are named by position, UNION of columns of which one is private.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from tidemark.query.reading.sql_text import literal
from tidemark.query.scans.private_columns import COMPARED
from tidemark.query.sql.calls import SIGNATURES
from tidemark.query.sql.parse_trees import Node, nodes, parsed, written
from tidemark.warehouse.columns.column_types import ColumnType, find_column_type
from tidemark.warehouse.errors import InputError

_COUNTS = {"count", "approx_count_distinct"}
_LISTS = {"select_list", "group_expressions"}
_OF_KEYS = {name for name, signature in SIGNATURES.items() if not signature.of_measure}
_RENAMES = ("column_name_alias", "rename_list", "aliases")
_STATEMENTS = {"query", "query_table"}  # table functions whose argument is a statement, or names a table
_TABLES = {"BASE_TABLE", "SUBQUERY", "TABLE_FUNCTION", "JOIN"}
_OTHER_TABLES = {"SHOW_REF", "PIVOT"}
_SET_OPERATIONS = {"SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"}
_ALLOWED = (
    "A private column may stand in the list of columns, in GROUP BY and count(), and beside =, <>, IN or IS "
    "NULL, with text, whole numbers, parameters or private columns on the other side."
)


def columns_together(columns: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Delta's type of each column of several warehouses, by the name in lower case.

    InputError for a name that is private in one and not in another, and for private columns of two secrets:
    a statement does not tell to which warehouse a name belongs.
    """
    found: dict[str, str] = {}
    tokens = set[str]()
    for name, kind in chain.from_iterable(one.items() for one in columns):
        known = found.setdefault(name.lower(), kind)
        private = {one for one in (known, kind) if _is_token(one)}
        tokens |= private
        if (private and known != kind) or len(tokens) > 1:
            raise InputError(
                f"the private columns of the warehouses do not go together: {name!r} is not private in all "
                "of them, or two have different secrets. Ask the warehouses one by one."
            )
    return found


def _is_token(kind: str) -> bool:
    found = find_column_type(kind)
    return found is not None and found.is_token


def with_tokens(
    statement: str, params: Any, columns: Mapping[str, str], prefixes: Sequence[str] = ("",)
) -> tuple[str, Any]:
    """The statement and its parameters with tokens for the values that private columns are compared with.

    columns    Delta's type of each column of the warehouses
    prefixes   of function names, of each warehouse with private columns

    InputError for another use of a private column, and if a value is compared but this process has no
    secret. The errors do not show the statement.
    """
    kinds = {name: find_column_type(kind) for name, kind in columns.items()}
    private = {name.lower(): kind for name, kind in kinds.items() if kind is not None and kind.is_token}
    if not private:
        return statement, params
    kind = next(iter(private.values()))

    def token(text: str) -> Node:
        made = parsed(f"SELECT struct_pack(token := {literal(_text(kind, text))})")
        if made is None:
            raise _refused("a value in it cannot be a token")
        node: Node = made["statements"][0]["node"]["select_list"][0]
        return node

    tree = parsed(statement)
    if tree is None:
        raise _refused("it could not be parsed as one SELECT")
    found = _Replaced(tree, set(private) | _of_answers(tree, prefixes), token)
    return written(found.tree), _with_token_params(kind, params, found.private_params)


def _text(kind: ColumnType, value: Any) -> str:
    """The text of the token that stands for a value."""
    return str(kind.convert(kind.decode(kind.exact_of(value))))


def _with_token_params(kind: ColumnType, params: Any, compared: set[str]) -> Any:
    """The parameters; those whose identifiers are in `compared` as tokens."""

    def given(identifier: Any, value: Any) -> Any:
        is_name = str(identifier) in compared and value is not None
        return {"token": _text(kind, value)} if is_name else value

    if isinstance(params, Mapping):
        return {name: given(name, value) for name, value in params.items()}
    if isinstance(params, (list, tuple)):
        return [given(number, value) for number, value in enumerate(params, 1)]
    if compared and params is not None:
        raise InputError("params are a list of the values for ?, or a mapping of those for $name.")
    return params


class _Replaced:
    """A tree with tokens; `private_params` identify the parameters that are compared with private columns."""

    def __init__(self, tree: Node, private: set[str], token: Any) -> None:
        self._token, self.tree = token, tree
        self._computed: set[int] = set()  # id() of each name in ORDER BY that means a computed item
        self.private_params: set[str] = set()
        tables = {str(node.get(name, "")).lower() for node in nodes(tree) for name in ("table_name", "alias")
                  if node.get("type") in _TABLES}  # fmt: skip
        self._columns = private
        self._names = self._columns | (tables - {""})  # a table's name, as a value, is a struct
        while not self._columns >= (more := set(self._aliases())):
            self._columns |= more
            self._names |= more
        self._computed = {id(name) for node in nodes(tree) for name in self._orders_by_computed(node)}
        self._walk(tree, "")

    def _aliases(self) -> Iterator[str]:
        for node in nodes(self.tree):
            if node.get("class") == "COLUMN_REF" and self._is_private(node) and node.get("alias"):
                yield str(node["alias"]).lower()

    def _orders_by_computed(self, node: Node) -> Iterator[Node]:
        """The names in ORDER BY that the SELECT gives to computed items: DuckDB looks for these first."""
        items = node.get("select_list") or ()
        if any(item.get("class") == "STAR" for item in items):
            return
        own = {str(item["column_names"][-1]).lower() for item in items if self._is_private(item)}
        given = {str(item.get("alias") or "").lower() for item in items if not self._is_private(item)}
        for modifier in node.get("modifiers") or ():
            for order in modifier.get("orders") or ():
                path: Sequence[str] = order["expression"].get("column_names") or ()
                if len(path) == 1 and path[0].lower() in given - own - set(self._aliases()):
                    yield order["expression"]

    def _is_private(self, node: Any) -> bool:
        if not isinstance(node, dict) or node.get("class") != "COLUMN_REF" or id(node) in self._computed:
            return False
        *path, last = [str(name).lower() for name in node["column_names"]]
        return (
            last in self._names
            or any(name in self._names for name in path[1:])
            or (len(path) == 1 and path[0] in self._columns and last == "token")
        )

    def _gives_private(self, select: Any) -> bool:
        """Whether a query may return a private column."""
        found = [item for branch in _branches(select) for item in branch.get("select_list", ())]
        return any(self._is_private(item) or item.get("class") == "STAR" for item in found)

    def _walk(self, node: Any, place: str) -> None:
        if isinstance(node, list):
            for item in node:
                self._walk(item, place)
        elif isinstance(node, dict):
            self._check(node, place)
            compared = node.get("type") in COMPARED and ("private" if self._replace(node) else "compared")
            is_count = node.get("class") == "FUNCTION" and node.get("function_name") in _COUNTS
            for name, child in node.items():
                inside = name if name in _LISTS else compared or ("compared" if is_count else "")
                if name == "expression" or (name == "child" and node.get("class") == "SUBQUERY"):
                    inside = place if name == "expression" else "compared"
                self._walk(child, inside)

    def _check(self, node: Node, place: str) -> None:
        if self._is_private(node) and not place:
            shown = next(str(name) for name in node["column_names"] if str(name).lower() in self._names)
            raise _refused(
                f"a private column stands elsewhere. If {shown!r} is another column, give it a name that no "
                "private column has"
            )
        if any(node.get(name) for name in _RENAMES):
            raise _refused("columns get names elsewhere than by AS in the list of columns")
        if node.get("type") in _OTHER_TABLES:
            raise _refused("it describes or pivots a table")
        match node.get("class"):
            case "POSITIONAL_REFERENCE" | "LAMBDA_REF":
                raise _refused("a column is named by its position")
            case "STAR" if node.get("columns") or node.get("expr"):
                raise _refused("COLUMNS() names columns")
            case "STAR" if str(node.get("relation_name")).lower() in self._columns:
                raise _refused("the text of a token is taken out of it")
            case "SUBQUERY":
                self._check_subquery(node, place)
            case "FUNCTION" if str(node.get("function_name")).lower() in _STATEMENTS:
                raise _refused("a text in it is a statement, or names a table")
        if node.get("type") in _SET_OPERATIONS:
            self._check_branches(node)

    def _check_subquery(self, node: Node, place: str) -> None:
        """Refuses a query that gives a private column and is compared with none, or the reverse."""
        if "EXISTS" in str(node.get("subquery_type")):
            return
        gives = self._gives_private(node["subquery"]["node"])
        child = node.get("child")
        if gives != (self._is_private(child) if child is not None else place == "private"):
            raise _refused(
                "a query in it gives a private column and is compared with none, or is compared with one and "
                "gives none"
            )

    def _check_branches(self, node: Node) -> None:
        """Refuses UNION and the like if a column of them is private in one branch and not in another."""
        branches = _branches(node)
        if str(node.get("setop_type")).endswith("BY_NAME") or not any(map(self._gives_private, branches)):
            return
        for items in zip_longest(*(branch.get("select_list", ()) for branch in branches)):
            are_private = {self._is_private(item) for item in items}
            if len(are_private) > 1 or any((item or {}).get("class") == "STAR" for item in items):
                raise _refused(
                    "a column of a UNION is private in one part and perhaps not in another: name the columns "
                    "in the same order, or use UNION BY NAME"
                )

    def _replace(self, node: Node) -> bool:
        """Whether a private column is compared here; then the values beside it become tokens."""
        operands = node.get("children") or [node["left"], node["right"]]
        if not any(map(self._is_private, operands)):
            return False
        made = [self._operand(one) for one in operands]
        if "children" in node:
            node["children"] = made
        else:
            node["left"], node["right"] = made
        return True

    def _operand(self, node: Node) -> Node:
        given = node.get("value") or node.get("literal") or {}
        if self._is_private(node):
            return node
        if node.get("class") == "PARAMETER":
            self.private_params.add(str(node.get("identifier")))
            return node
        if node.get("class") == "SUBQUERY" and self._gives_private(node["subquery"]["node"]):
            return node
        if node.get("class") != "CONSTANT":
            raise _refused("a private column is compared with something computed")
        if given.get("kind") == "NULL_LITERAL":
            return node
        if given.get("kind") not in {"STRING", "INTEGER"}:
            raise _refused("a private column is compared with a value that is no text and no whole number")
        made: Node = self._token(given["text"])
        return made


def _of_answers(tree: Node, prefixes: Sequence[str]) -> set[str]:
    """The columns of answers that may have tokens, in a statement that calls functions."""
    functions = {
        str(node["function"].get("function_name")).lower()
        for node in nodes(tree)
        if node.get("type") == "TABLE_FUNCTION"
    }
    of_keys = {f"{prefix}{name}".lower() for prefix in prefixes for name in _OF_KEYS}
    if functions & of_keys:
        return {"value", "group"}
    return {"group"} if functions else set()


def _branches(query: Node) -> Sequence[Node]:
    """The SELECTs of a query; a set operation has several."""
    if query.get("type") not in _SET_OPERATIONS:
        return [query]
    parts = query.get("children") or [query["left"], query["right"]]
    return [branch for part in parts for branch in _branches(part)]


def _refused(why: str) -> InputError:
    return InputError(f"the statement is not run, because {why}. {_ALLOWED}")
