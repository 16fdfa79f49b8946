"""Private columns in expressions: they are compared with tokens, in which constants are replaced.

A private column stands alone on a side of =, <>, IS DISTINCT FROM, IN or IS NULL. On the other side are
constants, whose tokens take their places, or a column with tokens of the same secret. Everything else is
refused: it would compare a token with a value, and find nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidemark.query.scans.exact_constants import cast_node
from tidemark.warehouse.columns.column_types import ColumnType
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.tokens import token_of

Node = dict[str, Any]

COMPARED = frozenset({
    "COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_IN",
    "COMPARE_NOT_IN", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL",
})  # fmt: skip
ONLY_EQUAL = "is a private column, which stands alone beside =, <>, IN or IS NULL, with constants"
_TOKEN = re.compile(r"(\\x[0-9A-F]{2}){16,}")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


def token_node(kind: ColumnType, literal: Mapping[str, str]) -> Node | None:
    """The node of the token of a constant, text or a whole number; None for a constant of another kind."""
    if literal["kind"] not in {"STRING", "INTEGER"}:
        return None
    token = kind.exact_of(literal["text"])
    text = "".join(f"\\x{byte:02X}" for byte in token) if isinstance(token, bytes) else ""
    return cast_node(text, "BLOB")


def is_token_node(node: Node) -> bool:
    """Whether a copied node was made by `token_node`."""
    child = node.get("child", {})
    return (
        node["class"] == "CAST"
        and node["type_expr"]["type_name"] == "BLOB"
        and child.get("class") == "CONSTANT"
        and _TOKEN.fullmatch(str(child["literal"]["text"])) is not None
    )


def token_digits(node: Node) -> str | None:
    """The digits of the token that a constant of a condition or a statement stands for; None for no token."""
    if node["class"] == "CAST":
        type_name = str(node["type_expr"].get("type_name", "")).upper()
        text = (node["child"].get("literal") or {}).get("text") or ""
        is_token = type_name == "BLOB" and _TOKEN.fullmatch(text) is not None
        return text.replace("\\x", "").lower() if is_token else None
    if node.get("function_name") != "struct_pack" or len(node["arguments"]) != 1:
        return None
    return digits_of((node["arguments"][0]["expression"].get("literal") or {}).get("text"))


def digits_of(text: Any) -> str | None:
    """The digits of a token, given as text; None for another text."""
    return None if (found := token_of(text)) is None else found.hex()


def without_values(error: InputError, text: str, shown: str) -> InputError:
    """The error of an expression that may have values of private columns, without the text in quotes."""
    message = str(error).replace(repr(text), "the condition").replace(repr(shown), "the condition")
    return InputError(_QUOTED.sub("'...'", message.replace(text, "the condition")))
