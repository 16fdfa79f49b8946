"""The text of a type of DuckDB, as `typeof` gives it, as a tree.

    STRUCT(x DECIMAL(2,1)[], "where" MAP(VARCHAR, INTEGER))

DuckDB itself reads such text only in a connection, and there only types that this connection has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"""\s*("(?:[^"]|"")*"|'(?:[^']|'')*'|[(),\[\]]|[^\s"'(),\[\]]+)""")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type.

    name: in lower case, with the digits of a decimal; an array is a `list`. None for the type of NULL, and
        while a macro is defined, when types are not known yet.
    parts: the fields of a struct by name, or the types of an element, and of a key and a value.
    """

    name: str | None
    parts: tuple[tuple[str, Kind], ...] = ()


def parse_kind(text: str) -> Kind:
    """The type that the text names. O(length)."""
    tokens = _TOKEN.findall(text)
    tokens.reverse()  # so that the next one is popped from the end
    return _kind(tokens)


def _kind(tokens: list[str]) -> Kind:
    words = [tokens.pop()]
    while tokens and tokens[-1][0] not in "(),[]":
        words.append(tokens.pop())
    name = " ".join(words).lower()
    kind = Kind(None if name in {'"null"', "unknown"} else name)
    if tokens and tokens[-1] == "(":
        tokens.pop()
        kind = _with_parts(name, tokens)
        tokens.pop()
    while tokens and tokens[-1] == "[":
        while tokens.pop() != "]":
            pass
        kind = Kind("list", (("element", kind),))
    return kind


def _with_parts(name: str, tokens: list[str]) -> Kind:
    """The type whose parts the tokens begin with, up to the parenthesis that ends them."""
    if name not in {"struct", "map", "union"}:
        digits = []
        while tokens[-1] != ")":
            digits.append(tokens.pop())
        return Kind(f"decimal({''.join(digits)})" if name == "decimal" else name)
    parts: list[tuple[str, Kind]] = []
    while tokens[-1] != ")":
        if tokens[-1] == ",":
            tokens.pop()
        label = "" if name == "map" else _unquoted(tokens.pop())
        parts.append((label, _kind(tokens)))
    return Kind(name, tuple(parts))


def _unquoted(word: str) -> str:
    return word[1:-1].replace('""', '"') if word.startswith('"') else word
