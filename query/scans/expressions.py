"""Expressions of filters: text in DuckDB's dialect over the columns of a warehouse, checked by an allow list.

An expression depends on the row alone. There are no subqueries, no aggregates, and no functions of files,
environment, time or chance.

Method. DuckDB parses the text; its parse tree is JSON. Each node is checked against allow_list.py and copied
field by field, columns under their stored names, into a new tree. DuckDB writes the SQL of the new tree. This
SQL is parsed and checked again and must give the same tree: what runs is what was checked. Then DuckDB binds
it to a table without rows, which finds the errors of types.

Two forms of text take DuckDB's parser quadratic or exponential time: nested parentheses, and CASE with an
operand, which the parser copies into every WHEN. They are limited before the text is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemark.query.reading.connections import ScanConnection, taken_connection
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans import allow_list
from tidemark.query.scans.exact_constants import type_node, with_exact_constants
from tidemark.query.scans.private_columns import (
    COMPARED,
    ONLY_EQUAL,
    is_token_node,
    token_node,
    without_values,
)
from tidemark.query.scans.sought import Sought, sought
from tidemark.warehouse.columns.column_types import (
    ColumnType,
    arrow_column_type,
    column_type,
    find_column_type,
)
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.settings.allowed_columns import SYSTEM_COLUMNS, is_unicode

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Node = dict[str, Any]

MAX_CHARACTERS = 10_000
MAX_PARENTHESES = 1_000
MAX_DEPTH = 100  # of nodes inside each other
_SHOWN_CHARACTERS = 200  # of the text, in errors
_PREFIX = "SELECT 1 FROM t WHERE "
_POSITIONS = {"query_location", "query_location_length"}
_TOLD = {"STRING", "INTEGER", "NUMERIC", "HEX"}
_NO_ORDER = {"type": "ORDER_MODIFIER", "orders": []}
_SMALLER = "Write it shorter: `x IN (1, 2)` instead of `x = 1 OR x = 2`, for example."


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression.

    text      as it was given; if private columns are used, the SQL, which has tokens
    sql       the SQL that runs in DuckDB, with columns under their stored names; the same text always gives
              the same SQL
    columns   the stored names of its columns, each once, in the order of the text
    never_fails   whether it consists of comparisons alone, which no row can make fail
    type      Delta's type of its values; None for a condition
    constants the texts and numbers in it, as text
    sought    the ranges that it allows in columns, see sought.py; None if it allows any
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    never_fails: bool = False
    type: str | None = None
    constants: tuple[str, ...] = ()
    sought: Sought | None = field(default=None, compare=False)


def checked_expression(text: str, columns: Mapping[str, str]) -> Expression:
    """The text as an expression over the columns; `columns` has Delta's type of each.

    System columns and columns of nested types cannot be used. Column names match without regard to the case
    of ASCII letters, as in DuckDB.

    Raises InputError for text that is not one expression, that has a part that is not allowed, that names
    another column, whose types do not fit, and for text that is too long or too deeply nested. O(length).
    """
    scope = _Scope(columns)
    if not scope.has_tokens:
        return _checked_expression(text, columns, scope)
    try:
        found = _checked_expression(text, columns, scope)
    except InputError as error:
        refusal = without_values(error, str(text), f"{str(text)[:_SHOWN_CHARACTERS]} ...")
    else:
        is_about = any(kind.is_token for kind in scope.used.values())
        return replace(found, text=found.sql) if is_about else found  # the text may have private values
    raise refusal  # outside of the handler: the error does not lead to the one with the values


def _checked_expression(text: str, columns: Mapping[str, str], scope: _Scope) -> Expression:
    _check_text(text)
    with taken_connection() as taken:
        connection = taken.connection
        bare, enclosed = (_parse(connection, text, part) for part in (f"{text}\n", f"({text}\n)"))
        tree = scope.copied(bare, text)
        if tree != scope.copied(enclosed, text):
            raise _not_one_expression(text)
        constants = tuple(dict.fromkeys(_constants(tree)))
        _make_table(taken, scope.used)
        tree = _with_exact_constants(connection, tree, text)
        sql = _written(connection, tree)
        again = _Scope(columns)
        if again.copied(_parse(connection, text, sql), text) != tree:
            raise _refusal(text, "DuckDB does not write it as it reads it. Write it in another way.")
        _check_types(connection, sql, text)
    return Expression(
        text,
        sql,
        tuple(scope.used),
        _never_fails(tree),
        constants=constants,
        sought=sought(tree, lambda names: names[0], {}),
    )


def checked_values(text: str, columns: Mapping[str, str]) -> Expression:
    """As `checked_expression`, of an expression whose values are ranked or grouped.

    InputError for values of a type that can be neither ranked nor grouped.
    """
    found = checked_expression(text, columns)
    with taken_connection() as taken:
        connection, sql = taken.connection, found.sql
        _make_table(taken, {name: column_type(columns[name]) for name in found.columns})
        arrow = _type_of(connection, sql)
        if pa.types.is_timestamp(arrow) and arrow.tz is None:
            sql = f"CAST({sql} AS TIMESTAMPTZ)"  # times are in UTC, and so is the connection
            arrow = _type_of(connection, sql)
    kind = arrow_column_type(arrow)
    if kind is None or not kind.is_key:
        raise _refusal(
            found.text, f"its values are of type {arrow}, which cannot be ranked or grouped. Cast it."
        )
    return replace(found, sql=sql, type=kind.name)


def _type_of(connection: DuckDBPyConnection, sql: str) -> pa.DataType:
    return connection.sql(f"SELECT {sql} AS x FROM t").to_arrow_table().schema[0].type


def _constants(node: Any) -> Iterator[str]:
    """The texts and numbers of a copied tree; sizes of types are not among them."""
    if isinstance(node, list):
        for child in node:
            yield from _constants(child)
    elif isinstance(node, dict):
        if node.get("class") == "CONSTANT" and node["literal"]["kind"] in _TOLD:
            yield node["literal"]["text"]
        elif node.get("class") != "TYPE":
            for child in node.values():
                yield from _constants(child)


def _never_fails(node: Any) -> bool:
    """Whether the tree compares columns and constants, and computes nothing else."""
    if isinstance(node, list):
        return all(map(_never_fails, node))
    if not isinstance(node, dict):
        return True
    kind = node.get("class")
    if kind == "CAST":  # of a constant: its value is known before any row
        return bool(node["child"]["class"] == "CONSTANT")
    if kind == "CASE" or (kind == "FUNCTION" and node["function_name"] not in allow_list.MATCHES):
        return False
    return all(map(_never_fails, node.values()))


class _Scope:
    """The columns that an expression may use, and those it has used."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._types = {name: kind for name, kind in columns.items() if name not in SYSTEM_COLUMNS}
        self._names = {_folded(name): name for name in self._types}
        self.used: dict[str, ColumnType] = {}

    @property
    def has_tokens(self) -> bool:
        """Whether a column is private."""
        kinds = map(find_column_type, self._types.values())
        return any(kind is not None and kind.is_token for kind in kinds)

    def token_kind(self, node: Any) -> ColumnType | None:
        """The type of the private column that the node is; None for another node."""
        path: list[str] = node.get("column_names", []) if isinstance(node, dict) else []
        stored = self._names.get(_folded(path[0])) if len(path) == 1 else None
        kind = None if stored is None else find_column_type(self._types[stored])
        return kind if kind is not None and kind.is_token else None

    def copied(self, node: Any, text: str) -> Node:
        """A copy of a node of the parse tree, with only its checked fields."""
        return _Copier(self, text).copied(node, 0)

    def resolved(self, name: str, text: str) -> str:
        """The stored name of a column; remembers it as used."""
        stored = self._names.get(_folded(name))
        kind = None if stored is None else find_column_type(self._types[stored])
        if stored is None or kind is None:
            problem = (
                f"there is no column {name!r}"
                if stored is None
                else f"the column {name!r} is of type {self._types[stored]}, which expressions cannot use"
            )
            usable = [name for name, kind in self._types.items() if find_column_type(kind)]
            raise _refusal(text, f"{problem}. Expected one of: {', '.join(usable)}. Text is quoted: 'text'.")
        self.used[stored] = kind
        return stored


class _Copier:
    """Copies the nodes of one text; raises InputError for a node that is not allowed."""

    def __init__(self, scope: _Scope, text: str) -> None:
        self._scope, self._text, self._type = scope, text, ""
        self._by_class: dict[Any, tuple[Callable[[Node, int], Node], Set[str]]] = {
            "BETWEEN": (self._between, {"COMPARE_BETWEEN"}),
            "CASE": (self._case, {"CASE_EXPR"}),
            "CAST": (self._cast, {"OPERATOR_CAST"}),
            "COLUMN_REF": (self._column, {"COLUMN_REF"}),
            "COMPARISON": (self._comparison, allow_list.COMPARISONS),
            "CONJUNCTION": (self._children, allow_list.CONJUNCTIONS),
            "CONSTANT": (self._constant, {"VALUE_CONSTANT"}),
            "FUNCTION": (self._function, {"FUNCTION"}),
            "OPERATOR": (self._children, allow_list.OPERATORS),
        }

    def copied(self, node: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise _refusal(
                self._text,
                f"it is nested more than {MAX_DEPTH} levels deep, also by chains of operators. {_SMALLER}",
            )
        kind, name = (node.get(field) if isinstance(node, dict) else None for field in ("class", "type"))
        copy_of, types = self._by_class.get(kind, (None, ()))
        if copy_of is None or name not in types:
            raise self._not_allowed(allow_list.NODES.get(str(kind), f"{name}"))
        rest = {field: value for field, value in node.items() if field not in {"class", "type", *_POSITIONS}}
        self._type = str(name)
        copy = copy_of(rest, depth + 1)
        if left := [field for field, value in rest.items() if value]:
            raise self._not_allowed(f"{', '.join(left)} of {name}")
        return {"class": kind, "type": name, **copy}

    def _not_allowed(self, what: str) -> InputError:
        return _refusal(self._text, f"{what} is not allowed. {allow_list.ALLOWED}")

    def _between(self, rest: Node, depth: int) -> Node:
        return {field: self.copied(rest.pop(field), depth) for field in ("input", "lower", "upper")}

    def _comparison(self, rest: Node, depth: int) -> Node:
        left, right = self._operands([rest.pop("left"), rest.pop("right")], depth)
        return {"left": left, "right": right}

    def _children(self, rest: Node, depth: int) -> Node:
        return {"children": self._operands(rest.pop("children"), depth)}

    def _operands(self, nodes: list[Any], depth: int) -> list[Node]:
        kinds = [self._scope.token_kind(node) for node in nodes]
        if self._type not in COMPARED or not any(kinds):
            return [self.copied(node, depth) for node in nodes]
        kind = next(one for one in kinds if one is not None)  # a warehouse has one secret
        return [self._token_operand(kind, node, depth) for node in nodes]

    def _token_operand(self, kind: ColumnType, node: Any, depth: int) -> Node:
        """An operand of a comparison with a private column, which it may be."""
        if self._scope.token_kind(node) is not None:
            stored = self._scope.resolved(node["column_names"][0], self._text)
            return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [stored]}
        copy = self.copied(node, depth)
        if copy["class"] == "CONSTANT":
            if copy["literal"]["kind"] == "NULL_LITERAL":
                return copy
            copy = token_node(kind, copy["literal"]) or copy
        if not is_token_node(copy):
            raise self._not_allowed("a private column beside what is computed")
        return copy

    def _case(self, rest: Node, depth: int) -> Node:
        checks = [
            {field: self.copied(check[field], depth) for field in ("when_expr", "then_expr")}
            for check in rest.pop("case_checks")
        ]
        return {"case_checks": checks, "else_expr": self.copied(rest.pop("else_expr"), depth)}

    def _cast(self, rest: Node, depth: int) -> Node:
        child = self.copied(rest.pop("child"), depth)
        given = dict(rest.pop("type_expr"))
        name, sizes = str(given.pop("type_name", "")), given.pop("children", [])
        path = given.pop("qualified_name", {}).get("path")
        others = [
            field for field, value in given.items() if value and field not in {"class", "type", *_POSITIONS}
        ]
        if name.upper() not in allow_list.TYPES or path != [name] or others:
            raise self._not_allowed(f"a cast to {'.'.join(path or [name])}")
        if sizes and name.upper() not in allow_list.SIZED_TYPES:
            raise self._not_allowed(f"a size of the type {name}")
        kind = type_node(name.upper(), [self._size(size, depth) for size in sizes])
        return {"child": child, "type_expr": kind, "try_cast": bool(rest.pop("try_cast", False))}

    def _size(self, node: Any, depth: int) -> Node:
        size = self.copied(node, depth)
        if size["class"] != "CONSTANT" or size["literal"]["kind"] != "INTEGER":
            raise self._not_allowed("a size of a type that is not a whole number")
        return size

    def _column(self, rest: Node, depth: int) -> Node:  # noqa: ARG002  all have the same parameters
        path = rest.pop("column_names")
        if len(path) != 1:
            raise self._not_allowed(f"a name with a dot, {'.'.join(path)},")
        stored = self._scope.resolved(path[0], self._text)
        if self._scope.used[stored].is_token:
            raise _refusal(self._text, f"{stored} {ONLY_EQUAL}.")
        return {"column_names": [stored]}

    def _constant(self, rest: Node, depth: int) -> Node:  # noqa: ARG002
        literal = rest.pop("literal", None) or {}
        kind, value = literal.get("kind"), literal.get("text") or ""
        if kind not in allow_list.LITERALS or set(literal) - {"kind", "text"} or not isinstance(value, str):
            raise self._not_allowed(f"a constant of the kind {kind}")
        return {"literal": {"kind": kind, "text": value}}

    def _function(self, rest: Node, depth: int) -> Node:
        name, path = str(rest.pop("function_name")), rest.pop("qualified_name", {}).get("path")
        lower = name.lower()
        if lower not in allow_list.FUNCTIONS or path != [name]:
            raise self._not_allowed(f"the function {'.'.join(path or [name])}")
        rest.pop("is_operator", None)
        if rest.pop("order_bys", _NO_ORDER).get("orders"):
            raise self._not_allowed(f"ORDER BY in {name}")
        arguments = []
        for argument in rest.pop("arguments"):
            others = [field for field, value in argument.items() if value and field != "expression"]
            if others:
                raise self._not_allowed(f"a named argument of {name}")
            arguments.append({"expression": self.copied(argument["expression"], depth)})
        return {
            "function_name": lower,
            "qualified_name": {"path": [lower]},
            "is_operator": lower in allow_list.OPERATOR_FUNCTIONS,
            "order_bys": _NO_ORDER,
            "arguments": arguments,
        }


def _check_text(text: Any) -> None:
    """InputError for text that should not reach the parser."""
    if not isinstance(text, str):
        raise InputError(
            f"an expression must be text, such as \"dest LIKE 'S%'\", got {type(text).__name__}."
        )
    if len(text) > MAX_CHARACTERS:
        raise _refusal(
            text, f"it has {len(text):,} characters, expected at most {MAX_CHARACTERS:,}. {_SMALLER}"
        )
    if not text.strip():
        raise InputError(
            "the expression is empty. Expected one such as \"dest LIKE 'S%' AND distance > 500\"."
        )
    if "\x00" in text or not is_unicode(text):
        raise _refusal(text, "it has NUL or a code point that is no character. Leave it out.")
    if max(map(text.count, "([{")) > MAX_PARENTHESES:
        raise _refusal(text, f"it has more than {MAX_PARENTHESES:,} parentheses or brackets. {_SMALLER}")
    if any(word == "case" and after != "when" for word, after in pairwise([*_words(text), ""])):
        raise _refusal(
            text,
            "CASE with an operand is not allowed. Write CASE WHEN x = 1 THEN ... instead of "
            f"CASE x WHEN 1 THEN .... {allow_list.ALLOWED}",
        )


def _words(text: str) -> Iterator[str]:
    """The tokens of the text without comments, in lower case."""
    import duckdb

    encoded = text.encode()
    tokens = duckdb.tokenize(text)
    ends = (*(start for start, _ in tokens), len(encoded))[1:]
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind != duckdb.token_type.comment:
            yield encoded[start:end].decode(errors="replace").strip().lower()


def _parse(connection: DuckDBPyConnection, text: str, expression: str) -> Any:
    """The parse tree of an expression; `text` is for errors. InputError unless it is one expression."""
    tree = _parse_query(connection, text, _PREFIX + expression)
    condition = _take_condition(tree)
    empty = _parse_query(connection, text, f"{_PREFIX}true")
    _take_condition(empty)
    if condition is None or tree != empty:
        raise _not_one_expression(text)
    return condition


def _parse_query(connection: DuckDBPyConnection, text: str, query: str) -> Any:
    (encoded,) = _one_row(connection, "SELECT json_serialize_sql(?)", query)
    try:
        tree = json.loads(encoded, object_hook=_without_positions)
    except RecursionError:
        raise _refusal(text, f"it is nested more than {MAX_DEPTH} levels deep. {_SMALLER}") from None
    if tree["error"]:
        raise _refusal(
            text,
            f"it cannot be parsed: {_first_line(tree['error_message'])}. Expected one expression, such as "
            "dest LIKE 'S%' AND distance > 500. A column whose name is a word of SQL is quoted: \"at\".",
        )
    return tree


def _take_condition(tree: Any) -> Any:
    """Takes the condition of WHERE, and its parameters, out of a statement; None if there is none."""
    statements = tree["statements"]
    node = statements[0].get("node") if len(statements) == 1 else None
    statements[0].pop("named_param_map", None)  # the parameters in the condition are refused there
    return node.pop("where_clause", None) if isinstance(node, dict) else None


def _written(connection: DuckDBPyConnection, condition: Node) -> str:
    """The SQL of a copied tree."""
    (encoded,) = _one_row(connection, "SELECT json_serialize_sql(?)", f"{_PREFIX}true")
    tree = json.loads(encoded)
    tree["statements"][0]["node"]["where_clause"] = condition
    (query,) = _one_row(connection, "SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))
    return str(query).removeprefix(_PREFIX)


def _make_table(taken: ScanConnection, columns: Mapping[str, ColumnType]) -> None:
    """Makes a table `t` of the columns, without rows."""
    fields = [f"{quoted(name)} {duckdb_name(kind)}" for name, kind in columns.items()]
    taken.connection.execute(f"CREATE TEMP TABLE t ({', '.join(fields or ['x INTEGER'])})")
    taken.tables.add("t")


def _with_exact_constants(connection: DuckDBPyConnection, tree: Node, text: str) -> Any:
    """The tree with constants that DuckDB would round written otherwise; `t` has the columns."""
    import duckdb

    columns: dict[str, str] = {row[0]: row[1] for row in connection.execute("DESCRIBE t").fetchall()}
    known: dict[str, str] = {}

    def type_of(node: Node) -> str:
        if node["class"] == "COLUMN_REF":
            return columns[node["column_names"][0]]
        sql = _written(connection, node)
        try:
            if sql not in known:
                known[sql] = connection.execute(f"DESCRIBE SELECT {sql} FROM t").fetchall()[0][1]
        except duckdb.Error as error:
            raise unfit(text, error) from None
        return known[sql]

    return with_exact_constants(tree, type_of, lambda problem: _refusal(text, problem))


def _check_types(connection: DuckDBPyConnection, sql: str, text: str) -> None:
    """InputError unless DuckDB can evaluate the expression on the columns of `t`."""
    import duckdb

    try:
        connection.execute(f"SELECT count(*) FROM t WHERE {sql}").fetchall()
    except duckdb.Error as error:
        raise unfit(text, error) from None


def unfit(text: str, error: Exception) -> InputError:
    """The error for an expression that DuckDB cannot evaluate."""
    return _refusal(text, f"it cannot be evaluated: {_first_line(str(error))}. Correct it, or use TRY_CAST.")


def duckdb_name(kind: ColumnType) -> str:
    """The name of a column type in DuckDB."""
    return kind.duckdb or kind.sql.upper()


def _one_row(connection: DuckDBPyConnection, statement: str, argument: str) -> tuple[Any, ...]:
    row = connection.execute(statement, [argument]).fetchone()
    return () if row is None else row


def _without_positions(node: Node) -> Node:
    return {field: value for field, value in node.items() if field not in _POSITIONS}


def _folded(name: str) -> str:
    """The name with ASCII letters in lower case: names that fold alike are one column to DuckDB."""
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in name)


def _first_line(text: str) -> str:
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "unknown error").rstrip(".")


def _not_one_expression(text: str) -> InputError:
    return _refusal(
        text, "it is not one expression. Expected the condition of a WHERE, without other clauses."
    )


def _refusal(text: str, problem: str) -> InputError:
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} ..."
    return InputError(f"the expression {shown!r} is not valid: {problem}")
